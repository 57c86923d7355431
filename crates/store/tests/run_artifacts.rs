//! Artifacts of streamed runs: their bytes, their commits, what is collected and what is found
//! changed.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::runs::*;
use crate::common::{Folder, assert_good, clock, kinds, open, open_with};
use callgate_call::{Digest, KeepError, RunPolicy, RunVerdict};
use callgate_store::{
    ARTIFACTS_MAX, ArtifactProblem, Collected, Options, RUN_ARTIFACTS_OPEN_MAX, Store,
};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

fn content(folder: &Folder, digest: &Digest) -> PathBuf {
    let hex = digest.to_hex();
    folder.0.join("artifacts").join(&hex[..2]).join(hex)
}

/// ST-67, ST-70, S-10, S-14: an artifact exists once its size and its bytes agree, and once.
#[test]
fn sizes_must_agree() {
    let folder = Folder::new("sizes");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    log.chunk("a", b"12345").unwrap();
    for wrong in [0, 4, 6, u64::MAX] {
        let refused = commit(&mut *log, "a", wrong);
        assert!(matches!(refused, Err(KeepError::Failed(_))), "{refused:?}");
        assert!(store.artifact_of("r1", "a").unwrap().is_none());
    }
    let unknown = commit(&mut *log, "b", 1);
    assert!(matches!(unknown, Err(KeepError::Failed(_))), "{unknown:?}");
    commit(&mut *log, "a", 5).unwrap();
    let exists = KeepError::Exists {
        name: "artifact a".to_owned(),
    };
    assert_eq!(commit(&mut *log, "a", 5), Err(exists.clone()));
    assert_eq!(log.chunk("a", b"6"), Err(exists));
    assert_eq!(bytes_of(&store, "r1", "a").unwrap(), b"12345");
    // Without bytes, with a chunk and without.
    log.chunk("none", b"").unwrap();
    let none = commit(&mut *log, "none", 0).unwrap();
    assert_eq!(commit(&mut *log, "nothing", 0), Ok(none));
    assert_eq!(bytes_of(&store, "r1", "nothing").unwrap(), b"");
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert_eq!(kinds(&store).len(), 5);
    assert_good(&store);
}

/// S-14, D-13: equal bytes are kept once, whoever commits them, and counted once.
#[test]
fn equal_bytes_share_a_file() {
    let folder = Folder::new("equal");
    let (one, two) = (Arc::new(open(&folder)), Arc::new(open(&folder)));
    let mut log = begin(&one, "r1", RunPolicy::Strict);
    for id in ["a", "b"] {
        log.chunk(id, b"the same").unwrap();
    }
    assert_eq!(one.stats().fsyncs, 0, "the journal need not be on the disk");
    let digest = commit(&mut *log, "a", 8).unwrap();
    assert!(one.stats().fsyncs > 0, "but the record of an artifact is");
    let used = one.runs_bytes();
    assert_eq!(commit(&mut *log, "b", 8), Ok(digest));
    assert_eq!(one.runs_bytes(), used - 8);
    let mut other = begin(&two, "r2", RunPolicy::Strict);
    other.chunk("c", b"the same").unwrap();
    assert_eq!(commit(&mut *other, "c", 8), Ok(digest));
    assert_eq!(
        std::fs::metadata(content(&folder, &digest))
            .unwrap()
            .nlink(),
        1
    );
    for (run, id) in [("r1", "a"), ("r1", "b"), ("r2", "c")] {
        assert_eq!(bytes_of(&two, run, id).unwrap(), b"the same");
    }
    let found = one.artifacts_by(&digest.to_hex()).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(open(&folder).runs_bytes(), 8);
}

