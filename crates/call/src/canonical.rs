//! Canonical JSON (RFC 8785) and the digests made over it. Two texts of one value have one
//! digest, whatever their spacing or key order. Decision G-1.

use std::fmt;

use serde_json::{Map, Number, Value};

/// BLAKE3 over canonical bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of bytes as they are.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of a JSON value in canonical form.
    #[must_use]
    pub fn of_json(value: &Value) -> Self {
        let mut bytes = Vec::with_capacity(256);
        canonical_json(value, &mut bytes);
        Self::of_bytes(&bytes)
    }

    /// The digest as 64 lower-case hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// Reads 64 hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        blake3::Hash::from_hex(text)
            .ok()
            .map(|hash| Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Appends the canonical form of `value` to `out`.
pub fn canonical_json(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => canonical_number(number, out),
        Value::String(text) => canonical_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                canonical_json(item, out);
            }
            out.push(b']');
        }
        Value::Object(members) => canonical_object(members, out),
    }
}

fn canonical_object(members: &Map<String, Value>, out: &mut Vec<u8>) {
    out.push(b'{');
    let write = |index: usize, key: &str, value: &Value, out: &mut Vec<u8>| {
        if index > 0 {
            out.push(b',');
        }
        canonical_text(key, out);
        out.push(b':');
        canonical_json(value, out);
    };
    // The map is ordered by UTF-8 bytes and the RFC asks for UTF-16 units. The two
    // orders agree unless a key goes beyond the first surrogate.
    let plain = |key: &String| key.bytes().fold(true, |all, byte| all & (byte < 0xEE));
    if members.keys().all(plain) {
        for (index, (key, value)) in members.iter().enumerate() {
            write(index, key, value, out);
        }
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        for (index, (key, value)) in sorted.into_iter().enumerate() {
            write(index, key, value, out);
        }
    }
    out.push(b'}');
}

/// Integers a double holds exactly are written as they are; all else as the double is.
fn canonical_number(number: &Number, out: &mut Vec<u8>) {
    const EXACT: u64 = 1 << 53;
    match (number.as_u64(), number.as_i64()) {
        (Some(n), _) if n <= EXACT => canonical_integer(n, out),
        (_, Some(n)) if n.unsigned_abs() <= EXACT => {
            out.push(b'-');
            canonical_integer(n.unsigned_abs(), out);
        }
        _ => {
            let double = number.as_f64().unwrap_or(0.0);
            out.extend_from_slice(ryu_js::Buffer::new().format(double).as_bytes());
        }
    }
}

fn canonical_integer(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// True if a JSON string has these bytes as they are: no quote, backslash or control byte among
/// them. Nearly every text is so and most are short, hence eight bytes at a time.
#[must_use]
pub fn is_plain(bytes: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    let below = |word: u64, bound: u64| word.wrapping_sub(ONES * bound) & !word;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    let special = words.iter().fold(0, |all, word| {
        let word = u64::from_le_bytes(*word);
        all | below(word, 0x20) | is(word, b'"') | is(word, b'\\')
    });
    let plain = |byte: u8| (byte >= 0x20) & (byte != b'"') & (byte != b'\\');
    special & (ONES * 0x80) == 0 && rest.iter().all(|&byte| plain(byte))
}

fn canonical_text(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let bytes = text.as_bytes();
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
        out.push(b'"');
        return;
    }
    let mut start = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            0x08 => b'b',
            0x09 => b't',
            0x0A => b'n',
            0x0C => b'f',
            0x0D => b'r',
            0x00..=0x1F => 0,
            _ => continue,
        };
        out.extend_from_slice(&bytes[start..index]);
        start = index + 1;
        if short == 0 {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(byte >> 4)]);
            out.push(HEX[usize::from(byte & 15)]);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
    }
    out.extend_from_slice(&bytes[start..]);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        let mut out = Vec::new();
        canonical_json(&serde_json::from_str(text).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    /// G-1: the samples of RFC 8785, section 3.2.
    #[test]
    fn rfc_8785_samples() {
        let given = r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
            "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#;
        let wanted = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(canonical(given), wanted);
        let sorted = canonical(
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew","1":"One","\ud83d\ude00":"Smiley","\u0080":"Control","\u00f6":"Latin"}"#,
        );
        let order: Vec<usize> = [
            "Return", "One", "Control", "Latin", "Euro", "Smiley", "Hebrew",
        ]
        .iter()
        .map(|word| sorted.find(word).unwrap())
        .collect();
        assert!(order.is_sorted(), "{sorted}");
    }

    #[test]
    fn plain_bytes_are_told() {
        for byte in 0..=u8::MAX {
            let plain = byte >= 0x20 && byte != b'"' && byte != b'\\';
            for length in 1..20 {
                for at in 0..length {
                    let mut bytes = vec![b' '; length];
                    bytes[at] = byte;
                    assert_eq!(is_plain(&bytes), plain, "{byte} at {at} of {length}");
                }
            }
        }
        assert!(is_plain(b"") && is_plain("é\u{7f}\u{80}".as_bytes()));
    }

    /// G-1: one value, one digest; another value, another.
    #[test]
    fn digest_ignores_spelling_only() {
        let digest = |text: &str| Digest::of_json(&serde_json::from_str(text).unwrap());
        assert_eq!(
            digest(r#"{"a":1,"b":[1.0]}"#),
            digest(r#"{ "b": [1], "a": 1e0 }"#)
        );
        assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":"1"}"#));
        assert_ne!(digest("9007199254740993"), digest("9007199254740994.5e1"));
        assert_eq!(digest("-0.0"), digest("0"));
        assert_eq!(
            canonical("[-7,0,9007199254740992,-90]"),
            "[-7,0,9007199254740992,-90]"
        );
        let hex = digest("{}").to_hex();
        assert_eq!(Digest::from_hex(&hex), Some(digest("{}")));
    }
}
