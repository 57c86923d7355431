//! The code that runs in a child between fork and exec: gives up what the plan denies, and becomes
//! the tool. It shares its nanny's memory where it can, so nothing here may allocate.

pub(crate) mod before_exec;
pub(crate) mod landlock;
pub(crate) mod mounts;
pub(crate) mod outlet;
pub(crate) mod userns;
