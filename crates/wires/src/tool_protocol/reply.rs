//! What comes back: on stdout with the version and perhaps checks, over HTTP without.

use serde_json::{Map, Value};

use super::limits::PROTOCOL_VERSION;
use super::request::{put, put_some};
use crate::json;

/// What a reader takes for an error without a type or a message. TP-46.
const TYPE_DEFAULT: &str = "ToolError";
const MESSAGE_DEFAULT: &str = "Tool error";

/// `error`. TP-18 to TP-20.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// `type`: the class of the error.
    pub kind: String,
    /// What went wrong.
    pub message: String,
    /// Only for capability violations and refusals.
    pub reason_code: Option<String>,
}

/// One of `capability_checks`. TP-21.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was asked about: `network`, `secrets` …
    pub capability: String,
    /// Whether it was let through.
    pub allowed: bool,
    /// Who asked for the guarantee.
    pub guarantee_source: String,
    /// TP-22.
    pub reason: String,
    /// How long the check took, where that was measured.
    pub duration_ms: Option<u64>,
}

/// A reply on its way out. The result is JSON already.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The result's text, or what went wrong.
    pub result: Result<&'a str, &'a Said>,
    /// For the local form. P-1.
    pub checks: Option<&'a [Check]>,
    /// `callgate/call`, for callers that know us.
    pub call: Option<&'a Value>,
}

/// Appends the reply of the local form. TP-14 to TP-16.
pub fn write_local(told: &Told<'_>, out: &mut Vec<u8>) {
    let version = format!("\"protocol_version\":{PROTOCOL_VERSION},");
    write(told, &version, told.checks, out);
}

/// Appends the reply of the service form: no version, no checks. TP-45, TP-46.
pub fn write_service(told: &Told<'_>, out: &mut Vec<u8>) {
    write(told, "", None, out);
}

fn write(told: &Told<'_>, version: &str, checks: Option<&[Check]>, out: &mut Vec<u8>) {
    let ok = if told.result.is_ok() { "true" } else { "false" };
    out.extend_from_slice(b"{\"ok\":");
    out.extend_from_slice(ok.as_bytes());
    out.push(b',');
    out.extend_from_slice(version.as_bytes());
    match told.result {
        Ok(text) => {
            out.extend_from_slice(b"\"result\":");
            out.extend_from_slice(text.as_bytes());
        }
        Err(said) => {
            out.extend_from_slice(b"\"error\":");
            json::write_object(&said.to_object(), out);
        }
    }
    if let Some(checks) = checks {
        out.extend_from_slice(b",\"capability_checks\":");
        let checks: Vec<Value> = checks.iter().map(Check::to_value).collect();
        json::write_value(&Value::Array(checks), out);
    }
    if let Some(call) = told.call {
        out.extend_from_slice(b",\"callgate/call\":");
        json::write_value(call, out);
    }
    out.push(b'}');
}

impl Said {
    /// An error of `kind`, without a reason code.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: message.into(),
            reason_code: None,
        }
    }

    /// As `error` holds it.
    #[must_use]
    pub fn to_object(&self) -> Map<String, Value> {
        let mut object = Map::new();
        put(&mut object, "type", self.kind.as_str());
        put(&mut object, "message", self.message.as_str());
        put_some(&mut object, "reason_code", self.reason_code.as_deref());
        object
    }

    /// Reads `error`, or the older top-level names. TP-18, TP-19, TP-46.
    pub(super) fn read(message: &Map<String, Value>) -> Self {
        let error = message.get("error").and_then(Value::as_object);
        let text = |name: &str, alias: &str| {
            let inner = error.and_then(|error| error.get(name));
            let given = inner.or_else(|| message.get(alias)).and_then(Value::as_str);
            given.map(str::to_owned)
        };
        Self {
            kind: text("type", "error_type").unwrap_or_else(|| TYPE_DEFAULT.to_owned()),
            message: text("message", "error_message").unwrap_or_else(|| MESSAGE_DEFAULT.to_owned()),
            reason_code: text("reason_code", "reason_code"),
        }
    }
}

impl Check {
    fn to_value(&self) -> Value {
        let mut object = Map::new();
        put(&mut object, "capability", self.capability.as_str());
        put(&mut object, "allowed", self.allowed);
        put(
            &mut object,
            "guarantee_source",
            self.guarantee_source.as_str(),
        );
        put(&mut object, "reason", self.reason.as_str());
        put_some(&mut object, "duration_ms", self.duration_ms);
        object.into()
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            capability: text("capability")?,
            allowed: value.get("allowed")?.as_bool()?,
            guarantee_source: text("guarantee_source")?,
            reason: text("reason")?,
            duration_ms: value.get("duration_ms").and_then(Value::as_u64),
        })
    }
}

/// A reply as its reader takes it, of either form.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the tool returned, or what went wrong.
    pub result: Result<Value, Said>,
    /// Those checks that are whole; most tools tell of none.
    pub checks: Vec<Check>,
}

