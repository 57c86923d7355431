//! A run from its request to its report: taken, driven to its end, logged and reported.

use std::path::{Path, PathBuf};

use callgate_store::{Store, keep_newest, write_owner_file};
use callgate_text::encode_hex;
use callgate_wires::toolhost::RunRequest;
use serde_json::{Value, json};

use crate::{Pilot, PilotError, Progress, RunEnd, log, report};

/// Takes the run of a request and drives it to its end. The flag says whether the run was known
/// before.
pub async fn take_and_drive(
    pilot: &Pilot<'_>,
    request: &RunRequest,
    run: String,
) -> Result<(Progress, RunEnd, bool), PilotError> {
    let mut taken = pilot.take(request, run)?;
    if taken.known {
        pilot.resume(&mut taken.progress, false)?;
    }
    let end = pilot.drive(&mut taken.progress).await?;
    Ok((taken.progress, end, taken.known))
}

/// A random run id.
pub fn fresh_run_id() -> Result<String, PilotError> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| PilotError::Refused(error.to_string()))?;
    Ok(encode_hex(&id))
}

/// Log files that are kept. `callgate pilot --resume` writes a removed one again.
const LOGS_MAX: usize = 1000;

/// Writes the log of a run below the state folder and returns its path. TH-146, TH-147.
pub fn keep_log(store: &Store, state: &Path, run: &str) -> Result<PathBuf, PilotError> {
    let events = store.pilot_events(run)?;
    let header = Progress::read(&events)
        .map(|progress| progress.header)
        .map_err(PilotError::Store)?;
    let folder = state.join("pilot");
    let path = folder.join(format!("run_{run}.jsonl"));
    write_owner_file(&path, &log::write(&header, &events))?;
    keep_newest(&folder, LOGS_MAX);
    Ok(path)
}

/// The report of a run that ended, as JSON for programs.
pub fn ended_json(progress: &Progress, known: bool, log: &Path) -> Value {
    let mut document = report::report(progress);
    document["deduplicated"] = json!(known);
    document["log"] = json!(log.to_string_lossy());
    document
}
