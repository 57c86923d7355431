//! Copies of what the owner trusts.

use crate::common::{Folder, input, open};

/// G-9: a copy is exchanged whole; a sweep keeps the one that is named, and removes what a
/// process that died left half made.
#[test]
fn copies_are_exchanged_and_swept() {
    let folder = Folder::new("trusted-copies");
    let store = open(&folder);
    let lock = store.lock_trust().unwrap();
    let file = |of: &str| store.trusted_copy("w", input(of)).join("a/b");
    let read = |of: &str| std::fs::read_to_string(file(of)).ok();
    for (of, text) in [("one", "1"), ("two", "2"), ("two", "3")] {
        let files = [("a/b", text.as_bytes())];
        store
            .put_trusted_copy(&lock, "w", input(of), &files)
            .unwrap();
    }
    assert_eq!(
        (read("one").as_deref(), read("two").as_deref()),
        (Some("1"), Some("3"))
    );
    let half = folder.0.join("trusted/w/.callgate-dead");
    std::fs::create_dir(&half).unwrap();
    store
        .sweep_trusted_copies(&lock, "w", Some(input("two")))
        .unwrap();
    assert_eq!((read("one"), read("two").as_deref()), (None, Some("3")));
    assert!(!half.exists());
    store.sweep_trusted_copies(&lock, "w", None).unwrap();
    assert_eq!(
        (read("two"), store.has_copies_of_others("v")),
        (None, false)
    );
    store
        .put_trusted_copy(&lock, "w", input("one"), &[])
        .unwrap();
    assert!(store.has_copies_of_others("v") && !store.has_copies_of_others("w"));
}
