//! Names of files, resolved by the kernel beneath the workspace. What a caller says is only ever
//! walked from the root's own descriptor, so that no link, and no link that is swapped in while
//! we walk, leads out; where it led to is asked of the kernel afterwards. R-8.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use callgate_call::{Cancel, Fault};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, lstat, open, openat2};
use rustix::io::Errno;

use super::heirs::make_folder;
use super::lists::Lists;
use super::lock::go_on;
use super::swept::Swept;

/// Times that a walk is begun anew when somebody renames folders under it.
const WALKS_MAX: usize = 64;
/// What is looked at in a folder that is to go, for what may not be reached.
const HELD_MAX: usize = 100_000;
/// What the kernel puts behind the name of what has lost it.
const DELETED: &[u8] = b" (deleted)";
/// Longest path.
const PATH_BYTES_MAX: usize = 4096;

/// What `files/*` may reach.
#[derive(Debug)]
pub struct Ground {
    root: OwnedFd,
    path: PathBuf,
    /// The gate's own things. G-9.
    own: Vec<PathBuf>,
    /// What is at the root on the way to those.
    own_roots: Vec<OsString>,
    /// What the owner lets be reached.
    lists: Lists,
    /// Where nothing is left of writers that were killed.
    swept: Swept,
}

/// Why a path is refused differs by method, since the contract gives each its own codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// As something that may not be done.
    Denied,
    /// As something that makes no sense.
    BadValue,
}

/// A name in a folder that is known to be beneath the root.
#[derive(Debug)]
pub struct Spot {
    pub folder: OwnedFd,
    pub name: PathBuf,
    /// Where that is, from the root.
    pub path: PathBuf,
}

impl Ground {
    /// The folder at `path`, without what is in `own` or not in `lists`.
    pub fn open(path: &Path, own: Vec<PathBuf>, lists: Lists) -> std::io::Result<Self> {
        let path = path.canonicalize()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(&path, flags, Mode::empty())?;
        // Links on the way to our own things must not hide them, nor be replaced.
        let ends = own.iter().filter_map(|own| own.canonicalize().ok());
        let mut own: Vec<PathBuf> = ends.chain(own.iter().cloned()).collect();
        own.sort_unstable();
        own.dedup();
        // No path from the root leads to others.
        own.retain(|own| own.starts_with(&path) || path.starts_with(own));
        let inside = own.iter().filter_map(|own| own.strip_prefix(&path).ok());
        let own_roots = inside.filter_map(|own| own.iter().next().map(OsStr::to_owned));
        Ok(Self {
            root,
            own_roots: own_roots.collect(),
            path,
            own,
            lists,
            swept: Swept::default(),
        })
    }

    /// Where nothing is left of writers that were killed.
    pub fn swept(&self) -> &Swept {
        &self.swept
    }

    /// A caller's path as one from the root that does not climb out of it by its letters.
    pub fn within(&self, asked: &str, outside: Outside) -> Result<PathBuf, Fault> {
        if asked.is_empty() || asked.contains('\0') || asked.len() > PATH_BYTES_MAX {
            return Err(Fault::bad_value(format!(
                "path must have 1 to {PATH_BYTES_MAX} bytes, none of them zero"
            ))
            .with("field", "path")
            .with("reason", "not a path"));
        }
        let asked = Path::new(asked);
        let relative = match asked.is_absolute() {
            true => asked.strip_prefix(&self.path).map_err(|_| left(outside))?,
            false => asked,
        };
        let mut depth = 0_usize;
        for part in relative.components() {
            match part {
                Component::Normal(_) => depth += 1,
                Component::ParentDir => match depth.checked_sub(1) {
                    Some(less) => depth = less,
                    None => return Err(left(outside)),
                },
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(left(outside)),
            }
        }
        let relative = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        Ok(relative.to_owned())
    }

    /// Opens what is there, and says where that is.
    pub fn find(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, PathBuf), Fault> {
        // Nor is it told what of the gate's own is not there.
        self.check_own(path, path)?;
        let (found, real) = self.reach(path, flags).map_err(|fault| match fault {
            Fault::NotFound { .. } if !self.may_be_asked(path) => not_listed(path),
            fault => fault,
        })?;
        self.check(&found, &real, path)?;
        Ok((found, real))
    }

