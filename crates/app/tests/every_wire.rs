//! One tool, every wire: the same outcome, the same fault, the same records, and one run for
//! one key wherever it is used. Table F of `docs/decisions/`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use crate::locate::misbehave;
use crate::support::bridge::Frames;
use crate::support::drive::{
    Host, call_records, chain, cli, post_bytes, run_records, signal, verified,
};
use crate::support::mcp::{legacy_call, mcp, modern_call, post_open};
use crate::support::play::{artifact, done, item, lines};
use crate::support::seen::{Seen, protocol_seen, toolhost_seen};
use crate::support::stage::Stage;
use crate::support::wires::{WIRES, Wires, local_request, rpc_request};
use crate::support::workspace::{effects, trusted_with};
use crate::support::{callgate, wait_for};
use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, Job, ManualClock, RunFuture, Runner,
    Timestamp, Tool, Wire,
};
use callgate_gate::{Catalog, Gate, Setup};
use callgate_store::{Options, Store};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[leases]
enforce_from_tier = 3
[breaker]
failures_max = 0
[[policy]]
tools = ["denied"]
decision = "deny"
[[policy]]
tools = ["asked"]
decision = "ask"
"#;

/// Does what it is told, and notes what it did.
const WORK: &str = r#"
read -r input
echo "$input" >> effects.log
case $input in
  *crash*) echo 'last words' >&2; exit 3 ;;
  *garbage*) echo nonsense ;;
  *fail*) echo '{"error":{"type":"OwnError","message":"own words"}}'; exit 1 ;;
  *flood*) head -c 5000 /dev/zero | tr '\0' x ;;
  *hang*) exec sleep 1000 ;;
  *) printf '{"got":%s}' "$input" ;;
esac
"#;

/// One that is promised more than a worker can keep, and one that tries what it must not.
const HELD: &str = r#"
[[tool]]
name = "unkept"
tags = ["tag.wire"]
tier = 1
isolation = "worker"
guarantees = { no_env_write = true }
runner = { kind = "python", entry = "tries:connect" }
[[tool]]
name = "tries"
tags = ["tag.wire"]
tier = 1
runner = { kind = "python", entry = "tries:connect" }
"#;

const TRIES: &str =
    "import socket\ndef connect(payload):\n    socket.create_connection((\"127.0.0.1\", 1))\n";

