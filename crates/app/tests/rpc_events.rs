//! What outlives its call, heard on pipes, a WebSocket and a stream of events: in order, once,
//! by those who may, and at nobody else's cost. R-3.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::Folder;
use crate::support::drive::{PATIENCE, Serve, cli};
use crate::support::mcp::serve_http;
use crate::support::rpc::{Client, Events, Posts, Ws, rpc};
use crate::support::web::{Request, Web, hear_one, token};
use serde_json::{Value, json};

fn plan(client: &mut Client, tasks: usize) -> String {
    let lines: String = (0..tasks).map(|n| format!("- task {n}\n")).collect();
    let params = json!({ "title": "a plan", "user_request": lines });
    let plan = client.good("planner/create_plan", params)["plan"].clone();
    plan["id"].as_str().expect("an id").to_owned()
}

fn named(plan: &str, task: usize, description: &str) -> Value {
    let patch = json!({ "description": description });
    json!({ "plan_id": plan, "task_id": format!("t{task}"), "patch": patch })
}

fn description(event: &Value) -> &str {
    event["params"]["task"]["description"]
        .as_str()
        .unwrap_or_else(|| panic!("no task: {event}"))
}

/// R-3: on pipes events stand between answers, a whole line each, and
/// what was told before an answer is said before it.
#[test]
fn on_pipes() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let plan = plan(&mut client, 1);
    let made = client.event();
    assert_eq!(
        (
            &made["jsonrpc"],
            &made["method"],
            &made["params"]["plan"]["id"]
        ),
        (&json!("2.0"), &json!("planner/plan_updated"), &json!(plan))
    );
    assert!(made.get("id").is_none());
    let ids: Vec<u64> = (0..300)
        .map(|n| client.send("planner/update_task", named(&plan, 1, &n.to_string())))
        .collect();
    for id in ids {
        assert!(client.answer(id)["result"].is_object());
    }
    let mut heard: Vec<u64> = (0..300)
        .map(|_| description(&client.event()).parse().expect("a number"))
        .collect();
    let last = client.good("planner/get_plan", json!({ "plan_id": plan }));
    let last = last["plan"]["tasks"][0]["description"].clone();
    assert_eq!(json!(heard.last().unwrap().to_string()), last);
    heard.sort_unstable();
    assert_eq!(heard, (0..300).collect::<Vec<_>>());
    assert!(client.end());
}

/// JR-172: a line may end with a carriage return, and the last one with the input; what happens
/// then is still told, before the answers that are left.
#[test]
fn to_the_end() {
    let folder = Folder::new();
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "planner/create_plan",
                "params": { "title": "a", "user_request": "b" } }),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let ran = crate::support::drive::run_with(
        crate::support::callgate(&folder).arg("rpc"),
        input.trim_end().as_bytes(),
    )
    .good();
    let said: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(said.len(), 2, "{ran:?}");
    assert_eq!(said[0]["method"], "planner/plan_updated");
    assert_eq!(said[1]["id"], 1);
}

