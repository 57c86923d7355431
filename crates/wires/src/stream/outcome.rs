//! How a run ended, from all that is known of its end. A pure table: the exit code decides, a
//! run result adds words, and what they disagree in is said. ST-52 to ST-57, S-5 to S-8.

use std::fmt::Write as _;

use super::Status;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the contract's")]
pub enum Verdict {
    Success,
    ScriptError,
    ExecutorCrash,
    PolicyFailure,
    VersionMismatch,
}

/// How the executor left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody saw it.
    Lost,
}

/// The last event, where there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal<'a> {
    /// `run_complete`.
    Complete,
    /// `run_error`, and its words.
    Error {
        /// Such as `TypeError`.
        error_type: &'a str,
        /// What went wrong.
        message: &'a str,
    },
}

/// A run result, as far as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told<'a> {
    /// How the executor sees it.
    pub status: Status,
    /// In its words.
    pub message: Option<&'a str>,
    /// Such as `TypeError`.
    pub error_type: Option<&'a str>,
}

/// What ended a run before its time, or spoiled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble<'a> {
    /// Something could not be kept as the policy wants it.
    Policy(&'a str),
    /// An event of another version.
    Version(&'a str),
    /// The stream broke the contract.
    Stream(&'a str),
    /// We ended it: its time was over, or its caller took it back.
    Stopped(&'a str),
    /// It was never there.
    NotStarted(&'a str),
}

/// All that is known of a run's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Evidence<'a> {
    /// Of several the first of `Trouble`'s order counts, and the others are named.
    pub troubles: &'a [Trouble<'a>],
    /// How the executor left; nothing if it never came, or if we ended it.
    pub exit: Option<Exit>,
    /// The terminal event.
    pub terminal: Option<Terminal<'a>>,
    /// The first run result.
    pub told: Option<Told<'a>>,
}

/// The end of a run in one word and in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The contract's word.
    pub verdict: Verdict,
    /// Why, and what contradicts it.
    pub message: String,
}

/// How a run ended.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Judgement {
    let rank = |trouble: &Trouble<'_>| match trouble {
        Trouble::Policy(_) => 0,
        Trouble::Version(_) => 1,
        Trouble::Stream(_) => 2,
        Trouble::Stopped(_) => 3,
        Trouble::NotStarted(_) => 4,
    };
    let mut troubles = evidence.troubles.to_vec();
    troubles.sort_by_key(rank);
    let Some((first, rest)) = troubles.split_first() else {
        return by_exit(evidence);
    };
    let verdict = match first {
        Trouble::Policy(_) => Verdict::PolicyFailure,
        Trouble::Version(_) => Verdict::VersionMismatch,
        Trouble::Stream(_) | Trouble::Stopped(_) | Trouble::NotStarted(_) => Verdict::ExecutorCrash,
    };
    let words = rest.iter().map(in_words);
    let mut message = words.fold(in_words(first), |all, one| format!("{all}; {one}"));
    // What killed it is most often why its stream was cut.
    if let Some(Exit::Signal(signal)) = evidence.exit {
        let _ = write!(message, "; {}", by_signal(signal));
    }
    Judgement { verdict, message }
}

fn in_words(trouble: &Trouble<'_>) -> String {
    match trouble {
        Trouble::Policy(words) => format!("not kept: {words}"),
        Trouble::Version(words) | Trouble::Stopped(words) => (*words).to_owned(),
        Trouble::Stream(words) => format!("bad stream: {words}"),
        Trouble::NotStarted(words) => format!("not started: {words}"),
    }
}

/// The executor came to its own end, and its stream was sound.
fn by_exit(evidence: &Evidence<'_>) -> Judgement {
    let Evidence {
        exit,
        terminal,
        told,
        ..
    } = *evidence;
    let code = match exit {
        Some(Exit::Code(code)) => code,
        Some(Exit::Signal(signal)) => {
            return crash(by_signal(signal), terminal, told);
        }
        Some(Exit::Lost) | None => {
            let how = "lost: the process that watched over it was killed".to_owned();
            return crash(how, terminal, told);
        }
    };
    match (code, told.map(|told| told.status), terminal) {
        (_, Some(Status::Crash), _) => {
            let words = told.map(words_of).unwrap_or_default();
            let mut message = format!("its run_result says crash{words}");
            if code != 2 {
                let _ = write!(message, "; exit {code} contradicts it");
            }
            Judgement {
                verdict: Verdict::ExecutorCrash,
                message,
            }
        }
        (0, _, None) => crash(
            "early end: exit 0 without a terminal event".to_owned(),
            None,
            told,
        ),
        (0, None, Some(Terminal::Error { .. })) => {
            crash("early end: exit 0".to_owned(), terminal, None)
        }
        (0, _, Some(terminal)) => success(terminal, told),
        (1, Some(status), terminal) => script_error(status, terminal, told),
        (
            1,
            None,
            Some(Terminal::Error {
                error_type,
                message,
            }),
        ) => Judgement {
            verdict: Verdict::ScriptError,
            message: joined(error_type, message),
        },
        (code, _, _) => crash(format!("exit {code}"), terminal, told),
    }
}

