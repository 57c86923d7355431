//! A tool inside a container: one container with a worker in it for all calls, or one for
//! each call where an image wants that.
//!
//! Everything is shut that the tool does not need, and what is promised of it is what the
//! running container shows (P-12): each one is looked at after its start and before its first
//! call. It is removed by name on every path; see `host.rs`.

mod client;
mod flags;
mod host;
mod mounts;
mod oneshot;
mod profile;
mod shown;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_call::{
    Call, Fault, Guarantee, Held, Isolation, Job, Needs, Output, Plan, PlanFuture, RunFuture,
    Runner, Tool,
};
use callgate_sandbox::{Limits, Spec};
use tokio::sync::oneshot as signal;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::coverage::{self, Kept, is_unsafe};
use crate::leaks::NamedSecrets;
use crate::pool::health::{Health, Rules, Start};
use crate::pool::turns::Turns;
use crate::pool::worker::{Found, Served, Worker};
use crate::process::{KILL_GRACE, within};
pub use client::{Client, Runtime};
pub use host::Containers;
use host::Removal;
use oneshot::OneShot;
pub use profile::seccomp_profile;
use shown::{Asked, Inspected, Shown};

/// The text of a worker that speaks by its standard input and output, made of the text of one
/// that speaks by a descriptor.
#[must_use]
pub fn over_stdio(worker: &str) -> String {
    format!("{}\n{worker}", include_str!("container/stdio.py"))
}

/// How often a starting container is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// How often one that runs may show nothing of ours: a runtime says so shortly before the
/// program has taken the place of the runtime's own.
const UNSEEN_MAX: u32 = 40;

/// What runs inside, and how it is spoken to.
#[derive(Clone, Debug)]
pub enum Talking {
    /// A worker for many calls, in our lines over its standard input and output.
    Worker {
        /// Its program and arguments, inside the image.
        command: Vec<OsString>,
        /// Names the tool's code to it.
        entry: Option<String>,
    },
    /// A program for one call, in the tool protocol's local form.
    OneShot {
        /// What follows the image; the image's own if empty.
        command: Vec<OsString>,
        /// Names the tool's code to it.
        entry: String,
    },
}

/// Seccomp profiles for containers, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiles {
    /// See [`seccomp_profile`].
    pub usual: PathBuf,
    /// The same, and nothing may fork.
    pub without_forks: PathBuf,
}

/// What a container tool is.
#[derive(Clone, Debug)]
pub struct ContainerSettings {
    /// By name or by digest.
    pub image: String,
    /// What runs inside.
    pub talking: Talking,
    /// What is declared for the tool.
    pub env: Vec<(String, String)>,
    /// Of these only those are handed in that the tool may have.
    pub secrets: Arc<NamedSecrets>,
    /// Who it is inside; else the owner of what it may write, else nobody.
    pub user: Option<String>,
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// What it may take; address space means memory of the whole container.
    pub limits: Limits,
    /// Where there are any.
    pub profiles: Option<Profiles>,
    /// Containers at the same time; one call each.
    pub containers_max: usize,
    /// Calls waiting for one; beyond, `Unavailable`.
    pub queue_max: usize,
    /// A container without calls is removed after this.
    pub idle_max: Duration,
    /// A container is replaced after so many calls.
    pub calls_max: u64,
    /// The largest output; beyond, the call is `TooLarge`.
    pub output_bytes_max: usize,
}

/// Runs one tool in containers.
///
/// Lock order: a turn, then `state`. `state` is never held across an await, and no container is
/// dropped under it: to drop one takes the lock of the undertaker.
#[derive(Debug)]
pub struct ContainerRunner {
    host: Arc<Containers>,
    client: Arc<Client>,
    settings: ContainerSettings,
    turns: Turns,
    state: Mutex<State>,
    own: Weak<Self>,
}

#[derive(Debug)]
struct State {
    /// The one used last is used next.
    idle: Vec<Ready>,
    /// What the last one showed.
    known: Option<Arc<Seen>>,
    health: Health,
    /// Containers of an earlier one are not used again.
    generation: u64,
    keeper: Option<AbortHandle>,
}

