//! Who is dead (G-4): every process that starts calls with a key holds a lock file for life. A
//! lock that can be taken says that its owner is gone, whatever killed it. Whoever drives a run of
//! the pilot holds another for that run.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::StoreError;

/// Names a process in start records.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OwnerId(pub(crate) u64);

impl std::fmt::Display for OwnerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl std::fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OwnerId({self})")
    }
}

/// This process's own lock.
pub(crate) struct Owner {
    id: OwnerId,
    _lock: LockFile,
}

impl Owner {
    /// Takes a new name, under the commit lock.
    pub(crate) fn new(state: &Path) -> Result<Self, StoreError> {
        let id = OwnerId(crate::random_u64()?);
        let _lock = LockFile::new(state, &id.to_string())?;
        Ok(Self { id, _lock })
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }
}

/// A file in `owners`, locked for as long as this is there.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    _lock: File,
}

impl LockFile {
    /// The file gets its name only once it is locked, so that nobody can find it unlocked and take
    /// us for dead.
    fn new(state: &Path, name: &str) -> Result<Self, StoreError> {
        let dir = state.join("owners");
        let fresh = dir.join(format!(".{:016x}", crate::random_u64()?));
        let path = dir.join(name);
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(|e| StoreError::write(&fresh, e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| StoreError::write(&fresh, e))?;
        std::fs::rename(&fresh, &path).map_err(|e| StoreError::write(&path, e))?;
        Ok(Self { path, _lock: lock })
    }

    /// One that several may want, under the commit lock; `None` if somebody has it.
    pub(crate) fn take(state: &Path, name: &str) -> Result<Option<Self>, StoreError> {
        if is_locked(&state.join("owners").join(name)) {
            return Ok(None);
        }
        Self::new(state, name).map(Some)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // No file says the same as a file whose lock can be taken.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// True if the lock of `owner` cannot be taken.
pub(crate) fn is_alive(state: &Path, owner: OwnerId) -> bool {
    is_locked(&state.join("owners").join(owner.to_string()))
}

/// True if somebody holds the lock of a file, for life or while making it.
pub(crate) fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        // Shared, so that two who look at once do not take each other for the owner.
        Ok(file) => match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => false,
            // Not to be told apart from a living owner, so it lives: a second run is worse.
            Err(_) => true,
        },
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}
