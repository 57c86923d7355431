//! A server of somebody else behind tools: what it is doing, and the ways for its owner to
//! intervene.

/// A server as the gate's owner controls it.
pub trait ServerControl: Send + Sync {
    /// What it is doing.
    fn status(&self) -> ServerStatus;

    /// The last lines of its processes' standard error, without secrets.
    fn log(&self) -> String;

    /// Stops its processes in good order, those with calls after their calls. The next call starts
    /// a new one, whatever happened before.
    fn stop(&self);
}

/// What a server is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// `cold`, `starting`, `ready`, `backoff` or `crash_loop`.
    pub state: &'static str,
    /// How long it is not started after crashes, in milliseconds.
    pub wait_ms: Option<u64>,
    /// Its processes.
    pub processes: Vec<ServerProcess>,
    /// Processes started so far.
    pub starts: u64,
    /// Those of them that crashed.
    pub crashes: u64,
    /// How the last one ended, with its last lines.
    pub last_exit: Option<String>,
    /// Pinned tools whose definition changed or that are gone.
    pub refused_tools: Vec<String>,
    /// Messages that were dropped: unknown answers, and notifications past their rate.
    pub dropped: u64,
}

/// A process of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProcess {
    /// Its process id; nothing before it is born.
    pub pid: Option<u32>,
    /// It takes calls.
    pub is_ready: bool,
    /// Calls that it has not answered.
    pub in_flight: usize,
    /// The caller it is for, where it is not for all.
    pub caller: Option<String>,
    /// The conversation it is for, where it is not for all of that caller's.
    pub session: Option<String>,
}
