//! How a process of a server ended, and what that is to the calls it had and to the next start.

use std::sync::Mutex;
use std::time::Duration;

use callgate_call::{Fault, Job, chain};
use callgate_sandbox::{Child, Ending, SpawnError};

use super::listing::ListError;
use crate::ending::describe;
use crate::hints;
use crate::tail::Tail;

/// The most of its last words that goes into a message.
const LINES_MAX: usize = 8;
const WORDS_BYTES_MAX: usize = 2 * 1024;

/// Why a process is no more.
#[derive(Debug, thiserror::Error)]
pub(super) enum EndCause {
    #[error("it could not be started")]
    NotBorn(#[source] SpawnError),
    #[error("{0}")]
    Refused(Fault),
    #[error("{}", describe(*.0))]
    Exited(Ending),
    #[error("incompatible: it speaks protocol version {0:?}")]
    Incompatible(String),
    #[error("{0}")]
    BadHandshake(String),
    #[error("{0}")]
    BadList(#[from] ListError),
    #[error("it was not ready within {} ms", .0.as_millis())]
    StartTimeout(Duration),
    #[error("it closed its standard output")]
    OutputClosed,
    #[error("it closed its standard input")]
    InputClosed,
    #[error("it sent too many answers that nobody asked for")]
    Strays,
    #[error("it sent a line of more than {0} bytes that no call can be found for")]
    LineTooLong(usize),
    #[error("it was idle")]
    Idle,
    #[error("it was stopped")]
    Stopped,
}

impl EndCause {
    /// Returns whether the end was ours to choose, with no call in flight.
    pub fn is_orderly(&self) -> bool {
        matches!(self, Self::Idle | Self::Stopped)
    }
}

/// The end of a process.
#[derive(Debug)]
pub(super) struct ProcessEnd {
    pub cause: EndCause,
    /// How long it was ready; nothing if it never was.
    pub ready_for: Option<Duration>,
    /// Calls were in flight.
    pub was_busy: bool,
    tail: Tail,
    /// The process, for hints at what its confinement refused.
    child: Option<Mutex<Child>>,
}

impl ProcessEnd {
    /// That of a process that was never born.
    pub fn before_birth(cause: EndCause) -> Self {
        Self {
            cause,
            ready_for: None,
            was_busy: false,
            tail: Tail::default(),
            child: None,
        }
    }

    pub fn of(child: Child, tail: Tail, cause: EndCause) -> Self {
        Self {
            cause,
            ready_for: None,
            was_busy: false,
            tail,
            child: Some(Mutex::new(child)),
        }
    }

    /// Returns whether the next start has to wait.
    pub fn is_crash(&self) -> bool {
        match &self.cause {
            EndCause::Idle | EndCause::Stopped => false,
            // It went in good order, and nobody missed it.
            EndCause::Exited(Ending::Code(0)) => self.ready_for.is_none() || self.was_busy,
            _ => true,
        }
    }

    /// Returns whether another start may go better: it ended by itself.
    pub fn may_be_tried_again(&self) -> bool {
        matches!(
            self.cause,
            EndCause::Exited(_) | EndCause::OutputClosed | EndCause::InputClosed
        ) || self.cause.is_orderly()
    }

    /// The cause and the last lines of what it printed.
    pub fn words(&self) -> String {
        let mut words = chain(&self.cause);
        let lines = self.tail.last_lines(LINES_MAX);
        if lines.is_empty() {
            return words;
        }
        let lines = lines.join(" | ");
        let mut from = lines.len().saturating_sub(WORDS_BYTES_MAX);
        while !lines.is_char_boundary(from) {
            from += 1;
        }
        words.push_str(": ");
        words.push_str(&lines[from..]);
        words
    }

    /// The fault of a call that waited for the start.
    pub fn start_fault(&self, server: &str, job: Job<'_>) -> Fault {
        self.hint(job);
        if let EndCause::NotBorn(error) = &self.cause
            && let Some(hint) = error.hint(job.tool)
        {
            job.sink.hint(&hint);
        }
        Fault::Unavailable {
            reason: format!("server `{server}` did not start: {}", self.words()),
        }
    }

    /// The fault of a call whose request was written, at least in part.
    pub fn lost_fault(&self, server: &str, job: Job<'_>) -> Fault {
        self.hint(job);
        Fault::OutcomeUnknown {
            call: job.call.id.to_string(),
            reason: Some(format!(
                "server `{server}` ended before it answered: {}",
                self.words()
            )),
        }
    }

    fn hint(&self, job: Job<'_>) {
        let Some(child) = &self.child else { return };
        let Ok(child) = child.lock() else { return };
        let fault = Fault::Crash {
            message: chain(&self.cause),
        };
        hints::tell(job, &child, &fault, &self.tail);
        if let EndCause::Exited(ending) = self.cause {
            hints::tell_end(job, &child, ending);
        }
    }
}
