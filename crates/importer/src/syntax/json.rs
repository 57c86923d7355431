//! JSON with comments and trailing commas, which most clients read, and its edits by splices of
//! the text. Comments outside of removed members stay.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{DEPTH_MAX, SyntaxError, TableChange, TextEditError, VALUES_MAX, line_of, newline};
use crate::node::{Member, Node, Step, Value, json_text, pointer};

/// What the text may have besides JSON.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    Strict,
    /// Comments and trailing commas.
    Extended,
}

/// Parses JSON. A blank text is an empty table.
pub(super) fn parse(text: &str, rules: Rules) -> Result<Node, SyntaxError> {
    let is_extended = rules == Rules::Extended;
    let options = ParseOptions {
        allow_comments: is_extended,
        allow_trailing_commas: is_extended,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| {
        match error.kind() {
            ParseErrorKind::NestingDepthExceeded => SyntaxError::TooDeep,
            kind => SyntaxError::Malformed {
                line: line_of(text, error.range().start),
                reason: reason(kind),
            },
        }
    })?;
    let mut values = 0;
    match &parsed.value {
        Some(value) => convert(value, 0, &mut values),
        None => Ok(Node::new(Value::Table(Vec::new()))),
    }
}

/// Returns the parser's reason without what it quotes of the text.
fn reason(kind: &ParseErrorKind) -> String {
    let text = kind.to_string();
    let text = text.split(['\'', '"', '`', ':']).next().unwrap_or_default();
    text.trim().to_ascii_lowercase()
}

fn convert(value: &ast::Value<'_>, depth: usize, values: &mut usize) -> Result<Node, SyntaxError> {
    if depth > DEPTH_MAX {
        return Err(SyntaxError::TooDeep);
    }
    *values += 1;
    if *values > VALUES_MAX {
        return Err(SyntaxError::TooManyValues);
    }
    let range = value.range();
    let value = match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(literal) => Value::Bool(literal.value),
        ast::Value::NumberLit(literal) => Value::Number(literal.value.to_owned()),
        ast::Value::StringLit(literal) => Value::Text(literal.value.clone().into_owned()),
        ast::Value::Array(array) => {
            let items = array.elements.iter();
            let items: Result<_, _> = items.map(|item| convert(item, depth + 1, values)).collect();
            Value::List(items?)
        }
        ast::Value::Object(object) => {
            let members = object.properties.iter().map(|property| {
                let key_range = property.name.range();
                Ok(Member {
                    key: property.name.as_str().to_owned(),
                    key_span: key_range.start..key_range.end,
                    node: convert(&property.value, depth + 1, values)?,
                })
            });
            Value::Table(members.collect::<Result<_, SyntaxError>>()?)
        }
    };
    Ok(Node {
        value,
        span: range.start..range.end,
    })
}

/// Replacement of some bytes of the text.
struct Splice {
    start: usize,
    end: usize,
    text: String,
}

/// Returns the text with `changes` made.
pub(super) fn edit(
    text: &str,
    root: &Node,
    changes: &[TableChange],
) -> Result<String, TextEditError> {
    let layout = Layout::of(text, root);
    let mut splices = Vec::new();
    for change in changes {
        layout.change(root, change, &mut splices)?;
    }
    splices.sort_by_key(|splice| (splice.start, splice.end));
    let mut edited = String::new();
    let mut at = 0;
    for splice in &splices {
        let kept = text
            .get(at..splice.start)
            .ok_or(TextEditError::Unverified)?;
        edited.push_str(kept);
        edited.push_str(&splice.text);
        at = splice.end;
    }
    edited.push_str(text.get(at..).ok_or(TextEditError::Unverified)?);
    Ok(edited)
}

/// How the text is written: its line ends and its indentation.
struct Layout<'a> {
    text: &'a str,
    newline: &'static str,
    unit: String,
}

impl<'a> Layout<'a> {
    fn of(text: &'a str, root: &Node) -> Self {
        let first = root.members().first();
        let indent = first.and_then(|member| indent_before(text, member.key_span.start));
        let unit = indent.filter(|indent| !indent.is_empty()).unwrap_or("  ");
        Self {
            text,
            newline: newline(text),
            unit: unit.to_owned(),
        }
    }

