//! The line grammar of `tools.yaml`, `capabilities.yaml` and `pack.yaml`: keys and values, one
//! a line, at fixed indents. It looks like YAML and is much less, so that a reader needs no
//! YAML to know what a file says. Whatever YAML and this grammar could read in two ways is
//! refused. TP-59.

use serde_json::Value;

use crate::json;

/// Most bytes of one file.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Most tools of one file.
pub const TOOLS_MAX: usize = 1000;
/// Most characters of a tool's name.
pub(super) const NAME_CHARS_MAX: usize = 128;

/// Where a file is wrong, and how.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct LineError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// For people; says what to write instead.
    pub reason: String,
}

/// One line that says something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    number: usize,
    /// Blanks before the text.
    pub(super) indent: usize,
    text: &'a str,
}

/// A line as `key: value`; the value may be missing.
#[derive(Debug)]
pub(super) struct Pair<'a> {
    pub(super) key: String,
    pub(super) value: &'a str,
    line: Line<'a>,
    value_at: usize,
}

/// The lines of a file, without blank ones and comments.
pub(super) fn lines(text: &str) -> Result<Vec<Line<'_>>, LineError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(LineError {
            line: 1,
            column: 1,
            reason: format!("the file is larger than {FILE_BYTES_MAX} bytes"),
        });
    }
    let mut found = Vec::new();
    for (index, raw) in text.lines().enumerate() {
        let trimmed = raw.trim_start_matches(' ');
        let line = Line {
            number: index + 1,
            indent: raw.len() - trimmed.len(),
            text: trimmed.trim_end_matches(' '),
        };
        // Readers differ in where such characters end a line, and people do not see them.
        let unseen = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
        if let Some(at) = line.text.find(unseen) {
            let reason = match line.text[at..].starts_with('\t') {
                true => "a tab: indent with blanks",
                false => "a character that cannot be seen: remove it",
            };
            return Err(line.wrong(at, reason));
        }
        if !line.text.is_empty() && !line.text.starts_with('#') {
            found.push(line);
        }
    }
    Ok(found)
}

/// The lines below the one line a file must begin with.
pub(super) fn below<'a>(text: &'a str, head: &str) -> Result<Vec<Line<'a>>, LineError> {
    let mut all = lines(text)?;
    match all.first() {
        Some(first) if first.indent == 0 && first.text == head => {
            all.remove(0);
            Ok(all)
        }
        Some(first) => Err(first.wrong(0, format!("the first line must be `{head}`"))),
        None => Err(LineError {
            line: 1,
            column: 1,
            reason: format!("the file is empty: write `{head}`, or remove the file"),
        }),
    }
}

/// Blocks of a name at indent 2 and its fields at indent 4.
pub(super) fn blocks<'a>(all: &[Line<'a>]) -> Result<Vec<(Pair<'a>, Vec<Pair<'a>>)>, LineError> {
    let mut found: Vec<(Pair<'a>, Vec<Pair<'a>>)> = Vec::new();
    for line in all {
        match (line.indent, found.last_mut()) {
            (2, _) => {
                let name = line.tool()?;
                if found.iter().any(|(known, _)| known.key == name.key) {
                    return Err(line.wrong(0, format!("`{}` is named twice", name.key)));
                }
                if found.len() == TOOLS_MAX {
                    return Err(line.wrong(0, format!("more than {TOOLS_MAX} tools")));
                }
                found.push((name, Vec::new()));
            }
            (4, Some((name, fields))) => {
                let field = line.field()?;
                if fields.iter().any(|known| known.key == field.key) {
                    let reason = format!("`{}` is said twice of `{}`", field.key, name.key);
                    return Err(line.wrong(0, reason));
                }
                fields.push(field);
            }
            (4, None) => return Err(line.wrong(0, "a field before any tool's name")),
            _ => {
                let reason = "indent a tool's name by 2 blanks and its fields by 4";
                return Err(line.wrong(0, reason));
            }
        }
    }
    Ok(found)
}

impl<'a> Line<'a> {
    /// An error at a byte of the text.
    pub(super) fn wrong(&self, at: usize, reason: impl Into<String>) -> LineError {
        let before = self.text.get(..at).unwrap_or(self.text);
        LineError {
            line: self.number,
            column: self.indent + before.chars().count() + 1,
            reason: reason.into(),
        }
    }

    /// `- item`.
    pub(super) fn item(&self) -> Result<String, LineError> {
        match self.text.strip_prefix("- ").map(str::trim_start) {
            Some(item) if !item.is_empty() => {
                unquoted(item).map_err(|reason| self.wrong(self.text.len() - item.len(), reason))
            }
            _ => Err(self.wrong(0, "an item of the list is written `- name`")),
        }
    }

    /// `key: value` or `key:`.
    pub(super) fn pair(&self) -> Result<Pair<'a>, LineError> {
        let end = match self.text.chars().next() {
            Some(quote @ ('"' | '\'')) => closing(self.text, quote),
            _ => self.text.find(':'),
        };
        let rest = end.and_then(|end| {
            let after = self.text[end..].trim_start();
            after.strip_prefix(':').map(|value| (end, value))
        });
        let Some((end, value)) = rest else {
            return Err(self.wrong(0, "a line is written `key: value`"));
        };
        let key = unquoted(self.text[..end].trim_end()).map_err(|reason| self.wrong(0, reason))?;
        if key.is_empty() {
            return Err(self.wrong(0, "the key is empty"));
        }
        // YAML would take `a:b` for one word.
        if !value.is_empty() && !value.starts_with(' ') {
            let at = self.text.len() - value.len();
            return Err(self.wrong(at, "put a blank after the colon"));
        }
        let value = value.trim_start();
        Ok(Pair {
            key,
            value,
            line: *self,
            value_at: self.text.len() - value.len(),
        })
    }

    /// `"name":` alone.
    fn tool(&self) -> Result<Pair<'a>, LineError> {
        let pair = self.pair()?;
        if !pair.value.is_empty() {
            return Err(pair.wrong("a tool's fields stand below its name, indented by 4 blanks"));
        }
        if pair.key.chars().count() > NAME_CHARS_MAX {
            let reason = format!("a name longer than {NAME_CHARS_MAX} characters");
            return Err(self.wrong(0, reason));
        }
        Ok(pair)
    }

    fn field(&self) -> Result<Pair<'a>, LineError> {
        let pair = self.pair()?;
        if pair.value.is_empty() {
            return Err(pair.wrong(format!("`{}` needs a value on this line", pair.key)));
        }
        Ok(pair)
    }
}

