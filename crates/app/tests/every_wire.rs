//! One tool, every wire: the same outcome, the same fault, the same records, and one run for
//! one key wherever it is used. Table F of `docs/decisions/`: every fault there is, on every wire
//! that can have it.

use std::sync::Arc;
use std::time::SystemTime;

use crate::support::alike::{Counts, each, is_good, same_faults, same_records, same_replays};
use crate::support::drive::{call_records, chain, cli, run_records, signal, verified};
use crate::support::faults::every_fault;
use crate::support::mcp::{mcp, modern_call};
use crate::support::play::{artifact, done, item, lines};
use crate::support::seen::Seen;
use crate::support::stage::Stage;
use crate::support::wait_for;
use crate::support::wires::{WIRES, Wires, recorded_as};
use crate::support::workspace::{EVERY_BUILTIN, effects, trusted_with};
use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, Job, ManualClock, RunFuture, Runner,
    Timestamp, Tool, Wire,
};
use callgate_gate::{Catalog, Gate, Setup};
use callgate_store::{Options, Store};
use callgate_testing::misbehave;
use serde_json::{Value, json};

const CONFIG: &str = r#"
[builtins]
allow = ["*"]
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

/// One that is promised more than a worker can keep, one that tries what it must not, and one
/// that asks.
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
[[tool]]
name = "asks"
tags = ["tag.wire"]
tier = 1
runner = { kind = "python", entry = "asks:branch" }
"#;

const ASKS: &str = "from callgate import ask, tool\n\n@tool\ndef branch() -> str:\n    return ask(\"Which branch?\")\n";

const TRIES: &str =
    "import socket\ndef connect(payload):\n    socket.create_connection((\"127.0.0.1\", 1))\n";

