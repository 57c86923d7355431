//! The spawner's own process: makes nannies and buries what has died. It parses nothing and
//! owns no tree; that is each nanny's work.

mod probe;

use std::collections::BTreeSet;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::process::ExitCode;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::getpid;

use crate::child::userns::{self, Outside};
use crate::message::{Report, Stage, Way};
use crate::nanny::Nanny;
use crate::nanny::tree::{self, Ownership};
use crate::sys::{self, Fork, Pid, Reaped};
use crate::wait;

/// The whole life of a spawner process: what `main` does when its first argument is
/// [`SPAWNER_ARG`](crate::SPAWNER_ARG), before it starts a runtime, a thread or a log.
/// Returns when the gate has gone and nothing that it asked for is left.
pub fn spawner_main() -> ExitCode {
    // A nanny that unwound would come back here and be a second spawner.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    match Server::prepare() {
        Ok(server) => {
            server.serve();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

struct Server {
    /// Read by nannies, never written: it ends when we do.
    lifeline: OwnedFd,
    lifeline_end: Option<OwnedFd>,
    signals: OwnedFd,
    nannies: BTreeSet<Pid>,
    /// False once the kernel has refused us a pid namespace.
    namespaces: bool,
}

/// One packet of the gate.
struct Request {
    way: Way,
    leash: OwnedFd,
}

enum Received {
    Request(Request),
    /// Not ours; nothing can be answered.
    Garbage,
    Nothing,
    End,
}

impl Server {
    /// Sheds what came with us from the gate.
    fn prepare() -> std::io::Result<Self> {
        sys::close_from(3);
        sys::default_signals();
        sys::unblock_signals();
        // Away from the gate's terminal: its Ctrl-C is the gate's affair.
        let _ = rustix::process::setsid();
        let _ = rustix::thread::set_name(c"callgate-spawn");
        // Orphans of a nanny that was killed come to us.
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        rustix::process::chdir(c"/")?;
        let (lifeline, lifeline_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let signals = sys::child_signals()?;
        let lifeline_end = Some(lifeline_end);
        Ok(Self {
            lifeline,
            lifeline_end,
            signals,
            nannies: BTreeSet::new(),
            namespaces: true,
        })
    }

    fn serve(mut self) {
        let socket = rustix::stdio::stdin();
        loop {
            let [asked, signals] = wait::readable(&[socket, self.signals.as_fd()], None);
            if signals {
                self.bury();
            }
            if asked {
                match receive(socket) {
                    Received::Request(request) => self.start(request),
                    Received::Garbage | Received::Nothing => {}
                    Received::End => break,
                }
            }
        }
        self.leave();
    }

    /// Forks a nanny for one request; all its descriptors are closed here on return.
    fn start(&mut self, request: Request) {
        let outside = Outside::now();
        match self.fork(request.way) {
            Ok((Fork::Parent(pid), _)) => {
                self.nannies.insert(pid);
            }
            Ok((Fork::Child, ownership)) => {
                self.leave_behind();
                match request.way {
                    Way::ByUser => match userns::stay(outside) {
                        Ok(()) => self.become_nanny(request, ownership),
                        Err(error) => {
                            refuse(&request, &error);
                            sys::exit_now(1)
                        }
                    },
                    Way::Best | Way::Subreaper => self.become_nanny(request, ownership),
                    Way::Probe | Way::ProbeSubreaper => probe::live(request.leash, ownership),
                    Way::ProbeGroups => probe::live_groups(&request.leash),
                }
            }
            Err(error) => refuse(&request, &error),
        }
    }

    fn fork(&mut self, way: Way) -> std::io::Result<(Fork, Ownership)> {
        if way == Way::ByUser {
            let fork = sys::fork(libc::CLONE_NEWUSER | libc::CLONE_NEWPID)?;
            return Ok((fork, Ownership::Namespace));
        }
        if way.by_namespace() && self.namespaces {
            match sys::fork(libc::CLONE_NEWPID) {
                Ok(fork) => return Ok((fork, Ownership::Namespace)),
                Err(error) if is_refusal(&error) => self.namespaces = false,
                Err(error) => return Err(error),
            }
        }
        sys::fork(0).map(|fork| (fork, Ownership::Subreaper))
    }

    /// For a fork of ours.
    fn leave_behind(&self) {
        if let Some(end) = &self.lifeline_end {
            sys::leave_spawner(end.as_raw_fd());
        }
    }

    fn become_nanny(&self, request: Request, ownership: Ownership) -> ! {
        let (lifeline, signals) = (self.lifeline.as_fd(), self.signals.as_fd());
        Nanny {
            leash: request.leash,
            lifeline,
            signals,
            ownership,
        }
        .live()
    }

    /// Reaps what has ended; false if nobody is left. If a nanny was killed, what it owned
    /// is now ours, and goes.
    fn bury(&mut self) -> bool {
        wait::clear(self.signals.as_fd());
        let mut orphans = false;
        let more = loop {
            match sys::reap() {
                Reaped::One(gone) => {
                    orphans |= !self.nannies.remove(&gone.pid) || gone.status != 0;
                }
                Reaped::NoneYet => break true,
                Reaped::Nobody => break false,
            }
        };
        if orphans {
            let mut children = tree::children_of(tree::own_pid());
            children.retain(|pid| !self.nannies.contains(pid));
            tree::kill_descendants(children);
        }
        more
    }

    /// The gate has gone: every nanny sees it too and ends its tree; we stay until all
    /// have.
    fn leave(mut self) {
        self.lifeline_end = None;
        while self.bury() {
            wait::readable(&[self.signals.as_fd()], None);
        }
    }
}

/// Reports why there is no nanny.
fn refuse(request: &Request, error: &std::io::Error) {
    let errno = error.raw_os_error().unwrap_or(libc::EAGAIN);
    let report = Report::Failed {
        stage: Stage::Nanny,
        errno,
    }
    .to_bytes();
    let _ = rustix::net::send(&request.leash, &report, SendFlags::NOSIGNAL);
}

/// True if no pid namespace will ever be had here.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPERM | libc::EINVAL | libc::ENOSYS | libc::ENOSPC)
    )
}

fn receive(socket: impl AsFd) -> Received {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let got = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        flags,
    );
    let (read, cut) = match got {
        Ok(message) => (message.bytes, message.flags.contains(ReturnFlags::CTRUNC)),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Received::Nothing,
        Err(_) => return Received::End,
    };
    let mut leash = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            leash = rights.last();
        }
    }
    // Our packets are never empty, so an empty one is the end of the stream.
    if read == 0 {
        return Received::End;
    }
    // Without a leash (no room for it: EMFILE) whoever holds its other end sees it end.
    match (Way::from_byte(byte[0]), leash, cut) {
        (Some(way), Some(leash), false) => Received::Request(Request { way, leash }),
        _ => Received::Garbage,
    }
}
