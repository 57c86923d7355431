//! How servers that clients or people name become servers behind the gate: commands are read,
//! imports planned, presets proposed, packages installed, and servers started once to see what they
//! define. Nothing is served before the owner's yes, which is asked for by the commands in `app`.
//!
//! Not here: settings files of clients (`importer`), package managers (`installer`), and what a
//! configured server is (`registry`).

mod all;
mod command;
mod listing;
pub mod packages;
mod plan;
mod proposal;

pub use all::{PrepareError, Prepared, prepare_all};
pub use command::{CommandError, read_command};
pub use listing::{ListError, look};
pub use packages::PackageError;
pub use plan::{Plan, Planned, Skipped, plan};

use std::sync::Arc;

/// Shows how far a slow step is: the server, and words for people.
pub type ShowProgress = Arc<dyn Fn(&str, &str) + Send + Sync>;
