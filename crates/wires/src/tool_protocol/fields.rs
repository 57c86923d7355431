//! What the messages have in common: strict JSON, the version first, then fields by type.

use serde_json::{Map, Value};

use super::limits::PROTOCOL_VERSION;
use crate::json;

/// Why bytes are not a request of this protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not strict JSON. G-1.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// JSON, and no object.
    #[error("a request is one JSON object")]
    NotAnObject,
    /// Another version, or none. P-13.
    #[error("protocol_version must be the number {PROTOCOL_VERSION}")]
    Version,
    /// A field that is missing or of the wrong type.
    #[error("{0}")]
    Wrong(String),
}

/// What a caller that knows us may add to any request. They are named as in the `_meta` of MCP
/// and the bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// `callgate/idempotencyKey`: makes a retry safe.
    pub key: Option<String>,
    /// `callgate/leaseToken`: a single-use permission.
    pub lease: Option<String>,
    /// Any of ours came along, so the caller takes ours in the reply.
    pub knows_us: bool,
}

/// Before each of our own fields.
const OURS: &str = "callgate/";
pub(super) const KEY: &str = "callgate/idempotencyKey";
pub(super) const LEASE: &str = "callgate/leaseToken";

/// A request's members, taken out one by one; what is left was not known.
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a message and checks its version before anything else. P-13.
    pub fn of_request(bytes: &[u8]) -> Result<Self, RequestError> {
        let fields = Self::of_object(bytes)?;
        match fields.0.get("protocol_version").and_then(Value::as_f64) {
            #[expect(
                clippy::float_cmp,
                reason = "1 and 1.0 are the same number, 1.1 is another"
            )]
            Some(version) if version == PROTOCOL_VERSION as f64 => Ok(fields),
            _ => Err(RequestError::Version),
        }
    }

    /// Reads a message that may have no version.
    pub fn of_object(bytes: &[u8]) -> Result<Self, RequestError> {
        match json::parse(bytes, json::DEPTH_MAX) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(RequestError::NotAnObject),
            Err(error) => Err(RequestError::NotJson(error.to_string())),
        }
    }

    pub fn of_map(members: Map<String, Value>) -> Self {
        Self(members)
    }

    /// A text that may be absent or null.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "a string")),
        }
    }

    /// A text that must be there and not be empty.
    pub fn required_text(&mut self, name: &str) -> Result<String, RequestError> {
        match self.text(name)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => Err(RequestError::Wrong(format!("`{name}` is empty"))),
            None => Err(required(name)),
        }
    }

    /// A text of at most `bytes_max` bytes that may be absent.
    pub fn short_text(
        &mut self,
        name: &str,
        bytes_max: usize,
    ) -> Result<Option<String>, RequestError> {
        match self.text(name)? {
            Some(text) if text.len() > bytes_max => Err(RequestError::Wrong(format!(
                "`{name}` is longer than {bytes_max} bytes"
            ))),
            text => Ok(text),
        }
    }

    /// True or false, where that is said.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    /// An object that may be absent or null.
    pub fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, RequestError> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(wrong(name, "an object")),
        }
    }

    /// A list of at most `items_max` texts that may be absent.
    pub fn texts(
        &mut self,
        name: &str,
        items_max: usize,
    ) -> Result<Option<Vec<String>>, RequestError> {
        let items = match self.take(name) {
            None => return Ok(None),
            Some(Value::Array(items)) if items.len() <= items_max => items,
            Some(Value::Array(_)) => {
                let words = format!("`{name}` has more than {items_max} entries");
                return Err(RequestError::Wrong(words));
            }
            Some(_) => return Err(wrong(name, "a list")),
        };
        let text = |item| match item {
            Value::String(text) => Ok(text),
            _ => Err(wrong(name, "a list of strings")),
        };
        items
            .into_iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map(Some)
    }

    /// A number of milliseconds above 0 that may be absent.
    pub fn millis(&mut self, name: &str, max: u64) -> Result<Option<u64>, RequestError> {
        let Some(given) = self.take(name) else {
            return Ok(None);
        };
        match given.as_f64() {
            // Rounded up, so that a part of a millisecond is not none at all.
            Some(ms) if ms > 0.0 => Ok(Some((ms.ceil() as u64).min(max))),
            _ => Err(wrong(name, "a number above 0")),
        }
    }

    /// Our own fields.
    pub fn ours(&mut self) -> Result<Ours, RequestError> {
        let knows_us = self.0.keys().any(|name| name.starts_with(OURS));
        let key = self.text(KEY)?;
        // Taken for none, it would be a call that can run twice.
        if key.as_deref() == Some("") {
            return Err(RequestError::Wrong(format!("`{KEY}` is empty")));
        }
        Ok(Ours {
            key,
            lease: self.text(LEASE)?,
            knows_us,
        })
    }

    /// What is left.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// A member that is there and not null.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }
}

impl Ours {
    /// Adds what is there to a message that is being written.
    pub(super) fn put(&self, message: &mut Map<String, Value>) {
        for (name, text) in [(KEY, &self.key), (LEASE, &self.lease)] {
            if let Some(text) = text {
                message.insert(name.to_owned(), text.as_str().into());
            }
        }
    }
}

pub(super) fn required(name: &str) -> RequestError {
    RequestError::Wrong(format!("`{name}` is required"))
}

pub(super) fn wrong(name: &str, wanted: &str) -> RequestError {
    RequestError::Wrong(format!("`{name}` must be {wanted}"))
}
