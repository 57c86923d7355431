//! Tasks out of a request, without a model: its list items, or its sentences where it has no
//! list. The same text gives the same tasks. R-12.

use callgate_store::TaskStatus;

use super::Draft;

/// A tab goes so far.
const TAB_COLUMNS: usize = 4;

/// The tasks a text asks for, parents before their children.
pub fn outline(text: &str) -> Vec<Draft> {
    let items = items(text);
    if !items.is_empty() {
        return items;
    }
    let sentences = sentences(text).into_iter();
    sentences.map(|text| Draft::new(text, None)).collect()
}

/// A line of a list.
struct Item<'a> {
    column: usize,
    /// Where its text begins.
    text_column: usize,
    done: bool,
    text: &'a str,
}

fn items(text: &str) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    // The items the next one may be part of: column and index, the innermost last.
    let mut open: Vec<(usize, usize)> = Vec::new();
    // The item that may go on in the next line, and where its text stands.
    let mut last: Option<(usize, usize)> = None;
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.trim().is_empty() {
            last = None;
            continue;
        }
        if let Some(item) = item(line) {
            open.retain(|(column, _)| *column < item.column);
            let parent = open.last().map(|(_, index)| *index);
            open.push((item.column, drafts.len()));
            last = Some((drafts.len(), item.text_column));
            let mut draft = Draft::new(item.text.to_owned(), parent);
            if item.done {
                draft.status = TaskStatus::Done;
            }
            drafts.push(draft);
        } else if let Some((index, text_column)) = last
            && columns(line) >= text_column
        {
            let description = &mut drafts[index].description;
            description.push(' ');
            description.push_str(line.trim());
        } else {
            last = None;
        }
    }
    drafts
}

/// `- text`, `1. text`, `* [x] text`; nothing for any other line, or for an item without text.
fn item(line: &str) -> Option<Item<'_>> {
    let column = columns(line);
    let rest = line.trim_start();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let marker = match rest.as_bytes().get(digits) {
        Some(b'.' | b')') if (1..=9).contains(&digits) => digits + 1,
        Some(b'-' | b'*' | b'+') if digits == 0 => 1,
        _ => return None,
    };
    let after = &rest[marker..];
    if !after.starts_with([' ', '\t']) {
        return None;
    }
    let text = after.trim();
    let (done, text) = match boxed(text) {
        Some((done, text)) => (done, text),
        None => (false, text),
    };
    (!text.is_empty()).then_some(Item {
        column,
        text_column: column + marker + 1,
        done,
        text,
    })
}

/// A check box, and what stands after it.
fn boxed(text: &str) -> Option<(bool, &str)> {
    let (done, rest) = match text.as_bytes() {
        [b'[', b' ', b']', ..] => (false, &text[3..]),
        [b'[', b'x' | b'X', b']', ..] => (true, &text[3..]),
        _ => return None,
    };
    let ends = rest.is_empty() || rest.starts_with([' ', '\t']);
    ends.then_some((done, rest.trim()))
}

/// How far a line is indented.
fn columns(line: &str) -> usize {
    let mut columns = 0;
    for character in line.chars() {
        match character {
            ' ' => columns += 1,
            '\t' => columns += TAB_COLUMNS - columns % TAB_COLUMNS,
            _ => break,
        }
    }
    columns
}

/// A sentence ends with its mark and a gap, if what follows could begin one; a paragraph ends
/// one too. Lines that are only broken are joined.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut paragraph = String::new();
    for line in text.lines().chain([""]) {
        if line.trim().is_empty() {
            split(&std::mem::take(&mut paragraph), &mut sentences);
            continue;
        }
        if !paragraph.is_empty() {
            paragraph.push(' ');
        }
        paragraph.push_str(line.trim());
    }
    sentences
}

