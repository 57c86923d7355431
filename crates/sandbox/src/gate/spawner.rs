//! The gate's side of the spawner: starts its process, hands it descriptors, tells the
//! nanny what to run.

use std::ffi::OsStr;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use callgate_call::{FORWARDS_MAX, Needs, Network};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::child::outlet;
use crate::confine::{Access, Confine, Root};
use crate::gate::compile::c_path;
use crate::gate::compile::{Compiled, Subject};
use crate::gate::explain::Reach;
use crate::gate::idle_nannies::{Idle, Kind, Leash};
use crate::gate::resolve::resolve;
use crate::message::{DESCRIPTORS_MAX, ORDER_BYTES_MAX, OrderError, Report, Stage, Way};
use crate::message::{handed, write_order};
use crate::{Cgroup, Child, Facility, Facts, SpawnError, Spec};

/// The hidden first argument. A program that sees it as its first argument calls
/// [`spawner_main`](crate::spawner_main) before anything else.
pub const SPAWNER_ARG: &str = "__spawner";

/// The highest number a handed descriptor may have in a child.
const TARGET_MAX: u32 = 31;

/// How long a dropped spawner may take to end the trees that are left.
const FAREWELL: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

/// How long finding out what can be enforced may take, on a machine that has no time for us.
const PROBE_MAX: Duration = Duration::from_secs(30);

/// How long to wait when the spawner cannot keep up.
const CROWDED: Duration = Duration::from_millis(1);

/// Makes children. Cheap to create: its process starts with the first child, and again if
/// it died.
///
/// Lock order: `facts` and `cgroup` (made once), then `link`; `idle`, then `Link::process`. `compiled`
/// is a leaf, for which the facts are found first. None is held across an await.
#[derive(Debug)]
pub struct Spawner {
    program: PathBuf,
    settings: SpawnerSettings,
    // Before the link, which waits for all of them when it goes.
    idle: Arc<Idle>,
    link: Mutex<Option<Arc<Link>>>,
    facts: OnceLock<Facts>,
    cgroup: OnceLock<Cgroup>,
    compiled: Mutex<Compiled>,
}

/// How children are made.
#[derive(Clone, Debug)]
pub struct SpawnerSettings {
    /// How trees are owned.
    pub trees: Trees,
    /// The folder, absolute, in which confined children get private temporary folders. Made
    /// if it is not there; it must be ours, and not writable by others.
    pub scratch: PathBuf,
    /// What of this machine is not to be used, to see how we do without.
    pub hidden: Vec<Facility>,
}

impl Default for SpawnerSettings {
    fn default() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self {
            trees: Trees::default(),
            scratch: format!("/tmp/callgate-{uid}").into(),
            hidden: Vec::new(),
        }
    }
}

/// How trees are owned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trees {
    /// By a pid namespace where the kernel lets us make one, else as `Subreaper`.
    #[default]
    Best,
    /// By adopting orphans and killing what descends from the nanny: needs no privilege.
    Subreaper,
}

impl Spawner {
    /// `program` knows [`SPAWNER_ARG`]; for the running program give `/proc/self/exe`.
    #[must_use]
    pub fn new(program: PathBuf) -> Arc<Self> {
        Self::with_trees(program, Trees::Best)
    }

    /// As [`new`](Self::new), with a say in how trees are owned.
    #[must_use]
    pub fn with_trees(program: PathBuf, trees: Trees) -> Arc<Self> {
        let settings = SpawnerSettings {
            trees,
            ..SpawnerSettings::default()
        };
        Self::with_settings(program, settings)
    }

    /// As [`new`](Self::new), with a say in everything.
    #[must_use]
    pub fn with_settings(program: PathBuf, settings: SpawnerSettings) -> Arc<Self> {
        Arc::new(Self {
            program,
            settings,
            idle: Arc::default(),
            link: Mutex::new(None),
            facts: OnceLock::new(),
            cgroup: OnceLock::new(),
            compiled: Mutex::default(),
        })
    }

