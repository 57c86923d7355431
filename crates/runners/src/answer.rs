//! What a tool printed or replied, made into an output or a fault. Strict (G-1): what the
//! caller gets is what was checked.

use std::borrow::Cow;

use callgate_call::{Artifact, Document, Fault, Guarantee, Needs, Output, SlotChange, Slots};
use callgate_wires::json;
use callgate_wires::toolhost::Delta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The longest message of a tool's own error; the rest is cut.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// An answer around an output: the reply line of a worker, or what a process that takes
/// slots prints. T-23.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer<'a> {
    #[serde(borrow, default)]
    pub call: Option<Cow<'a, str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    ask: Option<&'a RawValue>,
    /// A worker's tool ended itself, with this code.
    #[serde(default)]
    exit: Option<i32>,
    #[serde(borrow, default, deserialize_with = "present")]
    slots: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    removed_slots: Option<&'a RawValue>,
    /// Attempts that were stopped, as a worker knows of them.
    #[serde(default, deserialize_with = "attempts")]
    pub attempts: Vec<Attempt>,
}

/// An attempt that a worker says was stopped: the promise, and the path where it was about one.
#[derive(Debug, Deserialize)]
pub(crate) struct Attempt(pub String, pub String);

/// Attempts that are looked at.
const ATTEMPTS_MAX: usize = 64;

/// What is no list of attempts is none: a worker's word on them costs no call.
fn attempts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Attempt>, D::Error> {
    let raw = <&RawValue>::deserialize(from)?;
    let mut attempts: Vec<Attempt> = serde_json::from_str(raw.get()).unwrap_or_default();
    attempts.truncate(ATTEMPTS_MAX);
    Ok(attempts)
}

/// What a tool is held to.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a>(pub &'a Needs);

impl Asked<'_> {
    /// Returns whether attempts at what a promise takes away are stopped: it was asked for, or the
    /// call is kept within roots. TP-12.
    pub fn stops(self, guarantee: Guarantee) -> bool {
        let is_about_files = matches!(
            guarantee,
            Guarantee::NoFilesystemRead | Guarantee::NoFilesystemWrite
        );
        self.0.guarantees.requires(guarantee) || is_about_files && self.0.roots.is_some()
    }

    /// All that are stopped.
    pub fn all(self) -> impl Iterator<Item = Guarantee> {
        Guarantee::ALL
            .into_iter()
            .filter(move |one| self.stops(*one))
    }
}

/// Keeps a `null` apart from nothing.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

impl<'a> Answer<'a> {
    /// Reads the outer object only.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Fault> {
        serde_json::from_slice(bytes).map_err(|error| bad(format!("not an answer: {error}")))
    }

    /// The questions, if they are all there is.
    pub fn asks(&self) -> Option<&'a RawValue> {
        match (self.output, self.error, self.slots, self.removed_slots) {
            (None, None, None, None) if self.exit.is_none() => self.ask,
            _ => None,
        }
    }

    /// The code with which the tool ended itself, if that is all there is.
    pub fn exits(&self) -> Option<i32> {
        match (self.output, self.error, self.slots, self.removed_slots) {
            (None, None, None, None) if self.ask.is_none() => self.exit,
            _ => None,
        }
    }

    /// The output or the tool's own error. `asked` is what the tool was held to.
    pub fn into_result(
        self,
        takes_slots: bool,
        output_bytes_max: usize,
        asked: Option<Asked<'_>>,
    ) -> Result<Output, Fault> {
        let output = match (self.output, self.error, self.ask, self.exit) {
            (Some(output), None, None, None) => output,
            (None, Some(error), None, None) => {
                let error = strict(error)?;
                return Err(blocked(&error, asked)
                    .or_else(|| own_error(&error))
                    .unwrap_or_else(no_error));
            }
            // A program that runs once could not be told the answers, and has an end of its own.
            _ => {
                return Err(bad(
                    "the answer needs either `output` or `error` or, from a worker, `ask` or `exit`",
                ));
            }
        };
        if output.get().len() > output_bytes_max {
            return Err(too_large(output_bytes_max));
        }
        let mut result = read_output(output.get().as_bytes())?;
        let slots = self.slots.map(strict).transpose()?;
        let removed = self.removed_slots.map(strict).transpose()?;
        result.slots = read_slots(slots, removed)?;
        if !takes_slots && !result.slots.is_empty() {
            return Err(bad("it changes slots, but the tool does not take them"));
        }
        Ok(result)
    }
}

