//! Streamed runs: an executor is started, sends frames on its stdout and is held to the stream
//! contract to its end. What it sends is kept by whoever keeps runs (`call::Runs`).
//!
//! The stream has a thread of its own (`ingest.rs`): it hands each piece to the store and reads
//! on when that is done, so that a slow store stalls the script and no queue grows. This file is
//! the executor's life; how it ended is `report.rs`.

mod acks;
mod ingest;
mod keep;
mod leash;
mod news;
mod report;
mod stderr;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Clock, ConfinementHint, Fault, Job, KeepError, Log, Output, Partition, Patience, RunFuture,
    RunLog, RunOrder, RunProxy, RunStart, RunVerdict, RunWatch, Runner, Runs, Secrets, Topics,
};
use callgate_sandbox::{Child, Ending, Exit, Limits, Spawner, Spec};
use callgate_wires::mcp::resource_links;
use callgate_wires::stream::{
    ARTIFACT_BYTES_MAX, BadRequest, ProxyEndpoint, ProxyProtocol, REQUEST_BYTES_MAX, Rules,
    RunRequest, Session, Storage,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::egress::Outlet;
use crate::hints;
use crate::process::{KILL_GRACE, born, confine, stop};
use acks::Acks;
use ingest::{Ingested, apart, ingest};
use keep::Keeper;
use news::News;
use report::{End, Ended, conclude};
use stderr::Stderr;
use watch::Beside;

/// How long an executor that is told to end may take to do so, before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How long an executor that has closed its stream may take to be gone, before it is killed for
/// what it sent: one that dies closes its pipes first.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// How long the store may take for what is left in the pipe once the executor is gone.
const KEEP_GRACE: Duration = Duration::from_secs(30);
/// What the executor's pipe is asked to hold: fewer turns for the same bytes.
const PIPE_BYTES: usize = 1024 * 1024;
/// Words of the run that its caller has not taken yet; further ones are kept and not told.
const LOGS_MAX: usize = 256;

const SIGTERM: u8 = 15;

/// What runs are made with.
#[derive(Clone)]
pub struct ExecutorParts {
    /// Makes executors.
    pub spawner: Arc<Spawner>,
    /// Keeps what they send.
    pub runs: Arc<dyn Runs>,
    /// Where it is told that a run begins and ends.
    pub topics: Topics,
    /// What must never be kept.
    pub secrets: Secrets,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Who looks on, if anybody does.
    pub watch: Option<Arc<dyn RunWatch>>,
}

/// Starts runs.
#[derive(Clone)]
pub struct Executors {
    parts: ExecutorParts,
}

/// What an executor tool is.
#[derive(Clone, Debug)]
pub struct ExecutorSettings {
    /// The executor, its arguments, and its script where it has one.
    pub command: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secrets: BTreeMap<String, String>,
    /// Its working folder, absolute: the workspace.
    pub cwd: PathBuf,
    /// What each of its processes may take.
    pub limits: Limits,
    /// All but the job, which is the call's input.
    pub order: RunOrder,
}

/// Runs one executor per call. The call's input is its job.
pub struct ExecutorRunner {
    executors: Executors,
    settings: ExecutorSettings,
}

impl ExecutorRunner {
    /// A runner for one tool.
    #[must_use]
    pub fn new(executors: Executors, settings: ExecutorSettings) -> Self {
        Self {
            executors,
            settings,
        }
    }

    async fn call(&self, job: Job<'_>) -> Result<Output, Fault> {
        let settings = &self.settings;
        let mut spec = Spec::new(settings.command.clone(), settings.cwd.clone());
        let needs = job.plan.confinement.as_ref();
        confine(&mut spec, needs, &settings.env, &settings.secrets);
        spec.limits = settings.limits.clone();
        let order = RunOrder {
            job: job.call.input.value().clone(),
            ..settings.order.clone()
        };
        self.executors.run(job, spec, order).await
    }
}

impl Runner for ExecutorRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.call(job))
    }

    fn kind(&self) -> &'static str {
        "executor"
    }
}

impl Executors {
    /// Runs are made with `parts`.
    #[must_use]
    pub fn new(parts: ExecutorParts) -> Self {
        Self { parts }
    }