    /// What this machine can hold a child to, but for what groups can hold. Found out once, on
    /// first need, within some milliseconds; a spawner that does not answer can hold a child to
    /// nothing.
    pub fn facts(&self) -> Facts {
        *self.facts.get_or_init(|| {
            let found = self.probe().unwrap_or_default();
            found.without(&self.settings.hidden)
        })
    }

    /// The same with what groups can hold, which takes some more milliseconds once: for whoever
    /// has limits.
    pub fn facts_of_groups(&self) -> Facts {
        let cgroup = *self.cgroup.get_or_init(|| {
            if self.settings.hidden.contains(&Facility::Cgroups) {
                return Cgroup::default();
            }
            self.probe_groups().unwrap_or_default()
        });
        Facts {
            cgroup,
            ..self.facts()
        }
    }

    fn probe_groups(&self) -> io::Result<Cgroup> {
        let mut byte = [0];
        self.ask(Way::ProbeGroups)?.read_exact(&mut byte)?;
        Ok(Cgroup::from_byte(byte[0]))
    }

    /// Asks for a process that finds something out.
    fn ask(&self, way: Way) -> io::Result<std::os::unix::net::UnixStream> {
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        near.set_read_timeout(Some(PROBE_MAX))?;
        let (link, _) = self.link()?;
        link.send_now(way, far.as_fd())?;
        Ok(near)
    }

    fn probe(&self) -> io::Result<Facts> {
        let mut near = self.ask(match self.settings.trees {
            Trees::Best => Way::Probe,
            Trees::Subreaper => Way::ProbeSubreaper,
        })?;
        near.write_all(self.settings.scratch.as_os_str().as_bytes())?;
        near.write_all(&[0])?;
        let mut bytes = [0; Facts::BYTES];
        near.read_exact(&mut bytes)?;
        Ok(Facts::from_bytes(bytes))
    }

    /// What a child is held to, made from its needs once.
    fn compiled(&self, spec: &Spec, path: &Path) -> Option<Arc<Confine>> {
        let needs = spec.confine.as_ref()?;
        let facts = self.facts();
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let subject = Subject {
            program: path,
            cwd: &spec.cwd,
            scratch: &self.settings.scratch,
            zygote: spec.zygote,
            named_by_caller: spec.named_by_caller,
        };
        Some(compiled.get(needs, &subject, &facts))
    }

    /// Which limits of a child a group sees to.
    fn group(&self, spec: &Spec) -> Cgroup {
        let wanted = spec.limits.of_tree();
        if wanted.is_none() {
            return wanted;
        }
        wanted.and(self.facts_of_groups().cgroup)
    }

    /// Starts a child. Ready once the program runs. Must be called on a tokio runtime with
    /// I/O and time enabled; dropping the future ends what it had begun.
    pub async fn spawn(&self, mut spec: Spec) -> Result<Child, SpawnError> {
        check(&spec)?;
        let path = resolve(&spec)?;
        let confine = self.compiled(&spec, &path);
        let outlet = confine.as_ref().is_some_and(|confine| confine.outlet);
        if outlet {
            outlet::announce(&mut spec.env);
        }
        if let (Some(terminal), Some(owner)) = (
            &spec.terminal,
            confine.as_ref().and_then(|confine| confine.identity),
        ) {
            // One that cannot be given away is still its standard streams.
            let _ = terminal.give_to(owner);
        }
        let group = self.group(&spec);
        let compiled = confine.clone();
        let confine = with_home(confine, &spec);
        let order = write_order(&path, &spec, group, confine.as_deref())
            .map_err(|error| bad_order(&spec, error))?;
        let kind = Kind {
            confined: spec.confine.is_some(),
            grouped: !group.is_none(),
            by_user: compiled
                .as_ref()
                .is_some_and(|confine| confine.nanny_namespaces),
        };
        let (mut child, first) = self.begin(&order, &spec, kind).await?;
        let named = Named {
            program: spec.program(),
            reach: reach_of(&mut spec, confine),
            path,
            cwd: spec.cwd,
        };
        match first {
            // No descriptor was left for it: a tool that reaches nobody is not what was asked for.
            Some(Report::Started { .. })
                if compiled.is_some_and(|confine| !child.set_outlets(&confine)) =>
            {
                Err(named.failed(Stage::Outlet, libc::EMFILE))
            }
            Some(Report::Started { pid }) => {
                child.set_pid(pid);
                child.set_reach(named.into_reach());
                Ok(child)
            }
            Some(Report::Failed { stage, errno }) => Err(named.failed(stage, errno)),
            Some(Report::Declined | Report::Ended { .. }) | None => Err(SpawnError::Lost {
                program: named.program,
            }),
        }
    }

