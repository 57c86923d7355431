//! Idempotency keys: what they say, in one process and between several.

use std::time::Duration;

use crate::common::*;
use callgate_call::{CallId, Digest};
use callgate_store::{
    Begun, End, Finish, Health, Options, Recorded, RecordedFault, Replay, Seen, Start, Store,
    StoreError, Tuning, View,
};
use serde_json::json;

/// G-3: a key is bound to its input, in flight it says so, finished it replays.
#[test]
fn a_key_tells_its_story() {
    let folder = Folder::new("keys");
    let store = open(&folder);
    let me = me();
    assert_eq!(peek(&store, key("a")), Seen::New);
    let _ = begun(&store, start(1, Some(key("a")), &me));
    assert!(matches!(
        peek(&store, key("a")),
        Seen::InFlight {
            call: CallId(1),
            ..
        }
    ));
    let other = store
        .peek(&key("a"), "files/write", &input("y"), View::Full)
        .unwrap();
    assert_eq!(other, Seen::Conflict { call: CallId(1) });
    let again = store.begin(start(2, Some(key("a")), &me)).unwrap();
    assert!(matches!(
        again,
        Begun::Seen(Seen::InFlight {
            call: CallId(1),
            ..
        })
    ));

    let ticket = store
        .finish(finish(1, Some(key("a")), "{\"n\":1}"))
        .unwrap();
    assert_eq!(
        replay(&store, key("a")),
        "{\"n\":1}",
        "before it is written"
    );
    settle(&store, ticket);
    assert_eq!(replay(&store, key("a")), "{\"n\":1}", "after");
    let reopened = open(&folder);
    assert_eq!(replay(&reopened, key("a")), "{\"n\":1}");
    let other = reopened.begin(Start {
        input: input("y"),
        ..start(3, Some(key("a")), &me)
    });
    assert_eq!(
        other.unwrap(),
        Begun::Seen(Seen::Conflict { call: CallId(1) })
    );
    let ticket = reopened.replayed(Replay {
        call: CallId(4),
        earlier: CallId(1),
        tool: "files/write",
        caller: &me,
        wire: "gate",
        input: input("x"),
        key: key("a"),
        trace_id: Some("t\"1"),
    });
    settle(&reopened, ticket);
    assert_eq!(kinds(&reopened), ["start", "outcome", "replay"]);
    assert_eq!(assert_good(&store), 3);
}

/// D-11, G-3: a pure call is one record, which says what `start` and `outcome` say and claims and
/// ends its key, pending, written and folded alike.
#[test]
fn a_pure_call_is_one_record() {
    let folder = Folder::new("pure");
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options.clone(), &clock());
    let me = me();
    let started = Start {
        trace_id: Some("t1"),
        ..start(1, Some(key("a")), &me)
    };
    let ended = Finish {
        trace_id: Some("t1"),
        ..finish(1, Some(key("a")), "{\"n\":1}")
    };
    let ticket = store.record_pure(started, ended);
    assert_eq!(replay(&store, key("a")), "{\"n\":1}", "pending");
    settle(&store, ticket);
    assert_eq!(replay(&open(&folder), key("a")), "{\"n\":1}", "written");
    store.close().unwrap();
    assert_eq!(store.stats().folds, 1);
    for store in [&store, &open_with(&folder, options, &clock())] {
        assert_eq!(replay(store, key("a")), "{\"n\":1}", "folded");
        let other = store
            .peek(&key("a"), "files/write", &input("y"), View::Full)
            .unwrap();
        assert_eq!(other, Seen::Conflict { call: CallId(1) });
    }
    let _ = begun(&store, start(2, Some(key("b")), &me));
    settle(
        &store,
        store.finish(finish(2, Some(key("b")), "2")).unwrap(),
    );
    let mut records: Vec<serde_json::Map<String, serde_json::Value>> = Vec::new();
    store
        .show(&Default::default(), &mut |record| {
            records.push(serde_json::from_str(record.body).unwrap());
            true
        })
        .unwrap();
    let [call, start, outcome] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(
        (&call["kind"], &call["trace"]),
        (&json!("call"), &json!("t1"))
    );
    for name in start.keys().chain(outcome.keys()) {
        assert!(call.contains_key(name), "{name} is in no `call`");
    }
    assert_good(&store);
}

