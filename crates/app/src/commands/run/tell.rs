//! What is said of runs once they are over: a summary for the person, the report for programs,
//! the exit code for scripts.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use callgate_call::{Fault, RunPolicy, RunVerdict};
use callgate_gate::Rehearsal;
use callgate_store::StoreError;
use callgate_store::give_file_with;
use callgate_tools::exec::{NOT_EXECUTABLE, OUT_OF_REACH};
use serde_json::{Value, json};

use super::conduct::All;
use super::screen::{plain, seconds, size};
use super::{REFUSED, Run};
use crate::cli::{Done, Failure, Place};
use crate::compose::chain;
use crate::error::ArgumentError;
use crate::show;

/// Other runs that did not go well and are named one by one.
const NAMED_MAX: usize = 10;

/// Says it all.
pub fn all(place: &Place, asked: &Run, all: &All) -> Done {
    for why in &all.untold {
        show::warn(&format!("not told: {}", plain(why)));
    }
    let mut report = match &all.first {
        Ok(report) => report.clone(),
        Err(fault) => return not_begun(place, asked, &all.run_id, fault),
    };
    if asked.depth > 0 {
        report["fan_out"] = fan_out(all);
    }
    if !asked.quiet {
        show::say(summary(&report).trim_end());
        if asked.depth > 0 {
            show::say(others(all).trim_end());
        }
    }
    if is_for_stdout(asked) || place.json {
        show::json(&report);
    }
    // What was told stays true without it, so that there is no fault to tell as data.
    if let Err(error) = write_file(asked, &report) {
        show::complain(&chain(&error));
        return Ok(ExitCode::from(REFUSED));
    }
    Ok(ExitCode::from(code_of(&report)))
}

/// What a rehearsal came to. A proxy's password is not shown.
pub fn rehearsal(place: &Place, rehearsed: Result<(Rehearsal, Value), Fault>) -> Done {
    let (rehearsal, mut input) = match rehearsed {
        Ok(rehearsed) => rehearsed,
        Err(fault) => {
            let words = format!("it would be refused: {fault}");
            return Err(Failure::from(fault).in_words(words).exiting(1));
        }
    };
    if let Some(password) = input.pointer_mut("/proxy/password") {
        *password = "[secret]".into();
    }
    let waits = rehearsal.needs_approval;
    if place.json {
        show::json(&json!({
            "dry_run": true,
            "needs_approval": waits,
            "enforcement": rehearsal.enforcement.level.as_str(),
            "input": input,
        }));
    } else {
        show::data(&format!("{input:#}\n"));
        show::say(match waits {
            true => "it would wait for an approval: `callgate approvals`",
            false => "it would begin; nothing was run",
        });
    }
    Ok(ExitCode::from(u8::from(waits)))
}

fn is_for_stdout(asked: &Run) -> bool {
    asked.report.as_deref() == Some(Path::new("-"))
}

/// The report where `--report` wants it, if that is a file.
fn write_file(asked: &Run, report: &Value) -> Result<(), StoreError> {
    let path = asked.report.as_deref();
    let Some(path) = path.filter(|_| !is_for_stdout(asked)) else {
        return Ok(());
    };
    give_file_with(path, 0o644, |file| writeln!(file, "{report:#}"))
}

