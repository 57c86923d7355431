//! The calls that a filter has an opinion on, and their numbers.
//!
//! Both machines stand side by side and not behind `cfg`, so that the tests of one check the
//! other; a test compares the native column with the C library's. Calls that are not in here
//! are allowed.

/// A machine whose numbers we know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arch {
    X86_64,
    Aarch64,
}

/// The one we are built for.
pub(super) const NATIVE: Option<Arch> = if cfg!(target_arch = "x86_64") {
    Some(Arch::X86_64)
} else if cfg!(target_arch = "aarch64") {
    Some(Arch::Aarch64)
} else {
    None
};

impl Arch {
    /// As the kernel names it in `seccomp_data`. A process may change to the calls of another
    /// (32-bit ones by `int 0x80`), whose numbers mean something else.
    pub fn audit(self) -> u32 {
        const EM_X86_64: u32 = 62;
        const EM_AARCH64: u32 = 183;
        const BITS_64: u32 = 0x8000_0000;
        const LITTLE_ENDIAN: u32 = 0x4000_0000;
        let machine = match self {
            Self::X86_64 => EM_X86_64,
            Self::Aarch64 => EM_AARCH64,
        };
        machine | BITS_64 | LITTLE_ENDIAN
    }

    /// The last number that was looked at for this table: `file_setattr` of Linux 6.17. What
    /// is above is answered as not there, x32 included, whose numbers have bit 30.
    pub fn ceiling(self) -> u32 {
        match self {
            Self::X86_64 | Self::Aarch64 => 469,
        }
    }

    /// The calls this machine has.
    pub fn calls(self) -> impl Iterator<Item = (u32, &'static Row)> {
        ROWS.iter()
            .filter_map(move |row| Some((row.number(self)?, row)))
    }
}

/// One call.
#[derive(Debug)]
pub(super) struct Row {
    pub kind: Kind,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and tests"))]
    pub name: &'static str,
    x86_64: Option<u32>,
    aarch64: Option<u32>,
}

impl Row {
    fn number(&self, arch: Arch) -> Option<u32> {
        match arch {
            Arch::X86_64 => self.x86_64,
            Arch::Aarch64 => self.aarch64,
        }
    }
}

/// Calls that are judged alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// No tool has a use for it.
    Forbidden,
    /// As if the kernel did not know it, so that callers fall back.
    Absent,
    Metadata,
    /// Reads what a file is marked with.
    Attribute,
    Fork,
    Clone,
    Exec,
    Socket,
    Pair,
    /// Uses a socket that is not a pair.
    Peer,
    /// First argument: whose setting it is.
    OwnTask,
    OwnPriority,
    OwnIo,
    Personality,
    Ioctl,
    Seccomp,
}

use Kind::{
    Absent, Attribute, Clone as CloneCall, Exec, Forbidden, Fork, Ioctl, Metadata, OwnIo,
    OwnPriority, OwnTask, Pair, Peer, Personality, Seccomp, Socket,
};

const fn row(kind: Kind, name: &'static str, x86_64: Option<u32>, aarch64: Option<u32>) -> Row {
    Row {
        kind,
        name,
        x86_64,
        aarch64,
    }
}