    /// The same for reading, without waiting for a disk: `None` where something on the way is not
    /// in memory, or not to be had.
    pub fn find_now(&self, path: &Path) -> Option<(OwnedFd, PathBuf)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::CACHED;
        let walk = |how| openat2(&self.root, path, flags, Mode::empty(), how);
        // A way without links leads to where it says: the kernel need not be asked again.
        if let Some(real) = self.open_to_all(path)
            && let Ok(found) = walk(how | ResolveFlags::NO_SYMLINKS)
        {
            return Some((found, real));
        }
        self.check_own(path, path).ok()?;
        let found = walk(how).ok()?;
        let real = self.real(&found, path).ok()??;
        self.check(&found, &real, path).ok()?;
        Some((found, real))
    }

    /// Opens what is there if no link is on the way to it: `path` is where it is.
    pub fn find_straight(&self, path: &Path, flags: OFlags) -> Option<OwnedFd> {
        // As in `find_now`; what can not be had this way may be told apart by the other.
        if self.open_to_all(path).is_some_and(|real| real == path)
            && let Ok(found) = self.walk_by(path, flags, ResolveFlags::NO_SYMLINKS)
        {
            return Some(found);
        }
        let (found, real) = self.find(path, flags).ok()?;
        (real == path).then_some(found)
    }

    /// Where a path leads if there is no link on it; `None` if by another spelling, which some
    /// file systems take, it could mean what may not be reached.
    fn open_to_all(&self, path: &Path) -> Option<PathBuf> {
        let real = straight(path)?;
        let first = real.iter().next()?;
        let is_own = self
            .own_roots
            .iter()
            .any(|own| own.eq_ignore_ascii_case(first));
        (self.lists.is_empty() && first.is_ascii() && !is_own).then_some(real)
    }

    /// Whether something that was found may be reached where it is.
    fn check(&self, found: &OwnedFd, real: &Path, path: &Path) -> Result<(), Fault> {
        self.check_own(real, path)?;
        match !self.lists.allows(real) && !is_folder(found) {
            true => Err(not_listed(path)),
            false => Ok(()),
        }
    }

    /// The folder that holds a name, which itself may not be there, and is never followed.
    pub fn spot(&self, path: &Path, make_folders: bool) -> Result<Spot, Fault> {
        let Some(name) = path.file_name().filter(|_| ends_in_name(path)) else {
            return Err(bad_name(path));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (folder, real) = match self.reach(parent, flags) {
            Err(Fault::NotFound { .. }) if !self.lists.allows(path) => {
                return Err(not_listed(path));
            }
            Err(Fault::NotFound { .. }) if make_folders => self.make(parent, name)?,
            reached => reached?,
        };
        let real = real.join(name);
        self.check_own(&real, path)?;
        if !self.lists.allows(&real) {
            return Err(not_listed(path));
        }
        Ok(Spot {
            folder,
            name: PathBuf::from(name),
            path: real,
        })
    }

    /// Makes a folder, and those it is in, one after the other: each is walked to from the root,
    /// so that none is made outside, nor where `name` in it could not be.
    fn make(&self, path: &Path, name: &OsStr) -> Result<(OwnedFd, PathBuf), Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut walked = PathBuf::new();
        let (mut folder, mut real) = self.reach(Path::new("."), flags)?;
        let mut rest = path.components();
        while let Some(part) = rest.next() {
            let next = real.join(part);
            self.check_own(&next, path)?;
            if !self.lists.allows(&next.join(rest.as_path()).join(name)) {
                return Err(not_listed(path));
            }
            walked.push(part);
            if let Component::Normal(name) = part {
                match make_folder(&folder, name, &self.swept) {
                    // The name of each folder is on the disk before anything is put into it, so that
                    // a file that was answered for can be reached after a loss of power. A crash
                    // in between leaves an empty folder.
                    Ok(()) => {
                        rustix::fs::fsync(&folder).map_err(|error| fault(error, &walked))?;
                    }
                    Err(Errno::EXIST) => {}
                    Err(error) => return Err(not_created(error, &walked)),
                }
            }
            (folder, real) = self.reach(&walked, flags)?;
        }
        Ok((folder, real))
    }

    /// Opens what is there, and asks where that is. What has lost its name since is not there any
    /// more: something else may be.
    fn reach(&self, path: &Path, flags: OFlags) -> Result<(OwnedFd, PathBuf), Fault> {
        for _ in 0..WALKS_MAX {
            let found = self.walk(path, flags)?;
            if let Some(real) = self.real(&found, path)? {
                return Ok((found, real));
            }
        }
        Err(restless(path))
    }

    fn walk(&self, path: &Path, flags: OFlags) -> Result<OwnedFd, Fault> {
        self.walk_by(path, flags, ResolveFlags::empty())
    }

    fn walk_by(&self, path: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Fault> {
        // A pipe that nobody writes to must not hold us up.
        let quick = match flags.contains(OFlags::PATH) {
            true => OFlags::CLOEXEC,
            false => OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
        };
        let flags = flags | quick;
        let how = how | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..WALKS_MAX {
            match openat2(&self.root, path, flags, Mode::empty(), how) {
                // Something on the way was renamed meanwhile.
                Err(Errno::AGAIN) => {}
                found => return found.map_err(|error| fault(error, path)),
            }
        }
        Err(restless(path))
    }

    /// Where the kernel says something is, from the root. Nothing if its name is no longer its
    /// own: then the kernel tells the name it had, with a word behind it.
    fn real(&self, found: &impl AsFd, asked: &Path) -> Result<Option<PathBuf>, Fault> {
        use std::os::fd::AsRawFd as _;
        use std::os::unix::ffi::OsStringExt as _;
        let link = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
        let real = rustix::fs::readlink(link, Vec::new()).map_err(|error| fault(error, asked))?;
        let real = PathBuf::from(OsString::from_vec(real.into_bytes()));
        if real.as_os_str().as_bytes().ends_with(DELETED) && !is_at(found, &real) {
            return Ok(None);
        }
        match real.strip_prefix(&self.path) {
            Ok(real) => Ok(Some(real.to_owned())),
            // The workspace itself was moved, or what we found was, right after.
            Err(_) => Err(no_such(asked)),
        }
    }

    /// True if it may be told that something is not there: at its name, and where that led to.
    fn may_be_asked(&self, path: &Path) -> bool {
        let open = |path: &Path| self.lists.allows(path) && !self.lists.denies(path);
        let led = || {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty())?;
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let (_, real) = self.reach(parent, flags).ok()?;
            Some(real.join(path.file_name()?))
        };
        self.lists.is_empty() || open(path) && led().is_none_or(|led| open(&led))
    }

    /// Neither the gate's own things nor what holds them (G-9), nor what the owner denies.
    fn check_own(&self, real: &Path, asked: &Path) -> Result<(), Fault> {
        if self.lists.denies(real) {
            return Err(not_listed(asked));
        }
        let real = self.path.join(real);
        let is_own = |own: &PathBuf| real.starts_with(own);
        if self.own.iter().any(is_own) {
            return Err(gates_own(asked));
        }
        Ok(())
    }

    /// A folder with something of the gate's in it, or with something that may not be reached, is
    /// neither moved nor removed.
    pub fn check_holds_none(&self, real: &Path, asked: &Path, stop: &Cancel) -> Result<(), Fault> {
        let whole = self.path.join(real);
        if self.own.iter().any(|own| own.starts_with(&whole)) {
            return Err(gates_own(asked));
        }
        self.check_may_be((real, real), asked, stop)
    }

    /// Whether all that is in a folder could be reached if the folder were called `named`.
    pub fn check_may_be(
        &self,
        (real, named): (&Path, &Path),
        asked: &Path,
        stop: &Cancel,
    ) -> Result<(), Fault> {
        if self.lists.is_empty() {
            return Ok(());
        }
        let mut left = HELD_MAX;
        self.check_lists_in((real, named), asked, &mut left, stop)
    }

    /// What lists say of a name they say of where it is: its folder must not have been moved since.
    pub fn check_still_there(&self, spot: &Spot) -> Result<(), Fault> {
        if self.lists.is_empty() {
            return Ok(());
        }
        let folder = self.real(&spot.folder, &spot.path)?;
        match folder.as_deref() == spot.path.parent() {
            true => Ok(()),
            false => Err(restless(&spot.path)),
        }
    }

    /// Looks at all that is in a folder; one with too much in it is not known to be free, nor is
    /// one that can not be looked into.
    fn check_lists_in(
        &self,
        (real, named): (&Path, &Path),
        asked: &Path,
        left: &mut usize,
        stop: &Cancel,
    ) -> Result<(), Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let folder = match self.walk(real, flags) {
            // No folder, or no longer there.
            Err(Fault::NotFound { .. }) => return Ok(()),
            folder => folder?,
        };
        for entry in rustix::fs::Dir::read_from(&folder).map_err(|error| fault(error, asked))? {
            let entry = entry.map_err(|error| fault(error, asked))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            go_on(stop)?;
            let named = named.join(name);
            let is_folder = entry.file_type() == FileType::Directory;
            let denied = self.lists.denies(&named) || !is_folder && !self.lists.allows(&named);
            *left = left.saturating_sub(1);
            if denied || *left == 0 {
                return Err(not_listed(asked));
            }
            // Not every file system says what its names are.
            if is_folder || entry.file_type() == FileType::Unknown {
                self.check_lists_in((&real.join(name), &named), asked, left, stop)?;
            }
        }
        Ok(())
    }

    /// True if this may not be shown: the gate's own, what is denied, a file that is not allowed.
    pub fn is_hidden(&self, real: &Path, is_folder: bool) -> bool {
        self.check_own(real, real).is_err() || !is_folder && !self.lists.allows(real)
    }
}

