//! A tool that may reach some hosts: those it reaches, and nothing else, whatever it tries and
//! whoever runs the gate. Judged by what servers of the test hear; each way is first seen to
//! work by a tool that may use the network.

#![expect(clippy::print_stdout, reason = "tells what was void")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::arena::{Arena, Users};
use crate::support::drive::{Serve, end_of, run};
use crate::support::processes::started_with;
use crate::support::wait_for;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[http]
off = true

[breaker]
failures_max = 0

[[tool]]
name = "hosted"
network = { allow = ["api.localhost:API"] }
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "reach"
network = { allow = ["api.localhost:API"] }
code = ["net.py"]
runner = { kind = "process", command = ["PYTHON", "-I", "net.py"] }

[[tool]]
name = "worker"
network = { allow = ["api.localhost:API"] }
runner = { kind = "python", entry = "net:run", python = "PYTHON" }

[[tool]]
name = "zygote"
network = { allow = ["api.localhost:API"] }
isolation = "call"
runner = { kind = "python", entry = "net:run", python = "PYTHON" }

[[tool]]
name = "node"
network = { allow = ["api.localhost:API"] }
runner = { kind = "node", entry = "net.mjs:run", node = "NODE" }

[[tool]]
name = "open"
network = true
code = ["net.py"]
runner = { kind = "process", command = ["PYTHON", "-I", "net.py"] }

[[tool]]
name = "free"
sandbox = false
code = ["net.py"]
runner = { kind = "process", command = ["PYTHON", "-I", "net.py"] }

[[tool]]
name = "bold"
network = { allow = ["api.localhost:API"] }
allow_unsafe_execution = true
code = ["net.py"]
runner = { kind = "process", command = ["PYTHON", "-I", "net.py"] }

[[tool]]
name = "shut"
network = { allow = ["api.localhost:API"] }
guarantees = { no_network = true }
code = ["net.py"]
runner = { kind = "process", command = ["PYTHON", "-I", "net.py"] }

[[tool]]
name = "hold"
concurrency_max = 64
network = { allow = ["api.localhost:API"] }
code = ["hold.sh"]
runner = { kind = "process", command = ["/bin/sh", "hold.sh"] }
"#;

const NET: &str = include_str!("egress/net.py");
const NET_OF_NODE: &str = include_str!("egress/net.mjs");

/// A server of HTTP on loopback that answers with what it was asked for.
struct Site {
    port: u16,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let words = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let words = Arc::clone(&words);
                thread::spawn(move || answer(stream, &words));
            }
        });
        Self { port, heard }
    }

    fn has_heard(&self, word: &str) -> bool {
        let heard = self.heard.lock().expect("no panic holds it");
        heard.iter().any(|one| one.contains(word))
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, heard: &Mutex<Vec<String>>) {
    let (mut head, mut chunk) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(count) => head.extend_from_slice(&chunk[..count]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    heard.lock().expect("no panic holds it").push(head);
    let reply = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{path}",
        path.len()
    );
    let _ = stream.write_all(reply.as_bytes());
}

/// A resolver that answers each packet with itself: at the port of resolvers, where we may.
fn resolver() -> String {
    let socket = UdpSocket::bind("127.0.0.77:53").or_else(|_| UdpSocket::bind("127.0.0.1:0"));
    let socket = socket.expect("a port");
    let at = socket.local_addr().expect("bound").to_string();
    thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((count, from)) = socket.recv_from(&mut packet) {
            let _ = socket.send_to(&packet[..count], from);
        }
    });
    at
}

/// A word that nobody else says.
fn word() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("word-{}-{number}-", std::process::id())
}

/// An arena whose tools may reach `site`.
fn arena(users: Users, site: &Site) -> Arena {
    let config = CONFIG.replace("API", &site.port.to_string());
    let arena = Arena::new(users, &config);
    let config = arena
        .folder
        .read("ws/callgate.toml")
        .expect("it was laid out");
    let config = config.replace("NODE", &arena.node());
    arena.folder.write("ws/callgate.toml", &config);
    arena.put("ws/net.py", NET);
    arena.put("ws/net.mjs", NET_OF_NODE);
    arena.put("ws/hold.sh", "echo '{}'\n");
    arena.cli(&["trust"]).good();
    arena
}