    /// One run from its begin to its report. `spec` is the executor without its streams. A run
    /// that is no success is a fault with the report in it.
    pub async fn run(
        &self,
        job: Job<'_>,
        spec: Spec,
        mut order: RunOrder,
    ) -> Result<Output, Fault> {
        let began_us = self.parts.clock.micros();
        let patience = order.timeout.map(|timeout| {
            let max = job.call.timeout_max.unwrap_or(Duration::MAX);
            Patience::fixed(timeout.min(max))
        });
        let job = Job {
            timeout: patience.as_ref().unwrap_or(job.timeout),
            ..job
        };
        let password = order
            .proxy
            .as_ref()
            .and_then(|proxy| proxy.password.clone());
        let secrets = self.parts.secrets.with(password).in_urls();
        mask_names(&mut order, &secrets);
        let run = Run {
            job,
            deadline: Instant::now() + job.timeout.until(),
            start: self.start(job, &order),
            secrets,
            order,
        };
        let request = run.request()?;
        let (runs, start) = (Arc::clone(&self.parts.runs), run.start.clone());
        let begun = blocking(move || runs.begin(&start)).await?;
        let log = begun.map_err(not_begun)?;
        let news = run.news(&self.parts.topics);
        news.started();
        let (life, ingested) = self.live(&run, spec, (log, request), &news).await;
        let took_us = self.parts.clock.micros().saturating_sub(began_us);
        let stopped = life.stopped.clone();
        let end = run.end(life, took_us / 1000);
        let ended = blocking(move || match ingested {
            Some(ingested) => conclude(*ingested, &end),
            None => report::store_is_gone(&end),
        })
        .await?;
        news.ended(ended.verdict.as_str());
        told(ended, stopped)
    }

    fn start(&self, job: Job<'_>, order: &RunOrder) -> RunStart {
        let mut day = self.parts.clock.now().rfc3339();
        day.truncate("2026-11-15".len());
        RunStart {
            run_id: order
                .run_id
                .clone()
                .unwrap_or_else(|| job.call.id.to_string()),
            call: job.call.id,
            attempt: order.attempt,
            job_id: order.job_id.clone(),
            parent_run_id: order.parent_run_id.clone(),
            partition: Partition {
                dataset: order.dataset.clone(),
                source: order.source.clone(),
                category: order.category.clone(),
                day,
            },
            policy: order.policy.clone(),
        }
    }

    /// The executor's life. What came of its stream, unless the store did not come back.
    async fn live(
        &self,
        run: &Run<'_>,
        mut spec: Spec,
        (log, request): (Box<dyn RunLog>, Vec<u8>),
        news: &News,
    ) -> (Life, Option<Box<Ingested>>) {
        let session = Session::new(run.rules());
        let (streams, stdin) = match Streams::new(run, &mut spec) {
            Ok(made) => made,
            Err(error) => {
                let keeper = Keeper::new(session, log, Acks::closed(), &run.secrets);
                return Life::not_started(format!("make pipes: {error}"), keeper);
            }
        };
        let acks = Acks::new(stdin, request);
        let mut keeper = Keeper::new(session, log, acks, &run.secrets);
        keeper.news = news.clone();
        keeper.eye = self
            .parts
            .watch
            .as_ref()
            .map(|watch| watch.begins(&run.start));
        let birth = self.parts.spawner.spawn(spec);
        let spawned = born(run.job, run.deadline, birth, |child| child).await;
        let mut child = match spawned {
            Ok(Ok(child)) => child,
            Ok(Err(error)) => {
                let why = hints::not_started(run.job, &error).to_string();
                return Life::not_started(why, keeper);
            }
            Err(fault) => return Life::stopped(fault, keeper),
        };
        match Outlet::of(&mut child, run.job.plan.confinement.as_deref()) {
            Ok(None) => {
                let mut lived = attend(run, &mut child, streams, keeper).await;
                explain(run, &child, &mut lived, None);
                lived
            }
            Ok(Some(mut outlet)) => {
                if let Err(fault) = outlet.begin(true).await {
                    return Life::not_started(fault.to_string(), keeper);
                }
                let mut lived = attend(run, &mut child, streams, keeper).await;
                let host = outlet.tell(true, run.job.sink).await;
                explain(run, &child, &mut lived, host);
                lived
            }
            Err(fault) => Life::not_started(fault.to_string(), keeper),
        }
    }
}

