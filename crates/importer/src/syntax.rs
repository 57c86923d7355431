//! Syntaxes of settings files: bytes become a `Document`, and a `Document` with changes becomes
//! text in which everything else is as it was. Every edit is parsed again and compared with the
//! values that were meant, so that an edit that went wrong never reaches a file. No I/O.

mod json;
mod toml;
mod yaml;

use crate::node::{Member, Node, Step, Value, pointer};

/// Deepest nesting of a settings file that is read.
pub const DEPTH_MAX: usize = 64;
/// Most values of a settings file, aliases of YAML expanded.
pub const VALUES_MAX: usize = 400_000;

const BOM: &str = "\u{feff}";

/// Syntax of a settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON. Comments and trailing commas are read, whether or not the client does.
    Json,
    /// TOML 1.1.
    Toml,
    /// YAML 1.2, one document.
    Yaml,
}

/// Error of a text that is not of its syntax. It holds no piece of the text, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// The bytes are no UTF-8.
    #[error("not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Bytes before the first wrong one.
        at: usize,
    },
    /// The text breaks the rules of its syntax.
    #[error("line {line}: {reason}")]
    Malformed {
        /// Line, from 1.
        line: usize,
        /// Reason, in words of the parser.
        reason: String,
    },
    /// The text is nested deeper than `DEPTH_MAX`.
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The text has more than `VALUES_MAX` values.
    #[error("more than {VALUES_MAX} values")]
    TooManyValues,
}

/// Error of an edit that can not be made in the text as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextEditError {
    /// The place for servers is something else.
    #[error("`{at}` is no table")]
    NoTable {
        /// JSON pointer of the value.
        at: String,
    },
    /// The table is written in a form that is not edited.
    #[error("`{at}` is written in a form that is not edited in place")]
    Form {
        /// JSON pointer of the table.
        at: String,
    },
    /// A key on the way to the table stands in the file several times.
    #[error("`{at}` stands in the file more than once")]
    Ambiguous {
        /// JSON pointer of the value.
        at: String,
    },
    /// The edited text does not have the values that were meant.
    #[error("the edited text would not say what was meant")]
    Unverified,
}

/// Change of one table, or of one list, of servers.
#[derive(Debug, Clone)]
pub(crate) struct TableChange {
    pub path: Vec<Step>,
    /// Whether the place is a list of entries.
    pub is_list: bool,
    /// Positions of the members that are removed, ascending.
    pub removed: Vec<usize>,
    /// Member that takes the place of the first one removed, or else the last place. The name is
    /// not used in a list.
    pub inserted: Option<Member>,
}

/// Settings file as text and as values.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub syntax: Syntax,
    /// Text without a byte order mark.
    pub text: String,
    pub root: Node,
    has_bom: bool,
}

impl Document {
    /// Parses the bytes of a settings file. A blank file is an empty table.
    pub fn parse(syntax: Syntax, bytes: &[u8]) -> Result<Self, SyntaxError> {
        let text = std::str::from_utf8(bytes).map_err(|error| SyntaxError::NotUtf8 {
            at: error.valid_up_to(),
        })?;
        let (has_bom, text) = match text.strip_prefix(BOM) {
            Some(text) => (true, text),
            None => (false, text),
        };
        let root = parse(syntax, text)?;
        Ok(Self {
            syntax,
            text: text.to_owned(),
            root,
            has_bom,
        })
    }

    /// Returns whether the text has comments or trailing commas that plain JSON has not.
    pub fn is_extended_json(&self) -> bool {
        self.syntax == Syntax::Json
            && !self.text.trim().is_empty()
            && json::parse(&self.text, json::Rules::Strict).is_err()
    }

