//! When a run's events are written, and what may be dropped.

use std::sync::Arc;
use std::time::Duration;

use crate::common::runs::*;
use crate::common::{Folder, clock, open_with};
use callgate_call::{KeepError, ManualClock, RunLog, RunPolicy, RunVerdict};
use callgate_store::{
    Options, STREAMING_BYTES_MAX, STREAMING_EVENTS_MAX, STRICT_BYTES_MAX, STRICT_EVENTS_MAX, Store,
};
use serde_json::{Value, json};

/// A store, and what there is of the events of its run `r1`.
struct Desk {
    folder: Folder,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
}

impl Desk {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let clock = clock();
        let store = Arc::new(open_with(&folder, Options::default(), &clock));
        Self {
            folder,
            clock,
            store,
        }
    }

    fn begin(&self, policy: RunPolicy) -> Box<dyn RunLog> {
        begin(&self.store, "r1", policy)
    }

    fn written(&self) -> u64 {
        let path = self.folder.0.join(folder_of("r1")).join("events.jsonl");
        std::fs::metadata(path).map_or(0, |about| about.len())
    }

    fn manifest(&self) -> Value {
        serde_json::from_slice(&self.store.run_manifest("r1").unwrap().unwrap()).unwrap()
    }
}

fn flushes(log: &dyn RunLog) -> Value {
    json!(log.counts().flushes)
}

fn buffered(events: Option<u64>, bytes: Option<u64>) -> RunPolicy {
    RunPolicy::Buffered { events, bytes }
}

fn streaming(count: Option<u64>, interval_ms: Option<u64>) -> RunPolicy {
    RunPolicy::Streaming {
        count,
        interval: interval_ms.map(Duration::from_millis),
    }
}

/// ST-83, S-15: `strict` drops nothing and is never more than a batch ahead of the disk, in
/// events and in bytes; with nothing more to read, all is written.
#[test]
fn strict_is_a_batch_ahead() {
    let desk = Desk::new("strict");
    let mut log = desk.begin(RunPolicy::Strict);
    let mut total = 0;
    for seq in 1..=10 * STRICT_EVENTS_MAX + 7 {
        emit(&mut *log, seq, "log").unwrap();
        total += line(seq).len() as u64 + 1;
        let counts = log.counts();
        assert!(counts.received - counts.persisted < STRICT_EVENTS_MAX);
        if counts.received == counts.persisted {
            assert_eq!(desk.written(), total);
        }
    }
    assert_eq!(flushes(&*log), json!({ "count": 10 }), "a thousand a sync");
    assert_eq!(log.idle().unwrap(), None);
    assert_eq!(log.counts().persisted, log.counts().received);
    let mut seq = log.counts().received;
    let large = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 3));
    for bytes in [
        STRICT_BYTES_MAX / 2,
        STRICT_BYTES_MAX / 2,
        STRICT_BYTES_MAX - 1,
        1000,
        STRICT_BYTES_MAX * 3,
        500,
    ] {
        seq += 1;
        let before = desk.written();
        emit_line(&mut *log, seq, "item", &large(bytes)).unwrap();
        total += bytes as u64;
        assert!(total - desk.written() < STRICT_BYTES_MAX as u64, "{bytes}");
        assert!(desk.written() >= before);
    }
    assert_eq!(flushes(&*log)["capacity"], 4);
    log.seal().unwrap();
    assert_eq!((desk.written(), log.counts().persisted), (total, seq));
    assert_eq!(flushes(&*log)["termination"], 1);
    assert!(log.counts().dropped.is_empty());
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert_eq!(desk.manifest()["events"]["persisted"], seq);
}

/// ST-84, S-15: `buffered` needs a bound, and writes at the end.
#[test]
fn buffered_writes_at_the_end() {
    let desk = Desk::new("buffered");
    let refused = try_begin(&desk.store, &start("r0", buffered(None, None)));
    assert!(matches!(refused.err(), Some(KeepError::Failed(_))));
    assert!(desk.store.run("r0").unwrap().is_none());
    let mut log = desk.begin(buffered(Some(100), None));
    for seq in 1..=100 {
        emit(&mut *log, seq, "item").unwrap();
    }
    assert_eq!(log.idle().unwrap(), None);
    assert_eq!((desk.written(), log.counts().persisted), (0, 0));
    log.seal().unwrap();
    assert_eq!(seqs(&desk.store, "r1"), (1..=100).collect::<Vec<_>>());
    assert_eq!(flushes(&*log), json!({ "termination": 1 }));
    log.end(RunVerdict::Success, &Value::Null).unwrap();
}

