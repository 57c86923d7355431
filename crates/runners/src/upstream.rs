//! Other people's MCP servers: programs that speak MCP over their standard input and output,
//! started on demand, kept between calls, and called as tools.
//!
//! [`Upstream`] is one configured server with its processes: one for each share key and each set of
//! needs. [`UpstreamRunner`] is one of its tools, [`UpstreamPromptRunner`] one of its prompts. A process is ready only once it was greeted, has
//! listed its tools, and these were compared with the [`Pins`]. Calls are multiplexed over a
//! process by ids of our own; a request that was written is never written again, unless its tool
//! is idempotent.
//!
//! ```text
//! UpstreamRunner ─▶ Upstream ─▶ Link (requests out, inboxes of calls)
//!                      │           ▲
//!                      └─ task: Process (pipes, child) ─▶ Conversation (lines in)
//! ```
//!
//! Not here: where servers are configured, installed and pinned, and what a tool is called.

mod conversation;
mod end;
mod journal;
mod link;
mod listing;
mod outbox;
mod pins;
mod process;
mod rates;
mod settings;
mod shelf;
mod status;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use callgate_call::{
    Fault, Job, Load, Needs, Output, Progress, RunFuture, Runner, Secrets, ServerControl,
    ServerProcess, ServerStatus,
};
use callgate_sandbox::Spawner;
use serde_json::Value;
use tokio::time::Instant;

use crate::pool::health::{Health, Start};
use crate::process::within;
use end::ProcessEnd;
use journal::Journal;
use link::{Attempt, Link, Phase, Request};
use listing::ListKind;
pub use listing::Listing;
use pins::Pinned;
pub use pins::{DefinitionPin, PINNED_MEMBERS, Pins, pinned_digest};
use process::{Process, drive, leave};
use settings::ShareKey;
pub use settings::{HOME_PLACEHOLDER, RestartRules, Share, UpstreamSettings};
pub use shelf::{UpstreamPromptRunner, UpstreamResourceRunner, upstream_address};
pub use status::{ProcessStatus, UpstreamState, UpstreamStatus};

/// How much longer than a start may take a call waits for one: the driver says why it failed.
const START_SLACK: Duration = Duration::from_secs(10);

/// So often a call finds that its process has just been stopped before it is refused.
const STOPPED_MAX: u32 = 8;

/// What all processes of a server have in common.
#[derive(Debug)]
struct Parts {
    spawner: Arc<Spawner>,
    settings: UpstreamSettings,
    /// What nothing it prints may show.
    secrets: Secrets,
    journal: Journal,
    /// Lists that were fetched because a server said that they changed.
    relists: AtomicU64,
}

/// One configured server and its processes. Dropping it ends them.
///
/// Lock order: `state`, then that of a link. Neither is held across an await.
#[derive(Debug)]
pub struct Upstream {
    parts: Arc<Parts>,
    pins: Mutex<Arc<Pins>>,
    state: Mutex<State>,
    own: Weak<Self>,
}

#[derive(Debug)]
struct State {
    slots: Vec<Slot>,
    /// Those that take no more calls.
    leaving: Vec<Slot>,
    health: Health,
    last_exit: Option<String>,
    starts: u64,
    crashes: u64,
    /// Counts uses, so that the slot that was used longest ago is known.
    uses: u64,
}

/// One process, and what calls it is for.
#[derive(Debug)]
struct Slot {
    key: ShareKey,
    needs: Option<Arc<Needs>>,
    link: Arc<Link>,
    used: u64,
    _driver: Driver,
}

/// The task that drives a process. Dropping it stops the process in good order, which the task
/// does by itself: it outlives the server by the time that a stop may take.
#[derive(Debug)]
struct Driver(Arc<Link>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.stop.cancel();
    }
}

/// What came of waiting for a process.
enum Waited {
    Ready,
    /// It ended before it was ready.
    Failed(Arc<ProcessEnd>),
}

