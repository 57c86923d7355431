//! Metadata of requests: `params._meta`, in which the modern era says with each request what the
//! legacy era said once, and in which a client brings our own fields.

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::capabilities::ClientCapabilities;
use super::{Extra, MODERN, RawJson, fields, invalid, unsupported};
use crate::jsonrpc::RpcError;

/// The revision a modern request is written in.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Name of the client's capabilities.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Name of the client's identity.
pub const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// The lowest level of log messages it wants.
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Name of the server's identity.
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

/// The name of the request in progress notifications.
const PROGRESS_TOKEN: &str = "progressToken";
/// The prefix of our own names.
const OURS: &str = "callgate/";

/// The metadata of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestMeta {
    /// Names the request in progress notifications: a string or a number, sent back as it came.
    pub progress_token: Option<Value>,
    /// The revision; present in the modern era only.
    pub version: Option<String>,
    /// The capabilities of the client; present in the modern era only.
    pub capabilities: Option<Box<ClientCapabilities>>,
    /// The identity of the client as it came; never refused.
    pub client: Option<RawJson>,
    /// The lowest level of log messages that are wanted.
    pub log_level: Option<String>,
    /// Makes a retry safe.
    pub idempotency_key: Option<String>,
    /// Lets the call through where a lease is needed.
    pub lease_token: Option<String>,
    /// The W3C trace context, by each of its names.
    pub traceparents: [Option<String>; TRACEPARENT.len()],
    /// Members that are not known here.
    pub others: Extra,
}

impl RequestMeta {
    /// Reads `params._meta`. A member of the wrong type is refused by its name.
    pub fn read(params: Option<&Value>) -> Result<Self, RpcError> {
        match params.and_then(|params| params.get("_meta")) {
            None => Ok(Self::default()),
            Some(Value::Object(members)) => Self::of(members.clone()),
            Some(_) => Err(invalid("_meta must be an object")),
        }
    }

    /// Reads the members of `_meta`.
    pub fn of(members: Map<String, Value>) -> Result<Self, RpcError> {
        let mut meta = Self::default();
        for (name, value) in members {
            meta.take(name, value)?;
        }
        Ok(meta)
    }

    fn take(&mut self, name: String, value: Value) -> Result<(), RpcError> {
        match (name.as_str(), &value) {
            (PROGRESS_TOKEN, Value::String(_) | Value::Number(_)) => {
                self.progress_token = Some(value);
            }
            (PROGRESS_TOKEN, _) => {
                return Err(invalid("_meta.progressToken must be a string or a number"));
            }
            (CAPABILITIES, Value::Object(_)) => {
                let read = fields::read(&value)
                    .map_err(|error| invalid(&format!("_meta[\"{name}\"]: {error}")))?;
                self.capabilities = Some(Box::new(read));
            }
            (CAPABILITIES, _) => {
                return Err(invalid(&format!("_meta[\"{name}\"] must be an object")));
            }
            (CLIENT, _) => self.client = Some(RawJson::of(&value)),
            // Taken for none, it would be a call that can run twice.
            (KEY, Value::String(key)) if key.is_empty() => {
                return Err(invalid(&format!("_meta[\"{name}\"] must not be empty")));
            }
            _ => match (self.place_of(&name), value) {
                (None, value) => drop(self.others.insert(name, value)),
                (Some(place), Value::String(text)) => *place = Some(text),
                (Some(place), Value::Null) => *place = None,
                // A trace that can not be read is no reason to refuse a call.
                (Some(_), _) if TRACEPARENT.contains(&name.as_str()) => {}
                (Some(_), _) => {
                    return Err(invalid(&format!("_meta[\"{name}\"] must be a string")));
                }
            },
        }
        Ok(())
    }

    /// The place for the value of a member that is a string.
    pub(super) fn place_of(&mut self, name: &str) -> Option<&mut Option<String>> {
        Some(match name {
            VERSION => &mut self.version,
            LOG_LEVEL => &mut self.log_level,
            KEY => &mut self.idempotency_key,
            LEASE => &mut self.lease_token,
            _ => {
                let place = TRACEPARENT.iter().position(|known| *known == name)?;
                &mut self.traceparents[place]
            }
        })
    }