/// ST-84: at its bound in events a buffer leaves out an incoming `log`, `enqueue` or
/// `rotate_proxy`; for anything else the oldest of those goes; where there is none, it is full.
#[test]
fn buffered_drops_what_may_be_dropped() {
    let desk = Desk::new("buffered-drops");
    let mut log = desk.begin(buffered(Some(4), None));
    for (seq, kind) in [(1, "item"), (2, "log"), (3, "enqueue"), (4, "checkpoint")] {
        emit(&mut *log, seq, kind).unwrap();
    }
    for (seq, kind) in [(5, "log"), (6, "rotate_proxy"), (7, "enqueue")] {
        emit(&mut *log, seq, kind).unwrap();
    }
    let left_out = json!({ "enqueue": 1, "log": 1, "rotate_proxy": 1 });
    assert_eq!(json!(log.counts().dropped), left_out);
    emit(&mut *log, 8, "item").unwrap();
    emit(&mut *log, 9, "mystery").unwrap();
    let left_out = json!({ "enqueue": 2, "log": 2, "rotate_proxy": 1 });
    assert_eq!(json!(log.counts().dropped), left_out);
    assert_eq!(emit(&mut *log, 10, "item"), Err(KeepError::BufferFull));
    assert_eq!(emit(&mut *log, 11, "artifact"), Err(KeepError::BufferFull));
    emit(&mut *log, 12, "log").unwrap();
    log.seal().unwrap();
    assert_eq!(seqs(&desk.store, "r1"), [1, 4, 8, 9], "in their order");
    let counts = log.counts();
    assert_eq!((counts.received, counts.persisted), (12, 4));
    log.end(RunVerdict::PolicyFailure, &Value::Null).unwrap();
    let rows = json!({ "checkpoint": 1, "item": 2, "mystery": 1 });
    assert_eq!(desk.manifest()["events"]["rows"], rows);
    assert_eq!(desk.manifest()["outcome"], "policy_failure");
}

/// ST-84, S-15: bounds in bytes are kept by real sizes, at the bound and past it.
#[test]
fn buffered_counts_real_bytes() {
    let desk = Desk::new("buffered-bytes");
    let line = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 3));
    let mut log = desk.begin(buffered(None, Some(100)));
    emit_line(&mut *log, 1, "item", &line(40)).unwrap();
    emit_line(&mut *log, 2, "log", &line(20)).unwrap();
    emit_line(&mut *log, 3, "log", &line(40)).unwrap();
    emit_line(&mut *log, 4, "log", &line(3)).unwrap();
    assert_eq!(json!(log.counts().dropped), json!({ "log": 1 }), "full");
    // Even without all that may go there is no room: then none of it goes.
    let full = emit_line(&mut *log, 5, "item", &line(61));
    assert_eq!(full, Err(KeepError::BufferFull));
    assert_eq!(log.counts().dropped["log"], 1);
    emit_line(&mut *log, 6, "item", &line(20)).unwrap();
    assert_eq!(log.counts().dropped["log"], 2, "the oldest was enough");
    emit_line(&mut *log, 7, "item", &line(40)).unwrap();
    assert_eq!(log.counts().dropped["log"], 3);
    let full = emit_line(&mut *log, 8, "item", &line(3));
    assert_eq!(full, Err(KeepError::BufferFull));
    log.seal().unwrap();
    assert_eq!(desk.written(), 100);
}

/// ST-85: `streaming` needs a count or an interval, writes on the count and drops nothing.
#[test]
fn streaming_by_count() {
    let desk = Desk::new("streaming");
    for policy in [streaming(None, None), streaming(Some(0), None)] {
        let refused = try_begin(&desk.store, &start("r0", policy));
        assert!(matches!(refused.err(), Some(KeepError::Failed(_))));
    }
    let mut log = desk.begin(streaming(Some(10), None));
    for seq in 1..=34 {
        emit(&mut *log, seq, "log").unwrap();
        assert_eq!(log.counts().persisted, seq / 10 * 10);
        assert_eq!(log.idle().unwrap(), None, "nobody waits for a count");
    }
    assert_eq!(seqs(&desk.store, "r1").len(), 30);
    log.seal().unwrap();
    assert_eq!(flushes(&*log), json!({ "count": 3, "termination": 1 }));
    assert_eq!(seqs(&desk.store, "r1"), (1..=34).collect::<Vec<_>>());
    assert!(log.counts().dropped.is_empty());
}