/// R-3: a stream that broke is taken up where it was, and nothing is lost or said twice; one
/// that begins elsewhere says so, and goes on.
#[test]
fn a_stream_is_taken_up_again() {
    let folder = Folder::new();
    let (serve, port) = serve_http(&folder);
    let mut client = Client::ws(port);
    let plan = plan(&mut client, 1);
    let mut update = |n: u64| client.good("planner/update_task", named(&plan, 1, &n.to_string()));
    let mut events = Events::open(port, None);
    let (mut heard, mut told) = (Vec::new(), 0);
    for round in 0..5 {
        for _ in 0..20 {
            update(told);
            told += 1;
        }
        // Some are read; then the connection breaks, with some on their way.
        for _ in 0..15 {
            heard.push(description(&events.next()).to_owned());
        }
        let last = events.last.clone();
        drop(events);
        for _ in 0..10 {
            update(told);
            told += 1;
        }
        events = Events::open(port, Some(&last));
        assert_eq!(events.last, last, "round {round}");
    }
    while (heard.len() as u64) < told {
        heard.push(description(&events.next()).to_owned());
    }
    let wanted: Vec<String> = (0..told).map(|n| n.to_string()).collect();
    assert_eq!(heard, wanted);
    let known = events.last.clone();
    let (start, seq) = known.split_once('-').expect("two parts");
    let beyond = format!("{start}-{}", seq.parse::<u64>().expect("a number") + 100);
    for strange in ["0123-4", "nonsense", "", &beyond] {
        let mut events = Events::open(port, Some(strange));
        let gap = events.next();
        assert_eq!(
            (&gap["method"], &gap["params"]),
            (&json!("rpc/gap"), &json!({ "missed": null })),
            "{strange}"
        );
        update(told);
        assert_eq!(description(&events.next()), told.to_string());
        told += 1;
    }
    // Another process knows nothing of it.
    drop(client);
    assert!(serve.stop().success());
    let (_serve, port) = serve_http(&folder);
    let mut events = Events::open(port, Some(&known));
    assert_eq!(events.next()["params"], json!({ "missed": null }));
}

/// R-3: one who does not read blocks nobody; whoever falls behind is told of one gap and goes
/// on with what is left, to the last.
#[test]
fn a_slow_listener_gets_a_gap() {
    const UPDATES: usize = 2000;
    let folder = Folder::new();
    let (_serve, port) = serve_http(&folder);
    let mut client = Client::ws(port);
    let plan = plan(&mut client, 1);
    // Neither reads while all is said; one never will.
    let (mut slow, _never) = (Events::open(port, None), Events::open(port, None));
    let mut slow_ws = Client::ws(port);
    let _never_ws = Ws::open(port, None);
    slow_ws.good("tools/list", json!({ "limit": 1 }));
    let padding = "x".repeat(16 * 1024 - 16);
    let number = |event: &Value| description(event)[..6].parse::<usize>().expect("a number");
    assert_eq!(client.event()["method"], "planner/plan_updated");
    let mut told = Vec::new();
    while told.len() < UPDATES {
        let ids: Vec<u64> = (told.len()..told.len() + 50)
            .map(|n| {
                client.send(
                    "planner/update_task",
                    named(&plan, 1, &format!("{n:06} {padding}")),
                )
            })
            .collect();
        for id in ids {
            assert!(client.answer(id)["result"].is_object());
            told.push(number(&client.event()));
        }
    }
    let hear = |next: &mut dyn FnMut() -> Value| {
        let (mut heard, mut gaps) = (Vec::new(), Vec::new());
        while heard.last() != told.last() {
            let event = next();
            match event["method"].as_str() {
                Some("rpc/gap") => {
                    let missed = event["params"]["missed"].as_u64().expect("a number");
                    gaps.push((heard.len(), usize::try_from(missed).expect("small")));
                }
                _ => heard.push(number(&event)),
            }
        }
        // In order, without a hole but the one it was told of.
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        let (at, missed) = gaps[0];
        assert!(missed > 0);
        assert_eq!(heard, [&told[..at], &told[at + missed..]].concat());
    };
    hear(&mut || slow.next());
    hear(&mut || slow_ws.event());
    // It goes on as if nothing had been.
    client.good("planner/update_task", named(&plan, 1, "after"));
    assert_eq!(description(&slow.next()), "after");
    assert_eq!(description(&slow_ws.event()), "after");
}

