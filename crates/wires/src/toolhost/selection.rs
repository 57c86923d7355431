//! A selector's answer: which entry of the menu is next. One text, one reading: whatever is not
//! exactly of the grammar is `INVALID`, and the text itself is always kept.
//!
//! ```text
//! ASK_SUP = "<ASK_SUP><END>"      NOOP = "<NOOP><END>"
//! PICK    = "<PICK><SID" 4DIGIT ">" *any "<END>"
//! patch   = first "<INP64>" base64 "</INP64>" of it, else first "<INP>" json "</INP>"
//! ```

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde_json::{Map, Value};

use super::DEPTH_MAX;
use crate::json;

/// Longest text of a selector; what a policy program prints beyond is never read. TH-144.
pub const SELECTION_BYTES_MAX: usize = 65_536;

/// Keys that a patch can not set begin with one of these. TH-139.
pub const PROTECTED: [&str; 3] = ["_system", "_queue", "_meta"];

const END: &str = "<END>";

/// What a selector wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionKind {
    /// The tool of a menu entry.
    Pick,
    /// A person's word.
    AskSup,
    /// Nothing more.
    Noop,
    /// It can not be told.
    Invalid,
}

impl SelectionKind {
    /// The contract's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pick => "PICK",
            Self::AskSup => "ASK_SUP",
            Self::Noop => "NOOP",
            Self::Invalid => "INVALID",
        }
    }
}

/// A selector's answer, in the contract's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// `kind`.
    pub kind: SelectionKind,
    /// `sid`, such as `SID0007`; of a pick only.
    pub sid: Option<String>,
    /// `input_patch_json`: an object, as it was written.
    pub input_patch_json: Option<String>,
    /// `raw`: the whole text.
    pub raw: String,
}

impl Selection {
    /// Reads a selector's text.
    #[must_use]
    pub fn parse(raw: &str) -> Self {
        let (kind, sid, input_patch_json) = read(raw.trim_matches([' ', '\t', '\r', '\n']))
            .unwrap_or((SelectionKind::Invalid, None, None));
        Self {
            kind,
            sid,
            input_patch_json,
            raw: raw.to_owned(),
        }
    }

    /// The same choice with another `raw`: for a choice that stands in for another.
    #[must_use]
    pub fn with_raw(self, raw: String) -> Self {
        Self { raw, ..self }
    }

    /// What the patch sets; empty without one.
    #[must_use]
    pub fn patch(&self) -> Map<String, Value> {
        match self.input_patch_json.as_deref().map(object) {
            Some(Some(patch)) => patch,
            _ => Map::new(),
        }
    }
}

/// Merges a patch into inputs, one level deep. Keys that are not a patch's to set are dropped, and
/// named. TH-139.
pub fn merge(inputs: &mut Map<String, Value>, patch: Map<String, Value>) -> Vec<String> {
    let mut dropped = Vec::new();
    for (key, value) in patch {
        if PROTECTED.iter().any(|prefix| key.starts_with(prefix)) {
            dropped.push(key);
        } else {
            inputs.insert(key, value);
        }
    }
    dropped
}

/// The SID of the menu's entry at `index`, from 0; `None` beyond what four digits can name.
#[must_use]
pub fn sid(index: usize) -> Option<String> {
    (index < 9999).then(|| format!("SID{:04}", index + 1))
}

type Read = (SelectionKind, Option<String>, Option<String>);

