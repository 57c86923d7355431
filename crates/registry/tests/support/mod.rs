//! What the tests of the registry share.

pub mod calls;
pub mod desk;
pub mod in_process;
