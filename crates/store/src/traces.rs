//! Traces: what is known of a call beyond the chain, for people, and not to be relied on. A ring
//! of files of lines, the oldest of which leave. A line is a call's id, a space and the trace.
//!
//! A process writes to one file at a time, which it holds locked; a file that is neither full
//! nor held is gone on with, so that many short processes do not leave many short files. Nothing
//! is synced: a line that a dead process left torn is skipped. What can not be written is lost
//! and counted, and no call fails for it.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use callgate_call::CallId;
use callgate_call::bounded::read_path;
use rustix::fs::{FlockOperation, flock};

use crate::owner::is_locked;
use crate::{Store, StoreError, failpoint, make_private};

/// The largest trace.
pub const TRACE_BYTES_MAX: usize = 32 * 1024;
/// The smallest ring that is one.
pub const TRACES_BYTES_MIN: u64 = 1024 * 1024;
/// Files of a full ring, and so processes that can keep traces at once.
const FILES: u64 = 16;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// So many of the newest files are looked at for one to go on with.
const CANDIDATES: usize = 8;
/// The id, the space and the end of the line.
const FRAME_BYTES: usize = 34;

const _: () = assert!((TRACE_BYTES_MAX + FRAME_BYTES) as u64 <= TRACES_BYTES_MIN / FILES);

/// The ring as this process writes to it.
pub(crate) struct Ring {
    dir: PathBuf,
    bytes_max: u64,
    own: Option<Own>,
    lost: u64,
}

/// The file this process holds.
struct Own {
    file: File,
    bytes: u64,
}

impl Ring {
    pub(crate) fn new(state: &Path, bytes_max: u64) -> Self {
        Self {
            dir: state.join("traces"),
            bytes_max: match bytes_max {
                0 => 0,
                some => some.max(TRACES_BYTES_MIN),
            },
            own: None,
            lost: 0,
        }
    }

    fn file_bytes_max(&self) -> u64 {
        (self.bytes_max / FILES).min(FILE_BYTES_MAX)
    }

    fn write(&mut self, lines: &[u8]) -> Result<(), StoreError> {
        let room = self.file_bytes_max();
        let full = |own: &Own| own.bytes + lines.len() as u64 > room;
        if self.own.as_ref().is_none_or(full) {
            self.own = None; // lets go of its lock
            self.own = Some(self.claim(lines.len() as u64)?);
        }
        let own = self.own.as_mut().expect("claimed above");
        own.bytes += lines.len() as u64;
        own.file.write_all(lines).map_err(|error| {
            self.own = None;
            StoreError::write(&self.dir, error)
        })
    }

    /// A file with room for `wanted` bytes that nobody else writes to.
    fn claim(&self, wanted: u64) -> Result<Own, StoreError> {
        make_private(&self.dir)?;
        let room = self.file_bytes_max();
        for found in self.files()?.iter().take(CANDIDATES) {
            if found.bytes + wanted <= room
                && let Some(own) = take(&found.path).map_err(|e| StoreError::write(&self.dir, e))?
                && own.bytes + wanted <= room
            {
                return Ok(own);
            }
        }
        let path = self.dir.join(format!("{:016x}", crate::random_u64()?));
        let failed = |error: io::Error| StoreError::write(&path, error);
        let mut options = OpenOptions::new();
        options.append(true).read(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        // Only now: of two who come at once, one at least sees the other.
        if !self.make_room(&path)? {
            let _ = std::fs::remove_file(&path);
            return Err(failed(io::ErrorKind::StorageFull.into()));
        }
        Ok(Own { file, bytes: 0 })
    }

    /// Removes the oldest until all fit, with what the files in use may still grow to. False if
    /// they do not.
    fn make_room(&self, own: &Path) -> Result<bool, StoreError> {
        let whole = self.file_bytes_max();
        let files = self.files()?;
        let size = |found: &Found| {
            let in_use = found.path == own || is_locked(&found.path);
            if in_use { whole } else { found.bytes }
        };
        let mut all: u64 = files.iter().map(size).sum();
        for found in files.iter().rev() {
            if all <= self.bytes_max {
                break;
            }
            // Whoever holds it is alive.
            if found.path != own && take(&found.path).is_ok_and(|file| file.is_some()) {
                let _ = std::fs::remove_file(&found.path);
                all = all.saturating_sub(found.bytes);
            }
        }
        Ok(all <= self.bytes_max)
    }

    /// The files, the one that was written to last first.
    fn files(&self) -> Result<Vec<Found>, StoreError> {
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|error| StoreError::read(&self.dir, error))?,
        };
        let found = |entry: std::fs::DirEntry| {
            let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(Found {
                path: entry.path(),
                bytes: about.len(),
                written: about.modified().ok()?,
            })
        };
        let mut files: Vec<Found> = entries.flatten().filter_map(found).collect();
        files.sort_by_key(|found| std::cmp::Reverse(found.written));
        Ok(files)
    }
}

