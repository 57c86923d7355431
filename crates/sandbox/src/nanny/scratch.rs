//! Private temporary folders: one for each child, gone with it. One that its child did not
//! touch may be the next one's: making a folder costs as much as the rest of a start.
//!
//! They stand in one folder per user. Whoever made one holds a lock on it for as long as it
//! lives, so that what killed nannies left behind can be told from what is in use.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, RenameFlags, Stat, Uid,
};
use rustix::io::Errno;

use crate::confine::Identity;

/// How many names are tried before somebody is taken to play tricks.
const TRIES_MAX: u32 = 64;

/// Entries that are looked at together.
const NAMES_MAX: usize = 4096;

pub(crate) const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A private temporary folder.
#[derive(Debug)]
pub(crate) struct Scratch {
    parent: OwnedFd,
    name: CString,
    /// Locked.
    folder: OwnedFd,
    pub path: CString,
    owner: Option<Identity>,
    /// As it was made.
    made: Stat,
}

impl Scratch {
    /// Makes one in `base` for whoever the child will be.
    pub fn make(base: &CStr, owner: Option<Identity>) -> io::Result<Self> {
        let parent = enter(base)?;
        for attempt in 0..TRIES_MAX {
            let name = name(attempt)?;
            match rustix::fs::mkdirat(&parent, &name, Mode::RWXU) {
                Ok(()) => {}
                Err(Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            }
            // Whoever sweeps may be faster than we are, at any point until the lock.
            let folder = match rustix::fs::openat(&parent, &name, FOLDER, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            if !lock(&folder) || rustix::fs::fstat(&folder)?.st_nlink == 0 {
                continue;
            }
            if let Some(Identity { uid, gid }) = owner {
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
            }
            let path = [base.to_bytes(), b"/", name.to_bytes()].concat();
            let path = CString::new(path).map_err(|_| io::ErrorKind::InvalidInput)?;
            return Ok(Self {
                parent,
                name,
                made: rustix::fs::fstat(&folder)?,
                folder,
                path,
                owner,
            });
        }
        Err(Errno::EXIST.into())
    }

    /// True if it is what would be made there for such a child.
    pub fn is_for(&self, base: &CStr, owner: Option<Identity>) -> bool {
        let name = self.name.to_bytes();
        let parent = self.path.to_bytes().strip_suffix(name);
        let parent = parent.and_then(|path| path.strip_suffix(b"/"));
        self.owner == owner && parent == Some(base.to_bytes())
    }

    /// True if nothing tells it from a new one.
    pub fn is_untouched(&self) -> bool {
        self.look().unwrap_or(false)
    }

    fn look(&self) -> io::Result<bool> {
        let now = rustix::fs::fstat(&self.folder)?;
        // The kernel's clock may stand still for some milliseconds, so that the times alone
        // do not tell.
        Ok(looks(&now) == looks(&self.made)
            && names(self.folder.as_fd())?.is_empty()
            && rustix::fs::flistxattr(&self.folder, &mut [0u8; 0])? == 0)
    }

    /// Removes it and all that is in it. Best effort: what is left is swept later.
    pub fn remove(self) {
        let _ = remove(self.parent.as_fd(), &self.name, self.folder.as_fd());
    }
}

/// All of a folder that a child can change, but when it was last listed.
fn looks(stat: &Stat) -> impl PartialEq {
    let changed = (stat.st_ctime, stat.st_ctime_nsec);
    let written = (stat.st_mtime, stat.st_mtime_nsec);
    let rights = (stat.st_mode, stat.st_uid, stat.st_gid);
    (changed, written, rights, stat.st_nlink, stat.st_size)
}

/// Removes what others left in `base` and nobody holds any more.
pub(crate) fn sweep(base: &CStr) {
    let Ok(parent) = enter(base) else { return };
    let Ok(names) = names(parent.as_fd()) else {
        return;
    };
    for (name, _) in names {
        let Ok(folder) = rustix::fs::openat(&parent, &name, FOLDER, Mode::empty()) else {
            continue;
        };
        if lock(&folder) {
            let _ = remove(parent.as_fd(), &name, folder.as_fd());
        }
    }
}

/// The folder of all, made if it is not there, and refused if it is not ours alone to write.
pub(crate) fn enter(base: &CStr) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(base, Mode::RWXU | Mode::XGRP | Mode::XOTH) {
        // The umask is not ours to know.
        Ok(()) => rustix::fs::chmod(base, Mode::RWXU | Mode::XGRP | Mode::XOTH)?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = rustix::fs::open(base, FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&folder)?;
    let others = Mode::WGRP | Mode::WOTH;
    let ours = stat.st_uid == rustix::process::geteuid().as_raw();
    if ours && !Mode::from_raw_mode(stat.st_mode).intersects(others) {
        Ok(folder)
    } else {
        Err(Errno::PERM.into())
    }
}

/// A name that nobody else has. Nannies of several namespaces may have one process id.
fn name(attempt: u32) -> io::Result<CString> {
    let mut random = [0u8; 8];
    let read = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    if read < random.len() {
        return Err(Errno::IO.into());
    }
    let random = u64::from_ne_bytes(random);
    CString::new(format!("{random:016x}-{attempt}")).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn lock(folder: &OwnedFd) -> bool {
    rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Removes a folder with everything below. What is deep is lifted to the top first: no depth
/// that a tool may have made can take our stack or our descriptors.
pub(crate) fn remove(
    parent: BorrowedFd<'_>,
    name: &CStr,
    folder: BorrowedFd<'_>,
) -> io::Result<()> {
    let mut lifted = 0;
    loop {
        let some = names(folder)?;
        if some.is_empty() {
            break;
        }
        for (name, kind) in some {
            if kind != FileType::Directory {
                rustix::fs::unlinkat(folder, &name, AtFlags::empty())?;
            } else if rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR).is_err() {
                lift(folder, &name, &mut lifted)?;
            }
        }
    }
    Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Empties a folder of `top` and removes it: files go, folders move up to `top`.
fn lift(top: BorrowedFd<'_>, name: &CStr, lifted: &mut u64) -> io::Result<()> {
    // A folder may have been made without any rights.
    let _ = give_rights(top, name);
    let folder = rustix::fs::openat(top, name, FOLDER, Mode::empty())?;
    loop {
        let some = names(folder.as_fd())?;
        if some.is_empty() {
            break;
        }
        for (inner, kind) in some {
            if kind == FileType::Directory {
                // To move a folder is to write its `..`.
                let _ = give_rights(folder.as_fd(), &inner);
                move_up(folder.as_fd(), &inner, top, lifted)?;
            } else {
                rustix::fs::unlinkat(&folder, &inner, AtFlags::empty())?;
            }
        }
    }
    Ok(rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)?)
}

/// Gives the owner of a folder all rights to it. The plain call follows a link, and a program may
/// put one in the folder's place at any moment: the mode of a file outside would be changed.
pub(crate) fn give_rights(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let opened = format!("/proc/self/fd/{}", folder.as_raw_fd());
    Ok(rustix::fs::chmod(opened, Mode::RWXU)?)
}

fn move_up(
    from: BorrowedFd<'_>,
    name: &CStr,
    top: BorrowedFd<'_>,
    lifted: &mut u64,
) -> io::Result<()> {
    loop {
        *lifted += 1;
        let free = format!(".lifted-{lifted}");
        match rustix::fs::renameat_with(from, name, top, free, RenameFlags::NOREPLACE) {
            // The tool had a file of that name.
            Err(Errno::EXIST) => {}
            moved => return Ok(moved?),
        }
    }
}

/// Entries of a folder, by name and kind: all, or [`NAMES_MAX`] of them.
fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<(CString, FileType)>> {
    // A fresh descriptor, because reading moves it.
    let fresh = rustix::fs::openat(folder, c".", FOLDER, Mode::empty())?;
    let mut buffer = Vec::with_capacity(8 * 1024);
    let mut entries = RawDir::new(fresh, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while names.len() < NAMES_MAX
        && let Some(entry) = entries.next()
    {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(folder, name)?,
                kind => kind,
            };
            names.push((name.to_owned(), kind));
        }
    }
    Ok(names)
}

fn kind_of(folder: BorrowedFd<'_>, name: &CStr) -> io::Result<FileType> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// A link in the place of a folder does not have the mode changed of what it leads to.
    #[test]
    fn rights_are_given_to_folders_alone() {
        let top = std::env::temp_dir().join(format!("callgate-rights-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        std::fs::create_dir_all(top.join("outside")).unwrap();
        std::fs::create_dir(top.join("folder")).unwrap();
        symlink("outside", top.join("link")).unwrap();
        for name in ["outside", "folder"] {
            let locked = std::fs::Permissions::from_mode(0o000);
            std::fs::set_permissions(top.join(name), locked).unwrap();
        }
        let parent = rustix::fs::open(&top, FOLDER, Mode::empty()).unwrap();
        give_rights(parent.as_fd(), c"link").unwrap_err();
        give_rights(parent.as_fd(), c"folder").unwrap();
        assert_eq!(
            (mode(&top.join("outside")), mode(&top.join("folder"))),
            (0, 0o700)
        );
        std::fs::remove_dir_all(&top).unwrap();
    }
}
