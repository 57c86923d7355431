//! Names that come from outside, and what the store says when something was not kept. Neither
//! leads out of a folder, and no word names a path of this machine.

use std::io;

use callgate_call::{KeepError, Partition, RunStart};

use crate::StoreError;

/// Longest name of a run, or a part of a partition.
pub const RUN_NAME_BYTES_MAX: usize = 128;
/// Longest name of a sidecar file: what file systems take, less `.meta.json` for the file beside it.
pub const RUN_FILE_NAME_BYTES_MAX: usize = 255 - ".meta.json".len();
/// Longest id, name and content type of an artifact, job id and parent.
pub const RUN_TEXT_BYTES_MAX: usize = 1024;

/// Checks what becomes the name of a folder or a file.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), KeepError> {
    check_name_within(what, name, RUN_NAME_BYTES_MAX)
}

/// Checks the name of a sidecar file.
pub(super) fn check_file_name(name: &str) -> Result<(), KeepError> {
    check_name_within("file name", name, RUN_FILE_NAME_BYTES_MAX)
}

fn check_name_within(what: &str, name: &str, bytes_max: usize) -> Result<(), KeepError> {
    let wrong = match name {
        "" => "is empty",
        "." | ".." => "is not a name",
        _ if name.len() > bytes_max => {
            let wrong = format!("{what} is longer than {bytes_max} bytes");
            return Err(KeepError::BadName(wrong));
        }
        _ if name.contains('/') => "has a slash in it",
        _ if name.chars().any(char::is_control) => "has a control character in it",
        _ => return Ok(()),
    };
    Err(KeepError::BadName(format!("{what} {wrong}")))
}

/// Checks what is kept as text.
pub(super) fn check_text(what: &str, text: &str) -> Result<(), KeepError> {
    if text.len() > RUN_TEXT_BYTES_MAX {
        let wrong = format!("{what} is longer than {RUN_TEXT_BYTES_MAX} bytes");
        return Err(KeepError::BadName(wrong));
    }
    Ok(())
}

pub(super) fn check_start(start: &RunStart) -> Result<(), KeepError> {
    check_name("run id", &start.run_id)?;
    check_name("dataset", &start.partition.dataset)?;
    check_name("source", &start.partition.source)?;
    check_name("category", &start.partition.category)?;
    check_name("day", &start.partition.day)?;
    check_text("job id", start.job_id.as_deref().unwrap_or(""))?;
    check_text(
        "parent run id",
        start.parent_run_id.as_deref().unwrap_or(""),
    )
}

/// The folders of a run, from the state folder on. S-16.
pub(super) fn path_of(partition: &Partition, run: &str) -> [String; 7] {
    [
        "datasets".to_owned(),
        partition.dataset.clone(),
        "partitions".to_owned(),
        format!("source={}", partition.source),
        format!("category={}", partition.category),
        format!("day={}", partition.day),
        format!("run_id={run}"),
    ]
}

/// The disk refused.
pub(super) fn failed(what: &str) -> impl Fn(io::Error) -> KeepError + '_ {
    move |error| KeepError::Failed(format!("{what}: {error}"))
}

/// The journal refused.
pub(super) fn unrecorded(error: StoreError) -> KeepError {
    let cause = match error {
        StoreError::Open { source, .. }
        | StoreError::Full { source, .. }
        | StoreError::Read { source, .. }
        | StoreError::Sync { source } => source.to_string(),
        error => error.to_string(),
    };
    KeepError::Failed(format!("the journal does not take it: {cause}"))
}
