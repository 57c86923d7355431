//! What the tests of the doors share.

pub mod called;
pub mod host;
pub mod rpc;
pub mod stage;