/// D-11, G-3: a pure call ends an unfinished run of its key, and only then is one fewer counted.
#[test]
fn a_pure_call_counts_unfinished_keys() {
    let folder = Folder::new("pure-counts");
    let options = Options {
        keys_max: 2,
        ..Options::default()
    };
    let me = me();
    let dies = open_with(&folder, options.clone(), &clock());
    let _ = begun(&dies, start(1, Some(key("dead")), &me));
    drop(dies);
    let store = open_with(&folder, options, &clock());
    let _ = begun(&store, start(2, Some(key("lives")), &me));
    let pure = |call, name: &str| {
        let key = Some(key(name));
        settle(
            &store,
            store.record_pure(start(call, key, &me), finish(call, key, "{}")),
        );
    };
    let begin = |call| store.begin(start(call, Some(key("new")), &me)).unwrap();
    pure(3, "fresh");
    assert_eq!(begin(4), Begun::Full);
    assert_eq!(peek(&store, key("dead")), Seen::Unknown { call: CallId(1) });
    pure(5, "dead");
    assert_eq!(replay(&store, key("dead")), "{}");
    assert!(matches!(begin(6), Begun::Started(_)));
    assert_good(&store);
}

/// D-11, T-19: a large output of a pure call is kept beside the journal; where it can not be kept
/// the call is recorded and its key stays free.
#[test]
fn a_pure_call_with_a_large_output() {
    let folder = Folder::new("pure-large");
    let store = open(&folder);
    let me = me();
    let text = format!("\"{}\"", "x".repeat(5_000_000));
    let pure = |call, name: &str| {
        let key = Some(key(name));
        settle(
            &store,
            store.record_pure(start(call, key, &me), finish(call, key, &text)),
        );
    };
    pure(1, "a");
    assert!(replay(&open(&folder), key("a")) == text);
    let blobs = folder.0.join("blobs");
    std::fs::remove_dir_all(&blobs).unwrap();
    std::fs::write(&blobs, "").unwrap();
    pure(2, "b");
    assert_eq!(peek(&store, key("b")), Seen::New);
    assert_eq!(kinds(&store), ["call", "call"]);
}

/// G-3, T-7: finished tool errors are replayed, with their data.
#[test]
fn faults_are_replayed() {
    let folder = Folder::new("faults");
    let store = open(&folder);
    let _ = begun(&store, start(1, Some(key("a")), &me()));
    let data = json!({ "type": "ValueError" });
    let end = End::Fault {
        kind: "tool_failed",
        message: "no\n",
        data: &data,
    };
    let ended = Finish {
        end,
        health: Health::Works,
        ..finish(1, Some(key("a")), "")
    };
    settle(&store, store.finish(ended).unwrap());
    let fault = RecordedFault {
        kind: "tool_failed".into(),
        message: "no\n".into(),
        data: data.clone(),
    };
    let wanted = Seen::Finished(Recorded {
        slots: None,
        call: CallId(1),
        result: Err(fault),
    });
    assert_eq!(peek(&open(&folder), key("a")), wanted);
    assert_good(&store);
}

/// G-3: a call that did not run after all leaves its key free, before and after a fold.
#[test]
fn a_key_can_be_set_free() {
    let folder = Folder::new("free");
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options.clone(), &clock());
    for call in 1..3 {
        let _ = begun(&store, start(call, Some(key("a")), &me()));
        let ended = Finish {
            keep: false,
            ..finish(call, Some(key("a")), "{}")
        };
        let ticket = store.finish(ended).unwrap();
        assert_eq!(peek(&store, key("a")), Seen::New);
        settle(&store, ticket);
        assert_eq!(peek(&open(&folder), key("a")), Seen::New);
        store.close().unwrap();
        assert_eq!(peek(&store, key("a")), Seen::New);
        assert_eq!(
            peek(&open_with(&folder, options.clone(), &clock()), key("a")),
            Seen::New
        );
    }
}