/// What a container was asked to be, and what it shows.
#[derive(Debug)]
struct Seen {
    asked: Asked,
    shown: Shown,
}

impl ContainerRunner {
    /// No container is started before the first call.
    #[must_use]
    pub fn new(
        host: Arc<Containers>,
        client: Arc<Client>,
        settings: ContainerSettings,
    ) -> Arc<Self> {
        let rules = Rules {
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(30),
            crashes_max: 5,
            crash_window: Duration::from_secs(60),
            pause: Duration::from_secs(60),
            half_open: false,
            what: "worker",
        };
        Arc::new_cyclic(|own| Self {
            host,
            client,
            turns: Turns::new(settings.containers_max, settings.queue_max, "container"),
            settings,
            state: Mutex::new(State {
                idle: Vec::new(),
                known: None,
                health: Health::new(rules),
                generation: 0,
                keeper: None,
            }),
            own: own.clone(),
        })
    }

    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let deadline = Instant::now() + job.timeout.until();
        let turn = self.turns.take(job, deadline).await?;
        let mut ready = Box::pin(within(job, deadline, self.ready(job.tool))).await??;
        self.tell_facts(job, &ready.seen);
        if let Some(short) = self.short_of(&ready.seen, job) {
            self.state().known = None;
            ready.removed().await;
            return Err(Fault::Unavailable { reason: short });
        }
        let served = ready
            .serve(job, deadline, self.settings.output_bytes_max)
            .await;
        let result = self.settle(ready, served, job.tool).await;
        drop(turn);
        result
    }

    /// An idle container that is fit, or a new one.
    async fn ready(&self, tool: &Tool) -> Result<Ready, Fault> {
        loop {
            // Taken before it is looked at: the lock is not held meanwhile.
            let idle = self.state().idle.pop();
            let Some(mut ready) = idle else { break };
            match ready.is_fit().await {
                Ok(()) => return Ok(ready),
                Err(Some(reason)) => self.state().health.crashed(Instant::now(), reason),
                Err(None) => {}
            }
        }
        let may_start = self.state().health.may_start(Instant::now());
        let (until, reason) = match may_start {
            Start::Now => return self.start(tool).await,
            Start::At(at) => (
                at,
                "its container ended and is not started again yet".to_owned(),
            ),
            Start::Stopped { until, reason } => (until, reason),
        };
        let wait_ms = until.saturating_duration_since(Instant::now()).as_millis();
        Err(Fault::Unavailable {
            reason: format!("{reason}; try again in {wait_ms} ms"),
        })
    }

    /// Starts a container and looks at it. Whatever goes wrong, it is removed.
    async fn start(&self, tool: &Tool) -> Result<Ready, Fault> {
        self.host.sweep(&self.client).await;
        let generation = self.state().generation;
        let name = self.host.next_name();
        let needs = needs(tool);
        let start = flags::start(&name, &self.settings, &needs, &self.client);
        let mut spec = self.client.spec(start.words);
        spec.env = start.env;
        // Before its client is there: a call that is taken back meanwhile may leave a container
        // all the same.
        let mut ready = Ready {
            host: Arc::clone(&self.host),
            client: Arc::clone(&self.client),
            name,
            talk: None,
            was_seen: false,
            seen: Arc::new(Seen {
                asked: start.asked,
                shown: Shown::default(),
            }),
            generation,
            idle_since: Instant::now(),
        };
        ready.talk = Some(self.talk(spec, generation).await?);
        match ready.look().await {
            Ok(()) => Ok(ready),
            Err(reason) => {
                // A container may run without its client: docker's is not the client's child.
                ready.removed().await;
                let mut state = self.state();
                state.health.crashed(Instant::now(), reason.clone());
                Err(Fault::Unavailable { reason })
            }
        }
    }

    /// Starts the client, which starts the container.
    async fn talk(&self, spec: Spec, generation: u64) -> Result<Talk, Fault> {
        let spawner = self.client.spawner();
        Ok(match &self.settings.talking {
            Talking::Worker { entry, .. } => {
                let worker = Worker::over_stdio(spawner, spec, generation).await?;
                let entry = serde_json::Value::from(entry.clone()).to_string();
                Talk::Worker(Box::new(worker), entry)
            }
            Talking::OneShot { entry, .. } => {
                let shot = OneShot::start(spawner, spec).await?;
                Talk::OneShot(Box::new(shot), entry.clone())
            }
        })
    }

    async fn settle(&self, mut ready: Ready, served: Served, tool: &Tool) -> Result<Output, Fault> {
        let (result, again) = match served {
            Served::Answered(result) => {
                self.state().health.answered();
                (result, true)
            }
            Served::Spent(result) => {
                if result.is_ok() {
                    self.state().health.answered();
                }
                (result, false)
            }
            Served::Crashed(fault) => {
                let now = Instant::now();
                self.state().health.crashed(now, fault.to_string());
                (Err(fault), false)
            }
        };
        let serves_on = again
            && self.isolation(tool) == Isolation::Worker
            && ready.calls() < self.settings.calls_max
            && ready.generation == self.state().generation;
        if serves_on {
            self.keep(ready);
        } else {
            ready.removed().await;
        }
        result
    }

    fn keep(&self, mut ready: Ready) {
        ready.idle_since = Instant::now();
        let mut state = self.state();
        state.idle.push(ready);
        if state.keeper.is_none() {
            state.keeper = Some(tokio::spawn(keep(self.own.clone())).abort_handle());
        }
    }

    /// Lets go of containers that have been idle for too long. When the next one will have
    /// been, if there is one.
    fn end_idle(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        let idle_max = self.settings.idle_max;
        let expired = state
            .idle
            .iter()
            .take_while(|ready| now - ready.idle_since >= idle_max)
            .count();
        let ended: Vec<Ready> = state.idle.drain(..expired).collect();
        let next = state.idle.first().map(|ready| ready.idle_since + idle_max);
        if next.is_none() {
            state.keeper = None;
        }
        drop(state);
        drop(ended);
        next
    }

    /// What keeps one call from the next.
    fn isolation(&self, tool: &Tool) -> Isolation {
        let wanted = tool.needs.as_ref().map(|needs| needs.isolation);
        match (&self.settings.talking, wanted) {
            (Talking::OneShot { .. }, _) => Isolation::Cold,
            (Talking::Worker { .. }, None | Some(Isolation::Worker)) => Isolation::Worker,
            // A container of its own is more than a fork of its own.
            (Talking::Worker { .. }, Some(Isolation::Cold | Isolation::Call)) => Isolation::Cold,
        }
    }

    async fn make_plan(&self, call: &Call, tool: &Tool) -> Result<Plan, Fault> {
        // Dropping `seen` gives back its turn. A container that was being started is a `Ready`
        // already, which removes the container when it is dropped.
        let seen = tokio::select! {
            seen = tokio::time::timeout(call.timeout(tool.timeout), self.seen(tool)) => seen,
            () = call.cancel.cancelled() => return Err(Fault::Cancelled),
        };
        let seen = seen.map_err(|_| Fault::Unavailable {
            reason: "its container did not start in time".to_owned(),
        })??;
        if let Some(reason) = self.unlimited(&seen.shown)
            && !is_unsafe(tool)
        {
            self.state().known = None;
            return Err(Fault::Unavailable { reason });
        }
        let wanted = coverage::wanted(call, tool);
        let isolation = self.isolation(tool);
        coverage::plan(tool, &wanted, isolation, |one| self.kept(&seen, one, tool))
    }

    /// What a container of this tool shows: of the last one, else of one that is started now
    /// and kept for the call.
    async fn seen(&self, tool: &Tool) -> Result<Arc<Seen>, Fault> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let _turn = self.turns.next().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let ready = self.ready(tool).await?;
        let seen = Arc::clone(&ready.seen);
        self.state().known = Some(Arc::clone(&seen));
        self.keep(ready);
        Ok(seen)
    }

    fn known(&self) -> Option<Arc<Seen>> {
        self.state().known.clone()
    }

    fn kept(&self, seen: &Seen, one: Guarantee, tool: &Tool) -> Kept {
        seen.shown.kept(one, &seen.asked, self.isolation(tool))
    }

    /// A limit that was configured and is not in force.
    fn unlimited(&self, shown: &Shown) -> Option<String> {
        let limits = &self.settings.limits;
        let short = |name: &str, wanted: Option<u64>, found: Option<u64>| match (wanted, found) {
            (Some(wanted), Some(found)) if found <= wanted => None,
            (Some(_), _) => Some(format!(
                "the container's {name} limit is not in force: the runtime ignored it"
            )),
            (None, _) => None,
        };
        short("memory", limits.address_space_bytes, shown.memory_bytes)
            .or_else(|| short("process", limits.processes, shown.processes))
    }

    /// What this container keeps less well than the plan says.
    fn short_of(&self, seen: &Seen, job: Job<'_>) -> Option<String> {
        let unsafe_override = |detail: &&Arc<callgate_call::Detail>| detail.unsafe_override;
        let detail = job.plan.enforcement.detail.as_ref();
        if detail.filter(unsafe_override).is_some() {
            return None;
        }
        let held = detail.map(|detail| detail.held.as_slice());
        let worse = held.unwrap_or_default().iter().find(|held| {
            let kept = held.guarantee.map(|one| self.kept(seen, one, job.tool));
            kept.is_some_and(|kept| kept.level < held.level)
        });
        worse.map(|held| format!("a new container does not keep {}", held.name()))
    }

    /// TP-74 to TP-76, TP-83.
    fn tell_facts(&self, job: Job<'_>, seen: &Seen) {
        let sink = job.sink;
        for (name, value) in self.facts() {
            sink.fact(name, &value);
        }
        let digest = seen.shown.image.trim_start_matches("sha256:");
        sink.fact("image_digest", &format!("sha256:{digest}"));
        sink.fact("container_enforcement", &seen.shown.words());
    }

    /// What is known of a container before there is one.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let command = match &self.settings.talking {
            Talking::Worker { entry, .. } => {
                format!("worker {}", entry.as_deref().unwrap_or_default())
            }
            Talking::OneShot { command, .. } => command
                .iter()
                .map(|word| word.to_string_lossy())
                .collect::<Vec<_>>()
                .join(" "),
        };
        vec![
            ("container_runtime", self.client.runtime.as_str().to_owned()),
            ("image", self.settings.image.clone()),
            ("command", command.trim_end().to_owned()),
        ]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for ContainerRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn plan<'a>(&'a self, call: &'a Call, tool: &'a Tool) -> Option<PlanFuture<'a>> {
        Some(Box::pin(self.make_plan(call, tool)))
    }

    fn facts_of_refusal(&self, _: &Call, _: &Tool) -> Vec<(&'static str, String)> {
        self.facts()
    }

    fn outlook(&self, tool: &Tool) -> Option<Vec<Held>> {
        let known = self.known();
        let kept = |one: Guarantee| match &known {
            Some(seen) => self.kept(seen, one, tool),
            None => Kept::none("its container has not been started yet"),
        };
        Some(coverage::outlook(tool, kept))
    }

    fn kind(&self) -> &'static str {
        "container"
    }

    fn stop(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.known = None;
        state.health.forget();
        let ended = std::mem::take(&mut state.idle);
        if let Some(keeper) = state.keeper.take() {
            keeper.abort();
        }
        drop(state);
        drop(ended);
    }
}

