//! `exec/run`: one program in the workspace, to its end. What may be run and with what is
//! `command.rs`, what it prints is `capture.rs`; this file is its life..
//!
//! The program's tree is gone when the call is answered. A timeout is a result here, not a
//! fault: what was printed until then is what the caller wants to see.

mod capture;
mod command;
mod hints;
mod hosts;

use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Clock, Fault, Job, Needs, Notification, Output, RunFuture, Runner, Secrets, Stream, Tier, Tool,
};
use callgate_sandbox::{Child, Ending, Exit, Limits, Spawner, Spec};
use callgate_store::Store;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::time::Instant;

use crate::arguments::{NaturalNumber, arguments};
use crate::builtin;
use crate::files::Lists;
use crate::files::place::Ground;
use crate::programs::{Programs, Variables, leave, live_in, names_home};
use capture::Capture;
pub(crate) use command::not_started;
pub use command::{NOT_EXECUTABLE, OUT_OF_REACH};
pub use hosts::{Hosts, HostsFuture, OpenHosts};

/// How long a program that is told to end may take to do so, before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// The part of that in what a caller waits, where it waits for less than ten seconds.
const GRACE_PART: u32 = 5;
/// How long a killed tree may take to go before the call is answered all the same.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// How long the end of what was printed may take to come once the tree is gone.
const DRAIN: Duration = Duration::from_secs(5);
/// For a call that does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_millis(TIMEOUT_MS_DEFAULT);
const TIMEOUT_MS_DEFAULT: u64 = 60_000;
/// Calls at the same time: each may hold 16 MiB of output.
const CONCURRENCY_MAX: usize = 64;

const SIGTERM: u8 = 15;
const SIGKILL: u8 = 9;
/// What an exit code by a signal begins at.
const BY_SIGNAL: i32 = 128;

/// What the owner lets be run, and how.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// Which programs, where.
    pub programs: Programs,
    /// The gate's own things, where it does not. G-9.
    pub own: Vec<PathBuf>,
    /// What each process may take.
    pub limits: Limits,
    /// How dangerous it is.
    pub tier: Tier,
    /// What confines it.
    pub needs: Arc<Needs>,
}

/// What else it works with.
pub struct ExecParts {
    /// Makes children.
    pub spawner: Arc<Spawner>,
    /// Lets them reach the hosts that the owner names.
    pub hosts: Box<dyn Hosts>,
    /// Keeps what is too large for an answer.
    pub store: Arc<Store>,
    /// What must never leave.
    pub secrets: Secrets,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

/// The tool.
pub fn tool(settings: ExecSettings, parts: ExecParts) -> io::Result<Tool> {
    let (tier, needs) = (settings.tier, Arc::clone(&settings.needs));
    let runner = Exec {
        ground: Ground::open(
            &settings.programs.workspace,
            settings.own.clone(),
            Lists::default(),
        )?,
        settings,
        parts,
    };
    let [input, output] = schemas();
    let about = "Run a program in the workspace and give what it printed";
    let mut tool = builtin(
        "exec/run",
        "AID.EXEC.RUN.v1",
        about,
        input,
        Arc::new(runner),
    );
    tool.output_schema = Some(output);
    tool.face.title = Some("Run Program".to_owned());
    tool.tags.push("exec".to_owned());
    tool.tells = vec![chunk()];
    Ok(Tool {
        tier,
        side_effects: vec!["process_spawn".to_owned(), "filesystem_write".to_owned()],
        writes: vec![".".to_owned()],
        concurrency_max: CONCURRENCY_MAX,
        needs: Some(needs),
        ..tool
    })
}

/// The schemas of `exec/run`: what it takes and what it gives.
pub(crate) fn schemas() -> [Value; 2] {
    let input = json!({
        "command": { "type": "string" },
        "args": { "type": "array", "items": { "type": "string" }, "default": [] },
        "cwd": { "type": ["string", "null"] },
        "env": { "type": "object", "additionalProperties": { "type": "string" } },
        "timeout_ms": {
            "type": "integer", "minimum": 1000, "maximum": 600_000, "default": TIMEOUT_MS_DEFAULT,
        },
        "stdin": { "type": ["string", "null"] },
        "shell": { "type": "boolean", "default": false },
        "stream": { "type": "boolean", "default": false },
    });
    let output = json!({
        "exit_code": { "type": "integer" },
        "stdout": { "type": "string" },
        "stderr": { "type": "string" },
        "duration_ms": { "type": "integer" },
        "timed_out": { "type": "boolean" },
    });
    let required = ["exit_code", "stdout", "stderr", "duration_ms", "timed_out"];
    [
        crate::closed(input, &["command"]),
        crate::closed(output, &required),
    ]
}

/// The arguments of `exec/run`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecArguments<'a> {
    command: &'a str,
    #[serde(borrow, default)]
    args: Vec<&'a str>,
    cwd: Option<&'a str>,
    #[serde(borrow, default)]
    env: Variables<'a>,
    timeout_ms: Option<NaturalNumber>,
    stdin: Option<&'a str>,
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    #[expect(dead_code, reason = "the wire that carried the call reads it")]
    stream: bool,
}

