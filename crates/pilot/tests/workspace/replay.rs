//! Replay: with one record of a run changed, what differs is named, and so is a tool that has become
//! another. TH-147, TH-148.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::runs::{self, replay, replay_log};
use callgate_testing_workspace::{Folder, trust, trusted_with};

/// Keeps its number and what it saw of the slots in a slot of its own.
const SAME: &str = r#"
read -r input
seen=$(printf %s "$input" | cksum | cut -d' ' -f1)
printf '{"output":{"n":%s,"seen":%s},"slots":{"%s":{"type":"text","provenance":"same","content_json":"%s","size_bytes":1}},"removed_slots":[]}' $1 $seen $(($1 % 7)) $seen
"#;

/// Never the same twice.
const RANDOM: &str = r#"
cat > /dev/null
printf '{"random":"%s"}' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
"#;

fn workspace() -> Folder {
    let mut config = String::from("[breaker]\nfailures_max = 0\n");
    for n in 0..10 {
        let random = n % 3 == 1;
        let kind = if random { "random.sh" } else { "same.sh" };
        config.push_str(&format!(
            "[[tool]]\nname = \"t{n}\"\naid = \"AID.TEST.T{n}.v1\"\ntags = [\"tag.run\"]\ntier = 0\n\
             slots = {}\ndeterministic = {}\n\
             code = [\"{kind}\"]\nrunner = {{ kind = \"process\", command = [\"/bin/sh\", \"{kind}\", \"{n}\"] }}\n",
            !random, !random
        ));
    }
    trusted_with(&[
        ("callgate.toml", &config),
        ("same.sh", SAME),
        ("random.sh", RANDOM),
        (
            "request.json",
            r#"{"goal_id":"g","candidate_tags":["tag.run"],"inputs":{"x":1}}"#,
        ),
    ])
}

struct Run {
    id: String,
    log: PathBuf,
}

fn ten_steps(folder: &Folder) -> Run {
    let request = folder.read("request.json").expect("a request");
    let end = runs::ended(folder, &serde_json::from_str(&request).expect("JSON"));
    assert_eq!(end["steps"].as_array().expect("steps").len(), 10, "{end}");
    Run {
        id: end["header"]["run_id"].as_str().expect("an id").to_owned(),
        log: PathBuf::from(end["log"].as_str().expect("a log")),
    }
}

/// What `callgate replay` says of a log that `change` was made to.
fn changed(folder: &Folder, run: &Run, rechain: bool, change: impl Fn(&mut Vec<Value>)) -> Value {
    let text = std::fs::read_to_string(&run.log).expect("the log");
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let mut lines: Vec<Value> = text.lines().map(parse).collect();
    change(&mut lines);
    if rechain {
        chain_again(&mut lines);
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let said = replay_log(folder, &text);
    assert_eq!(said["ok"], false, "{said}");
    said["difference"].clone()
}

/// The chain as somebody who changed a line on purpose would make it.
fn chain_again(lines: &mut [Value]) {
    let mut before = "0".repeat(64);
    for line in lines {
        let members = line.as_object_mut().expect("a line");
        members.remove("chain_hash");
        members.remove("chain_prev");
        let hashed = format!("{before}{}", line.to_string().replace('/', "\\/"));
        let hash = sha256(hashed.as_bytes());
        line["chain_prev"] = json!(before);
        line["chain_hash"] = json!(hash);
        before = hash;
    }
}

/// The SHA-256 of bytes in hex digits, by a program that is not ours.
fn sha256(bytes: &[u8]) -> String {
    let mut command = Command::new("sha256sum");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("start sha256sum");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(bytes).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("its end");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split(' ').next().expect("a hash").to_owned()
}

/// The line of the `tool_ok` of a tool.
fn outcome<'a>(lines: &'a mut [Value], aid: &str) -> &'a mut Value {
    let mut found = lines
        .iter_mut()
        .filter(|line| line["event"] == "tool_ok" && line["payload"]["aid"] == aid);
    &mut found.next().expect("its outcome")["payload"]
}