/// R-3: a caller hears of what it may know of, and nothing once its token is revoked.
#[test]
fn only_what_a_caller_may_know_of() {
    let folder = Folder::new();
    let web = Web::start(&folder, &[]);
    let files = token(&folder, &["files", "--tools", "files/*"]);
    let plans = token(&folder, &["plans", "--tools", "planner/get_plan"]);
    let all = token(&folder, &["all"]);
    let by = |token: &str| {
        Request::new("GET /rpc/events", b"")
            .with("accept", "text/event-stream")
            .by(token)
    };
    let mut deaf = Events::open_with(web.port, &by(&files));
    let mut hears = Events::open_with(web.port, &by(&plans));
    let mut deaf_ws = Ws::open(web.port, Some(&files));
    let mut client = Client::new(crate::support::rpc::Line::Socket(Ws::open(
        web.port,
        Some(&all),
    )));
    let plan = plan(&mut client, 1);
    assert_eq!(hears.next()["params"]["plan"]["id"], plan);
    cli(&folder, &["token", "revoke", "files"]).good();
    assert_eq!(deaf.try_next(), None, "it ends, and nothing was said");
    let mut rest = Vec::new();
    let _ = deaf_ws.0.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    client.good("planner/update_task", named(&plan, 1, "still"));
    assert_eq!(description(&hears.next()), "still");
}

/// Strangers, foreign pages and what is no handshake are refused as everywhere.
#[test]
fn who_may_listen() {
    let folder = Folder::new();
    let web = Web::start(&folder, &[]);
    let token = token(&folder, &["ci"]);
    let stream = Request::new("GET /rpc/events", b"").with("accept", "text/event-stream");
    let socket = Ws::handshake(None);
    for request in [&stream, &socket] {
        assert_eq!(web.send(request).status, 401);
        let good = request.clone().by(&token);
        assert_eq!(
            web.send(&good.clone().with("host", "evil.example")).status,
            403
        );
        let evil = good.with("origin", "http://evil.example");
        assert_eq!(web.send(&evil).status, 403);
    }
    let ask = stream.clone().by(&token).with("accept", "application/json");
    assert_eq!(web.send(&ask).status, 406);
    for name in ["sec-websocket-key", "sec-websocket-version", "upgrade"] {
        let reply = web.send(&socket.clone().by(&token).without(name));
        assert_eq!(reply.status, 426, "{name}");
        assert_eq!(reply.header("sec-websocket-version"), Some("13"));
    }
    assert_eq!(
        web.send(&Request::new("POST /rpc/ws", b"").by(&token))
            .status,
        405
    );
}

/// One caller has so many listeners and no more; one that leaves makes room.
#[test]
fn listeners_are_bounded() {
    let folder = Folder::new();
    let (_serve, port) = serve_http(&folder);
    let mut streams: Vec<Events> = (0..31).map(|_| Events::open(port, None)).collect();
    let socket = Ws::open(port, None);
    let refused = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        let request = Request::new("GET /rpc/events", b"");
        stream.write_all(&request.bytes("")).expect("write");
        let head = crate::support::web::read_until(&mut stream, "\r\n\r\n");
        head.starts_with("HTTP/1.1 429").then_some(head)
    };
    let head = refused().expect("one too many");
    assert!(head.contains("retry-after: 1"), "{head}");
    streams.pop();
    crate::support::wait_for("room", || refused().is_none().then_some(()));
    drop(socket);
}