    /// A nanny that has the order, and the first it says of it: one that has nothing to do, or
    /// a new one.
    async fn begin(
        &self,
        order: &[u8],
        spec: &Spec,
        kind: Kind,
    ) -> Result<(Child, Option<Report>), SpawnError> {
        let descriptors: Vec<_> = handed(spec).into_iter().map(|(fd, _)| fd).collect();
        while let Some(leash) = self.idle.take(kind) {
            // One that went meanwhile is no loss: the order has not reached it.
            if leash.send(order, &descriptors).await.is_err() {
                continue;
            }
            let (child, first) = self.listen(leash).await;
            if first != Some(Report::Declined) {
                return Ok((child, first));
            }
        }
        let leash = self.fresh(kind).await?;
        // A failure shows as a report or as the end of the leash.
        let _ = leash.send(order, &descriptors).await;
        Ok(self.listen(leash).await)
    }

    async fn listen(&self, leash: Leash) -> (Child, Option<Report>) {
        let mut child = Child::new(leash, Arc::downgrade(&self.idle));
        let first = child.next_report().await;
        (child, first)
    }

    /// The process id of the spawner, if it has been started.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(|link| link.pid)
    }

    /// Asks the spawner for a nanny. A spawner that has died before it could make one is
    /// replaced.
    async fn fresh(&self, kind: Kind) -> Result<Leash, SpawnError> {
        let (stream, far) = Leash::pair().map_err(|source| self.trouble(source))?;
        loop {
            let (link, fresh) = self.link().map_err(|source| self.trouble(source))?;
            let way = match kind.by_user {
                true => Way::ByUser,
                false => way(self.settings.trees),
            };
            match link.send(way, far.as_fd()).await {
                Ok(()) => {
                    return Ok(Leash { stream, link, kind });
                }
                Err(errno) => {
                    self.forget(&link);
                    let died = matches!(errno, Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN);
                    // One that dies at birth would do so for ever.
                    if fresh || !died {
                        return Err(self.trouble(errno.into()));
                    }
                }
            }
        }
    }

    /// The running spawner, or a fresh one.
    fn link(&self) -> io::Result<(Arc<Link>, bool)> {
        let mut link = self.lock();
        if let Some(running) = &*link {
            return Ok((Arc::clone(running), false));
        }
        let started = Arc::new(Link::start(&self.program)?);
        *link = Some(Arc::clone(&started));
        Ok((started, true))
    }

    fn forget(&self, dead: &Arc<Link>) {
        let mut link = self.lock();
        if link
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, dead))
        {
            *link = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self, source: io::Error) -> SpawnError {
        SpawnError::Spawner {
            program: self.program.clone(),
            source,
        }
    }
}

/// A running spawner process and the socket to it. It ends when the last link is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    /// Not on the runtime: sending seldom has to wait, and nothing is ever read.
    socket: Option<OwnedFd>,
    process: Mutex<process::Child>,
    pid: u32,
}

impl Link {
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "the one place where a process is made by the standard library"
    )]
    fn start(program: &Path) -> io::Result<Self> {
        let (near, far) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // No hook before exec: the library then need not copy this process, however big.
        let process = process::Command::new(program)
            .arg0("callgate")
            .arg(SPAWNER_ARG)
            .env_clear()
            .stdin(far)
            .stdout(process::Stdio::null())
            .stderr(process::Stdio::null())
            .spawn()?;
        let pid = process.id();
        Ok(Self {
            socket: Some(near),
            process: Mutex::new(process),
            pid,
        })
    }

    /// One packet: how to own trees, and the leash.
    async fn send(&self, way: Way, leash: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            match self.send_now(way, leash) {
                // Hundreds are waiting already, or more descriptors are on their way than
                // the kernel lets us have.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::TOOMANYREFS) => {
                    tokio::time::sleep(CROWDED).await;
                }
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    }

    fn send_now(&self, way: Way, leash: BorrowedFd<'_>) -> Result<(), Errno> {
        let socket = self.socket.as_ref().expect("open until dropped");
        send_packet(socket, &[way.to_byte()], leash)
    }

    /// False if the spawner has died; it is buried then.
    pub fn is_alive(&self) -> bool {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(process.try_wait(), Ok(None))
    }
}

