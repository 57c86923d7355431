//! JSON of what a frame holds. Bytes become base64, a timestamp RFC 3339 text, any other
//! extension `{"ext": TYPE, "data": BASE64}`; numbers that JSON does not have become null, and a
//! key that is no text becomes its text. Text that is no UTF-8 shows U+FFFD in its place: a
//! script that met such text is not to die of it.
//!
//! What is written here was walked before; were it not, the rest would be null.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_text::{rfc3339, write_decimal, write_stream_json_text};

use super::msgpack::{Flaw, Reader, Token};

/// Removes secrets from values before they are encoded.
pub trait Mask {
    /// Returns the text without secrets; `None` if it has none.
    fn text(&self, text: &str) -> Option<String>;
    /// Returns the bytes without secrets; `None` if they have none.
    fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>>;
}

/// A mask, where there is anything to mask.
pub type Masked<'a> = Option<&'a dyn Mask>;

/// Writes the next value.
pub(super) fn write_value(reader: &mut Reader<'_>, mask: Masked<'_>, out: &mut Vec<u8>) {
    if try_value(reader, mask, out).is_err() {
        out.extend_from_slice(b"null");
    }
}

fn try_value(reader: &mut Reader<'_>, mask: Masked<'_>, out: &mut Vec<u8>) -> Result<(), Flaw> {
    match reader.token()? {
        Token::Nil => out.extend_from_slice(b"null"),
        Token::Bool(true) => out.extend_from_slice(b"true"),
        Token::Bool(false) => out.extend_from_slice(b"false"),
        Token::Uint(value) => write_number(mask, out, |out| write_decimal(value, out)),
        Token::Int(value) => write_number(mask, out, |out| write_int(value, out)),
        Token::Float(value) => write_number(mask, out, |out| write_float(value, out)),
        Token::Str(bytes) => write_bytes_as_text(bytes, mask, out),
        Token::Bin(bytes) => write_base64(bytes, mask, out),
        Token::Ext(kind, data) => write_ext(kind, data, mask, out),
        Token::Array(count) => {
            out.push(b'[');
            for at in 0..count {
                separate(at, out);
                write_value(reader, mask, out);
                if reader.left() == 0 {
                    break;
                }
            }
            out.push(b']');
        }
        Token::Map(count) => {
            out.push(b'{');
            for at in 0..count {
                separate(at, out);
                write_key(reader, mask, out);
                out.push(b':');
                write_value(reader, mask, out);
                if reader.left() == 0 {
                    break;
                }
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn separate(at: u32, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
}

fn write_key(reader: &mut Reader<'_>, mask: Masked<'_>, out: &mut Vec<u8>) {
    let mut look = *reader;
    match look.token() {
        Ok(Token::Str(bytes)) => {
            *reader = look;
            return write_bytes_as_text(bytes, mask, out);
        }
        // What is no text becomes base64: a secret is looked for in its bytes.
        Ok(Token::Bin(bytes) | Token::Ext(_, bytes)) => {
            if let Some(masked) = mask.and_then(|mask| mask.bytes(bytes)) {
                *reader = look;
                return write_bytes_as_text(&masked, None, out);
            }
        }
        _ => {}
    }
    let mut text = Vec::new();
    write_key_text(reader, &mut text);
    write_bytes_as_text(&text, mask, out);
}

/// The text of a key, without quotes or escapes.
pub(super) fn write_key_text(reader: &mut Reader<'_>, out: &mut Vec<u8>) {
    let mut look = *reader;
    match look.token() {
        Ok(Token::Str(bytes)) => out.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes()),
        Ok(Token::Bin(bytes)) if std::str::from_utf8(bytes).is_ok() => {
            out.extend_from_slice(bytes);
        }
        Ok(Token::Bin(bytes)) => out.extend_from_slice(STANDARD.encode(bytes).as_bytes()),
        Ok(Token::Ext(kind, data)) => match timestamp(kind, data) {
            Some(text) => out.extend_from_slice(text.as_bytes()),
            None => out.extend_from_slice(STANDARD.encode(data).as_bytes()),
        },
        // Its JSON is its text.
        _ => return write_value(reader, None, out),
    }
    *reader = look;
}

/// A text in quotes, without secrets.
pub(super) fn write_masked(text: &str, mask: Masked<'_>, out: &mut Vec<u8>) {
    match mask.and_then(|mask| mask.text(text)) {
        Some(masked) => write_stream_json_text(&masked, out),
        None => write_stream_json_text(text, out),
    }
}

fn write_bytes_as_text(bytes: &[u8], mask: Masked<'_>, out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => write_masked(text, mask, out),
        // The bytes of a secret that is no UTF-8 are not in the text that stands for them.
        Err(_) => {
            let masked = mask.and_then(|mask| mask.bytes(bytes));
            let text = String::from_utf8_lossy(masked.as_deref().unwrap_or(bytes));
            write_masked(&text, mask, out);
        }
    }
}

/// A number; one whose digits are a secret becomes a text.
fn write_number(mask: Masked<'_>, out: &mut Vec<u8>, write: impl Fn(&mut Vec<u8>)) {
    let from = out.len();
    write(out);
    let Some(mask) = mask else { return };
    let text = std::str::from_utf8(&out[from..]).unwrap_or_default();
    if let Some(masked) = mask.text(text) {
        out.truncate(from);
        write_stream_json_text(&masked, out);
    }
}

fn write_int(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_decimal(value.unsigned_abs(), out);
}

fn write_float(value: f64, out: &mut Vec<u8>) {
    // Writes null for what JSON has no number for; a vector takes all that is written.
    if serde_json::to_writer(&mut *out, &value).is_err() {
        out.extend_from_slice(b"null");
    }
}

fn write_base64(bytes: &[u8], mask: Masked<'_>, out: &mut Vec<u8>) {
    let masked = mask.and_then(|mask| mask.bytes(bytes));
    let bytes = masked.as_deref().unwrap_or(bytes);
    out.push(b'"');
    let from = out.len();
    // bound: four thirds of the bytes in memory
    out.resize(from + bytes.len().div_ceil(3) * 4, b'=');
    let written = STANDARD.encode_slice(bytes, &mut out[from..]);
    out.truncate(from + written.unwrap_or(0));
    out.push(b'"');
}

fn write_ext(kind: i8, data: &[u8], mask: Masked<'_>, out: &mut Vec<u8>) {
    if let Some(text) = timestamp(kind, data) {
        return write_masked(&text, mask, out);
    }
    out.extend_from_slice(b"{\"ext\":");
    write_int(i64::from(kind), out);
    out.extend_from_slice(b",\"data\":");
    write_base64(data, mask, out);
    out.push(b'}');
}

/// The timestamp extension as RFC 3339, if it is one of a year that has four digits.
fn timestamp(kind: i8, data: &[u8]) -> Option<String> {
    if kind != -1 {
        return None;
    }
    let (seconds, nanos) = match data.len() {
        4 => (i64::from(u32::from_be_bytes(data.try_into().ok()?)), 0),
        8 => {
            let both = u64::from_be_bytes(data.try_into().ok()?);
            let seconds = i64::try_from(both & ((1 << 34) - 1)).ok()?;
            (seconds, u32::try_from(both >> 34).ok()?)
        }
        12 => {
            let (nanos, seconds) = data.split_first_chunk::<4>()?;
            let seconds = i64::from_be_bytes(seconds.try_into().ok()?);
            (seconds, u32::from_be_bytes(*nanos))
        }
        _ => return None,
    };
    rfc3339(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks the word `secret`, and the digits 4711.
    struct Word;

    impl Mask for Word {
        fn text(&self, text: &str) -> Option<String> {
            let masked = text.replace("secret", "[…]").replace("4711", "[…]");
            (masked != text).then_some(masked)
        }

        fn bytes(&self, bytes: &[u8]) -> Option<Vec<u8>> {
            let at = bytes.windows(6).position(|window| window == b"secret")?;
            let mut masked = bytes.to_vec();
            masked[at..at + 6].fill(b'*');
            Some(masked)
        }
    }

    /// S-18: values and keys of every kind.
    #[test]
    fn secrets_are_masked_in_values_of_every_kind() {
        let mut map = vec![0x89];
        map.extend(b"\xa1a\xa7\"secret"); // text with an escape
        map.extend(b"\xa1b\xc4\x08\xffsecret\x00"); // bytes
        map.extend(b"\xa1c\xc7\x06\x05secret"); // an extension
        map.extend(b"\xa1d\xcd\x12\x67"); // 4711
        map.extend(b"\xa1e\xa8\xff\xfesecret"); // text that is no UTF-8
        map.extend(b"\xa6secret\x01"); // a key
        map.extend(b"\xc4\x06secret\x02"); // a key of bytes
        map.extend(b"\xc4\x07\xffsecret\x03"); // a key of bytes that are no text
        map.extend(b"\xa1f\x92\xa6secret\x81\xa1g\xc4\x06secret"); // inside others
        let mut out = Vec::new();
        write_value(&mut Reader::new(&map, 0), Some(&Word), &mut out);
        let text = String::from_utf8(out).unwrap();
        let base64 = |bytes: &[u8]| STANDARD.encode(bytes);
        let wanted = format!(
            r#"{{"a":"\"[…]","b":"{}","c":{{"ext":5,"data":"{}"}},"d":"[…]","e":"{}","[…]":1,"******":2,"{}":3,"f":["[…]",{{"g":"{}"}}]}}"#,
            base64(b"\xff******\0"),
            base64(b"******"),
            "\u{fffd}\u{fffd}******",
            "\u{fffd}******",
            base64(b"******"),
        );
        assert_eq!(text, wanted);
    }

    fn json(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        write_value(&mut Reader::new(bytes, 0), None, &mut out);
        let text = String::from_utf8(out).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text
    }

    /// Every kind of value has its JSON.
    #[test]
    fn every_kind_of_value() {
        let nan = [&[0xcb][..], &f64::NAN.to_be_bytes()].concat();
        let infinite = [&[0xca][..], &f32::NEG_INFINITY.to_be_bytes()].concat();
        let half = [&[0xca][..], &0.5f32.to_be_bytes()].concat();
        for (bytes, wanted) in [
            (&b"\xc0"[..], "null"),
            (b"\xc2", "false"),
            (b"\xc3", "true"),
            (b"\x00", "0"),
            (b"\x7f", "127"),
            (b"\xe0", "-32"),
            (
                b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
                "18446744073709551615",
            ),
            (b"\xd3\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
            (b"\xd0\x05", "5"),
            (&nan, "null"),
            (&infinite, "null"),
            (&half, "0.5"),
            (b"\xa0", "\"\""),
            (b"\xa6a\"\\\n\x01\x7f", "\"a\\\"\\\\\\n\\u0001\x7f\""),
            (b"\xa3\xffok", "\"\u{fffd}ok\""),
            (b"\xc4\x02\xff\xfe", "\"//4=\""),
            (b"\xc4\x00", "\"\""),
            (b"\x92\x01\x90", "[1,[]]"),
            (b"\x82\xa1a\x80\xa1b\xc0", r#"{"a":{},"b":null}"#),
            (
                b"\x84\x01\xc0\xc0\xc0\xc2\xc0\xff\xc0",
                r#"{"1":null,"null":null,"false":null,"-1":null}"#,
            ),
            (
                b"\x82\xc4\x01k\xc0\xc4\x01\xff\xc0",
                r#"{"k":null,"/w==":null}"#,
            ),
            (b"\x81\xa1\xff\xc0", "{\"\u{fffd}\":null}"),
            (b"\xd4\x05\xff", r#"{"ext":5,"data":"/w=="}"#),
            (b"\xd6\xff\0\0\0\0", "\"1970-01-01T00:00:00Z\""),
        ] {
            assert_eq!(json(bytes), wanted, "{bytes:02x?}");
        }
    }

    /// Timestamps in all three forms, at the edges of what RFC 3339 can say.
    #[test]
    fn timestamps() {
        let long = |nanos: u32, seconds: i64| {
            let data = [&nanos.to_be_bytes()[..], &seconds.to_be_bytes()].concat();
            timestamp(-1, &data)
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(long(0, 951_782_400), told("2000-02-29T00:00:00Z"));
        assert_eq!(long(120_000_000, -1), told("1969-12-31T23:59:59.12Z"));
        assert_eq!(long(0, -62_167_219_200), told("0000-01-01T00:00:00Z"));
        assert_eq!(
            long(1, 253_402_300_799),
            told("9999-12-31T23:59:59.000000001Z")
        );
        for none in [
            long(0, 253_402_300_800),
            long(0, i64::MIN),
            long(1_000_000_000, 0),
        ] {
            assert_eq!(none, None);
        }
        let both = (500_000_000u64 << 34) | 1_700_000_000;
        assert_eq!(
            timestamp(-1, &both.to_be_bytes()),
            told("2023-11-14T22:13:20.5Z")
        );
        assert_eq!(timestamp(0, &[0; 4]), None);
        assert_eq!(timestamp(-1, &[0; 5]), None);
    }
}
