//! Tools that misbehave in every way the test program knows, by the thousand, through
//! `--serve` and through the daemon: each costs its own call and nothing more, no process is
//! left, and memory is back.
//!
//! Of the more than 10,000 quick faults some are processes of their own and most are workers of
//! a pool, because a process is so much dearer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::drive::{Host, Serve, cli, count_of, verified};
use crate::support::processes::{descendants, resident_bytes, started_with, words_of};
use crate::support::{Folder, wait_for};
use callgate_testing::Random;
use callgate_testing::misbehave;
use serde_json::{Value, json};

/// Resident memory may grow by so much over everything.
const GROWTH_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Calls that hang at the same time. There is a worker for each, so that each runs into its own
/// timeout and none is refused while it waits for a turn.
const AT_ONCE: usize = 12;

/// A workspace whose tools are the test program, as a program per call and as a worker. Both
/// carry a word by which their processes are found.
fn workspace() -> (Folder, String) {
    let folder = Folder::new();
    let tag = format!(
        "misbehaving-{}",
        folder.path().file_name().expect("a name").display()
    );
    let program = misbehave().display();
    folder.write(
        "callgate.toml",
        &format!(
            r#"
[breaker]
failures_max = 0

[[tool]]
name = "act"
aid = "AID.TEST.ACT.v1"
runner = {{ kind = "process", command = ["{program}", "{tag}"] }}

[[tool]]
name = "quick"
aid = "AID.TEST.QUICK.v1"
timeout_ms = 50
runner = {{ kind = "process", command = ["{program}", "{tag}"] }}

[[tool]]
name = "worker"
aid = "AID.TEST.WORKER.v1"
runner = {{ kind = "pool", command = ["{program}", "{tag}"], pool = {{ workers_max = 4, backoff_min_ms = 1, backoff_max_ms = 1, crashes_max = 100000, idle_ms = 200 }} }}

[[tool]]
name = "quick_worker"
aid = "AID.TEST.QUICK_WORKER.v1"
timeout_ms = 50
runner = {{ kind = "pool", command = ["{program}", "{tag}"], pool = {{ workers_max = {AT_ONCE}, backoff_min_ms = 1, backoff_max_ms = 1, crashes_max = 100000, idle_ms = 200 }} }}
"#
        ),
    );
    cli(&folder, &["trust"]).good();
    (folder, tag)
}

/// A call, and how it must end.
struct Act {
    tool: &'static str,
    input: Value,
    /// The kinds of fault it may end in; none: it must succeed.
    kinds: &'static [&'static str],
}

/// One of the quick faults of a program per call.
fn process_fault(random: &mut Random) -> Act {
    let (input, kinds): (Value, &'static [&'static str]) = match random.below(7) {
        0 => (json!({ "do": "garbage" }), &["bad_output"]),
        1 => (json!({ "do": "nothing" }), &["bad_output"]),
        2 => (json!({ "do": "half" }), &["bad_output"]),
        3 => (
            json!({ "do": "exit", "code": 7, "stdout": "{\"ok\":true}" }),
            &["crash", "tool_failed"],
        ),
        4 => (
            json!({ "do": "exit", "code": 1, "stderr": "words" }),
            &["crash", "tool_failed"],
        ),
        5 => (json!({ "do": "signal", "signal": 9 }), &["crash"]),
        _ => (json!({ "do": "signal", "signal": 11 }), &["crash"]),
    };
    Act {
        tool: "act",
        input,
        kinds,
    }
}

/// One of the quick faults of a worker; most of them are its end.
fn worker_fault(random: &mut Random) -> Act {
    let (input, kinds): (Value, &'static [&'static str]) = match random.below(7) {
        0 => (json!({ "do": "garbage" }), &["bad_output", "crash"]),
        1 => (json!({ "do": "wrong_call" }), &["bad_output", "crash"]),
        2 => (json!({ "do": "die_in_line" }), &["crash", "bad_output"]),
        3 => (json!({ "do": "exit", "code": 3 }), &["crash"]),
        4 => (json!({ "do": "signal", "signal": 9 }), &["crash"]),
        5 => (
            json!({ "do": "raw", "text": "{\"call\":\n" }),
            &["bad_output", "crash"],
        ),
        _ => (json!({ "do": "fail" }), &["tool_failed"]),
    };
    Act {
        tool: "worker",
        input,
        kinds,
    }
}

