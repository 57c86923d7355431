//! `callgate pilot`: runs towards a goal, one from a file or all of a queue.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use callgate_call::bounded::read_path;
use callgate_call::{Caller, Cancel};
use callgate_pilot::run::{ended_json, fresh_run_id, keep_log, take_and_drive};
use callgate_pilot::{Pilot, PilotError, PilotSettings};
use callgate_pilot_events::{Progress, RunEnd};
use callgate_registry::environment::Environment;
use callgate_registry::setup::Parts;
use callgate_wires::toolhost::{MAX_STDIN_BYTES, RunRequest};
use clap::Args;

use crate::cli::{Done, Place, runtime};
use crate::compose;
use crate::error::CommandError;
use crate::pilot::pilot_settings;
use crate::show;

use super::pilot_queue;

/// Run towards a goal, step by step, each a call through the gate.
///
/// The request is a JSON file with a goal, the tags of the tools that may be used and their
/// inputs. What is chosen and what comes of it is recorded in the chain; a run that was killed
/// goes on where it was when its request is given again.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct PilotCommand {
    /// The request: a JSON file
    #[arg(value_name = "REQUEST.json", required_unless_present_any = ["resume", "queue"])]
    request: Option<PathBuf>,
    /// Go on with a run: one that was killed, that failed, or that a person has since approved
    #[arg(long, value_name = "RUN", conflicts_with_all = ["request", "queue"])]
    resume: Option<String>,
    /// Work off the requests in the folder DIR/inbox until told to stop
    #[arg(long, value_name = "DIR", conflicts_with = "request")]
    queue: Option<PathBuf>,
    /// With --queue: end once nothing is due
    #[arg(long, requires = "queue", conflicts_with_all = ["request", "resume"])]
    once: bool,
    /// With --queue: take requests over HTTP as well, on this port of 127.0.0.1; 0 takes any
    #[arg(long, value_name = "PORT", requires = "queue", conflicts_with_all = ["request", "resume", "once"])]
    port: Option<u16>,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  the run ended: nothing more to do, goal reached, or a person is asked
  1  it did not: a tool failed, a breaker tripped, or it was stopped
  2  the command line is wrong
  With --queue: 0 when told to stop, or with --once when nothing is due; what came of each
  request is in DIR/out";

pub fn run(environment: &Environment, place: &Place, command: &PilotCommand) -> Done {
    if let Some(dir) = &command.queue {
        return pilot_queue::run(environment, place, dir, command.once, command.port);
    }
    let wanted = match (&command.request, &command.resume) {
        (Some(path), _) => Wanted::New(Box::new(read(path)?)),
        (None, run) => Wanted::Known(run.clone().unwrap_or_default()),
    };
    let parts = super::open(environment, place)?;
    let (gate, settings) = gate_and_pilot(&parts)?;
    let cancel = Arc::new(Cancel::new());
    let caller = Caller::uid(environment.uid);
    let pilot = settings.pilot(&gate, caller, Arc::clone(&cancel));
    let ended = runtime()?.block_on(async {
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        // The signal is waited for before anything happens that it could interrupt.
        tokio::select! {
            biased;
            () = interrupted => unreachable!("waits for the end of the cancelled run"),
            ended = one(environment, &pilot, wanted) => ended,
        }
    });
    let (progress, end, known) = ended.map_err(|error| CommandError::Work(Box::new(error)))?;
    let log = keep_log(&parts.store, &parts.paths.state, &progress.header.run_id);
    let log = log.map_err(|error| CommandError::Work(Box::new(error)))?;
    report(place, &progress, &end, known, &log);
    super::close(&parts);
    Ok(exit_code(&end))
}

/// Which run.
enum Wanted {
    New(Box<RunRequest>),
    Known(String),
}

/// The gate of the workspace, and what runs need beside it. A run stands alone, as all of its
/// contract does (TH-3).
pub fn gate_and_pilot(parts: &Parts) -> Result<(callgate_gate::Gate, PilotSettings), CommandError> {
    let setup = super::setup(parts)?;
    Ok((compose::gate(parts, setup), pilot_settings(parts)?))
}

async fn one(
    environment: &Environment,
    pilot: &Pilot<'_>,
    wanted: Wanted,
) -> Result<(Progress, RunEnd, bool), PilotError> {
    match wanted {
        Wanted::New(request) => {
            let run = run_id(environment, pilot)?;
            take_and_drive(pilot, &request, run).await
        }
        Wanted::Known(run) => {
            let mut taken = pilot.take_up(&run)?;
            pilot.resume(&mut taken.progress, true)?;
            let end = pilot.drive(&mut taken.progress).await?;
            Ok((taken.progress, end, true))
        }
    }
}

/// A fresh id; with `MACHINA_DETERMINISTIC_RUN_ID=1` the first of a fixed sequence that no run of
/// the workspace has. TH-133.
fn run_id(environment: &Environment, pilot: &Pilot<'_>) -> Result<String, PilotError> {
    if environment.text("MACHINA_DETERMINISTIC_RUN_ID") == Some("1") {
        for number in 0_u64.. {
            let seed = format!("callgate run {number}");
            let id = callgate_call::Digest::of_bytes(seed.as_bytes()).to_hex()[..32].to_owned();
            if pilot.gate.store().pilot_events(&id)?.is_empty() {
                return Ok(id);
            }
        }
    }
    fresh_run_id()
}

/// Reads a request's file.
pub fn read(path: &Path) -> Result<RunRequest, CommandError> {
    let about = |reason: String| CommandError::Request {
        path: path.to_owned(),
        reason,
    };
    let bytes = read_path(path, MAX_STDIN_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => about("a request is 10 MiB at most".to_owned()),
        _ => about(error.to_string()),
    })?;
    RunRequest::parse(&bytes).map_err(|error| about(error.to_string()))
}

fn report(place: &Place, progress: &Progress, end: &RunEnd, known: bool, log: &Path) {
    if place.json {
        show::json(&ended_json(progress, known, log));
    } else {
        show::data(&format!("RUN END: {end}\nlog: {}\n", log.display()));
        if let RunEnd::AskSup { approval } = end {
            let run = &progress.header.run_id;
            show::say(&format!(
                "waits for `callgate approvals grant {approval}`, then `callgate pilot --resume {run}`"
            ));
        }
    }
}

pub fn exit_code(end: &RunEnd) -> ExitCode {
    match end.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
