//! YAML, one document, and its edits by whole lines. Tables of servers in flow style are refused,
//! but for empty ones.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{DEPTH_MAX, SyntaxError, TableChange, TextEditError, VALUES_MAX, newline};
use crate::node::{Member, Node, Step, Value, json_text, pointer};

/// Parses YAML. A blank text is an empty table.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        values: 0,
        text_lines: text.split('\n').collect(),
    };
    let mut root = None;
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            event => {
                if root.is_some() {
                    return Err(SyntaxError::Malformed {
                        line: span.start.line(),
                        reason: "more than one document".to_owned(),
                    });
                }
                root = Some(reader.value(event, span, 0)?);
            }
        }
    }
    let root = root.unwrap_or_else(|| Node::new(Value::Null));
    Ok(match root.value {
        Value::Null => Node::new(Value::Table(Vec::new())),
        _ => root,
    })
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// Values with an anchor, and how many values each has.
    anchors: HashMap<usize, (Node, usize)>,
    values: usize,
    text_lines: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, SyntaxError> {
        self.parser.next_event().transpose().map_err(malformed)
    }

    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(SyntaxError::TooDeep);
        }
        let before = self.values;
        self.count(1)?;
        let (node, anchor) = match event {
            Event::Alias(id) => return self.alias(id, span),
            Event::Scalar(text, style, anchor, tag) => {
                let lines = self.scalar_lines(span, style);
                let value = scalar(text, style, tag.as_deref());
                (Node { value, span: lines }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.list(span, depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.table(span, depth)?, anchor),
            _ => {
                return Err(SyntaxError::Malformed {
                    line: span.start.line(),
                    reason: "a value is missing".to_owned(),
                });
            }
        };
        if anchor != 0 {
            let values = self.values - before;
            self.anchors.insert(anchor, (node.clone(), values));
        }
        Ok(node)
    }

    /// Returns a copy of the value an alias names. Copies count, so that aliases of aliases end.
    fn alias(&mut self, id: usize, span: Span) -> Result<Node, SyntaxError> {
        let values = self.anchors.get(&id).map_or(0, |(_, values)| *values);
        self.count(values)?;
        let line = span.start.line();
        let Some((node, _)) = self.anchors.get(&id) else {
            return Err(SyntaxError::Malformed {
                line,
                reason: "an alias inside of its own value".to_owned(),
            });
        };
        let mut node = node.clone();
        node.span = line.saturating_sub(1)..line;
        Ok(node)
    }

    fn list(&mut self, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        let mut items = Vec::new();
        let mut lines = span.start.line().saturating_sub(1)..span.start.line();
        loop {
            let Some((event, span)) = self.next()? else {
                return Err(ends_early(span));
            };
            if event == Event::SequenceEnd {
                break;
            }
            let item = self.value(event, span, depth + 1)?;
            lines.end = lines.end.max(item.span.end);
            items.push(item);
        }
        Ok(Node {
            value: Value::List(items),
            span: lines,
        })
    }

    fn table(&mut self, span: Span, depth: usize) -> Result<Node, SyntaxError> {
        let mut members = Vec::new();
        let mut lines = span.start.line().saturating_sub(1)..span.start.line();
        loop {
            let Some((event, span)) = self.next()? else {
                return Err(ends_early(span));
            };
            if event == Event::MappingEnd {
                break;
            }
            let key_line = span.start.line();
            let key = self.value(event, span, depth + 1)?;
            let key = match key.value {
                Value::Text(text) | Value::Number(text) | Value::Other(text) => text,
                Value::Bool(truth) => truth.to_string(),
                Value::Null => "null".to_owned(),
                Value::List(_) | Value::Table(_) => {
                    return Err(SyntaxError::Malformed {
                        line: key_line,
                        reason: "a key that is no text".to_owned(),
                    });
                }
            };
            let Some((event, span)) = self.next()? else {
                return Err(ends_early(span));
            };
            let mut node = self.value(event, span, depth + 1)?;
            let key_span = key_line.saturating_sub(1)..key_line;
            // A value that is left out may be placed at the next token.
            if matches!(node.value, Value::Null) {
                node.span = key_span.clone();
            }
            lines.end = lines.end.max(node.span.end).max(key_span.end);
            members.push(Member {
                key,
                key_span,
                node,
            });
        }
        Ok(Node {
            value: Value::Table(members),
            span: lines,
        })
    }

    fn count(&mut self, values: usize) -> Result<(), SyntaxError> {
        self.values += values;
        match self.values > VALUES_MAX {
            true => Err(SyntaxError::TooManyValues),
            false => Ok(()),
        }
    }

    /// Returns the lines of a scalar. A block scalar ends where the next token begins, so blank
    /// lines and comments at its end are left out.
    fn scalar_lines(&self, span: Span, style: ScalarStyle) -> Range<usize> {
        let start = span.start.line().saturating_sub(1);
        let mut end = span.end.line().max(start + 1);
        if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) {
            if span.end.col() == 0 {
                end = end.saturating_sub(1).max(start + 1);
            }
            let is_blank = |line: usize| {
                let line = self.text_lines.get(line).copied().unwrap_or_default();
                line.trim().is_empty()
            };
            while end > start + 1 && is_blank(end - 1) {
                end -= 1;
            }
        }
        start..end
    }
}

