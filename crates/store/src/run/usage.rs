//! How much runs keep, all together: events, files, artifacts and bytes on their way to be one.
//! Counted, and looked up at first and every now and then (D-14): other processes of the workspace keep
//! runs too, and collect them, and so may the owner. Between two looks each process may take what
//! the last one left, so that the bound holds but for what others write meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use callgate_call::KeepError;

/// Looks are no more frequent than this.
const LOOK_EVERY_US: u64 = 10_000_000;
/// And where there is much to look at, so many times as long passes as a look takes.
const REST_TIMES: u64 = 20;

pub(crate) struct Usage {
    state: PathBuf,
    max: u64,
    used: AtomicU64,
    /// When the next look is due; nothing if there was none.
    due_at: Mutex<Option<u64>>,
}

impl Usage {
    pub(crate) fn new(state: &Path, max: u64) -> Self {
        Self {
            state: state.to_owned(),
            max,
            used: AtomicU64::new(0),
            due_at: Mutex::new(None),
        }
    }

    /// Looks at what is there, if that is due.
    pub(super) fn refresh(&self, now: impl Fn() -> u64) {
        let mut due_at = self.due_at.lock().unwrap_or_else(PoisonError::into_inner);
        let began = now();
        if due_at.is_some_and(|at| began < at) {
            return;
        }
        self.look();
        let ended = now();
        let rest = ended.saturating_sub(began).saturating_mul(REST_TIMES);
        *due_at = Some(ended.saturating_add(rest.max(LOOK_EVERY_US)));
    }

    /// Bytes that are about to be written. At the bound they still fit, past it they do not.
    pub(super) fn reserve(&self, bytes: usize, now: impl Fn() -> u64) -> Result<(), KeepError> {
        self.refresh(now);
        match self.take(bytes as u64) {
            true => Ok(()),
            false => Err(KeepError::Quota {
                quota_bytes: self.max,
            }),
        }
    }

    /// Counts what is small and must be written whatever the bound says.
    pub(super) fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes that were not written after all, or are gone.
    pub(super) fn release(&self, bytes: u64) {
        let less = |used: u64| Some(used.saturating_sub(bytes));
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn look(&self) {
        let folders = ["datasets", "artifacts", "incoming"];
        let used = folders.map(|name| bytes_in(&self.state.join(name)));
        self.used.store(used.iter().sum(), Ordering::Relaxed);
    }
}

/// The bytes of all files below a folder. What can not be looked at is not counted.
fn bytes_in(folder: &Path) -> u64 {
    let mut folders = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(about) if about.is_dir() => folders.push(entry.path()),
                Ok(about) if about.is_file() => bytes += about.len(),
                _ => {}
            }
        }
    }
    bytes
}
