//! TOML and its edits, both by `toml_edit`. A text with CRLF is edited with LF, and each line that
//! was there before gets its own end back.

use similar::{ChangeTag, TextDiff};
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike};

use super::{SyntaxError, TableChange, TextEditError, VALUES_MAX, line_of, newline};
use crate::node::{Member, Node, Step, Value, pointer};

/// Parses TOML.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let document = document(text)?;
    let mut values = 0;
    let node = convert_table(document.as_table(), &mut values);
    match values > VALUES_MAX {
        true => Err(SyntaxError::TooManyValues),
        false => Ok(node),
    }
}

fn document(text: &str) -> Result<DocumentMut, SyntaxError> {
    text.parse::<DocumentMut>().map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        match error.message() {
            message if message.contains("recursion limit") => SyntaxError::TooDeep,
            message => SyntaxError::Malformed {
                line,
                // What follows may quote the text.
                reason: message
                    .split(['`', '\'', '"', '\n'])
                    .next()
                    .unwrap_or_default()
                    .trim_end_matches([',', ' '])
                    .to_owned(),
            },
        }
    })
}

fn convert_table(table: &dyn TableLike, values: &mut usize) -> Node {
    let members = table.iter();
    let members = members.map(|(key, item)| Member::new(key, convert_item(item, values)));
    Node::new(Value::Table(members.collect()))
}

fn convert_item(item: &Item, values: &mut usize) -> Node {
    *values += 1;
    match item {
        Item::None => Node::new(Value::Null),
        Item::Table(table) => convert_table(table, values),
        Item::ArrayOfTables(tables) => convert_tables(tables, values),
        Item::Value(value) => convert(value, values),
    }
}

fn convert_tables(tables: &ArrayOfTables, values: &mut usize) -> Node {
    let items = tables.iter().map(|table| convert_table(table, values));
    Node::new(Value::List(items.collect()))
}

fn convert(value: &toml_edit::Value, values: &mut usize) -> Node {
    *values += 1;
    let written = || value.clone().decorated("", "").to_string();
    Node::new(match value {
        toml_edit::Value::String(text) => Value::Text(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Number(number.value().to_string()),
        toml_edit::Value::Float(_) => Value::Number(written()),
        toml_edit::Value::Boolean(truth) => Value::Bool(*truth.value()),
        toml_edit::Value::Datetime(_) => Value::Other(written()),
        toml_edit::Value::Array(items) => {
            Value::List(items.iter().map(|item| convert(item, values)).collect())
        }
        toml_edit::Value::InlineTable(table) => return convert_table(table, values),
    })
}

/// Returns the text with `changes` made.
pub(super) fn edit(text: &str, changes: &[TableChange]) -> Result<String, TextEditError> {
    let with_lf = text.replace("\r\n", "\n");
    let mut document = document(&with_lf).map_err(|_| TextEditError::Unverified)?;
    // The library ends the last line where the file does not.
    let written = document.to_string();
    if written.strip_suffix('\n').unwrap_or(&written)
        != with_lf.strip_suffix('\n').unwrap_or(&with_lf)
    {
        return Err(TextEditError::Unverified);
    }
    for change in changes {
        make(document.as_table_mut(), change)?;
    }
    let edited = document.to_string();
    match text.contains("\r\n") {
        true => Ok(with_line_ends_of(text, &with_lf, &edited)),
        false => Ok(edited),
    }
}

/// Returns `edited`, a change of `with_lf`, with the line ends of `text`.
fn with_line_ends_of(text: &str, with_lf: &str, edited: &str) -> String {
    let newline = newline(text);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut result = String::new();
    for change in TextDiff::from_lines(with_lf, edited).iter_all_changes() {
        match (change.tag(), change.old_index()) {
            (ChangeTag::Equal, Some(index)) => result.push_str(lines[index]),
            (ChangeTag::Insert, _) => result.push_str(&change.value().replace('\n', newline)),
            _ => {}
        }
    }
    result
}

fn make(root: &mut Table, change: &TableChange) -> Result<(), TextEditError> {
    let missing = || TextEditError::NoTable {
        at: pointer(&change.path),
    };
    if change.is_list {
        return Err(missing());
    }
    let mut place: &mut dyn TableLike = root;
    for step in &change.path {
        let Step::Key(key) = step else {
            return Err(missing());
        };
        if place.get(key).is_none() {
            let mut table = Table::new();
            table.set_implicit(true);
            place.insert(key, Item::Table(table));
        }
        let next = place.get_mut(key).and_then(Item::as_table_like_mut);
        place = next.ok_or_else(missing)?;
    }
    let keys: Vec<String> = place.iter().map(|(key, _)| key.to_owned()).collect();
    let mut first = None;
    let mut comments = String::new();
    for index in &change.removed {
        let Some(item) = keys.get(*index).and_then(|key| place.remove(key)) else {
            return Err(missing());
        };
        if let Item::Table(table) = &item {
            first = first.or(table.position());
            // What stands above the head of a table is not part of the server.
            let above = table.decor().prefix().and_then(|raw| raw.as_str());
            comments.push_str(
                above
                    .filter(|above| above.contains('#'))
                    .unwrap_or_default(),
            );
        }
    }
    let Some(member) = &change.inserted else {
        return Ok(());
    };
    // A table of tables with heads gets one more head, an inline table an inline table.
    let is_inline = place.iter().any(|(_, item)| item.is_value()) || first.is_none();
    let is_headed = !is_inline || place.is_empty() || place.iter().all(|(_, item)| item.is_table());
    let mut table = InlineTable::new();
    for member in member.node.members() {
        table.insert(&member.key, value(&member.node).ok_or_else(missing)?);
    }
    let has_heads = first.is_some() || place.iter().any(|(_, item)| item.is_table());
    if is_headed && (has_heads || change.removed.is_empty()) {
        let mut headed = table.into_table();
        headed.set_position(first);
        let prefix = match comments.is_empty() {
            true => "\n",
            false => comments.as_str(),
        };
        headed.decor_mut().set_prefix(prefix);
        place.insert(&member.key, Item::Table(headed));
    } else {
        place.insert(&member.key, Item::Value(table.into()));
    }
    Ok(())
}

fn value(node: &Node) -> Option<toml_edit::Value> {
    match &node.value {
        Value::Text(text) => Some(text.as_str().into()),
        Value::Bool(truth) => Some((*truth).into()),
        Value::List(items) => {
            let items: Option<toml_edit::Array> = items.iter().map(value).collect();
            items.map(Into::into)
        }
        _ => None,
    }
}
