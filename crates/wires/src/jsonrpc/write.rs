//! What is said by JSON-RPC: results, errors, notifications and requests, as bytes.

use callgate_text::write_json_text;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Id;
use crate::json;

/// An error as it is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    /// What kind.
    pub code: i32,
    /// For people.
    pub message: String,
    /// For programs.
    pub data: Option<Value>,
}

impl RpcError {
    /// Without data.
    #[must_use]
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// With data.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// With one more member of the data, which is an object or nothing.
    #[must_use]
    pub fn with_member(mut self, name: &str, value: Value) -> Self {
        let data = self.data.get_or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(members) = data {
            members.insert(name.to_owned(), value);
        }
        self
    }
}

/// Appends `{"jsonrpc":"2.0","id":…,"result":` for a result that follows; close with `}`.
pub fn open_result(id: &Id, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"result\":");
}

/// Appends a whole result.
pub fn write_result(id: &Id, result: &Value, out: &mut Vec<u8>) {
    open_result(id, out);
    json::write_value(result, out);
    out.push(b'}');
}

/// Appends a whole error; without an id where there was none to read.
pub fn write_error(id: Option<&Id>, error: &RpcError, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.map_or("null", Id::as_json).as_bytes());
    out.extend_from_slice(b",\"error\":");
    write_error_object(error, out);
    out.push(b'}');
}

/// Appends the object alone.
pub fn write_error_object(error: &RpcError, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"code\":");
    out.extend_from_slice(error.code.to_string().as_bytes());
    out.extend_from_slice(b",\"message\":");
    write_json_text(&error.message, out);
    if let Some(data) = &error.data {
        out.extend_from_slice(b",\"data\":");
        json::write_value(data, out);
    }
    out.push(b'}');
}

/// Appends a notification.
pub fn write_notification<P: Serialize + ?Sized>(method: &str, params: &P, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_json_text(method, out);
    out.extend_from_slice(b",\"params\":");
    json::write(params, out);
    out.push(b'}');
}

/// Appends a request of ours.
pub fn write_request<P: Serialize + ?Sized>(id: &Id, method: &str, params: &P, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_json().as_bytes());
    out.extend_from_slice(b",\"method\":");
    write_json_text(method, out);
    out.extend_from_slice(b",\"params\":");
    json::write(params, out);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::super::{Message, PARSE_ERROR, parse};
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_reads_back() {
        let mut out = Vec::new();
        let error = RpcError::new(-32602, "no \"name\"").with(json!({"a": 1}));
        write_error(Some(&Id::number(3)), &error, &mut out);
        let wanted = json!({"code": -32602, "message": "no \"name\"", "data": {"a": 1}});
        assert_eq!(
            parse(&out),
            Ok(Message::Response {
                id: Id::number(3),
                result: Err(wanted)
            })
        );
        out.clear();
        write_error(None, &RpcError::new(PARSE_ERROR, "x"), &mut out);
        assert_eq!(
            out,
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#
        );
        out.clear();
        write_request(&Id::number(1), "m", &json!({"p": []}), &mut out);
        assert!(matches!(parse(&out), Ok(Message::Request { .. })));
        out.clear();
        write_notification("m", &json!({}), &mut out);
        assert!(matches!(parse(&out), Ok(Message::Notification { .. })));
        out.clear();
        write_result(&Id::number(1), &json!({"r": 1}), &mut out);
        assert!(matches!(parse(&out), Ok(Message::Response { .. })));
    }
}