/// Where hosts can be held to at all: as root, and as a user where namespaces can be had.
fn arenas(site: &Site) -> Vec<Arena> {
    let all = Users::all().into_iter().map(|users| arena(users, site));
    all.filter(|arena| {
        let can = starts_with(&finding(arena, "")["finding"], "enforced");
        if !can {
            println!("void as {}: no network namespace", arena.users.name());
            assert!(!arena.users.is_root(), "root can");
        }
        can
    })
    .collect()
}

fn starts_with(text: &Value, words: &str) -> bool {
    text.as_str().is_some_and(|text| text.starts_with(words))
}

/// What `doctor` says of it on a machine without `hidden`.
fn finding(arena: &Arena, hidden: &str) -> Value {
    let mut command = arena.callgate(&["doctor", "--json"]);
    command.env("CALLGATE_HIDE", hidden);
    let told = run(&mut command).json();
    let mut checks = told["checks"].as_array().expect("checks").iter();
    let found = checks.find(|check| check["name"] == "network.allow");
    found.expect("a row for it").clone()
}

/// One call by a process of its own: the reply.
fn call(arena: &Arena, tool: &str, input: &Value) -> Value {
    let text = input.to_string();
    arena
        .cli(&["call", tool, &text, "--json", "--standalone"])
        .json()
}

/// What a call was refused, as its trace has it.
fn refused(arena: &Arena, reply: &Value) -> String {
    let id = reply["call_id"].as_str().expect("an id");
    let trace = arena.cli(&["trace", id, "--json"]).good().json();
    let words = trace["network_refused"].as_str();
    words.unwrap_or_default().to_owned()
}

fn asks(what: &str, at: &str, word: &str) -> Value {
    json!({ "what": what, "at": at, "word": word })
}

/// P-3, K-4: a host that is named is reached, by urllib and through a tunnel; the reply says by
/// what the tool is held to it.
#[test]
fn a_named_host_is_reached() {
    let site = Site::new();
    for arena in arenas(&site) {
        let who = arena.users.name();
        let at = format!("api.localhost:{}", site.port);
        for tool in ["reach", "worker", "zygote"] {
            for what in ["plain", "tunnel"] {
                let word = word();
                let reply = call(&arena, tool, &asks(what, &at, &word));
                let said = &reply["output"]["said"];
                assert_eq!(*said, format!("/{word}"), "{who} {tool} {what}: {reply}");
                assert!(site.has_heard(&word), "{who} {tool} {what}");
                let network = &reply["enforcement"]["network"];
                assert_eq!(network["level"], "enforced", "{who}: {reply}");
                let by = network["mechanisms"].as_array().expect("a list");
                for wanted in ["netns", "proxy", "seccomp"] {
                    assert!(by.contains(&json!(wanted)), "{who}: {reply}");
                }
                assert_eq!(refused(&arena, &reply), "", "{who} {tool} {what}");
            }
        }
    }
}

/// A Node worker, which is told of the proxy like all others.
#[test]
fn a_node_tool_reaches_its_host() {
    let site = Site::new();
    // Node tools of another user than the gate's do not work.
    let own = |arena: &Arena| arena.users.gate == arena.users.owner;
    for arena in arenas(&site).into_iter().filter(own) {
        let who = arena.users.name();
        for (host, status) in [("api", 200), ("other", 403)] {
            let (word, at) = (word(), format!("{host}.localhost:{}", site.port));
            let reply = call(&arena, "node", &asks("", &at, &word));
            assert_eq!(reply["output"]["status"], status, "{who}: {reply}");
            assert_eq!(site.has_heard(&word), status == 200, "{who}: {reply}");
        }
    }
}

