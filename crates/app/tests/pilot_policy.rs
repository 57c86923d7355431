//! A policy program that does everything wrong: the fallback chooses, the record says why, the
//! breaker leaves the program alone; and what confines it.

use std::net::TcpListener;
use std::process::Stdio;

use crate::support::drive::{self, chain, cli, count_of, end_of, signal, verified};
use crate::support::workspace::{APPEND, trusted_with};
use crate::support::{Folder, callgate, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[breaker]
failures_max = 5
open_ms = 3600000

[pilot]
policy = ["/bin/sh", "policy.sh"]
code = ["policy.sh"]
timeout_ms = 60000

[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tags = ["tag.run"]
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

fn workspace(policy: &str, timeout_ms: &str) -> Folder {
    trusted_with(&[
        ("callgate.toml", &CONFIG.replace("60000", timeout_ms)),
        ("append.sh", APPEND),
        ("policy.sh", policy),
        ("secret.txt", "do not read"),
        ("effects.log", ""),
    ])
}

/// Runs once in this mode; the choices and the end.
fn run(folder: &Folder, mode: &str) -> (Vec<Value>, Value) {
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.run"], "control_mode": mode });
    folder.write("request.json", &request.to_string());
    let end = cli(folder, &["pilot", "request.json", "--json"])
        .good()
        .json();
    (choices(&end), end)
}

/// The choices that a run's log has.
fn choices(end: &Value) -> Vec<Value> {
    let log = std::fs::read_to_string(end["log"].as_str().expect("a log")).expect("the log");
    let lines = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let chosen = lines.filter(|line| line["event"] == "selected");
    chosen.map(|line| line["payload"].clone()).collect()
}

/// How the calls of the policy program ended.
fn policy_faults(folder: &Folder) -> Vec<String> {
    let records = chain(folder).into_iter();
    let of_policy = records.filter(|record| record["tool"] == "pilot/policy");
    let ended =
        of_policy.filter(|record| record["kind"] == "outcome" || record["kind"] == "refusal");
    let word = |record: Value| record["fault"].as_str().unwrap_or("ok").to_owned();
    ended.map(word).collect()
}

/// TH-143, TH-144: a program that crashes, is killed, hangs, floods, says nothing, nonsense or a SID
/// that is not on the menu: the fallback's choice, with the reason before its `raw`, in both modes
/// that take the program's choice; and an honest record of each call.
#[test]
fn whatever_it_does_wrong() {
    for (policy, timeout_ms, fault, why) in [
        (
            "echo 'no idea' >&2; exit 7",
            "60000",
            "crash",
            "exit code 7: no idea",
        ),
        ("kill -9 $$", "60000", "crash", "signal 9"),
        ("sleep 600", "700", "timeout", "timed out after 700 ms"),
        (
            "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done",
            "60000",
            "bad_output",
            "answer exceeds 65536 bytes",
        ),
        (
            "exec 2>&-; head -c 65537 /dev/zero | tr '\\0' a",
            "60000",
            "bad_output",
            "answer exceeds 65536 bytes",
        ),
        ("exit 0", "60000", "bad_output", "none of the grammar"),
        (
            "echo 'pick the first one'",
            "60000",
            "bad_output",
            "none of the grammar",
        ),
        (
            "printf '<PICK><SID0001>\\377<END>'",
            "60000",
            "bad_output",
            "not UTF-8",
        ),
        (
            "echo '<PICK><SID0003><END>'",
            "60000",
            "bad_output",
            "SID0003 is not on the menu",
        ),
        (
            "echo '<PICK><SID0001><INP>{</INP><END>'",
            "60000",
            "bad_output",
            "none of the grammar",
        ),
    ] {
        for mode in ["POLICY_ONLY", "BLENDED"] {
            let folder = workspace(policy, timeout_ms);
            let (chosen, end) = run(&folder, mode);
            assert_eq!(end["end"], "noop", "{policy}");
            assert_eq!(
                end["steps"],
                json!([{ "aid": "AID.TEST.APPEND.v1", "status": "OK" }])
            );
            let failure = chosen[0]["policy_failure"].as_str().expect("a reason");
            assert!(failure.contains(why), "{policy}: {failure}");
            assert!(chosen[0].get("policy_raw").is_none());
            let raw = chosen[0]["selection"]["raw"].as_str().expect("raw");
            assert_eq!(
                raw,
                format!("[policy_failure]{failure}\n<PICK><SID0001><END>")
            );
            assert_eq!(policy_faults(&folder), [fault, fault], "{policy}");
            verified(&folder);
            let id = end["header"]["run_id"].as_str().expect("an id");
            cli(&folder, &["replay", id]).good();
        }
    }
}

/// TH-143, T-26: a program that is not there, or none at all; none is named by the environment.
#[test]
fn no_program() {
    let folder = workspace("", "60000");
    let config = CONFIG.replace(
        "policy = [\"/bin/sh\", \"policy.sh\"]",
        "policy = [\"./missing\"]",
    );
    folder.write("callgate.toml", &config);
    cli(&folder, &["trust"]).good();
    let (chosen, _) = run(&folder, "POLICY_ONLY");
    assert!(
        chosen[0]["policy_failure"]
            .as_str()
            .expect("a reason")
            .contains("not started")
    );
    folder.write(
        "callgate.toml",
        &config.replace("policy = [\"./missing\"]", ""),
    );
    cli(&folder, &["trust"]).good();
    let mut command = callgate(&folder);
    command.args(["pilot", "request.json", "--json"]);
    command.env("MACHINA_POLICY_CMD", "/bin/sh policy.sh");
    let chosen = choices(&drive::run(&mut command).good().json());
    assert_eq!(
        chosen[0]["policy_failure"],
        "no policy program is configured"
    );
}

/// TH-145: five failures in a row, over runs and processes, and the program is left alone; its
/// breaker is none of the tools'. A flood is a failure as a crash is.
#[test]
fn its_own_breaker() {
    for (policy, failure) in [
        ("exit 1", "exit code 1"),
        ("while :; do echo aaaaaaaaaaaaaaaa; done", "answer exceeds"),
    ] {
        left_alone(&workspace(policy, "60000"), failure);
    }
}

fn left_alone(folder: &Folder, failure: &str) {
    let asked = |end: (Vec<Value>, Value)| -> Vec<String> {
        let why = |chosen: &Value| {
            chosen["policy_failure"]
                .as_str()
                .expect("a reason")
                .to_owned()
        };
        end.0.iter().map(why).collect()
    };
    let mut reasons = Vec::new();
    for _ in 0..4 {
        reasons.extend(asked(run(folder, "POLICY_ONLY")));
    }
    assert_eq!(reasons.len(), 8);
    for (index, reason) in reasons.iter().enumerate() {
        let wanted = if index < 5 { failure } else { "breaker open" };
        assert!(reason.contains(wanted), "{index}: {reason}");
    }
    assert_eq!(
        policy_faults(folder)
            .iter()
            .filter(|fault| *fault == "breaker_open")
            .count(),
        3
    );
    let tools = chain(folder).into_iter();
    let tools = tools.filter(|record| record["kind"] == "outcome" && record["tool"] == "append");
    assert_eq!(tools.count(), 4, "the tool's calls went on");
}

/// TH-143, T-29: a program that is stopped with the run that asked it has not failed: nothing is
/// chosen in its place, the run has no end, and the same request asks it again.
#[test]
fn stopped_while_it_thinks() {
    let policy = "[ -e go ] || exec sleep 600\necho '<NOOP><END>'";
    let folder = workspace(policy, "600000");
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.none"], "request_id": "r",
                          "control_mode": "POLICY_ONLY" });
    folder.write("request.json", &request.to_string());
    let mut pilot = callgate(&folder)
        .args(["pilot", "request.json"])
        .stderr(Stdio::null())
        .spawn()
        .expect("start it");
    wait_for("the question", || {
        (count_of(&folder, "start") == 1).then_some(())
    });
    signal(pilot.id(), Signal::INT);
    assert_eq!(end_of(&mut pilot, "the run").code(), Some(1));
    assert_eq!(count_of(&folder, "pilot.selected"), 0);
    assert_eq!(count_of(&folder, "pilot.noop"), 0);
    let listed = cli(&folder, &["runs", "ls", "--json"]).good().out;
    assert!(listed.contains("\"lost\""), "it can be taken up: {listed}");
    folder.write("go", "");
    let end = cli(&folder, &["pilot", "request.json", "--json"]).good();
    let end = end.json();
    assert_eq!(
        (&end["end"], &end["deduplicated"]),
        (&json!("noop"), &json!(true))
    );
    let chosen = choices(&end);
    assert_eq!(chosen.len(), 1);
    assert_eq!(chosen[0]["policy_raw"], "<NOOP><END>\n");
    verified(&folder);
}

