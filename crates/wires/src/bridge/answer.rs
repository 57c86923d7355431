//! A parent's answers: a result, or an error with a message and the name of an exception.

use callgate_text::write_json_text;
use serde_json::{Map, Value};

use super::frame::{FrameError, close_frame, open_frame};
use crate::json;

/// Bytes that are no message.
pub const IPC_ERROR: &str = "IPCError";
/// A message over the limit.
pub const SIZE_ERROR: &str = "IPCMessageSizeError";
/// A message with a wrong field.
pub const VALUE_ERROR: &str = "ValueError";

/// What an error says. BR-15.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (type: {kind})")]
pub struct Said {
    /// `error.message`.
    pub message: String,
    /// `error.type`: an exception's name, as Python spells it.
    pub kind: String,
}

impl Said {
    /// An error of `kind`.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            kind: kind.into(),
        }
    }
}

/// What a parent answered.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// `result`, with `content` that is not empty and `isError` filled in. B-4.
    Result(Map<String, Value>),
    /// `error`.
    Error(Said),
}

impl Answer {
    /// Reads a payload; one that is no answer is an `IPCError`. BR-21.
    pub fn parse(payload: &[u8]) -> Result<Self, Said> {
        let broken = |words: String| Said::new(IPC_ERROR, words);
        let message = json::parse_output(payload, json::DEPTH_MAX)
            .map_err(|error| broken(format!("the parent's answer is not JSON: {error}")))?;
        let Value::Object(mut message) = message else {
            return Err(broken("the parent's answer is not an object".to_owned()));
        };
        match (message.remove("result"), message.remove("error")) {
            (Some(Value::Object(result)), None) => Ok(Self::Result(checked(result)?)),
            (None, Some(Value::Object(error))) => {
                let text = |name: &str, otherwise: &str| match error.get(name) {
                    None => Ok(otherwise.to_owned()),
                    Some(Value::String(text)) => Ok(text.clone()),
                    Some(_) => Err(broken(format!(
                        "`{name}` of the parent's error is no string"
                    ))),
                };
                Ok(Self::Error(Said {
                    message: text("message", "the parent gave no message")?,
                    kind: text("type", "Exception")?,
                }))
            }
            _ => Err(broken(
                "the parent's answer has no object `result` or `error`".to_owned(),
            )),
        }
    }
}

fn checked(mut result: Map<String, Value>) -> Result<Map<String, Value>, Said> {
    let wrong = |words: &str| Said::new(IPC_ERROR, words);
    match result.get_mut("content") {
        Some(Value::Array(content)) => {
            if content.is_empty() {
                content.push(serde_json::json!({ "type": "text", "text": "" }));
            }
        }
        _ => return Err(wrong("the parent's result has no list `content`")),
    }
    match result.entry("isError").or_insert(Value::Bool(false)) {
        Value::Bool(_) => Ok(result),
        _ => Err(wrong("`isError` of the parent's result is no bool")),
    }
}

/// Appends the frame of a result that is written already: a JSON object.
pub fn write_result(result: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let at = open_frame(out);
    out.extend_from_slice(b"{\"result\":");
    out.extend_from_slice(result);
    out.push(b'}');
    close_frame(at, out)
}

/// Appends the frame of an error. A message that would not fit is cut.
pub fn write_error(said: &Said, out: &mut Vec<u8>) {
    /// Far more than anyone reads, and six times as much fits a frame.
    const WORDS_BYTES_MAX: usize = 1024 * 1024;
    let cut = |text: &str| text[..text.floor_char_boundary(WORDS_BYTES_MAX)].to_owned();
    let at = open_frame(out);
    out.extend_from_slice(b"{\"error\":{\"message\":");
    write_json_text(&cut(&said.message), out);
    out.extend_from_slice(b",\"type\":");
    write_json_text(&cut(&said.kind), out);
    out.extend_from_slice(b"}}");
    let _fits = close_frame(at, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<Answer, Said> {
        Answer::parse(value.to_string().as_bytes())
    }

    /// B-4, BR-12, BR-14: results pass through; what may be left out is filled in.
    #[test]
    fn results() {
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        for (given, wanted) in [
            (
                json!({"content": [image.clone()], "isError": true, "x": 1}),
                json!({"content": [image], "isError": true, "x": 1}),
            ),
            (
                json!({"content": []}),
                json!({"content": [{"type": "text", "text": ""}], "isError": false}),
            ),
        ] {
            let mut out = Vec::new();
            write_result(given.to_string().as_bytes(), &mut out).unwrap();
            let read = Answer::parse(&out[4..]).unwrap();
            assert_eq!(read, Answer::Result(wanted.as_object().cloned().unwrap()));
        }
    }

    /// BR-15 to BR-17.
    #[test]
    fn errors() {
        let said = Said::new("KeyError", "'k'");
        let mut out = Vec::new();
        write_error(&said, &mut out);
        assert_eq!(
            &out[4..],
            br#"{"error":{"message":"'k'","type":"KeyError"}}"#
        );
        assert_eq!(Answer::parse(&out[4..]), Ok(Answer::Error(said.clone())));
        assert_eq!(said.to_string(), "'k' (type: KeyError)");
        assert_eq!(
            parse(&json!({"error": {}})),
            Ok(Answer::Error(Said::new(
                "Exception",
                "the parent gave no message"
            )))
        );
        out.clear();
        let loud = Said::new("E", "\u{1}".repeat(20 * 1024 * 1024));
        write_error(&loud, &mut out);
        assert!(Answer::parse(&out[4..]).is_ok(), "cut, and still a frame");
    }

    /// BR-21.
    #[test]
    fn no_answers() {
        assert_eq!(Answer::parse(b"{").unwrap_err().kind, IPC_ERROR);
        assert_eq!(Answer::parse(b"\"\xff\"").unwrap_err().kind, IPC_ERROR);
        for value in [
            json!([]),
            json!({}),
            json!({"result": 1}),
            json!({"result": {}}),
            json!({"result": {"content": "x"}}),
            json!({"result": {"content": [], "isError": 1}}),
            json!({"result": {"content": []}, "error": {}}),
            json!({"error": "message"}),
            json!({"error": {"message": 1}}),
            json!({"error": {"message": ["m"], "type": "E"}}),
            json!({"error": {"message": "m", "type": null}}),
        ] {
            assert_eq!(parse(&value).unwrap_err().kind, IPC_ERROR, "{value}");
        }
    }
}
