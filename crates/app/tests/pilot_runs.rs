//! Runs of the pilot among all runs: listed, shown, followed and exported as streamed ones are, by
//! `callgate runs` and over the wires; also one whose process was killed.

#![cfg(feature = "failpoints")]

use std::process::Stdio;

use crate::support::drive::{Ran, end_of, run, verified};
use crate::support::play::{Theatre, done, item, lines};
use crate::support::{callgate, wait_for};
use callgate_testing::misbehave;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[breaker]
failures_max = 0

[pilot.goals]
"goal.both" = [0, 1]

[[tool]]
name = "first"
aid = "AID.TEST.FIRST.v1"
tags = ["tag.both", "tag.slow"]
slots = true
runner = { kind = "process", command = ["/bin/sh", "step.sh", "0"] }

[[tool]]
name = "second"
aid = "AID.TEST.SECOND.v1"
tags = ["tag.both"]
slots = true
runner = { kind = "process", command = ["/bin/sh", "step.sh", "1"] }

[[tool]]
name = "slow"
aid = "AID.TEST.SLOW.v1"
tags = ["tag.slow"]
runner = { kind = "process", command = ["/bin/sh", "slow.sh"] }

[[tool]]
name = "fails"
aid = "AID.TEST.FAILS.v1"
tags = ["tag.fails"]
runner = { kind = "process", command = ["/bin/sh", "-c", "cat > /dev/null; exit 3"] }
"#;

/// Puts a text into the slot that it is told.
const STEP: &str = r#"
read -r input
printf '{"output":{},"slots":{"%s":{"type":"text","provenance":"step","content_json":"\\"made\\"","size_bytes":6}},"removed_slots":[]}' $1
"#;

/// Waits until it may go on.
const SLOW: &str = "cat > /dev/null\nwhile [ ! -e go ]; do sleep 0.02; done\necho '{}'\n";

fn theatre() -> Theatre {
    let theatre = Theatre::new(misbehave(), CONFIG);
    for (name, text) in [("step.sh", STEP), ("slow.sh", SLOW)] {
        theatre.folder.write(name, text);
    }
    theatre
}

fn pilot(theatre: &Theatre, goal: &str, tag: &str, request: &str) -> Ran {
    let request = json!({ "goal_id": goal, "candidate_tags": [tag], "request_id": request });
    theatre.folder.write("request.json", &request.to_string());
    theatre.cli(&["pilot", "request.json", "--json"])
}

fn id_of(end: &Value) -> String {
    let id = end["header"]["run_id"].as_str();
    id.expect("a run id").to_owned()
}

/// One list of both kinds, the newest first, by every filter; the same by `runs/list`, in pages.
#[test]
fn listed_with_the_others() {
    let theatre = theatre();
    let done_id = id_of(
        &pilot(&theatre, "goal.both", "tag.both", "r-1")
            .good()
            .json(),
    );
    theatre
        .run(&["-q", "--job-id", "j-1"], &json!([item(1), done()]))
        .good();
    let failed_id = id_of(&pilot(&theatre, "g", "tag.fails", "r-2").json());
    let told = |runs: &[Value]| -> Vec<(String, String)> {
        let text = |run: &Value, name: &str| run[name].as_str().expect("text").to_owned();
        runs.iter()
            .map(|run| (text(run, "kind"), text(run, "state")))
            .collect()
    };
    let pair = |kind: &str, state: &str| (kind.to_owned(), state.to_owned());
    let runs = theatre.runs();
    let wanted = [
        pair("pilot", "tool_error"),
        pair("stream", "success"),
        pair("pilot", "goal_done"),
    ];
    assert_eq!(told(&runs), wanted);
    assert_eq!(
        [&runs[0]["run_id"], &runs[2]["run_id"]],
        [&failed_id, &done_id]
    );
    assert_eq!(runs[2]["job_id"], "r-1");

    let ls = |args: &[&str]| {
        let args = [&["runs", "ls", "--json"], args].concat();
        told(&lines(&theatre.cli(&args).good().out))
    };
    assert_eq!(
        ls(&["--kind", "pilot"]),
        [wanted[0].clone(), wanted[2].clone()]
    );
    assert_eq!(ls(&["--kind", "stream"]), wanted[1..2]);
    assert_eq!(ls(&["--status", "goal_done"]), wanted[2..]);
    assert_eq!(ls(&["--job-id", "r-2"]), wanted[..1]);
    assert_eq!(ls(&["--source", "nowhere"]), []);
    assert_eq!(ls(&["--limit", "2"]), wanted[..2]);
    let table = theatre.cli(&["runs"]).good().out;
    assert!(
        table.contains("goal_done") && table.contains("r-1"),
        "{table}"
    );

    let (mut paged, mut cursor) = (Vec::new(), Value::Null);
    for _ in 0..4 {
        let mut input = json!({ "limit": 1 });
        if !cursor.is_null() {
            input["cursor"] = cursor;
        }
        let page = get(&theatre, "runs/list", &input);
        paged.extend(page["runs"].as_array().expect("runs").clone());
        cursor = page["next"].clone();
    }
    assert_eq!(paged, runs);
    assert_eq!(cursor, Value::Null);
}