/// Tools of one runner that differ in what they are allowed.
fn config() -> String {
    let tool = |name: &str, more: &str, command: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\ntags = [\"tag.wire\"]\n{more}\nwrites = [\"effects.log\"]\n\
             input_schema = {{ type = \"object\", properties = {{ do = {{ type = \"string\" }} }} }}\n\
             runner = {{ kind = \"process\", command = {command}, limits = {{ output_bytes = 1000 }} }}\n"
        )
    };
    let work = r#"["/bin/sh", "work.sh"]"#;
    let mut config = CONFIG.to_owned() + HELD;
    for (name, more) in [
        ("work", "tier = 1"),
        ("denied", "tier = 1"),
        ("asked", "tier = 1"),
        ("leased", "tier = 3"),
        ("hangs", "tier = 1\ntimeout_ms = 300"),
    ] {
        config.push_str(&tool(name, more, work));
    }
    config.push_str(&tool("absent", "tier = 1", r#"["/nonexistent/program"]"#));
    for wire in WIRES {
        let limit = "tier = 1\nrate_limit = { per_second = 0.001, burst = 1 }";
        config.push_str(&tool(&format!("limited/{wire}"), limit, work));
    }
    config
}

/// F, F-15, F-16, G-3, G-11, JR-17, JR-21, JR-23, R-13: a tool registered once is callable over every wire under the same rules.
#[test]
fn the_same_rules_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("work.sh", WORK),
        ("tries.py", TRIES),
    ]);
    let mut wires = Wires::open(&folder);
    let faults = [
        ("nowhere", json!({}), "unknown_tool"),
        ("work", json!({ "do": 7 }), "bad_input"),
        ("denied", json!({}), "denied"),
        ("asked", json!({}), "needs_approval"),
        ("leased", json!({}), "lease_required"),
        ("absent", json!({}), "unavailable"),
        ("unkept", json!({}), "unenforceable"),
        ("tries", json!({}), "guarantee_blocked"),
        ("hangs", json!({ "do": "hang" }), "timeout"),
        ("work", json!({ "do": "crash" }), "crash"),
        ("work", json!({ "do": "garbage" }), "bad_output"),
        ("work", json!({ "do": "fail" }), "tool_failed"),
        ("work", json!({ "do": "flood" }), "too_large"),
        (
            "memory/query",
            json!({ "query": "x", "k": "0" }),
            "bad_value",
        ),
        ("files/read", json!({ "path": "missing.txt" }), "not_found"),
    ];
    for wire in WIRES {
        for (tool, input, kind) in &faults {
            let seen = wires.call(wire, tool, input, "", "");
            assert_eq!(
                seen,
                Seen::Fault((*kind).to_owned()),
                "{wire}: {tool} {input}"
            );
        }
        let bad = wires.call(wire, "leased", &json!({}), "", "lease_made_up");
        assert_eq!(bad, Seen::Fault("lease_rejected".to_owned()), "{wire}");
        let limited = format!("limited/{wire}");
        assert!(matches!(
            wires.call(wire, &limited, &json!({}), "", ""),
            Seen::Output { .. }
        ));
        // Rates are counted by each process for itself (G-7), and `callgate tool` is one a call.
        if wire != "tool" {
            let seen = wires.call(wire, &limited, &json!({}), "", "");
            assert_eq!(seen, Seen::Fault("rate_limited".to_owned()), "{wire}");
        }

        let lease = cli(&folder, &["lease", "grant", "leased", "--json"])
            .good()
            .json();
        let token = lease["token"].as_str().expect("a token");
        let first = wires.call(wire, "leased", &json!({ "do": "x" }), "", token);
        assert!(matches!(first, Seen::Output { .. }), "{wire}: {first:?}");
        let again = wires.call(wire, "leased", &json!({ "do": "x" }), "", token);
        assert_eq!(again, Seen::Fault("lease_rejected".to_owned()), "{wire}");
    }

    // A pilot makes its calls like anybody; what it may not have is not on its menu.
    for (tool, input, kind) in &faults {
        if ["unknown_tool", "denied"].contains(kind) {
            continue;
        }
        let seen = wires.pilot(tool, input);
        assert_eq!(seen, Seen::Fault((*kind).to_owned()), "{tool} {input}");
    }

    // One key, used first on each wire in turn and then on all: one run each.
    let ran = effects(&folder);
    for (number, first) in WIRES.into_iter().enumerate() {
        let (key, input) = (
            format!("key-{number}"),
            json!({ "do": format!("k{number}") }),
        );
        let value = json!({ "got": input });
        let seen = wires.call(first, "work", &input, &key, "");
        let wanted = Seen::Output {
            value: value.clone(),
            replayed: false,
        };
        assert_eq!(seen, wanted, "{first}");
        for wire in WIRES {
            let wanted = Seen::Output {
                value: value.clone(),
                replayed: true,
            };
            assert_eq!(
                wires.call(wire, "work", &input, &key, ""),
                wanted,
                "{first}, {wire}"
            );
            let other = wires.call(wire, "work", &json!({ "do": "other" }), &key, "");
            assert_eq!(other, Seen::Fault("conflict".to_owned()), "{first}, {wire}");
        }
    }
    let input = json!({ "do": "piloted" });
    let wanted = Seen::Output {
        value: json!({ "got": input }),
        replayed: false,
    };
    assert_eq!(wires.pilot("work", &input), wanted);
    let ran = ran + 1;
    assert_eq!(effects(&folder), ran + WIRES.len());

    // A call whose gate was killed while it ran: nobody knows, on any wire.
    let mut killed = mcp(&folder, &["--standalone"]);
    let key = json!({ "callgate/idempotencyKey": "lost" });
    let input = json!({ "do": "hang" });
    killed.send(&modern_call(1, "work", &input, &key));
    crate::support::wait_for("the effect", || {
        (effects(&folder) == ran + WIRES.len() + 1).then_some(())
    });
    killed.kill();
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, "lost", "");
        assert_eq!(seen, Seen::Fault("outcome_unknown".to_owned()), "{wire}");
    }

    wires.close();
    verified(&folder);
    let records = chain(&folder);
    same_records(&records, EVERYBODY, |start| {
        let tool = start["tool"].as_str();
        start.get("key").is_none() && tool.is_some_and(|tool| tool.starts_with("limited/"))
    });
    // Those that were the first with their key.
    let with_pilot = [EVERYBODY, &["pilot"]].concat();
    same_records(&records, &with_pilot, |start| {
        start.get("key").is_some() && start["tool"] == "work" && is_good(&records, start)
    });
    for (tool, _, kind) in &faults {
        same_faults(&records, tool, kind);
    }
}

