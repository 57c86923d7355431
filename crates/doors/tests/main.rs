//! Conversations on the wires, one file for each subject, in one binary. The workspace is opened and
//! its doors are served in the test's own process.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests read the environment and the time, and start a Python that changes files"
)]

mod support;

mod approvals;
mod bad_input;
mod builtins;
mod exec;
mod exec_allow;
mod files;
mod files_edges;
mod files_search;
mod isolation;
mod leases;
mod mcp;
mod mcp_approvals;
mod memory;
mod node;
mod planner;
mod rpc;
mod rpc_contract;
mod rpc_schemas;
mod runs;
mod runs_kept;
mod search;
mod shelf;
mod terminals;
mod toolhost;
