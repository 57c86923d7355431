//! Keys: a call that was made before is told again, whatever came of it.

use std::sync::Arc;

use crate::support::{Wanted, bench, kinds};
use callgate_call::{Call, Caller, Fault, Job};
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
