//! Reading a run back: its events line by line, also while they are written, and what stands
//! beside them.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;

use callgate_call::{Digest, bounded};

use super::events::EVENTS;
use super::manifest::{MANIFEST, REPORT};
use super::{disk::Folder, names};
use crate::{Store, StoreError};

/// Longest line that is read. An event comes in a frame of 16 MiB at most, and as JSON no byte of
/// it takes more than six.
pub const RUN_LINE_BYTES_MAX: usize = 128 * 1024 * 1024;
/// One read.
const READ_BYTES: usize = 256 * 1024;

/// The events of a run. At the end there are none for now; ask again while the run goes on.
#[derive(Debug)]
pub struct RunEvents {
    folder: Option<Folder>,
    /// Not before the first event.
    file: Option<File>,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file.
    buffer_at: u64,
    /// What of the buffer was handed out.
    start: usize,
    /// What of the buffer was searched for a line's end.
    searched: usize,
}

impl RunEvents {
    /// The next whole line, without its end. What a killed process left of a line is none.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let fresh = &self.buffer[self.searched..];
            if let Some(at) = fresh.iter().position(|byte| *byte == b'\n') {
                let (from, end) = (self.start, self.searched + at);
                self.start = end + 1;
                self.searched = self.start;
                return Ok(Some(&self.buffer[from..end]));
            }
            self.searched = self.buffer.len();
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Where the next line begins, in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.buffer_at + self.start as u64
    }

    /// Goes on with the line that begins at this byte, or will. False, and nothing else, if none
    /// does.
    pub fn go_to(&mut self, offset: u64) -> io::Result<bool> {
        self.open()?;
        let before = offset.checked_sub(1);
        if let Some(before) = before {
            let mut byte = [0];
            let file = self.file.as_ref();
            let read = file.map(|file| file.read_at(&mut byte, before));
            if read.transpose()? != Some(1) || byte != *b"\n" {
                return Ok(false);
            }
        }
        if let Some(mut file) = self.file.as_ref() {
            file.seek(SeekFrom::Start(offset))?;
        }
        self.buffer.clear();
        (self.buffer_at, self.start, self.searched) = (offset, 0, 0);
        Ok(true)
    }

    fn open(&mut self) -> io::Result<()> {
        if self.file.is_none()
            && let Some(folder) = &self.folder
        {
            self.file = folder.read(EVENTS)?;
        }
        Ok(())
    }

    /// Reads on. False at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.buffer_at += self.start as u64;
        self.searched -= self.start;
        self.start = 0;
        if self.buffer.len() > RUN_LINE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "no line is so long",
            ));
        }
        self.open()?;
        let Some(file) = &self.file else {
            return Ok(false);
        };
        // bound: `READ_BYTES` more, up to a line
        let read = file.take(READ_BYTES as u64).read_to_end(&mut self.buffer)?;
        Ok(read > 0)
    }
}

impl Store {
    /// The events of a run, from the first; nothing if there is no such run.
    pub fn run_events(&self, run_id: &str) -> Result<Option<RunEvents>, StoreError> {
        let Some(run) = self.run(run_id)? else {
            return Ok(None);
        };
        Ok(Some(RunEvents {
            folder: self.run_folder_of(&run)?,
            file: None,
            buffer: Vec::new(),
            buffer_at: 0,
            start: 0,
            searched: 0,
        }))
    }

    /// A run's `report.json`; nothing before its end.
    pub fn run_report(&self, run_id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.run_paper(run_id, REPORT)
    }

    /// A run's `manifest.json`; nothing before its end.
    pub fn run_manifest(&self, run_id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.run_paper(run_id, MANIFEST)
    }

    /// A file that a run put beside its events.
    pub fn run_file(&self, run_id: &str, name: &str) -> Result<Option<File>, StoreError> {
        if names::check_file_name(name).is_err() {
            return Ok(None);
        }
        let Some(folder) = self.folder_by_id(run_id)? else {
            return Ok(None);
        };
        let found = match folder.enter("files") {
            Ok(files) => files.read(name),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        found.map_err(|e| StoreError::read(&self.dir.join("datasets"), e))
    }

    fn run_paper(&self, run_id: &str, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(folder) = self.folder_by_id(run_id)? else {
            return Ok(None);
        };
        let read = || -> io::Result<Option<Vec<u8>>> {
            let Some(file) = folder.read(name)? else {
                return Ok(None);
            };
            bounded::read_file(&file, RUN_LINE_BYTES_MAX as u64).map(Some)
        };
        read().map_err(|e| StoreError::read(&self.dir.join("datasets"), e))
    }

    fn folder_by_id(&self, run_id: &str) -> Result<Option<Folder>, StoreError> {
        match self.run(run_id)? {
            Some(run) => self.run_folder_of(&run),
            None => Ok(None),
        }
    }
}

/// The digest and the number of a file's bytes, in constant memory.
pub(super) fn digest_of(mut file: File) -> io::Result<(Digest, u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut bytes = 0;
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        hasher.update(&buffer[..read]);
        bytes += read as u64;
    }
    Ok((Digest(*hasher.finalize().as_bytes()), bytes))
}
