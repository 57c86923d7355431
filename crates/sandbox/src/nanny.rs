//! One nanny per child: owns the child's tree, ends it when the call, the gate or the
//! spawner ends, and reports how it went. A fork of the spawner, without exec.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{SendFlags, send};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpid;

use crate::message::{ORDER_BYTES_MAX, Order, Report, Stage, read_order};
use crate::sys::{self, Fork, Pid, Reaped};
use crate::tool;
use crate::tree::{self, Ownership};
use crate::wait;

/// What a nanny is born with.
pub(crate) struct Nanny<'a> {
    /// To the gate: the order comes in, reports go out, its end means kill.
    pub leash: OwnedFd,
    /// Ends when the spawner does.
    pub lifeline: BorrowedFd<'a>,
    /// Shows our SIGCHLD.
    pub signals: BorrowedFd<'a>,
    pub ownership: Ownership,
}

impl Nanny<'_> {
    /// The whole life of a nanny.
    pub fn live(self, handed: Vec<OwnedFd>) -> ! {
        let _ = rustix::thread::set_name(c"callgate-nanny");
        if self.ownership == Ownership::Subreaper {
            // Without it orphans would leave the tree; it cannot fail since Linux 3.4.
            let _ = rustix::process::set_child_subreaper(Some(getpid()));
        }
        if let Some(order) = self.read_order() {
            match self.start(&order, handed) {
                Ok((main, report)) => self.watch(main, report),
                Err(errno) => self.report(Report::Failed {
                    stage: Stage::Fork,
                    errno,
                }),
            }
        }
        sys::exit_now(0)
    }

    /// The order, or nothing if the gate has gone away meanwhile.
    fn read_order(&self) -> Option<Order> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
        if length > ORDER_BYTES_MAX {
            return None;
        }
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes)?;
        read_order(&bytes)
    }

    fn read_exact(&self, mut buffer: &mut [u8]) -> Option<()> {
        while !buffer.is_empty() {
            match rustix::io::read(&self.leash, &mut *buffer) {
                Ok(0) => return None,
                Ok(read) => buffer = &mut buffer[read..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Forks the tool. Our copies of its descriptors are closed on return: a pipe whose
    /// writer we hold would never end.
    fn start(&self, order: &Order, handed: Vec<OwnedFd>) -> Result<(Pid, OwnedFd), i32> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.raw_os_error())?;
        match sys::fork(0) {
            Ok(Fork::Parent(main)) => Ok((main, ours)),
            Ok(Fork::Child) => tool::become_tool(order, handed, self.ownership, theirs),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EAGAIN)),
        }
    }

    /// Stays until the tool has ended or shall end, then leaves nothing behind.
    fn watch(&self, main: Pid, start: OwnedFd) {
        let mut start = Start {
            pipe: Some(start),
            bytes: Vec::new(),
        };
        let (mut status, mut abandoned) = (None, false);
        while status.is_none() {
            // Once the start is settled its place is taken by a descriptor that we watch
            // anyway.
            let fourth = start.pipe.as_ref().map_or(self.signals, OwnedFd::as_fd);
            let watched = [self.leash.as_fd(), self.lifeline, self.signals, fourth];
            let [leash, lifeline, signals, started] = wait::readable(&watched, None);
            if started && start.is_settled() {
                self.report_start(&start);
            }
            if leash || lifeline {
                abandoned = lifeline;
                break;
            }
            if signals {
                status = reap_until(main, self.signals);
            }
        }
        tree::end(self.ownership, self.signals, |pid, ended| {
            if pid == main {
                status = Some(ended);
            }
        });
        // A tool that ends at once may do so before its start was looked at.
        while start.pipe.is_some() {
            if start.is_settled() {
                self.report_start(&start);
            }
        }
        // How it was killed when the spawner was is not how it ended: to the gate it is lost.
        if let (Some(status), false, false) = (status, start.failed(), abandoned) {
            let (cpu, max_rss_bytes) = sys::descendants_usage();
            self.report(Report::Ended {
                status,
                cpu,
                max_rss_bytes,
            });
        }
    }

    fn report_start(&self, start: &Start) {
        match tool::read_report(&start.bytes) {
            Some((pid, None)) => self.report(Report::Started { pid }),
            Some((_, Some((stage, errno)))) => self.report(Report::Failed { stage, errno }),
            // Killed before it could speak: to the gate, a child that was lost.
            None => {}
        }
    }

    fn report(&self, report: Report) {
        // A gate that does not listen has gone, and the tree with it.
        let _ = send(&self.leash, &report.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// How far the tool has come on its way to exec.
struct Start {
    /// Open until it is settled.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Start {
    /// Reads what there is; true at the end, when exec has worked or has not.
    fn is_settled(&mut self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; 16];
        match rustix::io::read(pipe, &mut buffer) {
            Ok(0) | Err(_) => {
                self.pipe = None;
                true
            }
            Ok(read) => {
                self.bytes.extend_from_slice(&buffer[..read]);
                false
            }
        }
    }

    fn failed(&self) -> bool {
        !matches!(tool::read_report(&self.bytes), Some((_, None)))
    }
}

/// Reaps all that has ended; the status of `main` if it was among them.
fn reap_until(main: Pid, signals: BorrowedFd<'_>) -> Option<i32> {
    wait::clear(signals);
    loop {
        match sys::reap() {
            Reaped::One(pid, status) if pid == main => return Some(status),
            Reaped::One(..) => {}
            Reaped::NoneYet | Reaped::Nobody => return None,
        }
    }
}