/// Tools of one runner that differ in what they are allowed.
fn config() -> String {
    let tool = |name: &str, more: &str, command: &str| {
        let code = match command.contains("work.sh") {
            true => "code = [\"work.sh\"]\n",
            false => "",
        };
        format!(
            "[[tool]]\nname = \"{name}\"\ntags = [\"tag.wire\"]\n{more}\nwrites = [\"effects.log\"]\n\
             input_schema = {{ type = \"object\", properties = {{ do = {{ type = \"string\" }} }} }}\n\
             {code}runner = {{ kind = \"process\", command = {command}, limits = {{ output_bytes = 1000 }} }}\n"
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

/// The test that brings a fault about. A new fault does not compile until it has one.
#[derive(PartialEq)]
enum Shown {
    Rules,
    Breaker,
    Cancelled,
    Internal,
}

fn shown_in(fault: &Fault) -> Shown {
    match fault {
        Fault::UnknownTool { .. }
        | Fault::BadRequest { .. }
        | Fault::BadInput { .. }
        | Fault::BadValue { .. }
        | Fault::NotFound { .. }
        | Fault::Denied { .. }
        | Fault::NeedsApproval { .. }
        | Fault::NeedsInput { .. }
        | Fault::LeaseRequired { .. }
        | Fault::LeaseRejected { .. }
        | Fault::Conflict { .. }
        | Fault::OutcomeUnknown { .. }
        | Fault::RateLimited { .. }
        | Fault::Unavailable { .. }
        | Fault::Unenforceable { .. }
        | Fault::GuaranteeBlocked { .. }
        | Fault::TooLarge { .. }
        | Fault::Timeout { .. }
        | Fault::Crash { .. }
        | Fault::BadOutput { .. }
        | Fault::ToolFailed { .. } => Shown::Rules,
        Fault::BreakerOpen { .. } => Shown::Breaker,
        Fault::Cancelled => Shown::Cancelled,
        Fault::Internal { .. } => Shown::Internal,
    }
}

/// Why a wire can not have a fault.
fn lacks(wire: &str, kind: &str) -> Option<&'static str> {
    match (wire, kind) {
        ("tool", "rate_limited") => {
            Some("each process counts rates for itself (G-7), and `callgate tool` is one a call")
        }
        _ => None,
    }
}

/// So many recorded calls by each wire that can have this fault.
fn those_with(kind: &str, times: usize) -> Counts {
    let mut counts = each(times);
    if kind == "bad_input" {
        // `callgate bridge` refuses it before the gate hears of it (B-9). Frames by hand do not.
        counts.insert(recorded_as("bridge"), times);
    }
    for wire in WIRES {
        if lacks(wire, kind).is_some() {
            counts.remove(recorded_as(wire));
        }
    }
    counts
}

/// Each fault of this test was told by every wire that can have it.
fn all_told(wires: &Wires<'_>, shown: Shown) {
    for fault in every_fault().filter(|fault| shown_in(fault) == shown) {
        for wire in WIRES {
            let was_told = wires
                .told
                .contains(&(wire.to_owned(), fault.kind().to_owned()));
            let reason = lacks(wire, fault.kind());
            assert_eq!(
                was_told,
                reason.is_none(),
                "{wire}: {}, {reason:?}",
                fault.kind()
            );
        }
    }
}

/// F, F-2, F-15, F-16, F-24, G-3, G-11, JR-17, JR-21, JR-23, R-13: a tool registered once is callable over every wire under the same rules.
#[test]
fn the_same_rules_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("work.sh", WORK),
        ("tries.py", TRIES),
        ("asks.py", ASKS),
    ]);
    let mut wires = Wires::open(&folder);
    let faults = [
        ("nowhere", json!({}), "unknown_tool"),
        ("work", json!({ "do": 7 }), "bad_input"),
        ("denied", json!({}), "denied"),
        ("asked", json!({}), "needs_approval"),
        ("asks", json!({}), "needs_input"),
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
    // What is no request is no call either: the chain knows nothing of it.
    let before = chain(&folder).len();
    for wire in WIRES {
        let seen = wires.no_request(wire);
        assert_eq!(seen, Seen::Fault("bad_request".to_owned()), "{wire}");
    }
    assert_eq!(chain(&folder).len(), before);

    for wire in WIRES {
        for (tool, input, kind) in &faults {
            let seen = wires.call(wire, tool, input, "", "");
            assert_eq!(
                seen,
                Seen::Fault((*kind).to_owned()),
                "{wire}: {tool} {input}"
            );
        }
        let input = json!({ "do": "x" });
        let bad = wires.call(wire, "leased", &input, "", "lease_made_up");
        assert_eq!(bad, Seen::Fault("lease_rejected".to_owned()), "{wire}");
        let limited = format!("limited/{wire}");
        assert!(matches!(
            wires.call(wire, &limited, &json!({}), "", ""),
            Seen::Output { .. }
        ));
        if lacks(wire, "rate_limited").is_none() {
            let seen = wires.call(wire, &limited, &json!({}), "", "");
            assert_eq!(seen, Seen::Fault("rate_limited".to_owned()), "{wire}");
        }

        let lease = cli(&folder, &["lease", "grant", "leased", "--json"])
            .good()
            .json();
        let token = lease["token"].as_str().expect("a token");
        let first = wires.call(wire, "leased", &input, "", token);
        assert!(matches!(first, Seen::Output { .. }), "{wire}: {first:?}");
        let again = wires.call(wire, "leased", &input, "", token);
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
    wait_for("the effect", || {
        (effects(&folder) == ran + WIRES.len() + 1).then_some(())
    });
    killed.kill();
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, "lost", "");
        assert_eq!(seen, Seen::Fault("outcome_unknown".to_owned()), "{wire}");
    }

    all_told(&wires, Shown::Rules);
    wires.close();
    verified(&folder);
    let records = chain(&folder);
    same_records(&records, &each(1), |start| {
        let tool = start["tool"].as_str();
        start.get("key").is_none() && tool.is_some_and(|tool| tool.starts_with("limited/"))
    });
    // Those that were the first with their key.
    let mut with_pilot = each(1);
    with_pilot.insert("pilot", 1);
    same_records(&records, &with_pilot, |start| {
        start.get("key").is_some() && start["tool"] == "work" && is_good(&records, start)
    });
    same_replays(&records, "work", WIRES.len());
    let leased = same_records(&records, &each(1), |start| start["tool"] == "leased");
    assert_eq!(leased, ["lease.spend", "start", "outcome"]);
    leases_are_spent_once(&records);
    for (tool, _, kind) in &faults {
        same_faults(&records, tool, kind, &those_with(kind, 1));
    }
    for (tool, kind, times) in [
        ("leased", "lease_rejected", 2),
        ("limited", "rate_limited", 1),
        ("work", "conflict", WIRES.len()),
        ("work", "outcome_unknown", 1),
    ] {
        same_faults(&records, tool, kind, &those_with(kind, times));
    }
}

