//! Bad input on the toolhost: a clear error, nothing run, nothing lost. What the decoders make of
//! mutated bytes is tested where they live.

use callgate_testing::bad_input::{AID, APPEND, CONFIG, broken_json, padded, wrong_inputs};
use callgate_testing::scripts::effects;
use callgate_wires::toolhost::Entry;
use serde_json::{Value, json};

use crate::support::host::{Host, run_once};
use callgate_testing_workspace::{Folder, records, trusted_with, verified};

const LIMIT: usize = 10 * 1024 * 1024;

fn workspace() -> Folder {
    trusted_with(&[("callgate.toml", CONFIG), ("append.sh", APPEND)])
}

/// As many starts as effects, and every bad input left neither.
fn nothing_else_ran(folder: &Folder, good: usize) {
    verified(folder);
    assert_eq!(effects(folder), good);
    let starts = records(folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .count();
    assert_eq!(starts, good);
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
    let mut host = Host::toolhost(&folder);
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
    host.end();
    nothing_else_ran(&folder, goods + 4);
}

/// G-1, T-1, T-8, TH-13, TH-14, TH-17, TH-19, TH-28, TH-29, TH-34: the same on `--run` and
/// `tool_exec`, where the exit code tells too.
#[test]
fn on_run_and_tool_exec() {
    let folder = workspace();
    let run = |exec: bool, request: &[u8]| -> (u8, Value) {
        let entry = if exec { Entry::ToolExec } else { Entry::Run };
        let answered = run_once(&folder, entry, AID, request);
        let reply = serde_json::from_slice(&answered.bytes).expect("a reply");
        (answered.code, reply)
    };
    let refused = |exec: bool, request: &[u8], words: &str| {
        let (code, reply) = run(exec, request);
        let shown = String::from_utf8_lossy(&request[..request.len().min(80)]).into_owned();
        assert_eq!(code, 5, "{shown}: {reply}");
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
            let (code, reply) = run(exec, json!({ "inputs": input }).to_string().as_bytes());
            assert_eq!(code, 0, "{reply}");
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
        let (code, reply) = run(exec, &padded(with_pad, LIMIT));
        assert_eq!((code, &reply["status"]), (0, &json!("OK")), "{reply}");
    }
    nothing_else_ran(&folder, 2);
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
    let mut host = Host::toolhost_builtins(&folder);
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
    host.end();
    verified(&folder);
}