/// Every other host, port and protocol fails; what came to the proxy is in the call's trace.
#[test]
fn nothing_else_is_reached() {
    let (site, other, resolver) = (Site::new(), Site::new(), resolver());
    for arena in arenas(&site) {
        let who = arena.users.name();
        let local = |site: &Site| format!("127.0.0.1:{}", site.port);
        // Past the proxy. Each way works for a tool that may use the network.
        for (what, at) in [
            ("direct", local(&site)),
            ("direct", local(&other)),
            ("plain", local(&site)),
            ("datagram", resolver.clone()),
        ] {
            let word = word();
            let said = call(&arena, "open", &asks(what, &at, &word))["output"]["said"].clone();
            assert!(
                said.to_string().contains(&word),
                "{who} {what} {at}: {said}"
            );
        }
        for (what, at) in [
            ("direct", local(&site)),
            ("direct", local(&other)),
            ("direct", "169.254.169.254:80".to_owned()),
            ("datagram", resolver.clone()),
            ("raw", String::new()),
            ("name", "example.com".to_owned()),
        ] {
            for tool in ["reach", "worker", "zygote"] {
                let word = word();
                let reply = call(&arena, tool, &asks(what, &at, &word));
                let error = &reply["output"]["error"];
                assert!(error.is_string(), "{who} {tool} {what} {at}: {reply}");
                let heard = site.has_heard(&word) || other.has_heard(&word);
                assert!(!heard, "{who} {tool} {what} {at}");
            }
        }
        for (what, at) in [
            ("plain", local(&site)),
            ("plain", format!("api.localhost:{}", other.port)),
            ("plain", format!("other.localhost:{}", site.port)),
            ("plain", "169.254.169.254:80".to_owned()),
            ("plain", "example.com:80".to_owned()),
            ("tunnel", local(&other)),
            ("tunnel", format!("localhost:{}", site.port)),
            ("tunnel", "169.254.169.254:80".to_owned()),
            ("tunnel", "[::1]:443".to_owned()),
        ] {
            let word = word();
            let reply = call(&arena, "reach", &asks(what, &at, &word));
            let error = reply["output"]["error"].to_string();
            assert!(error.contains("403"), "{who} {what} {at}: {reply}");
            let heard = site.has_heard(&word) || other.has_heard(&word);
            assert!(!heard, "{who} {what} {at}");
            let at = at.replace(['[', ']'], "");
            let wanted = format!("1: {at} not allowed");
            assert_eq!(refused(&arena, &reply), wanted, "{who} {what}");
            let record = arena.cli(&["audit", "show", "--last", "1", "--json"]);
            let record = record.good().json();
            assert_eq!(record["call"], reply["call_id"], "{record}");
            assert_eq!(record["network_refused"], 1, "{who} {what}: {record}");
        }
        prove_raw(&arena);
    }
}

/// Raw sockets work for whoever has all rights, so that what was refused was a way.
fn prove_raw(arena: &Arena) {
    if arena.users.gate == 0 {
        let made = call(arena, "free", &asks("raw", "", ""));
        assert_eq!(made["output"]["said"], "made", "{made}");
    }
}

/// K-4: the attacks on `no_network`, by a tool that may reach one host.
#[test]
fn attacks_have_no_effect() {
    let site = Site::new();
    for arena in arenas(&site) {
        let users = arena.users;
        let mut referee = arena.referee_as(users.owner, &["network"], |_| {});
        let mut host = arena.host();
        let mut stopped = 0;
        for attack in referee.attacks() {
            if !attack.is_for(users) {
                continue;
            }
            let (works, said) = referee.prove(&attack.name);
            if !works {
                assert!(
                    attack.void.is_some(),
                    "{} shows nothing: {said}",
                    attack.name
                );
                continue;
            }
            let facts = referee.prepare(&attack.name);
            let request = json!({ "aid": "AID.TOOL.HOSTED.v1", "inputs": facts });
            let reply = host.ask(&request).to_string();
            assert!(!referee.judge(&reply), "{} worked: {reply}", attack.name);
            let has_run = reply.contains("said") || reply.contains("SIGSYS");
            assert!(has_run, "{}: {reply}", attack.name);
            stopped += 1;
        }
        assert!(stopped > 20, "{stopped}");
        referee.end();
        assert!(host.end().success());
    }
}

