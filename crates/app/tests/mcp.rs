//! MCP at the real program: what happens once, what ends, what is told, and what is refused.

use std::io::Read as _;

use crate::support::drive::{Serve, chain, cli, verified};
use crate::support::mcp::{
    cancelled, hear_of, initialize, legacy_call, listen, mcp, modern_call, modern_meta, post_mcp,
    post_open, serve_http,
};
use crate::support::processes::descendants;
use crate::support::wait_for;
use crate::support::workspace::{HANGS, ONE, SLOW, effects, trusted, trusted_with};
use serde_json::{Value, json};

fn text_of(reply: &Value) -> &str {
    reply["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {reply}"))
}

/// G-3, G-11, G-11b: one key is one run, whatever the era, the wire and the process.
#[test]
fn a_retry_runs_once_on_every_wire_and_across_a_restart() {
    let folder = trusted(ONE);
    let key = json!({ "callgate/idempotencyKey": "k1" });
    let input = json!({ "n": 1 });
    let mut alone = mcp(&folder, &["--standalone"]);
    let first = alone.ask(&modern_call(1, "one", &input, &key));
    assert_eq!(text_of(&first), r#"{"got":{"n":1}}"#);
    let again = alone.ask(&legacy_call(2, "one", &input, &key));
    assert_eq!(text_of(&again), text_of(&first));
    let call = &again["result"]["_meta"]["callgate/call"];
    assert_eq!(call["replayed"], true, "{again}");
    alone.kill();

    let (serve, port) = serve_http(&folder);
    let mut attached = mcp(&folder, &[]);
    let third = attached.ask(&modern_call(3, "one", &input, &key));
    assert_eq!(text_of(&third), text_of(&first));
    let body = json!({ "tool": "one", "input": input, "idempotency_key": "k1" });
    assert_eq!(serve.call(&body)["idempotent_hit"], true);
    assert_eq!(effects(&folder), 1);

    // Another caller's key is another key: over TCP without a token everybody is nobody.
    let other = post_mcp(port, &modern_call(4, "one", &input, &key), &[]);
    assert_eq!(other.json()["result"]["isError"], false, "{other:?}");
    assert_eq!(effects(&folder), 2);

    // The same key with another input is refused, and runs nothing.
    let conflict = attached.ask(&modern_call(5, "one", &json!({ "n": 2 }), &key));
    assert_eq!(conflict["result"]["isError"], true);
    let call = &conflict["result"]["_meta"]["callgate/call"];
    assert_eq!(call["fault"], "conflict");
    assert_eq!(effects(&folder), 2);
    assert!(attached.end().success());
    assert!(serve.stop().success());
    let wires: Vec<Value> = chain(&folder).iter().map(|r| r["wire"].clone()).collect();
    assert!(wires.contains(&json!("mcp")) && wires.contains(&json!("mcp-http")));
    verified(&folder);
}

/// A cancelled call ends its tool, by notification and by hanging up; others are unharmed.
#[test]
fn cancelling_ends_the_tool() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let (serve, port) = serve_http(&folder);
    let mut host = mcp(&folder, &[]);
    let gone = |started: usize| {
        wait_for("the tool's start", || {
            (effects(&folder) == started).then_some(())
        });
        move |serve: &Serve| {
            wait_for("the tool's end", || {
                let sleeping = descendants(serve.pid())
                    .into_iter()
                    .any(|pid| crate::support::processes::words_of(pid).contains("1000"));
                (!sleeping).then_some(())
            });
        }
    };
    host.send(&modern_call(1, "one", &json!({}), &json!({})));
    let check = gone(1);
    host.send(&cancelled(&json!(1)));
    check(&serve);
    // No answer to what was taken back: the next answer is the next request's.
    let next = host.ask(&json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" }));
    assert_eq!(next["id"], 2);

    let open = post_open(port, &modern_call(3, "one", &json!({}), &json!({})), &[]);
    let check = gone(2);
    drop(open);
    check(&serve);

    // A client that dies takes its calls with it.
    host.send(&legacy_call(4, "one", &json!({}), &json!({})));
    let check = gone(3);
    host.kill();
    check(&serve);
    assert!(serve.stop().success());
    let ends: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "outcome")
        .map(|record| record["fault"].clone())
        .collect();
    assert_eq!(ends, vec![json!("cancelled"); 3]);
}

