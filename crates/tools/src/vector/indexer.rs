//! Brings the index up to what the files are. A file whose size and times are as they were is
//! not read, one with the same bytes is not cut, and pieces with a text that is known keep their
//! vectors. Files are put in batches, each whole, so that a killed indexer is taken up where it
//! was.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use callgate_call::{Cancel, Fault, Secrets};
use callgate_search::{counted, language_of, packed, pieces, tags_of};
use callgate_store::StoreError;
use callgate_store::search::{KnownFile, NewChunk, SearchDb, Stamp, lock_indexer};
use rustix::fs::{OFlags, Stat};

use super::walk::{Visitor, plain, walk};
use crate::files::Files;
use crate::files::place::{Outside, errno, fault, shown};

/// Larger files are data.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// More files of a workspace are not looked at, and counted.
const FILES_MAX: u64 = 1_000_000;
/// A batch is put once it has so many files, or so many bytes of them.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How far it is, is told after so many.
const TOLD_FILES: u64 = 64;
/// What is looked at to tell text from data.
const SNIFFED_BYTES: usize = 8192;
/// A file that was written to within this of now may be written to again without a sign.
const SETTLED_MS: i64 = 2000;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that were met.
    pub seen: u64,
    /// Files that were cut and put.
    pub indexed: u64,
    /// Files that are gone.
    pub removed: u64,
    /// Files that are no text, or too large.
    pub skipped: u64,
    /// Pieces that were put.
    pub chunks: u64,
}

/// Why nothing was indexed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// Another process is at it.
    #[error("another process is indexing this workspace")]
    Locked,
    /// What was asked for can not be walked.
    #[error(transparent)]
    Walk(#[from] Fault),
    /// The index can not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl IndexError {
    /// True if another process is in the way, and it may be tried again.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        match self {
            Self::Locked => true,
            Self::Store(error) => error.is_locked(),
            Self::Walk(_) => false,
        }
    }

    /// True if it may go well a moment later.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        self.is_locked() || matches!(self, Self::Walk(Fault::Unavailable { .. }))
    }
}

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// A folder or a file of the workspace.
    pub from: &'a str,
    /// With what is in its folders.
    pub deep: bool,
}

/// Brings the index of a workspace up to date, and makes it where there is none. Values of
/// `secrets` are masked in the texts. R-15.
pub fn index(
    (files, secrets): (&Arc<Files>, &Secrets),
    state: &Path,
    scope: Scope<'_>,
    cancel: &Cancel,
    told: &mut dyn FnMut(&Report),
) -> Result<Report, IndexError> {
    let from = files.ground().within(scope.from, Outside::BadValue)?;
    let Some(_lock) = lock_indexer(state)? else {
        return Err(IndexError::Locked);
    };
    let mut db = SearchDb::create(state)?;
    let folder = plain(&from).to_string_lossy().into_owned();
    let known = db.files_in(&folder, scope.deep)?;
    let mut work = Work {
        files,
        secrets,
        commit: commit(files),
        db: &mut db,
        known,
        batch: Vec::new(),
        batch_bytes: 0,
        report: Report::default(),
        cancel,
        told,
        failed: None,
    };
    let walked = walk(files.ground(), &from, scope.deep, &mut work);
    // What was met is put, whatever came after it.
    work.put()?;
    if let Some(error) = work.failed.take() {
        return Err(error.into());
    }
    if walked? {
        // Vectors that nobody has any more cost room only, and a look at all of them: that is for
        // those who look at all files as well.
        work.forget(scope.deep && folder.is_empty())?;
    }
    let (report, cancelled) = (work.report, cancel.is_cancelled());
    if cancelled {
        return Err(Fault::Cancelled.into());
    }
    Ok(report)
}

