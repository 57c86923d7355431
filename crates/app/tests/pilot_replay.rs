//! Replay: a run of ten tools, three of which never give the same twice, is the same again; with one
//! record changed, what differs is named.

use std::path::PathBuf;

use crate::support::drive::{Ran, cli, run, run_with, verified};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate, callgate_as};
use serde_json::{Value, json};

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
    let end = cli(folder, &["pilot", "request.json", "--json"])
        .good()
        .json();
    assert_eq!(end["steps"].as_array().expect("steps").len(), 10, "{end}");
    Run {
        id: end["header"]["run_id"].as_str().expect("an id").to_owned(),
        log: PathBuf::from(end["log"].as_str().expect("a log")),
    }
}

fn replay(folder: &Folder, run: &str) -> Ran {
    cli(folder, &["replay", run, "--json"])
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
    let path = folder.write("changed.jsonl", &text);
    let ran = replay(folder, path.to_str().expect("a path"));
    assert_eq!(ran.code(), 1, "{ran:?}");
    ran.json()["difference"].clone()
}

/// The chain as somebody who changed a line on purpose would make it.
fn chain_again(lines: &mut [Value]) {
    let mut before = "0".repeat(64);
    for line in lines {
        let members = line.as_object_mut().expect("a line");
        members.remove("chain_hash");
        members.remove("chain_prev");
        let hashed = format!("{before}{}", line.to_string().replace('/', "\\/"));
        let mut command = std::process::Command::new("sha256sum");
        let hash = run_with(&mut command, hashed.as_bytes()).good().out;
        let hash = hash.split(' ').next().expect("a hash").to_owned();
        line["chain_prev"] = json!(before);
        line["chain_hash"] = json!(hash);
        before = hash;
    }
}

/// The line of the `tool_ok` of a tool.
fn outcome<'a>(lines: &'a mut [Value], aid: &str) -> &'a mut Value {
    let mut found = lines
        .iter_mut()
        .filter(|line| line["event"] == "tool_ok" && line["payload"]["aid"] == aid);
    &mut found.next().expect("its outcome")["payload"]
}

/// TH-90, TH-91, TH-147, TH-148, T-31: equal, from the journal and from the log, and as often as one likes.
#[test]
fn ten_tools_three_of_them_random() {
    let folder = workspace();
    let run = ten_steps(&folder);
    let records = verified(&folder);
    for of in [
        run.id.as_str(),
        run.log.to_str().expect("a path"),
        &run.id[..8],
        "last",
    ] {
        let said = replay(&folder, of).good().json();
        assert_eq!(
            said,
            json!({ "ok": true, "events": 23, "rerun": 7, "taken": 3 })
        );
    }
    let words = cli(&folder, &["replay", &run.id]).good().out;
    assert!(words.starts_with("REPLAY OK: "), "{words}");
    assert!(
        verified(&folder) > records,
        "calls of a replay are in the chain, too"
    );
    let again = cli(&folder, &["pilot", "--resume", &run.id, "--json"])
        .good()
        .json();
    assert_eq!(again["end"], "noop", "nothing was added to the run");
    let cut = changed(&folder, &run, true, |lines| lines.truncate(22));
    assert_eq!(cut["what"], "end", "{cut}");
    assert_eq!(cli(&folder, &["replay", "00ff"]).code(), 1, "no such run");
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
    folder.write("request.json", &request.to_string());
    let end = cli(folder, &["pilot", "request.json", "--json"]).json();
    let run = Run {
        id: end["header"]["run_id"].as_str().expect("an id").to_owned(),
        log: PathBuf::from(end["log"].as_str().expect("a log")),
    };
    (run, end)
}

