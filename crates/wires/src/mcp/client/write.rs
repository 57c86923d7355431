//! The messages that a client writes, each one line with its end.

use callgate_text::{write_decimal, write_json_text};
use serde_json::{Value, json};

use crate::jsonrpc::{
    Id, METHOD_NOT_FOUND, RpcError, open_result, write_error, write_notification, write_request,
};
use crate::mcp::HANDSHAKE;

/// Appends `initialize`, which proposes the newest revision that has a handshake and declares no
/// capability: the server has nothing to ask of this client.
pub fn write_initialize(id: u64, version: &str, out: &mut Vec<u8>) {
    let params = json!({
        "capabilities": {},
        "clientInfo": { "name": "callgate", "version": version },
        "protocolVersion": HANDSHAKE[0],
    });
    write_request(&Id::number(id), "initialize", &params, out);
    out.push(b'\n');
}

/// Appends `notifications/initialized`.
pub fn write_initialized(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
}

/// Appends a request for one page of a list: `tools/list`, `prompts/list` and their like.
pub fn write_list(id: u64, method: &str, cursor: Option<&str>, out: &mut Vec<u8>) {
    let params = match cursor {
        Some(cursor) => json!({ "cursor": cursor }),
        None => json!({}),
    };
    write_request(&Id::number(id), method, &params, out);
    out.push(b'\n');
}

/// Appends `tools/call`. `arguments` is JSON on one line; the id is the progress token too.
pub fn write_call(id: u64, tool: &str, arguments: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    write_decimal(id, out);
    out.extend_from_slice(b",\"method\":\"tools/call\",\"params\":{\"_meta\":{\"progressToken\":");
    write_decimal(id, out);
    out.extend_from_slice(b"},\"arguments\":");
    out.extend_from_slice(arguments.as_bytes());
    out.extend_from_slice(b",\"name\":");
    write_json_text(tool, out);
    out.extend_from_slice(b"}}\n");
}

/// Appends a request of any method: `prompts/get`, `resources/read` and their like. The id is the
/// progress token too.
pub fn write_method(id: u64, method: &str, params: &Value, out: &mut Vec<u8>) {
    let mut params = params.clone();
    if let Value::Object(params) = &mut params {
        params.insert("_meta".to_owned(), json!({ "progressToken": id }));
    }
    write_request(&Id::number(id), method, &params, out);
    out.push(b'\n');
}

/// Appends `notifications/cancelled` for a request of the client.
pub fn write_cancelled(id: u64, reason: &str, out: &mut Vec<u8>) {
    let params = json!({ "reason": reason, "requestId": id });
    write_notification("notifications/cancelled", &params, out);
    out.push(b'\n');
}

/// Appends the answer to a `ping` of the server.
pub fn write_pong(id: &Id, out: &mut Vec<u8>) {
    open_result(id, out);
    out.extend_from_slice(b"{}}\n");
}

/// Appends the refusal of a request that the client has not declared.
pub fn write_method_not_found(id: &Id, method: &str, out: &mut Vec<u8>) {
    /// A longer name is cut: the server knows what it asked for.
    const SHOWN_CHARS_MAX: usize = 64;
    let shown: String = method.chars().take(SHOWN_CHARS_MAX).collect();
    let error = RpcError::new(METHOD_NOT_FOUND, format!("`{shown}` is not supported"));
    write_error(Some(id), &error, out);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jsonrpc::{Message, parse};

    fn line(write: impl FnOnce(&mut Vec<u8>)) -> Message {
        let mut out = Vec::new();
        write(&mut out);
        let text = out.strip_suffix(b"\n").expect("one line");
        assert!(!text.contains(&b'\n'));
        parse(text).expect("a message")
    }

    #[test]
    fn what_is_written_is_json_rpc() {
        let initialize = line(|out| write_initialize(1, "1.2", out));
        let Message::Request {
            id, method, params, ..
        } = initialize
        else {
            panic!("no request")
        };
        assert_eq!((id, method.as_str()), (Id::number(1), "initialize"));
        let wanted = json!({
            "capabilities": {}, "clientInfo": { "name": "callgate", "version": "1.2" },
            "protocolVersion": "2025-11-25",
        });
        assert_eq!(params, Some(wanted));
        let call = line(|out| write_call(7, "a\"b", "{\"x\":1}", out));
        let Message::Request {
            id, method, params, ..
        } = call
        else {
            panic!("no request")
        };
        assert_eq!((id, method.as_str()), (Id::number(7), "tools/call"));
        let wanted = json!({
            "_meta": { "progressToken": 7 }, "arguments": { "x": 1 }, "name": "a\"b",
        });
        assert_eq!(params, Some(wanted));
        let get = line(|out| write_method(2, "prompts/get", &json!({ "name": "n" }), out));
        let Message::Request { params, .. } = get else {
            panic!("no request")
        };
        let wanted = json!({ "_meta": { "progressToken": 2 }, "name": "n" });
        assert_eq!(params, Some(wanted));
        for write in [
            (|out| write_list(2, "tools/list", Some("c"), out)) as fn(&mut Vec<u8>),
            |out| write_list(2, "prompts/list", None, out),
        ] {
            assert!(matches!(line(write), Message::Request { .. }));
        }
        for write in [(|out| write_initialized(out)) as fn(&mut Vec<u8>), |out| {
            write_cancelled(3, "timed out", out)
        }] {
            assert!(matches!(line(write), Message::Notification { .. }));
        }
        let ours = Id::text("s-1");
        for write in [
            (|id, out| write_pong(id, out)) as fn(&Id, &mut Vec<u8>),
            |id, out| write_method_not_found(id, "roots/list", out),
        ] {
            let answer = line(|out| write(&ours, out));
            assert!(matches!(answer, Message::Response { id, .. } if id == ours));
        }
    }
}
