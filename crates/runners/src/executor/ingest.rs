//! The thread that reads a run's stream. It never waits for anybody but the executor and the
//! store: while it is in the store it does not read, and the executor's pipe fills up.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

use callgate_wires::stream::Decoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::keep::{Halt, Keeper};
use super::leash::{Collar, Order};

/// What is read at once: it stays in the processor's cache on its way to the disk.
const READ_BYTES: usize = 128 * 1024;

/// All that came of a stream.
pub(super) struct Ingested {
    pub keeper: Keeper,
    /// Why it stopped before its end.
    pub halt: Option<Halt>,
    /// Nothing can come any more: the pipe was read to its end.
    pub is_over: bool,
}

impl Ingested {
    /// There was no stream.
    pub fn of_nothing(keeper: Keeper) -> Self {
        Self {
            keeper,
            halt: None,
            is_over: true,
        }
    }
}

/// Has `work` done on a thread of its own. What it works on comes back if there can be no thread.
pub(super) fn apart<K: Send + 'static, T: Send + 'static>(
    thread: Builder,
    keeper: K,
    work: impl FnOnce(K) -> T + Send + 'static,
) -> Result<oneshot::Receiver<T>, (io::Error, K)> {
    let (hand, take) = sync_channel(1);
    let (done, ended) = oneshot::channel();
    let started = thread.spawn(move || {
        if let Ok(keeper) = take.recv() {
            let _ = done.send(work(keeper));
        }
    });
    match started {
        Ok(_) => {
            // There is room for it.
            let _ = hand.send(keeper);
            Ok(ended)
        }
        Err(error) => Err((error, keeper)),
    }
}

/// Reads `stdout`, which must not block, to its end, or for as long as it is told to.
pub(super) fn ingest(stdout: &OwnedFd, collar: &Collar, mut keeper: Keeper) -> Box<Ingested> {
    let mut reader = Reader {
        stdout,
        collar,
        left: None,
        is_over: false,
    };
    let halt = reader.read_all(&mut keeper).err();
    let is_over = reader.is_over;
    Box::new(Ingested {
        keeper,
        halt,
        is_over,
    })
}

struct Reader<'a> {
    stdout: &'a OwnedFd,
    collar: &'a Collar,
    /// Bytes that were in the pipe when its executor was gone, and are not read yet. An escaped
    /// process may write more for ever.
    left: Option<u64>,
    is_over: bool,
}

impl Reader<'_> {
    fn read_all(&mut self, keeper: &mut Keeper) -> Result<(), Halt> {
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; READ_BYTES];
        while let Some(read) = self.read(&mut buffer, keeper)? {
            let mut rest = &buffer[..read];
            loop {
                let mut unread = rest;
                let Some(piece) = decoder.next(&mut unread)? else {
                    break;
                };
                let left = unread.len();
                keeper.piece(piece)?;
                rest = &rest[rest.len() - left..];
            }
            let all = &keeper.strides.bytes;
            all.fetch_add(read as u64, Ordering::Relaxed);
        }
        self.is_over = true;
        decoder.end()?;
        Ok(keeper.session.end()?)
    }

    /// Some bytes, waiting for them; nothing at the end.
    fn read(&mut self, buffer: &mut [u8], keeper: &mut Keeper) -> Result<Option<usize>, Halt> {
        loop {
            let max = match self.max(buffer.len()) {
                0 => return Ok(None),
                max => max,
            };
            match rustix::io::read(self.stdout, &mut buffer[..max]) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(read as u64);
                    }
                    return Ok(Some(read));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if self.left.is_some() => return Ok(None),
                Err(Errno::AGAIN) => self.wait(keeper)?,
                Err(error) => return Err(Halt::Stream(format!("read: {error}"))),
            }
        }
    }

    /// How much may be read now.
    fn max(&mut self, room: usize) -> usize {
        match (self.collar.order(), self.left) {
            (Order::Stop, _) => 0,
            (Order::Read, _) => room,
            (Order::Drain, None) => {
                // Where the kernel does not say, all that is there at present.
                let left = rustix::io::ioctl_fionread(self.stdout).unwrap_or(u64::MAX);
                self.left = Some(left);
                self.max(room)
            }
            (Order::Drain, Some(left)) => room.min(usize::try_from(left).unwrap_or(usize::MAX)),
        }
    }

    /// Until there may be more to read, or another order, or room for an acknowledgement. The
    /// store does meanwhile what it put off.
    fn wait(&self, keeper: &mut Keeper) -> Result<(), Halt> {
        let due = keeper.log.idle()?;
        let writable = keeper.acks.waits();
        let mut fds = vec![
            PollFd::new(self.stdout, PollFlags::IN),
            PollFd::new(&self.collar.wake, PollFlags::IN),
        ];
        if let Some(stdin) = &writable {
            fds.push(PollFd::new(stdin, PollFlags::OUT));
        }
        match poll(&mut fds, due.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(Halt::Stream(format!("poll: {error}"))),
        }
        let write = fds.get(2).is_some_and(|fd| !fd.revents().is_empty());
        if write {
            keeper.acks.write();
        }
        Ok(())
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a thread nothing is lost: a run whose reader can not be started can still be told
    /// as one that was not.
    #[tokio::test]
    async fn what_was_handed_over_comes_back() {
        let more_than_there_is = 1 << 47;
        let refused = apart(
            Builder::new().stack_size(more_than_there_is),
            "kept",
            str::len,
        );
        assert_eq!(refused.expect_err("no such stack").1, "kept");
        let done = apart(Builder::new(), "kept", str::len).expect("a thread");
        assert_eq!(done.await, Ok(4));
    }
}
