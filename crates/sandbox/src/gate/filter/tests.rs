//! The code against the rules it was made from, against a table that people have read, and in
//! the kernel.

use super::code::INSTRUCTIONS_MAX;
use super::interpret::{Seen, run};
use super::listing::word;
use super::policy::{ALLOWED, Clause, KILLED, REFUSED, UNKNOWN};
use super::table::{Arch, Row};
use super::*;

mod kernel;
mod numbers;

const ARCHES: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// Every combination.
fn all_rules() -> Vec<Rules> {
    let mut all = Vec::new();
    for sockets in [
        Sockets::None,
        Sockets::Inet,
        Sockets::Listening,
        Sockets::Local,
    ] {
        for execs in [Execs::Any, Execs::Once, Execs::Never] {
            for bits in 0..8 {
                all.push(Rules {
                    sockets,
                    forks: bits & 1 != 0,
                    execs,
                    metadata: bits & 2 != 0,
                    route: bits & 4 != 0,
                });
            }
        }
    }
    all
}

/// What the rules say, call by call, without any code.
fn expected(arch: Arch, rules: Rules, seen: &Seen) -> u32 {
    if seen.arch != arch.audit() {
        return KILLED;
    }
    let Some((_, row)) = arch.calls().find(|(number, _)| *number == seen.number) else {
        return UNKNOWN;
    };
    let low = |argument: u8| {
        let low = seen.arguments[usize::from(argument)] & 0xffff_ffff;
        u32::try_from(low).expect("masked")
    };
    let holds = |clause: &Clause| {
        clause
            .values
            .contains(&(low(clause.argument) & clause.mask))
    };
    let allowed = match policy::rule(row.kind, rules) {
        Rule::Answer(answer) => return answer,
        Rule::AllOf(clauses) => clauses.iter().all(holds),
        Rule::NoneOf(clauses) => !clauses.iter().any(holds),
        Rule::AnyOf(lists) => lists.iter().any(|clauses| clauses.iter().all(holds)),
        Rule::ByCommand { commands, metadata } => {
            return commands.answer(low(commands.argument), metadata);
        }
    };
    if allowed { ALLOWED } else { REFUSED }
}

/// Values at and beside every edge of a rule, with and without rubbish in the upper half.
const VALUES: [u64; 19] = [
    0,
    1,
    2,
    3,
    5,
    6,
    8,
    10,
    16,
    17,
    0x0800_0001,
    0x1_0000,
    0x1000_0000,
    0x003d_0f00,
    0x103d_0f00,
    0xffff_ffff,
    0x1_0000_0000,
    0x1_0000_0001,
    u64::MAX,
];

fn check(arch: Arch, rules: Rules, program: &[libc::sock_filter], seen: &Seen) {
    let (answer, _) = run(program, seen);
    let expected = expected(arch, rules, seen);
    assert_eq!(answer, expected, "{arch:?} {rules:?} {seen:x?}");
}

/// K-1, K-10. Every number and every combination of rules; for calls that are judged by arguments
/// all combinations of the values above in these, and for commands all of them and their
/// neighbours.
#[test]
fn the_code_says_what_the_rules_say() {
    for arch in ARCHES {
        let far = [512, 1 << 30, (1 << 30) + 41, i32::MAX as u32, u32::MAX];
        for rules in all_rules() {
            let program = whole(arch, rules);
            for number in (0..600).chain(far) {
                for arguments in [[0; 6], [u64::MAX; 6]] {
                    check(arch, rules, &program, &seen(arch, number, arguments));
                }
            }
            for (number, row) in arch.calls() {
                for arguments in combinations(policy::rule(row.kind, rules)) {
                    check(arch, rules, &program, &seen(arch, number, arguments));
                }
            }
        }
    }
}

fn seen(arch: Arch, number: u32, arguments: [u64; 6]) -> Seen {
    Seen {
        number,
        arch: arch.audit(),
        arguments,
    }
}

