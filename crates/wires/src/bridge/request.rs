//! `call_tool`, the one request there is.

use std::collections::BTreeSet;

use callgate_text::write_json_text;
use serde::de::MapAccess;
use serde_json::{Map, Value};

use super::answer::{IPC_ERROR, Said, VALUE_ERROR};
use super::frame::{FrameError, close_frame, open_frame};
use crate::json::quick::Quick;
use crate::json::{self, Key, Members, ObjectOr, Strict};
use crate::jsonrpc::RpcError;
use crate::mcp::{self, RequestMeta, read_meta};

/// One call, as a bridge asks for it.
#[derive(Debug, PartialEq)]
pub struct CallTool {
    /// `params.name`.
    pub name: String,
    /// `params.arguments`; an empty object where there are none.
    pub arguments: Map<String, Value>,
    /// `params._meta`, if there is some, for a parent that is a Callgate; or why it can not be
    /// read, which is no concern of other parents.
    pub meta: Option<Result<RequestMeta, RpcError>>,
}

impl CallTool {
    /// Reads a payload. A payload that is none is answered by what comes back. B-5.
    pub fn parse(payload: &[u8]) -> Result<Self, Said> {
        match Self::quickly(payload) {
            Some(call) => Ok(call),
            None => Self::by_the_library(payload),
        }
    }

    /// One with nothing unusual to it.
    fn quickly(payload: &[u8]) -> Option<Self> {
        const INSIDE: usize = json::DEPTH_MAX - 2;
        let (mut has_method, mut has_params) = (false, false);
        let (mut name, mut arguments, mut meta) = (None, None, None);
        let mut others = BTreeSet::new();
        let mut quick = Quick::new(payload)?;
        quick.members(|quick, member| match member {
            "method" if !std::mem::replace(&mut has_method, true) => {
                (quick.plain()? == "call_tool").then_some(())
            }
            "params" if !std::mem::replace(&mut has_params, true) => {
                quick.members(|quick, member| {
                    let is_first = match member {
                        "name" => name.replace(quick.plain()?).is_none(),
                        "arguments" => arguments.replace(quick.value(INSIDE)?).is_none(),
                        "_meta" => meta.replace(Ok(read_meta(quick, INSIDE)?)).is_none(),
                        other => {
                            quick.raw_value(INSIDE)?;
                            others.insert(other)
                        }
                    };
                    is_first.then_some(())
                })
            }
            _ => None,
        })?;
        quick.end()?;
        let arguments = match arguments {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return None,
        };
        Some(Self {
            name: name.filter(|_| has_method)?.to_owned(),
            arguments,
            meta,
        })
    }

    fn by_the_library(payload: &[u8]) -> Result<Self, Said> {
        let message = json::parse_with(payload, ObjectOr(STRICT, Message))
            .map_err(|error| Said::new(IPC_ERROR, format!("Invalid JSON: {error}")))?;
        let Ok((method, params)) = message else {
            return Err(Said::new(IPC_ERROR, "Invalid message: expected dict"));
        };
        match method {
            Some(Value::String(method)) if method == "call_tool" => {}
            Some(Value::String(method)) => return Err(unknown_method(&method)),
            None | Some(Value::Null) => return Err(unknown_method("None")),
            Some(other) => return Err(unknown_method(&other.to_string())),
        }
        let Some(Ok((name, arguments, meta))) = params else {
            return Err(Said::new(VALUE_ERROR, "Invalid params: expected dict"));
        };
        let Some(Value::String(name)) = name else {
            return Err(Said::new(VALUE_ERROR, "Invalid tool name: expected string"));
        };
        let arguments = match arguments {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Said::new(VALUE_ERROR, "Invalid arguments: expected dict")),
        };
        let meta = meta.map(|meta| match meta {
            Value::Object(members) => RequestMeta::of(members),
            _ => Err(mcp::invalid("_meta must be an object")),
        });
        Ok(Self {
            name,
            arguments,
            meta,
        })
    }
}

const STRICT: Strict = Strict {
    depth_left: json::DEPTH_MAX,
};

/// `method`, and `params` if that is an object.
struct Message;

impl<'de> Members<'de> for Message {
    type Out = (
        Option<Value>,
        Option<Result<<Params as Members<'de>>::Out, Value>>,
    );