/// S-14: as many at once as a script likes, in any order of their chunks, with few open files.
#[test]
fn many_are_under_way_at_once() {
    let folder = Folder::new("many");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open_files();
    let bytes = |id: usize| format!("{id} ").repeat(1 + id % 40).into_bytes();
    for round in 0..40 {
        for id in (0..200).filter(|id| round <= id % 40) {
            log.chunk(&id.to_string(), format!("{id} ").as_bytes())
                .unwrap();
        }
        // Other tests of this process have files open, too.
        assert!(open_files() < before + 150, "{before} {}", open_files());
    }
    for id in (0..200).rev() {
        let digest = commit(&mut *log, &id.to_string(), bytes(id).len() as u64).unwrap();
        assert_eq!(digest, Digest::of_bytes(&bytes(id)));
    }
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    for id in 0..200 {
        assert_eq!(bytes_of(&store, "r1", &id.to_string()).unwrap(), bytes(id));
    }
    let checked = store.verify_artifacts().unwrap();
    assert_eq!((checked.files, checked.bad.len()), (200, 0));
}

/// Only so many, though.
#[test]
fn under_way_is_bounded() {
    let folder = Folder::new("bounded");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    for id in 0..RUN_ARTIFACTS_OPEN_MAX {
        log.chunk(&id.to_string(), b"x").unwrap();
    }
    let more = log.chunk("more", b"x");
    assert!(matches!(more, Err(KeepError::Failed(_))), "{more:?}");
    commit(&mut *log, "7", 1).unwrap();
    log.chunk("more", b"x").unwrap();
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert_eq!(
        std::fs::read_dir(folder.0.join("incoming"))
            .unwrap()
            .count(),
        0
    );
}

/// The bound of what was too large for an answer takes nothing from runs.
#[test]
fn spills_leave_artifacts_alone() {
    let folder = Folder::new("spills");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    log.chunk("a", b"committed").unwrap();
    let digest = commit(&mut *log, "a", 9).unwrap();
    for number in 0..ARTIFACTS_MAX + 10 {
        let mut spill = store.spill().unwrap();
        spill.write(number.to_string().as_bytes()).unwrap();
        spill.keep().unwrap();
    }
    let entries = std::fs::read_dir(folder.0.join("artifacts")).unwrap();
    let spills = entries
        .flatten()
        .filter(|it| it.file_type().unwrap().is_file());
    assert_eq!(spills.count(), ARTIFACTS_MAX);
    assert!(store.artifact(&digest).unwrap().is_some());
    assert_eq!(bytes_of(&store, "r1", "a").unwrap(), b"committed");
    let collected = store.collect_artifacts(Duration::ZERO, false).unwrap();
    assert_eq!(
        collected,
        Collected::default(),
        "and spills are not orphans"
    );
}

/// ST-68, S-17: what the dead left and what no record tells of is collected once it is old
/// enough; what is alive, or told of, never is.
#[test]
fn orphans_are_collected() {
    let folder = Folder::new("orphans");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    log.chunk("kept", b"kept").unwrap();
    let kept = commit(&mut *log, "kept", 4).unwrap();
    log.chunk("living", b"living").unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(crate::common::NOON);
    let put = |path: PathBuf, text: &str, hours: u64| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let age = Duration::from_secs(hours * 3600);
        file.set_modified(now - age).unwrap();
        file
    };
    let incoming = folder.0.join("incoming");
    put(incoming.join("00000000000000aa/0"), "dead", 30);
    put(incoming.join("00000000000000bb/0"), "dead too", 20);
    let (old, young, held) = (b"old", b"young", b"held");
    put(content(&folder, &Digest::of_bytes(old)), "old", 30);
    put(content(&folder, &Digest::of_bytes(young)), "young", 20);
    let writer = put(content(&folder, &Digest::of_bytes(held)), "held", 30);
    flock(&writer, FlockOperation::LockExclusive).unwrap();
    let day = Duration::from_secs(24 * 3600);
    let wanted = Collected {
        incoming: 1,
        unrecorded: 1,
        bytes: 7,
    };
    assert_eq!(store.collect_artifacts(day, true).unwrap(), wanted);
    assert_eq!(store.collect_artifacts(day, false).unwrap(), wanted);
    assert_eq!(
        store.collect_artifacts(day, false).unwrap(),
        Collected::default()
    );
    assert!(!content(&folder, &Digest::of_bytes(old)).exists());
    let wanted = Collected {
        incoming: 1,
        unrecorded: 1,
        bytes: 13,
    };
    assert_eq!(
        store.collect_artifacts(Duration::ZERO, false).unwrap(),
        wanted
    );
    assert!(
        content(&folder, &Digest::of_bytes(held)).exists(),
        "its writer lives"
    );
    drop(writer);
    let rest = store.collect_artifacts(Duration::ZERO, false).unwrap();
    assert_eq!(rest.unrecorded, 1);
    // One that opens the store leaves the living alone as well.
    let _other = open(&folder);
    commit(&mut *log, "living", 6).unwrap();
    assert_eq!(bytes_of(&store, "r1", "living").unwrap(), b"living");
    assert!(content(&folder, &kept).exists());
    drop(log);
    put(incoming.join("00000000000000cc/0"), "dead", 0);
    drop(open(&folder));
    assert_eq!(std::fs::read_dir(&incoming).unwrap().count(), 0, "at start");
}