/// One worker for many calls: it goes on reaching its host, each call has its own refusals, and
/// under `call` nothing that one call left on the loopback is there for the next.
#[test]
fn calls_of_one_worker() {
    let site = Site::new();
    for arena in arenas(&site) {
        let who = arena.users.name();
        let serve = serve(&arena);
        // Only its own user may knock at a gate.
        let ask = |tool: &str, input: Value| -> (Value, String) {
            let ran = arena.cli(&["call", tool, &input.to_string(), "--json"]);
            let reply = ran.json();
            (reply["output"].clone(), refused(&arena, &reply))
        };
        let at = format!("api.localhost:{}", site.port);
        for tool in ["worker", "zygote"] {
            for round in 0..3 {
                let word = word();
                let (output, refused) = ask(tool, asks("plain", &at, &word));
                assert_eq!(output["said"], format!("/{word}"), "{who} {tool} {output}");
                assert_eq!(refused, "", "{who} {tool}");
                let bad = format!("evil{round}.test:443");
                let (output, refused) = ask(tool, asks("twice", &bad, &word));
                assert!(output["error"].is_string(), "{who} {tool} {output}");
                let wanted = format!("2: {bad} not allowed (2 times)");
                assert_eq!(refused, wanted, "{who} {tool}");
                let (output, _) = ask(tool, json!({ "what": "count" }));
                let wanted = if tool == "worker" { round + 1 } else { 1 };
                assert_eq!(output["said"], wanted, "{who} {tool}");
            }
        }
        // Who does not wait for the answer is recorded all the same.
        for tool in ["reach", "zygote"] {
            let (output, refused) = ask(tool, asks("parting", "evil.test:1", ""));
            assert_eq!(output["said"], "gone", "{who} {tool}: {output}");
            let wanted = "20: evil.test:1 not allowed (20 times)";
            assert_eq!(refused, wanted, "{who} {tool}");
        }
        // Within one call its own loopback works; the next call finds nobody there.
        for tool in ["worker", "zygote"] {
            let (output, _) = ask(tool, json!({ "what": "leave" }));
            assert_eq!(output["said"], "reached", "{who} {tool}: {output}");
            let (output, _) = ask(tool, json!({ "what": "find" }));
            let wanted = if tool == "worker" {
                "reached"
            } else {
                "nobody"
            };
            assert_eq!(output["said"], wanted, "{who} {tool}: {output}");
        }
        assert!(serve.stop().success());
    }
}

fn serve(arena: &Arena) -> Serve {
    let socket = arena.folder.join("state/gate.sock");
    Serve::spawn(&mut arena.callgate(&["serve"]), socket)
}

/// P-7: a gate that is killed leaves nobody in the networks it made.
#[test]
fn nothing_outlives_a_killed_gate() {
    const TOOLS: usize = 10;
    let site = Site::new();
    for arena in arenas(&site) {
        // The callers have only the mark among their words.
        let mark = format!("{}{}", std::process::id(), arena.users.owner);
        let name = format!("86400.{mark}");
        let script = format!("(setsid sleep {name} &)\nsleep {name}\necho '{{}}'\n");
        arena.put("ws/hold.sh", &script);
        let serve = serve(&arena);
        let held = json!({ "what": "hold", "word": mark }).to_string();
        let commands = (0..TOOLS).map(|_| vec!["call", "hold"]);
        let workers = ["worker", "zygote"].map(|tool| vec!["call", tool, &held]);
        let callers: Vec<Child> = commands
            .chain(workers)
            .map(|args| {
                let mut command = arena.callgate(&args);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().expect("start a caller")
            })
            .collect();
        let wanted = 2 * TOOLS + 2;
        wait_for("all tools and what they started", || {
            (started_with(&name).len() >= wanted).then_some(())
        });
        serve.kill();
        wait_for(&format!("their end as {}", arena.users.name()), || {
            started_with(&name).is_empty().then_some(())
        });
        for mut caller in callers {
            assert!(
                !end_of(&mut caller, "a caller").success(),
                "nobody answered"
            );
        }
    }
}

