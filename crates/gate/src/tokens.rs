//! What HTTP doors ask of the gate beside calls: whose token this is, and that strangers were
//! turned away. Making and revoking tokens is the owner's, on the command line.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use callgate_call::{BearerToken, Fault, Scope, Timestamp};
use callgate_store::TokenState;

use crate::errors::internal;
use crate::invoke::Gate;

/// One record of refused strangers at most in so long; those between are counted in the next,
/// so that a flood can not fill the disk.
const RECORD_EVERY: Duration = Duration::from_secs(60);

/// Strangers that no record tells of yet. Taken before the lock of the store, which records them.
#[derive(Default)]
pub(crate) struct Strangers(Mutex<Unrecorded>);

#[derive(Default)]
struct Unrecorded {
    times: u64,
    reason: &'static str,
    recorded_at: Option<Timestamp>,
}

/// A token that is good now.
#[derive(Clone, Debug)]
pub struct ActiveToken {
    /// The name that its owner gave it.
    pub name: String,
    /// The calls that it permits.
    pub scope: Scope,
}

impl Gate {
    /// The active token behind `bearer`; `None` if it is unknown, revoked or expired.
    pub fn active_token(&self, bearer: &BearerToken) -> Result<Option<ActiveToken>, Fault> {
        let found = self.store.token(bearer).map_err(|error| internal(&error))?;
        let active = found.filter(|token| token.state == TokenState::Active);
        Ok(active.map(|token| ActiveToken {
            name: token.name,
            scope: token.scope,
        }))
    }

    /// Somebody was turned away at an HTTP door, for a reason of one word.
    pub fn refused_stranger(&self, reason: &'static str) {
        let now = self.clock.now();
        let mut unrecorded = self.strangers.lock();
        unrecorded.times += 1;
        unrecorded.reason = reason;
        let due = unrecorded
            .recorded_at
            .is_none_or(|at| now.since(at) >= RECORD_EVERY);
        if due {
            unrecorded.recorded_at = Some(now);
            self.record_strangers(&mut unrecorded);
        }
    }

    /// Records the strangers that were only counted so far; for an orderly end.
    pub fn flush_strangers(&self) {
        let mut unrecorded = self.strangers.lock();
        if unrecorded.times > 0 {
            self.record_strangers(&mut unrecorded);
        }
    }

    fn record_strangers(&self, unrecorded: &mut Unrecorded) {
        let times = std::mem::take(&mut unrecorded.times);
        self.store.refuse_strangers(unrecorded.reason, times);
    }
}

impl Strangers {
    fn lock(&self) -> std::sync::MutexGuard<'_, Unrecorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
