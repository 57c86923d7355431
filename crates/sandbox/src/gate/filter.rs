//! Seccomp programs: which system calls a confined tool may make.
//!
//! Landlock guards files by their path; everything it does not see is guarded here: sockets,
//! children, programs, other processes, metadata and the kernel's wilder corners. Every call has
//! a verdict of its own; a number without one is answered as not there, so a kernel that is newer
//! than the table opens nothing. `policy.rs` says what is asked of each kind of call, `table.rs`
//! lists the calls, `commands.rs` the commands of those that are many, `code.rs` turns all three
//! into the kernel's instructions, `listing.rs` shows them. Not here: when a filter is installed and who answers the one exec.

mod code;
mod commands;
#[cfg(test)]
mod interpret;
mod listing;
mod policy;
mod table;
#[cfg(test)]
mod tests;

pub use listing::{SYSCALL_PROFILES, SyscallVerdict, syscall_verdicts};
use policy::Rule;
use table::{Arch, Kind, NATIVE};

/// What a filter is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    /// Whom it may talk to.
    pub sockets: Sockets,
    /// It may have children. Threads are always allowed.
    pub forks: bool,
    /// It may become other programs.
    pub execs: Execs,
    /// It may change rights, owners, times and attributes, and use System V and POSIX queues.
    pub metadata: bool,
    /// It may ask for the interfaces, addresses and routes of its network by a route socket. For a
    /// child in a network namespace of its own that has nothing but a loopback.
    pub route: bool,
}

/// Sockets it may make. Unix ones beside a pair would reach our own doors and those of other
/// daemons, where the child can see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sockets {
    /// A connected pair of streams or sequenced packets, which event loops and browsers need. A
    /// datagram pair could be aimed at any socket with a path.
    None,
    /// TCP and UDP over both versions of IP too.
    Inet,
    /// Unix sockets of streams and of sequenced packets that listen; nothing connects. For a child
    /// in a network of its own, so that its names are nobody else's.
    Listening,
    /// TCP, UDP and those Unix sockets, all of which connect: for a child whose view of the files
    /// has no more than it may read.
    Local,
}

/// Programs it may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Execs {
    /// Any.
    Any,
    /// Those that whoever listens to the filter lets pass. After that nobody listens, and the
    /// kernel answers that there is no such call.
    Once,
    /// None.
    Never,
}

/// The program that holds a process and its descendants to `rules`. Empty, which no kernel
/// takes, where we do not know the machine's numbers.
pub(crate) fn program(rules: Rules) -> Vec<libc::sock_filter> {
    NATIVE.map_or_else(Vec::new, |arch| whole(arch, rules))
}

/// A second, small program for a fork of a confined interpreter, as the bytes of the kernel's
/// `sock_filter` array: no children, no programs. What its parent was denied stays denied.
#[must_use]
pub fn child_program() -> Vec<u8> {
    let program = NATIVE.map_or_else(Vec::new, childless);
    program.iter().flat_map(bytes_of).collect()
}

fn whole(arch: Arch, rules: Rules) -> Vec<libc::sock_filter> {
    code::build(arch, Rule::NOT_THERE, |kind| policy::rule(kind, rules))
}

fn childless(arch: Arch) -> Vec<libc::sock_filter> {
    let rules = Rules {
        sockets: Sockets::Inet,
        forks: false,
        execs: Execs::Never,
        metadata: true,
        route: false,
    };
    code::build(arch, Rule::ALLOW, |kind| match kind {
        Kind::Fork | Kind::Clone | Kind::Absent | Kind::Exec => policy::rule(kind, rules),
        _ => Rule::ALLOW,
    })
}

fn bytes_of(instruction: &libc::sock_filter) -> [u8; 8] {
    let [code_0, code_1] = instruction.code.to_ne_bytes();
    let [k_0, k_1, k_2, k_3] = instruction.k.to_ne_bytes();
    let (jt, jf) = (instruction.jt, instruction.jf);
    [code_0, code_1, jt, jf, k_0, k_1, k_2, k_3]
}
