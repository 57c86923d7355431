//! The two requests to run a tool: on stdin, and over HTTP.

use serde_json::{Map, Value};

use super::context::CapabilityContext;
use super::fields::{Fields, Ours, RequestError, required};
use super::limits::{PROTOCOL_VERSION, TIMEOUT_MS_MAX, TRACE_ID_BYTES_MAX};
use crate::json;

/// One request on a process's stdin. TP-2 to TP-9.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalRequest {
    /// The tool's declared name.
    pub tool: String,
    /// `module:function`, or a name of a registered tool that has none.
    pub entry: String,
    /// The tool's input.
    pub payload: Map<String, Value>,
    /// Whether confinement is asked for.
    pub sandbox: Option<bool>,
    /// Ties the call to its trace.
    pub trace_id: Option<String>,
    /// What the tool is to be held to.
    pub context: Option<CapabilityContext>,
    /// What only we know.
    pub ours: Ours,
}

impl LocalRequest {
    /// Reads the whole of stdin.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let mut fields = Fields::of_request(bytes)?;
        Ok(Self {
            tool: fields.required_text("tool")?,
            entry: fields.required_text("entry")?,
            payload: fields
                .object("payload")?
                .ok_or_else(|| required("payload"))?,
            sandbox: fields.flag("sandbox")?,
            trace_id: fields.short_text("trace_id", TRACE_ID_BYTES_MAX)?,
            context: context(&mut fields)?,
            ours: fields.ours()?,
        })
    }

    /// Appends the request as one JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut message = versioned();
        put(&mut message, "tool", self.tool.as_str());
        put(&mut message, "entry", self.entry.as_str());
        put(&mut message, "payload", self.payload.clone());
        put_some(&mut message, "sandbox", self.sandbox);
        put_some(&mut message, "trace_id", self.trace_id.as_deref());
        let context = self.context.as_ref().map(CapabilityContext::to_value);
        put_some(&mut message, "capability_context", context);
        self.ours.put(&mut message);
        json::write_object(&message, out);
    }
}

/// One request over HTTP. TP-37 to TP-44.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceRequest {
    /// The tool's name.
    pub tool_name: String,
    /// `python`, where it is said.
    pub kind: Option<String>,
    /// `module:function`, where it is said.
    pub entry: Option<String>,
    /// The tool's input; empty where there is none.
    pub payload: Map<String, Value>,
    /// The caller's limit for this call.
    pub timeout_ms: Option<u64>,
    /// Ties the call to its trace.
    pub trace_id: Option<String>,
    /// Whence the caller calls.
    pub project: Option<Project>,
    /// What the tool is to be held to. The contract has it on stdin only; a service that is no
    /// Callgate ignores it.
    pub context: Option<CapabilityContext>,
    /// What only we know.
    pub ours: Ours,
}

/// The caller's own place. TP-44.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// Its folder, on the caller's machine.
    pub app_root: Option<String>,
    /// What it was doing.
    pub flow: Option<String>,
}

impl ServiceRequest {
    /// Reads a body.
    pub fn parse(bytes: &[u8]) -> Result<Self, RequestError> {
        let mut fields = Fields::of_request(bytes)?;
        Ok(Self {
            tool_name: fields.required_text("tool_name")?,
            kind: fields.text("kind")?,
            entry: fields.text("entry")?.filter(|entry| !entry.is_empty()),
            payload: fields.object("payload")?.unwrap_or_default(),
            timeout_ms: fields.millis("timeout_ms", TIMEOUT_MS_MAX)?,
            trace_id: fields.short_text("trace_id", TRACE_ID_BYTES_MAX)?,
            project: fields.object("project")?.map(Project::read).transpose()?,
            context: context(&mut fields)?,
            ours: fields.ours()?,
        })
    }

    /// Appends the request as one JSON object.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut message = versioned();
        put(&mut message, "tool_name", self.tool_name.as_str());
        put_some(&mut message, "kind", self.kind.as_deref());
        put_some(&mut message, "entry", self.entry.as_deref());
        put(&mut message, "payload", self.payload.clone());
        put_some(&mut message, "timeout_ms", self.timeout_ms);
        put_some(&mut message, "trace_id", self.trace_id.as_deref());
        put_some(
            &mut message,
            "project",
            self.project.as_ref().map(Project::to_value),
        );
        let context = self.context.as_ref().map(CapabilityContext::to_value);
        put_some(&mut message, "capability_context", context);
        self.ours.put(&mut message);
        json::write_object(&message, out);
    }
}

impl Project {
    fn read(members: Map<String, Value>) -> Result<Self, RequestError> {
        let mut fields = Fields::of_map(members);
        Ok(Self {
            app_root: fields.text("app_root")?,
            flow: fields.text("flow")?,
        })
    }

    fn to_value(&self) -> Value {
        serde_json::json!({ "app_root": self.app_root, "flow": self.flow })
    }
}

fn context(fields: &mut Fields) -> Result<Option<CapabilityContext>, RequestError> {
    let context = fields.object("capability_context")?;
    context.map(CapabilityContext::read).transpose()
}

/// A message that has its version.
pub(super) fn versioned() -> Map<String, Value> {
    let mut message = Map::new();
    put(&mut message, "protocol_version", PROTOCOL_VERSION);
    message
}

