//! What a child says beside its output: read, passed to the sink, its end kept, and slowed
//! down when it is a flood.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use callgate_call::{Sink, Stream};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::tail::Tail;

/// What a call may say at full speed.
const FREE_BYTES: u64 = 1024 * 1024;

/// How long a flood is left to wait after each read. With a pipe's 64 KiB that makes some
/// 12 MiB a second, at next to no cost to the gate.
const FLOOD_PAUSE: Duration = Duration::from_millis(5);

const READ_BYTES: usize = 64 * 1024;

/// The most that is read once the child has ended or answered: what a pipe can hold.
const REST_BYTES_MAX: usize = 1024 * 1024;

/// One of a child's own streams.
#[derive(Debug)]
pub(crate) struct Chatter {
    stream: Stream,
    pipe: Option<pipe::Receiver>,
    /// Bytes of the current call.
    said: u64,
    paused_until: Option<Instant>,
}

impl Chatter {
    /// The reading end, and the writing end for the child.
    pub fn new(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (near, far) = io::pipe()?;
        let pipe = pipe::Receiver::from_owned_fd(near.into())?;
        Ok((
            Self {
                stream,
                pipe: Some(pipe),
                said: 0,
                paused_until: None,
            },
            far.into(),
        ))
    }

    /// A stream that says nothing: what the child writes there goes another way.
    pub fn silent(stream: Stream) -> Self {
        Self {
            stream,
            pipe: None,
            said: 0,
            paused_until: None,
        }
    }

    /// A new call begins.
    pub fn begin(&mut self) {
        self.said = 0;
        self.paused_until = None;
    }

    /// Reads and passes on for as long as it is polled. Cancel safe: what was read was
    /// passed on in the same step.
    pub async fn pump(&mut self, tail: &mut Tail, sink: &dyn Sink) {
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
            let mut buffer = vec![0; READ_BYTES];
            match pipe.try_read(&mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    self.pass(&buffer[..read], tail, sink);
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
    pub fn pass_rest(&mut self, tail: &mut Tail, sink: &dyn Sink) {
        let mut buffer = vec![0; READ_BYTES];
        let mut rest = 0;
        while let Some(pipe) = &self.pipe
            && rest < REST_BYTES_MAX
        {
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => self.pipe = None,
                Ok(read) => {
                    rest += read;
                    self.pass(&buffer[..read], tail, sink);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// The descriptor, while it is open.
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.pipe.as_ref().map(|pipe| pipe.as_fd())
    }

    fn pass(&mut self, bytes: &[u8], tail: &mut Tail, sink: &dyn Sink) {
        self.said += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        tail.push(bytes);
        sink.chunk(self.stream, bytes);
    }
}
