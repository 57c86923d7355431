//! What goes on beside a run for as long as somebody waits for it: its stderr is read, and its
//! caller hears how far it has come.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use callgate_call::{Log, Progress, Sink};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::leash::{Leash, Strides};
use super::stderr::Stderr;

/// How often a caller hears how far a run has come, if it has.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// Everything that goes on beside. Nothing of it is lost while it is not polled.
pub(super) struct Beside<'a> {
    all: Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

impl<'a> Beside<'a> {
    pub fn new(
        stderr: &'a mut Stderr,
        logs: &'a mut mpsc::Receiver<Log>,
        leash: &Leash,
        sink: &'a dyn Sink,
    ) -> Self {
        let strides = Arc::clone(&leash.strides);
        let all = Box::pin(async move {
            tokio::join!(stderr.pump(sink), pass(logs, sink), report(&strides, sink));
        });
        Self { all }
    }

    /// What comes of `work`, with all this beside it.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        // `all` is kept in `self` and goes on with the next `during`. Biased so that finished work
        // is returned before anything else is read.
        tokio::select! {
            biased;
            done = work => done,
            () = &mut self.all => unreachable!("it never ends"),
        }
    }
}

/// Passes the run's own words on.
async fn pass(logs: &mut mpsc::Receiver<Log>, sink: &dyn Sink) {
    while let Some(log) = logs.recv().await {
        sink.log(&log);
    }
    pending().await
}

/// Says how far the run has come, when it has come further.
async fn report(strides: &Strides, sink: &dyn Sink) {
    let mut ticks = interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = 0;
    loop {
        ticks.tick().await;
        let bytes = strides.bytes.load(Ordering::Relaxed);
        if bytes > told {
            told = bytes;
            sink.progress(&progress(strides, bytes));
        }
    }
}

/// Bytes of the stream grow with whatever the run does.
fn progress(strides: &Strides, bytes: u64) -> Progress {
    let (events, artifacts, artifact_bytes) = (
        strides.events.load(Ordering::Relaxed),
        strides.artifacts.load(Ordering::Relaxed),
        strides.artifact_bytes.load(Ordering::Relaxed),
    );
    let message = format!("{events} events, {artifacts} artifacts, {artifact_bytes} bytes of them");
    #[expect(clippy::cast_precision_loss, reason = "a measure for people")]
    let done = bytes as f64;
    Progress {
        done,
        total: None,
        message: Some(message),
    }
}
