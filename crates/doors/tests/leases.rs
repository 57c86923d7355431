//! Leases over the toolhost: every way a token is not good, and what a refusal costs.

use std::time::Duration;

use callgate_call::{Caller, Digest, Tier};
use callgate_gate::LeaseRequest;
use callgate_testing::scripts::{APPEND, effects};
use callgate_wires::toolhost::Entry;
use serde_json::{Value, json};

use crate::support::called::{called, grant, lease};
use crate::support::host::{Host, run_once_of};
use callgate_testing_workspace::{Folder, Opened, records, trust, trusted_with, verified};

const CONFIG: &str = r#"
[leases]
enforce_from_tier = 1

[[tool]]
name = "append"
aid = "AID.TEST.APPEND.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "other"
aid = "AID.TEST.OTHER.v1"
tier = 1
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "system"
aid = "AID.TEST.SYSTEM.v1"
tier = 2
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }

[[tool]]
name = "free"
aid = "AID.TEST.FREE.v1"
tier = 0
writes = ["effects.log"]
code = ["append.sh"]
runner = { kind = "process", command = ["/bin/sh", "append.sh"] }
"#;

fn workspace() -> Folder {
    trusted_with(&[("callgate.toml", CONFIG), ("append.sh", APPEND)])
}

fn request(aid: &str, input: &Value, token: &str) -> Value {
    json!({ "aid": aid, "inputs": input, "_lease_token": token })
}

/// Asks over `--serve` and over the gate, and compares both refusals with what is wanted.
fn refused(
    folder: &Folder,
    host: &mut Host,
    tool: &str,
    input: &Value,
    token: &str,
    wanted: Value,
) {
    let aid = format!("AID.TEST.{}.v1", tool.to_uppercase());
    let mut reply = json!({ "ok": false, "error": "lease_rejected" });
    for (name, value) in wanted.as_object().expect("an object") {
        reply[name] = value.clone();
    }
    assert_eq!(host.ask(&request(&aid, input, token)), reply);
    let body = called(folder, tool, input, Some(token));
    let fault = &body["fault"];
    assert_eq!(
        (&fault["kind"], &fault["data"]),
        (&json!("lease_rejected"), &wanted)
    );
}

/// T-5, TH-68, TH-69, F-9: every reason, with what was wanted and what came; a token that was
/// refused is not spent.
#[test]
fn tokens_that_are_not_good() {
    let folder = workspace();
    let mut host = Host::toolhost(&folder);
    let us = format!("uid:{}", rustix::process::geteuid().as_raw());
    let one = json!({ "one": 1 });

    let never = format!("lease_{}", "0".repeat(32));
    refused(
        &folder,
        &mut host,
        "append",
        &one,
        &never,
        json!({ "reason": "not found" }),
    );
    refused(
        &folder,
        &mut host,
        "append",
        &one,
        "no lease",
        json!({ "reason": "not found" }),
    );

    let token = grant(&folder, &lease("other"));
    let wanted = json!({ "reason": "tool mismatch", "expected": "other", "got": "append" });
    refused(&folder, &mut host, "append", &one, &token, wanted);
    let reply = host.ask(&request("AID.TEST.OTHER.v1", &one, &token));
    assert_eq!(reply["status"], "OK", "{reply}");
    refused(
        &folder,
        &mut host,
        "other",
        &one,
        &token,
        json!({ "reason": "already consumed" }),
    );

    let token = grant(
        &folder,
        &LeaseRequest {
            tier: Tier::from_number(1),
            ..lease("system")
        },
    );
    let wanted = json!({ "reason": "tier too low", "expected": 2, "got": 1 });
    refused(&folder, &mut host, "system", &one, &token, wanted);

    let token = grant(
        &folder,
        &LeaseRequest {
            caller: Some(Caller::named("uid:4242")),
            ..lease("append")
        },
    );
    let wanted = json!({ "reason": "caller mismatch", "expected": "uid:4242", "got": us });
    refused(&folder, &mut host, "append", &one, &token, wanted);

    let token = grant(
        &folder,
        &LeaseRequest {
            input: Some(Digest::of_json(&json!({ "two": 2 }))),
            ..lease("append")
        },
    );
    let digest = |value: &Value| Digest::of_json(value).to_hex();
    let (expected, got) = (digest(&json!({ "two": 2 })), digest(&one));
    let wanted = json!({ "reason": "input mismatch", "expected": expected, "got": got });
    refused(&folder, &mut host, "append", &one, &token, wanted);
    let reply = host.ask(&request("AID.TEST.APPEND.v1", &json!({ "two": 2 }), &token));
    assert_eq!(reply["status"], "OK", "{reply}");

    let token = grant(&folder, &lease("append"));
    let gate = Opened::new(&folder).gate().expect("a setup");
    gate.revoke_lease(&token).expect("it is active");
    let reply = host.ask(&request("AID.TEST.APPEND.v1", &one, &token));
    assert_eq!(
        (&reply["ok"], &reply["error"]),
        (&json!(false), &json!("lease_rejected"))
    );

    assert_eq!(effects(&folder), 2);
    host.end();
    verified(&folder);
}

