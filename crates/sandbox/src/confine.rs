//! What holds one child, in the form in which the nanny and the child carry it out. Decided
//! by the gate (`gate/compile.rs`) and sent with the order.

use std::ffi::CString;

use crate::gate::filter::{Execs, Rules, Sockets};
use crate::message::{Reader, Writer};

/// What holds one child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Confine {
    /// The version of Landlock to ask for; 0 is none.
    pub landlock: u8,
    /// What it may reach, by path. All paths are real ones: a link on the way is an error.
    pub roots: Vec<Root>,
    /// TCP too is for Landlock to deny, but for the way out.
    pub no_tcp: bool,
    /// It has a way out of its private network.
    pub outlet: bool,
    /// Ports of the loopback in its private network that somebody else serves.
    pub forwards: Vec<u16>,
    /// The seccomp filter.
    pub filter: Option<Rules>,
    /// `CLONE_NEW…` flags of its own namespaces.
    pub namespaces: u32,
    /// Its user and pid namespaces are those of its nanny.
    pub nanny_namespaces: bool,
    /// Everything but its writable roots is mounted read-only.
    pub read_only: bool,
    /// Mounted read-only inside its writable roots.
    pub kept: Vec<CString>,
    /// Mounted over with nothing.
    pub hidden: Vec<CString>,
    /// Folders of the system's root of which only the roots inside are to be seen, so that no
    /// socket of others is.
    pub covered: Vec<CString>,
    /// Memory of its own is mounted on `/dev/shm`.
    pub shm: bool,
    /// The loopback of its own network is to be up.
    pub loopback: bool,
    /// Its own processes are mounted on `/proc`.
    pub proc: bool,
    /// Who it becomes.
    pub identity: Option<Identity>,
    /// The folder in which its private temporary folder is made.
    pub scratch: Option<CString>,
}

/// Something a child may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub path: CString,
    pub access: Access,
}

/// What a child may do with a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Access {
    /// Read and run. Skipped where it is not there.
    Read = 1,
    /// Read and write a device.
    Device = 2,
    /// Read, write and make. A file; made empty where it is not there.
    WriteFile = 3,
    /// The same for a folder.
    WriteFolder = 4,
    /// Read, write and control: its own terminal.
    Terminal = 5,
    /// Read, write and make, sockets as well: a folder that nobody else uses.
    PrivateFolder = 6,
}

impl Access {
    fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Read,
            Self::Device,
            Self::WriteFile,
            Self::WriteFolder,
            Self::Terminal,
            Self::PrivateFolder,
        ]
        .into_iter()
        .find(|access| *access as u8 == byte)
    }

    pub fn writes(self) -> bool {
        matches!(
            self,
            Self::WriteFile | Self::WriteFolder | Self::PrivateFolder
        )
    }
}

/// Whom a child of root becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub uid: u32,
    pub gid: u32,
}

impl Confine {
    /// True if it gets a namespace of this kind.
    pub fn has_namespace(&self, flag: libc::c_int) -> bool {
        self.namespaces & flag.unsigned_abs() != 0
    }

    /// The number of listeners that it makes in its network and gives away.
    pub fn outlets(&self) -> usize {
        usize::from(self.outlet) + self.forwards.len()
    }

    /// True if it sees files or users otherwise than its nanny does.
    pub fn has_own_view(&self) -> bool {
        let own = libc::CLONE_NEWNS | libc::CLONE_NEWUSER;
        self.proc || self.has_namespace(own)
    }

    pub fn write(&self, out: &mut Writer) {
        out.byte(self.landlock);
        out.number(self.roots.len());
        for root in &self.roots {
            out.byte(root.access as u8);
            out.c_text(&root.path);
        }
        out.byte(u8::from(self.no_tcp));
        out.byte(u8::from(self.outlet));
        out.number(self.forwards.len());
        for port in &self.forwards {
            out.u32(u32::from(*port));
        }
        out.byte(self.filter.map_or(0, byte_of_rules));
        out.u32(self.namespaces);
        out.byte(u8::from(self.nanny_namespaces));
        out.byte(u8::from(self.read_only));
        out.byte(u8::from(self.shm));
        out.byte(u8::from(self.loopback));
        for list in [&self.kept, &self.hidden, &self.covered] {
            out.number(list.len());
            list.iter().for_each(|path| out.c_text(path));
        }
        out.byte(u8::from(self.proc));
        out.byte(u8::from(self.identity.is_some()));
        let Identity { uid, gid } = self.identity.unwrap_or(Identity { uid: 0, gid: 0 });
        out.u32(uid);
        out.u32(gid);
        out.byte(u8::from(self.scratch.is_some()));
        out.c_text(self.scratch.as_deref().unwrap_or(c""));
    }

