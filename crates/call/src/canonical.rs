//! Canonical JSON (RFC 8785, with exact integers) and the digests made over it. Two texts of one
//! value have one digest, whatever their spacing or key order; two values have two. Decision G-1.

use std::fmt;

use callgate_text::{write_decimal, write_json_text};
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

    /// Returns the digest that release 0.1.0 made of a JSON value, if it is another one: there, whole
    /// numbers from 2^53 on were digested as doubles, so that several shared a digest. `None` of a
    /// value without such numbers.
    #[must_use]
    pub fn of_json_as_doubles(value: &Value) -> Option<Self> {
        if !has_exact_integer(value) {
            return None;
        }
        let mut bytes = Vec::with_capacity(256);
        write_value(value, Numbers::Doubles, &mut bytes);
        Some(Self::of_bytes(&bytes))
    }

    /// Returns whether this is the digest of `value`, in the form of this release or of 0.1.0. For
    /// records; what is to be replayed or permitted is compared in the present form alone.
    #[must_use]
    pub fn is_of_json(self, value: &Value) -> bool {
        self == Self::of_json(value) || Self::of_json_as_doubles(value) == Some(self)
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
    write_value(value, Numbers::Canonical, out);
}

/// Appends `value` as compact JSON, numbers in their own words. True if that is its canonical form,
/// as it mostly is.
pub(crate) fn compact_json(value: &Value, out: &mut Vec<u8>) -> bool {
    write_value(value, Numbers::AsTheyAre, out)
}

/// How numbers are written that are not integers below 2^53.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    /// Whole numbers of 64 bits exactly, others as the double is.
    Canonical,
    /// In their own words.
    AsTheyAre,
    /// All as doubles, as release 0.1.0 had it.
    Doubles,
}

/// True if what was written is canonical.
fn write_value(value: &Value, numbers: Numbers, out: &mut Vec<u8>) -> bool {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => return write_number(number, numbers, out),
        Value::String(text) => write_json_text(text, out),
        Value::Array(items) => {
            let mut canonical = true;
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                canonical &= write_value(item, numbers, out);
            }
            out.push(b']');
            return canonical;
        }
        Value::Object(members) => return write_members(members, numbers, out),
    }
    true
}

fn write_members(members: &Map<String, Value>, numbers: Numbers, out: &mut Vec<u8>) -> bool {
    out.push(b'{');
    let mut canonical = true;
    let mut write = |index: usize, key: &str, value: &Value| {
        if index > 0 {
            out.push(b',');
        }
        write_json_text(key, out);
        out.push(b':');
        canonical &= write_value(value, numbers, out);
    };
    // The map is ordered by UTF-8 bytes and the RFC asks for UTF-16 units. The two
    // orders agree unless a key goes beyond the first surrogate.
    let plain = |key: &String| key.bytes().fold(true, |all, byte| all & (byte < 0xEE));
    if members.keys().all(plain) {
        for (index, (key, value)) in members.iter().enumerate() {
            write(index, key, value);
        }
    } else {
        let mut sorted: Vec<_> = members.iter().collect();
        sorted.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        for (index, (key, value)) in sorted.into_iter().enumerate() {
            write(index, key, value);
        }
    }
    out.push(b'}');
    canonical
}

/// From here on several integers are one double.
const EXACT_FROM: u64 = 1 << 53;

/// Integers below 2^53 are written as they are. Whole numbers from there on that fit 64 bits are
/// written as their digits and `e0`: JSON of the same number that RFC 8785 never writes, so that no
/// digest of an exact number is one that release 0.1.0 made of a rounded one.
fn write_number(number: &Number, numbers: Numbers, out: &mut Vec<u8>) -> bool {
    match (number.as_u64(), number.as_i64()) {
        (Some(n), _) if n < EXACT_FROM => write_decimal(n, out),
        (_, Some(n)) if n.unsigned_abs() < EXACT_FROM => {
            out.push(b'-');
            write_decimal(n.unsigned_abs(), out);
        }
        _ if numbers == Numbers::AsTheyAre => {
            out.extend_from_slice(number.to_string().as_bytes());
            return false;
        }
        _ => match exact_integer(number) {
            Some(n) if numbers == Numbers::Canonical => {
                out.extend_from_slice(format!("{n}e0").as_bytes());
            }
            _ => {
                let double = number.as_f64().unwrap_or(0.0);
                out.extend_from_slice(ryu_js::Buffer::new().format(double).as_bytes());
            }
        },
    }
    true
}

