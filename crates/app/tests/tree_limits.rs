//! Limits that hold all processes of a tool together, through the real program: what replies,
//! refusals and `doctor` say of them, what is left where they can not be had, and what becomes of
//! their groups when the gate is killed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::arena::{Arena, Users};
use crate::support::drive::{Serve, run};
use crate::support::processes::started_with;
use crate::support::wait_for;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[http]
off = true

[[tool]]
name = "plain"
code = ["many.sh"]
runner = { kind = "process", command = ["/bin/sh", "many.sh"] }

[[tool]]
name = "limited"
code = ["many.sh"]
runner = { kind = "process", command = ["/bin/sh", "many.sh"], limits = { processes = 400, memory_bytes = 268435456, cpu_seconds = 60 } }

[[tool]]
name = "whole"
code = ["many.sh"]
runner = { kind = "process", command = ["/bin/sh", "many.sh"], limits = { processes = 4, whole_tree = true } }

[[tool]]
name = "bold"
allow_unsafe_execution = true
code = ["many.sh"]
runner = { kind = "process", command = ["/bin/sh", "many.sh"], limits = { processes = 400, whole_tree = true } }

[[tool]]
name = "share"
code = ["many.sh"]
runner = { kind = "process", command = ["/bin/sh", "many.sh"], limits = { cpu_percent = 50 } }

[[tool]]
name = "hold"
concurrency_max = 16
code = ["hold.sh"]
runner = { kind = "process", command = ["/bin/sh", "hold.sh"], limits = { memory_bytes = 268435456 } }
"#;

/// Eight at a time, if it may. A shell that can not fork ends.
const MANY: &str = "for n in 1 2 3 4 5 6 7 8; do sleep 5 & done\necho '{\"made\": 8}'\n";

const HOLD: &str = "(setsid sleep WORD &)\nsleep WORD\necho '{}'\n";

/// One call by a process of its own, on a machine without `hidden`: the reply.
fn call(arena: &Arena, tool: &str, hidden: &str) -> Value {
    let mut command = arena.callgate(&["call", tool, "{}", "--json", "--standalone"]);
    run(command.env("CALLGATE_HIDE", hidden)).json()
}

pub fn limits(reply: &Value) -> (String, String) {
    let limits = &reply["enforcement"]["limits"];
    let by = limits["mechanisms"].as_array().cloned().unwrap_or_default();
    let by: Vec<&str> = by.iter().filter_map(Value::as_str).collect();
    let level = limits["level"].as_str().unwrap_or_default();
    (level.to_owned(), by.join(" "))
}

fn arena(users: Users) -> Arena {
    let arena = Arena::new(users, CONFIG);
    arena.put("ws/many.sh", MANY);
    arena.cli(&["trust"]).good();
    arena
}

/// P-3: limits of a tree are enforced where a group holds it, else partial; where they must be
/// enforced and can not, nothing runs.
#[test]
fn limits_say_what_holds_them() {
    let found = Users::each(|users| {
        let arena = arena(users);
        let has = arena.has_groups();
        let plain = call(&arena, "plain", "");
        assert_eq!(plain["enforcement"].get("limits"), None, "{plain}");
        let held = match has {
            true => ("enforced".to_owned(), "cgroup".to_owned()),
            false => ("partial".to_owned(), "rlimit".to_owned()),
        };
        let reply = call(&arena, "limited", "");
        assert_eq!(reply["output"]["made"], 8, "{reply}");
        assert_eq!(limits(&reply), held, "{reply}");
        let less = call(&arena, "limited", "cgroup");
        assert_eq!(less["output"]["made"], 8, "{less}");
        assert_eq!(
            limits(&less),
            ("partial".to_owned(), "rlimit".to_owned()),
            "{less}"
        );
        // What each process is held to is what was asked for.
        assert_eq!(less["enforcement"]["level"], "enforced", "{less}");

        for tool in ["whole", "share"] {
            let refused = call(&arena, tool, "cgroup");
            assert_eq!(
                refused["fault"]["kind"], "unenforceable",
                "{tool}: {refused}"
            );
            assert_eq!(
                refused["fault"]["data"]["missing"],
                json!(["limits"]),
                "{refused}"
            );
        }
        let bold = call(&arena, "bold", "cgroup");
        assert_eq!(bold["output"]["made"], 8, "{bold}");
        assert_eq!(bold["enforcement"]["unsafe_override"], true, "{bold}");
        assert_eq!(bold["enforcement"]["level"], "partial", "{bold}");
        if has {
            // It is held: the shell and three others.
            let whole = call(&arena, "whole", "");
            assert_eq!(whole["output"]["made"], Value::Null, "{whole}");
            assert_ne!(whole["fault"]["kind"], "unenforceable", "{whole}");
            let share = call(&arena, "share", "");
            assert_eq!(share["output"]["made"], 8, "{share}");
        }
        has
    });
    if rustix::process::geteuid().is_root() {
        assert!(found.contains(&true), "root has groups");
    }
}

