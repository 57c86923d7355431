//! The undo record of a run, as JSON.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use callgate_call::bounded;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::failpoint::failpoint;

pub(super) const NAME: &str = "record.json";
const TEMPORARY: &str = "record.tmp";
pub(super) const VERSION: u32 = 1;
const BYTES_MAX: u64 = 1024 * 1024;

/// What a run changed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub version: u32,
    pub made_at: String,
    pub files: Vec<FileRecord>,
}

/// A file of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRecord {
    pub path: String,
    pub client: String,
    /// Path of the place in the table of clients, which says how the file is read.
    pub place: String,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Digests of both contents.
    pub before: String,
    pub after: String,
    /// Name of the temporary file in the file's folder.
    pub temporary: String,
}

/// Writes a record, whole or not at all.
pub(super) fn write(folder: &Path, record: &Record) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(record)?;
    text.push(b'\n');
    write_new(&folder.join(TEMPORARY), &text)?;
    failpoint("record.written");
    std::fs::rename(folder.join(TEMPORARY), folder.join(NAME))?;
    failpoint("record.renamed");
    super::replace::sync_folder(folder)
}

/// Writes a new file that only its owner reads, and waits for the disk.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads the record of a run. `None`: the run was never complete, or is being removed.
pub(super) fn read(folder: &Path) -> io::Result<Option<Record>> {
    let file = match File::open(folder.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let record: Record = serde_json::from_slice(&bounded::read_file(&file, BYTES_MAX)?)?;
    let is_name = |name: &str| name.starts_with(".callgate-") && !name.contains('/');
    let is_sound = record.files.iter().all(|about| is_name(&about.temporary));
    match is_sound && record.version == VERSION {
        true => Ok(Some(record)),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a record of this version",
        )),
    }
}
