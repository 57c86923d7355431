//! Runs of the pilot by the command line: what is printed, exit codes, and requests that are refused.
//! Their steps are tested in `pilot`. Contract toolhost, "Runs, selection, log and queue".

use crate::support::drive::{Ran, chain, cli, count_of, run, verified};
use crate::support::workspace::{folder_of, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

/// Puts what it is given into slot 0, beside what is there, and notes that it ran.
const COLLECT: &str = r#"
read -r input
echo "$0" >> effects.log
case $input in
  *'"slots":{}'*) seen=nothing ;;
  *) seen=something ;;
esac
printf '{"output":{"seen":"%s"},"slots":{"0":{"type":"text","provenance":"collect","content_json":"1","size_bytes":1}},"removed_slots":[]}' $seen
"#;

/// Says how often it ran, by itself as well.
const COUNT: &str = r#"
read -r input
echo ran >> effects.log
times=0
while read -r line; do times=$((times + 1)); done < effects.log
printf '{"times":%s}' $times
"#;

const FAIL: &str = "cat > /dev/null\necho broken >&2\nexit 3\n";

/// A policy program: the answers in `answers`, one a line, then NOOP. It starts no other program,
/// for a long run asks it often.
const SCRIPTED: &str = r#"
read -r question < "$1"
step=${question##*'"step":'}; step=${step%%[!0-9]*}
while [ "$step" -gt 0 ] && read -r answer; do step=$((step - 1)); done < answers
[ "$step" = 0 ] || answer=
printf '%s\n' "${answer:-<NOOP><END>}"
"#;

/// A tool that is listed and can not be called.
const PACK: &str = r#"{"toolpack_id":"toolpack.gone","toolpack_version":"1","trust_tier":"tier1_signed",
"tools":[{"aid":"AID.TEST.GONE.v1","name":"gone","tags":["tag.gone"],"inputs_schema":{},"outputs_schema":{}}]}"#;

const CONFIG: &str = r#"
toolpacks = ["gone.json"]

[breaker]
failures_max = 0

[pilot]
policy = ["/bin/sh", "policy.sh"]
code = ["policy.sh"]
timeout_ms = 60000
reads = ["answers"]

[pilot.goals]
"goal.collected" = [0]

[[tool]]
name = "collect"
aid = "AID.TEST.COLLECT.v1"
tags = ["tag.run"]
slots = true
tier = 0
writes = ["effects.log"]
input_schema = { type = "object", additionalProperties = false, properties = { n = { type = "integer" } } }
code = ["collect.sh"]
runner = { kind = "process", command = ["/bin/sh", "collect.sh"] }

[[tool]]
name = "count"
aid = "AID.TEST.COUNT.v1"
tags = ["tag.run", "tag.count"]
tier = 1
writes = ["effects.log"]
input_schema = { type = "object", required = ["text"], properties = { text = { type = "string" } } }
code = ["count.sh"]
runner = { kind = "process", command = ["/bin/sh", "count.sh"] }

[[tool]]
name = "fail"
aid = "AID.TEST.FAIL.v1"
tags = ["tag.fail"]
code = ["fail.sh"]
runner = { kind = "process", command = ["/bin/sh", "fail.sh"] }

[[tool]]
name = "asks"
aid = "AID.TEST.ASKS.v1"
tags = ["tag.asks"]
writes = ["effects.log"]
code = ["count.sh"]
runner = { kind = "process", command = ["/bin/sh", "count.sh"] }

[[policy]]
tools = ["asks"]
decision = "ask"
"#;

fn workspace(answers: &str) -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("collect.sh", COLLECT),
        ("count.sh", COUNT),
        ("fail.sh", FAIL),
        ("policy.sh", SCRIPTED),
        ("answers", answers),
        ("gone.json", PACK),
        ("effects.log", ""),
    ])
}

fn pilot(folder: &Folder, request: &Value) -> Ran {
    folder.write("request.json", &request.to_string());
    cli(folder, &["pilot", "request.json", "--json"])
}

/// A run's end, exit code checked against it.
fn ended(folder: &Folder, request: &Value) -> Value {
    let ran = pilot(folder, request);
    let end = ran.json();
    assert_eq!(ran.code() == 0, end["ok"] == true, "{end}");
    end
}

fn run_id(end: &Value) -> String {
    end["header"]["run_id"]
        .as_str()
        .expect("a run id")
        .to_owned()
}

