//! MCP as both of its eras spell it: revisions, names, the metadata of a request and the
//! headers that mirror it. What a method does is the door's business.
//!
//! An era is known per message: a request whose `_meta` names a protocol version is modern
//! (2026-07-28, stateless); `initialize` and what follows it in a session is legacy.

mod headers;

use serde_json::{Map, Value, json};

use crate::jsonrpc::{INVALID_PARAMS, RpcError};

pub use headers::{HeaderCheck, check_headers, decode_header};

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first.
pub const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// All of them.
pub const VERSIONS: [&str; 5] = [
    MODERN,
    HANDSHAKE[0],
    HANDSHAKE[1],
    HANDSHAKE[2],
    HANDSHAKE[3],
];

/// A mirrored header is missing or says something else than the body.
pub const HEADER_MISMATCH: i32 = -32020;
/// The request needs something its client did not say it can do.
pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
/// A revision we do not speak.
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// A resource that is not there, in the legacy era.
pub const RESOURCE_NOT_FOUND: i32 = -32002;

/// Keys of `_meta` that the protocol reserves.
pub mod meta {
    /// The revision a modern request is written in.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What its client can do.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who its client is.
    pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
    /// The lowest level of log messages it wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who we are.
    pub const SERVER: &str = "io.modelcontextprotocol/serverInfo";
    /// Which `subscriptions/listen` a notification belongs to.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
    /// The tasks extension.
    pub const TASKS: &str = "io.modelcontextprotocol/tasks";
    /// Ours: makes a retry safe.
    pub const KEY: &str = "callgate/idempotencyKey";
    /// Ours: a single-use permission.
    pub const LEASE: &str = "callgate/leaseToken";
    /// Ours, on results: the call's id in the chain, and how it was answered.
    pub const CALL: &str = "callgate/call";
    /// W3C trace context; the plain name is the protocol's convention.
    pub const TRACEPARENT: [&str; 2] = ["traceparent", "callgate/traceparent"];
}

/// What a request says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestMeta {
    /// Names the request in progress notifications.
    pub progress_token: Option<Value>,
    /// The revision; present in the modern era only.
    pub version: Option<String>,
    /// What the client can do; present in the modern era only.
    pub capabilities: Option<Map<String, Value>>,
    /// The lowest level of log messages that are wanted.
    pub log_level: Option<String>,
    /// Makes a retry safe.
    pub idempotency_key: Option<String>,
    /// A single-use permission.
    pub lease_token: Option<String>,
    /// The trace id of `traceparent`.
    pub trace_id: Option<String>,
    /// The client's span, of the same.
    pub parent_span: Option<String>,
}

impl RequestMeta {
    /// Reads `params._meta`. Fields of the wrong type are told.
    pub fn read(params: Option<&Value>) -> Result<Self, RpcError> {
        let Some(meta) = params.and_then(|params| params.get("_meta")) else {
            return Ok(Self::default());
        };
        let Value::Object(meta) = meta else {
            return Err(invalid("_meta must be an object"));
        };
        let mut read = Self::default();
        let mut traceparents = [None; meta::TRACEPARENT.len()];
        // There are few, and their names begin alike: each is looked at once.
        for (key, value) in meta {
            match key.as_str() {
                "progressToken" if value.is_string() || value.is_number() => {
                    read.progress_token = Some(value.clone());
                }
                "progressToken" => {
                    return Err(invalid("_meta.progressToken must be a string or a number"));
                }
                meta::CAPABILITIES => match value {
                    Value::Object(capabilities) => read.capabilities = Some(capabilities.clone()),
                    _ => return Err(invalid(&format!("_meta[\"{key}\"] must be an object"))),
                },
                meta::VERSION => read.version = text(key, value)?,
                meta::LOG_LEVEL => read.log_level = text(key, value)?,
                // Taken for none, it would be a call that can run twice.
                meta::KEY if value == "" => {
                    return Err(invalid(&format!("_meta[\"{key}\"] must not be empty")));
                }
                meta::KEY => read.idempotency_key = text(key, value)?,
                meta::LEASE => read.lease_token = text(key, value)?,
                other => {
                    let place = meta::TRACEPARENT.iter().position(|name| *name == other);
                    if let Some(place) = place {
                        traceparents[place] = Some(value);
                    }
                }
            }
        }
        let traceparent = traceparents.into_iter().flatten().next();
        if let Some((trace, span)) = traceparent.and_then(Value::as_str).and_then(parent) {
            read.trace_id = Some(trace.to_owned());
            read.parent_span = Some(span.to_owned());
        }
        Ok(read)
    }

