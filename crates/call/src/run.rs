//! Streamed runs: what is known of one, and the trait of whoever keeps what it emits. A run is
//! one call; its events and artifacts outlive it.
//!
//! Everything in `RunLog` blocks until it is done. Whoever reads the executor's pipe reads on
//! only then: that is all the backpressure there is, and it needs no queue.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::{CallId, Digest};

/// What is known of a run before its executor starts.
#[derive(Clone, Debug, PartialEq)]
pub struct RunStart {
    /// Names the run in the workspace; no two runs share one.
    pub run_id: String,
    /// The call that it is.
    pub call: CallId,
    /// 1 for the first try of a job.
    pub attempt: u32,
    /// What it works on, where that has a name.
    pub job_id: Option<String>,
    /// The try before this one.
    pub parent_run_id: Option<String>,
    /// Where its events are kept.
    pub partition: Partition,
    /// When they are written.
    pub policy: RunPolicy,
}

/// Where a run's events are kept. Each part becomes the name of a folder. S-16.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The dataset; `callgate` by default.
    pub dataset: String,
    /// Whose data it is; `default` where nobody says.
    pub source: String,
    /// What kind of data it is; `default` where nobody says.
    pub category: String,
    /// The day the run began, UTC: `2026-11-15`.
    pub day: String,
}

/// When events are written, and what may be dropped. S-15.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RunPolicy {
    /// As they come; never more than a batch read ahead of what is durable.
    #[default]
    Strict,
    /// At the end. A full buffer drops what may be dropped, or fails the run.
    Buffered {
        /// Events it holds.
        events: Option<u64>,
        /// Bytes it holds.
        bytes: Option<u64>,
    },
    /// A batch at a time; a full buffer blocks.
    Streaming {
        /// Events of a batch.
        count: Option<u64>,
        /// The longest an event waits.
        interval: Option<Duration>,
    },
}

impl RunPolicy {
    /// The policy of a name with its bounds: events and bytes of a buffer, count and interval
    /// of batches. ST-84, ST-85.
    pub fn named(
        name: &str,
        (events, bytes): (Option<u64>, Option<u64>),
        (count, interval): (Option<u64>, Option<Duration>),
    ) -> Result<Self, &'static str> {
        let (buffers, batches) = (
            events.is_some() || bytes.is_some(),
            count.is_some() || interval.is_some(),
        );
        match (name, buffers, batches) {
            ("strict", false, false) => Ok(Self::Strict),
            ("strict", ..) => Err("strict has no bounds"),
            ("buffered", true, false) => Ok(Self::Buffered { events, bytes }),
            ("buffered", ..) => Err("buffered needs a bound in events or bytes, and no other"),
            ("streaming", false, true) => Ok(Self::Streaming { count, interval }),
            ("streaming", ..) => Err("streaming needs a count or an interval, and no other"),
            _ => Err("the policies are strict, buffered and streaming"),
        }
    }

    /// As reports and options name it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Buffered { .. } => "buffered",
            Self::Streaming { .. } => "streaming",
        }
    }
}

/// One event, checked.
#[derive(Clone, Copy, Debug)]
pub struct RunEvent<'a> {
    /// 1, 2, 3 …
    pub seq: u64,
    /// Its type.
    pub kind: &'a str,
    /// The whole envelope as one JSON object without a line end.
    pub line: &'a [u8],
}

/// An artifact whose bytes are all there and whose commit record has come.
#[derive(Clone, Copy, Debug)]
pub struct RunArtifact<'a> {
    /// As the executor names it.
    pub artifact_id: &'a str,
    /// For people.
    pub name: &'a str,
    /// What kind of bytes.
    pub content_type: &'a str,
    /// How many.
    pub bytes: u64,
}

/// A small file beside the events.
#[derive(Clone, Copy, Debug)]
pub struct RunFile<'a> {
    /// A name without folders, checked.
    pub name: &'a str,
    /// What kind of bytes.
    pub content_type: &'a str,
    /// All of it.
    pub data: &'a [u8],
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub enum RunVerdict {
    Success,
    ScriptError,
    ExecutorCrash,
    PolicyFailure,
    VersionMismatch,
}

