//! What calls take they give back. One test, so that no other opens anything meanwhile.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_runners::{Pool, PoolRunner, PoolSettings, ProcessRunner, ProcessSettings};
use serde_json::json;
use support::{Bench, misbehave, spawner, until};

const ACTS: [&str; 8] = [
    "ok", "hang", "flood", "garbage", "close", "daemon", "signal", "exit",
];

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn children(pid: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().count()
}

async fn misbehave_all(bench: &mut Bench) {
    bench.timeout = Duration::from_millis(60);
    for act in ACTS {
        let _ = bench
            .run(json!({ "do": act, "signal": 9, "code": 3 }))
            .await;
    }
}

/// A call that has all the time it takes: one nanny is kept after it, whichever of those before ran
/// out of theirs.
async fn end_well(bench: &mut Bench) {
    bench.timeout = support::LONG;
    let ended = bench.run(json!({ "do": "ok" })).await;
    assert!(ended.is_ok(), "{ended:?}");
}

/// T-13: no descriptor and no process is left, whatever the tools did.
#[tokio::test]
async fn calls_give_back_what_they_took() {
    let spawner = spawner();
    let command = vec![misbehave().as_os_str().to_owned()];
    let process = ProcessSettings::new(command.clone(), Vec::new(), PathBuf::from("/"));
    let process = ProcessRunner::new(Arc::clone(&spawner), process);
    let mut pool = PoolSettings::new(command, Vec::new(), PathBuf::from("/"));
    (pool.backoff_min, pool.crashes_max) = (Duration::from_millis(1), 1000);
    let pool = Pool::new(Arc::clone(&spawner), pool);
    let pooled = PoolRunner::new(Arc::clone(&pool), None, "pool");
    let mut benches = [Bench::new(Arc::new(process)), Bench::new(Arc::new(pooled))];
    for bench in &mut benches {
        misbehave_all(bench).await;
    }
    pool.stop();
    end_well(&mut benches[0]).await;
    let before = open();
    for _ in 0..5 {
        for bench in &mut benches {
            misbehave_all(bench).await;
        }
    }
    pool.stop();
    end_well(&mut benches[0]).await;
    until("all is given back", || open() == before).await;
    let pid = spawner.pid().unwrap();
    until("the spawner has no children", || children(pid) == 0).await;
}
