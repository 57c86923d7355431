//! From fork to exec: what a tool's process does before it becomes the tool.
//!
//! Its steps report failure on a socket that exec closes. Their order is the point: what
//! needs rights comes before they are given up, and what denies comes after what needs it.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};

use crate::child::landlock::Fence;
use crate::child::mounts;
use crate::child::outlet;
use crate::child::userns::{self, Outside};
use crate::confine::Confine;
use crate::gate::filter::Execs;
use crate::kernel;
use crate::message::{DESCRIPTORS_MAX, Order, Stage};
use crate::nanny::tree::{self, Ownership};
use crate::spec::FolderIdentity;
use crate::sys::{self, Program};

/// Bytes before failure: the process id as the gate's `/proc` has it.
pub(crate) const PID_BYTES: usize = 4;

/// Goes with each way out, between pid and failure. No stage has this number.
pub(crate) const OUTLET: u8 = 0xfe;

/// Goes with the listener of the filter, after the ways out. No stage has this number.
pub(crate) const LISTENER: u8 = 0xff;

/// The most that is said at once: the pid, a stage, an error.
const SAID_BYTES_MAX: usize = PID_BYTES + 5;

/// What a tool's process has from its nanny. All that takes memory is made before it is born:
/// see [`sys::start`].
pub(crate) struct Birth<'a> {
    pub order: &'a Order,
    pub program: Program<'a>,
    /// What was handed over, by the numbers they have here.
    pub handed: Vec<RawFd>,
    /// The socket to the nanny.
    pub report: RawFd,
    /// What it may reach, unless its own view of the files comes first.
    pub fence: Option<Fence>,
    /// Its filter.
    pub filter: Option<&'a [libc::sock_filter]>,
    /// No program that the nanny's descendants start can have capabilities.
    pub bounded: bool,
    pub ownership: Ownership,
    /// Who it is outside a user namespace of its own.
    pub outside: Outside,
}

impl Birth<'_> {
    /// True if it takes no memory on its way to exec, and can share its nanny's.
    pub fn is_frugal(&self) -> bool {
        self.order
            .confine
            .as_ref()
            .is_none_or(|confine| !confine.has_own_view())
    }
}

/// The way to the nanny, which exec closes.
struct Line {
    socket: OwnedFd,
    pid: [u8; PID_BYTES],
    /// The pid goes with whatever is said first.
    said_pid: Cell<bool>,
}

/// What is said at once.
struct Said {
    bytes: [u8; SAID_BYTES_MAX],
    filled: usize,
}

impl Said {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes[self.filled..][..bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }
}

impl Line {
    /// The pid if it has not been said yet, then `bytes`.
    fn with_pid(&self, bytes: &[u8]) -> Said {
        let mut said = Said {
            bytes: [0; SAID_BYTES_MAX],
            filled: 0,
        };
        if !self.said_pid.replace(true) {
            said.add(&self.pid);
        }
        said.add(bytes);
        said
    }

    fn say(&self, bytes: &[u8]) {
        let said = self.with_pid(bytes);
        // A nanny that does not listen is dead, and so shall we be by its death signal.
        let _ = rustix::io::write(&self.socket, &said.bytes[..said.filled]);
    }

    /// Gives the nanny a descriptor, and says what it is.
    fn hand(&self, what: u8, fd: BorrowedFd<'_>) -> io::Result<()> {
        let said = self.with_pid(&[what]);
        kernel::send_with(self.socket.as_fd(), &said.bytes[..said.filled], fd)
    }

    fn fail(&self, stage: Stage, error: &io::Error) -> ! {
        let mut failure = [0; 5];
        failure[0] = stage as u8;
        failure[1..].copy_from_slice(&error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes());
        self.say(&failure);
        sys::exit_now(127)
    }
}

/// Becomes the program of the order, or reports why not and ends.
pub(crate) fn become_tool(birth: &Birth<'_>) -> ! {
    // Out of the way of what is placed below.
    let Ok(socket) = sys::copy_above(birth.report, above_targets(birth.order)) else {
        // The nanny sees a child that did not speak.
        sys::exit_now(127)
    };
    let line = Line {
        socket,
        pid: tree::own_pid().to_le_bytes(),
        said_pid: Cell::new(false),
    };
    let Err((stage, error)) = steps(birth, &line);
    line.fail(stage, &error)
}

