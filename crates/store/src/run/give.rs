//! Artifacts as people take them away: read once more to see that they are what was committed.

use std::io::{self, Read as _, Write};

use super::list::KeptArtifact;
use crate::Store;

/// One read.
const READ_BYTES: usize = 256 * 1024;

impl Store {
    /// Writes an artifact's bytes to `out`. An error at the end may mean that they were not those
    /// that were committed: whoever keeps them keeps them only then.
    pub fn give_artifact(&self, artifact: &KeptArtifact, out: &mut dyn Write) -> io::Result<()> {
        let damaged = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let file = self.content(&artifact.digest).map_err(io::Error::other)?;
        let mut file = file.ok_or_else(|| damaged("the bytes of the artifact are gone"))?;
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&buffer[..read]);
            out.write_all(&buffer[..read])?;
        }
        match hasher.finalize().as_bytes() == &artifact.digest.0 {
            true => Ok(()),
            false => Err(damaged(
                "the bytes of the artifact are not what was committed",
            )),
        }
    }
}
