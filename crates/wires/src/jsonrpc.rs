//! JSON-RPC 2.0 envelopes, for every wire that speaks it. Ids are kept as the bytes they came
//! as, so that what goes back is what came. Batches are for those who ask for them: MCP has
//! dropped them.

mod write;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::quick::Quick;
use crate::json::{self, JsonError, Key, Strict, duplicate};

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

/// One message.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// Wants an answer.
    Request {
        /// To be echoed.
        id: Id,
        /// What to do.
        method: String,
        /// With what.
        params: Option<Value>,
        /// What stands beside it under our own name.
        ours: Option<Value>,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: String,
        /// The details.
        params: Option<Value>,
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
    read(bytes, 0)?.into_message()
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
        Ok(Parsed::Array(all)) if all.is_empty() || all.len() > max => {
            let words = format!("a batch has 1 to {max} messages");
            Batch::One(Err(Malformed::request(None, &words)))
        }
        Ok(Parsed::Array(all)) => Batch::Many(all.into_iter().map(Parsed::into_message).collect()),
        Ok(one) => Batch::One(one.into_message()),
    }
}

fn read(bytes: &[u8], batch_max: usize) -> Result<Parsed<'_>, Malformed> {
    match quickly(bytes) {
        Some(envelope) => Ok(Parsed::Object(envelope)),
        None => by_the_library(bytes, batch_max),
    }
}

/// A message with nothing unusual to it.
fn quickly(bytes: &[u8]) -> Option<Envelope<'_>> {
    const INSIDE: usize = json::DEPTH_MAX - 1;
    let mut envelope = Envelope::default();
    let mut quick = Quick::new(bytes)?;
    quick.members(|quick, name| {
        let is_first = match name {
            "id" => envelope.id.replace(quick.raw()?).is_none(),
            "jsonrpc" => envelope.version.replace(quick.raw()?).is_none(),
            _ => {
                let place = envelope.place(name)?;
                place.replace(quick.value(INSIDE)?).is_none()
            }
        };
        is_first.then_some(())
    })?;
    quick.end().map(|()| envelope)
}

fn by_the_library(bytes: &[u8], batch_max: usize) -> Result<Parsed<'_>, Malformed> {
    let wide = json::check_integers(bytes).is_err();
    let seed = EnvelopeSeed { batch_max, wide };
    json::parse_with_wide(bytes, seed).map_err(|error| Malformed {
        code: PARSE_ERROR,
        message: format!("not JSON: {error}"),
        id: None,
    })
}

/// The members a message can have.
#[derive(Default)]
struct Envelope<'a> {
    version: Option<&'a str>,
    id: Option<&'a str>,
    method: Option<Value>,
    params: Option<Value>,
    result: Option<Value>,
    error: Option<Value>,
    ours: Option<Value>,
    /// Why a value can not be taken, although it is JSON: it has an integer beyond 64 bits.
    refused: Option<String>,
}

impl Envelope<'_> {
    /// Where the value of a member goes, if that is known and not kept as it came.
    fn place(&mut self, name: &str) -> Option<&mut Option<Value>> {
        Some(match name {
            "method" => &mut self.method,
            "params" => &mut self.params,
            "result" => &mut self.result,
            "error" => &mut self.error,
            "callgate" => &mut self.ours,
            _ => return None,
        })
    }

    fn into_message(self) -> Result<Message, Malformed> {
        let id = self.id.and_then(Id::from_json);
        let error = self.error.filter(|error| !error.is_null());
        // Nobody waits for an answer to an answer, least of all under its id.
        let is_answer = self.method.is_none() && (self.result.is_some() || error.is_some());
        let asker = if is_answer { None } else { id.clone() };
        if !self.version.is_some_and(is_version) {
            return Err(Malformed::request(asker, "`jsonrpc` must be \"2.0\""));
        }
        if self.id.is_some() && id.is_none() {
            let words = "`id` must be a string or a number";
            return Err(Malformed::request(None, words));
        }
        if let Some(message) = self.refused {
            let (code, id) = (INVALID_PARAMS, asker);
            return Err(Malformed { code, message, id });
        }
        match (self.method, self.result, error) {
            (None, Some(result), None) => response(id, Ok(result)),
            (None, None, Some(error)) => response(id, Err(error)),
            (Some(Value::String(method)), None, None) => {
                let params = match self.params {
                    None => None,
                    Some(params @ (Value::Object(_) | Value::Array(_))) => Some(params),
                    Some(_) => return Err(Malformed::request(id, "`params` must be an object")),
                };
                Ok(match id {
                    Some(id) => Message::Request {
                        id,
                        method,
                        params,
                        ours: self.ours,
                    },
                    None => Message::Notification { method, params },
                })
            }
            (Some(_), None, None) => Err(Malformed::request(id, "`method` must be a string")),
            _ => Err(Malformed::request(
                asker,
                "a message has one of `method`, `result` and `error`",
            )),
        }
    }
}

