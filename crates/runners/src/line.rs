//! Our end of what a worker or a container is asked and answers by: a socket that wakes us when
//! there is something to read, and for room to write only while we wait for that. Told of both
//! we would be woken twice a call, once by the worker's having read its request.

use std::io::{
    self,
    ErrorKind::{Interrupted, WouldBlock},
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::SendFlags;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::{Receiver, Sender};

/// Room for what is read at once.
const READ_BYTES: usize = 8 * 1024;

#[derive(Debug)]
pub(crate) struct Line {
    /// A socket, heard as a pipe is: those are told of one direction only.
    near: Receiver,
    /// The same socket, while we wait for room in it.
    room: Option<Sender>,
}

impl Line {
    /// Ours, and the other's.
    pub fn pair() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let line = Self {
            near: Receiver::from_owned_fd_unchecked(near.into())?,
            room: None,
        };
        Ok((line, far.into()))
    }

    /// Writes what there is room for: nothing, if none.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let written = match &self.room {
            // It has to know when it is full again.
            Some(room) => room.try_write(bytes),
            None => Ok(rustix::net::send(&self.near, bytes, SendFlags::NOSIGNAL)?),
        };
        match written {
            Err(error) if matches!(error.kind(), WouldBlock | Interrupted) => Ok(0),
            written => written,
        }
    }

    /// Waits for bytes: how many, none at the end. With `or_room` it also returns, without an
    /// answer, when there may be room to write.
    pub async fn read(&mut self, into: &mut Vec<u8>, or_room: bool) -> io::Result<Option<usize>> {
        into.reserve(READ_BYTES);
        if !or_room {
            self.room = None;
            return self.near.read_buf(into).await.map(Some);
        }
        let room = match &mut self.room {
            Some(room) => room,
            none => {
                let same = self.near.as_fd().try_clone_to_owned()?;
                none.insert(Sender::from_owned_fd_unchecked(same)?)
            }
        };
        // `read_buf` is cancel safe and `writable` writes nothing. Biased so that a reply is read
        // before more is written: a worker may wait for that before it reads on.
        tokio::select! {
            biased;
            count = self.near.read_buf(into) => count.map(Some),
            ready = room.writable() => ready.map(|()| None),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