    fn change(
        &self,
        root: &Node,
        change: &TableChange,
        to: &mut Vec<Splice>,
    ) -> Result<(), TextEditError> {
        let Some(place) = root.at(&change.path) else {
            return self.insert_with_tables(root, change, to);
        };
        if let (Value::Null, Some(member)) = (&place.value, &change.inserted) {
            let value = table_of(member.clone(), change.is_list);
            let mut text = String::new();
            let indent = line_indent(self.text, place.span.start);
            self.write(&value, indent, self.is_block(), &mut text);
            let (start, end) = (place.span.start, place.span.end);
            to.push(Splice { start, end, text });
            return Ok(());
        }
        let entries: Vec<(usize, usize)> = match &place.value {
            Value::Table(members) if !change.is_list => members
                .iter()
                .map(|member| (member.key_span.start, member.node.span.end))
                .collect(),
            Value::List(items) if change.is_list => items
                .iter()
                .map(|item| (item.span.start, item.span.end))
                .collect(),
            _ => return Err(no_table(&change.path)),
        };
        match (change.removed.first(), &change.inserted) {
            (Some(first), Some(member)) => {
                let (start, end) = entries[*first];
                let (indent, is_block) = match indent_before(self.text, start) {
                    Some(indent) => (indent, true),
                    None => ("", self.spans_lines(place)),
                };
                let text = self.entry(member, change.is_list, indent, is_block);
                to.push(Splice { start, end, text });
                self.remove(&entries, &change.removed, Some(*first), to);
            }
            (_, None) => self.remove(&entries, &change.removed, None, to),
            (None, Some(member)) => self.append(place, &entries, member, change.is_list, to),
        }
        Ok(())
    }

    fn is_block(&self) -> bool {
        self.text.trim().contains('\n')
    }

    fn spans_lines(&self, node: &Node) -> bool {
        self.text[node.span.clone()].contains('\n')
    }

    /// Removes entries with their commas, and with their lines where nothing else is on them.
    /// `kept` is replaced by another entry and so stays a neighbour.
    fn remove(
        &self,
        entries: &[(usize, usize)],
        removed: &[usize],
        kept: Option<usize>,
        to: &mut Vec<Splice>,
    ) {
        let is_gone = |index: &usize| removed.contains(index) && Some(*index) != kept;
        for index in removed.iter().filter(|index| is_gone(index)) {
            let (start, end) = entries[*index];
            let comma = self.comma_after(end);
            match comma {
                Some(comma) if self.text[end..comma].trim().is_empty() => {
                    to.push(self.without(start, comma + 1));
                }
                Some(comma) => {
                    to.push(self.without(start, end));
                    to.push(self.without(comma, comma + 1));
                }
                None => to.push(self.without(start, end)),
            }
        }
        // The last entry left had a comma that separated it from one that is gone.
        let last = entries.len().checked_sub(1);
        let is_trailing = |last: usize| self.comma_after(entries[last].1).is_some();
        if last.is_some_and(|last| is_gone(&last) && !is_trailing(last)) {
            let left = (0..entries.len()).rev().find(|index| !is_gone(index));
            if let Some(comma) = left.and_then(|left| self.comma_after(entries[left].1)) {
                to.push(Splice {
                    start: comma,
                    end: comma + 1,
                    text: String::new(),
                });
            }
        }
    }

    /// Removes bytes, and the line they stand on if it has nothing else.
    fn without(&self, start: usize, end: usize) -> Splice {
        let after = &self.text[end..];
        let blank = after.len() - after.trim_start_matches([' ', '\t']).len();
        let rest = &after[blank..];
        let line_end = match rest {
            _ if rest.starts_with("\r\n") => Some(2),
            _ if rest.starts_with('\n') => Some(1),
            _ => None,
        };
        let (start, end) = match (indent_before(self.text, start), line_end) {
            (Some(indent), Some(line_end)) => (start - indent.len(), end + blank + line_end),
            (None, None) => (start, end + blank),
            _ => (start, end),
        };
        Splice {
            start,
            end,
            text: String::new(),
        }
    }

