//! The payload of an event: one msgpack map of a few keys.

use callgate_wires::stream::{DEPTH_MAX, StreamFault, encode};
use serde::Serialize;
use serde_json::Value;

use crate::EmitError;

/// A map that is being written. It has fewer than 16 keys.
pub struct Payload {
    bytes: Vec<u8>,
}

impl Payload {
    pub fn new() -> Self {
        let mut bytes = Vec::with_capacity(256);
        encode::map_head(0, &mut bytes);
        Self { bytes }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn text(mut self, key: &str, value: &str) -> Self {
        encode::text(value, self.key(key));
        self
    }

    /// Left out where there is none.
    pub fn maybe(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    pub fn uint(mut self, key: &str, value: u64) -> Self {
        encode::uint(value, self.key(key));
        self
    }

    /// Any value that has JSON.
    pub fn value<V: Serialize + ?Sized>(mut self, key: &str, value: &V) -> Result<Self, EmitError> {
        let value = serde_json::to_value(value).map_err(EmitError::Value)?;
        // The frame's map and this one are around it.
        if !fits(&value, DEPTH_MAX - 2) {
            return Err(EmitError::Unsendable(StreamFault::TooDeep));
        }
        encode::value(&value, self.key(key));
        Ok(self)
    }

    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        self.bytes[0] += 1;
        encode::text(key, &mut self.bytes);
        &mut self.bytes
    }
}

/// True if no more than `depth` levels are nested.
fn fits(value: &Value, depth: usize) -> bool {
    let mut inside: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => return true,
    };
    depth > 0 && inside.all(|value| fits(value, depth - 1))
}
