//! The saved corpora, replayed: each input is run once by its target, as libFuzzer would run it.

#![expect(clippy::disallowed_methods, reason = "a test reads its corpora")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

use callgate_fuzz::TARGETS;

/// The bounds of what is saved: `cargo xtask fuzz --save` keeps them.
const FILES_MAX: usize = 200;
const FILE_BYTES_MAX: usize = 4 * 1024;
const CORPUS_BYTES_MAX: usize = 300 * 1024;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The files of a folder in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder that can be read");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

#[test]
fn corpora_are_replayed() {
    let start = Instant::now();
    let (mut count, mut broken) = (0, Vec::new());
    for target in TARGETS {
        for path in files(&folder().join(target.name)) {
            let input = fs::read(&path).expect("an input that can be read");
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
                broken.push(format!("{}: {}", target.name, path.display()));
            }
            count += 1;
        }
    }
    println!("{count} inputs in {:?}", start.elapsed());
    assert!(broken.is_empty(), "broken:\n{}", broken.join("\n"));
}

#[test]
fn every_target_has_a_corpus_within_bounds() {
    let found: BTreeSet<String> = files(&folder())
        .iter()
        .map(|path| {
            path.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let wanted: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(found, wanted);
    for name in found {
        let files = files(&folder().join(&name));
        assert!(
            (1..=FILES_MAX).contains(&files.len()),
            "{name}: {} files",
            files.len()
        );
        let lengths: Vec<usize> = files
            .iter()
            .map(|path| fs::read(path).expect("an input that can be read").len())
            .collect();
        assert!(
            lengths.iter().all(|length| *length <= FILE_BYTES_MAX),
            "{name}"
        );
        assert!(lengths.iter().sum::<usize>() <= CORPUS_BYTES_MAX, "{name}");
    }
}
