//! What a server is doing, for people.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::link::Link;
use super::settings::ShareKey;
use crate::pool::health::Start;

/// What a server is doing.
#[derive(Clone, Debug)]
pub struct UpstreamStatus {
    /// The state of the server as a whole.
    pub state: UpstreamState,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
    /// Processes started so far.
    pub starts: u64,
    /// Those of them that crashed.
    pub crashes: u64,
    /// How the last one ended, with its last lines.
    pub last_exit: Option<String>,
    /// Messages of the present processes that were dropped: late or unknown answers, and
    /// notifications past the rate.
    pub dropped: u64,
    /// Pinned tools whose definition changed or that are gone. Known while a process is ready.
    pub refused_tools: Vec<String>,
    /// Lists that were fetched because the server said that they changed.
    pub relists: u64,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamState {
    /// No process; the next call starts one.
    Cold,
    /// A process is starting and none is ready.
    Starting,
    /// A process takes calls.
    Ready,
    /// It crashed: no start before so long from now.
    Backoff(Duration),
    /// It crashed too often: no start before so long from now.
    CrashLoop(Duration),
}

impl UpstreamState {
    /// The word in tables and replies.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Backoff(_) => "backoff",
            Self::CrashLoop(_) => "crash_loop",
        }
    }

    pub(super) fn of(processes: &[ProcessStatus], start: Start, now: Instant) -> Self {
        if processes.iter().any(|process| process.is_ready) {
            return Self::Ready;
        }
        if !processes.is_empty() {
            return Self::Starting;
        }
        match start {
            Start::Now => Self::Cold,
            Start::At(at) => Self::Backoff(at.saturating_duration_since(now)),
            Start::Stopped { until, .. } => Self::CrashLoop(until.saturating_duration_since(now)),
        }
    }
}

/// What one process is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Its process id; nothing before it is born.
    pub pid: Option<u32>,
    /// It takes calls.
    pub is_ready: bool,
    /// Calls that it has not answered.
    pub in_flight: usize,
    /// The caller it is for, where it is not for all.
    pub caller: Option<String>,
    /// The session of that caller it is for, where it is not for all.
    pub session: Option<String>,
}

impl ProcessStatus {
    pub(super) fn of(link: &Link, key: &ShareKey) -> Self {
        let pid = link.pid.load(Ordering::Relaxed);
        let (caller, session) = match key {
            ShareKey::Workspace => (None, None),
            ShareKey::Caller(caller) => (Some(caller.to_string()), None),
            ShareKey::Session { caller, session } => {
                (Some(caller.to_string()), Some(session.to_string()))
            }
        };
        Self {
            pid: (pid != 0).then_some(pid),
            is_ready: link.is_ready(),
            in_flight: link.in_flight(),
            caller,
            session,
        }
    }
}
