//! What was too large for an answer: files under the digest of their bytes, in a folder that
//! holds so many of them and no more; the oldest leave. Nothing else points at them. The folders
//! beside them are the artifacts of streamed runs (run/commit.rs), which stay.
//!
//! One that is being written has a hidden name and is locked by its writer. Hidden names are
//! made, and the folder is cleared, under a lock of the folder.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use callgate_call::{Digest, Timestamp};
use rustix::fs::{FlockOperation, flock};

use crate::owner::is_locked;
use crate::{Store, StoreError};

/// Artifacts that are kept.
pub const ARTIFACTS_MAX: usize = 64;
/// Bytes of all of them.
pub const ARTIFACTS_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// An artifact in the making. One that is dropped was never there.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    hidden: PathBuf,
    file: File,
    hasher: blake3::Hasher,
    now: Timestamp,
}

impl Store {
    /// Begins an artifact.
    pub fn spill(&self) -> Result<Spill, StoreError> {
        let folder = self.dir.join("artifacts");
        let hidden = folder.join(format!(".{:016x}", crate::random_u64()?));
        let fail = |e: io::Error| StoreError::write(&hidden, e);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(fail(e)),
            _ => {}
        }
        let _lock = lock(&folder).map_err(fail)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&hidden)
            .map_err(fail)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| fail(e.into()))?;
        Ok(Spill {
            folder,
            hidden,
            file,
            hasher: blake3::Hasher::new(),
            now: self.clock.now(),
        })
    }

    /// An artifact's bytes, a call's or a run's; nothing if it is not there, or not any more.
    pub fn artifact(&self, digest: &Digest) -> Result<Option<File>, StoreError> {
        let path = self.dir.join("artifacts").join(digest.to_hex());
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == ErrorKind::NotFound => self.committed(digest),
            Err(e) => Err(StoreError::read(&path, e)),
        }
    }
}

impl Spill {
    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.hasher.update(bytes);
        let written = self.file.write_all(bytes);
        written.map_err(|e| StoreError::write(&self.hidden, e))
    }

    /// Gives it its name, and lets the oldest go where there are too many.
    pub fn keep(self) -> Result<Digest, StoreError> {
        let digest = Digest(*self.hasher.finalize().as_bytes());
        let path = self.folder.join(digest.to_hex());
        let fail = |e: io::Error| StoreError::write(&path, e);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.now.0);
        self.file.set_modified(now).map_err(fail)?;
        let _lock = lock(&self.folder).map_err(fail)?;
        std::fs::rename(&self.hidden, &path).map_err(fail)?;
        clear(&self.folder, &path);
        Ok(digest)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // Gone already if it was kept.
        let _ = std::fs::remove_file(&self.hidden);
    }
}

fn lock(folder: &Path) -> io::Result<File> {
    let folder = File::open(folder)?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

/// Removes the oldest beyond the bounds, but never `newest`, and what the dead left half made.
fn clear(folder: &Path, newest: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut kept = Vec::new();
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let Ok(about) = entry.metadata() else {
            continue;
        };
        if about.is_dir() {
            continue;
        }
        if name.as_encoded_bytes().starts_with(b".") {
            if !is_locked(&path) {
                let _ = std::fs::remove_file(path);
            }
        } else if path != newest {
            kept.push((about.modified().ok(), about.len(), path));
        }
    }
    kept.sort_unstable_by(|one, other| other.cmp(one));
    let (mut count, mut bytes) = (1, newest.metadata().map_or(0, |about| about.len()));
    for (_, size, path) in kept {
        (count, bytes) = (count + 1, bytes + size);
        if count > ARTIFACTS_MAX || bytes > ARTIFACTS_BYTES_MAX {
            let _ = std::fs::remove_file(path);
        }
    }
}