fn response(id: Option<Id>, result: Result<Value, Value>) -> Result<Message, Malformed> {
    match id {
        Some(id) => Ok(Message::Response { id, result }),
        None => Err(Malformed::request(
            None,
            "a response needs the id of its request",
        )),
    }
}

enum Parsed<'a> {
    Object(Envelope<'a>),
    /// One more than was asked for at most; those of a batch that is not wanted are dropped.
    Array(Vec<Parsed<'a>>),
    Other,
}

impl Parsed<'_> {
    fn into_message(self) -> Result<Message, Malformed> {
        match self {
            Self::Array(_) => Err(Malformed::request(
                None,
                "batches are not taken: send one message at a time",
            )),
            Self::Other => Err(Malformed::request(None, "a message is an object")),
            Self::Object(envelope) => envelope.into_message(),
        }
    }
}

#[derive(Clone, Copy)]
struct EnvelopeSeed {
    batch_max: usize,
    /// There is an integer beyond 64 bits somewhere. In an id it is bytes like others, so that it
    /// matters where.
    wide: bool,
}

impl EnvelopeSeed {
    /// Reads the value of a member. An integer beyond 64 bits in it is no error of the message as
    /// a whole: its request is answered under its id.
    fn value<'de, A: MapAccess<'de>>(
        self,
        members: &mut A,
        refused: &mut Option<String>,
    ) -> Result<Value, A::Error> {
        const DEPTH_MAX: usize = json::DEPTH_MAX - 1;
        if !self.wide {
            return members.next_value_seed(Strict {
                depth_left: DEPTH_MAX,
            });
        }
        let raw: &RawValue = members.next_value()?;
        match json::parse_text(raw.get(), DEPTH_MAX) {
            Ok(value) => Ok(value),
            Err(error @ JsonError::WideInteger { .. }) => {
                *refused = Some(error.to_string());
                Ok(Value::Null)
            }
            Err(error) => Err(A::Error::custom(error)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for EnvelopeSeed {
    type Value = Parsed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for EnvelopeSeed {
    type Value = Parsed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Parsed::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        if self.batch_max > 0 {
            while all.len() <= self.batch_max {
                // An array in an array is no message, and is not gone into.
                match items.next_element_seed(Self {
                    batch_max: 0,
                    ..self
                })? {
                    Some(one) => all.push(one),
                    None => return Ok(Parsed::Array(all)),
                }
            }
        }
        let inside = Strict {
            depth_left: json::DEPTH_MAX,
        };
        while items.next_element_seed(inside)?.is_some() {}
        Ok(Parsed::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut envelope = Envelope::default();
        let mut refused = None;
        let mut others: BTreeSet<Cow<'de, str>> = BTreeSet::new();
        while let Some(key) = members.next_key_seed(Key)? {
            match key.as_ref() {
                "id" => {
                    if envelope.id.is_some() {
                        return Err(duplicate("id"));
                    }
                    let id: &RawValue = members.next_value()?;
                    check_raw(id.get()).map_err(A::Error::custom)?;
                    envelope.id = Some(id.get());
                    continue;
                }
                "jsonrpc" => {
                    if envelope.version.is_some() {
                        return Err(duplicate("jsonrpc"));
                    }
                    let version: &RawValue = members.next_value()?;
                    check_raw(version.get()).map_err(A::Error::custom)?;
                    envelope.version = Some(version.get());
                    continue;
                }
                _ => {}
            }
            match envelope.place(&key) {
                Some(Some(_)) => return Err(duplicate(&key)),
                Some(place) => *place = Some(self.value(&mut members, &mut refused)?),
                None if others.contains(&key) => return Err(duplicate(&key)),
                None => {
                    others.insert(key);
                    // Dropped, but not before it was looked at as closely as the rest.
                    self.value(&mut members, &mut refused)?;
                }
            }
        }
        envelope.refused = refused;
        Ok(Parsed::Object(envelope))
    }
}

fn is_version(json: &str) -> bool {
    // Spelt otherwise by nobody we know.
    json == "\"2.0\"" || serde_json::from_str::<Value>(json).is_ok_and(|v| v == "2.0")
}

/// What is kept as it came must be strict like the rest. Most is plain, which shows at once.
fn check_raw(json: &str) -> Result<(), JsonError> {
    const DIGITS_PLAIN: usize = 32;
    let is_plain = match json.as_bytes() {
        [b'"', text @ ..] => !text.contains(&b'\\'),
        number => number.len() <= DIGITS_PLAIN && number.iter().all(u8::is_ascii_digit),
    };
    if is_plain {
        return Ok(());
    }
    match json::parse_text(json, json::DEPTH_MAX - 1) {
        // A wide integer stays the bytes that it is.
        Ok(_) | Err(JsonError::WideInteger { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            assert!(quickly(text.as_bytes()).is_some(), "{text}");
        }
        json::quick::tests::mutated(&texts, |bytes| {
            if let Some(envelope) = quickly(bytes) {
                let told = by_the_library(bytes, 0).and_then(Parsed::into_message);
                let shown = String::from_utf8_lossy(bytes);
                assert_eq!(envelope.into_message(), told, "{shown}");
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
