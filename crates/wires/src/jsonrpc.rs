//! JSON-RPC 2.0 envelopes, for every wire that speaks it. Ids are kept as the bytes they came
//! as, so that what goes back is what came. Batches are for those who ask for them: MCP has
//! dropped them.

mod envelope;
mod write;

use std::fmt;

use serde_json::Value;

pub(crate) use self::envelope::ReadParams;
use self::envelope::{Parsed, read};
pub use self::write::{
    RpcError, open_result, write_error, write_error_object, write_notification, write_request,
    write_result,
};

/// Not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// JSON, but no request.
pub const INVALID_REQUEST: i32 = -32600;
/// A request for something that is not there.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// Its params are not what the method takes.
pub const INVALID_PARAMS: i32 = -32602;
/// Our own trouble.
pub const INTERNAL_ERROR: i32 = -32603;

/// A request's id: a string or a number, as the bytes it came as.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Id(Box<str>);

impl Id {
    /// An id of our own making.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// An id of our own making.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self(Value::from(text).to_string().into())
    }

    /// Its JSON.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }

    /// The id as a text: a string without its quotes, or a number.
    #[must_use]
    pub fn to_plain_text(&self) -> String {
        match serde_json::from_str(&self.0) {
            Ok(Value::String(text)) => text,
            Ok(number) => number.to_string(),
            Err(_) => self.0.to_string(),
        }
    }

    /// The same id, spelt as `from_value` would: without needless escapes.
    #[must_use]
    pub fn plain(&self) -> Self {
        if !self.0.contains('\\') {
            return self.clone();
        }
        let value: Option<Value> = serde_json::from_str(&self.0).ok();
        value
            .as_ref()
            .and_then(Self::from_value)
            .unwrap_or_else(|| self.clone())
    }

    /// The id a parsed value spells, if it can be one. Only for references to ids inside
    /// params: a number that is not plain may be spelt otherwise there.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        matches!(value, Value::String(_) | Value::Number(_)).then(|| Self(value.to_string().into()))
    }

    /// The id in a message of a peer that is no stranger, from the JSON it is; `None` if that
    /// can be none.
    #[must_use]
    pub fn from_json(json: &str) -> Option<Self> {
        match json.as_bytes().first()? {
            b'"' | b'-' | b'0'..=b'9' => Some(Self(json.into())),
            _ => None,
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One message. The params of a request are JSON, or of the types of a wire.
#[derive(Debug, PartialEq)]
pub enum Message<P = Value> {
    /// Wants an answer.
    Request {
        /// To be echoed.
        id: Id,
        /// What to do.
        method: String,
        /// With what.
        params: Option<P>,
        /// What stands beside it under our own name.
        ours: Option<Value>,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: String,
        /// The details.
        params: Option<P>,
    },
    /// The answer to a request of ours.
    Response {
        /// Which.
        id: Id,
        /// How it went; an error object is kept as it is.
        result: Result<Value, Value>,
    },
}

/// Why bytes are no message, and what to answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Malformed {
    /// `PARSE_ERROR`, `INVALID_REQUEST` or `INVALID_PARAMS`.
    pub code: i32,
    /// For people.
    pub message: String,
    /// Whom to answer, where that could be read.
    pub id: Option<Id>,
}

impl Malformed {
    fn request(id: Option<Id>, message: &str) -> Self {
        Self {
            code: INVALID_REQUEST,
            message: message.to_owned(),
            id,
        }
    }
}

/// Reads one message.
pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
    parse_as(bytes)
}

/// Reads one message whose params are of the types of a wire.
pub(crate) fn parse_as<P: ReadParams>(bytes: &[u8]) -> Result<Message<P>, Malformed> {
    let (parsed, params) = read(bytes, 0)?;
    parsed.into_message(params)
}

/// What came at once.
#[derive(Debug, PartialEq)]
pub enum Batch {
    /// One message by itself.
    One(Result<Message, Malformed>),
    /// An array of them, to be answered by an array.
    Many(Vec<Result<Message, Malformed>>),
}

/// Reads one message, or up to `max` in an array.
pub fn parse_batch(bytes: &[u8], max: usize) -> Batch {
    match read(bytes, max) {
        Err(malformed) => Batch::One(Err(malformed)),
        Ok((Parsed::Array(all), _)) if all.is_empty() || all.len() > max => {
            let words = format!("a batch has 1 to {max} messages");
            Batch::One(Err(Malformed::request(None, &words)))
        }
        Ok((Parsed::Array(all), _)) => {
            let messages = all.into_iter().map(|one| one.into_message(None));
            Batch::Many(messages.collect())
        }
        Ok((one, params)) => Batch::One(one.into_message(params)),
    }
}

#[cfg(test)]
mod tests {
    use super::envelope::{by_the_library, quickly};
    use super::*;
    use crate::json;
    use serde_json::json;

