//! What passes the filter, as `callgate doctor --syscalls` shows it: the verdict on each system
//! call under six kinds of tools. Made from the same rules as the program.

use super::commands::Verdict;
use super::policy::{self, ALLOWED, Clause, KILLED, NOTIFIED, REFUSED, Rule, UNKNOWN, UNSUPPORTED};
use super::table::{Kind, NATIVE};
use super::{Execs, Rules, Sockets};

/// The tools that a verdict is listed for, by what they declare.
pub const SYSCALL_PROFILES: [&str; 6] = [
    "tool",
    "network",
    "writes",
    "no_subprocess",
    "exec/run",
    "ipc",
];

const TOOL: Rules = Rules {
    sockets: Sockets::None,
    forks: true,
    execs: Execs::Any,
    metadata: false,
    route: false,
};

const PROFILES: [Rules; 6] = [
    TOOL,
    Rules {
        sockets: Sockets::Inet,
        ..TOOL
    },
    Rules {
        metadata: true,
        ..TOOL
    },
    Rules {
        forks: false,
        execs: Execs::Once,
        ..TOOL
    },
    Rules {
        sockets: Sockets::Listening,
        metadata: true,
        route: true,
        ..TOOL
    },
    Rules {
        sockets: Sockets::Local,
        route: true,
        ..TOOL
    },
];

/// The verdicts on one system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallVerdict {
    /// Its number on this machine.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// `allow`, `arguments` where some pass, or how it is refused; in the order of
    /// [`SYSCALL_PROFILES`].
    pub verdicts: [&'static str; 6],
    /// What must hold of its arguments, where that decides.
    pub conditions: Vec<String>,
    /// The commands that pass, where it has commands. Those in the second list need `writes`.
    pub commands: [Vec<&'static str>; 2],
}

/// The verdicts on every call of this machine, by number, and the last number that is looked at.
/// Nothing where the machine's numbers are not known.
#[must_use]
pub fn syscall_verdicts() -> (Vec<SyscallVerdict>, u32) {
    let Some(arch) = NATIVE else {
        return (Vec::new(), 0);
    };
    let calls = arch
        .calls()
        .map(|(number, row)| verdict(number, row.name, row.kind));
    let mut all: Vec<SyscallVerdict> = calls.collect();
    all.sort_unstable_by_key(|call| call.number);
    (all, arch.ceiling())
}

fn verdict(number: u32, name: &'static str, kind: Kind) -> SyscallVerdict {
    let rules = PROFILES.map(|rules| policy::rule(kind, rules));
    let mut conditions: Vec<String> = rules.into_iter().filter_map(condition).collect();
    conditions.dedup();
    let commands = match rules[0] {
        Rule::ByCommand { commands, .. } => [Verdict::Pass, Verdict::WithMetadata].map(|wanted| {
            let known = commands.known.iter();
            known
                .filter(|command| command.verdict == wanted)
                .map(|command| command.name)
                .collect()
        }),
        _ => [Vec::new(), Vec::new()],
    };
    SyscallVerdict {
        number,
        name,
        verdicts: rules.map(|rule| match rule {
            Rule::Answer(answer) => word(answer),
            Rule::AllOf(_) | Rule::NoneOf(_) | Rule::AnyOf(_) | Rule::ByCommand { .. } => {
                "arguments"
            }
        }),
        conditions,
        commands,
    }
}

/// A rule on arguments, in words.
fn condition(rule: Rule) -> Option<String> {
    let all = |clauses: &[Clause]| {
        let clauses: Vec<String> = clauses.iter().map(clause).collect();
        clauses.join(" and ")
    };
    match rule {
        Rule::Answer(_) | Rule::ByCommand { .. } => None,
        Rule::AllOf(clauses) => Some(all(clauses)),
        Rule::NoneOf(clauses) => Some(format!("not {}", all(clauses))),
        Rule::AnyOf(lists) => {
            let lists: Vec<String> = lists.iter().map(|clauses| all(clauses)).collect();
            Some(lists.join(", or "))
        }
    }
}

fn clause(clause: &Clause) -> String {
    let values: Vec<String> = clause
        .values
        .iter()
        .map(|one| format!("{one:#x}"))
        .collect();
    let values = values.join(", ");
    match clause.mask {
        u32::MAX => format!("argument {} in [{values}]", clause.argument),
        mask => format!("argument {} & {mask:#x} in [{values}]", clause.argument),
    }
}

/// An answer in a word: `allow`, an error's name, or what else happens.
pub(super) fn word(answer: u32) -> &'static str {
    match answer {
        ALLOWED => "allow",
        REFUSED => "EPERM",
        UNKNOWN => "ENOSYS",
        UNSUPPORTED => "ENOTSUP",
        NOTIFIED => "once",
        KILLED => "kill",
        other => match other & libc::SECCOMP_RET_DATA {
            errno if errno == libc::EINVAL.unsigned_abs() => "EINVAL",
            errno if errno == libc::ENOTTY.unsigned_abs() => "ENOTTY",
            errno if errno == libc::ENOPROTOOPT.unsigned_abs() => "ENOPROTOOPT",
            _ => "?",
        },
    }
}
