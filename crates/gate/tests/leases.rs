//! Leases and approvals: who needs one, what spends it, and what gives it back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Function, Wanted, bench, kinds};
use callgate_call::{Answers, Caller, Fault, Job, LeaseRefusal, LeaseToken, Output, Tier};
use callgate_gate::{Decision, LeasePolicy, LeaseRequest, Rule};
use callgate_store::Durability;
use serde_json::{Value, json};

/// A lease of the tool, bound to nothing else.
fn any_work() -> LeaseRequest {
    LeaseRequest {
        tool: "work".into(),
        tier: None,
        ttl: None,
        caller: None,
        input: None,
    }
}

/// G-5, G-6: a call that would spend a lease or an approval is not begun where it might be broken
/// off, as a record that must be safe first would have it; nothing is lost.
#[tokio::test]
async fn nothing_is_spent_by_what_is_not_waited_for() {
    let leased = LeasePolicy {
        local: Some(Tier::Write),
        ..LeasePolicy::default()
    };
    let asked = Rule {
        tools: vec![],
        callers: vec![],
        decision: Decision::Ask,
        approve_by_client: false,
    };
    for (leases, rules, waits) in [
        (leased, vec![], true),
        (LeasePolicy::default(), vec![asked], true),
        (LeasePolicy::default(), vec![], false),
    ] {
        let b = bench(
            "at-once",
            Wanted {
                leases,
                rules,
                is_pure: true,
                durability: Durability::Power,
                ..Wanted::default()
            },
        );
        let mut call = b.keyed(json!({}), "k");
        call.lease = Some(b.gate.grant_lease(&any_work()).unwrap().token);
        if b.gate.asks("work", &call.caller) {
            let Err(Fault::NeedsApproval { approval }) = b.result(&call).await else {
                panic!("an ask")
            };
            b.gate.decide(&approval, true, "uid:0", None).unwrap();
        }
        let answer = b.gate.answer_at_once(&call, &b.gate.find("work"));
        assert_eq!(answer.is_none(), waits);
        assert_eq!(b.ran(), usize::from(!waits));
        // The same call, waited for.
        assert_eq!(b.result(&call).await, Ok(json!({})));
        assert_eq!(b.ran(), 1);
    }
}

/// G-5, T-5, F-8, F-9: needed from the tier on, spent once, every mismatch by name.
#[tokio::test]
async fn leases() {
    let leases = LeasePolicy {
        local: Some(Tier::Write),
        ..LeasePolicy::default()
    };
    let b = bench(
        "leases",
        Wanted {
            leases,
            ..Wanted::default()
        },
    );
    let with = |token: Option<&LeaseToken>, input: Value| {
        let mut call = b.call(input);
        call.lease = token.cloned();
        call
    };
    let required = b.result(&with(None, json!({}))).await;
    assert!(matches!(
        required,
        Err(Fault::LeaseRequired { tier: 1, .. })
    ));
    let ask = |change: &dyn Fn(&mut LeaseRequest)| {
        let mut request = any_work();
        change(&mut request);
        b.gate.grant_lease(&request).unwrap().token
    };
    let refused = |result: Result<Value, Fault>| match result {
        Err(Fault::LeaseRejected { refusal }) => refusal.as_str(),
        other => panic!("{other:?}"),
    };
    let token = ask(&|_| {});
    assert_eq!(
        b.result(&with(Some(&token), json!({}))).await,
        Ok(json!({}))
    );
    let again = b.result(&with(Some(&token), json!({}))).await;
    assert_eq!(refused(again), LeaseRefusal::AlreadyConsumed.as_str());
    let nobody = LeaseToken::new("lease_00000000000000000000000000000000");
    assert_eq!(
        refused(b.result(&with(Some(&nobody), json!({}))).await),
        "not found"
    );
    let low = ask(&|request| request.tier = Some(Tier::Safe));
    assert_eq!(
        refused(b.result(&with(Some(&low), json!({}))).await),
        "tier too low"
    );
    let other = ask(&|request| request.caller = Some(Caller::uid(1)));
    assert_eq!(
        refused(b.result(&with(Some(&other), json!({}))).await),
        "caller mismatch"
    );
    let one = callgate_call::Digest::of_json(&json!({"n": 1}));
    let bound = ask(&|request| request.input = Some(one));
    assert_eq!(
        refused(b.result(&with(Some(&bound), json!({"n": 2}))).await),
        "input mismatch"
    );
    assert_eq!(
        b.result(&with(Some(&bound), json!({"n": 1}))).await,
        Ok(json!({"n": 1}))
    );
    let old = ask(&|request| request.ttl = Some(Duration::from_secs(60)));
    b.clock.advance(Duration::from_secs(60));
    assert_eq!(
        refused(b.result(&with(Some(&old), json!({}))).await),
        "expired"
    );
    assert_eq!(b.ran(), 2);
}

