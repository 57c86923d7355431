//! MCP at the real program: what happens once, what ends, what is told, and what is refused.

use std::io::Read as _;

use crate::support::drive::{Host, Serve, chain, cli, verified};
use crate::support::mcp::{
    cancelled, hear_of, initialize, legacy_call, listen, mcp, modern_call, modern_meta, post_mcp,
    post_open, serve_http,
};
use crate::support::processes::descendants;
use crate::support::wait_for;
use crate::support::workspace::{
    EVERY_BUILTIN, HANGS, ONE, SLOW, TOOL, effects, started, trusted, trusted_with,
};
use serde_json::{Value, json};

const ASKED: &str = r#"
[[policy]]
tools = ["one", "builtin/echo"]
decision = "ask"
"#;

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

/// A modern call of `one`, with more in its params.
fn round(id: u64, n: u64, more: Value) -> Value {
    let mut call = modern_call(id, "one", &json!({ "n": n }), &json!({}));
    for (key, value) in more.as_object().into_iter().flatten() {
        call["params"][key] = value.clone();
    }
    call
}

/// G-6, G-6b: a pending approval is put to the client's user: in rounds where the era has them, by
/// elicitation where not. A decline is a denial, recorded as that user's.
#[test]
fn a_client_s_user_approves() {
    let folder = trusted(&format!("{ONE}{ASKED}{EVERY_BUILTIN}"));
    let mut host = mcp(&folder, &["--standalone"]);
    let accept = json!({ "action": "accept", "content": { "approve": true } });

    let asked = host.ask(&round(1, 1, json!({})));
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let state = result["requestState"].clone();
    let answers = json!({ "callgate_approval": accept });
    // State that was given for another input is not good for this one.
    let stolen = host.ask(&round(
        2,
        2,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    assert_eq!(effects(&folder), 0);
    let done = host.ask(&round(
        3,
        1,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(text_of(&done), r#"{"got":{"n":1}}"#);

    let asked = host.ask(&round(4, 3, json!({})));
    let state = asked["result"]["requestState"].clone();
    let answers = json!({ "callgate_approval": { "action": "decline" } });
    let denied = host.ask(&round(
        5,
        3,
        json!({ "requestState": state, "inputResponses": answers }),
    ));
    assert_eq!(
        denied["result"]["_meta"]["callgate/call"]["fault"], "denied",
        "{denied}"
    );

    // Whoever closes the question, or answers something else, has not said no: nothing is
    // decided, and it is not asked once more.
    for (n, left) in [
        json!({ "action": "cancel" }),
        json!({ "action": "accept" }),
        json!({ "action": "accept", "content": { "approve": "yes" } }),
        json!("yes"),
    ]
    .into_iter()
    .enumerate()
    {
        let n = 10 + n as u64;
        let asked = host.ask(&round(50, n, json!({})));
        let state = asked["result"]["requestState"].clone();
        let answers = json!({ "callgate_approval": left });
        let open = host.ask(&round(
            51,
            n,
            json!({ "requestState": state, "inputResponses": answers }),
        ));
        let fault = &open["result"]["_meta"]["callgate/call"]["fault"];
        assert_eq!(fault, "needs_approval", "{left}: {open}");
    }

    host.ask(&initialize(6));
    host.send(&legacy_call(59, "one", &json!({ "n": 20 }), &json!({})));
    let question = host.reply();
    let left = json!({ "action": "cancel" });
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": left }));
    let open = host.reply();
    let fault = &open["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "needs_approval", "{open}");
    // Also for a tool that would answer at once: the pipe goes on meanwhile.
    host.send(&legacy_call(
        60,
        "builtin_echo",
        &json!({ "n": 4 }),
        &json!({}),
    ));
    let question = host.reply();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert_eq!(
        host.ask(&json!({ "jsonrpc": "2.0", "id": 61, "method": "ping" }))["id"],
        61
    );
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept }));
    assert_eq!(text_of(&host.reply()), r#"{"n":4}"#);
    host.send(&legacy_call(7, "one", &json!({ "n": 4 }), &json!({})));
    let question = host.reply();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    host.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept }));
    assert_eq!(text_of(&host.reply()), r#"{"got":{"n":4}}"#);
    assert_eq!(effects(&folder), 2);
    assert!(host.end().success());
    let by: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "approval.grant")
        .map(|record| record["by"].clone())
        .collect();
    assert_eq!(by.len(), 3, "{by:?}");
    let denied = chain(&folder)
        .iter()
        .filter(|record| record["kind"] == "approval.deny")
        .count();
    assert_eq!(denied, 1, "the one that was declined");
}

/// `slow` beside `one`, which its user must approve.
fn asking_workspace() -> crate::support::Folder {
    let slow = ONE.replace("\"one\"", "\"slow\"").replace("ONE", "SLOW");
    let config = format!("{ONE}{ASKED}{}", slow.replace("tool.sh", "slow.sh"));
    let files = [
        ("callgate.toml", config.as_str()),
        ("tool.sh", TOOL),
        ("slow.sh", SLOW),
    ];
    trusted_with(&files)
}

/// Asks with each of these states while another call of the pipe is at work: each is refused and
/// decides nothing, and the other call ends as if nothing had been.
fn refused_meanwhile(folder: &crate::support::Folder, host: &mut Host, n: u64, states: &[Value]) {
    let before = effects(folder);
    host.send(&modern_call(100, "slow", &json!({}), &json!({})));
    started(folder, before + 1);
    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });
    for state in states {
        let more = json!({ "requestState": state, "inputResponses": answers });
        let refused = host.ask(&round(101, n, more));
        assert_eq!(refused["id"], 101, "{refused}");
        assert_eq!(refused["error"]["code"], -32602, "{state}: {refused}");
        let words = refused["error"]["message"].as_str().expect("words");
        assert!(words.starts_with("`requestState` "), "{words}");
        assert!(refused["error"]["data"].is_null(), "{refused}");
    }
    assert_eq!(effects(folder), before + 1);
    folder.write("go", "");
    let done = host.reply();
    assert_eq!(
        (&done["id"], text_of(&done)),
        (&json!(100), r#"{"done":true}"#)
    );
    std::fs::remove_file(folder.join("go")).expect("it was written just now");
}