/// Reports why confinement made a run fail, where it did: to the call, and for the run's report.
fn explain(
    run: &Run<'_>,
    child: &Child,
    (life, ingested): &mut (Life, Option<Box<Ingested>>),
    host: Option<String>,
) {
    let terminal = ingested
        .as_ref()
        .and_then(|one| one.keeper.terminal.as_ref());
    let raised = terminal.map_or("", |terminal| &terminal.message);
    let is_clean = life.exit.is_some_and(|exit| exit.ending == Ending::Code(0));
    let hint = match hints::of_host(run.job, host) {
        Some(hint) => Some(hint),
        None if life.stopped.is_some() || is_clean && raised.is_empty() => None,
        None => {
            let printed = format!("{}\n{raised}", life.stderr);
            let reach = child.reach();
            reach.and_then(|reach| reach.explain(run.job.tool, &printed))
        }
    };
    if let Some(hint) = &hint {
        run.job.sink.hint(hint);
    }
    life.hint = hint;
}

/// Masks secrets in what a run is called: names of folders, of records and of the report. S-18.
fn mask_names(order: &mut RunOrder, secrets: &Secrets) {
    let RunOrder {
        run_id,
        job_id,
        parent_run_id,
        dataset,
        source,
        category,
        ..
    } = order;
    let names = [dataset, source, category].into_iter();
    for name in names.chain(run_id).chain(job_id).chain(parent_run_id) {
        if let Some(masked) = secrets.cleaned(name) {
            *name = masked;
        }
    }
}

/// One run as it was asked for.
struct Run<'a> {
    job: Job<'a>,
    order: RunOrder,
    start: RunStart,
    deadline: Instant,
    /// The workspace's, and the run's own.
    secrets: Secrets,
}

impl Run<'_> {
    fn news(&self, topics: &Topics) -> News {
        let RunStart {
            run_id,
            job_id,
            attempt,
            ..
        } = &self.start;
        News::new(topics, run_id, job_id.as_deref(), *attempt)
    }

    fn rules(&self) -> Rules {
        Rules {
            run_id: self.start.run_id.clone(),
            attempt: u64::from(self.order.attempt),
            versions: self.order.contract_versions.clone(),
            artifact_bytes_max: self.order.artifact_bytes_max.unwrap_or(ARTIFACT_BYTES_MAX),
        }
    }

    /// The line on stdin.
    fn request(&self) -> Result<Vec<u8>, Fault> {
        let RunStart {
            run_id, partition, ..
        } = &self.start;
        let proxy = self.order.proxy.as_ref().map(endpoint).transpose()?;
        let request = RunRequest {
            run_id: run_id.clone(),
            attempt: self.order.attempt,
            job_id: self.order.job_id.clone(),
            parent_run_id: self.order.parent_run_id.clone(),
            job: self.order.job.clone(),
            proxy,
            browser_ws_endpoint: self.order.browser_ws_endpoint.clone(),
            storage: Some(Storage {
                dataset: partition.dataset.clone(),
                source: partition.source.clone(),
                category: partition.category.clone(),
                day: partition.day.clone(),
                run_id: run_id.clone(),
            }),
        };
        if let Err(BadRequest::Field { field, problem }) = request.check_parent() {
            return Err(bad(field, problem));
        }
        let mut line = Vec::new();
        request.write_line(&mut line);
        if line.len() > REQUEST_BYTES_MAX {
            return Err(Fault::too_large("job", REQUEST_BYTES_MAX as u64));
        }
        Ok(line)
    }

    fn end(self, life: Life, duration_ms: u64) -> End {
        End {
            run_id: self.start.run_id,
            order: self.order,
            exit: life.exit,
            killed: life.killed,
            stopped: life.stopped.as_ref().map(in_words),
            not_started: life.not_started,
            stderr: life.stderr,
            hint: life.hint,
            duration_ms,
        }
    }
}