/// A policy program that says whether it reaches the port that it is told.
const REACHES: &str = r#"
import os, socket
try:
    socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 20).close()
    reaches = "yes"
except OSError:
    reaches = "no"
print('<PICK><SID0002><INP>{"reaches":"' + reaches + '"}</INP><END>')
"#;

/// TH-144: it reaches nobody, not even on this machine.
#[test]
fn it_reaches_nobody() {
    let folder = workspace("", "60000");
    let program = folder.write("policy.py", REACHES);
    let somebody = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = somebody.local_addr().expect("an address").port();
    // Held by nobody it does, so that its no says something.
    let mut free = std::process::Command::new(drive::python());
    free.arg(program).env("PORT", port.to_string());
    let said = drive::run(&mut free).good().out;
    assert!(said.contains(r#"{"reaches":"yes"}"#), "{said}");
    let config = CONFIG
        .replace(r#"["/bin/sh", "policy.sh"]"#, r#"["python3", "policy.py"]"#)
        .replace(r#"code = ["policy.sh"]"#, r#"code = ["policy.py"]"#)
        .replace(
            "timeout_ms = 60000",
            &format!("timeout_ms = 60000\nenv = {{ PORT = \"{port}\" }}"),
        );
    folder.write("callgate.toml", &config);
    cli(&folder, &["trust"]).good();
    let (chosen, _) = run(&folder, "POLICY_ONLY");
    assert_eq!(chosen[0]["inputs"], json!({ "reaches": "no" }));
}

/// TH-144: it may read its question and its own code, and neither write nor read the gate's state;
/// its question is gone afterwards.
#[test]
fn what_confines_it() {
    let policy = r#"
ok=
[ -r "$1" ] && ok="${ok}q"
echo x > effects.log 2>/dev/null && ok="${ok}w"
echo x > "$1" 2>/dev/null && ok="${ok}o"
[ -n "$(ls "$STATE" 2>/dev/null)" ] && ok="${ok}s"
printf '<PICK><SID0002><INP>{"may":"%s","question":"%s"}</INP><END>' "$ok" "$1"
"#;
    let folder = workspace(policy, "60000");
    let state = folder.join("state");
    let env = format!(
        "timeout_ms = 60000\nenv = {{ STATE = \"{}\" }}",
        state.display()
    );
    folder.write("callgate.toml", &CONFIG.replace("timeout_ms = 60000", &env));
    cli(&folder, &["trust"]).good();
    let (chosen, _) = run(&folder, "POLICY_ONLY");
    let inputs = &chosen[0]["inputs"];
    assert_eq!(inputs["may"], "q", "{inputs}");
    let question = inputs["question"].as_str().expect("a path");
    assert!(question.ends_with(".json") && !std::path::Path::new(question).exists());
    let started = chain(&folder).into_iter();
    let mut started = started.filter(|r| r["kind"] == "start" && r["tool"] == "pilot/policy");
    assert_eq!(started.next().expect("a start")["enforcement"], "enforced");
}
