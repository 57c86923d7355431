//! Calls that are many: `fcntl`, `ioctl`, `prctl`, `arch_prctl` and the options of sockets.
//!
//! Each command that passes or is refused on purpose stands here by its name. Every other
//! command is answered as a kernel without it would answer, so that programs fall back. K-10.

use super::policy::{ALLOWED, REFUSED};

/// One command of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub name: &'static str,
    pub value: u32,
    pub verdict: Verdict,
}

/// Who may use a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every tool.
    Pass,
    /// Tools that may change metadata, because all but their writable roots is read-only.
    WithMetadata,
    /// No tool.
    Refuse,
}

/// A call's commands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Commands {
    /// The argument that holds the command, from 0.
    pub argument: u8,
    pub known: &'static [Command],
    /// The error of a command that is not among `known`.
    pub unknown: u32,
}

impl Commands {
    /// The answer to `value`.
    pub fn answer(&self, value: u32, metadata: bool) -> u32 {
        let known = self.known.iter().find(|command| command.value == value);
        match known.map(|command| command.verdict) {
            None => self.unknown,
            Some(Verdict::Refuse) => REFUSED,
            Some(Verdict::WithMetadata) if !metadata => REFUSED,
            Some(Verdict::Pass | Verdict::WithMetadata) => ALLOWED,
        }
    }

    /// The answers as runs of values: from which value on, in order, from 0.
    pub fn runs(&self, metadata: bool) -> Vec<(u32, u32)> {
        let known = self.known.iter().map(|command| command.value);
        let mut starts: Vec<u32> = known
            .flat_map(|value| [Some(value), value.checked_add(1)])
            .flatten()
            .chain([0])
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let answers = starts.into_iter();
        let mut runs: Vec<(u32, u32)> = answers
            .map(|start| (start, self.answer(start, metadata)))
            .collect();
        runs.dedup_by_key(|(_, answer)| *answer);
        runs
    }
}

const fn error(errno: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | errno.unsigned_abs()
}

const fn pass(name: &'static str, value: u32) -> Command {
    let verdict = Verdict::Pass;
    Command {
        name,
        value,
        verdict,
    }
}

const fn with_metadata(name: &'static str, value: u32) -> Command {
    let verdict = Verdict::WithMetadata;
    Command {
        name,
        value,
        verdict,
    }
}

const fn refuse(name: &'static str, value: u32) -> Command {
    let verdict = Verdict::Refuse;
    Command {
        name,
        value,
        verdict,
    }
}

/// Second argument: a lease or a delegation makes every process wait that opens the file, a
/// notification shows names, and an owner or signal of a descriptor reaches other processes.
pub(super) const FCNTL: Commands = Commands {
    argument: 1,
    unknown: error(libc::EINVAL),
    known: &[
        pass("F_DUPFD", 0),
        pass("F_GETFD", 1),
        pass("F_SETFD", 2),
        pass("F_GETFL", 3),
        pass("F_SETFL", 4),
        pass("F_GETLK", 5),
        pass("F_SETLK", 6),
        pass("F_SETLKW", 7),
        refuse("F_SETOWN", 8),
        pass("F_GETOWN", 9),
        refuse("F_SETSIG", 10),
        pass("F_GETSIG", 11),
        refuse("F_SETOWN_EX", 15),
        pass("F_GETOWN_EX", 16),
        pass("F_GETOWNER_UIDS", 17),
        pass("F_OFD_GETLK", 36),
        pass("F_OFD_SETLK", 37),
        pass("F_OFD_SETLKW", 38),
        refuse("F_SETLEASE", 1024),
        pass("F_GETLEASE", 1025),
        refuse("F_NOTIFY", 1026),
        pass("F_DUPFD_QUERY", 1027),
        pass("F_CREATED_QUERY", 1028),
        pass("F_DUPFD_CLOEXEC", 1030),
        pass("F_SETPIPE_SZ", 1031),
        pass("F_GETPIPE_SZ", 1032),
        pass("F_ADD_SEALS", 1033),
        pass("F_GET_SEALS", 1034),
        pass("F_GET_RW_HINT", 1035),
        with_metadata("F_SET_RW_HINT", 1036),
        pass("F_GET_FILE_RW_HINT", 1037),
        with_metadata("F_SET_FILE_RW_HINT", 1038),
        refuse("F_SETDELEG", 1040),
    ],
};

