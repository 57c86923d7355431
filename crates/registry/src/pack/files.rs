//! The files of a pack: a walk that follows no link and opens nothing but plain files and
//! folders, and the digest over what it found.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use callgate_call::Digest;
use callgate_call::bounded::read_file;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use super::seal::SEAL_FILE;

/// Most files of a pack.
const FILES_MAX: usize = 2000;
/// Most bytes of one file.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Most bytes of a pack.
const PACK_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Most folders within folders.
const DEPTH_MAX: usize = 16;
/// Most bytes of a path within a pack.
const PATH_BYTES_MAX: usize = 512;
/// Most names looked at, with folders and what is left out.
const NAMES_MAX: usize = 10_000;

/// Beside a pack's content: what says whose it is, in our form and in the older one.
const BESIDE: [&str; 3] = [SEAL_FILE, "signature.txt", "verification.json"];
/// Not a pack's content: made by working with it. It is neither digested nor run.
const LEFT_OUT: [&str; 2] = ["__pycache__", ".git"];

/// A pack's files by their paths.
#[derive(Debug, Default)]
pub struct PackFiles {
    content: BTreeMap<String, Vec<u8>>,
    beside: BTreeMap<String, Vec<u8>>,
}

/// Why files can not be those of a pack.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The system said so.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Something that has no place in a pack.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// How a file differs from what was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its content differs.
    Changed(String),
    /// It is not on the list.
    Added(String),
    /// It is on the list alone.
    Missing(String),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Changed(path) => write!(f, "{path} changed"),
            Self::Added(path) => write!(f, "{path} was added"),
            Self::Missing(path) => write!(f, "{path} is missing"),
        }
    }
}

impl PackFiles {
    /// Reads all of a folder.
    pub fn read(folder: &Path) -> Result<Self, FilesError> {
        let fd = open(CWD.as_fd(), folder, folder, OFlags::DIRECTORY)?;
        let mut walk = Walk {
            root: folder,
            files: Self::default(),
            bytes: 0,
            names: 0,
        };
        walk.folder(&fd, "", 0)?;
        Ok(walk.files)
    }

    /// A file of the content.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.content.get(path).map(Vec::as_slice)
    }

    /// A file beside the content.
    pub fn beside(&self, name: &str) -> Option<&[u8]> {
        self.beside.get(name).map(Vec::as_slice)
    }

    /// The content, sorted by path.
    pub fn content(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.content
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Everything, the signatures included.
    pub fn all(&self) -> Vec<(&str, &[u8])> {
        let beside = self.beside.iter();
        let beside = beside.map(|(path, bytes)| (path.as_str(), bytes.as_slice()));
        self.content().chain(beside).collect()
    }

    /// How many bytes the content has.
    pub fn bytes(&self) -> u64 {
        self.content.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// Over all of the content.
    pub fn digest(&self) -> Digest {
        digest(&self.list())
    }

    /// Each file of the content with its size and digest.
    pub fn list(&self) -> Vec<Listed> {
        self.content()
            .map(|(path, bytes)| Listed {
                path: path.to_owned(),
                bytes: bytes.len() as u64,
                digest: Digest::of_bytes(bytes),
            })
            .collect()
    }
}

/// A file as a signature names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub path: String,
    pub bytes: u64,
    pub digest: Digest,
}

/// The digest of a pack: over paths, sizes and contents, in the order of the paths. Modes and
/// times are left out, because copies change them.
pub fn digest(list: &[Listed]) -> Digest {
    let mut all = b"callgate-pack-v1\n".to_vec();
    for file in list {
        all.extend_from_slice(&(file.path.len() as u64).to_be_bytes());
        all.extend_from_slice(file.path.as_bytes());
        all.extend_from_slice(&file.bytes.to_be_bytes());
        all.extend_from_slice(&file.digest.0);
    }
    Digest::of_bytes(&all)
}

/// What changed from one list to another, both sorted by path.
pub fn changes(signed: &[Listed], found: &[Listed]) -> Vec<Change> {
    let by_path = |list: &[Listed]| -> BTreeMap<String, Listed> {
        list.iter()
            .map(|file| (file.path.clone(), file.clone()))
            .collect()
    };
    let (signed, found) = (by_path(signed), by_path(found));
    let kept = signed
        .iter()
        .filter_map(|(path, file)| match found.get(path) {
            None => Some(Change::Missing(path.clone())),
            Some(now) if now != file => Some(Change::Changed(path.clone())),
            Some(_) => None,
        });
    let added = found.keys().filter(|path| !signed.contains_key(*path));
    kept.chain(added.cloned().map(Change::Added)).collect()
}