/// ST-20 to ST-24.
fn endpoint(proxy: &RunProxy) -> Result<ProxyEndpoint, Fault> {
    let protocol = ProxyProtocol::parse(&proxy.protocol);
    let protocol = protocol.ok_or_else(|| bad("proxy.protocol", "is not http, https or socks5"))?;
    if proxy.host.is_empty() || proxy.port == 0 {
        return Err(bad("proxy", "needs a host and a port"));
    }
    let login = match (&proxy.username, &proxy.password) {
        (None, None) => None,
        (Some(username), Some(password)) => Some((username.clone(), password.clone())),
        _ => {
            return Err(bad(
                "proxy",
                "needs both a username and a password, or neither",
            ));
        }
    };
    Ok(ProxyEndpoint {
        protocol,
        host: proxy.host.clone(),
        port: proxy.port,
        login,
    })
}

fn bad(field: &str, reason: &str) -> Fault {
    let fault = Fault::bad_value(format!("{field}: {reason}"));
    fault.with("field", field).with("reason", reason)
}

/// Why we ended it, for its report.
fn in_words(fault: &Fault) -> String {
    match fault {
        Fault::Timeout { after } => format!("timed out after {} ms", after.as_millis()),
        Fault::Cancelled => "cancelled".to_owned(),
        other => other.to_string(),
    }
}

/// How an executor lived, beside its stream.
#[derive(Default)]
struct Life {
    exit: Option<Exit>,
    killed: bool,
    stopped: Option<Fault>,
    not_started: Option<String>,
    stderr: String,
    /// Why confinement made it fail.
    hint: Option<ConfinementHint>,
}

impl Life {
    fn not_started(why: String, keeper: Keeper) -> (Self, Option<Box<Ingested>>) {
        let life = Self {
            not_started: Some(why),
            ..Self::default()
        };
        (life, Some(Box::new(Ingested::of_nothing(keeper))))
    }

    fn stopped(fault: Fault, keeper: Keeper) -> (Self, Option<Box<Ingested>>) {
        let life = Self {
            stopped: Some(fault),
            ..Self::default()
        };
        (life, Some(Box::new(Ingested::of_nothing(keeper))))
    }
}

/// The near ends of a run's streams, but for stdin.
struct Streams {
    stdout: OwnedFd,
    stderr: Stderr,
}

impl Streams {
    /// Gives `spec` the far ends. The second is the near end of stdin.
    fn new(run: &Run<'_>, spec: &mut Spec) -> io::Result<(Self, OwnedFd)> {
        let (stdin_far, stdin) = io::pipe()?;
        let (stdout, stdout_far) = io::pipe()?;
        let (stderr, stderr_far) = Stderr::new(&run.secrets)?;
        let (stdin, stdout) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
        rustix::io::ioctl_fionbio(&stdin, true)?;
        rustix::io::ioctl_fionbio(&stdout, true)?;
        // Refused where the user's pipes are full; then it is as usual.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        spec.stdin = OwnedFd::from(stdin_far).into();
        spec.stdout = OwnedFd::from(stdout_far).into();
        spec.stderr = stderr_far.into();
        Ok((Self { stdout, stderr }, stdin))
    }
}

/// Stays with the executor until nothing is left of it, and with its stream until that is kept.
async fn attend(
    run: &Run<'_>,
    child: &mut Child,
    streams: Streams,
    mut keeper: Keeper,
) -> (Life, Option<Box<Ingested>>) {
    let Streams { stdout, mut stderr } = streams;
    let (mut leash, collar) = match leash::pair() {
        Ok(pair) => pair,
        Err(error) => return Life::not_started(format!("make pipes: {error}"), keeper),
    };
    let (logs, mut heard) = mpsc::channel::<Log>(LOGS_MAX);
    keeper.logs = run.job.call.sink.is_some().then_some(logs);
    keeper.strides = Arc::clone(&leash.strides);
    let thread = std::thread::Builder::new().name("callgate-run".to_owned());
    // It ends by its leash, and by the end of the stream.
    let reader = apart(thread, keeper, move |keeper| {
        ingest(&stdout, &collar, keeper)
    });
    let mut reading = match reader {
        Ok(reading) => reading,
        Err((error, keeper)) => {
            return Life::not_started(format!("start a thread: {error}"), keeper);
        }
    };
    let mut life = Life::default();
    let mut beside = Beside::new(&mut stderr, &mut heard, &leash, run.job.sink);
    let ingested = oversee(run, child, &mut reading, &mut beside, &mut life).await;
    // Those of its tree are gone; one that escaped and holds the pipe is not waited for. S-13.
    leash.drain();
    let ingested = match ingested {
        Some(ingested) => Some(ingested),
        None => {
            let rest = beside.during(tokio::time::timeout(KEEP_GRACE, reading));
            rest.await.ok().and_then(Result::ok)
        }
    };
    drop(beside);
    // Its last words may have come after its end.
    while let Ok(log) = heard.try_recv() {
        run.job.sink.log(&log);
    }
    life.stderr = stderr.finish(run.job.sink);
    (life, ingested)
}

