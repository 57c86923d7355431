//! What the tests of the doors share.

#[path = "../../../registry/tests/support/in_process.rs"]
pub mod in_process;

pub mod called;
pub mod host;
pub mod rpc;
pub mod stage;
