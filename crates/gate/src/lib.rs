//! The pipeline every call goes through. Read `invoke.rs` first.
//!
//! The gate knows no wire, starts no process and writes no file: it holds `dyn Runner`,
//! `dyn Planner` and the store, and decides in which order they are asked.

mod admit;
mod approvals;
mod attempt;
mod beside;
mod catalog;
mod clean;
pub mod content;
mod errors;
mod found;
mod invoke;
mod leases;
mod metrics;
mod oversize;
mod policy;
mod rehearse;
mod replay;
mod schema;
mod scope;
mod setup;
mod ticket;
mod tokens;
mod trace;
mod views;
mod watched;

pub use admit::BreakerPolicy;
pub use approvals::PendingApproval;
pub use attempt::{Attempt, PendingCall, lost_outcome};
pub use beside::BESIDE_INPUT;
pub use catalog::{Catalog, CatalogError, Entries, Entry};
pub use found::FoundTool;
pub use invoke::{Answer, Gate, others_first};
pub use leases::{LeaseGranted, LeaseRequest, LeaseTotals};
pub use metrics::{DURATION_EDGES_US, ToolNumbers};
pub use policy::{Decision, LeasePolicy, Policy, Rule};
pub use rehearse::Rehearsal;
pub use schema::{Schema, SchemaError};
pub use setup::{ConfigurationStatus, Setup};
pub use ticket::Ticket;
pub use tokens::ActiveToken;
pub use trace::{Found, Spans, TraceError, find_trace, recent_traces};
pub use views::{CatalogRef, RecordTotals};