/// A standalone server ends with its input and leaves no child.
#[test]
fn the_end_of_input_ends_everything() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let mut host = mcp(&folder, &["--standalone"]);
    host.send(&modern_call(1, "one", &json!({}), &json!({})));
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    let children = descendants(host.pid());
    assert!(!children.is_empty());
    assert!(host.end().success());
    wait_for("the children's end", || {
        children
            .iter()
            .all(|&pid| !crate::support::is_alive(pid))
            .then_some(())
    });
}

/// A tool that comes or goes is told to those who listen, in both eras.
#[test]
fn changes_are_told() {
    let folder = trusted(ONE);
    let (serve, port) = serve_http(&folder);
    let mut legacy = mcp(&folder, &[]);
    legacy.ask(&initialize(1));
    let mut modern = mcp(&folder, &[]);
    modern.send(&listen(&json!("sub")));
    let acknowledged = modern.reply();
    let subscription = |message: &Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
    };
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(subscription(&acknowledged), "sub");
    let mut stream = post_open(port, &listen(&json!(9)), &[]);
    hear_of(&mut stream, "subscriptions/acknowledged");

    let two = ONE.replace("\"one\"", "\"two\"").replace("ONE", "TWO");
    folder.write("callgate.toml", &format!("{ONE}{two}"));
    cli(&folder, &["trust"]).good();
    serve.wait_said("reloaded");
    let told = modern.reply();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(subscription(&told), "sub");
    let told: Vec<Value> = (0..3).map(|_| legacy.reply()["method"].clone()).collect();
    assert!(
        told.contains(&json!("notifications/tools/list_changed")),
        "{told:?}"
    );
    hear_of(&mut stream, "tools/list_changed");
    let list = modern.ask(&json!({
        "jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": { "_meta": modern_meta() },
    }));
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .expect("tools")
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(
        names.contains(&"two") && names.contains(&"files_read"),
        "{names:?}"
    );
    assert!(serve.stop().success());
}

/// What the chain has of a call is a resource of its caller's, and of nobody else's.
#[test]
fn a_call_s_records_are_a_resource() {
    let folder = trusted(ONE);
    let (serve, port) = serve_http(&folder);
    let mut host = mcp(&folder, &[]);
    let called = host.ask(&legacy_call(1, "one", &json!({}), &json!({})));
    let id = called["result"]["_meta"]["callgate/call"]["id"]
        .as_str()
        .expect("an id");
    let read = |id: u64, uri: &str, meta: Value| {
        json!({
            "jsonrpc": "2.0", "id": id, "method": "resources/read",
            "params": { "uri": uri, "_meta": meta },
        })
    };
    let uri = format!("callgate://call/{id}");
    let records = host.ask(&read(2, &uri, json!({})));
    let text = records["result"]["contents"][0]["text"]
        .as_str()
        .expect("text");
    let records: Vec<Value> = serde_json::from_str(text).expect("records");
    let kinds: Vec<&Value> = records.iter().map(|record| &record["kind"]).collect();
    assert_eq!(kinds, ["start", "outcome"]);
    let foreign = post_mcp(port, &read(3, &uri, modern_meta()), &[("mcp-name", &uri)]);
    assert_eq!(foreign.json()["error"]["code"], -32602, "{foreign:?}");
    assert!(serve.stop().success());
}

/// Reports progress, then hangs until it is ended.
const REPORTS: &str = r#"
import json, os, socket, time
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"]))
call = json.loads(gate.makefile().readline())["call"]
gate.sendall((json.dumps({"call": call, "progress": {"progress": 1}}) + "\n").encode())
open("effects.log", "a").write("started\n")
time.sleep(1000)
"#;

/// A legacy call whose answer has become a stream is cancelled like any other, by a
/// notification on another connection.
#[test]
fn a_streamed_legacy_call_is_cancelled() {
    let python = crate::support::drive::python();
    let config = ONE
        .replace(
            r#"kind = "process", command = ["/bin/sh", "tool.sh"]"#,
            &format!("kind = \"pool\", command = [\"{python}\", \"tool.py\"]"),
        )
        .replace("code = [\"tool.sh\"]", "code = [\"tool.py\"]");
    let folder = trusted_with(&[("callgate.toml", &config), ("tool.py", REPORTS)]);
    let (serve, port) = serve_http(&folder);
    let begun = post_mcp(port, &initialize(1), &[]);
    let session = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let session = [("mcp-session-id", session.as_str())];
    let call = legacy_call(7, "one", &json!({}), &json!({ "progressToken": "p" }));
    let mut stream = post_open(port, &call, &session);
    hear_of(&mut stream, "notifications/progress");
    assert_eq!(post_mcp(port, &cancelled(&json!(7)), &session).status, 202);
    wait_for("the call's end", || {
        let ends = chain(&folder);
        ends.iter().any(|r| r["fault"] == "cancelled").then_some(())
    });
    drop(stream);
    assert!(serve.stop().success());
}

