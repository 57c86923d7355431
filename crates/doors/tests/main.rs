//! Conversations on the wires, one file for each subject, in one binary. The workspace is opened and
//! its doors are served in the test's own process.

#![expect(
    clippy::disallowed_methods,
    reason = "tests read the environment and the time, and write files of their own"
)]

mod support;

mod files;
mod files_edges;
mod files_search;
mod memory;
mod planner;
mod rpc_contract;
mod rpc_schemas;