/// `doctor` says how far limits hold, and how to get more.
#[test]
fn doctor_tells_of_limits() {
    Users::each(|users| {
        let arena = arena(users);
        let has = arena.has_groups();
        let told = arena.finding("limits", "");
        let words = told["finding"].as_str().expect("words");
        // A tool of this workspace asks for them.
        assert_eq!(told["ok"], has, "{words}");
        if has {
            assert_eq!(words, "enforced by cgroup");
        }
        let told = arena.finding("limits", "cgroup");
        let words = told["finding"].as_str().expect("words");
        assert!(
            words.starts_with("partial: needs a cgroup of its own"),
            "{words}"
        );
        assert!(words.contains("-p Delegate=yes"), "{words}");
        assert_eq!(told["ok"], false);
    });
}

/// All groups of ours that this machine has, by name.
fn groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = vec!["/sys/fs/cgroup".into()];
    while let Some(folder) = next.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let name = entry.file_name();
                if name.to_string_lossy().starts_with("callgate-") {
                    found.push(entry.path());
                } else {
                    next.push(entry.path());
                }
            }
        }
    }
    found
}

/// True if one of `pids` is in it.
fn has_one(group: &Path, pids: &[u32]) -> bool {
    let members = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut members = members.lines().filter_map(|line| line.parse::<u32>().ok());
    members.any(|pid| pids.contains(&pid))
}

/// P-7: SIGKILL of the gate ends what is in its groups, and the groups go.
#[test]
fn a_killed_gate_leaves_no_group() {
    for users in Users::all() {
        let arena = arena(users);
        if !arena.has_groups() {
            println!("not looked at as {}: no groups", users.name());
            continue;
        }
        let word = format!("86401.{}{}", std::process::id(), users.owner);
        arena.put("ws/hold.sh", &HOLD.replace("WORD", &word));
        arena.cli(&["trust"]).good();
        let socket = arena.folder.join("state/gate.sock");
        let serve = Serve::spawn(&mut arena.callgate(&["serve"]), socket);
        let callers: Vec<_> = (0..8)
            .map(|_| {
                let mut command = arena.callgate(&["call", "hold", "{}"]);
                let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
                quiet.spawn().expect("a caller")
            })
            .collect();
        let started = wait_for("all tools and what they started", || {
            let started = started_with(&word);
            (started.len() >= 16).then_some(started)
        });
        let made: Vec<PathBuf> = groups()
            .into_iter()
            .filter(|one| has_one(one, &started))
            .collect();
        assert!(made.len() >= 8, "{made:?}");
        serve.kill();
        wait_for("nothing to be left", || {
            started_with(&word).is_empty().then_some(())
        });
        wait_for("its groups to be gone", || {
            made.iter().all(|one| !one.exists()).then_some(())
        });
        for mut caller in callers {
            caller.wait().expect("its end");
        }
    }
}
