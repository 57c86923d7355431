//! MCP over HTTP, by hand: what is refused, and what becomes of sessions and of calls whose
//! clients hang up. `http_auth.rs` has who is let in.

use crate::support::drive::chain;
use crate::support::mcp::{
    initialize, legacy_call, modern_call, modern_meta, post_mcp, post_open, read_answer, serve_http,
};
use crate::support::wait_for;
use crate::support::web::{Request, Web, modern, owner};
use crate::support::workspace::{EVERY_BUILTIN, HANGS, ONE, SLOW, effects, trusted, trusted_with};
use serde_json::{Value, json};

/// Refusals that are the protocol's own, and a session that outlives the gate's restart.
#[test]
fn http_refusals_and_sessions() {
    let folder = trusted(ONE);
    let (serve, port) = serve_http(&folder);
    let list = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": modern_meta() },
    });
    for (header, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("content-type", "text/plain", 415),
        ("accept", "application/json", 406),
        ("mcp-method", "tools/call", 400),
        ("mcp-protocol-version", "2025-11-25", 400),
    ] {
        let answer = if header == "host" {
            let bytes = "POST /mcp HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
            std::io::Write::write_all(&mut stream, bytes.as_bytes()).expect("write");
            read_answer(stream)
        } else {
            post_mcp(port, &list, &[(header, value)])
        };
        assert_eq!(answer.status, status, "{header}: {value}: {answer:?}");
    }
    let batch = json!([list]);
    let answer = post_mcp(port, &batch, &[]);
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].clone()),
        (400, json!(-32600))
    );
    let answer = post_mcp(port, &list, &[("origin", "http://localhost:3000")]);
    assert_eq!(answer.status, 200, "{answer:?}");

    let begun = post_mcp(port, &initialize(1), &[]);
    let session = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    assert_eq!(post_mcp(port, &ping, &[]).status, 400);
    assert_eq!(
        post_mcp(port, &ping, &[("mcp-session-id", "made-up")]).status,
        404
    );
    assert_eq!(
        post_mcp(port, &ping, &[("mcp-session-id", &session)]).status,
        200
    );
    serve.kill();
    let (serve, port) = serve_http(&folder);
    // The client knows nothing of our death, and need not.
    let answer = post_mcp(port, &ping, &[("mcp-session-id", &session)]);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(serve.stop().success());
}

/// G-3b: a client that hangs up on a call with a key has not taken it back: the call ends as it
/// would have, and the retry gets its outcome. In both eras, with and without a stream.
#[test]
fn hanging_up_on_a_keyed_call_lets_it_finish() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", SLOW)]);
    let (serve, port) = serve_http(&folder);
    let begun = post_mcp(port, &initialize(1), &[]);
    let session = begun.header("mcp-session-id").expect("a session");
    let session = [("mcp-session-id", session)];
    let calls = [
        (
            modern_call as fn(u64, &str, &Value, &Value) -> Value,
            &[][..],
        ),
        (legacy_call, &session[..]),
    ];
    for (number, (call, headers)) in calls.into_iter().enumerate() {
        let key = json!({ "callgate/idempotencyKey": format!("k{number}") });
        let call = |id: u64| call(id, "one", &json!({}), &key);
        let open = post_open(port, &call(2), headers);
        wait_for("the tool's start", || {
            (effects(&folder) == number + 1).then_some(())
        });
        drop(open);
        let retry = post_open(
            port,
            &call(3),
            &[headers, &[("connection", "close")]].concat(),
        );
        folder.write("go", "");
        let answer = read_answer(retry);
        let told = answer.last();
        let text = &told["result"]["content"][0]["text"];
        assert_eq!(text, r#"{"done":true}"#, "{told}");
        assert_eq!(told["result"]["_meta"]["callgate/call"]["replayed"], true);
        assert_eq!(effects(&folder), number + 1);
        std::fs::remove_file(folder.join("go")).expect("there");
    }
    assert!(serve.stop().success());
}

/// G-3b: in a session a call with a key can still be cancelled once its client hung up, before
/// anything was said of it.
#[test]
fn a_keyed_call_is_cancelled_after_its_client_hung_up() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let (serve, port) = serve_http(&folder);
    let begun = post_mcp(port, &initialize(1), &[]);
    let session = begun.header("mcp-session-id").expect("a session");
    let session = [("mcp-session-id", session)];
    let key = json!({ "callgate/idempotencyKey": "k" });
    let call = legacy_call(7, "one", &json!({}), &key);
    let open = post_open(port, &call, &session);
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    drop(open);
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
    });
    wait_for("the call's end", || {
        // However late we are noticed to be gone.
        assert_eq!(post_mcp(port, &cancelled, &session).status, 202);
        let ends = chain(&folder);
        ends.iter().any(|r| r["fault"] == "cancelled").then_some(())
    });
    assert!(serve.stop().success());
}

