//! `callgate replay`: a run of the pilot once more.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::bounded::read_path_text;
use callgate_call::{Caller, Cancel};
use callgate_pilot::replay::Halt;
use callgate_pilot_events::{Progress, log};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_store::PilotEvent;
use callgate_tools::runs::RunKind;
use callgate_wires::toolhost::is_run_id;
use clap::Args;
use serde_json::json;

use crate::cli::{Done, Failure, Place, runtime};
use crate::error::CommandError;
use crate::show;

/// Replay a run of the pilot and name the first difference.
///
/// Choices are read again, slots are rebuilt from the recorded patches, deterministic tools of
/// tier 0 are run again and digests compared, those of the workspace's chain included where the
/// run is one of its own. Nothing is added to the run.
#[derive(Args)]
pub struct Replay {
    /// The run's id, a beginning of it that no other has, `last`, or the file of its log
    #[arg(value_name = "RUN")]
    run: String,
    /// Look at the records alone: they follow from each other, and make a run. Nothing is run
    #[arg(long)]
    structure: bool,
    /// The request that the run must have come of
    #[arg(long, value_name = "REQUEST.json", conflicts_with = "structure")]
    request: Option<PathBuf>,
}

/// Largest log that is read.
const LOG_BYTES_MAX: u64 = 256 * 1024 * 1024;

pub fn run(environment: &Environment, place: &Place, replay: &Replay) -> Done {
    // The words of the contract's own strict replay, which is given the request as well. TH-21.
    let is_strict = replay.request.is_some();
    let parts = super::open(environment, place)?;
    let run = named(&parts, &replay.run)?;
    let events = match events(&parts, &run)? {
        Ok(events) => events,
        Err(reason) => {
            return Ok(differs(
                place,
                is_strict,
                &json!({ "what": reason }),
                &reason,
            ));
        }
    };
    if let Some(request) = &replay.request {
        let wanted = super::pilot::read(request)?.to_value();
        let recorded = &events.first().map(|first| first.doc["request"].clone());
        if recorded.as_ref() != Some(&wanted) {
            let shown =
                json!({ "event": 1, "what": "request", "recorded": recorded, "found": wanted });
            return Ok(differs(
                place,
                is_strict,
                &shown,
                "event 1: it came of another request",
            ));
        }
    }
    if replay.structure {
        return Ok(structure(place, &events));
    }
    // A log is written when its run ends; a run of ours may be under way.
    if !is_run_id(&run)
        && let Some(differs) = endless(place, is_strict, &events)
    {
        return Ok(differs);
    }
    let (gate, pilot_parts) = super::pilot::gate_and_pilot(&parts)?;
    let caller = Caller::uid(environment.uid);
    let pilot = pilot_parts.pilot(&gate, caller, Arc::new(Cancel::new()));
    let replayed = runtime()?.block_on(pilot.replay(&events));
    super::close(&parts);
    let (events, rerun, taken) = match replayed {
        Ok(replayed) => (replayed.events, replayed.rerun, replayed.taken),
        Err(Halt::NotRun { aid, step, fault }) => {
            let words = format!("step {step}: {aid} could not be run again: {fault}");
            return Err(Failure::from(fault).in_words(words));
        }
        Err(Halt::Differs(found)) => {
            let shown = json!({
                "event": found.event,
                "step": found.step,
                "aid": found.aid,
                "what": found.what,
                "recorded": found.recorded,
                "found": found.found,
            });
            return Ok(differs(place, is_strict, &shown, &found.to_string()));
        }
    };
    if place.json {
        show::json(&json!({ "ok": true, "events": events, "rerun": rerun, "taken": taken }));
    } else {
        let what = if is_strict { "REPLAY_STRICT" } else { "REPLAY" };
        show::data(&format!(
            "{what} OK: {events} events, {rerun} tools run again, {taken} outcomes taken as recorded\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether events make a run that ended.
fn structure(place: &Place, events: &[PilotEvent]) -> ExitCode {
    if let Err(reason) = Progress::read(events) {
        return differs(place, false, &json!({ "what": reason }), &reason);
    }
    if let Some(differs) = endless(place, false, events) {
        return differs;
    }
    let events = events.len();
    if place.json {
        show::json(&json!({ "ok": true, "events": events }));
    } else {
        show::data(&format!("REPLAY OK (structure): {events} events\n"));
    }
    ExitCode::SUCCESS
}

/// Of events that make a run without an end.
fn endless(place: &Place, is_strict: bool, events: &[PilotEvent]) -> Option<ExitCode> {
    let is_endless = Progress::read(events).is_ok_and(|progress| progress.end.is_none());
    is_endless.then(|| {
        differs(
            place,
            is_strict,
            &json!({ "what": "end" }),
            "the run has no end",
        )
    })
}

fn differs(place: &Place, is_strict: bool, shown: &serde_json::Value, words: &str) -> ExitCode {
    if place.json {
        show::json(&json!({ "ok": false, "difference": shown }));
    } else {
        let verdict = if is_strict {
            "REPLAY_STRICT FAIL"
        } else {
            "REPLAY DIFFERS"
        };
        show::data(&format!("{verdict}: {words}\n"));
    }
    ExitCode::FAILURE
}

/// The run that is meant: a file that is there is meant itself.
fn named(parts: &Parts, name: &str) -> Result<String, Failure> {
    if Path::new(name).is_file() {
        return Ok(name.to_owned());
    }
    let run = super::runs::find(&parts.store, Some(RunKind::Pilot), name)?;
    Ok(run.id().to_owned())
}

/// The events of a run of this workspace, or of a log. The inner error: the log was changed.
fn events(parts: &Parts, run: &str) -> Result<Result<Vec<PilotEvent>, String>, CommandError> {
    if is_run_id(run) {
        let events = parts.store.pilot_events(run)?;
        return match events.is_empty() {
            true => Err(CommandError::NoRun(run.to_owned())),
            false => Ok(Ok(events)),
        };
    }
    match read_path_text(run, LOG_BYTES_MAX) {
        Err(error) if error.kind() == ErrorKind::FileTooLarge => Err(CommandError::LongLog {
            name: run.to_owned(),
            bytes_max: LOG_BYTES_MAX,
        }),
        Err(source) => Err(CommandError::Log {
            name: run.to_owned(),
            source,
        }),
        Ok(text) => Ok(log::read(&text)),
    }
}
