//! Tests of the gate, one file for each subject, in one binary.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod admission;
mod attempt;
mod keys;
mod leases;
mod pipeline;
mod traces;
