//! Whether a workspace's configuration counts: only with the owner's word on its digest
//! (G-9). Anything else leaves the built-in tools and a line that says what to do.

use callgate_store::{Store, StoreError};

use crate::environment::Environment;
use crate::paths::Paths;
use crate::workspace::{CONFIG_FILE, Source, SourceError, hint_above};

/// A configuration and whether it counts.
pub enum Found {
    /// Trusted as it is.
    Trusted(Box<Source>),
    /// There, but not trusted in this form.
    Untrusted {
        /// An earlier form was trusted.
        changed: bool,
        /// What is there.
        what: String,
    },
    /// None there.
    Missing {
        /// The words for a configuration further up, if there is one.
        hint: String,
    },
    /// There, but broken.
    Broken(SourceError),
}

impl Found {
    /// Looks into the workspace.
    pub fn look(
        environment: &Environment,
        paths: &Paths,
        store: &Store,
    ) -> Result<Self, StoreError> {
        let source = match Source::of_workspace(environment, &paths.workspace) {
            Ok(source) => source,
            Err(SourceError::Missing(_)) => {
                return Ok(Self::Missing {
                    hint: hint_above(&paths.workspace),
                });
            }
            Err(error) => return Ok(Self::Broken(error)),
        };
        Ok(match store.trusted(CONFIG_FILE)? {
            Some(digest) if digest == source.digest => Self::Trusted(Box::new(source)),
            trusted => Self::Untrusted {
                changed: trusted.is_some(),
                what: source.what(),
            },
        })
    }

    /// The line for people: what counts, or what to do.
    pub fn note(&self) -> String {
        match self {
            Self::Trusted(source) => {
                format!(
                    "{} trusted ({} tools)",
                    source.what(),
                    source.config.tools.len()
                )
            }
            Self::Untrusted {
                changed: true,
                what,
            } => format!(
                "{what} changed since it was trusted: look at it, then run `callgate trust`"
            ),
            Self::Untrusted {
                changed: false,
                what,
            } => format!(
                "{what} is not trusted yet, so only built-in tools are served: \
                 look at it, then run `callgate trust`"
            ),
            Self::Missing { hint } => {
                format!("no {CONFIG_FILE} here, so only built-in tools are served{hint}")
            }
            Self::Broken(error) => format!("configuration not loaded: {error}"),
        }
    }
}
