//! A connection that carries frames.

use std::io;
use std::os::fd::AsFd as _;

use callgate_wires::bridge::{FrameDecoder, FrameError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

use crate::pipe::hung_up;

/// Largest read.
const READ_BYTES: usize = 16 * 1024;

/// One connection.
pub(super) struct Frames {
    stream: UnixStream,
    decoder: FrameDecoder,
    chunk: Vec<u8>,
}

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// Reading failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// What came are no frames.
    #[error("{0}")]
    Frame(#[from] FrameError),
}

impl Frames {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            decoder: FrameDecoder::default(),
            chunk: vec![0; READ_BYTES],
        }
    }

    /// The next payload; `None` at an end between two frames. Cancel-safe: bytes leave the
    /// socket only when the read returns them, and are in the decoder before the next wait.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        loop {
            if let Some(payload) = self.decoder.next_frame()? {
                return Ok(Some(payload.to_vec()));
            }
            match self.stream.read(&mut self.chunk).await? {
                0 => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
                count => self.decoder.feed(&self.chunk[..count]),
            }
        }
    }

    /// Writes frames, waiting for the reader.
    pub async fn write(&mut self, frames: &[u8]) -> io::Result<()> {
        self.stream.write_all(frames).await
    }

    /// Ready once the peer has closed the connection. A peer that has only finished sending
    /// still reads.
    pub async fn closed(&self) {
        // Nothing is read meanwhile, so that a frame sent too early waits its turn.
        if self.stream.ready(Interest::PRIORITY).await.is_ok() {
            // One half at least, and most often both: then this is ready at once.
            hung_up(self.stream.as_fd()).await;
        }
    }

    /// True if the connection can carry another exchange: open, and nothing unasked on it.
    pub fn is_fresh(&self) -> bool {
        let mut byte = [0];
        let quiet = matches!(
            self.stream.try_read(&mut byte),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        );
        quiet && self.decoder.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    /// A peer that has finished sending is there until it closes.
    #[tokio::test]
    async fn half_an_end_is_none() {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let frames = Frames::new(UnixStream::from_std(near).unwrap());
        let mut closed = std::pin::pin!(frames.closed());
        let seen = async |rounds: usize| {
            for _ in 0..rounds {
                yield_now().await;
            }
        };
        for half in [false, true] {
            if half {
                far.shutdown(std::net::Shutdown::Write).unwrap();
            }
            tokio::select! {
                biased;
                () = &mut closed => panic!("it is there"),
                () = seen(1000) => {}
            }
        }
        drop(far);
        closed.await;
        frames.closed().await;
    }
}
