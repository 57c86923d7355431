//! Runs of the pilot: steps through the gate, slots and patches, breakers, a person's word, and
//! the replay of it all. Contract toolhost, "Runs, selection, log and queue".

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

fn effects(folder: &Folder) -> usize {
    folder.read("effects.log").expect("effects").lines().count()
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
    cli(&folder, &["trust"]).good();
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
    cli(&folder, &["replay", &run_id(&end)]).good();
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
    let listed = cli(&folder, &["approvals", "--json"]).good().json();
    assert_eq!(listed["approvals"][0]["id"], approval);
    assert_eq!(listed["approvals"][0]["state"], "pending");
    let run = run_id(&end);
    let still = cli(&folder, &["pilot", "--resume", &run, "--json"])
        .good()
        .json();
    assert_eq!((&still["end"], effects(&folder)), (&json!("ask_sup"), 0));
    cli(&folder, &["approvals", "grant", &approval]).good();
    let on = ended(&folder, &request);
    assert_eq!((&on["end"], run_id(&on)), (&json!("noop"), run));
    assert_eq!(effects(&folder), 1);
    cli(&folder, &["replay", &run_id(&on)]).good();

    request["request_id"] = json!("denied");
    let end = ended(&folder, &request);
    let approval = end["data"]["approval"].as_str().expect("an approval");
    cli(&folder, &["approvals", "deny", approval]).good();
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
    cli(&folder, &["approvals", "grant", approval]).good();
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
    cli(&folder, &["trust"]).good();
    let on = cli(&folder, &["pilot", "--resume", &run_id(&end), "--json"])
        .good()
        .json();
    assert_eq!((&on["end"], run_id(&on)), (&json!("noop"), run_id(&end)));
    assert_eq!(effects(&folder), before, "what was done is not done again");
}

/// TH-139: inputs have a bound; a patch beyond it is no pick.
#[test]
fn inputs_have_a_bound() {
    let folder = workspace("");
    let large = json!({ "goal_id": "g", "inputs": { "x": "y".repeat(256 * 1024) } });
    assert_eq!(pilot(&folder, &large).code(), 1);
    folder.write("policy.sh", "printf '<PICK><SID0001><INP>{\"x\":\"'\nhead -c 60000 /dev/zero | tr '\\0' y\nprintf '\"}</INP><END>'\n");
    cli(&folder, &["trust"]).good();
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
