//! How each fault reads on this wire, and which replies fit a line. What it takes to provoke
//! them is in the vectors.

use callgate_call::{Artifact, Digest, LeaseRefusal};
use callgate_wires::toolhost::{Delta, StateMessage};
use serde_json::json;

use super::*;

fn text(words: &str) -> String {
    words.to_owned()
}

/// Every fault once, with the status it is answered with; `None` is `ok` false. Table F.
fn table() -> Vec<(Fault, Option<Status>, &'static str)> {
    let second = Duration::from_secs(1);
    let error = Some(Status::ToolError);
    let trip = Some(Status::BreakerTrip);
    vec![
        // F-1 to F-5
        (Fault::unknown_tool("A"), None, "tool not found: A"),
        (Fault::BadRequest { reason: text("no") }, None, "no"),
        (
            Fault::BadInput {
                field: text("name"),
                reason: text("is required"),
            },
            Some(Status::InvalidPick),
            "bad input: name: is required",
        ),
        (Fault::bad_value(text("k must be 1")), error, "k must be 1"),
        (
            Fault::NotFound {
                message: text("no such plan"),
            },
            error,
            "no such plan",
        ),
        // F-6 to F-9
        (Fault::denied(text("policy")), error, "denied: policy"),
        (
            Fault::NeedsApproval {
                approval: text("a-1"),
            },
            error,
            "needs approval a-1: ask the owner to run `callgate approvals show a-1`, \
             then `callgate approvals grant a-1`",
        ),
        (
            Fault::LeaseRequired {
                tier: 2,
                tool: text("t"),
                aid: text("A"),
            },
            None,
            "lease_required",
        ),
        (
            Fault::LeaseRejected {
                refusal: LeaseRefusal::Expired,
            },
            None,
            "lease_rejected",
        ),
        // F-10, F-11
        (Fault::conflict(text("used")), error, "used"),
        (
            Fault::OutcomeUnknown {
                call: text("7"),
                reason: None,
            },
            error,
            "outcome unknown: call 7 started and its end was never recorded",
        ),
        // F-12 to F-14
        (
            Fault::rate_limited(second),
            trip,
            "rate limited: try again in 1000 ms",
        ),
        (
            Fault::BreakerOpen {
                retry_after: second,
            },
            trip,
            "breaker open after repeated failures: try again in 1000 ms",
        ),
        (
            Fault::Unavailable {
                reason: text("down"),
            },
            trip,
            "unavailable: down",
        ),
        // F-17 to F-23
        (
            Fault::too_large(text("output"), 1 << 20),
            error,
            "output exceeds 1 MiB",
        ),
        (
            Fault::Timeout { after: second },
            error,
            "timed out after 1000 ms",
        ),
        (
            Fault::Crash {
                message: text("exit 3"),
            },
            error,
            "exit 3",
        ),
        (
            Fault::BadOutput {
                reason: text("not JSON"),
            },
            error,
            "bad output: not JSON",
        ),
        (
            Fault::ToolFailed {
                error_type: text("ValueError"),
                message: text("own words"),
                content: None,
            },
            error,
            "own words",
        ),
        (Fault::Cancelled, error, "cancelled"),
        (
            Fault::Internal {
                message: text("disk"),
            },
            error,
            "internal: disk",
        ),
    ]
}

/// TH-49, TH-50: `ok` false is kept for what the host could not take.
#[test]
fn every_fault_has_its_words() {
    for (fault, status, words) in table() {
        assert_eq!(status_of(&fault), status, "{fault:?}");
        let said = match status {
            Some(_) => fault.to_string(),
            None => refusal_of("A", &fault).0,
        };
        assert_eq!(said, words, "{fault:?}");
    }
}

