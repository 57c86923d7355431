//! Homes for programs that callers run: one folder per caller, kept between calls, and fresh ones
//! that go with their call. R-40.
//!
//! A home is bounded: one that has grown past the bound is emptied before its next use. A lock
//! beside it is shared by all that use it, also by other processes of the workspace, and held
//! alone by the one who empties it. Toolchain caches can be mirrored into a home as links.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::confine::Identity;
use crate::scratch::{self, FOLDER, Scratch};

/// Homes of one workspace. Past that the one that was used longest ago is removed.
const HOMES_MAX: usize = 64;

/// Entries of a home that are counted; one with more is over its bound.
const ENTRIES_MAX: u64 = 500_000;

/// Entries of one folder that are mirrored.
const MIRRORED_MAX: usize = 20_000;

/// How long what was counted holds.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// The folder of fresh homes.
const FRESH: &str = "fresh";

/// The homes of a workspace.
#[derive(Clone, Debug)]
pub struct Homes {
    /// Where they stand.
    pub root: PathBuf,
    /// The user and group that programs run as, where that is not ours.
    pub owner: Option<(u32, u32)>,
    /// Bytes that a home may take.
    pub bytes_max: u64,
    /// Folders whose entries are linked into each home.
    pub mirrors: Vec<Mirror>,
}

/// A folder of folders of folders, as caches of registries are: the inner ones are made, and what
/// is in those is linked.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// The real folder.
    pub from: PathBuf,
    /// Its place in a home.
    pub to: PathBuf,
}

/// A home in use.
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The lock on it.
    Kept(#[expect(dead_code, reason = "held")] OwnedFd),
    Fresh(Option<Scratch>),
}

