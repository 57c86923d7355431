//! The caller's half of the HTTP form: what is sent to a tool service, and how its answers
//! read. TP-36 to TP-58.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json;

/// TP-1.
const PROTOCOL_VERSION: u8 = 1;

/// Where the handshake is, at the root of a service's address. TP-48.
pub const HANDSHAKE_PATH: &str = "/capabilities/handshake";

/// One call of a tool. TP-37 to TP-44.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCall<'a> {
    /// The tool as the service knows it.
    pub tool_name: &'a str,
    /// `module:function`, where one is known.
    pub entry: Option<&'a str>,
    /// The input, as JSON.
    pub payload: &'a RawValue,
    /// How long the caller waits.
    pub timeout_ms: u64,
    /// Ties the call to its trace.
    pub trace_id: Option<&'a str>,
    /// The caller's project folder.
    pub app_root: &'a str,
}

impl ServiceCall<'_> {
    /// The body, its fields in the contract's order.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Body<'a> {
            protocol_version: u8,
            tool_name: &'a str,
            kind: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            entry: Option<&'a str>,
            payload: &'a RawValue,
            timeout_ms: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            trace_id: Option<&'a str>,
            project: Project<'a>,
        }
        #[derive(Serialize)]
        struct Project<'a> {
            app_root: &'a str,
            flow: Option<&'a str>,
        }
        let project = Project {
            app_root: self.app_root,
            flow: None,
        };
        let body = Body {
            protocol_version: PROTOCOL_VERSION,
            tool_name: self.tool_name,
            kind: "python",
            entry: self.entry,
            payload: self.payload,
            timeout_ms: self.timeout_ms,
            trace_id: self.trace_id,
            project,
        };
        serde_json::to_vec(&body).expect("texts and numbers are JSON")
    }
}

/// How a tool answered, over HTTP or on its standard output. TP-15 to TP-19, TP-45, TP-46.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolReply {
    /// Its result.
    Result(Value),
    /// Its own failure.
    Failure {
        /// The class of the error.
        error_type: String,
        /// What went wrong.
        message: String,
    },
}

impl ToolReply {
    /// Reads a reply; the error says what is wrong with it. TP-25.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = json::parse(bytes, json::DEPTH_MAX)
            .map_err(|error| format!("the reply is not strict JSON: {error}"))?;
        let Value::Object(mut reply) = value else {
            return Err("the reply is not an object".to_owned());
        };
        match reply.get("ok") {
            Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => return Ok(Self::failure(&reply)),
            _ => return Err("the reply has no `ok`".to_owned()),
        }
        let result = reply.remove("result").or_else(|| reply.remove("output"));
        match result {
            Some(result) => Ok(Self::Result(result)),
            None => Err("the reply has no `result`".to_owned()),
        }
    }

    fn failure(reply: &Map<String, Value>) -> Self {
        let text = |name: &str, alias: &str, default: &str| {
            let inner = reply.get("error").and_then(|error| error.get(name));
            let found = inner.or_else(|| reply.get(alias)).and_then(Value::as_str);
            found
                .filter(|text| !text.is_empty())
                .unwrap_or(default)
                .to_owned()
        };
        Self::Failure {
            error_type: text("type", "error_type", "ToolError"),
            message: text("message", "error_message", "Tool error"),
        }
    }
}

