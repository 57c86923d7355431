//! The owner's word, by digest, that a workspace's configuration counts (G-9), and a copy of what
//! the word was given for. The copy stands before the record that names its digest, so a process
//! that is killed in between leaves the earlier word and the earlier copy in force.

use std::fs::File;
use std::path::PathBuf;

use callgate_call::Digest;
use rustix::fs::{FlockOperation, flock};

use crate::folders::{NewFolder, remove_folder, sweep_folders};
use crate::{Store, StoreError, make_private, records};

/// The folder of the copies in the state: of each workspace a folder, in it each by its digest.
const COPIES: &str = "trusted";

/// Held while a word and its copy are exchanged. Ends with its process.
#[derive(Debug)]
pub struct TrustLock(#[expect(dead_code, reason = "an open file is the lock")] File);

impl Store {
    /// Records that what is at `path` counts, as long as it has this digest.
    pub fn trust(&self, path: &str, digest: Digest) -> Result<(), StoreError> {
        self.commit(|inner, now| {
            if inner.overlay.small.trust.get(path) != Some(&digest.to_hex()) {
                records::trust(&mut inner.pending, now, path, Some(digest));
            }
            Ok(())
        })
    }

    /// The digest that counts for `path`.
    pub fn trusted(&self, path: &str) -> Result<Option<Digest>, StoreError> {
        self.read(|inner, _| {
            let trusted = inner.overlay.small.trust.get(path);
            Ok(trusted.and_then(|digest| Digest::from_hex(digest)))
        })
    }

    /// Takes the word back. False if there was none.
    pub fn untrust(&self, path: &str) -> Result<bool, StoreError> {
        self.commit(|inner, now| {
            let known = inner.overlay.small.trust.contains_key(path);
            if known {
                records::trust(&mut inner.pending, now, path, None);
            }
            Ok(known)
        })
    }

    /// Waits until no other process exchanges the word and its copy.
    pub fn lock_trust(&self) -> Result<TrustLock, StoreError> {
        let folder = self.dir.join(COPIES);
        make_private(&folder)?;
        let failed = |error| StoreError::write(&folder, error);
        let lock = File::open(&folder).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        Ok(TrustLock(lock))
    }

    /// Where the copy of what has this digest is, if `workspace` has one. Workspaces that share a
    /// state do not share copies.
    #[must_use]
    pub fn trusted_copy(&self, workspace: &str, digest: Digest) -> PathBuf {
        self.copies_of(workspace).join(digest.to_hex())
    }

    /// Returns whether copies were made, and none of them for `workspace`.
    #[must_use]
    pub fn has_copies_of_others(&self, workspace: &str) -> bool {
        let others = std::fs::read_dir(self.dir.join(COPIES)).into_iter();
        let mut others = others.flatten().flatten();
        !self.copies_of(workspace).is_dir() && others.next().is_some()
    }

    /// Writes the copy of what has this digest, whole or not at all, in place of an earlier one.
    pub fn put_trusted_copy(
        &self,
        _: &TrustLock,
        workspace: &str,
        digest: Digest,
        files: &[(&str, &[u8])],
    ) -> Result<(), StoreError> {
        let folder = self.copies_of(workspace);
        NewFolder::fill(&folder, &digest.to_hex(), files)?.put(true)
    }

    /// Removes all copies of `workspace` but that of `keep`.
    pub fn sweep_trusted_copies(
        &self,
        _: &TrustLock,
        workspace: &str,
        keep: Option<Digest>,
    ) -> Result<(), StoreError> {
        let folder = self.copies_of(workspace);
        sweep_folders(&folder);
        let keep = keep.map(|digest| digest.to_hex());
        // A workspace without a copy has no folder here.
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_copy = name.to_str().and_then(Digest::from_hex).is_some();
            if is_copy && name.to_str() != keep.as_deref() {
                remove_folder(&folder, &name.to_string_lossy())?;
            }
        }
        if keep.is_none() {
            // Something else in it leaves it, which says no more than that there are no copies.
            let _ = std::fs::remove_dir(&folder);
        }
        Ok(())
    }

    fn copies_of(&self, workspace: &str) -> PathBuf {
        self.dir.join(COPIES).join(workspace)
    }
}
