//! A gate that is killed, at every operation on the disk that a run makes. Whatever was said to
//! be committed is whole afterwards, and nothing else is there.
#![cfg(feature = "failpoints")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the test starts itself as the process that is killed"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::runs::*;
use crate::common::{Folder, assert_good, open};
use callgate_call::{Digest, RunFile, RunLog, RunPolicy, RunVerdict};
use callgate_store::{Filter, RunFilter, RunState, Store, failpoint};
use serde_json::{Value, json};

/// Where the child works, and where it dies.
const DIR: &str = "RUN_CRASHES_DIR";
const POINT: &str = "RUN_CRASHES_POINT";

/// Bytes of the artifacts; `c` never gets its commit record.
fn artifact(id: &str) -> Vec<u8> {
    let bytes = match id {
        "a" => 300_000,
        "b" => 70_000,
        _ => 10_000,
    };
    id.bytes().cycle().take(bytes).collect()
}

fn say(path: &Path, word: &str) {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(path).unwrap();
    file.write_all(format!("{word}\n").as_bytes()).unwrap();
}

/// What the process says after each call that returned. Not through the store.
fn said_by(folder: &Folder) -> PathBuf {
    folder.0.with_extension("said")
}

/// The process that is killed, if it is started as that.
#[test]
fn the_gate() {
    let (Some(dir), Ok(point)) = (std::env::var_os(DIR), std::env::var(POINT)) else {
        return;
    };
    let folder = std::mem::ManuallyDrop::new(Folder(dir.into()));
    let store = Arc::new(open(&folder));
    assert!(failpoint::arm_from(&point));
    story(&store, &said_by(&folder));
}

fn story(store: &Arc<Store>, said: &Path) {
    let mut log = begin(store, "r1", RunPolicy::Strict);
    say(said, "begun");
    let (a, b) = (artifact("a"), artifact("b"));
    emit(&mut *log, 1, "item").unwrap();
    log.chunk("a", &a[..100_000]).unwrap();
    log.chunk("b", &b[..1]).unwrap();
    log.idle().unwrap();
    say(said, "event 1");
    log.chunk("a", &a[100_000..]).unwrap();
    log.chunk("b", &b[1..]).unwrap();
    log.chunk("c", &artifact("c")).unwrap();
    commit(&mut *log, "a", a.len() as u64).unwrap();
    say(said, "committed a");
    emit(&mut *log, 2, "artifact").unwrap();
    let file = RunFile {
        name: "f",
        content_type: "text/plain",
        data: b"beside",
    };
    log.file(&file).unwrap();
    say(said, "file");
    commit(&mut *log, "b", b.len() as u64).unwrap();
    say(said, "committed b");
    emit(&mut *log, 3, "run_complete").unwrap();
    log.seal().unwrap();
    say(said, "event 3");
    end(log);
    say(said, "ended");
}

fn end(log: Box<dyn RunLog>) {
    log.end(RunVerdict::Success, &json!({ "ok": true }))
        .unwrap();
}

/// Has the story told by a process that dies at `point`. False if it came through.
fn is_killed(folder: &Folder, point: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "run_crashes::the_gate", "--nocapture"])
        .env(DIR, &folder.0)
        .env(POINT, point)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status:?}");
    !status.success()
}

/// What the chain says is committed, by id.
fn committed(store: &Store) -> BTreeMap<String, String> {
    let filter = Filter {
        kind: Some("artifact.commit".to_owned()),
        ..Filter::default()
    };
    let mut found = BTreeMap::new();
    let mut each = |record: callgate_store::Record<'_>| {
        let body: Value = serde_json::from_str(record.body).unwrap();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        found.insert(text("artifact"), text("digest"));
        true
    };
    store.show(&filter, &mut each).unwrap();
    found
}

/// Names of the files below a folder.
fn files_in(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => names.extend(files_in(&entry.path())),
            false => names.push(entry.file_name().into_string().unwrap()),
        }
    }
    names.sort();
    names
}