impl Upstream {
    /// A server without processes; they start with the first calls.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, settings: UpstreamSettings) -> Arc<Self> {
        let state = State {
            slots: Vec::new(),
            leaving: Vec::new(),
            health: Health::new(settings.restarts.rules()),
            last_exit: None,
            starts: 0,
            crashes: 0,
            uses: 0,
        };
        let parts = Arc::new(Parts {
            spawner,
            secrets: settings.secret_values(),
            journal: Journal::default(),
            relists: AtomicU64::new(0),
            settings,
        });
        Arc::new_cyclic(|own| Self {
            pins: Mutex::new(Arc::clone(&parts.settings.pins)),
            parts,
            state: Mutex::new(state),
            own: own.clone(),
        })
    }

    /// The name of the server in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.settings.name
    }

    /// Compares with other pins from now on. Processes go on.
    pub fn set_pins(&self, pins: Arc<Pins>) {
        *self.pins.lock().unwrap_or_else(PoisonError::into_inner) = pins;
    }

    fn pins(&self) -> Arc<Pins> {
        Arc::clone(&self.pins.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops all processes in good order: those without calls at once, the others after their
    /// calls. Forgets past crashes. Later calls start new processes.
    pub fn stop(&self) {
        let mut state = self.state();
        state.health.forget();
        let slots = std::mem::take(&mut state.slots);
        for slot in &slots {
            slot.link.stop.cancel();
        }
        state.leaving.extend(slots);
    }

    /// The same, and waits until they are gone.
    pub async fn stop_and_wait(&self) {
        self.stop();
        let leaving: Vec<Arc<Link>> = {
            let state = self.state();
            state
                .leaving
                .iter()
                .map(|slot| Arc::clone(&slot.link))
                .collect()
        };
        for link in leaving {
            link.ended().await;
        }
    }

    /// Stops all processes in good order and starts none: the next call does, whatever happened
    /// before.
    pub fn restart(&self) {
        self.stop();
    }

    /// The last lines that its processes printed to their standard error, without secrets.
    #[must_use]
    pub fn log(&self) -> String {
        self.parts.journal.text()
    }

    /// Starts a process of its own, takes all it lists, and stops it again. Nothing is compared
    /// with pins.
    pub async fn list(&self, needs: Option<Arc<Needs>>) -> Result<Listing, Fault> {
        let link = Link::new(1, 1);
        let key = ShareKey::Workspace;
        let unavailable = |end: &ProcessEnd| Fault::Unavailable {
            reason: format!(
                "server `{}` can not be listed: {}",
                self.name(),
                end.words()
            ),
        };
        let started = Process::start(&self.parts, &link, &key, needs.as_ref()).await;
        let mut process = started.map_err(|cause| unavailable(&ProcessEnd::before_birth(cause)))?;
        let limit = self.parts.settings.start_timeout;
        let listing = tokio::time::timeout(limit, listing_of(&mut process)).await;
        let (listing, cause) = match listing {
            Ok(Ok(listing)) => (Some(listing), end::EndCause::Stopped),
            Ok(Err(cause)) => (None, cause),
            Err(_) => (None, end::EndCause::StartTimeout(limit)),
        };
        let (process_end, home) = process.finish(cause).await;
        leave(home).await;
        listing.ok_or_else(|| unavailable(&process_end))
    }

    /// Sends a request of any method to the process that serves the calls of `job`: `prompts/get`,
    /// `resources/read` and their like. Of the pins only the server's instructions are compared.
    /// The tool of `job` says whether a lost request may be sent again.
    pub async fn request(
        &self,
        method: &str,
        params: &Value,
        job: Job<'_>,
    ) -> Result<Value, Fault> {
        let request = Request::Method(method, params, Pinned::Server);
        self.ask(request, job).await
    }

    async fn call(&self, tool: &str, job: Job<'_>) -> Result<Output, Fault> {
        Output::from_content(self.ask(Request::Tool(tool), job).await?)
    }

    async fn ask(&self, request: Request<'_>, job: Job<'_>) -> Result<Value, Fault> {
        let began = Instant::now();
        job.sink.fact("server", self.name());
        job.sink.fact("isolation", "worker");
        let mut may_try_again = true;
        let mut stopped = 0;
        loop {
            let link = self.process(job, began).await?;
            match self.wait_until_ready(&link, job, began).await? {
                Waited::Ready => {}
                Waited::Failed(end) if may_try_again && end.may_be_tried_again() => {
                    may_try_again = false;
                    continue;
                }
                Waited::Failed(end) => return Err(end.start_fault(self.name(), job)),
            }
            // The start is counted apart, unless the caller waits no longer than it said.
            let from = match job.call.timeout_max {
                Some(_) => began,
                None => Instant::now(),
            };
            let deadline = from + job.timeout.timeout;
            let bytes_max = self.parts.settings.output_bytes_max;
            let pins = self.pins();
            let waiting = (job, deadline);
            match link
                .call(self.name(), request, &pins, waiting, bytes_max)
                .await
            {
                Attempt::Done(result) => return result,
                // It was stopped just before: no failure, and no reason to fail.
                Attempt::NotSent if link.is_closing() && stopped < STOPPED_MAX => stopped += 1,
                Attempt::NotSent if may_try_again => {
                    may_try_again = false;
                    within(job, deadline, link.closed()).await?;
                }
                Attempt::Lost(_) if job.tool.idempotent && may_try_again => may_try_again = false,
                Attempt::Lost(end) => return Err(end.lost_fault(self.name(), job)),
                Attempt::NotSent => {
                    return Err(Fault::Unavailable {
                        reason: format!("server `{}` ended before it took the call", self.name()),
                    });
                }
            }
        }
    }

    /// The process for a call: one there is, or a new one once earlier crashes allow it.
    async fn process(&self, job: Job<'_>, began: Instant) -> Result<Arc<Link>, Fault> {
        let deadline = began + job.timeout.until();
        loop {
            let start = {
                let mut state = self.state();
                if let Some(link) = self.find(&mut state, job) {
                    return Ok(link);
                }
                let start = state.health.may_start(Instant::now());
                if start == Start::Now {
                    return self.start(&mut state, job);
                }
                start
            };
            let (until, reason) = match start {
                Start::Now => continue,
                Start::At(at) if at <= deadline => {
                    within(job, deadline, tokio::time::sleep_until(at)).await?;
                    continue;
                }
                Start::At(at) => (at, "it crashed and is not restarted yet".to_owned()),
                Start::Stopped { until, reason } => (until, reason),
            };
            let wait_ms = until.saturating_duration_since(Instant::now()).as_millis();
            return Err(Fault::Unavailable {
                reason: format!(
                    "server `{}`: {reason}; try again in {wait_ms} ms",
                    self.name()
                ),
            });
        }
    }

    fn find(&self, state: &mut State, job: Job<'_>) -> Option<Arc<Link>> {
        let share = self.parts.settings.share;
        let needs = job.plan.confinement.as_ref();
        let is_for = |slot: &&mut Slot| {
            slot.key.is_of(share, job.call)
                && are_same(slot.needs.as_ref(), needs)
                && slot.link.is_open()
        };
        state.uses += 1;
        let slot = state.slots.iter_mut().find(is_for)?;
        slot.used = state.uses;
        Some(Arc::clone(&slot.link))
    }

    fn start(&self, state: &mut State, job: Job<'_>) -> Result<Arc<Link>, Fault> {
        let settings = &self.parts.settings;
        if state.slots.len() >= settings.processes_max {
            self.evict(state)?;
        }
        let link = Link::new(settings.calls_max, settings.queue_max);
        let key = ShareKey::of(settings.share, job.call);
        let needs = job.plan.confinement.clone();
        let (parts, own) = (Arc::clone(&self.parts), self.own.clone());
        let driver = drive(parts, Arc::clone(&link), key.clone(), needs.clone(), own);
        state.starts += 1;
        tokio::spawn(driver);
        let driver_task = Driver(Arc::clone(&link));
        state.slots.push(Slot {
            key,
            needs,
            link: Arc::clone(&link),
            used: state.uses,
            _driver: driver_task,
        });
        Ok(link)
    }

    /// Makes room for one more process: stops the idle one that was used longest ago.
    fn evict(&self, state: &mut State) -> Result<(), Fault> {
        let slots = state.slots.iter().enumerate();
        let idle =
            slots.filter(|(_, slot)| slot.link.is_ready() && slot.link.idle_since().is_some());
        let Some((at, _)) = idle.min_by_key(|(_, slot)| slot.used) else {
            return Err(Fault::Unavailable {
                reason: format!(
                    "server `{}` has {} processes and all are busy",
                    self.name(),
                    state.slots.len()
                ),
            });
        };
        let slot = state.slots.swap_remove(at);
        slot.link.stop.cancel();
        state.leaving.push(slot);
        Ok(())
    }

    async fn wait_until_ready(
        &self,
        link: &Link,
        job: Job<'_>,
        began: Instant,
    ) -> Result<Waited, Fault> {
        if link.is_ready() {
            return Ok(Waited::Ready);
        }
        if let Phase::Starting = link.phase() {
            job.sink.progress(&Progress {
                done: 0.0,
                total: None,
                message: Some(format!("starting server `{}`", self.name())),
            });
        }
        let limit = self.parts.settings.start_timeout + START_SLACK;
        let deadline = match job.call.timeout_max {
            Some(_) => began + job.timeout.timeout,
            None => Instant::now() + limit,
        };
        let started = within(job, deadline, link.started()).await;
        match started {
            Ok(Phase::Ended(end)) => Ok(Waited::Failed(end)),
            Ok(Phase::Ready | Phase::Starting) => Ok(Waited::Ready),
            // Nothing has run: neither the key nor the breaker of the tool may think otherwise.
            Err(Fault::Timeout { .. }) => Err(Fault::Unavailable {
                reason: format!("server `{}` was not ready in time", self.name()),
            }),
            Err(fault) => Err(fault),
        }
    }

    /// A process has ended: it takes no more calls, and the next start may have to wait.
    fn note_end(&self, link: &Arc<Link>, end: &ProcessEnd) {
        let healthy_after = self.parts.settings.restarts.healthy_after;
        let mut state = self.state();
        if let Some(at) = state
            .slots
            .iter()
            .position(|slot| Arc::ptr_eq(&slot.link, link))
        {
            let slot = state.slots.swap_remove(at);
            state.leaving.push(slot);
        }
        let words = end.words();
        if end.ready_for.is_some_and(|ready| ready >= healthy_after) {
            state.health.forget();
        }
        if end.is_crash() {
            state.crashes += 1;
            state.health.crashed(Instant::now(), words.clone());
        }
        state.last_exit = Some(words);
    }

    /// Nothing is left of a process.
    fn forget(&self, link: &Arc<Link>) {
        let mut state = self.state();
        let at = state
            .leaving
            .iter()
            .position(|slot| Arc::ptr_eq(&slot.link, link));
        let slot = at.map(|at| state.leaving.swap_remove(at));
        drop(state);
        drop(slot);
    }

    /// What its processes are doing.
    fn load(&self) -> Load {
        let state = self.state();
        let (mut idle, mut busy, mut queued) = (0, 0, 0);
        for slot in &state.slots {
            busy += slot.link.turns.taken();
            queued += slot.link.turns.waiting();
            idle += usize::from(slot.link.idle_since().is_some());
        }
        Load {
            pool: std::ptr::from_ref(self).addr(),
            busy,
            idle,
            queued,
        }
    }
}

/// Two sets of needs are mostly one value.
fn are_same(one: Option<&Arc<Needs>>, other: Option<&Arc<Needs>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one == other,
        _ => false,
    }
}

