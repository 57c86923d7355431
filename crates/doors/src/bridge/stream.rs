//! A connection that carries frames.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use callgate_wires::bridge::{FrameDecoder, FrameError};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::coop::consume_budget;

use crate::pipe::{hung_up, register};

/// Largest read.
const READ_BYTES: usize = 16 * 1024;

/// One connection. It is watched for what comes and not for room to write: of a Unix socket
/// that is told whenever the peer has read something, and would wake us once for every answer.
pub(super) struct Frames {
    stream: AsyncFd<UnixStream>,
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
    /// Takes over a connection. Must be called inside a runtime.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        Ok(Self {
            stream: register(stream.into_std()?, Interest::READABLE)?,
            decoder: FrameDecoder::default(),
            chunk: vec![0; READ_BYTES],
        })
    }

    /// The next payload; `None` at an end between two frames. Cancel-safe: bytes leave the
    /// socket only when the read returns them, and are in the decoder before the next wait.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        loop {
            if let Some(payload) = self.decoder.next_frame()? {
                return Ok(Some(payload.to_vec()));
            }
            match self.read().await? {
                0 => {
                    self.decoder.finish()?;
                    return Ok(None);
                }
                count => self.decoder.feed(&self.chunk[..count]),
            }
        }
    }

    async fn read(&mut self) -> io::Result<usize> {
        loop {
            consume_budget().await;
            let mut guard = self.stream.readable().await?;
            match guard.try_io(|stream| stream.get_ref().read(&mut self.chunk)) {
                Ok(Ok(count)) => {
                    // That was all there is: what comes next is told anew.
                    if count < self.chunk.len() {
                        guard.clear_ready();
                    }
                    return Ok(count);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }

    /// Writes frames, waiting for the reader.
    pub async fn write(&mut self, mut frames: &[u8]) -> io::Result<()> {
        // However much a peer asks at once, others have their turn between its answers.
        consume_budget().await;
        let mut stream = self.stream.get_ref();
        // Watched for room only while there is none.
        let mut room = None;
        while !frames.is_empty() {
            match stream.write(frames) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => frames = &frames[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let watched = match room.take() {
                        Some(watched) => watched,
                        None => register(stream.try_clone()?, Interest::WRITABLE)?,
                    };
                    // One that was told of before the write that failed is no news.
                    watched.writable().await?.clear_ready();
                    room = Some(watched);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ready once the peer has closed the connection. A peer that has only finished sending
    /// still reads.
    pub async fn closed(&self) {
        // Nothing is read meanwhile, so that a frame sent too early waits its turn.
        if self.stream.ready(Interest::PRIORITY).await.is_ok() {
            // One half at least, and most often both: then this is ready at once.
            hung_up(self.stream.get_ref().as_fd()).await;
        }
    }

    /// True if the connection can carry another exchange: open, and nothing unasked on it.
    pub fn is_fresh(&self) -> bool {
        let mut byte = [0];
        let quiet = matches!(
            self.stream.get_ref().read(&mut byte),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock
        );
        quiet && self.decoder.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::yield_now;

    /// A connection, and its blocking other end.
    fn pair() -> (Frames, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let near = tokio::net::UnixStream::from_std(near).unwrap();
        (Frames::new(near).unwrap(), far)
    }

    /// What the socket has no room for waits for the reader, and comes whole and in order; what
    /// the reader says meanwhile is not lost.
    #[tokio::test]
    async fn more_than_there_is_room_for() {
        let (mut frames, mut far) = pair();
        let large: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
        let wanted = large.clone();
        let reader = std::thread::spawn(move || {
            far.write_all(b"\0\0\0\x02{}").unwrap();
            let mut came = vec![0; wanted.len()];
            far.read_exact(&mut came).unwrap();
            assert!(came == wanted);
            far
        });
        frames.write(&large).await.unwrap();
        let mut far = reader.join().unwrap();
        assert_eq!(frames.next().await.unwrap().unwrap(), b"{}");
        far.write_all(b"\0\0\0\x02").unwrap();
        far.write_all(b"[]").unwrap();
        assert_eq!(frames.next().await.unwrap().unwrap(), b"[]");
        drop(far);
        assert!(frames.next().await.unwrap().is_none());
        assert!(frames.write(b"x").await.is_err());
    }

    /// Who has asked many things at once is answered in turns with others.
    #[tokio::test]
    async fn others_have_their_turn() {
        const MANY: usize = 200;
        let (mut frames, mut far) = pair();
        far.write_all(&b"\0\0\0\x02{}".repeat(MANY)).unwrap();
        let answered = tokio::spawn(async move {
            frames.next().await.unwrap().unwrap();
            // From here on everything is there.
            let other = tokio::spawn(async {});
            for _ in 1..MANY {
                frames.write(b"\0\0\0\x02{}").await.unwrap();
                frames.next().await.unwrap().unwrap();
            }
            other.is_finished()
        });
        assert!(answered.await.unwrap());
        drop(far);
    }

    /// A peer that has finished sending is there until it closes.
    #[tokio::test]
    async fn half_an_end_is_none() {
        let (frames, far) = pair();
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
