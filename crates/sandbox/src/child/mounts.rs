//! A child's own view of the files, where it has a mount namespace: what is not its to write
//! is mounted read-only, and what is the gate's is covered.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};

use crate::confine::{Access, Confine, Root};
use crate::kernel;

/// Mounts the view.
pub(crate) fn mount_view(confine: &Confine) -> io::Result<()> {
    hide_from_outside()?;
    if confine.read_only {
        read_only(confine)?;
    }
    cover(confine)?;
    for way in ways(confine) {
        pin(&way)?;
    }
    for path in &confine.kept {
        keep(path)?;
    }
    for path in &confine.hidden {
        hide(path, &confine.roots)?;
    }
    if confine.shm {
        mount_shm()?;
    }
    Ok(())
}

/// Keeps what is mounted in this mount namespace from being seen outside.
pub(crate) fn hide_from_outside() -> io::Result<()> {
    let quiet = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change(c"/", quiet)?)
}

/// Where programs expect shared memory.
pub(crate) const SHM: &CStr = c"/dev/shm";

/// Most that a child can have in shared memory. A group's limit on memory counts it too.
const SHM_OPTIONS: &CStr = c"mode=1777,size=256m,nr_inodes=16384";

/// Mounts memory that nobody else sees on `/dev/shm`.
fn mount_shm() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match open_path(SHM) {
        Ok(_) => Ok(mount(c"none", SHM, c"tmpfs", flags, SHM_OPTIONS)?),
        // A link, where the system has it elsewhere.
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Ok(()),
        Err(error) => absent_is_fine(error),
    }
}

/// Leaves of each covered folder only the roots inside.
fn cover(confine: &Confine) -> io::Result<()> {
    let mut empty: Option<OwnedFd> = None;
    for folder in &confine.covered {
        let inside = outermost_inside(folder, &confine.roots);
        let copies = copies_of(&inside)?;
        match (&empty, copies.is_empty()) {
            (Some(empty), true) => {
                // One that is empty can stand in many places.
                attach(&copy_of_fd(empty)?, folder)?;
            }
            (_, is_empty) => {
                mount_folders(folder)?;
                for (root, copy) in &copies {
                    put(root, copy)?;
                }
                kernel::set_read_only_alone(CWD, folder)?;
                if is_empty {
                    empty = Some(open_path(folder)?);
                }
            }
        }
    }
    Ok(())
}

/// The roots inside a folder that are in no other root inside it.
fn outermost_inside<'a>(folder: &CStr, roots: &'a [Root]) -> Vec<&'a Root> {
    let prefix = [folder.to_bytes(), b"/"].concat();
    let mut inside: Vec<&Root> = roots
        .iter()
        .filter(|root| root.path.to_bytes().starts_with(&prefix))
        .collect();
    inside.sort_unstable_by_key(|root| root.path.to_bytes().len());
    let mut outermost: Vec<&Root> = Vec::new();
    for root in inside {
        let path = as_path(&root.path);
        if !outermost
            .iter()
            .any(|outer| path.starts_with(as_path(&outer.path)))
        {
            outermost.push(root);
        }
    }
    outermost
}

fn as_path(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// Mounts of what is at each root. One that is not there, or that this user can not reach, is
/// left out: it could not be reached anyway.
fn copies_of<'a>(roots: &[&'a Root]) -> io::Result<Vec<(&'a Root, OwnedFd)>> {
    let mut copies = Vec::new();
    for root in roots {
        match copy_of(&root.path) {
            Ok(copy) => copies.push((*root, copy)),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {}
            Err(error) => absent_is_fine(error)?,
        }
    }
    Ok(copies)
}

/// Mounts an empty file system of folders.
fn mount_folders(path: &CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    Ok(mount(
        c"none",
        path,
        c"tmpfs",
        flags,
        c"mode=0755,size=64k",
    )?)
}

/// Makes a place for a root and mounts its copy there.
fn put(root: &Root, copy: &OwnedFd) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(copy)?.st_mode);
    let access = match kind {
        FileType::Directory => Access::WriteFolder,
        _ => Access::WriteFile,
    };
    make(&root.path, access)?;
    attach(copy, &root.path)
}

fn read_only(confine: &Confine) -> io::Result<()> {
    let writable = confine.roots.iter().filter(|root| root.access.writes());
    let mut paths: Vec<&CStr> = writable.map(|root| root.path.as_c_str()).collect();
    // Outer ones first: what is mounted last is on top.
    paths.sort_unstable_by_key(|path| path.to_bytes().len());
    let copies = paths
        .into_iter()
        .map(|path| copy_of(path).map(|copy| (path, copy)))
        .collect::<io::Result<Vec<_>>>()?;
    kernel::set_read_only(CWD, c"/")?;
    for (path, copy) in copies {
        attach(&copy, path)?;
    }
    Ok(())
}