/// Two requests of one id can not be told apart: the second is refused, and the first can still
/// be cancelled.
#[test]
fn an_id_in_flight_is_refused_in_a_session() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", HANGS)]);
    let (serve, port) = serve_http(&folder);
    let begun = post_mcp(port, &initialize(1), &[]);
    let session = begun.header("mcp-session-id").expect("a session");
    let session = [("mcp-session-id", session)];
    let call = legacy_call(7, "one", &json!({}), &json!({}));
    let open = post_open(port, &call, &session);
    wait_for("the tool's start", || (effects(&folder) == 1).then_some(()));
    let second = post_mcp(port, &call, &session);
    assert_eq!(second.json()["error"]["code"], -32600, "{second:?}");
    let cancelled = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 },
    });
    assert_eq!(post_mcp(port, &cancelled, &session).status, 202);
    wait_for("the call's end", || {
        let ends = chain(&folder);
        ends.iter().any(|r| r["fault"] == "cancelled").then_some(())
    });
    drop(open);
    assert_eq!(effects(&folder), 1);
    assert!(serve.stop().success());
}

/// What docs/http-auth.md says of the chain: calls and refusals of them are in it, strangers are
/// counted, and what calls no tool leaves nothing.
#[test]
fn what_the_chain_has_of_http() {
    let shelf = "[[prompt]]\nname = \"p\"\ntext = \"x\"\n\
                 [[resource]]\nuri = \"n://x\"\nname = \"n\"\ntext = \"x\"\n\
                 [[resource]]\nuri = \"n://tool\"\nname = \"t\"\ntool = \"papers/read\"\n";
    let folder = crate::support::web::trusted(&format!("{shelf}{EVERY_BUILTIN}"));
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let before = chain(&folder).len();
    let ask = |method: &str, params: Value| {
        let name = params["uri"].as_str().or(params["taskId"].as_str());
        let request = modern(Some(&mine), method, params.clone());
        web.send(&match name {
            Some(name) => request.with("mcp-name", name),
            None => request,
        })
    };
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "p" })),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "n://x" })),
        ("tasks/get", json!({ "taskId": "task_none" })),
        ("tools/call", json!({})),
        ("no/such", json!({})),
    ] {
        ask(method, params);
    }
    let begun =
        web.send(&Request::new("POST /mcp", initialize(1).to_string().as_bytes()).by(&mine));
    assert_eq!(begun.status, 200, "{begun:?}");
    let junk = Request::new("POST /mcp", b"no JSON").by(&mine);
    assert_eq!(web.send(&junk).status, 400);
    let silent = chain(&folder).split_off(before);
    assert_eq!(silent, [Value::Null; 0]);

    let call = |name: &str, arguments: Value, key: &str| {
        let mut params = json!({ "name": name, "arguments": arguments });
        if !key.is_empty() {
            params["_meta"] = json!({ "callgate/idempotencyKey": key });
        }
        ask("tools/call", params)
    };
    call("papers_read", json!({}), "k");
    call("papers_read", json!({}), "k");
    call("builtin_echo", json!({}), "");
    call("papers_none", json!({}), "");
    call("files_read", json!({}), "");
    ask("resources/read", json!({ "uri": "n://tool" }));
    assert_eq!(web.send(&modern(None, "tools/list", json!({}))).status, 401);
    assert!(web.serve.stop().success());
    let told: Vec<String> = chain(&folder)
        .split_off(before)
        .iter()
        .map(|record| {
            let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
            let whose = text("caller") + &text("wire");
            let is_call = text("kind") != "http.refuse" && text("kind") != "outcome";
            assert_eq!(whose.contains("mcp-http"), is_call, "{record}");
            format!("{} {} {}", text("kind"), text("tool"), text("fault"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "start papers/read ",
            "outcome papers/read ",
            "replay papers/read ",
            "call builtin/echo ",
            "refusal papers_none unknown_tool",
            "refusal files/read bad_input",
            "start papers/read ",
            "outcome papers/read ",
            "http.refuse  ",
        ]
    );
}
