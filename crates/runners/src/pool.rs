//! Long-lived workers, one JSON line each way on a private descriptor.
//!
//! ```text
//! {"call":"…","tool":"greet","entry":"tools.sample:greet","input":{…}[,"slots":{…}][,"answers":{…}]}
//! {"call":"…","progress":{"progress":1[,"total":3,"message":"…"]}}
//! {"call":"…","log":{"level":"info","data":…[,"logger":"…"]}}
//! {"call":"…","output":…[,"slots":{…},"removed_slots":[…]]}
//! {"call":"…","error":{"type":"…","message":"…"}}
//! {"call":"…","ask":{"branch":{"message":"Which branch?","schema":{…}}}}
//! {"call":"…","exit":3}
//! ```
//!
//! Reports may come before the answer, any number of them. What keeps one call from the next
//! is the pool's isolation: nothing (`worker`), a fork of its own for each call, of whose end
//! the worker tells (`call`), or a worker for each call (`cold`). A worker is confined from
//! its birth, so that calls with other needs never share one. A call costs no task and no copy
//! beside the one line each way.

mod ask;
pub(crate) mod health;
mod plan;
mod report;
pub(crate) mod turns;
mod verdict;
pub(crate) mod worker;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_call::{Fault, Guarantee, Isolation, Job, Load, Output, RunFuture, Runner};
use callgate_sandbox::{Limits, Spawner, Spec, child_program};
use callgate_text::encode_hex;
use tokio::sync::OnceCell;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::interpreter::{Interpreter, Resolved};
use crate::process::{born, confine, within};
use health::{Health, Rules, Start};
pub use plan::PoolPlan;
use turns::Turns;
use worker::{Fitness, Found, Served, Worker};

/// Tells a worker to fork for each call.
const ISOLATION_VARIABLE: &str = "CALLGATE_ISOLATION";

/// Where a zygote finds the program that it confines its children with.
const FILTER_VARIABLE: &str = "CALLGATE_FILTER";

/// What a pool's workers are and how they are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolSettings {
    /// The worker's program and arguments; see `callgate_sandbox::Spec::argv`.
    pub command: Vec<OsString>,
    /// Its environment; `CALLGATE_FD` is added.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secrets: BTreeMap<String, String>,
    /// Its working folder, absolute: the workspace.
    pub cwd: PathBuf,
    /// What each of its processes may take.
    pub limits: Limits,
    /// What keeps one call from the next, where a call's plan does not say.
    pub isolation: Isolation,
    /// Workers at the same time; one call each.
    pub workers_max: usize,
    /// Calls waiting for a worker; beyond, `Unavailable`.
    pub queue_max: usize,
    /// How long the first start after a crash waits; doubles with each further crash.
    pub backoff_min: Duration,
    /// The longest such wait.
    pub backoff_max: Duration,
    /// So many crashes within `crash_window` stop the pool for another `crash_window`.
    pub crashes_max: usize,
    /// See `crashes_max`.
    pub crash_window: Duration,
    /// A worker without calls is ended after this.
    pub idle_max: Duration,
    /// A worker is replaced after so many calls.
    pub calls_max: u64,
    /// The largest output; beyond, the call is `TooLarge`.
    pub output_bytes_max: usize,
}

impl PoolSettings {
    /// The defaults for one worker program.
    #[must_use]
    pub fn new(command: Vec<OsString>, env: Vec<(OsString, OsString)>, cwd: PathBuf) -> Self {
        Self {
            command,
            env,
            secrets: BTreeMap::new(),
            cwd,
            limits: Limits::default(),
            isolation: Isolation::Worker,
            workers_max: 4,
            queue_max: 64,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            crashes_max: 5,
            crash_window: Duration::from_secs(60),
            idle_max: Duration::from_secs(5 * 60),
            calls_max: 1_000,
            output_bytes_max: 1024 * 1024,
        }
    }
}

/// Workers of one kind, shared by all tools that name the same program and environment.
///
/// Lock order: a turn, then `state`. `state` is never held across an await, and no worker is dropped
/// under it: to drop one takes the locks of the spawner's idle nannies.
#[derive(Debug)]
pub struct Pool {
    spawner: Arc<Spawner>,
    settings: PoolSettings,
    /// Where the command is found out with the first worker.
    interpreter: Option<Interpreter>,
    resolved: OnceCell<Resolved>,
    /// One for each worker that may be at work.
    turns: Turns,
    state: Mutex<State>,
    own: Weak<Self>,
}

