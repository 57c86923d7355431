//! Tests of what a workspace declares, one file for each subject, in one binary. The workspace is
//! opened in the test's own process, and its tools are called through a gate of that process.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests read the environment and the time, and start programs that lay out a workspace"
)]

mod support;

mod loaded_code;
mod named_code;
mod packs;
mod project;
mod refusals;
mod trust_copy;
