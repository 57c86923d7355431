//! Finds out what this machine can hold a child to: each layer is applied in a process of its
//! own, which then tries what it must no longer be able to do. A version number or a file in
//! `/proc` would only tell what may be.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};

use crate::child::landlock::Fence;
use crate::child::mounts;
use crate::child::outlet;
use crate::child::userns::{self, Outside};
use crate::confine::{Confine, Identity};
use crate::gate::facts::{Cgroup, Facts};
use crate::gate::filter::{self, Execs, Rules, Sockets};
use crate::kernel;
use crate::nanny::group::{self, Group};
use crate::nanny::places::Places;
use crate::nanny::scratch;
use crate::nanny::tree::Ownership;
use crate::spec::Limits;
use crate::sys::{self, Fork};
use crate::wait;

/// Whom root's children may become: nobody in particular.
const NOBODY: Identity = Identity {
    uid: 65_534,
    gid: 65_534,
};

/// The newest version of Landlock that we know.
const LANDLOCK_MAX: u8 = 9;

/// The memory that somebody in a group takes at least, to see that it is counted.
const COUNTED_BYTES: u64 = 2 << 20;

/// The whole life of a probing process: finds out, tells, and then tidies up what killed
/// nannies left in the folder it is told of.
pub(crate) fn live(leash: OwnedFd, ownership: Ownership) -> ! {
    let base = read_base(&leash);
    let facts = gather(ownership);
    let _ = rustix::net::send(&leash, &facts.to_bytes(), SendFlags::NOSIGNAL);
    drop(leash);
    if let Some(base) = base {
        scratch::sweep(&base);
    }
    sys::exit_now(0)
}

/// The whole life of a process that finds out what groups can hold: finds out, tells, and then
/// tidies up the groups that killed nannies left.
pub(crate) fn live_groups(leash: &OwnedFd) -> ! {
    let places = Places::find(Cgroup::ALL);
    let held = hold_together(&places).unwrap_or_default();
    let _ = rustix::net::send(leash, &[held.to_byte()], SendFlags::NOSIGNAL);
    group::sweep(&places);
    sys::exit_now(0)
}

/// Makes a group with limits and somebody in it who tries to be more than one.
fn hold_together(places: &Places) -> io::Result<Cgroup> {
    let mut group = Group::make(places, Cgroup::ALL)?;
    let held = held_by(&mut group);
    group.remove();
    held
}

fn held_by(group: &mut Group) -> io::Result<Cgroup> {
    group.set(&Limits {
        address_space_bytes: Some(64 << 20),
        processes: Some(1),
        cpu_percent: Some(50),
        ..Limits::default()
    })?;
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let forked = match group.birthplace() {
        Some(birthplace) => sys::fork_into(birthplace, 0)?,
        None => sys::fork(0)?,
    };
    match forked {
        Fork::Child => {
            drop(ours);
            be_counted(&theirs)
        }
        Fork::Parent(pid) => {
            drop(theirs);
            let told = rustix::io::read(&ours, &mut [0]).is_ok_and(|read| read == 1);
            let bytes = group.memory().unwrap_or(0);
            drop(ours);
            let alone = sys::wait_for(pid) == 0;
            let seen = Cgroup {
                memory: told && bytes >= COUNTED_BYTES,
                processes: told && alone,
                cpu_share: told,
                cpu_time: told && group.cpu().is_some(),
            };
            Ok(group.holds().and(seen))
        }
    }
}

/// Takes memory, says so and stays until it was seen; ends well if it could not be two.
fn be_counted(socket: &OwnedFd) -> ! {
    // bound: a constant
    let taken = std::hint::black_box(vec![1u8; 2 * COUNTED_BYTES as usize]);
    let alone = sys::fork(0).is_err();
    let _ = rustix::io::write(socket, &[0]);
    let _ = rustix::io::read(socket, &mut [0]);
    drop(std::hint::black_box(taken));
    sys::exit_now(i32::from(!alone))
}

