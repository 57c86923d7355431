//! What gate, spawner and nanny say to each other. Both ends are the same program, so
//! there are no versions; lengths are checked all the same.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use callgate_call::FORWARDS_MAX;

use crate::confine::Confine;
use crate::gate::facts::Cgroup;
use crate::spec::{Folder, FolderIdentity, Limits, Spec, Stdio};
use crate::terminal::Terminal;

/// The most that program, arguments, environment and folder may take together.
pub(crate) const ORDER_BYTES_MAX: usize = 1024 * 1024;

/// The most descriptors one child may be handed, its leash included: what fits into one
/// message of the kernel (253) and leaves room.
pub(crate) const DESCRIPTORS_MAX: usize = 64;

/// The most listeners that one child gives away: its way to its hosts, and forwarded ports.
pub(crate) const OUTLETS_MAX: usize = 1 + FORWARDS_MAX;

/// What the packet to the spawner says beside carrying descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Best,
    Subreaper,
    /// A pid namespace that costs a user namespace.
    ByUser,
    /// No child: what this machine can hold one to is to be found out.
    Probe,
    /// The same, for trees that are owned by a subreaper.
    ProbeSubreaper,
    /// No child: what groups of processes can hold is to be found out.
    ProbeGroups,
}

impl Way {
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Best => b'b',
            Self::Subreaper => b's',
            Self::ByUser => b'u',
            Self::Probe => b'p',
            Self::ProbeSubreaper => b'q',
            Self::ProbeGroups => b'g',
        }
    }

    pub fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Best,
            Self::Subreaper,
            Self::ByUser,
            Self::Probe,
            Self::ProbeSubreaper,
            Self::ProbeGroups,
        ]
        .into_iter()
        .find(|way| way.to_byte() == byte)
    }

    /// Trees may live in pid namespaces.
    pub fn by_namespace(self) -> bool {
        matches!(self, Self::Best | Self::Probe)
    }
}

/// What a nanny is told to run, in the form that exec takes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub path: CString,
    pub cwd: CString,
    /// What must be found there.
    pub folder: Option<FolderIdentity>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    /// The numbers in the child of the descriptors handed over, in their order.
    pub targets: Vec<u32>,
    pub limits: Limits,
    /// Which of them a group of its own is to see to.
    pub group: Cgroup,
    /// What holds the child; nothing for one that is not confined.
    pub confine: Option<Confine>,
    pub may_gain_rights: bool,
    /// The name of the terminal at 0, 1 and 2, if it is to control the child.
    pub terminal: Option<CString>,
}

/// Why an order could not be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum OrderError {
    TooLarge,
    /// A zero byte would end the text early.
    ZeroByte,
}

/// The descriptors of `spec` with their numbers in the child.
pub(crate) fn handed(spec: &Spec) -> Vec<(BorrowedFd<'_>, u32)> {
    let terminal = spec.terminal.iter().flat_map(|terminal| {
        let numbers = 0..=2;
        numbers.map(|target| (terminal.as_fd(), target))
    });
    let standard = [(&spec.stdin, 0), (&spec.stdout, 1), (&spec.stderr, 2)];
    let standard = standard
        .into_iter()
        .filter_map(|(stdio, target)| match stdio {
            _ if spec.terminal.is_some() => None,
            Stdio::Null => None,
            Stdio::Fd(fd) => Some((fd.as_fd(), target)),
        });
    terminal
        .chain(standard)
        .chain(spec.extra.iter().map(|(fd, target)| (fd.as_fd(), *target)))
        .collect()
}