fn malformed(error: ScanError) -> SyntaxError {
    let info = error.info();
    match info.contains("recursion") {
        true => SyntaxError::TooDeep,
        false => SyntaxError::Malformed {
            line: error.marker().line(),
            reason: info
                .split(['\'', '"', '`'])
                .next()
                .unwrap_or_default()
                .trim()
                .to_owned(),
        },
    }
}

fn ends_early(span: Span) -> SyntaxError {
    SyntaxError::Malformed {
        line: span.start.line(),
        reason: "the text ends inside of a value".to_owned(),
    }
}

/// Returns the value of a scalar by the core schema.
fn scalar(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    let is_text = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
    if style != ScalarStyle::Plain || is_text {
        return Value::Text(text.into_owned());
    }
    match text.as_ref() {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        text if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::Text(text.into_owned()),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.contains(|digit: char| digit.is_ascii_digit())
        && text.parse::<f64>().is_ok()
}

/// Change of some lines.
struct LineChange {
    at: usize,
    removed: Vec<Range<usize>>,
    inserted: Vec<String>,
    /// A line that is written anew.
    rewritten: Option<(usize, String)>,
}

/// Returns the text with `changes` made.
pub(super) fn edit(
    text: &str,
    root: &Node,
    changes: &[TableChange],
) -> Result<String, TextEditError> {
    let newline = newline(text);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let changes: Result<Vec<LineChange>, _> = changes
        .iter()
        .map(|change| plan(&lines, root, change))
        .collect();
    let changes = changes?;
    let mut edited = String::new();
    for index in 0..=lines.len() {
        for change in changes.iter().filter(|change| change.at == index) {
            if !edited.is_empty() && !edited.ends_with('\n') {
                edited.push_str(newline);
            }
            for line in &change.inserted {
                edited.push_str(line);
                edited.push_str(newline);
            }
        }
        let Some(line) = lines.get(index) else {
            continue;
        };
        let is_removed =
            |change: &LineChange| change.removed.iter().any(|range| range.contains(&index));
        if changes.iter().any(is_removed) {
            continue;
        }
        let mut rewritten = changes
            .iter()
            .filter_map(|change| change.rewritten.as_ref());
        match rewritten.rfind(|(at, _)| *at == index) {
            Some((_, text)) => {
                edited.push_str(text);
                edited.push_str(newline);
            }
            None => edited.push_str(line),
        }
    }
    Ok(edited)
}

fn plan(lines: &[&str], root: &Node, change: &TableChange) -> Result<LineChange, TextEditError> {
    let form = || TextEditError::Form {
        at: pointer(&change.path),
    };
    let place = root.at(&change.path);
    let entries: Vec<Range<usize>> = match place.map(|place| &place.value) {
        Some(Value::Table(members)) if !change.is_list => members
            .iter()
            .map(|member| member.key_span.start..member.node.span.end)
            .collect(),
        Some(Value::List(items)) if change.is_list => {
            items.iter().map(|item| item.span.clone()).collect()
        }
        Some(Value::Null) | None => Vec::new(),
        Some(_) => {
            let at = pointer(&change.path);
            return Err(TextEditError::NoTable { at });
        }
    };
    let Some(first) = entries.first() else {
        return plan_empty(lines, root, change);
    };
    let first_line = lines.get(first.start).copied().ok_or_else(form)?;
    let indent = indent_of(first_line);
    if first_line[indent.len()..].starts_with(['{', '[']) || is_flow(lines, place) {
        return Err(form());
    }
    let removed: Vec<_> = change
        .removed
        .iter()
        .map(|index| entries[*index].clone())
        .collect();
    let inserted = change.inserted.as_ref();
    if inserted.is_none() && removed.len() == entries.len() {
        return Err(form());
    }
    let at = match removed.first() {
        Some(first) => first.start,
        None => entries
            .iter()
            .map(|entry| entry.end)
            .max()
            .unwrap_or(lines.len()),
    };
    Ok(LineChange {
        at,
        removed,
        inserted: inserted.map_or(Vec::new(), |member| entry(member, change.is_list, indent)),
        rewritten: None,
    })
}

/// Puts an entry into a table that is empty or not there.
fn plan_empty(
    lines: &[&str],
    root: &Node,
    change: &TableChange,
) -> Result<LineChange, TextEditError> {
    let form = || TextEditError::Form {
        at: pointer(&change.path),
    };
    // Settings in YAML have their servers at the root.
    let ([Step::Key(key)], Some(member)) = (change.path.as_slice(), &change.inserted) else {
        return Err(form());
    };
    let indent = if change.is_list { "" } else { "  " };
    let mut inserted = entry(member, change.is_list, indent);
    let Some(place) = root.members().iter().find(|member| member.key == *key) else {
        inserted.insert(0, format!("{}:", yaml_text(key)));
        return Ok(LineChange {
            at: lines.len(),
            removed: Vec::new(),
            inserted,
            rewritten: None,
        });
    };
    let index = place.key_span.start;
    let line = lines.get(index).copied().ok_or_else(form)?;
    let line = line.trim_end_matches(['\n', '\r']);
    let (head, rest) = line.split_once(':').ok_or_else(form)?;
    let rest = match rest.trim_start() {
        rest if rest.starts_with("{}") || rest.starts_with("[]") => &rest[2..],
        rest => rest.trim_start_matches("null").trim_start_matches('~'),
    };
    Ok(LineChange {
        at: index + 1,
        removed: Vec::new(),
        inserted,
        rewritten: Some((index, format!("{head}:{}", rest.trim_end()))),
    })
}

/// Returns whether a table that is not empty is written in braces.
fn is_flow(lines: &[&str], place: Option<&Node>) -> bool {
    let Some(place) = place else {
        return false;
    };
    let line = lines.get(place.span.start).copied().unwrap_or_default();
    let value = line
        .split_once(':')
        .map_or("", |(_, value)| value.trim_start());
    let starts = place.members().first().map(|member| member.key_span.start);
    let starts = starts.or_else(|| place.items().first().map(|item| item.span.start));
    value.starts_with(['{', '[']) && starts == Some(place.span.start)
}

fn indent_of(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches(' ').len()]
}

/// Returns the lines of an entry.
fn entry(member: &Member, is_list: bool, indent: &str) -> Vec<String> {
    let (mut lines, inner) = match is_list {
        true => (Vec::new(), format!("{indent}  ")),
        false => (
            vec![format!("{indent}{}:", yaml_text(&member.key))],
            format!("{indent}  "),
        ),
    };
    for (index, field) in member.node.members().iter().enumerate() {
        let head = match is_list && index == 0 {
            true => format!("{indent}- "),
            false => inner.clone(),
        };
        lines.push(format!("{head}{}: {}", field.key, yaml_value(&field.node)));
    }
    lines
}

/// Returns a value in flow style, which is JSON but for plain texts.
fn yaml_value(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => yaml_text(text),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(Node::to_json).collect();
            format!("[{}]", items.join(", "))
        }
        _ => node.to_json(),
    }
}

/// Returns a text plain if no reader takes it for something else, and else in quotes.
fn yaml_text(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || "-_./".contains(char))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
            .contains(&text.to_ascii_lowercase().as_str());
    match is_plain {
        true => text.to_owned(),
        false => json_text(text),
    }
}