/// P-3: where it can not be held to its hosts it does not run; an override lets it run with the
/// network as it is, and says so. A promise of no network outranks the hosts.
#[test]
fn without_a_private_network_it_is_refused() {
    let site = Site::new();
    for arena in arenas(&site) {
        let who = arena.users.name();
        let hidden = if arena.users.gate == 0 {
            "netns"
        } else {
            "userns"
        };
        let row = finding(&arena, hidden);
        assert_eq!(row["ok"], false, "{who}: {row}");
        assert!(starts_with(
            &row["finding"],
            "none: needs a network namespace"
        ));
        assert_eq!(finding(&arena, "")["ok"], true, "{who}");

        let here = format!("127.0.0.1:{}", site.port);
        let without = |hidden: &str, tool: &str, word: &str| {
            let text = asks("direct", &here, word).to_string();
            let mut command = arena.callgate(&["call", tool, &text, "--json", "--standalone"]);
            command.env("CALLGATE_HIDE", hidden);
            run(&mut command).json()
        };
        let word = word();
        let reply = without(hidden, "reach", &word);
        assert_eq!(reply["fault"]["kind"], "unenforceable", "{who}: {reply}");
        let message = reply["fault"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("a network namespace"), "{who}: {message}");
        assert!(!site.has_heard(&word), "{who}");

        let reply = without(hidden, "bold", &word);
        assert!(site.has_heard(&word), "{who}: {reply}");
        let enforcement = &reply["enforcement"];
        assert_eq!(enforcement["network"]["level"], "none", "{who}: {reply}");
        assert_eq!(enforcement["unsafe_override"], true, "{who}: {reply}");
        // The private network holds it without the other layers too.
        for hidden in ["", "landlock", "landlock,seccomp"] {
            let word = self::word();
            let reply = without(hidden, "bold", &word);
            let error = &reply["output"]["error"];
            assert!(error.is_string(), "{who} {hidden}: {reply}");
            assert!(!site.has_heard(&word), "{who} {hidden}");
            let lifted = &reply["enforcement"]["unsafe_override"];
            assert_eq!(lifted.is_null(), hidden.is_empty(), "{who}: {reply}");
        }

        let at = format!("api.localhost:{}", site.port);
        let reply = call(&arena, "shut", &asks("plain", &at, &word));
        assert!(reply["output"]["error"].is_string(), "{who}: {reply}");
        assert_eq!(
            reply["enforcement"]["network"],
            Value::Null,
            "{who}: {reply}"
        );
    }
}

/// Entries that mean nothing, and runners whose network is not ours to hold, are refused when
/// the configuration is loaded.
#[test]
fn what_can_not_be_held_is_not_loaded() {
    let tool = |allow: &str, runner: &str| {
        format!(
            "[[tool]]\nname = \"t\"\nnetwork = {{ allow = [\"{allow}\"] }}\nrunner = {{ {runner} }}\n"
        )
    };
    let process = "kind = \"process\", command = [\"true\"]";
    for (config, words) in [
        (tool("example.com", process), "say a port"),
        (tool("*:443", process), "not a host name or address"),
        (tool("a.test:0", process), "a port is a number"),
        (
            tool(
                "a.test:1",
                "kind = \"service\", url = \"http://127.0.0.1:1/tools\"",
            ),
            "whom a service reaches is its own to hold",
        ),
        (
            tool(
                "a.test:1",
                "kind = \"container\", image = \"i\", command = [\"true\"]",
            ),
            "a container reaches everybody or nobody",
        ),
    ] {
        let folder = crate::support::Folder::new();
        folder.write("callgate.toml", &config);
        let trusted = crate::support::drive::cli(&folder, &["trust"]);
        let told = match trusted.code() {
            0 => crate::support::drive::cli(&folder, &["call", "t"]).err,
            _ => trusted.err,
        };
        assert!(told.contains(words), "{config}: {told}");
    }
}