async fn listing_of(process: &mut Process) -> Result<Listing, end::EndCause> {
    let greeting = process.greet().await?;
    let tools = process.list(ListKind::Tools, &greeting).await?;
    let prompts = process.list(ListKind::Prompts, &greeting).await?;
    let resources = process.list(ListKind::Resources, &greeting).await?;
    let resource_templates = process.list(ListKind::Templates, &greeting).await?;
    let member = |name: &str| greeting.result.get(name).cloned().unwrap_or_default();
    Ok(Listing {
        instructions: greeting.instructions().map(str::to_owned),
        server_info: member("serverInfo"),
        capabilities: member("capabilities"),
        protocol_version: greeting.protocol_version,
        tools,
        prompts,
        resources,
        resource_templates,
    })
}

/// One tool of a server.
#[derive(Debug)]
pub struct UpstreamRunner {
    upstream: Arc<Upstream>,
    /// Its name at the server.
    tool: String,
}

impl UpstreamRunner {
    /// `tool` is its name at the server.
    #[must_use]
    pub fn new(upstream: Arc<Upstream>, tool: impl Into<String>) -> Self {
        Self {
            upstream,
            tool: tool.into(),
        }
    }

    /// The server.
    #[must_use]
    pub fn upstream(&self) -> &Arc<Upstream> {
        &self.upstream
    }
}