/// TH-147, TH-148: with one record changed, the first difference is named, whether or not the chain
/// was made to fit.
#[test]
fn one_record_changed() {
    let folder = workspace();
    let run = ten_steps(&folder);
    let unchained = changed(&folder, &run, false, |lines| {
        outcome(lines, "AID.TEST.T4.v1")["duration_ms"] = json!(123_456);
    });
    assert!(
        unchained["what"]
            .as_str()
            .expect("words")
            .contains("line 11 was changed"),
        "{unchained}"
    );
    // A tool that is run again: its outcome.
    let named = |difference: &Value| {
        let text = |name: &str| difference[name].as_str().expect("a text").to_owned();
        (text("aid"), text("what"))
    };
    let of = |aid: &str, what: &str| (aid.to_owned(), what.to_owned());
    for (aid, field, value, what) in [
        (
            "AID.TEST.T3.v1",
            "output_digest",
            json!("00"),
            "output_digest",
        ),
        ("AID.TEST.T3.v1", "ds_digest", json!("00"), "ds_digest"),
        (
            "AID.TEST.T3.v1",
            "ds_digest_fast",
            json!("00"),
            "ds_digest_fast",
        ),
        ("AID.TEST.T3.v1", "tx_patch", json!([]), "tx_patch"),
        (
            "AID.TEST.T3.v1",
            "deterministic",
            json!(false),
            "deterministic",
        ),
        // One that is not: what is recorded must fit together.
        ("AID.TEST.T4.v1", "tx_patch", json!([]), "ds_digest"),
        (
            "AID.TEST.T4.v1",
            "tx_patch",
            json!([{ "op": "move" }]),
            "tx_patch",
        ),
        ("AID.TEST.T4.v1", "ds_digest", json!("00"), "ds_digest"),
        (
            "AID.TEST.T4.v1",
            "output_digest",
            json!("00"),
            "output_digest",
        ),
        ("AID.TEST.T4.v1", "status", json!("TOOL_ERROR"), "status"),
        (
            "AID.TEST.T4.v1",
            "replay_inputs",
            json!(["now"]),
            "replay_inputs",
        ),
        // What is nowhere but in the chain.
        ("AID.TEST.T4.v1", "call", json!("00"), "call"),
        ("AID.TEST.T4.v1", "duration_ms", json!(-1), "duration_ms"),
    ] {
        let found = changed(&folder, &run, true, |lines| {
            outcome(lines, aid)[field] = value.clone();
        });
        assert_eq!(named(&found), of(aid, what), "{found}");
    }
    // A choice.
    for (field, value) in [
        ("menu_digest", json!("00")),
        ("state_digest", json!("00")),
        ("fallback_raw", json!("<NOOP><END>")),
        ("inputs", json!({})),
        ("input", json!({ "x": 2 })),
        ("aid", json!("AID.TEST.T9.v1")),
        ("control_mode", json!("POLICY_ONLY")),
        ("policy_raw", json!("<NOOP><END>")),
    ] {
        let found = changed(&folder, &run, true, |lines| {
            lines[9]["payload"][field] = value.clone();
        });
        assert_eq!(
            (found["event"].as_u64(), found["what"].as_str()),
            (Some(10), Some(field)),
            "{found}"
        );
    }
    let found = changed(&folder, &run, true, |lines| {
        lines[9]["payload"]["selection"]["raw"] = json!("<PICK><SID0009><END>");
    });
    assert_eq!(found["what"], "selection", "{found}");
    // The beginning, the end and the order.
    let request = json!({ "goal_id": "g", "inputs": { "x": 1 } });
    for (line, field, value, what) in [
        (
            0,
            "payload",
            json!({ "header": {}, "request": request }),
            "run",
        ),
        (0, "run_id", json!("00"), "run"),
        (9, "step", json!(6), "step"),
        (22, "event", json!("goal_done"), "event"),
        (22, "event", json!("selected"), "event"),
        (22, "payload", json!({ "more": 1 }), "more"),
        (10, "event", json!("noop"), "event"),
    ] {
        let found = changed(&folder, &run, true, |lines| {
            lines[line][field] = value.clone();
        });
        let said = found["what"].as_str().expect("words");
        assert!(said.contains(what), "{field} of {line}: {found}");
    }
    let found = changed(&folder, &run, true, |lines| {
        let end = lines[22].clone();
        lines.push(end);
    });
    assert_eq!(found["event"], 24, "{found}");
}

