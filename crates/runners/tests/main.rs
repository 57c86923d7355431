//! Tests of the runners, one file for each subject, in one binary.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start container runtimes and servers, and are told where they are"
)]

#[path = "support/docker.rs"]
mod docker;
mod support;

mod container;
mod executor;
mod forwards;
mod isolation;
mod node;
mod pool;
mod process;
mod python;
mod service;
mod upstream;