/// D-13: whoever collects takes nothing from those who commit the same bytes at that moment.
#[test]
fn collecting_beside_commits() {
    let folder = Folder::new("beside");
    let stores: Vec<_> = (0..4).map(|_| Arc::new(open(&folder))).collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let store = open(&folder);
            while !is_over.load(relaxed) {
                store.collect_artifacts(Duration::ZERO, false).unwrap();
            }
        });
        let writers = stores.iter().enumerate().map(|(number, store)| {
            scope.spawn(move || {
                let mut log = begin(store, &format!("r{number}"), RunPolicy::Strict);
                for round in 0..40_u32 {
                    // Some bytes are everybody's, some are left behind.
                    let text = format!("round {}", round / 4);
                    let id = round.to_string();
                    log.chunk(&id, text.as_bytes()).unwrap();
                    log.chunk("left", b"behind").unwrap();
                    commit(&mut *log, &id, text.len() as u64).unwrap();
                    assert!(bytes_of(store, &format!("r{number}"), &id).is_some());
                }
                log.end(RunVerdict::Success, &Value::Null).unwrap();
            })
        });
        let writers: Vec<_> = writers.collect();
        let wrote: Vec<_> = writers.into_iter().map(|it| it.join()).collect();
        is_over.store(true, relaxed);
        collector.join().unwrap();
        wrote.into_iter().for_each(|wrote| wrote.unwrap());
    });
    let checked = stores[0].verify_artifacts().unwrap();
    assert_eq!((checked.files, checked.bad.len()), (10, 0));
    assert_good(&stores[0]);
}

/// What is missing and what was changed is named, with all that shared it.
#[test]
fn changes_are_found() {
    let folder = Folder::new("changes");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let mut add = |id: &str, bytes: &[u8]| {
        log.chunk(id, bytes).unwrap();
        commit(&mut *log, id, bytes.len() as u64).unwrap()
    };
    let gone = add("gone", b"gone");
    let changed = add("changed", b"changed");
    add("same as changed", b"changed");
    let longer = add("longer", b"longer");
    add("fine", b"fine");
    std::fs::remove_file(content(&folder, &gone)).unwrap();
    std::fs::write(content(&folder, &changed), b"CHANGED").unwrap();
    std::fs::write(content(&folder, &longer), b"longer!").unwrap();
    let checked = store.verify_artifacts().unwrap();
    assert_eq!(checked.files, 3);
    let mut bad: Vec<_> = checked
        .bad
        .iter()
        .map(|bad| (bad.artifact.artifact_id.as_str(), bad.problem))
        .collect();
    bad.sort_unstable_by_key(|(id, _)| *id);
    let wanted = [
        ("changed", ArtifactProblem::Changed),
        ("gone", ArtifactProblem::Missing),
        ("longer", ArtifactProblem::Changed),
        ("same as changed", ArtifactProblem::Changed),
    ];
    assert_eq!(bad, wanted);
    let (_, file) = store.artifact_of("r1", "gone").unwrap().unwrap();
    assert!(file.is_none(), "the chain tells of it, and it is not there");
    // Committing the same bytes again mends it.
    log.chunk("again", b"gone").unwrap();
    commit(&mut *log, "again", 4).unwrap();
    assert_eq!(store.verify_artifacts().unwrap().bad.len(), 3);
}

