//! Standard input and output as an async program sees them, whatever they are: pipe, file,
//! terminal or socket. Their flags are left alone, because they are shared with whoever
//! started us.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reads whatever is there.
pub struct PipeReader {
    fd: OwnedFd,
    /// `None` for regular files, which are always ready and which epoll refuses.
    ready: Option<AsyncFd<OwnedFd>>,
}

impl PipeReader {
    /// Reads from a copy of `fd`. Must be called inside a runtime.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let watched = fd.try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "an OwnedFd stays open and the same, which is all its successor asks, in unsafe code"
        )]
        let registered = AsyncFd::with_interest(watched, Interest::READABLE);
        let ready = match registered {
            Ok(ready) => Some(ready),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
        Ok(Self {
            fd: fd.try_clone_to_owned()?,
            ready,
        })
    }

    /// Waits for bytes and reads some; 0 is the end.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(ready) = &self.ready {
                // Readiness may be stale; `poll` below tells, so that the descriptor can stay
                // blocking and a read never does.
                let mut guard = ready.readable().await?;
                if !has_input(self.fd.as_fd())? {
                    guard.clear_ready();
                    continue;
                }
            }
            match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(count) => return Ok(count),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
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

fn has_input(fd: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut fds, Some(&now)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Writes everything, waiting for the reader: backpressure is the point.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