    /// Puts an entry last, on a line of its own where the entries stand on lines of their own.
    fn append(
        &self,
        place: &Node,
        entries: &[(usize, usize)],
        member: &Member,
        is_list: bool,
        to: &mut Vec<Splice>,
    ) {
        let Some((start, end)) = entries.last().copied() else {
            return to.push(self.fill(place, member, is_list));
        };
        let comma = self.comma_after(end);
        if comma.is_none() {
            to.push(Splice {
                start: end,
                end,
                text: ",".to_owned(),
            });
        }
        let after = comma.map_or(end, |comma| comma + 1);
        let trailing = if comma.is_some() { "," } else { "" };
        let at = after + self.comment_on_line(after);
        let text = match indent_before(self.text, start) {
            Some(indent) => {
                let entry = self.entry(member, is_list, indent, true);
                format!("{}{indent}{entry}{trailing}", self.newline)
            }
            None => {
                let entry = self.entry(member, is_list, "", false);
                format!(" {entry}{trailing}")
            }
        };
        to.push(Splice {
            start: at,
            end: at,
            text,
        });
    }

    /// Puts an entry into an empty table, which may hold comments.
    fn fill(&self, place: &Node, member: &Member, is_list: bool) -> Splice {
        let (open, close) = (place.span.start + 1, place.span.end - 1);
        let inner = &self.text[open..close];
        // A file with nothing in it has no form yet.
        let is_block = self.is_block() || place.span.end >= self.text.trim_end().len();
        let outer = line_indent(self.text, place.span.start);
        let indent = format!("{outer}{}", self.unit);
        let entry = self.entry(member, is_list, &indent, is_block);
        let newline = self.newline;
        if inner.trim().is_empty() {
            let text = match is_block {
                true => format!("{newline}{indent}{entry}{newline}{outer}"),
                false => entry,
            };
            return Splice {
                start: open,
                end: close,
                text,
            };
        }
        match indent_before(self.text, close) {
            Some(before) => Splice {
                start: close - before.len(),
                end: close - before.len(),
                text: format!("{indent}{entry}{newline}"),
            },
            None => Splice {
                start: close,
                end: close,
                text: format!("{newline}{indent}{entry}{newline}{outer}"),
            },
        }
    }

    /// Puts an entry into a table that is not there yet.
    fn insert_with_tables(
        &self,
        root: &Node,
        change: &TableChange,
        to: &mut Vec<Splice>,
    ) -> Result<(), TextEditError> {
        let path = &change.path;
        let Some(member) = change.inserted.clone() else {
            return Err(no_table(path));
        };
        let there = (0..path.len())
            .rev()
            .find(|len| root.at(&path[..*len]).is_some());
        let there = there.unwrap_or_default();
        let place = root.at(&path[..there]).ok_or_else(|| no_table(path))?;
        let Value::Table(members) = &place.value else {
            return Err(no_table(&path[..there]));
        };
        let mut value = table_of(member, change.is_list);
        for step in path[there + 1..].iter().rev() {
            let Step::Key(key) = step else {
                return Err(no_table(path));
            };
            value = Node::new(Value::Table(vec![Member::new(key, value)]));
        }
        let Step::Key(key) = &path[there] else {
            return Err(no_table(path));
        };
        let entries: Vec<_> = members
            .iter()
            .map(|member| (member.key_span.start, member.node.span.end))
            .collect();
        let member = Member::new(key, value);
        if place.span.is_empty() {
            // A blank file: the document itself is new.
            let mut text = String::new();
            if !self.text.trim().is_empty() && !self.text.ends_with('\n') {
                // A comment ends with its line.
                text.push_str(self.newline);
            }
            let document = Node::new(Value::Table(vec![member]));
            self.write(&document, "", true, &mut text);
            text.push_str(self.newline);
            let (start, end) = (self.text.len(), self.text.len());
            to.push(Splice { start, end, text });
        } else {
            self.append(place, &entries, &member, false, to);
        }
        Ok(())
    }