/// How many files would be looked at.
pub fn count(files: &Arc<Files>, scope: Scope<'_>) -> Result<u64, IndexError> {
    struct Count(u64);
    impl Visitor for Count {
        fn folder(&mut self, _: &Path) {}

        fn file(&mut self, _: &Path, _: File, _: &Stat) -> Result<bool, Fault> {
            self.0 += 1;
            Ok(self.0 < FILES_MAX)
        }
    }
    let from = files.ground().within(scope.from, Outside::BadValue)?;
    let mut count = Count(0);
    // What can not be looked at is told by who indexes the rest.
    let _ = walk(files.ground(), &from, scope.deep, &mut count);
    Ok(count.0)
}

/// A file that is cut and not put yet.
struct Ready {
    path: String,
    stamp: Stamp,
    hash: [u8; 32],
    chunks: Vec<NewChunk>,
    /// The bytes are those that are known.
    same: Option<i64>,
}

struct Work<'a> {
    files: &'a Arc<Files>,
    secrets: &'a Secrets,
    commit: Option<String>,
    db: &'a mut SearchDb,
    /// What is in the index of what is looked at, and was not met yet.
    known: HashMap<String, KnownFile>,
    batch: Vec<Ready>,
    batch_bytes: usize,
    report: Report,
    cancel: &'a Cancel,
    told: &'a mut dyn FnMut(&Report),
    failed: Option<StoreError>,
}

impl Visitor for Work<'_> {
    fn folder(&mut self, _: &Path) {}

    fn file(&mut self, path: &Path, file: File, about: &Stat) -> Result<bool, Fault> {
        if self.cancel.is_cancelled() {
            return Ok(false);
        }
        if self.report.seen >= FILES_MAX {
            self.report.skipped += 1;
            return Ok(true);
        }
        self.report.seen += 1;
        if self.report.seen.is_multiple_of(TOLD_FILES) {
            (self.told)(&self.report);
        }
        let path = shown(path);
        let stamp = self.stamp(about);
        let known = self.known.remove(&path);
        let same = |known: &KnownFile| known.stamp == stamp && stamp.ctime >= 0;
        if known.as_ref().is_some_and(same) {
            return Ok(true);
        }
        match read(file).map_err(|error| fault(errno(&error), Path::new(&path)))? {
            Some(bytes) => self.ready(path, stamp, &bytes, known),
            None => {
                self.report.skipped += 1;
                // It was text before, and is forgotten with what is gone.
                if let Some(known) = known {
                    self.known.insert(path, known);
                }
            }
        }
        let is_full = self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES;
        if is_full && let Err(error) = self.put() {
            self.failed = Some(error);
            return Ok(false);
        }
        Ok(true)
    }
}