/// The wires by their names in records; both eras of MCP have one.
const EVERYBODY: &[&str] = &[
    "bridge", "gate", "mcp", "mcp-http", "rpc", "rpc-http", "service", "tool", "toolhost",
];

fn outcome_of<'a>(records: &'a [Value], start: &Value) -> Option<&'a Value> {
    let is_its = |record: &&Value| record["kind"] == "outcome" && record["call"] == start["call"];
    records.iter().find(is_its)
}

fn is_good(records: &[Value], start: &Value) -> bool {
    let outcome = outcome_of(records, start);
    outcome.is_some_and(|outcome| outcome.get("fault").is_none())
}

/// F, G-7: a tool that failed on one wire is left alone on all of them.
#[test]
fn a_breaker_opens_on_every_wire() {
    let config = config().replace("failures_max = 0", "failures_max = 1\nopen_ms = 600000");
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    let crash = wires.call("gate", "work", &json!({ "do": "crash" }), "", "");
    assert_eq!(crash, Seen::Fault("crash".to_owned()));
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("breaker_open".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), 1);
}

/// Ends as it was told to.
struct Ends(Fault);

impl Runner for Ends {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        Box::pin(async { Err(self.0.clone()) })
    }

    fn kind(&self) -> &'static str {
        "test"
    }
}

/// Records an end of `work` under a key of this user's, by a gate with another `work`.
async fn record_end(folder: &crate::support::Folder, input: &Value, key: &str, fault: Fault) {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let now = u64::try_from(since.as_millis()).expect("not so late");
    let clock = Arc::new(ManualClock::at(Timestamp(now)));
    let store = Store::open(&folder.join("state"), Options::default(), clock.clone());
    let mut catalog = Catalog::default();
    catalog
        .add(Tool::new("work", Arc::new(Ends(fault))))
        .expect("a tool");
    let setup = Setup {
        catalog,
        ..Setup::default()
    };
    // The tool has no child: the spawner is never started.
    let spawner = callgate_sandbox::Spawner::new("/proc/self/exe".into());
    let planner = Arc::new(callgate_sandbox::Confinement::new(spawner));
    let store = Arc::new(store.expect("the state"));
    let gate = Gate::new(setup, store, planner, clock, 7);
    let caller = Caller::uid(rustix::process::geteuid().as_raw());
    let input = Document::from_value(input.clone());
    let (id, cancel) = (gate.next_id(), Cancel::new());
    let mut call = Call::new(id, "work", input, caller, Wire::Gate, cancel);
    call.key = IdempotencyKey::new(key);
    assert!(gate.call(&call).await.result.is_err());
}

/// F, G-3: no tool of today ends so, but one of another version may have: what is recorded is
/// told on every wire in its words.
#[tokio::test]
async fn recorded_ends_are_told_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let (input, key) = (json!({ "do": "read" }), "not-found");
    let message = "no such thing: notes.txt".to_owned();
    record_end(&folder, &input, key, Fault::NotFound { message }).await;
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, key, "");
        assert_eq!(seen, Seen::Fault("not_found".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), 0);
}

