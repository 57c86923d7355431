//! What this machine can hold a child to, as found by doing (`spawner/probe.rs`).

/// What this machine can hold a child to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of Landlock; 0 is none.
    pub landlock: u8,
    /// System calls can be filtered.
    pub seccomp: bool,
    /// A filter can let one exec pass and no other.
    pub exec_once: bool,
    /// We are root and can make a child somebody else, without capabilities.
    pub identity: bool,
    /// Trees live in pid namespaces.
    pub pid_namespace: bool,
    /// Mount namespaces can be had, in which everything is read-only.
    pub mount_namespace: bool,
    /// Network namespaces can be had.
    pub net_namespace: bool,
    /// In those, a listener of ours can be the way out.
    pub net_listener: bool,
    /// IPC namespaces can be had.
    pub ipc_namespace: bool,
    /// The last four cost a user namespace.
    pub by_user_namespace: bool,
    /// Where trees do not live in pid namespaces: one can have a pid namespace with a `/proc` of
    /// its own, in a user namespace that it shares with its nanny.
    pub pid_namespace_by_user: bool,
    /// What groups of processes can hold; nothing until it is looked for.
    pub cgroup: Cgroup,
}

/// What groups of processes can hold, or what is wanted of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// Their memory.
    pub memory: bool,
    /// How many they are.
    pub processes: bool,
    /// Their share of the processors.
    pub cpu_share: bool,
    /// The processor time they have taken in all.
    pub cpu_time: bool,
}

impl Cgroup {
    pub(crate) const NONE: Self = Self {
        memory: false,
        processes: false,
        cpu_share: false,
        cpu_time: false,
    };

    pub(crate) const ALL: Self = Self {
        memory: true,
        processes: true,
        cpu_share: true,
        cpu_time: true,
    };

    fn list(self) -> [bool; 4] {
        [self.memory, self.processes, self.cpu_share, self.cpu_time]
    }

    fn from_list([memory, processes, cpu_share, cpu_time]: [bool; 4]) -> Self {
        Self {
            memory,
            processes,
            cpu_share,
            cpu_time,
        }
    }

    fn zip(self, other: Self, both: fn(bool, bool) -> bool) -> Self {
        let (mut one, other) = (self.list(), other.list());
        for (one, other) in one.iter_mut().zip(other) {
            *one = both(*one, other);
        }
        Self::from_list(one)
    }

    /// What is in one of the two.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        self.zip(other, |one, other| one || other)
    }

    /// What is in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.zip(other, |one, other| one && other)
    }

    /// What is here and not there.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, |one, other| one && !other)
    }

    /// True if there is nothing in it.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// How much is in it.
    pub(crate) fn count(self) -> usize {
        self.list().into_iter().filter(|one| *one).count()
    }

    pub(crate) fn to_byte(self) -> u8 {
        self.list()
            .into_iter()
            .fold(0, |byte, one| byte << 1 | u8::from(one))
    }

    pub(crate) fn from_byte(byte: u8) -> Self {
        Self::from_list([8, 4, 2, 1].map(|bit| byte & bit != 0))
    }
}

/// Something of a machine that can be hidden from us, to see how we do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words say it")]
pub enum Facility {
    Landlock,
    Seccomp,
    UserNamespaces,
    MountNamespaces,
    NetNamespaces,
    Cgroups,
}

impl Facility {
    /// The facility of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "landlock" => Self::Landlock,
            "seccomp" => Self::Seccomp,
            "userns" => Self::UserNamespaces,
            "mountns" => Self::MountNamespaces,
            "netns" => Self::NetNamespaces,
            "cgroup" => Self::Cgroups,
            _ => return None,
        })
    }
}

impl Facts {
    /// The same machine without some of it.
    #[must_use]
    pub fn without(mut self, hidden: &[Facility]) -> Self {
        for facility in hidden {
            match facility {
                Facility::Landlock => self.landlock = 0,
                Facility::Seccomp => (self.seccomp, self.exec_once) = (false, false),
                Facility::UserNamespaces if self.by_user_namespace => {
                    self.mount_namespace = false;
                    (self.net_namespace, self.net_listener) = (false, false);
                    self.ipc_namespace = false;
                    self.pid_namespace_by_user = false;
                }
                Facility::UserNamespaces => {}
                Facility::MountNamespaces => {
                    (self.mount_namespace, self.pid_namespace_by_user) = (false, false);
                }
                Facility::NetNamespaces => {
                    (self.net_namespace, self.net_listener) = (false, false);
                }
                Facility::Cgroups => self.cgroup = Cgroup::NONE,
            }
        }
        self
    }

    /// How many bytes they take, without what groups can hold: that is found out by itself.
    pub(crate) const BYTES: usize = 11;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let Self {
            landlock,
            seccomp,
            exec_once,
            identity,
            pid_namespace,
            mount_namespace,
            net_namespace,
            net_listener,
            ipc_namespace,
            by_user_namespace,
            pid_namespace_by_user,
            cgroup: _,
        } = self;
        [
            landlock,
            seccomp.into(),
            exec_once.into(),
            identity.into(),
            pid_namespace.into(),
            mount_namespace.into(),
            net_namespace.into(),
            net_listener.into(),
            ipc_namespace.into(),
            by_user_namespace.into(),
            pid_namespace_by_user.into(),
        ]
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [landlock, rest @ ..] = bytes;
        let [
            seccomp,
            exec_once,
            identity,
            pid_namespace,
            mount_namespace,
            net_namespace,
            net_listener,
            ipc_namespace,
            by_user_namespace,
            pid_namespace_by_user,
        ] = rest.map(|byte| byte != 0);
        Self {
            landlock,
            seccomp,
            exec_once,
            identity,
            pid_namespace,
            mount_namespace,
            net_namespace,
            net_listener,
            ipc_namespace,
            by_user_namespace,
            pid_namespace_by_user,
            cgroup: Cgroup::NONE,
        }
    }
}
