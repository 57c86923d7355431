//! From fork to exec: what a tool's process does before it becomes the tool.
//!
//! Its steps report failure on a socket that exec closes. Their order is the point: what
//! needs rights comes before they are given up, and what denies comes after what needs it.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};

use crate::confine::Confine;
use crate::fence::Fence;
use crate::filter::Execs;
use crate::kernel;
use crate::message::{Order, Stage};
use crate::spec::Limits;
use crate::sys;
use crate::tree::{self, Ownership};
use crate::userns::{self, Outside};
use crate::view;

/// Bytes before failure: the process id as the gate's `/proc` has it.
pub(crate) const PID_BYTES: usize = 4;

/// Goes with the listener of the filter, between pid and failure. No stage has this number.
pub(crate) const LISTENER: u8 = 0xff;

/// What a tool's process knows from its nanny.
pub(crate) struct Birth<'a> {
    pub order: &'a Order,
    /// Its filter.
    pub program: Option<&'a [libc::sock_filter]>,
    pub ownership: Ownership,
    /// Who it is outside a user namespace of its own.
    pub outside: Outside,
}

/// The way to the nanny, which exec closes.
struct Line {
    socket: OwnedFd,
    pid: [u8; PID_BYTES],
    /// The pid goes with whatever is said first.
    said_pid: Cell<bool>,
}

impl Line {
    /// The pid if it has not been said yet, then `bytes`.
    fn with_pid(&self, bytes: &[u8]) -> Vec<u8> {
        let pid = if self.said_pid.replace(true) {
            &[][..]
        } else {
            &self.pid[..]
        };
        [pid, bytes].concat()
    }

    fn say(&self, bytes: &[u8]) {
        // A nanny that does not listen is dead, and so shall we be by its death signal.
        let _ = rustix::io::write(&self.socket, &self.with_pid(bytes));
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
pub(crate) fn become_tool(birth: &Birth<'_>, handed: Vec<OwnedFd>, report: OwnedFd) -> ! {
    // Out of the way of what is placed below.
    let high = above_targets(&report, birth.order);
    let failed = high.as_ref().err().and_then(io::Error::raw_os_error);
    let line = Line {
        socket: high.unwrap_or(report),
        pid: tree::own_pid().to_le_bytes(),
        said_pid: Cell::new(false),
    };
    if let Some(errno) = failed {
        line.fail(Stage::Descriptors, &io::Error::from_raw_os_error(errno));
    }
    let Err((stage, error)) = steps(birth, handed, &line);
    line.fail(stage, &error)
}

/// A copy beyond every number that the tool has a use for.
fn above_targets(fd: &OwnedFd, order: &Order) -> io::Result<OwnedFd> {
    let highest = order.targets.iter().copied().max().unwrap_or(0).max(2);
    let above = RawFd::try_from(highest + 1).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, above)?)
}

/// What the nanny makes of the report: the pid, and where it failed if it did.
pub(crate) fn read_report(bytes: &[u8]) -> Option<(i32, Option<(Stage, i32)>)> {
    let (pid, failure) = bytes.split_first_chunk::<PID_BYTES>()?;
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

fn steps(
    birth: &Birth<'_>,
    handed: Vec<OwnedFd>,
    line: &Line,
) -> Result<std::convert::Infallible, Failure> {
    let order = birth.order;
    let confine = order.confine.as_ref();
    let at = |stage| move |error: rustix::io::Errno| (stage, io::Error::from(error));
    // A group of its own: what it sends to its group does not reach the nanny.
    rustix::process::setsid().map_err(at(Stage::Privileges))?;
    die_with_nanny().map_err(at(Stage::Privileges))?;
    match confine {
        Some(confine) => see_files(confine, birth).map_err(|error| (Stage::Mounts, error))?,
        None => see_own_processes(birth.ownership),
    }
    rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::chdir(order.cwd.as_c_str()).map_err(at(Stage::Cwd))?;
    place_all(handed, order).map_err(|error| (Stage::Descriptors, error))?;
    // Opened here, behind all numbers that the tool has a use for and before the limits.
    let fence = match confine {
        Some(confine) if confine.landlock > 0 => {
            Some(Fence::build(confine).map_err(|error| (Stage::Roots, error))?)
        }
        _ => None,
    };
    set_limits(&order.limits).map_err(at(Stage::Limits))?;
    if let Some(confine) = confine {
        shed(confine).map_err(at(Stage::Privileges))?;
    }
    if !order.may_gain_rights {
        rustix::thread::set_no_new_privs(true).map_err(at(Stage::Privileges))?;
    }
    if let Some(fence) = fence {
        fence.enter().map_err(|error| (Stage::Landlock, error))?;
    }
    sys::unblock_signals();
    install(birth, line).map_err(|error| (Stage::Filter, error))?;
    // The last descriptor of ours is open now.
    limit(Resource::Nofile, order.limits.open_files).map_err(at(Stage::Limits))?;
    let path: &CStr = &order.path;
    Err((Stage::Exec, sys::exec(path, &order.argv, &order.env)))
}

fn die_with_nanny() -> rustix::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// The view of a confined tool.
fn see_files(confine: &Confine, birth: &Birth<'_>) -> io::Result<()> {
    if confine.has_namespace(libc::CLONE_NEWUSER) {
        userns::stay(birth.outside)?;
    }
    view::make_missing(&confine.roots)?;
    if confine.has_namespace(libc::CLONE_NEWNS) {
        view::mount_view(confine)?;
    }
    if confine.proc {
        sys::mount_proc()?;
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
fn shed(confine: &Confine) -> rustix::io::Result<()> {
    let mighty = confine.identity.is_some() || confine.has_namespace(libc::CLONE_NEWUSER);
    if !mighty {
        return Ok(());
    }
    kernel::bound_capabilities()?;
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
    let listener = match (birth.program, rules) {
        (Some(program), Some(rules)) => kernel::filter(program, rules.execs == Execs::Once)?,
        _ => None,
    };
    match listener {
        None => line.say(&[]),
        Some(listener) => {
            let socket = line.socket.as_fd();
            kernel::send_with(socket, &line.with_pid(&[LISTENER]), listener.as_fd())?;
        }
    }
    Ok(())
}

/// Puts every descriptor at its number; the standard ones that were not handed read as
/// empty. All others close with exec.
fn place_all(handed: Vec<OwnedFd>, order: &Order) -> io::Result<()> {
    // Copies first, so that placing one does not overwrite another.
    let copies = handed
        .iter()
        .map(|fd| above_targets(fd, order))
        .collect::<io::Result<Vec<_>>>()?;
    sys::close_on_exec_from(3);
    for target in 0..=2u8 {
        if !order.targets.contains(&u32::from(target)) {
            let null =
                rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            sys::place(
                above_targets(&null, order)?.as_raw_fd(),
                RawFd::from(target),
            )?;
        }
    }
    for (copy, &target) in copies.iter().zip(&order.targets) {
        let target = RawFd::try_from(target).map_err(|_| io::ErrorKind::InvalidInput)?;
        sys::place(copy.as_raw_fd(), target)?;
    }
    // An original may sit where a target is now: closing it would close that.
    handed.into_iter().for_each(std::mem::forget);
    Ok(())
}

/// All limits but the one on descriptors, which would be in our own way.
fn set_limits(limits: &Limits) -> rustix::io::Result<()> {
    limit(Resource::Core, Some(0))?;
    limit(Resource::As, limits.address_space_bytes)?;
    limit(Resource::Cpu, limits.cpu_seconds)?;
    limit(Resource::Fsize, limits.file_size_bytes)?;
    limit(Resource::Nproc, limits.processes)
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
