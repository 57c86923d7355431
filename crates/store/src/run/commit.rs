//! The commit of an artifact, in the order that makes it whole at any moment: its bytes are on
//! the disk, then they have their name, then the disk has the name, then the chain tells of it,
//! then the disk has that. Killed before the last step, it may be an artifact or not; nowhere is
//! there half of one.

use std::fs::File;
use std::io;

use callgate_call::{Digest, KeepError, RunArtifact};
use rustix::fs::{AtFlags, FlockOperation, flock, statat};

use super::disk::{Folder, step};
use super::docs::ArtifactDoc;
use super::incoming::Complete;
use super::log::KeptRun;
use super::names::{failed, unrecorded};
use crate::records;

/// The content store: a folder for each first two digits. Beside them are the spills of calls.
pub(super) const ARTIFACTS: &str = "artifacts";

impl KeptRun {
    /// Makes an artifact of the bytes that came.
    pub(super) fn commit_bytes(&mut self, artifact: &RunArtifact<'_>) -> Result<Digest, KeepError> {
        let fail = failed("the artifact could not be kept");
        let complete = self
            .incoming
            .complete(artifact.artifact_id)
            .map_err(&fail)?;
        self.give_name(&complete).map_err(&fail)?;
        // It is not under way any more; without its record it is collected.
        self.incoming.forget(artifact.artifact_id);
        self.record_commit(artifact, complete.digest)?;
        Ok(complete.digest)
    }

    fn give_name(&self, complete: &Complete) -> io::Result<()> {
        let hex = complete.digest.to_hex();
        let state = &self.state;
        let artifacts = state.make(ARTIFACTS)?;
        let shelf = artifacts.make(&hex[..2])?;
        let from = self.incoming.folder().expect("it has begun");
        {
            // Nobody collects what has this name meanwhile.
            let _lock = lock(&artifacts.0)?;
            let there = statat(&shelf.0, &hex, AtFlags::SYMLINK_NOFOLLOW);
            from.rename(&complete.file_name, &shelf, &hex)?;
            if let Ok(there) = there {
                // The same bytes: now they are there once.
                let bytes = u64::try_from(there.st_size).unwrap_or(0);
                self.store.usage.release(bytes);
            }
        }
        shelf.sync()?;
        self.root_shelf(&artifacts, complete.digest.0[0])
    }

    /// The folders are on the disk, too. Once a process for each is enough. The lock is held over
    /// the syncs, so that a shelf counts as rooted only when it is; it is a leaf.
    fn root_shelf(&self, artifacts: &Folder, shelf: u8) -> io::Result<()> {
        let mut rooted = self.store.rooted.lock().unwrap_or_else(|e| e.into_inner());
        if !rooted.contains(&shelf) {
            artifacts.sync()?;
            self.state.sync()?;
            rooted.insert(shelf);
        }
        Ok(())
    }

    fn record_commit(&self, artifact: &RunArtifact<'_>, digest: Digest) -> Result<(), KeepError> {
        let call = self.call();
        let commit = self.store.commit_at("run.io", "run.io", |inner, now| {
            let doc = ArtifactDoc {
                run: self.start.run_id.clone(),
                artifact: artifact.artifact_id.to_owned(),
                name: artifact.name.to_owned(),
                content_type: artifact.content_type.to_owned(),
                bytes: artifact.bytes,
                digest: digest.to_hex(),
                at: now.0,
            };
            records::artifact_commit(&mut inner.pending, now, &call, doc);
            Ok(())
        });
        // Whatever the store's durability: its bytes are on the disk, so is its record.
        commit
            .and_then(|()| step(|| self.store.sync_now()))
            .map_err(unrecorded)
    }
}

/// Held until it is dropped.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Waits for the lock of a folder.
pub(super) fn lock(folder: &File) -> io::Result<Lock> {
    let folder = folder.try_clone()?;
    step(|| flock(&folder, FlockOperation::LockExclusive))?;
    Ok(Lock(folder))
}