/// Writes the order that runs `path` as `spec` says, with its length in front.
pub(crate) fn write_order(
    path: &Path,
    spec: &Spec,
    group: Cgroup,
    confine: Option<&Confine>,
) -> Result<Vec<u8>, OrderError> {
    let mut out = Writer {
        bytes: vec![0; 4],
        zero_byte: false,
    };
    out.text(path.as_os_str());
    out.text(spec.cwd.as_os_str());
    let folder = spec.folder.as_ref().map(Folder::identity);
    out.maybe(folder.map(|folder| folder.device));
    out.maybe(folder.map(|folder| folder.inode));
    out.number(spec.argv.len());
    for word in &spec.argv {
        out.text(word);
    }
    out.number(spec.env.len());
    for (name, value) in &spec.env {
        out.pair(name, value);
    }
    let targets = handed(spec);
    out.number(targets.len());
    for (_, target) in targets {
        out.u32(target);
    }
    for limit in limit_list(&spec.limits) {
        out.maybe(limit);
    }
    out.byte(group.to_byte());
    out.byte(u8::from(spec.may_gain_rights));
    out.byte(u8::from(spec.terminal.is_some()));
    let terminal = spec.terminal.as_ref();
    out.c_text(terminal.map_or(c"", Terminal::name));
    out.byte(u8::from(confine.is_some()));
    if let Some(confine) = confine {
        confine.write(&mut out);
    }
    let length = out.bytes.len() - 4;
    if length > ORDER_BYTES_MAX {
        return Err(OrderError::TooLarge);
    }
    if out.zero_byte {
        return Err(OrderError::ZeroByte);
    }
    out.bytes[..4].copy_from_slice(&u32::try_from(length).expect("bounded above").to_le_bytes());
    Ok(out.bytes)
}

/// Reads an order without its length.
pub(crate) fn read_order(bytes: &[u8]) -> Option<Order> {
    let mut from = Reader { bytes };
    let path = from.text()?;
    let cwd = from.text()?;
    let (device, inode) = (from.maybe()?, from.maybe()?);
    let folder = device.zip(inode);
    let argv = from.list(Reader::text)?;
    let env = from.list(Reader::text)?;
    let targets = from.list(Reader::number)?;
    let limits = Limits {
        address_space_bytes: from.maybe()?,
        cpu_seconds: from.maybe()?,
        file_size_bytes: from.maybe()?,
        open_files: from.maybe()?,
        processes: from.maybe()?,
        cpu_percent: from.maybe()?,
    };
    let group = Cgroup::from_byte(from.byte()?);
    let may_gain_rights = from.byte()? != 0;
    let has_terminal = from.byte()? != 0;
    let terminal = from.text()?;
    let confine = match from.byte()? {
        0 => None,
        _ => Some(Confine::read(&mut from)?),
    };
    from.bytes.is_empty().then_some(Order {
        path,
        cwd,
        folder: folder.map(|(device, inode)| FolderIdentity { device, inode }),
        argv,
        env,
        targets,
        limits,
        group,
        confine,
        may_gain_rights,
        terminal: has_terminal.then_some(terminal),
    })
}

fn limit_list(limits: &Limits) -> [Option<u64>; 6] {
    let Limits {
        address_space_bytes,
        cpu_seconds,
        file_size_bytes,
        open_files,
        processes,
        cpu_percent,
    } = *limits;
    [
        address_space_bytes,
        cpu_seconds,
        file_size_bytes,
        open_files,
        processes,
        cpu_percent,
    ]
}

#[derive(Default)]
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
    zero_byte: bool,
}

impl Writer {
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub fn u32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    pub fn c_text(&mut self, text: &CStr) {
        self.text(OsStr::from_bytes(text.to_bytes()));
    }

    pub fn number(&mut self, number: usize) {
        // What does not fit is far beyond the bound that is checked at the end.
        self.u32(u32::try_from(number).unwrap_or(u32::MAX));
    }

    /// A number that may be absent.
    fn maybe(&mut self, number: Option<u64>) {
        self.byte(u8::from(number.is_some()));
        self.bytes
            .extend_from_slice(&number.unwrap_or(0).to_le_bytes());
    }

    fn text(&mut self, text: &OsStr) {
        self.number(text.len());
        self.raw(text);
    }

    fn pair(&mut self, name: &OsStr, value: &OsStr) {
        self.number(name.len() + 1 + value.len());
        self.raw(name);
        self.bytes.push(b'=');
        self.raw(value);
    }

    fn raw(&mut self, text: &OsStr) {
        self.zero_byte |= text.as_bytes().contains(&0);
        self.bytes.extend_from_slice(text.as_bytes());
    }
}

pub(crate) struct Reader<'a> {
    pub bytes: &'a [u8],
}

impl Reader<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| one(self)).collect()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*head)
    }

    pub fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    /// A number that may be absent.
    fn maybe(&mut self) -> Option<Option<u64>> {
        let is_there = self.byte()? != 0;
        let number = u64::from_le_bytes(self.take()?);
        Some(is_there.then_some(number))
    }

    pub fn text(&mut self) -> Option<CString> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        CString::new(text).ok()
    }
}

