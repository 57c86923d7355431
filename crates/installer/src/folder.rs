//! Folders of installations: made under a hidden name, placed whole by one rename, listed, removed.
//!
//! An installation is written to `.new-RANDOM/tree`, whose maker holds a lock on `.new-RANDOM`. A
//! hidden folder whose lock can be taken has a dead maker and is removed by the next installation.
//! Everything below `tree` is on the disk before it gets its name, so that a name never leads to
//! half an installation.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use callgate_call::bounded;
use callgate_text::encode_hex;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::InstallError;

/// The beginning of the name of an unfinished installation.
const HIDDEN: &str = ".new-";
/// Levels of folders below an installation.
const DEPTH_MAX: usize = 128;
/// Bytes of a file that is read for what it says.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// An installation in the making.
#[derive(Debug)]
pub(crate) struct Draft {
    root: PathBuf,
    folder: PathBuf,
    _lock: File,
}

impl Draft {
    /// Makes a draft in `root`, and removes what dead makers left there.
    pub fn new(root: &Path) -> Result<Self, InstallError> {
        make_folder(root)?;
        // A link in the path would lead the confinement elsewhere than us.
        let root = root
            .canonicalize()
            .map_err(InstallError::file("find", root))?;
        sweep(&root);
        let mut random = [0; 8];
        getrandom(&mut random, GetRandomFlags::empty())
            .map_err(|error| InstallError::file("name a folder in", &root)(error.into()))?;
        let folder = root.join(format!("{HIDDEN}{}", encode_hex(&random)));
        let failed = |source| InstallError::file("make", &folder)(source);
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(failed)?;
        let lock = File::open(&folder).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| failed(error.into()))?;
        let draft = Self {
            root,
            folder,
            _lock: lock,
        };
        make_folder(&draft.tree())?;
        make_folder(&draft.home())?;
        Ok(draft)
    }

    /// The folder that becomes the installation.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// A folder for what package managers leave behind.
    pub fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// The path that the installation will have.
    pub fn place_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Writes the tree to the disk and gives it its name. An installation that has the name
    /// already leaves in the same moment.
    pub fn place(self, name: &str) -> Result<PathBuf, InstallError> {
        let (tree, place) = (self.tree(), self.place_of(name));
        let root = File::open(&self.root).map_err(InstallError::file("open", &self.root))?;
        // One call for all files: an installation has tens of thousands.
        rustix::fs::syncfs(&root)
            .map_err(|error| InstallError::file("write to the disk", &tree)(error.into()))?;
        let flags = match place.symlink_metadata() {
            Ok(_) => RenameFlags::EXCHANGE,
            Err(_) => RenameFlags::NOREPLACE,
        };
        renameat_with(CWD, &tree, CWD, &place, flags)
            .map_err(|error| InstallError::file("put in place", &place)(error.into()))?;
        root.sync_all()
            .map_err(InstallError::file("write to the disk", &place))?;
        Ok(place)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes unfinished installations whose makers are gone.
pub(crate) fn sweep(root: &Path) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let hidden = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(HIDDEN.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    for entry in hidden {
        let Ok(folder) = File::open(entry.path()) else {
            continue;
        };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the folder `name` of `root` in one moment. False if it is not there.
pub(crate) fn remove(root: &Path, name: &str) -> Result<bool, InstallError> {
    let place = root.join(name);
    if place.symlink_metadata().is_err() {
        return Ok(false);
    }
    let draft = Draft::new(root)?;
    let aside = draft.folder.join("removed");
    fs::rename(&place, &aside).map_err(InstallError::file("remove", &place))?;
    Ok(true)
}

/// Makes a folder with the folders above it.
pub(crate) fn make_folder(path: &Path) -> Result<(), InstallError> {
    fs::create_dir_all(path).map_err(InstallError::file("make", path))
}

/// Writes a new file.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), InstallError> {
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(InstallError::file("write", path))
}

/// Reads a text file of a package or a package manager.
pub(crate) fn read_text(path: &Path) -> Result<String, InstallError> {
    bounded::read_path_text(path, TEXT_BYTES_MAX).map_err(InstallError::file("read", path))
}

/// The size of a folder with all that is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub bytes: u64,
    pub files: u64,
}

impl Usage {
    /// Measures a folder, unless it is past its bounds of bytes and files.
    pub fn check(folder: &Path, bounds: (u64, u64)) -> Result<Self, InstallError> {
        let mut usage = Self::default();
        match usage.add(folder, bounds, DEPTH_MAX) {
            Ok(true) => Ok(usage),
            Ok(false) => Err(InstallError::TooLarge {
                bytes_max: bounds.0,
                files_max: bounds.1,
            }),
            Err(error) => Err(InstallError::file("measure", folder)(error)),
        }
    }

    /// Adds a folder. False past the bounds. What goes meanwhile does not count.
    fn add(&mut self, folder: &Path, bounds: (u64, u64), depth: usize) -> io::Result<bool> {
        if depth == 0 {
            return Ok(false);
        }
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let Ok(found) = entry.metadata() else {
                continue;
            };
            self.files += 1;
            self.bytes = self.bytes.saturating_add(found.len());
            if self.bytes > bounds.0 || self.files > bounds.1 {
                return Ok(false);
            }
            if found.is_dir() && !self.add(&entry.path(), bounds, depth - 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::TempFolder;

    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn drafts_are_placed_whole_or_swept() {
        let root = TempFolder::new();
        let first = Draft::new(root.path()).unwrap();
        write_file(&first.tree().join("a"), "1").unwrap();
        let hidden = first.folder.clone();
        // Of a living maker nothing is swept, of a dead one everything.
        let second = Draft::new(root.path()).unwrap();
        assert!(hidden.is_dir());
        let killed = root.join(".new-0123456789abcdef");
        fs::create_dir_all(killed.join("tree")).unwrap();
        write_file(&second.tree().join("a"), "2").unwrap();
        let place = first.place("pkg-1").unwrap();
        assert_eq!(read_text(&place.join("a")).unwrap(), "1");
        second.place("pkg-1").unwrap();
        assert_eq!(read_text(&place.join("a")).unwrap(), "2");
        sweep(root.path());
        assert_eq!(names(root.path()), ["pkg-1"]);
        assert!(remove(root.path(), "pkg-1").unwrap());
        assert!(!remove(root.path(), "pkg-1").unwrap());
        assert!(names(root.path()).is_empty());
    }

    #[test]
    fn sizes_are_bounded() {
        let root = TempFolder::new();
        root.write("f/a", "12345");
        root.write("f/b/c", "12345");
        let folder = root.join("f");
        let all = Usage::check(&folder, (u64::MAX, u64::MAX)).unwrap();
        assert_eq!(all.files, 3);
        for (bounds, fits) in [
            ((all.bytes, 3), true),
            ((all.bytes - 1, 3), false),
            ((all.bytes, 2), false),
            ((all.bytes + 1, 4), true),
        ] {
            assert_eq!(Usage::check(&folder, bounds).is_ok(), fits, "{bounds:?}");
        }
        std::os::unix::fs::symlink("/", folder.join("link")).unwrap();
        assert_eq!(Usage::check(&folder, (u64::MAX, 4)).unwrap().files, 4);
    }
}
