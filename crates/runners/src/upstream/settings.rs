//! The settings of one configured server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Call, Secrets};
use callgate_sandbox::{Homes, Limits};
use callgate_wires::mcp::client::LINE_BYTES_MAX;

use super::pins::Pins;
use crate::pool::health::Rules;

/// Text in the command and the environment of a server that stands for the home of each process.
pub const HOME_PLACEHOLDER: &str = "{callgate:server-home}";

/// A server and the way its processes are kept.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// The name of the server in the configuration.
    pub name: String,
    /// Its program and arguments; see `callgate_sandbox::Spec::argv`.
    pub command: Vec<OsString>,
    /// Its environment. `HOME` is set where it has a home.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secrets: BTreeMap<String, String>,
    /// Its working folder, absolute; its home if none is said. What is in it can be read.
    pub cwd: Option<PathBuf>,
    /// What each of its processes may take.
    pub limits: Limits,
    /// Where its home is kept, if it has one.
    pub home: Option<Arc<Homes>>,
    /// Which calls share a process.
    pub share: Share,
    /// Processes at the same time. Past that the idle one that was used longest ago is stopped.
    pub processes_max: usize,
    /// Calls in flight at one process.
    pub calls_max: usize,
    /// Calls that wait for one of these places; beyond, `Unavailable`.
    pub queue_max: usize,
    /// The largest result; beyond, the call is `TooLarge`.
    pub output_bytes_max: usize,
    /// The longest a start may take, up to the comparison of the list with the pins.
    pub start_timeout: Duration,
    /// A process without calls is stopped after this.
    pub idle_max: Duration,
    /// The definitions that the owner has seen.
    pub pins: Arc<Pins>,
    /// When it may start again after crashes.
    pub restarts: RestartRules,
    /// How long it is left to end once its standard input is closed.
    pub close_grace: Duration,
    /// How long it is left to end after SIGTERM.
    pub term_grace: Duration,
}

/// Which calls share a process of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// All calls of the workspace.
    Workspace,
    /// All calls of one caller.
    #[default]
    Caller,
    /// All calls of one conversation, or of one caller where the wire has no conversations.
    Session,
}

/// The numbers behind restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRules {
    /// How long the first start after a crash waits; doubles with each further crash.
    pub backoff_min: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// So many crashes within `crash_window` are a crash loop.
    pub crashes_max: usize,
    /// See `crashes_max`.
    pub crash_window: Duration,
    /// How long a crash loop stops the server before it is tried once more.
    pub loop_pause: Duration,
    /// A process that was ready for this long has made up for earlier crashes.
    pub healthy_after: Duration,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            crashes_max: 5,
            crash_window: Duration::from_secs(600),
            loop_pause: Duration::from_secs(300),
            healthy_after: Duration::from_secs(600),
        }
    }
}

impl RestartRules {
    pub(super) fn rules(self) -> Rules {
        Rules {
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max,
            crashes_max: self.crashes_max,
            crash_window: self.crash_window,
            pause: self.loop_pause,
            half_open: true,
            what: "server",
        }
    }
}

impl UpstreamSettings {
    /// The defaults for one server program. Its definitions are not compared with pins.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        command: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: PathBuf,
    ) -> Self {
        Self {
            name: name.into(),
            command,
            env,
            secrets: BTreeMap::new(),
            cwd: Some(cwd),
            limits: Limits::default(),
            home: None,
            share: Share::default(),
            processes_max: 64,
            calls_max: 64,
            queue_max: 1024,
            output_bytes_max: LINE_BYTES_MAX,
            start_timeout: Duration::from_secs(30),
            idle_max: Duration::from_secs(10 * 60),
            pins: Arc::new(Pins::unpinned()),
            restarts: RestartRules::default(),
            close_grace: Duration::from_secs(2),
            term_grace: Duration::from_secs(3),
        }
    }

    /// The values of its secrets, which nothing it prints may show.
    pub(super) fn secret_values(&self) -> Secrets {
        let values = self.env.iter().filter_map(|(name, value)| {
            let is_secret = self.secrets.contains_key(name.to_str()?);
            is_secret.then(|| value.to_string_lossy().into_owned())
        });
        Secrets::new(values.collect())
    }
}

/// The name of what shares a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShareKey {
    Workspace,
    Caller(Arc<str>),
    Session { caller: Arc<str>, session: Arc<str> },
}

impl ShareKey {
    /// That of a call.
    pub fn of(share: Share, call: &Call) -> Self {
        match (share, &call.session) {
            (Share::Workspace, _) => Self::Workspace,
            (Share::Session, Some(session)) => Self::Session {
                caller: call.caller.as_str().into(),
                session: Arc::clone(session),
            },
            (Share::Caller | Share::Session, _) => Self::Caller(call.caller.as_str().into()),
        }
    }

    /// Returns whether this is the key of a call.
    pub fn is_of(&self, share: Share, call: &Call) -> bool {
        match (self, share, &call.session) {
            (Self::Workspace, Share::Workspace, _) => true,
            (Self::Caller(caller), Share::Caller, _)
            | (Self::Caller(caller), Share::Session, None) => **caller == *call.caller.as_str(),
            (Self::Session { caller, session }, Share::Session, Some(own)) => {
                **caller == *call.caller.as_str() && session == own
            }
            _ => false,
        }
    }

    /// The name of the home of such a process. Sessions of one caller have one home, which is
    /// kept: what a server saves is found by the next session.
    pub fn home_name(&self, server: &str) -> String {
        match self {
            Self::Workspace => server.to_owned(),
            Self::Caller(caller) | Self::Session { caller, .. } => format!("{server} of {caller}"),
        }
    }
}