/// TH-148, T-31: tools of packs and Python functions are run again as any others, and the outcome of
/// one that is not is what the chain says of its call.
#[test]
fn tools_of_packs_and_functions() {
    let folder = kit();
    let (run, end) = ended(&folder, "tag.kit", "FALLBACK_ONLY");
    assert_eq!(end["steps"].as_array().expect("steps").len(), 4, "{end}");
    let equal = json!({ "ok": true, "events": 11, "rerun": 3, "taken": 1 });
    assert_eq!(replay(&folder, &run.id).good().json(), equal);
    let log = run.log.to_str().expect("a path");
    assert_eq!(replay(&folder, log).good().json(), equal);
    for aid in ["AID.KIT.CHANCE.v1", "AID.KIT.SAME.v1", "AID.OWN.PLAIN.v1"] {
        let found = changed(&folder, &run, true, |lines| {
            outcome(lines, aid)["output_digest"] = json!("00");
        });
        assert_eq!(
            (&found["aid"], &found["what"]),
            (&json!(aid), &json!("output_digest")),
            "{found}"
        );
    }
    // Elsewhere, where no chain knows of it, it is as good as its log.
    let elsewhere = |args: &[&str]| {
        let mut command = callgate(&folder);
        command.env("CALLGATE_STATE", folder.join("elsewhere"));
        crate::support::drive::run(command.args(args))
    };
    elsewhere(&["trust"]).good();
    assert_eq!(elsewhere(&["replay", log, "--json"]).good().json(), equal);
    folder.write("kit.py", &KIT.replace("len(slots)}", "len(slots) + 1}"));
    cli(&folder, &["trust"]).good();
    let found = replay(&folder, &run.id).json()["difference"].clone();
    assert_eq!(
        (&found["aid"], &found["what"]),
        (&json!("AID.KIT.SAME.v1"), &json!("output_digest")),
        "{found}"
    );
}

/// TH-21: the words of `machina_cli`, and their exit codes.
#[test]
fn under_another_name() {
    let folder = workspace();
    let machina = |args: &[&str]| {
        let mut command = callgate_as("machina_cli", &folder);
        command
            .args(args)
            .current_dir("/")
            .env("MACHINA_ROOT", folder.path());
        run(&mut command)
    };
    let at = |name: &str| folder.join(name).to_str().expect("a path").to_owned();
    let said = machina(&["run", &at("request.json")]).good().out;
    assert!(said.starts_with("RUN END: noop\nlog: "), "{said}");
    let log = said
        .lines()
        .nth(1)
        .and_then(|line| line.strip_prefix("log: "))
        .expect("a log");
    assert!(
        machina(&["replay", log])
            .good()
            .out
            .starts_with("REPLAY OK (structure)")
    );
    assert!(
        machina(&["replay_strict", &at("request.json"), log])
            .good()
            .out
            .starts_with("REPLAY_STRICT OK")
    );
    folder.write("other.json", r#"{"goal_id":"other"}"#);
    let other = machina(&["replay_strict", &at("other.json"), log]);
    assert_eq!(other.code(), 1);
    assert!(other.out.starts_with("REPLAY_STRICT FAIL: "), "{other:?}");
    assert!(other.out.contains("another request"), "{other:?}");
    let lines = std::fs::read_to_string(log).expect("the log");
    let cut = folder.write(
        "cut.jsonl",
        lines.trim_end().rsplit_once('\n').expect("lines").0,
    );
    let cut = machina(&["replay", cut.to_str().expect("a path")]);
    assert!(cut.code() == 1 && cut.out.contains("has no end"), "{cut:?}");
    machina(&["autopilot", &at("queue"), "--once"]).good();
    assert!(folder.join("queue/inbox").is_dir());
    for usage in [
        &["serve"][..],
        &["chat"],
        &[],
        &["run"],
        &["replay_strict", "x"],
        &["nonsense"],
    ] {
        let ran = machina(usage);
        assert_eq!((ran.code(), ran.out.as_str()), (2, ""), "{usage:?}");
        assert!(ran.err.starts_with("usage: machina_cli"), "{ran:?}");
    }
}

/// TH-109: the static check of packs.
#[test]
fn packs_are_checked() {
    let folder = Folder::new();
    let check = |pack: &Value| {
        let path = folder.write("pack.json", &pack.to_string());
        let mut command = callgate_as("machina_cli", &folder);
        run(command.args(["cts", path.to_str().expect("a path")]))
    };
    let tool = json!({ "aid": "AID.TEST.ONE.v1", "name": "one", "tags": ["t"], "inputs_schema": {},
                       "outputs_schema": {}, "side_effects": ["none"] });
    let pack = |tools: Value| {
        json!({ "toolpack_id": "toolpack.t", "toolpack_version": "1", "trust_tier": "tier1_signed",
                "tools": tools })
    };
    assert_eq!(check(&pack(json!([tool]))).good().out, "CTS: OK\n");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = tool.clone();
        change(&mut changed);
        pack(json!([changed]))
    };
    for (pack, issue) in [
        (pack(json!([])), "02 not loadable: "),
        (pack(json!([tool, tool])), "02 not loadable: duplicate"),
        (json!([]), "02 not loadable: "),
        (
            with(&|tool| tool["inputs_schema"] = Value::Null),
            "03 AID.TEST.ONE.v1 has no inputs_schema",
        ),
        (
            with(&|tool| tool["outputs_schema"] = Value::Null),
            "04 AID.TEST.ONE.v1 has no outputs_schema",
        ),
        (
            with(&|tool| tool["side_effects"] = json!([])),
            "10 AID.TEST.ONE.v1 does not say",
        ),
        (
            with(&|tool| tool["side_effects"] = json!(["filesystem_read"])),
            "11 AID.TEST.ONE.v1 is deterministic",
        ),
    ] {
        let ran = check(&pack);
        assert_eq!((ran.code(), ran.out.lines().count()), (1, 1), "{ran:?}");
        let told = ran.out.strip_prefix("TP-").expect("a code");
        assert!(told.starts_with(issue), "{ran:?}");
    }
}

