//! A child's ways out that several calls use at the same time: which refusals a call may have
//! caused is known by when it began and ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{Fault, Needs, Sink};
use callgate_sandbox::Child;

use super::outlet::{FACT, Outlet, Refused};
use super::{Egress, Refusal, Watch};

/// Refusals that are remembered; of earlier ones only the number is known.
const REMEMBERED_MAX: usize = 64;

/// The ways out of a child for as long as the value lives.
#[derive(Debug)]
pub(crate) struct SharedOutlet {
    refusals: Arc<Mutex<Refusals>>,
    _ways: Vec<Egress>,
}

#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    /// The newest ones, the last of which has the number `count`.
    newest: VecDeque<Refusal>,
}

impl SharedOutlet {
    /// Serves the way out of a child, where it has one.
    pub fn start(child: &mut Child, needs: Option<&Needs>) -> Result<Option<Self>, Fault> {
        let Some(outlet) = Outlet::of(child, needs)? else {
            return Ok(None);
        };
        let refusals = Arc::<Mutex<Refusals>>::default();
        let seen = Arc::clone(&refusals);
        let watch: Watch = Arc::new(move |refusal: &Refusal| lock(&seen).add(refusal));
        Ok(Some(Self {
            refusals,
            _ways: outlet.serve_to(&watch)?,
        }))
    }

    /// The number of refusals so far.
    pub fn count(&self) -> u64 {
        lock(&self.refusals).count
    }

    /// Reports the refusals past the first `before` to a call, and returns the first host among
    /// them that may be allowed by naming it.
    pub fn tell_since(&self, before: u64, sink: &dyn Sink) -> Option<String> {
        let refusals = lock(&self.refusals);
        let count = refusals.count - before;
        if count == 0 {
            return None;
        }
        let mut refused = Refused::default();
        let first = usize::try_from(count).unwrap_or(usize::MAX);
        let skipped = refusals.newest.len().saturating_sub(first);
        for refusal in refusals.newest.iter().skip(skipped) {
            refused.add(refusal);
        }
        drop(refusals);
        refused.count = count;
        if let Some(words) = refused.words() {
            sink.fact(FACT, &words);
            sink.refused(count);
        }
        refused.host
    }
}

impl Refusals {
    fn add(&mut self, refusal: &Refusal) {
        self.count += 1;
        if self.newest.len() == REMEMBERED_MAX {
            self.newest.pop_front();
        }
        self.newest.push_back(refusal.clone());
    }
}

fn lock(refusals: &Mutex<Refusals>) -> MutexGuard<'_, Refusals> {
    refusals.lock().unwrap_or_else(PoisonError::into_inner)
}
