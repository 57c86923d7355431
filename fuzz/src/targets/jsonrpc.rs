//! JSON-RPC envelopes, whole and with the typed params of MCP. JR-1 to JR-4, R-2.

use callgate_wires::json;
use callgate_wires::jsonrpc::{
    Batch, Id, Malformed, Message, parse, parse_batch, write_notification, write_request,
    write_result,
};
use callgate_wires::mcp::{self, MODERN, Params, RawJson, RequestMeta, meta};
use serde_json::Value;

/// Messages of one batch.
const BATCH_MAX: usize = 8;

/// What is a message is the same one when written again and when alone in a batch; what is none
/// has one of three codes.
pub fn envelopes(input: &[u8]) {
    let batch = parse_batch(input, BATCH_MAX);
    match &batch {
        Batch::One(one) => {
            check(one);
            if let Ok(Message::Request { params, ours, .. }) = one {
                let plain: Value = serde_json::from_slice(input).unwrap();
                let members = [plain.get("params"), plain.get("callgate")];
                assert_eq!([params.as_ref(), ours.as_ref()], members);
            }
        }
        Batch::Many(many) => {
            assert!((1..=BATCH_MAX).contains(&many.len()));
            many.iter().for_each(check);
        }
    }
    // An array is a batch, and no message by itself.
    match (parse(input), batch) {
        (Ok(message), Batch::One(one)) => assert_eq!(Ok(message), one),
        (Err(malformed), Batch::One(Err(_)) | Batch::Many(_)) => check_code(&malformed),
        (alone, batch) => panic!("{alone:?} alone, {batch:?} in a batch"),
    }
}

fn check(one: &Result<Message, Malformed>) {
    match one {
        Err(malformed) => check_code(malformed),
        Ok(message) => {
            if let Message::Request { id, .. } | Message::Response { id, .. } = message {
                check_id(id);
            }
            if let Some(bytes) = written(message) {
                assert_eq!(parse(&bytes).as_ref(), Ok(message));
            }
        }
    }
}

fn check_code(malformed: &Malformed) {
    assert!([-32700, -32602, -32600].contains(&malformed.code));
    assert!(!malformed.message.is_empty());
    if let Some(id) = &malformed.id {
        check_id(id);
    }
}

fn check_id(id: &Id) {
    let value: Value = serde_json::from_str(id.as_json()).expect("an id is JSON");
    assert!(value.is_string() || value.is_number(), "{id:?}");
    assert_eq!(Id::from_json(id.as_json()).as_ref(), Some(id));
    assert_eq!(id.plain().plain(), id.plain());
}

/// The message as either side writes it; `None` for one that is not written in this form.
fn written(message: &Message) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match message {
        Message::Request {
            id,
            method,
            params: Some(params),
            ours,
        } => {
            write_request(id, method, params, &mut out);
            if let Some(ours) = ours {
                out.pop();
                out.extend_from_slice(b",\"callgate\":");
                json::write_value(ours, &mut out);
                out.push(b'}');
            }
        }
        Message::Notification {
            method,
            params: Some(params),
        } => write_notification(method, params, &mut out),
        Message::Response {
            id,
            result: Ok(result),
        } => write_result(id, result, &mut out),
        _ => return None,
    }
    Some(out)
}

/// A message of an MCP client is the same message with typed params as with a tree of values, and
/// its metadata is what stands in `_meta`.
pub fn mcp_requests(input: &[u8]) {
    let whole = parse(input);
    match (&whole, mcp::parse(input)) {
        (Ok(whole), Ok(typed)) => same_message(whole, &typed),
        (Err(whole), Err(typed)) => assert_eq!(whole, &typed),
        (whole, typed) => panic!("{whole:?} as values, {typed:?} as types"),
    }
    if let Ok(Message::Request {
        params: Some(params),
        ..
    }) = &whole
    {
        metadata(params);
    }
}

fn same_message(whole: &Message, typed: &mcp::Message) {
    match (whole, typed) {
        (
            Message::Request {
                id,
                method,
                params,
                ours,
            },
            Message::Request {
                id: typed_id,
                method: typed_method,
                params: typed_params,
                ours: typed_ours,
            },
        ) => {
            assert_eq!((id, method, ours), (typed_id, typed_method, typed_ours));
            same_params(method, params.as_ref(), typed_params.as_ref());
        }
        (
            Message::Notification { method, params },
            Message::Notification {
                method: typed_method,
                params: typed_params,
            },
        ) => {
            assert_eq!(method, typed_method);
            same_params(method, params.as_ref(), typed_params.as_ref());
        }
        (
            Message::Response { id, result },
            Message::Response {
                id: typed_id,
                result: typed_result,
            },
        ) => assert_eq!((id, result), (typed_id, typed_result)),
        (whole, typed) => panic!("{whole:?} as values, {typed:?} as types"),
    }
}

fn same_params(method: &str, whole: Option<&Value>, typed: Option<&Params>) {
    match (whole, typed) {
        (None, None) => {}
        (Some(whole), Some(Params::Other(typed))) => {
            assert_eq!(whole, typed);
            if method == "tools/call" {
                let read = mcp::read::<mcp::CallToolParams>(whole);
                assert!(read.is_err(), "well-formed params are read: {whole}");
            }
        }
        (Some(whole), Some(Params::CallTool(typed))) => {
            assert_eq!(method, "tools/call");
            let read: mcp::CallToolParams = mcp::read(whole).expect("they were read");
            assert_eq!(
                in_one_order(read),
                in_one_order((**typed).clone()),
                "{whole}"
            );
        }
        (whole, typed) => panic!("{whole:?} as values, {typed:?} as types"),
    }
}

/// Params whose description of the client has its members in one order. It is passed on as the bytes
/// that it came as, and a tree of values does not keep their order.
fn in_one_order(mut params: mcp::CallToolParams) -> mcp::CallToolParams {
    if let Some(client) = params.meta.client.take() {
        let client: Value = serde_json::from_str(client.get()).expect("it was read");
        params.meta.client = Some(RawJson::of(&client));
    }
    params
}

fn metadata(params: &Value) {
    let Ok(read) = RequestMeta::read(Some(params)) else {
        return;
    };
    let given = &params["_meta"];
    assert_eq!(read.progress_token.as_ref(), given.get("progressToken"));
    for (text, key) in [
        (&read.version, meta::VERSION),
        (&read.log_level, meta::LOG_LEVEL),
        (&read.idempotency_key, meta::KEY),
        (&read.lease_token, meta::LEASE),
    ] {
        assert_eq!(text.as_deref(), given[key].as_str(), "{params}");
    }
    if let Some((trace, span)) = read.trace() {
        for (id, length) in [(trace, 32), (span, 16)] {
            let is_hex = id.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(id.len() == length && is_hex, "{params}");
        }
    }
    if read.check_modern().is_ok() {
        assert_eq!(read.version.as_deref(), Some(MODERN));
        assert!(read.capabilities.is_some());
    }
}
