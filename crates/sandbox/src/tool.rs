//! From fork to exec: what a tool's process does before it becomes the tool.
//!
//! Its steps report failure on a pipe that exec closes. Confinement will be further steps.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};

use crate::message::{Order, Stage};
use crate::spec::Limits;
use crate::sys;
use crate::tree::{self, Ownership};

/// Bytes before failure: the process id as the gate's `/proc` has it.
pub(crate) const PID_BYTES: usize = 4;

/// Becomes the program of `order`, or reports why not and ends.
pub(crate) fn become_tool(
    order: &Order,
    handed: Vec<OwnedFd>,
    ownership: Ownership,
    report: OwnedFd,
) -> ! {
    say(&report, &tree::own_pid().to_le_bytes());
    // Out of the way of what is placed below.
    match above_targets(&report, order) {
        Ok(high) => {
            let Err((stage, error)) = steps(order, handed, ownership);
            fail(&high, stage, &error)
        }
        Err(error) => fail(&report, Stage::Descriptors, &error),
    }
}

fn fail(report: &OwnedFd, stage: Stage, error: &io::Error) -> ! {
    let mut failure = [0; 5];
    failure[0] = stage as u8;
    failure[1..].copy_from_slice(&error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes());
    say(report, &failure);
    sys::exit_now(127)
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
    let failure = match failure {
        [] => None,
        [stage, errno @ ..] => Some((
            Stage::from_byte(*stage)?,
            i32::from_le_bytes(errno.try_into().ok()?),
        )),
    };
    Some((i32::from_le_bytes(*pid), failure))
}

fn say(report: &OwnedFd, bytes: &[u8]) {
    // A nanny that does not listen is dead, and so shall we be by its death signal.
    let _ = rustix::io::write(report, bytes);
}

type Failure = (Stage, io::Error);

fn steps(
    order: &Order,
    handed: Vec<OwnedFd>,
    ownership: Ownership,
) -> Result<std::convert::Infallible, Failure> {
    let at = |stage| move |error: rustix::io::Errno| (stage, io::Error::from(error));
    // A group of its own: what it sends to its group does not reach the nanny.
    rustix::process::setsid().map_err(at(Stage::Privileges))?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(at(Stage::Privileges))?;
    if ownership == Ownership::Namespace {
        // The old view would name other processes than our own calls do. Where it cannot be
        // had the tool runs all the same.
        let _ = sys::private_proc();
    }
    rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::chdir(order.cwd.as_c_str()).map_err(at(Stage::Cwd))?;
    place_all(handed, order).map_err(|error| (Stage::Descriptors, error))?;
    set_limits(&order.limits).map_err(at(Stage::Limits))?;
    if !order.may_gain_rights {
        rustix::thread::set_no_new_privs(true).map_err(at(Stage::Privileges))?;
    }
    sys::unblock_signals();
    let path: &CStr = &order.path;
    Err((Stage::Exec, sys::exec(path, &order.argv, &order.env)))
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

fn set_limits(limits: &Limits) -> rustix::io::Result<()> {
    let wanted = [
        (Resource::Core, Some(0)),
        (Resource::As, limits.address_space_bytes),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::Fsize, limits.file_size_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
    ];
    for (resource, limit) in wanted {
        let Some(limit) = limit else { continue };
        let hard = rustix::process::getrlimit(resource).maximum;
        let limit = Some(hard.map_or(limit, |hard| hard.min(limit)));
        rustix::process::setrlimit(
            resource,
            Rlimit {
                current: limit,
                maximum: limit,
            },
        )?;
    }
    Ok(())
}
