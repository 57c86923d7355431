//! What the tests of runs in a workspace share.

#[path = "../../../../registry/tests/support/in_process.rs"]
pub mod in_process;

pub mod runs;
