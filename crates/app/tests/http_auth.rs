//! HTTP on TCP: who is let in, as whom, to what, and what those hear who are not. G-10, G-11.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::drive::{chain, cli, lines_of, signal, verified};
use crate::support::web::{
    Request, Web, assert_refused, code, hear, hear_one, modern, owner, read_until, token, trusted,
};
use crate::support::{Folder, wait_for};
use callgate_tools::MCP_DEFAULT;
use serde_json::{Value, json};

/// G-10: what a token does not allow does not exist for who brings it; its rate holds; a
/// revoked one is refused at once, also on a connection that was let in before.
#[test]
fn a_token_opens_its_own_tools() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let reader = token(
        &folder,
        &["reader", "--tools", "papers/*", "--tier-max", "0"],
    );
    let writer = token(&folder, &["writer", "--tools", "papers/*", "memory/*"]);
    assert_eq!(web.tools(&reader), ["papers_read"]);
    assert_eq!(
        web.tools(&writer),
        [
            "memory_append",
            "memory_query",
            "papers_read",
            "papers_write"
        ]
    );
    assert_eq!(web.tools(&owner(&folder)).len(), MCP_DEFAULT.len() + 4);
    let got = web.call(&reader, "papers_read", json!({ "n": 1 }));
    assert_eq!(got.text(), r#"{"got":{"n":1}}"#);
    let outside = web.call(&reader, "papers_write", json!({}));
    let nowhere = web.call(&reader, "files_nope", json!({}));
    assert_eq!(code(&outside), -32602);
    assert_eq!(outside.status, nowhere.status);
    assert_eq!(
        outside.body.replace("papers_write", "files_nope"),
        nowhere.body,
        "what one may not know of looks like what is not there"
    );

    let slow = token(&folder, &["slow", "--rate", "0.001/s,2"]);
    for _ in 0..2 {
        let good = web.call(&slow, "papers_read", json!({})).json();
        assert_eq!(good["result"]["isError"], false);
    }
    let limited = web.call(&slow, "papers_write", json!({})).json();
    let fault = limited.pointer("/result/_meta/callgate~1call/fault");
    assert_eq!(fault, Some(&json!("rate_limited")), "{limited}");

    let mut open = web.connect();
    let request = modern(Some(&reader), "tools/list", json!({})).bytes("");
    open.write_all(&request).expect("write");
    assert_eq!(hear_one(&mut open).status, 200);
    cli(&folder, &["token", "revoke", "reader"]).good();
    open.write_all(&request).expect("write");
    assert_refused(&hear_one(&mut open), "invalid_token");
    assert_eq!(web.tools(&writer).len(), 4, "the others are as before");

    let short = token(&folder, &["short", "--expires", "1ms"]);
    let state = |name: &str| {
        let listed = cli(&folder, &["token", "list", "--json"]).good().json();
        let tokens = listed["tokens"].as_array().expect("a list").clone();
        let found = tokens.into_iter().find(|token| token["name"] == name);
        found.expect("it is listed")["state"].clone()
    };
    wait_for("its end", || (state("short") == "expired").then_some(()));
    assert_eq!(state("reader"), "revoked");
    assert_eq!(state("writer"), "active");
    let refused = web.ask(Some(&short), "tools/list", json!({}));
    assert_refused(&refused, "invalid_token");
    assert!(web.serve.stop().success());
    let records = chain(&folder);
    let by: Vec<&Value> = records
        .iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| &record["caller"])
        .collect();
    assert_eq!(by, ["token:reader", "token:slow", "token:slow"]);
    verified(&folder);
}