    #[test]
    fn messages() {
        let request = |id: &str, method: &str, params| Message::Request {
            id: Id(id.into()),
            method: method.to_owned(),
            params,
            ours: None,
        };
        for (text, wanted) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a"}"#,
                request("1", "a", None),
            ),
            // Ids are bytes: what a double would change comes back as it was.
            (
                r#"{"jsonrpc":"2.0","id":1.0,"method":"a","params":{}}"#,
                request("1.0", "a", Some(json!({}))),
            ),
            (
                r#"{"id":123456789012345678901234567890,"jsonrpc":"2.0","method":"a","x":{"y":1}}"#,
                request("123456789012345678901234567890", "a", None),
            ),
            (
                r#"{"jsonrpc":"2.0","id":"\u0061","method":"a","params":[1]}"#,
                request("\"\\u0061\"", "a", Some(json!([1]))),
            ),
            (
                r#" {"jsonrpc":"2.0","method":"n","params":{"_meta":{"k":1}}} "#,
                Message::Notification {
                    method: "n".to_owned(),
                    params: Some(json!({"_meta": {"k": 1}})),
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":null}"#,
                Message::Response {
                    id: Id::number(7),
                    result: Ok(Value::Null),
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#,
                Message::Response {
                    id: Id::number(7),
                    result: Ok(json!({})),
                },
            ),
            (
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":1}}"#,
                Message::Response {
                    id: Id::number(7),
                    result: Err(json!({"code": 1})),
                },
            ),
        ] {
            assert_eq!(parse(text.as_bytes()).as_ref(), Ok(&wanted), "{text}");
        }
    }