/// The first number beyond all that the tool has a use for.
fn above_targets(order: &Order) -> RawFd {
    let highest = order.targets.iter().copied().max().unwrap_or(0).max(2);
    RawFd::try_from(highest + 1).unwrap_or(RawFd::MAX)
}

/// What the nanny makes of the report: the pid, and where it failed if it did.
pub(crate) fn read_report(bytes: &[u8]) -> Option<(i32, Option<(Stage, i32)>)> {
    let (pid, mut failure) = bytes.split_first_chunk::<PID_BYTES>()?;
    while let [OUTLET, rest @ ..] = failure {
        failure = rest;
    }
    let failure = match failure.strip_prefix(&[LISTENER]).unwrap_or(failure) {
        [] => None,
        [stage, errno @ ..] => Some((
            Stage::from_byte(*stage)?,
            i32::from_le_bytes(errno.try_into().ok()?),
        )),
    };
    Some((i32::from_le_bytes(*pid), failure))
}

type Failure = (Stage, io::Error);

fn steps(birth: &Birth<'_>, line: &Line) -> Result<Infallible, Failure> {
    let order = birth.order;
    let confine = order.confine.as_ref();
    let at = |stage| move |error: rustix::io::Errno| (stage, io::Error::from(error));
    // A group of its own: what it sends to its group does not reach the nanny.
    rustix::process::setsid().map_err(at(Stage::Privileges))?;
    die_with_nanny().map_err(at(Stage::Privileges))?;
    if order.group.memory {
        // Its nanny may be in the same group, and is to see it end.
        kernel::go_first().map_err(at(Stage::Group))?;
    }
    match confine {
        Some(confine) => see_files(confine, birth)?,
        None => see_own_processes(birth.ownership),
    }
    if let Some(confine) = confine.filter(|confine| confine.outlets() > 0) {
        open_outlets(confine, line).map_err(|error| (Stage::Outlet, error))?;
    }
    rustix::process::umask(Mode::from_raw_mode(0o077));
    enter(order).map_err(at(Stage::Cwd))?;
    place_all(birth).map_err(|error| (Stage::Descriptors, error))?;
    if order.terminal.is_some() {
        // It leads a session without one since it began.
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin()).map_err(at(Stage::Terminal))?;
    }
    // Opened here, behind all numbers that the tool has a use for and before the limits.
    let own = match confine {
        Some(confine) if birth.fence.is_none() => {
            build_fence(confine).map_err(|error| (Stage::Roots, error))?
        }
        _ => None,
    };
    set_limits(order).map_err(at(Stage::Limits))?;
    if let Some(confine) = confine {
        shed(confine, birth.bounded).map_err(at(Stage::Privileges))?;
    }
    if !order.may_gain_rights {
        rustix::thread::set_no_new_privs(true).map_err(at(Stage::Privileges))?;
    }
    if let Some(fence) = birth.fence.as_ref().or(own.as_ref()) {
        fence.enter().map_err(|error| (Stage::Landlock, error))?;
    }
    sys::unblock_signals();
    install(birth, line).map_err(|error| (Stage::Filter, error))?;
    // The last descriptor of ours is open now.
    limit(Resource::Nofile, order.limits.open_files).map_err(at(Stage::Limits))?;
    Err((Stage::Exec, birth.program.exec()))
}

/// The fence of a child, where the machine has one.
pub(crate) fn build_fence(confine: &Confine) -> io::Result<Option<Fence>> {
    (confine.landlock > 0)
        .then(|| Fence::build(confine))
        .transpose()
}

fn die_with_nanny() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// The view of a confined tool.
fn see_files(confine: &Confine, birth: &Birth<'_>) -> Result<(), Failure> {
    let failed = |error: io::Error| (Stage::Mounts, error);
    if confine.has_namespace(libc::CLONE_NEWUSER) {
        userns::stay(birth.outside).map_err(failed)?;
    }
    if confine.has_own_view() {
        mounts::make_missing(&confine.roots).map_err(|error| (Stage::Writes, error))?;
    }
    if confine.has_namespace(libc::CLONE_NEWNS) {
        mounts::mount_view(confine).map_err(failed)?;
    }
    if confine.proc {
        sys::mount_proc().map_err(failed)?;
    }
    if confine.loopback {
        kernel::raise_loopback().map_err(failed)?;
    }
    Ok(())
}

