//! Whose new files and folders are. As root we serve workspaces of others, and their programs run
//! as them: what we make there must be theirs to change, as if they had made it. P-16.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, RenameFlags, Stat, Uid, fchown, fstat, mkdirat, openat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::swept::{NAMES_TRIED, Swept, keep, passing_name};

/// Mode of a new folder, before the umask.
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);

/// A user and their group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Heir {
    uid: Uid,
    gid: Gid,
}

impl Heir {
    /// The owner of what is there.
    pub fn of(about: &Stat) -> Self {
        Self {
            uid: Uid::from_raw(about.st_uid),
            gid: Gid::from_raw(about.st_gid),
        }
    }

    /// Whom something new in a folder is to belong to, where that is not us anyway.
    pub fn of_new_in(folder: impl AsFd) -> Result<Option<Self>, Errno> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let heir = Self::of(&fstat(folder)?);
        Ok(Some(heir).filter(|heir| !heir.uid.is_root()))
    }

    /// Only root can give things away, and not on every file system: else they stay ours.
    pub fn inherit(self, made: impl AsFd) {
        let _ = fchown(made, Some(self.uid), Some(self.gid));
    }
}

/// Makes a folder, which belongs to the owner of the one that it is in. Under a passing name until
/// it is theirs, so that nobody finds one that is not.
pub fn make_folder(parent: &OwnedFd, name: &OsStr, swept: &Swept) -> Result<(), Errno> {
    let Some(heir) = Heir::of_new_in(parent)? else {
        return mkdirat(parent, name, FOLDER_MODE);
    };
    if statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    swept.sweep(parent);
    // Open, and so not swept, until it has its name.
    let (passing, folder) = make_passing(parent)?;
    // Another folder may have been put in its place; one that holds nothing can be anybody's.
    if is_empty(&folder) == Ok(true) {
        heir.inherit(&folder);
    }
    match renameat_with(parent, &passing, parent, name, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(error) => {
            let _ = unlinkat(parent, &passing, AtFlags::REMOVEDIR);
            match error {
                Errno::EXIST => Err(Errno::EXIST),
                // The file system can not do that: better ours than none.
                _ => mkdirat(parent, name, FOLDER_MODE),
            }
        }
    }
}

fn make_passing(parent: &OwnedFd) -> Result<(String, OwnedFd), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..NAMES_TRIED {
        let passing = passing_name()?;
        mkdirat(parent, &passing, FOLDER_MODE)?;
        let is_there = || statat(parent, &passing, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        match openat(parent, &passing, flags, Mode::empty()) {
            Ok(folder) if keep(&folder) && is_there() => return Ok((passing, folder)),
            // It was swept before it was kept.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => {
                let _ = unlinkat(parent, &passing, AtFlags::REMOVEDIR);
                return Err(error);
            }
        }
    }
    Err(Errno::BUSY)
}

fn is_empty(folder: impl AsFd) -> Result<bool, Errno> {
    for entry in Dir::read_from(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}