impl Work<'_> {
    fn stamp(&self, about: &Stat) -> Stamp {
        let nanos = |seconds: i64, nanos: u64| {
            let nanos = i64::try_from(nanos).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
        };
        let mtime = nanos(about.st_mtime, about.st_mtime_nsec);
        let now = i64::try_from(self.files.clock().now().0).unwrap_or(i64::MAX);
        let settled = now - mtime / 1_000_000 > SETTLED_MS;
        Stamp {
            size: about.st_size,
            mtime,
            // No file has this, so that it is read again by the next who comes.
            ctime: match settled {
                true => nanos(about.st_ctime, about.st_ctime_nsec),
                false => -1,
            },
        }
    }

    fn ready(&mut self, path: String, stamp: Stamp, bytes: &[u8], known: Option<KnownFile>) {
        let hash = *blake3::hash(bytes).as_bytes();
        let same = known
            .filter(|known| known.hash == hash)
            .map(|known| known.id);
        let chunks = match same {
            Some(_) => Vec::new(),
            None => self.cut(&path, bytes, &hash),
        };
        self.batch_bytes += bytes.len();
        self.batch.push(Ready {
            path,
            stamp,
            hash,
            chunks,
            same,
        });
    }

    fn cut(&self, path: &str, bytes: &[u8], hash: &[u8; 32]) -> Vec<NewChunk> {
        let text = String::from_utf8_lossy(bytes);
        // Before it is cut: a cut may go through a secret.
        let text = self.secrets.clean_in_lines(&text);
        let mut half = [0; 16];
        half.copy_from_slice(&hash[..16]);
        let etag = crate::files::etag::shown(&half);
        let (lang, tags) = (language_of(path).0.map(str::to_owned), tags_of(path));
        let chunk = |piece: callgate_search::Piece<'_>| NewChunk {
            key: format!("{path}:{}-{}", piece.start, piece.end),
            namespace: String::new(),
            path: path.to_owned(),
            lines: Some((piece.start, piece.end)),
            lang: lang.clone(),
            commit: self.commit.clone(),
            etag: Some(etag.clone()),
            tags: tags.clone(),
            hash: short(piece.text),
            words: packed(&counted(&[path, piece.text])),
            text: piece.text.to_owned(),
        };
        pieces(path, &text).into_iter().map(chunk).collect()
    }

    /// Puts the batch, whole.
    fn put(&mut self) -> Result<(), StoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let step = self.db.begin()?;
        for ready in self.batch.drain(..) {
            match ready.same {
                Some(id) => step.touch(id, ready.stamp)?,
                None => {
                    step.put_file(&ready.path, ready.stamp, &ready.hash, &ready.chunks)?;
                    self.report.indexed += 1;
                    self.report.chunks += ready.chunks.len() as u64;
                }
            }
        }
        step.commit()?;
        self.batch_bytes = 0;
        Ok(())
    }

    /// Forgets what was known and was not met.
    fn forget(&mut self, sweep: bool) -> Result<(), StoreError> {
        if self.known.is_empty() && !sweep {
            return Ok(());
        }
        let step = self.db.begin()?;
        for path in self.known.keys() {
            step.remove_file(path)?;
            self.report.removed += 1;
        }
        if sweep {
            step.sweep_vectors()?;
        }
        step.commit()
    }
}

/// Names a text.
fn short(text: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
    short
}

/// The bytes of a text file that is not too large. One that can not be read may be text.
fn read(file: File) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // bound: `FILE_BYTES_MAX`
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let head = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    let is_text = !head.contains(&0) && bytes.len() as u64 <= FILE_BYTES_MAX;
    Ok(is_text.then_some(bytes))
}

/// The commit that is checked out, where the workspace is the root of a repository.
fn commit(files: &Files) -> Option<String> {
    let text = |path: &str| {
        let (found, _) = files.ground().find(Path::new(path), OFlags::RDONLY).ok()?;
        let mut text = String::new();
        File::from(found)
            .take(1024 * 1024)
            // bound: the MiB taken
            .read_to_string(&mut text)
            .ok()?;
        Some(text)
    };
    let head = text(".git/HEAD")?;
    let commit = match head.trim().strip_prefix("ref: ") {
        None => head.trim().to_owned(),
        Some(name) => match text(&format!(".git/{name}")) {
            Some(commit) => commit.trim().to_owned(),
            None => {
                let packed = text(".git/packed-refs")?;
                let line = packed
                    .lines()
                    .find(|line| line.ends_with(&format!(" {name}")))?;
                line.split(' ').next()?.to_owned()
            }
        },
    };
    let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that can not be read is no data: it would be forgotten.
    #[test]
    fn a_failed_read_is_an_error() {
        let path = std::env::temp_dir().join(format!("callgate-unread-{}", std::process::id()));
        let text = "fn sheep() {}\n";
        std::fs::write(&path, text).unwrap();
        let only_written = File::options().write(true).open(&path).unwrap();
        assert!(read(only_written).is_err());
        let read = read(File::open(&path).unwrap()).unwrap();
        assert_eq!(read.as_deref(), Some(text.as_bytes()));
        std::fs::remove_file(&path).unwrap();
    }
}