/// Starts a call that hangs and takes it back, the way a caller of the wire does.
fn cancel(folder: &crate::support::Folder, wires: &mut Wires<'_>, wire: &str) {
    let input = json!({ "do": "hang" });
    let before = effects(folder);
    let runs = || wait_for("the effect", || (effects(folder) > before).then_some(()));
    let take_back = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 },
    });
    match wire {
        "toolhost" => {
            let mut host = Host::start(folder, ".");
            host.send(&json!({ "aid": callgate_call::aid_of_name("work"), "inputs": input }));
            runs();
            signal(host.pid(), rustix::process::Signal::TERM);
            let seen = toolhost_seen(&host.reply());
            assert_eq!(seen, Seen::Fault("cancelled".to_owned()));
        }
        "gate" => {
            let body = json!({ "tool": "work", "input": input }).to_string();
            let mut stream =
                std::os::unix::net::UnixStream::connect(&wires.serve.socket).expect("the gate");
            let sent = stream.write_all(&post_bytes(body.as_bytes()));
            sent.expect("the gate reads");
            runs();
        }
        "mcp" => {
            let call = modern_call(9, "work", &input, &json!({}));
            wires.modern.send(&call);
            runs();
            wires.modern.send(&take_back);
        }
        "mcp-legacy" => {
            wires
                .legacy
                .send(&legacy_call(9, "work", &input, &json!({})));
            runs();
            wires.legacy.send(&take_back);
        }
        "mcp-http" => {
            let authorization = format!("Bearer {}", wires.token);
            let call = modern_call(9, "work", &input, &json!({}));
            let open = post_open(wires.port, &call, &[("authorization", &authorization)]);
            runs();
            drop(open);
        }
        "mcp-http-legacy" => {
            let open = wires.post_legacy(&legacy_call(9, "work", &input, &json!({})));
            runs();
            drop(open);
        }
        "bridge" => {
            let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
            let request = crate::support::bridge::request("work", &input);
            assert!(frames.send(request.to_string().as_bytes()));
            runs();
        }
        "tool" => {
            let mut child = callgate(folder)
                .arg("tool")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("start the program");
            let request = local_request("work", &input, json!({})).to_string();
            let mut stdin = child.stdin.take().expect("piped");
            stdin.write_all(request.as_bytes()).expect("it reads");
            drop(stdin);
            runs();
            signal(child.id(), rustix::process::Signal::TERM);
            let reply = child.wait_with_output().expect("its end").stdout;
            let seen = protocol_seen(&serde_json::from_slice(&reply).expect("a reply"));
            assert_eq!(seen, Seen::Fault("cancelled".to_owned()));
        }
        "service" => {
            let open = wires.post_tools("work", &input, json!({}));
            runs();
            drop(open);
        }
        "rpc" => {
            let mut host = Host::spawn(callgate(folder).arg("rpc"));
            host.send(&rpc_request("work", &input, "", ""));
            runs();
            signal(host.pid(), rustix::process::Signal::TERM);
            assert!(host.end().success());
        }
        "rpc-http" => {
            let open = wires.post_rpc(&rpc_request("work", &input, "", ""));
            runs();
            drop(open);
        }
        other => panic!("no wire {other}"),
    }
}

/// F-22: a caller that goes away, or takes its call back, ends it on every wire, and nothing is
/// told to it but on the toolhost's and by `callgate tool`, which end; a key that was ended so says
/// it everywhere.
#[test]
fn cancelled_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        cancel(&folder, &mut wires, wire);
    }
    let ended = wait_for("the ends", || {
        let records = chain(&folder);
        let mut ended = BTreeMap::new();
        for end in records.iter().filter(|r| r["fault"] == "cancelled") {
            let start = records
                .iter()
                .find(|r| r["kind"] == "start" && r["call"] == end["call"]);
            let wire = start.and_then(|start| start["wire"].as_str());
            *ended.entry(wire.expect("a wire").to_owned()).or_insert(0) += 1;
        }
        (ended.values().sum::<usize>() == WIRES.len()).then_some(ended)
    });
    // Both eras are one wire.
    let once = [
        "bridge", "gate", "rpc", "rpc-http", "service", "tool", "toolhost",
    ];
    let once = once.map(|wire| (wire.to_owned(), 1));
    let twice = ["mcp", "mcp-http"].map(|wire| (wire.to_owned(), 2));
    assert_eq!(ended, once.into_iter().chain(twice).collect());

    let mut host = mcp(&folder, &["--standalone"]);
    let input = json!({ "do": "hang" });
    let key = json!({ "callgate/idempotencyKey": "taken-back" });
    host.send(&modern_call(1, "work", &input, &key));
    wait_for("the effect", || {
        (effects(&folder) == WIRES.len() + 1).then_some(())
    });
    signal(host.pid(), rustix::process::Signal::TERM);
    assert!(host.end().success());
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, "taken-back", "");
        assert_eq!(seen, Seen::Fault("cancelled".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), WIRES.len() + 1);
}