/// G-10: what is behind a resource or a prompt is a tool: for whoever may not know of the tool
/// there is neither, as if it had never been written. What is fixed is there for all.
#[test]
fn a_token_hides_what_its_tools_would_give() {
    let mut shelf = String::new();
    for (name, tool) in [("open", "papers/read"), ("shut", "deploy")] {
        shelf.push_str(&format!(
            r#"
[[prompt]]
name = "{name}"
tool = "{tool}"
arguments = [{{ name = "topic", values = ["red"] }}]
[[resource]]
uri = "papers://{name}"
name = "{name}"
tool = "{tool}"
[[resource]]
uri = "papers://{name}/{{n}}"
name = "{name}-pages"
tool = "{tool}"
"#
        ));
    }
    shelf.push_str("[[prompt]]\nname = \"fixed\"\ntext = \"hello\"\n");
    let folder = trusted(&shelf);
    folder.write("tool.sh", "read -r input\necho '{\"messages\":[]}'\n");
    cli(&folder, &["trust"]).good();
    let web = Web::start(&folder, &[]);
    let reader = token(&folder, &["reader", "--tools", "papers/*"]);
    let list = |token: &str, method: &str, kind: &str| -> Vec<String> {
        let reply = web.ask(Some(token), method, json!({})).json();
        let items = reply["result"][kind].as_array().expect("a list");
        let name = |item: &Value| item["name"].as_str().expect("a name").to_owned();
        let own = |name: &String| !name.starts_with("callgate");
        items.iter().map(name).filter(own).collect()
    };
    let mine = owner(&folder);
    for (method, kind, all, some) in [
        (
            "prompts/list",
            "prompts",
            &["open", "shut", "fixed"][..],
            &["open", "fixed"][..],
        ),
        ("resources/list", "resources", &["open", "shut"], &["open"]),
        (
            "resources/templates/list",
            "resourceTemplates",
            &["open-pages", "shut-pages"],
            &["open-pages"],
        ),
    ] {
        let seen = list(&mine, method, kind);
        assert!(
            all.iter().all(|name| seen.iter().any(|s| s == name)),
            "{seen:?}"
        );
        let seen = list(&reader, method, kind);
        assert!(
            some.iter().all(|name| seen.iter().any(|s| s == name)),
            "{seen:?}"
        );
        assert!(
            !seen.iter().any(|name| name.starts_with("shut")),
            "{seen:?}"
        );
    }
    // What may not be known of is refused in the words for what is not there.
    let read = |name: &str, uri: &str| {
        let params = json!({ "uri": uri.replace("NAME", name) });
        let uri = params["uri"].as_str().expect("text").to_owned();
        web.send(&modern(Some(&reader), "resources/read", params).with("mcp-name", &uri))
    };
    let get = |name: &str| web.ask(Some(&reader), "prompts/get", json!({ "name": name }));
    let complete = |name: &str| {
        let params = json!({
            "ref": { "type": "ref/prompt", "name": name },
            "argument": { "name": "topic", "value": "r" },
        });
        web.ask(Some(&reader), "completion/complete", params)
    };
    let ways: [&dyn Fn(&str) -> crate::support::web::Reply; 4] = [
        &|name| read(name, "papers://NAME"),
        &|name| read(name, "papers://NAME/7"),
        &|name| get(name),
        &|name| complete(name),
    ];
    for (number, way) in ways.iter().enumerate() {
        let (shown, hidden, absent) = (way("open"), way("shut"), way("none"));
        assert_eq!(shown.json()["error"], Value::Null, "{number}: {shown:?}");
        assert_eq!(code(&hidden), -32602, "{number}");
        assert_eq!(hidden.status, absent.status);
        assert_eq!(hidden.body.replace("shut", "none"), absent.body, "{number}");
    }
    assert!(web.serve.stop().success());
    let called: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| record["tool"].clone())
        .collect();
    assert_eq!(called, vec!["papers/read"; 3]);
}

/// G-10, G-11: the owner's token is made and shown once, is the owner's alone, and its caller
/// is the one of every other wire: a key used here replays there.
#[test]
fn the_owners_token_is_the_owner() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    // Shown at the first start.
    web.serve.wait_said(&mine);
    let mode = std::fs::metadata(folder.join("state/token"))
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let params = json!({
        "name": "papers_write", "arguments": {},
        "_meta": { "callgate/idempotencyKey": "k" },
    });
    let first = web.ask(Some(&mine), "tools/call", params.clone()).json();
    assert_eq!(first["result"]["isError"], false, "{first}");
    let again = cli(&folder, &["call", "papers/write", "--key", "k", "--json"]);
    assert_eq!(again.good().json()["idempotent_hit"], true);
    // R-15: masked in what programs print, by the very process that made it.
    let echo = json!({ "command": "echo", "args": [mine] }).to_string();
    let printed = cli(&folder, &["call", "exec/run", &echo, "--json"]).good();
    assert_eq!(printed.json()["output"]["stdout"], "[secret]\n");
    // G-5: on TCP a lease is asked for from tier 2 on.
    let deploy = web.call(&mine, "deploy", json!({})).json();
    let fault = deploy.pointer("/result/_meta/callgate~1call/fault");
    assert_eq!(fault, Some(&json!("lease_required")), "{deploy}");
    assert!(web.serve.stop().success());

    let web = Web::start(&folder, &[]);
    assert!(!web.serve.said().contains(&mine), "not shown again");
    let replayed = web.ask(Some(&mine), "tools/call", params).json();
    let call = &replayed["result"]["_meta"]["callgate/call"];
    assert_eq!(call["replayed"], true, "{replayed}");
    assert!(web.serve.stop().success());
    let uid = format!("uid:{}", rustix::process::geteuid().as_raw());
    for record in chain(&folder) {
        if record["kind"] == "start" {
            assert_eq!(record["caller"], uid);
        }
    }
}