/// All values in each argument that the rule looks at.
fn combinations(rule: Rule) -> Vec<[u64; 6]> {
    if let Rule::ByCommand { commands, .. } = rule {
        let known = commands.known.iter().map(|command| command.value);
        let edges = known.flat_map(|value| [value.wrapping_sub(1), value, value.wrapping_add(1)]);
        let edges = edges.map(u64::from).chain(VALUES);
        let with = |value| {
            let mut arguments = [0; 6];
            arguments[usize::from(commands.argument)] = value;
            arguments
        };
        return edges
            .flat_map(|value| [value, value | 1 << 32])
            .map(with)
            .collect();
    }
    let clauses: Vec<&Clause> = match rule {
        Rule::AllOf(clauses) | Rule::NoneOf(clauses) => clauses.iter().collect(),
        Rule::AnyOf(lists) => lists.iter().copied().flatten().collect(),
        Rule::Answer(_) | Rule::ByCommand { .. } => return Vec::new(),
    };
    let mut all = vec![[0; 6]];
    for argument in 0..6u8 {
        if clauses.iter().any(|clause| clause.argument == argument) {
            let with = |value| {
                move |mut arguments: [u64; 6]| {
                    arguments[usize::from(argument)] = value;
                    arguments
                }
            };
            let wider = |value| all.iter().copied().map(with(value)).collect::<Vec<_>>();
            all = VALUES.into_iter().flat_map(wider).collect();
        }
    }
    all
}

/// K-2. The calls of another machine, whatever their number, end the process.
#[test]
fn another_machine_is_killed() {
    const I386: u32 = 0x4000_0003;
    for arch in ARCHES {
        for rules in all_rules() {
            let program = whole(arch, rules);
            for number in 0..600 {
                for other in [I386, 0, arch.audit() ^ 1] {
                    let seen = Seen {
                        number,
                        arch: other,
                        arguments: [0; 6],
                    };
                    check(arch, rules, &program, &seen);
                }
            }
        }
    }
}

/// Short, and no call takes long to judge.
#[test]
fn programs_are_small() {
    for arch in ARCHES {
        for rules in all_rules() {
            let program = whole(arch, rules);
            assert!(program.len() < 350, "{} instructions", program.len());
            let deepest = (0..=arch.ceiling() + 1)
                .map(|number| {
                    let call = seen(arch, number, [0; 6]);
                    run(&program, &call).1
                })
                .max();
            assert!(deepest < Some(28), "{deepest:?} steps");
            for (number, row) in arch.calls() {
                let all = combinations(policy::rule(row.kind, rules)).into_iter();
                let steps = all.map(|arguments| run(&program, &seen(arch, number, arguments)).1);
                assert!(steps.max() < Some(32), "{}", row.name);
            }
        }
        assert!(childless(arch).len() < 40);
    }
    const { assert!(INSTRUCTIONS_MAX == 4096) }
}

/// What a fork of a confined interpreter adds: no children, no programs, nothing else.
#[test]
fn the_small_program_takes_children_and_programs() {
    for arch in ARCHES {
        let program = childless(arch);
        for (number, row) in arch.calls() {
            let denied = matches!(row.kind, Kind::Fork | Kind::Clone | Kind::Exec);
            let call = seen(arch, number, [0; 6]);
            let expected = match row.kind {
                Kind::Absent => UNKNOWN,
                _ if denied => REFUSED,
                _ => ALLOWED,
            };
            assert_eq!(run(&program, &call).0, expected, "{}", row.name);
        }
    }
    let bytes = child_program();
    let native = childless(NATIVE.expect("a known machine"));
    assert_eq!(bytes.len(), native.len() * 8);
    assert_eq!(bytes[4..8], native[0].k.to_ne_bytes());
}

const STRICT: Rules = Rules {
    sockets: Sockets::None,
    forks: false,
    execs: Execs::Never,
    metadata: false,
    route: false,
};

/// The columns of the table.
const COLUMNS: [(&str, Rules); 8] = [
    ("strict", STRICT),
    (
        "inet",
        Rules {
            sockets: Sockets::Inet,
            ..STRICT
        },
    ),
    (
        "forks",
        Rules {
            forks: true,
            execs: Execs::Any,
            ..STRICT
        },
    ),
    (
        "once",
        Rules {
            execs: Execs::Once,
            ..STRICT
        },
    ),
    (
        "metadata",
        Rules {
            metadata: true,
            ..STRICT
        },
    ),
    (
        "listening",
        Rules {
            sockets: Sockets::Listening,
            ..STRICT
        },
    ),
    (
        "local",
        Rules {
            sockets: Sockets::Local,
            ..STRICT
        },
    ),
    (
        "route",
        Rules {
            route: true,
            ..STRICT
        },
    ),
];

