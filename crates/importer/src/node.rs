//! Document tree that all syntaxes are parsed into: ordered members, duplicates kept, and the
//! place of each value in the text. Values of JSON, TOML and YAML alone; no I/O.

use std::ops::Range;

/// Value of a document, and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The value.
    pub value: Value,
    /// Bytes of the text in JSON, lines of the text in YAML, empty in TOML.
    pub span: Range<usize>,
}

/// Kinds of values.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// A number as it is written.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Member>),
    /// A value that only one syntax has, such as a date of TOML, as it is written.
    Other(String),
}

/// Member of a table.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub key: String,
    pub key_span: Range<usize>,
    pub node: Node,
}

/// Step from a value to one inside of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl Node {
    /// Returns a value that stands in no text.
    pub fn new(value: Value) -> Self {
        Self { value, span: 0..0 }
    }

    /// Returns a text that stands in no document.
    pub fn text(text: &str) -> Self {
        Self::new(Value::Text(text.to_owned()))
    }

    /// Returns a list of texts that stands in no document.
    pub fn texts(texts: &[String]) -> Self {
        Self::new(Value::List(
            texts.iter().map(|text| Self::text(text)).collect(),
        ))
    }

    /// Returns a table that stands in no document.
    pub fn table<const N: usize>(members: [(&str, Self); N]) -> Self {
        let members = members
            .into_iter()
            .map(|(key, node)| Member::new(key, node));
        Self::new(Value::Table(members.collect()))
    }

    /// Returns the members of a table; a value of another kind has none.
    pub fn members(&self) -> &[Member] {
        match &self.value {
            Value::Table(members) => members,
            _ => &[],
        }
    }

    /// Returns the items of a list; a value of another kind has none.
    pub fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Returns the member `key`. The last one of several counts, as in `JSON.parse`.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let member = self.members().iter().rev().find(|member| member.key == key);
        member.map(|member| &member.node)
    }

    /// Returns the value at the end of `path`, the last one of equal keys at each step.
    pub fn at(&self, path: &[Step]) -> Option<&Self> {
        path.iter().try_fold(self, |node, step| match step {
            Step::Key(key) => node.get(key),
            Step::Index(index) => node.items().get(*index),
        })
    }

    /// As `at`, to change the value.
    pub fn at_mut(&mut self, path: &[Step]) -> Option<&mut Self> {
        let mut node = self;
        for step in path {
            node = match (step, &mut node.value) {
                (Step::Key(key), Value::Table(members)) => {
                    let mut found = members.iter_mut().rev();
                    &mut found.find(|member| member.key == *key)?.node
                }
                (Step::Index(index), Value::List(items)) => items.get_mut(*index)?,
                _ => return None,
            };
        }
        Some(node)
    }

    /// Returns the text of a text value.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the truth of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(truth) => Some(truth),
            _ => None,
        }
    }

    /// Returns whether both are the same value, wherever they stand.
    pub fn same(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Number(a), Value::Number(b))
            | (Value::Text(a), Value::Text(b))
            | (Value::Other(a), Value::Other(b)) => a == b,
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same(b))
            }
            (Value::Table(a), Value::Table(b)) => {
                a.len() == b.len()
                    && (a.iter().zip(b)).all(|(a, b)| a.key == b.key && a.node.same(&b.node))
            }
            _ => false,
        }
    }

    /// As `same`, but members of a table may stand in another order. Equal keys keep their order.
    pub fn same_in_any_order(&self, other: &Self) -> bool {
        match (&self.value, &other.value) {
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_in_any_order(b))
            }
            (Value::Table(a), Value::Table(b)) => {
                let sorted = |members: &[Member]| {
                    let mut order: Vec<usize> = (0..members.len()).collect();
                    order.sort_by(|a, b| members[*a].key.cmp(&members[*b].key));
                    order
                };
                let pairs = || sorted(a).into_iter().zip(sorted(b));
                a.len() == b.len()
                    && pairs().all(|(at_a, at_b)| {
                        a[at_a].key == b[at_b].key && a[at_a].node.same_in_any_order(&b[at_b].node)
                    })
            }
            _ => self.same(other),
        }
    }

    /// Returns the value as JSON text, for values that are carried over as they are.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        self.write_json(&mut text);
        text
    }

    fn write_json(&self, to: &mut String) {
        match &self.value {
            Value::Null => to.push_str("null"),
            Value::Bool(truth) => to.push_str(if *truth { "true" } else { "false" }),
            Value::Number(number) => to.push_str(number),
            Value::Text(text) | Value::Other(text) => to.push_str(&json_text(text)),
            Value::List(items) => {
                to.push('[');
                for (index, item) in items.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    item.write_json(to);
                }
                to.push(']');
            }
            Value::Table(members) => {
                to.push('{');
                for (index, member) in members.iter().enumerate() {
                    to.push_str(if index == 0 { "" } else { "," });
                    to.push_str(&json_text(&member.key));
                    to.push(':');
                    member.node.write_json(to);
                }
                to.push('}');
            }
        }
    }
}

impl Member {
    /// Returns a member that stands in no text.
    pub fn new(key: &str, node: Node) -> Self {
        let key = key.to_owned();
        Self {
            key,
            key_span: 0..0,
            node,
        }
    }
}

/// Returns `text` as a JSON string.
pub(crate) fn json_text(text: &str) -> String {
    let mut written = Vec::new();
    callgate_text::write_json_text(text, &mut written);
    String::from_utf8_lossy(&written).into_owned()
}

/// Returns `path` as a JSON pointer.
pub(crate) fn pointer(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        text.push('/');
        match step {
            Step::Key(key) => text.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => text.push_str(&index.to_string()),
        }
    }
    text
}
