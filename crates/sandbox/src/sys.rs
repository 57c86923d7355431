//! The system calls that have no safe wrapper, one small function each. All of them are
//! made by the single-threaded spawner and its forks, never by the gate.
#![allow(unsafe_code, reason = "fork, exec and wait have no safe form")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

pub(crate) type Pid = libc::pid_t;

/// Who is who after a fork.
pub(crate) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks. `flags` are namespaces for the child.
///
/// The raw call, because `fork` of the C library cannot make namespaces. What it would do
/// beside (handlers, locks) concerns programs with threads, and these have none.
pub(crate) fn fork(flags: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child has its own copy of this single-threaded process
    // and, with a null stack, goes on where the parent is.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::try_from(pid).expect("a pid is an int"))),
    }
}

/// Forks into a group of processes, a folder of the second version's tree. `flags` are
/// namespaces for the child.
pub(crate) fn fork_into(group: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<Fork> {
    const INTO_CGROUP: u64 = 0x2_0000_0000;
    // The kernel's structure: flags, then in their places the signal of our end and the group.
    let mut args = [0u64; 11];
    args[0] = INTO_CGROUP | u64::from(flags.cast_unsigned());
    args[4] = libc::SIGCHLD.unsigned_abs().into();
    args[10] = group.as_raw_fd().unsigned_abs().into();
    // SAFETY: the structure outlives the call and is as large as said; without CLONE_VM the
    // child has its own copy of this single-threaded process and goes on where the parent is.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(Pid::try_from(pid).expect("a pid is an int"))),
    }
}

/// Where a process is born.
pub(crate) enum Cradle<'a> {
    /// Where we are, as a copy of us.
    Here,
    /// Where we are, in our memory until it execs.
    Stack(&'a mut Stack),
    /// In this group.
    Group(BorrowedFd<'a>),
}

/// A process that does `life` is started, then `meanwhile` runs here. `flags` are namespaces.
///
/// On a stack, the process shares our memory until it execs: nothing of ours is copied, and
/// nothing of ours may be changed by it. It then must not allocate, and neither side may
/// rely on `errno` of a call that the other could make at the same time.
///
/// # Safety
///
/// With a stack, `life` must keep to the above, and `meanwhile` must return only when the
/// process has become another program or is gone.
pub(crate) unsafe fn start<T, R>(
    flags: libc::c_int,
    cradle: Cradle<'_>,
    life: Life<'_, T>,
    meanwhile: impl FnOnce(Pid) -> R,
) -> io::Result<R> {
    let pid = match cradle {
        Cradle::Here => match fork(flags)? {
            Fork::Parent(pid) => pid,
            Fork::Child => (life.body)(life.of),
        },
        Cradle::Group(group) => match fork_into(group, flags)? {
            Fork::Parent(pid) => pid,
            Fork::Child => (life.body)(life.of),
        },
        Cradle::Stack(stack) => {
            let flags = flags | libc::CLONE_VM | libc::SIGCHLD;
            let arg = (&raw const life).cast_mut().cast();
            // SAFETY: the stack is ours alone, because our last process has left it; its life
            // is here until `meanwhile` returns, and the caller answers for both.
            let pid = unsafe { libc::clone(enter::<T>, stack.top(), flags, arg) };
            check(pid)?;
            pid
        }
    };
    Ok(meanwhile(pid))
}

/// What a process does until it execs or ends.
pub(crate) struct Life<'a, T> {
    pub body: fn(&T) -> !,
    pub of: &'a T,
}

extern "C" fn enter<T>(arg: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a pointer to one, which is there for as long as this process is.
    let life: &Life<'_, T> = unsafe { &*arg.cast() };
    (life.body)(life.of)
}

/// The stack of a process that shares our memory.
pub(crate) struct Stack {
    base: *mut libc::c_void,
}

impl Stack {
    const BYTES: usize = 256 * 1024;
    /// Below it, so that what runs over is killed and does not write elsewhere.
    const GUARD_BYTES: usize = 64 * 1024;