/// Calls with arguments, as a person would write them.
const WITH_ARGUMENTS: &[(&str, &str, [u64; 3])] = &[
    ("clone", "SIGCHLD", [17, 0, 0]),
    ("clone", "a thread of glibc", [0x003d_0f00, 0, 0]),
    ("clone", "a thread of musl", [0x007d_0f00, 0, 0]),
    ("clone", "VM|VFORK, as posix_spawn", [0x4111, 0, 0]),
    ("clone", "THREAD|NEWUSER", [0x103d_0f00, 0, 0]),
    ("clone", "NEWUSER", [0x1000_0011, 0, 0]),
    ("clone", "NEWNS", [0x0002_0011, 0, 0]),
    ("clone", "NEWPID", [0x2000_0011, 0, 0]),
    ("clone", "NEWNET", [0x4000_0011, 0, 0]),
    ("clone", "PARENT", [0x8011, 0, 0]),
    ("socket", "INET, STREAM", [2, 1, 0]),
    ("socket", "INET6, DGRAM|CLOEXEC, UDP", [10, 0x8_0002, 17]),
    ("socket", "INET, STREAM|NONBLOCK, TCP", [2, 0x801, 6]),
    ("socket", "INET, RAW, ICMP", [2, 3, 1]),
    ("socket", "INET, DGRAM, ICMP", [2, 2, 1]),
    ("socket", "INET, SEQPACKET, SCTP", [2, 5, 132]),
    ("socket", "UNIX, STREAM", [1, 1, 0]),
    ("socket", "UNIX, DGRAM", [1, 2, 0]),
    ("socket", "UNIX, SEQPACKET", [1, 5, 0]),
    ("socket", "NETLINK, RAW, ROUTE", [16, 3, 0]),
    ("socket", "NETLINK, DGRAM|CLOEXEC, ROUTE", [16, 0x8_0002, 0]),
    ("socket", "NETLINK, STREAM, ROUTE", [16, 1, 0]),
    ("socket", "NETLINK, RAW, USERSOCK", [16, 3, 2]),
    ("socket", "NETLINK, RAW, SOCK_DIAG", [16, 3, 4]),
    ("socket", "NETLINK, RAW, XFRM", [16, 3, 6]),
    ("socket", "NETLINK, RAW, AUDIT", [16, 3, 9]),
    ("socket", "NETLINK, RAW, NETFILTER", [16, 3, 12]),
    ("socket", "NETLINK, DGRAM, KOBJECT_UEVENT", [16, 2, 15]),
    ("socket", "NETLINK, DGRAM, GENERIC", [16, 2, 16]),
    ("socket", "PACKET, RAW", [17, 3, 0]),
    ("socket", "ALG, SEQPACKET", [38, 5, 0]),
    ("socket", "VSOCK, STREAM", [40, 1, 0]),
    ("socketpair", "UNIX, STREAM|CLOEXEC", [1, 0x8_0001, 0]),
    ("socketpair", "UNIX, DGRAM", [1, 2, 0]),
    ("socketpair", "UNIX, SEQPACKET", [1, 5, 0]),
    ("socketpair", "INET, STREAM", [2, 1, 0]),
    ("prlimit64", "own", [0, 7, 0]),
    ("prlimit64", "of 1", [1, 7, 0]),
    ("sched_setaffinity", "own", [0, 8, 0]),
    ("sched_setaffinity", "of 1", [1, 8, 0]),
    ("setpriority", "own", [0, 0, 5]),
    ("setpriority", "of 1", [0, 1, 5]),
    ("setpriority", "of the user", [2, 0, 5]),
    ("ioprio_set", "own", [1, 0, 0]),
    ("ioprio_set", "of the group", [2, 0, 0]),
    ("personality", "asked", [0xffff_ffff, 0, 0]),
    ("personality", "READ_IMPLIES_EXEC", [0x0040_0000, 0, 0]),
    ("ioctl", "TCGETS", [0, 0x5401, 0]),
    ("ioctl", "TIOCSTI", [0, 0x5412, 0]),
    ("ioctl", "TIOCSTI with an upper half", [0, 0x1_0000_5412, 0]),
    ("ioctl", "TIOCLINUX", [0, 0x541c, 0]),
    ("ioctl", "FS_IOC_SETFLAGS", [0, 0x4008_6602, 0]),
    ("ioctl", "FS_IOC_FSSETXATTR", [0, 0x401c_5820, 0]),
    ("ioctl", "FS_IOC_ENABLE_VERITY", [0, 0x4080_6685, 0]),
    ("ioctl", "BTRFS_IOC_SUBVOL_CREATE", [0, 0x5000_940e, 0]),
    ("ioctl", "TIOCSETD", [0, 0x5423, 0]),
    ("ioctl", "FIOSETOWN", [0, 0x8901, 0]),
    ("ioctl", "FICLONE", [0, 0x4004_9409, 0]),
    ("ioctl", "PIDFD_GET_NET_NAMESPACE", [0, 0xff04, 0]),
    ("fcntl", "F_SETLKW", [0, 7, 0]),
    ("fcntl", "F_SETOWN", [0, 8, 0]),
    ("fcntl", "F_SETSIG", [0, 10, 0]),
    ("fcntl", "F_SETLEASE", [0, 1024, 0]),
    ("fcntl", "F_NOTIFY", [0, 1026, 0]),
    ("fcntl", "F_DUPFD_CLOEXEC", [0, 1030, 0]),
    ("fcntl", "F_SET_RW_HINT", [0, 1036, 0]),
    ("fcntl", "F_SETDELEG", [0, 1040, 0]),
    ("fcntl", "4242", [0, 4242, 0]),
    ("prctl", "PR_SET_NAME", [15, 0, 0]),
    ("prctl", "PR_SET_MM", [35, 0, 0]),
    ("prctl", "PR_SCHED_CORE", [62, 0, 0]),
    ("prctl", "PR_SET_VMA", [0x5356_4d41, 0, 0]),
    ("prctl", "4242", [4242, 0, 0]),
    ("setsockopt", "SOL_SOCKET", [0, 1, 0]),
    ("setsockopt", "SOL_TLS", [0, 282, 0]),
    ("setsockopt", "SOL_ALG", [0, 279, 0]),
    ("getsockopt", "IPPROTO_TCP", [0, 6, 0]),
    ("seccomp", "filter", [1, 0, 0]),
    ("seccomp", "filter, NEW_LISTENER", [1, 8, 0]),
];

