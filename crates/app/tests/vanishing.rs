//! Clients that vanish at every point of a conversation, and calls that are taken back: no child,
//! no zombie, no descriptor and no memory is left, by `callgate serve` and by `callgate mcp` alone.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use crate::support::drive::{Host, PATIENCE, chain, end_of, python, verified};
use crate::support::mcp::{
    cancelled, hear_of, initialize, legacy_call, listen, mcp, modern_call, post_mcp, post_open,
    serve_http,
};
use crate::support::processes::{descendants, descriptors, own_bytes, zombies};
use crate::support::workspace::{EVERY_BUILTIN, HANGS, ONE, effects, trusted_with};
use crate::support::{Folder, callgate, is_alive, wait_for};
use serde_json::{Value, json};

/// Beside [`ONE`]: a worker that says much before its answer, and is gone soon after.
const TALKS: &str = r#"
[[tool]]
name = "talks"
tier = 1
code = ["talks.py"]
runner = { kind = "pool", command = ["PYTHON", "talks.py"], pool = { workers_max = 1, idle_ms = 1000 } }
"#;

const TALKS_PY: &str = r#"
import json, os, socket
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"]))
for line in gate.makefile():
    request = json.loads(line)
    call, words = request["call"], "x" * request["input"]["bytes"]
    reports = [{"progress": {"progress": n, "message": words}} for n in range(1, 9)]
    for said in reports + [{"output": {}}]:
        gate.sendall((json.dumps({"call": call, **said}) + "\n").encode())
"#;

fn workspace() -> Folder {
    let config = format!("{ONE}{}{EVERY_BUILTIN}", TALKS.replace("PYTHON", &python()));
    trusted_with(&[
        ("callgate.toml", &config),
        ("tool.sh", HANGS),
        ("talks.py", TALKS_PY),
    ])
}

/// A gate as its clients find it.
struct Doors<'a> {
    folder: &'a Folder,
    port: u16,
    socket: &'a Path,
}

impl Doors<'_> {
    /// One client that comes and goes without goodbye, at another point each.
    fn vanish(&self, round: usize) {
        match round % 10 {
            0 => drop(self.tcp(b"")),
            1 => drop(self.tcp(b"POST /mcp HTTP/1.1\r\nhost: lo")),
            2 => drop(post_open(self.port, &initialize(1), &[])),
            3 => drop(post_open(self.port, &listen(&json!(9)), &[])),
            4 => {
                let mut stream = post_open(self.port, &listen(&json!(9)), &[]);
                hear_of(&mut stream, "subscriptions/acknowledged");
            }
            5 => self.listen_in_session(),
            6 => drop(self.unix(b"")),
            7 => drop(self.unix(b"GET /v1/tools HTTP/1.1\r\nhost: gate\r\n\r\n")),
            8 if round % 500 == 8 => self.kill_attached(),
            8 => self.attach(),
            _ if round % 50 == 9 => self.half_read(round % 100 == 9),
            _ => drop(self.unix(b"GET /mcp/pipe HTTP/1.1\r\nhost: ga")),
        }
    }

    fn tcp(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(bytes).expect("it is taken");
        stream
    }

    fn unix(&self, bytes: &[u8]) -> UnixStream {
        let mut stream = UnixStream::connect(self.socket).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(bytes).expect("it is taken");
        stream
    }

    /// A legacy session.
    fn session(&self) -> String {
        let begun = post_mcp(self.port, &initialize(1), &[]);
        let session = begun.header("mcp-session-id").expect("a session");
        session.to_owned()
    }

    /// In a legacy session that listens.
    fn listen_in_session(&self) {
        let head = format!(
            "GET /mcp HTTP/1.1\r\nhost: localhost:{}\r\naccept: text/event-stream\r\n\
             mcp-session-id: {}\r\n\r\n",
            self.port,
            self.session()
        );
        hear_of(
            &mut self.tcp(head.as_bytes()),
            "content-type: text/event-stream",
        );
    }

    /// Attached to `gate.sock` as `callgate mcp` is, and listening.
    fn attach(&self) {
        let mut pipe = self.unix(
            b"GET /mcp/pipe HTTP/1.1\r\nhost: gate\r\nconnection: upgrade\r\n\
              upgrade: callgate-mcp\r\n\r\n",
        );
        hear_of(&mut pipe, "\r\n\r\n");
        let line = format!("{}\n", listen(&json!(9)));
        pipe.write_all(line.as_bytes()).expect("it is taken");
        hear_of(&mut pipe, "subscriptions/acknowledged");
    }

    /// The same by a real `callgate mcp`, which dies.
    fn kill_attached(&self) {
        let mut host = mcp(self.folder, &[]);
        host.ask(&listen(&json!(9)));
        host.kill();
    }

    /// In the middle of a stream that is an answer. What a legacy client leaves unread is kept for
    /// it for a while, and so is little here.
    fn half_read(&self, is_modern: bool) {
        let token = json!({ "progressToken": "p" });
        let mut stream = if is_modern {
            let call = modern_call(9, "talks", &json!({ "bytes": 50_000 }), &token);
            post_open(self.port, &call, &[])
        } else {
            let call = legacy_call(9, "talks", &json!({ "bytes": 10 }), &token);
            post_open(self.port, &call, &[("mcp-session-id", &self.session())])
        };
        hear_of(&mut stream, "notifications/progress");
    }
}