    pub fn new() -> io::Result<Self> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
        );
        let bytes = Self::GUARD_BYTES + Self::BYTES;
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { base };
        // SAFETY: the lower part of the mapping above, which nobody uses.
        check(unsafe { libc::mprotect(base, Self::GUARD_BYTES, libc::PROT_NONE) })?;
        Ok(stack)
    }

    /// Where it begins: it grows down.
    fn top(&mut self) -> *mut libc::c_void {
        self.base.wrapping_byte_add(Self::GUARD_BYTES + Self::BYTES)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, on which nobody runs.
        unsafe { libc::munmap(self.base, Self::GUARD_BYTES + Self::BYTES) };
    }
}

/// What a wait found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This one ended.
    One(Gone),
    /// There are children, none has ended.
    NoneYet,
    /// There are no children.
    Nobody,
}

/// A child that ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub pid: Pid,
    /// Raw.
    pub status: i32,
    pub usage: Usage,
}

/// What processes have taken, those included that they waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub cpu: Duration,
    /// The most that one of them had resident.
    pub max_rss_bytes: u64,
}

impl Usage {
    pub fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.max_rss_bytes = self.max_rss_bytes.max(other.max_rss_bytes);
    }
}

/// Waits for one child and gives its raw status.
pub(crate) fn wait_for(pid: Pid) -> i32 {
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    while unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) } < 0 && errno() == libc::EINTR
    {
    }
    status
}

/// Reaps one child of any kind, if one has ended.
pub(crate) fn reap() -> Reaped {
    let flags = libc::__WALL | libc::WNOHANG;
    loop {
        let mut status = 0;
        // SAFETY: all zeros is a valid `rusage`, plain integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `status` and `usage` outlive the call.
        match unsafe { libc::wait4(-1, &raw mut status, flags, &raw mut usage) } {
            0 => return Reaped::NoneYet,
            -1 if errno() == libc::EINTR => {}
            -1 => return Reaped::Nobody,
            pid => {
                let usage = usage_of(&usage);
                return Reaped::One(Gone { pid, status, usage });
            }
        }
    }
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        max_rss_bytes: usage.ru_maxrss.unsigned_abs().saturating_mul(1024),
    }
}

/// Blocks SIGCHLD and gives a descriptor that is readable when one is pending. Forks may
/// use it too: it shows the signals of whoever looks.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: all zeros is a valid place for a signal set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writes, and was made empty before it is added to.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
    }
    // SAFETY: `set` was initialised above; no old set is asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) })?;
    // SAFETY: `set` was initialised above; -1 asks for a new descriptor.
    let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    check(fd)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Unblocks all signals.
pub(crate) fn unblock_signals() {
    // SAFETY: all zeros is a valid place for a signal set, made empty by the next call.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for the two calls; no old set is asked for.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
}

/// Every signal does what it does by default: an ignored one would stay ignored in tools.
///
/// The raw call, because the C library keeps two signals for itself and refuses to touch
/// them, though a parent may have left them ignored.
pub(crate) fn default_signals() {
    const SIGNALS: usize = 64;
    // The kernel's form: default handler, no flags, no restorer, empty mask.
    let default = [0u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: `default` is at least as large as the kernel's structure and installs no
        // code; no old action is asked for. Signals that cannot be changed answer with an
        // error, which is what we want.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                0usize,
                SIGNALS / 8,
            );
        }
    }
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: a new process calls this before it has opened anything.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if done == 0 {
        return;
    }
    // Kernels before 5.9.
    for fd in open_descriptors() {
        if fd >= first {
            // SAFETY: as above.
            unsafe { libc::close(fd) };
        }
    }
}

/// Marks every descriptor from `first` on to be closed by exec. Best effort: what we open
/// is marked from birth.
pub(crate) fn close_on_exec_from(first: RawFd) {
    const CLOEXEC: libc::c_uint = 4;
    // SAFETY: changes only a flag of descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOEXEC) };
}

