//! Tests of the program, one file for each subject, in one binary: each would have all of the
//! program's parts linked into it, and a slow one would keep the others waiting.
//! `cargo test -p callgate files::` runs those of `files.rs`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program and are told where its parts are"
)]

#[cfg_attr(
    not(feature = "failpoints"),
    allow(dead_code, reason = "some of it is for tests that crash the program")
)]
mod support;

mod advice;
mod against_the_gate;
mod approvals;
mod asking;
mod at_most_once;
mod attacks;
mod audit;
mod bad_input;
mod blank_names;
mod bridge;
mod bridge_sdk;
mod bridge_vectors;
mod builtins;
mod chroma;
mod clients;
mod confinement;
mod conformance;
mod daemon;
mod declared;
mod degraded;
mod documents;
mod earlier_socket;
mod earlier_state;
mod egress;
mod eight_processes;
mod every_wire;
mod exact_numbers;
mod exec;
mod exec_hard;
mod files;
mod files_hard;
mod frozen;
mod gate_killed;
mod hints;
mod hostile_sizes;
mod http_auth;
mod http_jwt;
mod http_leases;
mod import;
mod isolation;
mod leases;
mod limits_t12;
mod mcp;
mod mcp_http;
mod mcp_relay;
mod mcp_stdio;
mod mcp_tasks;
mod memory;
mod metrics;
mod misbehaving;
mod mutations;
mod onboarding;
mod otlp;
mod outputs;
mod packs;
mod packs_install;
mod people;
mod pilot;
mod pilot_http;
mod pilot_policy;
mod pilot_queue;
mod pilot_replay;
mod pilot_runs;
mod planner;
mod project;

mod real_servers;
mod remote;
mod rpc;
mod rpc_contract;
mod rpc_events;
mod rpc_relay;
mod rpc_schemas;
mod rpc_session;
mod rpc_streams;
mod rpc_vectors;
mod run_command;
mod run_crashes;
mod run_options;
mod run_secrets;
mod runs;
mod runs_command;
mod runs_large;
mod runs_life;
mod sdk_runs;
mod search;
mod search_command;
mod search_fresh;
mod servers;
mod term;
mod terminals;
mod tool_command;
mod tool_guarantees;
mod tool_protocol_vectors;
mod tool_roots;
mod tool_service;
mod toolchains;
mod toolhost_serve;
mod toolhost_vectors;
mod traces;
mod tree_limits;
mod trust;
mod trust_copy;
mod trust_running;
mod unserved;
mod unset_variables;
mod untrusted;
mod vanishing;