const ROWS: &[Row] = &[
    // Ways to other processes.
    row(Forbidden, "ptrace", Some(101), Some(117)),
    row(Forbidden, "process_vm_readv", Some(310), Some(270)),
    row(Forbidden, "process_vm_writev", Some(311), Some(271)),
    row(Forbidden, "pidfd_getfd", Some(438), Some(438)),
    row(Forbidden, "kcmp", Some(312), Some(272)),
    row(Forbidden, "process_madvise", Some(440), Some(440)),
    row(Forbidden, "process_mrelease", Some(448), Some(448)),
    row(Forbidden, "move_pages", Some(279), Some(239)),
    row(Forbidden, "migrate_pages", Some(256), Some(238)),
    // Namespaces, mounts and roots.
    row(Forbidden, "unshare", Some(272), Some(97)),
    row(Forbidden, "setns", Some(308), Some(268)),
    row(Forbidden, "mount", Some(165), Some(40)),
    row(Forbidden, "umount2", Some(166), Some(39)),
    row(Forbidden, "pivot_root", Some(155), Some(41)),
    row(Forbidden, "chroot", Some(161), Some(51)),
    row(Forbidden, "open_tree", Some(428), Some(428)),
    row(Forbidden, "open_tree_attr", Some(467), Some(467)),
    row(Forbidden, "move_mount", Some(429), Some(429)),
    row(Forbidden, "fsopen", Some(430), Some(430)),
    row(Forbidden, "fsconfig", Some(431), Some(431)),
    row(Forbidden, "fsmount", Some(432), Some(432)),
    row(Forbidden, "fspick", Some(433), Some(433)),
    row(Forbidden, "mount_setattr", Some(442), Some(442)),
    row(Forbidden, "statmount", Some(457), Some(457)),
    row(Forbidden, "listmount", Some(458), Some(458)),
    // What reaches files past Landlock: by handle, by watch, by ring.
    row(Forbidden, "name_to_handle_at", Some(303), Some(264)),
    row(Forbidden, "open_by_handle_at", Some(304), Some(265)),
    row(Forbidden, "inotify_add_watch", Some(254), Some(27)),
    row(Forbidden, "fanotify_init", Some(300), Some(262)),
    row(Forbidden, "fanotify_mark", Some(301), Some(263)),
    row(Forbidden, "io_uring_setup", Some(425), Some(425)),
    row(Forbidden, "io_uring_enter", Some(426), Some(426)),
    row(Forbidden, "io_uring_register", Some(427), Some(427)),
    // Kernel surface that no tool has a use for.
    row(Forbidden, "bpf", Some(321), Some(280)),
    row(Forbidden, "perf_event_open", Some(298), Some(241)),
    row(Forbidden, "userfaultfd", Some(323), Some(282)),
    row(Forbidden, "add_key", Some(248), Some(217)),
    row(Forbidden, "request_key", Some(249), Some(218)),
    row(Forbidden, "keyctl", Some(250), Some(219)),
    row(Forbidden, "modify_ldt", Some(154), None),
    row(Forbidden, "lookup_dcookie", Some(212), Some(18)),
    row(Forbidden, "uselib", Some(134), None),
    row(Forbidden, "ustat", Some(136), None),
    row(Forbidden, "sysfs", Some(139), None),
    row(Forbidden, "_sysctl", Some(156), None),
    row(Forbidden, "nfsservctl", Some(180), Some(42)),
    row(Forbidden, "create_module", Some(174), None),
    row(Forbidden, "get_kernel_syms", Some(177), None),
    row(Forbidden, "query_module", Some(178), None),
    row(Forbidden, "vserver", Some(236), None),
    row(Forbidden, "lsm_set_self_attr", Some(460), Some(460)),
    // The machine itself.
    row(Forbidden, "kexec_load", Some(246), Some(104)),
    row(Forbidden, "kexec_file_load", Some(320), Some(294)),
    row(Forbidden, "init_module", Some(175), Some(105)),
    row(Forbidden, "finit_module", Some(313), Some(273)),
    row(Forbidden, "delete_module", Some(176), Some(106)),
    row(Forbidden, "quotactl", Some(179), Some(60)),
    row(Forbidden, "quotactl_fd", Some(443), Some(443)),
    row(Forbidden, "acct", Some(163), Some(89)),
    row(Forbidden, "swapon", Some(167), Some(224)),
    row(Forbidden, "swapoff", Some(168), Some(225)),
    row(Forbidden, "reboot", Some(169), Some(142)),
    row(Forbidden, "syslog", Some(103), Some(116)),
    row(Forbidden, "vhangup", Some(153), Some(58)),
    row(Forbidden, "sethostname", Some(170), Some(161)),
    row(Forbidden, "setdomainname", Some(171), Some(162)),
    row(Forbidden, "settimeofday", Some(164), Some(170)),
    row(Forbidden, "clock_settime", Some(227), Some(112)),
    row(Forbidden, "clock_adjtime", Some(305), Some(266)),
    row(Forbidden, "adjtimex", Some(159), Some(171)),
    row(Forbidden, "iopl", Some(172), None),
    row(Forbidden, "ioperm", Some(173), None),
    // Rights, owners, times and attributes, which Landlock does not see.
    row(Metadata, "chmod", Some(90), None),
    row(Metadata, "fchmod", Some(91), Some(52)),
    row(Metadata, "fchmodat", Some(268), Some(53)),
    row(Metadata, "fchmodat2", Some(452), Some(452)),
    row(Metadata, "chown", Some(92), None),
    row(Metadata, "fchown", Some(93), Some(55)),
    row(Metadata, "lchown", Some(94), None),
    row(Metadata, "fchownat", Some(260), Some(54)),
    row(Metadata, "utime", Some(132), None),
    row(Metadata, "utimes", Some(235), None),
    row(Metadata, "futimesat", Some(261), None),
    row(Metadata, "utimensat", Some(280), Some(88)),
    row(Metadata, "setxattr", Some(188), Some(5)),
    row(Metadata, "lsetxattr", Some(189), Some(6)),
    row(Metadata, "fsetxattr", Some(190), Some(7)),
    row(Metadata, "setxattrat", Some(463), Some(463)),
    row(Metadata, "removexattr", Some(197), Some(14)),
    row(Metadata, "lremovexattr", Some(198), Some(15)),
    row(Metadata, "fremovexattr", Some(199), Some(16)),
    row(Metadata, "removexattrat", Some(466), Some(466)),
    row(Metadata, "file_setattr", Some(469), Some(469)),
    // Reading attributes by path, which Landlock does not see either.
    row(Attribute, "getxattr", Some(191), Some(8)),
    row(Attribute, "lgetxattr", Some(192), Some(9)),
    row(Attribute, "getxattrat", Some(464), Some(464)),
    row(Attribute, "listxattr", Some(194), Some(11)),
    row(Attribute, "llistxattr", Some(195), Some(12)),
    row(Attribute, "listxattrat", Some(465), Some(465)),
    // Memory and messages that outlive their maker.
    row(Metadata, "shmget", Some(29), Some(194)),
    row(Metadata, "shmat", Some(30), Some(196)),
    row(Metadata, "shmctl", Some(31), Some(195)),
    row(Metadata, "shmdt", Some(67), Some(197)),
    row(Metadata, "semget", Some(64), Some(190)),
    row(Metadata, "semop", Some(65), Some(193)),
    row(Metadata, "semtimedop", Some(220), Some(192)),
    row(Metadata, "semctl", Some(66), Some(191)),
    row(Metadata, "msgget", Some(68), Some(186)),
    row(Metadata, "msgsnd", Some(69), Some(189)),
    row(Metadata, "msgrcv", Some(70), Some(188)),
    row(Metadata, "msgctl", Some(71), Some(187)),
    row(Metadata, "mq_open", Some(240), Some(180)),
    row(Metadata, "mq_unlink", Some(241), Some(181)),
    row(Metadata, "mq_timedsend", Some(242), Some(182)),
    row(Metadata, "mq_timedreceive", Some(243), Some(183)),
    row(Metadata, "mq_notify", Some(244), Some(184)),
    row(Metadata, "mq_getsetattr", Some(245), Some(185)),
    // Children.
    row(Fork, "fork", Some(57), None),
    row(Fork, "vfork", Some(58), None),
    row(CloneCall, "clone", Some(56), Some(220)),
    // Its flags lie in memory, where no filter sees them; the C library falls back.
    row(Absent, "clone3", Some(435), Some(435)),
    // Programs.
    row(Exec, "execve", Some(59), Some(221)),
    row(Exec, "execveat", Some(322), Some(281)),
    // Sockets.
    row(Socket, "socket", Some(41), Some(198)),
    row(Pair, "socketpair", Some(53), Some(199)),
    row(Peer, "connect", Some(42), Some(203)),
    row(Peer, "bind", Some(49), Some(200)),
    row(Peer, "listen", Some(50), Some(201)),
    row(Peer, "accept", Some(43), Some(202)),
    row(Peer, "accept4", Some(288), Some(242)),
    // Settings of a process: its own only.
    row(OwnTask, "prlimit64", Some(302), Some(261)),
    row(OwnTask, "sched_setaffinity", Some(203), Some(122)),
    row(OwnTask, "sched_setscheduler", Some(144), Some(119)),
    row(OwnTask, "sched_setparam", Some(142), Some(118)),
    row(OwnTask, "sched_setattr", Some(314), Some(274)),
    row(OwnPriority, "setpriority", Some(141), Some(140)),
    row(OwnIo, "ioprio_set", Some(251), Some(30)),
    row(Personality, "personality", Some(135), Some(92)),
    row(Ioctl, "ioctl", Some(16), Some(29)),
    row(Seccomp, "seccomp", Some(317), Some(277)),
];