/// G-4, G-3: a started call becomes unknown when its owner is gone, and only then; the record
/// is made once; an idempotent tool may run again.
#[test]
fn a_dead_owner_leaves_the_outcome_unknown() {
    let folder = Folder::new("dead");
    let (a, b) = (open(&folder), open(&folder));
    let _ = begun(&a, start(1, Some(key("a")), &me()));
    let Seen::InFlight { owner, .. } = peek(&b, key("a")) else {
        panic!()
    };
    assert!(b.owner_alive(owner) && a.owner_alive(owner));
    drop(a);
    assert!(!b.owner_alive(owner));
    let unknown = Seen::Unknown { call: CallId(1) };
    assert_eq!(peek(&b, key("a")), unknown);
    assert_eq!(peek(&open(&folder), key("a")), unknown);
    let begun_again = b.begin(start(2, Some(key("a")), &me())).unwrap();
    assert_eq!(begun_again, Begun::Seen(unknown));
    assert_eq!(kinds(&b), ["start", "unknown"]);
    let conflict = b
        .peek(&key("a"), "files/write", &input("y"), View::TOOLHOST)
        .unwrap();
    assert_eq!(conflict, Seen::Conflict { call: CallId(1) });

    let me = me();
    let idempotent = Start {
        idempotent: true,
        ..start(3, Some(key("a")), &me)
    };
    assert_eq!(begun(&b, idempotent).again, Some(CallId(1)));
    settle(&b, b.finish(finish(3, Some(key("a")), "{}")).unwrap());
    assert_eq!(replay(&open(&folder), key("a")), "{}");
    assert_good(&b);
}

/// G-3, T-7: unknown lasts 24 h in every view, the toolhost's too.
#[test]
fn unknown_lasts_a_day() {
    let folder = Folder::new("unknown");
    let clock = clock();
    let a = open_with(&folder, Options::default(), &clock);
    let _ = begun(&a, start(1, Some(key("a")), &me()));
    drop(a);
    let b = open_with(&folder, Options::default(), &clock);
    let look = |store: &Store| {
        store
            .peek(&key("a"), "files/write", &input("x"), View::TOOLHOST)
            .unwrap()
    };
    assert_eq!(look(&b), Seen::Unknown { call: CallId(1) });
    clock.advance(Duration::from_secs(61));
    assert_eq!(look(&b), Seen::Unknown { call: CallId(1) });
    clock.advance(Duration::from_millis(24 * 3_600_000 - 61_001));
    assert_eq!(look(&b), Seen::Unknown { call: CallId(1) });
    clock.advance(Duration::from_millis(1));
    assert_eq!(look(&b), Seen::New);
    let _ = begun(&b, start(2, Some(key("a")), &me()));
}

/// T-7: 60 000 ms, at, below and past the edge; the full view still has the entry.
#[test]
fn the_toolhost_sees_a_minute() {
    let folder = Folder::new("minute");
    let clock = clock();
    let store = open_with(&folder, Options::default(), &clock);
    let host = |start: Start<'static>| Start {
        view: View::TOOLHOST,
        ..start
    };
    let me: &'static callgate_call::Caller = Box::leak(Box::new(me()));
    let _ = begun(&store, host(start(1, Some(key("a")), me)));
    let ended = Finish {
        view: View::TOOLHOST,
        ..finish(1, Some(key("a")), "1")
    };
    settle(&store, store.finish(ended).unwrap());
    for (ms, seen) in [(59_999, true), (1, false), (1, false)] {
        clock.advance(Duration::from_millis(ms));
        for store in [&store, &open_with(&folder, Options::default(), &clock)] {
            let found = store
                .peek(&key("a"), "files/write", &input("x"), View::TOOLHOST)
                .unwrap();
            assert_eq!(matches!(found, Seen::Finished(_)), seen, "{found:?}");
            assert_eq!(replay(store, key("a")), "1");
        }
    }
    let _ = begun(&store, host(start(2, Some(key("a")), me)));
    let ended = Finish {
        view: View::TOOLHOST,
        ..finish(2, Some(key("a")), "2")
    };
    settle(&store, store.finish(ended).unwrap());
    assert_eq!(replay(&store, key("a")), "2", "overwritten");
}