/// The WebSocket itself: pings, a goodbye, parts of messages, and what is no message of text.
#[test]
fn frames() {
    let folder = Folder::new();
    let (_serve, port) = serve_http(&folder);
    let mut ws = Ws::open(port, None);
    ws.send(0x89, b"here?");
    assert_eq!(ws.frame(), (10, b"here?".to_vec()));
    let message = crate::support::rpc::request(1, "tools/list", json!({ "limit": 1 })).to_string();
    let (one, two) = message.as_bytes().split_at(10);
    ws.send(0x01, one);
    ws.send(0x80, two);
    let (kind, payload) = ws.frame();
    let reply: Value = serde_json::from_slice(&payload).expect("JSON");
    assert_eq!((kind, &reply["id"]), (1, &json!(1)));
    let server = &reply["result"]["tools"][0]["server"];
    assert_eq!(server["transport"], "http");
    ws.text(b"{");
    let reply: Value = serde_json::from_slice(&ws.frame().1).expect("JSON");
    assert_eq!(reply["error"]["code"], -32700);
    ws.send(0x88, &1000_u16.to_be_bytes());
    assert_eq!(ws.frame(), (8, 1000_u16.to_be_bytes().to_vec()));
    for (first, payload, code) in [
        (0x82, &b"bytes"[..], 1003_u16),
        (0x81, &[0xff][..], 1007),
        (0xf1, b"x", 1002),
    ] {
        let mut ws = Ws::open(port, None);
        ws.send(first, payload);
        assert_eq!(ws.frame(), (8, code.to_be_bytes().to_vec()));
    }
    // Too large is said after the head, before the payload is sent.
    let mut ws = Ws::open(port, None);
    let length = (16 * 1024 * 1024 + 1_u64).to_be_bytes();
    ws.0.write_all(&[&[0x81, 0xff][..], &length, &[0; 4]].concat())
        .expect("write");
    assert_eq!(ws.frame(), (8, 1009_u16.to_be_bytes().to_vec()));
    // On a connection that was used before, with the first message right behind.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let post = Request::new(
        "POST /rpc",
        crate::support::rpc::request(1, "x", json!({}))
            .to_string()
            .as_bytes(),
    );
    stream.write_all(&post.bytes("")).expect("write");
    assert_eq!(hear_one(&mut stream).status, 200);
    let mut ws = Ws::open_on(stream, &Ws::handshake(None));
    ws.text(message.as_bytes());
    assert_eq!(ws.frame().0, 1);
}

/// Reads until `end` has come.
fn hear_until(stream: &mut UnixStream, end: &[u8]) {
    let (mut heard, mut byte) = (Vec::new(), [0]);
    while !heard.ends_with(end) {
        stream.read_exact(&mut byte).unwrap_or_else(|error| {
            panic!("{error} after {}", String::from_utf8_lossy(&heard));
        });
        heard.push(byte[0]);
    }
}

/// The same on `gate.sock`, where the connection is another kind.
#[test]
fn at_the_socket() {
    let folder = Folder::new();
    let serve = Serve::start(&folder);
    let connect = || {
        let stream = UnixStream::connect(&serve.socket).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream
    };
    let mut socket = connect();
    let message = crate::support::rpc::request(1, "builtin/echo", json!({})).to_string();
    let mut bytes = Ws::handshake(None).bytes("");
    // The first message comes along with the handshake.
    bytes.extend([0x81, 0x80 | message.len() as u8, 0, 0, 0, 0]);
    bytes.extend(message.as_bytes());
    socket.write_all(&bytes).expect("write");
    hear_until(&mut socket, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}");
    socket
        .write_all(&[0x88, 0x80, 0, 0, 0, 0])
        .expect("goodbye");
    hear_until(&mut socket, b"\x88\x02\x03\xe8");
    let mut events = connect();
    let request = Request::new("GET /rpc/events", b"").bytes("");
    events.write_all(&request).expect("write");
    hear_until(&mut events, b"retry: 1000\n\n");
    let input = r#"{"title":"t","user_request":"x"}"#;
    cli(&folder, &["call", "planner/create_plan", input]).good();
    hear_until(&mut events, b"\"method\":\"planner/plan_updated\"");
    assert!(serve.stop().success());
}

/// A gate that stops says goodbye to whoever listens, and is not held up.
#[test]
fn the_end_of_the_gate() {
    let folder = Folder::new();
    let (serve, port) = serve_http(&folder);
    let mut events = Events::open(port, None);
    let mut ws = Ws::open(port, None);
    let mut posts = Posts::new(port, "/rpc");
    assert!(posts.ask("tools/list", json!({}))["result"].is_object());
    assert!(serve.stop().success());
    assert_eq!(events.try_next(), None);
    assert_eq!(ws.frame(), (8, 1001_u16.to_be_bytes().to_vec()));
}
