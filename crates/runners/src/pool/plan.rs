//! What the workers of a pool are to be, as a value: the pools of two tools are one where their
//! plans are equal.

use std::sync::Arc;

use callgate_sandbox::Spawner;

use super::{Pool, PoolSettings};
use crate::interpreter::Interpreter;

/// The settings of a pool and, for Python and Node, the interpreter of its workers.
///
/// Two plans are equal if no worker could tell them apart. Values of variables are a part of it,
/// those of secrets included, so a plan is not to be printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PoolPlan {
    pub(crate) settings: PoolSettings,
    pub(crate) interpreter: Option<Interpreter>,
}

impl PoolPlan {
    /// The plan of a pool whose workers run the command of `settings`.
    #[must_use]
    pub fn program(settings: PoolSettings) -> Self {
        Self {
            settings,
            interpreter: None,
        }
    }

    /// A pool of this plan, without workers; they start with the first calls.
    #[must_use]
    pub fn pool(self, spawner: Arc<Spawner>) -> Arc<Pool> {
        Pool::with_interpreter(spawner, self.settings, self.interpreter)
    }
}