/// Second argument. Terminals, descriptors, the names and addresses of network interfaces, and
/// of file systems what reads by an open descriptor or copies into a writable one. Some
/// requests change a file by a descriptor that is open for reading.
pub(super) const IOCTL: Commands = Commands {
    argument: 1,
    unknown: error(libc::ENOTTY),
    known: &[
        pass("FIGETBSZ", 0x0002),
        pass("TCGETS", 0x5401),
        pass("TCSETS", 0x5402),
        pass("TCSETSW", 0x5403),
        pass("TCSETSF", 0x5404),
        pass("TCGETA", 0x5405),
        pass("TCSETA", 0x5406),
        pass("TCSETAW", 0x5407),
        pass("TCSETAF", 0x5408),
        pass("TCSBRK", 0x5409),
        pass("TCXONC", 0x540a),
        pass("TCFLSH", 0x540b),
        pass("TIOCEXCL", 0x540c),
        pass("TIOCNXCL", 0x540d),
        pass("TIOCSCTTY", 0x540e),
        pass("TIOCGPGRP", 0x540f),
        pass("TIOCSPGRP", 0x5410),
        pass("TIOCOUTQ", 0x5411),
        // These put words into a terminal, as if its user had typed them.
        refuse("TIOCSTI", 0x5412),
        refuse("TIOCLINUX", 0x541c),
        pass("TIOCGWINSZ", 0x5413),
        pass("TIOCSWINSZ", 0x5414),
        pass("TIOCMGET", 0x5415),
        pass("TIOCMBIS", 0x5416),
        pass("TIOCMBIC", 0x5417),
        pass("TIOCMSET", 0x5418),
        pass("TIOCGSOFTCAR", 0x5419),
        pass("TIOCSSOFTCAR", 0x541a),
        pass("FIONREAD", 0x541b),
        // The system's console; a line discipline loads kernel code.
        refuse("TIOCCONS", 0x541d),
        refuse("TIOCSETD", 0x5423),
        pass("TIOCPKT", 0x5420),
        pass("FIONBIO", 0x5421),
        pass("TIOCNOTTY", 0x5422),
        pass("TIOCGETD", 0x5424),
        pass("TCSBRKP", 0x5425),
        pass("TIOCSBRK", 0x5427),
        pass("TIOCCBRK", 0x5428),
        pass("TIOCGSID", 0x5429),
        pass("TCGETS2", 0x802c_542a),
        pass("TCSETS2", 0x402c_542b),
        pass("TCSETSW2", 0x402c_542c),
        pass("TCSETSF2", 0x402c_542d),
        pass("TIOCGPTN", 0x8004_5430),
        pass("TIOCSPTLCK", 0x4004_5431),
        pass("TIOCGPTLCK", 0x8004_5439),
        pass("TIOCGPTPEER", 0x5441),
        pass("FIONCLEX", 0x5450),
        pass("FIOCLEX", 0x5451),
        pass("FIOASYNC", 0x5452),
        pass("FIOQSIZE", 0x5460),
        // Signals to other processes, as by F_SETOWN.
        refuse("FIOSETOWN", 0x8901),
        refuse("SIOCSPGRP", 0x8902),
        pass("FIOGETOWN", 0x8903),
        pass("SIOCGPGRP", 0x8904),
        pass("SIOCATMARK", 0x8905),
        pass("SIOCGIFNAME", 0x8910),
        pass("SIOCGIFCONF", 0x8912),
        pass("SIOCGIFFLAGS", 0x8913),
        pass("SIOCGIFADDR", 0x8915),
        pass("SIOCGIFBRDADDR", 0x8919),
        pass("SIOCGIFNETMASK", 0x891b),
        pass("SIOCGIFMTU", 0x8921),
        pass("SIOCGIFHWADDR", 0x8927),
        pass("SIOCGIFINDEX", 0x8933),
        pass("RNDGETENTCNT", 0x8004_5200),
        pass("FICLONE", 0x4004_9409),
        pass("FICLONERANGE", 0x4020_940d),
        with_metadata("FIDEDUPERANGE", 0xc018_9436),
        pass("FS_IOC_FIEMAP", 0xc020_660b),
        pass("FS_IOC_GETFLAGS", 0x8008_6601),
        with_metadata("FS_IOC_SETFLAGS", 0x4008_6602),
        pass("FS_IOC_GETVERSION", 0x8008_7601),
        pass("FS_IOC_FSGETXATTR", 0x801c_581f),
        with_metadata("FS_IOC_FSSETXATTR", 0x401c_5820),
        with_metadata("FS_IOC_ENABLE_VERITY", 0x4080_6685),
    ],
};