#[derive(Debug)]
struct State {
    /// The one used last is used next.
    idle: Vec<Worker>,
    health: Health,
    /// Workers of an earlier one are not used again.
    generation: u64,
    /// Ends idle workers while there are any.
    keeper: Option<AbortHandle>,
}

impl Pool {
    /// A pool without workers; they start with the first calls.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, settings: PoolSettings) -> Arc<Self> {
        Self::with_interpreter(spawner, settings, None)
    }

    fn with_interpreter(
        spawner: Arc<Spawner>,
        settings: PoolSettings,
        interpreter: Option<Interpreter>,
    ) -> Arc<Self> {
        let rules = Rules {
            backoff_min: settings.backoff_min,
            backoff_max: settings.backoff_max,
            crashes_max: settings.crashes_max,
            crash_window: settings.crash_window,
            pause: settings.crash_window,
            half_open: false,
            what: "worker",
        };
        let state = State {
            idle: Vec::new(),
            health: Health::new(rules),
            generation: 0,
            keeper: None,
        };
        Arc::new_cyclic(|own| Self {
            spawner,
            turns: Turns::new(settings.workers_max, settings.queue_max, "worker"),
            settings,
            interpreter,
            resolved: OnceCell::new(),
            state: Mutex::new(state),
            own: own.clone(),
        })
    }

    /// Ends idle workers at once and busy ones after their call, and forgets past crashes.
    /// Later calls start new workers.
    pub fn stop(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.health.forget();
        let ended = std::mem::take(&mut state.idle);
        if let Some(keeper) = state.keeper.take() {
            keeper.abort();
        }
        drop(state);
        drop(ended);
    }

    /// What its workers are doing.
    fn load(&self) -> Load {
        Load {
            pool: std::ptr::from_ref(self).addr(),
            busy: self.turns.taken(),
            idle: self.state().idle.len(),
            queued: self.turns.waiting(),
        }
    }

    async fn call(&self, entry: &str, job: Job<'_>) -> Result<Output, Fault> {
        let deadline = Instant::now() + job.timeout.until();
        let fitness = self.fitness(job);
        let turn = self.turns.take(job, deadline).await?;
        let mut worker = self.worker(&fitness, job, deadline).await?;
        self.tell_facts(&fitness, job);
        let served = worker
            .serve(entry, job, deadline, self.settings.output_bytes_max)
            .await;
        let result = self.settle(worker, served);
        drop(turn);
        result
    }

    /// What a worker for this call must be.
    fn fitness(&self, job: Job<'_>) -> Fitness {
        let needs = job.plan.confinement.clone();
        let isolation = needs
            .as_deref()
            .map_or(self.settings.isolation, |needs| needs.isolation);
        let forks = self.interpreter.as_ref().is_some_and(|one| one.forks);
        let isolation = match isolation {
            Isolation::Call if !forks => Isolation::Cold,
            isolation => isolation,
        };
        Fitness { isolation, needs }
    }

    fn tell_facts(&self, fitness: &Fitness, job: Job<'_>) {
        job.sink.fact("isolation", fitness.isolation.as_str());
        for (name, value) in self.resolved.get().into_iter().flat_map(|one| &one.facts) {
            job.sink.fact(name, value);
        }
    }

    /// An idle worker that is fit, or a new one.
    async fn worker(
        &self,
        fitness: &Fitness,
        job: Job<'_>,
        deadline: Instant,
    ) -> Result<Worker, Fault> {
        while let Some(mut worker) = self.take_idle(fitness) {
            match worker.find().await {
                Found::Ready => return Ok(worker),
                Found::Unfit => {}
                Found::Crashed(reason) => self.state().health.crashed(Instant::now(), reason),
            }
        }
        self.wait_for_start(job, deadline).await?;
        drop(self.surplus());
        let generation = self.state().generation;
        let birth = async {
            let spec = self.spec(fitness).await?;
            Worker::start(&self.spawner, spec, fitness.clone(), (job, generation)).await
        };
        born(job, deadline, birth, Worker::child).await?
    }

    fn take_idle(&self, fitness: &Fitness) -> Option<Worker> {
        let idle = &mut self.state().idle;
        let at = idle.iter().rposition(|one| one.fitness == *fitness)?;
        Some(idle.remove(at))
    }

    /// The idle workers, unfit for this call, that must make room for one that is: all there
    /// are count against the bound.
    fn surplus(&self) -> Vec<Worker> {
        let free = self.turns.free();
        let idle = &mut self.state().idle;
        let surplus = idle.len().saturating_sub(free);
        idle.drain(..surplus).collect()
    }

    /// Waits as long as earlier crashes ask for, if the call has that long.
    async fn wait_for_start(&self, job: Job<'_>, deadline: Instant) -> Result<(), Fault> {
        loop {
            let now = Instant::now();
            let start = self.state().health.may_start(now);
            let (until, reason) = match start {
                Start::Now => return Ok(()),
                Start::At(at) if at <= deadline => {
                    within(job, deadline, tokio::time::sleep_until(at)).await?;
                    continue;
                }
                Start::At(at) => (at, "its worker crashed and is not restarted yet".to_owned()),
                Start::Stopped { until, reason } => (until, reason),
            };
            let wait_ms = (until - now).as_millis();
            return Err(Fault::Unavailable {
                reason: format!("{reason}; try again in {wait_ms} ms"),
            });
        }
    }

    async fn spec(&self, fitness: &Fitness) -> Result<Spec, Fault> {
        let PoolSettings {
            command,
            env,
            secrets,
            cwd,
            limits,
            ..
        } = &self.settings;
        let command = match &self.interpreter {
            None => command.clone(),
            Some(interpreter) => {
                let resolve = || interpreter.resolve(&self.spawner);
                self.resolved
                    .get_or_try_init(resolve)
                    .await?
                    .command
                    .clone()
            }
        };
        let mut spec = Spec::new(command, cwd.clone());
        confine(&mut spec, fitness.needs.as_ref(), env, secrets);
        if fitness.isolation == Isolation::Call {
            spec.zygote = true;
            let isolation = fitness.isolation.as_str();
            spec.env.push((ISOLATION_VARIABLE.into(), isolation.into()));
            // Its own forks are what the zygote is for; theirs are not.
            if fitness.forbids(Guarantee::NoSubprocess) {
                let program = encode_hex(&child_program());
                spec.env.push((FILTER_VARIABLE.into(), program.into()));
            }
        }
        spec.limits = limits.clone();
        Ok(spec)
    }

    /// Keeps the worker or lets it go, and keeps the books.
    fn settle(&self, mut worker: Worker, served: Served) -> Result<Output, Fault> {
        let now = Instant::now();
        let mut state = self.state();
        match served {
            Served::Answered(result) => {
                state.health.answered();
                let fit = worker.generation == state.generation
                    && worker.calls < self.settings.calls_max
                    && worker.fitness.isolation != Isolation::Cold;
                if fit {
                    worker.idle_since = now;
                    state.idle.push(worker);
                    self.keep(&mut state);
                }
                result
            }
            Served::Spent(result) => result,
            Served::Crashed(fault) => {
                state.health.crashed(now, worker.reason(&fault.to_string()));
                Err(fault)
            }
        }
    }

    /// Sees to it that somebody ends workers that stay idle.
    fn keep(&self, state: &mut State) {
        if state.keeper.is_none() {
            state.keeper = Some(tokio::spawn(keep(self.own.clone())).abort_handle());
        }
    }

    /// Ends workers that have been idle for too long. When the next one will have been, if
    /// there is one.
    fn end_idle(&self) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.state();
        let idle_max = self.settings.idle_max;
        // Oldest first, because the newest is always taken and put back at the end.
        let expired = state
            .idle
            .iter()
            .take_while(|worker| now - worker.idle_since >= idle_max);
        let expired = expired.count();
        let ended: Vec<Worker> = state.idle.drain(..expired).collect();
        let next = state
            .idle
            .first()
            .map(|worker| worker.idle_since + idle_max);
        if next.is_none() {
            state.keeper = None;
        }
        drop(state);
        drop(ended);
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends idle workers in time. Ends itself when there are none; the pool stops it else.
async fn keep(pool: Weak<Pool>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.end_idle()) {
        tokio::time::sleep_until(next).await;
    }
}

/// One tool served by a pool.
#[derive(Debug)]
pub struct PoolRunner {
    pool: Arc<Pool>,
    /// As JSON.
    entry: String,
    kind: &'static str,
}

impl PoolRunner {
    /// `entry` names the tool's code to the worker; `kind` is what `callgate tools` says.
    #[must_use]
    pub fn new(pool: Arc<Pool>, entry: Option<String>, kind: &'static str) -> Self {
        Self {
            pool,
            entry: serde_json::Value::from(entry).to_string(),
            kind,
        }
    }
}

impl Runner for PoolRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.pool.call(&self.entry, job))
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn load(&self) -> Option<Load> {
        Some(self.pool.load())
    }

    fn stop(&self) {
        self.pool.stop();
    }
}
