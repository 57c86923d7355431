//! Approvals: what they are bound to, what of them the chain has, and how many may wait.

use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use callgate_call::{Caller, Digest, Tier};
use callgate_store::{
    Approval, ApprovalState, Begun, DISPLAYED_BYTES_MAX, Filter, Options, PENDING_MAX,
    PENDING_OF_CALLER_MAX, Start, Store, StoreError,
};

fn ask(store: &Store, caller: &Caller, shown: &str) -> Result<Approval, StoreError> {
    store.ask(caller, "files/write", input("x"), Tier::Write, shown)
}

fn needs<'a>(call: u128, caller: &'a Caller, shown: &str) -> Start<'a> {
    Start {
        displayed: Some(input(shown)),
        ..start(call, None, caller)
    }
}

/// G-6d: a decision is on the input and on what was displayed of it. Neither another text of the
/// same input is permitted by it, nor can another text be decided on; the chain has both digests.
#[test]
fn a_decision_is_on_what_was_displayed() {
    let folder = Folder::new("displayed");
    let (store, me) = (open(&folder), me());
    let [one, other] = ["{\"n\":1}", "{\"n\":1.0}"].map(|shown| ask(&store, &me, shown).unwrap());
    assert_ne!(one.id, other.id);
    assert_eq!(one.displayed, Some(input("{\"n\":1}")));
    let wrong = store.decide(&one.id, true, "uid:0", other.displayed.as_ref());
    assert!(
        matches!(wrong, Err(StoreError::Refused { .. })),
        "{wrong:?}"
    );
    store
        .decide(&one.id, true, "uid:0", one.displayed.as_ref())
        .unwrap();

    let Begun::NotApproved(Some(latest)) = store.begin(needs(1, &me, "{\"n\":1.0}")).unwrap()
    else {
        panic!("another text was approved")
    };
    assert_eq!(
        (latest.id, latest.state),
        (other.id, ApprovalState::Pending)
    );
    let unseen = store.begin(needs(2, &me, "{}")).unwrap();
    assert_eq!(unseen, Begun::NotApproved(None));
    let _ = begun(&store, needs(3, &me, "{\"n\":1}"));
    let mut told = Vec::new();
    store
        .show(&Filter::default(), &mut |record| {
            let body: serde_json::Value = serde_json::from_str(record.body).unwrap();
            if ["approval.ask", "approval.grant"].contains(&body["kind"].as_str().unwrap()) {
                told.push([body["input"].clone(), body["displayed"].clone()]);
            }
            true
        })
        .unwrap();
    let hex = |digest: Digest| serde_json::Value::from(digest.to_hex());
    let digests = |shown| [input("x"), input(shown)].map(hex);
    let one = digests("{\"n\":1}");
    assert_eq!(told, [one.clone(), digests("{\"n\":1.0}"), one]);
    assert_good(&store);
}

/// G-6d: as much as a person is shown is kept as it is; more is refused.
#[test]
fn all_of_an_input_is_kept() {
    let folder = Folder::new("kept");
    let (store, me) = (open(&folder), me());
    let longest = "\"".repeat(DISPLAYED_BYTES_MAX);
    let asked = ask(&store, &me, &longest).unwrap();
    assert!(asked.is_whole && asked.shown == longest);
    let more = ask(&store, &me, &format!("{longest}x"));
    assert!(matches!(more, Err(StoreError::TooLarge { .. })), "{more:?}");
    store.close().unwrap();
    drop(store);
    let store = open(&folder);
    assert_eq!(store.approval(&asked.id).unwrap().unwrap().shown, longest);
    assert_good(&store);
}

/// G-6e: at the bound of a caller and of all, also after a restart and for another process; room is
/// made by a decision and by time.
#[test]
fn pending_approvals_are_bounded() {
    let folder = Folder::new("bounded");
    let clock = clock();
    let me = me();
    let full = |asked: Result<Approval, StoreError>, bound| {
        assert!(
            matches!(asked, Err(StoreError::ManyApprovals { max, .. }) if max == bound),
            "{asked:?}"
        );
    };
    let store = open_with(&folder, Options::default(), &clock);
    let mine: Vec<Approval> = (0..PENDING_OF_CALLER_MAX)
        .map(|n| ask(&store, &me, &n.to_string()).unwrap())
        .collect();
    full(ask(&store, &me, "more"), PENDING_OF_CALLER_MAX);
    // One that waits already takes no room.
    assert_eq!(ask(&store, &me, "0").unwrap(), mine[0]);
    store.close().unwrap();
    drop(store);

    let store = Arc::new(open_with(&folder, Options::default(), &clock));
    let other = open_with(&folder, Options::default(), &clock);
    full(ask(&other, &me, "more"), PENDING_OF_CALLER_MAX);
    other.decide(&mine[1].id, false, "uid:0", None).unwrap();
    ask(&store, &me, "more").unwrap();
    full(ask(&other, &me, "still more"), PENDING_OF_CALLER_MAX);

    let callers = (PENDING_MAX / PENDING_OF_CALLER_MAX) - 1;
    for uid in 0..u32::try_from(callers).unwrap() {
        let caller = Caller::uid(2000 + uid);
        for n in 0..PENDING_OF_CALLER_MAX {
            ask(&store, &caller, &n.to_string()).unwrap();
        }
    }
    full(ask(&store, &Caller::uid(9), "x"), PENDING_MAX);
    full(ask(&other, &Caller::uid(9), "x"), PENDING_MAX);
    clock.advance(Duration::from_secs(24 * 3600));
    ask(&other, &Caller::uid(9), "x").unwrap();
    ask(&store, &me, "after a day").unwrap();
    assert_good(&store);
}