/// The whole table of `arch` as text, by running the programs.
fn verdicts(arch: Arch) -> String {
    use std::fmt::Write as _;
    let programs = COLUMNS.map(|(_, rules)| whole(arch, rules));
    let mut text = String::new();
    let mut line = |label: &str, cells: [&str; COLUMNS.len()]| {
        let [strict, inet, forks, once, metadata, listening, local, route] = cells;
        let cells = format!(
            "{strict:11} {inet:11} {forks:11} {once:11} {metadata:11} {listening:11} {local:11} \
             {route}"
        );
        writeln!(text, "{label:44} {}", cells.trim_end()).expect("a string takes all");
    };
    line("call", COLUMNS.map(|(name, _)| name));
    let answers = |number, [first, second, third]: [u64; 3]| {
        std::array::from_fn(|column| {
            let call = seen(arch, number, [first, second, third, 0, 0, 0]);
            word(run(&programs[column], &call).0)
        })
    };
    let mut calls: Vec<(u32, &Row)> = arch.calls().collect();
    calls.sort_unstable_by_key(|(number, _)| *number);
    for &(number, row) in &calls {
        let by_arguments = WITH_ARGUMENTS.iter().any(|(name, ..)| *name == row.name);
        if !by_arguments {
            line(&format!("{number} {}", row.name), answers(number, [0; 3]));
        }
    }
    for (name, label, arguments) in WITH_ARGUMENTS {
        let called = calls.iter().find(|(_, row)| row.name == *name);
        let &(number, _) = called.expect("a call of the table");
        let label = format!("{number} {name}: {label}");
        line(&label, answers(number, *arguments));
    }
    let above = arch.ceiling() + 1;
    line(&format!("{above} and above"), answers(above, [0; 3]));
    text
}

/// K-1. Every number up to the ceiling that some machine's kernel uses has a row: a call that
/// nobody looked at can not be among those that pass.
#[test]
fn what_passes_is_listed() {
    for arch in ARCHES {
        let loose = Rules {
            sockets: Sockets::Inet,
            forks: true,
            execs: Execs::Any,
            metadata: true,
            route: true,
        };
        let program = whole(arch, loose);
        for number in 0..=arch.ceiling() + 200 {
            let listed = arch.calls().any(|(known, _)| known == number);
            let (answer, _) = run(&program, &seen(arch, number, [0; 6]));
            assert!(listed || answer == UNKNOWN, "{arch:?} {number}");
        }
    }
    let (listed, last) = syscall_verdicts();
    assert_eq!(listed.last().map(|call| call.number), Some(last));
    let lease = listed.iter().find(|call| call.name == "fcntl").unwrap();
    assert_eq!(lease.verdicts, ["arguments"; 6]);
    assert!(lease.commands[0].contains(&"F_GETFL") && !lease.commands[0].contains(&"F_SETLEASE"));
}

/// K-3, K-4, K-7, K-8, K-9, K-10. A change of what is allowed is seen here, by a person.
#[test]
fn the_verdicts_are_those_in_the_repository() {
    let kept = [
        include_str!("verdicts-x86_64.txt"),
        include_str!("verdicts-aarch64.txt"),
    ];
    for (arch, kept) in ARCHES.into_iter().zip(kept) {
        let now = verdicts(arch);
        assert!(now == kept, "{arch:?} is now\n{now}");
    }
}
