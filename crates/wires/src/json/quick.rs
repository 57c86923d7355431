//! JSON as nearly everybody writes it, read without the library: names without escapes, numbers
//! that are not huge. Whatever else there is, wrong or only unusual, comes to nothing here and is
//! the library's, from its first byte on, so that there is one place that says why.

use std::borrow::Cow;

use callgate_text::{json_plain_in_word, json_plain_prefix};
use serde_json::{Map, Number, Value};

/// Reads one text from its beginning.
pub(crate) struct Quick<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Quick<'a> {
    /// Nothing if it is not UTF-8.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        Some(Self { text, at: 0 })
    }

    /// There is nothing more.
    pub fn end(mut self) -> Option<()> {
        self.next_byte().is_none().then_some(())
    }

    /// An object: its members one by one. `each` reads the value of the name it is given, and
    /// minds whether that came before.
    pub fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        if self.takes(b'}') {
            return Some(());
        }
        loop {
            let name = self.plain()?;
            self.expect(b':')?;
            each(self, name)?;
            if !self.takes(b',') {
                return self.expect(b'}');
            }
        }
    }

    /// A string without escapes.
    pub fn plain(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let end = self.at + json_plain_prefix(&self.bytes()[self.at..]);
        let text = self.text.get(self.at..end)?;
        self.at = end;
        (self.byte()? == b'"').then(|| {
            self.at += 1;
            text
        })
    }

    /// A string without escapes, or a natural number, as the bytes it is.
    pub fn raw(&mut self) -> Option<&'a str> {
        let first = self.next_byte()?;
        let start = self.at;
        if first == b'"' {
            self.plain()?;
        } else {
            let digits = self.digits()?;
            if matches!(self.byte(), Some(b'.' | b'e' | b'E')) || digits > DIGITS_EXACT {
                return None;
            }
        }
        self.text.get(start..self.at)
    }

    /// Any value, nested at most `depth_left` deep.
    pub fn value(&mut self, depth_left: usize) -> Option<Value> {
        Some(match self.next_byte()? {
            b'"' => Value::String(self.string()?.into_owned()),
            b'{' => {
                let inside = depth_left.checked_sub(1)?;
                let mut object = Map::new();
                self.members(|quick, name| {
                    let value = quick.value(inside)?;
                    object
                        .insert(name.to_owned(), value)
                        .is_none()
                        .then_some(())
                })?;
                Value::Object(object)
            }
            b'[' => Value::Array(self.items(depth_left.checked_sub(1)?)?),
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'n' => self.word("null", Value::Null)?,
            _ => Value::Number(self.number()?),
        })
    }

    fn items(&mut self, inside: usize) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        self.expect(b'[')?;
        if self.takes(b']') {
            return Some(items);
        }
        loop {
            items.push(self.value(inside)?);
            if !self.takes(b',') {
                self.expect(b']')?;
                return Some(items);
            }
        }
    }

    /// Any value, nested at most `depth_left` deep, as the bytes it is.
    pub fn raw_value(&mut self, depth_left: usize) -> Option<&'a str> {
        self.next_byte()?;
        let start = self.at;
        self.pass(depth_left)?;
        self.text.get(start..self.at)
    }

    /// Passes a value without keeping it, as closely as one that is kept.
    fn pass(&mut self, depth_left: usize) -> Option<()> {
        match self.next_byte()? {
            b'{' => {
                let inside = depth_left.checked_sub(1)?;
                let (mut names, mut count) = ([""; NAMES_PASSED_MAX], 0);
                self.members(|quick, name| {
                    let is_new = !names[..count].contains(&name);
                    *names.get_mut(count).filter(|_| is_new)? = name;
                    count += 1;
                    quick.pass(inside)
                })
            }
            b'[' => {
                let inside = depth_left.checked_sub(1)?;
                self.expect(b'[')?;
                if self.takes(b']') {
                    return Some(());
                }
                loop {
                    self.pass(inside)?;
                    if !self.takes(b',') {
                        return self.expect(b']');
                    }
                }
            }
            // One with escapes is built, which looks at them.
            b'"' => self.string().map(drop),
            _ => self.value(0).map(drop),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        let is_it = self.bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        is_it.then_some(value)
    }

    /// A string, borrowed where it has no escapes.
    pub fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let from = self.at;
        self.at += json_plain_prefix(&self.bytes()[from..]);
        let plain = self.text.get(from..self.at)?;
        if self.byte()? == b'"' {
            self.at += 1;
            return Some(Cow::Borrowed(plain));
        }
        self.unescaped(plain).map(Cow::Owned)
    }

    /// The rest of a string that begins with `plain` and has an escape here. JSON in JSON has one
    /// every few bytes: too many to look for each, too few to copy what is between them by length.
    fn unescaped(&mut self, plain: &str) -> Option<String> {
        // A guess: a buffer that is too small is moved as it grows.
        let mut text = Vec::with_capacity(plain.len() * 2 + 64);
        text.extend_from_slice(plain.as_bytes());
        loop {
            let rest = &self.bytes()[self.at..];
            let plain = match rest.first_chunk() {
                Some(word) => {
                    let (before, plain) = (text.len(), json_plain_in_word(*word));
                    text.extend_from_slice(word);
                    text.truncate(before + plain);
                    plain
                }
                None => {
                    let plain = json_plain_prefix(rest);
                    text.extend_from_slice(&rest[..plain]);
                    plain
                }
            };
            self.at += plain;
            if plain == 8 {
                continue;
            }
            let byte = self.byte()?;
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(text).ok(),
                b'\\' if self.byte()? == b'u' => {
                    self.at += 1;
                    let escaped = self.code_point()?;
                    text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                b'\\' => {
                    let byte = UNESCAPED[usize::from(self.byte()?)];
                    self.at += 1;
                    text.push(byte);
                    if byte == 0 {
                        return None;
                    }
                }
                _ => return None,
            }
        }
    }

    /// The code point of one `\u` escape, or of two that are a pair of surrogates.
    fn code_point(&mut self) -> Option<char> {
        let first = self.unit()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        let is_pair = self.bytes().get(self.at..)?.starts_with(b"\\u");
        self.at += 2;
        let second = self.unit().filter(|_| is_pair)?.checked_sub(0xDC00)?;
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + second).filter(|_| second < 0x400)
    }

    /// Four hex digits.
    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    }

    fn number(&mut self) -> Option<Number> {
        let start = self.at;
        let is_negative = self.takes(b'-');
        let from = self.at;
        let digits = self.digits()?;
        if matches!(self.byte(), Some(b'.' | b'e' | b'E')) {
            if self.byte() == Some(b'.') {
                self.at += 1;
                self.more_digits()?;
            }
            if matches!(self.byte(), Some(b'e' | b'E')) {
                self.at += 1;
                if matches!(self.byte(), Some(b'+' | b'-')) {
                    self.at += 1;
                }
                self.more_digits()?;
            }
            // Nothing if it is beyond a double.
            return Number::from_f64(self.text.get(start..self.at)?.parse().ok()?);
        }
        let number = (digits <= DIGITS_EXACT).then(|| {
            let digits = &self.bytes()[from..self.at];
            digits
                .iter()
                .fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
        })?;
        match is_negative {
            // Minus nothing is a double.
            true if number == 0 => None,
            true => Some((-number).into()),
            false => Some(number.unsigned_abs().into()),
        }
    }

    /// The digits before a point; more than one do not begin with 0.
    fn digits(&mut self) -> Option<usize> {
        let first = self.byte()?;
        let digits = self.more_digits()?;
        (first != b'0' || digits == 1).then_some(digits)
    }

    fn more_digits(&mut self) -> Option<usize> {
        let rest = &self.bytes()[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(digits)
    }

    fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn byte(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    /// The next byte that is no space. It stays.
    fn next_byte(&mut self) -> Option<u8> {
        loop {
            match self.byte()? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn takes(&mut self, wanted: u8) -> bool {
        let is_it = self.next_byte() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.takes(wanted).then_some(())
    }
}

/// Members of an object that is passed and not kept: each name is compared with all before it.
const NAMES_PASSED_MAX: usize = 16;

/// The byte that each letter stands for after a backslash; 0 where there is no such escape.
static UNESCAPED: [u8; 256] = {
    let mut table = [0; 256];
    let (letters, bytes) = (b"\"\\/bfnrt", b"\"\\/\x08\x0C\n\r\t");
    let mut at = 0;
    while at < letters.len() {
        table[letters[at] as usize] = bytes[at];
        at += 1;
    }
    table
};

/// So many digits are a number that every integer type here holds.
const DIGITS_EXACT: usize = 18;

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{DEPTH_MAX, Strict, parse_with};
    use super::*;

    const TEXTS: [&str; 10] = [
        r#"{"a":[1,-7,0,true,false,null,""],"b":{"é":"ö€😀"},"c":{}}"#,
        "[ 1 , 2.5 , -0.0 , 1e3 , 1.5E-7 , 0e+0 , 123456789012345678 ]\n",
        r#""\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00 and more""#,
        r#""{\"a\":[1,\"b\\n\"],\"text without any escapes\":\"é\"}\t""#,
        r#"["1234567","12345678","123456789","a\\b","12345\n6"]"#,
        "{}",
        "[]",
        "[[[[]]]]",
        "-12",
        r#"{"name":"x","arguments":{"path":"a/b.txt","limit":10},"_meta":{"io.x/y":"z"}}"#,
    ];

    /// Every text with each of its bytes replaced by each other, taken out or doubled.
    pub(crate) fn mutated(texts: &[&str], mut each: impl FnMut(&[u8])) {
        for text in texts.iter().map(|text| text.as_bytes()) {
            for at in 0..text.len() {
                each(&text[..at]);
                each(&[&text[..at], &text[at + 1..]].concat());
                each(&[&text[..=at], &text[at..]].concat());
                for byte in 0..=u8::MAX {
                    each(&[&text[..at], &[byte], &text[at + 1..]].concat());
                }
            }
        }
    }

    fn quickly(bytes: &[u8], depth_left: usize) -> Option<Value> {
        let mut quick = Quick::new(bytes)?;
        let value = quick.value(depth_left)?;
        quick.end().map(|()| value)
    }

    fn by_the_library(bytes: &[u8], depth_left: usize) -> Option<Value> {
        parse_with(bytes, Strict { depth_left }).ok()
    }

    /// G-1: what it takes, the library takes, as the same value.
    #[test]
    fn agrees_with_the_library() {
        for text in TEXTS {
            let quick = quickly(text.as_bytes(), DEPTH_MAX);
            assert!(quick.is_some(), "{text}");
            assert_eq!(quick, by_the_library(text.as_bytes(), DEPTH_MAX), "{text}");
        }
        mutated(&TEXTS, |bytes| {
            if let Some(quick) = quickly(bytes, DEPTH_MAX) {
                let shown = String::from_utf8_lossy(bytes);
                let told = by_the_library(bytes, DEPTH_MAX);
                // To the bit: equality takes one zero for the other.
                assert_eq!(
                    Some(quick.to_string()),
                    told.map(|v| v.to_string()),
                    "{shown}"
                );
            }
        });
    }

    /// G-1: depth just below, at and past the edge.
    #[test]
    fn depth() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(quickly(nested(3).as_bytes(), 3).is_some());
        assert!(quickly(nested(4).as_bytes(), 3).is_none());
        assert!(quickly(br#"{"a":{"b":[]}}"#, 3).is_some());
        assert!(quickly(br#"{"a":{"b":[]}}"#, 2).is_none());
        assert!(quickly("[".repeat(1 << 20).as_bytes(), DEPTH_MAX).is_none());
    }

    #[test]
    fn the_rest_is_the_library_s() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"\u0061":1}"#,
            "12345678901234567890",
            "-0",
            "01",
            "1.",
            ".5",
            "1e",
            "1e999",
            r#""\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\udc00""#,
            r#""\u+041""#,
            "{} x",
            "nul",
            "+1",
        ] {
            assert!(quickly(text.as_bytes(), DEPTH_MAX).is_none(), "{text}");
        }
    }
}
