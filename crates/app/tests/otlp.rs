//! Spans with a real collector, with none, and with one that never answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::support::drive::{PATIENCE, cli, raw_exchange};
use crate::support::web::{Web, nobody};
use crate::support::workspace::{TOOL, trusted_with};
use crate::support::{Folder, wait_for};
use serde_json::{Value, json};

/// A collector: what it was sent, head and body.
fn collector() -> (u16, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a connection"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).expect("a line") > 0 {}
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("the body");
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            reader.get_mut().write_all(answer).expect("answer");
            let body = serde_json::from_slice(&body).expect("JSON");
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (port, receiver)
}

fn folder(port: u16) -> Folder {
    let config = format!(
        r#"
[[tool]]
name = "one"
writes = ["."]
code = ["tool.sh"]
runner = {{ kind = "process", command = ["/bin/sh", "tool.sh"] }}

[telemetry]
otlp = "http://127.0.0.1:{port}/base"
headers_env = "COLLECTOR"
"#
    );
    trusted_with(&[("callgate.toml", &config), ("tool.sh", TOOL)])
}

fn start(folder: &Folder) -> Web {
    Web::start_with(folder, |command| {
        command.env("COLLECTOR", "x-key=k1");
    })
}

fn spans(body: &Value) -> Vec<Value> {
    let spans = body.pointer("/resourceSpans/0/scopeSpans/0/spans");
    spans.and_then(Value::as_array).expect("spans").clone()
}

fn attribute(span: &Value, key: &str) -> Option<String> {
    let all = span["attributes"].as_array().expect("attributes");
    let found = all.iter().find(|one| one["key"] == key)?;
    Some(found["value"]["stringValue"].as_str()?.to_owned())
}

fn dropped(web: &Web) -> u64 {
    let request = b"GET /metrics HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n";
    let page = raw_exchange(&web.serve.socket, request).expect("a page");
    let page = String::from_utf8(page).expect("text");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("callgate_spans_dropped_total "));
    line.expect("a counter").parse().expect("a number")
}

/// One span for the call, below the caller's own, and one for each stage below it.
#[test]
fn a_call_in_spans() {
    let (port, sent) = collector();
    let folder = folder(port);
    let web = start(&folder);
    let owner = cli(&folder, &["token", "owner"]).good().out;
    let params = json!({ "name": "one", "arguments": {}, "_meta": {
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" } });
    assert_eq!(
        web.ask(Some(owner.trim()), "tools/call", params).status,
        200
    );
    let (head, body) = sent.recv_timeout(PATIENCE).expect("spans");
    assert!(
        head.starts_with("POST /base/v1/traces HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("x-key: k1\r\n"), "{head}");
    let service = body.pointer("/resourceSpans/0/resource/attributes/0");
    assert_eq!(service.expect("one")["value"]["stringValue"], "callgate");
    let all = spans(&body);
    let own = &all[0];
    assert_eq!(
        (
            &own["name"],
            &own["traceId"],
            &own["parentSpanId"],
            &own["kind"]
        ),
        (
            &json!("execute_tool one"),
            &json!("4bf92f3577b34da6a3ce929d0e0e4736"),
            &json!("00f067aa0ba902b7"),
            &json!(2)
        )
    );
    for (key, value) in [
        ("gen_ai.operation.name", "execute_tool"),
        ("gen_ai.tool.name", "one"),
        ("mcp.method.name", "tools/call"),
        ("callgate.wire", "mcp-http"),
        ("callgate.status", "ok"),
    ] {
        assert_eq!(attribute(own, key).as_deref(), Some(value), "{key}");
    }
    let names: Vec<&str> = all[1..]
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(
        (names.first(), names.last()),
        (Some(&"find"), Some(&"settle"))
    );
    let time = |span: &Value, name: &str| -> u64 {
        span[name]
            .as_str()
            .expect("text")
            .parse()
            .expect("a number")
    };
    let (from, to) = (time(own, "startTimeUnixNano"), time(own, "endTimeUnixNano"));
    let mut ids: Vec<&str> = Vec::new();
    for stage in &all[1..] {
        assert_eq!(
            (&stage["parentSpanId"], &stage["traceId"]),
            (&own["spanId"], &own["traceId"])
        );
        assert!(time(stage, "startTimeUnixNano") >= from && time(stage, "endTimeUnixNano") <= to);
        ids.push(stage["spanId"].as_str().expect("an id"));
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), names.len());
    // A pure call that fails, without a trace of its caller's: its trace is its own id.
    let told = web
        .serve
        .call(&json!({ "tool": "builtin/echo", "input": [] }));
    let (_, body) = sent.recv_timeout(PATIENCE).expect("spans");
    let own = &spans(&body)[0];
    assert_eq!(
        (&own["traceId"], &own["status"]["code"]),
        (&told["call_id"], &json!(2))
    );
    assert_eq!(attribute(own, "error.type").as_deref(), Some("bad_input"));
    assert_eq!(own.get("parentSpanId"), None);
    assert_eq!(dropped(&web), 0);
    // What is left when the gate stops is sent first.
    web.serve
        .call(&json!({ "tool": "builtin/echo", "input": {} }));
    assert!(web.serve.stop().success());
    let (_, body) = sent.recv_timeout(PATIENCE).expect("the last spans");
    assert_eq!(spans(&body)[0]["name"], "execute_tool builtin/echo");
}

/// A collector that is not there, or never answers, fails no call and is counted.
#[test]
fn a_dead_collector_is_nobody_s_trouble() {
    let (port, _held) = nobody();
    let folder_of_gone = folder(port);
    let web = start(&folder_of_gone);
    for _ in 0..20 {
        let told = web
            .serve
            .call(&json!({ "tool": "builtin/echo", "input": {} }));
        assert_eq!(told["ok"], true);
    }
    wait_for("the count", || (dropped(&web) == 20).then_some(()));
    assert!(web.serve.stop().success());

    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let folder = folder(silent.local_addr().expect("its address").port());
    let web = start(&folder);
    // More than the queue takes while one batch is under way.
    for _ in 0..3000 {
        let told = web
            .serve
            .call(&json!({ "tool": "builtin/echo", "input": {} }));
        assert_eq!(told["ok"], true);
    }
    wait_for("the count", || (dropped(&web) > 0).then_some(()));
    assert!(web.serve.stop().success());
}

/// An address that is none is told when the configuration is trusted.
#[test]
fn a_bad_address() {
    let folder = Folder::new();
    folder.write("callgate.toml", "[telemetry]\notlp = \"localhost:4318\"\n");
    let told = cli(&folder, &["trust"]);
    assert_eq!(told.code(), 1);
    assert!(
        told.err.contains("[telemetry]") && told.err.contains("no http"),
        "{}",
        told.err
    );
}
