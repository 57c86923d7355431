//! Landlock: what a child may reach by path.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, NetPort,
    PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, Scope,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::child::mounts;
use crate::child::outlet;
use crate::confine::{Access, Confine, Root};
use crate::kernel;

/// A ruleset that is ready to be entered.
pub(crate) struct Fence(OwnedFd);

impl Fence {
    /// Opens all roots and makes rules of them.
    pub fn build(confine: &Confine) -> io::Result<Self> {
        let abi = ABI::from(i32::from(confine.landlock));
        let mut ruleset = empty(abi, confine.no_tcp).map_err(|error| os(&error))?;
        if confine.no_tcp && abi >= ABI::V4 {
            let proxy = confine.outlet.then_some(outlet::PORT);
            for port in proxy.into_iter().chain(confine.forwards.iter().copied()) {
                let port = NetPort::new(port, AccessNet::ConnectTcp);
                ruleset = ruleset.add_rule(port).map_err(|error| os(&error))?;
            }
        }
        for root in &confine.roots {
            if let Some(fd) = open(root)? {
                ruleset = add(ruleset, fd.as_fd(), rights(abi, root.access))?;
            }
        }
        if confine.shm {
            let shm = Root {
                path: mounts::SHM.into(),
                access: Access::PrivateFolder,
            };
            if let Some(fd) = open(&shm)? {
                ruleset = add(ruleset, fd.as_fd(), rights(abi, shm.access))?;
            }
        }
        // Without one the kernel does not know what was asked for.
        let ruleset: Option<OwnedFd> = ruleset.into();
        Ok(Self(ruleset.ok_or(Errno::OPNOTSUPP)?))
    }

    /// Enters it, for good. Whoever does has given up new privileges.
    pub fn enter(&self) -> io::Result<()> {
        kernel::enter_ruleset(self.0.as_fd())
    }
}

/// A ruleset that denies everything the version knows. Nothing is left out silently.
fn empty(abi: ABI, no_tcp: bool) -> Result<RulesetCreated, landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if no_tcp && abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

/// A root, opened. Links on the way are not followed: whoever may write somewhere must not
/// get further by planting one.
fn open(root: &Root) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat2(
        rustix::fs::CWD,
        root.path.as_c_str(),
        flags,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS,
    );
    match opened {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if !root.access.writes() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn add(
    ruleset: RulesetCreated,
    fd: BorrowedFd<'_>,
    rights: BitFlags<AccessFs>,
) -> io::Result<RulesetCreated> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    let rights = match kind {
        FileType::Directory => rights,
        // Some rights make sense for folders only, and are refused for others.
        _ => rights & AccessFs::from_file(ABI::V9),
    };
    ruleset
        .add_rule(PathBeneath::new(fd, rights))
        .map_err(|error| os(&error))
}

fn rights(abi: ABI, access: Access) -> BitFlags<AccessFs> {
    let read = AccessFs::from_read(abi);
    match access {
        Access::Read => read,
        Access::Device => AccessFs::ReadFile | AccessFs::WriteFile,
        Access::Terminal => {
            let control = AccessFs::from_all(abi) & AccessFs::IoctlDev;
            control | AccessFs::ReadFile | AccessFs::WriteFile
        }
        Access::WriteFile | Access::WriteFolder | Access::PrivateFolder => {
            let devices = AccessFs::MakeChar | AccessFs::MakeBlock;
            let write = AccessFs::from_write(abi) & !(devices | AccessFs::IoctlDev);
            match access {
                Access::PrivateFolder => read | write,
                _ => read | (write & !(AccessFs::MakeSock | AccessFs::ResolveUnix)),
            }
        }
    }
}

/// The reason of the kernel, where there is one.
fn os(error: &landlock::RulesetError) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(at) = cause {
        if let Some(os) = at
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error)
        {
            return io::Error::from_raw_os_error(os);
        }
        cause = at.source();
    }
    Errno::OPNOTSUPP.into()
}
