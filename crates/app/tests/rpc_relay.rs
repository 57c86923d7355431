//! `callgate rpc` attaches to the workspace's gate, and outlives it: what its calls leave behind
//! stays there, what ran when it died is told as unknown or asked for again under its key, and the
//! conversation goes on, with the next gate or alone.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::drive::{Host, Serve, chain, end_of, signal, verified};
use crate::support::processes::{descendants, words_of};
use crate::support::rpc::{Client, Line, request, rpc, rpc_alone};
use crate::support::workspace::{ONE, OR_HANG, SLOW, effects, started, trusted_with};
use crate::support::{Folder, callgate, wait_for};
use serde_json::{Value, json};

fn workspace() -> Folder {
    trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)])
}

fn pid(client: &Client) -> u32 {
    match &client.line {
        Line::Pipes(host) => host.pid(),
        Line::Socket(_) => panic!("no process"),
    }
}

fn works(client: &mut Client, n: u64) {
    let got = client.good("one", json!({ "n": n }));
    assert_eq!(got, json!({ "got": { "n": n } }));
}

/// True if a process beneath `pid` has the word.
fn runs(pid: u32, word: &str) -> bool {
    let all = descendants(pid);
    all.iter().any(|&pid| words_of(pid).contains(word))
}

/// Waits until the tool hangs beneath `pid`: it notes its start before it does.
fn hangs(pid: u32) {
    wait_for("the tool", || runs(pid, "1000").then_some(()));
}

/// It is the gate that runs the tool; with `--standalone`, or without a gate, it is the pipe's
/// own process.
#[test]
fn whose_process_it_is() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let (mut attached, mut alone) = (rpc(&folder), rpc_alone(&folder));
    works(&mut attached, 1);
    works(&mut alone, 2);
    attached.send("one", json!({ "hang": 1 }));
    started(&folder, 3);
    hangs(serve.pid());
    assert!(!runs(pid(&attached), "1000"));
    drop(attached);
    // Whoever goes away ends its call.
    wait_for("its end", || (!runs(serve.pid(), "1000")).then_some(()));
    alone.send("one", json!({ "hang": 2 }));
    started(&folder, 4);
    hangs(pid(&alone));
    assert!(!runs(serve.pid(), "1000"));
    drop(alone);
    assert!(serve.stop().success());
    let mut alone = rpc(&folder);
    works(&mut alone, 3);
    assert!(alone.end());
    verified(&folder);
}

/// JR-4, JR-7: ids, batches, what is too long and what is no message come back as they do without
/// a gate in between; notifications stand before the answer they precede, and reach others.
#[test]
fn the_same_conversation() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let (mut client, mut other) = (rpc(&folder), rpc(&folder));
    works(&mut other, 1);
    let Line::Pipes(host) = &mut client.line else {
        panic!("pipes");
    };
    let raw = |host: &mut Host, line: &str| {
        assert!(host.send_bytes(format!("{line}\n").as_bytes()));
        host.reply()
    };
    assert_eq!(raw(host, "{")["error"]["code"], -32700);
    let reply = raw(
        host,
        r#"{"jsonrpc":"2.0","id":1.50,"method":"builtin/echo"}"#,
    );
    assert_eq!(reply["id"].to_string(), "1.5");
    let batch = json!([
        request(1, "one", json!({ "n": 1 })),
        { "jsonrpc": "2.0", "method": "one", "params": { "n": 2 } },
        7,
    ]);
    let replies = raw(host, &batch.to_string());
    assert_eq!(replies[0]["result"], json!({ "got": { "n": 1 } }));
    assert_eq!(replies[1]["error"]["code"], -32600);
    let mut long = vec![b'x'; (16 << 20) + 2];
    long.push(b'\n');
    assert!(host.send_bytes(&long));
    assert_eq!(host.reply()["error"]["code"], 1007);
    let plan = request(
        2,
        "planner/create_plan",
        json!({ "title": "t", "user_request": "- a" }),
    );
    let told = raw(host, &plan.to_string());
    assert_eq!(told["method"], "planner/plan_updated", "{told}");
    assert_eq!(host.reply()["id"], 2);
    assert_eq!(other.event()["method"], "planner/plan_updated");
    let server = client.good("tools/list", json!({ "limit": 1 }))["tools"][0]["server"].clone();
    assert_eq!(server["transport"], "stdio", "{server}");
    assert!(client.end() && other.end());
    assert!(serve.stop().success());
}

/// The end of input ends it after the answers.
#[test]
fn to_the_end() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let lines: String = (1..=50)
        .map(|n| format!("{}\n", request(n, "one", json!({ "n": n }))))
        .collect();
    let ran =
        crate::support::drive::run_with(callgate(&folder).arg("rpc"), lines.trim_end().as_bytes());
    let ids: std::collections::BTreeSet<u64> = ran
        .good()
        .out
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok()?["id"].as_u64())
        .collect();
    assert_eq!(ids, (1..=50).collect());
    assert!(serve.stop().success());
}

