//! Leases over HTTP: on `/rpc` the owner's token counts as the owner's own client, and nothing
//! else does. G-5.

use crate::support::drive::{chain, cli, verified};
use crate::support::rpc::Ws;
use crate::support::web::{Reply, Request, Web, owner, token, trusted};
use serde_json::{Value, json};

/// A call that can bring no lease, as clients of the contract make it. The empty member has the
/// answer name the fault.
fn post(line: &str, token: Option<&str>, method: &str, params: &Value) -> Request {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": method, "params": params, "callgate": {},
    });
    let request = Request::new(line, body.to_string().as_bytes());
    match token {
        Some(token) => request.by(token),
        None => request,
    }
}

/// The fault that a call ended with, or nothing if it has a result.
fn fault(reply: &Reply) -> Option<String> {
    let body = reply.json();
    match body["callgate"]["fault"].as_str() {
        Some(fault) => Some(fault.to_owned()),
        None => {
            assert!(body.get("result").is_some(), "{body}");
            None
        }
    }
}

fn leased() -> Option<String> {
    Some("lease_required".to_owned())
}

/// G-5: programs and terminals of the contract's client, which cannot send a lease, start with the
/// owner's token; with other tokens, and on the other paths of the port, they do not.
#[test]
fn the_owners_token_on_rpc_needs_no_lease() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let theirs = token(&folder, &["theirs", "--tier-max", "3"]);
    let echo = json!({ "command": "echo", "args": ["hello"] });
    for line in ["POST /rpc", "POST /"] {
        let reply = web.send(&post(line, Some(&mine), "exec/run", &echo));
        assert_eq!(fault(&reply), None);
        assert_eq!(reply.json()["result"]["stdout"], "hello\n");
        let reply = web.send(&post(line, Some(&theirs), "exec/run", &echo));
        assert_eq!(fault(&reply), leased());
    }
    let shell = json!({ "command": "cat" });
    let made = web.send(&post("POST /rpc", Some(&mine), "terminals/create", &shell));
    assert_eq!(fault(&made), None);
    let made = web.send(&post(
        "POST /rpc",
        Some(&theirs),
        "terminals/create",
        &shell,
    ));
    assert_eq!(fault(&made), leased());

    // Several in one message, and on a WebSocket.
    let batch = json!([
        { "jsonrpc": "2.0", "id": 1, "method": "exec/run", "params": echo },
        { "jsonrpc": "2.0", "id": 2, "method": "deploy", "params": {} },
    ]);
    let request = Request::new("POST /rpc", batch.to_string().as_bytes());
    let good = |token: &str| {
        let answers = web.send(&request.clone().by(token)).json();
        let answers = answers.as_array().expect("two answers").clone();
        answers
            .iter()
            .filter(|one| one.get("result").is_some())
            .count()
    };
    assert_eq!((good(&mine), good(&theirs)), (2, 0));
    let on_socket = |token: &str| {
        let mut ws = Ws::open(web.port, Some(token));
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "deploy", "params": {} });
        ws.text(call.to_string().as_bytes());
        let (_, answer) = ws.frame();
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        answer.get("result").is_some()
    };
    assert!(on_socket(&mine) && !on_socket(&theirs));

    // A list says what a call would need.
    let waits = |token: &str| {
        let asked = json!({ "limit": 200 });
        let listed = web
            .send(&post("POST /rpc", Some(token), "tools/list", &asked))
            .json();
        let tools = listed["result"]["tools"].as_array().expect("tools").clone();
        let deploy = tools.iter().find(|tool| tool["name"] == "deploy").cloned();
        deploy.expect("the tool")["auth_required"].clone()
    };
    assert_eq!((waits(&mine), waits(&theirs)), (json!(false), json!(true)));

    // A lease still works where one is needed.
    let lease = cli(&folder, &["lease", "grant", "deploy", "--json"]).good();
    let mut body = json!({ "jsonrpc": "2.0", "id": 1, "method": "deploy", "params": {} });
    body["callgate"]["lease_token"] = lease.json()["token"].clone();
    let with_lease = Request::new("POST /rpc", body.to_string().as_bytes()).by(&theirs);
    assert_eq!(fault(&web.send(&with_lease)), None);

    // The owner's token is asked for one on `/mcp` and `/tools`.
    let called = web.call(&mine, "deploy", json!({})).json();
    let told = called.pointer("/result/_meta/callgate~1call/fault");
    assert_eq!(told, Some(&json!("lease_required")), "{called}");
    // In words that a client of MCP can follow.
    let words = called["result"]["content"][0]["text"].as_str();
    let words = words.expect("words");
    for part in [
        "callgate lease grant deploy",
        "`_meta` as \"callgate/leaseToken\"",
        "`[leases] enforce_from_tier = 3`",
    ] {
        assert!(words.contains(part), "{words}");
    }
    let body = json!({ "protocol_version": 1, "tool_name": "deploy", "payload": {} });
    let tools = Request::new("POST /tools", body.to_string().as_bytes()).by(&mine);
    assert!(web.send(&tools).body.contains("lease_required"));
    assert!(web.serve.stop().success());
    let starts: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "start" && record["tool"] == "exec/run")
        .map(|record| record["wire"].clone())
        .collect();
    assert_eq!(starts, ["rpc-http", "rpc-http", "rpc-http"]);
    verified(&folder);
}