/// Makes its ways out and gives them away, in their order: the tool itself must not have them.
fn open_outlets(confine: &Confine, line: &Line) -> io::Result<()> {
    if confine.outlet {
        let listener = outlet::open()?;
        line.hand(OUTLET, listener.as_fd())?;
    } else {
        kernel::raise_loopback()?;
    }
    for &port in &confine.forwards {
        let listener = outlet::listen_at(port)?;
        line.hand(OUTLET, listener.as_fd())?;
    }
    Ok(())
}

/// The view of a tool that is not confined: only that of `/proc` is its own, because the old
/// one would name other processes than its calls do. Where it cannot be had the tool runs all
/// the same.
fn see_own_processes(ownership: Ownership) {
    if ownership == Ownership::Namespace && sys::private_mounts().is_ok() {
        let _ = sys::mount_proc();
    }
}

/// Gives up whatever rights we have over others.
fn shed(confine: &Confine, bounded: bool) -> rustix::io::Result<()> {
    // In a user namespace all capabilities are there again.
    let anew = confine.has_namespace(libc::CLONE_NEWUSER) || confine.nanny_namespaces;
    if confine.identity.is_none() && !anew {
        return Ok(());
    }
    if anew || !bounded {
        kernel::bound_capabilities()?;
    }
    if let Some(identity) = confine.identity {
        kernel::become_user(identity)?;
    }
    kernel::drop_capabilities()?;
    // Becoming somebody else has cleared it.
    die_with_nanny()
}

/// Installs the filter, if there is one, and says who we are. Where it asks about exec, the
/// nanny gets the listener.
fn install(birth: &Birth<'_>, line: &Line) -> io::Result<()> {
    let rules = birth.order.confine.as_ref().and_then(|c| c.filter);
    let listener = match (birth.filter, rules) {
        (Some(program), Some(rules)) => kernel::filter(program, rules.execs == Execs::Once)?,
        _ => None,
    };
    match listener {
        None => line.say(&[]),
        Some(listener) => line.hand(LISTENER, listener.as_fd())?,
    }
    Ok(())
}

/// Goes to the working folder. Somebody may have put another in its place since it was found.
fn enter(order: &Order) -> rustix::io::Result<()> {
    rustix::process::chdir(order.cwd.as_c_str())?;
    match order.folder {
        Some(found) if FolderIdentity::of(&rustix::fs::stat(c".")?) != found => {
            Err(rustix::io::Errno::STALE)
        }
        _ => Ok(()),
    }
}

/// Puts every descriptor at its number; the standard ones that were not handed read as
/// empty. All others close with exec.
fn place_all(birth: &Birth<'_>) -> io::Result<()> {
    let (order, above) = (birth.order, above_targets(birth.order));
    // Copies first, so that placing one does not overwrite another.
    let mut copies = [const { None }; DESCRIPTORS_MAX];
    for (copy, &fd) in copies.iter_mut().zip(&birth.handed) {
        *copy = Some(sys::copy_above(fd, above)?);
    }
    sys::close_on_exec_from(3);
    let is_missing = |target: &RawFd| !order.targets.contains(&target.unsigned_abs());
    if (0..=2).any(|target| is_missing(&target)) {
        let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let null = sys::copy_above(null.as_raw_fd(), above)?;
        for target in (0..=2).filter(is_missing) {
            sys::place(null.as_raw_fd(), target)?;
        }
    }
    for (copy, &target) in copies.iter().flatten().zip(&order.targets) {
        let target = RawFd::try_from(target).map_err(|_| io::ErrorKind::InvalidInput)?;
        sys::place(copy.as_raw_fd(), target)?;
    }
    Ok(())
}

/// All limits but the one on descriptors, which would be in our own way.
fn set_limits(order: &Order) -> rustix::io::Result<()> {
    let limits = &order.limits;
    limit(Resource::Core, Some(0))?;
    limit(Resource::As, limits.address_space_bytes)?;
    limit(Resource::Cpu, limits.cpu_seconds)?;
    limit(Resource::Fsize, limits.file_size_bytes)?;
    // The kernel counts those of the same user wherever they are; a group knows better.
    let processes = limits.processes.filter(|_| !order.group.processes);
    limit(Resource::Nproc, processes)
}

fn limit(resource: Resource, limit: Option<u64>) -> rustix::io::Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let hard = rustix::process::getrlimit(resource).maximum;
    let limit = Some(hard.map_or(limit, |hard| hard.min(limit)));
    let both = Rlimit {
        current: limit,
        maximum: limit,
    };
    rustix::process::setrlimit(resource, both)
}
