//! What is asked of each kind of call, as plain values: the code made from them and the
//! reference that tests compare it with both start here.

use super::commands::{ARCH_PRCTL, Commands, FCNTL, IOCTL, PRCTL, SOCKET_OPTION};
use super::table::Kind;
use super::{Execs, Rules, Sockets};

/// How a call is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The same answer always.
    Answer(u32),
    /// Allowed where all of these hold, else refused.
    AllOf(&'static [Clause]),
    /// Allowed where none of these holds, else refused.
    NoneOf(&'static [Clause]),
    /// Allowed where all of one of these lists hold, else refused.
    AnyOf(&'static [&'static [Clause]]),
    /// Judged by its command.
    ByCommand {
        commands: &'static Commands,
        /// The tool may change metadata.
        metadata: bool,
    },
}

/// Something that the low half of an argument may be. All arguments looked at are 32 bits to
/// the kernel, which drops the upper half itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clause {
    /// Which argument, from 0.
    pub argument: u8,
    /// The bits that count.
    pub mask: u32,
    /// The values it holds for.
    pub values: &'static [u32],
}

pub(super) const ALLOWED: u32 = libc::SECCOMP_RET_ALLOW;
pub(super) const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
pub(super) const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
/// As file systems without attributes answer: programs that list files bear that, and not a
/// refusal.
pub(super) const UNSUPPORTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EOPNOTSUPP.unsigned_abs();
/// A tool that speaks another machine's calls is up to no good, and may not be told why.
pub(super) const KILLED: u32 = libc::SECCOMP_RET_KILL_PROCESS;
pub(super) const NOTIFIED: u32 = libc::SECCOMP_RET_USER_NOTIF;

impl Rule {
    pub const ALLOW: Self = Self::Answer(ALLOWED);
    pub const REFUSE: Self = Self::Answer(REFUSED);
    pub const NOT_THERE: Self = Self::Answer(UNKNOWN);

    fn allow_if(yes: bool) -> Self {
        if yes { Self::ALLOW } else { Self::REFUSE }
    }
}

/// What `rules` make of a kind of call.
pub(super) fn rule(kind: Kind, rules: Rules) -> Rule {
    match kind {
        Kind::Forbidden => Rule::REFUSE,
        Kind::Absent => Rule::NOT_THERE,
        Kind::Ordinary => Rule::ALLOW,
        Kind::Metadata => Rule::allow_if(rules.metadata),
        Kind::Attribute => Rule::Answer(UNSUPPORTED),
        Kind::Fork => Rule::allow_if(rules.forks),
        Kind::Clone if rules.forks => Rule::AllOf(CHILD),
        Kind::Clone => Rule::AllOf(THREAD),
        Kind::Exec => match rules.execs {
            Execs::Any => Rule::ALLOW,
            Execs::Once => Rule::Answer(NOTIFIED),
            Execs::Never => Rule::REFUSE,
        },
        Kind::Socket => match (rules.sockets, rules.route) {
            (Sockets::None, false) => Rule::REFUSE,
            (Sockets::None, true) => Rule::AllOf(ROUTE),
            (Sockets::Inet, false) => Rule::AllOf(INET),
            (Sockets::Inet, true) => Rule::AnyOf(&[INET, ROUTE]),
            (Sockets::Listening, false) => Rule::AllOf(LOCAL),
            (Sockets::Listening, true) => Rule::AnyOf(&[LOCAL, ROUTE]),
            (Sockets::Local, false) => Rule::AnyOf(&[INET, LOCAL]),
            (Sockets::Local, true) => Rule::AnyOf(&[INET, LOCAL, ROUTE]),
        },
        Kind::Pair => Rule::AllOf(CONNECTED_PAIR),
        // A route socket is bound before it is asked. The only others that such a child has are
        // connected pairs, whose names are private to its network.
        Kind::Listen => Rule::allow_if(rules.sockets != Sockets::None || rules.route),
        Kind::Connect => Rule::allow_if(matches!(rules.sockets, Sockets::Inet | Sockets::Local)),
        Kind::OwnTask => Rule::AllOf(OWN_TASK),
        Kind::OwnPriority => Rule::AllOf(OWN_PRIORITY),
        Kind::OwnIo => Rule::AllOf(OWN_IO),
        Kind::Personality => Rule::AllOf(PLAIN),
        Kind::Seccomp => Rule::NoneOf(LISTENER),
        Kind::Ioctl => by_command(&IOCTL, rules),
        Kind::Fcntl => by_command(&FCNTL, rules),
        Kind::Prctl => by_command(&PRCTL, rules),
        Kind::ArchPrctl => by_command(&ARCH_PRCTL, rules),
        Kind::SocketOption => by_command(&SOCKET_OPTION, rules),
    }
}