/// A file of the ring.
struct Found {
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
}

/// Takes hold of a file, unless somebody has it or it is gone. A line that its last owner left
/// torn is ended.
fn take(path: &Path) -> io::Result<Option<Own>> {
    let file = match OpenOptions::new().append(true).read(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        locked => locked?,
    }
    let about = file.metadata()?;
    if about.nlink() == 0 {
        return Ok(None);
    }
    let mut own = Own {
        file,
        bytes: about.len(),
    };
    let mut last = [b'\n'];
    if own.bytes > 0 {
        own.file.read_exact_at(&mut last, own.bytes - 1)?;
    }
    if last != [b'\n'] {
        own.file.write_all(b"\n")?;
        own.bytes += 1;
    }
    Ok(Some(own))
}

impl Store {
    /// True if traces are kept at all.
    #[must_use]
    pub fn keeps_traces(&self) -> bool {
        self.ring().bytes_max > 0
    }

    /// Keeps traces: each a call and one line of text without secrets, at most
    /// `TRACE_BYTES_MAX`. What can not be kept is counted.
    pub fn keep_traces<'a>(&self, traces: impl Iterator<Item = (CallId, &'a str)>) {
        let mut ring = self.ring();
        if ring.bytes_max == 0 {
            return;
        }
        let room = usize::try_from(ring.file_bytes_max()).unwrap_or(usize::MAX);
        let (mut lines, mut count) = (String::new(), 0);
        for (call, trace) in traces {
            if trace.len() > TRACE_BYTES_MAX || trace.contains('\n') {
                ring.lost += 1;
                continue;
            }
            if lines.len() + trace.len() + FRAME_BYTES > room {
                ring.write_or_lose(&lines, count);
                (lines, count) = (String::new(), 0);
            }
            let _ = writeln!(lines, "{call} {trace}"); // a String takes everything
            count += 1;
        }
        if count > 0 {
            failpoint("traces.before");
            ring.write_or_lose(&lines, count);
        }
    }

    /// Traces that this process could not keep.
    #[must_use]
    pub fn traces_lost(&self) -> u64 {
        self.ring().lost
    }

    /// The traces whose call's id begins with `prefix`: one, if it is a whole id, else at most
    /// `max`.
    pub fn find_traces(&self, prefix: &str, max: usize) -> Result<Vec<String>, StoreError> {
        let max = if prefix.len() == 32 { 1 } else { max };
        let mut found = Vec::new();
        // Not under the lock: others may write meanwhile.
        let files = { self.ring().files()? };
        for file in files {
            let Some(bytes) = read(&file.path)? else {
                continue;
            };
            for (call, trace) in lines(&bytes) {
                if call.starts_with(prefix) {
                    found.push(trace.to_owned());
                    if found.len() >= max {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Hands the traces to `each`, the newest call's first, until it says `false`.
    pub fn show_traces(&self, each: &mut dyn FnMut(&str) -> bool) -> Result<(), StoreError> {
        let files = { self.ring().files()? };
        let mut texts = Vec::new();
        for file in files {
            texts.extend(read(&file.path)?);
        }
        let mut all: Vec<(&str, &str)> = texts.iter().flat_map(|bytes| lines(bytes)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        for (_, trace) in all {
            if !each(trace) {
                break;
            }
        }
        Ok(())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // A panic elsewhere leaves at worst a torn line, which is skipped.
        self.traces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn write_or_lose(&mut self, lines: &str, count: u64) {
        if let Err(error) = self.write(lines.as_bytes()) {
            self.lost += count;
            tracing::debug!(error = callgate_call::chain(&error), "traces lost");
        }
    }
}

/// A file's bytes; nothing if it has left meanwhile.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match read_path(path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => bytes
            .map(Some)
            .map_err(|error| StoreError::read(path, error)),
    }
}

/// The whole lines of a file: id and trace.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    bytes
        .split_inclusive(|&byte| byte == b'\n')
        .filter_map(|line| {
            let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
            let (call, trace) = line.split_once(' ')?;
            let is_whole = call.len() == 32 && trace.ends_with('}');
            is_whole.then_some((call, trace))
        })
}
