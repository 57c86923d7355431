//! Words as ranking sees them. An identifier counts as itself and as each of its parts, so that
//! `read_config`, `ReadConfig` and "read the config" meet. A word is kept as a 32-bit hash: two
//! of a hundred thousand share one, which ranking does not notice, and no dictionary is needed.

use std::collections::HashMap;

/// Words of one piece beyond this are left out.
const WORDS_MAX: usize = 8192;
/// Longer words are data, not language.
const WORD_CHARS_MAX: usize = 64;

/// A word's hash.
pub type Word = u32;

/// Calls `each` with every word of `text`, in order: identifiers whole and in parts.
pub fn words(text: &str, mut each: impl FnMut(&str)) {
    let mut lower = String::new();
    for run in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let name = run.trim_matches('_');
        if name.is_empty() || name.chars().count() > WORD_CHARS_MAX {
            continue;
        }
        let parts = parts(name);
        for part in &parts {
            lower.clear();
            lower.extend(part.chars().flat_map(char::to_lowercase));
            each(stem(&lower));
        }
        if parts.len() > 1 {
            lower.clear();
            let letters = name.chars().filter(|c| *c != '_');
            lower.extend(letters.flat_map(char::to_lowercase));
            each(&lower);
        }
    }
}

/// `HTTPServer2_name` is `HTTP`, `Server`, `2`, `name`.
fn parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut before = Kind::Other;
    let mut chars = name.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let kind = Kind::of(c);
        let next_is_lower = chars
            .peek()
            .is_some_and(|(_, next)| Kind::of(*next) == Kind::Lower);
        let cut = match (before, kind) {
            (Kind::Other, _) | (_, Kind::Other) => true,
            (Kind::Upper, Kind::Upper) => next_is_lower,
            (Kind::Upper, Kind::Lower) => false,
            (before, kind) => before != kind,
        };
        if cut && at > start {
            parts.push(&name[start..at]);
        }
        if cut {
            start = at + if kind == Kind::Other { c.len_utf8() } else { 0 };
        }
        before = kind;
    }
    if start < name.len() {
        parts.push(&name[start..]);
    }
    parts
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Other,
}

impl Kind {
    fn of(c: char) -> Self {
        if c == '_' {
            Self::Other
        } else if c.is_uppercase() {
            Self::Upper
        } else if c.is_numeric() {
            Self::Digit
        } else {
            Self::Lower
        }
    }
}

/// Plurals are the same word; other endings are left alone, since code means them.
fn stem(word: &str) -> &str {
    let long = word.len() > 3 && word.is_ascii();
    match word {
        _ if !long => word,
        _ if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") => word,
        _ => word.strip_suffix('s').unwrap_or(word),
    }
}

/// The hash of a word (FNV-1a of 64 bits, folded).
#[must_use]
pub fn hash(word: &str) -> Word {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in word.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let bytes = (hash ^ (hash >> 32)).to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// How often each word is in these texts.
#[must_use]
pub fn counted(texts: &[&str]) -> HashMap<Word, u8> {
    let mut counts: HashMap<Word, u8> = HashMap::new();
    let mut left = WORDS_MAX;
    for text in texts {
        words(text, |word| {
            if left > 0 {
                left -= 1;
                let count = counts.entry(hash(word)).or_insert(0);
                *count = count.saturating_add(1);
            }
        });
    }
    counts
}

/// Words as they are kept: hash and count, one after the other.
#[must_use]
pub fn packed(counts: &HashMap<Word, u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(counts.len() * 5);
    for (word, count) in counts {
        bytes.extend_from_slice(&word.to_le_bytes());
        bytes.push(*count);
    }
    bytes
}

/// The same, read.
pub fn unpacked(bytes: &[u8]) -> impl Iterator<Item = (Word, u8)> + '_ {
    bytes.chunks_exact(5).map(|five| {
        (
            Word::from_le_bytes([five[0], five[1], five[2], five[3]]),
            five[4],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        words(text, |word| all.push(word.to_owned()));
        all
    }

    #[test]
    fn identifiers_meet_their_words() {
        assert_eq!(all("read_config"), ["read", "config", "readconfig"]);
        assert_eq!(all("ReadConfig"), ["read", "config", "readconfig"]);
        assert_eq!(all("HTTPServer2"), ["http", "server", "2", "httpserver2"]);
        assert_eq!(all("__init__"), ["init"]);
        assert_eq!(all("the files, classes"), ["the", "file", "classe"]);
        assert_eq!(
            all("Straße größer_als"),
            ["straße", "größer", "als", "größerals"]
        );
        assert_eq!(all("_ -- ."), Vec::<String>::new());
    }

    #[test]
    fn what_is_packed_is_read() {
        let counts = counted(&["one two two", "three"]);
        let read: HashMap<Word, u8> = unpacked(&packed(&counts)).collect();
        assert_eq!(read, counts);
        assert_eq!(read[&hash("two")], 2);
    }
}
