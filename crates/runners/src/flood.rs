//! The near end of a pipe that a child may flood: always read, and slowed down once the child has
//! said more than is any use.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::Instant;

/// What may be said at full speed.
pub(crate) const FREE_BYTES: u64 = 1024 * 1024;

/// How long a flood is left to wait after each read. With a pipe's 64 KiB that makes some
/// 12 MiB a second, at next to no cost to the gate.
pub(crate) const FLOOD_PAUSE: Duration = Duration::from_millis(5);

const READ_BYTES: usize = 64 * 1024;

/// The most that is read once the child has ended or answered: what a pipe can hold.
const REST_BYTES_MAX: usize = 1024 * 1024;

/// A pipe that is read with patience.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    pipe: Option<pipe::Receiver>,
    /// Bytes since the last beginning.
    said: u64,
    paused_until: Option<Instant>,
}

impl Flood {
    /// The reading end, and the writing end for the child.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = io::pipe()?;
        let flood = Self {
            pipe: Some(pipe::Receiver::from_owned_fd(near.into())?),
            ..Self::default()
        };
        Ok((flood, far.into()))
    }

    /// What was said so far is forgiven.
    pub fn begin(&mut self) {
        self.said = 0;
        self.paused_until = None;
    }

    /// Reads and passes on for as long as it is polled. Cancel safe: what was read was
    /// passed on in the same step.
    pub async fn pump(&mut self, mut pass: impl FnMut(&[u8])) {
        loop {
            if let Some(until) = self.paused_until {
                tokio::time::sleep_until(until).await;
                self.paused_until = None;
            }
            let Some(pipe) = &self.pipe else {
                return std::future::pending().await;
            };
            if pipe.readable().await.is_err() {
                self.pipe = None;
                continue;
            }
            // Made for the moment: many wait, and few have anything to say.
            let mut buffer = vec![0; READ_BYTES];
            match pipe.try_read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    self.said += read as u64;
                    pass(&buffer[..read]);
                    if self.said > FREE_BYTES {
                        self.paused_until = Some(Instant::now() + FLOOD_PAUSE);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Passes on what is there, without waiting. Asks the kernel, not the runtime, which
    /// may not have heard yet.
    pub fn pass_rest(&mut self, mut pass: impl FnMut(&[u8])) {
        let mut buffer = vec![0; READ_BYTES];
        let mut rest = 0;
        while let Some(pipe) = &self.pipe
            && rest < REST_BYTES_MAX
        {
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    rest += read;
                    self.said += read as u64;
                    pass(&buffer[..read]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// The descriptor, while it is open.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }
}