/// Why bytes are no reply. TP-25.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Not strict JSON.
    #[error("the reply is not JSON: {0}")]
    NotJson(String),
    /// JSON, and no object.
    #[error("the reply is not an object")]
    NotAnObject,
    /// An object that does not say how it went.
    #[error("the reply has no `ok`")]
    NoOk,
}

impl Reply {
    /// Reads a reply. TP-15, TP-17 to TP-19, TP-25.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReplyError> {
        let mut message = match json::parse_output(bytes, json::DEPTH_MAX) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return Err(ReplyError::NotAnObject),
            Err(error) => return Err(ReplyError::NotJson(error.to_string())),
        };
        let checks = message.get("capability_checks").and_then(Value::as_array);
        let checks = checks
            .into_iter()
            .flatten()
            .filter_map(Check::read)
            .collect();
        let result = match message.get("ok") {
            Some(Value::Bool(true)) => {
                let given = message
                    .remove("result")
                    .or_else(|| message.remove("output"));
                Ok(given.unwrap_or(Value::Null))
            }
            Some(Value::Bool(false)) => Err(Said::read(&message)),
            _ => return Err(ReplyError::NoOk),
        };
        Ok(Self { result, checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: &Value) -> Result<Reply, ReplyError> {
        Reply::parse(value.to_string().as_bytes())
    }

    fn check() -> Check {
        Check {
            capability: "network".into(),
            allowed: false,
            guarantee_source: "tool".into(),
            reason: "guarantee_blocked".into(),
            duration_ms: Some(3),
        }
    }

    /// TP-17 to TP-19: the older names are read, ours are written.
    #[test]
    fn other_names() {
        let output = parse(&json!({"ok": true, "output": [1]})).unwrap();
        assert_eq!(output.result, Ok(json!([1])));
        let both = parse(&json!({"ok": true, "output": 1, "result": 2})).unwrap();
        assert_eq!(both.result, Ok(json!(2)));
        let flat = json!({"ok": false, "error_type": "KeyError", "error_message": "k"});
        assert_eq!(
            parse(&flat).unwrap().result,
            Err(Said::new("KeyError", "k"))
        );
    }

    /// TP-46: what is missing has a word.
    #[test]
    fn defaults() {
        let wanted = Err(Said::new("ToolError", "Tool error"));
        for given in [json!({}), json!({"error": {}}), json!({"error": "x"})] {
            let mut reply = given;
            reply["ok"] = json!(false);
            assert_eq!(parse(&reply).unwrap().result, wanted, "{reply}");
        }
        assert_eq!(parse(&json!({"ok": true})).unwrap().result, Ok(Value::Null));
    }

    /// TP-15, TP-25: no `ok`, no reply.
    #[test]
    fn no_reply() {
        assert_eq!(parse(&json!({"result": 1})), Err(ReplyError::NoOk));
        assert_eq!(parse(&json!({"ok": "yes"})), Err(ReplyError::NoOk));
        assert_eq!(parse(&json!([])), Err(ReplyError::NotAnObject));
        assert!(matches!(
            Reply::parse(b"Hello"),
            Err(ReplyError::NotJson(_))
        ));
    }

    /// TP-16, TP-20, TP-21, TP-45, P-1: the two forms of one end, read back as it was.
    #[test]
    fn there_and_back() {
        let said = Said {
            reason_code: Some("guarantee_blocked".into()),
            ..Said::new("CapabilityViolation", "no \"network\"")
        };
        let checks = [
            check(),
            Check {
                duration_ms: None,
                ..check()
            },
        ];
        for result in [Ok("{\"a\":[1,null]}"), Err(&said)] {
            let told = Told {
                result,
                checks: Some(&checks),
                call: None,
            };
            let (mut local, mut service) = (Vec::new(), Vec::new());
            write_local(&told, &mut local);
            write_service(&told, &mut service);
            let read = Reply::parse(&local).unwrap();
            assert_eq!(read.checks, checks);
            let served = Reply::parse(&service).unwrap();
            assert_eq!((served.result, served.checks.len()), (read.result, 0));
            let local: Value = serde_json::from_slice(&local).unwrap();
            let service: Value = serde_json::from_slice(&service).unwrap();
            assert_eq!(local["protocol_version"], 1);
            assert!(service.get("protocol_version").is_none(), "{service}");
        }
    }

    #[test]
    fn a_caller_that_knows_us_is_told_which_call_it_was() {
        let call = json!({"id": "01"});
        let mut out = Vec::new();
        let told = Told {
            result: Ok("1"),
            checks: None,
            call: Some(&call),
        };
        write_service(&told, &mut out);
        assert_eq!(
            out,
            br#"{"ok":true,"result":1,"callgate/call":{"id":"01"}}"#
        );
    }
}
