//! Homes for programs that callers run: one folder per caller, kept between calls, and fresh ones
//! that are removed with their call. R-40.
//!
//! Programs may do anything in their home, also while it is prepared here: no link in a home is
//! followed, and whatever is read from one is bounded. The files that decide stand beside the
//! homes, out of reach of programs: per home a lock, its size when it was last counted, and a
//! digest of what it was furnished with. The lock is shared by all that use the home, processes of
//! other gates included, and held alone to empty or to remove it.
//!
//! Lock order: only shared locks are waited for. A lock for ourselves alone is tried, and its holder
//! waits for no lock until it has given that one up, so whoever waits for a shared one gets it.

mod furnishing;

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callgate_call::Digest;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::confine::Identity;
use crate::nanny::scratch::{self, FOLDER, Scratch};
pub use furnishing::Furnishing;

/// Homes of one workspace. Past that the one that was used longest ago is removed.
const HOMES_MAX: usize = 64;

/// Entries of a home that are counted; one with more is over its bound.
const ENTRIES_MAX: u64 = 500_000;

/// Levels of folders in a home; one that is deeper is over its bound.
const DEPTH_MAX: usize = 64;

/// How long a count of a home's size is used.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// How often a lock is taken anew because its file was removed meanwhile.
const TRIES_MAX: u32 = 64;

/// The folder of fresh homes.
const FRESH: &str = "fresh";

/// The homes of a workspace.
#[derive(Clone, Debug)]
pub struct Homes {
    /// Their folder: a real path.
    pub root: PathBuf,
    /// The user and group that programs run as, where that is not ours.
    pub owner: Option<(u32, u32)>,
    /// Bytes that a home may take.
    pub bytes_max: u64,
    /// What is put into each home.
    pub furnishings: Vec<Furnishing>,
}

/// A home in use.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Kept {
        homes: Arc<Homes>,
        name: CString,
        /// Shared with all that use the home.
        lock: HomeLock,
    },
    Fresh(Option<Scratch>),
}

