//! Turns at something there are only so many of, and the line of calls that wait for one.

use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_call::{Fault, Job};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::process::within;

/// So many turns at a time, and a line of bounded length before them.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Semaphore,
    max: usize,
    waiting: AtomicUsize,
    waiting_max: usize,
    /// What a turn is at, for those who get none: `worker`.
    what: &'static str,
}

impl Turns {
    /// One turn at least.
    pub fn new(max: usize, waiting_max: usize, what: &'static str) -> Self {
        let max = max.max(1);
        Self {
            free: Semaphore::new(max),
            max,
            waiting: AtomicUsize::new(0),
            waiting_max,
            what,
        }
    }

    /// Waits for a turn, if there is room to wait.
    pub async fn take(
        &self,
        job: Job<'_>,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, Fault> {
        if let Ok(turn) = self.free.try_acquire() {
            return Ok(turn);
        }
        let _place = self.place()?;
        within(job, deadline, self.next())
            .await
            .map_err(|fault| match fault {
                // Nothing has run and the tool is well: neither its key nor its breaker may think
                // otherwise.
                Fault::Timeout { after } => Fault::Unavailable {
                    reason: format!("no {} was free within {} ms", self.what, after.as_millis()),
                },
                other => other,
            })
    }

    /// The next turn, for as long as it is waited for.
    pub async fn next(&self) -> SemaphorePermit<'_> {
        let turn = self.free.acquire().await;
        turn.expect("the semaphore is never closed")
    }

    /// Turns that nobody has.
    pub fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// Turns that somebody has.
    pub fn taken(&self) -> usize {
        self.max.saturating_sub(self.free())
    }

    /// Calls in the line.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn place(&self) -> Result<Place<'_>, Fault> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.waiting);
        if before < self.waiting_max {
            return Ok(place);
        }
        Err(Fault::Unavailable {
            reason: format!(
                "queue full: {} calls wait for a {}",
                self.waiting_max, self.what
            ),
        })
    }
}

/// A place in the line.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
