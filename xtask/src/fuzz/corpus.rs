//! The saved corpora: few and small files, so that the repository and the replay stay small.

use std::fs;
use std::path::{Path, PathBuf};

use super::failed;
use crate::report::Failure;

/// Files of one corpus that are saved.
const FILES_MAX: usize = 200;
/// Bytes of one corpus that are saved.
const BYTES_MAX: u64 = 300 * 1024;
/// Bytes of one file that is saved.
const FILE_BYTES_MAX: u64 = 4 * 1024;

/// Replaces the inputs of a corpus that libFuzzer named by those of `merged`; where those are
/// too many, by some of each length. Inputs that a person named stay: they are earlier findings.
pub fn replace(corpus: &Path, merged: &Path) -> Result<(), Failure> {
    let mut inputs = files(merged)?;
    inputs.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    for (path, _) in files(corpus)?.iter().filter(|(path, _)| is_digest(path)) {
        fs::remove_file(path).map_err(|e| failed("remove", path, &e))?;
    }
    let room = FILES_MAX.saturating_sub(files(corpus)?.len());
    let mut bytes = 0;
    for (path, length) in spread(&inputs, room) {
        bytes += length;
        if *length > FILE_BYTES_MAX || bytes > BYTES_MAX {
            break;
        }
        let kept = corpus.join(path.file_name().unwrap_or_default());
        fs::copy(path, &kept).map_err(|e| failed("copy", path, &e))?;
    }
    Ok(())
}

/// At most `count` items, in even steps from the first on.
fn spread<T>(items: &[T], count: usize) -> impl Iterator<Item = &T> {
    let taken = count.min(items.len());
    (0..taken).map(move |index| &items[index * items.len() / taken])
}

/// The files of a folder with their lengths.
fn files(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let entries = fs::read_dir(folder).map_err(|e| failed("read", folder, &e))?;
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let about = entry.metadata();
        let about = about.map_err(|e| failed("read", &entry.path(), &e))?;
        files.push((entry.path(), about.len()));
    }
    Ok(files)
}

/// True for the name that libFuzzer gives: the SHA-1 of the input.
fn is_digest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_of_many_are_spread() {
        let spread = |count| {
            spread(&[1, 2, 3, 4, 5], count)
                .copied()
                .collect::<Vec<i32>>()
        };
        assert_eq!(spread(9), [1, 2, 3, 4, 5]);
        assert_eq!(spread(2), [1, 3]);
        assert!(spread(0).is_empty());
    }

    #[test]
    fn names_of_people_are_no_digests() {
        assert!(is_digest(Path::new(
            "a/da39a3ee5e6b4b0d3255bfef95601890afd80709"
        )));
        assert!(!is_digest(Path::new("a/finding-depth")));
    }
}
