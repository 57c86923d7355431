//! Folders and files of the owner that are not state: installed packs, keys, the file that says
//! whose packs count. Each appears whole or not at all, whatever kills its maker.
//!
//! A folder is made under a hidden name that its maker holds locked. A hidden name whose lock
//! can be taken has a dead maker, and goes with the next sweep.
//!
//! The bytes of each file are synced before it gets its name, so that a name never leads to half a
//! file, also after a loss of power. Names are not synced: a loss of power may bring back what was
//! there before, or leave files of a folder out. Folders that decide something (packs, trusted
//! configurations) are compared with their digests when they are read.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::owner::is_locked;
use crate::{StoreError, failpoint};

/// What every hidden name begins with.
const HIDDEN: &str = ".callgate-";

/// A folder in the making.
#[derive(Debug)]
pub struct NewFolder {
    parent: PathBuf,
    name: String,
    hidden: PathBuf,
    _lock: File,
}

impl NewFolder {
    /// Makes the folder that will be `parent/name`, with these files, readable for all.
    pub fn fill<B: AsRef<[u8]>>(
        parent: &Path,
        name: &str,
        files: &[(&str, B)],
    ) -> Result<Self, StoreError> {
        create(parent, 0o755)?;
        let (hidden, lock) = hide(parent, name)?;
        let new = Self {
            parent: parent.to_owned(),
            name: name.to_owned(),
            hidden,
            _lock: lock,
        };
        for (file, bytes) in files {
            let path = new.hidden.join(file);
            create(path.parent().unwrap_or(&new.hidden), 0o755)?;
            write_new(&path, 0o644, |file| file.write_all(bytes.as_ref()))
                .map_err(|error| StoreError::write(&path, error))?;
            failpoint("folder.file");
        }
        Ok(new)
    }

    /// Where it is for now.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.hidden
    }

    /// Puts it in its place. What was there leaves in the same moment, if it may.
    pub fn put(self, replace: bool) -> Result<(), StoreError> {
        let place = self.parent.join(&self.name);
        failpoint("folder.before_put");
        let flags = match replace && place.exists() {
            true => RenameFlags::EXCHANGE,
            false => RenameFlags::NOREPLACE,
        };
        renameat_with(CWD, &self.hidden, CWD, &place, flags)
            .map_err(|error| StoreError::write(&place, error))?;
        failpoint("folder.after_put");
        // What was exchanged goes by being dropped; after a plain rename nothing is left there.
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.hidden);
    }
}

/// Removes `parent/name`, in one moment. False if it is not there.
pub fn remove_folder(parent: &Path, name: &str) -> Result<bool, StoreError> {
    let place = parent.join(name);
    if !place.is_dir() {
        return Ok(false);
    }
    // The empty folder takes the full one's place and is then removed: others see one or none.
    let new = NewFolder::fill::<&[u8]>(parent, name, &[])?;
    renameat_with(CWD, &new.hidden, CWD, &place, RenameFlags::EXCHANGE)
        .map_err(|error| StoreError::write(&place, error))?;
    std::fs::remove_dir(&place).map_err(|error| StoreError::write(&place, error))?;
    Ok(true)
}

/// Removes what dead makers left in `parent`. What can not be removed stays.
pub fn sweep_folders(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(HIDDEN.as_bytes());
    for entry in entries.flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && is_ours(&entry.file_name()) && !is_locked(&path) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// A folder for files that a child reads once. What a killed process left there goes once there
/// is more than a bound of it.
#[derive(Clone, Debug)]
pub struct Passing {
    folder: PathBuf,
    for_all: bool,
}

/// Files that may be left behind in a folder of passing files.
const PASSING_MAX: usize = 64;

impl Passing {
    /// Uses `folder`, which is ours alone. `for_all`: a child of another user reads it, who must
    /// know the name of its file.
    pub fn open(folder: &Path, for_all: bool) -> Result<Self, StoreError> {
        crate::make_private(folder)?;
        if for_all {
            let mode = std::fs::Permissions::from_mode(0o711);
            std::fs::set_permissions(folder, mode).map_err(|e| StoreError::write(folder, e))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            for_all,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Puts a file there; names sort by age.
    pub fn put(&self, name: &str, text: &str) -> Result<PathBuf, StoreError> {
        self.forget_old();
        let path = self.folder.join(name);
        write_file(&path, text, if self.for_all { 0o644 } else { 0o600 })?;
        Ok(path)
    }

    /// Removes it; one that is gone is none of ours to miss.
    pub fn take_back(&self, name: &str) {
        let _ = std::fs::remove_file(self.folder.join(name));
    }

    fn forget_old(&self) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort_unstable();
        let over = paths.len().saturating_sub(PASSING_MAX);
        for path in paths.iter().take(over) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes all files of a folder but those that came there last, `files_max` of them. What can not
/// be removed stays.
pub fn keep_newest(folder: &Path, files_max: usize) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let aged = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        // A file that is moved keeps the time it was written at, but not this one.
        Some(((found.ctime(), found.ctime_nsec()), entry.path()))
    });
    let mut aged: Vec<_> = aged.collect();
    aged.sort_unstable();
    let over = aged.len().saturating_sub(files_max);
    for (_, path) in aged.iter().take(over) {
        let _ = std::fs::remove_file(path);
    }
}

/// Writes a file of the owner (0600), whole or not at all, with the folders it needs (0700).
pub fn write_owner_file(path: &Path, text: &str) -> Result<(), StoreError> {
    create(path.parent().unwrap_or(Path::new("/")), 0o700)?;
    write_file(path, text, 0o600)
}

/// Writes a file, whole or not at all.
pub fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), StoreError> {
    write_file_with(path, mode, |file| file.write_all(text.as_bytes()))
}

