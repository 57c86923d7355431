//! Strict JSON, the same on every wire (G-1): bounded depth, no duplicate keys, no lone
//! surrogates, no integer beyond 64 bits, no other number beyond a double, nothing after the
//! value. So what was checked is what the tool gets.

pub(crate) mod quick;
mod wide;

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::de::{Read, SliceRead, StrRead};
use serde_json::{Map, Number, Value};

use self::quick::Quick;
use self::wide::wide_integer;

/// Depth allowed on wires that do not say otherwise. G-1.
pub const DEPTH_MAX: usize = 128;

/// Why a text is not acceptable JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or not strict; says line and column.
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    /// An integer that would become a double, and so another number.
    #[error("the integer {digits} does not fit 64 bits: send it as a string")]
    WideInteger {
        /// Its first digits.
        digits: String,
    },
}

/// Parses one strict JSON value nested at most `depth_max` deep.
pub fn parse(bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    match parse_quickly(bytes, depth_max) {
        Some(value) => Ok(value),
        None => parse_strictly(bytes, depth_max),
    }
}

/// The same for the output of a tool, in which an integer beyond 64 bits is the double nearest to
/// it: JavaScript spells doubles from 2^64 to 10^21 so. Its text keeps the digits.
pub fn parse_output(bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    match parse_quickly(bytes, depth_max) {
        Some(value) => Ok(value),
        None => parse_with_wide(
            bytes,
            Strict {
                depth_left: depth_max,
            },
        ),
    }
}

/// Parses with the quick reader alone. Returns `None` for whatever it leaves to the strict one.
/// Public for differential tests only.
#[doc(hidden)]
pub fn parse_quickly(bytes: &[u8], depth_max: usize) -> Option<Value> {
    let mut quick = Quick::new(bytes)?;
    let value = quick.value(depth_max)?;
    quick.end().map(|()| value)
}

/// Parses with the strict reader alone. Public for differential tests only.
#[doc(hidden)]
pub fn parse_strictly(bytes: &[u8], depth_max: usize) -> Result<Value, JsonError> {
    let depth_left = depth_max;
    parse_with(bytes, Strict { depth_left })
}

/// The same for what is known to be UTF-8.
pub fn parse_text(text: &str, depth_max: usize) -> Result<Value, JsonError> {
    parse(text.as_bytes(), depth_max)
}

/// Parses one text with a seed of the caller's, to its end.
pub(crate) fn parse_with<'a, S: DeserializeSeed<'a>>(
    bytes: &'a [u8],
    seed: S,
) -> Result<S::Value, JsonError> {
    let value = parse_with_wide(bytes, seed)?;
    check_integers(bytes)?;
    Ok(value)
}

/// Refuses valid JSON with an integer that does not fit 64 bits. The parser makes such integers
/// doubles, so a parsed value does not show them.
pub(crate) fn check_integers(json: &[u8]) -> Result<(), JsonError> {
    const SHOWN_BYTES_MAX: usize = 40;
    let Some(digits) = wide_integer(json) else {
        return Ok(());
    };
    let (shown, more) = match digits.split_at_checked(SHOWN_BYTES_MAX) {
        Some((shown, rest)) if !rest.is_empty() => (shown, "…"),
        _ => (digits, ""),
    };
    let digits = format!("{}{more}", String::from_utf8_lossy(shown));
    Err(JsonError::WideInteger { digits })
}

/// The same without the check of integers, for a seed that checks those it keeps.
pub(crate) fn parse_with_wide<'a, S: DeserializeSeed<'a>>(
    bytes: &'a [u8],
    seed: S,
) -> Result<S::Value, JsonError> {
    // Looking at all of it once costs less than at every string; where it is not UTF-8 the
    // parser says in which.
    match std::str::from_utf8(bytes) {
        Ok(text) => read_all(StrRead::new(text), seed),
        Err(_) => read_all(SliceRead::new(bytes), seed),
    }
}

fn read_all<'a, R: Read<'a>, S: DeserializeSeed<'a>>(
    from: R,
    seed: S,
) -> Result<S::Value, JsonError> {
    let mut deserializer = serde_json::Deserializer::new(from);
    // The seeds count depth themselves: the library's own limit is fixed at 127.
    deserializer.disable_recursion_limit();
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Builds a `Value`, refusing what G-1 refuses.
#[derive(Clone, Copy)]
pub(crate) struct Strict {
    pub depth_left: usize,
}

impl Strict {
    /// The seed for what is inside one more bracket.
    pub fn inside<E: de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left }),
            None => Err(E::custom("nested too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number beyond a double"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key_seed(Key)? {
            let value = members.next_value_seed(inside)?;
            match object.entry(key) {
                serde_json::map::Entry::Vacant(entry) => entry.insert(value),
                serde_json::map::Entry::Occupied(entry) => {
                    return Err(duplicate(entry.key()));
                }
            };
        }
        Ok(Value::Object(object))
    }
}

/// Reads the members of an object where one is expected: known ones are taken where they are
/// met, and need no map to be looked up in.
pub(crate) trait Members<'de> {
    /// What they come to.
    type Out;

    /// Reads them all; `inside` is for their values.
    fn read<A: MapAccess<'de>>(self, members: A, inside: Strict) -> Result<Self::Out, A::Error>;
}