/// The lines of a run's log.
fn log(end: &Value) -> Vec<Value> {
    let path = end["log"].as_str().expect("where the log is");
    let text = std::fs::read_to_string(path).expect("the log");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn payload(end: &Value, event: &str) -> Value {
    let lines = log(end).into_iter();
    let mut found = lines.filter(|line| line["event"] == event);
    found
        .next()
        .unwrap_or_else(|| panic!("no {event} in {end}"))["payload"]
        .clone()
}

fn policy_request(tags: &[&str]) -> Value {
    json!({ "goal_id": "g", "candidate_tags": tags, "control_mode": "POLICY_ONLY" })
}

/// TH-131, TH-132, TH-133, TH-134, TH-135, TH-136, TH-146, T-28: two steps by the fallback, each a call
/// in the chain; the goal reached; what is printed, and the exit code.
#[test]
fn a_run_of_two_steps() {
    let folder = workspace("");
    let request = json!({
        "goal_id": "goal.other", "candidate_tags": ["tag.run"], "request_id": "r-1",
        "inputs": { "text": "x", "_queue_own": 1 },
    });
    let end = ended(&folder, &request);
    assert_eq!((&end["end"], &end["ok"]), (&json!("noop"), &json!(true)));
    assert_eq!(
        end["steps"],
        json!([
            { "aid": "AID.TEST.COUNT.v1", "status": "OK" },
            { "aid": "AID.TEST.COLLECT.v1", "status": "OK" },
        ])
    );
    let header = &end["header"];
    assert_eq!(
        (
            &header["spec_version"],
            &header["profile_id"],
            &header["request_id"]
        ),
        (&json!("1.4.2"), &json!("A"), &json!("r-1"))
    );
    let id = run_id(&end);
    assert!(
        id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{id}"
    );
    let chosen = payload(&end, "selected");
    assert_eq!(
        chosen["input"],
        json!({ "text": "x" }),
        "protected keys are not for tools"
    );
    let calls: Vec<Value> = chain(&folder)
        .into_iter()
        .filter(|r| r["kind"] == "start")
        .collect();
    assert_eq!(calls.len(), 2);
    assert!(
        calls
            .iter()
            .all(|call| call["wire"] == "pilot" && call.get("key").is_some())
    );
    assert_eq!(count_of(&folder, "pilot.tool_ok"), 2);
    // What a tool without slots gives is in the last one.
    assert_eq!(
        payload(&end, "tool_ok")["tx_patch"],
        json!([{ "op": "add", "path": "/slots/7", "value": {
            "type": "json", "provenance": "AID.TEST.COUNT.v1",
            "content_json": "{\"times\":1}", "size_bytes": 11,
        } }])
    );
    verified(&folder);

    folder.write(
        "request.json",
        r#"{"goal_id":"goal.collected","candidate_tags":["tag.run"]}"#,
    );
    let said = cli(&folder, &["pilot", "request.json"]).good();
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines[0], "RUN END: goal_done goal.collected");
    assert!(
        lines[1].starts_with("log: /") && lines.len() == 2,
        "{lines:?}"
    );
}

/// TH-135: what is no request is refused before anything happens.
#[test]
fn requests_that_are_none() {
    let folder = workspace("");
    for request in [
        json!({}),
        json!([]),
        json!({ "goal_id": "g", "control_mode": "X" }),
        json!({ "goal_id": "g", "inputs": 1 }),
    ] {
        assert_eq!(pilot(&folder, &request).code(), 1, "{request}");
    }
    assert_eq!(cli(&folder, &["pilot", "missing.json"]).code(), 1);
    assert_eq!(cli(&folder, &["pilot"]).code(), 2);
    assert_eq!(cli(&folder, &["pilot", "request.json", "--once"]).code(), 2);
    assert_eq!(cli(&folder, &["pilot", "--resume", "00"]).code(), 1);
    assert_eq!(count_of(&folder, "pilot.begin"), 0);
}

/// TH-146: a tool that fails ends the run with its words, and the slots are as before it; one that
/// is not there to be called trips a breaker.
#[test]
fn tools_that_fail() {
    let folder = workspace("<PICK><SID0001><END>\n<PICK><SID0002><END>\n");
    let end = ended(&folder, &policy_request(&["tag.run", "tag.fail"]));
    // SID0001 is collect, SID0002 count, which lacks its input: then the fallback's NOOP.
    assert_eq!(end["steps"][1]["status"], "INVALID_PICK");
    let one = ended(
        &folder,
        &json!({ "goal_id": "g", "candidate_tags": ["tag.fail"] }),
    );
    assert_eq!(
        (&one["end"], &one["data"]["aid"]),
        (&json!("tool_error"), &json!("AID.TEST.FAIL.v1"))
    );
    folder.write(
        "request.json",
        r#"{"goal_id":"g","candidate_tags":["tag.fail"]}"#,
    );
    let said = cli(&folder, &["pilot", "request.json"]);
    assert_eq!(said.code(), 1);
    assert!(
        said.out
            .starts_with("RUN END: tool_error aid=AID.TEST.FAIL.v1 err=")
    );
    let gone = ended(
        &folder,
        &json!({ "goal_id": "g", "candidate_tags": ["tag.gone"] }),
    );
    assert_eq!(gone["end"], "breaker");
    assert_eq!(gone["data"]["reason"], "unavailable aid=AID.TEST.GONE.v1");
    let empty = json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(one["ds_digest"], empty);
}

/// TH-133: a fixed sequence of ids where that is wanted.
#[test]
fn deterministic_ids() {
    let ids = || {
        let folder = folder_of(&[("request.json", r#"{"goal_id":"g"}"#)]);
        [0, 1].map(|_| {
            let mut command = callgate(&folder);
            command.args(["pilot", "request.json", "--json"]);
            command.env("MACHINA_DETERMINISTIC_RUN_ID", "1");
            run_id(&run(&mut command).good().json())
        })
    };
    let (a, b) = (ids(), ids());
    assert_eq!(a, b);
    assert_ne!(a[0], a[1]);
}

/// A secret that is known is not kept: the request is refused.
#[test]
fn secrets_are_not_kept() {
    let folder = folder_of(&[("callgate.toml", "[secrets]\nenv = [\"KEY\"]\n")]);
    let with_key = |args: &[&str]| {
        let mut command = callgate(&folder);
        command.args(args).env("KEY", "hunter2hunter2");
        run(&mut command)
    };
    with_key(&["trust"]).good();
    folder.write(
        "request.json",
        r#"{"goal_id":"g","inputs":{"x":"hunter2hunter2"}}"#,
    );
    assert_eq!(with_key(&["pilot", "request.json"]).code(), 1);
    assert_eq!(count_of(&folder, "pilot.begin"), 0);
}
