//! The code that runs in the gate: plans the confinement of a child, compiles the plan, has the
//! spawner start the child, and holds its near end.

pub(crate) mod child;
pub(crate) mod compile;
pub(crate) mod confinement;
pub(crate) mod detached;
pub(crate) mod env;
pub(crate) mod explain;
pub(crate) mod facts;
mod file_facts;
pub(crate) mod filter;
pub(crate) mod homes;
pub(crate) mod idle_nannies;
pub(crate) mod levels;
mod program_roots;
pub(crate) mod resident;
pub(crate) mod resolve;
mod root_only;
pub(crate) mod signals;
pub(crate) mod spawner;
mod system_roots;