/// What was granted and denied so far.
fn decisions(folder: &crate::support::Folder) -> Vec<Value> {
    let kinds = chain(folder).into_iter().map(|mut r| r["kind"].take());
    kinds
        .filter(|kind| {
            ["approval.grant", "approval.deny"]
                .iter()
                .any(|k| kind == k)
        })
        .collect()
}

/// State that was changed anywhere, or cut, approves nothing and harms no other call; as it was
/// given it is still good.
#[test]
fn changed_state_is_refused() {
    let folder = asking_workspace();
    let mut host = mcp(&folder, &["--standalone"]);
    let asked = host.ask(&round(1, 1, json!({})));
    let state = asked["result"]["requestState"].as_str().expect("a state");
    let flipped = (0..state.len()).step_by(7).map(|at| {
        let mut bytes = state.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        json!(String::from_utf8(bytes).expect("text"))
    });
    let cut = [
        0,
        1,
        16,
        32,
        state.len() / 2,
        state.len() - 2,
        state.len() - 1,
    ];
    let cut = cut.map(|at| json!(state[..at]));
    let longer = [json!(format!("{state}00")), json!(state.to_uppercase())];
    let others = [json!(7), json!({ "approval": "x" }), json!([state])];
    let states: Vec<Value> = flipped.chain(cut).chain(longer).chain(others).collect();
    refused_meanwhile(&folder, &mut host, 1, &states);
    assert_eq!(decisions(&folder), [Value::Null; 0]);

    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });
    let more = json!({ "requestState": state, "inputResponses": answers });
    assert_eq!(text_of(&host.ask(&round(2, 1, more))), r#"{"got":{"n":1}}"#);
    assert_eq!(decisions(&folder), ["approval.grant"]);
    assert!(host.end().success());
    verified(&folder);
}

/// State is good for an hour, whoever serves the workspace then; later it approves nothing and
/// harms no other call, and the user is asked anew.
#[cfg(feature = "failpoints")]
#[test]
fn old_state_is_refused() {
    let folder = asking_workspace();
    let at = |ahead_ms: u64| {
        let mut command = crate::support::callgate(&folder);
        command.env("CALLGATE_CLOCK_AHEAD_MS", ahead_ms.to_string());
        Host::spawn(command.args(["mcp", "--standalone"]))
    };
    let mut first = at(0);
    let states =
        [1, 2].map(|n| first.ask(&round(n, n, json!({})))["result"]["requestState"].clone());
    assert!(first.end().success());
    let accept = json!({ "action": "accept", "content": { "approve": true } });
    let answers = json!({ "callgate_approval": accept });

    // A minute for a machine that is slow.
    let mut soon = at(3_600_000 - 60_000);
    let more = json!({ "requestState": states[0], "inputResponses": answers });
    let done = soon.ask(&round(3, 1, more));
    assert_eq!(text_of(&done), r#"{"got":{"n":1}}"#);
    assert!(soon.end().success());

    let mut late = at(3_600_001);
    refused_meanwhile(&folder, &mut late, 2, &states[1..]);
    assert_eq!(decisions(&folder), ["approval.grant"]);
    let asked = late.ask(&round(4, 2, json!({})));
    let more = json!({
        "requestState": asked["result"]["requestState"], "inputResponses": answers,
    });
    let done = late.ask(&round(5, 2, more));
    assert_eq!(text_of(&done), r#"{"got":{"n":2}}"#);
    assert!(late.end().success());
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

/// Junk between messages is refused line by line; ids come back as the bytes they were.
#[test]
fn junk_costs_its_own_line() {
    let folder = trusted(ONE);
    let mut host: Host = mcp(&folder, &["--standalone"]);
    for (line, code) in [
        ("nonsense", -32700),
        (
            "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            -32600,
        ),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"no/such\"}",
            -32601,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nope\"}}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"cursor\":7}}",
            -32602,
        ),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}",
            -32602,
        ),
    ] {
        assert!(host.send_bytes(format!("{line}\n").as_bytes()));
        assert_eq!(host.reply()["error"]["code"], code, "{line}");
    }
    let mut long = vec![b'x'; (16 << 20) + 2];
    long.push(b'\n');
    assert!(host.send_bytes(&long));
    assert_eq!(host.reply()["error"]["code"], -32600);
    let big = "123456789012345678901234567890";
    assert!(host.send_bytes(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{big},\"method\":\"ping\"}}\n").as_bytes()
    ));
    assert_eq!(host.reply()["result"], json!({}));
    assert!(host.end().success());
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
