//! Standard input and output as an async program sees them, whatever they are: pipe, file,
//! terminal or socket. Their flags are left alone, because they are shared with whoever
//! started us.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use rustix::pipe::PIPE_BUF;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reads whatever is there.
pub struct PipeReader {
    fd: OwnedFd,
    /// `None` for regular files, which are always ready and which epoll refuses.
    ready: Option<AsyncFd<OwnedFd>>,
    /// The end has been read.
    is_over: bool,
}

impl PipeReader {
    /// Reads from a copy of `fd`. Must be called inside a runtime.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: fd.try_clone_to_owned()?,
            ready: watch(fd, Interest::READABLE)?,
            is_over: false,
        })
    }

    /// Waits for bytes and reads some; 0 is the end.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(ready) = &self.ready {
                // Readiness may be stale; `poll` below tells, so that the descriptor can stay
                // blocking and a read never does.
                let mut guard = ready.readable().await?;
                if !is_ready(self.fd.as_fd(), PollFlags::IN)? {
                    guard.clear_ready();
                    continue;
                }
            }
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(count) => {
                    self.is_over = count == 0;
                    return Ok(count);
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ready once nobody can say anything more, whatever there is left to read. The end of a
    /// regular file is only found by reading.
    pub async fn over(&self) {
        if self.is_over {
            return;
        }
        // Not the registration that `read` waits by: one that has seen the end, while there is
        // something to read, would be ready for ever.
        if let Ok(Some(watched)) = watch(self.fd.as_fd(), Interest::READABLE) {
            // Stands for the end as well, and unlike what is readable for little else.
            while let Ok(mut guard) = watched.ready(Interest::PRIORITY).await {
                // An end is told in any case, but for half of one.
                if is_ready(self.fd.as_fd(), PollFlags::RDHUP).unwrap_or(true) {
                    return;
                }
                guard.clear_ready();
            }
        }
        std::future::pending().await
    }

    /// Reads to the end, or until there is more than `bytes_max`.
    pub async fn read_all(&mut self, bytes_max: usize) -> io::Result<Whole> {
        let mut all = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            let count = self.read(&mut chunk).await?;
            if count == 0 {
                return Ok(Whole::Bytes(all));
            }
            if all.len() + count > bytes_max {
                return Ok(Whole::TooLarge);
            }
            all.extend_from_slice(&chunk[..count]);
        }
    }
}

/// A whole input.
pub enum Whole {
    /// All of it.
    Bytes(Vec<u8>),
    /// More than was allowed; the rest was not read.
    TooLarge,
}

/// Writes without ever waiting inside the kernel, so that whoever waits for a reader can be
/// told to stop.
pub struct PipeWriter {
    fd: OwnedFd,
    /// `None` for regular files, as above.
    ready: Option<AsyncFd<OwnedFd>>,
}

