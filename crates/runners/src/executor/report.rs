//! What is said of a run at its end. ST-86.

use callgate_call::{ConfinementHint, KeepError, RunCounts, RunOrder, RunVerdict};
use callgate_sandbox::{Ending, Exit as ChildExit};
use callgate_wires::stream::outcome::{self, Evidence, Judgement, Trouble, Verdict, judge};
use serde_json::{Value, json};

use super::ingest::Ingested;
use super::keep::{Halt, Keeper};
use super::news::{shown, shown_run};

/// The longest message; what an executor says may be as long as it likes.
const MESSAGE_CHARS_MAX: usize = 4096;
/// What an exit code by a signal begins at, as shells have it.
const BY_SIGNAL: i32 = 128;

/// What is known of a run's end beside its stream.
pub(super) struct End {
    pub run_id: String,
    pub order: RunOrder,
    /// How the executor left, where it was there.
    pub exit: Option<ChildExit>,
    /// We ended it because of what it sent.
    pub killed: bool,
    /// We ended it before its time, and why.
    pub stopped: Option<String>,
    /// It could not be started, and why.
    pub not_started: Option<String>,
    pub stderr: String,
    /// Why confinement made it fail.
    pub hint: Option<ConfinementHint>,
    pub duration_ms: u64,
}

/// A run that is over, in one word and in many.
pub(super) struct Ended {
    pub verdict: RunVerdict,
    pub message: String,
    pub report: Value,
}

/// Makes all that came durable, judges it, and has it written down.
pub(super) fn conclude(ingested: Ingested, end: &End) -> Ended {
    let Ingested {
        mut keeper, halt, ..
    } = ingested;
    let sealed = keeper.log.seal().err();
    let judgement = judge_run(&keeper, halt.as_ref(), sealed.as_ref(), end);
    let counts = keeper.log.counts();
    let mut ended = ended(&keeper, halt.as_ref(), &counts, judgement, end);
    let Keeper { log, .. } = keeper;
    if let Err(error) = log.end(ended.verdict, &ended.report) {
        // What is told must not be more than what is known tomorrow.
        ended.verdict = RunVerdict::PolicyFailure;
        ended.message = format!("not kept: {error}; {}", ended.message);
        ended.report["outcome"] = json!(ended.verdict.as_str());
        ended.report["message"] = json!(ended.message);
    }
    ended
}

/// The store did not come back from what it was given: nothing more is known of the run.
pub(super) fn store_is_gone(end: &End) -> Ended {
    let (verdict, message) = (
        RunVerdict::PolicyFailure,
        "not kept: the store does not answer",
    );
    let report = json!({
        "run_id": end.run_id,
        "job_id": end.order.job_id,
        "attempt": end.order.attempt,
        "outcome": verdict.as_str(),
        "message": message,
        "exit_code": exit_code(end),
        "duration_ms": end.duration_ms,
        "resources": [],
    });
    Ended {
        verdict,
        message: message.to_owned(),
        report,
    }
}

fn judge_run(
    keeper: &Keeper,
    halt: Option<&Halt>,
    sealed: Option<&KeepError>,
    end: &End,
) -> Judgement {
    let halted = match halt {
        Some(Halt::Policy(error)) => error.to_string(),
        Some(Halt::Version(breach)) => breach.to_string(),
        Some(Halt::Stream(reason)) => reason.clone(),
        None => String::new(),
    };
    let sealed = sealed.map(ToString::to_string);
    let mut troubles = Vec::new();
    match halt {
        Some(Halt::Policy(_)) => troubles.push(Trouble::Policy(&halted)),
        Some(Halt::Version(_)) => troubles.push(Trouble::Version(&halted)),
        // What we cut short is cut short.
        Some(Halt::Stream(_)) if end.stopped.is_none() => troubles.push(Trouble::Stream(&halted)),
        Some(Halt::Stream(_)) | None => {}
    }
    // A store that failed before fails again.
    if let (Some(error), false) = (&sealed, matches!(halt, Some(Halt::Policy(_)))) {
        troubles.push(Trouble::Policy(error));
    }
    troubles.extend(end.stopped.as_deref().map(Trouble::Stopped));
    troubles.extend(end.not_started.as_deref().map(Trouble::NotStarted));
    let exit = end.exit.filter(|_| !end.killed && end.stopped.is_none());
    let terminal = keeper.terminal.as_ref().map(|terminal| {
        if terminal.complete {
            outcome::Terminal::Complete
        } else {
            outcome::Terminal::Error {
                error_type: &terminal.error_type,
                message: &terminal.message,
            }
        }
    });
    judge(&Evidence {
        troubles: &troubles,
        exit: exit.map(|exit| match exit.ending {
            Ending::Code(code) => outcome::Exit::Code(code),
            Ending::Signal(signal) => outcome::Exit::Signal(signal),
            Ending::Lost => outcome::Exit::Lost,
        }),
        terminal,
        told: keeper.told.as_ref().map(|told| outcome::Told {
            status: told.status,
            message: told.message.as_deref(),
            error_type: told.error_type.as_deref(),
        }),
    })
}