/// Who is refused, with which words, and that nobody else feels it.
#[test]
fn strangers_are_refused() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let list = || modern(Some(&mine), "tools/list", json!({}));
    let mut slow = web.connect();
    let params = json!({ "name": "slow", "arguments": {} });
    slow.write_all(&modern(Some(&mine), "tools/call", params).bytes("connection: close\r\n"))
        .expect("write");
    wait_for("its start", || {
        (lines_of(&folder.join("effects.log")).len() == 1).then_some(())
    });

    let mut refused = 0;
    let no_token = list().without("authorization");
    let mut strange = |request: Request, error: &str| {
        assert_refused(&web.send(&request), error);
        refused += 1;
    };
    strange(no_token.clone(), "");
    strange(no_token.clone().with("authorization", "Basic eDp5"), "");
    let mut in_query = no_token.clone();
    in_query.line = format!("POST /mcp?access_token={mine}");
    strange(in_query, "");
    for bad in [
        "x",
        "cgt_",
        "cgo_",
        &mine[..mine.len() - 1],
        &format!("{mine}0"),
        "a.b.c",
    ] {
        strange(list().by(bad), "invalid_token");
    }
    strange(list().by(&"x".repeat(20_000)), "invalid_token");
    let mut twice = list();
    twice
        .headers
        .push(("authorization".into(), format!("Bearer {mine}")));
    strange(twice, "invalid_token");
    strange(no_token.clone().with("content-length", "1").body(b"{"), "");
    let get = Request::new("GET /mcp", b"").with("mcp-session-id", "x");
    strange(get, "");
    strange(Request::new("DELETE /mcp", b""), "");
    strange(Request::new("GET /mcp/pipe", b""), "");

    let mut forbidden = |request: Request, what: &str| {
        let reply = web.send(&request);
        assert_eq!(reply.status, 403, "{reply:?}");
        assert!(reply.body.contains(what), "{reply:?}");
        refused += 1;
    };
    forbidden(list().with("host", "evil.example"), "Host");
    forbidden(list().with("host", "localhost.evil.example:7411"), "Host");
    forbidden(list().without("host"), "Host");
    let mut two = list();
    two.headers.push(("host".into(), "localhost".into()));
    forbidden(two, "Host");
    for origin in [
        "https://evil.example",
        "null",
        "file://",
        "http://localhost@evil.example",
    ] {
        forbidden(list().with("origin", origin), "Origin");
    }
    let mut metadata = Request::new("GET /.well-known/oauth-protected-resource", b"");
    forbidden(metadata.clone().with("host", "evil.example"), "Host");
    metadata = metadata.without("authorization");
    assert_eq!(web.send(&metadata).status, 404, "no issuer is configured");
    for origin in ["http://localhost:3000", "http://127.0.0.1"] {
        assert_eq!(web.send(&list().with("origin", origin)).status, 200);
    }

    folder.write("go", "");
    let answer = hear(&mut slow);
    assert_eq!(answer.text(), r#"{"slow":true}"#, "nobody else felt it");
    assert!(web.serve.stop().success());
    let records = chain(&folder);
    let counted = records
        .iter()
        .filter(|record| record["kind"] == "http.refuse");
    let times: u64 = counted.filter_map(|record| record["times"].as_u64()).sum();
    assert_eq!(times, refused, "every stranger is counted, in few records");
    verified(&folder);
}

