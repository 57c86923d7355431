//! The nouns of Callgate: what a call is, what a tool is, how a call can end, and the
//! traits by which the parts meet. Nothing here does I/O, reads a clock or knows a wire.

mod call;
mod canonical;
mod clock;
mod document;
mod fault;
mod outcome;
mod plan;
mod runner;
mod secrets;
mod slots;
mod tool;

pub use call::{Call, CallId, CallIds, Caller, IdempotencyKey, LeaseToken, ReplayWindow, Wire};
pub use canonical::{Digest, canonical_json};
pub use clock::{Clock, ManualClock, Timestamp};
pub use document::Document;
pub use fault::{Fault, LeaseRefusal, chain};
pub use outcome::{Outcome, Output};
pub use plan::{Enforcement, Level, Plan, Planner};
pub use runner::{Job, NoSink, RunFuture, Runner, Sink, Stream};
pub use secrets::Secrets;
pub use slots::{Artifact, SLOT_MAX, SlotChange, Slots};
pub use tokio_util::sync::CancellationToken as Cancel;
pub use tool::{RateLimit, Tier, Tool, ToolName, aid_of_name, is_name};
