//! Texts as the model's tokens: lower case, without accents, cut at spaces and signs, then into the
//! longest known pieces. This is BERT's own way, as the model has learned it.

use std::collections::HashMap;

use unicode_general_category::{GeneralCategory, get_general_category};

/// A line for each letter: how it is written plainly, and with what it carries. Those of the
/// canonical decompositions of Unicode that leave one, in lower case, without the compatibility
/// forms of Chinese and what is beyond the first plane.
const ACCENTS: &str = include_str!("accents.txt");

const UNKNOWN: u32 = 100;
const BEGIN: u32 = 101;
const END: u32 = 102;
/// Longer words are unknown.
const WORD_CHARS_MAX: usize = 100;

/// The list of pieces of a model.
pub struct WordPiece {
    pieces: HashMap<String, u32>,
    accents: HashMap<char, &'static str>,
}

impl WordPiece {
    /// From a list with a piece in each line.
    #[must_use]
    pub fn new(list: &str) -> Self {
        let pieces = (0..).zip(list.lines());
        let accents = ACCENTS.lines().filter_map(|line| line.split_once(' '));
        Self {
            pieces: pieces.map(|(at, piece)| (piece.to_owned(), at)).collect(),
            accents: accents
                .flat_map(|(plain, carrying)| carrying.chars().map(move |c| (c, plain)))
                .collect(),
        }
    }

    /// The first `max` tokens of a text, with the marks of its begin and end among them.
    #[must_use]
    pub fn tokens(&self, text: &str, max: usize) -> Vec<u32> {
        let mut tokens = vec![BEGIN];
        let room = max.saturating_sub(1);
        for word in words(&self.plain(text)) {
            self.pieces(word, &mut tokens);
            if tokens.len() >= room {
                break;
            }
        }
        tokens.truncate(room);
        tokens.push(END);
        tokens
    }

    /// In lower case and without accents, with spaces around what is always a word of its own.
    fn plain(&self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '\t' | '\n' | '\r' => plain.push(' '),
                _ if is_nothing(c) => {}
                _ if c.is_whitespace() => plain.push(' '),
                _ if is_chinese(c) => plain.extend([' ', c, ' ']),
                _ => self.put(&mut plain, c),
            }
        }
        plain
    }

    fn put(&self, plain: &mut String, c: char) {
        if c.is_ascii() {
            return plain.push(c.to_ascii_lowercase());
        }
        for c in c.to_lowercase().filter(|c| !is_mark(*c)) {
            match (self.accents.get(&c), syllable(c)) {
                (Some(letter), _) => plain.push_str(letter),
                (None, Some(parts)) => plain.extend(parts.into_iter().flatten()),
                (None, None) => plain.push(c),
            }
        }
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
                self.pieces.get(&key).map(|token| (*token, end))
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

/// Words and signs.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').flat_map(|word| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let first = rest.chars().next()?;
            let end = match is_sign(first) {
                true => first.len_utf8(),
                false => rest.find(is_sign).unwrap_or(rest.len()),
            };
            let (word, after) = rest.split_at(end);
            rest = after;
            Some(word)
        })
    })
}

/// Signs stand alone.
fn is_sign(c: char) -> bool {
    use GeneralCategory as Is;
    if c.is_ascii() {
        return c.is_ascii_punctuation();
    }
    matches!(
        get_general_category(c),
        Is::ConnectorPunctuation
            | Is::DashPunctuation
            | Is::OpenPunctuation
            | Is::ClosePunctuation
            | Is::InitialPunctuation
            | Is::FinalPunctuation
            | Is::OtherPunctuation
    )
}

/// And so do the characters of Chinese. The hole before 0x2b920 is in what the model was made
/// with.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xf900..=0xfaff | 0x2_0000..=0x2_a6df
        | 0x2_a700..=0x2_b73f | 0x2_b740..=0x2_b81f | 0x2_b920..=0x2_ceaf | 0x2_f800..=0x2_fa1f)
}

/// What says nothing: controls, marks of how to write, what could not be read.
fn is_nothing(c: char) -> bool {
    use GeneralCategory as Is;
    match c {
        char::REPLACEMENT_CHARACTER => true,
        c if c.is_ascii() => c.is_ascii_control(),
        c => matches!(
            get_general_category(c),
            Is::Control | Is::Format | Is::PrivateUse
        ),
    }
}

fn is_mark(c: char) -> bool {
    !c.is_ascii() && get_general_category(c) == GeneralCategory::NonspacingMark
}

/// The parts of a syllable of Korean, which Unicode has by its number.
fn syllable(c: char) -> Option<[Option<char>; 3]> {
    const LAST: u32 = 28;
    let at = u32::from(c).checked_sub(0xac00).filter(|at| *at < 11_172)?;
    let (first, middle, last) = (at / (21 * LAST), at / LAST % 21, at % LAST);
    let last = (last > 0).then_some(0x11a7 + last);
    let parts = [Some(0x1100 + first), Some(0x1161 + middle), last];
    Some(parts.map(|part| part.and_then(char::from_u32)))
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
