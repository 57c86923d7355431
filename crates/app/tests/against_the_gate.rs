//! A tool against the gate that runs it: its leases, its chain, its configuration, its other
//! tools' code, its sockets and its processes. Each attack is seen to work by a tool that is
//! not confined, or, where the gate itself is in the way of that, by a program of the same
//! user; then a confined tool tries.

#![expect(clippy::print_stdout, reason = "tells what was void")]

use std::process::Command;

use crate::support::arena::{Arena, Attack, Referee, Users};
use crate::support::drive::{Serve, run_with};
use crate::support::processes::descendants;
use serde_json::json;

const CONFIG: &str = r#"
# known to the owner
[breaker]
failures_max = 0

[[tool]]
name = "other"
writes = ["out"]
code = ["other.sh"]
runner = { kind = "process", command = ["/bin/sh", "other.sh"] }

[[tool]]
name = "storer"
writes = ["spare"]
code = ["storer.sh"]
runner = { kind = "process", command = ["/bin/sh", "storer.sh"] }

[[tool]]
name = "interpreted"
runner = { kind = "python", entry = "attacks.tool:main", python = "PYTHON" }

[[tool]]
name = "open"
sandbox = false
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "pure"
purity = "pure"
reads = ["attacks"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "writer"
writes = ["out"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "parent"
reads = ["bin"]
writes = ["out"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "online"
network = true
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "wide"
reads = ["bin"]
writes = ["."]
runner = { kind = "process", command = COMMAND }
"#;

const OTHER: &str = "read -r input\necho ran >> out/effects\necho '{}'\n";

/// Attempts more for a tool that could not be started.
const RETRIES: usize = 3;

const STORER: &str = "echo stored > spare/stored\necho '{}'\n";

/// A gate, and a referee of the same user.
struct Ground {
    arena: Arena,
    serve: Serve,
    referee: Referee,
}

impl Ground {
    fn new(users: Users) -> Self {
        let arena = Arena::new(users, CONFIG);
        arena.put("ws/other.sh", OTHER);
        arena.put("ws/storer.sh", STORER);
        // Where tools can read it.
        let program = arena.ws().join("bin/callgate");
        std::fs::create_dir_all(arena.ws().join("bin")).expect("make a folder");
        arena.place_program(&program);
        arena.cli(&["trust"]).good();
        let socket = arena.folder.join("state/gate.sock");
        let serve = Serve::spawn(
            &mut arena.callgate(&["serve", "--port", "0"]),
            socket.clone(),
        );
        // The first call brings the spawner.
        arena.cli(&["call", "other"]).good();
        let spawner = crate::support::wait_for("the spawner", || {
            let mut all = descendants(serve.pid()).into_iter();
            all.find(|&pid| crate::support::processes::words_of(pid).contains("__spawner"))
        });
        let facts = json!({
            "gate": serve.pid(),
            "spawner": spawner,
            "socket": socket,
            "state": arena.folder.join("state"),
            "program": program,
        });
        let referee = arena.referee_as(users.gate, &["gate"], |command: &mut Command| {
            command.env("ATTACK_GATE", facts.to_string());
        });
        Self {
            arena,
            serve,
            referee,
        }
    }

    /// One attempt: whether it had its effect, and what was said.
    fn attempt(&mut self, attack: &Attack, tool: &str) -> (bool, String) {
        let facts = self.referee.prepare(&attack.name);
        let mut command = self.arena.callgate(&["call", tool, "-", "--json"]);
        let ran = run_with(&mut command, facts.to_string().as_bytes());
        let said = format!("{}{}", ran.out, ran.err);
        (self.referee.judge(&said), said)
    }
}

/// Every attack, first without confinement: what is not as it should be.
fn attack_all(ground: &mut Ground) -> Vec<String> {
    let who = ground.arena.users.name();
    let mut wrong = Vec::new();
    let mut stopped = 0;
    for attack in ground.referee.attacks() {
        let name = &attack.name;
        let is_proven = ground.attempt(&attack, "open").0 || ground.referee.prove(name).0;
        if !is_proven {
            match &attack.void {
                Some(why) => println!("void as {who}: {name}: {why}"),
                None => wrong.push(format!("as {who}, {name} works nowhere")),
            }
            continue;
        }
        for tool in &attack.tools {
            let (mut happened, mut said) = ground.attempt(&attack, tool);
            // What the unconfined one has killed may only now be dead.
            for _ in 0..RETRIES {
                if happened || !said.contains("the spawner died meanwhile") {
                    break;
                }
                (happened, said) = ground.attempt(&attack, tool);
            }
            // A tool that can not be started stops every attack.
            if happened || !said.contains("said") {
                let word = if happened { "WORKED" } else { "did not" };
                wrong.push(format!("as {who}, {name} by `{tool}` {word}: {said}"));
            }
            stopped += usize::from(!happened);
        }
    }
    println!("as {who}: {stopped} stopped");
    wrong
}

/// P-10, P-16, G-9b; the threat model's list.
#[test]
fn a_tool_can_not_touch_the_gate() {
    let wrong = Users::each(|users| {
        let mut ground = Ground::new(users);
        let wrong = attack_all(&mut ground);
        let Ground {
            arena,
            serve,
            referee,
        } = ground;
        referee.end();
        assert!(serve.stop().success());
        let verdict = arena.cli(&["audit", "verify", "--json"]).good().json();
        assert_eq!(verdict["ok"], true, "{verdict}");
        wrong
    });
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