/// Exit 0 after a terminal event, and no word of a crash.
fn success(terminal: Terminal<'_>, told: Option<Told<'_>>) -> Judgement {
    let mut message = String::new();
    if let Terminal::Error {
        error_type,
        message: words,
    } = terminal
    {
        let words = joined(error_type, words);
        let _ = write!(message, "exit 0 after run_error ({words})");
    }
    if let Some(told) = told.filter(|told| told.status == Status::Error) {
        let joint = if message.is_empty() {
            "exit 0 though"
        } else {
            ", and"
        };
        let _ = write!(
            message,
            "{joint} its run_result says error{}",
            words_of(told)
        );
    }
    if message.is_empty() {
        let words = told
            .and_then(|told| told.message)
            .filter(|words| !words.is_empty());
        message.push_str(words.unwrap_or("completed"));
    } else {
        message.push_str("; the exit code counts");
    }
    Judgement {
        verdict: Verdict::Success,
        message,
    }
}

/// Exit 1 with a run result.
fn script_error(
    status: Status,
    terminal: Option<Terminal<'_>>,
    told: Option<Told<'_>>,
) -> Judgement {
    let words = told.and_then(|told| {
        let message = told.message.filter(|words| !words.is_empty())?;
        Some(joined(told.error_type.unwrap_or_default(), message))
    });
    let event = match terminal {
        Some(Terminal::Error {
            error_type,
            message,
        }) => Some(joined(error_type, message)),
        Some(Terminal::Complete) | None => None,
    };
    let mut message = match status {
        Status::Completed => event.or(words),
        Status::Error | Status::Crash => words.or(event),
    }
    .unwrap_or_else(|| status.as_str().to_owned());
    if status == Status::Completed {
        message.push_str("; exit 1 though its run_result says completed");
    }
    if terminal == Some(Terminal::Complete) {
        message.push_str("; exit 1 after run_complete");
    }
    Judgement {
        verdict: Verdict::ScriptError,
        message,
    }
}

/// A crash, and what had been said that is not so.
fn crash(how: String, terminal: Option<Terminal<'_>>, told: Option<Told<'_>>) -> Judgement {
    let mut message = how;
    match terminal {
        Some(Terminal::Complete) => message.push_str(" after run_complete"),
        Some(Terminal::Error {
            error_type,
            message: words,
        }) => {
            let _ = write!(message, " after run_error ({})", joined(error_type, words));
        }
        None => {}
    }
    if let Some(told) = told {
        let _ = write!(
            message,
            "; its run_result says {}{}",
            told.status.as_str(),
            words_of(told)
        );
    }
    Judgement {
        verdict: Verdict::ExecutorCrash,
        message,
    }
}

/// ` (TypeError: x is not a function)`.
fn words_of(told: Told<'_>) -> String {
    let words = joined(
        told.error_type.unwrap_or_default(),
        told.message.unwrap_or_default(),
    );
    if words.is_empty() {
        String::new()
    } else {
        format!(" ({words})")
    }
}

fn joined(error_type: &str, message: &str) -> String {
    match (error_type, message) {
        (one, "") | ("", one) => one.to_owned(),
        (error_type, message) => format!("{error_type}: {message}"),
    }
}

fn by_signal(signal: i32) -> String {
    format!("killed by signal {signal}{}", name_of(signal))
}

/// The name of a signal that programs die of.
fn name_of(signal: i32) -> &'static str {
    match signal {
        1 => " (SIGHUP)",
        2 => " (SIGINT)",
        3 => " (SIGQUIT)",
        4 => " (SIGILL)",
        6 => " (SIGABRT)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        9 => " (SIGKILL)",
        11 => " (SIGSEGV)",
        13 => " (SIGPIPE)",
        15 => " (SIGTERM)",
        24 => " (SIGXCPU)",
        25 => " (SIGXFSZ)",
        31 => " (SIGSYS)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