impl Drop for ContainerRunner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends idle containers in time. Ends itself when there are none; the runner stops it else.
async fn keep(runner: Weak<ContainerRunner>) {
    while let Some(next) = runner.upgrade().and_then(|runner| runner.end_idle()) {
        tokio::time::sleep_until(next).await;
    }
}

fn needs(tool: &Tool) -> Needs {
    tool.needs
        .as_ref()
        .map_or_else(Needs::default, |needs| Needs::clone(needs))
}

/// A running container that was looked at. Dropping it has it removed.
#[derive(Debug)]
struct Ready {
    host: Arc<Containers>,
    client: Arc<Client>,
    /// Until it is on its way out.
    name: String,
    /// From its start until it is on its way out.
    talk: Option<Talk>,
    /// It was seen running.
    was_seen: bool,
    seen: Arc<Seen>,
    generation: u64,
    idle_since: Instant,
}

#[derive(Debug)]
enum Talk {
    /// With the entry as JSON.
    Worker(Box<Worker>, String),
    OneShot(Box<OneShot>, String),
}

impl Ready {
    /// Waits until it runs, and looks at it.
    async fn look(&mut self) -> Result<(), String> {
        let mut unseen = 0;
        loop {
            let words = ["container", "inspect", &self.name];
            let printed = self.client.ask(&words).await;
            let running = printed.ok().and_then(|printed| Inspected::read(&printed));
            let shown = running.map(|inspected| Shown::read(&inspected, &self.seen.asked));
            // The client is there as long as the container is: what was read was its own.
            if let Some(how) = self.ended().await {
                let runtime = self.client.runtime.as_str();
                return Err(format!("{runtime} could not run it: {how}"));
            }
            match shown {
                Some(Ok(shown)) => {
                    let asked = self.seen.asked.clone();
                    self.seen = Arc::new(Seen { asked, shown });
                    self.was_seen = true;
                    return Ok(());
                }
                Some(Err(reason)) if unseen == UNSEEN_MAX => return Err(reason),
                Some(Err(_)) => unseen += 1,
                None => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn ended(&mut self) -> Option<String> {
        match self.talk.as_mut()? {
            Talk::Worker(worker, _) => worker.ended().await,
            Talk::OneShot(shot, _) => shot.ended().await,
        }
    }

    /// Whether it can take a call; if it cannot, what it died of.
    async fn is_fit(&mut self) -> Result<(), Option<String>> {
        match &mut self.talk {
            None => Err(None),
            Some(Talk::OneShot(shot, _)) => match shot.ended().await {
                None => Ok(()),
                Some(how) => Err(Some(how)),
            },
            Some(Talk::Worker(worker, _)) => match worker.find().await {
                Found::Ready => Ok(()),
                Found::Unfit => Err(None),
                Found::Crashed(how) => Err(Some(how)),
            },
        }
    }

    async fn serve(&mut self, job: Job<'_>, deadline: Instant, output_bytes_max: usize) -> Served {
        match &mut self.talk {
            Some(Talk::Worker(worker, entry)) => {
                worker.serve(entry, job, deadline, output_bytes_max).await
            }
            Some(Talk::OneShot(shot, entry)) => {
                shot.serve(entry, job, deadline, output_bytes_max).await
            }
            None => Served::Spent(Err(Fault::Internal {
                message: "a container on its way out was asked".to_owned(),
            })),
        }
    }

    fn calls(&self) -> u64 {
        match &self.talk {
            Some(Talk::Worker(worker, _)) => worker.calls,
            _ => u64::MAX,
        }
    }

    /// Removes it, and waits until it is gone, but not for ever.
    async fn removed(&mut self) {
        let (done, gone) = signal::channel();
        self.bury(Some(done));
        let _ = tokio::time::timeout(KILL_GRACE, gone).await;
    }

    fn bury(&mut self, done: Option<signal::Sender<()>>) {
        let name = std::mem::take(&mut self.name);
        if name.is_empty() {
            return;
        }
        let talk = self.talk.take();
        self.host.bury(Removal {
            client: Arc::clone(&self.client),
            name,
            was_seen: self.was_seen,
            cgroups: self.seen.shown.cgroups.clone(),
            belongings: talk.map(|talk| Box::new(talk) as Box<dyn Send>),
            done,
        });
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        self.bury(None);
    }
}
