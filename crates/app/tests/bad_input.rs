//! Bad input on the gate's socket: a clear error, nothing run, nothing lost. The toolhost is tested
//! in `doors`, and what the decoders make of mutated bytes where they live.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use callgate_testing::bad_input::{APPEND, CONFIG, broken_json, padded, wrong_inputs};
use serde_json::{Value, json};

use crate::support::Folder;
use crate::support::drive::{PATIENCE, Serve, chain, exchange, post_bytes, raw_exchange, verified};
use crate::support::workspace::{effects, trusted_with};

fn workspace() -> Folder {
    trusted_with(&[("callgate.toml", CONFIG), ("append.sh", APPEND)])
}

/// As many starts as effects, and every bad input left neither.
fn nothing_else_ran(folder: &Folder, good: usize) {
    verified(folder);
    assert_eq!(effects(folder), good);
    let starts = chain(folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .count();
    assert_eq!(starts, good);
}

/// G-1, F-2, F-3: the same on `POST /v1/call`, whose unknown fields are told; and HTTP that is
/// none.
#[test]
fn on_the_gate() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let good = json!({ "tool": "append", "input": { "text": "x" } });
    let ask = |body: &[u8]| exchange(&serve.socket, &post_bytes(body));
    let refused = |body: &[u8], words: &str| {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (status, reply) = ask(body).unwrap_or_else(|| panic!("no answer to {shown}"));
        let told = (status, &reply["ok"], &reply["fault"]["kind"]);
        assert_eq!(
            told,
            (400, &json!(false), &json!("bad_request")),
            "{shown}: {reply}"
        );
        let message = reply["fault"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{shown}: {reply}");
    };
    for text in broken_json() {
        refused(&text, "not JSON");
    }
    refused(b"", "not JSON");
    for text in ["null", "[]", "7", "\"x\""] {
        refused(text.as_bytes(), "must be an object");
    }
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body.to_string().into_bytes()
    };
    refused(br#"{"input":{}}"#, "`tool` is required");
    refused(&with("tool", json!(7)), "`tool` must be a string");
    refused(
        &with("idempotency_key", json!(7)),
        "`idempotency_key` must be a string",
    );
    refused(
        &with("lease_token", json!([])),
        "`lease_token` must be a string",
    );
    refused(&with("trace_id", json!({})), "`trace_id` must be a string");
    refused(
        &with("timeout_ms", json!("1")),
        "`timeout_ms` must be a whole number",
    );
    refused(
        &with("timeout_ms", json!(0)),
        "`timeout_ms` must be a whole number",
    );
    refused(
        &with("timeout_ms", json!(1.5)),
        "`timeout_ms` must be a whole number",
    );
    refused(
        &with("idempotency_keys", json!("x")),
        "unknown field `idempotency_keys`",
    );
    for (input, field) in wrong_inputs() {
        let reply = serve.call(&json!({ "tool": "append", "input": input }));
        assert_eq!(reply["fault"]["kind"], "bad_input", "{reply}");
        assert!(
            reply["fault"]["message"]
                .as_str()
                .is_some_and(|m| m.contains(field)),
            "{reply}"
        );
    }
    for input in [json!([]), json!(7), json!("x")] {
        let reply = serve.call(&json!({ "tool": "append", "input": input }));
        assert_eq!(reply["fault"]["kind"], "bad_input", "{reply}");
    }
    nothing_else_ran(&folder, 0);

    // 128 levels here.
    let deep = |depth: usize| {
        let inside = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!("{{\"tool\":\"append\",\"input\":{{\"text\":\"x\",\"deep\":{inside}}}}}")
    };
    assert_eq!(ask(deep(126).as_bytes()).expect("an answer").1["ok"], true);
    refused(deep(127).as_bytes(), "nested too deep");
    not_http(&serve);
    for (method, path) in [
        ("GET", "/v1/call"),
        ("PUT", "/v1/call"),
        ("POST", "/v1/tools"),
    ] {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: g\r\nconnection: close\r\n\r\n");
        let (status, reply) = exchange(&serve.socket, head.as_bytes()).expect("an answer");
        assert!(matches!(status, 404 | 405), "{method} {path}: {status}");
        assert!(
            reply["fault"]["message"]
                .as_str()
                .is_some_and(|m| m.contains("POST /v1/call"))
        );
    }
    for path in ["/none", "/v1", "/v1/calls", "/../v1/call"] {
        assert_eq!(serve.get(path).0, 404, "{path}");
    }
    assert_eq!(serve.call(&good)["ok"], true);
    assert_eq!(serve.get("/v1/health").1["ok"], true);
    assert!(serve.stop().success());
    nothing_else_ran(&folder, 2);
}

/// F-17: a body of 16 MiB is taken, and one byte more is refused in the gate's own words.
#[test]
fn a_body_over_the_limit() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let pad = |pad: &str| {
        format!("{{\"tool\":\"append\",\"input\":{{\"text\":\"x\",\"pad\":\"{pad}\"}}}}")
    };
    let ask = |bytes| raw_exchange(&serve.socket, &post_bytes(&padded(pad, bytes)));
    let body_max = 16 * 1024 * 1024;
    let taken = ask(body_max).expect("an answer");
    assert!(
        taken.starts_with(b"HTTP/1.1 200 "),
        "{}",
        String::from_utf8_lossy(&taken)
    );
    let refused = ask(body_max + 1).expect("an answer");
    let refused = String::from_utf8_lossy(&refused);
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
    let body = refused.split_once("\r\n\r\n").expect("a body").1;
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {refused}"));
    assert_eq!(body["fault"]["kind"], "too_large", "{body}");
    assert!(serve.stop().success());
    nothing_else_ran(&folder, 1);
}

/// Bytes that are no HTTP, requests that stop in the middle, and a caller that says nothing: the
/// gate refuses or waits, and goes on serving the others.
fn not_http(serve: &Serve) {
    for bytes in [
        b"\x00\xff\xfe garbage\r\n\r\n".as_slice(),
        b"POST\r\n\r\n",
        b"POST /v1/call HTTP/9.9\r\n\r\n",
        b"POST /v1/call HTTP/1.1\r\ncontent-length: many\r\n\r\n{}",
        b"POST /v1/call HTTP/1.1\r\ncontent-length: -1\r\n\r\n{}",
        b"POST /v1/call HTTP/1.1\r\nhost: g\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}}",
        b"POST /v1/call HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let answer = raw_exchange(&serve.socket, bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&answer);
        let shown = String::from_utf8_lossy(bytes);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 4"),
            "{shown}: {text}"
        );
    }
    let lines = "x: y\r\n".repeat(100_000);
    let head = format!("GET /v1/health HTTP/1.1\r\n{lines}\r\n");
    let answer = raw_exchange(&serve.socket, head.as_bytes()).unwrap_or_default();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"));
    // Half a request, held open.
    let mut half = UnixStream::connect(&serve.socket).expect("connect");
    half.write_all(b"POST /v1/call HTTP/1.1\r\ncontent-length: 100\r\n\r\n{\"tool\"")
        .expect("write");
    let silent = UnixStream::connect(&serve.socket).expect("connect");
    assert_eq!(serve.get("/v1/health").1["ok"], true);
    drop(silent);
    half.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    half.shutdown(std::net::Shutdown::Write).expect("hang up");
    let mut rest = Vec::new();
    let _ = half.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"));
}
