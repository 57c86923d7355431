//! What one line of a server is.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::quick::Quick;
use crate::json::{self, DEPTH_MAX};
use crate::jsonrpc::Id;

/// A message of a server, or what else its line is.
#[derive(Debug)]
pub enum ServerMessage<'a> {
    /// The answer to the request of this id.
    Answer {
        /// The id that the client gave its request.
        id: u64,
        /// The result, or why there is none.
        body: Result<AnswerBody<'a>, AnswerError>,
    },
    /// A request to the client.
    Request {
        /// The id that the answer must have.
        id: Id,
        /// The method.
        method: Cow<'a, str>,
    },
    /// A notification.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The params, as the bytes they came as.
        params: Option<&'a str>,
    },
    /// An answer whose id no request of the client can have: a text, null, or a fraction.
    StrayAnswer,
    /// No message: words of a library that prints where it should not.
    Noise,
}

/// The form in which results are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultForm {
    /// Parsed strictly.
    Parsed,
    /// The bytes as they came, known to be JSON.
    Raw,
}

/// A result.
#[derive(Debug, PartialEq)]
pub enum AnswerBody<'a> {
    /// Parsed strictly.
    Parsed(Value),
    /// The bytes as they came.
    Raw(&'a str),
}

/// Why an answer has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// The server refused the request.
    #[error("{}", .0.message)]
    Refused(ServerError),
    /// The answer can not be read.
    #[error("{0}")]
    Malformed(String),
}

/// A JSON-RPC error of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerError {
    /// The code; 0 if the server sent none.
    pub code: i64,
    /// The words; empty if the server sent none.
    pub message: String,
    /// Further data.
    pub data: Option<Value>,
}

impl ServerError {
    fn of(error: &Value) -> Self {
        let message = match error.get("message").and_then(Value::as_str) {
            Some(message) => message.to_owned(),
            None => String::new(),
        };
        Self {
            code: error.get("code").and_then(Value::as_i64).unwrap_or(0),
            message,
            data: error.get("data").cloned(),
        }
    }
}

/// Reads one line.
#[must_use]
pub fn read_line(line: &[u8], form: ResultForm) -> ServerMessage<'_> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return ServerMessage::Noise;
    }
    if let Some(message) = read_quickly(line, form) {
        return message;
    }
    let Ok(text) = std::str::from_utf8(line) else {
        return unreadable(line, "the answer is not UTF-8");
    };
    match serde_json::from_str::<Envelope<'_>>(text) {
        Ok(envelope) => envelope.into_message(form),
        Err(error) => unreadable(line, &format!("the answer is not JSON: {error}")),
    }
}

/// A line with nothing unusual to it.
fn read_quickly(line: &[u8], form: ResultForm) -> Option<ServerMessage<'_>> {
    const INSIDE: usize = DEPTH_MAX - 1;
    let mut quick = Quick::new(line)?;
    let (mut id, mut method, mut params, mut body) = (None, None, None, None);
    quick.members(|quick, name| {
        let is_first = match name {
            "jsonrpc" => quick.raw().is_some(),
            "id" => id.replace(quick.raw()?).is_none(),
            "method" => method.replace(quick.plain()?).is_none(),
            "params" => params.replace(quick.raw_value(INSIDE)?).is_none(),
            "result" => {
                let read = match form {
                    ResultForm::Parsed => AnswerBody::Parsed(quick.value(INSIDE)?),
                    ResultForm::Raw => AnswerBody::Raw(quick.raw_value(INSIDE)?),
                };
                body.replace(read).is_none()
            }
            _ => return None,
        };
        is_first.then_some(())
    })?;
    quick.end()?;
    match (id, method, body) {
        (Some(id), None, Some(body)) => Some(ServerMessage::Answer {
            id: id.parse().ok()?,
            body: Ok(body),
        }),
        (None, Some(method), None) => Some(ServerMessage::Notification {
            method: method.into(),
            params,
        }),
        _ => None,
    }
}