/// First argument. All but a few are about the caller itself.
pub(super) const PRCTL: Commands = Commands {
    argument: 0,
    unknown: error(libc::EINVAL),
    known: &[
        pass("PR_SET_PDEATHSIG", 1),
        pass("PR_GET_PDEATHSIG", 2),
        pass("PR_GET_DUMPABLE", 3),
        pass("PR_SET_DUMPABLE", 4),
        pass("PR_GET_UNALIGN", 5),
        pass("PR_SET_UNALIGN", 6),
        pass("PR_GET_KEEPCAPS", 7),
        pass("PR_SET_KEEPCAPS", 8),
        pass("PR_GET_FPEMU", 9),
        pass("PR_SET_FPEMU", 10),
        pass("PR_GET_FPEXC", 11),
        pass("PR_SET_FPEXC", 12),
        pass("PR_GET_TIMING", 13),
        pass("PR_SET_TIMING", 14),
        pass("PR_SET_NAME", 15),
        pass("PR_GET_NAME", 16),
        pass("PR_GET_ENDIAN", 19),
        pass("PR_SET_ENDIAN", 20),
        pass("PR_GET_SECCOMP", 21),
        pass("PR_SET_SECCOMP", 22),
        pass("PR_CAPBSET_READ", 23),
        pass("PR_CAPBSET_DROP", 24),
        pass("PR_GET_TSC", 25),
        pass("PR_SET_TSC", 26),
        pass("PR_GET_SECUREBITS", 27),
        pass("PR_SET_SECUREBITS", 28),
        pass("PR_SET_TIMERSLACK", 29),
        pass("PR_GET_TIMERSLACK", 30),
        pass("PR_TASK_PERF_EVENTS_DISABLE", 31),
        pass("PR_TASK_PERF_EVENTS_ENABLE", 32),
        pass("PR_MCE_KILL", 33),
        pass("PR_MCE_KILL_GET", 34),
        // The layout of memory that `/proc` shows, and threads of other processes.
        refuse("PR_SET_MM", 35),
        refuse("PR_SCHED_CORE", 62),
        pass("PR_SET_CHILD_SUBREAPER", 36),
        pass("PR_GET_CHILD_SUBREAPER", 37),
        pass("PR_SET_NO_NEW_PRIVS", 38),
        pass("PR_GET_NO_NEW_PRIVS", 39),
        pass("PR_GET_TID_ADDRESS", 40),
        pass("PR_SET_THP_DISABLE", 41),
        pass("PR_GET_THP_DISABLE", 42),
        pass("PR_MPX_ENABLE_MANAGEMENT", 43),
        pass("PR_MPX_DISABLE_MANAGEMENT", 44),
        pass("PR_SET_FP_MODE", 45),
        pass("PR_GET_FP_MODE", 46),
        pass("PR_CAP_AMBIENT", 47),
        pass("PR_SVE_SET_VL", 50),
        pass("PR_SVE_GET_VL", 51),
        pass("PR_GET_SPECULATION_CTRL", 52),
        pass("PR_SET_SPECULATION_CTRL", 53),
        pass("PR_PAC_RESET_KEYS", 54),
        pass("PR_SET_TAGGED_ADDR_CTRL", 55),
        pass("PR_GET_TAGGED_ADDR_CTRL", 56),
        pass("PR_SET_IO_FLUSHER", 57),
        pass("PR_GET_IO_FLUSHER", 58),
        pass("PR_SET_SYSCALL_USER_DISPATCH", 59),
        pass("PR_PAC_SET_ENABLED_KEYS", 60),
        pass("PR_PAC_GET_ENABLED_KEYS", 61),
        pass("PR_SME_SET_VL", 63),
        pass("PR_SME_GET_VL", 64),
        pass("PR_SET_MDWE", 65),
        pass("PR_GET_MDWE", 66),
        pass("PR_SET_MEMORY_MERGE", 67),
        pass("PR_GET_MEMORY_MERGE", 68),
        pass("PR_GET_SHADOW_STACK_STATUS", 74),
        pass("PR_SET_SHADOW_STACK_STATUS", 75),
        pass("PR_LOCK_SHADOW_STACK_STATUS", 76),
        pass("PR_FUTEX_HASH", 78),
        pass("PR_GET_AUXV", 0x4155_5856),
        pass("PR_SET_VMA", 0x5356_4d41),
        // Crash reporters name who may trace them; nobody can here.
        pass("PR_SET_PTRACER", 0x5961_6d61),
    ],
};