/// Where on the way to the program a start failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Nanny = 1,
    Fork = 2,
    Descriptors = 3,
    Limits = 4,
    Privileges = 5,
    Cwd = 6,
    Exec = 7,
    Scratch = 8,
    Mounts = 9,
    Roots = 10,
    Landlock = 11,
    Filter = 12,
    /// The nanny did not let the one exec pass.
    Permit = 13,
    Outlet = 14,
    Group = 15,
    Terminal = 16,
    /// Creating what a tool declares in `writes`.
    Writes = 17,
}

impl Stage {
    pub fn from_byte(byte: u8) -> Option<Self> {
        const ALL: [Stage; 17] = [
            Stage::Nanny,
            Stage::Fork,
            Stage::Descriptors,
            Stage::Limits,
            Stage::Privileges,
            Stage::Cwd,
            Stage::Exec,
            Stage::Scratch,
            Stage::Mounts,
            Stage::Roots,
            Stage::Landlock,
            Stage::Filter,
            Stage::Permit,
            Stage::Outlet,
            Stage::Group,
            Stage::Terminal,
            Stage::Writes,
        ];
        ALL.into_iter().find(|stage| *stage as u8 == byte)
    }

    /// In words, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nanny | Self::Fork => "fork",
            Self::Descriptors => "hand over descriptors",
            Self::Limits => "set limits",
            Self::Privileges => "give up privileges",
            Self::Cwd => "enter the working folder",
            Self::Exec => "exec",
            Self::Scratch => "make its temporary folder",
            Self::Mounts => "mount its view of the files",
            Self::Roots => "open what it may reach",
            Self::Landlock => "restrict it with Landlock",
            Self::Filter => "filter its system calls",
            Self::Permit => "permit its one exec",
            Self::Outlet => "open its way to its hosts",
            Self::Group => "make a group for its processes",
            Self::Terminal => "take its terminal",
            Self::Writes => "create what it may write",
        }
    }
}

/// Bytes of a [`Report`].
pub(crate) const REPORT_BYTES: usize = 24;

/// What a nanny, or the spawner in its place, reports on the leash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The order came too late; nothing of it was done.
    Declined,
    Started {
        pid: i32,
    },
    Failed {
        stage: Stage,
        errno: i32,
    },
    Ended {
        status: i32,
        cpu: Duration,
        max_rss_bytes: u64,
    },
}

