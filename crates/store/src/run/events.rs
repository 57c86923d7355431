//! A run's `events.jsonl`: lines in the order of their numbers. What a write that failed left
//! half is cut off, so that the file always ends where its digest does.
//!
//! The file is synced before its folders, and both before the record of the run's end, which has
//! its digest. A crash before that record leaves events of a run whose end is unknown.

use std::fs::File;
use std::io;

use callgate_call::Digest;

use super::disk::{self, Folder, step};

/// Its name.
pub(super) const EVENTS: &str = "events.jsonl";

pub(super) struct EventFile {
    /// Made by the first write.
    file: Option<File>,
    hasher: blake3::Hasher,
    bytes: u64,
    /// So many have set out for the disk.
    set_out: u64,
    /// The disk has all of it.
    is_durable: bool,
    /// After this nothing more is written: a sync that failed may have lost bytes for good, and
    /// an end that could not be cut off is not where the next line begins.
    broken: Option<io::ErrorKind>,
}

impl EventFile {
    pub(super) fn new() -> Self {
        Self {
            file: None,
            hasher: blake3::Hasher::new(),
            bytes: 0,
            set_out: 0,
            is_durable: false,
            broken: None,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn digest(&self) -> Digest {
        Digest(*self.hasher.finalize().as_bytes())
    }

    /// Adds whole lines.
    pub(super) fn write(&mut self, folder: &Folder, lines: &[u8]) -> io::Result<()> {
        let whole = self.bytes;
        let file = self.file(folder)?;
        if let Err(error) = disk::write(file, lines) {
            if let Err(uncut) = file.set_len(whole) {
                self.broken = Some(uncut.kind());
            }
            return Err(error);
        }
        self.hasher.update(lines);
        self.bytes += lines.len() as u64;
        if let Some(file) = &self.file {
            disk::set_out(file, self.bytes, &mut self.set_out);
        }
        self.is_durable = false;
        Ok(())
    }

    /// All of it is on the disk on return. Its folder is the caller's.
    pub(super) fn sync(&mut self, folder: &Folder) -> io::Result<()> {
        if self.is_durable {
            return Ok(());
        }
        let file = self.file(folder)?;
        let synced = step(|| file.sync_data());
        self.broken = synced.as_ref().err().map(io::Error::kind);
        self.is_durable = synced.is_ok();
        synced
    }

    fn file(&mut self, folder: &Folder) -> io::Result<&File> {
        if let Some(kind) = self.broken {
            return Err(kind.into());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => folder.append(EVENTS, true)?,
        };
        Ok(self.file.insert(file))
    }
}
