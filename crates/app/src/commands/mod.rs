//! One file per subcommand. Each says what it takes, carries it out and shows the result.

pub mod approvals;
pub mod audit;
pub mod call;
pub mod doctor;
pub mod lease;
pub mod mcp;
pub mod serve;
pub mod token;
pub mod toolhost;
pub mod tools;
pub mod trust;

use std::time::Duration;

use callgate_store::Store;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::cli::Place;
use crate::compose::{Parts, chain};
use crate::environment::Environment;

/// Opens the workspace a command is about.
pub fn open<'a>(environment: &'a Environment, place: &Place) -> Result<Parts<'a>, String> {
    let paths = place.paths(environment).map_err(|error| chain(&error))?;
    Parts::open(environment, paths).map_err(|error| chain(&error))
}

/// Ends the use of a workspace in order: what is pending is written, the head is signed.
pub fn close(parts: &Parts<'_>) -> Result<(), String> {
    parts.store.close().map_err(|error| chain(&error))
}

/// Keeps the store in order while a process stays: folds and signs heads now and then.
pub async fn tend(store: &Store) {
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

/// Ready when we are told to stop: by Ctrl-C, by SIGTERM or by the end of the terminal. The
/// signals are watched from the call on, so that an early one is not missed.
pub fn told_to_stop() -> Result<impl Future<Output = ()>, String> {
    let watch = |kind| signal(kind).map_err(|error| format!("watch for signals: {error}"));
    let (mut interrupt, mut terminate, mut hangup) = (
        watch(SignalKind::interrupt())?,
        watch(SignalKind::terminate())?,
        watch(SignalKind::hangup())?,
    );
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// Reads `60`, `60s`, `500ms`, `5m`, `1h` or `30d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| "a duration is a number with ms, s, m, h or d".to_owned())?;
    let ms = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("unknown unit `{unit}`: use ms, s, m, h or d")),
    };
    Ok(Duration::from_millis(number.saturating_mul(ms)))
}