impl RunVerdict {
    /// The contract's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ScriptError => "script_error",
            Self::ExecutorCrash => "executor_crash",
            Self::PolicyFailure => "policy_failure",
            Self::VersionMismatch => "version_mismatch",
        }
    }

    /// What `callgate run` exits with. ST-82.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::ScriptError => 1,
            Self::ExecutorCrash => 2,
            Self::PolicyFailure | Self::VersionMismatch => 3,
        }
    }
}

/// What became of the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Handed over.
    pub received: u64,
    /// Written.
    pub persisted: u64,
    /// Left out by policy, by type.
    pub dropped: BTreeMap<String, u64>,
    /// Writes, by what made them due: `count`, `interval`, `capacity`, `termination`.
    pub flushes: BTreeMap<&'static str, u64>,
}

/// Why something was not kept. None of the words name a path of this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// The policy's buffer is full and nothing in it may be dropped.
    #[error("the buffer of the policy is full")]
    BufferFull,
    /// The store holds as much as it may.
    #[error("no room: runs may keep {quota_bytes} bytes")]
    Quota {
        /// The bound.
        quota_bytes: u64,
    },
    /// A run or a file of that name is there already.
    #[error("{name} exists already")]
    Exists {
        /// Which.
        name: String,
    },
    /// A name that can not be one.
    #[error("{0}")]
    BadName(String),
    /// The disk, or the journal.
    #[error("{0}")]
    Failed(String),
}

/// Keeps runs.
pub trait Runs: Send + Sync {
    /// A run begins: its place is made and the chain says so before its executor starts.
    fn begin(&self, start: &RunStart) -> Result<Box<dyn RunLog>, KeepError>;
}

/// Keeps one run. Dropped without `end`, it is a run whose gate went away: what was committed
/// stays, the rest is collected.
pub trait RunLog: Send {
    /// The next event.
    fn event(&mut self, event: &RunEvent<'_>) -> Result<(), KeepError>;

    /// More bytes of an artifact, which does not exist yet.
    fn chunk(&mut self, artifact_id: &str, bytes: &[u8]) -> Result<(), KeepError>;

    /// All bytes and the commit record are there: the artifact exists once this returns, also
    /// after a power cut.
    fn commit(&mut self, artifact: &RunArtifact<'_>) -> Result<Digest, KeepError>;

    /// A file beside the events.
    fn file(&mut self, file: &RunFile<'_>) -> Result<(), KeepError>;

    /// Nothing more can be read at present. Writes what is due, and says how long it can wait
    /// to be asked again; nothing: until there is more.
    fn idle(&mut self) -> Result<Option<Duration>, KeepError>;

    /// The executor is gone: all that came is made durable.
    fn seal(&mut self) -> Result<(), KeepError>;

    /// What became of the events so far.
    fn counts(&self) -> RunCounts;

    /// The run ended: its report and manifest are written, and the chain says how it ended.
    fn end(self: Box<Self>, verdict: RunVerdict, report: &Value) -> Result<(), KeepError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ST-84, ST-85: which bounds a policy needs.
    #[test]
    fn policies_and_their_bounds() {
        let none = (None, None);
        let second = Some(Duration::from_secs(1));
        let named = RunPolicy::named;
        assert_eq!(named("strict", none, (None, None)), Ok(RunPolicy::Strict));
        let buffered = RunPolicy::Buffered {
            events: None,
            bytes: Some(9),
        };
        assert_eq!(
            named("buffered", (None, Some(9)), (None, None)),
            Ok(buffered)
        );
        let streaming = RunPolicy::Streaming {
            count: None,
            interval: second,
        };
        assert_eq!(named("streaming", none, (None, second)), Ok(streaming));
        assert!(named("strict", (Some(1), None), (None, None)).is_err());
        assert!(named("buffered", none, (None, None)).is_err());
        assert!(named("buffered", (Some(1), None), (Some(1), None)).is_err());
        assert!(named("streaming", none, (None, None)).is_err());
        assert!(named("streaming", (Some(1), None), (Some(1), None)).is_err());
        assert!(named("loose", none, (None, None)).is_err());
    }
}