/// Tools of a pack: two in Python, one of which is never the same twice and one of which fails.
const PACK: &str = r#"{"toolpack_id":"toolpack.kit","toolpack_version":"1","trust_tier":"tier1_signed",
"tools":[
  {"aid":"AID.KIT.CHANCE.v1","name":"chance","tags":["tag.kit"],"deterministic":false,"slots":true,
   "inputs_schema":{},"outputs_schema":{},"runner":{"kind":"python","entry":"kit:chance"}},
  {"aid":"AID.KIT.FAIL.v1","name":"fail","tags":["tag.fail"],
   "inputs_schema":{},"outputs_schema":{},"runner":{"kind":"python","entry":"kit:fail"}},
  {"aid":"AID.KIT.GONE.v1","name":"gone","tags":["tag.gone"],"inputs_schema":{},"outputs_schema":{}},
  {"aid":"AID.KIT.SAME.v1","name":"kit_same","tags":["tag.kit"],"slots":true,
   "inputs_schema":{},"outputs_schema":{},"runner":{"kind":"python","entry":"kit:same"}},
  {"aid":"AID.KIT.SHELL.v1","name":"kit_shell","tags":["tag.kit"],
   "inputs_schema":{},"outputs_schema":{},
   "confinement": { "code": ["shell.sh"] }, "runner":{"kind":"process","command":["/bin/sh","shell.sh"]}}]}"#;

const KIT: &str = r#"
import os

def put(slots, number, text):
    slots[number] = {"type": "text", "provenance": "kit", "content_json": text, "size_bytes": 1}

def chance(payload, slots):
    put(slots, 0, "1")
    return {"random": os.urandom(16).hex()}

def same(payload, slots):
    put(slots, 1, str(len(slots)))
    return {"seen": len(slots)}

def fail(payload):
    raise ValueError("never")

def plain(payload):
    return {"inputs": sorted(payload)}
"#;

/// A workspace with the pack, a Python function of its own, and a policy program that picks the
/// first of its menu for as long as it is asked.
fn kit() -> Folder {
    let config = r#"
toolpacks = ["kit.json"]

[breaker]
failures_max = 0

[pilot]
policy = ["/bin/sh", "policy.sh"]
code = ["policy.sh"]
timeout_ms = 60000

[[tool]]
name = "plain"
aid = "AID.OWN.PLAIN.v1"
tags = ["tag.kit", "tag.own"]
tier = 0
deterministic = true
runner = { kind = "python", entry = "kit:plain" }
"#;
    trusted_with(&[
        ("callgate.toml", config),
        ("kit.json", PACK),
        ("kit.py", KIT),
        ("shell.sh", "read -r input\necho '{\"ok\":true}'\n"),
        ("policy.sh", "echo '<PICK><SID0001><END>'\n"),
    ])
}

/// A run, whose end need not be a good one.
fn ended(folder: &Folder, tag: &str, mode: &str) -> (Run, Value) {
    let request = json!({ "goal_id": "g", "candidate_tags": [tag], "control_mode": mode });
    let end = runs::ended(folder, &request);
    let run = Run {
        id: end["header"]["run_id"].as_str().expect("an id").to_owned(),
        log: PathBuf::from(end["log"].as_str().expect("a log")),
    };
    (run, end)
}