    /// Checks what the modern era asks of every request.
    pub fn check_modern(&self) -> Result<(), RpcError> {
        match self.version.as_deref() {
            None => Err(invalid(&format!(
                "_meta[\"{}\"] is required",
                meta::VERSION
            ))),
            Some(version) if version != MODERN => Err(unsupported(version)),
            Some(_) if self.capabilities.is_none() => Err(invalid(&format!(
                "_meta[\"{}\"] is required",
                meta::CAPABILITIES
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// The refusal of a revision.
#[must_use]
pub fn unsupported(version: &str) -> RpcError {
    RpcError::new(
        UNSUPPORTED_VERSION,
        format!("protocol version {version:?} is not supported"),
    )
    .with(json!({ "supported": VERSIONS, "requested": version }))
}

/// The refusal of a client that can not do what is needed.
#[must_use]
pub fn missing_capability(required: Value) -> RpcError {
    RpcError::new(
        MISSING_CLIENT_CAPABILITY,
        "the client did not declare a capability this request needs",
    )
    .with(json!({ "requiredCapabilities": required }))
}

/// The refusal of params.
#[must_use]
pub fn invalid(message: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, message)
}

fn text(key: &str, value: &Value) -> Result<Option<String>, RpcError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(invalid(&format!("_meta[\"{key}\"] must be a string"))),
    }
}

/// Trace and span of a W3C `traceparent`: `00-<32 hex>-<16 hex>-<2 hex>`, neither all zeros.
fn parent(traceparent: &str) -> Option<(&str, &str)> {
    let mut parts = traceparent.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|b| b != b'0');
    (is_hex(version, 2) && is_id(trace, 32) && is_id(span, 16)).then_some((trace, span))
}

/// The revision answered to a legacy client that proposes one.
#[must_use]
pub fn negotiate(proposed: &str) -> &'static str {
    HANDSHAKE
        .into_iter()
        .find(|version| *version == proposed)
        .unwrap_or(HANDSHAKE[0])
}

/// Links to what an output lists as `resources`, and to the `run` that it tells of.
pub fn resource_links(output: &Value) -> impl Iterator<Item = Value> {
    let listed = output.get("resources").and_then(Value::as_array);
    let listed = listed.into_iter().flatten();
    listed.chain(output.get("run")).map(|resource| {
        let mut link = json!({ "type": "resource_link" });
        for name in ["uri", "name", "mimeType", "size"] {
            if let Some(value) = resource.get(name) {
                link[name] = value.clone();
            }
        }
        link
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata() {
        let params = json!({"_meta": {
            "progressToken": 7,
            meta::VERSION: MODERN,
            meta::CAPABILITIES: {"sampling": {}},
            meta::KEY: "k",
            meta::LEASE: "lease_1",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }});
        let read = RequestMeta::read(Some(&params)).unwrap();
        assert_eq!(read.progress_token, Some(json!(7)));
        assert_eq!(read.idempotency_key.as_deref(), Some("k"));
        assert_eq!(read.lease_token.as_deref(), Some("lease_1"));
        assert_eq!(
            read.trace_id.as_deref(),
            Some("0af7651916cd43dd8448eb211c80319c")
        );
        assert_eq!(read.check_modern(), Ok(()));
        assert_eq!(RequestMeta::read(None).unwrap(), RequestMeta::default());
    }

    #[test]
    fn wrong_metadata_is_told() {
        for meta in [
            json!([]),
            json!({"progressToken": {}}),
            json!({meta::VERSION: 1}),
            json!({meta::CAPABILITIES: "x"}),
            json!({meta::KEY: 5}),
            json!({meta::KEY: ""}),
        ] {
            let params = json!({ "_meta": meta });
            let refused = RequestMeta::read(Some(&params)).unwrap_err();
            assert_eq!(refused.code, INVALID_PARAMS, "{params}");
        }
        let meta = RequestMeta {
            version: Some("v999".to_owned()),
            ..RequestMeta::default()
        };
        let refused = meta.check_modern().unwrap_err();
        assert_eq!(refused.code, UNSUPPORTED_VERSION);
        assert_eq!(refused.data.unwrap()["requested"], "v999");
        let code = |meta: RequestMeta| meta.check_modern().unwrap_err().code;
        assert_eq!(code(RequestMeta::default()), INVALID_PARAMS);
        let meta = RequestMeta {
            version: Some(MODERN.to_owned()),
            ..RequestMeta::default()
        };
        assert_eq!(code(meta), INVALID_PARAMS);
    }

    #[test]
    fn traces() {
        for bad in [
            "",
            "00",
            "00-0-0-0",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        ] {
            assert_eq!(parent(bad), None, "{bad}");
        }
    }

    #[test]
    fn negotiation() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("1999-01-01"), "2025-11-25");
        assert_eq!(negotiate(MODERN), "2025-11-25");
    }
}
