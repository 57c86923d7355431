//! Nannies of the gate's that have nothing to do, each at the far end of its leash.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::gate::spawner::Link;
use crate::message::DESCRIPTORS_MAX;

/// Nannies that are kept while nobody needs them.
const IDLE_MAX: usize = 8;

/// How long to wait when more descriptors are on their way than the kernel lets us have.
const CROWDED: Duration = Duration::from_millis(1);

/// The near end of a socket whose far end a nanny has.
#[derive(Debug)]
pub(crate) struct Leash {
    // First, so that a tree is being ended when the link waits for the spawner.
    pub stream: UnixStream,
    pub link: Arc<Link>,
    pub kind: Kind,
}

/// What the children of a nanny have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// They are confined. Their nanny may have given up for good what none of them is to have,
    /// and so can have no others.
    pub confined: bool,
    /// They are held together by a group, in which their nanny may be as well.
    pub grouped: bool,
    /// They share user and pid namespaces with their nanny.
    pub by_user: bool,
}

impl Leash {
    /// The two ends of a leash: ours on the runtime, theirs blocking.
    pub fn pair() -> io::Result<(UnixStream, OwnedFd)> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_nonblocking(true)?;
        Ok((UnixStream::from_std(near)?, far.into()))
    }

    /// Sends an order with the descriptors it hands over.
    pub async fn send(&self, order: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut sent = 0;
        while sent < order.len() {
            // They go with the first bytes.
            let with = if sent == 0 { descriptors } else { &[] };
            match send_some(&self.stream, &order[sent..], with) {
                Ok(bytes) => sent += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS | Errno::TOOMANYREFS) => tokio::time::sleep(CROWDED).await,
                Err(Errno::AGAIN) => self.room().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits until the socket takes more.
    async fn room(&self) -> io::Result<()> {
        // What the runtime takes for writable was found not to be.
        let full = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.stream.try_io(Interest::WRITABLE, full);
        self.stream.writable().await
    }
}

fn send_some(
    stream: &UnixStream,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags)
}

/// Nannies with nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Vec<Kept>>);

/// A leash that belongs to no runtime: whoever takes it next may be on another than whoever
/// had it, and that one may be gone.
#[derive(Debug)]
struct Kept {
    stream: std::os::unix::net::UnixStream,
    link: Arc<Link>,
    kind: Kind,
}

impl Idle {
    /// The one for such children that was busy last. Those of a spawner that has died are let
    /// go: they are about to end.
    pub fn take(&self, kind: Kind) -> Option<Leash> {
        let mut idle = self.lock();
        while let Some(at) = idle.iter().rposition(|kept| kept.kind == kind) {
            let Kept { stream, link, .. } = idle.remove(at);
            if link.is_alive()
                && let Ok(stream) = UnixStream::from_std(stream)
            {
                return Some(Leash { stream, link, kind });
            }
        }
        None
    }

    /// Keeps one for later. Where there are enough, the one that waited longest goes.
    pub fn put(&self, leash: Leash) {
        let Leash { stream, link, kind } = leash;
        let Ok(stream) = stream.into_std() else {
            return;
        };
        let mut idle = self.lock();
        if idle.len() >= IDLE_MAX {
            idle.remove(0);
        }
        idle.push(Kept { stream, link, kind });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