impl Home {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
    /// The home of a caller, made if it is not there, and emptied if it has grown past its bound.
    pub fn open(&self, caller: &str) -> Result<Home, HomeError> {
        let failed = |source| HomeError::Make {
            root: self.root.clone(),
            source,
        };
        let parent = self.enter().map_err(failed)?;
        let name = name_of(caller);
        let lock = lock_file(parent.as_fd(), &name).map_err(failed)?;
        let now = touched(&lock).map_err(failed)?;
        if self.is_over(parent.as_fd(), &name, now).map_err(failed)? {
            if !try_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
                return Err(HomeError::Full {
                    max: self.bytes_max,
                });
            }
            remove(parent.as_fd(), &name).map_err(failed)?;
        }
        rustix::fs::flock(&lock, FlockOperation::LockShared)
            .map_err(io::Error::from)
            .map_err(failed)?;
        let (folder, is_new) = self.folder(parent.as_fd(), &name).map_err(failed)?;
        if is_new {
            self.evict(parent.as_fd(), &name);
        }
        self.mirror(&folder);
        Ok(Home {
            path: self.root.join(OsStr::from_bytes(name.to_bytes())),
            kind: Kind::Kept(lock),
        })
    }

    /// A home that nobody has used, and that goes with its value.
    pub fn fresh(&self) -> Result<Home, HomeError> {
        let failed = |source| HomeError::Make {
            root: self.root.clone(),
            source,
        };
        drop(self.enter().map_err(failed)?);
        let base = c_path(&self.root.join(FRESH)).map_err(failed)?;
        scratch::sweep(&base);
        let scratch = Scratch::make(&base, self.identity()).map_err(failed)?;
        let path = PathBuf::from(OsStr::from_bytes(scratch.path.to_bytes()));
        if let Ok(folder) = rustix::fs::open(&path, FOLDER, Mode::empty()) {
            self.mirror(&folder);
        }
        Ok(Home {
            path,
            kind: Kind::Fresh(Some(scratch)),
        })
    }

    fn identity(&self) -> Option<Identity> {
        self.owner.map(|(uid, gid)| Identity { uid, gid })
    }

    fn enter(&self) -> io::Result<OwnedFd> {
        if let Some(parent) = self.root.parent() {
            fs::create_dir_all(parent)?;
        }
        scratch::enter(&c_path(&self.root)?)
    }

    fn folder(&self, parent: BorrowedFd<'_>, name: &CStr) -> io::Result<(OwnedFd, bool)> {
        let is_new = match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = rustix::fs::openat(parent, name, FOLDER, Mode::empty())?;
        if is_new && let Some((uid, gid)) = self.owner {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
        }
        Ok((folder, is_new))
    }

    /// Whether a home is past its bound. What was counted within the last minute holds.
    fn is_over(&self, parent: BorrowedFd<'_>, name: &CStr, now: SystemTime) -> io::Result<bool> {
        let sizes = with_suffix(name, b".size")?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = fs::File::from(rustix::fs::openat(parent, &sizes, flags, mode)?);
        let mut text = String::new();
        // bound: 32 bytes, more than any number of bytes in decimal
        (&mut file).take(32).read_to_string(&mut text)?;
        let counted = file.metadata()?.modified()?;
        let age = now.duration_since(counted);
        if let Ok(bytes) = text.trim().parse::<u64>()
            && bytes <= self.bytes_max
            && age.is_ok_and(|age| age < COUNTED_FOR)
        {
            return Ok(false);
        }
        let bytes = match rustix::fs::openat(parent, name, FOLDER, Mode::empty()) {
            Ok(_) => size_of(&self.root.join(OsStr::from_bytes(name.to_bytes()))),
            Err(_) => 0,
        };
        file.set_len(0)?;
        io::Seek::rewind(&mut file)?;
        write!(file, "{bytes}")?;
        Ok(bytes > self.bytes_max)
    }

    /// Removes the homes that were used longest ago, past the most there may be.
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
            let Ok(lock) = lock_file(parent, &name) else {
                continue;
            };
            if name.as_c_str() != newest
                && try_lock(&lock, FlockOperation::NonBlockingLockExclusive)
                && remove(parent, &name).is_ok()
                && let Ok(size) = with_suffix(&name, b".size")
            {
                let _ = rustix::fs::unlinkat(parent, &size, AtFlags::empty());
            }
        }
    }

    /// Links what the mirrored folders hold by now. Best effort: a toolchain that does not find
    /// its cache makes another.
    fn mirror(&self, home: &OwnedFd) {
        for mirror in &self.mirrors {
            let _ = self.mirror_one(home, mirror);
        }
    }

    fn mirror_one(&self, home: &OwnedFd, mirror: &Mirror) -> io::Result<()> {
        let top = self.make_beneath(home.as_fd(), &mirror.to)?;
        for middle in folders(&mirror.from) {
            let from = mirror.from.join(&middle);
            let to = self.make_beneath(top.as_fd(), &middle)?;
            let entries = fs::read_dir(&from).into_iter().flatten().flatten();
            for entry in entries.take(MIRRORED_MAX) {
                match rustix::fs::symlinkat(entry.path(), &to, entry.file_name()) {
                    // It has its own.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
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

/// The folders two levels below `from`, as paths from there.
fn folders(from: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .take(MIRRORED_MAX)
            .collect()
    };
    let strip = |path: PathBuf| path.strip_prefix(from).map(Path::to_owned).ok();
    let outer = inside(from);
    outer
        .iter()
        .flat_map(|folder| inside(folder))
        .filter_map(strip)
        .collect()
}

/// Bytes on the disk of all below a folder; the most there are if there is too much to count.
fn size_of(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let (mut bytes, mut entries) = (0u64, 0u64);
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return u64::MAX;
            }
            let Ok(found) = entry.metadata() else {
                continue;
            };
            bytes = bytes.saturating_add(found.blocks().saturating_mul(512));
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    bytes
}

/// The folder name of a caller: its name may hold anything.
fn name_of(caller: &str) -> CString {
    let digest = callgate_call::Digest::of_bytes(caller.as_bytes()).to_string();
    let hex: String = digest
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(32)
        .collect();
    CString::new(hex).expect("hex digits")
}

fn with_suffix(name: &CStr, suffix: &[u8]) -> io::Result<CString> {
    CString::new([name.to_bytes(), suffix].concat()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn lock_file(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = with_suffix(name, b".lock")?;
    Ok(rustix::fs::openat(
        parent,
        &name,
        flags,
        Mode::RUSR | Mode::WUSR,
    )?)
}

/// Marks a lock as used now, by the clock of its file system, which marks what was counted too.
fn touched(lock: &OwnedFd) -> io::Result<SystemTime> {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let times = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    rustix::fs::futimens(lock, &times)?;
    fs::File::from(lock.try_clone()?).metadata()?.modified()
}

fn try_lock(lock: &OwnedFd, how: FlockOperation) -> bool {
    rustix::fs::flock(lock, how).is_ok()
}

fn remove(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    match rustix::fs::openat(parent, name, FOLDER, Mode::empty()) {
        Ok(folder) => scratch::remove(parent, name, folder.as_fd()),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(name: &str, bytes_max: u64) -> Homes {
        let root =
            std::env::temp_dir().join(format!("callgate-homes-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Homes {
            root,
            owner: None,
            bytes_max,
            mirrors: Vec::new(),
        }
    }

    /// A caller finds what it left, nobody else does, and a fresh one has nothing and goes.
    #[test]
    fn one_for_each_caller() {
        let homes = homes("callers", 1 << 30);
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

    /// At its bound a home stays; past it, it is refused while in use and then emptied.
    #[test]
    fn a_home_is_bounded() {
        let homes = homes("bound", 64 * 1024);
        let forget = || {
            for entry in fs::read_dir(&homes.root).unwrap().flatten() {
                if entry.path().extension().is_some_and(|end| end == "size") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
        };
        let home = homes.open("one").unwrap();
        let big = home.path().join("big");
        fs::write(&big, vec![1; 32 * 1024]).unwrap();
        forget();
        assert!(homes.open("one").is_ok() && big.exists());
        fs::write(&big, vec![1; 128 * 1024]).unwrap();
        forget();
        assert!(matches!(homes.open("one"), Err(HomeError::Full { .. })));
        assert!(big.exists());
        drop(home);
        let again = homes.open("one").unwrap();
        assert!(!big.exists() && again.path().is_dir());
        fs::remove_dir_all(&homes.root).unwrap();
    }

    /// What is mirrored is linked, new entries at the next use, and never through a link that a
    /// program has planted.
    #[test]
    fn caches_are_mirrored() {
        let mut homes = homes("mirror", 1 << 30);
        let real = homes.root.with_extension("real");
        let elsewhere = homes.root.with_extension("elsewhere");
        for folder in [&real, &elsewhere] {
            let _ = fs::remove_dir_all(folder);
            fs::create_dir_all(folder.join("cache/registry")).unwrap();
        }
        fs::write(real.join("cache/registry/a.crate"), "a").unwrap();
        homes.mirrors = vec![Mirror {
            from: real.clone(),
            to: ".cargo/registry".into(),
        }];
        let home = homes.open("one").unwrap();
        let cache = home.path().join(".cargo/registry/cache/registry");
        assert_eq!(fs::read(cache.join("a.crate")).unwrap(), b"a");
        fs::write(real.join("cache/registry/b.crate"), "b").unwrap();
        drop(homes.open("one").unwrap());
        assert_eq!(fs::read(cache.join("b.crate")).unwrap(), b"b");
        fs::remove_dir_all(home.path().join(".cargo")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, home.path().join(".cargo")).unwrap();
        drop(homes.open("one").unwrap());
        assert!(!elsewhere.join("registry").exists());
        for folder in [&real, &elsewhere, &homes.root] {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}