    pub fn read(from: &mut Reader<'_>) -> Option<Self> {
        let landlock = from.byte()?;
        let root = |from: &mut Reader<'_>| {
            let access = Access::from_byte(from.byte()?)?;
            let path = from.text()?;
            Some(Root { path, access })
        };
        let roots = from.list(root)?;
        let no_tcp = from.byte()? != 0;
        let outlet = from.byte()? != 0;
        let forwards = from.list(|from| u16::try_from(from.number()?).ok())?;
        let filter = match from.byte()? {
            0 => None,
            byte => Some(rules_of_byte(byte)),
        };
        let namespaces = from.number()?;
        let nanny_namespaces = from.byte()? != 0;
        let read_only = from.byte()? != 0;
        let shm = from.byte()? != 0;
        let loopback = from.byte()? != 0;
        let kept = from.list(Reader::text)?;
        let hidden = from.list(Reader::text)?;
        let covered = from.list(Reader::text)?;
        let proc = from.byte()? != 0;
        let has_identity = from.byte()? != 0;
        let (uid, gid) = (from.number()?, from.number()?);
        let has_scratch = from.byte()? != 0;
        let scratch = from.text()?;
        Some(Self {
            landlock,
            roots,
            no_tcp,
            outlet,
            forwards,
            filter,
            namespaces,
            nanny_namespaces,
            read_only,
            kept,
            hidden,
            covered,
            shm,
            loopback,
            proc,
            identity: has_identity.then_some(Identity { uid, gid }),
            scratch: has_scratch.then_some(scratch),
        })
    }
}

/// One bit says that there is a filter, so that no rules are 0.
const FILTERED: u8 = 1;
/// Two bits for the sockets.
const SOCKETS: u8 = INET | LISTENING;
const INET: u8 = 2;
const LISTENING: u8 = 64;
const FORKS: u8 = 4;
const METADATA: u8 = 8;
const EXEC_ONCE: u8 = 16;
const EXEC_NEVER: u8 = 32;
const ROUTE: u8 = 128;

fn byte_of_rules(rules: Rules) -> u8 {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    FILTERED
        | match rules.sockets {
            Sockets::None => 0,
            Sockets::Inet => INET,
            Sockets::Listening => LISTENING,
            Sockets::Local => SOCKETS,
        }
        | bit(rules.route, ROUTE)
        | bit(rules.forks, FORKS)
        | bit(rules.metadata, METADATA)
        | match rules.execs {
            Execs::Any => 0,
            Execs::Once => EXEC_ONCE,
            Execs::Never => EXEC_NEVER,
        }
}

fn rules_of_byte(byte: u8) -> Rules {
    let has = |bit| byte & bit != 0;
    Rules {
        sockets: match (has(INET), has(LISTENING)) {
            (false, false) => Sockets::None,
            (true, false) => Sockets::Inet,
            (false, true) => Sockets::Listening,
            (true, true) => Sockets::Local,
        },
        route: has(ROUTE),
        forks: has(FORKS),
        metadata: has(METADATA),
        execs: match (has(EXEC_ONCE), has(EXEC_NEVER)) {
            (false, false) => Execs::Any,
            (true, false) => Execs::Once,
            (_, true) => Execs::Never,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_way() {
        let text = |text: &str| CString::new(text).unwrap();
        let mut rules = Vec::new();
        for sockets in [
            Sockets::None,
            Sockets::Inet,
            Sockets::Listening,
            Sockets::Local,
        ] {
            for execs in [Execs::Any, Execs::Once, Execs::Never] {
                for (forks, metadata, route) in [
                    (false, true, false),
                    (true, false, true),
                    (true, true, false),
                ] {
                    rules.push(Some(Rules {
                        sockets,
                        forks,
                        execs,
                        metadata,
                        route,
                    }));
                }
            }
        }
        rules.push(None);
        for filter in rules {
            let confine = Confine {
                landlock: 7,
                roots: vec![
                    Root {
                        path: text("/usr"),
                        access: Access::Read,
                    },
                    Root {
                        path: text("/w/out"),
                        access: Access::WriteFolder,
                    },
                ],
                no_tcp: true,
                outlet: true,
                forwards: vec![1, 5432, u16::MAX],
                filter,
                namespaces: 0x6000_0000,
                nanny_namespaces: true,
                read_only: true,
                kept: vec![text("/w/packs")],
                hidden: vec![text("/w/callgate.toml")],
                covered: vec![text("/home")],
                shm: true,
                loopback: true,
                proc: true,
                identity: Some(Identity { uid: 7, gid: 8 }),
                scratch: Some(text("/tmp/x")),
            };
            let mut out = Writer::default();
            confine.write(&mut out);
            let mut from = Reader { bytes: &out.bytes };
            assert_eq!(Confine::read(&mut from), Some(confine));
            assert!(from.bytes.is_empty());
        }
    }
}
