//! Approvals: what is too large or too many to be asked for, what a client's user is asked, and what
//! of slots is displayed. G-6, G-6d to G-6f.

use std::ffi::OsStr;

use callgate_call::Digest;
use callgate_gate::{Gate, LeaseRequest};
use callgate_testing::mcp::{initialize, legacy_call, modern_call};
use callgate_testing::scripts::{ONE, effects};
use callgate_wires::toolhost::Entry;
use serde_json::{Value, json};

use crate::support::called::{called, grant, lease};
use crate::support::host::{Host, run_once_of};
use callgate_testing_workspace::{Folder, Opened, environment, records, trusted, trusted_with};

const ASKED: &str = r#"
[secrets]
env = ["APPROVAL_SECRET"]
[[policy]]
decision = "ask"
"#;

fn workspace() -> Folder {
    trusted(&format!("{ONE}{ASKED}"))
}

/// Records a person's decision.
fn decide(gate: &Gate, id: &str, granted: bool) {
    gate.decide(id, granted, "uid:0", None).expect("a decision");
}

/// G-6d: a larger input than is shown is refused with the reason; the largest that is shown can be
/// approved.
#[test]
fn larger_inputs_are_refused() {
    let folder = workspace();
    let gate = Opened::new(&folder).gate().expect("a setup");
    let call = |length: usize| {
        let input = json!({ "text": "x".repeat(length) });
        called(&folder, "one", &input, None)
    };
    let around = json!({ "text": "" }).to_string().len();
    let fits = call(64 * 1024 - around);
    assert_eq!(fits["fault"]["kind"], "needs_approval", "{fits}");
    let id = fits["fault"]["data"]["approval"].as_str().expect("an id");
    decide(&gate, id, true);
    assert_eq!(call(64 * 1024 - around)["ok"], true);
    let more = call(64 * 1024 - around + 1);
    assert_eq!(more["fault"]["kind"], "too_large", "{more}");
    let words = more["fault"]["message"].as_str().expect("words");
    assert_eq!(
        words,
        "the input that a person must approve exceeds 65536 bytes"
    );
    assert_eq!(effects(&folder), 1);
}

/// G-6e: the caller's 65th approval is refused for the time being, and says what to do; a decision
/// makes room.
#[test]
fn a_caller_has_so_many_pending_approvals() {
    let folder = workspace();
    let gate = Opened::new(&folder).gate().expect("a setup");
    let call = |n: u64| called(&folder, "one", &json!({ "n": n }), None)["fault"].clone();
    let ids: Vec<Value> = (0..64)
        .map(|n| call(n)["data"]["approval"].clone())
        .collect();
    assert!(ids.iter().all(Value::is_string), "{ids:?}");
    let full = call(64);
    assert_eq!(full["kind"], "rate_limited", "{full}");
    let words = full["message"].as_str().expect("words");
    assert!(
        words.contains("64 approvals of this caller wait"),
        "{words}"
    );
    assert_eq!(call(0)["data"]["approval"], ids[0]);
    decide(&gate, ids[1].as_str().expect("an id"), false);
    assert_eq!(call(64)["kind"], "needs_approval");
}

/// A client's answer to a question in the newer era.
fn answered(host: &mut Host, input: &Value, asked: &Value, answer: &Value) -> Value {
    let mut again = modern_call(2, "one", input, &json!({}));
    again["params"]["requestState"] = asked["result"]["requestState"].clone();
    again["params"]["inputResponses"] = json!({ "callgate_approval": answer });
    host.ask(&again)
}