/// Requests that are no good, by somebody who may ask.
#[test]
fn bad_requests_are_refused_one_by_one() {
    const MIB: usize = 1024 * 1024;
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let list = || modern(Some(&mine), "tools/list", json!({}));
    let call = || {
        let params = json!({ "name": "papers_read", "arguments": {} });
        modern(Some(&mine), "tools/call", params)
    };
    let chunked = |bytes: usize| {
        let mut body = format!("{bytes:x}\r\n").into_bytes();
        body.resize(body.len() + bytes, b' ');
        body.extend_from_slice(b"\r\n0\r\n\r\n");
        list().with("transfer-encoding", "chunked").body(&body)
    };
    for (what, request, status, wanted) in [
        (
            "type",
            list().with("content-type", "text/plain"),
            415,
            -32600,
        ),
        ("no type", list().without("content-type"), 415, -32600),
        (
            "accept",
            list().with("accept", "application/json"),
            406,
            -32600,
        ),
        (
            "no method header",
            list().without("mcp-method"),
            400,
            -32020,
        ),
        (
            "other method",
            list().with("mcp-method", "tools/call"),
            400,
            -32020,
        ),
        (
            "other version",
            list().with("mcp-protocol-version", "2025-11-25"),
            400,
            -32020,
        ),
        ("no name", call().without("mcp-name"), 400, -32020),
        ("other name", call().with("mcp-name", "deploy"), 400, -32020),
        (
            "batch",
            list().body(b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]"),
            400,
            -32600,
        ),
        ("empty batch", list().body(b"[]"), 400, -32600),
        ("junk", list().body(b"\xff\xfe{"), 400, -32700),
        ("nothing", list().body(b""), 400, -32700),
        ("large", list().body(&vec![b' '; 16 * MIB + 1]), 413, -32600),
        ("large, in chunks", chunked(16 * MIB + 1), 413, -32600),
    ] {
        let mut stream = web.connect();
        let bytes = request.bytes("connection: close\r\n");
        // The answer may come before all is said.
        let mut writing = stream.try_clone().expect("a second handle");
        let writer = std::thread::spawn(move || drop(writing.write_all(&bytes)));
        let reply = hear(&mut stream);
        writer.join().expect("no panic");
        assert_eq!(reply.status, status, "{what}: {reply:?}");
        assert_eq!(code(&reply), wanted, "{what}: {reply:?}");
    }
    // At the edge it is read: blanks are no JSON.
    let edge = web.send(&list().body(&vec![b' '; 16 * MIB]));
    assert_eq!((edge.status, code(&edge)), (400, -32700));
    let path = web.send(&Request::new("GET /nowhere", b""));
    assert_eq!(path.status, 404);
    // One connection: what was refused leaves the next request as it is.
    let mut open = web.connect();
    for (request, status) in [
        (list(), 200),
        (list().body(b"[]"), 400),
        (list().with("mcp-method", "x"), 400),
        (list(), 200),
    ] {
        open.write_all(&request.bytes("")).expect("write");
        assert_eq!(hear_one(&mut open).status, status);
    }
    assert!(web.serve.stop().success());
}

/// A session belongs to the caller that began it.
#[test]
fn sessions_are_their_callers() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let (a, b) = (token(&folder, &["a"]), token(&folder, &["b"]));
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let post = |body: &Value| Request::new("POST /mcp", body.to_string().as_bytes());
    let begun = web.send(&post(&initialize).by(&a));
    assert_eq!(begun.status, 200, "{begun:?}");
    let session = begun
        .header("mcp-session-id")
        .expect("a session")
        .to_owned();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let list = post(&list).with("mcp-session-id", &session);
    let end = Request::new("DELETE /mcp", b"").with("mcp-session-id", &session);
    let listen = Request::new("GET /mcp", b"").with("mcp-session-id", &session);
    assert_eq!(web.send(&list.clone().by(&a)).status, 200);
    for request in [&list, &end, &listen] {
        assert_eq!(web.send(&request.clone().by(&b)).status, 404);
        assert_refused(&web.send(request), "");
    }
    let mut forged = session.clone();
    forged.replace_range(..1, if session.starts_with('0') { "1" } else { "0" });
    let forged = list.clone().with("mcp-session-id", &forged);
    assert_eq!(web.send(&forged.by(&a)).status, 404);
    assert_eq!(
        web.send(&list.clone().by(&a)).status,
        200,
        "it is a's still"
    );
    assert_eq!(web.send(&end.by(&a)).status, 204);
    assert_eq!(web.send(&list.by(&a)).status, 404);
    assert!(web.serve.stop().success());
}

