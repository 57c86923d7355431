//! At the limits: a small file-size limit, a full disk, a power cut's durability. The file-size
//! limit is the process's own, so these tests have a process of their own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod common;

use std::fs;
use std::sync::Arc;

use callgate_store::{Begun, Durability, Options, Refusal, Seen, StoreError, Tuning};
use common::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// D-3, T-12: with files of at most 8 MiB a store goes on for as long as it likes, never writes the
/// index, and an unlimited process folds what it left.
#[test]
fn a_small_file_size_limit_is_lived_with() {
    let folder = Folder::new("limited");
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some(8 * 1024 * 1024),
        ..before
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    let limited = open(&folder);
    let text = format!("\"{}\"", "x".repeat(500_000));
    for n in 0..60 {
        let ticket = run(&limited, n, key(&n.to_string()), &text);
        settle(&limited, ticket);
    }
    limited.maintain().unwrap();
    limited.close().unwrap();
    assert_eq!(limited.stats().folds, 0);
    assert!(!folder.0.join("state.db").exists());
    for entry in fs::read_dir(folder.0.join("journal")).unwrap() {
        assert!(entry.unwrap().metadata().unwrap().len() <= 4 * 1024 * 1024);
    }
    setrlimit(Resource::Fsize, before).unwrap();
    let free = open(&folder);
    assert_eq!(replay(&free, key("7")), text);
    free.close().unwrap();
    assert_eq!(free.stats().folds, 1);
    assert_eq!(
        replay(&limited, key("7")),
        text,
        "the limited one reads the index"
    );
    settle(&limited, run(&limited, 99, key("more"), "{}"));
    assert_eq!(replay(&free, key("more")), "{}");
    assert_eq!(assert_good(&free), 122);
}

/// T-12: where nothing can be written, keyed and leased calls are refused clearly, nothing of
/// them counts, and what was waiting is written once there is room.
#[test]
fn a_full_disk_refuses_what_needs_a_record() {
    let (folder, store) = full("full", false);
    let me = me();
    let refused = store.begin(start(3, Some(key("c")), &me));
    assert!(
        matches!(refused, Err(StoreError::Full { .. })),
        "{refused:?}"
    );
    assert_eq!(peek(&store, key("c")), Seen::New);
    assert!(matches!(
        store.trust("p", input("x")),
        Err(StoreError::Full { .. })
    ));
    assert_eq!(replay(&store, key("a")), "1");
    let ticket = store.finish(finish(2, Some(key("b")), "2")).unwrap();
    assert!(matches!(
        store.settle_now(ticket),
        Err(StoreError::Full { .. })
    ));
    assert_eq!(replay(&store, key("b")), "2", "known here");
    fs::remove_dir(folder.segment(2)).unwrap();
    settle(&store, ticket);
    assert_eq!(replay(&open(&folder), key("b")), "2", "and now everywhere");
    let _ = begun(&store, start(3, Some(key("c")), &me));
    assert_good(&store);
    assert!(!kinds(&store).contains(&"lost".to_owned()));
}

/// T-12: what waits is bounded; what had to be given up is counted, in the chain too.
#[test]
fn what_waits_is_bounded() {
    let (folder, store) = full("lost", false);
    let caller = callgate_call::Caller::named(&"c".repeat(1000));
    let mut last = None;
    for n in 0..20_000 {
        last = Some(store.refuse(Refusal {
            call: callgate_call::CallId(n),
            tool: "files/write",
            caller: &caller,
            wire: "gate",
            input: None,
            fault: "denied",
            trace_id: None,
        }));
    }
    let lost = store.stats().lost;
    assert!(lost > 5_000, "{lost}");
    fs::remove_dir(folder.segment(2)).unwrap();
    settle(&store, last.unwrap());
    let told: Vec<u64> = {
        let mut told = Vec::new();
        let filter = callgate_store::Filter {
            kind: Some("lost".into()),
            ..Default::default()
        };
        store
            .show(&filter, &mut |record| {
                let body: serde_json::Value = serde_json::from_str(record.body).unwrap();
                told.push(body["records"].as_u64().unwrap());
                true
            })
            .unwrap();
        told
    };
    // A record that tells of a loss can itself be lost, and is then counted in the next.
    let again = told.len() as u64;
    assert!(
        told.iter().sum::<u64>() <= lost && !told.is_empty(),
        "{told:?} of {lost}, {again}"
    );
    assert_good(&store);
}

/// G-8: under `power` all that wait share their syncs.
#[tokio::test]
async fn syncs_are_shared() {
    let folder = Folder::new("power");
    let options = Options {
        durability: Durability::Power,
        ..Options::default()
    };
    let store = Arc::new(open_with(&folder, options, &clock()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64_u128 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let me = me();
            for n in 0..10 {
                let key = key(&format!("{task}/{n}"));
                let call = task * 100 + n;
                let Begun::Started(started) = store.begin(start(call, Some(key), &me)).unwrap()
                else {
                    panic!()
                };
                store.settle(started.ticket).await.unwrap();
                let ticket = store.finish(finish(call, Some(key), "{}")).unwrap();
                store.settle(ticket).await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let stats = store.stats();
    // How many share one is the machine's to say: on a fast disk, those that came while it ran.
    assert!(stats.fsyncs > 0 && stats.fsyncs * 4 <= 1280, "{stats:?}");
    assert_eq!(assert_good(&store), 1280);
}

/// G-8: heads are signed beside calls that settle, and nobody waits for ever.
#[tokio::test]
async fn heads_are_signed_beside_calls() {
    let folder = Folder::new("beside");
    let options = Options {
        durability: Durability::Power,
        tuning: Tuning {
            segment_bytes: 3000,
            ..Tuning::default()
        },
        ..Options::default()
    };
    let store = Arc::new(open_with(&folder, options, &clock()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_u128 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for n in 0..10 {
                let ticket = run(&store, task * 100 + n, key(&format!("{task}/{n}")), "{}");
                store.settle(ticket).await.unwrap();
            }
        });
    }
    let signer = Arc::clone(&store);
    tasks.spawn_blocking(move || {
        for _ in 0..20 {
            signer.sign_head().unwrap();
        }
    });
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(assert_good(&store), 160);
}

/// G-8: a task that goes away while it leads a sync leaves nobody waiting.
#[tokio::test]
async fn a_leader_may_go_away() {
    let folder = Folder::new("leader");
    let options = Options {
        durability: Durability::Power,
        ..Options::default()
    };
    let store = open_with(&folder, options, &clock());
    for n in 0..20 {
        let ticket = run(&store, n, key(&n.to_string()), "{}");
        tokio::select! {
            biased;
            settled = store.settle(ticket) => settled.unwrap(),
            () = async {
                for _ in 0..n % 3 {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
        store.settle(ticket).await.unwrap();
    }
    assert_good(&store);
}

/// G-8: a store under `process` never syncs for a call.
#[test]
fn process_durability_does_not_sync() {
    let folder = Folder::new("process");
    let store = open(&folder);
    for n in 0..10 {
        settle(&store, run(&store, n, key(&n.to_string()), "{}"));
    }
    assert_eq!(store.stats().fsyncs, 0);
    assert_eq!(replay(&open(&folder), key("9")), "{}");
}
