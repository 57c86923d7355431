//! Keys: a call that was made before is told again, whatever came of it.

use std::sync::Arc;

use crate::support::{Wanted, bench, kinds};
use callgate_call::{Call, Caller, Fault, Job};
use callgate_store::{Begun, End, Finish, Health, KeyId, Start, View};
use serde_json::json;

/// G-3, F-10: bound to caller, tool and input; failures of the tool are replayed too.
#[tokio::test]
async fn replay_by_key() {
    let b = bench("replay", Wanted::default());
    for round in 0..3 {
        let outcome = b.gate.call(&b.keyed(json!({"n": 1}), "k")).await;
        assert_eq!(outcome.result.unwrap().json.into_value(), json!({"n": 1}));
        assert_eq!(outcome.replayed, round > 0);
    }
    assert_eq!(b.ran(), 1);
    let conflict = b.result(&b.keyed(json!({"n": 2}), "k")).await;
    assert!(
        matches!(conflict, Err(Fault::Conflict { .. })),
        "{conflict:?}"
    );
    let mut other = b.keyed(json!({"n": 1}), "k");
    other.caller = Caller::uid(5);
    assert!(!b.gate.call(&other).await.replayed);
    assert_eq!(b.ran(), 2);
    assert_eq!(
        b.chain(),
        kinds(&[("start", 2), ("outcome", 2), ("replay", 2), ("refusal", 1)])
    );
}

/// G-3: a failure of the tool is an outcome like any other.
#[tokio::test]
async fn failures_are_replayed() {
    let fail = |_: &Job<'_>| {
        Err(Fault::ToolFailed {
            error_type: "ValueError".into(),
            message: "no".into(),
            content: None,
        })
    };
    let b = bench(
        "failures",
        Wanted {
            function: Some(Box::new(fail)),
            ..Wanted::default()
        },
    );
    let first = b.gate.call(&b.keyed(json!({}), "k")).await;
    let second = b.gate.call(&b.keyed(json!({}), "k")).await;
    assert_eq!(first.result.unwrap_err(), second.result.unwrap_err());
    assert!(second.replayed);
    assert_eq!(b.ran(), 1);
}

/// G-3: a second call with the key waits for the first and gets its outcome.
#[tokio::test]
async fn in_flight_is_waited_for() {
    let hold = Arc::new(tokio::sync::Semaphore::new(0));
    let b = bench(
        "flight",
        Wanted {
            hold: Some(Arc::clone(&hold)),
            ..Wanted::default()
        },
    );
    let calls: Vec<Call> = (0..8).map(|_| b.keyed(json!({"n": 1}), "k")).collect();
    let waiting: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let gate = Arc::clone(&b.gate);
            tokio::spawn(async move { gate.call(&call).await })
        })
        .collect();
    while b.ran() == 0 {
        tokio::task::yield_now().await;
    }
    hold.add_permits(1);
    let mut replayed = 0;
    for task in waiting {
        let outcome = task.await.unwrap();
        assert_eq!(outcome.result.unwrap().json.into_value(), json!({"n": 1}));
        replayed += usize::from(outcome.replayed);
    }
    assert_eq!((b.ran(), replayed), (1, 7));
}

/// G-1c, G-3: a key that release 0.1.0 recorded with the digest of a rounded number answers that the
/// outcome is unknown, for each number that shared the digest and whether or not the tool is
/// idempotent. Digests of other inputs have not changed.
#[tokio::test]
async fn keys_of_rounded_numbers() {
    for idempotent in [false, true] {
        let wanted = Wanted {
            tool: idempotent.then_some(|tool: &mut callgate_call::Tool| tool.idempotent = true),
            ..Wanted::default()
        };
        let b = bench("rounded", wanted);
        // What 0.1.0 digested: `{"n":9007199254740992}` for both of them.
        let earlier = json!({"n": 9_007_199_254_740_993_u64});
        let digest = callgate_call::Digest::of_json_as_doubles(&earlier).unwrap();
        record(&b, "old", digest);
        for number in [9_007_199_254_740_992_u64, 9_007_199_254_740_993] {
            let result = b.result(&b.keyed(json!({"n": number}), "old")).await;
            let is_unknown = matches!(result, Err(Fault::OutcomeUnknown { .. }));
            assert!(is_unknown, "{number}: {result:?}");
        }
        for other in [json!({"n": 9_007_199_254_740_994_u64}), json!({"n": 1})] {
            let result = b.result(&b.keyed(other, "old")).await;
            assert!(matches!(result, Err(Fault::Conflict { .. })), "{result:?}");
        }
        let small = json!({"n": 9_007_199_254_740_991_u64});
        record(&b, "small", callgate_call::Digest::of_json(&small));
        let outcome = b.gate.call(&b.keyed(small, "small")).await;
        assert!(outcome.replayed, "{outcome:?}");
        assert_eq!(b.ran(), 0);
    }
}

/// Records a finished call of a key whose input has this digest.
fn record(b: &crate::support::Bench, key: &str, input: callgate_call::Digest) {
    let (caller, store) = (Caller::uid(1000), b.gate.store());
    let call = b.gate.next_id();
    let start = Start {
        call,
        tool: "demo/work",
        aid: "AID.DEMO.WORK.v1",
        tier: callgate_call::Tier::Write,
        caller: &caller,
        wire: "gate",
        input,
        key: Some(KeyId::new(&caller, key)),
        view: View::Full,
        lease: None,
        displayed: None,
        brings_more: false,
        idempotent: false,
        enforcement: "none",
        unsafe_override: false,
        trace_id: None,
    };
    assert!(matches!(store.begin(start), Ok(Begun::Started(_))));
    let end = End::Output {
        text: "{}",
        digest: callgate_call::Digest::of_bytes(b"{}"),
    };
    let finish = Finish {
        call,
        tool: start.tool,
        input,
        key: start.key,
        view: View::Full,
        end,
        slots: None,
        health: Health::Works,
        enforcement: "none",
        unsafe_override: false,
        network_refused: 0,
        began: callgate_call::Timestamp(0),
        keep: true,
        trace_id: None,
    };
    store.finish(finish).unwrap();
}
