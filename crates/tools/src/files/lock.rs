//! One writer at a time, of all processes of the workspace: whoever gives names away holds a lock
//! on a file beside our state. It is waited for until the call's time is over, or until nobody
//! wants it any more.
//!
//! Order: the turn in this process, then the file. `is_taken` is held only to look at it, never
//! while a thread waits for the file. No thread takes the lock twice. Under it come only leaves (the
//! tables of etags, answers and swept folders) and locks that are tried, not waited for.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_call::{Cancel, Fault};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often it is looked whether another process has let go.
const OTHERS_LOOK: Duration = Duration::from_millis(1);
/// How often those who wait for their turn in this one look whether they are still wanted.
const TURN_LOOK: Duration = Duration::from_millis(20);

/// The lock, and whose turn it is in this process: one of its threads asks the kernel.
pub struct Lock {
    /// Where there is no state there are no writes; reading needs none.
    file: Option<File>,
    is_taken: Mutex<bool>,
    freed: Condvar,
}

/// Held until dropped.
pub struct Locked<'a>(&'a Lock, &'a File);

impl Lock {
    pub fn open(path: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        Self {
            file: options.open(path).ok(),
            is_taken: Mutex::new(false),
            freed: Condvar::new(),
        }
    }

    /// Waits for it, unless told to stop.
    pub fn take(&self, stop: &Cancel) -> Result<Locked<'_>, Fault> {
        let Some(file) = &self.file else {
            return Err(Fault::Unavailable {
                reason: "there is no state folder to lock the workspace's files by".to_owned(),
            });
        };
        self.take_turn(stop)?;
        let locked = Locked(self, file);
        loop {
            go_on(stop)?;
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(locked),
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(OTHERS_LOOK),
                Err(error) => {
                    return Err(Fault::Internal {
                        message: format!("lock the workspace's files: {error}"),
                    });
                }
            }
        }
    }

    fn take_turn(&self, stop: &Cancel) -> Result<(), Fault> {
        let mut is_taken = self.turn();
        while *is_taken {
            go_on(stop)?;
            let waited = self.freed.wait_timeout(is_taken, TURN_LOOK);
            is_taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Self(lock, file) = self;
        let _ = flock(file, FlockOperation::Unlock);
        *lock.turn() = false;
        lock.freed.notify_one();
    }
}

/// An error once nobody wants it any more.
pub fn go_on(stop: &Cancel) -> Result<(), Fault> {
    match stop.is_cancelled() {
        true => Err(Fault::Cancelled),
        false => Ok(()),
    }
}