/// A path in the words that the kernel has for it, where no link is on it; `None` if it climbs.
fn straight(path: &Path) -> Option<PathBuf> {
    let mut straight = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => straight.push(name),
            _ => return None,
        }
    }
    Some(straight)
}

/// True if something does have the name that the kernel tells of it, odd as that is.
fn is_at(found: &impl AsFd, real: &Path) -> bool {
    let there = lstat(real);
    let about = fstat(found).and_then(|found| Ok((found, there?)));
    about.is_ok_and(|(found, there)| (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino))
}

fn restless(path: &Path) -> Fault {
    let path = path.display();
    Fault::Unavailable {
        reason: format!("{path}: names are changed faster than we walk"),
    }
}

fn is_folder(found: &OwnedFd) -> bool {
    fstat(found).is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Directory)
}

fn not_listed(asked: &Path) -> Fault {
    Fault::denied(format!("{} may not be reached", asked.display()))
        .with("field", "path")
        .with("reason", "the owner's lists")
}

/// True unless a path ends with something that only a folder can be called.
fn ends_in_name(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    !bytes.ends_with(b"/") && !bytes.ends_with(b"/.") && bytes != b"."
}

fn bad_name(path: &Path) -> Fault {
    Fault::bad_value(format!("{} names no file", path.display()))
        .with("field", "path")
        .with("reason", "not a file's name")
}