/// T-7: 1024 entries, the oldest leaves first; entries by other wires do not push them out.
#[test]
fn the_toolhost_sees_1024_entries() {
    let folder = Folder::new("entries");
    let store = open(&folder);
    let host = |n: u32| {
        let key = key(&n.to_string());
        let me = me();
        let _ = begun(
            &store,
            Start {
                view: View::TOOLHOST,
                ..start(n.into(), Some(key), &me)
            },
        );
        store
            .finish(Finish {
                view: View::TOOLHOST,
                ..finish(n.into(), Some(key), "1")
            })
            .unwrap()
    };
    let seen = |store: &Store, n: u32| {
        let seen = store
            .peek(
                &key(&n.to_string()),
                "files/write",
                &input("x"),
                View::TOOLHOST,
            )
            .unwrap();
        matches!(seen, Seen::Finished(_))
    };
    for n in 0..1023 {
        host(n);
    }
    run(&store, 5000, key("by another wire"), "{}");
    assert!(seen(&store, 0));
    let ticket = host(1023);
    assert!(seen(&store, 0), "the 1024th newest, pending");
    settle(&store, ticket);
    assert!(seen(&store, 0) && seen(&open(&folder), 0), "and written");
    let ticket = host(1024);
    assert!(!seen(&store, 0) && seen(&store, 1), "pending");
    settle(&store, ticket);
    for store in [&store, &open(&folder)] {
        assert!(!seen(store, 0) && seen(store, 1) && seen(store, 1024));
        assert_eq!(replay(store, key("0")), "1", "still in the full view");
    }
}

/// G-3: a finished key is kept for its life, at, below and past the edge.
#[test]
fn finished_keys_expire() {
    let folder = Folder::new("expire");
    let clock = clock();
    let store = open_with(&folder, Options::default(), &clock);
    settle(&store, run(&store, 1, key("a"), "1"));
    clock.advance(Duration::from_millis(24 * 3_600_000 - 1));
    assert_eq!(replay(&store, key("a")), "1");
    clock.advance(Duration::from_millis(1));
    assert_eq!(peek(&store, key("a")), Seen::New);
    settle(&store, run(&store, 2, key("a"), "2"));
    assert_eq!(replay(&store, key("a")), "2");
}