/// Each that was granted is spent by one call, which says so.
fn leases_are_spent_once(records: &[Value]) {
    let of = |kind: &str, member: &str| -> Vec<String> {
        let with = records.iter().filter(|record| record["kind"] == kind);
        let mut all: Vec<String> = with
            .filter_map(|record| record[member].as_str().map(str::to_owned))
            .collect();
        all.sort();
        all
    };
    let granted = of("lease.grant", "lease");
    assert_eq!(granted.len(), WIRES.len());
    assert_eq!(of("lease.spend", "lease"), granted);
    assert_eq!(of("start", "lease"), granted);
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
    all_told(&wires, Shown::Breaker);
    wires.close();
    same_faults(&chain(&folder), "work", "breaker_open", &each(1));
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

/// F, G-3: what no tool of today ends with, one of another version may have: what is recorded is
/// told on every wire in its words, and that it was told is recorded alike.
#[tokio::test]
async fn recorded_ends_are_told_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let input = json!({ "do": "read" });
    let message = |text: &str| text.to_owned();
    let ends = [
        Fault::NotFound {
            message: message("no such thing: notes.txt"),
        },
        Fault::Internal {
            message: message("a shelf fell"),
        },
        Fault::Cancelled,
    ];
    for fault in &ends {
        record_end(&folder, &input, fault.kind(), fault.clone()).await;
    }
    let mut wires = Wires::open(&folder);
    for kind in ends.iter().map(Fault::kind) {
        for wire in WIRES {
            let seen = wires.call(wire, "work", &input, kind, "");
            assert_eq!(seen, Seen::Fault(kind.to_owned()), "{wire}");
        }
    }
    assert_eq!(effects(&folder), 0);
    wires.close();
    same_replays(&chain(&folder), "work", ends.len());
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
        wires.cancel(wire);
    }
    wait_for("the ends", || {
        let records = chain(&folder);
        let ends = records.iter().filter(|r| r["fault"] == "cancelled");
        (ends.count() == WIRES.len()).then_some(())
    });

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
    all_told(&wires, Shown::Cancelled);
    wires.close();
    let records = chain(&folder);
    same_faults(&records, "work", "cancelled", &each(1));
    same_replays(&records, "work", 1);
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
    let segments = || -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(folder.join("state/journal")).expect("a journal");
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let cut = segments();
    for segment in &cut {
        let file = std::fs::File::options().write(true).open(segment);
        file.and_then(|file| file.set_len(64)).expect("cut it");
    }
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("internal".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), WIRES.len());
    all_told(&wires, Shown::Internal);
    // There is no record to compare: by none of them was anything written.
    assert_eq!(segments(), cut);
    for segment in &cut {
        let length = std::fs::metadata(segment).expect("a segment").len();
        assert_eq!(length, 64, "{}", segment.display());
    }
}

/// A search by words is the same by every wire and for a pilot: what is found, what is recorded,
/// and what is said where there is nothing to search or a question is no question.
#[test]
fn searched_on_every_wire() {
    let folder = trusted_with(&[
        ("callgate.toml", EVERY_BUILTIN),
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
    let folder = trusted_with(&[(
        "callgate.toml",
        &format!("[leases]\nenforce_from_tier = 3\n{EVERY_BUILTIN}"),
    )]);
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
