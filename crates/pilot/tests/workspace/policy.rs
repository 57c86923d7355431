//! A policy program that does everything wrong: the fallback chooses, the record says why, and the
//! breaker leaves the program alone. TH-143, TH-144.

use callgate_testing::scripts::APPEND;
use serde_json::{Value, json};

use crate::support::runs::{ended, replay};
use callgate_testing_workspace::{Folder, records, trusted_with, verified};

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
    let end = ended(folder, &request);
    assert_eq!(end["ok"], true, "{end}");
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
    let records = records(folder).into_iter();
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
            assert_eq!(replay(&folder, id)["ok"], true);
        }
    }
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
    let tools = records(folder).into_iter();
    let tools = tools.filter(|record| record["kind"] == "outcome" && record["tool"] == "append");
    assert_eq!(tools.count(), 4, "the tool's calls went on");
}