fn gates_own(asked: &Path) -> Fault {
    Fault::denied(format!("{} is the gate's own", asked.display()))
        .with("field", "path")
        .with("reason", "the gate's own")
}

fn left(outside: Outside) -> Fault {
    const WORDS: &str = "Path outside workspace";
    match outside {
        Outside::Denied => Fault::denied(WORDS),
        Outside::BadValue => Fault::bad_value(WORDS),
    }
    .with("field", "path")
    .with("reason", WORDS)
}

fn no_such(path: &Path) -> Fault {
    Fault::NotFound {
        message: format!("{}: no such file or folder", path.display()),
    }
}

/// Returns the fault of a file or folder that could not be created. Where the system does not
/// allow it the folder is at fault, such as one of a workspace that is read-only.
pub fn not_created(error: Errno, path: &Path) -> Fault {
    let folder = match path.parent().filter(|folder| *folder != Path::new("")) {
        Some(folder) => format!("`{}`", folder.display()),
        None => "the workspace".to_owned(),
    };
    let why = match error {
        Errno::ACCESS | Errno::PERM => format!("the gate's user may not write to {folder}"),
        Errno::ROFS => format!("{folder} is on a read-only file system"),
        _ => return fault(error, path),
    };
    Fault::denied(format!("cannot create `{}`: {why}", path.display()))
        .with("field", "path")
        .with("reason", "the system does not allow it")
}

/// What the kernel said of a path, in the words of faults.
pub fn fault(error: Errno, path: &Path) -> Fault {
    let shown = path.display();
    let path_fault =
        |fault: Fault, reason: &str| fault.with("field", "path").with("reason", reason);
    match error {
        Errno::NOENT | Errno::NOTDIR => no_such(path),
        Errno::XDEV | Errno::LOOP => path_fault(
            Fault::denied(format!("{shown} leads out of the workspace by a link")),
            "a link leads out of the workspace",
        ),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => path_fault(
            Fault::denied(format!("{shown}: {error}")),
            "the system does not allow it",
        ),
        Errno::ISDIR => path_fault(
            Fault::bad_value(format!("{shown} is a folder")),
            "is a folder",
        ),
        Errno::NAMETOOLONG | Errno::INVAL => path_fault(
            Fault::bad_value(format!("{shown}: {error}")),
            "not a usable name",
        ),
        Errno::NOSPC | Errno::DQUOT | Errno::NFILE | Errno::MFILE | Errno::NOMEM => {
            Fault::Unavailable {
                reason: format!("{shown}: {error}"),
            }
        }
        other => Fault::Internal {
            message: format!("{shown}: {other}"),
        },
    }
}