struct Walk<'a> {
    root: &'a Path,
    files: PackFiles,
    bytes: u64,
    names: usize,
}

impl Walk<'_> {
    fn folder(&mut self, fd: &OwnedFd, path: &str, depth: usize) -> Result<(), FilesError> {
        if depth > DEPTH_MAX {
            return Err(self.refused(path, format!("deeper than {DEPTH_MAX} folders")));
        }
        let failed = |source: rustix::io::Errno| FilesError::Read {
            path: self.root.join(path),
            source: source.into(),
        };
        let entries = Dir::read_from(fd).map_err(failed)?;
        let entries: Result<Vec<_>, _> = entries.take(NAMES_MAX + 1).collect();
        for entry in entries.map_err(failed)? {
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                self.entry(fd, path, name, depth)?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: &str,
        name: &CStr,
        depth: usize,
    ) -> Result<(), FilesError> {
        self.names += 1;
        if self.names > NAMES_MAX {
            return Err(self.refused(path, format!("more than {NAMES_MAX} names")));
        }
        let lossy = name.to_string_lossy();
        let path = match path {
            "" => lossy.clone().into_owned(),
            path => format!("{path}/{lossy}"),
        };
        let plain = name
            .to_str()
            .is_ok_and(|name| !name.contains(char::is_control));
        if !plain || path.len() > PATH_BYTES_MAX {
            let reason =
                format!("a name is UTF-8, of at most {PATH_BYTES_MAX} bytes with its path");
            return Err(self.refused(&path, reason));
        }
        if LEFT_OUT.contains(&&*lossy) {
            return Ok(());
        }
        // Looked at before it is opened: opening a device can have effects.
        let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| self.failed(&path, error.into()))?;
        let whole = self.root.join(&path);
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => {
                let fd = open(folder.as_fd(), name, &whole, OFlags::DIRECTORY)?;
                self.folder(&fd, &path, depth + 1)
            }
            FileType::RegularFile => {
                let fd = open(folder.as_fd(), name, &whole, OFlags::empty())?;
                self.file(File::from(fd), path)
            }
            FileType::Symlink => Err(self.refused(&path, "a link: a pack has plain files only")),
            _ => Err(self.refused(&path, "neither a file nor a folder")),
        }
    }

    fn file(&mut self, file: File, path: String) -> Result<(), FilesError> {
        let failed = |error| self.failed(&path, error);
        // It may have become something else since it was looked at.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(self.refused(&path, "not a plain file"));
        }
        let bytes = read_file(&file, FILE_BYTES_MAX).map_err(|error| match error.kind() {
            ErrorKind::FileTooLarge => {
                self.refused(&path, format!("larger than {FILE_BYTES_MAX} bytes"))
            }
            _ => failed(error),
        })?;
        self.bytes += bytes.len() as u64;
        if self.bytes > PACK_BYTES_MAX {
            let reason = format!("with it the pack is larger than {PACK_BYTES_MAX} bytes");
            return Err(self.refused(&path, reason));
        }
        let place = match BESIDE.contains(&&*path) {
            true => &mut self.files.beside,
            false => &mut self.files.content,
        };
        place.insert(path, bytes);
        if self.files.content.len() > FILES_MAX {
            return Err(self.refused("", format!("more than {FILES_MAX} files")));
        }
        Ok(())
    }

    fn refused(&self, path: &str, reason: impl Into<String>) -> FilesError {
        FilesError::Refused {
            path: self.root.join(path),
            reason: reason.into(),
        }
    }

    fn failed(&self, path: &str, source: io::Error) -> FilesError {
        let path = self.root.join(path);
        FilesError::Read { path, source }
    }
}

fn open<P: rustix::path::Arg>(
    folder: std::os::fd::BorrowedFd<'_>,
    name: P,
    whole: &Path,
    more: OFlags,
) -> Result<OwnedFd, FilesError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(folder, name, flags | more, Mode::empty()).map_err(|error| {
        let path = whole.to_owned();
        match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => FilesError::Refused {
                path,
                reason: "not a folder, or a link".to_owned(),
            },
            error => FilesError::Read {
                path,
                source: error.into(),
            },
        }
    })
}
