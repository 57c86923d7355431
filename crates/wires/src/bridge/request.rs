//! `call_tool`, the one request there is.

use serde_json::{Map, Value};

use super::answer::{IPC_ERROR, Said, VALUE_ERROR};
use super::frame::{FrameError, close_frame, open_frame};
use crate::json;

/// One call, as a bridge asks for it.
#[derive(Debug, PartialEq)]
pub struct CallTool {
    /// `params.name`.
    pub name: String,
    /// `params.arguments`; an empty object where there are none.
    pub arguments: Map<String, Value>,
    /// The params without these two, where a Callgate finds its `_meta`.
    pub rest: Value,
}

impl CallTool {
    /// Reads a payload. A payload that is none is answered by what comes back. B-5.
    pub fn parse(payload: &[u8]) -> Result<Self, Said> {
        let message = json::parse(payload, json::DEPTH_MAX)
            .map_err(|error| Said::new(IPC_ERROR, format!("Invalid JSON: {error}")))?;
        let Value::Object(mut message) = message else {
            return Err(Said::new(IPC_ERROR, "Invalid message: expected dict"));
        };
        match message.get("method") {
            Some(Value::String(method)) if method == "call_tool" => {}
            Some(Value::String(method)) => return Err(unknown_method(method)),
            None | Some(Value::Null) => return Err(unknown_method("None")),
            Some(other) => return Err(unknown_method(&other.to_string())),
        }
        let Some(Value::Object(mut params)) = message.remove("params") else {
            return Err(Said::new(VALUE_ERROR, "Invalid params: expected dict"));
        };
        let Some(Value::String(name)) = params.remove("name") else {
            return Err(Said::new(VALUE_ERROR, "Invalid tool name: expected string"));
        };
        let arguments = match params.remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Said::new(VALUE_ERROR, "Invalid arguments: expected dict")),
        };
        Ok(Self {
            name,
            arguments,
            rest: Value::Object(params),
        })
    }
}

fn unknown_method(method: &str) -> Said {
    Said::new(VALUE_ERROR, format!("Unknown method: {method}"))
}

/// Appends a request's frame. `meta` is for a parent that is a Callgate; others ignore it.
pub fn write_call(
    name: &str,
    arguments: &Map<String, Value>,
    meta: &Map<String, Value>,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let at = open_frame(out);
    out.extend_from_slice(b"{\"method\":\"call_tool\",\"params\":{\"name\":");
    json::write_text(name, out);
    out.extend_from_slice(b",\"arguments\":");
    json::write_object(arguments, out);
    if !meta.is_empty() {
        out.extend_from_slice(b",\"_meta\":");
        json::write_object(meta, out);
    }
    out.extend_from_slice(b"}}");
    close_frame(at, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    /// BR-7 to BR-11: what is written is what is read.
    #[test]
    fn there_and_back() {
        let arguments = object(json!({"a": [1, "é\""], "b": null}));
        let meta = object(json!({"callgate/idempotencyKey": "k"}));
        let mut out = Vec::new();
        write_call("files_read", &arguments, &meta, &mut out).unwrap();
        let wanted = CallTool {
            name: "files_read".to_owned(),
            arguments: arguments.clone(),
            rest: json!({ "_meta": meta }),
        };
        assert_eq!(CallTool::parse(&out[4..]), Ok(wanted));
        out.clear();
        write_call("sum", &Map::new(), &Map::new(), &mut out).unwrap();
        assert_eq!(
            &out[4..],
            br#"{"method":"call_tool","params":{"name":"sum","arguments":{}}}"#
        );
        let with_id = br#"{"id":7,"method":"call_tool","params":{"name":"sum"}}"#;
        assert_eq!(
            CallTool::parse(with_id),
            CallTool::parse(&out[4..]),
            "other fields are ignored, absent arguments are none"
        );
    }

    /// BR-6: a request of exactly the limit goes, one byte more does not.
    #[test]
    fn the_limit() {
        let mut out = Vec::new();
        write_call("t", &object(json!({"a": ""})), &Map::new(), &mut out).unwrap();
        let room = super::super::limits::MESSAGE_BYTES_MAX - (out.len() - 4);
        for (more, fits) in [(0, true), (1, false)] {
            out.clear();
            let arguments = object(json!({"a": "x".repeat(room + more)}));
            let written = write_call("t", &arguments, &Map::new(), &mut out);
            assert_eq!(written.is_ok(), fits);
        }
    }
}