/// A stream that listens ends with the token it was opened with, in both eras.
#[test]
fn a_revoked_token_listens_no_more() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let (gone, stays) = (token(&folder, &["gone"]), token(&folder, &["stays"]));
    let listen = |token: &str| {
        let wanted = json!({ "notifications": { "toolsListChanged": true } });
        let mut stream = web.connect();
        let request = modern(Some(token), "subscriptions/listen", wanted);
        stream.write_all(&request.bytes("")).expect("write");
        stream
    };
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let begin = Request::new("POST /mcp", initialize.to_string().as_bytes());
    let begun = web.send(&begin.by(&gone));
    let session = begun.header("mcp-session-id").expect("a session");
    let legacy = Request::new("GET /mcp", b"").with("mcp-session-id", session);
    let mut old = web.connect();
    old.write_all(&legacy.by(&gone).bytes("")).expect("write");
    let (mut ends, mut goes_on) = (listen(&gone), listen(&stays));
    // All are let in before the token goes.
    for stream in [&mut old, &mut ends, &mut goes_on] {
        assert!(read_until(stream, "\r\n\r\n").starts_with("HTTP/1.1 200 "));
    }
    cli(&folder, &["token", "revoke", "gone"]).good();
    for stream in [&mut old, &mut ends] {
        // The connection is there for other requests; the stream's last chunk tells its end.
        read_until(stream, "0\r\n\r\n");
    }
    folder.write("callgate.toml", "");
    cli(&folder, &["trust"]).good();
    read_until(&mut goes_on, "notifications/tools/list_changed");
    assert!(web.serve.stop().success());
}

