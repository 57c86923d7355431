//! A running child as the gate holds it: the near end of its leash.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::Interest;

use crate::confine::Confine;
use crate::gate::explain::Reach;
use crate::gate::idle_nannies::{Idle, Leash};
use crate::kernel;
use crate::message::{REPORT_BYTES, Report};

/// A running child. Dropping it ends its whole tree.
#[derive(Debug)]
pub struct Child {
    /// There until the nanny is free again.
    leash: Option<Leash>,
    /// Where it then goes.
    idle: Weak<Idle>,
    /// Its nanny is not for the next child: it was told to kill, or to signal.
    killed: AtomicBool,
    pid: u32,
    /// Its ways out, until somebody serves them: that to its hosts first, where it has one.
    outlets: Vec<OwnedFd>,
    /// The first of its ways out leads to its hosts.
    has_proxy: bool,
    report: [u8; REPORT_BYTES],
    /// How much of the report has come.
    filled: usize,
    exit: Option<Exit>,
    reach: Option<Reach>,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How.
    pub ending: Ending,
    /// Processor time of the tree.
    pub cpu: Duration,
    /// The most memory that one process of the tree had resident.
    pub max_rss_bytes: u64,
}

/// The ways to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
    /// Whoever watched over it died, and it with them.
    Lost,
}

impl Child {
    pub(crate) fn new(leash: Leash, idle: Weak<Idle>) -> Self {
        Self {
            leash: Some(leash),
            idle,
            killed: AtomicBool::new(false),
            pid: 0,
            outlets: Vec::new(),
            has_proxy: false,
            report: [0; REPORT_BYTES],
            filled: 0,
            exit: None,
            reach: None,
        }
    }

    pub(crate) fn set_reach(&mut self, reach: Option<Reach>) {
        self.reach = reach;
    }

    /// What the child may reach, where it is confined.
    #[must_use]
    pub fn reach(&self) -> Option<&Reach> {
        self.reach.as_ref()
    }

    pub(crate) fn set_pid(&mut self, pid: i32) {
        self.pid = pid.unsigned_abs();
    }

    /// The process id of the child itself, not of its tree's other members.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The listener that is its only way out, where it has one: whoever takes it serves it as an
    /// HTTP proxy, or the child reaches nobody.
    pub fn take_outlet(&mut self) -> Option<TcpListener> {
        let has_proxy = std::mem::take(&mut self.has_proxy);
        let outlet = has_proxy.then(|| self.outlets.remove(0));
        outlet.map(TcpListener::from)
    }

    /// The listeners of its forwarded ports, in the order of its needs: whoever takes them carries
    /// what comes there to where the needs say, or the child reaches nobody. To be taken after
    /// [`take_outlet`](Self::take_outlet).
    pub fn take_forwards(&mut self) -> Vec<TcpListener> {
        let first = usize::from(self.has_proxy);
        let forwards = self.outlets.drain(first..);
        forwards.map(TcpListener::from).collect()
    }

    /// Notes what its ways out are. False if some are missing.
    pub(crate) fn set_outlets(&mut self, confine: &Confine) -> bool {
        let is_whole = self.outlets.len() == confine.outlets();
        self.has_proxy = is_whole && confine.outlet;
        is_whole
    }

    /// Ends the whole tree. [`wait`](Self::wait) tells when it is gone.
    pub fn kill(&self) {
        if let Some(leash) = &self.leash {
            // Its nanny will hear nothing more.
            self.killed.store(true, Ordering::Relaxed);
            // Fails only when the other end has gone, and then so has the tree.
            let _ = rustix::net::shutdown(&leash.stream, rustix::net::Shutdown::Write);
        }
    }

    /// Sends a signal to the child and its process group. Its nanny does it, so that no other
    /// process that has come by the same number is meant. False if there is nobody any more.
    pub fn signal(&self, signal: u8) -> bool {
        let Some(leash) = &self.leash else {
            return false;
        };
        // What its nanny does not read of this before the end must not become the next order.
        self.killed.store(true, Ordering::Relaxed);
        leash.stream.try_write(&[signal]).is_ok()
    }

    /// True if the child does not care about a signal: a shell at its prompt does not end by
    /// SIGTERM, though by SIGHUP.
    #[must_use]
    pub fn ignores(&self, signal: u8) -> bool {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.pid)) else {
            return false;
        };
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let bit = 1_u64.checked_shl(u32::from(signal).wrapping_sub(1));
        ignored.unwrap_or(0) & bit.unwrap_or(0) != 0
    }

    /// Waits until the child has ended and nothing of its tree is left. May be dropped and
    /// called again; once ended it answers the same at once.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let exit = match self.next_report().await {
            Some(Report::Ended {
                status,
                cpu,
                max_rss_bytes,
            }) => {
                self.let_go();
                Exit {
                    ending: ending(status),
                    cpu,
                    max_rss_bytes,
                }
            }
            Some(Report::Declined | Report::Started { .. } | Report::Failed { .. }) | None => {
                if let Some(leash) = &self.leash {
                    leash.link.is_alive();
                }
                Exit {
                    ending: Ending::Lost,
                    cpu: Duration::ZERO,
                    max_rss_bytes: 0,
                }
            }
        };
        self.exit = Some(exit);
        exit
    }

    /// Gives the nanny, which has nothing left to do, to the next child.
    fn let_go(&mut self) {
        let leash = self.leash.take();
        if let (Some(idle), Some(leash), false) =
            (self.idle.upgrade(), leash, *self.killed.get_mut())
        {
            idle.put(leash);
        }
    }

    /// The next report on the leash; nothing at its end. What has been read of a report is
    /// kept here, so that dropping the future loses nothing.
    pub(crate) async fn next_report(&mut self) -> Option<Report> {
        let leash = self.leash.as_mut()?;
        while self.filled < REPORT_BYTES {
            leash.stream.readable().await.ok()?;
            let (socket, rest) = (leash.stream.as_fd(), &mut self.report[self.filled..]);
            let receive = || kernel::receive_with(socket, rest);
            match leash.stream.try_io(Interest::READABLE, receive) {
                Ok((0, _)) => return None,
                Ok((read, mut outlets)) => {
                    self.filled += read;
                    self.outlets.append(&mut outlets);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        self.filled = 0;
        Report::from_bytes(&self.report)
    }
}

fn ending(status: i32) -> Ending {
    if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Code(libc::WEXITSTATUS(status))
    }
}