/// F-23: a journal that somebody has cut is not written to any more, and every wire says that
/// this is no fault of the caller's; nothing runs that could not be recorded.
#[test]
fn internal_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert!(matches!(seen, Seen::Output { .. }), "{wire}: {seen:?}");
    }
    let segments = std::fs::read_dir(folder.join("state/journal")).expect("a journal");
    for segment in segments.flatten() {
        let file = std::fs::File::options().write(true).open(segment.path());
        file.and_then(|file| file.set_len(64)).expect("cut it");
    }
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("internal".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), WIRES.len());
}

/// A record without what is different for every call.
fn shape(record: &Value) -> String {
    let own = [
        "seq", "at", "call", "wire", "took_ms", "tool", "aid", "key", "input", "output",
    ];
    let mut record = record.clone();
    if let Some(members) = record.as_object_mut() {
        members.retain(|name, _| !own.contains(&name.as_str()));
    }
    record.to_string()
}

/// What the chain says of a call that was refused or failed is the same for every wire too, the
/// digest of its input included. A pilot's has a key, and so may have a start of its own.
fn same_faults(records: &[Value], tool: &str, kind: &str) {
    let aid = callgate_call::aid_of_name(tool);
    let mut shapes = BTreeSet::new();
    let mut wires = BTreeSet::new();
    for end in records.iter().filter(|record| record["fault"] == kind) {
        let is_start = |record: &&Value| record["kind"] == "start" && record["call"] == end["call"];
        let start = records.iter().find(is_start);
        let first = start.unwrap_or(end);
        let named = first["tool"] == tool || first["tool"] == aid.as_str();
        let wire = first["wire"].as_str().unwrap_or_default();
        if named && wire != "pilot" && first.get("key").is_none() {
            wires.insert(wire);
            shapes.insert((start.map(shape), shape(end), first["input"].to_string()));
        }
    }
    assert_eq!(shapes.len(), 1, "{tool}, {kind}: {shapes:#?}");
    let wanted: BTreeSet<&str> = EVERYBODY.iter().copied().collect();
    assert_eq!(wires, wanted, "{tool}, {kind}");
}

/// What the chain says of these calls is the same for every wire but its name and what is
/// different for every call.
fn same_records(records: &[Value], wanted: &[&str], of: impl Fn(&Value) -> bool) {
    let mut shapes = BTreeSet::new();
    let mut wires = BTreeSet::new();
    for start in records.iter().filter(|record| record["kind"] == "start") {
        if of(start) {
            wires.insert(start["wire"].as_str().unwrap_or_default().to_owned());
            let outcome = outcome_of(records, start).expect("its outcome");
            shapes.insert((shape(start), shape(outcome)));
        }
    }
    assert_eq!(shapes.len(), 1, "{shapes:#?}");
    let wanted: BTreeSet<String> = wanted.iter().map(|wire| (*wire).to_owned()).collect();
    assert_eq!(wires, wanted);
}

