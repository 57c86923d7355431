//! The sessions of this process. They belong to it and not to a call, a connection or a
//! configuration, and end with it.

use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use callgate_call::{Cancel, Clock, Fault, Hearer, Needs, Secrets, Stream, Timestamp, Topics};
use callgate_sandbox::{Home, Limits, SpawnError, Spawner, Spec, Terminal, TerminalSize, resolve};
use rustix::thread::set_current_timer_slack;
use tokio::net::unix::pipe;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

use super::clock::SessionClock;
use super::log::{LOGS_BYTES_MAX, Space, level};
use super::order::Order;
use super::pump::{Pump, Source};
use super::session::{Session, State};
use super::text::Decoder;
use crate::programs::{Programs, bad, live_in};

/// Sessions that run at the same time; more are refused.
pub const SESSIONS_MAX: usize = 512;

/// Sessions that have ended and are still known; whichever ended first is forgotten first.
pub const ENDED_MAX: usize = 128;

/// How long they are known.
pub const ENDED_LIFE: Duration = Duration::from_secs(3600);

/// Signals on their way to one child.
const SIGNALS_MAX: usize = 16;

/// The sessions of this process.
pub struct Terminals {
    shared: Arc<Shared>,
    /// Where children are watched over: however much they print, calls do not wait for it.
    /// Started with the first session.
    thread: Mutex<Option<Thread>>,
}

/// What sessions share.
///
/// Lock order: `table`, then the state of a session, then the ring of `topics`. What a session
/// prints takes the last two, so that all who follow it are told in the order of its log; the ring
/// takes no lock itself. `Session::turn` is held across awaits, and only by calls that write to
/// the session: no other lock is held when it is taken.
pub(super) struct Shared {
    spawner: Arc<Spawner>,
    topics: Topics,
    clock: Arc<dyn Clock>,
    table: Mutex<Table>,
    /// What the logs of all take.
    space: Arc<Space>,
    pub(super) held_max: Duration,
}

/// Bounds of all sessions.
#[derive(Clone, Copy, Debug)]
pub struct TerminalBounds {
    /// What their logs take together.
    pub logs_bytes_max: usize,
    /// How long the possible beginning of a secret is held back while nothing more comes.
    pub held_max: Duration,
}

impl Default for TerminalBounds {
    fn default() -> Self {
        Self {
            logs_bytes_max: LOGS_BYTES_MAX,
            held_max: Duration::from_millis(100),
        }
    }
}

#[derive(Default)]
struct Table {
    /// In the order they were made.
    sessions: Vec<Arc<Session>>,
    /// Being made.
    starting: usize,
}

struct Thread {
    handle: Handle,
    stop: Cancel,
    thread: Option<JoinHandle<()>>,
}

/// What a session is made of beside its order.
pub struct Birth {
    /// Which programs may be run.
    pub programs: Programs,
    pub needs: Option<Arc<Needs>>,
    /// Its home, for as long as it lives.
    pub home: Option<Home>,
    /// Its creator has set the variable that names a home.
    pub names_home: bool,
    pub secrets: Secrets,
    pub limits: Limits,
    /// Its folder, as it is told.
    pub cwd: String,
    /// Who is told what it prints.
    pub hearer: Option<Hearer>,
}