/// JR-7: what was asked before the end of input is answered, however long it takes, alone and
/// attached; unless nobody can hear it any more.
#[test]
fn whoever_listens_is_answered() {
    let folder = trusted_with(&[("callgate.toml", ONE), ("tool.sh", OR_HANG)]);
    let serve = Serve::start(&folder);
    let slow = json!({ "command": "sleep", "args": ["7"] });
    let line = request(1, "exec/run", slow).to_string();
    let answered = |args: &[&str]| {
        let ran =
            crate::support::drive::run_with(callgate(&folder).args(args), line.as_bytes()).good();
        let reply: Value = serde_json::from_str(&ran.out).expect("one answer");
        assert_eq!(reply["result"]["exit_code"], 0, "{args:?}: {reply}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| answered(&["rpc"]));
        scope.spawn(|| answered(&["rpc", "--standalone"]));
    });
    for (count, args) in [&["rpc"][..], &["rpc", "--standalone"]].iter().enumerate() {
        let mut child = callgate(&folder)
            .args(*args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start it");
        let hangs = request(1, "one", json!({ "hang": count }));
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "{hangs}").expect("it reads");
        drop(stdin);
        started(&folder, count + 1);
        drop(child.stdout.take());
        assert!(end_of(&mut child, "the relay").success(), "{args:?}");
    }
    assert!(serve.stop().success());
}

/// R-11: what was made through it lives in the gate: another client finds the session, attaches,
/// and hears it.
#[test]
fn terminals_outlive_it() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let mut first = rpc(&folder);
    let params = json!({ "command": "cat", "env": { "TERM": "dumb" } });
    let session = first.good("terminals/create", params)["session_id"].clone();
    let write = |data: &str| json!({ "session_id": session, "data": data });
    first.good("terminals/write", write("one\n"));
    loop {
        let event = first.event();
        if event["method"] == "terminals/stream" && event["params"]["data"] == "one\n" {
            break;
        }
    }
    signal(pid(&first), rustix::process::Signal::KILL);
    drop(first);
    let mut second = rpc(&folder);
    let listed = second.good("terminals/list", json!({}))["sessions"].clone();
    assert_eq!(
        (&listed[0]["session_id"], &listed[0]["status"]),
        (&session, &json!("running"))
    );
    second.good("terminals/attach", json!({ "session_id": session }));
    second.good("terminals/write", write("two\n"));
    let mut heard = String::new();
    while !heard.ends_with("two\n") {
        heard.push_str(
            second.event()["params"]["data"]
                .as_str()
                .unwrap_or_default(),
        );
    }
    assert_eq!(heard, "one\ntwo\n", "what was there, and what came");
    second.good("terminals/kill", json!({ "session_id": session }));
    loop {
        if second.event()["method"] == "terminals/exit" {
            break;
        }
    }
    assert!(second.end());
    assert!(serve.stop().success());
}

/// What ran when the gate died is told as unknown; it is not made again; the next request goes to
/// a gate of the pipe's own process, or to the next gate.
#[test]
fn a_gate_that_dies() {
    let folder = workspace();
    for next in [false, true] {
        let serve = Serve::start(&folder);
        let mut client = rpc(&folder);
        works(&mut client, 1);
        let before = effects(&folder);
        let lost = client.send("one", json!({ "hang": 1 }));
        started(&folder, before + 1);
        serve.kill();
        let reply = client.answer(lost);
        let error = &reply["error"];
        assert_eq!(
            (&error["code"], &error["data"]),
            (&json!(1005), &json!({ "outcome": "unknown" })),
            "{reply}"
        );
        let words = error["message"].as_str().expect("words");
        assert!(words.contains("outcome unknown"), "{words}");
        // Events may have been missed with it.
        let gap = client.event();
        assert_eq!(
            (&gap["method"], &gap["params"]),
            (&json!("rpc/gap"), &json!({ "missed": null }))
        );
        let serve = next.then(|| Serve::start(&folder));
        works(&mut client, 2);
        assert_eq!(
            effects(&folder),
            before + 2,
            "what was lost did not run again"
        );
        let hung = client.send("one", json!({ "hang": 2 }));
        started(&folder, before + 3);
        let whose = serve.as_ref().map_or(pid(&client), Serve::pid);
        hangs(whose);
        match serve {
            // One that is told to stop answers what runs; told twice, it ends that.
            Some(serve) => {
                signal(serve.pid(), rustix::process::Signal::TERM);
                serve.wait_said("1 running call");
                signal(serve.pid(), rustix::process::Signal::TERM);
                let data = client.answer(hung)["error"]["data"].clone();
                assert_eq!(data["kind"], "cancelled", "{data}");
                assert!(serve.ended().success());
                works(&mut client, 3);
                assert!(client.end());
            }
            None => drop(client),
        }
    }
    verified(&folder);
}