pub(super) fn put(message: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    message.insert(name.to_owned(), value.into());
}

pub(super) fn put_some<T: Into<Value>>(
    message: &mut Map<String, Value>,
    name: &str,
    value: Option<T>,
) {
    if let Some(value) = value {
        put(message, name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn local(value: &Value) -> Result<LocalRequest, RequestError> {
        LocalRequest::parse(value.to_string().as_bytes())
    }

    fn service(value: &Value) -> Result<ServiceRequest, RequestError> {
        ServiceRequest::parse(value.to_string().as_bytes())
    }

    fn least() -> Value {
        json!({"protocol_version": 1, "tool": "t", "entry": "m:f", "payload": {}})
    }

    fn least_service() -> Value {
        json!({"protocol_version": 1, "tool_name": "t"})
    }

    /// P-13: 1 is the number 1, however it is written, and nothing else is.
    #[test]
    fn versions() {
        let with = |version: &str| {
            let text = r#"{"protocol_version":V,"tool":"t","entry":"m:f","payload":{}}"#;
            LocalRequest::parse(text.replace('V', version).as_bytes())
        };
        for good in ["1", "1.0", "1e0"] {
            assert!(with(good).is_ok(), "{good}");
        }
        for bad in ["2", "0", "1.5", "-1", "\"1\"", "true", "null", "[1]"] {
            assert_eq!(with(bad), Err(RequestError::Version), "{bad}");
        }
        assert_eq!(local(&json!({"tool": 7})), Err(RequestError::Version));
    }

    /// TP-4 to TP-8: each field by its type; what nobody knows is ignored.
    #[test]
    fn local_fields() {
        assert!(local(&least()).is_ok());
        let mut more = least();
        more["other"] = json!([1]);
        assert_eq!(local(&more), local(&least()));
        for (name, bad) in [
            ("tool", json!(null)),
            ("tool", json!("")),
            ("tool", json!(7)),
            ("entry", json!(null)),
            ("entry", json!({})),
            ("payload", json!(null)),
            ("payload", json!([])),
            ("payload", json!("{}")),
            ("sandbox", json!("false")),
            ("trace_id", json!(5)),
            ("trace_id", json!("x".repeat(TRACE_ID_BYTES_MAX + 1))),
            ("capability_context", json!(true)),
            ("callgate/idempotencyKey", json!(5)),
            ("callgate/idempotencyKey", json!("")),
        ] {
            let mut request = least();
            request[name] = bad;
            let refused = local(&request);
            assert!(matches!(refused, Err(RequestError::Wrong(_))), "{request}");
        }
        let mut edge = least();
        edge["trace_id"] = json!("x".repeat(TRACE_ID_BYTES_MAX));
        assert!(local(&edge).is_ok());
    }

    /// TP-38 to TP-44: the same over HTTP.
    #[test]
    fn service_fields() {
        let request = service(&least_service()).unwrap();
        assert_eq!((request.payload.len(), request.timeout_ms), (0, None));
        for (name, bad) in [
            ("tool_name", json!(null)),
            ("kind", json!(1)),
            ("entry", json!(1)),
            ("payload", json!([])),
            ("timeout_ms", json!(0)),
            ("timeout_ms", json!(-5)),
            ("timeout_ms", json!("10")),
            ("project", json!("x")),
            ("project", json!({"flow": 1})),
        ] {
            let mut request = least_service();
            request[name] = bad;
            assert!(
                matches!(service(&request), Err(RequestError::Wrong(_))),
                "{request}"
            );
        }
    }

    /// TP-42, P-7: milliseconds, at and past the edges.
    #[test]
    fn timeouts() {
        let millis = |given: Value| {
            let mut request = least_service();
            request["timeout_ms"] = given;
            service(&request).unwrap().timeout_ms
        };
        assert_eq!(millis(json!(1)), Some(1));
        assert_eq!(millis(json!(0.2)), Some(1));
        assert_eq!(millis(json!(1500.0)), Some(1500));
        assert_eq!(millis(json!(TIMEOUT_MS_MAX)), Some(TIMEOUT_MS_MAX));
        assert_eq!(millis(json!(1e300)), Some(TIMEOUT_MS_MAX));
    }

    /// Ours are seen whatever they are, and taken where we know them.
    #[test]
    fn our_own_fields() {
        let mut request = least_service();
        assert!(!service(&request).unwrap().ours.knows_us);
        request["callgate/anything"] = json!(1);
        let ours = service(&request).unwrap().ours;
        assert!(ours.knows_us && ours.key.is_none());
        request["callgate/idempotencyKey"] = json!("k");
        request["callgate/leaseToken"] = json!("lease_1");
        let ours = service(&request).unwrap().ours;
        assert_eq!(
            (ours.key.as_deref(), ours.lease.as_deref()),
            (Some("k"), Some("lease_1"))
        );
    }

    /// G-1: bytes that are no strict JSON object are told apart from a wrong object.
    #[test]
    fn not_a_request() {
        assert_eq!(LocalRequest::parse(b"[]"), Err(RequestError::NotAnObject));
        for bad in ["", "{", "{\"a\":1,\"a\":2}", "{} {}", "\"\\ud800\""] {
            let refused = ServiceRequest::parse(bad.as_bytes());
            assert!(matches!(refused, Err(RequestError::NotJson(_))), "{bad}");
        }
    }
}
