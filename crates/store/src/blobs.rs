//! Outputs above 1 MiB, kept for replay: files beside the journal, each under the digest of its
//! bytes. A blob's time is that of the newest key that points at it, so that its age alone tells
//! when the last of them has expired (D-12). Names are given under the commit lock, and taken
//! away under it (sweep.rs).
//!
//! Order under `power`: the bytes are on the disk, then they get their name, then the disk has the
//! name, then the record that points at the blob is written. A crash in between leaves a hidden
//! file, which goes with the next sweep, or a blob without a key, which goes with its age.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use callgate_call::bounded::read_path_text;
use callgate_call::{Digest, Timestamp};
use rustix::fs::{FlockOperation, flock};

use crate::{Durability, Store, StoreError};

impl Store {
    /// Keeps an output, before the record that names it and at the same time as that.
    pub(crate) fn keep_blob(&self, text: &str, now: Timestamp) -> Result<Digest, StoreError> {
        let digest = Digest::of_bytes(text.as_bytes());
        let dir = self.dir.join("blobs");
        let path = dir.join(digest.to_hex());
        let beside = dir.join(format!(".{:016x}", crate::random_u64()?));
        let fail = |e: io::Error| StoreError::write(&path, e);
        let Some(file) = self.renew_or_make(&path, &beside, now)? else {
            // Its maker may not have come to this yet.
            self.sync_names(&dir).map_err(fail)?;
            return Ok(digest);
        };
        // Not under the lock: this may take a while, and others have calls to record.
        let filled = self.fill(&file, text, now).map_err(fail).and_then(|()| {
            let inner = self.inner();
            let _lock = inner.journal.lock()?;
            std::fs::rename(&beside, &path).map_err(fail)
        });
        if filled.is_err() {
            let _ = std::fs::remove_file(&beside);
        }
        filled?;
        self.sync_names(&dir).map_err(fail)?;
        Ok(digest)
    }

    /// Puts the names of the blobs on the disk, where durability asks for that: the caller appends
    /// a record next, whose blob must not be lost with the power.
    fn sync_names(&self, dir: &Path) -> io::Result<()> {
        match self.durability {
            Durability::Process => Ok(()),
            Durability::Power => File::open(dir)?.sync_all(),
        }
    }

    /// Renews the blob that is there; where none is, a file to fill. That is locked before
    /// anyone can look at it, so that it is its dead writer's if its lock can be taken.
    fn renew_or_make(
        &self,
        path: &Path,
        beside: &Path,
        now: Timestamp,
    ) -> Result<Option<File>, StoreError> {
        let fail = |e: io::Error| StoreError::write(path, e);
        let inner = self.inner();
        let _lock = inner.journal.lock()?;
        match File::open(path) {
            Ok(file) => {
                if time_of(path).is_none_or(|at| at < now) {
                    self.stamp(&file, now).map_err(fail)?;
                }
                return Ok(None);
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e)),
        }
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(beside)
            .map_err(fail)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| fail(e.into()))?;
        Ok(Some(file))
    }

    fn fill(&self, mut file: &File, text: &str, now: Timestamp) -> io::Result<()> {
        file.write_all(text.as_bytes())?;
        self.stamp(file, now)
    }

    fn stamp(&self, file: &File, now: Timestamp) -> io::Result<()> {
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(now.0))?;
        if self.durability == Durability::Power {
            file.sync_all()?;
        }
        Ok(())
    }
}

/// The largest blob: twice the largest output that configuration allows.
const BLOB_BYTES_MAX: u64 = 2 << 30;

/// The text of a blob; `None` if it is not there any more.
pub(crate) fn read(state: &Path, digest: &Digest) -> Result<Option<String>, StoreError> {
    let path = state.join("blobs").join(digest.to_hex());
    match read_path_text(&path, BLOB_BYTES_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StoreError::read(&path, e)),
    }
}

/// The time of the newest key that points at a blob.
pub(crate) fn time_of(path: &Path) -> Option<Timestamp> {
    let found = std::fs::metadata(path).ok()?;
    let (secs, nanos) = (found.mtime(), found.mtime_nsec());
    let ms = secs.checked_mul(1000)?.checked_add(nanos / 1_000_000)?;
    Some(Timestamp(u64::try_from(ms).unwrap_or(0)))
}