/// TH-109: a goalpack is checked beside its toolpack; each issue has its code, and usage is usage.
#[test]
fn goalpacks_are_checked() {
    let folder = Folder::new();
    let tools = json!({ "toolpack_id": "toolpack.t", "toolpack_version": "1",
        "trust_tier": "tier1_signed",
        "tools": [{ "aid": "AID.TEST.ONE.v1", "name": "one", "tags": ["tag.one"],
                    "inputs_schema": {}, "outputs_schema": {}, "side_effects": ["none"] }] });
    folder.write("tools.json", &tools.to_string());
    let cts = |args: &[&str]| {
        let mut command = callgate_as("machina_cli", &folder);
        run(command.arg("cts").args(args).current_dir(folder.path()))
    };
    let goals = |goals: Value| json!({ "goalpack_id": "goalpack.g", "goals": goals });
    let good = json!({ "goal_id": "g", "candidate_tags": ["tag.one", "tag.meta"] });
    for (pack, codes) in [
        (goals(json!([good, { "goal_id": "h" }])), &[][..]),
        (json!([]), &["GP-02", "GP-03"]),
        (json!({ "goals": [good] }), &["GP-02"]),
        (goals(json!([])), &["GP-03"]),
        (goals(json!("g")), &["GP-03"]),
        (goals(json!([{}])), &["GP-04"]),
        (goals(json!([1])), &["GP-04"]),
        (goals(json!([good, good])), &["GP-04"]),
        (
            goals(json!([{ "goal_id": "g", "candidate_tags": ["tag.two", 1] }])),
            &["GP-05", "GP-05"],
        ),
        (
            goals(json!([{ "goal_id": "g", "candidate_tags": "tag.one" }])),
            &["GP-05"],
        ),
    ] {
        folder.write("goals.json", &pack.to_string());
        let ran = cts(&["tools.json", "goals.json"]);
        let found: Vec<&str> = ran
            .out
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        let wanted: &[&str] = if codes.is_empty() { &["CTS:"] } else { codes };
        assert_eq!(
            (ran.code(), &found[..]),
            (i32::from(!codes.is_empty()), wanted),
            "{pack}"
        );
    }
    folder.write("goals.json", "{");
    assert!(
        cts(&["tools.json", "goals.json"])
            .out
            .starts_with("GP-01 not loadable: ")
    );
    let missing = cts(&["missing.json", "missing.json"]).out;
    let codes: Vec<&str> = missing
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        codes[0].ends_with("-01") && codes[1] == "GP-01",
        "{codes:?}"
    );
    assert_eq!(cts(&["tools.json", "goals.json", "more.json"]).code(), 2);
    assert_eq!(cts(&[]).code(), 2);
}