/// SIGTERM: a call under way is answered, a stream that only listens ends.
#[test]
fn the_end_answers_calls_and_ends_streams() {
    let folder = trusted("");
    let web = Web::start(&folder, &[]);
    let mine = owner(&folder);
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = web.connect();
    stream
        .write_all(&modern(Some(&mine), "subscriptions/listen", listen).bytes(""))
        .expect("write");
    let mut slow = web.connect();
    let params = json!({ "name": "slow", "arguments": {} });
    slow.write_all(&modern(Some(&mine), "tools/call", params).bytes(""))
        .expect("write");
    let _idle = web.connect();
    wait_for("its start", || {
        (lines_of(&folder.join("effects.log")).len() == 1).then_some(())
    });
    signal(web.serve.pid(), rustix::process::Signal::TERM);
    assert_eq!(hear(&mut stream).status, 200, "the stream ended");
    folder.write("go", "");
    let answer = hear(&mut slow);
    assert_eq!(answer.text(), r#"{"slow":true}"#);
    assert!(web.serve.ended().success());
    verified(&folder);
}

/// G-10: what is opened, and what is said of it.
#[test]
fn ports_and_no_auth() {
    let folder = trusted("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port().to_string();
    let asked = cli(&folder, &["serve", "--port", &port]);
    assert_eq!(asked.code(), 1);
    assert!(asked.err.contains(&format!("port {port}")), "{}", asked.err);

    // Whoever has 7411, nobody asked for it here. Another gate may have had it a moment ago, and
    // then it is ours: once more.
    wait_for("a gate without HTTP", || {
        let usual = std::net::TcpListener::bind("127.0.0.1:7411");
        let serve = crate::support::drive::Serve::start(&folder);
        let is_refused = wait_for("what is opened", || {
            let said = serve.said();
            let is_refused = said.contains("no HTTP, only the socket: port 7411");
            (is_refused || said.contains("MCP on")).then_some(is_refused)
        });
        assert_eq!(serve.get("/v1/health").1["ok"], true);
        assert!(serve.stop().success());
        assert!(is_refused || usual.is_err());
        is_refused.then_some(())
    });

    let web = Web::start(&folder, &["--no-auth"]);
    web.serve.wait_said("WARNING: --no-auth");
    let request = modern(
        None,
        "tools/call",
        json!({ "name": "papers_read", "arguments": {} }),
    );
    assert_eq!(web.send(&request).text(), r#"{"got":{}}"#);
    assert_eq!(
        web.send(&request.clone().with("host", "evil.example"))
            .status,
        403
    );
    assert_eq!(
        web.send(&request.with("origin", "https://evil.example"))
            .status,
        403
    );
    assert!(web.serve.stop().success());
    let records = chain(&folder);
    let start = records.iter().find(|record| record["kind"] == "start");
    assert_eq!(start.expect("a start")["caller"], "anonymous");

    let folder = trusted("[http]\noff = true\nhosts = [\"gate.test\"]");
    let serve = crate::support::drive::Serve::start(&folder);
    serve.wait_said("listening on");
    assert!(!serve.said().contains("MCP on"));
    assert!(serve.stop().success());
    let refused = cli(&folder, &["serve", "--port", "0", "--no-auth"]);
    assert_eq!(refused.code(), 1);
    assert!(refused.err.contains("--no-auth"), "{}", refused.err);
    let web = Web::start(&folder, &[]);
    let request = modern(Some(&owner(&folder)), "tools/list", json!({}));
    assert_eq!(
        web.send(&request.clone().with("host", "gate.test")).status,
        200
    );
    assert_eq!(web.send(&request.with("host", "other.test")).status, 403);
    assert!(web.serve.stop().success());

    for wrong in [
        "[http.jwt]\nissuer = \"http://issuer.test\"\naudience = \"a\"",
        "[http.jwt]\nissuer = \"https://issuer.test\"\naudience = \"\"",
        "[http.jwt]\nissuer = \"https://issuer.test\"\naudience = \"a\"\nalgorithms = [\"HS256\"]",
        "[http.jwt]\nissuer = \"https://issuer.test\"\naudience = \"a\"\nscopes = { x = [\"all\"] }",
    ] {
        let folder = Folder::new();
        folder.write("callgate.toml", wrong);
        let ran = cli(&folder, &["trust"]);
        assert_eq!(ran.code(), 1, "{wrong}");
        assert!(ran.err.contains("[http.jwt]"), "{}", ran.err);
    }
}

/// G-6: a client's user approves up to tier 1; above only for callers that policy names.
#[test]
fn a_client_approves_what_policy_lets_it() {
    let folder = trusted(
        r#"
[leases]
enforce_from_tier = 3
[[policy]]
tools = ["deploy"]
callers = ["token:trusted"]
decision = "ask"
approve_by_client = true
[[policy]]
tools = ["deploy", "papers/write"]
decision = "ask"
"#,
    );
    let web = Web::start(&folder, &[]);
    let plain = token(&folder, &["plain", "--tier-max", "2"]);
    let named = token(&folder, &["trusted", "--tier-max", "2"]);
    let params = |name: &str, n: u32| {
        json!({
            "name": name, "arguments": { "n": n },
            "_meta": { "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} } },
        })
    };
    let ask = |token: &str, name: &str, n: u32| {
        web.ask(Some(token), "tools/call", params(name, n)).json()
    };
    let approved = |token: &str, name: &str, n: u32, state: &Value, answer: Value| {
        let mut params = params(name, n);
        params["requestState"] = state.clone();
        params["inputResponses"] = json!({ "callgate_approval": answer });
        web.ask(Some(token), "tools/call", params).json()
    };
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let no = json!({ "action": "decline" });
    for (token, name) in [(&plain, "papers_write"), (&named, "deploy")] {
        let asked = ask(token, name, 0);
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let state = &asked["result"]["requestState"];
        let denied = approved(token, name, 0, state, no.clone());
        assert_eq!(denied["result"]["isError"], true, "{denied}");
        let asked = ask(token, name, 1);
        let state = &asked["result"]["requestState"];
        let ran = approved(token, name, 1, state, yes.clone());
        assert_eq!(ran["result"]["isError"], false, "{ran}");
    }
    let waits = ask(&plain, "deploy", 1);
    assert_eq!(waits["result"]["isError"], true, "{waits}");
    assert!(waits["result"]["requestState"].is_null(), "{waits}");
    // State of the caller who may is good for nobody else.
    let asked = ask(&named, "deploy", 2);
    let state = &asked["result"]["requestState"];
    let stolen = approved(&plain, "deploy", 2, state, yes.clone());
    assert_eq!(stolen["error"]["code"], -32602, "{stolen}");
    // Nor is it good for that caller once it was changed or cut.
    let text = state.as_str().expect("a state");
    let (head, last) = text.split_at(text.len() - 1);
    let flipped = format!("{head}{}", if last == "0" { "1" } else { "0" });
    for changed in [flipped.as_str(), head, &text[..32], ""] {
        let refused = approved(&named, "deploy", 2, &json!(changed), yes.clone());
        assert_eq!(refused["error"]["code"], -32602, "{changed}: {refused}");
    }
    assert!(web.serve.stop().success());
    let records = chain(&folder);
    let starts = records.iter().filter(|record| record["kind"] == "start");
    let ran: Vec<(&Value, &Value)> = starts
        .map(|record| (&record["caller"], &record["tool"]))
        .collect();
    assert_eq!(
        ran,
        [
            (&json!("token:plain"), &json!("papers/write")),
            (&json!("token:trusted"), &json!("deploy")),
        ]
    );

    folder.write(
        "callgate.toml",
        "[[policy]]\ndecision = \"ask\"\napprove_by_client = true\n",
    );
    let ran = cli(&folder, &["trust"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err.contains("approve_by_client"), "{}", ran.err);
}
