//! What of the owner's is put into homes, as links and copies. Programs may be at work in a home
//! meanwhile: no link in it is followed.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_call::Digest;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use super::Homes;
use crate::nanny::scratch::FOLDER;

/// Entries of one folder that are linked.
const LINKED_MAX: usize = 20_000;

/// Bytes of a file that is copied into homes.
const COPIED_BYTES_MAX: u64 = 64 * 1024;

/// The name of a copy until it is whole.
const HALF: &CStr = c".callgate-copy";

/// Something of the owner's that is put into each home, at the path `at` in it. What a program has
/// put there itself stays, but for copies, which are made anew when the file changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Furnishing {
    /// A link to a folder.
    Link {
        /// The folder.
        from: PathBuf,
        /// Its place.
        at: PathBuf,
    },
    /// A copy of a small file.
    Copy {
        /// The file.
        from: PathBuf,
        /// Its place.
        at: PathBuf,
    },
    /// Folders of the same names as those in a folder, with links to what these hold, so that
    /// programs can add to them: caches of registries are so.
    Shelves {
        /// The folder of folders.
        from: PathBuf,
        /// Its place.
        at: PathBuf,
    },
}

impl Homes {
    /// A digest of what there is to furnish with: which folders and files, changed when.
    pub(super) fn furnishings_state(&self) -> String {
        let mut all = String::new();
        let mut add = |path: &Path| {
            if let Ok(found) = fs::metadata(path) {
                let (s, ns, size) = (found.mtime(), found.mtime_nsec(), found.size());
                let _ = writeln!(all, "{} {s}.{ns} {size}", path.display());
            }
        };
        for furnishing in &self.furnishings {
            match furnishing {
                Furnishing::Link { from, .. } | Furnishing::Copy { from, .. } => add(from),
                Furnishing::Shelves { from, .. } => {
                    shelves(from).iter().for_each(|name| add(&from.join(name)));
                }
            }
        }
        Digest::of_bytes(all.as_bytes()).to_hex()
    }

    /// Best effort: a toolchain that does not find its cache makes another.
    pub(super) fn furnish(&self, home: &OwnedFd) {
        for furnishing in &self.furnishings {
            let _ = match furnishing {
                Furnishing::Link { from, at } => self.link(home, from, at),
                Furnishing::Copy { from, at } => self.copy(home, from, at),
                Furnishing::Shelves { from, at } => self.link_shelves(home, from, at),
            };
        }
    }

    /// The folder of a place in a home, and the place's name there.
    fn place<'a>(&self, home: &OwnedFd, at: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (folder, name) = (at.parent().unwrap_or(Path::new("")), at.file_name());
        let name = name.ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.make_beneath(home.as_fd(), folder)?, name))
    }

    fn link(&self, home: &OwnedFd, from: &Path, at: &Path) -> io::Result<()> {
        if !from.is_dir() {
            return Ok(());
        }
        let (folder, name) = self.place(home, at)?;
        link_one(from, &folder, name)
    }

    fn copy(&self, home: &OwnedFd, from: &Path, at: &Path) -> io::Result<()> {
        let text = callgate_call::bounded::read_path_text(from, COPIED_BYTES_MAX)?;
        let (folder, name) = self.place(home, at)?;
        // Left by a gate that was killed.
        let _ = rustix::fs::unlinkat(&folder, HALF, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let half = rustix::fs::openat(&folder, HALF, flags, Mode::RUSR | Mode::WUSR)?;
        if let Some((uid, gid)) = self.owner {
            rustix::fs::fchown(&half, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        fs::File::from(half).write_all(text.as_bytes())?;
        Ok(rustix::fs::renameat(&folder, HALF, &folder, name)?)
    }

    fn link_shelves(&self, home: &OwnedFd, from: &Path, at: &Path) -> io::Result<()> {
        if !from.is_dir() {
            return Ok(());
        }
        let top = self.make_beneath(home.as_fd(), at)?;
        for shelf in shelves(from) {
            let to = self.make_beneath(top.as_fd(), Path::new(&shelf))?;
            let entries = fs::read_dir(from.join(&shelf))?.flatten();
            for entry in entries.take(LINKED_MAX) {
                link_one(&entry.path(), &to, &entry.file_name())?;
            }
        }
        Ok(())
    }

    /// A folder below another, made if it is not there. No link on the way is followed: programs
    /// may have planted one.
    fn make_beneath(&self, at: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
        let mut folder = at.try_clone_to_owned()?;
        for name in path.components() {
            let name = name.as_os_str();
            let made = rustix::fs::mkdirat(&folder, name, Mode::RWXU);
            let inner = rustix::fs::openat2(
                &folder,
                name,
                FOLDER,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )?;
            if made.is_ok()
                && let Some((uid, gid)) = self.owner
            {
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                rustix::fs::fchown(&inner, Some(uid), Some(gid))?;
            }
            folder = inner;
        }
        Ok(folder)
    }
}

/// The names of the folders in a folder.
fn shelves(from: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(from).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders
        .map(|entry| entry.file_name())
        .take(LINKED_MAX)
        .collect()
}

/// Links to something of the owner's, unless the program has something of its own there.
fn link_one(from: &Path, folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match rustix::fs::symlinkat(from, folder, name) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
