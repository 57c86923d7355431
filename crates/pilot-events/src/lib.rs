//! The state of a pilot's run, computed from its events alone: how far the run is, what is in its
//! slots, the report for display, and the log file. The pilot that drives a run, a replay of it and
//! the tools that show it all compute the same. No I/O; the store keeps the events.

pub mod log;
pub mod progress;
pub mod report;
pub mod state;

pub use progress::{Progress, RunEnd};
