//! How a tool is carried out: the one trait behind the gate, and what it is handed.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Call, Fault, Output, Plan, Tool};

/// One admitted call on its way to a runner.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The call.
    pub call: &'a Call,
    /// The tool it names.
    pub tool: &'a Tool,
    /// What confines it.
    pub plan: &'a Plan,
    /// All the time there is, queueing included. A runner that overruns it ends what it
    /// started and answers `Timeout`.
    pub timeout: Duration,
    /// Where the tool's own words go while it runs.
    pub sink: &'a dyn Sink,
}

/// The future a runner hands back.
pub type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, Fault>> + Send + 'a>>;

/// Carries a tool out. Ends with the call: whatever it started for it is gone when the
/// future is ready, and is being ended when the future is dropped.
pub trait Runner: Send + Sync {
    /// Runs one call.
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a>;

    /// True if the tool runs inside this process and changes nothing outside its answer.
    /// Its start needs no record of its own before it runs.
    fn is_pure(&self) -> bool {
        false
    }

    /// What `callgate tools` says of it: `builtin`, `process`, `python` …
    fn kind(&self) -> &'static str;

    /// Ends what outlives calls (idle workers); called when the tool leaves the catalog.
    fn stop(&self) {}
}

/// Which of a tool's own streams bytes came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Descriptor 1, where it does not carry the output.
    Stdout,
    /// Descriptor 2.
    Stderr,
}

/// Takes what a running tool says beside its output. Bytes are borrowed; a sink that keeps
/// them bounds them.
pub trait Sink: Send + Sync {
    /// Some bytes of one stream.
    fn chunk(&self, stream: Stream, bytes: &[u8]);
}

/// Drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn chunk(&self, _: Stream, _: &[u8]) {}
}