/// Reads the plain output of a process: one JSON value and nothing else.
pub(crate) fn read_output(bytes: &[u8]) -> Result<Output, Fault> {
    let trimmed = bytes.trim_ascii();
    if trimmed.is_empty() {
        return Err(bad("it printed nothing"));
    }
    let value = json::parse_output(trimmed, json::DEPTH_MAX)
        .map_err(|error| bad(format!("it did not print strict JSON: {error}")))?;
    // The text goes into lines, so that it must be one.
    let text = match std::str::from_utf8(trimmed) {
        Ok(text) if !text.contains(['\n', '\r']) => text.to_owned(),
        _ => value.to_string(),
    };
    Ok(Output::new(Document::new(value, text)))
}

/// The fault in `{"error": {"type", "message"}}`, if that is what was printed.
pub(crate) fn printed_error(bytes: &[u8]) -> Option<Fault> {
    let value = json::parse_output(bytes.trim_ascii(), json::DEPTH_MAX).ok()?;
    own_error(value.get("error")?)
}

/// More than may be kept came as output.
pub(crate) fn too_large(max: usize) -> Fault {
    let max_bytes = u64::try_from(max).unwrap_or(u64::MAX);
    Fault::too_large("output", max_bytes)
}

pub(crate) fn bad(reason: impl Into<String>) -> Fault {
    Fault::BadOutput {
        reason: reason.into(),
    }
}

/// Appends the slots as an object, as a tool gets them. T-23.
pub(crate) fn write_slots(slots: &Slots, out: &mut Vec<u8>) {
    use std::io::Write as _;
    out.push(b'{');
    for (index, (slot, artifact)) in slots.0.iter().enumerate() {
        let Artifact {
            kind,
            provenance,
            content_json,
            size_bytes,
        } = artifact;
        let comma = if index > 0 { "," } else { "" };
        let text = |text: &String| Value::from(text.as_str());
        write!(
            out,
            "{comma}\"{slot}\":{{\"type\":{},\"provenance\":{},\"content_json\":{},\"size_bytes\":{size_bytes}}}",
            text(kind), text(provenance), text(content_json),
        )
        .expect("writing to a Vec does not fail");
    }
    out.push(b'}');
}

pub(crate) fn strict(raw: &RawValue) -> Result<Value, Fault> {
    json::parse_output(raw.get().as_bytes(), json::DEPTH_MAX)
        .map_err(|error| bad(format!("not strict JSON: {error}")))
}

/// The fault of a tool that was stopped by what it is held to. A worker's word for it, which is
/// taken where the promise was asked for and means nothing else.
fn blocked(error: &Value, asked: Option<Asked<'_>>) -> Option<Fault> {
    let guarantee = Guarantee::from_name(error.get("blocked")?.as_str()?)?;
    asked?.stops(guarantee).then(|| Fault::GuaranteeBlocked {
        guarantee: guarantee.name().to_owned(),
        detail: error["message"].as_str().map(clipped).unwrap_or_default(),
    })
}

fn own_error(error: &Value) -> Option<Fault> {
    let text = |name: &str| error.get(name)?.as_str().map(clipped);
    Some(Fault::ToolFailed {
        error_type: text("type")?,
        message: text("message")?,
        content: None,
    })
}

fn no_error() -> Fault {
    bad("`error` needs the texts `type` and `message`")
}