impl Report {
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let (kind, stage, number, cpu_us, rss) = match self {
            Self::Declined => (b'd', 0, 0, 0, 0),
            Self::Started { pid } => (b's', 0, pid, 0, 0),
            Self::Failed { stage, errno } => (b'f', stage as u8, errno, 0, 0),
            Self::Ended {
                status,
                cpu,
                max_rss_bytes,
            } => {
                let cpu_us = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
                (b'e', 0, status, cpu_us, max_rss_bytes)
            }
        };
        let mut bytes = [0; REPORT_BYTES];
        bytes[0] = kind;
        bytes[1] = stage;
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&cpu_us.to_le_bytes());
        bytes[16..].copy_from_slice(&rss.to_le_bytes());
        bytes
    }

    pub fn from_bytes(bytes: &[u8; REPORT_BYTES]) -> Option<Self> {
        let mut from = Reader { bytes };
        let [kind, stage, _, _] = from.take()?;
        let number = i32::from_le_bytes(from.take()?);
        let cpu_us = u64::from_le_bytes(from.take()?);
        let max_rss_bytes = u64::from_le_bytes(from.take()?);
        match kind {
            b'd' => Some(Self::Declined),
            b's' => Some(Self::Started { pid: number }),
            b'f' => Some(Self::Failed {
                stage: Stage::from_byte(stage)?,
                errno: number,
            }),
            b'e' => Some(Self::Ended {
                status: number,
                cpu: Duration::from_micros(cpu_us),
                max_rss_bytes,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Cgroup = Cgroup {
        memory: true,
        ..Cgroup::NONE
    };

    fn example() -> Spec {
        let mut spec = Spec::new(vec!["p".into(), "a b".into(), "".into()], "/w".into());
        spec.env = vec![("K".into(), "v=w".into())];
        spec.limits.open_files = Some(64);
        let root = std::fs::File::open("/").unwrap();
        spec.folder = Some(Folder::new(root.into()).unwrap());
        spec
    }

    #[test]
    fn an_order_survives_the_way() {
        let bytes = write_order(Path::new("/bin/p"), &example(), MEMORY, None).unwrap();
        let order = read_order(&bytes[4..]).unwrap();
        let text = |text: &str| CString::new(text).unwrap();
        let wanted = Order {
            path: text("/bin/p"),
            cwd: text("/w"),
            folder: example().folder.as_ref().map(Folder::identity),
            argv: vec![text("p"), text("a b"), text("")],
            env: vec![text("K=v=w")],
            targets: vec![],
            limits: example().limits,
            group: MEMORY,
            confine: None,
            may_gain_rights: false,
            terminal: None,
        };
        assert_eq!(order, wanted);
        for cut in 4..bytes.len() {
            assert_eq!(read_order(&bytes[4..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_order_is_bounded_at_the_byte() {
        let mut spec = example();
        let write = |spec: &Spec| write_order(Path::new("/bin/p"), spec, MEMORY, None);
        let spare = ORDER_BYTES_MAX + 4 - write(&spec).unwrap().len();
        spec.argv[2] = "x".repeat(spare).into();
        assert!(write(&spec).is_ok());
        spec.argv[2].push("x");
        assert_eq!(write(&spec), Err(OrderError::TooLarge));
    }

    #[test]
    fn a_zero_byte_is_refused() {
        let mut spec = example();
        spec.argv[1] = "a\0b".into();
        assert_eq!(
            write_order(Path::new("/bin/p"), &spec, MEMORY, None),
            Err(OrderError::ZeroByte)
        );
    }

    #[test]
    fn reports_survive_the_way() {
        let cpu = Duration::from_micros(1_234_567);
        for report in [
            Report::Declined,
            Report::Started { pid: 77 },
            Report::Failed {
                stage: Stage::Cwd,
                errno: 2,
            },
            Report::Ended {
                status: 139,
                cpu,
                max_rss_bytes: 1 << 40,
            },
        ] {
            assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        }
        assert_eq!(Report::from_bytes(&[0; REPORT_BYTES]), None);
    }

    /// Seeded mutations, 100,000: no order and no report panics, and what is taken of an order
    /// is no more than came.
    #[test]
    fn orders_and_reports_that_were_changed() {
        use crate::confine::{Access, Root};
        use callgate_testing::{Random, mutant};
        const CASES: usize = 100_000;
        let confine = Confine {
            landlock: 4,
            roots: vec![Root {
                path: CString::from(c"/w"),
                access: Access::WriteFolder,
            }],
            no_tcp: true,
            outlet: false,
            forwards: vec![5432],
            filter: None,
            namespaces: 0x2000_0000,
            nanny_namespaces: false,
            read_only: true,
            kept: vec![CString::from(c"/w/.git")],
            hidden: vec![CString::from(c"/root")],
            proc: true,
            identity: None,
            covered: vec![],
            shm: false,
            loopback: false,
            scratch: Some(CString::from(c"/tmp")),
        };
        let write = |confine: Option<&Confine>| {
            let order = write_order(Path::new("/bin/p"), &example(), MEMORY, confine);
            order.unwrap().split_off(4)
        };
        let orders = [write(None), write(Some(&confine))];
        let orders: [&[u8]; 2] = [&orders[0], &orders[1]];
        let reports = [
            Report::Started { pid: 77 }.to_bytes(),
            Report::Failed {
                stage: Stage::Cwd,
                errno: 2,
            }
            .to_bytes(),
        ];
        let reports: [&[u8]; 2] = [&reports[0], &reports[1]];
        let words: [&[u8]; 8] = [
            b"\0",
            b"\x01\0\0\0",
            b"\xff\xff\xff\xff",
            b"\0\0\0\x80",
            b"/",
            b"\x10",
            b"f",
            b"e",
        ];
        let mut random = Random::new("orders");
        let mut read = 0;
        for _ in 0..CASES {
            let bytes = mutant(&mut random, &orders, &words);
            if let Some(order) = read_order(&bytes) {
                read += 1;
                let texts = [&order.argv, &order.env].into_iter().flatten();
                let taken: usize = texts.map(|text| text.as_bytes().len()).sum();
                assert!(taken <= bytes.len());
                let longer = [bytes.as_slice(), b"\0"].concat();
                assert_eq!(read_order(&longer), None, "nothing is left unread");
            }
            let report = mutant(&mut random, &reports, &words);
            if let Some(report) = report.first_chunk().and_then(Report::from_bytes) {
                assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
            }
        }
        eprintln!("{read} of {CASES} orders read");
        assert!(read > 0 && read < CASES);
    }
}
