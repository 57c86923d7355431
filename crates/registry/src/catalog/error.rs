//! Why a tool cannot be made of what is written of it. Texts are for the owner.

use callgate_call::Isolation;

use crate::bounds::BoundsError;
use crate::config::{RateError, RunPolicyError};
use crate::needs::NeedsError;
use crate::remote::RemoteError;

/// Why a `[[tool]]` does not become a tool.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// No wire takes the name, and no plain form of it.
    #[error(
        "tool {name:?}: a name has letters or digits in each of its parts between `/`, at most \
         128 bytes, no control characters and no blanks around it"
    )]
    Name {
        /// The name as written.
        name: String,
    },
    /// A setting of the tool.
    #[error("tool `{name}`")]
    Setting {
        /// The tool.
        name: String,
        /// The setting, and what is wrong with it.
        #[source]
        source: Box<SettingError>,
    },
}

/// A setting of a tool that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// No such tier.
    #[error("tier: {0} is not a number from 0 to 3")]
    Tier(u64),
    /// The runner cannot isolate calls in this way.
    #[error(
        "isolation: this runner is not `{}` but {}",
        asked.as_str(),
        able.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(" or ")
    )]
    Isolation {
        /// What the tool asks for.
        asked: Isolation,
        /// What the runner can do.
        able: &'static [Isolation],
    },
    /// A timeout of nothing, or of more than a day.
    #[error("timeout_ms: {given} is not 1 to {max} (a day)")]
    Timeout {
        /// As written.
        given: u128,
        /// The longest.
        max: u128,
    },
    /// `rate_limit`.
    #[error(transparent)]
    Rate(#[from] RateError),
    /// A number of the runner.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// What the tool may reach.
    #[error(transparent)]
    Needs(#[from] NeedsError),
    /// `policy` of a streamed run.
    #[error(transparent)]
    RunPolicy(#[from] RunPolicyError),
    /// A service or a container.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A command without a program.
    #[error(transparent)]
    NoProgram(#[from] NoProgram),
    /// The entry of a Python or a Node tool.
    #[error("entry `{entry}` is not `{form}`")]
    Entry {
        /// As written.
        entry: String,
        /// The form it should have.
        form: &'static str,
    },
    /// A variable that the tool refers to.
    #[error(transparent)]
    Variable(#[from] UnsetVariable),
    /// A function that is not registered has a runner that only registered tools may have.
    #[error("only a registered tool may be {0}")]
    Unregistered(&'static str),
}

impl SettingError {
    /// The same with the tool that it is about.
    pub(super) fn of(self, name: &str) -> ToolError {
        ToolError::Setting {
            name: name.to_owned(),
            source: Box::new(self),
        }
    }
}

/// A command without a program.
#[derive(Debug, thiserror::Error)]
#[error("command needs a program")]
pub struct NoProgram;

/// A variable of the gate that `env` refers to, and that is not set.
#[derive(Debug, thiserror::Error)]
#[error("env: `{0}` is not set")]
pub struct UnsetVariable(pub String);
