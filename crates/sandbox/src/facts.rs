//! What this machine can hold a child to, as found by doing (`probe.rs`).

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
                }
                Facility::UserNamespaces => {}
                Facility::MountNamespaces => self.mount_namespace = false,
                Facility::NetNamespaces => {
                    (self.net_namespace, self.net_listener) = (false, false);
                }
            }
        }
        self
    }

    /// How many bytes they take.
    pub(crate) const BYTES: usize = 10;

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
        }
    }
}
