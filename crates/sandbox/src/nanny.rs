//! A nanny runs one child at a time: owns its tree, ends it when the call, the gate or the
//! spawner ends, and reports how it went. A fork of the spawner, without exec. When nothing is
//! left of a child it waits for the next one, so that most starts cost one fork and not two.

pub(crate) mod group;
pub(crate) mod places;
pub(crate) mod scratch;
pub(crate) mod tree;

use std::ffi::{CStr, CString};
use std::fs;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::num::NonZero;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags,
    Shutdown, SocketFlags, SocketType, recvmsg, send, socketpair,
};
use rustix::process::getpid;

use crate::child::before_exec::{self, Birth};
use crate::child::mounts;
use crate::child::userns::Outside;
use crate::confine::{Access, Identity, Root};
use crate::gate::filter::{self, Rules};
use crate::kernel;
use crate::message::{DESCRIPTORS_MAX, ORDER_BYTES_MAX, Order, Report, Stage, read_order};
use crate::nanny::group::Group;
use crate::nanny::places::Places;
use crate::nanny::scratch::Scratch;
use crate::nanny::tree::Ownership;
use crate::sys::{self, Cradle, Gone, Life, Pid, Program, Reaped, Stack, Usage};
use crate::wait;

const TMPDIR: &[u8] = b"TMPDIR=";

/// What is read of an order at once, which is all of most.
const ORDER_BYTES_FIRST: usize = 8 * 1024;

/// How long a nanny waits for its next order.
const IDLE_MS_MAX: i64 = 5_000;

/// How often it is looked how much processor time a tree has taken: it may take more for so long.
const LOOK_MS_MIN: i64 = 50;

/// At least so often, which bounds what a clock may be wrong by.
const LOOK_MS_MAX: i64 = 600_000;

/// What a nanny is born with.
pub(crate) struct Nanny<'a> {
    /// To the gate: orders come in, reports go out, its end means kill.
    pub leash: OwnedFd,
    /// Ends when the spawner does.
    pub lifeline: BorrowedFd<'a>,
    /// Shows our SIGCHLD.
    pub signals: BorrowedFd<'a>,
    pub ownership: Ownership,
}

/// An order with the descriptors that came with it.
struct Handed {
    order: Order,
    descriptors: Vec<OwnedFd>,
}

/// The filters that were asked for, made once. As many as there are rules at most, which is
/// some dozens.
#[derive(Default)]
struct Filters(Vec<(Rules, Vec<libc::sock_filter>)>);

impl Filters {
    fn get(&mut self, rules: Rules) -> &[libc::sock_filter] {
        let known = self.0.iter().position(|(known, _)| *known == rules);
        let at = known.unwrap_or_else(|| {
            self.0.push((rules, filter::program(rules)));
            self.0.len() - 1
        });
        &self.0[at].1
    }
}

/// What a nanny keeps from child to child.
struct Kit {
    filters: Filters,
    /// For children that share our memory until exec; none where they must not.
    stack: Option<Stack>,
    /// A folder that its child did not touch.
    scratch: Option<Scratch>,
    /// What we start can not gain capabilities, whoever we are.
    bounded: bool,
    /// Holds what a tree takes together.
    group: Option<Group>,
}

impl Kit {
    fn new() -> Self {
        Self {
            scratch: None,
            bounded: false,
            group: None,
            filters: Filters::default(),
            stack: sharing_is_safe().then(Stack::new).and_then(Result::ok),
        }
    }

    /// The private temporary folder that an order asks for. It is added to what the tool may
    /// write.
    fn prepare_scratch(&mut self, order: &mut Order) -> io::Result<Option<Scratch>> {
        let Some(confine) = &mut order.confine else {
            return Ok(None);
        };
        let Some(base) = &confine.scratch else {
            return Ok(None);
        };
        let scratch = self.scratch(base, confine.identity)?;
        confine.roots.push(Root {
            path: scratch.path.clone(),
            access: Access::PrivateFolder,
        });
        order
            .env
            .retain(|pair| !pair.to_bytes().starts_with(TMPDIR));
        let pair = [TMPDIR, scratch.path.to_bytes()].concat();
        order.env.push(CString::new(pair)?);
        Ok(Some(scratch))
    }

    fn scratch(&mut self, base: &CStr, owner: Option<Identity>) -> io::Result<Scratch> {
        match self.scratch.take() {
            Some(kept) if kept.is_for(base, owner) => return Ok(kept),
            other => other.into_iter().for_each(Scratch::remove),
        }
        Scratch::make(base, owner)
    }

    /// Does once what else each child would have to: forty calls. Our own capabilities stay.
    fn bound(&mut self) {
        self.bounded = self.bounded || kernel::bound_capabilities().is_ok();
    }