fn open_descriptors() -> Vec<RawFd> {
    let entries = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Makes descriptor `to` a copy of `from` that exec leaves open.
pub(crate) fn place(from: RawFd, to: RawFd) -> io::Result<()> {
    // SAFETY: the caller owns the numbers: it is about to exec, and whatever was at `to`
    // has been copied out of the way.
    check(unsafe { libc::dup2(from, to) })
}

/// A copy of a descriptor, at `least` or above, that exec closes.
pub(crate) fn copy_above(fd: RawFd, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: changes nothing but the table of descriptors, by a new one.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
    check(copy)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A program to become, in the form that the kernel takes.
pub(crate) struct Program<'a> {
    path: &'a CStr,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

impl<'a> Program<'a> {
    pub fn new(path: &'a CStr, argv: &'a [CString], env: &'a [CString]) -> Self {
        let pointers = |list: &[CString]| {
            let texts = list.iter().map(|text| text.as_ptr());
            texts.chain([ptr::null()]).collect()
        };
        Self {
            path,
            argv: pointers(argv),
            env: pointers(env),
        }
    }

    /// Becomes it. Returns only if that failed.
    pub fn exec(&self) -> io::Error {
        let (argv, env) = (self.argv.as_ptr(), self.env.as_ptr());
        // SAFETY: the lists end in null, and the texts they point to outlive us.
        unsafe { libc::execve(self.path.as_ptr(), argv, env) };
        io::Error::last_os_error()
    }
}

/// Sends a signal to one process. A process that is gone is no error.
pub(crate) fn kill(pid: Pid, signal: libc::c_int) {
    // Zero and below address groups, or everybody.
    if pid > 0 {
        // SAFETY: a plain call without pointers.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Sends a signal to a process and those of its group. One that has not made its group yet is
/// signalled alone.
pub(crate) fn kill_group(leader: Pid, signal: libc::c_int) {
    // As above: 0 would be our own group, and -1 everybody.
    if leader > 1 {
        // SAFETY: a plain call without pointers.
        if unsafe { libc::kill(-leader, signal) } < 0 {
            kill(leader, signal);
        }
    }
}

/// Kills everybody else in a pid namespace of our own, all at once.
pub(crate) fn kill_namespace() {
    // Anywhere else -1 would mean every process of the machine.
    assert_eq!(
        std::process::id(),
        1,
        "not the first process of a pid namespace"
    );
    // SAFETY: a plain call without pointers.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Mounts of its own, which nobody outside sees.
pub(crate) fn private_mounts() -> io::Result<()> {
    let none: *const libc::c_char = ptr::null();
    // SAFETY: a plain call without pointers.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let quiet = libc::MS_REC | libc::MS_SLAVE;
    // SAFETY: null is allowed for source, type and data when only propagation changes.
    check(unsafe { libc::mount(none, c"/".as_ptr(), none, quiet, ptr::null()) })
}

/// A view of `/proc` that matches our pid namespace, among mounts of our own.
pub(crate) fn mount_proc() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let (proc, at) = (c"proc".as_ptr(), c"/proc".as_ptr());
    // SAFETY: all texts are literals; no data is passed.
    check(unsafe { libc::mount(proc, at, proc, flags, ptr::null()) })
}

/// What only the spawner may hold: the end of the lifeline and the socket at 0, whose place
/// `/dev/null` takes. For a fork of the spawner, which never goes back to it.
pub(crate) fn leave_spawner(lifeline_end: RawFd) {
    let _ = place(1, 0);
    // SAFETY: the fork's copy of the owner of this descriptor is never used again.
    unsafe { libc::close(lifeline_end) };
}

/// Holds this thread and its descendants to a filter, for good. `flags` are those of the
/// kernel's call; with a new listener its descriptor is returned, else 0.
#[cfg_attr(not(test), allow(dead_code, reason = "the launcher takes it up next"))]
pub(crate) fn seccomp(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<RawFd> {
    let length =
        libc::c_ushort::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel only reads the program, which outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    match RawFd::try_from(done) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends this process at once: no destructors, no handlers.
pub(crate) fn exit_now(code: libc::c_int) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
