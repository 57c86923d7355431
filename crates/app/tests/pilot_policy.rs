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