/// A search by words is the same by every wire and for a pilot: what is found, what is recorded,
/// and what is said where there is nothing to search or a question is no question.
#[test]
fn searched_on_every_wire() {
    let folder = trusted_with(&[
        ("callgate.toml", ""),
        (
            "src/sheep.rs",
            "/// Counts the sheep.\npub fn count_sheep() {}\n",
        ),
        (
            "docs/farm.md",
            "# The farm\n\nSheep are counted at night.\n",
        ),
    ]);
    let mut wires = Wires::open(&folder);
    let ask = json!({ "query": "sheep" });
    for (input, kind) in [
        (ask, "unavailable"),
        (json!({ "query": "x", "top_k": 0 }), "bad_input"),
    ] {
        for wire in WIRES {
            let seen = wires.call(wire, "vector/search", &input, "", "");
            assert_eq!(seen, Seen::Fault(kind.to_owned()), "{wire}");
        }
        let seen = wires.pilot("vector/search", &input);
        assert_eq!(seen, Seen::Fault(kind.to_owned()));
    }
    cli(&folder, &["index", "--lexical"]).good();
    let input = json!({ "query": "sheep" });
    let mut all = Vec::new();
    for wire in WIRES.into_iter().chain(["pilot"]) {
        let before = chain(&folder).len();
        let seen = match wire {
            "pilot" => wires.pilot("vector/search", &input),
            _ => wires.call(wire, "vector/search", &input, wire, ""),
        };
        let Seen::Output { mut value, .. } = seen else {
            panic!("{wire}: {seen:?}");
        };
        value["usage"] = Value::Null;
        all.push((wire, value, call_records(&folder, before)));
    }
    let (_, value, records) = &all[0];
    assert_eq!(
        value["matches"].as_array().map(Vec::len),
        Some(2),
        "{value}"
    );
    for (wire, other, other_records) in &all[1..] {
        assert_eq!(other, value, "{wire}");
        assert_eq!(other_records, records, "{wire}");
    }
    wires.close();
}

/// A streamed run is the same by every wire and for a pilot: its report, its events, its records,
/// and the fault of one that crashes.
#[test]
fn run_on_every_wire() {
    let folder = trusted_with(&[("callgate.toml", "[leases]\nenforce_from_tier = 3\n")]);
    crate::support::copy_program(misbehave(), &folder.join("misbehave"));
    let mut wires = Wires::open(&folder);
    let [chunk, commit] = artifact("a", "hello");
    let order = Stage::order(
        &json!([item(1), chunk, commit, done()]),
        &json!({ "job_id": "j" }),
    );
    let crash = Stage::order(&json!([item(1), { "exit": 4 }]), &json!({}));
    let mut all = Vec::new();
    for wire in WIRES.into_iter().chain(["pilot"]) {
        let mut call = |input: &Value| match wire {
            "pilot" => wires.pilot("runs/start", input),
            _ => wires.call(wire, "runs/start", input, "", ""),
        };
        assert_eq!(
            call(&crash),
            Seen::Fault("tool_failed".to_owned()),
            "{wire}"
        );
        let before = chain(&folder).len();
        let seen = call(&order);
        let Seen::Output {
            value: mut report, ..
        } = seen
        else {
            panic!("{wire}: {seen:?}");
        };
        let run = report["run_id"].as_str().expect("a run id").to_owned();
        let events = cli(&folder, &["runs", "export", &run]).good().out;
        let events = events.replace(&run, "RUN");
        for changing in ["run_id", "run", "duration_ms", "metrics"] {
            report[changing] = Value::Null;
        }
        // What made a batch durable is a matter of time.
        report["policy"]["flush_triggers"] = Value::Null;
        all.push((wire, report, lines(&events), run_records(&folder, before)));
    }
    let (_, report, events, records) = &all[0];
    assert_eq!(report["outcome"], "success");
    assert!(records.len() >= 4, "{records:?}");
    for (wire, other_report, other_events, other_records) in &all[1..] {
        assert_eq!(other_report, report, "{wire}");
        assert_eq!(other_events.len(), events.len(), "{wire}");
        for (other, event) in other_events.iter().zip(events) {
            assert_eq!(
                [&other["type"], &other["payload"]],
                [&event["type"], &event["payload"]],
                "{wire}"
            );
        }
        assert_eq!(other_records, records, "{wire}");
    }
    wires.close();
    verified(&folder);
}