/// G-5: where nothing is enforced a token is ignored and not spent; a retry by key needs no
/// second lease.
#[tokio::test]
async fn leases_that_are_not_asked_for() {
    let b = bench("unasked", Wanted::default());
    let token = b.gate.grant_lease(&any_work()).unwrap().token;
    let mut call = b.call(json!({}));
    call.lease = Some(token);
    assert_eq!(b.result(&call).await, Ok(json!({})));
    assert_eq!(b.gate.lease_totals().unwrap().spent, 0);
}

/// G-5: the recorded outcome of a leased call is told again without a lease.
#[tokio::test]
async fn a_retry_needs_no_second_lease() {
    let leases = LeasePolicy {
        local: Some(Tier::Safe),
        ..LeasePolicy::default()
    };
    let b = bench(
        "retry",
        Wanted {
            leases,
            ..Wanted::default()
        },
    );
    let mut call = b.keyed(json!({}), "k");
    call.lease = Some(b.gate.grant_lease(&any_work()).unwrap().token);
    assert_eq!(b.result(&call).await, Ok(json!({})));
    let retry = b.gate.call(&b.keyed(json!({}), "k")).await;
    assert!(retry.replayed && retry.result.is_ok());
}

/// G-6, F-7: an ask is granted by a person and good for one call with that input.
#[tokio::test]
async fn ask_and_approve() {
    let rules = vec![Rule {
        tools: vec![],
        callers: vec![],
        decision: Decision::Ask,
        approve_by_client: false,
    }];
    let b = bench(
        "ask",
        Wanted {
            rules,
            ..Wanted::default()
        },
    );
    let Err(Fault::NeedsApproval { approval }) = b.result(&b.call(json!({"n": 1}))).await else {
        panic!("an ask")
    };
    let Err(Fault::NeedsApproval { approval: again }) = b.result(&b.call(json!({"n": 1}))).await
    else {
        panic!("the same ask")
    };
    assert_eq!(approval, again);
    b.gate.decide(&approval, true, "uid:0", None).unwrap();
    let other = b.result(&b.call(json!({"n": 2}))).await;
    assert!(matches!(other, Err(Fault::NeedsApproval { .. })));
    assert_eq!(
        b.result(&b.call(json!({"n": 1}))).await,
        Ok(json!({"n": 1}))
    );
    let spent = b.result(&b.call(json!({"n": 1}))).await;
    let Err(Fault::NeedsApproval { approval }) = spent else {
        panic!("a new ask")
    };
    b.gate.decide(&approval, false, "uid:0", None).unwrap();
    assert!(matches!(
        b.result(&b.call(json!({"n": 1}))).await,
        Err(Fault::Denied { .. })
    ));
    assert_eq!(b.ran(), 1);
    assert!(b.gate.decide("nothing", true, "uid:0", None).is_err());
}