const fn by_command(commands: &'static Commands, rules: Rules) -> Rule {
    Rule::ByCommand {
        commands,
        metadata: rules.metadata,
    }
}

const ALL_BITS: u32 = u32::MAX;

const fn whole(argument: u8, values: &'static [u32]) -> Clause {
    Clause {
        argument,
        mask: ALL_BITS,
        values,
    }
}

const fn masked(argument: u8, mask: u32, values: &'static [u32]) -> Clause {
    Clause {
        argument,
        mask,
        values,
    }
}

const fn bits(flag: libc::c_int) -> u32 {
    flag.cast_unsigned()
}

/// Flags that no clone may have: a namespace of its own would give it rights in there, and a
/// child of our nanny's would be nobody's.
const NEVER_CLONED: u32 = bits(libc::CLONE_NEWUSER)
    | bits(libc::CLONE_NEWNS)
    | bits(libc::CLONE_NEWPID)
    | bits(libc::CLONE_NEWNET)
    | bits(libc::CLONE_NEWIPC)
    | bits(libc::CLONE_NEWUTS)
    | bits(libc::CLONE_NEWCGROUP)
    | bits(libc::CLONE_PARENT);
const THREAD_FLAG: u32 = bits(libc::CLONE_THREAD);

const CHILD: &[Clause] = &[masked(0, NEVER_CLONED, &[0])];
const THREAD: &[Clause] = &[masked(0, NEVER_CLONED | THREAD_FLAG, &[THREAD_FLAG])];

/// The type of a socket without its flags (`SOCK_CLOEXEC`, `SOCK_NONBLOCK`).
const TYPE: u32 = 0xf;
const STREAM: u32 = bits(libc::SOCK_STREAM);
const DATAGRAM: u32 = bits(libc::SOCK_DGRAM);

const INET: &[Clause] = &[
    whole(0, &[bits(libc::AF_INET), bits(libc::AF_INET6)]),
    masked(1, TYPE, &[STREAM, DATAGRAM]),
    // Not the rarer protocols (SCTP, ping sockets): surface without a use.
    whole(2, &[0, bits(libc::IPPROTO_TCP), bits(libc::IPPROTO_UDP)]),
];
/// Messages about interfaces, addresses and routes. Every other family of netlink is refused, and
/// so are changes, which take a capability that no child has.
const ROUTE: &[Clause] = &[
    whole(0, &[bits(libc::AF_NETLINK)]),
    masked(1, TYPE, &[bits(libc::SOCK_RAW), DATAGRAM]),
    whole(2, &[bits(libc::NETLINK_ROUTE)]),
];
const LOCAL: &[Clause] = CONNECTED_PAIR;
/// Both ends of such a pair stay connected to each other: no call aims them at another address.
/// A datagram pair sends to any socket that `sendto` names.
const CONNECTED_PAIR: &[Clause] = &[
    whole(0, &[bits(libc::AF_UNIX)]),
    masked(1, TYPE, &[STREAM, bits(libc::SOCK_SEQPACKET)]),
];

/// Limits, affinity and scheduling of the caller alone: those of a process of the same user,
/// the gate's among them, could be set by anybody.
const OWN_TASK: &[Clause] = &[whole(0, &[0])];
const OWN_PRIORITY: &[Clause] = &[whole(0, &[libc::PRIO_PROCESS]), whole(1, &[0])];
/// `IOPRIO_WHO_PROCESS`.
const OWN_IO: &[Clause] = &[whole(0, &[1]), whole(1, &[0])];

/// The ordinary personality, or the question which it is. Others weaken address layout.
const PLAIN: &[Clause] = &[whole(0, &[0, ALL_BITS])];

/// A filter with a listener. Once ours has none, the kernel would take another, ask it instead
/// of refusing, and so let a tool allow its own exec.
const LISTENER: &[Clause] = &[masked(1, NEW_LISTENER, &[NEW_LISTENER])];
/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const NEW_LISTENER: u32 = 1 << 3;