/// G-3: unfinished keys never leave by count; at the bound the new call is refused.
#[test]
fn unfinished_keys_are_bounded() {
    let folder = Folder::new("bound");
    let options = Options {
        keys_max: 3,
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = open_with(&folder, options, &clock());
    for n in 0..3 {
        let _ = begun(&store, start(n, Some(key(&n.to_string())), &me()));
    }
    assert_eq!(
        store.begin(start(9, Some(key("new")), &me())).unwrap(),
        Begun::Full
    );
    store.close().unwrap();
    assert_eq!(
        store.begin(start(9, Some(key("new")), &me())).unwrap(),
        Begun::Full
    );
    assert!(matches!(peek(&store, key("0")), Seen::InFlight { .. }));
    settle(
        &store,
        store.finish(finish(1, Some(key("1")), "1")).unwrap(),
    );
    let _ = begun(&store, start(9, Some(key("new")), &me()));
    assert_eq!(
        store.begin(start(10, Some(key("newer")), &me())).unwrap(),
        Begun::Full
    );
    assert_eq!(assert_good(&store), 5);
}

/// D-2, G-3: several stores on one folder claim each key exactly once.
#[test]
fn keys_are_claimed_once() {
    let folder = Folder::new("race");
    let claims: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_u128)
            .map(|thread| {
                let folder = &folder;
                scope.spawn(move || {
                    let store = open(folder);
                    let me = me();
                    let mut claims = 0;
                    for n in 0..64_u128 {
                        let key = key(&n.to_string());
                        let call = thread * 1000 + n;
                        if let Begun::Started(_) = store.begin(start(call, Some(key), &me)).unwrap()
                        {
                            claims += 1;
                            let ticket = store.finish(finish(call, Some(key), "{}")).unwrap();
                            settle(&store, ticket);
                        }
                    }
                    claims
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(claims, 64);
    assert_eq!(assert_good(&open(&folder)), 128);
}

/// G-3: who waits for a call gets its end, in this process and from another.
#[tokio::test]
async fn waiting_for_a_call_in_flight() {
    let folder = Folder::new("wait");
    let (a, b) = (open(&folder), open(&folder));
    let minute = Duration::from_secs(60);
    let _ = begun(&a, start(1, Some(key("a")), &me()));
    let short = Duration::from_millis(20);
    let seen = b
        .wait_finished(&key("a"), "files/write", &input("x"), View::Full, short)
        .await
        .unwrap();
    assert!(matches!(seen, Seen::InFlight { .. }));
    let key_a = key("a");
    let digest = input("x");
    let here = a.wait_finished(&key_a, "files/write", &digest, View::Full, minute);
    let there = b.wait_finished(&key_a, "files/write", &digest, View::Full, minute);
    let ends = async {
        tokio::task::yield_now().await;
        let ticket = a.finish(finish(1, Some(key_a), "7")).unwrap();
        a.settle(ticket).await.unwrap();
    };
    let (here, there, ()) = tokio::join!(here, there, ends);
    let wanted = Seen::Finished(Recorded {
        slots: None,
        call: CallId(1),
        result: Ok("7".into()),
    });
    assert_eq!((here.unwrap(), there.unwrap()), (wanted.clone(), wanted));

    let _ = begun(&a, start(2, Some(key("dies")), &me()));
    let key_dies = key("dies");
    let waits = b.wait_finished(&key_dies, "files/write", &digest, View::Full, minute);
    let dies = async move { drop(a) };
    let (seen, ()) = tokio::join!(waits, dies);
    assert_eq!(seen.unwrap(), Seen::Unknown { call: CallId(2) });
}

/// T-19: outputs above 1 MiB are kept beside the journal and replayed whole.
#[test]
fn large_outputs_are_replayed() {
    let folder = Folder::new("large");
    let store = open(&folder);
    for (n, bytes) in [1_048_575, 1_048_576, 1_048_577, 5_000_000]
        .into_iter()
        .enumerate()
    {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        let key = key(&n.to_string());
        settle(&store, run(&store, n as u128, key, &text));
        assert!(replay(&open(&folder), key) == text);
    }
    let blobs = std::fs::read_dir(folder.0.join("blobs")).unwrap().count();
    assert_eq!(blobs, 2);
    assert_eq!(assert_good(&store), 8);
    store.close().unwrap();
    let text = format!("\"{}\"", "x".repeat(4_999_998));
    std::fs::write(
        folder
            .0
            .join("blobs")
            .join(Digest::of_bytes(text.as_bytes()).to_hex()),
        text.replacen('x', "y", 1),
    )
    .unwrap();
    assert_eq!(
        store.verify().unwrap().bad.unwrap().seq,
        8,
        "a changed blob is found"
    );
}

/// T-12, G-3: an output that cannot be kept is told, and the key is finished all the same: it
/// replays a fault, and the tool does not run a second time.
#[test]
fn an_output_that_cannot_be_kept_ends_its_call() {
    let folder = Folder::new("unkept");
    let store = open(&folder);
    let other = open(&folder);
    let me = me();
    let blobs = folder.0.join("blobs");
    std::fs::remove_dir(&blobs).unwrap();
    std::fs::write(&blobs, "").unwrap();
    let text = format!("\"{}\"", "x".repeat(2_000_000));
    let _ = begun(&store, start(1, Some(key("a")), &me));
    let finished = store.finish(finish(1, Some(key("a")), &text));
    assert!(
        matches!(finished, Err(StoreError::Full { .. })),
        "{finished:?}"
    );
    for store in [&store, &other] {
        let Seen::Finished(recorded) = peek(store, key("a")) else {
            panic!("{:?}", peek(store, key("a")));
        };
        assert_eq!(recorded.call, CallId(1));
        let fault = recorded.result.unwrap_err();
        assert_eq!(fault.kind, "internal");
        let told = "the tool ran, but its output could not be kept: ";
        assert!(fault.message.starts_with(told), "{}", fault.message);
        assert_eq!(fault.data, json!({}));
    }
    assert_eq!(store.breaker("files/write").unwrap().failures, 0);
    assert_eq!(kinds(&store), ["start", "outcome"]);
    std::fs::remove_file(&blobs).unwrap();
    std::fs::create_dir(&blobs).unwrap();
    settle(&store, run(&store, 2, key("b"), &text));
    assert!(replay(&store, key("b")) == text);
    assert_good(&store);
}

/// G-7: consecutive failures are counted over all processes; a success starts anew.
#[test]
fn breakers_are_shared() {
    let folder = Folder::new("breaker");
    let clock = clock();
    let options = Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let a = open_with(&folder, options.clone(), &clock);
    let b = open_with(&folder, options.clone(), &clock);
    let me = me();
    let ends = |store: &Store, health| {
        let ended = Finish {
            health,
            ..finish(1, None, "{}")
        };
        store.record_pure(start(1, None, &me), ended)
    };
    for n in 1..=4 {
        clock.advance(Duration::from_millis(1));
        let store = if n % 2 == 0 { &a } else { &b };
        let ticket = ends(store, Health::Trouble);
        assert_eq!(
            store.breaker("files/write").unwrap().failures,
            n,
            "pending counts"
        );
        settle(store, ticket);
        assert_eq!(
            a.breaker("files/write").unwrap(),
            b.breaker("files/write").unwrap()
        );
    }
    let state = a.breaker("files/write").unwrap();
    assert_eq!((state.failures, state.failed_at.0), (4, NOON + 4));
    a.close().unwrap();
    let c = open_with(&folder, options, &clock);
    assert_eq!(c.breaker("files/write").unwrap(), state, "folded");
    settle(&c, ends(&c, Health::Silent));
    assert_eq!(b.breaker("files/write").unwrap(), state);
    settle(&c, ends(&c, Health::Works));
    assert_eq!(b.breaker("files/write").unwrap().failures, 0);
    assert_eq!(a.breaker("other").unwrap().failures, 0);
}

/// D-6, D-7: a start is in the file before the run, everything else that is ready together
/// goes there in one write.
#[test]
fn answers_share_a_write() {
    let folder = Folder::new("batch");
    let store = open(&folder);
    let me = me();
    let mut last = store.record_pure(start(0, None, &me), finish(0, None, "{}"));
    for n in 1..64 {
        last = store.record_pure(start(n, None, &me), finish(n, None, "{}"));
    }
    assert_eq!(store.stats().writes, 0);
    settle(&store, last);
    settle(&store, last);
    let stats = store.stats();
    assert_eq!((stats.records, stats.frames, stats.writes), (64, 1, 1));
    let _ = begun(&store, start(99, Some(key("a")), &me));
    assert_eq!(
        assert_good(&open(&folder)),
        65,
        "seen by others before the run"
    );
}
