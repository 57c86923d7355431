//! Files that must be files to be of use, and out of the tools' reach: the Python worker that
//! ships inside the binary, and packs as they were verified. Laid out once per version, whole
//! or not at all.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
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
        unpack(&self.dir, Readers::Us, name, files)
    }

    /// The same, and nobody sweeps it while this process lives. `home` is where it goes if not
    /// into the state: a folder that only we write, and everybody reads.
    pub fn unpack_held<B: AsRef<[u8]>>(
        &self,
        home: Option<&Path>,
        name: &str,
        files: &[(String, B)],
    ) -> Result<PathBuf, StoreError> {
        home.map(open_home).transpose()?;
        loop {
            let folder = match home {
                None => self.unpack(name, files)?,
                Some(home) => unpack(home, Readers::All, name, files)?,
            };
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
    pub fn sweep_unpacked(&self, home: Option<&Path>, prefix: &str, keep: &[String]) {
        let home = home.unwrap_or(&self.dir);
        let Ok(entries) = std::fs::read_dir(home) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_left_half(&name, prefix) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
            if !name.starts_with(prefix) || keep.contains(&name) {
                continue;
            }
            let free = File::open(entry.path()).is_ok_and(|folder| {
                let taken = flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok();
                // Hidden first, so that nobody finds half of it.
                let hidden = home.join(format!(".{name}.{}", std::process::id()));
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

/// Who may read what is unpacked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    Us,
    All,
}

/// True for what a process that is gone was making or removing.
fn is_left_half(name: &str, prefix: &str) -> bool {
    let ours = name
        .strip_prefix('.')
        .filter(|name| name.starts_with(prefix));
    let maker = ours.and_then(|name| name.rsplit_once('.'));
    maker.is_some_and(|(_, pid)| !Path::new("/proc").join(pid).exists())
}

/// Makes the folder for what everybody may read; refuses one that others may write.
fn open_home(home: &Path) -> Result<(), StoreError> {
    let failed = |error| StoreError::write(home, error);
    if !home.exists() {
        std::fs::create_dir_all(home).map_err(failed)?;
        set_mode(home, 0o755)?;
    }
    let found = home.symlink_metadata().map_err(failed)?;
    let us = rustix::process::geteuid().as_raw();
    if !found.is_dir() || found.uid() != us || found.mode() & 0o022 != 0 {
        return Err(failed(io::Error::from(io::ErrorKind::PermissionDenied)));
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), StoreError> {
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| StoreError::write(path, error))
}

fn unpack<B: AsRef<[u8]>>(
    home: &Path,
    readers: Readers,
    name: &str,
    files: &[(String, B)],
) -> Result<PathBuf, StoreError> {
    let folder = home.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    // Several processes may be at it: each fills a folder of its own, the first rename
    // wins and the others find theirs done.
    let beside = home.join(format!(".{name}.{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&beside);
    if let Err(error) = fill(&beside, readers, files) {
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

fn fill<B: AsRef<[u8]>>(
    folder: &Path,
    readers: Readers,
    files: &[(String, B)],
) -> Result<(), StoreError> {
    for (file, bytes) in files {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(parent)
            .map_err(|error| StoreError::write(parent, error))?;
        std::fs::write(&path, bytes).map_err(|error| StoreError::write(&path, error))?;
        // Said of each, because a mask may have taken it away.
        if readers == Readers::All {
            set_mode(&path, 0o644)?;
            let inside = parent
                .ancestors()
                .take_while(|part| part.starts_with(folder));
            inside
                .into_iter()
                .try_for_each(|part| set_mode(part, 0o755))?;
        }
    }
    Ok(())
}