/// Whether the report could be where `--report` wants it: asked before anything is run.
pub fn check_place(asked: &Run) -> Result<(), ArgumentError> {
    let Some(path) = asked.report.as_deref().filter(|_| !is_for_stdout(asked)) else {
        return Ok(());
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.is_dir() || !parent.is_dir() {
        return Err(ArgumentError::ReportPlace(path.to_owned()));
    }
    Ok(())
}

/// ST-82.
fn code_of(report: &Value) -> u8 {
    use RunVerdict::{ExecutorCrash, PolicyFailure, ScriptError, Success, VersionMismatch};
    let all = [Success, ScriptError, PolicyFailure, VersionMismatch];
    let said = all
        .into_iter()
        .find(|verdict| report["outcome"] == verdict.as_str());
    said.unwrap_or(ExecutorCrash).exit_code()
}

/// Nothing has run: there is no executor to be had, or it was refused.
fn not_begun(place: &Place, asked: &Run, run_id: &str, fault: &Fault) -> Done {
    let words = match fault {
        Fault::LeaseRequired { .. } => "this needs a lease: callgate lease grant runs/start, \
                                        then --lease TOKEN"
            .to_owned(),
        fault => fault.to_string(),
    };
    let failure = Failure::from(fault.clone()).in_words(format!("nothing was run: {words}"));
    if !is_not_started(fault) {
        return Err(failure.exiting(REFUSED));
    }
    // A report of an earlier run must not be taken for this one's.
    let report = report_of_none(asked, run_id, &words);
    if is_for_stdout(asked) && !place.json {
        show::json(&report);
    }
    if let Err(error) = write_file(asked, &report) {
        show::complain(&chain(&error));
    }
    Err(failure.exiting(RunVerdict::ExecutorCrash.exit_code()))
}

/// True if it is for the executor that nothing ran: it is not there, is no program, or was taken
/// back before it came.
fn is_not_started(fault: &Fault) -> bool {
    match fault {
        Fault::NotFound { .. } | Fault::Crash { .. } | Fault::Cancelled | Fault::Timeout { .. } => {
            true
        }
        Fault::Denied { about, .. } => {
            let reason = about.as_ref().and_then(|about| about.get("reason"));
            reason.is_some_and(|reason| reason == NOT_EXECUTABLE || reason == OUT_OF_REACH)
        }
        _ => false,
    }
}

/// The report of a run whose executor was never there.
fn report_of_none(asked: &Run, run_id: &str, words: &str) -> Value {
    json!({
        "run_id": run_id,
        "job_id": asked.job_id,
        "attempt": asked.attempt,
        "outcome": RunVerdict::ExecutorCrash.as_str(),
        "message": format!("not started: {words}"),
        "exit_code": null,
        "duration_ms": 0,
        "event_count": 0,
        "events_by_type": {},
        "artifacts": { "total": 0, "committed": 0, "orphaned": 0, "chunks": 0, "bytes": 0 },
        "policy": { "name": asked.policy.as_deref().unwrap_or(RunPolicy::Strict.as_str()) },
        "metrics": { "runs_started_total": 1, "executor_launch_failure_total": 1 },
        "resources": [],
    })
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// One run's end for people.
pub fn summary(report: &Value) -> String {
    let took_us = report["duration_ms"].as_u64().unwrap_or_default() * 1000;
    let mut lines = format!(
        "run {}  {} after {}\n",
        text(report, "run_id"),
        text(report, "outcome"),
        seconds(took_us)
    );
    let message = text(report, "message");
    if !message.is_empty() {
        lines.push_str(&format!("  {}\n", plain(message)));
    }
    lines.push_str(&format!("  events     {}\n", events(report)));
    lines.push_str(&format!("  artifacts  {}\n", artifacts(report)));
    if let Some(last) = text(report, "stderr").lines().next_back() {
        lines.push_str(&format!("  stderr     … {}\n", plain(last)));
    }
    lines
}

fn events(report: &Value) -> String {
    let mut line = report["event_count"].to_string();
    let kinds = report["events_by_type"].as_object();
    let kinds: Vec<String> = kinds
        .into_iter()
        .flatten()
        .map(|(kind, count)| format!("{} {count}", plain(kind)))
        .collect();
    if !kinds.is_empty() {
        line.push_str(&format!(" ({})", kinds.join(", ")));
    }
    let dropped = report["policy"]["events_dropped"].as_u64().unwrap_or(0);
    if dropped > 0 {
        line.push_str(&format!("; {dropped} dropped by policy"));
    }
    line
}

fn artifacts(report: &Value) -> String {
    let number = |name: &str| report["artifacts"][name].as_u64().unwrap_or_default();
    let mut line = format!("{}, {}", number("committed"), size(number("bytes")));
    if number("orphaned") > 0 {
        line.push_str(&format!("; {} orphaned", number("orphaned")));
    }
    line
}

fn fan_out(all: &All) -> Value {
    let runs = all.others.iter().map(|run| {
        json!({
            "run_id": run.run_id,
            "target": run.target,
            "depth": run.depth,
            "outcome": run.outcome,
            "message": run.message,
        })
    });
    json!({
        "runs": runs.collect::<Vec<_>>(),
        "repeated": all.tally.repeated,
        "too_deep": all.tally.too_deep,
        "beyond_max": all.tally.beyond,
        "unusable": all.tally.unusable,
    })
}

/// The other runs for people.
fn others(all: &All) -> String {
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for run in &all.others {
        *outcomes.entry(&run.outcome).or_default() += 1;
    }
    let mut line = format!("  runs       {} more", all.others.len());
    for (outcome, count) in outcomes {
        line.push_str(&format!(", {count} {outcome}"));
    }
    let left = [
        (all.tally.repeated, "asked for twice"),
        (all.tally.too_deep, "too deep"),
        (all.tally.beyond, "beyond --max-runs"),
        (all.tally.unusable, "no target"),
    ];
    for (count, words) in left.iter().filter(|(count, _)| *count > 0) {
        line.push_str(&format!("; {count} {words}"));
    }
    line.push('\n');
    let failed = all.others.iter().filter(|run| run.outcome != "success");
    for run in failed.take(NAMED_MAX) {
        let (target, message) = (plain(&run.target), plain(&run.message));
        line.push_str(&format!(
            "    {}  {}  {target}: {message}\n",
            run.run_id, run.outcome
        ));
    }
    line
}