/// F-8, F-9, TH-67, TH-68: what stands beside the lease errors.
#[test]
fn lease_refusals_say_why() {
    let required = Fault::LeaseRequired {
        tier: 2,
        tool: text("t"),
        aid: text("A"),
    };
    assert_eq!(
        refusal_of("A", &required).1,
        [("tier", json!(2)), ("aid", json!("A"))]
    );
    let rejected = |refusal| refusal_of("A", &Fault::LeaseRejected { refusal }).1;
    for (refusal, reason) in [
        (LeaseRefusal::NotFound, "not found"),
        (LeaseRefusal::Expired, "expired"),
        (LeaseRefusal::AlreadyConsumed, "already consumed"),
    ] {
        assert_eq!(rejected(refusal), [("reason", json!(reason))]);
    }
    let [one, other] = ["a", "b"].map(|text| Digest::of_bytes(text.as_bytes()).to_hex());
    let pair = (one.clone(), other.clone());
    for (refusal, reason, expected, got) in [
        (
            LeaseRefusal::ToolMismatch {
                expected: text("a"),
                got: text("b"),
            },
            "tool mismatch",
            json!("a"),
            json!("b"),
        ),
        (
            LeaseRefusal::TierTooLow {
                expected: 2,
                got: 1,
            },
            "tier too low",
            json!(2),
            json!(1),
        ),
        (
            LeaseRefusal::CallerMismatch {
                expected: text("uid:1"),
                got: text("uid:2"),
            },
            "caller mismatch",
            json!("uid:1"),
            json!("uid:2"),
        ),
        (
            LeaseRefusal::InputMismatch {
                expected: pair.0,
                got: pair.1,
            },
            "input mismatch",
            json!(one),
            json!(other),
        ),
    ] {
        let wanted = [
            ("reason", json!(reason)),
            ("expected", expected),
            ("got", got),
        ];
        assert_eq!(rejected(refusal), wanted);
    }
}

/// T-17, TH-89: what could not be recorded is told as failed, so what tools did to the slots since
/// the last settling is taken back; what the caller sent meanwhile stays.
#[test]
fn unsettled_changes_are_taken_back() {
    let slots = |words: &[(u8, &str)]| {
        let artifact = |word: &str| Artifact {
            kind: text(word),
            ..Artifact::default()
        };
        Slots(
            words
                .iter()
                .map(|(at, word)| (*at, artifact(word)))
                .collect(),
        )
    };
    let put = |words: &[(u8, &str)]| {
        let slots = to_wire(&slots(words).0);
        let removed_slots = Vec::new();
        StateMessage::Change(Delta {
            slots,
            removed_slots,
        })
    };
    // A call with what its caller sends and what its tool puts.
    let call = |held: &mut Held, sends: StateMessage, puts: &[(u8, &str)]| {
        let (merged, sent) = held.merge(sends);
        let change = SlotChange {
            put: slots(puts).0,
            removed: Vec::new(),
        };
        let (after, change) = after(&merged, &change);
        match change.is_empty() {
            true => held.keep(merged, sent),
            false => held.change(merged, sent, after),
        }
    };
    let mut held = Held::default();
    call(&mut held, put(&[(1, "sent")]), &[(2, "settled")]);
    held.settle();
    call(&mut held, StateMessage::Keep, &[(1, "lost")]);
    call(&mut held, put(&[(3, "sent later")]), &[]);
    call(&mut held, put(&[(4, "sent last")]), &[(5, "lost")]);
    // One that was not taken leaves nothing.
    let _ = held.merge(StateMessage::Replace(Default::default()));
    let all = [
        (1, "lost"),
        (2, "settled"),
        (3, "sent later"),
        (4, "sent last"),
        (5, "lost"),
    ];
    assert_eq!(*held.now(), slots(&all));
    held.take_back();
    let kept = [
        (1, "sent"),
        (2, "settled"),
        (3, "sent later"),
        (4, "sent last"),
    ];
    assert_eq!(*held.now(), slots(&kept));
    held.take_back();
    assert_eq!(*held.now(), slots(&kept), "once");
    call(&mut held, StateMessage::Keep, &[(1, "settled")]);
    held.settle();
    held.take_back();
    assert_eq!(held.now().0[&1].kind, "settled");
}