fn ended(
    keeper: &Keeper,
    halt: Option<&Halt>,
    counts: &RunCounts,
    judgement: Judgement,
    end: &End,
) -> Ended {
    let verdict = verdict(judgement.verdict);
    let clean = keeper.secrets.clean(&judgement.message);
    let message: String = clean.chars().take(MESSAGE_CHARS_MAX).collect();
    let tally = keeper.session.tally();
    let mut report = json!({
        "run_id": end.run_id,
        "job_id": end.order.job_id,
        "attempt": end.order.attempt,
        "outcome": verdict.as_str(),
        "message": message,
        "exit_code": exit_code(end),
        "duration_ms": end.duration_ms,
        "event_count": keeper.events,
        "events_by_type": keeper.kinds,
        "artifacts": {
            "total": tally.total,
            "committed": keeper.strides.artifacts.load(std::sync::atomic::Ordering::Relaxed),
            "orphaned": tally.orphaned,
            "chunks": tally.chunks,
            "bytes": tally.bytes,
        },
        "policy": policy(end.order.policy.as_str(), counts),
        "metrics": metrics(verdict, halt, counts, end),
        "resources": keeper.kept.iter().map(shown).collect::<Vec<_>>(),
        "run": shown_run(&end.run_id),
    });
    if let Some(parent) = &end.order.parent_run_id {
        report["parent_run_id"] = json!(parent);
    }
    if let Some(terminal) = &keeper.terminal {
        report["terminal_summary"] = terminal.summary.clone();
    }
    if let Some(used) = keeper
        .told
        .as_ref()
        .and_then(|told| told.proxy_used.as_ref())
    {
        report["proxy_used"] = used.clone();
    }
    if !end.stderr.is_empty() {
        report["stderr"] = json!(end.stderr);
    }
    if let (Some(hint), true) = (&end.hint, verdict != RunVerdict::Success) {
        report["hint"] = hint.to_value();
    }
    keeper.secrets.clean_value(&mut report);
    Ended {
        verdict,
        message,
        report,
    }
}

fn policy(name: &str, counts: &RunCounts) -> Value {
    let dropped: u64 = counts.dropped.values().sum();
    let mut policy = json!({
        "name": name,
        "events_received": counts.received,
        "events_persisted": counts.persisted,
        "events_dropped": dropped,
        "flush_triggers": counts.flushes,
    });
    if dropped > 0 {
        policy["dropped_by_type"] = json!(counts.dropped);
    }
    policy
}

fn metrics(verdict: RunVerdict, halt: Option<&Halt>, counts: &RunCounts, end: &End) -> Value {
    let is = |yes: bool| u8::from(yes);
    let crashed = verdict == RunVerdict::ExecutorCrash;
    let failed = matches!(
        verdict,
        RunVerdict::ScriptError | RunVerdict::PolicyFailure | RunVerdict::VersionMismatch
    );
    let started = end.not_started.is_none();
    let mut metrics = json!({
        "runs_started_total": 1,
        "runs_completed_total": is(verdict == RunVerdict::Success),
        "runs_failed_total": is(failed),
        "runs_crashed_total": is(crashed),
        "events_received_total": counts.received,
        "events_persisted_total": counts.persisted,
        "events_dropped_total": counts.dropped.values().sum::<u64>(),
        "executor_launch_success_total": is(started),
        "executor_launch_failure_total": is(!started),
        "executor_crash_total": is(crashed),
        "ipc_decode_errors_total": is(matches!(halt, Some(Halt::Stream(_))) && end.stopped.is_none()),
    });
    if let Some(exit) = &end.exit {
        metrics["cpu_ms"] = json!(u64::try_from(exit.cpu.as_millis()).unwrap_or(u64::MAX));
        metrics["max_rss_bytes"] = json!(exit.max_rss_bytes);
    }
    metrics
}

/// The executor's own; nothing if it never came or we ended it.
fn exit_code(end: &End) -> Option<i32> {
    if end.killed || end.stopped.is_some() {
        return None;
    }
    match end.exit?.ending {
        Ending::Code(code) => Some(code),
        Ending::Signal(signal) => Some(BY_SIGNAL + signal),
        Ending::Lost => None,
    }
}

fn verdict(verdict: Verdict) -> RunVerdict {
    match verdict {
        Verdict::Success => RunVerdict::Success,
        Verdict::ScriptError => RunVerdict::ScriptError,
        Verdict::ExecutorCrash => RunVerdict::ExecutorCrash,
        Verdict::PolicyFailure => RunVerdict::PolicyFailure,
        Verdict::VersionMismatch => RunVerdict::VersionMismatch,
    }
}
