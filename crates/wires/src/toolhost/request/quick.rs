//! The request as nearly every client writes it: known members, all of them strings. Read in
//! one pass without the parser. Anything else, wrong or only unusual, is left to the parser, so
//! that there is one place that says why.

use super::{Envelope, Text};
use crate::json::quick::Quick;

/// The envelope of a plain request; `None` if the parser has to look.
pub(super) fn envelope(line: &[u8]) -> Option<Envelope<'_>> {
    let mut envelope = Envelope::default();
    let mut quick = Quick::new(line)?;
    quick.members(|quick, name| {
        let field = match name {
            "aid" => &mut envelope.aid,
            "input_json" => &mut envelope.input_json,
            "idempotency_key" => &mut envelope.idempotency_key,
            "_lease_token" => &mut envelope.lease_token,
            _ => return None,
        };
        let Text::Absent = field else { return None };
        *field = Text::Is(quick.string()?);
        Some(())
    })?;
    quick.end()?;
    Some(envelope)
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

    const PLAIN: [&str; 8] = [
        r#"{"aid":"AID.X.v1","input_json":"{\"a\":[1,\"\\n\"]}","idempotency_key":"k"}"#,
        r#"{"aid": "AID.é.v1", "input_json" : "{}" , "_lease_token": "t\/\b\f\n\r\t\\" } "#,
        r#"{"input_json":""}"#,
        r#"{"aid":""}"#,
        r#"{"idempotency_key":"","aid":"A"}"#,
        r#"{}"#,
        r#"{"aid":"\u0041\ud83d\ude00","input_json":"{\"a\":\"\\u0041\"}"}"#,
        "\t{\r\n\"aid\" : \"A\"\n}\n",
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
            r#"{"aid":"A","aid":"A"}"#,
            r#"{"aid":"A","ds_state":{}}"#,
            r#"{"aid":null}"#,
            r#"{"\u0061id":"A"}"#,
            r#"{"aid":"\ud83d"}"#,
            r#"{"aid":"\x"}"#,
            r#"{"aid":"A"}x"#,
            r#"{"aid":"A",}"#,
        ] {
            assert!(envelope(line.as_bytes()).is_none(), "{line}");
        }
    }
}
