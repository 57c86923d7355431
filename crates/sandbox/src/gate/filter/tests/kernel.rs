//! The programs in the kernel: a fork installs one and makes a call.
#![allow(unsafe_code, reason = "raw calls are what is tested")]

use rustix::process::{Pid, WaitOptions};

use super::*;
use crate::sys::{self, Fork};

/// How a fork ended that installed `program`, made one call and exited with its errno, 0 for
/// success.
fn ended(program: &[libc::sock_filter], number: libc::c_long, arguments: [u64; 3]) -> Ended {
    let [first, second, third] = arguments;
    let call = || {
        // SAFETY: the calls tested take no pointers, or get a null one.
        unsafe { libc::syscall(number, first, second, third, 0, 0, 0) }
    };
    inside(program, call)
}

#[derive(Debug, PartialEq)]
enum Ended {
    Errno(i32),
    Killed(i32),
}

/// Runs `act` under `program` in a fork. Other threads may have held any lock when it was
/// made, so it must not allocate.
fn inside(program: &[libc::sock_filter], act: impl Fn() -> libc::c_long) -> Ended {
    match sys::fork(0).expect("fork") {
        Fork::Child => {
            let installed =
                rustix::thread::set_no_new_privs(true).is_ok() && sys::seccomp(program, 0).is_ok();
            if !installed {
                sys::exit_now(255);
            }
            let code = match act() {
                -1 => std::io::Error::last_os_error()
                    .raw_os_error()
                    .unwrap_or(254),
                _ => 0,
            };
            sys::exit_now(code)
        }
        Fork::Parent(pid) => {
            let pid = Pid::from_raw(pid).expect("a child");
            let waited = rustix::process::waitpid(Some(pid), WaitOptions::empty());
            let (_, status) = waited.expect("wait").expect("it ended");
            match status.exit_status() {
                Some(code) => Ended::Errno(code),
                None => Ended::Killed(status.terminating_signal().expect("a signal")),
            }
        }
    }
}

const REFUSED: Ended = Ended::Errno(libc::EPERM);
const FINE: Ended = Ended::Errno(0);

/// What is refused for a reason of ours works for the same process without the filter, or
/// fails otherwise: nothing is refused by accident.
#[test]
fn the_kernel_refuses_what_the_table_says() {
    let strict = program(STRICT);
    let loose = program(Rules {
        sockets: Sockets::Inet,
        forks: true,
        execs: Execs::Any,
        metadata: true,
        route: false,
    });
    let inet = [libc::AF_INET, libc::SOCK_STREAM, 0].map(|n| n.cast_unsigned().into());
    let unix = [libc::AF_UNIX, libc::SOCK_STREAM, 0].map(|n| n.cast_unsigned().into());
    let absent = Ended::Errno(libc::ENOSYS);
    let fault = Ended::Errno(libc::EFAULT);
    let cases = [
        (libc::SYS_getpid, [0; 3], FINE, FINE),
        (libc::SYS_socket, inet, REFUSED, FINE),
        (libc::SYS_socket, unix, REFUSED, REFUSED),
        (libc::SYS_unshare, [0; 3], REFUSED, REFUSED),
        (libc::SYS_fchmodat, [0; 3], REFUSED, fault),
        (
            libc::SYS_execve,
            [0; 3],
            REFUSED,
            Ended::Errno(libc::EFAULT),
        ),
        (libc::SYS_clone3, [0; 3], absent, Ended::Errno(libc::ENOSYS)),
        (libc::SYS_seccomp, [1, 8, 0], REFUSED, REFUSED),
        (
            libc::SYS_seccomp,
            [1, 0, 0],
            Ended::Errno(libc::EFAULT),
            Ended::Errno(libc::EFAULT),
        ),
        (libc::SYS_prlimit64, [0; 3], FINE, FINE),
        (libc::SYS_prlimit64, [1, 0, 0], REFUSED, REFUSED),
        (
            470,
            [0; 3],
            Ended::Errno(libc::ENOSYS),
            Ended::Errno(libc::ENOSYS),
        ),
        (
            1 << 30,
            [0; 3],
            Ended::Errno(libc::ENOSYS),
            Ended::Errno(libc::ENOSYS),
        ),
    ];
    for (number, arguments, under_strict, under_loose) in cases {
        let what = format!("{number} {arguments:?}");
        assert_eq!(ended(&strict, number, arguments), under_strict, "{what}");
        assert_eq!(ended(&loose, number, arguments), under_loose, "{what}");
    }
}