fn with_quota(
    name: &str,
    runs_bytes_max: u64,
) -> (Folder, Arc<Store>, Arc<callgate_call::ManualClock>) {
    let folder = Folder::new(name);
    let options = Options {
        runs_bytes_max,
        ..Options::default()
    };
    let clock = clock();
    let store = Arc::new(open_with(&folder, options, &clock));
    (folder, store, clock)
}

/// D-14: just below, at and past the quota; what is refused is refused before it is written, and room
/// that somebody else makes is found.
#[test]
fn the_quota_is_kept() {
    let (folder, store, clock) = with_quota("quota", 1000);
    let quota = KeepError::Quota { quota_bytes: 1000 };
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    log.chunk("a", &[b'x'; 900]).unwrap();
    log.chunk("a", &[b'x'; 99]).unwrap();
    assert_eq!(log.chunk("a", b"yy"), Err(quota.clone()));
    log.chunk("a", b"x").unwrap();
    assert_eq!(store.runs_bytes(), 1000);
    assert_eq!(log.chunk("a", b"y"), Err(quota.clone()));
    commit(&mut *log, "a", 1000).unwrap();
    emit(&mut *log, 1, "item").unwrap();
    assert_eq!(log.idle(), Err(quota.clone()));
    assert!(!folder.0.join(folder_of("r1")).join("events.jsonl").exists());
    let file = callgate_call::RunFile {
        name: "f",
        content_type: "x",
        data: b"1",
    };
    assert_eq!(log.file(&file), Err(quota.clone()));
    // Another process sees the same.
    let options = Options {
        runs_bytes_max: 1000,
        ..Options::default()
    };
    let other = Arc::new(open_with(&folder, options, &clock));
    let mut beside = begin(&other, "r2", RunPolicy::Strict);
    assert_eq!(beside.chunk("b", b"1"), Err(quota.clone()));
    // The end is told whatever the quota says.
    log.end(RunVerdict::PolicyFailure, &Value::Null).unwrap();
    assert!(store.run_report("r1").unwrap().is_some());
    // Room that is made by hand is found after a while.
    let path = content(&folder, &Digest::of_bytes(&[b'x'; 1000]));
    std::fs::remove_file(path).unwrap();
    assert_eq!(beside.chunk("b", b"1"), Err(quota));
    clock.advance(Duration::from_secs(11));
    beside.chunk("b", b"1").unwrap();
}

/// D-14: what another process keeps meanwhile counts as well, within seconds and before the next
/// run begins.
#[test]
fn the_quota_is_for_all_processes() {
    let (folder, store, clock) = with_quota("quota-of-all", 1000);
    let options = Options {
        runs_bytes_max: 1000,
        ..Options::default()
    };
    let other = Arc::new(open_with(&folder, options, &clock));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let mut beside = begin(&other, "r2", RunPolicy::Strict);
    log.chunk("a", &[b'x'; 400]).unwrap();
    beside.chunk("b", &[b'y'; 600]).unwrap();
    clock.advance(Duration::from_secs(10));
    let full = Err(KeepError::Quota { quota_bytes: 1000 });
    assert_eq!(log.chunk("a", b"x"), full);
    assert_eq!(beside.chunk("b", b"y"), full);
    drop(beside);
    clock.advance(Duration::from_secs(10));
    let _next = begin(&store, "r3", RunPolicy::Strict);
    assert_eq!(store.runs_bytes(), 400);
    log.chunk("a", &[b'x'; 600]).unwrap();
}

/// What never became an artifact gives its room back.
#[test]
fn given_up_bytes_give_room() {
    let (_folder, store, _clock) = with_quota("room", 1000);
    for run in 0..5 {
        let mut log = begin(&store, &format!("r{run}"), RunPolicy::Strict);
        log.chunk("a", &[b'x'; 1000]).unwrap();
        assert!(matches!(log.chunk("b", b"1"), Err(KeepError::Quota { .. })));
        drop(log);
        assert_eq!(store.runs_bytes(), 0);
    }
}
