//! The reading of one message, or of a batch, into the members it has and from those into what
//! it is. What is usual is read quickly, all else by the library.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{INVALID_PARAMS, Id, Malformed, Message, PARSE_ERROR};
use crate::json::quick::Quick;
use crate::json::{self, JsonError, Key, Strict, duplicate};

/// The params of requests, as a wire types them.
pub(crate) trait ReadParams: Sized {
    /// Reads usual params of a method straight from the bytes. The method is not known where it
    /// stands behind its params.
    fn quickly(quick: &mut Quick<'_>, method: Option<&str>) -> Option<Self>;

    /// The params of a method, from an object or an array.
    fn of(method: &str, params: Value) -> Self;

    /// Returns whether params that were read quickly are an object or an array.
    fn is_structured(&self) -> bool;
}

impl ReadParams for Value {
    fn quickly(quick: &mut Quick<'_>, _: Option<&str>) -> Option<Self> {
        quick.value(json::DEPTH_MAX - 1)
    }

    fn of(_: &str, params: Value) -> Self {
        params
    }

    fn is_structured(&self) -> bool {
        matches!(self, Value::Object(_) | Value::Array(_))
    }
}

/// Reads a message, or up to so many in an array; and its params, where those were read quickly.
pub(super) fn read<P: ReadParams>(
    bytes: &[u8],
    batch_max: usize,
) -> Result<(Parsed<'_>, Option<P>), Malformed> {
    match quickly(bytes) {
        Some((envelope, params)) => Ok((Parsed::Object(envelope), params)),
        None => by_the_library(bytes, batch_max).map(|parsed| (parsed, None)),
    }
}

/// A message with nothing unusual to it.
pub(super) fn quickly<P: ReadParams>(bytes: &[u8]) -> Option<(Envelope<'_>, Option<P>)> {
    const INSIDE: usize = json::DEPTH_MAX - 1;
    let (mut envelope, mut params) = (Envelope::default(), None);
    let mut quick = Quick::new(bytes)?;
    quick.members(|quick, name| {
        let is_first = match name {
            "id" => envelope.id.replace(quick.raw()?).is_none(),
            "jsonrpc" => envelope.version.replace(quick.raw()?).is_none(),
            "params" => {
                let method = envelope.method.as_ref().and_then(Value::as_str);
                params.replace(P::quickly(quick, method)?).is_none()
            }
            _ => {
                let place = envelope.place(name)?;
                place.replace(quick.value(INSIDE)?).is_none()
            }
        };
        is_first.then_some(())
    })?;
    quick.end().map(|()| (envelope, params))
}

pub(super) fn by_the_library(bytes: &[u8], batch_max: usize) -> Result<Parsed<'_>, Malformed> {
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
pub(super) struct Envelope<'a> {
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
    /// The place for the value of a member that is known and not kept as it came.
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

    fn into_message<P: ReadParams>(self, params: Option<P>) -> Result<Message<P>, Malformed> {
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
                let params = match (self.params, params) {
                    (None, None) => None,
                    (None, Some(params)) if params.is_structured() => Some(params),
                    (Some(params @ (Value::Object(_) | Value::Array(_))), _) => {
                        Some(P::of(&method, params))
                    }
                    _ => return Err(Malformed::request(id, "`params` must be an object")),
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

fn response<P>(id: Option<Id>, result: Result<Value, Value>) -> Result<Message<P>, Malformed> {
    match id {
        Some(id) => Ok(Message::Response { id, result }),
        None => Err(Malformed::request(
            None,
            "a response needs the id of its request",
        )),
    }
}

pub(super) enum Parsed<'a> {
    Object(Envelope<'a>),
    /// One more than was asked for at most; those of a batch that is not wanted are dropped.
    Array(Vec<Parsed<'a>>),
    Other,
}

impl Parsed<'_> {
    pub(super) fn into_message<P: ReadParams>(
        self,
        params: Option<P>,
    ) -> Result<Message<P>, Malformed> {
        match self {
            Self::Array(_) => Err(Malformed::request(
                None,
                "batches are not taken: send one message at a time",
            )),
            Self::Other => Err(Malformed::request(None, "a message is an object")),
            Self::Object(envelope) => envelope.into_message(params),
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
