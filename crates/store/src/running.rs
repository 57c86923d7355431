//! Which gate serves a state. The gate holds a lock in the state folder for as long as it lives,
//! and says beside it where it is, so that every command finds it whatever its environment says
//! of the places of sockets. What is said counts only while the lock is held.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use callgate_call::bounded;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};

use crate::owner::is_locked;
use crate::{StoreError, write_owner_file};

const LOCK: &str = "gate.lock";
const RECORD: &str = "gate.json";

/// Where a running gate is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningGate {
    /// Its process.
    pub pid: u32,
    /// When it was started, in ms since 1970.
    pub started_ms: u64,
    /// The workspace it serves.
    pub workspace: PathBuf,
    /// Its socket; none until it can be reached.
    pub socket: Option<PathBuf>,
    /// Its port on loopback.
    pub port: Option<u16>,
}

/// The lock of the gate of a state. Ends with its process.
#[derive(Debug)]
pub struct GateLock {
    state: PathBuf,
    _lock: File,
}

impl GateLock {
    /// Takes the lock; nothing if a process holds it.
    pub fn take(state: &Path) -> Result<Option<Self>, StoreError> {
        let path = state.join(LOCK);
        let failed = |error| StoreError::write(&path, error);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        }
        // What an earlier gate said would count again, as the lock is held.
        remove(&state.join(RECORD))?;
        Ok(Some(Self {
            state: state.to_owned(),
            _lock: lock,
        }))
    }

    /// Says where the gate is.
    pub fn record(&self, gate: &RunningGate) -> Result<(), StoreError> {
        // A path that is not UTF-8 cannot be written as JSON, and is not said.
        let plain = RunningGate {
            socket: gate.socket.clone().filter(|path| path.to_str().is_some()),
            ..gate.clone()
        };
        let failed =
            |error: serde_json::Error| StoreError::write(&self.state, std::io::Error::from(error));
        let text = serde_json::to_string(&plain).map_err(failed)?;
        write_owner_file(&self.state.join(RECORD), &format!("{text}\n"))
    }
}

impl Drop for GateLock {
    fn drop(&mut self) {
        // One that stays says nothing, since its lock is free.
        let _ = remove(&self.state.join(RECORD));
    }
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::write(path, error))
        }
        _ => Ok(()),
    }
}

/// The gate that serves a state, if one does and has said where it is.
#[must_use]
pub fn running_gate(state: &Path) -> Option<RunningGate> {
    /// A record of ours is smaller.
    const BYTES_MAX: u64 = 64 * 1024;
    let path = state.join(RECORD);
    let text = bounded::read_path_text(&path, BYTES_MAX).ok()?;
    // After the text: what a dead gate wrote must not count under the lock of the next one.
    is_locked(&state.join(LOCK)).then(|| serde_json::from_str(&text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// What a gate says counts while it holds the lock, and only one holds it.
    #[test]
    fn a_record_lives_with_its_lock() {
        let place = Place::new("running");
        let state = &place.0;
        assert_eq!(running_gate(state), None);
        let lock = GateLock::take(state).unwrap().unwrap();
        assert!(GateLock::take(state).unwrap().is_none());
        assert_eq!(running_gate(state), None, "it has not said where it is");
        let gate = RunningGate {
            pid: 7,
            started_ms: 1,
            workspace: "/w".into(),
            socket: Some("/s".into()),
            port: Some(9),
        };
        lock.record(&gate).unwrap();
        assert_eq!(running_gate(state), Some(gate.clone()));
        drop(lock);
        assert_eq!(running_gate(state), None);

        // Killed: the record is left, the lock is not.
        std::fs::write(state.join(RECORD), serde_json::to_string(&gate).unwrap()).unwrap();
        assert_eq!(running_gate(state), None);
        let lock = GateLock::take(state).unwrap().unwrap();
        assert_eq!(
            running_gate(state),
            None,
            "an earlier gate's record is gone"
        );
        drop(lock);
    }
}