/// What whoever asked for it is told while a program runs, where their wire can tell it. R-10.
fn chunk() -> Notification {
    let properties = json!({
        "request_id": { "type": ["string", "number"] },
        "stream": { "type": "string", "enum": ["stdout", "stderr"] },
        "seq": { "type": "integer", "minimum": 0 },
        "data": { "type": "string" },
        "timestamp": { "type": "string", "description": "ISO-8601" },
    });
    let required = ["request_id", "stream", "seq", "data", "timestamp"];
    Notification {
        name: "exec/stream",
        schema: crate::closed(properties, &required),
    }
}

struct Exec {
    settings: ExecSettings,
    parts: ExecParts,
    ground: Ground,
}

impl Runner for Exec {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

impl Exec {
    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let began_us = self.parts.clock.micros();
        let asked: ExecArguments<'_> = arguments(job.call.input.value())?;
        let times = Times::of(job, &asked);
        let mut spec = self.spec(&asked, job.plan.confinement.as_ref())?;
        let home = self.settings.programs.home(job).await?;
        live_in(&mut spec, home.as_ref(), names_home(&asked.env));
        let ended = self
            .carry_out(job, (spec, asked.stdin), (began_us, times))
            .await;
        leave(home).await;
        ended
    }

    /// Runs the program to its end.
    async fn carry_out(
        &self,
        job: Job<'_>,
        (mut spec, input): (Spec, Option<&str>),
        (began_us, times): (u64, Times),
    ) -> Result<Output, Fault> {
        let pipes = |error: io::Error| Fault::Internal {
            message: format!("make pipes: {error}"),
        };
        let (mut stdout, far) = self.capture(Stream::Stdout, job).map_err(pipes)?;
        spec.stdout = far.into();
        let (mut stderr, far) = self.capture(Stream::Stderr, job).map_err(pipes)?;
        spec.stderr = far.into();
        let mut stdin = None;
        if let Some(text) = input {
            let (far, near) = io::pipe().map_err(pipes)?;
            let near = pipe::Sender::from_owned_fd(near.into()).map_err(pipes)?;
            spec.stdin = OwnedFd::from(far).into();
            stdin = Some((near, text));
        }
        let mut birth = pin!(self.parts.spawner.spawn(spec));
        // `birth` is pinned outside of the select: a child that is on its way is waited for and
        // ended below. Biased: a child that is there outranks a stop.
        let child = tokio::select! {
            biased;
            child = &mut birth => child,
            stop = times.stop(job, times.term) => {
                // One that is on its way by then is ended like any other.
                if let Ok(Ok(mut child)) = tokio::time::timeout(KILL_GRACE, birth).await {
                    child.kill();
                    let _ = tokio::time::timeout(KILL_GRACE, child.wait()).await;
                }
                return Err(stop.before_the_start(times));
            }
        };
        let mut child = child.map_err(|error| hints::not_started(job, &error))?;
        let mut hosts = None;
        if let Some(needs) = job.plan.confinement.as_deref() {
            hosts = self.parts.hosts.open(&mut child, needs).await?;
        }
        let mut refused = None;
        let ended = {
            let pumps = pin!(async {
                tokio::join!(stdout.pump(), stderr.pump(), feed(stdin));
            });
            let mut pumps = Pumps {
                all: pumps,
                done: false,
            };
            let ended = attend(job, times, &mut child, &mut pumps).await;
            if let Some(hosts) = hosts {
                refused = hosts.tell(job.sink).await;
            }
            if ended.is_ok() {
                let _ = tokio::time::timeout(DRAIN, pumps.finish()).await;
            }
            ended?
        };
        let (stdout, mut stderr) = tokio::join!(stdout.text(), stderr.text());
        let printed = (stdout.as_str(), stderr.as_str());
        if let Some(hint) = hints::hint(job, &child, ended.code, printed, refused) {
            job.sink.hint(&hint);
            hints::add_line(&mut stderr, &hint);
        }
        let took_us = self.parts.clock.micros().saturating_sub(began_us);
        Ok(Output::from_value(json!({
            "exit_code": ended.code,
            "stdout": stdout,
            "stderr": stderr,
            "duration_ms": took_us / 1000,
            "timed_out": ended.timed_out,
        })))
    }

