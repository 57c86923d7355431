//! Leases and approvals: granted, spent once, refused for the right reason.

use std::sync::Mutex;
use std::time::Duration;

use crate::common::*;
use callgate_call::{CallId, Caller, LeaseRefusal, LeaseToken, Tier};
use callgate_store::{
    ApprovalState, Begun, End, Finish, Health, KeyId, LEASE_LIFE_MAX, LeaseGrant, LeaseState,
    Options, Seen, Start, Store, StoreError, Tuning,
};

fn grant<'a>() -> LeaseGrant<'a> {
    LeaseGrant {
        tool: "files/write",
        tier: Tier::Write,
        life: Duration::from_secs(60),
        caller: None,
        input: None,
    }
}

fn refused(store: &Store, start: Start<'_>) -> LeaseRefusal {
    match store.begin(start).unwrap() {
        Begun::LeaseRefused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// T-4: the token is `lease_` and 32 lower-case hex digits, and is kept nowhere. G-5.
#[test]
fn only_the_hash_of_a_token_is_kept() {
    let folder = Folder::new("token");
    let store = open(&folder);
    let (id, token) = store.grant_lease(grant()).unwrap();
    let digits = token.reveal().strip_prefix("lease_").unwrap();
    assert!(digits.len() == 32 && digits.bytes().all(|b| b"0123456789abcdef".contains(&b)));
    store.close().unwrap();
    assert_eq!(store.leases().unwrap()[0].id, id);
    let bytes = std::fs::read(folder.segment(1)).unwrap();
    assert!(!bytes.windows(32).any(|window| window == digits.as_bytes()));
    let long = LeaseGrant {
        life: LEASE_LIFE_MAX + Duration::from_millis(1),
        ..grant()
    };
    assert!(matches!(
        store.grant_lease(long),
        Err(StoreError::Refused { .. })
    ));
}

/// T-5: every reason, in its order; a refused lease is not burnt and claims no key. G-5.
#[test]
fn leases_are_refused_for_the_right_reason() {
    let folder = Folder::new("refusals");
    let clock = clock();
    let store = open_with(&folder, Options::default(), &clock);
    let me = me();
    let other = Caller::uid(7);
    let k = Some(key("a"));
    let none = LeaseToken::new("lease_0");
    let unknown = with_lease(start(1, k, &me), &none);
    assert_eq!(refused(&store, unknown), LeaseRefusal::NotFound);

    let bound = LeaseGrant {
        caller: Some(&me),
        input: Some(input("x")),
        ..grant()
    };
    let (_, token) = store.grant_lease(bound).unwrap();
    let good = with_lease(start(2, k, &me), &token);
    let cases = [
        (
            Start {
                tool: "files/read",
                aid: "AID.FILES.READ.v1",
                ..good
            },
            "tool mismatch",
        ),
        (
            Start {
                tier: Tier::System,
                ..good
            },
            "tier too low",
        ),
        (
            Start {
                caller: &other,
                ..good
            },
            "caller mismatch",
        ),
        (
            Start {
                input: input("y"),
                ..good
            },
            "input mismatch",
        ),
        (
            Start {
                brings_more: true,
                ..good
            },
            "input mismatch",
        ),
    ];
    for (start, reason) in cases {
        let refusal = refused(&store, start);
        assert_eq!(refusal.as_str(), reason);
        assert!(refusal.details().is_some());
        assert_eq!(peek(&store, key("a")), Seen::New, "no key is claimed");
    }
    let tier = refused(
        &store,
        Start {
            tier: Tier::System,
            ..good
        },
    );
    assert_eq!(
        tier,
        LeaseRefusal::TierTooLow {
            expected: 2,
            got: 1
        }
    );

    let started = begun(&store, good);
    assert!(started.lease.is_some());
    assert_eq!(kinds(&store), ["lease.grant", "lease.spend", "start"]);
    let spent = with_lease(start(3, Some(key("b")), &me), &token);
    assert_eq!(refused(&store, spent), LeaseRefusal::AlreadyConsumed);
    settle(&store, store.finish(finish(2, k, "{}")).unwrap());
    let retry = store.begin(with_lease(start(4, k, &me), &token)).unwrap();
    assert!(
        matches!(retry, Begun::Seen(Seen::Finished(_))),
        "a retry needs no second lease"
    );

    let (id, token) = store.grant_lease(grant()).unwrap();
    let revoked = store.revoke_lease(&id.0).unwrap();
    assert!(matches!(revoked.state, LeaseState::Revoked { .. }));
    let gone = with_lease(start(5, None, &me), &token);
    assert_eq!(refused(&store, gone), LeaseRefusal::NotFound);
    let (_, token) = store
        .grant_lease(LeaseGrant {
            tool: "AID.FILES.WRITE.v1",
            ..grant()
        })
        .unwrap();
    let _ = begun(&store, with_lease(start(6, None, &me), &token));
    assert!(matches!(
        store.revoke_lease("nothing"),
        Err(StoreError::NotFound { .. })
    ));
    let counts = store.lease_counts().unwrap();
    assert_eq!((counts.active, counts.spent, counts.revoked), (0, 2, 1));
    assert_good(&store);
}

/// T-5: a lease is good below its end, not at it, and says `expired` for an hour at least,
/// folded or not.
#[test]
fn leases_expire_at_their_edge() {
    let folder = Folder::new("expiry");
    let clock = clock();
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options, &clock);
    let me = me();
    let (_, a) = store.grant_lease(grant()).unwrap();
    let (_, b) = store.grant_lease(grant()).unwrap();
    let (_, c) = store.grant_lease(grant()).unwrap();
    clock.advance(Duration::from_millis(59_999));
    let _ = begun(&store, with_lease(start(1, None, &me), &a));
    clock.advance(Duration::from_millis(1));
    assert_eq!(
        refused(&store, with_lease(start(2, None, &me), &b)),
        LeaseRefusal::Expired
    );
    assert_eq!(
        refused(&store, with_lease(start(2, None, &me), &a)),
        LeaseRefusal::Expired
    );
    clock.advance(Duration::from_secs(3600));
    assert_eq!(
        refused(&store, with_lease(start(3, None, &me), &c)),
        LeaseRefusal::Expired
    );
    store.close().unwrap();
    assert_eq!(
        refused(&store, with_lease(start(3, None, &me), &c)),
        LeaseRefusal::Expired
    );
    assert_eq!(store.lease_counts().unwrap().expired, 2);
    clock.advance(Duration::from_secs(48 * 3600));
    let _ = store.record_pure(start(4, None, &me), finish(4, None, "{}"));
    store.close().unwrap();
    assert_eq!(store.leases().unwrap(), []);
}

/// D-2, G-5, T-5: 64 callers in 8 stores, and every lease is spent exactly once.
#[test]
fn a_lease_is_spent_once() {
    let folder = Folder::new("spent");
    let granter = open(&folder);
    let leases: Vec<LeaseToken> = (0..16)
        .map(|_| granter.grant_lease(grant()).unwrap().1)
        .collect();
    let spent = Mutex::new(vec![0; leases.len()]);
    std::thread::scope(|scope| {
        for group in 0..8_u128 {
            let store = std::sync::Arc::new(open(&folder));
            for thread in 0..8_u128 {
                let (store, leases, spent) = (std::sync::Arc::clone(&store), &leases, &spent);
                scope.spawn(move || {
                    let me = me();
                    for (index, token) in leases.iter().enumerate() {
                        let call = group * 10_000 + thread * 100 + index as u128;
                        match store
                            .begin(with_lease(start(call, None, &me), token))
                            .unwrap()
                        {
                            Begun::Started(_) => spent.lock().unwrap()[index] += 1,
                            Begun::LeaseRefused(LeaseRefusal::AlreadyConsumed) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                });
            }
        }
    });
    assert_eq!(spent.into_inner().unwrap(), vec![1; leases.len()]);
    assert_eq!(assert_good(&granter), 16 * 3);
    assert_eq!(granter.lease_counts().unwrap().spent, 16);
}

/// G-6: an approval is asked once, decided once, spent once, and bound to what was asked.
#[test]
fn approvals_are_spent_once() {
    let folder = Folder::new("approvals");
    let clock = clock();
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options, &clock);
    let me = me();
    let needs = |call| Start {
        displayed: Some(input("{}")),
        ..start(call, None, &me)
    };
    assert_eq!(store.begin(needs(1)).unwrap(), Begun::NotApproved(None));
    let ask = || {
        store
            .ask(&me, "files/write", input("x"), Tier::Write, "{}")
            .unwrap()
    };
    let asked = ask();
    assert_eq!(asked.state, ApprovalState::Pending);
    assert_eq!(ask(), asked, "asked once");
    assert_eq!(
        store.begin(needs(1)).unwrap(),
        Begun::NotApproved(Some(asked.clone()))
    );
    let granted = store.decide(&asked.id, true, "uid:0", None).unwrap();
    assert!(matches!(
        store.decide(&asked.id, false, "x", None),
        Err(StoreError::Refused { .. })
    ));
    store.close().unwrap();
    assert_eq!(store.approvals().unwrap(), [granted]);
    let other = Start {
        input: input("y"),
        ..needs(2)
    };
    assert_eq!(store.begin(other).unwrap(), Begun::NotApproved(None));
    let _ = begun(&store, needs(3));
    let spent = store.approval(&asked.id).unwrap().unwrap();
    assert!(matches!(
        spent.state,
        ApprovalState::Spent {
            call: CallId(3),
            ..
        }
    ));
    assert_eq!(
        store.begin(needs(4)).unwrap(),
        Begun::NotApproved(Some(spent))
    );

    let second = ask();
    assert_ne!(second.id, asked.id);
    store.decide(&second.id, false, "uid:0", None).unwrap();
    let Begun::NotApproved(Some(latest)) = store.begin(needs(5)).unwrap() else {
        panic!()
    };
    assert!(matches!(latest.state, ApprovalState::Denied { .. }));
    let third = ask();
    store.decide(&third.id, true, "uid:0", None).unwrap();
    clock.advance(Duration::from_secs(24 * 3600));
    let Begun::NotApproved(Some(latest)) = store.begin(needs(6)).unwrap() else {
        panic!()
    };
    assert_eq!(latest.state, ApprovalState::Expired);
    assert_eq!(
        kinds(&store)[..4],
        ["approval.ask", "approval.grant", "approval.spend", "start"]
    );
    assert_good(&store);
}

/// A call that ended without having been run.
fn unrun(call: u128, key: Option<KeyId>) -> Finish<'static> {
    static NOTHING: std::sync::LazyLock<serde_json::Value> =
        std::sync::LazyLock::new(Default::default);
    Finish {
        end: End::Fault {
            kind: "unavailable",
            message: "no worker",
            data: &NOTHING,
        },
        health: Health::Silent,
        ..finish(call, key, "")
    }
}

/// G-5: a call that ran nothing gives its lease back with its end, and its key with it; nobody
/// else's call does, and a lease revoked meanwhile stays revoked.
#[test]
fn a_lease_is_given_back_by_the_call_that_ran_nothing() {
    let folder = Folder::new("give-back");
    let store = open(&folder);
    let me = me();
    let (id, token) = store.grant_lease(grant()).unwrap();
    let with = |call, key| with_lease(start(call, key, &me), &token);
    let k = Some(key("a"));
    let _ = begun(&store, with(1, k));
    assert_eq!(
        refused(&store, with(2, None)),
        LeaseRefusal::AlreadyConsumed,
        "while the first call is under way"
    );
    settle(&store, store.finish_unrun(with(2, None), unrun(2, None)));
    assert_eq!(
        refused(&store, with(3, None)),
        LeaseRefusal::AlreadyConsumed,
        "another call gives nothing back"
    );
    let before = kinds(&store).len();
    settle(&store, store.finish_unrun(with(1, k), unrun(1, k)));
    assert_eq!(kinds(&store)[before..], ["lease.return", "outcome"]);
    assert_eq!(peek(&store, key("a")), Seen::New);
    // Another process sees it as well, and one of the two gets it.
    let other = open(&folder);
    let _ = begun(&other, with(4, k));
    assert_eq!(
        refused(&store, with(5, None)),
        LeaseRefusal::AlreadyConsumed
    );
    let spent = store.revoke_lease(&id.0).unwrap();
    assert!(matches!(spent.state, LeaseState::Spent { .. }));
    assert_eq!(
        refused(&store, with(5, None)),
        LeaseRefusal::AlreadyConsumed
    );
    settle(&other, other.finish_unrun(with(4, k), unrun(4, k)));
    assert_eq!(refused(&store, with(6, None)), LeaseRefusal::NotFound);
    assert_good(&store);
}

/// G-5: killed between start and end is spent, for there is no end that says otherwise.
#[test]
fn a_lease_without_an_end_stays_spent() {
    let folder = Folder::new("no-end");
    let me = me();
    let store = open(&folder);
    let (_, token) = store.grant_lease(grant()).unwrap();
    let _ = begun(&store, with_lease(start(1, None, &me), &token));
    drop(store);
    assert_eq!(
        refused(&open(&folder), with_lease(start(2, None, &me), &token)),
        LeaseRefusal::AlreadyConsumed
    );
}

/// G-6: the same for approvals. An ask that was made meanwhile comes before one that is given
/// back, so that a later no is not got around.
#[test]
fn an_approval_is_given_back_by_the_call_that_ran_nothing() {
    let folder = Folder::new("give-back-approval");
    let store = open(&folder);
    let me = me();
    let needs = |call| Start {
        displayed: Some(input("x")),
        ..start(call, None, &me)
    };
    let ask = || {
        store
            .ask(&me, "files/write", input("x"), Tier::Write, "x")
            .unwrap()
    };
    let asked = ask();
    store.decide(&asked.id, true, "uid:0", None).unwrap();
    let _ = begun(&store, needs(1));
    assert!(matches!(
        store.begin(needs(2)).unwrap(),
        Begun::NotApproved(_)
    ));
    settle(&store, store.finish_unrun(needs(1), unrun(1, None)));
    let kinds_now = kinds(&store);
    assert_eq!(
        kinds_now[kinds_now.len() - 2..],
        ["approval.return", "outcome"]
    );
    let _ = begun(&store, needs(3));
    let second = ask();
    assert_ne!(second.id, asked.id);
    store.decide(&second.id, false, "uid:0", None).unwrap();
    settle(&store, store.finish_unrun(needs(3), unrun(3, None)));
    let Begun::NotApproved(Some(latest)) = store.begin(needs(4)).unwrap() else {
        panic!()
    };
    assert!(matches!(latest.state, ApprovalState::Denied { .. }));
    assert_good(&store);
}
