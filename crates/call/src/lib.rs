//! The nouns of Callgate: what a call is, what a tool is, how a call can end, and the
//! traits by which the parts meet. Nothing here reads a clock or knows a wire, and only `bounded`
//! does I/O: it reads files that others name.

pub mod bounded;
mod call;
mod canonical;
mod checks;
mod clock;
mod document;
mod fault;
mod guarantee;
mod hint;
mod number;
mod order;
mod origin;
mod outcome;
mod plan;
mod redact;
mod run;
mod runner;
mod scope;
mod secrets;
mod server;
mod shelf;
mod slots;
mod spelling;
mod tool;
mod topics;
mod unserved;
mod visible;
mod watch;

pub use call::{
    Answers, Call, CallId, CallIds, Caller, IdempotencyKey, LeaseGroup, LeaseToken, ReplayWindow,
    Wire, answer_margin,
};
pub use canonical::{Digest, canonical_json};
pub use checks::{CapabilityCheck, capability_checks};
pub use clock::{Clock, ManualClock, Timestamp};
pub use document::Document;
pub use fault::{About, DEFINITION_CHANGED, Fault, LeaseRefusal, chain};
pub use guarantee::{Asker, Guarantee, Guarantees};
pub use hint::{ConfinementHint, RefusedAccess, toml_list, toml_text};
pub use number::{natural_number, whole_number};
pub use order::{RunOrder, RunProxy};
pub use origin::{Origin, OriginSource, PackOrigin};
pub use outcome::{Outcome, Output};
pub use plan::{
    Detail, Enforcement, FORWARDS_MAX, Held, Ipc, Isolation, Level, Needs, Network, Plan, Planner,
    Roots, TreeLimits,
};
pub use redact::Redactor;
pub use run::{
    KeepError, Partition, RunArtifact, RunCounts, RunEvent, RunFile, RunLog, RunPolicy, RunStart,
    RunVerdict, Runs,
};
pub use runner::{
    Job, Load, Log, LogLevel, NoSink, Patience, PlanFuture, Progress, RunFuture, Runner, Sink,
    Stream,
};
pub use scope::{BearerToken, ClientScope, Scope, fits, fits_any, idle_only_words, names_tool};
pub use secrets::Secrets;
pub use server::{ServerControl, ServerProcess, ServerStatus};
pub use shelf::{
    AddressSpace, Change, Changes, Listener, Prompt, PromptArgument, Resource, Shelf, Source,
};
pub use slots::{Artifact, SLOT_MAX, SlotChange, Slots};
pub use tokio_util::sync::CancellationToken as Cancel;
pub use tool::{
    Face, Notification, RateLimit, ServerTool, Tasks, Tier, Tool, ToolName, aid_of_name, host_name,
    is_name,
};
pub use topics::{Audience, Event, Hearer, Subscription, Told, Topics};
pub use unserved::Unserved;
pub use visible::{visible, visible_lines};
pub use watch::{RunEye, RunWatch};
