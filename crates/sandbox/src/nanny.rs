//! One nanny per child: owns the child's tree, ends it when the call, the gate or the
//! spawner ends, and reports how it went. A fork of the spawner, without exec.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use rustix::process::getpid;

use crate::confine::{Access, Root};
use crate::kernel;
use crate::message::{ORDER_BYTES_MAX, Order, Report, Stage, read_order};
use crate::scratch::Scratch;
use crate::sys::{self, Fork, Pid, Reaped};
use crate::tool::{self, Birth};
use crate::tree::{self, Ownership};
use crate::userns::Outside;
use crate::wait;

const TMPDIR: &[u8] = b"TMPDIR=";

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
            self.attend(order, handed);
        }
        sys::exit_now(0)
    }

    /// From order to last report. The temporary folder goes on every way.
    fn attend(&self, mut order: Order, handed: Vec<OwnedFd>) {
        let scratch = match prepare_scratch(&mut order) {
            Ok(scratch) => scratch,
            Err(error) => return self.failed(Stage::Scratch, &error),
        };
        match self.start(&order, handed) {
            Ok((main, report)) => self.watch(main, report, scratch),
            Err(error) => {
                self.failed(Stage::Fork, &error);
                scratch.into_iter().for_each(Scratch::remove);
            }
        }
    }

    fn failed(&self, stage: Stage, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.report(Report::Failed { stage, errno });
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
    fn start(&self, order: &Order, handed: Vec<OwnedFd>) -> io::Result<(Pid, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let birth = Birth {
            order,
            ownership: self.ownership,
            outside: Outside::now(),
        };
        let namespaces = order.confine.as_ref().map_or(0, |c| c.namespaces);
        match sys::fork(namespaces.cast_signed())? {
            Fork::Parent(main) => Ok((main, ours)),
            Fork::Child => tool::become_tool(&birth, handed, theirs),
        }
    }

    /// Stays until the tool has ended or shall end, then leaves nothing behind.
    fn watch(&self, main: Pid, start: OwnedFd, scratch: Option<Scratch>) {
        let mut start = Start::new(start);
        let (mut status, mut abandoned) = (None, false);
        while status.is_none() {
            // What there is nothing to hear from, yet or any more, has its place taken by a
            // descriptor that we watch anyway.
            let watched = [
                self.leash.as_fd(),
                self.lifeline,
                self.signals,
                start.socket.as_ref().map_or(self.signals, OwnedFd::as_fd),
                start.listener.as_ref().map_or(self.signals, OwnedFd::as_fd),
            ];
            let [leash, lifeline, signals, started, asked] = wait::readable(&watched, None);
            if asked {
                start.permit_exec();
            }
            if started && start.is_settled() {
                self.report_start(&mut start);
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
        scratch.into_iter().for_each(Scratch::remove);
        // A tool that ends at once may do so before its start was looked at.
        while start.socket.is_some() {
            if start.is_settled() {
                self.report_start(&mut start);
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

    fn report_start(&self, start: &mut Start) {
        match (tool::read_report(&start.bytes), start.outlet.take()) {
            (Some((pid, None)), Some(outlet)) => {
                let report = Report::Started { pid }.to_bytes();
                // As below.
                let _ = kernel::send_with(self.leash.as_fd(), &report, outlet.as_fd());
            }
            (Some((pid, None)), None) => self.report(Report::Started { pid }),
            (Some((_, Some((stage, errno)))), _) => self.report(Report::Failed { stage, errno }),
            // Killed before it could speak: to the gate, a child that was lost.
            (None, _) => {}
        }
    }

    fn report(&self, report: Report) {
        // A gate that does not listen has gone, and the tree with it.
        let _ = send(&self.leash, &report.to_bytes(), SendFlags::NOSIGNAL);
    }
}

/// Makes the private temporary folder that an order asks for, and adds it to what the tool
/// may write.
fn prepare_scratch(order: &mut Order) -> io::Result<Option<Scratch>> {
    let Some(confine) = &mut order.confine else {
        return Ok(None);
    };
    let Some(base) = &confine.scratch else {
        return Ok(None);
    };
    let scratch = Scratch::make(base, confine.identity)?;
    confine.roots.push(Root {
        path: scratch.path.clone(),
        access: Access::WriteFolder,
    });
    order
        .env
        .retain(|pair| !pair.to_bytes().starts_with(TMPDIR));
    let pair = [TMPDIR, scratch.path.to_bytes()].concat();
    order.env.push(CString::new(pair)?);
    Ok(Some(scratch))
}

/// How far the tool has come on its way to exec.
struct Start {
    /// Open until it is settled.
    socket: Option<OwnedFd>,
    bytes: Vec<u8>,
    /// Where the kernel asks about its first exec.
    listener: Option<OwnedFd>,
    /// Its way out, on its way to the gate.
    outlet: Option<OwnedFd>,
}

impl Start {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Some(socket),
            bytes: Vec::new(),
            listener: None,
            outlet: None,
        }
    }

    /// Reads what there is; true at the end, when exec has worked or has not.
    fn is_settled(&mut self) -> bool {
        let Some(socket) = &self.socket else {
            return false;
        };
        let mut buffer = [0; 16];
        match kernel::receive_with(socket.as_fd(), &mut buffer) {
            Ok((0, _)) | Err(_) => {
                self.socket = None;
                self.listener = None;
                true
            }
            Ok((read, handed)) => {
                self.bytes.extend_from_slice(&buffer[..read]);
                match (handed, self.bytes.last()) {
                    (None, _) => {}
                    (outlet, Some(&tool::OUTLET)) => self.outlet = outlet,
                    (listener, _) => self.listener = listener,
                }
                false
            }
        }
    }

    /// Lets the first exec pass and then listens no more: to every later one the kernel
    /// answers that there is no such call, whatever becomes of us.
    fn permit_exec(&mut self) {
        if let Some(listener) = self.listener.take() {
            // A tool that has died meanwhile asks no longer.
            let _ = kernel::permit(&listener);
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