    /// The group that an order asks for, with its limits. It stays for the next order.
    fn prepare_group(&mut self, order: &Order) -> io::Result<()> {
        if order.group.is_none() {
            return Ok(());
        }
        if !self
            .group
            .as_ref()
            .is_some_and(|group| group.can_hold(order.group))
        {
            self.group.take().into_iter().for_each(Group::remove);
            self.group = Some(Group::make(&Places::find(order.group), order.group)?);
        }
        match &mut self.group {
            Some(group) if group.can_hold(order.group) => group.set(&order.limits),
            // It was there when it was looked for.
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// A group with much in it would be taken for what the next child takes.
    fn tidy_group(&mut self) {
        let group = self.group.take_if(|group| !group.is_clean());
        group.into_iter().for_each(Group::remove);
    }

    fn put_away(&mut self, scratch: Scratch) {
        if scratch.is_untouched() {
            self.scratch = Some(scratch);
        } else {
            scratch.remove();
        }
    }
}

/// Its own terminal is open to a child by the names programs know it by, and no other is.
fn open_terminal(order: &mut Order) {
    if let (Some(confine), Some(name)) = (&mut order.confine, &order.terminal) {
        let names = [c"/dev/tty".to_owned(), name.clone()];
        confine.roots.extend(names.map(|path| Root {
            path,
            access: Access::Terminal,
        }));
    }
}

/// A child of root's that has become somebody else must not be open to that user while it
/// shares our memory. The kernel sees to that, but where it is set to let such processes be
/// looked into.
fn sharing_is_safe() -> bool {
    let setting = fs::read("/proc/sys/fs/suid_dumpable");
    setting.is_ok_and(|setting| !setting.starts_with(b"1"))
}

/// Where a start failed, and why.
type Failure = (Stage, io::Error);

impl Nanny<'_> {
    /// The whole life of a nanny.
    pub fn live(self) -> ! {
        let _ = rustix::thread::set_name(c"callgate-nanny");
        if self.ownership == Ownership::Subreaper {
            // Without it orphans would leave the tree; it cannot fail since Linux 3.4.
            let _ = rustix::process::set_child_subreaper(Some(getpid()));
        }
        let mut kit = Kit::new();
        while let Some(handed) = self.next_order()
            && self.attend(handed, &mut kit)
        {}
        kit.scratch.into_iter().for_each(Scratch::remove);
        kit.group.into_iter().for_each(Group::remove);
        sys::exit_now(0)
    }

    /// From order to last report. The temporary folder goes on every way. False if the gate
    /// has not been told of an end: it then hears of it by the end of the leash.
    fn attend(&self, mut handed: Handed, kit: &mut Kit) -> bool {
        open_terminal(&mut handed.order);
        let scratch = match kit.prepare_scratch(&mut handed.order) {
            Ok(scratch) => scratch,
            Err(error) => {
                self.failed(Stage::Scratch, &error);
                return false;
            }
        };
        let ended = match kit.prepare_group(&handed.order) {
            Ok(()) => self.run(handed, kit),
            Err(error) => Err((Stage::Group, error)),
        };
        scratch
            .into_iter()
            .for_each(|scratch| kit.put_away(scratch));
        match ended {
            Ok(report) => {
                report.into_iter().for_each(|report| self.report(report));
                kit.tidy_group();
                report.is_some()
            }
            Err((stage, error)) => {
                self.failed(stage, &error);
                false
            }
        }
    }

    fn failed(&self, stage: Stage, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.report(Report::Failed { stage, errno });
    }

    /// Waits for the next order; nothing if the gate or the spawner has gone, or if there has
    /// been nothing to do for long.
    fn next_order(&self) -> Option<Handed> {
        let ends = [self.leash.as_fd(), self.lifeline];
        let [leash, lifeline] = wait::readable(&ends, Some(IDLE_MS_MAX));
        if lifeline {
            return None;
        }
        if !leash {
            return self.decline();
        }
        let mut first = [0; ORDER_BYTES_FIRST];
        let (read, descriptors) = self.receive(&mut first)?;
        let (length, begun) = first[..read].split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        if length > ORDER_BYTES_MAX || begun.len() > length {
            return None;
        }
        let order = if begun.len() == length {
            read_order(begun)
        } else {
            // bound: `ORDER_BYTES_MAX`, compared above
            let mut bytes = vec![0; length];
            bytes[..begun.len()].copy_from_slice(begun);
            self.read_exact(&mut bytes[begun.len()..])?;
            read_order(&bytes)
        };
        order.map(|order| Handed { order, descriptors })
    }

    /// Takes no more orders. One that had come by then is given back: nothing of it was done.
    fn decline(&self) -> Option<Handed> {
        let _ = rustix::net::shutdown(&self.leash, Shutdown::Read);
        let come = rustix::net::recv(&self.leash, &mut [0], RecvFlags::DONTWAIT);
        if come.is_ok_and(|(read, _)| read > 0) {
            self.report(Report::Declined);
        }
        None
    }

    /// The first bytes of an order, and its descriptors.
    fn receive(&self, bytes: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            let mut into = [IoSliceMut::new(bytes)];
            match recvmsg(&self.leash, &mut into, &mut control, flags) {
                Err(rustix::io::Errno::INTR) => {}
                got => break got.ok()?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) {
            // No room for all of them.
            self.failed(Stage::Nanny, &io::Error::from_raw_os_error(libc::EMFILE));
            return None;
        }
        Some((got.bytes, descriptors))
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

    #[expect(unsafe_code, reason = "a tool may share our memory until exec")]
    /// Starts the tool and stays until nothing of it is left: how it ended, if the gate has
    /// been told that it began.
    fn run(&self, handed: Handed, kit: &mut Kit) -> Result<Option<Report>, Failure> {
        let Handed { order, descriptors } = handed;
        let confine = order.confine.as_ref();
        let at = |stage| move |error: io::Error| (stage, error);
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| (Stage::Fork, error.into()))?;
        let fence = match confine {
            Some(confine) if !confine.has_own_view() => {
                mounts::make_missing(&confine.roots).map_err(at(Stage::Writes))?;
                before_exec::build_fence(confine).map_err(at(Stage::Roots))?
            }
            _ => None,
        };
        let rules = confine.and_then(|confine| confine.filter);
        if confine.is_some_and(|confine| confine.identity.is_some()) {
            kit.bound();
        }
        let birth = Birth {
            order: &order,
            program: Program::new(&order.path, &order.argv, &order.env),
            handed: descriptors.iter().map(AsRawFd::as_raw_fd).collect(),
            report: theirs.as_raw_fd(),
            fence,
            filter: rules.map(|rules| kit.filters.get(rules)),
            bounded: kit.bounded,
            ownership: self.ownership,
            outside: Outside::now(),
        };
        let namespaces = confine.map_or(0, |confine| confine.namespaces);
        let group = kit.group.as_ref().filter(|_| !order.group.is_none());
        let budget = group.and_then(|group| Budget::new(group, &order));
        let cradle = match (group, &mut kit.stack) {
            // Whoever shares our memory is, to the kernel, as good or bad to kill as we are.
            (Some(group), _) => group.birthplace().map_or(Cradle::Here, Cradle::Group),
            (None, Some(stack)) if birth.is_frugal() => Cradle::Stack(stack),
            (None, _) => Cradle::Here,
        };
        let watch = |main| {
            // A pipe whose writer we hold would never end.
            drop((descriptors, theirs));
            self.watch(main, ours, group, budget.as_ref())
        };
        let life = Life {
            body: before_exec::become_tool,
            of: &birth,
        };
        let flags = namespaces.cast_signed();
        // SAFETY: a tool that is frugal takes no memory before exec, and writes to none but its
        // stack; at the end of the watch it is gone.
        let ended = unsafe { sys::start(flags, cradle, life, watch) };
        ended.map_err(at(Stage::Fork))
    }

    /// Stays until the tool has ended or shall end, and nothing of it is left. Gives how it
    /// ended, unless that is no news to the gate.
    fn watch(
        &self,
        main: Pid,
        start: OwnedFd,
        group: Option<&Group>,
        budget: Option<&Budget<'_>>,
    ) -> Option<Report> {
        let mut start = Start::new(start);
        let (mut status, mut spent) = (None, Usage::default());
        let mut saw = |gone: &Gone| {
            spent.add(gone.usage);
            if gone.pid == main {
                status = Some(gone.status);
            }
            status.is_some()
        };
        let (mut ended, mut abandoned) = (false, false);
        while !ended {
            // What there is nothing to hear from, yet or any more, has its place taken by a
            // descriptor that we watch anyway.
            let watched = [
                self.leash.as_fd(),
                self.lifeline,
                self.signals,
                start.socket.as_ref().map_or(self.signals, OwnedFd::as_fd),
                start.listener.as_ref().map_or(self.signals, OwnedFd::as_fd),
            ];
            let look_ms = budget.map(Budget::look_ms);
            let [leash, lifeline, signals, started, asked] = wait::readable(&watched, look_ms);
            if asked {
                start.permit_exec();
            }
            if started && start.is_settled() {
                self.report_start(&mut start);
            }
            if lifeline || look_ms == Some(0) || leash && !self.pass_signal(main) {
                abandoned = lifeline;
                break;
            }
            if signals {
                ended = reap_some(self.signals, &mut saw);
            }
        }
        tree::end(self.ownership, group, self.signals, |gone| {
            saw(gone);
        });
        // A tool that ends at once may do so before its start was looked at.
        while start.socket.is_some() {
            if start.is_settled() {
                self.report_start(&mut start);
            }
        }
        // How it was killed when the spawner was is not how it ended: to the gate it is lost.
        let told = !start.failed() && !abandoned;
        status.filter(|_| told).map(|status| Report::Ended {
            status,
            cpu: spent.cpu,
            max_rss_bytes: spent.max_rss_bytes,
        })
    }

    /// Passes a signal of the gate's on to the tool; false if it is the end of the leash.
    fn pass_signal(&self, main: Pid) -> bool {
        let mut signal = [0];
        match rustix::net::recv(&self.leash, &mut signal, RecvFlags::DONTWAIT) {
            Ok((1, _)) => {
                sys::kill_group(main, signal[0].into());
                true
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => true,
            Ok(_) | Err(_) => false,
        }
    }

    fn report_start(&self, start: &mut Start) {
        let outlets = std::mem::take(&mut start.outlets);
        match before_exec::read_report(&start.bytes) {
            Some((pid, None)) if !outlets.is_empty() => {
                let report = Report::Started { pid }.to_bytes();
                let outlets: Vec<_> = outlets.iter().map(std::os::fd::AsFd::as_fd).collect();
                // As below.
                let _ = kernel::send_with_all(self.leash.as_fd(), &report, &outlets);
            }
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

/// The processor time that a tree has.
struct Budget<'a> {
    group: &'a Group,
    /// When the group's own clock, which does not begin anew, shows this.
    end: Duration,
    processors: u32,
}

impl<'a> Budget<'a> {
    fn new(group: &'a Group, order: &Order) -> Option<Self> {
        let seconds = order.limits.cpu_seconds.filter(|_| order.group.cpu_time)?;
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Some(Self {
            group,
            end: group.cpu()?.saturating_add(Duration::from_secs(seconds)),
            processors: u32::try_from(processors).unwrap_or(1),
        })
    }

    /// How long it can not have been spent, at the least; nothing if it has been.
    fn look_ms(&self) -> i64 {
        let left = self
            .end
            .saturating_sub(self.group.cpu().unwrap_or(self.end));
        if left.is_zero() {
            return 0;
        }
        let soonest = (left / self.processors).as_millis();
        i64::try_from(soonest)
            .unwrap_or(i64::MAX)
            .clamp(LOOK_MS_MIN, LOOK_MS_MAX)
    }
}

/// How far the tool has come on its way to exec.
struct Start {
    /// Open until it is settled.
    socket: Option<OwnedFd>,
    bytes: Vec<u8>,
    /// Where the kernel asks about its first exec.
    listener: Option<OwnedFd>,
    /// Its ways out, on their way to the gate.
    outlets: Vec<OwnedFd>,
}

impl Start {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket: Some(socket),
            bytes: Vec::new(),
            listener: None,
            outlets: Vec::new(),
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
            Ok((read, mut handed)) => {
                self.bytes.extend_from_slice(&buffer[..read]);
                match (handed.is_empty(), self.bytes.last()) {
                    (true, _) => {}
                    (false, Some(&before_exec::OUTLET)) => self.outlets.append(&mut handed),
                    (false, _) => self.listener = handed.pop(),
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
        !matches!(before_exec::read_report(&self.bytes), Some((_, None)))
    }
}

/// Reaps what has ended, until `saw` has seen the one that counts.
fn reap_some(signals: BorrowedFd<'_>, mut saw: impl FnMut(&Gone) -> bool) -> bool {
    wait::clear(signals);
    loop {
        match sys::reap() {
            Reaped::One(gone) if saw(&gone) => return true,
            Reaped::One(_) => {}
            Reaped::NoneYet | Reaped::Nobody => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    /// What comes before a nanny goes is given back; what comes after does not arrive.
    #[test]
    fn no_order_is_lost_to_one_that_goes() {
        for comes in [false, true] {
            let (mut gate, leash) = UnixStream::pair().unwrap();
            let (lifeline, _end) = std::io::pipe().unwrap();
            let nanny = Nanny {
                leash: leash.into(),
                lifeline: lifeline.as_fd(),
                signals: lifeline.as_fd(),
                ownership: Ownership::Subreaper,
            };
            if comes {
                gate.write_all(b"an order").unwrap();
            }
            assert!(nanny.decline().is_none());
            let late = gate.write_all(b"an order").unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
            drop(nanny);
            let mut said = Vec::new();
            let _ = gate.read_to_end(&mut said);
            let told = if comes {
                Report::Declined.to_bytes().to_vec()
            } else {
                Vec::new()
            };
            assert_eq!(said, told);
        }
    }
}