/// Calls that are taken back once they have begun for sure.
struct Cancelled<'a> {
    doors: &'a Doors<'a>,
    host: Host,
    session: String,
    begun: usize,
}

impl Cancelled<'_> {
    /// Ten at a time, in each way there is: by hanging up, and by a word on the pipe or, in a
    /// session, on another connection.
    fn ten(&mut self, batch: usize) {
        let ids = self.begun as u64..self.begun as u64 + 10;
        let (port, none) = (self.doors.port, json!({}));
        let modern: Vec<Value> = ids.map(|id| modern_call(id, "one", &none, &none)).collect();
        let legacy = modern
            .iter()
            .map(|call| legacy_call(call["id"].as_u64().expect("an id"), "one", &none, &none));
        let session = [("mcp-session-id", self.session.as_str())];
        self.begun += 10;
        let wanted = self.begun;
        let started = || {
            wait_for("their start", || {
                (effects(self.doors.folder) == wanted).then_some(())
            });
        };
        match batch % 4 {
            0 => {
                let open: Vec<_> = modern.iter().map(|one| post_open(port, one, &[])).collect();
                started();
                drop(open);
            }
            1 => {
                assert!(modern.iter().all(|call| self.host.send(call)));
                started();
                let taken_back = modern.iter().map(|call| cancelled(&call["id"]));
                for word in taken_back {
                    assert!(self.host.send(&word));
                }
            }
            2 => {
                let open: Vec<_> = legacy.map(|one| post_open(port, &one, &session)).collect();
                started();
                drop(open);
            }
            _ => {
                let open: Vec<_> = legacy.map(|one| post_open(port, &one, &session)).collect();
                started();
                for call in &modern {
                    let told = post_mcp(port, &cancelled(&call["id"]), &session);
                    assert_eq!(told.status, 202, "{told:?}");
                }
                drop(open);
            }
        }
    }
}

/// Who ended and was not waited for is found, and is so no longer once it was.
#[test]
fn zombies_are_found() {
    let mut child = std::process::Command::new("true").spawn().expect("a child");
    let is_zombie = || zombies(std::process::id()).contains(&child.id());
    wait_for("its end", || is_zombie().then_some(()));
    assert!(!descendants(std::process::id()).contains(&child.id()));
    end_of(&mut child, "what has ended");
    assert!(!zombies(std::process::id()).contains(&child.id()));
}

/// Waits until only the spawner is left below a server, and everybody who ended was looked after.
fn settled(server: u32) {
    wait_for("quiet", || {
        let left = (descendants(server).len(), zombies(server).len());
        (left.0 <= 1 && left.1 == 0).then_some(())
    });
}

/// Waits until a server has no more than before.
fn back_to(server: u32, (memory, open): (u64, usize)) {
    settled(server);
    wait_for("descriptors", || {
        (descriptors(server) <= open + 8).then_some(())
    });
    wait_for("memory", || {
        let grown = own_bytes(server).saturating_sub(memory);
        (grown <= 8 << 20).then_some(())
    });
}

