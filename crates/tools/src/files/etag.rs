//! Etags: a digest of what is in a file, or of what the system says of a large one. R-5.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use callgate_call::{Clock, Fault, Timestamp};
use callgate_text::encode_hex;
use rustix::fs::Stat;

use super::place::fault;

/// Files above this are not read for their etag.
const HASHED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Etags remembered; at the bound all are forgotten.
const KNOWN_MAX: usize = 4096;
/// A file that was written to within this of now may be written to again without a sign.
const SETTLED_MS: u64 = 2000;

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp([u64; 7]);

#[cfg(test)]
impl From<[u64; 7]> for Stamp {
    fn from(numbers: [u64; 7]) -> Self {
        Self(numbers)
    }
}

/// Etags of files that have not changed since.
#[derive(Default)]
pub struct Etags(Mutex<HashMap<Stamp, [u8; 16]>>);

impl Etags {
    /// The etag of an open file, and the file as it was described when that was sure.
    pub fn of(
        &self,
        file: &File,
        about: &Stat,
        clock: &dyn Clock,
        path: &Path,
    ) -> Result<String, Fault> {
        if let Some(told) = self.told(about) {
            return Ok(told);
        }
        let digest = digest(file).map_err(|error| fault(error, path))?;
        self.remember(Stamp::of(about), digest, about, clock);
        Ok(shown(&digest))
    }

    /// The same where all of it has been read.
    pub fn of_read(&self, all: &[u8], about: &Stat, clock: &dyn Clock) -> String {
        let known = self.told(about);
        known.unwrap_or_else(|| self.of_whole(all, about, clock))
    }

    /// The etag of a file that need not be read for it.
    fn told(&self, about: &Stat) -> Option<String> {
        let stamp = Stamp::of(about);
        if size(about) > HASHED_BYTES_MAX {
            return Some(stamp.etag());
        }
        self.known().get(&stamp).map(shown)
    }

    /// The etag of bytes that are all of a file.
    pub fn of_whole(&self, bytes: &[u8], about: &Stat, clock: &dyn Clock) -> String {
        let stamp = Stamp::of(about);
        if bytes.len() as u64 > HASHED_BYTES_MAX {
            return stamp.etag();
        }
        let digest = half(&blake3::hash(bytes));
        self.remember(stamp, digest, about, clock);
        shown(&digest)
    }

    fn remember(&self, stamp: Stamp, digest: [u8; 16], about: &Stat, clock: &dyn Clock) {
        let written = modified(about).0.max(changed_ms(about));
        if clock.now().0 < written.saturating_add(SETTLED_MS) {
            return;
        }
        let mut known = self.known();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(stamp, digest);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Stamp, [u8; 16]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stamp {
    /// Of a file that is described.
    pub fn of(about: &Stat) -> Self {
        #[allow(
            clippy::unnecessary_cast,
            clippy::cast_sign_loss,
            reason = "the fields differ by architecture, and only have to differ"
        )]
        Self([
            about.st_dev as u64,
            about.st_ino as u64,
            about.st_size as u64,
            about.st_mtime as u64,
            about.st_mtime_nsec as u64,
            about.st_ctime as u64,
            about.st_ctime_nsec as u64,
        ])
    }

    fn etag(self) -> String {
        let mut hasher = blake3::Hasher::new();
        for number in self.0 {
            hasher.update(&number.to_le_bytes());
        }
        format!("st-{}", encode_hex(&half(&hasher.finalize())))
    }
}

/// The size of a file.
pub fn size(about: &Stat) -> u64 {
    u64::try_from(about.st_size).unwrap_or(0)
}

/// When it was written to.
pub fn modified(about: &Stat) -> Timestamp {
    Timestamp(ms(about.st_mtime, about.st_mtime_nsec))
}

fn changed_ms(about: &Stat) -> u64 {
    ms(about.st_ctime, about.st_ctime_nsec)
}

fn ms(seconds: impl TryInto<u64>, nanos: impl TryInto<u64>) -> u64 {
    let seconds = seconds.try_into().unwrap_or(0);
    seconds.saturating_mul(1000) + nanos.try_into().unwrap_or(0) / 1_000_000
}

fn digest(file: &File) -> rustix::io::Result<[u8; 16]> {
    let mut hasher = blake3::Hasher::new();
    let (mut chunk, mut at) = (vec![0; 64 * 1024], 0);
    loop {
        let read = file.read_at(&mut chunk, at).map_err(|error| {
            rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO)
        })?;
        if read == 0 {
            return Ok(half(&hasher.finalize()));
        }
        hasher.update(&chunk[..read]);
        at += read as u64;
    }
}

fn half(hash: &blake3::Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

pub(crate) fn shown(digest: &[u8; 16]) -> String {
    format!("b3-{}", encode_hex(digest))
}
