//! What to run and with what in its hands.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use callgate_call::Needs;

use crate::Terminal;
use crate::gate::facts::Cgroup;

/// One child to be born.
#[derive(Debug)]
pub struct Spec {
    /// The program and its arguments. A program without a slash is looked up in `search`; one
    /// with a slash is relative to `cwd`.
    pub argv: Vec<OsString>,
    /// Folders to look a program up in; the `PATH` of `env` if nothing is said.
    pub search: Option<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working folder; absolute.
    pub cwd: PathBuf,
    /// What `cwd` was found to be, where others may change what it names: nothing is started
    /// anywhere else.
    pub folder: Option<Folder>,
    /// A folder of its own that it may write: its home.
    pub home: Option<PathBuf>,
    /// Descriptor 0.
    pub stdin: Stdio,
    /// Descriptor 1.
    pub stdout: Stdio,
    /// Descriptor 2.
    pub stderr: Stdio,
    /// A terminal that is all three of them, and the one that controls it.
    pub terminal: Option<Terminal>,
    /// Further descriptors and their numbers in the child, each above 2. All others are
    /// closed.
    pub extra: Vec<(OwnedFd, u32)>,
    /// What the child and each of its descendants may take.
    pub limits: Limits,
    /// What holds it, as its plan says; nothing for a child that is not confined.
    pub confine: Option<Arc<Needs>>,
    /// It forks a child for each call, and holds those to what it is not held to itself: to
    /// have no children.
    pub zygote: bool,
    /// Whoever calls named the program: it brings along nothing that it may read. Its first line
    /// could name any file.
    pub named_by_caller: bool,
    /// It may gain rights by starting a program that has them. For the owner's own programs
    /// alone, never for a tool: a container's client without root needs `newuidmap`.
    pub may_gain_rights: bool,
}

impl Spec {
    /// A program with nothing: no environment, no standard streams.
    #[must_use]
    pub fn new(argv: Vec<OsString>, cwd: PathBuf) -> Self {
        Self {
            argv,
            search: None,
            env: Vec::new(),
            cwd,
            folder: None,
            home: None,
            stdin: Stdio::Null,
            stdout: Stdio::Null,
            stderr: Stdio::Null,
            terminal: None,
            extra: Vec::new(),
            limits: Limits::default(),
            confine: None,
            zygote: false,
            named_by_caller: false,
            may_gain_rights: false,
        }
    }

    /// The program as given, for messages.
    pub(crate) fn program(&self) -> String {
        self.argv
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default()
    }
}

/// A folder that was found, whatever has its name by now. A child enters it by its name all the
/// same, and then looks where it is: by a descriptor it would get past what is mounted over it in
/// its own view.
#[derive(Debug)]
pub struct Folder {
    identity: FolderIdentity,
    /// For as long as it is open no other folder gets its number.
    _open: OwnedFd,
}

impl Folder {
    /// The one that is open as `fd`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let identity = FolderIdentity::of(&rustix::fs::fstat(&fd)?);
        Ok(Self {
            identity,
            _open: fd,
        })
    }

    pub(crate) fn identity(&self) -> FolderIdentity {
        self.identity
    }
}

/// What tells a folder from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FolderIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FolderIdentity {
    pub fn of(stat: &rustix::fs::Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// A standard stream.
#[derive(Debug)]
pub enum Stdio {
    /// Reads as empty, swallows what is written.
    Null,
    /// This descriptor, which the child gets and we lose.
    Fd(OwnedFd),
}

impl From<OwnedFd> for Stdio {
    fn from(fd: OwnedFd) -> Self {
        Self::Fd(fd)
    }
}

/// Limits; what is not said stays as it is. Memory, processor time and processes are limits on
/// the whole tree where the machine can have groups of processes, and on each process anyway, the
/// others on each process alone. A limit above the machine's own is lowered to it. Core dumps are
/// always off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Memory of the tree, address space of each process.
    pub address_space_bytes: Option<u64>,
    /// Processor time; the kernel kills at this.
    pub cpu_seconds: Option<u64>,
    /// The largest file it may write.
    pub file_size_bytes: Option<u64>,
    /// Open descriptors.
    pub open_files: Option<u64>,
    /// Processes and threads of the tree; without groups, of the same user, ours included.
    pub processes: Option<u64>,
    /// Of the processors' time, as long as it runs: 100 is one of them all the time. By groups
    /// alone.
    pub cpu_percent: Option<u64>,
}

impl Limits {
    /// What of these is a limit on a whole tree.
    pub(crate) fn of_tree(&self) -> Cgroup {
        Cgroup {
            memory: self.address_space_bytes.is_some(),
            processes: self.processes.is_some(),
            cpu_share: self.cpu_percent.is_some(),
            cpu_time: self.cpu_seconds.is_some(),
        }
    }
}