/// So many calls of `one` have begun, and all were taken back.
fn all_cancelled(folder: &Folder, wanted: usize) {
    let records = chain(folder);
    let count = |kind: &str, fault: &Value| {
        let found = records.iter().filter(|record| {
            record["tool"] == "one" && record["kind"] == kind && record["fault"] == *fault
        });
        found.count()
    };
    assert_eq!(count("start", &Value::Null), wanted);
    assert_eq!(count("outcome", &json!("cancelled")), wanted);
    verified(folder);
}

/// Ten thousand clients that vanish and a thousand cancelled calls, after some that warm it up.
#[test]
fn vanishing_clients_leave_nothing() {
    let folder = workspace();
    let (serve, port) = serve_http(&folder);
    let socket = serve.socket.clone();
    let doors = Doors {
        folder: &folder,
        port,
        socket: &socket,
    };
    let mut calls = Cancelled {
        doors: &doors,
        host: mcp(&folder, &[]),
        session: doors.session(),
        begun: 0,
    };
    (0..1000).for_each(|round| doors.vanish(round));
    (0..10).for_each(|batch| calls.ten(batch));
    settled(serve.pid());
    let before = (own_bytes(serve.pid()), descriptors(serve.pid()));
    (0..10_000).for_each(|round| doors.vanish(round));
    (0..100).for_each(|batch| calls.ten(batch));
    back_to(serve.pid(), before);
    let answer = post_mcp(
        port,
        &modern_call(2, "builtin_echo", &json!({ "a": 1 }), &json!({})),
        &[],
    );
    let text = &answer.json()["result"]["content"][0]["text"];
    assert_eq!(text, r#"{"a":1}"#);
    let mut host = calls.host;
    let next = host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    assert_eq!(next["id"], 1, "no call that was taken back is answered");
    assert!(host.end().success());
    assert!(serve.stop().success());
    all_cancelled(&folder, 1100);
}

/// The same for one that stands alone: its client takes calls and subscriptions back, or dies, or
/// it is killed itself in the middle of a call.
#[test]
fn a_server_that_stands_alone_leaves_nothing() {
    let folder = workspace();
    let mut host = mcp(&folder, &["--standalone"]);
    let mut begun = 0;
    let mut churn = |host: &mut Host, batches: usize| {
        for _ in 0..batches {
            let calls = begun as u64..begun as u64 + 10;
            begun += 10;
            let streams: Vec<Value> = calls.clone().map(|id| json!(format!("s{id}"))).collect();
            for stream in &streams {
                let told = host.ask(&listen(stream));
                assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
            }
            for id in calls.clone() {
                assert!(host.send(&modern_call(id, "one", &json!({}), &json!({}))));
            }
            wait_for("their start", || (effects(&folder) == begun).then_some(()));
            for id in calls.map(Value::from).chain(streams) {
                assert!(host.send(&cancelled(&id)));
            }
        }
        begun
    };
    churn(&mut host, 5);
    settled(host.pid());
    let before = (own_bytes(host.pid()), descriptors(host.pid()));
    let begun = churn(&mut host, 20);
    back_to(host.pid(), before);
    let next = host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }));
    assert_eq!(next["id"], 1, "nothing that was taken back is answered");
    assert!(host.end().success());
    all_cancelled(&folder, begun);

    for round in 1..=10 {
        let mut child = callgate(&folder)
            .args(["mcp", "--standalone"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the program");
        let (mut stdin, mut stdout) = (child.stdin.take(), child.stdout.take());
        let call = modern_call(1, "one", &json!({}), &json!({}));
        let lines = format!("{}\n{call}\n", listen(&json!(9)));
        let sent = stdin
            .as_mut()
            .map(|stdin| stdin.write_all(lines.as_bytes()));
        sent.expect("piped").expect("it reads");
        hear_of(
            stdout.as_mut().expect("piped"),
            "subscriptions/acknowledged",
        );
        wait_for("its start", || {
            (effects(&folder) == begun + round).then_some(())
        });
        let children = descendants(child.id());
        assert!(children.len() > 1, "{children:?}");
        // Its client dies, or it is killed itself.
        match round % 2 {
            0 => drop((stdin, stdout)),
            _ => child.kill().expect("it lives"),
        }
        end_of(&mut child, "the server");
        wait_for("the children's end", || {
            children.iter().all(|&pid| !is_alive(pid)).then_some(())
        });
    }
}
