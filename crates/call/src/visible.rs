//! Text that a person decides by. A character that shows nothing, moves what follows it or looks
//! like a space is written as its JSON escape, so that what is read is what is there.

use std::borrow::Cow;

use unicode_general_category::{GeneralCategory, get_general_category};

/// Returns the text in one line with every invisible character escaped: control characters, line
/// ends among them, marks that change the direction of text, zero-width characters, fillers,
/// spaces other than U+0020, and what is private or not assigned. JSON stays JSON of the same
/// value. Example: `a\u{202e}b` becomes `a\u202eb`.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The same for a text of several lines: line ends and tabs stay.
#[must_use]
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hides = |c: char| !stays(c) && is_invisible(c);
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            _ if !hides(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    Cow::Owned(out)
}

fn is_invisible(c: char) -> bool {
    use GeneralCategory::{
        Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, SpaceSeparator, Surrogate,
        Unassigned,
    };
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let by_category = matches!(
        get_general_category(c),
        Control
            | Format
            | LineSeparator
            | ParagraphSeparator
            | PrivateUse
            | SpaceSeparator
            | Surrogate
            | Unassigned
    );
    // Letters, marks and symbols that show nothing: Default_Ignorable_Code_Point of Unicode beyond
    // the categories above, and the empty Braille pattern.
    let by_name = matches!(
        c,
        '\u{034f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{ffa0}'
            | '\u{e0100}'..='\u{e01ef}'
    );
    by_category || by_name
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-6d: what could hide something is seen; ordinary text of any language is as it was.
    #[test]
    fn invisible_characters_are_seen() {
        for (text, wanted) in [
            ("rm -rf ~", "rm -rf ~"),
            ("é 日本語 Ж ✓ 😀 a\u{301}", "é 日本語 Ж ✓ 😀 a\u{301}"),
            ("a\u{202e}b\u{2066}c", "a\\u202eb\\u2066c"),
            (
                "a\u{200b}\u{200d}\u{feff}\u{2060}b",
                "a\\u200b\\u200d\\ufeff\\u2060b",
            ),
            (
                "\u{1b}[2K\u{9b}1\u{7f}\0",
                "\\u001b[2K\\u009b1\\u007f\\u0000",
            ),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("a\u{a0}b\u{3000}\u{2028}", "a\\u00a0b\\u3000\\u2028"),
            ("\u{e0041}\u{e0100}", "\\udb40\\udc41\\udb40\\udd00"),
            (
                "\u{3164}\u{fe0f}\u{2800}\u{e000}",
                "\\u3164\\ufe0f\\u2800\\ue000",
            ),
        ] {
            assert_eq!(visible(text), wanted, "{text:?}");
        }
        assert_eq!(visible_lines("a\n\tb\r\u{202e}"), "a\n\tb\\r\\u202e");
        let all: String = ('\0'..=char::MAX).collect();
        let json = serde_json::Value::from(all.clone()).to_string();
        let shown = visible(&json);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), all);
        assert!(!shown.contains(is_invisible));
    }
}