/// A healthy call that must come back with its own mark.
fn healthy(random: &mut Random, mark: usize) -> Act {
    let tool = if random.one_in(4) { "act" } else { "worker" };
    Act {
        tool,
        input: json!({ "do": "echo", "mark": mark }),
        kinds: &[],
    }
}

/// 1 process to 4 workers, and every tenth is healthy.
fn quick(random: &mut Random, number: usize) -> Act {
    match number {
        n if n % 10 == 9 => healthy(random, n),
        n if n % 5 == 0 => process_fault(random),
        _ => worker_fault(random),
    }
}

fn slow(number: usize, folder: &Folder) -> Act {
    let path = folder.join(&format!("daemon-{number}"));
    let (tool, input) = match number % 6 {
        0 => ("quick", json!({ "do": "hang" })),
        1 => ("quick", json!({ "do": "daemon_hang", "path": path })),
        2 => ("quick", json!({ "do": "close" })),
        3 => ("quick_worker", json!({ "do": "hang" })),
        4 => ("quick_worker", json!({ "do": "half_line" })),
        _ => ("quick_worker", json!({ "do": "no_newline" })),
    };
    Act {
        tool,
        input,
        kinds: &["timeout"],
    }
}

fn flood(number: usize) -> Act {
    let (tool, act, kinds): (_, _, &'static [&'static str]) = match number % 5 {
        0 => ("act", "flood", &["too_large"]),
        1 => ("quick", "stderr_flood", &["timeout"]),
        2 => ("worker", "overlong", &["too_large"]),
        3 => ("quick_worker", "flood", &["timeout"]),
        _ => ("worker", "huge", &["too_large"]),
    };
    Act {
        tool,
        input: json!({ "do": act, "bytes": 3_000_000 }),
        kinds,
    }
}

/// A daemon forked by a call that is answered well; it goes with the call.
fn daemon(number: usize, folder: &Folder) -> Act {
    let path = folder.join(&format!("daemon-{number}"));
    let tool = if number.is_multiple_of(2) {
        "act"
    } else {
        "worker"
    };
    Act {
        tool,
        input: json!({ "do": "daemon", "path": path }),
        kinds: &[],
    }
}

fn is_echo(act: &Act, output: &Value) -> bool {
    act.input["do"] != "echo"
        || output["mark"] == act.input["mark"]
        || output["input"]["mark"] == act.input["mark"]
}

/// Sends acts down a pipe, a batch at a time, and compares the replies one by one: were one
/// reply missing or too many, all after it would be wrong. T-13.
fn through_pipe(host: &mut Host, acts: &[Act]) {
    for batch in acts.chunks(50) {
        let mut lines = String::new();
        for act in batch {
            let aid = format!("AID.TEST.{}.v1", act.tool.to_uppercase());
            lines += &format!("{}\n", json!({ "aid": aid, "inputs": act.input }));
        }
        assert!(host.send_bytes(lines.as_bytes()));
        for act in batch {
            let reply = host.reply();
            let told = (&reply["ok"], reply["status"].as_str().unwrap_or_default());
            let wanted = if act.kinds.is_empty() {
                "OK"
            } else {
                "TOOL_ERROR"
            };
            assert_eq!(told, (&json!(true), wanted), "{}: {reply}", act.input);
            let output = reply["output_json"].as_str().unwrap_or_default();
            let output = serde_json::from_str(output).unwrap_or_default();
            assert!(
                act.kinds.len() + usize::from(is_echo(act, &output)) > 0,
                "{reply}"
            );
        }
    }
}