/// First argument.
pub(super) const ARCH_PRCTL: Commands = Commands {
    argument: 0,
    unknown: error(libc::EINVAL),
    known: &[
        pass("ARCH_SET_GS", 0x1001),
        pass("ARCH_SET_FS", 0x1002),
        pass("ARCH_GET_FS", 0x1003),
        pass("ARCH_GET_GS", 0x1004),
        pass("ARCH_GET_CPUID", 0x1011),
        pass("ARCH_SET_CPUID", 0x1012),
        pass("ARCH_GET_XCOMP_SUPP", 0x1021),
        pass("ARCH_GET_XCOMP_PERM", 0x1022),
        pass("ARCH_REQ_XCOMP_PERM", 0x1023),
        pass("ARCH_SHSTK_ENABLE", 0x5001),
        pass("ARCH_SHSTK_DISABLE", 0x5002),
        pass("ARCH_SHSTK_LOCK", 0x5003),
        pass("ARCH_SHSTK_UNLOCK", 0x5004),
        pass("ARCH_SHSTK_STATUS", 0x5005),
    ],
};

/// Second argument: the level. Others belong to sockets that no tool has, or hand the
/// connection to a protocol in the kernel.
pub(super) const SOCKET_OPTION: Commands = Commands {
    argument: 1,
    unknown: error(libc::ENOPROTOOPT),
    known: &[
        pass("IPPROTO_IP", 0),
        pass("SOL_SOCKET", 1),
        pass("IPPROTO_TCP", 6),
        pass("IPPROTO_UDP", 17),
        pass("IPPROTO_IPV6", 41),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&Commands; 5] = [&FCNTL, &IOCTL, &PRCTL, &ARCH_PRCTL, &SOCKET_OPTION];

    /// K-10. No command has two verdicts, and the runs say what the list says at every edge.
    #[test]
    fn runs_agree_with_the_list() {
        for commands in ALL {
            let mut values: Vec<u32> = commands.known.iter().map(|known| known.value).collect();
            values.sort_unstable();
            assert!(values.windows(2).all(|pair| pair[0] < pair[1]));
            for metadata in [false, true] {
                let runs = commands.runs(metadata);
                assert_eq!(runs[0].0, 0);
                let edges = values
                    .iter()
                    .flat_map(|value| [value.wrapping_sub(1), *value, value.wrapping_add(1)]);
                for value in edges.chain([0, u32::MAX]) {
                    let run = runs.iter().rev().find(|(start, _)| *start <= value);
                    let answer = commands.answer(value, metadata);
                    assert_eq!(run.map(|(_, answer)| *answer), Some(answer), "{value:#x}");
                }
            }
        }
    }

    /// K-10. What blocks or signals other processes through a file that can only be read is
    /// refused, whatever a tool may change.
    #[test]
    fn no_tool_holds_up_others() {
        for metadata in [false, true] {
            for (commands, value) in [
                (&FCNTL, libc::F_SETLEASE),
                (&FCNTL, libc::F_NOTIFY),
                (&FCNTL, libc::F_SETOWN),
            ] {
                assert_eq!(
                    commands.answer(value.unsigned_abs(), metadata),
                    REFUSED,
                    "{value}"
                );
            }
            assert_eq!(FCNTL.answer(4242, metadata), FCNTL.unknown);
        }
    }
}
