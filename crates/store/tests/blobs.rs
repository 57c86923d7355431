//! Large outputs beside the journal: kept while a key points at them, and no longer.

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use callgate_call::ManualClock;
use callgate_store::{Options, Seen, Store, Tuning};
use rustix::fs::{FlockOperation, flock};

const HOUR: Duration = Duration::from_secs(3600);
/// How long a blob stays after its last key.
const GRACE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

fn text(letter: &str) -> String {
    format!("\"{}\"", letter.repeat(2_000_000))
}

fn options() -> Options {
    Options {
        tuning: Tuning {
            close_bytes: 0,
            ..Tuning::default()
        },
        ..Options::default()
    }
}

fn files(folder: &Folder, name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.0.join(name)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A name for it, and what makes a store look for what is over.
type Look = (&'static str, Box<dyn Fn(&Store)>);

/// An open, housekeeping, a fold.
fn looks(folder: &Folder, clock: &Arc<ManualClock>) -> [Look; 3] {
    let (path, clock) = (folder.0.clone(), Arc::clone(clock));
    let open = move |_: &Store| drop(Store::open(&path, options(), Arc::clone(&clock) as _));
    let fold = |store: &Store| {
        let folds = store.stats().folds;
        let ticket = store.record_pure(start(99, None, &me()), finish(99, None, "{}"));
        settle(store, ticket);
        store.close().unwrap();
        assert_eq!(store.stats().folds, folds + 1);
    };
    [
        ("open", Box::new(open)),
        (
            "maintain",
            Box::new(|store: &Store| store.maintain().unwrap()),
        ),
        ("fold", Box::new(fold)),
    ]
}

/// D-12, G-3: a blob goes a minute after the last of the keys that point at it has expired, be
/// they of two processes, and not before.
#[test]
fn a_blob_goes_with_its_last_key() {
    let wanted = text("x");
    for way in 0..3 {
        let folder = Folder::new("blobs");
        let clock = clock();
        let (name, look) = &looks(&folder, &clock)[way];
        let store = open_with(&folder, options(), &clock);
        let other = open_with(&folder, options(), &clock);
        settle(&store, run(&store, 1, key("a"), &wanted));
        clock.advance(HOUR * 12);
        settle(&other, run(&other, 2, key("b"), &wanted));
        assert_eq!(files(&folder, "blobs").len(), 1, "{name}: shared");
        clock.advance(HOUR * 12 + GRACE);
        look(&store);
        assert_eq!(peek(&store, key("a")), Seen::New, "{name}");
        assert!(replay(&store, key("b")) == wanted, "{name}");
        clock.advance(HOUR * 12 - MS);
        look(&store);
        assert_eq!(files(&folder, "blobs").len(), 1, "{name}: a moment before");
        clock.advance(MS);
        look(&store);
        assert_eq!(files(&folder, "blobs").len(), 0, "{name}");
        assert_eq!(peek(&other, key("b")), Seen::New, "{name}");
        assert_good(&store);
    }
}

/// D-12: a blob that is over and not yet gone is as good as new for the next key.
#[test]
fn a_blob_is_renewed() {
    let folder = Folder::new("renewed");
    let clock = clock();
    let store = open_with(&folder, options(), &clock);
    let wanted = text("x");
    settle(&store, run(&store, 1, key("a"), &wanted));
    clock.advance(HOUR * 48);
    let pure = key("pure");
    let me = me();
    let ticket = store.record_pure(start(2, Some(pure), &me), finish(2, Some(pure), &wanted));
    settle(&store, ticket);
    for (name, look) in looks(&folder, &clock) {
        look(&store);
        assert!(
            replay(&open_with(&folder, options(), &clock), pure) == wanted,
            "{name}"
        );
    }
}

/// D-12, G-4: what a killed process left half made goes; what a living one makes stays.
#[test]
fn half_made_files_go_with_their_makers() {
    let folder = Folder::new("half-made");
    let clock = clock();
    let store = open_with(&folder, options(), &clock);
    for (name, look) in looks(&folder, &clock) {
        // A keyed call gives the store its own lock file, which stays.
        let _ = begun(&store, start(1, Some(key(name)), &me()));
        let of_store = files(&folder, "owners");
        assert_eq!(of_store.len(), 1);
        let dead = [
            folder.0.join("blobs/.00000000000000aa"),
            folder.0.join("owners/.00000000000000aa"),
            folder.0.join("owners/00000000000000aa"),
        ];
        let living = [
            folder.0.join("blobs/.00000000000000bb"),
            folder.0.join("owners/.00000000000000bb"),
            folder.0.join("owners/00000000000000bb"),
        ];
        for path in &dead {
            fs::write(path, "half").unwrap();
        }
        let locks: Vec<File> = living
            .iter()
            .map(|path| {
                let file = File::create(path).unwrap();
                flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
                file
            })
            .collect();
        look(&store);
        assert!(dead.iter().all(|path| !path.exists()), "{name}");
        assert!(living.iter().all(|path| path.exists()), "{name}");
        drop(locks);
        look(&store);
        assert!(living.iter().all(|path| !path.exists()), "{name}");
        assert_eq!(files(&folder, "owners"), of_store, "{name}");
    }
}

/// D-12: a blob that somebody removed before its time leaves its key unknown and the chain good;
/// one that was changed is damage.
#[test]
fn a_blob_that_is_not_as_written() {
    let folder = Folder::new("removed");
    let store = open(&folder);
    settle(&store, run(&store, 1, key("a"), &text("x")));
    let [blob] = &files(&folder, "blobs")[..] else {
        panic!("one blob")
    };
    for changed in [text("y").into_bytes(), vec![0xFF; 2_000_002], Vec::new()] {
        fs::write(blob, changed).unwrap();
        assert_eq!(store.verify().unwrap().bad.unwrap().seq, 2);
    }
    fs::remove_file(blob).unwrap();
    assert_good(&store);
    assert!(matches!(peek(&store, key("a")), Seen::Unknown { .. }));
}