/// Returns the words a number has in the canonical form, and so in digests.
pub(crate) fn digested_spelling(number: &Number) -> String {
    let mut out = Vec::with_capacity(32);
    write_number(number, Numbers::Canonical, &mut out);
    String::from_utf8(out).expect("numbers are ASCII")
}

/// Returns the whole number of 2^53 or more that `number` is, also if it is spelt as a double,
/// where it fits 64 bits.
pub(crate) fn exact_integer(number: &Number) -> Option<i128> {
    let by_type = number
        .as_u64()
        .map(i128::from)
        .or_else(|| number.as_i64().map(i128::from));
    let whole = by_type.or_else(|| {
        let double = number.as_f64().filter(|double| double.fract() == 0.0)?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number; what is out of range becomes the nearest, and is compared"
        )]
        Some(double as i128)
    })?;
    let fits = i128::from(i64::MIN) <= whole && whole <= i128::from(u64::MAX);
    (fits && whole.unsigned_abs() >= u128::from(EXACT_FROM)).then_some(whole)
}

fn has_exact_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => exact_integer(number).is_some(),
        Value::Array(items) => items.iter().any(has_exact_integer),
        Value::Object(members) => members.values().any(has_exact_integer),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
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

    /// G-1: nothing of a number is lost, and what is said to be canonical is.
    #[test]
    fn compact_texts() {
        for text in [
            r#"{"a":[null,true,false,-7,9007199254740991,"é\n\u001b"],"b":{}}"#,
            "[9007199254740992]",
            "[1.0]",
            "[18446744073709551615]",
            "[-9223372036854775808]",
            "[1e300]",
            "[-0.0]",
            "[0.1]",
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            let mut out = Vec::new();
            let is_canonical = compact_json(&value, &mut out);
            assert_eq!(out, serde_json::to_vec(&value).unwrap(), "{text}");
            assert_eq!(is_canonical, text.starts_with('{'), "{text}");
            assert!(!is_canonical || out == canonical(text).as_bytes());
        }
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
            canonical("[-7,0,9007199254740991,-90]"),
            "[-7,0,9007199254740991,-90]"
        );
        let hex = digest("{}").to_hex();
        assert_eq!(Digest::from_hex(&hex), Some(digest("{}")));
    }

    /// G-1b: whole numbers of 64 bits are exact, however they are spelt; what is none, or does not
    /// fit, is the double that it is.
    #[test]
    fn exact_integers() {
        for (text, wanted) in [
            ("9007199254740991", "9007199254740991"),
            ("9007199254740992", "9007199254740992e0"),
            ("9007199254740993", "9007199254740993e0"),
            ("-9007199254740991", "-9007199254740991"),
            ("-9007199254740993", "-9007199254740993e0"),
            ("9223372036854775807", "9223372036854775807e0"),
            ("9223372036854775808", "9223372036854775808e0"),
            ("-9223372036854775808", "-9223372036854775808e0"),
            ("18446744073709551615", "18446744073709551615e0"),
            ("9007199254740991.0", "9007199254740991"),
            ("9007199254740992.0", "9007199254740992e0"),
            ("1234567890123456768.0", "1234567890123456768e0"),
            ("1234567890123456800", "1234567890123456800e0"),
            ("18446744073709551616.0", "18446744073709552000"),
            ("-9223372036854777856.0", "-9223372036854778000"),
            ("1e300", "1e+300"),
            ("2251799813685249.5", "2251799813685249.5"),
        ] {
            assert_eq!(canonical(text), wanted, "{text}");
        }
    }

    /// G-1c: digests of release 0.1.0 are known where they were others, and are none of this one.
    #[test]
    fn digests_as_doubles() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        let before = Digest::of_bytes(br#"{"id":[9007199254740992]}"#);
        for text in [
            r#"{"id":[9007199254740992]}"#,
            r#"{"id":[9007199254740993]}"#,
            r#"{"id":[9007199254740992.0]}"#,
        ] {
            let value = value(text);
            assert_eq!(Digest::of_json_as_doubles(&value), Some(before), "{text}");
            assert_ne!(Digest::of_json(&value), before, "{text}");
            assert!(before.is_of_json(&value) && Digest::of_json(&value).is_of_json(&value));
        }
        for text in [
            r#"{"id":[9007199254740991]}"#,
            "1e300",
            "1.5",
            r#""9007199254740993""#,
        ] {
            let value = value(text);
            assert_eq!(Digest::of_json_as_doubles(&value), None, "{text}");
            assert!(!before.is_of_json(&value) && Digest::of_json(&value).is_of_json(&value));
        }
    }
}
