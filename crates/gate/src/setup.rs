//! What one configuration makes of the gate, and what the gate says of it.

use std::sync::Arc;

use callgate_call::{Secrets, Shelf};

use crate::admit::BreakerPolicy;
use crate::catalog::{Catalog, Entries};
use crate::policy::Policy;

/// What one configuration makes of the gate; swapped whole on reload.
#[derive(Default)]
pub struct Setup {
    /// The tools.
    pub catalog: Catalog,
    /// Code that may be run beside them.
    pub entries: Option<Arc<dyn Entries>>,
    /// Who may call them.
    pub policy: Policy,
    /// When a failing tool is left alone.
    pub breaker: BreakerPolicy,
    /// What must never leave.
    pub secrets: Secrets,
    /// What stands beside the tools.
    pub shelf: Shelf,
    /// Parts that are not served while all else is: a line for people each.
    pub problems: Vec<String>,
    /// The line for people on the configuration in force: which it is, and why.
    pub note: String,
    /// The same for callers, where the workspace's files are not what is in force, so that tools
    /// they name may be missing. It quotes nothing of the files, which callers may not read.
    pub doubt: Option<String>,
}

/// The words on the configuration in force. They change without the setup too: a changed file that
/// is not trusted leaves the setup in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationStatus {
    /// The line for people, as in [`Setup::note`].
    pub note: String,
    /// The line for callers, as in [`Setup::doubt`].
    pub doubt: Option<String>,
}

impl ConfigurationStatus {
    pub(crate) fn of(setup: &Setup) -> Self {
        Self {
            note: setup.note.clone(),
            doubt: setup.doubt.clone(),
        }
    }
}