    /// Returns the bytes of the file with `changes` made.
    pub fn edit(&self, changes: &[TableChange]) -> Result<Vec<u8>, TextEditError> {
        for change in changes {
            check_path(&self.root, &change.path)?;
        }
        let text = match self.syntax {
            Syntax::Json => json::edit(&self.text, &self.root, changes)?,
            Syntax::Toml => toml::edit(&self.text, changes)?,
            Syntax::Yaml => yaml::edit(&self.text, &self.root, changes)?,
        };
        let mut meant = self.root.clone();
        for change in changes {
            apply(&mut meant, change)?;
        }
        // The text of a file that clients depend on: never trusted because it was made with care.
        let found = parse(self.syntax, &text).map_err(|_| TextEditError::Unverified)?;
        if !found.same_in_any_order(&meant) {
            return Err(TextEditError::Unverified);
        }
        let bom = if self.has_bom { BOM } else { "" };
        Ok([bom.as_bytes(), text.as_bytes()].concat())
    }
}

fn parse(syntax: Syntax, text: &str) -> Result<Node, SyntaxError> {
    match syntax {
        Syntax::Json => json::parse(text, json::Rules::Extended),
        Syntax::Toml => toml::parse(text),
        Syntax::Yaml => yaml::parse(text),
    }
}

/// Makes a change in the values, as it is to be made in the text.
fn apply(root: &mut Node, change: &TableChange) -> Result<(), TextEditError> {
    let missing = || TextEditError::NoTable {
        at: pointer(&change.path),
    };
    if let Some(member) = &change.inserted {
        make_place(root, &change.path, change.is_list).ok_or_else(missing)?;
        let place = root.at_mut(&change.path).ok_or_else(missing)?;
        let at = change.removed.first().copied();
        match &mut place.value {
            Value::Table(members) => {
                drop_at(members, &change.removed);
                members.insert(at.unwrap_or(members.len()), member.clone());
            }
            Value::List(items) => {
                drop_at(items, &change.removed);
                items.insert(at.unwrap_or(items.len()), member.node.clone());
            }
            _ => return Err(missing()),
        }
        return Ok(());
    }
    match &mut root.at_mut(&change.path).ok_or_else(missing)?.value {
        Value::Table(members) => drop_at(members, &change.removed),
        Value::List(items) => drop_at(items, &change.removed),
        _ => return Err(missing()),
    }
    Ok(())
}

/// Makes the tables on the way to a place that is not there yet. A null counts as not there.
fn make_place(root: &mut Node, path: &[Step], is_list: bool) -> Option<()> {
    for len in 0..=path.len() {
        let empty = if is_list && len == path.len() {
            Value::List(Vec::new())
        } else {
            Value::Table(Vec::new())
        };
        match root.at_mut(&path[..len]) {
            Some(node) if matches!(node.value, Value::Null) => node.value = empty,
            Some(_) => {}
            None => {
                let Step::Key(key) = path.get(len.checked_sub(1)?)? else {
                    return None;
                };
                let Value::Table(members) = &mut root.at_mut(&path[..len - 1])?.value else {
                    return None;
                };
                members.push(Member::new(key, Node::new(empty)));
            }
        }
    }
    Some(())
}

fn drop_at<T>(items: &mut Vec<T>, removed: &[usize]) {
    let mut index = 0;
    items.retain(|_| {
        index += 1;
        !removed.contains(&(index - 1))
    });
}

/// Refuses a path with a key that its table has several times: clients differ in the one they use.
fn check_path(root: &Node, path: &[Step]) -> Result<(), TextEditError> {
    for (len, step) in path.iter().enumerate() {
        let (Some(node), Step::Key(key)) = (root.at(&path[..len]), step) else {
            continue;
        };
        if node
            .members()
            .iter()
            .filter(|member| member.key == *key)
            .count()
            > 1
        {
            let at = pointer(&path[..=len]);
            return Err(TextEditError::Ambiguous { at });
        }
    }
    Ok(())
}

/// Returns the line end that a text uses first.
fn newline(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

/// Returns the number, from 1, of the line that holds a byte.
fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}