/// One path, ended by a zero byte.
fn read_base(leash: &OwnedFd) -> Option<CString> {
    let mut bytes = [0; libc::PATH_MAX as usize];
    let mut filled = 0;
    loop {
        match rustix::io::read(leash, &mut bytes[filled..]) {
            Ok(0) => return None,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
        if let Ok(path) = CStr::from_bytes_until_nul(&bytes[..filled]) {
            return Some(path.to_owned());
        }
    }
}

fn gather(ownership: Ownership) -> Facts {
    let version = kernel::landlock_version().min(LANDLOCK_MAX);
    let by_user_namespace = !rustix::process::geteuid().is_root();
    let with = |flags| namespaces(flags, by_user_namespace);
    Facts {
        landlock: if works(0, || landlock_denies(version)) {
            version
        } else {
            0
        },
        seccomp: works(0, filter_denies),
        exec_once: exec_once_works().unwrap_or(false),
        identity: !by_user_namespace && works(0, identity_stays),
        pid_namespace: ownership == Ownership::Namespace,
        mount_namespace: with(libc::CLONE_NEWNS).test(read_only_holds),
        net_namespace: with(libc::CLONE_NEWNET).test(nobody_is_reached),
        net_listener: with(libc::CLONE_NEWNET).test(outlet_is_reached),
        ipc_namespace: with(libc::CLONE_NEWIPC).test(|| true),
        by_user_namespace,
        pid_namespace_by_user: by_user_namespace
            && with(libc::CLONE_NEWPID).test(own_processes_are_seen),
        cgroup: Cgroup::NONE,
    }
}

/// True if a child of this process, the first of its pid namespace, can see its own `/proc`.
fn own_processes_are_seen() -> bool {
    works(libc::CLONE_NEWNS, || {
        let own = || std::fs::read_link("/proc/self").ok();
        let is_numbered_anew = |name: std::path::PathBuf| {
            let number = std::process::id().to_string();
            name.as_os_str() == number.as_str()
        };
        mounts::hide_from_outside().is_ok()
            && sys::mount_proc().is_ok()
            && own().is_some_and(is_numbered_anew)
    })
}

/// True if a process of its own finds that `test` holds.
fn works(flags: libc::c_int, test: impl FnOnce() -> bool) -> bool {
    match sys::fork(flags) {
        Ok(Fork::Parent(pid)) => sys::wait_for(pid) == 0,
        Ok(Fork::Child) => {
            let _ = rustix::thread::set_no_new_privs(true);
            sys::exit_now(i32::from(!test()))
        }
        Err(_) => false,
    }
}

/// Tests in namespaces of their own.
struct Namespaces {
    flags: libc::c_int,
    outside: Option<Outside>,
}

fn namespaces(flags: libc::c_int, by_user_namespace: bool) -> Namespaces {
    Namespaces {
        flags: if by_user_namespace {
            flags | libc::CLONE_NEWUSER
        } else {
            flags
        },
        outside: by_user_namespace.then(Outside::now),
    }
}

impl Namespaces {
    fn test(self, test: impl FnOnce() -> bool) -> bool {
        works(self.flags, || {
            self.outside
                .is_none_or(|outside| userns::stay(outside).is_ok())
                && test()
        })
    }
}

fn landlock_denies(version: u8) -> bool {
    let confine = Confine {
        landlock: version,
        no_tcp: true,
        ..Confine::default()
    };
    let entered = Fence::build(&confine).and_then(|fence| fence.enter());
    version > 0 && entered.is_ok() && open_root() == Some(Errno::ACCESS)
}

fn open_root() -> Option<Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(c"/", flags, Mode::empty()).err()
}

fn filter_denies() -> bool {
    let rules = Rules {
        sockets: Sockets::None,
        forks: false,
        execs: Execs::Never,
        metadata: false,
        route: false,
    };
    if kernel::filter(&filter::program(rules), false).is_err() {
        return false;
    }
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    socket.is_err() && sys::fork(0).is_err()
}

/// The first exec gets as far as not finding its program, the second not even there.
fn exec_once_works() -> io::Result<bool> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    match sys::fork(0)? {
        Fork::Child => {
            drop(ours);
            let _ = rustix::thread::set_no_new_privs(true);
            sys::exit_now(i32::from(!execs_once(theirs).unwrap_or(false)))
        }
        Fork::Parent(pid) => {
            drop(theirs);
            let handed = kernel::receive_with(ours.as_fd(), &mut [0]);
            if let Some(listener) = handed.ok().and_then(|(_, mut all)| all.pop()) {
                wait::readable(&[listener.as_fd()], None);
                let _ = kernel::permit(&listener);
            }
            Ok(sys::wait_for(pid) == 0)
        }
    }
}

fn execs_once(socket: OwnedFd) -> io::Result<bool> {
    let rules = Rules {
        sockets: Sockets::None,
        forks: true,
        execs: Execs::Once,
        metadata: false,
        route: false,
    };
    let Some(listener) = kernel::filter(&filter::program(rules), true)? else {
        return Ok(false);
    };
    kernel::send_with(socket.as_fd(), &[0], listener.as_fd())?;
    drop((listener, socket));
    let nothing = sys::Program::new(c"", &[], &[]);
    let exec = || nothing.exec().raw_os_error();
    Ok(exec() == Some(libc::ENOENT) && exec() == Some(libc::ENOSYS))
}

fn identity_stays() -> bool {
    let shed = kernel::bound_capabilities()
        .and_then(|()| kernel::become_user(NOBODY))
        .and_then(|()| kernel::drop_capabilities());
    let root = Identity { uid: 0, gid: 0 };
    shed.is_ok() && kernel::become_user(root).is_err()
}

fn read_only_holds() -> bool {
    let confine = Confine {
        read_only: true,
        ..Confine::default()
    };
    if mounts::mount_view(&confine).is_err() {
        return false;
    }
    // Root may write here, and others may not; to both the mount's word comes first. A file
    // without a name: one that is there already would be told before the mount's word.
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let made = rustix::fs::open(c"/tmp", flags, Mode::RUSR | Mode::WUSR);
    made.is_err_and(|error| error == Errno::ROFS)
}

/// The way out of a network of its own can be made and found.
fn outlet_is_reached() -> bool {
    let Ok(_outlet) = outlet::open() else {
        return false;
    };
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    socket.is_ok_and(|socket| rustix::net::connect(&socket, &outlet::address()).is_ok())
}

/// In a network of its own not even this machine is there.
fn nobody_is_reached() -> bool {
    let Ok(socket) = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None) else {
        return false;
    };
    let here = std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 9);
    rustix::net::connect(&socket, &here).is_err()
}