/// What is asked of a service before it is called. TP-49 to TP-52.
#[must_use]
pub fn handshake_body(
    tool_name: &str,
    required: &[(&'static str, bool)],
    secrets_allowed: Option<&[&str]>,
) -> Vec<u8> {
    let mut guarantees: Map<String, Value> = required
        .iter()
        .map(|&(name, wanted)| (name.to_owned(), Value::Bool(wanted)))
        .collect();
    if let Some(names) = secrets_allowed {
        guarantees.insert("secrets_allowed".to_owned(), names.to_vec().into());
    }
    let body = serde_json::json!({
        "protocol_version": PROTOCOL_VERSION,
        "tool_name": tool_name,
        "runner": "service",
        "required_guarantees": guarantees,
    });
    serde_json::to_vec(&body).expect("texts and numbers are JSON")
}

/// What a service says it would enforce. TP-53 to TP-56.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handshake {
    /// Why it refuses, where `ok` is false. TP-58.
    pub refusal: Option<String>,
    /// Its own word: `enforced`, `partial`, `none`, or anything.
    pub enforcement: String,
    /// By name.
    supported: BTreeMap<String, Value>,
    /// Its version, where it has one.
    pub service_version: Option<String>,
}

impl Handshake {
    /// Reads an answer. A missing `ok` is no refusal.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = json::parse(bytes, json::DEPTH_MAX)
            .map_err(|error| format!("its handshake is not strict JSON: {error}"))?;
        let Value::Object(answer) = value else {
            return Err("its handshake is not an object".to_owned());
        };
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        let refused = answer.get("ok") == Some(&Value::Bool(false));
        let refusal = refused.then(|| match ToolReply::failure(&answer) {
            ToolReply::Failure { message, .. } => message,
            ToolReply::Result(_) => String::new(),
        });
        let supported = match answer.get("supported_guarantees") {
            Some(Value::Object(supported)) => supported.clone().into_iter().collect(),
            _ => BTreeMap::new(),
        };
        Ok(Self {
            refusal,
            enforcement: text("enforcement").unwrap_or_default(),
            supported,
            service_version: text("service_version"),
        })
    }

    /// True if it says it supports one of the six.
    #[must_use]
    pub fn supports(&self, name: &str) -> bool {
        match self.supported.get(name) {
            Some(Value::Bool(is)) => *is,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            _ => false,
        }
    }

    /// True if the secrets it can hold a tool to are at least these.
    #[must_use]
    pub fn supports_secrets<'a>(&self, mut wanted: impl Iterator<Item = &'a String>) -> bool {
        match self.supported.get("secrets_allowed") {
            Some(Value::Array(names)) => {
                wanted.all(|name| names.iter().any(|known| known.as_str() == Some(name)))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    /// TP-36 to TP-44: the contract's own example but for `flow`, which only the original has.
    #[test]
    fn a_call_as_the_contract_has_it() {
        let payload = RawValue::from_string(r#"{ "name": "Ada" }"#.to_owned()).unwrap();
        let call = ServiceCall {
            tool_name: "greeter",
            entry: Some("tools.sample_tool:greet"),
            payload: &payload,
            timeout_ms: 10_000,
            trace_id: Some("uuid"),
            app_root: "/path/to/app",
        };
        let wanted = json!({
            "protocol_version": 1,
            "tool_name": "greeter",
            "kind": "python",
            "entry": "tools.sample_tool:greet",
            "payload": { "name": "Ada" },
            "timeout_ms": 10000,
            "trace_id": "uuid",
            "project": { "app_root": "/path/to/app", "flow": null },
        });
        assert_eq!(parsed(&call.to_bytes()), wanted);
        let bare = ServiceCall {
            entry: None,
            trace_id: None,
            ..call
        };
        let bare = parsed(&bare.to_bytes());
        assert!(bare.get("entry").is_none() && bare.get("trace_id").is_none());
    }

    /// TP-45, TP-46, TP-17 to TP-19, TP-25.
    #[test]
    fn replies() {
        let failure = |kind: &str, message: &str| {
            Ok(ToolReply::Failure {
                error_type: kind.to_owned(),
                message: message.to_owned(),
            })
        };
        let result = |value| Ok(ToolReply::Result(value));
        let bad = |reason: &str| Err(reason.to_owned());
        for (text, wanted) in [
            (
                r#"{ "ok": true, "result": { "message": "Hello Ada" } }"#,
                result(json!({ "message": "Hello Ada" })),
            ),
            (r#"{"ok":true,"output":1}"#, result(json!(1))),
            (r#"{"ok":true,"result":null}"#, result(Value::Null)),
            (r#"{"ok":true,"result":1,"output":2}"#, result(json!(1))),
            (
                r#"{ "ok": false, "error": { "type": "ValueError", "message": "Missing input" } }"#,
                failure("ValueError", "Missing input"),
            ),
            (r#"{"ok":false}"#, failure("ToolError", "Tool error")),
            (
                r#"{"ok":false,"error":"x"}"#,
                failure("ToolError", "Tool error"),
            ),
            (
                r#"{"ok":false,"error_type":"KeyError","error_message":"k"}"#,
                failure("KeyError", "k"),
            ),
            (r#"{"ok":true}"#, bad("the reply has no `result`")),
            (r#"{"result":1}"#, bad("the reply has no `ok`")),
            (r#"{"ok":1,"result":1}"#, bad("the reply has no `ok`")),
            ("[]", bad("the reply is not an object")),
        ] {
            assert_eq!(ToolReply::parse(text.as_bytes()), wanted, "{text}");
        }
        for text in ["", "{", "{\"ok\":true,\"ok\":true,\"result\":1}"] {
            let reason = ToolReply::parse(text.as_bytes()).unwrap_err();
            assert!(reason.contains("strict JSON"), "{text}: {reason}");
        }
    }

    /// TP-49 to TP-52: all six are told, the false ones too.
    #[test]
    fn a_handshake_is_asked_for() {
        let body = handshake_body(
            "greeter",
            &[("no_network", true), ("no_subprocess", false)],
            Some(&["A"]),
        );
        let wanted = json!({
            "protocol_version": 1,
            "tool_name": "greeter",
            "runner": "service",
            "required_guarantees":
                { "no_network": true, "no_subprocess": false, "secrets_allowed": ["A"] },
        });
        assert_eq!(parsed(&body), wanted);
        let body = parsed(&handshake_body("greeter", &[("no_network", true)], None));
        assert_eq!(body["required_guarantees"], json!({ "no_network": true }));
    }

    /// TP-53 to TP-56, TP-58: the contract's own example, and what others say.
    #[test]
    fn handshakes() {
        let example = r#"{
            "ok": true,
            "enforcement": "enforced",
            "supported_guarantees": { "no_network": true },
            "service_version": "1.0.0"
        }"#;
        let handshake = Handshake::parse(example.as_bytes()).unwrap();
        assert_eq!(handshake.enforcement, "enforced");
        assert_eq!(handshake.service_version.as_deref(), Some("1.0.0"));
        assert!(handshake.refusal.is_none());
        assert!(handshake.supports("no_network") && !handshake.supports("no_subprocess"));
        assert!(!handshake.supports_secrets([].into_iter()));

        let refused = br#"{"ok":false,"error":{"message":"unknown tool"}}"#;
        let refused = Handshake::parse(refused).unwrap();
        assert_eq!(refused.refusal.as_deref(), Some("unknown tool"));

        let odd = br#"{"supported_guarantees":{"a":1,"b":0,"c":"yes","d":null,"secrets_allowed":["A","B"]}}"#;
        let odd = Handshake::parse(odd).unwrap();
        assert_eq!((odd.refusal.as_ref(), odd.enforcement.as_str()), (None, ""));
        let supported = ["a", "b", "c", "d", "e"].map(|name| odd.supports(name));
        assert_eq!(supported, [true, false, true, false, false]);
        let names =
            |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
        assert!(odd.supports_secrets(names(&["A"]).iter()));
        assert!(!odd.supports_secrets(names(&["A", "C"]).iter()));
        assert!(Handshake::parse(b"1").is_err() && Handshake::parse(b"{").is_err());
    }
}
