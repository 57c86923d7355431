//! Who is dead (G-4): every process that starts calls with a key holds a lock file for life. A
//! lock that can be taken says that its owner is gone, whatever killed it.

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
    path: PathBuf,
    _lock: File,
}

impl Owner {
    /// Takes a new name, under the commit lock. The file gets its name only once it is locked, so
    /// that nobody can find it unlocked and take us for dead.
    pub(crate) fn new(state: &Path) -> Result<Self, StoreError> {
        let id = OwnerId(crate::random_u64()?);
        let dir = state.join("owners");
        let fresh = dir.join(format!(".{id}"));
        let path = dir.join(id.to_string());
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(|e| StoreError::write(&fresh, e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| StoreError::write(&fresh, e))?;
        std::fs::rename(&fresh, &path).map_err(|e| StoreError::write(&path, e))?;
        Ok(Self {
            id,
            path,
            _lock: lock,
        })
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }
}

impl Drop for Owner {
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