/// Also the last one of a client that asks nothing more.
#[test]
fn a_call_lost_after_the_end_of_input() {
    let folder = workspace();
    let serve = Serve::start(&folder);
    let mut host = Host::spawn(callgate(&folder).arg("rpc"));
    host.send(&request(7, "one", json!({ "hang": 1 })));
    started(&folder, 1);
    host.close_input();
    serve.kill();
    let lost = host.reply();
    assert_eq!(
        (&lost["id"], &lost["error"]["data"]["outcome"]),
        (&json!(7), &json!("unknown"))
    );
    assert!(host.end().success());
    assert_eq!(effects(&folder), 1);
}

/// G-3: a call with a key is made again: it runs a second time only if its tool says that it may.
#[test]
fn a_key_makes_a_lost_call_safe_to_repeat() {
    let twice = ONE.replace("\"one\"", "\"twice\"").replace("ONE", "TWICE");
    let twice = twice.replace("tool.sh", "twice.sh") + "idempotent = true\n";
    let config = format!("{ONE}{twice}");
    let files = [
        ("callgate.toml", config.as_str()),
        ("tool.sh", OR_HANG),
        ("twice.sh", SLOW),
    ];
    let folder = trusted_with(&files);
    let keyed = |id: u64, tool: &str, key: &str| {
        let mut call = request(id, tool, json!({ "hang": id }));
        call["callgate"] = json!({ "idempotency_key": key });
        call
    };
    let serve = Serve::start(&folder);
    let mut host = Host::spawn(callgate(&folder).arg("rpc"));
    host.send(&keyed(1, "one", "k1"));
    started(&folder, 1);
    serve.kill();
    assert_eq!(host.reply()["method"], "rpc/gap");
    let unknown = host.reply();
    assert_eq!(
        (&unknown["id"], &unknown["callgate"]["fault"]),
        (&json!(1), &json!("outcome_unknown")),
        "{unknown}"
    );
    assert_eq!(effects(&folder), 1);
    drop(host);

    let serve = Serve::start(&folder);
    let mut host = Host::spawn(callgate(&folder).arg("rpc"));
    host.send(&keyed(2, "twice", "k2"));
    started(&folder, 2);
    serve.kill();
    started(&folder, 3);
    folder.write("go", "");
    assert_eq!(host.reply()["method"], "rpc/gap");
    let reply = host.reply();
    assert_eq!(
        (&reply["id"], &reply["result"]),
        (&json!(2), &json!({ "done": true }))
    );
    assert!(host.end().success());
    let ends = chain(&folder);
    let outcomes = ends.iter().filter(|end| end["kind"] == "outcome");
    assert_eq!(outcomes.count(), 1);
    verified(&folder);
}

/// A client that neither reads nor asks more does not keep it from being stopped, once it serves
/// alone.
#[test]
fn it_is_stopped_with_an_answer_unread() {
    let config = format!("{ONE}idempotent = true\n");
    let large = SLOW.replace(
        "echo '{\"done\":true}'",
        "printf '\"'; head -c 1000000 /dev/zero | tr '\\0' x; printf '\"'",
    );
    assert_ne!(large, SLOW);
    let folder = trusted_with(&[("callgate.toml", config.as_str()), ("tool.sh", &large)]);
    let serve = Serve::start(&folder);
    let mut child = callgate(&folder)
        .arg("rpc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start it");
    let mut call = request(1, "one", json!({}));
    call["callgate"] = json!({ "idempotency_key": "k" });
    let mut stdin = child.stdin.take().expect("piped");
    writeln!(stdin, "{call}").expect("it reads");
    drop(stdin);
    started(&folder, 1);
    serve.kill();
    started(&folder, 2);
    folder.write("go", "");
    wait_for("the call's end", || {
        let ends = chain(&folder);
        ends.iter()
            .any(|end| end["kind"] == "outcome")
            .then_some(())
    });
    signal(child.id(), rustix::process::Signal::TERM);
    assert!(end_of(&mut child, "the relay").success());
}

/// The pipe is for our own user's socket: a port does not have it.
#[test]
fn not_on_a_port() {
    let folder = workspace();
    let (_serve, port) = crate::support::mcp::serve_http(&folder);
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let asked =
        crate::support::web::Request::new("GET /rpc/pipe", b"").with("upgrade", "callgate-rpc");
    std::io::Write::write_all(&mut stream, &asked.bytes("connection: upgrade\r\n")).expect("write");
    assert_eq!(crate::support::web::hear_one(&mut stream).status, 404);
}
