//! Group commit (G-8): one task syncs the journal for all that wait, and nobody holds a lock
//! meanwhile. Syncing is done on a blocking thread; it is counted even if its task goes away.
//!
//! Order: the bytes of the segments, the oldest first, then the names of the journal's folder; only
//! then do the records count as safe, and their callers are answered. A loss of power before that
//! costs records that no caller was told of. The next process cuts a torn end off, and takes a
//! segment whose end is missing, while the next one has records, for damage.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::state::locked;
use crate::{Durability, Store, StoreError, Ticket};

/// Which records the disk has confirmed.
#[derive(Default)]
pub(crate) struct Sync {
    /// Held over a whole sync, from taking the dirty files on: a second one beside it would not
    /// know of the files the first has taken, and could confirm records the disk does not have.
    /// Taken before the lock of the state, never under it.
    turn: Mutex<()>,
    /// A leaf: no other lock is taken while it is held.
    state: Mutex<Synced>,
    done: Notify,
    pub(crate) count: AtomicU64,
}

#[derive(Default)]
struct Synced {
    through: Ticket,
    syncing: bool,
    /// After a failed sync the kernel may have dropped the bytes and forget about it, so no
    /// later success can be believed.
    failed: Option<io::ErrorKind>,
}

/// What has to be synced so that all records up to `through` are safe.
pub(crate) struct Dirty {
    files: Vec<Arc<File>>,
    dir: Option<PathBuf>,
    through: Ticket,
}

impl Store {
    /// Waits until every record up to `ticket` is safe.
    pub async fn settle(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.write_through(ticket)?;
        if self.durability == Durability::Process {
            return Ok(());
        }
        loop {
            let done = self.sync.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            match self.sync.next(ticket)? {
                Next::Safe => return Ok(()),
                Next::Wait => done.await,
                Next::Lead => {
                    let lead = Lead(Arc::clone(&self.sync));
                    // Whoever is ready to write does so first, and is in this sync.
                    tokio::task::yield_now().await;
                    // A store that is dropped is not kept for a sync nobody waits for.
                    let inner = Arc::downgrade(&self.inner);
                    // From here on the thread has the lead, whatever becomes of this task. The
                    // result is in the state, also for us.
                    let led = tokio::task::spawn_blocking(move || {
                        lead.0
                            .run(|| inner.upgrade().map(|inner| locked(&inner).dirty()));
                        drop(lead);
                    });
                    let _ = led.await;
                }
            }
        }
    }

    /// As `settle`, on this thread.
    pub fn settle_now(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.write_through(ticket)?;
        if self.durability == Durability::Power {
            self.sync_now()?;
        }
        Ok(())
    }

    /// Syncs what is written, where the store's durability asks for that.
    pub(crate) fn settle_written(&self) -> Result<(), StoreError> {
        match self.durability {
            Durability::Process => Ok(()),
            Durability::Power => self.sync_now(),
        }
    }

    /// Syncs all that is written.
    pub(crate) fn sync_now(&self) -> Result<(), StoreError> {
        self.sync.run(|| Some(self.inner().dirty()));
        match self.sync.lock().failed {
            None => Ok(()),
            Some(kind) => Err(StoreError::Sync {
                source: kind.into(),
            }),
        }
    }

    fn write_through(&self, ticket: Ticket) -> Result<(), StoreError> {
        let mut inner = self.inner();
        if inner.pending.written() < ticket {
            self.write_pending(&mut inner)?;
        }
        if ticket <= inner.lost_through {
            let reason = "the record could not be written and was given up".to_owned();
            return Err(StoreError::Refused { reason });
        }
        Ok(())
    }
}

impl crate::state::Inner {
    fn dirty(&mut self) -> Dirty {
        let mut files = std::mem::take(&mut self.journal.dirty);
        files.extend(self.journal.file().cloned());
        let dir = std::mem::take(&mut self.journal.dirty_dir);
        Dirty {
            files,
            dir: dir.then(|| self.journal.dir().to_owned()),
            through: self.pending.written(),
        }
    }
}

/// The right to sync for all; given back after the sync, or if its task goes away before it.
struct Lead(Arc<Sync>);

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.lock().syncing = false;
        self.0.done.notify_waiters();
    }
}

enum Next {
    Safe,
    Wait,
    Lead,
}

impl Sync {
    fn lock(&self) -> std::sync::MutexGuard<'_, Synced> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, ticket: Ticket) -> Result<Next, StoreError> {
        let mut state = self.lock();
        if let Some(kind) = state.failed {
            return Err(StoreError::Sync {
                source: kind.into(),
            });
        }
        if state.through >= ticket {
            return Ok(Next::Safe);
        }
        if state.syncing {
            return Ok(Next::Wait);
        }
        state.syncing = true;
        Ok(Next::Lead)
    }

    /// Syncs what `take` gives, once no other sync runs: only then `take` is asked.
    fn run(&self, take: impl FnOnce() -> Option<Dirty>) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(dirty) = take() else { return };
        let mut result = Ok(());
        // All are synced even after a failure: the error is kept, and no later success is believed.
        for file in &dirty.files {
            self.count.fetch_add(1, Ordering::Relaxed);
            result = result.and(file.sync_data());
        }
        if let Some(dir) = &dirty.dir {
            self.count.fetch_add(1, Ordering::Relaxed);
            result = result.and(File::open(dir).and_then(|dir| dir.sync_all()));
        }
        let mut state = self.lock();
        match result {
            Ok(()) => state.through = state.through.max(dirty.through),
            Err(e) => state.failed = Some(e.kind()),
        }
        drop(state);
        self.done.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn dirty(through: u64) -> Option<Dirty> {
        Some(Dirty {
            files: Vec::new(),
            dir: None,
            through: Ticket(through),
        })
    }

    /// G-8: a sync takes what is dirty only when no other runs, or it would confirm records
    /// whose file the other is still syncing.
    #[test]
    fn syncs_are_serial() {
        let sync = Sync::default();
        let (taken, takes) = mpsc::sync_channel(1);
        std::thread::scope(|scope| {
            sync.run(|| {
                let sync = &sync;
                scope.spawn(move || {
                    sync.run(|| {
                        taken.send(()).unwrap();
                        dirty(2)
                    });
                });
                let early = takes.recv_timeout(Duration::from_millis(100));
                assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
                dirty(1)
            });
            takes.recv().unwrap();
        });
        assert_eq!(sync.lock().through, Ticket(2));
    }

    /// G-8: a sync beside the leader's does not end the lead.
    #[test]
    fn the_lead_is_the_leaders() {
        let sync = Arc::new(Sync::default());
        assert!(matches!(sync.next(Ticket(2)), Ok(Next::Lead)));
        let lead = Lead(Arc::clone(&sync));
        sync.run(|| dirty(1));
        assert!(matches!(sync.next(Ticket(1)), Ok(Next::Safe)));
        assert!(matches!(sync.next(Ticket(2)), Ok(Next::Wait)));
        drop(lead);
        assert!(matches!(sync.next(Ticket(2)), Ok(Next::Lead)));
    }
}