impl Drop for Link {
    /// Lets the spawner end what is left, and buries it. Its trees are being ended already,
    /// so that the wait is short; it is bounded for what the kernel does not let die.
    fn drop(&mut self) {
        self.socket = None;
        let process = self
            .process
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if matches!(process.try_wait(), Ok(None)) {
            let pid = i32::try_from(self.pid)
                .ok()
                .and_then(rustix::process::Pid::from_raw);
            if let Some(Ok(pidfd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
                let mut polled = [PollFd::new(&pidfd, PollFlags::IN)];
                let _ = poll(&mut polled, Some(&FAREWELL));
            }
            let _ = process.try_wait();
        }
    }
}

fn way(trees: Trees) -> Way {
    match trees {
        Trees::Best => Way::Best,
        Trees::Subreaper => Way::Subreaper,
    }
}

fn send_packet(socket: &OwnedFd, byte: &[u8], leash: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let leash = [leash];
    if !control.push(SendAncillaryMessage::ScmRights(&leash)) {
        return Err(Errno::MSGSIZE);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(byte)], &mut control, flags).map(|_| ())
}

fn check(spec: &Spec) -> Result<(), SpawnError> {
    let bad = |reason| {
        Err(SpawnError::BadSpec {
            program: spec.program(),
            reason,
        })
    };
    if !spec.cwd.is_absolute() {
        return bad("its working folder is not an absolute path");
    }
    if spec.extra.len() + 4 > DESCRIPTORS_MAX {
        return bad("too many descriptors");
    }
    if let Some(reason) = spec.confine.as_deref().and_then(bad_forwards) {
        return bad(reason);
    }
    let mut targets: Vec<u32> = spec.extra.iter().map(|(_, target)| *target).collect();
    targets.sort_unstable();
    if targets
        .iter()
        .any(|target| !(3..=TARGET_MAX).contains(target))
    {
        return bad("a further descriptor has a number from 3 to 31");
    }
    if targets.windows(2).any(|pair| pair[0] == pair[1]) {
        return bad("two descriptors have one number");
    }
    Ok(())
}

/// Returns why ports can not be forwarded as the needs say.
fn bad_forwards(needs: &Needs) -> Option<&'static str> {
    let mut ports: Vec<u16> = needs.forwarded().iter().map(|(port, _)| *port).collect();
    if ports.len() > FORWARDS_MAX {
        return Some("more than 16 ports are forwarded");
    }
    if ports.contains(&0) {
        return Some("port 0 can not be forwarded");
    }
    if matches!(needs.reach(), Network::Hosts(_)) {
        // The proxy's own.
        ports.push(outlet::PORT);
    }
    ports.sort_unstable();
    let is_twice = ports.windows(2).any(|pair| pair[0] == pair[1]);
    is_twice.then_some("a port is forwarded twice, or is 3128, which its way to its hosts has")
}

fn bad_order(spec: &Spec, error: OrderError) -> SpawnError {
    let program = spec.program();
    match error {
        OrderError::TooLarge => SpawnError::TooLarge {
            program,
            max_bytes: ORDER_BYTES_MAX,
        },
        OrderError::ZeroByte => SpawnError::BadSpec {
            program,
            reason: "an argument or variable contains a zero byte",
        },
    }
}

/// The same with the child's home among what it may write.
fn with_home(confine: Option<Arc<Confine>>, spec: &Spec) -> Option<Arc<Confine>> {
    let path = spec.home.as_ref().and_then(|home| c_path(home));
    match (confine, path) {
        (Some(confine), Some(path)) => {
            let mut own = Confine::clone(&confine);
            own.roots.push(Root {
                path,
                access: Access::PrivateFolder,
            });
            Some(Arc::new(own))
        }
        (confine, _) => confine,
    }
}