    fn read<A: MapAccess<'de>>(
        self,
        mut members: A,
        inside: Strict,
    ) -> Result<Self::Out, A::Error> {
        let (mut method, mut params, mut others) = (None, None, Map::new());
        while let Some(key) = members.next_key_seed(Key)? {
            let is_first = match key.as_ref() {
                "method" => method.replace(members.next_value_seed(inside)?).is_none(),
                "params" => {
                    let value = members.next_value_seed(ObjectOr(inside, Params))?;
                    params.replace(value).is_none()
                }
                other => {
                    // Ignored, but looked at as closely as the rest.
                    members.next_value_seed(inside)?;
                    others.insert(other.to_owned(), Value::Null).is_none()
                }
            };
            if !is_first {
                return Err(json::duplicate(&key));
            }
        }
        Ok((method, params))
    }
}

/// `name`, `arguments` and `_meta`.
struct Params;

impl<'de> Members<'de> for Params {
    type Out = (Option<Value>, Option<Value>, Option<Value>);

    fn read<A: MapAccess<'de>>(
        self,
        mut members: A,
        inside: Strict,
    ) -> Result<Self::Out, A::Error> {
        let (mut name, mut arguments, mut meta) = (None, None, None);
        let mut others = Map::new();
        while let Some(key) = members.next_key_seed(Key)? {
            let value = members.next_value_seed(inside)?;
            let before = match key.as_ref() {
                "name" => name.replace(value),
                "arguments" => arguments.replace(value),
                "_meta" => meta.replace(value),
                other => others.insert(other.to_owned(), Value::Null),
            };
            if before.is_some() {
                return Err(json::duplicate(&key));
            }
        }
        Ok((name, arguments, meta))
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
    write_json_text(name, out);
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
            meta: Some(RequestMeta::of(meta)),
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

    /// What is read quickly is what the library reads.
    #[test]
    fn agrees_with_the_library() {
        let payloads = [
            r#"{"method":"call_tool","params":{"name":"t","arguments":{"a":1}}}"#,
            r#"{"params":{"_meta":{"k":"v"},"name":"t"},"method":"call_tool"}"#,
            r#"{"method":"call_tool","params":{"name":"t","_meta":{"callgate/idempotencyKey":"k"},"x":{"y":1}}}"#,
        ];
        for payload in payloads {
            assert!(CallTool::quickly(payload.as_bytes()).is_some(), "{payload}");
        }
        json::quick::tests::mutated(&payloads, |payload| {
            if let Some(call) = CallTool::quickly(payload) {
                let shown = String::from_utf8_lossy(payload);
                assert_eq!(Ok(call), CallTool::by_the_library(payload), "{shown}");
            }
        });
    }

    /// G-1, B-5: what is not looked up later is read as strictly as the rest.
    #[test]
    fn strict_everywhere() {
        for payload in [
            r#"{"method":"call_tool","method":"call_tool","params":{"name":"t"}}"#,
            r#"{"method":"call_tool","params":{"name":"t"},"params":{"name":"t"}}"#,
            r#"{"method":"call_tool","params":{"name":"t","name":"t"}}"#,
            r#"{"method":"call_tool","params":{"name":"t","arguments":{},"arguments":{}}}"#,
            r#"{"method":"call_tool","params":{"name":"t","x":1,"x":1}}"#,
            r#"{"method":"call_tool","params":{"name":"t"},"x":1,"x":1}"#,
            r#"{"method":"call_tool","params":{"name":"t"},"x":{"y":1,"y":1}}"#,
            r#"{"method":"call_tool","params":{"name":"t"}} {}"#,
        ] {
            let said = CallTool::parse(payload.as_bytes()).unwrap_err();
            assert!(said.message.starts_with("Invalid JSON: "), "{payload}");
        }
        let nested = |depth: usize| {
            let (open, close) = ("[".repeat(depth - 3), "]".repeat(depth - 3));
            let arguments = format!("{{\"a\":{open}{close}}}");
            let params = format!("{{\"name\":\"t\",\"arguments\":{arguments}}}");
            format!("{{\"method\":\"call_tool\",\"params\":{params}}}")
        };
        assert!(CallTool::parse(nested(json::DEPTH_MAX).as_bytes()).is_ok());
        assert!(CallTool::parse(nested(json::DEPTH_MAX + 1).as_bytes()).is_err());
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
