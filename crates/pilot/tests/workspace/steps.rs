//! The steps of a run: the menu, picks and patches, breakers, a person's word, and requests that come
//! again. Contract toolhost, "Runs, selection, log and queue".

use callgate_store::ApprovalState;
use callgate_testing::scripts::effects;
use serde_json::{Value, json};

use crate::support::runs::{decide, ended, replay, resumed, taken};
use callgate_testing_workspace::{Folder, Opened, trust, trusted_with};

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

fn events(end: &Value) -> Vec<String> {
    let name = |line: &Value| line["event"].as_str().expect("a name").to_owned();
    log(end).iter().map(name).collect()
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

/// TH-135, TH-136: the menu as the policy program sees it: by tag, sorted by AID, NOOP last;
/// without what is blocked, and only what is allowed.
#[test]
fn the_menu() {
    let folder = workspace("");
    // The program may write nothing, so it gives the menu back in a patch.
    let echo = r#"
menu=$(cat "$1" | base64 | tr -d '\n')
printf '<PICK><SID0001><INP64>%s</INP64><END>' "$menu"
"#;
    folder.write("policy.sh", echo);
    trust(&folder);
    let mut request = policy_request(&["tag.run", "tag.asks"]);
    let shown = |request: &Value| {
        let end = ended(&folder, request);
        payload(&end, "selected")["inputs"].clone()
    };
    let entry = |sid: &str, aid: &str, name: &str, tags: &[&str]| json!({ "sid": sid, "aid": aid, "name": name, "tags": tags });
    let question = shown(&request);
    assert_eq!(
        question["menu"],
        json!([
            entry("SID0001", "AID.TEST.ASKS.v1", "asks", &["tag.asks"]),
            entry("SID0002", "AID.TEST.COLLECT.v1", "collect", &["tag.run"]),
            entry(
                "SID0003",
                "AID.TEST.COUNT.v1",
                "count",
                &["tag.run", "tag.count"]
            ),
            entry("SID0004", "AID.NOOP.v1", "noop", &["tag.meta"]),
        ])
    );
    assert_eq!(question["control_mode"], "POLICY_ONLY");
    assert_eq!(question["goal_digest"].as_str().map(str::len), Some(64));
    assert_eq!(
        question["state_digest"],
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    assert_eq!(question["inputs"], json!({}));
    let aids = |question: &Value| -> Vec<String> {
        let entries = question["menu"].as_array().expect("a menu").iter();
        entries
            .map(|entry| entry["aid"].as_str().expect("an AID").to_owned())
            .collect()
    };
    request["_capabilities"] = json!({ "allowed_tools": ["AID.TEST.CO*"],
                                       "blocked_tools": ["AID.TEST.COUNT.v1"] });
    assert_eq!(
        aids(&shown(&request)),
        ["AID.TEST.COLLECT.v1", "AID.NOOP.v1"]
    );
}

/// TH-137, TH-139, TH-140, TH-142, TH-143: picks of the policy program, with patches that stay,
/// protected keys that do not count, and its own text kept; NOOP by its SID.
#[test]
fn picks_and_patches() {
    let answers = concat!(
        "<PICK><SID0002><INP>{\"text\":\"a\",\"_meta\":1,\"_system.x\":2}</INP><END>\n",
        "<PICK><SID0001><INP64>eyJuIjogMX0</INP64><END>\n",
        "<PICK><SID0003><END>\n",
    );
    let folder = workspace(answers);
    let end = ended(&folder, &policy_request(&["tag.run"]));
    assert_eq!(end["end"], "noop");
    let chosen: Vec<Value> = log(&end)
        .into_iter()
        .filter(|line| line["event"] == "selected")
        .map(|line| line["payload"].clone())
        .collect();
    assert_eq!(chosen[0]["dropped_keys"], json!(["_meta", "_system.x"]));
    assert_eq!(chosen[0]["inputs"], json!({ "text": "a" }));
    let first = answers.lines().next().expect("an answer");
    assert_eq!(
        chosen[0]["selection"],
        json!({ "kind": "PICK", "sid": "SID0002", "raw": format!("{first}\n"),
                "input_patch_json": "{\"text\":\"a\",\"_meta\":1,\"_system.x\":2}" })
    );
    assert_eq!(chosen[1]["inputs"], json!({ "text": "a", "n": 1 }));
    assert_eq!(
        chosen[1]["input"],
        json!({ "n": 1 }),
        "a closed schema gets what it names"
    );
    assert_eq!(chosen[2]["aid"], "AID.NOOP.v1");
    assert_eq!(replay(&folder, &run_id(&end))["ok"], true);
}

/// TH-143: the shadow is asked and noted, and the fallback's choice counts.
#[test]
fn shadow_policy() {
    let folder = workspace("<ASK_SUP><END>\n");
    let mut request = policy_request(&["tag.run"]);
    request["control_mode"] = json!("SHADOW_POLICY");
    let end = ended(&folder, &request);
    let chosen = payload(&end, "selected");
    assert_eq!(chosen["policy_raw"], "<ASK_SUP><END>\n");
    assert_eq!(chosen["selection"]["raw"], "<PICK><SID0001><END>");
    request["control_mode"] = json!("BLENDED");
    let end = ended(&folder, &request);
    assert_eq!(end["end"], "ask_sup", "{end}");
}

/// TH-50, TH-145: a pick whose input does not fit is `INVALID_PICK` and the run goes on; the 9th
/// ends it.
#[test]
fn invalid_picks() {
    let answer = "<PICK><SID0001><INP>{\"n\":\"no\"}</INP><END>\n";
    let folder = workspace(&answer.repeat(20));
    let end = ended(&folder, &policy_request(&["tag.run"]));
    assert_eq!(
        (&end["end"], &end["data"]),
        (&json!("breaker"), &json!({ "reason": "max_invalid_picks" }))
    );
    let names = events(&end);
    assert_eq!(
        names.iter().filter(|name| *name == "invalid_pick").count(),
        9
    );
    assert_eq!(payload(&end, "invalid_pick")["status"], "INVALID_PICK");
    assert_eq!(payload(&end, "breaker")["status"], "BREAKER_TRIP");
    assert_eq!(effects(&folder), 0);
}

/// TH-145, T-27: the 4th call at the same menu and state; and 64 steps.
#[test]
fn loops_and_long_runs() {
    let folder = workspace(&"<PICK><SID0001><INP>{}</INP><END>\n".repeat(20));
    let end = ended(&folder, &policy_request(&["tag.run"]));
    assert_eq!(end["data"], json!({ "reason": "loop_guard" }));
    assert_eq!(
        events(&end)
            .iter()
            .filter(|name| *name == "loop_guard_triggered")
            .count(),
        1
    );
    // Once from the empty state, three times from the full one.
    assert_eq!(effects(&folder), 4);

    let mut request = policy_request(&["tag.count"]);
    request["inputs"] = json!({ "text": "t" });
    folder.write("answers", &"<PICK><SID0001><END>\n".repeat(70));
    let end = ended(&folder, &request);
    assert_eq!(end["data"], json!({ "reason": "max_steps" }));
    assert_eq!(
        events(&end)
            .iter()
            .filter(|name| *name == "tool_ok")
            .count(),
        64
    );
}

/// TH-137, TH-146: a run that asks is a pending approval; it goes on once a person said yes, and
/// not before, nor after a no.
#[test]
fn a_person_is_asked() {
    let folder = workspace("<ASK_SUP><END>\n<PICK><SID0001><END>\n");
    let mut request = policy_request(&["tag.run"]);
    request["request_id"] = json!("asked");
    let end = ended(&folder, &request);
    assert_eq!(end["end"], "ask_sup");
    let approval = end["data"]["approval"]
        .as_str()
        .expect("an approval")
        .to_owned();
    let gate = Opened::new(&folder).gate().expect("a setup");
    let listed = gate.approvals().expect("approvals");
    assert_eq!(listed[0].id.to_string(), approval);
    assert_eq!(listed[0].state, ApprovalState::Pending);
    let run = run_id(&end);
    let still = resumed(&folder, &run);
    assert_eq!((&still["end"], effects(&folder)), (&json!("ask_sup"), 0));
    decide(&folder, &approval, true);
    let on = ended(&folder, &request);
    assert_eq!((&on["end"], run_id(&on)), (&json!("noop"), run));
    assert_eq!(effects(&folder), 1);
    assert_eq!(replay(&folder, &run_id(&on))["ok"], true);

    request["request_id"] = json!("denied");
    let end = ended(&folder, &request);
    let approval = end["data"]["approval"].as_str().expect("an approval");
    decide(&folder, approval, false);
    assert_eq!(ended(&folder, &request)["end"], "ask_sup");
}

/// TH-146: a tool that policy wants a person to see first waits, and is then called once.
#[test]
fn a_call_that_needs_approval() {
    let folder = workspace("");
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.asks"], "request_id": "a" });
    let end = ended(&folder, &request);
    assert_eq!((&end["end"], effects(&folder)), (&json!("ask_sup"), 0));
    let approval = end["data"]["approval"].as_str().expect("an approval");
    decide(&folder, approval, true);
    let on = ended(&folder, &request);
    assert_eq!((&on["end"], effects(&folder)), (&json!("noop"), 1));
    assert_eq!(
        on["steps"],
        json!([{ "aid": "AID.TEST.ASKS.v1", "status": "OK" }])
    );
}

/// T-29: a run that failed is told again, and goes on from its last good step when it is asked to.
#[test]
fn a_run_that_failed_goes_on() {
    let folder = workspace("");
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.run", "tag.fail"], "request_id": "f",
                          "inputs": { "text": "x" } });
    let end = ended(&folder, &request);
    assert_eq!(end["end"], "tool_error", "{end}");
    let before = effects(&folder);
    assert_eq!(ended(&folder, &request)["end"], "tool_error");
    folder.write("fail.sh", "echo '{}'\n");
    trust(&folder);
    let on = resumed(&folder, &run_id(&end));
    assert_eq!((&on["end"], run_id(&on)), (&json!("noop"), run_id(&end)));
    assert_eq!(effects(&folder), before, "what was done is not done again");
}

