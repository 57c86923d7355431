//! The executor's stdin: the run request, then acknowledgements. Nobody waits for an executor
//! that does not read: what the pipe does not take is kept, up to a bound.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Acknowledgements that wait to be read, beside what the pipe holds. Each has some 50 bytes,
/// or as many as its error: a script that waits for one before it writes the next has one.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// What the pipe is asked to hold, so that a run request is there before its executor.
const PIPE_BYTES_MAX: usize = 1024 * 1024;
const PIPE_BYTES_USUAL: usize = 64 * 1024;

/// Too much waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unread;

/// The near end of stdin.
pub(super) struct Acks {
    /// Nothing once the executor has closed its own.
    pipe: Option<OwnedFd>,
    /// The rest of the run request, then acknowledgements.
    waiting: Vec<u8>,
    written: usize,
    /// What of `waiting` is the request's.
    request_bytes: usize,
}

impl Acks {
    /// Puts the request into the pipe, which must not block, as far as it goes.
    pub fn new(pipe: OwnedFd, request: Vec<u8>) -> Self {
        if request.len() > PIPE_BYTES_USUAL {
            // Refused where the user's pipes are full; then the rest is written later.
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe, request.len().min(PIPE_BYTES_MAX));
        }
        let mut acks = Self {
            pipe: Some(pipe),
            request_bytes: request.len(),
            waiting: request,
            written: 0,
        };
        acks.write();
        acks
    }

    /// Of an executor that is not there.
    pub fn closed() -> Self {
        Self {
            pipe: None,
            waiting: Vec::new(),
            written: 0,
            request_bytes: 0,
        }
    }

    /// One more frame, written at once if there is room.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Unread> {
        if self.pipe.is_none() {
            return Ok(()); // It wants none.
        }
        self.waiting.extend_from_slice(frame);
        self.write();
        if self.written > WAITING_BYTES_MAX {
            self.waiting.drain(..self.written);
            self.request_bytes = self.request_bytes.saturating_sub(self.written);
            self.written = 0;
        }
        let unread = self.waiting.len() - self.written.max(self.request_bytes);
        if unread > WAITING_BYTES_MAX {
            return Err(Unread);
        }
        Ok(())
    }

    /// What to wait for, where something waits.
    pub fn waits(&self) -> Option<BorrowedFd<'_>> {
        let pipe = self.pipe.as_ref()?;
        (self.written < self.waiting.len()).then(|| pipe.as_fd())
    }

    /// Writes what the pipe takes.
    pub fn write(&mut self) {
        while let Some(pipe) = &self.pipe
            && self.written < self.waiting.len()
        {
            match rustix::io::write(pipe, &self.waiting[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.pipe = None,
            }
        }
        // Written or in vain: also the request, in which a password may be.
        (self.waiting, self.written, self.request_bytes) = (Vec::new(), 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn pipe() -> (std::io::PipeReader, OwnedFd) {
        let (far, near) = std::io::pipe().unwrap();
        let near = OwnedFd::from(near);
        rustix::io::ioctl_fionbio(&near, true).unwrap();
        (far, near)
    }

    /// ST-10: the request is whole and first, however slowly it is read.
    #[test]
    fn a_large_request_comes_whole() {
        let (mut far, near) = pipe();
        let request: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut acks = Acks::new(near, request.clone());
        acks.push(b"ack").unwrap();
        let mut read = Vec::new();
        let mut buffer = vec![0; 100_000];
        while read.len() < request.len() + 3 {
            acks.write();
            let count = far.read(&mut buffer).unwrap();
            read.extend_from_slice(&buffer[..count]);
        }
        assert!(acks.waits().is_none());
        assert_eq!(&read[..request.len()], &request);
        assert_eq!(&read[request.len()..], b"ack");
    }

    #[test]
    fn an_executor_that_does_not_read_is_not_waited_for() {
        let (far, near) = pipe();
        let mut acks = Acks::new(near, b"{}\n".to_vec());
        let frame = [7; 50];
        let taken = (0..).take_while(|_| acks.push(&frame).is_ok()).count();
        // The pipe's own 64 KiB, and ours.
        assert!((2000..6000).contains(&taken), "{taken}");
        drop(far);
        // One that has closed its stdin wants none.
        assert_eq!(acks.push(&frame), Ok(()));
        assert!(acks.waits().is_none());
    }
}