    fn capture<'a>(&self, stream: Stream, job: Job<'a>) -> io::Result<(Capture<'a>, OwnedFd)> {
        Capture::new(stream, &self.parts.store, &self.parts.secrets, job.sink)
    }
}

/// When a program must end.
#[derive(Clone, Copy)]
struct Times {
    all: Duration,
    /// It is told to.
    term: Instant,
    /// It is made to.
    kill: Instant,
}

/// Why it must end early.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Cancelled,
    Late,
}

impl Stop {
    fn before_the_start(self, times: Times) -> Fault {
        match self {
            Self::Cancelled => Fault::Cancelled,
            Self::Late => Fault::Timeout { after: times.all },
        }
    }
}

impl Times {
    /// What the call says, unless its caller waits for less: then the grace is part of that.
    fn of(job: Job<'_>, asked: &ExecArguments<'_>) -> Self {
        let asked = asked.timeout_ms.map(NaturalNumber::milliseconds);
        let asked = asked.unwrap_or(TIMEOUT_DEFAULT);
        let patience = job.call.timeout_max.unwrap_or(Duration::MAX);
        let all = asked.min(patience - GRACE.min(patience / GRACE_PART));
        let term = Instant::now() + all;
        Self {
            all,
            term,
            kill: term + GRACE.min(patience - all),
        }
    }

    async fn stop(self, job: Job<'_>, at: Instant) -> Stop {
        // Both arms only wait, and the next call of `stop` makes them anew from the same times.
        tokio::select! {
            () = job.call.cancel.cancelled() => Stop::Cancelled,
            () = tokio::time::sleep_until(at) => Stop::Late,
        }
    }
}

/// How a program ended.
struct Ended {
    code: i32,
    timed_out: bool,
}

/// Stays with the program until nothing is left of it.
async fn attend(
    job: Job<'_>,
    times: Times,
    child: &mut Child,
    pumps: &mut Pumps<'_>,
) -> Result<Ended, Fault> {
    let mut stopped = match pumps.beside(child, times.stop(job, times.term)).await {
        Ok(exit) => {
            let (code, timed_out) = (code(exit.ending)?, false);
            return Ok(Ended { code, timed_out });
        }
        Err(stopped) => stopped,
    };
    if stopped == Stop::Late {
        child.signal(SIGTERM);
        match pumps.beside(child, times.stop(job, times.kill)).await {
            Ok(_) => return Ok(timed_out(SIGTERM)),
            Err(again) => stopped = again,
        }
    }
    child.kill();
    let _ = pumps.beside(child, tokio::time::sleep(KILL_GRACE)).await;
    match stopped {
        Stop::Cancelled => Err(Fault::Cancelled),
        Stop::Late => Ok(timed_out(SIGKILL)),
    }
}

fn timed_out(signal: u8) -> Ended {
    Ended {
        code: BY_SIGNAL + i32::from(signal),
        timed_out: true,
    }
}

fn code(ending: Ending) -> Result<i32, Fault> {
    match ending {
        Ending::Code(code) => Ok(code),
        Ending::Signal(signal) => Ok(BY_SIGNAL + signal),
        Ending::Lost => Err(Fault::Crash {
            message: "lost: the process that watched over it was killed".to_owned(),
        }),
    }
}

/// What moves the bytes, for as long as it is polled. Nothing is lost in between.
struct Pumps<'a> {
    all: Pin<&'a mut (dyn Future<Output = ()> + Send)>,
    done: bool,
}

impl Pumps<'_> {
    /// Until every stream has ended.
    async fn finish(&mut self) {
        if !self.done {
            self.all.as_mut().await;
            self.done = true;
        }
    }

    /// Until the child's end, or until `stop`.
    async fn beside<T>(
        &mut self,
        child: &mut Child,
        stop: impl Future<Output = T>,
    ) -> Result<Exit, T> {
        let forever = async {
            self.finish().await;
            pending::<()>().await;
        };
        // Any arm may be dropped: `child` and `self` keep how far it came. Biased: an exit outranks
        // a stop that is due at the same time.
        tokio::select! {
            biased;
            exit = child.wait() => Ok(exit),
            stopped = stop => Err(stopped),
            () = forever => unreachable!("it never ends"),
        }
    }
}

/// Writes the input for as long as the program reads it. One that does not is free not to.
async fn feed(stdin: Option<(pipe::Sender, &str)>) {
    let Some((pipe, text)) = stdin else { return };
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        if pipe.writable().await.is_err() {
            return;
        }
        match pipe.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