/// F-8, TH-66, TH-67, G-5: no token, an empty one, and a tool that needs none.
#[test]
fn calls_without_a_token() {
    let folder = workspace();
    let mut host = Host::toolhost(&folder);
    let wanted =
        json!({ "ok": false, "error": "lease_required", "tier": 1, "aid": "AID.TEST.APPEND.v1" });
    assert_eq!(host.ask(&json!({ "aid": "AID.TEST.APPEND.v1" })), wanted);
    assert_eq!(
        host.ask(&json!({ "aid": "AID.TEST.APPEND.v1", "_lease_token": "" })),
        wanted
    );
    let body = called(&folder, "append", &json!({}), None);
    let words = body["fault"]["message"].as_str().expect("words");
    assert!(words.contains("callgate lease grant append"), "{words}");
    assert_eq!(effects(&folder), 0);
    let token = grant(&folder, &lease("append"));
    let free = host.ask(&request("AID.TEST.FREE.v1", &json!({}), &token));
    assert_eq!(free["status"], "OK");
    let spent = host.ask(&request("AID.TEST.APPEND.v1", &json!({}), &token));
    assert_eq!(spent["status"], "OK", "tier 0 spends no token: {spent}");
}

/// T-5, G-5: a lease is good for 60 s, or for what `--ttl` says, an hour at most.
#[test]
fn leases_expire() {
    let folder = workspace();
    let try_at = |token: &str, ahead_ms: u64| {
        let body = json!({ "_lease_token": token }).to_string();
        let opened = Opened::ahead(&folder, ahead_ms);
        let answered = run_once_of(opened, Entry::Run, "AID.TEST.APPEND.v1", body.as_bytes());
        serde_json::from_slice::<Value>(&answered.bytes).expect("a reply")
    };
    let expired = json!({ "ok": false, "error": "lease_rejected", "reason": "expired" });
    let usual = grant(&folder, &lease("append"));
    assert_eq!(try_at(&usual, 61_000), expired);
    let long = grant(
        &folder,
        &LeaseRequest {
            ttl: Some(Duration::from_secs(3600)),
            ..lease("append")
        },
    );
    assert_eq!(try_at(&long, 3_601_000), expired);
    assert_eq!(try_at(&long, 3_500_000)["status"], "OK");
    assert_eq!(
        try_at(&usual, 0)["status"],
        "OK",
        "a refused token is not spent"
    );
    assert_eq!(effects(&folder), 2);
    let gate = Opened::new(&folder).gate().expect("a setup");
    for ttl in [0, 3601, 7200] {
        let ttl = Some(Duration::from_secs(ttl));
        let refused = gate.grant_lease(&LeaseRequest {
            ttl,
            ..lease("append")
        });
        assert!(refused.is_err(), "{ttl:?}");
    }
    verified(&folder);
}

/// TH-62, G-3: a retry with the same key needs no second lease and spends none.
#[test]
fn a_retry_needs_no_second_lease() {
    let folder = workspace();
    let mut host = Host::toolhost(&folder);
    let token = grant(&folder, &lease("append"));
    let mut asked = request("AID.TEST.APPEND.v1", &json!({}), &token);
    asked["idempotency_key"] = json!("k");
    assert_eq!(host.ask(&asked)["status"], "OK");
    for retry in [
        asked.clone(),
        json!({ "aid": "AID.TEST.APPEND.v1", "idempotency_key": "k" }),
    ] {
        let reply = host.ask(&retry);
        assert_eq!(
            (&reply["status"], &reply["idempotent_hit"]),
            (&json!("OK"), &json!(true))
        );
    }
    let unused = grant(&folder, &lease("append"));
    asked["_lease_token"] = json!(unused);
    assert_eq!(host.ask(&asked)["idempotent_hit"], true);
    assert_eq!(
        host.ask(&request("AID.TEST.APPEND.v1", &json!({}), &unused))["status"],
        "OK"
    );
    assert_eq!(effects(&folder), 2);
}

/// G-5, F-14: a worker that a call killed has cost that call its lease; the calls that a
/// stopped pool turns away keep theirs.
#[test]
fn a_crash_loop_spends_nothing() {
    let folder = Folder::new();
    let config = r#"
[leases]
enforce_from_tier = 1

[[tool]]
name = "dies"
aid = "AID.TEST.DIES.v1"
tier = 1
runner = { kind = "pool", command = ["/bin/sh", "-c", "read -r line <&3; exit 3"], pool = { crashes_max = 1 } }
"#;
    folder.write("callgate.toml", config);
    trust(&folder);
    let mut host = Host::toolhost(&folder);
    let mut ask = |token: &str| host.ask(&request("AID.TEST.DIES.v1", &json!({}), token));
    let (first, second) = (
        grant(&folder, &lease("dies")),
        grant(&folder, &lease("dies")),
    );
    assert_eq!(ask(&first)["status"], "TOOL_ERROR");
    for _ in 0..3 {
        assert_eq!(ask(&second)["status"], "BREAKER_TRIP");
    }
    assert_eq!(ask(&first)["reason"], "already consumed");
    host.end();
    let spent = |kind: &str| {
        records(&folder)
            .iter()
            .filter(|one| one["kind"] == kind)
            .count()
    };
    assert_eq!((spent("lease.spend"), spent("lease.return")), (4, 3));
    verified(&folder);
}