fn read(text: &str) -> Option<Read> {
    match text {
        "<ASK_SUP><END>" => return Some((SelectionKind::AskSup, None, None)),
        "<NOOP><END>" => return Some((SelectionKind::Noop, None, None)),
        _ => {}
    }
    let rest = text.strip_prefix("<PICK><SID")?.strip_suffix(END)?;
    let (digits, rest) = rest.split_at_checked(4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let patch = patch_of(rest.strip_prefix('>')?)?;
    Some((SelectionKind::Pick, Some(format!("SID{digits}")), patch))
}

/// The patch in the free text of a pick. The outer `None`: there is one, and it is none.
fn patch_of(text: &str) -> Option<Option<String>> {
    if let Some(inside) = between(text, "<INP64>", "</INP64>") {
        let packed: String = inside?.split_ascii_whitespace().collect();
        // Padding may be there or not; what is there must be right.
        let bytes = match packed.contains('=') {
            true => STANDARD.decode(packed),
            false => STANDARD_NO_PAD.decode(packed),
        };
        let bytes = bytes.ok().filter(|bytes| !bytes.is_empty())?;
        return checked(String::from_utf8(bytes).ok()?).map(Some);
    }
    match between(text, "<INP>", "</INP>") {
        None => Some(None),
        Some(inside) => checked(inside?.to_owned()).map(Some),
    }
}

/// What stands between the first `open` and the `close` after it. The inner `None`: it is never
/// closed.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<Option<&'a str>> {
    let (_, rest) = text.split_once(open)?;
    Some(rest.split_once(close).map(|(inside, _)| inside))
}

fn checked(text: String) -> Option<String> {
    object(&text).map(|_| text)
}