/// What happens next to a run.
enum Next {
    Left(Exit),
    Read(Option<Box<Ingested>>),
    Stop(Fault),
}

/// Until the executor is gone. What came of its stream, if that came to an end before.
async fn oversee(
    run: &Run<'_>,
    child: &mut Child,
    reading: &mut oneshot::Receiver<Box<Ingested>>,
    beside: &mut Beside<'_>,
    life: &mut Life,
) -> Option<Box<Ingested>> {
    let mut ingested = None;
    let mut is_read = false;
    let mut stop = std::pin::pin!(stop(run.job, run.deadline));
    loop {
        let next = beside
            .during(async {
                // Each arm may be dropped at any point: `child`, `reading` and `stop` outlive it.
                // Biased: an exit outranks the end of the stream, and both outrank a stop.
                tokio::select! {
                    biased;
                    exit = child.wait() => Next::Left(exit),
                    read = &mut *reading, if !is_read => Next::Read(read.ok()),
                    fault = &mut stop => Next::Stop(fault),
                }
            })
            .await;
        match next {
            Next::Left(exit) => life.exit = Some(exit),
            Next::Read(read) => {
                is_read = true;
                let sound = read.as_ref().is_some_and(|read| read.halt.is_none());
                let is_over = read.as_ref().is_some_and(|read| read.is_over);
                ingested = read;
                if sound {
                    continue; // It has closed its stdout, and may have more to do.
                }
                if is_over {
                    let left = beside.during(tokio::time::timeout(EXIT_GRACE, child.wait()));
                    life.exit = left.await.ok();
                }
                if life.exit.is_none() {
                    life.killed = true;
                    life.exit = kill(child, beside).await;
                }
            }
            Next::Stop(fault) => {
                life.stopped = Some(fault);
                child.signal(SIGTERM);
                let left = beside.during(tokio::time::timeout(TERM_GRACE, child.wait()));
                life.exit = left.await.ok();
                if life.exit.is_none() {
                    life.exit = kill(child, beside).await;
                }
            }
        }
        return ingested;
    }
}

/// Ends the executor's tree and waits until it is gone.
async fn kill(child: &mut Child, beside: &mut Beside<'_>) -> Option<Exit> {
    child.kill();
    let gone = beside.during(tokio::time::timeout(KILL_GRACE, child.wait()));
    gone.await.ok()
}

/// The end of a call that was a run.
fn told(ended: Ended, stopped: Option<Fault>) -> Result<Output, Fault> {
    let Ended {
        verdict,
        message,
        report,
    } = ended;
    if let Some(fault) = stopped {
        return Err(fault);
    }
    if verdict == RunVerdict::Success {
        return Ok(Output::from_value(report));
    }
    Err(Fault::ToolFailed {
        error_type: verdict.as_str().to_owned(),
        message,
        content: Some(content(&report)),
    })
}

/// The report as content blocks, and a link to each artifact that is there all the same, and to
/// the run.
fn content(report: &Value) -> Value {
    let mut blocks = vec![json!({ "type": "text", "text": report.to_string() })];
    blocks.extend(resource_links(report));
    Value::Array(blocks)
}

/// A run that could not begin. Nothing has run.
fn not_begun(error: KeepError) -> Fault {
    let reason = error.to_string();
    match error {
        KeepError::Exists { .. } => Fault::conflict(reason),
        KeepError::BadName(_) => Fault::bad_value(reason),
        KeepError::BufferFull | KeepError::Quota { .. } | KeepError::Failed(_) => {
            Fault::Unavailable { reason }
        }
    }
}

/// Work that waits for the disk.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::Internal {
        message: format!("a run's store: {error}"),
    })
}
