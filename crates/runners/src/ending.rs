//! How a child's end, or its failure to begin, reads as a fault.

use std::error::Error as _;

use callgate_call::Fault;
use callgate_sandbox::{Ending, SpawnError};

use crate::tail::Tail;

/// The most lines of stderr that go into a message: an interpreter's reason is in the last, and
/// where it happened just before.
const LINES_MAX: usize = 3;

/// `exit 3: reason`, `killed by signal 11 (SIGSEGV)`. The reason is the last lines it wrote.
pub(crate) fn crash(ending: Ending, tail: &Tail) -> Fault {
    let message = with_last_words(&describe(ending), tail);
    Fault::Crash { message }
}

/// A tool whose process ended by its own will, without an output. TP-24.
pub(crate) fn left(code: i32, tail: &Tail) -> Fault {
    let how = match code {
        0 => "the tool ended (exit 0) without an output".to_owned(),
        code => describe(Ending::Code(code)),
    };
    let message = with_last_words(&how, tail);
    Fault::Crash { message }
}

/// How it ended, and the last lines of what it wrote.
pub(crate) fn with_last_words(how: &str, tail: &Tail) -> String {
    let lines = tail.last_lines(LINES_MAX).join(" | ");
    if lines.is_empty() {
        how.to_owned()
    } else {
        format!("{how}: {lines}")
    }
}

/// The end in words.
pub(crate) fn describe(ending: Ending) -> String {
    match ending {
        Ending::Code(code) => format!("exit {code}"),
        Ending::Signal(signal) => match signal_name(signal) {
            Some(name) => format!("killed by signal {signal} ({name})"),
            None => format!("killed by signal {signal}"),
        },
        Ending::Lost => "lost: the process that watched over it was killed".to_owned(),
    }
}

/// A child that was not born. Nothing has run, so the caller may try again later; only a
/// loss in between leaves that open.
pub(crate) fn not_started(error: &SpawnError) -> Fault {
    let text = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    match error {
        SpawnError::Lost { .. } => Fault::Crash { message: text },
        _ => Fault::Unavailable { reason: text },
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}
