//! Runs of edits: what one import changed, undone as one. Nothing is written to a client's file
//! before the run's backups and its record are on the disk.
//!
//! ```text
//! BACKUPS/lock            held while files change
//! BACKUPS/3/record.json   which files, with digests of both contents; there once complete
//! BACKUPS/3/0.before      content of the first file before the run (0600: it may hold secrets)
//! BACKUPS/3/0.after       content that the run wrote
//! BACKUPS/3/0.overwritten content that a forced restore replaced
//! ```
//!
//! A file's state is what its digest says: a killed run needs no repair, and `restore` gives back
//! what was changed. Temporary files have names of the record, and the next run removes them.

mod record;
mod replace;
mod restore;

use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::edit::Edit;
use crate::failpoint::failpoint;
use crate::file::{self, FileError, digest};
use record::{FileRecord, Record};

pub use restore::{Conflict, RestoreError, Restored, restore};

/// Most runs that are kept at a time.
const RUNS_MAX: usize = 10_000;

/// Number of a run, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u64);

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// Error of a text that is no number of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no number of a run")]
pub struct ParseRunIdError;

impl FromStr for RunId {
    type Err = ParseRunIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
        match text.parse() {
            Ok(number) if is_plain => Ok(Self(number)),
            _ => Err(ParseRunIdError),
        }
    }
}

/// A run that can be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Number.
    pub id: RunId,
    /// Time, as the caller of `apply` said it.
    pub made_at: String,
    /// Files, in the order in which they were changed.
    pub files: Vec<RunFile>,
}

/// File of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFile {
    /// Path without links.
    pub path: PathBuf,
    /// Id of the client.
    pub client: String,
    /// What stands in the file now.
    pub state: FileState,
}

/// What stands in a file of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// The content from before the run.
    Before,
    /// The content that the run wrote.
    After,
    /// Something else.
    Changed,
    /// The file is gone.
    Missing,
}