/// K-10. A lease makes every process wait that opens the file, and a read-only tool that owns a
/// file could take one.
#[test]
fn leases_and_unknown_commands_are_refused() {
    let loose = program(Rules {
        sockets: Sockets::Inet,
        forks: true,
        execs: Execs::Any,
        metadata: true,
        route: false,
    });
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let file = std::os::fd::AsRawFd::as_raw_fd(&file);
    let fcntl = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: these commands take a number.
        inside(&loose, || unsafe {
            libc::c_long::from(libc::fcntl(file, command, argument))
        })
    };
    assert_eq!(fcntl(libc::F_GETFL, 0), FINE);
    assert_eq!(fcntl(libc::F_SETLEASE, libc::F_RDLCK), REFUSED);
    assert_eq!(fcntl(libc::F_NOTIFY, 1), REFUSED);
    assert_eq!(fcntl(4242, 0), Ended::Errno(libc::EINVAL));
    let no_such_call = Ended::Errno(libc::ENOSYS);
    assert_eq!(ended(&loose, 468, [0; 3]), no_such_call);
    assert_eq!(ended(&loose, 469, [0; 3]), no_such_call);
}

/// K-4. A pair of sequenced packets sends to its other end alone, whatever address is named.
#[test]
fn a_packet_pair_reaches_no_other_socket() {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    let strict = program(STRICT);
    let folder = std::env::temp_dir().join(format!("callgate-pair-{}", std::process::id()));
    let _ = std::fs::remove_file(&folder);
    let other = std::os::unix::net::UnixDatagram::bind(&folder).unwrap();
    other.set_nonblocking(true).unwrap();
    let mut address: libc::sockaddr_un = unsafe_zeroed();
    address.sun_family = libc::AF_UNIX as u16;
    let path = std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str());
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = from.cast_signed();
    }
    let sent = inside(&strict, || {
        let mut pair = [0; 2];
        // SAFETY: the pair has room for two descriptors; the address outlives the call.
        unsafe {
            if libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr()) != 0 {
                return -1;
            }
            let length = size_of::<libc::sockaddr_un>() as u32;
            let to = (&raw const address).cast();
            let sent = libc::sendto(pair[0], c"x".as_ptr().cast(), 1, 0, to, length);
            let near = OwnedFd::from_raw_fd(pair[1]);
            let mut byte = [0u8; 1];
            let got = libc::recv(near.as_raw_fd(), byte.as_mut_ptr().cast(), 1, 0);
            libc::c_long::from(sent != 1 || got != 1).wrapping_neg()
        }
    });
    assert_eq!(sent, FINE);
    let arrived = other.recv(&mut [0; 1]);
    std::fs::remove_file(&folder).unwrap();
    assert_eq!(arrived.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let datagrams = [libc::AF_UNIX, libc::SOCK_DGRAM, 0].map(|n| n.cast_unsigned().into());
    assert_eq!(ended(&strict, libc::SYS_socketpair, datagrams), REFUSED);
}

fn unsafe_zeroed() -> libc::sockaddr_un {
    // SAFETY: all of its fields are numbers.
    unsafe { std::mem::zeroed() }
}

/// K-6. Without a listener the call is not there.
#[test]
fn exec_once_without_a_listener_is_never() {
    let once = program(Rules {
        execs: Execs::Once,
        ..STRICT
    });
    let ended = ended(&once, libc::SYS_execve, [0; 3]);
    assert_eq!(ended, Ended::Errno(libc::ENOSYS));
}

/// K-5. The small program on top of one that allows children.
#[test]
fn a_second_program_only_tightens() {
    let forking = program(Rules {
        forks: true,
        execs: Execs::Any,
        ..STRICT
    });
    let small = childless(NATIVE.expect("a known machine"));
    let stacked = |number, arguments: [u64; 3]| {
        inside(&forking, || {
            if sys::seccomp(&small, 0).is_err() {
                sys::exit_now(253);
            }
            let [first, second, third] = arguments;
            // SAFETY: the calls tested take no pointers, or get a null one.
            unsafe { libc::syscall(number, first, second, third, 0, 0, 0) }
        })
    };
    assert_eq!(stacked(libc::SYS_clone, [17, 0, 0]), REFUSED);
    assert_eq!(stacked(libc::SYS_execve, [0; 3]), REFUSED);
    assert_eq!(stacked(libc::SYS_socket, [2, 1, 0]), REFUSED);
    assert_eq!(stacked(libc::SYS_getpid, [0; 3]), FINE);
}

/// K-2. 32-bit calls, which have other numbers.
#[cfg(target_arch = "x86_64")]
#[test]
fn another_machines_calls_kill() {
    let getpid_32 = || {
        const GETPID: libc::c_long = 20;
        let answer: libc::c_long;
        // SAFETY: asks for the process id and changes nothing but the registers named.
        unsafe {
            std::arch::asm!("int 0x80", inlateout("rax") GETPID => answer,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        answer
    };
    assert_eq!(
        inside(&program(STRICT), getpid_32),
        Ended::Killed(libc::SIGSYS)
    );
}