/// Sends acts to the daemon over many connections at once.
fn through_gate(serve: &Serve, acts: &[Act], at_once: usize) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(act) = acts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let body = serve.call(&json!({ "tool": act.tool, "input": act.input }));
                    match body["fault"]["kind"].as_str() {
                        None => assert!(
                            act.kinds.is_empty() && is_echo(act, &body["output"]),
                            "{}: {body}",
                            act.input
                        ),
                        Some(kind) => {
                            assert!(act.kinds.contains(&kind), "{}: {body}", act.input);
                        }
                    }
                }
            });
        }
    });
}

/// Only the spawner is left under the server; of the tools, no process.
fn nothing_left(server: u32, tag: &str) {
    wait_for("the end of the tools' processes", || {
        (started_with(tag).is_empty() && descendants(server).len() <= 1).then_some(())
    });
    for pid in descendants(server) {
        let words = words_of(pid);
        assert!(
            words.contains("callgate") || words.contains("/proc/self/exe"),
            "{words}"
        );
    }
}

fn memory_is_back(server: u32, before: u64) {
    // What a call held is given back a moment after its answer.
    let after = wait_for("memory to be back", || {
        let after = resident_bytes(server);
        (after <= before + GROWTH_BYTES_MAX).then_some(after)
    });
    eprintln!(
        "resident: {} KiB before, {} KiB after",
        before / 1024,
        after / 1024
    );
}

/// Every call is in the chain with its start and its end.
fn all_recorded(folder: &Folder, calls: usize) {
    verified(folder);
    assert_eq!(count_of(folder, "start"), calls);
    assert_eq!(count_of(folder, "outcome"), calls);
}

/// T-13, TH-43, TH-47, F-18, F-19, F-20: over 5,000 quick faults, hangs, floods and daemons on one
/// pipe.
#[test]
fn on_a_pipe() {
    let mut random = Random::new("misbehaving on a pipe");
    let (folder, tag) = workspace();
    let mut host = Host::start(&folder, folder.path().to_str().expect("a text path"));
    let warm: Vec<Act> = (0..200).map(|number| quick(&mut random, number)).collect();
    through_pipe(&mut host, &warm);
    let before = resident_bytes(host.pid());
    let mut acts: Vec<Act> = Vec::new();
    for number in 0..5_800 {
        acts.push(quick(&mut random, number));
        match number % 270 {
            90 => acts.push(slow(number / 270, &folder)),
            180 => acts.push(flood(number / 270)),
            269 => acts.push(daemon(number / 270, &folder)),
            _ => {}
        }
    }
    through_pipe(&mut host, &acts);
    through_pipe(
        &mut host,
        &[healthy(&mut random, 1), healthy(&mut random, 2)],
    );
    nothing_left(host.pid(), &tag);
    memory_is_back(host.pid(), before);
    assert!(host.end().success());
    all_recorded(&folder, warm.len() + acts.len() + 2);
}

/// T-13, F-18, F-19, F-20: over 5,000 quick faults, 200 hangs, 20 floods and 20 daemons at the daemon,
/// many at once.
#[test]
fn at_the_gate() {
    let mut random = Random::new("misbehaving at the gate");
    let (folder, tag) = workspace();
    let serve = Serve::start(&folder);
    let warm: Vec<Act> = (0..200).map(|number| quick(&mut random, number)).collect();
    through_gate(&serve, &warm, 4);
    let before = resident_bytes(serve.pid());
    let quick: Vec<Act> = (0..5_800)
        .map(|number| quick(&mut random, number))
        .collect();
    through_gate(&serve, &quick, 4);
    let mut acts: Vec<Act> = (0..200).map(|number| slow(number, &folder)).collect();
    acts.extend((0..20).map(flood));
    acts.extend((0..20).map(|number| daemon(number, &folder)));
    acts.extend((0..60).map(|number| healthy(&mut random, number)));
    for last in (1..acts.len()).rev() {
        acts.swap(last, random.below(last + 1));
    }
    through_gate(&serve, &acts, AT_ONCE);
    nothing_left(serve.pid(), &tag);
    memory_is_back(serve.pid(), before);
    let calls = warm.len() + quick.len() + acts.len();
    assert!(serve.stop().success());
    assert_eq!(started_with(&tag), [0; 0]);
    all_recorded(&folder, calls);
}