/// Returns the first path that a child may write and that does not exist.
fn missing_write(confine: &Confine) -> Option<PathBuf> {
    let writable = confine.roots.iter().filter(|root| root.access.writes());
    let mut paths = writable.map(|root| Path::new(OsStr::from_bytes(root.path.to_bytes())));
    paths.find(|path| !path.exists()).map(Path::to_owned)
}

/// What a message about a failed start names.
struct Named {
    program: String,
    path: PathBuf,
    cwd: PathBuf,
    /// What the child may reach, without the paths above.
    reach: Option<Reach>,
}

/// What a confined child may reach. Its program and working folder are added by `Named`.
fn reach_of(spec: &mut Spec, confine: Option<Arc<Confine>>) -> Option<Reach> {
    let (confine, needs) = (confine?, spec.confine.take()?);
    let search = spec.env.iter_mut().find(|(name, _)| name == "PATH");
    Some(Reach {
        confine,
        needs,
        program: PathBuf::new(),
        cwd: PathBuf::new(),
        search: search.map(|(_, path)| std::mem::take(path)),
    })
}

impl Named {
    fn into_reach(self) -> Option<Reach> {
        let (program, cwd) = (self.path, self.cwd);
        self.reach.map(|reach| Reach {
            program,
            cwd,
            ..reach
        })
    }

    fn failed(self, stage: Stage, errno: i32) -> SpawnError {
        let Self {
            program,
            path,
            cwd,
            reach,
        } = self;
        let source = io::Error::from_raw_os_error(errno);
        let step = stage.as_str();
        match (stage, errno) {
            (Stage::Cwd, _) => SpawnError::Cwd {
                program,
                cwd,
                source,
            },
            (Stage::Writes, _) => SpawnError::Writes {
                program,
                path: reach
                    .and_then(|reach| missing_write(&reach.confine))
                    .unwrap_or_default(),
                source,
            },
            (Stage::Exec, libc::ENOENT) => {
                let reach = reach.map(|reach| Reach { cwd, ..reach });
                match reach.and_then(|reach| reach.left_out_at_start(&path)) {
                    Some(culprit) => SpawnError::OutOfReach {
                        program,
                        culprit: Box::new(culprit),
                    },
                    None => SpawnError::NoInterpreter { program, path },
                }
            }
            // We could have run it, or it would not have come so far.
            (Stage::Exec, libc::EACCES) => match reach {
                Some(reach) => SpawnError::OutOfReach {
                    program,
                    culprit: Box::new(reach.culprit_at_start(path, cwd)),
                },
                None => SpawnError::NotExecutable { program, path },
            },
            (Stage::Exec, libc::ENOEXEC) => SpawnError::Step {
                program,
                step: "not a program, and no `#!` line",
                source,
            },
            (Stage::Exec, libc::E2BIG) => SpawnError::TooLarge {
                program,
                max_bytes: ORDER_BYTES_MAX,
            },
            (_, libc::EAGAIN) => SpawnError::NoProcesses {
                program,
                step,
                source,
            },
            _ => SpawnError::Step {
                program,
                step,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;

    /// An order that a nanny gives back because it is about to go is the next one's.
    #[tokio::test]
    async fn an_order_that_came_too_late_is_not_lost() {
        let spawner = Spawner::new(callgate_testing::misbehave().to_owned());
        let kind = Kind {
            confined: false,
            grouped: false,
            by_user: false,
        };
        let (link, _) = spawner.link().unwrap();
        let (stream, far) = Leash::pair().unwrap();
        spawner.idle.put(Leash { stream, link, kind });
        let goes = std::thread::spawn(move || {
            let mut far = std::os::unix::net::UnixStream::from(far);
            assert!(far.read(&mut [0; 4096]).unwrap() > 0);
            far.write_all(&Report::Declined.to_bytes()).unwrap();
        });
        let spec = Spec::new(vec!["/bin/true".into()], "/".into());
        let mut child = spawner.spawn(spec).await.unwrap();
        assert_eq!(child.wait().await.ending, Ending::Code(0));
        goes.join().unwrap();
    }
}
