//! Files that must be files to be of use, and out of the tools' reach: the Python worker that
//! ships inside the binary, and packs as they were verified. Laid out once per version, whole
//! or not at all.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rustix::fs::{FlockOperation, flock};

use crate::{Store, StoreError};

impl Store {
    /// The folder `name` with these files in it, made if it is not there. `name` must name
    /// the content, so that what is there is right.
    pub fn unpack<B: AsRef<[u8]>>(
        &self,
        name: &str,
        files: &[(String, B)],
    ) -> Result<PathBuf, StoreError> {
        let folder = self.dir.join(name);
        if folder.is_dir() {
            return Ok(folder);
        }
        // Several processes may be at it: each fills a folder of its own, the first rename
        // wins and the others find theirs done.
        let beside = self.dir.join(format!(".{name}.{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&beside);
        if let Err(error) = fill(&beside, files) {
            // Every process that fails would else leave one behind.
            let _ = std::fs::remove_dir_all(&beside);
            return Err(error);
        }
        match std::fs::rename(&beside, &folder) {
            Ok(()) => Ok(folder),
            Err(_) if folder.is_dir() => {
                let _ = std::fs::remove_dir_all(&beside);
                Ok(folder)
            }
            Err(error) => Err(StoreError::write(&folder, error)),
        }
    }
}

impl Store {
    /// The same, and nobody sweeps it while this process lives.
    pub fn unpack_held<B: AsRef<[u8]>>(
        &self,
        name: &str,
        files: &[(String, B)],
    ) -> Result<PathBuf, StoreError> {
        loop {
            let folder = self.unpack(name, files)?;
            let failed = |error| StoreError::read(&folder, error);
            let lock = match File::open(&folder) {
                Ok(lock) => lock,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(error)),
            };
            flock(&lock, FlockOperation::LockShared).map_err(|error| failed(error.into()))?;
            // Whoever swept it held the lock before us: then it is made anew.
            let now = std::fs::metadata(&folder).map(|meta| meta.ino()).ok();
            if now != Some(lock.metadata().map_err(failed)?.ino()) {
                continue;
            }
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push(lock);
            return Ok(folder);
        }
    }

    /// Removes the unpacked folders whose names begin with `prefix`, but those that are to be
    /// kept and those that a living process uses. What can not be removed stays.
    pub fn sweep_unpacked(&self, prefix: &str, keep: &[String]) {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(prefix) || keep.contains(&name) {
                continue;
            }
            let free = File::open(entry.path()).is_ok_and(|folder| {
                let taken = flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
                // Hidden first, so that nobody finds half of it.
                let hidden = self.dir.join(format!(".{name}.{}", std::process::id()));
                taken
                    && std::fs::rename(entry.path(), &hidden).is_ok()
                    && std::fs::remove_dir_all(&hidden).is_ok()
            });
            if !free {
                tracing::debug!(name, "left an unpacked folder in use");
            }
        }
    }
}

fn fill<B: AsRef<[u8]>>(folder: &Path, files: &[(String, B)]) -> Result<(), StoreError> {
    for (file, bytes) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(parent)
            .map_err(|error| StoreError::write(parent, error))?;
        std::fs::write(&path, bytes).map_err(|error| StoreError::write(&path, error))?;
    }
    Ok(())
}