pub(crate) fn clipped(text: &str) -> String {
    let mut end = text.len().min(MESSAGE_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn read_slots(slots: Option<Value>, removed: Option<Value>) -> Result<SlotChange, Fault> {
    let delta = Delta::from_parts(slots, removed).map_err(|error| bad(error.to_string()))?;
    let put = delta.slots.into_iter().map(|(slot, artifact)| {
        let artifact = Artifact {
            kind: artifact.kind,
            provenance: artifact.provenance,
            content_json: artifact.content_json,
            size_bytes: artifact.size_bytes,
        };
        (slot, artifact)
    });
    Ok(SlotChange {
        put: put.collect(),
        removed: delta.removed_slots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(text: &str, slots: bool) -> Result<Output, Fault> {
        Answer::read(text.as_bytes())?.into_result(slots, 64, None)
    }

    fn reason(result: Result<Output, Fault>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn outputs_are_kept_as_written_on_one_line() {
        let output = read_output(b" {\"a\": 1.0}\n").unwrap();
        assert_eq!(
            (output.json.value().clone(), output.json.text()),
            (json!({"a": 1.0}), "{\"a\": 1.0}")
        );
        assert_eq!(
            read_output(b"{\n\"a\":\n1}").unwrap().json.text(),
            "{\"a\":1}"
        );
        assert_eq!(read_output(b"null").unwrap().json.text(), "null");
    }

    /// G-1.
    #[test]
    fn what_is_not_strict_is_refused() {
        assert_eq!(
            reason(read_output(b" \n")),
            "bad output: it printed nothing"
        );
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read_output(deep(128).as_bytes()).is_ok());
        for text in [
            "{\"a\":1,\"a\":2}",
            "\"\\ud800\"",
            "1 2",
            "{",
            "NaN",
            "1e999",
            &deep(129),
        ] {
            assert!(
                reason(read_output(text.as_bytes())).contains("strict JSON"),
                "{text}"
            );
        }
        assert!(reason(read_output(b"\"\xFF\"")).contains("strict JSON"));
    }

    #[test]
    fn answers() {
        assert_eq!(
            reply(r#"{"output":null}"#, false)
                .unwrap()
                .json
                .into_value(),
            Value::Null
        );
        let fault = reply(r#"{"error":{"type":"KeyError","message":"k"}}"#, false).unwrap_err();
        let wanted = Fault::ToolFailed {
            error_type: "KeyError".into(),
            message: "k".into(),
            content: None,
        };
        assert_eq!(fault, wanted);
        for (text, wanted) in [
            ("{}", "either"),
            (
                r#"{"output":1,"error":{"type":"a","message":"b"}}"#,
                "either",
            ),
            (r#"{"ask":{}}"#, "either"),
            (r#"{"output":1,"ask":{}}"#, "either"),
            (r#"{"exit":1}"#, "either"),
            (r#"{"output":1,"exit":0}"#, "either"),
            (r#"{"error":"x"}"#, "`type`"),
            (r#"{"output":1,"output":2}"#, "duplicate field"),
            (r#"{"output":1,"extra":2}"#, "unknown field"),
            (r#"{"output":{"a":1,"a":2}}"#, "strict"),
            (r#"{"output":1,"slots":{"x":{}}}"#, "0 to 255"),
            (r#"{"output":1,"slots":{"1":{}}}"#, "does not take them"),
        ] {
            let reason = reason(reply(text, false));
            assert!(reason.contains(wanted), "{text}: {reason}");
        }
        let long = format!("{{\"output\":\"{}\"}}", "x".repeat(63));
        assert_eq!(reason(reply(&long, false)), "output exceeds 64 bytes");
        let fits = format!("{{\"output\":\"{}\"}}", "x".repeat(62));
        assert!(reply(&fits, false).is_ok());
    }

    /// P-3: a worker's word counts for what was asked for, and for nothing else.
    #[test]
    fn a_blocked_attempt_is_told_as_such() {
        let mut asked = Needs::default();
        let network = Guarantee::NoNetwork;
        asked
            .guarantees
            .require(network, callgate_call::Asker::Engine);
        let fault = |blocked: &str, asked: Option<&Needs>| {
            let text = format!(
                "{{\"error\":{{\"type\":\"PermissionError\",\"message\":\"m\",\"blocked\":{blocked}}}}}"
            );
            let answer = Answer::read(text.as_bytes()).unwrap();
            answer.into_result(false, 64, asked.map(Asked)).unwrap_err()
        };
        let wanted = Fault::GuaranteeBlocked {
            guarantee: "no_network".into(),
            detail: "m".into(),
        };
        assert_eq!(fault("\"no_network\"", Some(&asked)), wanted);
        for (blocked, asked) in [
            ("\"no_network\"", None),
            ("\"no_subprocess\"", Some(&asked)),
            ("\"no_fun\"", Some(&asked)),
            ("7", Some(&asked)),
        ] {
            assert_eq!(fault(blocked, asked).kind(), "tool_failed", "{blocked}");
        }
    }

    #[test]
    fn a_tool_that_ended_itself() {
        let exits = |text: &str| Answer::read(text.as_bytes()).map(|answer| answer.exits());
        assert_eq!(exits(r#"{"exit":3}"#), Ok(Some(3)));
        assert_eq!(exits(r#"{"exit":3,"output":1}"#), Ok(None));
        assert!(exits(r#"{"exit":"3"}"#).is_err());
    }

    /// T-23.
    #[test]
    fn slots_go_out_and_come_back() {
        let artifact = Artifact {
            kind: "text".into(),
            provenance: "p\"".into(),
            content_json: "{\"k\":\n1}".into(),
            size_bytes: 9,
        };
        let slots = Slots([(6, artifact.clone()), (255, Artifact::default())].into());
        let mut text = b"{\"output\":1,\"removed_slots\":[3],\"slots\":".to_vec();
        write_slots(&slots, &mut text);
        text.push(b'}');
        assert!(!text.contains(&b'\n'));
        let change = reply(std::str::from_utf8(&text).unwrap(), true)
            .unwrap()
            .slots;
        assert_eq!((change.put, change.removed), (slots.0, vec![3]));
    }
}
