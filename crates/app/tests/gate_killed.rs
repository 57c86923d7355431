//! SIGKILL of the gate while many confined tools run: none of them, and nothing they started,
//! outlives it.

use std::path::Path;
use std::process::Stdio;

use crate::support::arena::{Arena, Users};
use crate::support::drive::Serve;
use crate::support::processes::started_with;
use crate::support::{wait_for, wait_minutes};

/// How many tools run when the gate is killed.
const TOOLS: usize = 100;

const CONFIG: &str = r#"
[http]
off = true

[[tool]]
name = "hold"
concurrency_max = 128
timeout_ms = 3600000
writes = ["out"]
code = ["hold.sh"]
runner = { kind = "process", command = ["/bin/sh", "hold.sh"] }
"#;

/// Itself, a child, and one that has left the session and belongs to nobody.
const HOLD: &str = "(setsid sleep WORD &)\nsleep WORD\necho '{}'\n";

/// Calls `hold` so many times at once, as a process of the gate's user, which the socket asks for;
/// tells how many were answered, once all have been hung up on.
const CALLERS: &str = r#"
import socket, sys
path, count = sys.argv[1], int(sys.argv[2])
body = b'{"tool":"hold","input":{}}'
head = b"POST /v1/call HTTP/1.1\r\nhost: gate\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
callers = []
for _ in range(count):
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(path)
    caller.sendall(head % len(body) + body)
    callers.append(caller)
answered = 0
for caller in callers:
    try:
        answered += bool(caller.recv(1))
    except ConnectionError:
        pass
print(answered)
"#;

/// P-7: the tree ends with the gate, whoever it runs as.
#[test]
fn nothing_outlives_a_killed_gate() {
    for users in Users::all() {
        let arena = Arena::new(users, CONFIG);
        let word = format!("86400.{}{}", std::process::id(), users.owner);
        arena.put("ws/hold.sh", &HOLD.replace("WORD", &word));
        arena.cli(&["trust"]).good();
        let socket = arena.folder.join("state/gate.sock");
        let serve = Serve::spawn(&mut arena.callgate(&["serve"]), socket.clone());
        let mut command = arena.command(users.gate, Path::new(&arena.python));
        command
            .args(["-c", CALLERS])
            .arg(&socket)
            .arg(TOOLS.to_string());
        let callers = command.stdout(Stdio::piped()).spawn();
        let callers = callers.expect("start the callers");
        wait_minutes(5, "all tools and what they started", || {
            (started_with(&word).len() >= 2 * TOOLS).then_some(())
        });
        assert!(started_with(&word).into_iter().all(is_filtered));
        serve.kill();
        wait_for(&format!("their end as {}", users.name()), || {
            started_with(&word).is_empty().then_some(())
        });
        let told = callers.wait_with_output().expect("their end");
        assert_eq!(told.stdout, b"0\n", "nobody answered: {told:?}");
    }
}

/// True if a filter holds the process.
fn is_filtered(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    status.lines().any(|line| line == "Seccomp:\t2")
}
