//! What nobody needs any more is removed: outputs that no living key points at, what the dead
//! left half made, and their lock files. D-12.
//!
//! Looking needs no lock. What looks as if it could go is looked at again under the commit lock,
//! under which files get their names, their locks and their times, and only then goes.

use std::path::{Path, PathBuf};

use callgate_call::Timestamp;

use crate::state::Inner;
use crate::{blobs, owner};

/// So many files of a folder are looked at by a process that opens the store and has something
/// else to do. A fold looks at all.
pub(crate) const FILES_AT_OPEN: usize = 256;
/// A blob stays for so long after its last key, for those who have just looked at that.
const GRACE_MS: u64 = 60_000;

impl Inner {
    /// Removes what is over, in the first `files_max` files of each folder. Must not be called
    /// under the commit lock, which it would give back. What can not be removed stays.
    pub(crate) fn sweep(&self, now: Timestamp, files_max: usize) {
        let life_ms = u64::try_from(self.options.key_life.as_millis()).unwrap_or(u64::MAX);
        let kept_from = now.0.saturating_sub(life_ms).saturating_sub(GRACE_MS);
        let blob_is_over = |path: &Path| {
            if is_hidden(path) {
                !owner::is_locked(path)
            } else {
                blobs::time_of(path).is_some_and(|at| at.0 <= kept_from)
            }
        };
        let owner_is_over = |path: &Path| !owner::is_locked(path);
        // The lock of a file that is being made is not tried yet: its maker may be about to.
        let blobs = found(&self.dir.join("blobs"), files_max, |path| {
            is_hidden(path) || blob_is_over(path)
        });
        let owners = found(&self.dir.join("owners"), files_max, |path| {
            is_hidden(path) || owner_is_over(path)
        });
        if blobs.is_empty() && owners.is_empty() {
            return;
        }
        // Nobody waits for this: whoever comes next finds the same.
        let Some(_lock) = self.journal.try_lock() else {
            return;
        };
        let blobs = blobs.iter().filter(|path| blob_is_over(path));
        let owners = owners.iter().filter(|path| owner_is_over(path));
        for path in blobs.chain(owners) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The files of a folder that are over, among the first `files_max`.
fn found(dir: &Path, files_max: usize, is_over: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .take(files_max)
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_over(path))
        .collect()
}

/// True for a file that is being made.
fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}
