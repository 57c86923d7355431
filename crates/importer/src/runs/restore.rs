//! The way back: every file of a run gets the content from before it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use callgate_call::bounded;

use super::record::{self, FileRecord};
use super::{ApplyError, Backups, FileState, RunId, read_record, replace, state};
use crate::clients::CLIENTS;
use crate::edit::unified_diff;
use crate::failpoint::failpoint;
use crate::file::{self, FILE_BYTES_MAX, FileImage, digest};
use crate::find::{ClientFile, FileScope};
use crate::read::interpret;

/// Largest content of a backup: a settings file with an entry more.
const BACKUP_BYTES_MAX: u64 = 2 * FILE_BYTES_MAX;

/// File of a restored run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Path without links.
    pub path: PathBuf,
    /// What stood in the file. With `Before` nothing was written.
    pub found: FileState,
}

/// File that changed since its run, and so is not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Path without links.
    pub path: PathBuf,
    /// What stands in the file.
    pub state: FileState,
    /// What the run changed, as a unified diff without secrets.
    pub by_run: String,
    /// What changed since, as a unified diff without secrets. Empty if the file can not be read.
    pub since: String,
}

/// Error of a restore.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Files changed since. None was given back.
    #[error("{} changed since run {run}", match conflicts.as_slice() {
        [conflict] => format!("`{}`", conflict.path.display()),
        conflicts => format!("{} files", conflicts.len()),
    })]
    Changed {
        /// Run.
        run: RunId,
        /// Files and their differences.
        conflicts: Vec<Conflict>,
    },
    /// A backup is not what was kept. None was given back.
    #[error("the backup of `{}` is damaged", path.display())]
    Damaged {
        /// File.
        path: PathBuf,
    },
    /// A file changed while it was given back. Those before it were given back.
    #[error("`{}` changed meanwhile", path.display())]
    ChangedMeanwhile {
        /// File.
        path: PathBuf,
    },
    /// A file can not be written. Those before it were given back.
    #[error("write `{}`", path.display())]
    Write {
        /// File.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The backups can not be used.
    #[error("open backups")]
    Backups(#[from] ApplyError),
}

/// Gives the files of a run the content from before it. If one of them changed since, none is
/// given back, unless `is_forced`: what stood in it is then kept beside the backups.
///
/// A restore that was cut short is finished by the next one.
pub fn restore(run: RunId, backups: &Path, is_forced: bool) -> Result<Vec<Restored>, RestoreError> {
    let unknown = || ApplyError::UnknownRun { run };
    if !backups.is_dir() {
        return Err(unknown().into());
    }
    let store = Backups::open(backups)?;
    let record = read_record(backups, run)?.ok_or_else(unknown)?;
    store.sweep()?;
    let folder = backups.join(run.to_string());
    let mut conflicts = Vec::new();
    let mut contents = Vec::new();
    for (index, about) in record.files.iter().enumerate() {
        let before = read_backup(&folder, index, "before", about, &about.before)?;
        let found = state(about);
        if matches!(found, FileState::Changed | FileState::Missing) {
            let after = read_backup(&folder, index, "after", about, &about.after)?;
            conflicts.push(conflict(about, found, &before, &after));
        }
        contents.push((found, before));
    }
    if !conflicts.is_empty() && !is_forced {
        return Err(RestoreError::Changed { run, conflicts });
    }
    let mut restored = Vec::new();
    for (index, (about, (found, before))) in record.files.iter().zip(contents).enumerate() {
        let path = PathBuf::from(&about.path);
        let expected = match found {
            FileState::Before => {
                restored.push(Restored { path, found });
                continue;
            }
            FileState::After => Some(about.after.as_str()),
            FileState::Changed | FileState::Missing => None,
        };
        if found == FileState::Changed {
            keep_overwritten(&folder, index, &path)?;
        }
        failpoint("restore.next");
        match replace::replace(about, &before, expected) {
            Ok(()) => restored.push(Restored { path, found }),
            Err(replace::ReplaceError::Changed) => {
                return Err(RestoreError::ChangedMeanwhile { path });
            }
            Err(replace::ReplaceError::Io(source)) => {
                return Err(RestoreError::Write { path, source });
            }
        }
    }
    Ok(restored)
}

fn read_backup(
    folder: &Path,
    index: usize,
    kind: &str,
    about: &FileRecord,
    expected: &str,
) -> Result<Vec<u8>, RestoreError> {
    let read = || {
        let file = File::open(folder.join(format!("{index}.{kind}")))?;
        bounded::read_file(&file, BACKUP_BYTES_MAX)
    };
    match read() {
        Ok(bytes) if digest(&bytes) == expected => Ok(bytes),
        _ => Err(RestoreError::Damaged {
            path: PathBuf::from(&about.path),
        }),
    }
}

/// Keeps what a forced restore replaces. Content that can not be read is not kept.
fn keep_overwritten(folder: &Path, index: usize, path: &Path) -> Result<(), RestoreError> {
    let Ok(image) = file::load(path) else {
        return Ok(());
    };
    let kept = folder.join(format!("{index}.overwritten"));
    let write = || {
        match std::fs::remove_file(&kept) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        record::write_new(&kept, &image.bytes)?;
        replace::sync_folder(folder)
    };
    write().map_err(|source| {
        let path = kept.clone();
        ApplyError::Backups { path, source }.into()
    })
}

fn conflict(about: &FileRecord, found: FileState, before: &[u8], after: &[u8]) -> Conflict {
    let path = PathBuf::from(&about.path);
    let now = file::load(&path).ok().map(|image| image.bytes);
    let mut secrets = secrets_of(about, before);
    if let Some(now) = &now {
        secrets.extend(secrets_of(about, now));
    }
    Conflict {
        by_run: unified_diff(&about.path, before, after, &secrets),
        since: now.map_or_else(String::new, |now| {
            unified_diff(&about.path, after, &now, &secrets)
        }),
        path,
        state: found,
    }
}

/// Returns the secrets in a content of a file, read as its client reads it.
fn secrets_of(about: &FileRecord, bytes: &[u8]) -> Vec<String> {
    let client = CLIENTS.iter().find(|client| client.id == about.client);
    let places = client.map_or(&[][..], |client| client.places);
    let Some(place) = places.iter().find(|place| place.path == about.place) else {
        return Vec::new();
    };
    let path = PathBuf::from(&about.path);
    let file = ClientFile {
        client: "",
        client_name: "",
        path: path.clone(),
        scope: FileScope::User,
        place,
        roots: Vec::new(),
        companions: Vec::new(),
    };
    let image = FileImage {
        bytes: bytes.to_owned(),
        mode: about.mode,
        uid: about.uid,
        gid: about.gid,
        links: 1,
    };
    interpret(&file, path, image).map_or_else(|_| Vec::new(), |settings| settings.secret_texts())
}
