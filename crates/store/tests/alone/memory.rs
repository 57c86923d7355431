//! Memory of runs that stays flat. It is the process's, so nothing else runs in this one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod common;

use std::sync::Arc;

use callgate_call::{Digest, RunPolicy, RunVerdict};
use serde_json::Value;

use common::runs::*;
use common::{Folder, open};

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
