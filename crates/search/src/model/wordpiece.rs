//! Texts as the model's tokens: lower case, cut at spaces and signs, then into the longest known
//! pieces.

use std::collections::HashMap;

const UNKNOWN: u32 = 100;
const BEGIN: u32 = 101;
const END: u32 = 102;
/// Longer words are unknown.
const WORD_CHARS_MAX: usize = 100;

pub struct WordPiece(HashMap<String, u32>);

impl WordPiece {
    /// From a list with a piece in each line.
    pub fn new(list: &str) -> Self {
        Self(
            (0..)
                .zip(list.lines())
                .map(|(at, piece)| (piece.to_owned(), at))
                .collect(),
        )
    }

    /// The first `max` tokens of a text, with the marks of its begin and end among them.
    pub fn tokens(&self, text: &str, max: usize) -> Vec<u32> {
        let mut tokens = vec![BEGIN];
        let room = max.saturating_sub(1);
        for word in words(text) {
            self.pieces(&word, &mut tokens);
            if tokens.len() >= room {
                break;
            }
        }
        tokens.truncate(room);
        tokens.push(END);
        tokens
    }

    fn pieces(&self, word: &str, tokens: &mut Vec<u32>) {
        let start = tokens.len();
        if word.chars().count() > WORD_CHARS_MAX {
            return tokens.push(UNKNOWN);
        }
        let mut rest = word;
        let mut key = String::new();
        while !rest.is_empty() {
            let mut ends = rest.char_indices().map(|(at, c)| at + c.len_utf8()).rev();
            let found = ends.find_map(|end| {
                key.clear();
                key.push_str(if rest.len() < word.len() { "##" } else { "" });
                key.push_str(&rest[..end]);
                self.0.get(&key).map(|token| (*token, end))
            });
            let Some((token, end)) = found else {
                tokens.truncate(start);
                return tokens.push(UNKNOWN);
            };
            tokens.push(token);
            rest = &rest[end..];
        }
    }
}

/// Words and signs, in lower case and without accents.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut chars = text.chars().peekable();
    std::iter::from_fn(move || {
        while chars
            .next_if(|c| c.is_whitespace() || c.is_control())
            .is_some()
        {}
        let first = chars.next()?;
        let mut word = String::new();
        put(&mut word, first);
        if !is_sign(first) {
            while let Some(next) = chars.next_if(|c| !c.is_whitespace() && !is_sign(*c)) {
                if !next.is_control() {
                    put(&mut word, next);
                }
            }
        }
        Some(word)
    })
}

fn put(word: &mut String, c: char) {
    word.extend(c.to_lowercase().filter_map(without_accent));
}

/// Signs stand alone, and so do the characters of Chinese.
fn is_sign(c: char) -> bool {
    c.is_ascii_punctuation()
        || matches!(u32::from(c),
            0xa1..=0xa9 | 0xab..=0xb1 | 0xb4 | 0xb6..=0xb8 | 0xbb | 0xbf
            | 0x2010..=0x2027 | 0x2030..=0x205e | 0x3001..=0x3003 | 0x3008..=0x3011
            | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0xff01..=0xff0f)
}

/// The letters of Latin-1; the rest of Unicode is as good as its own table would be here.
fn without_accent(c: char) -> Option<char> {
    Some(match c {
        '\u{300}'..='\u{36f}' => return None,
        'à'..='å' => 'a',
        'ç' => 'c',
        'è'..='ë' => 'e',
        'ì'..='ï' => 'i',
        'ñ' => 'n',
        'ò'..='ö' => 'o',
        'ù'..='ü' => 'u',
        'ý' | 'ÿ' => 'y',
        c => c,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_pieces_first() {
        let mut list = vec!["[PAD]".to_owned(); 110];
        list.extend(["read", "##er", "##_", "_", "caf", "##e", "!"].map(str::to_owned));
        let words = WordPiece::new(&list.join("\n"));
        let tokens = |text: &str| words.tokens(text, 128);
        assert_eq!(tokens("Reader_read!"), [101, 110, 111, 113, 110, 116, 102]);
        assert_eq!(tokens("Café readx"), [101, 114, 115, 100, 102]);
        assert_eq!(tokens(""), [101, 102]);
        assert_eq!(words.tokens("read read read", 3), [101, 110, 102]);
    }
}
