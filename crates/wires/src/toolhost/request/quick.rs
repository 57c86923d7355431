//! The request as nearly every client writes it: known members, all of them strings. Read in
//! one pass without a parser. Anything else, wrong or only unusual, is left to the parser, so
//! that there is one place that says why.

use std::borrow::Cow;

use super::{Envelope, Text};

/// The envelope of a plain request; `None` if the parser has to look.
pub(super) fn envelope(line: &[u8]) -> Option<Envelope<'_>> {
    let mut rest = line.strip_prefix(b"{")?;
    let mut envelope = Envelope::default();
    loop {
        let (name, after) = plain_text(rest)?;
        rest = spaces(spaces(after).strip_prefix(b":")?);
        let field = match name {
            b"aid" => &mut envelope.aid,
            b"input_json" => &mut envelope.input_json,
            b"idempotency_key" => &mut envelope.idempotency_key,
            b"_lease_token" => &mut envelope.lease_token,
            _ => return None,
        };
        let Text::Absent = field else { return None };
        let (value, after) = text(rest)?;
        *field = Text::Is(value);
        rest = spaces(after);
        if let Some(more) = rest.strip_prefix(b",") {
            rest = spaces(more);
        } else {
            return (spaces(rest.strip_prefix(b"}")?).is_empty()).then_some(envelope);
        }
    }
}

fn spaces(bytes: &[u8]) -> &[u8] {
    let count = bytes.iter().take_while(|&&byte| byte == b' ').count();
    &bytes[count..]
}

/// A string without escapes, and what follows it. Not known to be UTF-8.
fn plain_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = bytes.strip_prefix(b"\"")?;
    let end = inner
        .iter()
        .position(|&byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    let (text, after) = inner.split_at(end);
    Some((text, after.strip_prefix(b"\"")?))
}

/// A string, and what follows it.
fn text(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    if let Some((text, after)) = plain_text(bytes) {
        return Some((Cow::Borrowed(std::str::from_utf8(text).ok()?), after));
    }
    let inner = bytes.strip_prefix(b"\"")?;
    // JSON in JSON has an escape every few bytes, too many to look for and too few to copy
    // what is between them. So byte for byte, into a place that is there already.
    let mut text = vec![0; inner.len()];
    let (mut from, mut places, mut length) = (inner.iter(), text.iter_mut(), 0);
    loop {
        let (&byte, place) = (from.next()?, places.next()?);
        *place = match byte {
            _ if PLAIN[usize::from(byte)] => byte,
            b'"' => break,
            b'\\' => escaped(*from.next()?)?,
            _ => return None,
        };
        length += 1;
    }
    text.truncate(length);
    Some((Cow::Owned(String::from_utf8(text).ok()?), from.as_slice()))
}

/// The bytes that stand for themselves.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};

/// What stands behind a backslash, but for code points.
fn escaped(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{EnvelopeMembers, Request, STRICT};
    use super::*;
    use crate::json;

    fn by_the_parser(line: &[u8]) -> Option<Request> {
        let parsed = json::parse_with(line, json::ObjectOr(STRICT, EnvelopeMembers));
        parsed.ok()?.ok()?.into_request().ok()
    }

    const PLAIN: [&str; 5] = [
        r#"{"aid":"AID.X.v1","input_json":"{\"a\":[1,\"\\n\"]}","idempotency_key":"k"}"#,
        r#"{"aid": "AID.é.v1", "input_json" : "{}" , "_lease_token": "t\/\b\f\n\r\t\\" } "#,
        r#"{"input_json":""}"#,
        r#"{"aid":""}"#,
        r#"{"idempotency_key":"","aid":"A"}"#,
    ];

    #[test]
    fn plain_requests_are_taken() {
        for line in PLAIN {
            let quick = envelope(line.as_bytes()).unwrap().into_request().unwrap();
            assert_eq!(Some(quick), by_the_parser(line.as_bytes()), "{line}");
        }
    }

    /// Every byte of every plain request replaced by each other, taken out or doubled: the
    /// quick way never says anything else than the parser.
    #[test]
    fn agrees_with_the_parser() {
        let agrees = |line: &[u8]| {
            if let Some(quick) = envelope(line) {
                let shown = String::from_utf8_lossy(line);
                assert_eq!(quick.into_request().ok(), by_the_parser(line), "{shown}");
            }
        };
        for line in PLAIN.map(str::as_bytes) {
            for at in 0..line.len() {
                agrees(&line[..at]);
                agrees(&[&line[..at], &line[at + 1..]].concat());
                agrees(&[&line[..=at], &line[at..]].concat());
                for byte in 0..=u8::MAX {
                    agrees(&[&line[..at], &[byte], &line[at + 1..]].concat());
                }
            }
        }
    }

    #[test]
    fn the_rest_is_the_parsers() {
        for line in [
            r#"{}"#,
            r#"{"aid":"A","aid":"A"}"#,
            r#"{"aid":"A","ds_state":{}}"#,
            r#"{"aid":null}"#,
            r#"{"\u0061id":"A"}"#,
            r#"{"aid":"\u0041"}"#,
            r#"{"aid":"A"}x"#,
            r#"{"aid":"A",}"#,
        ] {
            assert!(envelope(line.as_bytes()).is_none(), "{line}");
        }
    }
}
