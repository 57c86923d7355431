//! Waiting for descriptors, in the spawner and its nannies.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until one of `fds` has something to read, an end or an error, and says which have.
/// Without a limit it waits for ever; at the limit it says none.
pub(crate) fn readable<const N: usize>(
    fds: &[BorrowedFd<'_>; N],
    limit_ms: Option<i64>,
) -> [bool; N] {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let limit = limit_ms.map(|ms| Timespec {
        tv_sec: ms / 1000,
        tv_nsec: (ms % 1000) * 1_000_000,
    });
    match poll(&mut polled, limit.as_ref()) {
        Ok(_) => polled.map(|fd| !fd.revents().is_empty()),
        // A signal; the caller looks again.
        Err(_) => [false; N],
    }
}

/// Forgets pending signals: whoever was told looks for all that may have happened.
pub(crate) fn clear(signals: BorrowedFd<'_>) {
    let mut buffer = [0; 512];
    while rustix::io::read(signals, &mut buffer).is_ok_and(|read| read == buffer.len()) {}
}
