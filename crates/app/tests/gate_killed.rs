//! SIGKILL of the gate while many confined tools run: none of them, and nothing they started,
//! outlives it.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use support::arena::{Arena, Users};
use support::drive::{Serve, end_of};
use support::processes::started_with;
use support::wait_for;

/// How many tools run when the gate is killed.
const TOOLS: usize = 100;

/// What they may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);

const CONFIG: &str = r#"
[http]
off = true

[[tool]]
name = "hold"
concurrency_max = 128
writes = ["out"]
runner = { kind = "process", command = ["/bin/sh", "hold.sh"] }
"#;

/// Itself, a child, and one that has left the session and belongs to nobody.
const HOLD: &str = "(setsid sleep WORD &)\nsleep WORD\necho '{}'\n";

/// P-7: the tree ends with the gate, whoever it runs as.
#[test]
fn nothing_outlives_a_killed_gate() {
    for users in Users::all() {
        let arena = Arena::new(users, CONFIG);
        let word = format!("86400.{}{}", std::process::id(), users.owner);
        arena.put("ws/hold.sh", &HOLD.replace("WORD", &word));
        arena.cli(&["trust"]).good();
        let socket = arena.folder.join("state/gate.sock");
        let serve = Serve::spawn(&mut arena.callgate(&["serve"]), socket);
        let callers: Vec<Child> = (0..TOOLS)
            .map(|_| {
                let mut command = arena.callgate(&["call", "hold"]);
                command.stdout(Stdio::null()).stderr(Stdio::null());
                command.spawn().expect("start a caller")
            })
            .collect();
        wait_for("all tools and what they started", || {
            (started_with(&word).len() >= 2 * TOOLS).then_some(())
        });
        assert!(started_with(&word).into_iter().all(is_filtered));
        serve.kill();
        let deadline = Instant::now() + GONE_WITHIN;
        let mut left = started_with(&word);
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            left = started_with(&word);
        }
        assert_eq!(left, [0; 0], "alive as {}", users.name());
        for mut caller in callers {
            assert!(
                !end_of(&mut caller, "a caller").success(),
                "nobody answered"
            );
        }
    }
}

/// True if a filter holds the process.
fn is_filtered(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    status.lines().any(|line| line == "Seccomp:\t2")
}
