//! What is on its way to a server's standard input: written at once where there is room, kept in
//! bounds where there is none. Who has kept something waits for room by [`Outbox::pipe`].

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

/// Bytes that wait for a server to read them. Past that it is sent nothing more.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Buffers that have grown beyond this are given back.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;

/// The near end of a server's standard input, and what waits for room in it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Kept after the server has stopped reading: what it did not read is still in there.
    pipe: Option<OwnedFd>,
    is_closed: bool,
    waiting: Vec<u8>,
    /// How much of `waiting` is written.
    gone: usize,
    /// Bytes written since the beginning.
    written: u64,
    message: Vec<u8>,
}

/// Why a message was not taken. Nothing of it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The server has not read what was sent before.
    Full,
    /// The server does not read any more.
    Closed,
}

impl Outbox {
    /// `pipe` must not block.
    pub fn new(pipe: OwnedFd) -> Self {
        Self {
            pipe: Some(pipe),
            ..Self::default()
        }
    }

    /// Sends what `write` appends: one message. Returns the number of its first byte, which is
    /// compared with `read_by_server` to know whether the server can have seen anything of it.
    pub fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u64, NotTaken> {
        let Some(pipe) = self.pipe.as_ref().filter(|_| !self.is_closed) else {
            return Err(NotTaken::Closed);
        };
        let waiting = self.waiting.len() - self.gone;
        let first = self.written + waiting as u64;
        self.message.clear();
        write(&mut self.message);
        if waiting > 0 && waiting + self.message.len() > WAITING_BYTES_MAX {
            return Err(NotTaken::Full);
        }
        let mut count = 0;
        if waiting == 0 {
            match try_write(pipe, &self.message) {
                Ok(written) => count = written,
                Err(_) => {
                    self.is_closed = true;
                    return Err(NotTaken::Closed);
                }
            }
            self.written += count as u64;
        }
        if count < self.message.len() {
            self.waiting.extend_from_slice(&self.message[count..]);
        }
        if self.message.capacity() > BUFFER_KEPT_BYTES {
            self.message = Vec::new();
        }
        Ok(first)
    }

    /// Writes what waits by `write`, as far as there is room.
    pub fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) {
        while self.is_waiting() && !self.is_closed() {
            match write(&self.waiting[self.gone..]) {
                Ok(count) => {
                    self.gone += count;
                    self.written += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.is_closed = true;
                    return;
                }
            }
        }
        self.waiting.clear();
        self.gone = 0;
        if self.waiting.capacity() > BUFFER_KEPT_BYTES {
            self.waiting = Vec::new();
        }
    }

    /// Returns whether something waits for room.
    pub fn is_waiting(&self) -> bool {
        self.gone < self.waiting.len()
    }

    /// Returns whether the server can read no more.
    pub fn is_closed(&self) -> bool {
        self.is_closed || self.pipe.is_none()
    }

    /// The bytes since the beginning that the server has read. Of a process that is gone nothing
    /// past these can have had an effect.
    pub fn read_by_server(&self) -> u64 {
        let unread = self.pipe.as_ref().map(rustix::io::ioctl_fionread);
        match unread {
            Some(Ok(unread)) => self.written.saturating_sub(unread),
            Some(Err(_)) | None => self.written,
        }
    }

    /// Another descriptor of the pipe, to wait for room by.
    pub fn pipe(&self) -> Option<io::Result<OwnedFd>> {
        let pipe = self.pipe.as_ref().filter(|_| !self.is_closed)?;
        Some(pipe.as_fd().try_clone_to_owned())
    }

    /// Closes the server's standard input. What waits is never written.
    pub fn close(&mut self) {
        self.pipe = None;
        self.waiting = Vec::new();
        self.gone = 0;
    }
}

/// Writes what there is room for: nothing, if none.
fn try_write(pipe: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match rustix::io::write(pipe, bytes) {
            Err(Errno::INTR) => {}
            Err(error) if io::Error::from(error).kind() == ErrorKind::WouldBlock => return Ok(0),
            written => return Ok(written?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn outbox() -> (Outbox, io::PipeReader) {
        let (far, near) = io::pipe().unwrap();
        let near = OwnedFd::from(near);
        rustix::io::ioctl_fionbio(&near, true).unwrap();
        (Outbox::new(near), far)
    }

    /// What a server has not read stays in bounds, and what was never written is known to be so.
    #[test]
    fn a_server_that_does_not_read_is_sent_a_bounded_amount() {
        let (mut outbox, mut far) = outbox();
        let block = vec![b'x'; 1024 * 1024];
        let send = |outbox: &mut Outbox| outbox.send(|out| out.extend_from_slice(&block));
        assert_eq!(send(&mut outbox), Ok(0));
        assert!(outbox.written > 0 && outbox.is_waiting());
        let second = send(&mut outbox).unwrap();
        assert!(second == 1024 * 1024 && outbox.written < second);
        assert_eq!(outbox.read_by_server(), 0);
        let mut some = [0; 1000];
        far.read_exact(&mut some).unwrap();
        assert_eq!(outbox.read_by_server(), 1000);
        while send(&mut outbox).is_ok() {}
        assert_eq!(send(&mut outbox), Err(NotTaken::Full));
        assert!(outbox.waiting.len() <= WAITING_BYTES_MAX);
        let mut buffer = vec![0; 64 * 1024];
        while outbox.is_waiting() {
            assert!(far.read(&mut buffer).unwrap() > 0);
            let pipe = outbox.pipe().unwrap().unwrap();
            outbox.flush(|bytes| Ok(rustix::io::write(&pipe, bytes)?));
        }
        assert!(outbox.waiting.capacity() <= BUFFER_KEPT_BYTES);
        let sent = outbox.written;
        drop(far);
        assert!(outbox.read_by_server() < sent);
        assert_eq!(send(&mut outbox), Err(NotTaken::Closed));
        assert!(outbox.is_closed());
    }
}