fn check(folder: &Folder, at: &str) {
    let said = std::fs::read_to_string(said_by(folder)).unwrap_or_default();
    let has_said = |word: &str| said.lines().any(|line| line == word);
    let store = Arc::new(open(folder));
    assert_good(&store);
    let chain = committed(&store);
    for id in ["a", "b", "c"] {
        let bytes = artifact(id);
        let digest = Digest::of_bytes(&bytes);
        assert!(
            chain.contains_key(id) || !has_said(&format!("committed {id}")),
            "{at}: {id}"
        );
        match chain.get(id) {
            Some(hex) => {
                assert_eq!(*hex, digest.to_hex(), "{at}");
                assert!(
                    bytes_of(&store, "r1", id) == Some(bytes),
                    "{at}: {id} is whole"
                );
            }
            None => {
                assert!(bytes_of(&store, "r1", id).is_none(), "{at}: {id}");
                assert!(store.artifact(&digest).unwrap().is_none(), "{at}: {id}");
            }
        }
    }
    let would = store.collect_artifacts(Duration::ZERO, true).unwrap();
    let done = store.collect_artifacts(Duration::ZERO, false).unwrap();
    assert_eq!(would, done, "{at}");
    let mut digests: Vec<String> = chain.values().cloned().collect();
    digests.sort();
    assert_eq!(files_in(&folder.0.join("artifacts")), digests, "{at}");
    assert_eq!(
        files_in(&folder.0.join("incoming")),
        [] as [&str; 0],
        "{at}"
    );
    let checked = store.verify_artifacts().unwrap();
    assert_eq!(
        (checked.files, checked.bad),
        (digests.len() as u64, vec![]),
        "{at}"
    );
    check_run(&store, &has_said, at);
    // Life goes on.
    let mut log = begin(&store, "r2", RunPolicy::Strict);
    log.chunk("a", &artifact("a")).unwrap();
    commit(&mut *log, "a", 300_000).unwrap();
    end(log);
    assert!(bytes_of(&store, "r2", "a") == Some(artifact("a")), "{at}");
    assert_good(&store);
}

fn check_run(store: &Arc<Store>, has_said: &dyn Fn(&str) -> bool, at: &str) {
    let Some(run) = store.run("r1").unwrap() else {
        assert!(!has_said("begun"), "{at}");
        return;
    };
    let seqs = seqs(store, "r1");
    let whole: Vec<u64> = (1..=seqs.len() as u64).collect();
    assert_eq!(seqs, whole, "{at}");
    assert!(!has_said("event 1") || !seqs.is_empty(), "{at}");
    assert!(!has_said("event 3") || seqs.len() == 3, "{at}");
    assert!(!has_said("file") || store.run_file("r1", "f").unwrap().is_some());
    match run.state {
        RunState::Ended(end) => {
            assert_eq!((end.persisted, seqs.len()), (3, 3), "{at}");
            let report = store.run_report("r1").unwrap().unwrap();
            assert_eq!(Digest::of_bytes(&report), end.report, "{at}");
            assert!(store.run_manifest("r1").unwrap().is_some());
        }
        RunState::Lost(_) => assert!(!has_said("ended"), "{at}"),
        RunState::Running => panic!("{at}: its process is dead"),
    }
    // Found out once, and then in the chain.
    let again = store.run("r1").unwrap().unwrap();
    let listed = store.runs(&RunFilter::default(), 9, None).unwrap();
    assert_eq!(listed, [again], "{at}");
}

fn walk(point: &str) -> u32 {
    for number in 0.. {
        let folder = Folder::new("run-crash");
        let at = format!("{point}=kill:{number}");
        let is_killed = is_killed(&folder, &at);
        check(&folder, &at);
        let _ = std::fs::remove_file(said_by(&folder));
        if !is_killed {
            return number;
        }
    }
    unreachable!("a story has an end");
}

/// S-14, S-17, ST-67, ST-68, D-13, D-15: killed before any operation of a run's life, what the chain says is
/// committed is whole, and all else is collected.
#[test]
fn killed_at_every_operation() {
    let steps = walk("run.io");
    assert!(steps > 60, "{steps}");
}

/// S-14: killed with half a write done.
#[test]
fn killed_in_every_write() {
    let writes = walk("run.torn");
    assert!(writes > 8, "{writes}");
}

/// S-14: killed with half a record in the journal.
#[test]
fn killed_in_every_record() {
    assert_eq!(walk("append.torn"), 4);
}
