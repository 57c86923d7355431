//! Files of clients as they are read: bounded, regular, and with the properties that an edit keeps.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_call::bounded;
use rustix::fs::{Mode, OFlags};

/// Largest settings file.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Error of a file that can not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file can not be opened or read.
    #[error("read `{}`", path.display())]
    Io {
        /// File.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// The path leads to something else, such as a folder or a pipe.
    #[error("`{}` is no regular file", path.display())]
    NotRegular {
        /// File.
        path: PathBuf,
    },
    /// The file is larger than `FILE_BYTES_MAX`.
    #[error("`{}` is larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// File.
        path: PathBuf,
    },
}

/// Content of a file and what an edit of it keeps.
#[derive(Debug, Clone)]
pub(crate) struct FileImage {
    pub bytes: Vec<u8>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names of the file.
    pub links: u64,
}

/// Returns the path that a path leads to, all links followed.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf, FileError> {
    path.canonicalize().map_err(|source| FileError::Io {
        path: path.to_owned(),
        source,
    })
}

/// Reads a file whose last name is no link.
pub(crate) fn load(path: &Path) -> Result<FileImage, FileError> {
    let failed = |source| FileError::Io {
        path: path.to_owned(),
        source,
    };
    // A pipe would have its reader wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| failed(error.into()))?);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular {
            path: path.to_owned(),
        });
    }
    let bytes = bounded::read_file(&file, FILE_BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => FileError::TooLarge {
            path: path.to_owned(),
        },
        _ => failed(error),
    })?;
    Ok(FileImage {
        bytes,
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        links: metadata.nlink(),
    })
}

/// Returns the digest of the content of a file, as hex digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
