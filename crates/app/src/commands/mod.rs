//! One file per subcommand. Each says what it takes, carries it out and shows the result.

pub mod add;
pub mod approvals;
pub mod artifacts;
pub mod audit;
pub mod bridge;
pub mod bridge_config;
pub mod call;
pub mod describe;
pub mod doctor;
pub mod import;
pub mod index;
pub mod lease;
pub mod machina;
pub mod mcp;
pub mod model;
pub mod pack;
pub mod pilot;
mod pilot_queue;
pub mod plan;
pub mod relayed;
pub mod replay;
pub mod rpc;
pub mod run;
pub mod runs;
pub mod search;
pub mod secrets;
pub mod serve;
pub mod servers;
pub mod term;
pub mod token;
pub mod tool;
pub mod toolhost;
pub mod tools;
pub mod trace;
pub mod trust;
pub mod user_gate;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use callgate_client::Client;
use callgate_exporters::webhook;
use callgate_gate::{Gate, Setup};
use callgate_registry::environment::Environment;
use callgate_registry::paths::Paths;
use callgate_registry::setup::Parts;
use callgate_store::Store;
use callgate_tools::planner::publisher;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::cli::Place;
use crate::compose::{self, NoState, chain};
use crate::error::{ArgumentError, CommandError};
use crate::services::Services;
use crate::show;
use crate::watch::Watched;

/// Opens the workspace a command is about.
pub fn open(environment: &Environment, place: &Place) -> Result<Parts, CommandError> {
    let paths = place.paths(environment)?;
    Ok(compose::open(environment, paths, NoState::Refused)?)
}

/// The setup of a command that runs without the gate. Where the workspace's files are not what is
/// in force, stderr says what is.
pub fn setup(parts: &Parts) -> Result<Setup, CommandError> {
    let setup = parts.setup()?;
    warn_of_doubt(&setup);
    Ok(setup)
}

fn warn_of_doubt(setup: &Setup) {
    if setup.doubt.is_some() {
        show::warn(&setup.note);
    }
}

/// The running gate. The usual one may be absent; one that was named must be there, because
/// doing without it would use another state than was meant.
pub async fn running_gate(place: &Place, paths: &Paths) -> Result<Option<Client>, CommandError> {
    match (Client::connect(&paths.socket).await, &place.socket) {
        (None, Some(named)) => Err(CommandError::NoGate(named.clone())),
        (client, _) => Ok(client),
    }
}

/// Ends the use of a workspace in order: what is pending is written, the head is signed. What was
/// told is in the journal by then, so that a failure here makes nothing of it untrue; whoever
/// comes next signs the head.
pub fn close(parts: &Parts) {
    if let Err(error) = parts.store.close() {
        show::warn(&chain(&error));
    }
}

/// By then a process that stays has started.
const STARTED: Duration = Duration::from_secs(1);

/// Keeps a process that stays small, and its store in order: folds and signs heads now and then.
pub async fn tend(store: &Store) -> Infallible {
    tokio::time::sleep(STARTED).await;
    if let Err(error) = callgate_sandbox::let_go_of_code() {
        tracing::debug!(error = chain(&error), "let go of code");
    }
    let mut tick = tokio::time::interval(Duration::from_secs(5));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tick.tick().await;
        if let Err(error) = store.maintain() {
            tracing::warn!(error = chain(&error), "tend the store");
        }
    }
}

/// Bytes that nobody needs are removed once they are this old. S-17.
const ORPHANS_LIVE: Duration = Duration::from_secs(24 * 60 * 60);

/// Removes bytes of streamed runs that nobody needs, beside all else.
pub async fn collect_orphans(store: &Arc<Store>) {
    let store = Arc::clone(store);
    let collect = move || store.collect_artifacts(ORPHANS_LIVE, false);
    if let Ok(Err(error)) = tokio::task::spawn_blocking(collect).await {
        tracing::warn!(error = chain(&error), "collect orphans");
    }
}

/// The services of every process that serves a workspace by itself: the configuration as it
/// changes, the store, and the ends of runs. `changed` is told of each change of configuration
/// whether trust was taken back.
pub fn services_of(
    parts: &Arc<Parts>,
    gate: &Arc<Gate>,
    watched: Watched,
    changed: impl Fn(bool) + Send + Sync + 'static,
) -> Services {
    let mut services = Services::default();
    let store = Arc::clone(&parts.store);
    services.start("store", async move { tend(&store).await });
    services.start("ends of runs", webhook::follow(parts));
    let configuration = watched.follow(Arc::clone(parts), Arc::clone(gate), changed);
    services.start("configuration", configuration);
    services
}

/// How often what other processes wrote is looked at: a look is one system call.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Tells whoever listens here what becomes of plans from now on, in this process and in others.
pub fn follow_plans(parts: &Parts) -> impl Future<Output = Infallible> + use<> {
    let store = Arc::clone(&parts.store);
    let mut looked = store.follow_plans(publisher(parts.topics.clone()));
    async move {
        let mut tick = tokio::time::interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Err(error) = looked {
                tracing::debug!(error = chain(&error), "look at plans");
            }
            tick.tick().await;
            looked = store.look();
        }
    }
}

/// What tells us to stop: Ctrl-C, SIGTERM or the end of the terminal.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Watches from now on, so that an early one is not missed.
    pub fn watch() -> Result<Self, CommandError> {
        let watch = |kind| signal(kind).map_err(CommandError::system("watch for signals"));
        Ok(Self {
            interrupt: watch(SignalKind::interrupt())?,
            terminate: watch(SignalKind::terminate())?,
            hangup: watch(SignalKind::hangup())?,
        })
    }

    /// Carries out `stop` at the next signal. Never ready: what is stopped ends by itself.
    pub async fn then(&mut self, stop: impl FnOnce()) -> Infallible {
        self.next().await;
        stop();
        std::future::pending().await
    }

    /// Ready with the next one.
    pub async fn next(&mut self) {
        // `recv` is cancel safe: a signal that a dropped arm has not received is received by the
        // next call. All three mean the same.
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Reads `60`, `60s`, `500ms`, `5m`, `1h` or `30d`.
pub fn duration(text: &str) -> Result<Duration, ArgumentError> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| ArgumentError::Duration)?;
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(ArgumentError::Unit(unit.to_owned())),
    };
    Ok(Duration::from_millis(number.saturating_mul(ms)))
}