fn split(paragraph: &str, sentences: &mut Vec<String>) {
    let mut begin = 0;
    for (at, mark) in paragraph.char_indices() {
        let end = at + mark.len_utf8();
        let rest = &paragraph[end..];
        let ends = match mark {
            '.' | '!' | '?' => {
                let begins = rest.trim_start().chars().next();
                rest.starts_with(char::is_whitespace)
                    && begins.is_some_and(|first| !first.is_lowercase())
            }
            '。' | '！' | '？' => true,
            _ => false,
        };
        if ends {
            sentences.push(paragraph[begin..end].trim().to_owned());
            begin = end;
        }
    }
    let rest = paragraph[begin..].trim();
    if !rest.is_empty() {
        sentences.push(rest.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(String, Option<usize>, bool)> {
        let drafts = outline(text).into_iter();
        drafts
            .map(|draft| {
                let done = draft.status == TaskStatus::Done;
                (draft.description, draft.parent, done)
            })
            .collect()
    }

    fn plain(texts: &[&str]) -> Vec<(String, Option<usize>, bool)> {
        let plain = |text: &&str| ((*text).to_owned(), None, false);
        texts.iter().map(plain).collect()
    }

    /// R-12: the worked examples.
    #[test]
    fn worked_examples() {
        assert_eq!(
            shown("1. write tests\n2. fix bugs\n3. release"),
            plain(&["write tests", "fix bugs", "release"])
        );
        let owned = |text: &str, parent| (text.to_owned(), parent, false);
        assert_eq!(
            shown("- api\n  - routes\n  - auth\n- docs"),
            [
                owned("api", None),
                owned("routes", Some(0)),
                owned("auth", Some(0)),
                owned("docs", None),
            ]
        );
    }

    #[test]
    fn lists_as_people_write_them() {
        let text = "Please do this:\n\n* [x] one\n\t1) inner\n\t\t+ [ ] innermost\n\t2) second\n\
                    * [X]two\n* three\n  goes on\n\nand so on\n- \n-4 is no item\n1.5 neither\n\
                    ```\n- code\n```\n12. last";
        let owned = |text: &str, parent, done| (text.to_owned(), parent, done);
        assert_eq!(
            shown(text),
            [
                owned("one", None, true),
                owned("inner", Some(0), false),
                owned("innermost", Some(1), false),
                owned("second", Some(0), false),
                owned("[X]two", None, false),
                owned("three goes on", None, false),
                owned("last", None, false),
            ]
        );
        assert_eq!(
            shown("    - deep\n  - out\n      - in")
                .iter()
                .map(|item| item.1)
                .collect::<Vec<_>>(),
            [None, None, Some(1)]
        );
        assert_eq!(shown("- a\r\n- b\r\n"), plain(&["a", "b"]));
    }

    /// 100,000 texts of what lists are made of: parents stand before their children, nothing is
    /// empty, and the same text gives the same.
    #[test]
    fn whatever_the_text() {
        let pieces = [
            "- ", "* ", "1. ", "23) ", "[x] ", "[ ]", "  ", "\t", "\n", "\n", "\r\n", "word", ". ",
            "Ä", "。", "```", "-", "\u{2028}", "!", "",
        ];
        let mut seed = 7_u64;
        for _ in 0..100_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            let found = shown(&text);
            for (index, (description, parent, _)) in found.iter().enumerate() {
                assert!(parent.is_none_or(|parent| parent < index), "{text:?}");
                assert!(!description.trim().is_empty(), "{text:?}");
            }
            assert_eq!(shown(&text), found);
        }
    }

    #[test]
    fn sentences_where_there_is_no_list() {
        assert_eq!(
            shown(
                "Add a cache (e.g. an LRU) to v1.2\nof the server. Is it fast? Then ship it!\n\nDone"
            ),
            plain(&[
                "Add a cache (e.g. an LRU) to v1.2 of the server.",
                "Is it fast?",
                "Then ship it!",
                "Done"
            ])
        );
        assert_eq!(shown("修复错误。发布"), plain(&["修复错误。", "发布"]));
        assert_eq!(shown("fix it"), plain(&["fix it"]));
        assert_eq!(shown(" \n\t\n"), []);
    }
}
