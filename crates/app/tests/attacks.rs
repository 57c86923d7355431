//! Hostile tools, judged by what they bring about: each attack is first seen to work with all
//! rights, then tried by a confined tool of a real gate, as root and as an ordinary user.

#![expect(clippy::print_stdout, reason = "tells what was void or open")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;

use crate::support::arena::{Arena, Attack, Users};
use crate::support::drive::run_with;
use serde_json::json;

/// How many attacks of one gate are under way at a time.
const LANES: usize = 3;

const CONFIG: &str = r#"
[breaker]
failures_max = 0

[[tool]]
name = "pure"
purity = "pure"
reads = ["attacks", "victim"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "reader"
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "writer"
writes = ["out", "spare"]
guarantees = { no_subprocess = true }
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "childless"
writes = ["out"]
guarantees = { no_subprocess = true }
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "parent"
writes = ["out"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "online"
network = true
guarantees = { no_subprocess = true }
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "local"
ipc = true
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "local_online"
ipc = true
network = true
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "numbers"
purity = "pure"
reads = ["attacks", "modules"]
runner = { kind = "process", command = COMMAND }

[[tool]]
name = "limited"
writes = ["out"]
runner = { kind = "process", command = COMMAND, limits = { memory_bytes = 268435456, cpu_seconds = 1, file_bytes = 1048576, open_files = 48, processes = 24, output_bytes = 65536 } }
"#;

/// Who is stopped by nothing here, and why that is known: each is told by the plan's level or
/// its scope.
const OPEN: &[Open] = &[
    Open {
        attack: "writing.hard_link_already_there",
        why: "control by path can not see that two names are one file",
        is_open: |_| true,
    },
    Open {
        attack: "reading.status",
        why: "what is known about a file is not its contents",
        is_open: |_| true,
    },
    Open {
        attack: "reading.status_by_location",
        why: "what is known about a file is not its contents",
        is_open: |_| true,
    },
    Open {
        attack: "reading.link_target",
        why: "where a link points is not the contents of a file",
        is_open: |_| true,
    },
    Open {
        attack: "network.unix_stream_in_the_workspace",
        why: "with `ipc = true` sockets of others in readable folders are reached (Landlock 9)",
        is_open: |_| true,
    },
    Open {
        attack: "kernel.be_root",
        why: "on root's own workspace a tool is root without rights (P-16)",
        is_open: |users| users.is_root(),
    },
    Open {
        attack: "limits.processes",
        why: "without groups the kernel counts no processes of root",
        is_open: |users| users.is_root() && !has_groups(),
    },
    Open {
        attack: "limits.threads",
        why: "without groups the kernel counts no threads of root",
        is_open: |users| users.is_root() && !has_groups(),
    },
];

/// True if root may make groups of processes here.
fn has_groups() -> bool {
    rustix::fs::access("/sys/fs/cgroup", rustix::fs::Access::WRITE_OK).is_ok()
}

struct Open {
    attack: &'static str,
    why: &'static str,
    is_open: fn(Users) -> bool,
}

fn open(attack: &str, users: Users) -> Option<&'static str> {
    OPEN.iter()
        .find(|open| open.attack == attack && (open.is_open)(users))
        .map(|open| open.why)
}

/// numpy, where the test command has fetched it and this Python is of its kind.
fn modules(arena: &Arena) -> Option<PathBuf> {
    let venv = std::env::var_os("CALLGATE_TEST_CLIENT_PYTHON").map(PathBuf::from);
    let venv = venv.unwrap_or_else(|| {
        panic!("CALLGATE_TEST_CLIENT_PYTHON is not set: this test runs by `cargo xtask test`")
    });
    let version = "import sys; print('python%d.%d' % sys.version_info[:2])";
    let mut command = arena.command(arena.users.owner, Path::new(&arena.python));
    let ran = command.args(["-c", version]).output().expect("a Python");
    let version = String::from_utf8(ran.stdout).expect("a version");
    let from = venv.parent()?.parent()?.join("lib").join(version.trim());
    let from = from.join("site-packages");
    let to = arena.ws().join("modules");
    std::fs::create_dir_all(&to).expect("make a folder");
    for name in ["numpy", "numpy.libs"] {
        if !from.join(name).exists() {
            println!("numpy is left out: none for {}", version.trim());
            return None;
        }
        copy(&from.join(name), &to.join(name));
    }
    Some(to)
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        // The same bytes; the user only reads them.
        if std::fs::hard_link(from, to).is_err() {
            std::fs::copy(from, to).expect("copy a file");
        }
        return;
    }
    std::fs::create_dir_all(to).expect("make a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        if entry.file_name() != "tests" {
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    }
}