    /// What is read quickly is what the library reads.
    #[test]
    fn agrees_with_the_library() {
        let texts = [
            r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"name":"x","arguments":{}}}"#,
            r#" { "id" : "x" , "method" : "a" , "callgate" : { "k" : 1 } , "jsonrpc" : "2.0" } "#,
            r#"{"jsonrpc":"2.0","id":12,"result":{"a":[]},"error":null}"#,
        ];
        for text in texts {
            assert!(quickly::<Value>(text.as_bytes()).is_some(), "{text}");
        }
        json::quick::tests::mutated(&texts, |bytes| {
            if let Some((envelope, params)) = quickly::<Value>(bytes) {
                let told = by_the_library(bytes, 0);
                let told = told.and_then(|parsed| parsed.into_message::<Value>(None));
                let shown = String::from_utf8_lossy(bytes);
                assert_eq!(
                    Parsed::Object(envelope).into_message(params),
                    told,
                    "{shown}"
                );
            }
        });
    }

    /// M-13: what is read straight into its type is what the library reads.
    #[test]
    fn calls_agree_with_the_library() {
        use crate::mcp::{Params, RawJson};
        let texts = [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,"\n"]},"_meta":{"progressToken":"t","callgate/idempotencyKey":"k","callgate/leaseToken":"l","callgate/other":[1],"traceparent":"00-1"}}}"#,
            r#"{"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","icons":[{}]},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{},"extensions":{"e":{}},"z":1},"io.modelcontextprotocol/logLevel":"info","progressToken":7},"name":"a/b","requestState":"s","inputResponses":{"q":{"action":"accept"}},"later":{}},"jsonrpc":"2.0","id":2}"#,
            r#"{"jsonrpc":"2.0","id":"l","method":"tools/list","params":{"cursor":"c"}}"#,
        ];
        for text in texts {
            assert!(quickly::<Params>(text.as_bytes()).is_some(), "{text}");
        }
        // Who the client is stays the bytes it came as, which the library has not kept.
        let plain = |message| match message {
            Ok(Message::Request {
                id,
                method,
                params: Some(Params::CallTool(mut params)),
                ours,
            }) => {
                if let Some(client) = params.meta.client.take() {
                    let client: Value = serde_json::from_str(client.get()).unwrap();
                    params.meta.client = Some(RawJson::of(&client));
                }
                Ok(Message::Request {
                    id,
                    method,
                    params: Some(Params::CallTool(params)),
                    ours,
                })
            }
            other => other,
        };
        json::quick::tests::mutated(&texts, |bytes| {
            if let Some((envelope, params)) = quickly::<Params>(bytes) {
                let told = by_the_library(bytes, 0);
                let told = told.and_then(|parsed| parsed.into_message::<Params>(None));
                let read = Parsed::Object(envelope).into_message(params);
                let shown = String::from_utf8_lossy(bytes);
                assert_eq!(plain(read), plain(told), "{shown}");
            }
        });
    }

    /// G-1: an integer that no value holds is told to whoever asked; ids are bytes.
    #[test]
    fn wide_integers() {
        let wide = "18446744073709551616";
        for (text, id) in [
            (
                format!(
                    r#"{{"jsonrpc":"2.0","id":{wide},"method":"a","params":{{"n":[{wide}]}}}}"#
                ),
                Some(wide),
            ),
            (
                format!(r#"{{"callgate":{{"n":-{wide}}},"jsonrpc":"2.0","id":"x","method":"a"}}"#),
                Some("\"x\""),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","x":{wide}}}"#),
                Some("1"),
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"n":{wide}}}}}"#),
                None,
            ),
            (
                format!(r#"{{"jsonrpc":"2.0","method":"a","params":[{wide}]}}"#),
                None,
            ),
        ] {
            let refused = parse(text.as_bytes()).expect_err(&text);
            assert_eq!(refused.code, INVALID_PARAMS, "{text}: {refused}");
            assert!(refused.message.contains(wide), "{refused}");
            assert_eq!(refused.id.as_ref().map(Id::as_json), id, "{text}");
        }
        let good = format!(r#"{{"jsonrpc":"2.0","id":{wide},"method":"a","params":{{"n":1}}}}"#);
        assert!(parse(good.as_bytes()).is_ok());
        let text = format!(
            r#"[{good},{{"jsonrpc":"2.0","id":2,"method":"a","params":{{"n":{wide}}}}},{good}]"#
        );
        let Batch::Many(all) = parse_batch(text.as_bytes(), 8) else {
            panic!("a batch");
        };
        let told: Vec<bool> = all.iter().map(Result::is_ok).collect();
        assert_eq!(told, [true, false, true]);
        let deep = format!("{}{wide}{}", "[".repeat(128), "]".repeat(128));
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{deep}}}"#);
        assert_eq!(parse(text.as_bytes()).unwrap_err().code, PARSE_ERROR);
    }

    #[test]
    fn refusals() {
        for (text, code, id) in [
            ("", PARSE_ERROR, None),
            ("nonsense", PARSE_ERROR, None),
            (r#"{"jsonrpc":"2.0","id":1,"method":"a""#, PARSE_ERROR, None),
            (r#"{"id":1,"id":2}"#, PARSE_ERROR, None),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"a":1,"a":2}}"#,
                PARSE_ERROR,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","x":1,"x":2}"#,
                PARSE_ERROR,
                None,
            ),
            ("[]", INVALID_REQUEST, None),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"a"}]"#,
                INVALID_REQUEST,
                None,
            ),
            ("1", INVALID_REQUEST, None),
            ("null", INVALID_REQUEST, None),
            (r#"{"id":1,"method":"a"}"#, INVALID_REQUEST, Some("1")),
            (
                r#"{"jsonrpc":"1.0","id":"x","method":"a"}"#,
                INVALID_REQUEST,
                Some("\"x\""),
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"a"}"#,
                INVALID_REQUEST,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":[1],"method":"a"}"#,
                INVALID_REQUEST,
                None,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
                INVALID_REQUEST,
                Some("1"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","params":"p"}"#,
                INVALID_REQUEST,
                Some("1"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"a","result":1}"#,
                INVALID_REQUEST,
                Some("1"),
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,
                INVALID_REQUEST,
                None,
            ),
            (r#"{"jsonrpc":"2.0","id":1}"#, INVALID_REQUEST, Some("1")),
            (r#"{"jsonrpc":"2.0","result":1}"#, INVALID_REQUEST, None),
        ] {
            let refused = parse(text.as_bytes()).expect_err(text);
            assert_eq!(refused.code, code, "{text}: {refused}");
            assert_eq!(refused.id.as_ref().map(Id::as_json), id, "{text}");
        }
    }

    /// G-1 holds for what nobody asked for as well, and for ids.
    #[test]
    fn unknown_members_are_strict() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let with = |name: &str, value: &str| {
            format!(r#"{{"jsonrpc":"2.0","method":"a","{name}":{value}}}"#)
        };
        for value in ["1e308", r#""\ud83d\ude00""#, r#"{"a":{"a":1}}"#, &deep(127)] {
            let text = with("x", value);
            assert!(parse(text.as_bytes()).is_ok(), "{text}");
        }
        for value in ["1e999", r#""\ud800""#, r#"{"a":{"b":1,"b":1}}"#, &deep(128)] {
            for name in ["x", "id"] {
                let text = with(name, value);
                let refused = parse(text.as_bytes()).expect_err(&text);
                assert_eq!((refused.code, refused.id), (PARSE_ERROR, None), "{text}");
            }
        }
        for id in ["-1", "1e3", "0.5", &"9".repeat(300), r#""\u0000""#] {
            assert!(parse(with("id", id).as_bytes()).is_ok(), "{id}");
        }
        // However many there are, none comes twice.
        let many: String = (0..200).map(|n| format!(r#""x{n}":0,"#)).collect();
        let twice = |last: u8| format!(r#"{{{many}"jsonrpc":"2.0","method":"a","x{last}":0}}"#);
        assert!(parse(twice(200).as_bytes()).is_ok());
        assert!(parse(twice(199).as_bytes()).is_err());
    }
}
