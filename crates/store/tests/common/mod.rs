//! What the tests of the store share: folders that go away, stores on them, plain calls.

pub mod runs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use callgate_call::{CallId, Caller, Digest, LeaseToken, ManualClock, Tier, Timestamp};
use callgate_store::{
    Begun, End, Finish, Health, KeyId, Options, Seen, Start, Started, Store, Ticket, Tuning, View,
};

/// When the tests' clocks start.
pub const NOON: u64 = 1_750_000_000_000;

/// A folder of the test's own.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    pub fn segment(&self, number: u64) -> PathBuf {
        self.0.join("journal").join(format!("{number:020}.seg"))
    }

    pub fn copy(&self, name: &str) -> Self {
        let copy = Self::new(name);
        copy_all(&self.0, &copy.0);
        copy
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_all(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp(NOON)))
}

pub fn open(folder: &Folder) -> Store {
    open_with(folder, Options::default(), &clock())
}

pub fn open_with(folder: &Folder, options: Options, clock: &Arc<ManualClock>) -> Store {
    Store::open(&folder.0, options, Arc::clone(clock) as _).unwrap()
}

pub fn me() -> Caller {
    Caller::uid(1000)
}

pub fn input(text: &str) -> Digest {
    Digest::of_bytes(text.as_bytes())
}

pub fn key(text: &str) -> KeyId {
    KeyId::new(&me(), text)
}

pub fn start<'a>(call: u128, key: Option<KeyId>, caller: &'a Caller) -> Start<'a> {
    Start {
        call: CallId(call),
        tool: "files/write",
        aid: "AID.FILES.WRITE.v1",
        tier: Tier::Write,
        caller,
        wire: "gate",
        input: input("x"),
        key,
        view: View::Full,
        lease: None,
        displayed: None,
        brings_more: false,
        idempotent: false,
        enforcement: "none",
        unsafe_override: false,
        trace_id: None,
    }
}

pub fn with_lease<'a>(start: Start<'a>, lease: &'a LeaseToken) -> Start<'a> {
    Start {
        lease: Some(lease),
        ..start
    }
}

pub fn finish<'a>(call: u128, key: Option<KeyId>, text: &'a str) -> Finish<'a> {
    Finish {
        call: CallId(call),
        tool: "files/write",
        input: input("x"),
        key,
        view: View::Full,
        end: End::Output {
            text,
            digest: Digest::of_bytes(text.as_bytes()),
        },
        slots: None,
        health: Health::Works,
        enforcement: "none",
        unsafe_override: false,
        network_refused: 0,
        began: Timestamp(0),
        keep: true,
        trace_id: None,
    }
}

pub fn begun(store: &Store, start: Start<'_>) -> Started {
    match store.begin(start).unwrap() {
        Begun::Started(started) => started,
        other => panic!("{other:?}"),
    }
}

/// A whole keyed call.
pub fn run(store: &Store, call: u128, key: KeyId, text: &str) -> Ticket {
    let me = me();
    let _ = begun(store, start(call, Some(key), &me));
    store.finish(finish(call, Some(key), text)).unwrap()
}

pub fn settle(store: &Store, ticket: Ticket) {
    store.settle_now(ticket).unwrap();
}

pub fn peek(store: &Store, key: KeyId) -> Seen {
    store
        .peek(&key, "files/write", &input("x"), View::Full)
        .unwrap()
}

/// The text of a finished key.
pub fn replay(store: &Store, key: KeyId) -> String {
    match peek(store, key) {
        Seen::Finished(recorded) => recorded.result.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Kinds of all records, in order.
pub fn kinds(store: &Store) -> Vec<String> {
    let mut kinds = Vec::new();
    store
        .show(&Default::default(), &mut |record| {
            let body: serde_json::Value = serde_json::from_str(record.body).unwrap();
            assert_eq!(body["seq"], record.seq);
            assert_eq!(body.to_string(), record.body, "compact, keys sorted");
            kinds.push(body["kind"].as_str().unwrap().to_owned());
            true
        })
        .unwrap();
    kinds
}

pub fn assert_good(store: &Store) -> u64 {
    let verdict = store.verify().unwrap();
    assert!(verdict.is_good(), "{verdict:?}");
    verdict.records
}

/// Small segments, and a folder where the second one should be: the next write that needs it
/// fails, as on a full disk. `b` is begun by then, as call 2.
pub fn full(name: &str, fold: bool) -> (Folder, Store) {
    let folder = Folder::new(name);
    let tuning = Tuning {
        segment_bytes: 3000,
        close_bytes: 0,
        ..Tuning::default()
    };
    let options = Options {
        fold,
        tuning,
        ..Options::default()
    };
    let store = open_with(&folder, options, &clock());
    settle(&store, run(&store, 1, key("a"), "1"));
    let _ = begun(&store, start(2, Some(key("b")), &me()));
    std::fs::create_dir(folder.segment(2)).unwrap();
    for n in 0..10 {
        let ticket = store.record_pure(start(n, None, &me()), finish(n, None, "{}"));
        if store.settle_now(ticket).is_err() {
            return (folder, store);
        }
    }
    panic!("never full");
}

/// Small numbers that look random; the seed is printed by whoever fails.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
