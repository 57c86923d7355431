//! How a tool is carried out: the one trait behind the gate, and what it is handed.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::{Call, ConfinementHint, Fault, Guarantee, Held, Output, Plan, ServerControl, Tool};

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
    pub timeout: &'a Patience,
    /// Where the tool's own words go while it runs.
    pub sink: &'a dyn Sink,
}

/// The future a runner hands back.
pub type RunFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, Fault>> + Send + 'a>>;

/// The future of a plan that a runner makes itself.
pub type PlanFuture<'a> = Pin<Box<dyn Future<Output = Result<Plan, Fault>> + Send + 'a>>;

/// Carries a tool out. Ends with the call: whatever it started for it is gone when the
/// future is ready, and is being ended when the future is dropped.
pub trait Runner: Send + Sync {
    /// Runs one call.
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a>;

    /// What will hold a tool that is no child of ours: the runner asks whoever carries it out,
    /// and refuses as a `Planner` does. Nothing: the planner plans.
    fn plan<'a>(&'a self, call: &'a Call, tool: &'a Tool) -> Option<PlanFuture<'a>> {
        let _ = (call, tool);
        None
    }

    /// The facts for the trace of a call that `plan` refused, which never ran.
    fn facts_of_refusal(&self, call: &Call, tool: &Tool) -> Vec<(&'static str, String)> {
        let _ = (call, tool);
        Vec::new()
    }

    /// The same for `Planner::outlook`, as far as it is known without asking.
    fn outlook(&self, tool: &Tool) -> Option<Vec<Held>> {
        let _ = tool;
        None
    }

    /// True if the tool runs inside this process and changes nothing outside its answer.
    /// Its start needs no record of its own before it runs.
    fn is_pure(&self) -> bool {
        false
    }

    /// True if the tool runs inside this process and changes nothing, though it may wait for
    /// what it looks at. Its start needs no record before it runs either: until the answer is
    /// told, and so recorded, nothing has come of it.
    fn only_reads(&self) -> bool {
        self.is_pure()
    }

    /// Refuses a call as `run` would before it starts anything, and does nothing.
    fn check(&self, job: Job<'_>) -> Result<(), Fault> {
        let _ = job;
        Ok(())
    }

    /// False for one that only stands in for a runner that is not there: every call is refused.
    fn is_there(&self) -> bool {
        true
    }

    /// Returns whether the tool is left out of lists although it is in the catalog: its calls are
    /// refused until its owner has looked at it. Example: a tool of an MCP server whose definition
    /// is no longer the pinned one.
    fn is_hidden(&self) -> bool {
        false
    }

    /// What `callgate tools` says of it: `builtin`, `process`, `python` …
    fn kind(&self) -> &'static str;

    /// What its workers are doing, where it has some.
    fn load(&self) -> Option<Load> {
        None
    }

    /// The server of somebody else that has the tool, where one has.
    fn server(&self) -> Option<&dyn ServerControl> {
        None
    }

    /// Ends what outlives calls (idle workers); called when the tool leaves the catalog.
    fn stop(&self) {}
}

/// What the workers behind a tool are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The same for tools that share their workers.
    pub pool: usize,
    /// Workers at work.
    pub busy: usize,
    /// Workers that wait for a call.
    pub idle: usize,
    /// Calls that wait for a worker.
    pub queued: usize,
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

    /// How far the tool has come.
    fn progress(&self, progress: &Progress) {
        let _ = progress;
    }

    /// Words for whoever watches the call.
    fn log(&self, log: &Log) {
        let _ = log;
    }

    /// Something about how the call is carried out, for its trace: `python_path`,
    /// `service_url` …
    fn fact(&self, name: &'static str, value: &str) {
        let _ = (name, value);
    }

    /// So many connections of the tool's were refused to it, for the call's record.
    fn refused(&self, connections: u64) {
        let _ = connections;
    }

    /// Why confinement made the call fail. Of several hints the first is kept.
    fn hint(&self, hint: &ConfinementHint) {
        let _ = hint;
    }

    /// An attempt of the tool that a promise stopped, whether or not the tool failed of it.
    fn blocked(&self, guarantee: Guarantee) {
        let _ = guarantee;
    }

    /// The answer will take a while: the connection it was asked by may be let go of.
    fn linger(&self) {}
}

/// Drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn chunk(&self, _: Stream, _: &[u8]) {}
}

/// How far a running tool has come.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Grows from one report to the next.
    pub done: f64,
    /// What `done` will be at the end, where that is known.
    pub total: Option<f64>,
    /// Words for people.
    pub message: Option<String>,
}

/// One report of a running tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// How grave it is.
    pub level: LogLevel,
    /// Who speaks, within the tool.
    pub logger: Option<String>,
    /// What it says.
    pub data: Value,
}

/// How grave a report is, as RFC 5424 ranks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the words are the standard's")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    /// The level of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find_map(|(level, name)| (name == word).then_some(level))
    }

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// How long a runner may take. Progress makes it longer, up to a cap.
#[derive(Debug)]
pub struct Patience {
    /// From one sign of life to the next.
    pub timeout: Duration,
    /// From the start, however lively the tool is.
    pub cap: Duration,
    until_ms: AtomicU64,
}

impl Patience {
    /// `timeout` from the start, until something extends it.
    #[must_use]
    pub fn new(timeout: Duration, cap: Duration) -> Self {
        Self {
            timeout,
            cap: cap.max(timeout),
            until_ms: AtomicU64::new(millis(timeout)),
        }
    }

    /// Exactly this long.
    #[must_use]
    pub fn fixed(timeout: Duration) -> Self {
        Self::new(timeout, timeout)
    }

    /// All the time there is at present, counted from the start.
    #[must_use]
    pub fn until(&self) -> Duration {
        Duration::from_millis(self.until_ms.load(Ordering::Relaxed))
    }

    /// The tool showed signs of life `after` its start.
    pub fn extend(&self, after: Duration) {
        let until = (after + self.timeout).min(self.cap);
        self.until_ms.fetch_max(millis(until), Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_extends_up_to_the_cap() {
        let seconds = Duration::from_secs;
        let patience = Patience::new(seconds(60), seconds(100));
        assert_eq!(patience.until(), seconds(60));
        patience.extend(seconds(30));
        assert_eq!(patience.until(), seconds(90));
        patience.extend(seconds(10)); // reports may overtake each other
        assert_eq!(patience.until(), seconds(90));
        patience.extend(seconds(80));
        assert_eq!(patience.until(), seconds(100));
        assert_eq!(Patience::fixed(seconds(5)).cap, seconds(5));
    }

    #[test]
    fn levels() {
        for (level, word) in LogLevel::ALL {
            assert_eq!(LogLevel::parse(word), Some(level));
            assert_eq!(level.as_str(), word);
        }
        assert!(LogLevel::Debug < LogLevel::Emergency && LogLevel::parse("loud").is_none());
    }
}
