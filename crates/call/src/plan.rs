//! What the kernel is asked to hold a tool to, and how far that was enforced.

use crate::{Fault, Tool};

/// How far a promise about a running tool is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing holds the tool to it.
    #[default]
    None,
    /// Some ways around it remain.
    Partial,
    /// The kernel enforces it now, for this call.
    Enforced,
}

impl Level {
    /// The word in replies, traces and the chain.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Enforced => "enforced",
        }
    }
}

/// What confined a tool, as replies and records report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enforcement {
    /// The weakest level among what was asked for; `none` where nothing confines.
    pub level: Level,
}

/// A tool's confinement, decided before anything runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What carrying out this plan will enforce.
    pub enforcement: Enforcement,
}

/// Turns a tool's needs into a plan, or refuses what this machine cannot enforce.
pub trait Planner: Send + Sync {
    /// The plan for one call of `tool`.
    fn plan(&self, tool: &Tool) -> Result<Plan, Fault>;
}