/// A tool that has no worker the first time.
fn late() -> Option<Box<Function>> {
    let tried = AtomicUsize::new(0);
    Some(Box::new(move |_: &Job<'_>| {
        if tried.fetch_add(1, Ordering::SeqCst) == 0 {
            let reason = "no worker".to_owned();
            return Err(Fault::Unavailable { reason });
        }
        Ok(Output::from_value(json!({})))
    }))
}

/// G-5, F-14: a call that got no worker ran nothing and spends no lease; one that ran does,
/// however it ended.
#[tokio::test]
async fn no_worker_spends_no_lease() {
    let b = bench(
        "no-worker-lease",
        Wanted {
            function: late(),
            leases: LeasePolicy {
                local: Some(Tier::Write),
                ..LeasePolicy::default()
            },
            ..Wanted::default()
        },
    );
    let token = b.gate.grant_lease(&any_work()).unwrap().token;
    let leased = || {
        let mut call = b.keyed(json!({}), "k");
        call.lease = Some(token.clone());
        call
    };
    let none = b.result(&leased()).await;
    assert!(matches!(none, Err(Fault::Unavailable { .. })), "{none:?}");
    assert_eq!(b.result(&leased()).await, Ok(json!({})));
    let mut other = b.call(json!({}));
    other.lease = Some(token.clone());
    assert!(matches!(
        b.result(&other).await,
        Err(Fault::LeaseRejected { .. })
    ));
    let wanted = [
        ("lease.grant", 1),
        ("lease.return", 1),
        ("lease.spend", 2),
        ("outcome", 2),
        ("refusal", 1),
        ("start", 2),
    ];
    assert_eq!(b.chain(), kinds(&wanted));
}

/// G-6: the same for an approval.
#[tokio::test]
async fn no_worker_spends_no_approval() {
    let rules = vec![Rule {
        tools: vec![],
        callers: vec![],
        approve_by_client: false,
        decision: Decision::Ask,
    }];
    let b = bench(
        "no-worker-approval",
        Wanted {
            function: late(),
            rules,
            ..Wanted::default()
        },
    );
    let Err(Fault::NeedsApproval { approval }) = b.result(&b.call(json!({}))).await else {
        panic!("an ask")
    };
    b.gate.decide(&approval, true, "uid:0", None).unwrap();
    let none = b.result(&b.call(json!({}))).await;
    assert!(matches!(none, Err(Fault::Unavailable { .. })), "{none:?}");
    assert_eq!(b.result(&b.call(json!({}))).await, Ok(json!({})));
    let spent = b.result(&b.call(json!({}))).await;
    assert!(matches!(spent, Err(Fault::NeedsApproval { .. })));
}

/// G-6f: what the caller's user answered is displayed with the input, and neither an approval nor a
/// lease for the input alone opens a call with it.
#[tokio::test]
async fn answers_are_no_part_of_an_input() {
    let asked = Rule {
        tools: vec![],
        callers: vec![],
        decision: Decision::Ask,
        approve_by_client: false,
    };
    let b = bench(
        "answers-asked",
        Wanted {
            rules: vec![asked],
            ..Wanted::default()
        },
    );
    let approval_of = |result| match result {
        Err(Fault::NeedsApproval { approval }) => approval,
        other => panic!("{other:?}"),
    };
    let one = approval_of(b.result(&b.call(json!({}))).await);
    b.gate.decide(&one, true, "uid:0", None).unwrap();
    let mut answered = b.call(json!({}));
    let mut answers = Answers::default();
    answers.responses.insert("branch".into(), json!("main"));
    answered.answers = Some(answers);
    let other = approval_of(b.result(&answered).await);
    let shown = b.gate.approval(&other).unwrap().unwrap().shown;
    let wanted = r#"{} and beside it {"answers":{"responses":{"branch":"main"},"state":null}}"#;
    assert_eq!((shown.as_str(), b.ran()), (wanted, 0));
    assert!(b.result(&b.call(json!({}))).await.is_ok());
    b.gate.decide(&other, true, "uid:0", None).unwrap();
    assert!(b.result(&answered).await.is_ok());
}
