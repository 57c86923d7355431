//! Bytes that nobody needs: what the dead left on its way to be an artifact, and what has its
//! name in the content store but no record in the chain. S-17. And whether the artifacts that the
//! chain tells of are there as they were.

use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use callgate_call::{Digest, Timestamp};
use rustix::fs::{FlockOperation, flock};

use super::commit::{ARTIFACTS, lock};
use super::incoming::INCOMING;
use super::list::KeptArtifact;
use super::read::digest_of;
use crate::{Store, StoreError};

/// What was removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Files in `incoming/` whose writer is dead.
    pub incoming: u64,
    /// Files of the content store that no record points at.
    pub unrecorded: u64,
    /// Bytes of them all.
    pub bytes: u64,
}

/// What became of the artifacts that the chain tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files that were read; artifacts of the same bytes share one.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Artifacts that are not as they were committed.
    pub bad: Vec<BadArtifact>,
}

/// An artifact that is not as it was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadArtifact {
    /// Which.
    pub artifact: KeptArtifact,
    /// What is wrong with it.
    pub problem: ArtifactProblem,
}

/// What is wrong with an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactProblem {
    /// Its bytes are not there.
    Missing,
    /// They are others, or can not be read.
    Changed,
}

/// Digests that are looked up at a time.
const PAGE: usize = 256;

impl Store {
    /// Removes bytes that nobody needs and that are older than this; or only counts them.
    pub fn collect_artifacts(
        &self,
        older_than: Duration,
        dry_run: bool,
    ) -> Result<Collected, StoreError> {
        let mut collected = Collected::default();
        let age = Age {
            now: self.clock.now(),
            older_than,
        };
        self.collect_incoming(&age, usize::MAX, dry_run, &mut collected)
            .map_err(|e| StoreError::read(&self.dir.join(INCOMING), e))?;
        self.collect_unrecorded(&age, dry_run, &mut collected)?;
        if !dry_run {
            self.usage.release(collected.bytes);
        }
        Ok(collected)
    }

    /// What the dead left on its way, without a look at anything else: for a process that opens
    /// the store and has something else to do.
    pub(crate) fn collect_at_open(&self, folders_max: usize) {
        let age = Age {
            now: self.clock.now(),
            older_than: Duration::ZERO,
        };
        // Whoever comes next finds the same.
        let _ = self.collect_incoming(&age, folders_max, false, &mut Collected::default());
    }

    fn collect_incoming(
        &self,
        age: &Age,
        folders_max: usize,
        dry_run: bool,
        collected: &mut Collected,
    ) -> io::Result<()> {
        let incoming = self.dir.join(INCOMING);
        let folders = match std::fs::read_dir(&incoming) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            folders => folders?,
        };
        // Nobody is about to lock a folder that was just made.
        let parent = File::open(&incoming)?;
        let _lock = lock(&parent)?;
        for folder in folders.take(folders_max).flatten() {
            let path = folder.path();
            let Ok(held) = File::open(&path) else {
                continue;
            };
            if flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok() {
                collect_folder(&path, age, dry_run, collected);
            }
        }
        Ok(())
    }

    fn collect_unrecorded(
        &self,
        age: &Age,
        dry_run: bool,
        collected: &mut Collected,
    ) -> Result<(), StoreError> {
        let artifacts = self.dir.join(ARTIFACTS);
        let fail = |e: io::Error| StoreError::read(&artifacts, e);
        let shelves = match std::fs::read_dir(&artifacts) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            shelves => shelves.map_err(fail)?,
        };
        let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for shelf in shelves.flatten().filter(is_folder) {
            let files = std::fs::read_dir(shelf.path()).map_err(fail)?;
            for file in files.flatten() {
                let Ok(about) = file.metadata() else { continue };
                let name = file.file_name();
                let digest = name.to_str().and_then(Digest::from_hex);
                let Some(digest) = digest.filter(|_| age.is_over(&about)) else {
                    continue;
                };
                if self.collect_content(&artifacts, &file.path(), &digest, dry_run)? {
                    collected.unrecorded += 1;
                    collected.bytes += about.len();
                }
            }
        }
        Ok(())
    }

    /// Removes a file of the content store, if it is nobody's. True if it was.
    fn collect_content(
        &self,
        artifacts: &Path,
        path: &Path,
        digest: &Digest,
        dry_run: bool,
    ) -> Result<bool, StoreError> {
        let fail = |e: io::Error| StoreError::read(path, e);
        let hex = digest.to_hex();
        // A first look, which needs no lock and mostly settles it.
        if !self.read(|inner, _| inner.artifacts_by(&hex))?.is_empty() {
            return Ok(false);
        }
        // Now no other file gets this name.
        let folder = File::open(artifacts).map_err(fail)?;
        let _lock = lock(&folder).map_err(fail)?;
        let Ok(file) = File::open(path) else {
            return Ok(false);
        };
        // Its writer holds it locked until the chain tells of it, or the writer is dead.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        if !self.read(|inner, _| inner.artifacts_by(&hex))?.is_empty() {
            return Ok(false);
        }
        if !dry_run {
            std::fs::remove_file(path).map_err(|e| StoreError::write(path, e))?;
        }
        Ok(true)
    }

    /// Reads every artifact that the chain tells of, and names those that are not as they were.
    pub fn verify_artifacts(&self) -> Result<Checked, StoreError> {
        let mut checked = Checked::default();
        let mut after = String::new();
        loop {
            let digests = self.read(|inner, _| inner.digests(&after, PAGE))?;
            let Some(last) = digests.last() else {
                return Ok(checked);
            };
            after.clone_from(last);
            for hex in &digests {
                let Some(digest) = Digest::from_hex(hex) else {
                    continue;
                };
                if let Some(problem) = self.check_content(&digest, &mut checked)? {
                    let artifacts = self.artifacts_by(hex)?;
                    let bad = artifacts.into_iter();
                    let bad = bad.map(|artifact| BadArtifact { artifact, problem });
                    checked.bad.extend(bad);
                }
            }
        }
    }

    fn check_content(
        &self,
        digest: &Digest,
        checked: &mut Checked,
    ) -> Result<Option<ArtifactProblem>, StoreError> {
        let Some(file) = self.content(digest)? else {
            return Ok(Some(ArtifactProblem::Missing));
        };
        checked.files += 1;
        Ok(match digest_of(file) {
            Ok((found, bytes)) => {
                checked.bytes += bytes;
                (found != *digest).then_some(ArtifactProblem::Changed)
            }
            Err(_) => Some(ArtifactProblem::Changed),
        })
    }
}

/// What is old enough.
struct Age {
    now: Timestamp,
    older_than: Duration,
}

impl Age {
    fn is_over(&self, about: &Metadata) -> bool {
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(self.now.0);
        let age = about.modified().map(|at| now.duration_since(at));
        // One that is newer than the clock has no age.
        age.is_ok_and(|age| age.unwrap_or_default() >= self.older_than)
    }
}

/// Removes the files of a dead writer, and the folder once it is empty.
fn collect_folder(folder: &Path, age: &Age, dry_run: bool, collected: &mut Collected) {
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let over = file.metadata().ok().filter(|about| age.is_over(about));
        let Some(about) = over else { continue };
        if dry_run || std::fs::remove_file(file.path()).is_ok() {
            collected.incoming += 1;
            collected.bytes += about.len();
        }
    }
    if !dry_run {
        let _ = std::fs::remove_dir(folder);
    }
}
