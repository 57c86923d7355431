//! Words that count once, for a while: what came with a signed request must not count again, in no
//! process and after no restart. Each is an empty file, `nonces/UNTIL-DIGEST`, whose name says until
//! when (ms) it is remembered; whoever looks holds the folder's lock.

use std::fs::File;
use std::path::Path;

use callgate_call::{Digest, Timestamp};
use rustix::fs::{FlockOperation, flock};

use crate::{Store, StoreError, make_private};

/// Nonces that are remembered at once; the next one is refused until some have had their time.
pub const NONCES_MAX: usize = 4096;

/// What came of a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nonce {
    /// It counts, this once.
    New,
    /// It came before.
    Seen,
    /// Too many are remembered to remember another.
    Full,
}

impl Store {
    /// Has a nonce count once until `until`.
    pub fn take_nonce(&self, nonce: &str, until: Timestamp) -> Result<Nonce, StoreError> {
        take(&self.dir.join("nonces"), nonce, until, self.clock.now())
    }
}

fn take(folder: &Path, nonce: &str, until: Timestamp, now: Timestamp) -> Result<Nonce, StoreError> {
    let failed = |error| StoreError::write(folder, error);
    make_private(folder)?;
    // Released when it is dropped: the folder is ours for as long as it is open.
    let lock = File::open(folder).map_err(failed)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let digest = Digest::of_bytes(nonce.as_bytes()).to_hex();
    let mut remembered = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('-'));
        let parts = parts.and_then(|(until, digest)| Some((until.parse::<u64>().ok()?, digest)));
        match parts {
            Some((until, _)) if until < now.0 => {
                std::fs::remove_file(entry.path()).map_err(failed)?;
            }
            Some((_, known)) if known == digest => return Ok(Nonce::Seen),
            _ => remembered += 1,
        }
    }
    if remembered >= NONCES_MAX {
        return Ok(Nonce::Full);
    }
    let path = folder.join(format!("{}-{digest}", until.0));
    File::create(&path).map_err(|error| StoreError::write(&path, error))?;
    Ok(Nonce::New)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    /// TH-150: nothing counts twice, whoever asks; nonces are forgotten with their time, and until
    /// then there is a bound.
    #[test]
    fn once_and_bounded() {
        let place = Place::new("nonces");
        let folder = place.0.join("nonces");
        let at = |nonce: &str, until, now| {
            take(&folder, nonce, Timestamp(until), Timestamp(now)).unwrap()
        };
        assert_eq!(at("0", 10, 0), Nonce::New);
        assert_eq!(at("0", 10, 0), Nonce::Seen);
        assert_eq!(at("0", 99, 10), Nonce::Seen, "at another time, too");
        for number in 1..NONCES_MAX {
            std::fs::write(folder.join(format!("10-{number}")), "").unwrap();
        }
        assert_eq!(at("new", 10, 10), Nonce::Full);
        assert_eq!(at("0", 10, 10), Nonce::Seen);
        assert_eq!(at("new", 20, 11), Nonce::New);
        assert_eq!(place.names("nonces").len(), 1, "the others had their time");
        let racing = || at("raced", 20, 11);
        let won = std::thread::scope(|scope| {
            let racers = [0; 8].map(|_| scope.spawn(racing));
            racers.map(|racer| racer.join().unwrap())
        });
        assert_eq!(won.iter().filter(|w| **w == Nonce::New).count(), 1);
    }
}
