//! What the tests of runs in a workspace share.

pub mod runs;
