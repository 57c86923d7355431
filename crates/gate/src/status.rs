//! What a gate says of the configuration it serves.

use crate::invoke::Setup;

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
