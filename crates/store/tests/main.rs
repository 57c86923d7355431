//! Tests of the store, one file for each subject, in one binary.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

mod approvals;
mod artifacts;
mod blobs;
mod damage;
mod fold;
mod keys;
mod leases;
mod pilots;
mod plans;
mod run_artifacts;
mod run_crashes;
mod run_limits;
mod run_policies;
mod runs;
mod tokens;
mod traces;
mod trust;