/// Error of a run.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The folder of backups can not be used.
    #[error("keep backups in `{}`", path.display())]
    Backups {
        /// File or folder.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// Another process is changing files.
    #[error("another import or restore is at work")]
    Busy,
    /// Two edits have the same file.
    #[error("two edits of `{}`", path.display())]
    SameFile {
        /// File.
        path: PathBuf,
    },
    /// A path is no UTF-8 and can not be recorded.
    #[error("`{}` is no UTF-8", path.display())]
    PathNotUtf8 {
        /// File.
        path: PathBuf,
    },
    /// A file is not as it was when it was read. No file was changed, or all were given back.
    #[error("`{}` changed since it was read", path.display())]
    Changed {
        /// File.
        path: PathBuf,
    },
    /// A file can not be read again.
    #[error("read again")]
    Read(#[from] FileError),
    /// A file can not be written. Files written before it were given back.
    #[error("write `{}`", path.display())]
    Write {
        /// File.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A file can not be written, and not all files written before it were given back. The run can
    /// be restored.
    #[error("write `{}`; run {run} is half done", path.display())]
    Half {
        /// File.
        path: PathBuf,
        /// Run.
        run: RunId,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// There are too many runs.
    #[error("more than {RUNS_MAX} runs are kept: forget some")]
    TooManyRuns,
    /// There is no such run.
    #[error("no run {run}")]
    UnknownRun {
        /// Run.
        run: RunId,
    },
}

/// Carries out edits as one run, and returns its number. `made_at` is shown in the list of runs.
///
/// Each file has its old or its new content at every moment, with its mode and its owner. If one
/// can not be written, those before it get their old content back.
pub fn apply(edits: &[Edit], backups: &Path, made_at: &str) -> Result<RunId, ApplyError> {
    let store = Backups::open(backups)?;
    store.sweep()?;
    for (index, edit) in edits.iter().enumerate() {
        if edits[..index].iter().any(|other| other.path == edit.path) {
            return Err(ApplyError::SameFile {
                path: edit.path.clone(),
            });
        }
        let now = file::load(&edit.path)?;
        let is_same = (now.mode, (now.uid, now.gid)) == (edit.mode, edit.owner);
        if !is_same || now.bytes != edit.before {
            return Err(ApplyError::Changed {
                path: edit.path.clone(),
            });
        }
    }
    let run = store.next_run()?;
    let record = make_record(run, edits, made_at)?;
    store.keep(run, &record, edits)?;
    failpoint("apply.kept");
    for (index, (edit, about)) in edits.iter().zip(&record.files).enumerate() {
        if edit.is_empty() {
            continue;
        }
        let Err(error) = replace::replace(about, &edit.after, Some(&about.before)) else {
            continue;
        };
        let mut is_undone = true;
        let written = edits[..index].iter().zip(&record.files);
        for (edit, about) in written.filter(|(edit, _)| !edit.is_empty()) {
            is_undone &= replace::replace(about, &edit.before, Some(&about.after)).is_ok();
        }
        let path = edit.path.clone();
        return Err(match (is_undone, error) {
            (false, error) => ApplyError::Half {
                path,
                run,
                source: error.into_io(),
            },
            (true, error) => {
                store.remove(run)?;
                match error {
                    replace::ReplaceError::Changed => ApplyError::Changed { path },
                    replace::ReplaceError::Io(source) => ApplyError::Write { path, source },
                }
            }
        });
    }
    Ok(run)
}

/// Returns the runs whose backups are kept, oldest first.
pub fn runs(backups: &Path) -> Result<Vec<Run>, ApplyError> {
    if !backups.is_dir() {
        return Ok(Vec::new());
    }
    let mut runs = Vec::new();
    for run in run_numbers(backups)? {
        let Some(record) = read_record(backups, run)? else {
            continue;
        };
        let files = record.files.iter().map(|about| RunFile {
            path: PathBuf::from(&about.path),
            client: about.client.clone(),
            state: state(about),
        });
        runs.push(Run {
            id: run,
            made_at: record.made_at.clone(),
            files: files.collect(),
        });
    }
    Ok(runs)
}

/// Removes the backups of a run, which can not be restored afterwards.
pub fn forget(run: RunId, backups: &Path) -> Result<(), ApplyError> {
    let unknown = || ApplyError::UnknownRun { run };
    if !backups.is_dir() {
        return Err(unknown());
    }
    let store = Backups::open(backups)?;
    read_record(backups, run)?.ok_or_else(unknown)?;
    store.remove(run)
}

fn make_record(run: RunId, edits: &[Edit], made_at: &str) -> Result<Record, ApplyError> {
    let files = edits.iter().enumerate().map(|(index, edit)| {
        let path = edit.path.to_str().ok_or_else(|| ApplyError::PathNotUtf8 {
            path: edit.path.clone(),
        })?;
        Ok(FileRecord {
            path: path.to_owned(),
            client: edit.client.to_owned(),
            place: edit.place_path.to_owned(),
            mode: edit.mode,
            uid: edit.owner.0,
            gid: edit.owner.1,
            before: digest(&edit.before),
            after: digest(&edit.after),
            temporary: format!(".callgate-{run}-{index}.tmp"),
        })
    });
    Ok(Record {
        version: record::VERSION,
        made_at: made_at.to_owned(),
        files: files.collect::<Result<_, ApplyError>>()?,
    })
}

/// Returns what stands in a file. A link that took its place counts as changed.
fn state(about: &FileRecord) -> FileState {
    let path = Path::new(&about.path);
    match file::load(path) {
        Ok(image) => match digest(&image.bytes) {
            now if now == about.before => FileState::Before,
            now if now == about.after => FileState::After,
            _ => FileState::Changed,
        },
        Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            FileState::Missing
        }
        Err(_) => FileState::Changed,
    }
}

/// The folder of backups, locked.
struct Backups {
    folder: PathBuf,
    lock: File,
}

impl Drop for Backups {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread has just forked shares the descriptor
        // until its exec.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Backups {
    fn open(folder: &Path) -> Result<Self, ApplyError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| ApplyError::Backups { path, source }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(failed(folder))?;
        let path = folder.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600));
        let lock = File::from(lock.map_err(|error| failed(&path)(error.into()))?);
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self {
                folder: folder.to_owned(),
                lock,
            }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ApplyError::Busy),
            Err(error) => Err(failed(&path)(error.into())),
        }
    }

    fn failed(&self, source: io::Error) -> ApplyError {
        ApplyError::Backups {
            path: self.folder.clone(),
            source,
        }
    }

    /// Removes what killed runs left: backups without a record, and temporary files.
    fn sweep(&self) -> Result<(), ApplyError> {
        for run in run_numbers(&self.folder)? {
            match read_record(&self.folder, run)? {
                None => self.remove(run)?,
                Some(record) => {
                    for about in &record.files {
                        replace::remove_temporary(about);
                    }
                }
            }
        }
        Ok(())
    }

    fn next_run(&self) -> Result<RunId, ApplyError> {
        let numbers = run_numbers(&self.folder)?;
        if numbers.len() >= RUNS_MAX {
            return Err(ApplyError::TooManyRuns);
        }
        Ok(RunId(numbers.last().map_or(1, |last| last.0 + 1)))
    }

    /// Writes the backups and then the record of a run, each on the disk before the next.
    fn keep(&self, run: RunId, record: &Record, edits: &[Edit]) -> Result<(), ApplyError> {
        let folder = self.folder.join(run.to_string());
        let write = || -> io::Result<()> {
            DirBuilder::new().mode(0o700).create(&folder)?;
            failpoint("keep.folder");
            for (index, edit) in edits.iter().enumerate() {
                record::write_new(&folder.join(format!("{index}.before")), &edit.before)?;
                failpoint("keep.before");
                record::write_new(&folder.join(format!("{index}.after")), &edit.after)?;
            }
            replace::sync_folder(&folder)?;
            record::write(&folder, record)?;
            replace::sync_folder(&self.folder)
        };
        write().map_err(|source| {
            // A run without a record is none; what is left of it is swept next time.
            let _ = std::fs::remove_dir_all(&folder);
            self.failed(source)
        })
    }

    /// Removes a run: its record first, so that a kill leaves no run without its backups.
    fn remove(&self, run: RunId) -> Result<(), ApplyError> {
        let folder = self.folder.join(run.to_string());
        let remove = || {
            match std::fs::remove_file(folder.join(record::NAME)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            replace::sync_folder(&folder)?;
            failpoint("remove.record");
            std::fs::remove_dir_all(&folder)
        };
        remove().map_err(|source| self.failed(source))
    }
}

fn read_record(backups: &Path, run: RunId) -> Result<Option<Record>, ApplyError> {
    let folder = backups.join(run.to_string());
    record::read(&folder).map_err(|source| ApplyError::Backups {
        path: folder.clone(),
        source,
    })
}

/// Returns the numbers of the runs in a folder, ascending.
fn run_numbers(backups: &Path) -> Result<Vec<RunId>, ApplyError> {
    let failed = |source| ApplyError::Backups {
        path: backups.to_owned(),
        source,
    };
    let mut numbers = Vec::new();
    for entry in backups.read_dir().map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // bound: `next_run` makes no more than `RUNS_MAX`
        numbers.extend(name.to_str().and_then(|name| name.parse::<RunId>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}