impl PipeWriter {
    /// Writes to a copy of `fd`. Must be called inside a runtime.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self {
            fd: fd.try_clone_to_owned()?,
            ready: watch(fd, Interest::WRITABLE)?,
        })
    }

    /// Writes everything, waiting for the reader: backpressure is the point. Dropped midway, it
    /// leaves the rest unwritten.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// The same for a client that asks by `asks`. One that has ended that, and takes nothing
    /// for so long, has left all the same, though it may hold the other end for ever.
    pub async fn write_to_client(
        &self,
        mut bytes: &[u8],
        asks: &PipeReader,
        patience: Duration,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let left = async {
                asks.over().await;
                tokio::time::sleep(patience).await;
            };
            // `write` is cancel safe: bytes leave in the poll that returns their count. `left` is
            // made anew, so the patience begins again after each progress. Biased so that a pipe
            // with room is written to even if the patience is over.
            tokio::select! {
                biased;
                count = self.write(bytes) => bytes = &bytes[count?..],
                () = left => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
        Ok(())
    }

    /// Writes some bytes as soon as there is room.
    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.write_some(bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.room().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ready once nobody can read what is written. A regular file is always read.
    pub async fn unheard(&self) {
        while let Some(ready) = &self.ready {
            let Ok(mut guard) = ready.writable().await else {
                break;
            };
            // A reader that leaves is told in any case, whatever one asks for.
            if is_ready(self.fd.as_fd(), PollFlags::empty()).unwrap_or(true) {
                return;
            }
            guard.clear_ready();
        }
        std::future::pending().await
    }

    /// Writes as much as there is room for; `AGAIN` if there is none.
    fn write_some(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // Says "do not wait" for this one write: the flag of the descriptor is not ours.
        let here = u64::MAX;
        let slices = [IoSlice::new(bytes)];
        match pwritev2(&self.fd, &slices, here, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => self.write_piece(bytes),
            written => written,
        }
    }

    /// The same for terminals, regular files and the pipes of old kernels: where there is room
    /// at all, there is room for this much.
    fn write_piece(&self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.ready.is_none() {
            return rustix::io::write(&self.fd, bytes);
        }
        if !is_ready(self.fd.as_fd(), PollFlags::OUT)? {
            return Err(Errno::AGAIN);
        }
        rustix::io::write(&self.fd, &bytes[..bytes.len().min(PIPE_BUF)])
    }

    async fn room(&self) -> io::Result<()> {
        while let Some(ready) = &self.ready {
            let mut guard = ready.writable().await?;
            if is_ready(self.fd.as_fd(), PollFlags::OUT)? {
                break;
            }
            guard.clear_ready();
        }
        Ok(())
    }
}

/// Asks the runtime to tell when `fd` is ready; `None` for what always is.
fn watch(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Option<AsyncFd<OwnedFd>>> {
    match register(fd.try_clone_to_owned()?, interest) {
        Ok(ready) => Ok(Some(ready)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same for what owns its descriptor.
#[expect(
    deprecated,
    reason = "what owns a descriptor keeps it open and the same, which is all its successor asks, in unsafe code"
)]
pub(crate) fn register<T: AsRawFd + Into<OwnedFd>>(
    owned: T,
    interest: Interest,
) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(owned, interest)
}

/// Ready once the other end of a socket is closed altogether, not only for one direction.
pub(crate) async fn hung_up(fd: BorrowedFd<'_>) {
    // A registration that is told of reading knows the first half as an end already.
    if let Ok(Some(watched)) = watch(fd, Interest::PRIORITY) {
        while let Ok(mut guard) = watched.ready(Interest::PRIORITY).await {
            if is_ready(fd, PollFlags::empty()).unwrap_or(true) {
                return;
            }
            guard.clear_ready();
        }
    }
    std::future::pending().await
}

/// Asks the kernel, without waiting.
fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> Result<bool, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut fds, Some(&now)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes everything, however long the reader takes.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    /// Every kind of standard output gets every byte, and a pipe that is full is waited for.
    #[tokio::test]
    async fn all_is_written_whatever_it_is() {
        let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| n as u8).collect();
        let (reader, writer) = io::pipe().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = std::fs::File::from(memory());
        let heard = [OwnedFd::from(reader), far.into()].map(|fd| {
            std::thread::spawn(move || {
                let mut all = Vec::new();
                std::fs::File::from(fd).read_to_end(&mut all).map(|_| all)
            })
        });
        let sinks: [OwnedFd; 3] = [writer.into(), near.into(), file.try_clone().unwrap().into()];
        for sink in sinks {
            let pipe = PipeWriter::new(sink.as_fd()).unwrap();
            pipe.write_all(&bytes).await.unwrap();
        }
        for heard in heard {
            assert_eq!(heard.join().unwrap().unwrap(), bytes);
        }
        assert_eq!(file.metadata().unwrap().len(), bytes.len() as u64);
    }

    /// Nobody reads: the wait can be given up, and the flags of the pipe are as they were.
    #[tokio::test]
    async fn a_wait_for_a_reader_can_be_given_up() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let pipe = PipeWriter::new(writer.as_fd()).unwrap();
        let bytes = vec![7; 1 << 20];
        tokio::select! {
            biased;
            _ = pipe.write_all(&bytes) => panic!("nobody reads"),
            () = std::future::ready(()) => {}
        }
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
        drop(pipe);
        let mut some = [0; 1 << 16];
        reader.read_exact(&mut some).unwrap();
        writer.write_all(b"x").unwrap();
    }

    /// Nobody reads, and nothing more is asked: that is waited for so long and no longer. While
    /// there is somebody to ask, it is waited for.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_left_without_reading_is_given_up() {
        let (_reader, writer) = io::pipe().unwrap();
        let (asked, asks) = io::pipe().unwrap();
        let pipe = PipeWriter::new(writer.as_fd()).unwrap();
        let asked = PipeReader::new(asked.as_fd()).unwrap();
        let bytes = vec![7; 1 << 20];
        let patience = Duration::from_secs(5);
        let mut written = std::pin::pin!(pipe.write_to_client(&bytes, &asked, patience));
        tokio::select! {
            biased;
            _ = &mut written => panic!("nobody reads"),
            () = tokio::time::sleep(100 * patience) => {}
        }
        drop(asks);
        let error = written.await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    /// A reader that leaves is noticed without a write, before the wait and during it.
    #[tokio::test]
    async fn a_reader_that_leaves_is_noticed() {
        let (reader, writer) = io::pipe().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        for (ours, theirs) in [
            (OwnedFd::from(writer), OwnedFd::from(reader)),
            (near.into(), far.into()),
        ] {
            let pipe = PipeWriter::new(ours.as_fd()).unwrap();
            let mut unheard = std::pin::pin!(pipe.unheard());
            tokio::select! {
                biased;
                () = &mut unheard => panic!("it is there"),
                () = tokio::task::yield_now() => {}
            }
            pipe.write_all(b"x").await.unwrap();
            drop(theirs);
            unheard.await;
            pipe.unheard().await;
            assert!(pipe.write_all(b"x").await.is_err());
        }
    }

    /// The end is noticed with bytes still unread, before the wait and during it, and those can
    /// be read all the same.
    #[tokio::test]
    async fn an_end_is_noticed_before_it_is_read() {
        let (reader, writer) = io::pipe().unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let (half, other) = std::os::unix::net::UnixStream::pair().unwrap();
        for (ours, theirs, closes) in [
            (OwnedFd::from(reader), OwnedFd::from(writer), true),
            (near.into(), far.into(), true),
            (half.into(), other.into(), false),
        ] {
            rustix::io::write(&theirs, b"unread").unwrap();
            let mut pipe = PipeReader::new(ours.as_fd()).unwrap();
            {
                let mut over = std::pin::pin!(pipe.over());
                tokio::select! {
                    biased;
                    () = &mut over => panic!("it is there"),
                    () = tokio::task::yield_now() => {}
                }
                let kept = if closes {
                    drop(theirs);
                    None
                } else {
                    rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).unwrap();
                    Some(theirs)
                };
                over.await;
                drop(kept);
            }
            pipe.over().await;
            let mut bytes = [0; 16];
            assert_eq!(pipe.read(&mut bytes).await.unwrap(), 6);
            assert_eq!(pipe.read(&mut bytes).await.unwrap(), 0);
        }
    }

    fn memory() -> OwnedFd {
        rustix::fs::memfd_create("sink", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
    }
}