fn object(text: &str) -> Option<Map<String, Value>> {
    match json::parse_text(text, DEPTH_MAX).ok()? {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(text: &str) -> SelectionKind {
        let selection = Selection::parse(text);
        assert_eq!(selection.raw, text, "raw is always kept");
        if selection.kind != SelectionKind::Pick {
            assert_eq!(
                (&selection.sid, &selection.input_patch_json),
                (&None, &None)
            );
        }
        selection.kind
    }

    /// TH-137, TH-138, TH-140, TH-141: every form there is, and blanks around it.
    #[test]
    fn forms() {
        assert_eq!(kind("<ASK_SUP><END>"), SelectionKind::AskSup);
        assert_eq!(kind(" \t<NOOP><END>\r\n"), SelectionKind::Noop);
        let pick = Selection::parse("\n<PICK><SID0007> because it fits <END> ");
        assert_eq!(
            pick,
            Selection {
                kind: SelectionKind::Pick,
                sid: Some("SID0007".to_owned()),
                input_patch_json: None,
                raw: "\n<PICK><SID0007> because it fits <END> ".to_owned(),
            }
        );
        for (kind, word) in [
            (SelectionKind::Pick, "PICK"),
            (SelectionKind::AskSup, "ASK_SUP"),
            (SelectionKind::Noop, "NOOP"),
            (SelectionKind::Invalid, "INVALID"),
        ] {
            assert_eq!(kind.as_str(), word);
        }
    }

    /// TH-139, TH-142: which patch counts, and as what.
    #[test]
    fn patches() {
        for (text, patch) in [
            (r#"<PICK><SID0001><INP>{"a":1}</INP><END>"#, r#"{"a":1}"#),
            (
                r#"<PICK><SID0001>x<INP> {"a":"<END>"} </INP>y<END>"#,
                r#" {"a":"<END>"} "#,
            ),
            (
                r#"<PICK><SID0001><INP>{}</INP><INP>{"b":2}</INP><END>"#,
                "{}",
            ),
            (
                "<PICK><SID0001><INP64>eyJhIjoxfQ==</INP64><END>",
                r#"{"a":1}"#,
            ),
            (
                "<PICK><SID0001><INP64>eyJhIjoxfQ</INP64><END>",
                r#"{"a":1}"#,
            ),
            (
                "<PICK><SID0001><INP64> eyJh\nIjox\tfQ </INP64><END>",
                r#"{"a":1}"#,
            ),
            (
                r#"<PICK><SID0001><INP>{"b":2}</INP><INP64>eyJhIjoxfQ</INP64><END>"#,
                r#"{"a":1}"#,
            ),
        ] {
            let selection = Selection::parse(text);
            assert_eq!(selection.kind, SelectionKind::Pick, "{text}");
            assert_eq!(selection.input_patch_json.as_deref(), Some(patch), "{text}");
        }
        let patched = Selection::parse(r#"<PICK><SID0001><INP>{"a":{"b":1}}</INP><END>"#);
        assert_eq!(Value::Object(patched.patch()), json!({"a": {"b": 1}}));
    }

    /// TH-137, TH-138, TH-141, TH-142: whatever is malformed is `INVALID`, with `raw` kept.
    #[test]
    fn malformed() {
        for text in [
            "",
            " ",
            "PICK",
            "<END>",
            "<noop><END>",
            "<NOOP>",
            "<NOOP> <END>",
            "<NOOP><END><END>",
            "<NOOP><END>\u{a0}",
            "<ASK_SUP>",
            "<ASK_SUP>why<END>",
            "<Ask_Sup><END>",
            "<PICK><END>",
            "<PICK><SID0001>",
            "<PICK><SID0001><end>",
            "<PICK><SID0001<END>",
            "<PICK><SID001><END>",
            "<PICK><SID00001><END>",
            "<PICK><SID 001><END>",
            "<PICK><SID+001><END>",
            "<PICK><SIDabcd><END>",
            "<PICK><SID٠٠٠١><END>",
            "<PICK><sid0001><END>",
            "<PICK> <SID0001><END>",
            "x<PICK><SID0001><END>",
            "<PICK><SID0001><END>x",
            "<PICK><SID0001><INP>{\"a\":1}<END>",
            "<PICK><SID0001><INP></INP><END>",
            "<PICK><SID0001><INP>[1]</INP><END>",
            "<PICK><SID0001><INP>null</INP><END>",
            "<PICK><SID0001><INP>\"{}\"</INP><END>",
            "<PICK><SID0001><INP>{'a':1}</INP><END>",
            "<PICK><SID0001><INP>{\"a\":1} junk</INP><END>",
            "<PICK><SID0001><INP>{\"a\":1,\"a\":2}</INP><END>",
            "<PICK><SID0001><INP>{\"a\":1,}</INP><END>",
            "<PICK><SID0001><INP64></INP64><END>",
            "<PICK><SID0001><INP64>  </INP64><END>",
            "<PICK><SID0001><INP64>eyJhIjoxfQ==<END>",
            "<PICK><SID0001><INP64>eyJh*joxfQ==</INP64><END>",
            "<PICK><SID0001><INP64>eyJhIjoxfQ=</INP64><END>",
            "<PICK><SID0001><INP64>eyJhIjoxfR</INP64><END>",
            "<PICK><SID0001><INP64>WzFd</INP64><END>",
            "<PICK><SID0001><INP64>/w==</INP64><END>",
            "<PICK><SID0001><INP64>x</INP64><INP>{}</INP><END>",
        ] {
            assert_eq!(kind(text), SelectionKind::Invalid, "{text:?}");
        }
        let deep = format!("{}{}", "{\"a\":".repeat(32), "1");
        let deep = format!("<PICK><SID0001><INP>{deep}{}</INP><END>", "}".repeat(32));
        assert_eq!(kind(&deep), SelectionKind::Pick);
        let deeper = deep
            .replacen("<INP>", "<INP>{\"b\":", 1)
            .replacen("</INP>", "}</INP>", 1);
        assert_eq!(kind(&deeper), SelectionKind::Invalid);
    }

    /// A small generator of pseudo-random numbers, so that a failure can be had again.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) as usize % bound
        }
    }

    /// TH-140, TH-141, TH-142: texts made of the grammar's own pieces in any order. A text is a
    /// pick only if it begins and ends as one, `raw` is the text, and a patch is an object.
    #[test]
    fn any_order_of_the_pieces() {
        const PIECES: [&str; 16] = [
            "<PICK>",
            "<SID0001>",
            "<SID9999>",
            "<END>",
            "<NOOP>",
            "<ASK_SUP>",
            "<INP>",
            "</INP>",
            "<INP64>",
            "</INP64>",
            "{\"a\":1}",
            "eyJhIjoxfQ==",
            " ",
            "[]",
            "é",
            "<",
        ];
        let mut numbers = Numbers(7);
        let mut picks = 0;
        for _ in 0..200_000 {
            let length = numbers.below(9);
            let mut text: String = (0..length).map(|_| PIECES[numbers.below(16)]).collect();
            if numbers.below(2) == 0 {
                text = format!("<PICK><SID0001>{text}<END>");
            }
            let selection = Selection::parse(&text);
            assert_eq!(selection.raw, text);
            let trimmed = text.trim_matches([' ', '\t', '\r', '\n']);
            match selection.kind {
                SelectionKind::Pick => {
                    picks += 1;
                    assert!(trimmed.starts_with("<PICK><SID") && trimmed.ends_with("<END>"));
                    let packed = trimmed.contains("<INP64>") || trimmed.contains("<INP>");
                    assert_eq!(selection.input_patch_json.is_some(), packed, "{text}");
                    assert!(selection.sid.is_some());
                }
                SelectionKind::AskSup => assert_eq!(trimmed, "<ASK_SUP><END>"),
                SelectionKind::Noop => assert_eq!(trimmed, "<NOOP><END>"),
                SelectionKind::Invalid => assert!(selection.sid.is_none()),
            }
        }
        assert!(picks > 1000, "{picks} picks are too few to mean much");
    }

    /// TH-142: every patch that is written is read back, as text and as base64, padded or not; one
    /// byte of it changed is another patch or `INVALID`, never a pick without one.
    #[test]
    fn patches_read_back() {
        let mut numbers = Numbers(11);
        for _ in 0..2000 {
            let mut members = Map::new();
            for _ in 0..numbers.below(4) {
                let key = format!("k{}", numbers.below(50));
                members.insert(key, json!([numbers.below(9), "é\"<>", null]));
            }
            let text = Value::Object(members.clone()).to_string();
            let packed = STANDARD.encode(&text);
            for pick in [
                format!("<PICK><SID0042><INP>{text}</INP><END>"),
                format!("<PICK><SID0042><INP64>{packed}</INP64><END>"),
                format!(
                    "<PICK><SID0042><INP64>{}</INP64><END>",
                    packed.trim_end_matches('=')
                ),
            ] {
                assert_eq!(Selection::parse(&pick).patch(), members, "{pick}");
            }
            let mut bytes = packed.into_bytes();
            let at = numbers.below(bytes.len());
            bytes[at] = b"Az09+/=*"[numbers.below(8)];
            let changed = String::from_utf8(bytes).unwrap();
            let pick = format!("<PICK><SID0042><INP64>{changed}</INP64><END>");
            let selection = Selection::parse(&pick);
            assert_eq!(
                selection.kind == SelectionKind::Pick,
                selection.input_patch_json.is_some()
            );
        }
    }

    /// TH-139: one level deep, and what is protected stays.
    #[test]
    fn merging() {
        let as_map = |value: Value| value.as_object().unwrap().clone();
        let mut inputs = as_map(json!({"a": {"x": 1, "y": 2}, "b": 1, "_queue": {"attempt": 2}}));
        let patch = json!({"a": {"x": 9}, "c": null, "_queue": {}, "_queue_x": 1, "_system": 1,
                           "_systems": 1, "_meta.b": 1, "_mete": 3, "_": 4});
        let dropped = merge(&mut inputs, as_map(patch));
        assert_eq!(
            dropped,
            ["_meta.b", "_queue", "_queue_x", "_system", "_systems"]
        );
        assert_eq!(
            Value::Object(inputs),
            json!({"a": {"x": 9}, "b": 1, "c": null, "_queue": {"attempt": 2}, "_mete": 3, "_": 4})
        );
    }

    /// TH-136, TH-138: numbered from 1, with four digits.
    #[test]
    fn sids() {
        assert_eq!(sid(0).as_deref(), Some("SID0001"));
        assert_eq!(sid(9998).as_deref(), Some("SID9999"));
        assert_eq!(sid(9999), None);
    }
}