/// TH-139: inputs have a bound; a patch beyond it is no pick.
#[test]
fn inputs_have_a_bound() {
    let folder = workspace("");
    let large = json!({ "goal_id": "g", "inputs": { "x": "y".repeat(256 * 1024) } });
    assert!(taken(&folder, &large).is_err());
    folder.write("policy.sh", "printf '<PICK><SID0001><INP>{\"x\":\"'\nhead -c 60000 /dev/zero | tr '\\0' y\nprintf '\"}</INP><END>'\n");
    trust(&folder);
    let mut request = policy_request(&["tag.run"]);
    request["inputs"] = json!({ "z": "y".repeat(200 * 1024) });
    let end = ended(&folder, &request);
    assert_eq!(
        end["data"],
        json!({ "reason": "max_invalid_picks" }),
        "{end}"
    );
    assert_eq!(effects(&folder), 0);
}

/// TH-134, T-29: a request that was a run before is that run; its tools do not run again.
#[test]
fn the_same_request_is_the_same_run() {
    let folder = workspace("");
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.count"], "request_id": "once",
                          "inputs": { "text": "x" } });
    let first = ended(&folder, &request);
    let again = ended(&folder, &request);
    assert_eq!(
        (&first["deduplicated"], &again["deduplicated"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(run_id(&first), run_id(&again));
    assert_eq!(effects(&folder), 1);
}