/// Told to stop, a server that stands alone ends its calls and records that it did.
#[test]
fn a_signal_leaves_no_call_unknown() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let mut host = mcp(&folder, &["--standalone"]);
    let key = json!({ "callgate/idempotencyKey": "k" });
    host.send(&modern_call(1, "one", &json!({}), &key));
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    crate::support::drive::signal(host.pid(), rustix::process::Signal::TERM);
    assert!(host.end().success());
    let ends: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "outcome")
        .map(|record| record["fault"].clone())
        .collect();
    assert_eq!(ends, [json!("cancelled")]);
}

/// A gate that is told to stop answers the calls of attached pipes first.
#[test]
fn attached_calls_are_answered_before_the_end() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let serve = Serve::start(&folder);
    let mut host = mcp(&folder, &[]);
    host.send(&modern_call(1, "one", &json!({}), &json!({})));
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    crate::support::drive::signal(serve.pid(), rustix::process::Signal::TERM);
    serve.wait_said("stopping");
    folder.write("go", "");
    assert_eq!(text_of(&host.reply()), r#"{"done":true}"#);
    assert!(serve.ended().success());
}

/// More listeners than a client reads from do not hold up the end.
#[test]
fn unheard_listeners_do_not_hold_up_the_end() {
    let folder = trusted(ONE);
    let mut host = mcp(&folder, &["--standalone"]);
    for id in 0..300 {
        host.send(&listen(&json!(id)));
    }
    assert!(host.end().success());
}

/// Says more before its answer than a connection holds that nobody reads.
const SAYS_MUCH: &str = r#"
import json, os, socket
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"]))
call = json.loads(gate.makefile().readline())["call"]
log = {"call": call, "log": {"level": "error", "data": "x" * 60000}}
for _ in range(60):
    gate.sendall((json.dumps(log) + "\n").encode())
gate.sendall((json.dumps({"call": call, "output": {}}) + "\n").encode())
gate.recv(1)
"#;

/// A client that comes back for a stream and does not read it does not hold up the end: at the
/// second signal all waiting is over.
#[test]
fn an_unread_stream_does_not_hold_up_the_end() {
    let python = crate::support::drive::python();
    let config = ONE
        .replace(
            r#"kind = "process", command = ["/bin/sh", "tool.sh"]"#,
            &format!("kind = \"pool\", command = [\"{python}\", \"tool.py\"]"),
        )
        .replace("code = [\"tool.sh\"]", "code = [\"tool.py\"]");
    let folder = trusted_with(&[("callgate.toml", &config), ("tool.py", SAYS_MUCH)]);
    let serve = Serve::start(&folder);
    // By the socket, which holds less than a port would.
    let ask = |message: &Value, more: &str| {
        let body = message.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             content-length: {}\r\n{more}\r\n{body}",
            body.len()
        );
        let told = crate::support::drive::raw_exchange(&serve.socket, head.as_bytes());
        String::from_utf8(told.expect("an answer")).expect("text")
    };
    let begun = ask(&initialize(1), "");
    let session = begun
        .lines()
        .find(|line| line.starts_with("mcp-session-id: "))
        .expect("a session");
    let session = format!("{session}\r\n");
    let said = ask(&legacy_call(7, "one", &json!({}), &json!({})), &session);
    assert!(said.contains("id: 1-61\n"), "{} bytes", said.len());

    let mut unread = std::os::unix::net::UnixStream::connect(&serve.socket).expect("the gate");
    let head = format!(
        "GET /mcp HTTP/1.1\r\nhost: gate\r\naccept: text/event-stream\r\n\
         {session}last-event-id: 1-0\r\n\r\n"
    );
    std::io::Write::write_all(&mut unread, head.as_bytes()).expect("the gate reads");
    let mut first = [0; 512];
    assert_ne!(unread.read(&mut first).expect("the stream"), 0);

    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        crate::support::drive::signal(serve.pid(), signal);
    }
    assert!(serve.ended().success());
}