impl Runner for UpstreamRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.upstream.call(&self.tool, job))
    }

    fn kind(&self) -> &'static str {
        "server"
    }

    fn load(&self) -> Option<Load> {
        Some(self.upstream.load())
    }

    fn is_hidden(&self) -> bool {
        self.upstream.refuses(Pinned::Tool(&self.tool))
    }

    fn server(&self) -> Option<&dyn ServerControl> {
        Some(&*self.upstream)
    }
}

impl Upstream {
    /// Returns whether a request for `subject` would be refused because a running process lists
    /// something else than what is pinned.
    fn refuses(&self, subject: Pinned<'_>) -> bool {
        let pins = self.pins();
        let state = self.state();
        let mut ready = state.slots.iter().filter(|slot| slot.link.is_ready());
        ready.any(|slot| pins.refuses(subject, &slot.link.listed()))
    }

    /// What the server is doing.
    #[must_use]
    pub fn status(&self) -> UpstreamStatus {
        let pins = self.pins();
        let now = Instant::now();
        let mut state = self.state();
        let start = state.health.may_start(now);
        let processes: Vec<ProcessStatus> = state
            .slots
            .iter()
            .map(|slot| ProcessStatus::of(&slot.link, &slot.key))
            .collect();
        let ready = state.slots.iter().find(|slot| slot.link.is_ready());
        let refused = ready.map(|slot| pins.refused(&slot.link.listed()));
        let dropped = state
            .slots
            .iter()
            .map(|slot| slot.link.dropped.load(Ordering::Relaxed));
        UpstreamStatus {
            state: UpstreamState::of(&processes, start, now),
            dropped: dropped.sum(),
            processes,
            starts: state.starts,
            crashes: state.crashes,
            last_exit: state.last_exit.clone(),
            refused_tools: refused.unwrap_or_default(),
            relists: self.parts.relists.load(Ordering::Relaxed),
        }
    }
}

impl ServerControl for Upstream {
    fn status(&self) -> ServerStatus {
        let status = Self::status(self);
        let wait = match status.state {
            UpstreamState::Backoff(wait) | UpstreamState::CrashLoop(wait) => Some(wait),
            UpstreamState::Cold | UpstreamState::Starting | UpstreamState::Ready => None,
        };
        let processes = status.processes.into_iter().map(|process| ServerProcess {
            pid: process.pid,
            is_ready: process.is_ready,
            in_flight: process.in_flight,
            caller: process.caller,
            session: process.session,
        });
        ServerStatus {
            name: self.name().to_owned(),
            state: status.state.as_str(),
            wait_ms: wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            processes: processes.collect(),
            starts: status.starts,
            crashes: status.crashes,
            last_exit: status.last_exit,
            refused_tools: status.refused_tools,
            dropped: status.dropped,
        }
    }

    fn log(&self) -> String {
        Self::log(self)
    }

    fn stop(&self) {
        Self::stop(self);
    }
}
