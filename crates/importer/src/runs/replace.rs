//! Replacement of a file's content: a temporary file in the same folder, on the disk before it
//! takes the name. Whoever opens the file finds the old content or the new one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};

use super::record::FileRecord;
use crate::failpoint::failpoint;
use crate::file::{self, FileError, digest};

/// Error of a replacement. The file is as it was.
#[derive(Debug)]
pub(super) enum ReplaceError {
    /// The file has not the content that was expected.
    Changed,
    Io(io::Error),
}

impl ReplaceError {
    /// Returns the error as one of the system.
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Changed => io::Error::other("changed since it was read"),
            Self::Io(error) => error,
        }
    }
}

impl From<io::Error> for ReplaceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for ReplaceError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// Gives a file new content, with the mode and the owner of its record. `expected` is the digest
/// of the content that may be replaced; without one, any is.
pub(super) fn replace(
    about: &FileRecord,
    content: &[u8],
    expected: Option<&str>,
) -> Result<(), ReplaceError> {
    let path = Path::new(&about.path);
    let (folder, name) = open_folder(path)?;
    let temporary = about.temporary.as_str();
    let result = write_temporary(&folder, about, content).and_then(|()| {
        failpoint("replace.written");
        // As late as possible: clients write their settings at any time.
        if let Some(expected) = expected
            && !has_content(path, expected)?
        {
            return Err(ReplaceError::Changed);
        }
        rustix::fs::renameat(&folder, temporary, &folder, name)?;
        Ok(())
    });
    if result.is_err() {
        let _ = rustix::fs::unlinkat(&folder, temporary, AtFlags::empty());
        return result;
    }
    failpoint("replace.renamed");
    // The name is on the disk before the next file changes.
    rustix::fs::fsync(&folder)?;
    failpoint("replace.synced");
    Ok(())
}

fn write_temporary(
    folder: &OwnedFd,
    about: &FileRecord,
    content: &[u8],
) -> Result<(), ReplaceError> {
    let temporary = about.temporary.as_str();
    // Only a killed run of the same number leaves one.
    match rustix::fs::unlinkat(folder, temporary, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, temporary, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(opened);
    failpoint("replace.created");
    let (first, second) = content.split_at(content.len() / 2);
    file.write_all(first)?;
    failpoint("replace.half");
    file.write_all(second)?;
    let stat = rustix::fs::fstat(file.as_fd())?;
    if (stat.st_uid, stat.st_gid) != (about.uid, about.gid) {
        let owner = (Uid::from_raw(about.uid), Gid::from_raw(about.gid));
        rustix::fs::fchown(file.as_fd(), Some(owner.0), Some(owner.1))?;
    }
    rustix::fs::fchmod(file.as_fd(), Mode::from_raw_mode(about.mode))?;
    file.sync_all()?;
    Ok(())
}

fn has_content(path: &Path, expected: &str) -> Result<bool, ReplaceError> {
    match file::load(path) {
        Ok(image) => Ok(digest(&image.bytes) == expected),
        Err(FileError::Io { source, .. }) if source.kind() != io::ErrorKind::NotFound => {
            Err(source.into())
        }
        Err(_) => Ok(false),
    }
}

/// Removes the temporary file of a killed run.
pub(super) fn remove_temporary(about: &FileRecord) {
    if let Ok((folder, _)) = open_folder(Path::new(&about.path)) {
        let _ = rustix::fs::unlinkat(&folder, about.temporary.as_str(), AtFlags::empty());
    }
}

/// Opens the folder of a file, so that all steps happen in the same one.
fn open_folder(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    Ok((folder, name))
}

/// Waits until the names in a folder are on the disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