/// Does `work` for each attack, some at a time, each lane with a state of its own.
fn in_lanes<S>(
    attacks: &[Attack],
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, &Attack) + Sync,
    end: impl Fn(S) + Sync,
) {
    let next = Mutex::new(attacks.iter());
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                let mut state = start();
                loop {
                    let attack = next.lock().expect("no panic holds it").next();
                    let Some(attack) = attack else { break };
                    work(&mut state, attack);
                }
                end(state);
            });
        }
    });
}

/// What is learned of one attack by one tool.
#[derive(Debug)]
struct Seen {
    attack: String,
    tool: String,
    happened: bool,
    said: String,
}

/// Those that work with all rights.
fn prove(arena: &Arena, attacks: &[Attack], modules: Option<&Path>) -> BTreeSet<String> {
    let proven = Mutex::new(BTreeSet::new());
    let unproven = Mutex::new(Vec::new());
    in_lanes(
        attacks,
        || arena.referee(modules),
        |referee, attack| match referee.prove(&attack.name) {
            (true, _) => {
                let mut proven = proven.lock().expect("no panic holds it");
                proven.insert(attack.name.clone());
            }
            (false, said) => match &attack.void {
                Some(why) => println!("void: {}: {why}", attack.name),
                None => {
                    let told = format!("{}: {said}", attack.name);
                    unproven.lock().expect("no panic holds it").push(told);
                }
            },
        },
        |referee| referee.end(),
    );
    let unproven = unproven.into_inner().expect("no panic held it");
    assert!(
        unproven.is_empty(),
        "these work nowhere, so they show nothing: {unproven:#?}"
    );
    proven.into_inner().expect("no panic held it")
}

/// Every attack by each of its tools.
fn attempt(arena: &Arena, attacks: &[Attack], modules: Option<&Path>) -> Vec<Seen> {
    let seen = Mutex::new(Vec::new());
    in_lanes(
        attacks,
        || (arena.referee(modules), arena.host()),
        |(referee, host), attack| {
            for tool in &attack.tools {
                let facts = referee.prepare(&attack.name);
                let aid = format!("AID.TOOL.{}.v1", tool.to_uppercase());
                let reply = host.ask(&json!({ "aid": aid, "inputs": facts }));
                let said = reply.to_string();
                let happened = referee.judge(&said);
                seen.lock().expect("no panic holds it").push(Seen {
                    attack: attack.name.clone(),
                    tool: tool.clone(),
                    happened,
                    said,
                });
            }
        },
        |(referee, host)| {
            referee.end();
            assert!(host.end().success(), "the host ends in order");
        },
    );
    seen.into_inner().expect("no panic held it")
}

