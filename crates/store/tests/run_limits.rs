//! Runs at the limits of the machine: memory that stays flat, a disk that is full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callgate_call::{Digest, KeepError, RunFile, RunPolicy, RunVerdict};
use common::runs::*;
use common::{Folder, assert_good, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;

/// Memory is the process's, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The most memory this process had so far.
fn peak_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1);
    number.unwrap().parse().unwrap()
}

/// S-14: an artifact of 256 MiB costs no more memory than a small one.
#[test]
fn memory_is_flat() {
    let _turn = TURN.lock();
    let folder = Folder::new("flat");
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    let piece = vec![7; 1024 * 1024];
    let mut hasher = blake3::Hasher::new();
    log.chunk("small", &piece).unwrap();
    commit(&mut *log, "small", piece.len() as u64).unwrap();
    let before = peak_kb();
    for _ in 0..256 {
        log.chunk("large", &piece).unwrap();
        hasher.update(&piece);
    }
    let digest = commit(&mut *log, "large", 256 * piece.len() as u64).unwrap();
    assert_eq!(digest, Digest(*hasher.finalize().as_bytes()));
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert!(store.verify_artifacts().unwrap().bad.is_empty());
    let grown = peak_kb() - before;
    assert!(grown < 32 * 1024, "{grown} kB more");
}

/// A small disk, gone with its guard.
struct Disk(PathBuf);

impl Disk {
    fn mount(path: &Path, bytes: usize) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
        let none = MountFlags::empty();
        mount("tmpfs", path, "tmpfs", none, Some(options.as_c_str()))
            .expect("mount a small disk, as root");
        Self(path.to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// On a full disk nothing is half kept, no word names a path, and with room it goes on.
#[test]
fn a_full_disk() {
    let _turn = TURN.lock();
    let folder = Folder::new("disk");
    let _disk = Disk::mount(&folder.0, 4 * 1024 * 1024);
    let store = Arc::new(open(&folder));
    let mut log = begin(&store, "r1", RunPolicy::Strict);
    emit(&mut *log, 1, "item").unwrap();
    log.idle().unwrap();
    let failed = |kept: Result<(), KeepError>| {
        let Err(KeepError::Failed(words)) = kept else {
            panic!("{kept:?}");
        };
        assert!(words.contains("No space left"), "{words}");
        assert!(!words.contains("disk-"), "{words}");
    };
    failed(log.chunk("a", &vec![1; 8 * 1024 * 1024]));
    log.chunk("a", b"fits").unwrap();
    commit(&mut *log, "a", 4).unwrap();
    assert_eq!(bytes_of(&store, "r1", "a").unwrap(), b"fits");
    let filler = folder.0.join("filler");
    let mut filled = std::fs::File::create(&filler).unwrap();
    let zeros = vec![0; 64 * 1024];
    while std::io::Write::write_all(&mut filled, &zeros).is_ok() {}
    let text = format!("{{\"seq\":2,\"text\":\"{}\"}}", "x".repeat(100_000));
    emit_line(&mut *log, 2, "item", &text).unwrap();
    failed(log.idle().map(drop));
    failed(log.file(&RunFile {
        name: "f",
        content_type: "x",
        data: &vec![1; 100_000],
    }));
    assert_eq!(seqs(&store, "r1"), [1], "nothing half");
    assert_eq!(log.counts().persisted, 1);
    let other = try_begin(&store, &start("r2", RunPolicy::Strict));
    assert!(other.is_err() || store.run("r2").unwrap().is_some());
    drop(other);
    drop(filled);
    std::fs::remove_file(&filler).unwrap();
    log.idle().unwrap();
    assert_eq!(seqs(&store, "r1"), [1, 2], "with room it goes on");
    emit(&mut *log, 3, "run_complete").unwrap();
    log.seal().unwrap();
    log.end(RunVerdict::Success, &Value::Null).unwrap();
    assert_eq!(seqs(&store, "r1"), [1, 2, 3]);
    let run = store.run("r1").unwrap().unwrap();
    let callgate_store::RunState::Ended(end) = run.state else {
        panic!("{run:?}");
    };
    let events = std::fs::read(folder.0.join(folder_of("r1")).join("events.jsonl")).unwrap();
    assert_eq!(Digest::of_bytes(&events), end.events);
    assert_good(&store);
}