impl Terminals {
    /// None yet.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, topics: Topics, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::bounded(spawner, topics, clock, TerminalBounds::default())
    }

    /// The same within other bounds.
    #[must_use]
    pub fn bounded(
        spawner: Arc<Spawner>,
        topics: Topics,
        clock: Arc<dyn Clock>,
        bounds: TerminalBounds,
    ) -> Arc<Self> {
        let table = Mutex::default();
        let shared = Arc::new(Shared {
            spawner,
            topics,
            clock,
            table,
            space: Arc::new(Space::new(bounds.logs_bytes_max)),
            held_max: bounds.held_max,
        });
        let thread = Mutex::new(None);
        Arc::new(Self { shared, thread })
    }

    /// Makes a session.
    pub(super) async fn create(&self, order: Order, birth: Birth) -> Result<Arc<Session>, Fault> {
        let handle = self.handle().map_err(|error| broken(&error))?;
        let starting = Starting::new(&self.shared)?;
        // On the thread that it lives on. It is ended with us, or given up with the call.
        let begun = handle.spawn(start(Arc::clone(&self.shared), order, birth));
        let begun = Abandoned(begun);
        let session = begun.finish().await;
        drop(starting);
        session
    }

    /// A session, by its id.
    pub(super) fn find(&self, id: &str) -> Result<Arc<Session>, Fault> {
        let table = self.shared.table();
        let found = table.sessions.iter().find(|session| &*session.id == id);
        found.cloned().ok_or_else(|| Fault::NotFound {
            message: format!("no session {id}"),
        })
    }

    /// All that are known, in the order they were made.
    pub(super) fn list(&self) -> Vec<Arc<Session>> {
        let mut table = self.shared.table();
        self.shared.sweep(&mut table);
        table.sessions.clone()
    }

    fn handle(&self) -> io::Result<Handle> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*thread {
            return Ok(running.handle.clone());
        }
        let started = Thread::start()?;
        let handle = started.handle.clone();
        *thread = Some(started);
        Ok(handle)
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), Cancel::new());
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("terminals".to_owned())
            .spawn(move || {
                // It sleeps for microseconds; what wakes others up late would be tens of them.
                let _ = set_current_timer_slack(Some(NonZero::<u64>::MIN));
                runtime.block_on(stopped.cancelled());
            })?;
        Ok(Self {
            handle,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Thread {
    /// Ends every session: its child goes with whoever watched over it.
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the logs of all within their bound.
    pub(super) fn bound_logs(&self) {
        if !self.space.is_over() {
            return;
        }
        let sessions = self.table().sessions.clone();
        let (mut ended, mut running) = (Vec::new(), Vec::new());
        for session in &sessions {
            match session.end() {
                Some(end) => ended.push((end.at, session)),
                None => running.push(session),
            }
        }
        ended.sort_by_key(|(at, _)| *at);
        for (_, session) in ended {
            let bytes = session.log_bytes();
            session.shrink_log(bytes.saturating_sub(self.space.excess()));
        }
        if self.space.excess() == 0 {
            return;
        }
        let mut sizes: Vec<usize> = running.iter().map(|session| session.log_bytes()).collect();
        sizes.sort_unstable();
        let level = level(&sizes, self.space.kept());
        running.iter().for_each(|session| session.shrink_log(level));
    }

    /// Forgets those that ended long ago, and of the others that ended as many as are too many,
    /// whichever ended first.
    fn sweep(&self, table: &mut Table) {
        let now = self.clock.now();
        let ended = table.sessions.iter();
        let ended = ended.filter_map(|session| Some((session.end()?.at, Arc::clone(session))));
        let mut forgotten: Vec<(Timestamp, Arc<Session>)> = ended.collect();
        forgotten.sort_by_key(|(at, _)| *at);
        let too_old = forgotten.partition_point(|(at, _)| now.since(*at) > ENDED_LIFE);
        let too_many = forgotten.len().saturating_sub(ENDED_MAX);
        forgotten.truncate(too_old.max(too_many));
        for (_, gone) in forgotten {
            self.topics.close(&gone.id);
            table
                .sessions
                .retain(|session| !Arc::ptr_eq(session, &gone));
        }
    }
}

/// A place among those that run, taken before there is one.
struct Starting<'a>(&'a Shared);

impl<'a> Starting<'a> {
    fn new(shared: &'a Shared) -> Result<Self, Fault> {
        let mut table = shared.table();
        shared.sweep(&mut table);
        let running = table
            .sessions
            .iter()
            .filter(|session| session.end().is_none());
        if running.count() + table.starting >= SESSIONS_MAX {
            return Err(Fault::Unavailable {
                reason: format!("{SESSIONS_MAX} sessions are running: end one first"),
            });
        }
        table.starting += 1;
        Ok(Self(shared))
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.table().starting -= 1;
    }
}

/// A start that ends with the call that asked for it.
struct Abandoned(tokio::task::JoinHandle<Result<Arc<Session>, Fault>>);

impl Abandoned {
    async fn finish(mut self) -> Result<Arc<Session>, Fault> {
        match (&mut self.0).await {
            Ok(started) => started,
            Err(_) => Err(broken(&"its task ended early")),
        }
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn broken(error: &dyn std::fmt::Display) -> Fault {
    Fault::Internal {
        message: format!("make a session: {error}"),
    }
}

/// Our ends of a child's streams.
struct Ends {
    input: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: Option<pipe::Receiver>,
}

/// Starts the child of a session, and whoever watches over it.
async fn start(shared: Arc<Shared>, order: Order, birth: Birth) -> Result<Arc<Session>, Fault> {
    let mut spec = Spec::new(order.argv, order.start.path);
    spec.folder = order.start.folder;
    spec.env = order.env;
    spec.search = Some(order.search);
    spec.confine = birth.needs;
    spec.limits = birth.limits;
    live_in(&mut spec, birth.home.as_ref(), birth.names_home);
    if let Some(command) = &order.named {
        let found = resolve(&spec).map_err(|error| not_started(&error))?;
        spec.named_by_caller = birth.programs.comes_alone(command, &found);
    }
    let ends = match order.size {
        Some(size) => on_terminal(&mut spec, size),
        None => on_pipes(&mut spec),
    };
    // As a rule there are no more descriptors, or terminals.
    let ends = ends.map_err(|error| Fault::Unavailable {
        reason: format!("make a terminal: {error}"),
    })?;
    let spawned = shared.spawner.spawn(spec).await;
    let child = spawned.map_err(|error| not_started(&error))?;
    let id = session_id(&*shared.clock).map_err(|error| broken(&error))?;
    let (signals, asked) = mpsc::channel(SIGNALS_MAX);
    let session = Arc::new(Session {
        id,
        name: order.name,
        cwd: birth.cwd,
        pid: child.pid(),
        times: SessionClock::now(&*shared.clock),
        input: ends.input,
        turn: tokio::sync::Mutex::new(()),
        signals,
        topics: shared.topics.clone(),
        clock: Arc::clone(&shared.clock),
        state: Mutex::new(State::new(order.size, Arc::clone(&shared.space))),
    });
    // Before it is read from, so that nothing of it is missed.
    session.follow(birth.hearer.as_ref());
    shared.table().sessions.push(Arc::clone(&session));
    let source = |stream, fd| Source::new(stream, fd, Decoder::new(birth.secrets.clone()));
    let pump = Pump {
        session: Arc::clone(&session),
        shared,
        child,
        home: birth.home,
        signals: asked,
        stdout: source(Stream::Stdout, ends.stdout),
        stderr: ends.stderr.map(|fd| source(Stream::Stderr, fd)),
    };
    // Its owner is the thread, with which it ends.
    tokio::spawn(pump.run());
    Ok(session)
}

fn on_terminal(spec: &mut Spec, size: TerminalSize) -> io::Result<Ends> {
    let (master, terminal) = Terminal::open(size)?;
    spec.terminal = Some(terminal);
    // Not a pipe, but waited for, read and written like one.
    Ok(Ends {
        input: pipe::Sender::from_owned_fd_unchecked(master.try_clone()?)?,
        stdout: pipe::Receiver::from_owned_fd_unchecked(master)?,
        stderr: None,
    })
}

fn on_pipes(spec: &mut Spec) -> io::Result<Ends> {
    let (stdin, input) = io::pipe()?;
    let (output, stdout) = io::pipe()?;
    let (errors, stderr) = io::pipe()?;
    spec.stdin = OwnedFd::from(stdin).into();
    spec.stdout = OwnedFd::from(stdout).into();
    spec.stderr = OwnedFd::from(stderr).into();
    Ok(Ends {
        input: pipe::Sender::from_owned_fd(input.into())?,
        stdout: pipe::Receiver::from_owned_fd(output.into())?,
        stderr: Some(pipe::Receiver::from_owned_fd(errors.into())?),
    })
}

/// JR-145: what a caller can mend is 1003, what they may not is 1002, the rest 1006.
fn not_started(error: &SpawnError) -> Fault {
    let words = callgate_call::chain(error);
    match error {
        SpawnError::NotFound { .. }
        | SpawnError::NoInterpreter { .. }
        | SpawnError::BadSpec { .. }
        | SpawnError::TooLarge { .. } => bad("command", words),
        SpawnError::Cwd { .. } => bad("cwd", words),
        SpawnError::NotExecutable { .. } => Fault::denied(words),
        SpawnError::OutOfReach { culprit, .. } => {
            let hint = culprit.hint_for_programs();
            Fault::denied(format!("{words}; {hint}")).with("hint", hint.to_value())
        }
        SpawnError::NoProcesses { .. }
        | SpawnError::Writes { .. }
        | SpawnError::Step { .. }
        | SpawnError::Spawner { .. }
        | SpawnError::Lost { .. } => Fault::Unavailable { reason: words },
    }
}

/// The time and something that cannot be guessed: `1793000000123-k3x9qz`.
fn session_id(clock: &dyn Clock) -> Result<Arc<str>, getrandom::Error> {
    const LETTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = getrandom::u64()?;
    let mut id = format!("{}-", clock.now().0);
    for _ in 0..6 {
        id.push(char::from(LETTERS[(random % 36) as usize]));
        random /= 36;
    }
    Ok(id.into())
}