impl Pair<'_> {
    /// An error at the value.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> LineError {
        self.line.wrong(self.value_at, reason)
    }

    /// An error at the key.
    pub(super) fn wrong_key(&self, reason: impl Into<String>) -> LineError {
        self.line.wrong(0, reason)
    }

    /// The value as text, without its quotes; never empty.
    pub(super) fn text(&self) -> Result<String, LineError> {
        let text = unquoted(self.value).map_err(|reason| self.wrong(reason))?;
        if text.is_empty() {
            return Err(self.wrong(format!("`{}` is empty", self.key)));
        }
        Ok(text)
    }

    /// The value as one of some words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, LineError> {
        let text = self.text()?;
        match words.iter().find(|(word, _)| *word == text) {
            Some((_, value)) => Ok(*value),
            None => {
                let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self.wrong(format!("`{text}` is not one of {}", all.join(", "))))
            }
        }
    }

    /// The value as JSON on this line.
    pub(super) fn json(&self) -> Result<Value, LineError> {
        json::parse(self.value.as_bytes(), json::DEPTH_MAX)
            .map_err(|error| self.wrong(format!("not JSON: {error}")))
    }

    /// The value as a list of texts in JSON.
    pub(super) fn texts(&self) -> Result<Vec<String>, LineError> {
        let texts = match self.json()? {
            Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => Some(text),
                    _ => None,
                })
                .collect(),
            _ => None,
        };
        texts.ok_or_else(|| self.wrong("write a list of texts: [\"a\", \"b\"]"))
    }
}

/// Where the key that begins with a quote ends, its closing quote included.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            c if c == quote && !escaped => return Some(at + 1),
            _ => {}
        }
        escaped = false;
    }
    None
}

/// A text without its quotes. In quotes, `\"` is a quote and `\\` a backslash; any other
/// backslash is itself.
fn unquoted(text: &str) -> Result<String, String> {
    let Some(quote @ ('"' | '\'')) = text.chars().next() else {
        if text.contains(" #") {
            return Err("a comment has a line of its own; else put the text in quotes".to_owned());
        }
        return Ok(text.to_owned());
    };
    let inner = text[1..]
        .strip_suffix(quote)
        .ok_or_else(|| format!("the text begins with {quote} and does not end with it"))?;
    let mut plain = String::with_capacity(inner.len());
    let mut rest = inner.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek()) {
            ('\\', Some(&next @ ('"' | '\\'))) => {
                plain.push(next);
                rest.next();
            }
            // It would end, or not end, here for other readers.
            ('\'', _) if quote == '\'' => {
                return Err("put a text with ' in double quotes".to_owned());
            }
            ('"', _) if quote == '"' => return Err("a quote inside is written \\\"".to_owned()),
            ('\\', None) => return Err("a backslash at the end is written \\\\".to_owned()),
            (c, _) => plain.push(c),
        }
    }
    Ok(plain)
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes() {
        for (text, wanted) in [
            ("plain", Ok("plain")),
            ("\"a b\"", Ok("a b")),
            ("'a \" b'", Ok("a \" b")),
            (r#""a \" \\ \n""#, Ok(r#"a " \ \n"#)),
            ("http://x/#a", Ok("http://x/#a")),
            ("\"\"", Ok("")),
        ] {
            assert_eq!(unquoted(text).as_deref(), wanted, "{text}");
        }
        for text in ["\"a", "\"", "\"a\"b\"", "\"a\" # b", "a # b", "\"a\\\""] {
            assert!(unquoted(text).is_err(), "{text}");
        }
        for text in ["", "a", "\"", "\\", "\\\"", "a: b #c"] {
            assert_eq!(unquoted(&quoted(text)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn places() {
        let error = |text: &str| {
            below(text, "tools:")
                .and_then(|all| blocks(&all))
                .unwrap_err()
        };
        for (text, line, column) in [
            ("", 1, 1),
            ("# only\n\n", 1, 1),
            ("tool:\n", 1, 1),
            (" tools:\n", 1, 2),
            ("tools:\n   a:\n", 2, 4),
            ("tools:\n  a: b\n", 2, 6),
            ("tools:\n    a: b\n", 2, 5),
            ("tools:\n  é:\n    x\n", 3, 5),
            ("tools:\n  é:\n    é:\tx\n", 3, 7),
            ("tools:\n  a:\n    b:c\n", 3, 7),
            ("tools:\n  a:\n  a:\n", 3, 3),
            ("tools:\n  a:\n    b: 1\n    b: 2\n", 4, 5),
            ("tools:\na:\n", 2, 1),
        ] {
            let error = error(text);
            assert_eq!(
                (error.line, error.column),
                (line, column),
                "{text:?}: {error}"
            );
        }
    }
}