/// G-5, G-10: whoever brings the owner's token in another way, or by another name of this machine,
/// is a stranger; without any token everybody is asked for a lease.
#[test]
fn others_on_rpc_are_not_the_owner() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let call = |line: &str, token: Option<&str>| post(line, token, "deploy", &json!({}));
    let good = || call("POST /rpc", Some(&mine));
    assert_eq!(fault(&web.send(&good())), None);
    let mut twice = good();
    twice
        .headers
        .push(("authorization".to_owned(), format!("Bearer {mine}")));
    for (stranger, status) in [
        (call("POST /rpc", None), 401),
        (call(&format!("POST /rpc?access_token={mine}"), None), 401),
        (call(&format!("POST /rpc?token={mine}"), None), 401),
        (call("POST /rpc", None).with("x-token", &mine), 401),
        (
            call("POST /rpc", None).with("cookie", &format!("token={mine}")),
            401,
        ),
        (good().with("authorization", &format!("Basic {mine}")), 401),
        (good().by(&format!("{mine}x")), 401),
        (good().by(&mine[..mine.len() - 1]), 401),
        (good().by(&mine.to_uppercase()), 401),
        (twice, 401),
        // A page that has this machine's address under a name of its own.
        (good().with("host", "rebound.example"), 403),
        (good().with("host", "localhost.rebound.example"), 403),
        (good().with("origin", "http://rebound.example"), 403),
        (good().with("origin", "null"), 403),
    ] {
        let reply = web.send(&stranger);
        assert_eq!(reply.status, status, "{stranger:?}: {reply:?}");
    }
    assert!(web.serve.stop().success());

    let web = Web::start(&folder, &["--no-auth"]);
    for token in [None, Some(&*mine)] {
        assert_eq!(fault(&web.send(&call("POST /rpc", token))), leased());
    }
    assert!(web.serve.stop().success());
    let ran = chain(&folder);
    let ran = ran.iter().filter(|record| record["kind"] == "start");
    assert_eq!(ran.count(), 1);
}

/// G-5: what the configuration says of leases holds for the owner's token as on `gate.sock`.
#[test]
fn a_configured_tier_holds_for_the_owner_too() {
    let folder = trusted("[leases]\nenforce_from_tier = 1\n");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    for (method, wanted) in [
        ("papers/read", None),
        ("papers/write", leased()),
        ("deploy", leased()),
    ] {
        let reply = web.send(&post("POST /rpc", Some(&mine), method, &json!({})));
        assert_eq!(fault(&reply), wanted, "{method}");
    }
    assert!(web.serve.stop().success());
}