/// Writes a file that `write` fills, whole or not at all.
pub fn write_file_with(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StoreError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let beside = parent.join(format!("{HIDDEN}{:016x}", crate::random_u64()?));
    let done = write_new(&beside, mode, write).and_then(|()| std::fs::rename(&beside, path));
    if done.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    done.map_err(|error| StoreError::write(path, error))
}

/// Writes what a person asked for to where they said: a file whole or not at all, at the end of
/// a link if they named one; to a device or a pipe as it is.
pub fn give_file_with(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::write(path, error);
    match std::fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
        Ok(there) if there.is_file() => {
            let real = path.canonicalize().map_err(failed)?;
            write_file_with(&real, mode, write)
        }
        Ok(_) => {
            let to_it = OpenOptions::new().write(true).open(path);
            to_it.and_then(|mut to| write(&mut to)).map_err(failed)
        }
        Err(_) => write_file_with(path, mode, write),
    }
}

fn hide(parent: &Path, name: &str) -> Result<(PathBuf, File), StoreError> {
    let hidden = parent.join(format!("{HIDDEN}{name}-{:016x}", crate::random_u64()?));
    let failed = |error: io::Error| StoreError::write(&hidden, error);
    DirBuilder::new().create(&hidden).map_err(failed)?;
    // A sweep may come in between; then the next step says that the folder is gone.
    let lock = File::open(&hidden).map_err(failed)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| failed(error.into()))?;
    Ok((hidden, lock))
}

fn create(folder: &Path, mode: u32) -> Result<(), StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(mode);
    builder
        .create(folder)
        .map_err(|error| StoreError::write(folder, error))
}

fn write_new(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    write(&mut file)?;
    // Before the rename that follows: the name must not be on the disk before the bytes are.
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    #[test]
    fn whole_or_not_at_all() {
        let place = Place::new("folders");
        let fill = |text: &'static str| {
            NewFolder::fill(&place.0, "p", &[("a", text), ("b/c", text)]).unwrap()
        };
        let read = || std::fs::read_to_string(place.0.join("p/b/c")).unwrap();
        drop(fill("never"));
        assert!(place.names("").is_empty());
        fill("one").put(false).unwrap();
        assert_eq!(
            (place.names(""), read()),
            (vec!["p".to_owned()], "one".to_owned())
        );
        fill("two").put(false).unwrap_err();
        assert_eq!(read(), "one");
        fill("two").put(true).unwrap();
        assert_eq!(
            (place.names(""), read()),
            (vec!["p".to_owned()], "two".to_owned())
        );
        assert!(remove_folder(&place.0, "p").unwrap());
        assert!(place.names("").is_empty() && !remove_folder(&place.0, "p").unwrap());
    }

    #[test]
    fn the_dead_are_swept_and_the_living_are_not() {
        let place = Place::new("sweep");
        let living = NewFolder::fill(&place.0, "p", &[("a", "x")]).unwrap();
        std::fs::create_dir_all(place.0.join(".callgate-p-dead/b")).unwrap();
        std::fs::create_dir_all(place.0.join(".other")).unwrap();
        sweep_folders(&place.0);
        let hidden = living.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(place.names(""), [hidden, ".other"]);
        living.put(false).unwrap();
        assert_eq!(place.names(""), [".other", "p"]);
    }

    /// Links are followed, devices and pipes stay what they are, and messages name what was named.
    #[test]
    fn what_a_person_names_stays_what_it_is() {
        use std::os::unix::fs::FileTypeExt as _;
        let place = Place::new("given");
        let give = |name: &str, text: &str| {
            give_file_with(&place.0.join(name), 0o644, |file| {
                file.write_all(text.as_bytes())
            })
        };
        let read = |name: &str| std::fs::read_to_string(place.0.join(name)).unwrap();
        give("file", "one").unwrap();
        std::os::unix::fs::symlink("file", place.0.join("link")).unwrap();
        give("link", "two").unwrap();
        assert_eq!((read("file"), read("link")), ("two".into(), "two".into()));
        assert!(place.0.join("link").is_symlink());
        let pipe = place.0.join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        // Open at both ends, so that nobody waits for the other.
        let mut both = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&pipe)
            .unwrap();
        give("pipe", "three").unwrap();
        let mut told = [0; 5];
        io::Read::read_exact(&mut both, &mut told).unwrap();
        assert_eq!(&told, b"three");
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        for (name, why) in [("", "directory"), ("nowhere/file", "No such file")] {
            let words = give(name, "x").unwrap_err();
            let words = callgate_call::chain(&words);
            assert!(
                words.contains(&place.0.join(name).display().to_string()),
                "{words}"
            );
            assert!(words.contains(why), "{words}");
        }
    }

    #[test]
    fn owner_files_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = Place::new("owner-file");
        let path = place.0.join("x/y.toml");
        write_owner_file(&path, "one").unwrap();
        write_owner_file(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&place.0.join("x"))), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(place.0.join("x")).unwrap().count(), 1);
    }
}