impl Home {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the use of a home once its program is gone: a fresh one is removed, one that has grown
    /// past its bound is emptied unless another program uses it. Blocks. A home that is dropped
    /// instead is emptied before its next use.
    pub fn leave(self) {
        if let Kind::Kept { homes, name, lock } = &self.kind {
            let _ = homes.leave(name, lock);
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Kind::Fresh(scratch) = &mut self.kind {
            scratch.take().into_iter().for_each(Scratch::remove);
        }
    }
}

/// Why there is no home.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// It is past its bound, and a program that still uses it keeps it from being emptied.
    #[error("the home of this caller holds more than {max} bytes and is in use")]
    Full {
        /// The bound.
        max: u64,
    },
    /// It can not be made.
    #[error("make a home in {}", root.display())]
    Make {
        /// The folder of all.
        root: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Homes {
    /// Opens the home of a caller. It is made if it is not there, and emptied if it has grown past
    /// its bound. Blocks for as long as somebody empties it.
    pub fn open(self: &Arc<Self>, caller: &str) -> Result<Home, HomeError> {
        let name = name_of(caller);
        let parent = self.enter().map_err(|source| self.failed(source))?;
        for _ in 0..TRIES_MAX {
            let opened = self.try_open(parent.as_fd(), &name);
            if let Some(lock) = opened.map_err(|source| self.failed(source))? {
                return Ok(Home {
                    path: self.path_of(&name),
                    kind: Kind::Kept {
                        homes: Arc::clone(self),
                        name,
                        lock: lock?,
                    },
                });
            }
        }
        Err(self.failed(io::ErrorKind::ResourceBusy.into()))
    }

    /// Opens a home that nobody has used, and that is removed with its value.
    pub fn fresh(&self) -> Result<Home, HomeError> {
        let failed = |source| self.failed(source);
        drop(self.enter().map_err(failed)?);
        let base = c_path(&self.root.join(FRESH)).map_err(failed)?;
        scratch::sweep(&base);
        let scratch = Scratch::make(&base, self.identity()).map_err(failed)?;
        let path = PathBuf::from(OsStr::from_bytes(scratch.path.to_bytes()));
        if let Ok(folder) = rustix::fs::open(&path, FOLDER, Mode::empty()) {
            self.furnish(&folder);
        }
        Ok(Home {
            path,
            kind: Kind::Fresh(Some(scratch)),
        })
    }

    fn failed(&self, source: io::Error) -> HomeError {
        HomeError::Make {
            root: self.root.clone(),
            source,
        }
    }

    fn identity(&self) -> Option<Identity> {
        self.owner.map(|(uid, gid)| Identity { uid, gid })
    }

    fn path_of(&self, name: &CStr) -> PathBuf {
        self.root.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn enter(&self) -> io::Result<OwnedFd> {
        if let Some(parent) = self.root.parent() {
            fs::create_dir_all(parent)?;
        }
        scratch::enter(&c_path(&self.root)?)
    }

    /// One try to open a home: its lock, or why it can not be used. Nothing if the lock's file was
    /// removed meanwhile.
    fn try_open(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> io::Result<Option<Result<HomeLock, HomeError>>> {
        let lock = lock_file(parent, name)?;
        rustix::fs::flock(&lock, FlockOperation::LockShared)?;
        if !is_linked(&lock)? {
            return Ok(None);
        }
        if self.is_over(parent, name, &lock)? || self.is_of_another(parent, name)? {
            if !try_alone(&lock) {
                return Ok(Some(Err(HomeError::Full {
                    max: self.bytes_max,
                })));
            }
            remove(parent, name)?;
            forget(parent, name)?;
            // The lock is given up on the way from one kind to the other.
            rustix::fs::flock(&lock, FlockOperation::LockShared)?;
            if !is_linked(&lock)? {
                return Ok(None);
            }
        }
        let (folder, is_new) = self.folder(parent, name)?;
        if is_new {
            self.evict(parent, name);
        }
        self.furnish_if_changed(parent, name, &folder, is_new);
        Ok(Some(Ok(lock)))
    }

    fn folder(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<(OwnedFd, bool)> {
        let is_new = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = enter_folder(parent, name)?;
        // A gate that was killed may have made it and not given it away.
        if let Some((uid, gid)) = self.owner
            && rustix::fs::fstat(&folder)?.st_uid != uid
        {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
        }
        Ok((folder, is_new))
    }

    /// Returns whether a home is of a user that programs no longer run as.
    fn is_of_another(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
        let ours = rustix::process::geteuid().as_raw();
        let wanted = self.owner.map_or(ours, |(uid, _)| uid);
        match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(found.st_uid != wanted && found.st_uid != ours),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether a home is past its bound. A count is used for a minute, by the clock of the
    /// file system that has the homes.
    fn is_over(&self, parent: BorrowedFd<'_>, name: &CStr, lock: &HomeLock) -> io::Result<bool> {
        let now = touched(lock)?;
        let mut file = open_file(parent, &with_suffix(name, b".size")?)?;
        let mut text = String::new();
        // bound: 32 bytes, more than any number of bytes in decimal
        (&mut file).take(32).read_to_string(&mut text)?;
        let age = now.duration_since(file.metadata()?.modified()?);
        if let Ok(bytes) = text.trim().parse::<u64>()
            && bytes <= self.bytes_max
            && age.is_ok_and(|age| age < COUNTED_FOR)
        {
            return Ok(false);
        }
        let bytes = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => size_of(parent, name).unwrap_or(u64::MAX),
            Err(Errno::NOENT) => 0,
            Err(error) => return Err(error.into()),
        };
        file.set_len(0)?;
        file.rewind()?;
        write!(file, "{bytes}")?;
        Ok(bytes > self.bytes_max)
    }

    fn leave(&self, name: &CStr, lock: &HomeLock) -> io::Result<()> {
        let parent = self.enter()?;
        let parent = parent.as_fd();
        if self.is_over(parent, name, lock)? && try_alone(lock) && is_linked(lock)? {
            remove(parent, name)?;
            forget(parent, name)?;
        }
        Ok(())
    }

    /// Removes the homes that were used longest ago, past the most there may be, with all that is
    /// beside them.
    fn evict(&self, parent: BorrowedFd<'_>, newest: &CStr) {
        let mut locks: Vec<(SystemTime, CString)> = Vec::new();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let file = entry.file_name();
            if let Some(name) = file.as_bytes().strip_suffix(b".lock")
                && let Ok(used) = entry.metadata().and_then(|found| found.modified())
                && let Ok(name) = CString::new(name)
            {
                locks.push((used, name));
            }
        }
        locks.sort();
        let spare = locks.len().saturating_sub(HOMES_MAX);
        for (_, name) in locks.into_iter().take(spare) {
            if name.as_c_str() != newest {
                // One that is in use, or that can not be removed, is met again.
                let _ = evict_one(parent, &name);
            }
        }
    }

    /// Furnishes a home, unless nothing has changed since it was furnished.
    fn furnish_if_changed(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        home: &OwnedFd,
        is_new: bool,
    ) {
        let known = || -> io::Result<(fs::File, String)> {
            let mut file = open_file(parent, &with_suffix(name, b".furnished")?)?;
            let mut text = String::new();
            // bound: a digest has fewer bytes
            (&mut file).take(256).read_to_string(&mut text)?;
            Ok((file, text))
        };
        let state = self.furnishings_state();
        let known = known();
        if !is_new && known.as_ref().is_ok_and(|(_, text)| *text == state) {
            return;
        }
        self.furnish(home);
        if let Ok((mut file, _)) = known {
            let written = file.set_len(0).and_then(|()| file.rewind());
            let _ = written.and_then(|()| file.write_all(state.as_bytes()));
        }
    }
}

/// Bytes on the disk of all below a folder, by descriptors: a path could be longer than the kernel
/// takes, or lead elsewhere by now. What can not be counted is too much.
fn size_of(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<u64> {
    let (mut bytes, mut entries) = (0u64, 0u64);
    let mut open = vec![Dir::new(enter_folder(parent, name)?)?];
    loop {
        let depth = open.len();
        let Some(folder) = open.last_mut() else {
            return Ok(bytes);
        };
        let Some(entry) = folder.next() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        entries += 1;
        if entries > ENTRIES_MAX {
            return Ok(u64::MAX);
        }
        let folder = folder.fd()?;
        let found = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let blocks = u64::try_from(found.st_blocks).unwrap_or(0);
        bytes = bytes.saturating_add(blocks.saturating_mul(512));
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            if depth >= DEPTH_MAX {
                return Ok(u64::MAX);
            }
            match enter_folder(folder, name) {
                Ok(inner) => open.push(Dir::new(inner)?),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens a folder that a program may have made without any rights.
fn enter_folder(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    match rustix::fs::openat(parent, name, FOLDER, Mode::empty()) {
        Err(Errno::ACCESS) => {
            scratch::give_rights(parent, name)?;
            Ok(rustix::fs::openat(parent, name, FOLDER, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

fn evict_one(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let lock = lock_file(parent, name)?;
    if try_alone(&lock) && is_linked(&lock)? {
        remove(parent, name)?;
        forget(parent, name)?;
        rustix::fs::unlinkat(parent, with_suffix(name, b".lock")?, AtFlags::empty())?;
    }
    Ok(())
}

/// Removes what is known of a home that was removed.
fn forget(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    for suffix in [&b".size"[..], b".furnished"] {
        match rustix::fs::unlinkat(parent, with_suffix(name, suffix)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The folder name of a caller: its name may hold anything.
fn name_of(caller: &str) -> CString {
    let mut hex = Digest::of_bytes(caller.as_bytes()).to_hex();
    hex.truncate(32);
    CString::new(hex).expect("hex digits")
}

fn with_suffix(name: &CStr, suffix: &[u8]) -> io::Result<CString> {
    CString::new([name.to_bytes(), suffix].concat()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The lock of a home. It is given up when it is dropped: by closing it alone, a process that was
/// forked meanwhile would hold it until it executes its program.
#[derive(Debug)]
struct HomeLock(OwnedFd);

impl Drop for HomeLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl AsFd for HomeLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn lock_file(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<HomeLock> {
    let file = open_file(parent, &with_suffix(name, b".lock")?)?;
    Ok(HomeLock(file.into()))
}

/// A file beside the homes, made if it is not there.
fn open_file(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<fs::File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(rustix::fs::openat(parent, name, flags, mode)?.into())
}

/// Returns whether a lock's file still has its name: who removes it holds the lock alone.
fn is_linked(lock: &HomeLock) -> io::Result<bool> {
    Ok(rustix::fs::fstat(lock)?.st_nlink > 0)
}

/// Marks a lock as used now, by the clock of its file system, which marks counts too.
fn touched(lock: &HomeLock) -> io::Result<SystemTime> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(lock, &times)?;
    fs::File::from(lock.0.try_clone()?).metadata()?.modified()
}

/// Takes a lock for ourselves alone. Where that fails, a shared one is gone as well.
fn try_alone(lock: &HomeLock) -> bool {
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn remove(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match enter_folder(parent, name) {
        Ok(folder) => {
            // To remove what is in it is to write it.
            rustix::fs::fchmod(&folder, Mode::RWXU)?;
            scratch::remove(parent, name, folder.as_fd())
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn homes(name: &str, bytes_max: u64) -> Homes {
        let root =
            std::env::temp_dir().join(format!("callgate-homes-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Homes {
            root,
            owner: None,
            bytes_max,
            furnishings: Vec::new(),
        }
    }

    /// Makes all counts be made anew.
    fn forget_counts(homes: &Homes) {
        for entry in fs::read_dir(&homes.root).unwrap().flatten() {
            if entry.path().extension().is_some_and(|end| end == "size") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// A caller finds what it left, nobody else does, and a fresh one has nothing and goes.
    #[test]
    fn one_for_each_caller() {
        let homes = Arc::new(homes("callers", 1 << 30));
        let one = homes.open("uid:1").unwrap();
        fs::write(one.path().join("mark"), "x").unwrap();
        assert!(homes.open("uid:1").unwrap().path().join("mark").exists());
        assert!(!homes.open("uid:2").unwrap().path().join("mark").exists());
        let fresh = homes.fresh().unwrap();
        let path = fresh.path().to_owned();
        assert!(path.is_dir() && !path.join("mark").exists());
        fs::write(path.join("file"), "x").unwrap();
        drop(fresh);
        assert!(!path.exists());
        fs::remove_dir_all(&homes.root).unwrap();
    }

    /// At its bound a home stays; past it, it is refused while in use and then emptied, by
    /// who leaves it last or by who uses it next.
    #[test]
    fn a_home_is_bounded() {
        let homes = Arc::new(homes("bound", 64 * 1024));
        let home = homes.open("one").unwrap();
        let big = home.path().join("big");
        fs::write(&big, vec![1; 32 * 1024]).unwrap();
        forget_counts(&homes);
        assert!(homes.open("one").is_ok() && big.exists());
        fs::write(&big, vec![1; 128 * 1024]).unwrap();
        forget_counts(&homes);
        assert!(matches!(homes.open("one"), Err(HomeError::Full { .. })));
        assert!(big.exists());
        // What a process has that is forked just now does not keep the home in use.
        let Kind::Kept { lock, .. } = &home.kind else {
            panic!("a kept home");
        };
        let forked = lock.0.try_clone().unwrap();
        drop(home);
        let again = homes.open("one").unwrap();
        drop(forked);
        assert!(!big.exists() && again.path().is_dir());
        fs::write(&big, vec![1; 128 * 1024]).unwrap();
        forget_counts(&homes);
        again.leave();
        assert!(!big.exists());
        fs::remove_dir_all(&homes.root).unwrap();
    }

    /// No way to hide bytes from the count: folders that are deeper than a path is long, or
    /// that nobody may enter, and a home without rights.
    #[test]
    fn what_can_not_be_counted_is_too_much() {
        let homes = Arc::new(homes("hidden", 64 * 1024));
        let forbid = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        };
        let home = homes.open("one").unwrap();
        fs::create_dir(home.path().join("shut")).unwrap();
        fs::write(home.path().join("shut/big"), vec![1; 128 * 1024]).unwrap();
        forbid(&home.path().join("shut"));
        forbid(home.path());
        forget_counts(&homes);
        let path = home.path().to_owned();
        drop(home);
        let home = homes.open("one").unwrap();
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        let mut folder = rustix::fs::open(home.path(), FOLDER, Mode::empty()).unwrap();
        let name = "x".repeat(200);
        for _ in 0..DEPTH_MAX {
            rustix::fs::mkdirat(&folder, &name, Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, &name, FOLDER, Mode::empty()).unwrap();
        }
        forget_counts(&homes);
        drop(home);
        drop(homes.open("one").unwrap());
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::remove_dir_all(&homes.root).unwrap();
    }

    /// Past the most there may be the oldest goes, with all that is beside it, and nobody
    /// who opens homes meanwhile is left with one that was removed.
    #[test]
    fn homes_are_as_many_as_may_be() {
        let homes = Arc::new(homes("many", 1 << 30));
        let held = homes.open("held").unwrap();
        let open = |from: usize| {
            for number in from..from + HOMES_MAX {
                let home = homes.open(&format!("uid:{number}")).unwrap();
                fs::write(home.path().join("mark"), "x").unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| open(0));
            scope.spawn(|| open(30));
        });
        open(1000);
        assert!(held.path().is_dir());
        let files = fs::read_dir(&homes.root).unwrap().count();
        assert!(files <= 4 * (HOMES_MAX + 1), "{files}");
        fs::remove_dir_all(&homes.root).unwrap();
    }

    /// What is furnished is there, new entries at the next use, and never through a link that a
    /// program has planted. What a program has made of it stays.
    #[test]
    fn homes_are_furnished() {
        let mut homes = homes("furnished", 1 << 30);
        let real = homes.root.with_extension("real");
        let elsewhere = homes.root.with_extension("elsewhere");
        for folder in [&real, &elsewhere] {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder.join("cache/registry")).unwrap();
        }
        let crates = real.join("cache/registry");
        fs::write(crates.join("a.crate"), "a").unwrap();
        fs::write(real.join("settings"), "first").unwrap();
        homes.furnishings = vec![
            Furnishing::Shelves {
                from: real.join("cache"),
                at: ".cargo/registry/cache".into(),
            },
            Furnishing::Link {
                from: real.clone(),
                at: ".rustup/toolchains".into(),
            },
            Furnishing::Copy {
                from: real.join("settings"),
                at: ".rustup/settings".into(),
            },
        ];
        let homes = Arc::new(homes);
        let home = homes.open("one").unwrap();
        let cache = home.path().join(".cargo/registry/cache/registry");
        let settings = home.path().join(".rustup/settings");
        assert_eq!(fs::read(cache.join("a.crate")).unwrap(), b"a");
        assert_eq!(fs::read(&settings).unwrap(), b"first");
        assert!(home.path().join(".rustup/toolchains/settings").exists());
        // The clock of the file system may stand still for some milliseconds.
        let mut stamp = 0;
        let mut change = |path: &Path, text: &str| {
            stamp += 1;
            fs::write(path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(stamp);
            for path in [path, path.parent().unwrap()] {
                let file = fs::File::open(path).unwrap();
                file.set_modified(time).unwrap();
            }
        };
        // The program's own words count until the owner has others.
        fs::write(&settings, "mine").unwrap();
        drop(homes.open("one").unwrap());
        assert_eq!(fs::read(&settings).unwrap(), b"mine");
        change(&crates.join("b.crate"), "b");
        change(&real.join("settings"), "second");
        drop(homes.open("one").unwrap());
        assert_eq!(fs::read(cache.join("b.crate")).unwrap(), b"b");
        assert_eq!(fs::read(&settings).unwrap(), b"second");
        for folder in [".cargo", ".rustup"] {
            fs::remove_dir_all(home.path().join(folder)).unwrap();
            symlink(&elsewhere, home.path().join(folder)).unwrap();
        }
        change(&crates.join("c.crate"), "c");
        drop(homes.open("one").unwrap());
        assert!(!elsewhere.join("registry").exists() && !elsewhere.join("settings").exists());
        for folder in [&real, &elsewhere, &homes.root] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