/// TH-148: what a policy program said, how calls failed, and the breakers' records.
#[test]
fn choices_failures_and_breakers_changed() {
    let folder = kit();
    let (run, end) = ended(&folder, "tag.own", "POLICY_ONLY");
    assert_eq!(end["data"]["reason"], "loop_guard", "{end}");
    let equal = json!({ "ok": true, "events": 12, "rerun": 4, "taken": 0 });
    assert_eq!(replay(&folder, &run.id), equal);
    let said = "<PICK><SID0001><END>";
    type Change = fn(&mut [Value], &str);
    let changes: [(Change, &str, u64, &str); 8] = [
        (
            |lines, raw| lines[1]["payload"]["policy_raw"] = json!(raw),
            said,
            2,
            "selection",
        ),
        (
            |lines, raw| lines[1]["payload"]["policy_raw"] = json!(raw),
            "<PICK><SID0009><END>",
            2,
            "policy_raw",
        ),
        (
            |lines, _| {
                drop(
                    lines[1]["payload"]
                        .as_object_mut()
                        .expect("it")
                        .remove("policy_raw"),
                )
            },
            "",
            2,
            "policy_raw",
        ),
        // Both as they would be had it said so: only the chain knows.
        (
            |lines, raw| {
                lines[1]["payload"]["policy_raw"] = json!(raw);
                lines[1]["payload"]["selection"]["raw"] = json!(raw);
            },
            said,
            2,
            "policy_raw",
        ),
        (
            |lines, _| lines[10]["payload"]["times"] = json!(5),
            "",
            11,
            "times",
        ),
        (
            |lines, _| lines[11]["payload"]["reason"] = json!("max_steps"),
            "",
            12,
            "reason",
        ),
        (
            |lines, _| lines[11]["payload"]["status"] = json!("OK"),
            "",
            12,
            "status",
        ),
        (
            |lines, _| lines[11]["event"] = json!("noop"),
            "",
            12,
            "event",
        ),
    ];
    for (change, raw, event, what) in changes {
        let found = changed(&folder, &run, true, |lines| change(lines, raw));
        assert_eq!(
            (found["event"].as_u64(), found["what"].as_str()),
            (Some(event), Some(what)),
            "{found}"
        );
    }

    let (run, end) = ended(&folder, "tag.fail", "FALLBACK_ONLY");
    assert_eq!(end["data"]["fault"], "tool_failed", "{end}");
    assert_eq!(replay(&folder, &run.id)["rerun"], 1);
    for (field, value) in [
        ("err", json!("other")),
        ("fault", json!("crash")),
        ("unknown", json!(true)),
    ] {
        let found = changed(&folder, &run, true, |lines| {
            lines[2]["payload"][field] = value.clone();
        });
        assert_eq!(found["what"], field, "{found}");
    }
    folder.write(
        "kit.py",
        &KIT.replace("raise ValueError(\"never\")", "return {}"),
    );
    trust(&folder);
    let found = replay(&folder, &run.id)["difference"].clone();
    assert_eq!(
        (&found["what"], &found["found"]),
        (&json!("status"), &json!("OK")),
        "{found}"
    );

    let (run, end) = ended(&folder, "tag.gone", "FALLBACK_ONLY");
    assert_eq!(end["data"]["reason"], "unavailable aid=AID.KIT.GONE.v1");
    assert_eq!(replay(&folder, &run.id)["ok"], true);
    for reason in ["unavailable aid=AID.KIT.SAME.v1", "max_steps"] {
        let found = changed(&folder, &run, true, |lines| {
            lines[2]["payload"]["reason"] = json!(reason);
        });
        assert_eq!(found["what"], "reason", "{found}");
    }
}

/// TH-148: a tool that has become another gives another outcome, and is named.
#[test]
fn a_tool_that_changed() {
    let folder = workspace();
    let run = ten_steps(&folder);
    folder.write(
        "same.sh",
        &SAME.replace("cksum", "cat | sed s/x/y/ | cksum"),
    );
    trust(&folder);
    let found = replay(&folder, &run.id)["difference"].clone();
    assert_eq!(
        (&found["aid"], &found["what"]),
        (&json!("AID.TEST.T0.v1"), &json!("output_digest")),
        "{found}"
    );
}
