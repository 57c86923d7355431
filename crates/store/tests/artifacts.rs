//! What was too large for an answer.

use std::io::Read as _;
use std::sync::Arc;

use callgate_call::{Digest, ManualClock, Timestamp};
use callgate_store::{ARTIFACTS_MAX, Options, Store};

/// Kept under the digest of its bytes; nothing of one that was given up; the oldest leave.
#[test]
fn kept_and_bounded() {
    let dir = crate::common::Folder::new("artifacts");
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let store = Store::open(&dir.0, Options::default(), clock.clone()).unwrap();
    let mut first = store.spill().unwrap();
    first.write(b"one ").unwrap();
    first.write(b"two").unwrap();
    let digest = first.keep().unwrap();
    assert_eq!(digest, Digest::of_bytes(b"one two"));
    let mut text = String::new();
    let mut file = store.artifact(&digest).unwrap().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one two");
    drop(store.spill().unwrap());
    let names = || std::fs::read_dir(dir.0.join("artifacts")).unwrap().count();
    assert_eq!(names(), 1);
    // One that a dead process left.
    std::fs::write(dir.0.join("artifacts/.dead"), "x").unwrap();
    let living = store.spill().unwrap();
    for number in 0..ARTIFACTS_MAX {
        clock.advance(std::time::Duration::from_secs(1));
        let mut spill = store.spill().unwrap();
        spill.write(number.to_string().as_bytes()).unwrap();
        spill.keep().unwrap();
    }
    assert_eq!(names(), ARTIFACTS_MAX + 1, "and the one that is written");
    assert!(store.artifact(&digest).unwrap().is_none());
    assert!(living.keep().is_ok());
}
