//! Runs of the pilot in a workspace that is opened in the test's own process, with real tools and a
//! real policy program.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests read the environment and the time, and start `sha256sum`"
)]

mod support;

mod policy;
mod replay;
mod steps;
