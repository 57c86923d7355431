//! Runs at the limits of the machine: a disk that is full.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::runs::*;
use crate::common::{Folder, assert_good, open};
use callgate_call::{Digest, KeepError, RunFile, RunPolicy, RunVerdict};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;

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
    // Emptied as well: a process that another test forks meanwhile holds the file open, and so its
    // blocks, until it executes its program.
    filled.set_len(0).unwrap();
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