fn get(theatre: &Theatre, tool: &str, input: &Value) -> Value {
    let args = ["call", tool, &input.to_string(), "--json"];
    let told = theatre.cli(&args).good().json();
    told["output"].clone()
}

/// A run is shown with its end, its calls, its slots and its events, by the command and by
/// `runs/get` alike.
#[test]
fn shown_like_any_run() {
    let theatre = theatre();
    let id = id_of(
        &pilot(&theatre, "goal.both", "tag.both", "r-1")
            .good()
            .json(),
    );
    let words = theatre.cli(&["runs", "show", "last"]).good().out;
    for part in [
        &format!("run {id}  goal_done goal.both after"),
        "goal       goal.both",
        "request    r-1, try 1",
        "call        1  AID.TEST.FIRST.v1  OK",
        "call        2  AID.TEST.SECOND.v1  OK",
        "slot       1  text  step  6 B",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let shown = theatre.cli(&["runs", "show", &id[..31], "--json"]);
    let shown = shown.good().json();
    assert_eq!(shown["run"]["state"], "goal_done");
    assert_eq!(shown["report"]["end"], "goal_done");
    assert_eq!(shown["report"]["header"]["request_id"], "r-1");
    assert_eq!(shown["report"]["steps"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["slots"]["1"]["content_json"], "\"made\"");
    assert_eq!(shown["artifacts"], json!([]));

    let exported = theatre.cli(&["runs", "export", &id]).good().out;
    let exported = lines(&exported);
    let types: Vec<&str> = exported
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    let step = ["selected", "tool_ok"];
    let wanted = [&["begin"], &step[..], &step, &["goal_done"]].concat();
    assert_eq!(types, wanted);
    assert_eq!(shown["run"]["events"], exported.len());
    let only = theatre.cli(&["runs", "export", &id, "--type", "tool_ok"]);
    assert_eq!(
        lines(&only.good().out),
        [&exported[2], &exported[4]].map(Value::clone)
    );
    let tail = theatre.cli(&["runs", "tail", &id, "--json", "-n", "1"]);
    assert_eq!(lines(&tail.good().out), exported[5..]);

    let by_wire = get(
        &theatre,
        "runs/get",
        &json!({ "run_id": id, "events_from": 1, "events_limit": 2 }),
    );
    for part in ["run", "report", "slots"] {
        assert_eq!(by_wire[part], shown[part], "{part}");
    }
    assert_eq!(by_wire["events"], json!(exported[1..3]));
    assert_eq!(by_wire["events_next"], 3);
    let missing = theatre.cli(&["runs", "show", "nothing"]);
    assert_eq!(missing.code(), 1);
}

/// A run that goes on says so and is followed to its end; one whose process was killed is lost,
/// until somebody goes on with it.
#[test]
fn followed_lost_and_resumed() {
    let theatre = theatre();
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.slow"] });
    theatre.folder.write("request.json", &request.to_string());
    let mut child = callgate(&theatre.folder)
        .args(["pilot", "request.json"])
        .stdout(Stdio::null())
        .spawn()
        .expect("start it");
    let state = || theatre.runs().first().map(|run| run["state"].clone());
    wait_for("the run", || {
        (state() == Some(json!("running"))).then_some(())
    });
    let tail = callgate(&theatre.folder)
        .args(["runs", "tail", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start it");
    theatre.folder.write("go", "");
    assert!(end_of(&mut child, "the pilot").success());
    let told = tail.wait_with_output().expect("its output");
    let told = lines(std::str::from_utf8(&told.stdout).expect("text"));
    assert_eq!(told.first().expect("the first")["type"], "begin");
    assert_eq!(told.last().expect("the last")["type"], "noop");

    let mut killed = callgate(&theatre.folder);
    killed.args(["pilot", "request.json"]);
    killed.env("CALLGATE_FAILPOINT", "pilot.after_note=kill:1");
    assert!(run(&mut killed).was_killed());
    assert_eq!(state(), Some(json!("lost")));
    let words = theatre.cli(&["runs", "show", "last"]).good().out;
    assert!(
        words.contains("lost") && words.contains("--resume"),
        "{words}"
    );
    let lost = theatre.runs()[0]["run_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    theatre.cli(&["pilot", "--resume", &lost]).good();
    assert_eq!(state(), Some(json!("noop")));
    verified(&theatre.folder);
}