/// The kernel's own number of an error.
pub fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Refuses everything but plain files.
pub fn plain(found: &OwnedFd, path: &Path) -> Result<rustix::fs::Stat, Fault> {
    let about = fstat(found).map_err(|error| fault(error, path))?;
    match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => Ok(about),
        FileType::Directory => Err(fault(Errno::ISDIR, path)),
        _ => Err(
            Fault::bad_value(format!("{} is no plain file", path.display()))
                .with("field", "path")
                .with("reason", "is no plain file"),
        ),
    }
}

/// A path as answers have it; what is not UTF-8 could not be asked for again.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.is_empty() {
        ".".to_owned()
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground(name: &str, deny: &[&str]) -> Ground {
        let name = format!("callgate-place-{name}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        let deny: Vec<String> = deny.iter().map(|&one| one.to_owned()).collect();
        Ground::open(&root, Vec::new(), Lists::new(&[], &deny).unwrap()).unwrap()
    }

    /// What has lost its name is not taken for something of another name.
    #[test]
    fn names_that_are_lost() {
        let ground = ground("lost", &[]);
        let write = |name: &str| std::fs::write(ground.path.join(name), name).unwrap();
        let real = |found: &OwnedFd| ground.real(found, Path::new("asked")).unwrap();
        write("a");
        let path = Path::new("a");
        let found = ground.walk(path, OFlags::RDONLY).unwrap();
        assert_eq!(real(&found).as_deref(), Some(path));
        // Another takes its name.
        write("b");
        std::fs::rename(ground.path.join("b"), ground.path.join("a")).unwrap();
        assert_eq!(real(&found), None);
        // And even if somebody has the name that the kernel makes of it.
        write("a (deleted)");
        assert_eq!(real(&found), None);
        let odd = Path::new("a (deleted)");
        let (_, at) = ground.find(odd, OFlags::RDONLY).unwrap();
        assert_eq!(at, odd);
        std::fs::remove_dir_all(&ground.path).unwrap();
    }

    /// JR-165: a name in a folder that was moved since is another name.
    #[test]
    fn folders_that_are_moved() {
        let ground = ground("moved", &["b/**"]);
        std::fs::create_dir(ground.path.join("a")).unwrap();
        let spots = ["a/x", "x"].map(|path| ground.spot(Path::new(path), false).unwrap());
        for spot in &spots {
            ground.check_still_there(spot).unwrap();
        }
        std::fs::rename(ground.path.join("a"), ground.path.join("b")).unwrap();
        let moved = ground.check_still_there(&spots[0]);
        assert!(matches!(moved, Err(Fault::Unavailable { .. })), "{moved:?}");
        ground.check_still_there(&spots[1]).unwrap();
        std::fs::remove_dir_all(&ground.path).unwrap();
    }

    /// Who looks at all that is in a folder holds up every writer, and so ends when it is told to.
    #[test]
    fn looking_into_a_folder_has_an_end() {
        let ground = ground("looked", &["**/secret"]);
        let (folder, stop) = (Path::new("a"), Cancel::new());
        std::fs::create_dir_all(ground.path.join("a/b")).unwrap();
        std::fs::write(ground.path.join("a/b/c"), "").unwrap();
        let check = || ground.check_holds_none(folder, folder, &stop);
        check().unwrap();
        std::fs::write(ground.path.join("a/b/secret"), "").unwrap();
        assert!(matches!(check(), Err(Fault::Denied { .. })));
        stop.cancel();
        assert_eq!(check(), Err(Fault::Cancelled));
        std::fs::remove_dir_all(&ground.path).unwrap();
    }

    /// A link to a file that is denied, while that file is replaced all the time.
    #[test]
    fn nothing_denied_is_reached_while_it_is_replaced() {
        let ground = ground("denied", &["secret"]);
        let at = |name: &str| ground.path.join(name);
        std::fs::write(at("secret"), "0").unwrap();
        std::os::unix::fs::symlink("secret", at("link")).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over() {
                    std::fs::write(at("new"), "1").unwrap();
                    std::fs::rename(at("new"), at("secret")).unwrap();
                }
            });
            let mut finds = (0..20_000).map(|_| ground.find(Path::new("link"), OFlags::RDONLY));
            let reached = finds.find_map(Result::ok);
            // First, since the other one is waited for whatever comes of this.
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(reached.is_none(), "{reached:?}");
        });
        std::fs::remove_dir_all(&ground.path).unwrap();
    }
}