/// The seed of an object that is read by its members; anything else is a value as it is.
pub(crate) struct ObjectOr<M>(pub Strict, pub M);

impl<'de, M: Members<'de>> DeserializeSeed<'de> for ObjectOr<M> {
    type Value = Result<M::Out, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, M: Members<'de>> Visitor<'de> for ObjectOr<M> {
    type Value = Result<M::Out, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        self.0.visit_unit().map(Err)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        self.0.visit_bool(value).map(Err)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        self.0.visit_i64(value).map(Err)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        self.0.visit_u64(value).map(Err)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        self.0.visit_f64(value).map(Err)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        self.0.visit_str(value).map(Err)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        self.0.visit_seq(items).map(Err)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        let inside = self.0.inside()?;
        self.1.read(members, inside).map(Ok)
    }
}

/// The error for a key that comes twice.
pub(crate) fn duplicate<E: de::Error>(key: &str) -> E {
    E::custom(format_args!("duplicate key {key:?}"))
}

/// A member's name, borrowed where it has no escapes.
pub(crate) struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

/// Appends `value` as compact JSON.
pub fn write_value(value: &Value, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("writing to a Vec does not fail");
}

/// Appends a message of our own as compact JSON. Its type has no keys but strings.
pub fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("writing to a Vec does not fail");
}

/// Appends an object as compact JSON.
pub fn write_object(object: &Map<String, Value>, out: &mut Vec<u8>) {
    serde_json::to_writer(out, object).expect("writing to a Vec does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    /// G-1: depth just below, at and past the edge.
    #[test]
    fn depth_is_bounded() {
        for depth_max in [32, 128] {
            assert!(parse(nested(depth_max - 1).as_bytes(), depth_max).is_ok());
            assert!(parse(nested(depth_max).as_bytes(), depth_max).is_ok());
            let error = parse(nested(depth_max + 1).as_bytes(), depth_max).unwrap_err();
            assert!(error.to_string().contains("nested too deep"), "{error}");
        }
        // A bomb is refused at its edge, whatever its size.
        assert!(parse("[".repeat(1 << 20).as_bytes(), DEPTH_MAX).is_err());
        assert!(parse("{\"a\":".repeat(1 << 18).as_bytes(), DEPTH_MAX).is_err());
    }

    /// G-1: every leniency of the old parser is gone.
    #[test]
    fn refused() {
        let texts: &[&[u8]] = &[
            b"",
            b" ",
            b"{",
            b"nul",
            b"NaN",
            b"Infinity",
            b"1e999",
            b"-1e999",
            b"18446744073709551616",
            b"-9223372036854775809",
            b"{\"a\":[1e3,{\"b\":123456789012345678901234567890}]}",
            b"01",
            b"+1",
            b"'a'",
            b"{} {}",
            b"{}x",
            b"[1,]",
            b"{\"a\":1,}",
            b"/**/1",
            b"\"\\ud800\"",
            b"\"\\udc00x\"",
            b"\"\xff\"",
            b"{\"\xff\":1}",
            b"{\"a\":1,\"a\":2}",
            b"[{\"k\":{\"x\":1,\"\\u0078\":2}}]",
            b"\"\n\"",
            b"\"\x00\"",
            b"{1:2}",
        ];
        for text in texts {
            assert!(
                parse(text, DEPTH_MAX).is_err(),
                "{:?}",
                String::from_utf8_lossy(text)
            );
        }
    }

    /// G-1d: doubles as JavaScript spells them are outputs, and no inputs.
    #[test]
    fn integers_of_outputs() {
        for text in ["18446744073709552000", "[-100000000000000000000]"] {
            let wanted: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse_output(text.as_bytes(), DEPTH_MAX).unwrap(), wanted);
            let refused = parse(text.as_bytes(), DEPTH_MAX).unwrap_err();
            assert!(
                refused.to_string().contains("does not fit 64 bits"),
                "{refused}"
            );
        }
        let error = parse("9".repeat(300).as_bytes(), DEPTH_MAX).unwrap_err();
        let shown = format!("{}…", "9".repeat(40));
        assert!(error.to_string().contains(&shown), "{error}");
        assert!(parse_output(b"1e999", DEPTH_MAX).is_err());
    }

    /// G-1.
    #[test]
    fn accepted_as_given() {
        for text in [
            "null",
            "true",
            "0",
            "-1",
            "1.5",
            "18446744073709551615",
            "-9223372036854775808",
            "18446744073709551616.0",
            "-9223372036854775809e0",
            "1e300",
            "0.10000000000000000000000000000001",
            "\"18446744073709551616\"",
            "{\"18446744073709551616\":\"\\\"18446744073709551616\"}",
            "\"\\ud83d\\ude00\"",
            "{\"a\":[1,{\"b\":null}],\"c\":\"d\"}",
            "\"\\u0000\"",
        ] {
            let wanted: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes(), DEPTH_MAX).unwrap(), wanted);
        }
    }
}
