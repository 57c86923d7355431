//! The system calls of confinement that have no safe wrapper or need much around them, one
//! small function each, made by a child on its way to the tool, by its nanny and, for reports, by
//! the gate.
#![allow(
    unsafe_code,
    reason = "seccomp, its listener, mount attributes and interfaces have no safe form"
)]

use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};
use rustix::thread::{Gid, Uid};

use crate::confine::Identity;
use crate::message::OUTLETS_MAX;

/// Installs a filter. With `listens` the kernel asks whoever has the descriptor about the
/// calls that the program marks so.
pub(crate) fn filter(program: &[libc::sock_filter], listens: bool) -> io::Result<Option<OwnedFd>> {
    let Ok(len) = libc::c_ushort::try_from(program.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut(),
    };
    let flags = if listens {
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
    } else {
        0
    };
    // SAFETY: the program outlives the call, which copies it and does not write to it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    match result {
        ..0 => Err(io::Error::last_os_error()),
        fd if listens => {
            let fd = i32::try_from(fd).expect("a descriptor is an int");
            // SAFETY: the kernel has just given us this descriptor.
            Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
        }
        _ => Ok(None),
    }
}

/// Sends some bytes and a descriptor.
pub(crate) fn send_with(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fd: BorrowedFd<'_>,
) -> io::Result<()> {
    send_with_all(socket, bytes, &[fd])
}

/// Sends some bytes and descriptors, at most `OUTLETS_MAX`. Takes no memory.
pub(crate) fn send_with_all(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    rights: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(OUTLETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(rights)) {
        return Err(Errno::MSGSIZE.into());
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?;
    Ok(())
}

/// Receives bytes, and the descriptors that came with them, at most `OUTLETS_MAX`. The kernel
/// reads no further than what descriptors came with.
pub(crate) fn receive_with(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(OUTLETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut found = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            found.extend(rights);
        }
    }
    Ok((got.bytes, found))
}

/// Brings the loopback of our network namespace up.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: all zeros is a valid request: integers and an empty name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (at, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *at = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_UP).expect("the first bit");
    // SAFETY: `request` is the structure this request reads, and outlives the call.
    let set = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The version of Landlock that the kernel has; 0 is none.
pub(crate) fn landlock_version() -> u8 {
    const VERSION: libc::c_uint = 1;
    let none: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the call takes no structure and only answers.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    u8::try_from(version).unwrap_or(0)
}

/// Holds this process to a Landlock ruleset, for good.
pub(crate) fn enter_ruleset(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    let fd = ruleset.as_raw_fd();
    // SAFETY: a plain call without pointers.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fd, 0) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets the one call that waits at `listener` go on.
pub(crate) fn permit(listener: impl AsFd) -> io::Result<()> {
    // Nobody left to ask shows as readable too, and receiving would then wait for ever.
    let mut polled = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now))?;
    if !polled[0].revents().contains(PollFlags::IN) {
        return Err(Errno::NOENT.into());
    }
    let fd = listener.as_fd().as_raw_fd();
    // SAFETY: all zeros is what the kernel wants to find there.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `asked` is the structure this request fills, and outlives the call. Kernels
    // whose structure is larger refuse the request, which has its size in its number.
    let got = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = libc::seccomp_notif_resp {
        id: asked.id,
        val: 0,
        error: 0,
        flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
    };
    // SAFETY: `answer` is the structure this request reads, and outlives the call.
    let sent = unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Makes a mount read-only, and all below it.
pub(crate) fn set_read_only(at: impl AsFd, path: &CStr) -> io::Result<()> {
    set_attributes(at, path, libc::MOUNT_ATTR_RDONLY)
}

/// Makes the devices of a mount impossible to open.
pub(crate) fn set_no_devices(at: impl AsFd, path: &CStr) -> io::Result<()> {
    set_attributes(at, path, libc::MOUNT_ATTR_NODEV)
}

/// Makes one mount read-only, and none below it.
pub(crate) fn set_read_only_alone(at: impl AsFd, path: &CStr) -> io::Result<()> {
    set_attributes_of(at, path, libc::MOUNT_ATTR_RDONLY, 0)
}

fn set_attributes(at: impl AsFd, path: &CStr, set: u64) -> io::Result<()> {
    set_attributes_of(at, path, set, libc::AT_RECURSIVE)
}

fn set_attributes_of(
    at: impl AsFd,
    path: &CStr,
    set: u64,
    mut flags: libc::c_int,
) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    if path.is_empty() {
        flags |= libc::AT_EMPTY_PATH;
    }
    // SAFETY: path and attributes outlive the call, and the size is that of the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            at.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Is the first to be killed where memory runs out.
pub(crate) fn go_first() -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())?;
    rustix::io::write(file, b"1000").map(drop)
}

/// Becomes somebody else, for good.
pub(crate) fn become_user(identity: Identity) -> rustix::io::Result<()> {
    // SAFETY: neither number is -1, which would mean "leave it".
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// Shuts the ways in which a program could get capabilities by exec. Needs them still.
pub(crate) fn bound_capabilities() -> rustix::io::Result<()> {
    rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    )?;
    // The kernel may know more than we do; it says where its list ends.
    for number in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(error),
        }
    }
    rustix::thread::clear_ambient_capability_set()
}

/// Gives up every capability.
pub(crate) fn drop_capabilities() -> rustix::io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )
}