/// The members that decide. Duplicates of one of them are refused, others are not looked at.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Keeps a `null` apart from nothing.
fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Envelope<'a> {
    fn into_message(self, form: ResultForm) -> ServerMessage<'a> {
        let params = self.params.map(RawValue::get);
        match (self.method, self.id, self.result, self.error) {
            (Some(method), None, None, None) => ServerMessage::Notification { method, params },
            (Some(method), Some(id), None, None) => match Id::from_json(id.get()) {
                Some(id) => ServerMessage::Request { id, method },
                None => ServerMessage::Noise,
            },
            (None, Some(id), result, error) if result.is_some() || error.is_some() => {
                let Ok(id) = id.get().parse::<u64>() else {
                    return ServerMessage::StrayAnswer;
                };
                let body = body_of(result, error, form);
                ServerMessage::Answer { id, body }
            }
            (None, None, result, error) if result.is_some() || error.is_some() => {
                ServerMessage::StrayAnswer
            }
            _ => ServerMessage::Noise,
        }
    }
}

fn body_of<'a>(
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    form: ResultForm,
) -> Result<AnswerBody<'a>, AnswerError> {
    let parse = |raw: &RawValue| {
        json::parse_output(raw.get().as_bytes(), DEPTH_MAX - 1).map_err(|error| {
            AnswerError::Malformed(format!("the answer is not strict JSON: {error}"))
        })
    };
    match (result, error) {
        (Some(result), None) => match form {
            ResultForm::Parsed => parse(result).map(AnswerBody::Parsed),
            ResultForm::Raw => Ok(AnswerBody::Raw(result.get())),
        },
        (None, Some(error)) => Err(AnswerError::Refused(ServerError::of(&parse(error)?))),
        _ => Err(AnswerError::Malformed(
            "the answer has both `result` and `error`".to_owned(),
        )),
    }
}

/// A line that can not be read: the end of a call where it is the answer to one.
fn unreadable(line: &[u8], reason: &str) -> ServerMessage<'static> {
    match subject_of(line) {
        LineSubject::Answer(id) => ServerMessage::Answer {
            id,
            body: Err(AnswerError::Malformed(reason.to_owned())),
        },
        LineSubject::Message | LineSubject::Noise | LineSubject::Unknown => ServerMessage::Noise,
    }
}

/// What a line is about, as far as its beginning shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSubject {
    /// The answer to the request of this id.
    Answer(u64),
    /// A request or a notification.
    Message,
    /// No message.
    Noise,
    /// The beginning does not show it.
    Unknown,
}

/// Finds what the beginning of a line is about, without reading more of it than names its members.
#[must_use]
pub fn subject_of(head: &[u8]) -> LineSubject {
    let mut scan = Scan { bytes: head, at: 0 };
    scan.blanks();
    if scan.byte() != Some(b'{') {
        return LineSubject::Noise;
    }
    scan.at += 1;
    scan.member().unwrap_or(LineSubject::Unknown)
}

/// A walk over the outer members of an object that may be cut short or broken.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Passes members up to one that decides. Nothing at the end of what there is.
    fn member(&mut self) -> Option<LineSubject> {
        let mut id = None;
        loop {
            self.blanks();
            let name_at = self.at;
            self.text()?;
            let name = &self.bytes[name_at + 1..self.at - 1];
            self.blanks();
            (self.byte()? == b':').then(|| self.at += 1)?;
            self.blanks();
            match name {
                b"method" => return Some(LineSubject::Message),
                b"result" | b"error" if id.is_some() => return id.map(LineSubject::Answer),
                b"id" => {
                    let from = self.at;
                    while self.byte()?.is_ascii_digit() {
                        self.at += 1;
                    }
                    let digits = std::str::from_utf8(&self.bytes[from..self.at]).ok()?;
                    id = Some(digits.parse().ok()?);
                }
                _ => self.value()?,
            }
            self.blanks();
            match self.byte()? {
                b',' => self.at += 1,
                b'}' => return id.map(LineSubject::Answer),
                _ => return None,
            }
        }
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.byte().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Passes a string.
    fn text(&mut self) -> Option<()> {
        (self.byte()? == b'"').then(|| self.at += 1)?;
        loop {
            let rest = self.bytes.get(self.at..)?;
            let end = memchr::memchr2(b'"', b'\\', rest)?;
            self.at += end + 1;
            if rest[end] == b'"' {
                return Some(());
            }
            self.at += 1;
        }
    }

    /// Passes a value of any kind, by its brackets.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.byte()? {
                b'"' => self.text()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b'}' | b']' if depth == 0 => return Some(()),
                _ => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests;