    /// Returns whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut traceparents = self.traceparents.iter();
        self.others.is_empty()
            && self.progress_token.is_none()
            && self.version.is_none()
            && self.capabilities.is_none()
            && self.client.is_none()
            && self.log_level.is_none()
            && self.idempotency_key.is_none()
            && self.lease_token.is_none()
            && traceparents.all(Option::is_none)
    }

    /// Returns the trace id and the client's span, if a trace context can be read.
    #[must_use]
    pub fn trace(&self) -> Option<(&str, &str)> {
        let first = self.traceparents.iter().flatten().next();
        parent(first?)
    }

    /// Returns our own members and the trace context, for a parent that may be a Callgate.
    #[must_use]
    pub fn ours(&self) -> Map<String, Value> {
        let texts = [
            (KEY, &self.idempotency_key),
            (LEASE, &self.lease_token),
            (TRACEPARENT[0], &self.traceparents[0]),
            (TRACEPARENT[1], &self.traceparents[1]),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| {
            let text = text.as_deref()?;
            Some((name.to_owned(), text.into()))
        });
        let others = self.others.iter();
        let others = others.filter(|(name, _)| name.starts_with(OURS));
        texts
            .chain(others.map(|(name, value)| (name.clone(), value.clone())))
            .collect()
    }

    /// Checks what the modern era asks of every request.
    pub fn check_modern(&self) -> Result<(), RpcError> {
        match self.version.as_deref() {
            None => Err(invalid(&format!("_meta[\"{VERSION}\"] is required"))),
            Some(version) if version != MODERN => Err(unsupported(version)),
            Some(_) if self.capabilities.is_none() => {
                Err(invalid(&format!("_meta[\"{CAPABILITIES}\"] is required")))
            }
            Some(_) => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for RequestMeta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Map::deserialize(deserializer)?;
        Self::of(members).map_err(|error| D::Error::custom(error.message))
    }
}

impl Serialize for RequestMeta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        let texts = [
            (VERSION, &self.version),
            (LOG_LEVEL, &self.log_level),
            (KEY, &self.idempotency_key),
            (LEASE, &self.lease_token),
            (TRACEPARENT[0], &self.traceparents[0]),
            (TRACEPARENT[1], &self.traceparents[1]),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                members.serialize_entry(name, text)?;
            }
        }
        if let Some(token) = &self.progress_token {
            members.serialize_entry(PROGRESS_TOKEN, token)?;
        }
        if let Some(capabilities) = &self.capabilities {
            members.serialize_entry(CAPABILITIES, capabilities)?;
        }
        if let Some(client) = &self.client {
            members.serialize_entry(CLIENT, client)?;
        }
        for (name, value) in &self.others {
            members.serialize_entry(name, value)?;
        }
        members.end()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::UNSUPPORTED_VERSION;
    use super::*;
    use crate::jsonrpc::INVALID_PARAMS;

    #[test]
    fn metadata() {
        let params = json!({"_meta": {
            "progressToken": 7,
            VERSION: MODERN,
            CAPABILITIES: {"sampling": {}},
            KEY: "k",
            LEASE: "lease_1",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }});
        let read = RequestMeta::read(Some(&params)).unwrap();
        assert_eq!(read.progress_token, Some(json!(7)));
        assert_eq!(read.idempotency_key.as_deref(), Some("k"));
        assert_eq!(read.lease_token.as_deref(), Some("lease_1"));
        assert_eq!(
            read.trace().map(|(trace, _)| trace),
            Some("0af7651916cd43dd8448eb211c80319c")
        );
        assert_eq!(read.check_modern(), Ok(()));
        assert_eq!(json!(read), params["_meta"]);
        assert_eq!(read.ours().len(), 3);
        assert_eq!(RequestMeta::read(None).unwrap(), RequestMeta::default());
    }

    #[test]
    fn wrong_metadata_is_told() {
        for meta in [
            json!([]),
            json!({"progressToken": {}}),
            json!({VERSION: 1}),
            json!({CAPABILITIES: "x"}),
            json!({KEY: 5}),
            json!({KEY: ""}),
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
}
