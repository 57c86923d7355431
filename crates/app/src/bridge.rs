//! The bridge's two files: where they are, and how the schema file is written and read. Not
//! durable state: whoever owns the socket makes both anew at its start.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use callgate_wires::bridge::limits::SCHEMA_FILE_BYTES_MAX;
use callgate_wires::bridge::{SchemaFileError, ToolSchema, read_schemas, write_schemas};
use rustix::fs::OFlags;

/// Where a gate's bridge is.
#[derive(Debug, Clone)]
pub struct Place {
    /// Where bridges connect.
    pub socket: PathBuf,
    /// What they list.
    pub schema: PathBuf,
}

impl Place {
    /// Beside the gate's own socket. A socket of another name takes that name along, so that
    /// two gates in one folder do not meet.
    pub fn beside(gate_socket: &Path) -> Self {
        let name = gate_socket.file_name().unwrap_or_default();
        let beside = |last: &str| {
            if name == "gate.sock" {
                return gate_socket.with_file_name(last);
            }
            let mut name = name.to_owned();
            name.push(".");
            name.push(last);
            gate_socket.with_file_name(name)
        };
        Self {
            socket: beside("bridge.sock"),
            schema: beside("bridge-schema.json"),
        }
    }
}

/// Writes a schema file: 0600 from its first byte, and whole or not at all.
pub fn write_schema_file(path: &Path, tools: &[ToolSchema]) -> io::Result<()> {
    let unfinished = unfinished(path);
    // One that is left over may have another mode, or be a link.
    remove(&unfinished)?;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)?;
    let written = file
        .write_all(write_schemas(tools).as_bytes())
        .and_then(|()| std::fs::rename(&unfinished, path));
    if written.is_err() {
        let _ = remove(&unfinished);
    }
    written
}

/// Removes a schema file and what an interrupted writer left of it.
pub fn remove_schema_file(path: &Path) -> io::Result<()> {
    remove(&unfinished(path))?;
    remove(path)
}

fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Why a schema file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum RefusedFile {
    /// It can not be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A folder, a pipe or the like.
    #[error("it is no regular file")]
    NotAFile,
    /// It may say what another user wants.
    #[error("it belongs to user {owner}, not to you (user {uid})")]
    Foreign {
        /// Whose it is.
        owner: u32,
        /// Who we are.
        uid: u32,
    },
    /// Others may read or write it.
    #[error("its mode is {mode:04o}, and others may not touch it: chmod 600 it")]
    Mode {
        /// Its permissions.
        mode: u32,
    },
    /// Too long.
    #[error("it is longer than {} MiB", SCHEMA_FILE_BYTES_MAX / (1024 * 1024))]
    TooLarge,
    /// Its text is wrong.
    #[error("{0}")]
    Text(#[from] SchemaFileError),
}

/// Reads a schema file that must be `uid`'s alone.
pub fn read_schema_file(path: &Path, uid: u32) -> Result<Vec<ToolSchema>, RefusedFile> {
    // A pipe would be waited for; what was opened is what is judged.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(RefusedFile::NotAFile);
    }
    let owner = meta.uid();
    if owner != uid {
        return Err(RefusedFile::Foreign { owner, uid });
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(RefusedFile::Mode { mode });
    }
    let mut text = Vec::new();
    let limit = SCHEMA_FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut text)?;
    if text.len() > SCHEMA_FILE_BYTES_MAX {
        return Err(RefusedFile::TooLarge);
    }
    Ok(read_schemas(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-7: two gates in one folder have bridges of their own.
    #[test]
    fn places() {
        let place = Place::beside(Path::new("/run/x/gate.sock"));
        assert_eq!(place.socket, Path::new("/run/x/bridge.sock"));
        assert_eq!(place.schema, Path::new("/run/x/bridge-schema.json"));
        let place = Place::beside(Path::new("/run/x/other.sock"));
        assert_eq!(place.socket, Path::new("/run/x/other.sock.bridge.sock"));
        assert_eq!(
            place.schema,
            Path::new("/run/x/other.sock.bridge-schema.json")
        );
    }
}
