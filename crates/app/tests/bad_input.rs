//! Bad input on every entry: a clear error, nothing run, nothing lost. What the decoders make
//! of mutated bytes is tested where they live.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::support::drive::{
    Host, PATIENCE, Ran, Serve, chain, exchange, post_bytes, raw_exchange, run_with, verified,
};
use crate::support::workspace::{effects, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

const LIMIT: usize = 10 * 1024 * 1024;

const CONFIG: &str = r#"
[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
input_schema = { type = "object", properties = { text = { type = "string" }, n = { type = "integer", minimum = 0 }, pad = {}, deep = {} }, required = ["text"], additionalProperties = false }
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

const APPEND: &str = r#"
cat > /dev/null
echo ran >> effects.log
echo '{"appended":true}'
"#;

const AID: &str = "AID.TEST.APPEND.v1";

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

/// Texts that are no JSON a wire takes, whatever is around them. G-1.
fn broken_json() -> Vec<Vec<u8>> {
    let deep = |depth: usize| format!("{{\"a\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
    let texts: [&[u8]; 22] = [
        b"{",
        b"}",
        b"{\"aid\"",
        b"{\"aid\":}",
        b"{'aid':'x'}",
        b"{\"aid\":\"x\",}",
        b"{\"aid\":\"x\"} {}",
        b"{\"aid\":\"x\"}x",
        b"// words\t{}",
        b"{\"aid\":NaN}",
        b"{\"aid\":Infinity}",
        b"{\"aid\":1e999}",
        b"{\"aid\":01}",
        b"{\"aid\":\"\\ud800\"}",
        b"{\"aid\":\"\\x41\"}",
        b"{\"aid\":\"\xff\"}",
        b"{\"\xc3\x28\":1}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":1,\"a\":2}",
        b"{\"a\":{\"b\":1,\"\\u0062\":2}}",
        b"nul",
        b"{\"aid\":\"tab\there\"}",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
    all.push(deep(200).into_bytes());
    all.push("[".repeat(1 << 20).into_bytes());
    all.push("{\"a\":".repeat(1 << 18).into_bytes());
    all
}

/// Requests that are JSON and still can not be taken by the toolhost; with words of the error.
fn wrong_requests() -> Vec<(Value, &'static str)> {
    let with = |name: &str, value: Value| {
        let mut request = json!({ "aid": AID, "inputs": { "text": "x" } });
        request[name] = value;
        request
    };
    vec![
        (with("input_json", json!("{}")), "exclude each other"),
        (with("inputs", json!([1])), "inputs must be an object"),
        (with("inputs", json!("{}")), "inputs must be an object"),
        (
            with("idempotency_key", json!(7)),
            "idempotency_key must be a string",
        ),
        (
            with("_lease_token", json!({})),
            "_lease_token must be a string",
        ),
        (with("ds_state", json!([])), "ds_state"),
        (with("ds_state", json!({ "slots": { "256": {} } })), "256"),
        (with("ds_state", json!({ "slots": { "07": {} } })), "07"),
        (with("ds_state", json!({ "slots": { "1": 1 } })), "slot 1"),
        (
            with("ds_state", json!({ "removed_slots": [1] })),
            "removed_slots",
        ),
        (with("ds_state", json!({ "delta": 1 })), "delta"),
        (
            json!({ "aid": AID, "input_json": { "text": "x" } }),
            "input_json must be a string",
        ),
        (
            json!({ "aid": AID, "input_json": 5 }),
            "input_json must be a string",
        ),
    ]
}

/// Inputs that do not fit the tool's schema; with the field that is told.
fn wrong_inputs() -> Vec<(Value, &'static str)> {
    vec![
        (json!({}), "text"),
        (json!({ "text": 1 }), "text"),
        (json!({ "text": null }), "text"),
        (json!({ "text": "x", "n": -1 }), "n"),
        (json!({ "text": "x", "n": "1" }), "n"),
        (json!({ "text": "x", "n": 1.5 }), "n"),
        (json!({ "text": "x", "other": 1 }), "other"),
    ]
}

/// A request whose text has exactly so many bytes.
fn padded(around: impl Fn(&str) -> String, bytes: usize) -> Vec<u8> {
    let empty = around("").len();
    let text = around(&"p".repeat(bytes - empty)).into_bytes();
    assert_eq!(text.len(), bytes);
    text
}

fn with_pad(pad: &str) -> String {
    format!("{{\"aid\":\"{AID}\",\"inputs\":{{\"text\":\"x\",\"pad\":\"{pad}\"}}}}")
}

fn input_json(text: &str) -> Value {
    json!({ "aid": AID, "input_json": text })
}

/// G-1, T-1, T-24, T-25, TH-28, TH-29, TH-33 to TH-36, TH-39, TH-40, TH-42: on `--serve` every bad
/// line gets its one error line, and the good line after it is served.
#[test]
fn on_serve() {
    let folder = workspace();
    let mut host = Host::start(&folder, folder.path().to_str().expect("a text path"));
    let good = json!({ "aid": AID, "inputs": { "text": "x" } });
    let mut goods = 0;
    let mut check = |line: &[u8], what: &str| {
        assert!(host.send_bytes(line) && host.send_bytes(b"\n"));
        let reply = host.reply();
        assert_eq!(host.ask(&good)["status"], "OK", "after {what}");
        goods += 1;
        reply
    };
    for text in broken_json() {
        let shown = String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
        let reply = check(&text, &shown);
        let told = (&reply["ok"], &reply["error"]);
        assert_eq!(
            told,
            (&json!(false), &json!("invalid JSON")),
            "{shown}: {reply}"
        );
        assert!(
            reply["detail"]
                .as_str()
                .is_some_and(|words| !words.is_empty()),
            "{reply}"
        );
    }
    for text in [" ", "\r", "null", "\t \t"] {
        assert_eq!(
            check(text.as_bytes(), text)["error"],
            "invalid JSON",
            "{text:?}"
        );
    }
    for text in [
        "[]",
        "1",
        "\"x\"",
        "true",
        "{}",
        "{\"aid\":\"\"}",
        "{\"aid\":7}",
        "{\"aid\":null}",
    ] {
        assert_eq!(
            check(text.as_bytes(), text)["error"],
            "missing aid",
            "{text}"
        );
    }
    for (request, words) in wrong_requests() {
        let reply = check(request.to_string().as_bytes(), words);
        assert_eq!(reply["ok"], false, "{request}: {reply}");
        assert!(
            reply["error"].as_str().is_some_and(|e| e.contains(words)),
            "{request}: {reply}"
        );
    }
    for (input, field) in wrong_inputs() {
        for request in [
            json!({ "aid": AID, "inputs": input }),
            input_json(&input.to_string()),
        ] {
            let reply = check(request.to_string().as_bytes(), field);
            let told = (&reply["ok"], &reply["status"]);
            assert_eq!(
                told,
                (&json!(true), &json!("INVALID_PICK")),
                "{request}: {reply}"
            );
            let error = reply["error"].as_str().unwrap_or_default();
            assert!(error.contains(field), "{request}: {reply}");
        }
    }
    // JSON inside JSON: what is inside is read as strictly.
    for text in broken_json() {
        let Ok(text) = String::from_utf8(text) else {
            continue;
        };
        let reply = check(input_json(&text).to_string().as_bytes(), "input_json");
        let told = (&reply["ok"], &reply["status"]);
        assert_eq!(told, (&json!(true), &json!("INVALID_PICK")), "{reply}");
    }
    let unknown = check(br#"{"aid":"AID.TEST.NOBODY.v1"}"#, "unknown");
    assert_eq!(
        unknown,
        json!({ "ok": false, "error": "tool not found: AID.TEST.NOBODY.v1" })
    );
    // Depth, at the edge and past it; the request is one level, the input the next.
    let deep = |depth: usize| {
        let inside = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!("{{\"aid\":\"{AID}\",\"inputs\":{{\"text\":\"x\",\"deep\":{inside}}}}}")
    };
    assert_eq!(check(deep(30).as_bytes(), "32 levels")["status"], "OK");
    assert_eq!(
        check(deep(31).as_bytes(), "33 levels")["error"],
        "invalid JSON"
    );
    // Unknown fields are ignored, up to a bound.
    let many = |count: usize| {
        let fields: String = (0..count).map(|n| format!(",\"f{n}\":{n}")).collect();
        format!("{{\"aid\":\"{AID}\",\"inputs\":{{\"text\":\"x\"}}{fields}}}")
    };
    assert_eq!(check(many(64).as_bytes(), "64 fields")["status"], "OK");
    assert_eq!(
        check(many(65).as_bytes(), "65 fields")["error"],
        "invalid JSON"
    );
    // 10 MiB and one byte.
    assert_eq!(
        check(&padded(with_pad, LIMIT - 1), "one below")["status"],
        "OK"
    );
    assert_eq!(check(&padded(with_pad, LIMIT), "10 MiB")["status"], "OK");
    let reply = check(&padded(with_pad, LIMIT + 1), "one byte more");
    assert_eq!(
        reply,
        json!({ "ok": false, "error": "line exceeds 10MB limit" })
    );
    let reply = check(&vec![b'x'; 3 * LIMIT], "30 MiB");
    assert_eq!(reply["error"], "line exceeds 10MB limit");
    assert!(host.end().success());
    nothing_else_ran(&folder, goods + 4);
}

/// G-1, T-1, T-8, TH-13, TH-14, TH-17, TH-19, TH-28, TH-29, TH-34: the same on `--run` and
/// `tool_exec`, where the exit code tells too.
#[test]
fn on_run_and_tool_exec() {
    let folder = workspace();
    let place = folder.path().to_str().expect("a text path");
    let run = |exec: bool, request: &[u8]| -> Ran {
        let mut command = callgate(&folder);
        match exec {
            true => command.args(["tool_exec", AID]),
            false => command.args(["toolhost", "--run", place, AID]),
        };
        run_with(&mut command, request)
    };
    let refused = |exec: bool, request: &[u8], words: &str| {
        let ran = run(exec, request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        assert_eq!(ran.code(), 5, "{shown}: {ran:?}");
        let reply = ran.json();
        assert_eq!(reply["ok"], false, "{shown}: {reply}");
        assert!(
            reply["error"].as_str().is_some_and(|e| e.contains(words)),
            "{shown}: {reply}"
        );
        let status = if exec {
            json!("TOOL_ERROR")
        } else {
            Value::Null
        };
        assert_eq!(reply["status"], status, "{shown}: {reply}");
    };
    for exec in [false, true] {
        let not_json = if exec {
            "invalid JSON on stdin"
        } else {
            "invalid JSON request on stdin"
        };
        let others =
            ["", " ", "null", "[]", "7", "\"x\"", "{}\n{}"].map(|text| text.as_bytes().to_vec());
        for text in broken_json().into_iter().chain(others) {
            refused(exec, &text, not_json);
        }
        for (request, words) in wrong_requests() {
            refused(exec, request.to_string().as_bytes(), words);
        }
        let other = json!({ "aid": "AID.TEST.OTHER.v1", "inputs": { "text": "x" } });
        refused(exec, other.to_string().as_bytes(), "another aid");
        for (input, field) in wrong_inputs() {
            let reply = run(exec, json!({ "inputs": input }).to_string().as_bytes())
                .good()
                .json();
            assert_eq!(reply["status"], "INVALID_PICK", "{reply}");
            assert!(
                reply["error"].as_str().is_some_and(|e| e.contains(field)),
                "{reply}"
            );
        }
        refused(
            exec,
            &padded(with_pad, LIMIT + 1),
            "stdin exceeds 10MB limit",
        );
        refused(exec, &vec![b' '; LIMIT + 1], "stdin exceeds 10MB limit");
    }
    nothing_else_ran(&folder, 0);
    for exec in [false, true] {
        let reply = run(exec, &padded(with_pad, LIMIT)).good().json();
        assert_eq!(reply["status"], "OK", "{reply}");
    }
    nothing_else_ran(&folder, 2);
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

/// TH-44, D-6: a stream of good and bad lines, cut at every place of its first lines and in many
/// pieces, gets the same replies each time.
#[test]
fn every_cut_of_the_stream() {
    let folder = workspace();
    let echo = |n: usize| format!("{{\"aid\":\"AID.BUILTIN.ECHO.v1\",\"inputs\":{{\"n\":{n}}}}}\n");
    let stream = [
        echo(1),
        "broken\n".into(),
        echo(2),
        "{\"aid\":7}\n".into(),
        "é\n".into(),
        echo(3),
    ]
    .concat();
    let bytes = stream.as_bytes();
    let mut host = Host::start(&folder, "builtin");
    let mut pass = |pieces: &[&[u8]]| -> Vec<Value> {
        for piece in pieces {
            assert!(host.send_bytes(piece));
        }
        (0..6).map(|_| host.reply()).collect()
    };
    let wanted = pass(&[bytes]);
    assert_eq!(wanted[0]["output_json"], "{\"n\":1}");
    assert_eq!(wanted[5]["output_json"], "{\"n\":3}");
    for cut in 0..=bytes.len() {
        assert_eq!(
            pass(&[&bytes[..cut], &bytes[cut..]]),
            wanted,
            "cut at {cut}"
        );
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(pass(&single), wanted, "byte by byte");
    assert!(host.end().success());
    verified(&folder);
}