/// ST-85: no event waits longer than the interval, whether more come or not; whoever reads the
/// pipe is told how long it may wait.
#[test]
fn streaming_by_interval() {
    let desk = Desk::new("streaming-interval");
    let mut log = desk.begin(streaming(Some(1000), Some(50)));
    assert_eq!(log.idle().unwrap(), None, "nothing waits");
    emit(&mut *log, 1, "item").unwrap();
    assert_eq!(log.idle().unwrap(), Some(Duration::from_millis(50)));
    desk.clock.advance(Duration::from_millis(20));
    emit(&mut *log, 2, "item").unwrap();
    assert_eq!(log.idle().unwrap(), Some(Duration::from_millis(30)));
    desk.clock.advance(Duration::from_millis(29));
    emit(&mut *log, 3, "item").unwrap();
    assert_eq!((log.counts().persisted, desk.written()), (0, 0));
    desk.clock.advance(Duration::from_millis(1));
    emit(&mut *log, 4, "item").unwrap();
    assert_eq!(log.counts().persisted, 4, "due when the next comes");
    emit(&mut *log, 5, "item").unwrap();
    desk.clock.advance(Duration::from_millis(50));
    assert_eq!(log.idle().unwrap(), None);
    assert_eq!(log.counts().persisted, 5, "and when none comes");
    assert_eq!(flushes(&*log), json!({ "interval": 2 }));
    emit(&mut *log, 6, "item").unwrap();
    desk.clock.advance(Duration::from_millis(49));
    log.chunk("a", b"x").unwrap();
    assert_eq!(log.counts().persisted, 5);
    desk.clock.advance(Duration::from_millis(1));
    log.chunk("a", b"x").unwrap();
    assert_eq!(log.counts().persisted, 6, "and while bytes come");
    assert_eq!(flushes(&*log), json!({ "interval": 3 }));
    log.seal().unwrap();
    assert_eq!(flushes(&*log), json!({ "interval": 3 }), "nothing was left");
}

/// ST-85: a full buffer is written before the next event is taken, in events and in bytes.
#[test]
fn streaming_is_bounded() {
    let desk = Desk::new("streaming-bounded");
    let mut log = desk.begin(streaming(None, Some(3_600_000)));
    for seq in 1..STREAMING_EVENTS_MAX {
        emit(&mut *log, seq, "item").unwrap();
    }
    assert_eq!(log.counts().persisted, 0);
    emit(&mut *log, STREAMING_EVENTS_MAX, "item").unwrap();
    assert_eq!(log.counts().persisted, STREAMING_EVENTS_MAX);
    assert_eq!(flushes(&*log), json!({ "capacity": 1 }));
    let large = format!("\"{}\"", "x".repeat(STREAMING_BYTES_MAX / 2 - 3));
    let mut seq = STREAMING_EVENTS_MAX + 1;
    emit_line(&mut *log, seq, "item", &large[1..]).unwrap();
    assert_eq!(flushes(&*log), json!({ "capacity": 1 }), "just below");
    seq += 1;
    emit_line(&mut *log, seq, "item", &large).unwrap();
    assert_eq!(flushes(&*log), json!({ "capacity": 1 }), "one byte is left");
    seq += 1;
    emit_line(&mut *log, seq, "item", "1").unwrap();
    assert_eq!(flushes(&*log), json!({ "capacity": 2 }), "two do not fit");
    assert_eq!(log.counts().persisted, seq - 1);
    log.seal().unwrap();
    assert_eq!(log.counts().persisted, seq);
}

/// A script may make up types; only so many are counted by name.
#[test]
fn types_are_bounded() {
    let desk = Desk::new("types");
    let mut log = desk.begin(RunPolicy::Strict);
    for seq in 1..=300 {
        emit(&mut *log, seq, &format!("type {seq}")).unwrap();
    }
    emit(&mut *log, 301, &"x".repeat(1000)).unwrap();
    emit(&mut *log, 302, "type 1").unwrap();
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    let manifest = desk.manifest();
    let rows = manifest["events"]["rows"].as_object().unwrap();
    assert_eq!(rows.len(), 257);
    assert_eq!((&rows["type 1"], &rows["(other)"]), (&json!(2), &json!(45)));
}