/// The folders between a writable root and what is kept or hidden in it, outer ones first.
fn ways(confine: &Confine) -> Vec<CString> {
    let mut ways = BTreeSet::new();
    let roots = confine.roots.iter().filter(|root| root.access.writes());
    let roots: Vec<&[u8]> = roots.map(|root| root.path.to_bytes()).collect();
    for path in confine.kept.iter().chain(&confine.hidden) {
        let path = path.to_bytes();
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (end, _) in slashes {
            let way = &path[..end];
            let is_inside = |root: &&[u8]| {
                way.strip_prefix(*root)
                    .is_some_and(|rest| rest.starts_with(b"/"))
            };
            if roots.iter().any(is_inside) {
                ways.insert(way);
            }
        }
    }
    let text = |way: &[u8]| CString::new(way).ok();
    ways.into_iter().filter_map(text).collect()
}

/// Mounts a folder on itself. What is mounted can not be moved; the folder it stands in could,
/// and another be made in its place.
fn pin(path: &CStr) -> io::Result<()> {
    match copy_of(path) {
        Ok(copy) => attach(&copy, path),
        Err(error) => absent_is_fine(error),
    }
}

fn keep(path: &CStr) -> io::Result<()> {
    match copy_of(path) {
        Ok(copy) => {
            kernel::set_read_only(&copy, c"")?;
            attach(&copy, path)
        }
        Err(error) => absent_is_fine(error),
    }
}

/// Covers a folder with one that has in it what of it may be reached all the same, anything
/// else with what cannot be opened.
fn hide(path: &CStr, roots: &[Root]) -> io::Result<()> {
    let opened = match open_path(path) {
        Ok(opened) => opened,
        // What we can not reach as this user the tool can not either, unless it may change the
        // folders on the way.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) && !in_writable(path, roots) => {
            return Ok(());
        }
        Err(error) => return absent_is_fine(error),
    };
    let stat = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
        return hide_folder(path, roots);
    }
    let nothing = copy_of(c"/dev/null")?;
    kernel::set_no_devices(&nothing, c"")?;
    attach(&nothing, path)
}

fn hide_folder(path: &CStr, roots: &[Root]) -> io::Result<()> {
    let prefix = [path.to_bytes(), b"/"].concat();
    let inside = roots
        .iter()
        .filter(|root| root.path.to_bytes().starts_with(&prefix));
    let mut copies = Vec::new();
    for root in inside {
        match copy_of(&root.path) {
            Ok(copy) => copies.push((root, copy)),
            Err(error) => absent_is_fine(error)?,
        }
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(c"none", path, c"tmpfs", flags, c"mode=0555,size=64k")?;
    for (root, copy) in &copies {
        if !root.access.writes() {
            kernel::set_read_only(copy, c"")?;
        }
        put(root, copy)?;
    }
    kernel::set_read_only_alone(CWD, path)
}

fn in_writable(path: &CStr, roots: &[Root]) -> bool {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let holds = |root: &CString| path.starts_with(OsStr::from_bytes(root.to_bytes()));
    roots
        .iter()
        .any(|root| root.access.writes() && holds(&root.path))
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Ok(()),
        _ => Err(error),
    }
}

fn open_path(path: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// A mount of its own of what is at `path`, not attached anywhere yet.
fn copy_of(path: &CStr) -> io::Result<OwnedFd> {
    copy_of_fd(&open_path(path)?)
}

fn copy_of_fd(opened: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(open_tree(opened, c"", flags)?)
}

fn attach(copy: &OwnedFd, path: &CStr) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(copy.as_fd(), c"", open_path(path)?, c"", flags)?)
}

/// Makes what a child may write and is not there yet: folders with all that lead to them,
/// files empty. They belong to whoever owns the folder they are made in.
pub(crate) fn make_missing(roots: &[Root]) -> io::Result<()> {
    for root in roots {
        let missing = || rustix::fs::stat(root.path.as_c_str()).err() == Some(Errno::NOENT);
        if root.access.writes() && missing() {
            make(&root.path, root.access)?;
        }
    }
    Ok(())
}

fn make(path: &CStr, access: Access) -> io::Result<()> {
    let bytes = path.to_bytes();
    let slashes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends: Vec<usize> = slashes.map(|(at, _)| at).filter(|at| *at > 0).collect();
    for end in ends {
        make_one(&bytes[..end], Access::WriteFolder)?;
    }
    make_one(bytes, access)
}

fn make_one(path: &[u8], access: Access) -> io::Result<()> {
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| io::ErrorKind::InvalidInput);
    let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (parent, name) = (text(&path[..end.max(1)])?, text(&path[end + 1..])?);
    // Links are not followed: a tool that may write here must not have us make things there.
    let parent = open_path(&parent)?;
    let folder_mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    let made = match access {
        Access::WriteFile => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
            rustix::fs::openat(&parent, &name, flags, mode).map(drop)
        }
        _ => rustix::fs::mkdirat(&parent, &name, folder_mode),
    };
    match made {
        Ok(()) if rustix::process::geteuid().is_root() => {
            let stat = rustix::fs::fstat(&parent)?;
            let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let at = AtFlags::SYMLINK_NOFOLLOW;
            Ok(rustix::fs::chownat(
                &parent,
                &name,
                Some(uid),
                Some(gid),
                at,
            )?)
        }
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