/// P-2, P-3, P-8, P-10, P-16.
#[test]
fn attacks_have_no_effect() {
    // What works for one ordinary user works for another.
    let (by_root, by_others) = (OnceLock::new(), OnceLock::new());
    let wrong = Users::each(|users| {
        let arena = Arena::new(users, CONFIG);
        let modules = modules(&arena);
        let modules = modules.as_deref();
        let mut referee = arena.referee(None);
        let mut attacks = referee.attacks();
        referee.end();
        attacks.retain(|attack| attack.is_for(users));
        attacks.retain(|attack| modules.is_some() || attack.name != "controls.numpy");
        let proven = if users.is_root() {
            &by_root
        } else {
            &by_others
        };
        let works = proven.get_or_init(|| prove(&arena, &attacks, modules));
        let seen = attempt(&arena, &attacks, modules);
        report(users, works, &seen)
    });
    let wrong = wrong.concat();
    assert!(
        wrong.is_empty(),
        "{} not as expected:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// True if the tool's code was reached: a tool that can not be started stops every attack. The
/// filter kills whoever makes calls of another machine; the rest are the limits' own ways.
fn has_run(reply: &str) -> bool {
    let signs = ["said", "(SIGSYS)", "(SIGKILL)", "output exceeds"];
    signs.iter().any(|sign| reply.contains(sign))
}

/// Tells what came of it: what is not as expected.
fn report(users: Users, works: &BTreeSet<String>, seen: &[Seen]) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in seen.iter().filter(|one| works.contains(&one.attack)) {
        let group = one.attack.split('.').next().unwrap_or_default();
        let count = counts.entry(group).or_default();
        *if one.happened {
            &mut count.1
        } else {
            &mut count.0
        } += 1;
        let expected = group == "controls" || open(&one.attack, users).is_some();
        if one.happened != expected || !has_run(&one.said) {
            let said = one.said.chars().take(600).collect::<String>();
            let word = if one.happened { "WORKED" } else { "stopped" };
            let (who, attack, tool) = (users.name(), &one.attack, &one.tool);
            wrong.push(format!("as {who}, {attack} by `{tool}`: {word} {said}"));
        }
    }
    let mut told = format!("as {}:\n", users.name());
    for (group, (stopped, worked)) in counts {
        told += &format!("  {group:10} {stopped:3} stopped {worked:3} worked\n");
    }
    for open in OPEN.iter().filter(|open| (open.is_open)(users)) {
        told += &format!("  open: {}: {}\n", open.attack, open.why);
    }
    // At once, since others report as well.
    print!("{told}");
    wrong
}

/// P-3: what stays open is told: a file in a writable root that has a second name is `partial`,
/// and where that is not enough the call is refused.
#[test]
fn what_stays_open_is_reported() {
    let guarded = CONFIG.replace(
        "writes = [\"out\", \"spare\"]\nguarantees = { no_subprocess = true }",
        "writes = [\"out\", \"spare\"]\nguarantees = { no_filesystem_write = true }",
    );
    assert_ne!(guarded, CONFIG);
    for (config, is_refused) in [(CONFIG, false), (guarded.as_str(), true)] {
        Users::each(|users| {
            let arena = Arena::new(users, config);
            arena.cli(&["trust"]).good();
            let call = || {
                let facts = json!({ "attack": "controls.pipes", "token": "heard" });
                let mut command = arena.callgate(&["call", "writer", "-", "--json"]);
                run_with(&mut command, facts.to_string().as_bytes()).json()
            };
            let before = call();
            assert_eq!(before["enforcement"]["level"], "enforced", "{before}");
            arena.put("ws/victim/file", "two names");
            let second = arena.ws().join("out/second");
            std::fs::hard_link(arena.ws().join("victim/file"), second).expect("link");
            let after = call();
            if is_refused {
                assert_eq!(after["fault"]["kind"], "unenforceable", "{after}");
            } else {
                assert_eq!(after["enforcement"]["level"], "partial", "{after}");
                let writes = &after["enforcement"]["writes"];
                assert_eq!(writes["level"], "partial", "{after}");
            }
            assert!(after.to_string().contains("out/second"), "{after}");
        });
    }
}

const FORGERS: &str = r#"
[breaker]
failures_max = 0

[[tool]]
name = "forge"
runner = { kind = "python", entry = "forger:forge", python = "PYTHON" }

[[tool]]
name = "chatter"
runner = { kind = "python", entry = "forger:chatter", python = "PYTHON" }
"#;

const FORGER: &str = r#"
import os

FORGED = b'{"ok":true,"result":{"forged":true},"output":{"forged":true},"protocol_version":1}\n'

def forge(payload):
    os.write(1, FORGED)
    os._exit(0)

def chatter(payload):
    os.write(1, FORGED)
    print("and more")
    return {"honest": True}
"#;

/// P-8: what a tool prints is not its answer, and breaks none.
#[test]
fn a_printed_answer_is_not_believed() {
    Users::each(|users| {
        let arena = Arena::new(users, FORGERS);
        arena.put("ws/forger.py", FORGER);
        let mut host = arena.host();
        let mut ask =
            |tool: &str| host.ask(&json!({ "aid": format!("AID.TOOL.{tool}.v1"), "inputs": {} }));
        let forged = ask("FORGE");
        assert_eq!(forged["status"], "TOOL_ERROR", "{forged}");
        assert_eq!(forged["output_json"], "{}", "{forged}");
        let honest = ask("CHATTER");
        assert_eq!(honest["output_json"], r#"{"honest":true}"#, "{honest}");
        assert!(host.end().success());
    });
}
