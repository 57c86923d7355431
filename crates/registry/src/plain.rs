//! Reads regular files of the workspace, which anybody may have put there: a pipe must not block
//! the reader, and neither a device nor a sparse file may fill its memory.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use callgate_call::bounded;
use rustix::fs::{Mode, OFlags};

/// Reads a regular file of at most `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    bounded::read_file(&open(path)?, bytes_max)
}

/// Reads a regular file of at most `bytes_max` bytes of UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String> {
    bounded::read_text(&open(path)?, bytes_max)
}

fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}