/// G-6b, G-6d: a client's user is asked where the whole input fits the message; else the call waits
/// for a person like any other, and what a client says to that counts for nothing.
#[test]
fn a_client_is_asked_only_with_the_whole_input() {
    let folder = workspace();
    let mut host = Host::mcp(&folder, &[]);
    let yes = json!({ "action": "accept", "content": { "approve": true } });
    let whole = "May `one` be called with {\"text\":\"\"}?".len();
    for (length, fits) in [(2000 - whole, true), (2000 - whole + 1, false)] {
        let input = json!({ "text": "x".repeat(length) });
        let reply = host.ask(&modern_call(1, "one", &input, &json!({})));
        let asks = reply["result"]["resultType"] == "input_required";
        assert_eq!(asks, fits, "{reply}");
        if fits {
            let done = answered(&mut host, &input, &reply, &yes);
            assert_eq!(done["result"]["isError"], false, "{done}");
        } else {
            let fault = &reply["result"]["_meta"]["callgate/call"]["fault"];
            assert_eq!(fault, "needs_approval", "{reply}");
        }
    }
    host.ask(&initialize(3));
    let long = json!({ "text": "y".repeat(2000) });
    let reply = host.ask(&legacy_call(4, "one", &long, &json!({})));
    let fault = &reply["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "needs_approval", "{reply}");
    assert_eq!(effects(&folder), 1);
    host.end();
    let granted = records(&folder);
    let granted: Vec<_> = granted
        .iter()
        .filter(|r| r["kind"] == "approval.grant")
        .collect();
    assert_eq!(granted.len(), 1);
    assert!(granted[0]["displayed"].is_string() && granted[0]["input"].is_string());
}

const SLOTTED: &str = r#"
[leases]
enforce_from_tier = 2
[secrets]
env = ["APPROVAL_SECRET"]
[[tool]]
name = "sl"
aid = "AID.SL.v1"
tier = 1
slots = true
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[tool]]
name = "leased"
aid = "AID.LEASED.v1"
tier = 2
slots = true
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
[[policy]]
tools = ["sl"]
decision = "ask"
"#;

/// Answers with no change of the slots, and notes what it received.
const NOTE: &str = r#"
read -r all
printf '%s\n' "$all" >> effects.log
echo '{"output":{}}'
"#;

/// One call by `toolhost --run`, with `content` in slot 6, or without slots.
fn with_slot(folder: &Folder, aid: &str, content: Option<&str>, lease: Option<&str>) -> Value {
    let mut request = json!({ "input_json": "{}" });
    if let Some(content) = content {
        let artifact = json!({
            "type": "json", "provenance": "p", "content_json": content, "size_bytes": 13,
        });
        request["ds_state"] = json!({ "slots": { "6": artifact } });
    }
    if let Some(lease) = lease {
        request["_lease_token"] = lease.into();
    }
    let secret = ("APPROVAL_SECRET", OsStr::new("swordfish-7"));
    let environment = environment(folder, &[secret]);
    let opened = Opened::in_environment(folder, &environment);
    let request = request.to_string();
    let answered = run_once_of(opened, Entry::Run, aid, request.as_bytes());
    serde_json::from_slice(&answered.bytes).expect("a reply")
}

/// G-6f, S-18: a secret in a slot is not displayed, however it is written; slots that differ only in
/// what is not displayed are told apart all the same.
#[test]
fn secrets_in_slots_are_not_displayed() {
    let folder = trusted_with(&[("callgate.toml", SLOTTED), ("tool.sh", NOTE)]);
    let mut seen = Vec::new();
    for content in [
        r#"{"token":"swordfish-7"}"#,
        r#"{"token":"\u0073wordfish-7"}"#,
    ] {
        with_slot(&folder, "AID.SL.v1", Some(content), None);
        let gate = Opened::new(&folder).gate().expect("a setup");
        let approvals = gate.approvals().expect("approvals");
        let shown = approvals[0].shown.clone();
        assert!(
            !shown.contains("wordfish") && shown.contains("\"digest\":"),
            "{shown}"
        );
        seen.push(shown);
    }
    assert_ne!(seen[0], seen[1]);
}

/// G-5, G-6f: a lease for one input opens no call that brings slots, and is not spent by it.
#[test]
fn a_lease_for_an_input_is_not_for_slots() {
    let folder = trusted_with(&[("callgate.toml", SLOTTED), ("tool.sh", NOTE)]);
    let grant = |input| {
        let leased = lease("leased");
        grant(&folder, &LeaseRequest { input, ..leased })
    };
    let call = |content, lease: &str| with_slot(&folder, "AID.LEASED.v1", content, Some(lease));
    let slots = Some("{\"cmd\": \"ls\"}");
    let bound = grant(Some(Digest::of_json(&json!({}))));
    let refused = call(slots, &bound);
    assert_eq!(
        (&refused["error"], &refused["reason"]),
        (&json!("lease_rejected"), &json!("input mismatch")),
        "{refused}"
    );
    let got = refused["got"].as_str().expect("what came");
    assert!(got.contains("without `--input`"), "{got}");
    assert_eq!(call(None, &bound)["status"], "OK");
    assert_eq!(call(slots, &grant(None))["status"], "OK");
}