    /// Returns an entry as text. `indent` is that of its first line.
    fn entry(&self, member: &Member, is_list: bool, indent: &str, is_block: bool) -> String {
        let mut text = String::new();
        if !is_list {
            text.push_str(&json_text(&member.key));
            text.push_str(": ");
        }
        self.write(&member.node, indent, is_block, &mut text);
        text
    }

    fn write(&self, node: &Node, indent: &str, is_block: bool, to: &mut String) {
        let deeper = format!("{indent}{}", self.unit);
        let (between, before, after) = match is_block {
            true => (
                format!(",{}{deeper}", self.newline),
                format!("{}{deeper}", self.newline),
                format!("{}{indent}", self.newline),
            ),
            false => (", ".to_owned(), String::new(), String::new()),
        };
        match &node.value {
            Value::Table(members) if !members.is_empty() => {
                for (index, member) in members.iter().enumerate() {
                    to.push_str(if index == 0 { "{" } else { "" });
                    to.push_str(if index == 0 { &before } else { &between });
                    to.push_str(&json_text(&member.key));
                    to.push_str(": ");
                    self.write(&member.node, &deeper, is_block, to);
                }
                to.push_str(&after);
                to.push('}');
            }
            Value::List(items) => {
                let is_short = items.iter().all(|item| item.members().is_empty());
                for (index, item) in items.iter().enumerate() {
                    to.push_str(match (index, is_short) {
                        (0, true) => "[",
                        (0, false) => "[",
                        (_, true) => ", ",
                        (_, false) => &between,
                    });
                    if index == 0 && !is_short {
                        to.push_str(&before);
                    }
                    self.write(item, &deeper, is_block, to);
                }
                match (items.is_empty(), is_short) {
                    (true, _) => to.push_str("[]"),
                    (false, true) => to.push(']'),
                    (false, false) => {
                        to.push_str(&after);
                        to.push(']');
                    }
                }
            }
            _ => to.push_str(&node.to_json()),
        }
    }

    /// Returns the place of the comma that follows a value, comments between them skipped.
    fn comma_after(&self, end: usize) -> Option<usize> {
        let at = skip_trivia(self.text, end);
        self.text[at..].starts_with(',').then_some(at)
    }

    /// Returns the length of a comment that ends the line, blanks before it included.
    fn comment_on_line(&self, at: usize) -> usize {
        let line = self.text[at..].split('\n').next().unwrap_or_default();
        let line = line.trim_end();
        let text = line.trim_start();
        let is_block = text.starts_with("/*") && text.find("*/") == Some(text.len() - 2);
        match text.starts_with("//") || is_block {
            true => line.len(),
            false => 0,
        }
    }
}

/// Returns a table, or a list, of one entry.
fn table_of(member: Member, is_list: bool) -> Node {
    Node::new(match is_list {
        true => Value::List(vec![member.node]),
        false => Value::Table(vec![member]),
    })
}

fn no_table(path: &[Step]) -> TextEditError {
    TextEditError::NoTable { at: pointer(path) }
}

/// Returns the blanks before `at` if nothing else stands before it on its line.
fn indent_before(text: &str, at: usize) -> Option<&str> {
    let before = &text[..at];
    let start = before.rfind('\n')? + 1;
    let indent = &before[start..];
    indent
        .trim_start_matches([' ', '\t'])
        .is_empty()
        .then_some(indent)
}

/// Returns the blanks that begin the line of `at`.
fn line_indent(text: &str, at: usize) -> &str {
    let line = &text[text[..at].rfind('\n').map_or(0, |end| end + 1)..at];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Returns the place of the next byte that is neither blank nor in a comment.
fn skip_trivia(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let blank = rest.len() - rest.trim_start().len();
        at += blank;
        let rest = &text[at..];
        let comment = match rest {
            _ if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            _ => 0,
        };
        if blank == 0 && comment == 0 {
            return at;
        }
        at += comment;
    }
}
