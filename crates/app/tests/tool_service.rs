//! The tool protocol over HTTP as strangers, owners and holders of tokens meet it: who is let
//! in, what may be run, how calls end, and a thousand of them at once.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;

use crate::support::drive::{chain, cli, exchange, verified};
use crate::support::processes::started_with;
use crate::support::web::{self, Reply, Request, Web, hear, owner, token, trusted};
use crate::support::workspace::{effects, trusted_with};
use crate::support::{Folder, wait_for};
use serde_json::{Value, json};

fn request(tool: &str, payload: &Value) -> Value {
    json!({ "protocol_version": 1, "tool_name": tool, "payload": payload })
}

fn post(body: &Value) -> Request {
    Request::new("POST /tools", body.to_string().as_bytes())
}

fn shake(tool: &str) -> Request {
    let body = json!({ "protocol_version": 1, "tool_name": tool, "required_guarantees": {} });
    Request::new("POST /capabilities/handshake", body.to_string().as_bytes())
}

/// The same request over `gate.sock`.
fn locally(web: &Web, body: &Value) -> Value {
    let bytes = post(body)
        .with("host", "gate")
        .bytes("connection: close\r\n");
    let (status, reply) = exchange(&web.serve.socket, &bytes).expect("an answer");
    assert_eq!(status, 200, "{reply}");
    reply
}

/// A request that is on its way.
fn send(web: &Web, token: &str, body: &Value) -> TcpStream {
    let mut stream = web.connect();
    let bytes = post(body).by(token).bytes("connection: close\r\n");
    stream.write_all(&bytes).expect("write");
    stream
}

fn error_of(reply: &Reply) -> (String, String) {
    let body = reply.json();
    let word = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
    (word("type"), word("reason_code"))
}

/// P-4, G-10, G-11b: both paths ask for what `/mcp` asks for, before a body is read.
#[test]
fn strangers_are_refused() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let good = owner(&folder);
    let call = post(&request("papers/read", &json!({})));
    for request in [call.clone(), shake("papers/read")] {
        let none = web.send(&request);
        web::assert_refused(&none, "");
        assert_eq!(error_of(&none).0, "PermissionError");
        let revoked = token(&folder, &["gone"]);
        cli(&folder, &["token", "revoke", "gone"]).good();
        web::assert_refused(&web.send(&request.clone().by(&revoked)), "invalid_token");
        for (name, value) in [
            ("host", "evil.example"),
            ("origin", "http://evil.example"),
            ("origin", "null"),
        ] {
            let reply = web.send(&request.clone().by(&good).with(name, value));
            assert_eq!(reply.status, 403, "{name}: {value}: {reply:?}");
        }
        // The length alone tells; the bytes never come.
        let head = request.clone().body(b"").by(&good);
        let bytes = String::from_utf8(head.bytes("connection: close\r\n")).expect("text");
        let bytes = bytes.replace("content-length: 0", "content-length: 16777217");
        let mut stream = web.connect();
        stream.write_all(bytes.as_bytes()).expect("write");
        assert_eq!(hear(&mut stream).status, 413);
        assert_eq!(web.send(&request.clone().by(&good)).status, 200);
    }
    assert_eq!(
        web.send(&Request::new("GET /tools", b"").by(&good)).status,
        405
    );
    assert!(web.serve.stop().success());
    let refused = chain(&folder);
    let refused = refused.iter().filter(|r| r["kind"] == "http.refuse");
    assert!(refused.count() > 0, "strangers are in the chain");
    verified(&folder);
}

/// G-11b: a token sees its own tools, and no others, in calls and handshakes alike.
#[test]
fn a_token_opens_its_own_tools() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let reader = token(&folder, &["reader", "--tools", "papers/read"]);
    let ask = |tool: &str| web.send(&post(&request(tool, &json!({}))).by(&reader));
    assert_eq!(
        ask("papers/read").json(),
        json!({ "ok": true, "result": { "got": {} } })
    );
    for hidden in ["papers/write", "nobody"] {
        let reply = ask(hidden);
        assert_eq!(
            (reply.status, error_of(&reply).0),
            (200, "ToolNotFoundError".to_owned())
        );
        let reply = web.send(&shake(hidden).by(&reader)).json();
        assert_eq!(reply["error"]["type"], "ToolNotFoundError", "{reply}");
    }
    // Not even by the wrong entry can it learn of a tool.
    let mut other = request("papers/write", &json!({}));
    other["entry"] = json!("tools.x:y");
    let reply = web.send(&post(&other).by(&reader));
    assert_eq!(error_of(&reply).0, "ToolNotFoundError");
    assert!(web.serve.stop().success());
    let callers: BTreeSet<String> = chain(&folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| format!("{} {}", record["caller"], record["wire"]))
        .collect();
    assert_eq!(
        callers,
        BTreeSet::from([r#""token:reader" "service""#.to_owned()])
    );
}

/// G-5: a lease from tier 2 on TCP, and none on the owner's own socket.
#[test]
fn leases_as_on_the_wire_it_came_by() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let token = owner(&folder);
    let mut deploy = request("deploy", &json!({ "n": 1 }));
    let over_tcp = |body: &Value| web.send(&post(body).by(&token));
    let (kind, reason) = error_of(&over_tcp(&deploy));
    assert_eq!(
        (kind.as_str(), reason.as_str()),
        ("PermissionError", "lease_required")
    );
    assert_eq!(locally(&web, &deploy)["ok"], true);
    let lease = cli(&folder, &["lease", "grant", "deploy", "--json"])
        .good()
        .json();
    deploy["callgate/leaseToken"] = lease["token"].clone();
    assert_eq!(over_tcp(&deploy).json()["ok"], true);
    assert_eq!(error_of(&over_tcp(&deploy)).1, "lease_rejected");
    assert!(web.serve.stop().success());
    let wires: Vec<String> = chain(&folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| record["wire"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(wires, ["tool", "service"]);
    verified(&folder);
}

const ENTRIES: &str = r#"
[service]
allow_entries = ["tools.open:*"]
[[policy]]
tools = ["entry/tools.open/shut"]
decision = "deny"
[[tool]]
name = "registered"
runner = { kind = "python", entry = "tools.open:one" }
"#;

const OPEN: &str =
    "def one(payload): return 1\ndef two(payload): return 2\ndef shut(payload): return 3\n";

/// TP-40: code that is not registered runs where a pattern names it, under its own name, which
/// policy knows; when the pattern goes, so does that.
#[test]
fn entries_that_are_allowed() {
    let folder = trusted_with(&[
        ("callgate.toml", ENTRIES),
        ("tools/open.py", OPEN),
        ("tools/closed.py", OPEN),
    ]);
    let web = Web::start(&folder, &["--no-auth"]);
    let run = |tool: &str, entry: &str| {
        let mut body = request(tool, &json!({}));
        body["entry"] = entry.into();
        let reply = web.send(&post(&body));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let result = |value: u64| json!({ "ok": true, "result": value });
    assert_eq!(run("registered", "tools.open:one"), result(1));
    assert_eq!(run("registered", "tools.open:two"), result(2));
    assert_eq!(run("nobody", "tools.open:two"), result(2));
    assert_eq!(
        run("nobody", "tools.open:shut")["error"]["reason_code"],
        "policy_denied"
    );
    assert_eq!(
        run("registered", "tools.closed:one")["error"]["reason_code"],
        "policy_denied"
    );
    assert_eq!(
        run("nobody", "tools.closed:one")["error"]["type"],
        "ToolNotFoundError"
    );

    folder.write(
        "callgate.toml",
        &ENTRIES.replace("tools.open:*", "tools.other:*"),
    );
    cli(&folder, &["trust"]).good();
    web.serve.wait_said("reloaded");
    assert_eq!(
        run("registered", "tools.open:two")["error"]["reason_code"],
        "policy_denied"
    );
    assert_eq!(run("registered", "tools.open:one"), result(1));
    assert!(web.serve.stop().success());
    let ran: Vec<String> = chain(&folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| record["tool"].as_str().unwrap_or_default().to_owned())
        .collect();
    let code = "entry/tools.open/two";
    assert_eq!(ran, ["registered", code, code, "registered"]);
    verified(&folder);
}

/// A path that another door has, or that is none, is refused with the configuration.
#[test]
fn a_path_of_its_own() {
    for path in ["/mcp", "/v1/call", "run", "/{x}"] {
        let folder = Folder::new();
        folder.write("callgate.toml", &format!("[service]\npath = \"{path}\"\n"));
        let ran = cli(&folder, &["trust"]);
        assert_eq!(ran.code(), 1, "{path}: {ran:?}");
        assert!(ran.err.contains("service.path"), "{ran:?}");
    }
}

/// TP-43: the caller's trace id stands in the chain.
#[test]
fn traces_are_tied() {
    let folder = trusted("");
    let web = Web::start(&folder, &["--no-auth"]);
    let mut body = request("papers/read", &json!({}));
    body["trace_id"] = json!("0123-trace");
    assert_eq!(web.send(&post(&body)).json()["ok"], true);
    assert!(web.serve.stop().success());
    let traced = chain(&folder);
    let traced = traced
        .iter()
        .filter(|record| record["trace"] == "0123-trace");
    assert_eq!(traced.count(), 2, "start and outcome");
}

/// Starts a child that becomes a daemon, and waits as long as it does.
const DAEMON: &str = r#"
read -r input
setsid sleep WORD &
echo started >> effects.log
exec sleep WORD
"#;

const DAEMON_CONFIG: &str = r#"
[[tool]]
name = "daemon"
writes = ["."]
code = ["daemon.sh"]
runner = { kind = "process", command = ["/bin/sh", "daemon.sh"] }
"#;

/// P-7, TP-28: at the timeout the whole tree is gone, daemons included.
#[test]
fn a_timeout_ends_the_whole_tree() {
    // A time to sleep that no other process has.
    let word = format!("61{}", std::process::id());
    let script = DAEMON.replace("WORD", &word);
    let files = [("callgate.toml", DAEMON_CONFIG), ("daemon.sh", &script)];
    let folder = trusted_with(&files);
    let web = Web::start(&folder, &["--no-auth"]);
    let mut body = request("daemon", &json!({}));
    // Long enough for both to begin, however busy the machine.
    let begun = [4_000, 16_000, 64_000].into_iter().find(|timeout_ms| {
        body["timeout_ms"] = json!(timeout_ms);
        let reply = hear(&mut send(&web, "", &body));
        assert_eq!(error_of(&reply).0, "TimeoutError", "{reply:?}");
        wait_for("the end of both", || {
            started_with(&word).is_empty().then_some(())
        });
        effects(&folder) > 0
    });
    assert!(begun.is_some(), "the tool never began");
    assert!(web.serve.stop().success());
}

/// A caller that hangs up ends its call; with a key it runs on, and the caller comes back.
#[test]
fn hanging_up() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let token = owner(&folder);
    let mut body = request("slow", &json!({}));
    let begun = |count| wait_for("the effect", || (effects(&folder) == count).then_some(()));
    let open = send(&web, &token, &body);
    begun(1);
    drop(open);
    wait_for("the end", || {
        let records = chain(&folder);
        records
            .iter()
            .any(|record| record["fault"] == "cancelled")
            .then_some(())
    });
    body["callgate/idempotencyKey"] = json!("k");
    let open = send(&web, &token, &body);
    begun(2);
    drop(open);
    let again = send(&web, &token, &body);
    folder.write("go", "");
    let reply = hear(&mut { again }).json();
    assert_eq!(
        (&reply["ok"], &reply["result"]),
        (&json!(true), &json!({ "slow": true }))
    );
    assert_eq!(effects(&folder), 2);
    assert!(web.serve.stop().success());
}

/// A gate that is told to stop answers what it has begun.
#[test]
fn the_end_answers_calls() {
    let folder = trusted("");
    let web = Web::start(&folder, &["--no-auth"]);
    let mut open = send(&web, "", &request("slow", &json!({})));
    wait_for("the effect", || (effects(&folder) == 1).then_some(()));
    crate::support::drive::signal(web.serve.pid(), rustix::process::Signal::TERM);
    web.serve.wait_said("waiting for 1 running call");
    folder.write("go", "");
    assert_eq!(
        hear(&mut open).json(),
        json!({ "ok": true, "result": { "slow": true } })
    );
    assert!(web.serve.ended().success());
}

const CROWD: usize = 1000;

const CROWD_CONFIG: &str = r#"
[[tool]]
name = "number"
concurrency_max = 2000
timeout_ms = 120000
runner = { kind = "python", entry = "crowd:number", pool = { queue_max = 2000, calls_max = 100000 } }
"#;

/// Nobody is answered before everybody has asked.
const CROWD_TOOL: &str = r#"
import os, time
def number(payload):
    while not os.path.exists("go"):
        time.sleep(0.01)
    return {"number": payload["n"]}
"#;

/// 1,000 calls at the same time, each on a connection of its own: each gets its own answer.
#[test]
fn a_thousand_at_once() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: most.maximum,
        maximum: most.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).expect("more files");
    let folder = trusted_with(&[("callgate.toml", CROWD_CONFIG), ("crowd.py", CROWD_TOOL)]);
    let web = Web::start(&folder, &[]);
    let token = owner(&folder);
    let open: Vec<TcpStream> = (0..CROWD)
        .map(|n| send(&web, &token, &request("number", &json!({ "n": n }))))
        .collect();
    folder.write("go", "");
    for (n, mut stream) in open.into_iter().enumerate() {
        let reply = hear(&mut stream);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(
            reply.json(),
            json!({ "ok": true, "result": { "number": n } })
        );
    }
    assert!(web.serve.stop().success());
    let ends = chain(&folder);
    let ends = ends
        .iter()
        .filter(|r| r["kind"] == "outcome" && r["ok"] == true);
    assert_eq!(ends.count(), CROWD);
    verified(&folder);
}
