//! What a running tool says on its way to the caller: without secrets, and as a sign of life
//! that extends its time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_call::{
    Clock, ConfinementHint, Guarantee, Log, Patience, Progress, Secrets, Sink, Stream, Timestamp,
};

use crate::trace::Trace;

pub(crate) struct Watched<'a> {
    pub(crate) sink: &'a dyn Sink,
    pub(crate) trace: &'a Trace<'a>,
    pub(crate) secrets: &'a Secrets,
    pub(crate) patience: &'a Patience,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) began: Timestamp,
    pub(crate) seen: &'a Observed,
}

/// What a runner tells of a call beside its outcome.
#[derive(Default)]
pub(crate) struct Observed {
    /// Connections that the tool was refused.
    pub(crate) refused: AtomicU64,
    told: Mutex<Told>,
}

/// The hint, and attempts that a promise stopped.
#[derive(Default)]
struct Told {
    hint: Option<Box<ConfinementHint>>,
    blocked: Vec<Guarantee>,
}

/// Attempts of one call that are told; more are dropped.
const BLOCKED_MAX: usize = 64;

impl Observed {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that the tool was refused so far.
    pub(crate) fn connections_refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The hint, if there is one.
    pub(crate) fn hint(&self) -> Option<Box<ConfinementHint>> {
        self.told().hint.clone()
    }

    /// The hint and the attempts, for the outcome.
    pub(crate) fn into_told(self) -> (Option<Box<ConfinementHint>>, Vec<Guarantee>) {
        let told = self.told.into_inner();
        let Told { hint, blocked } = told.unwrap_or_else(PoisonError::into_inner);
        (hint, blocked)
    }
}

impl Sink for Watched<'_> {
    fn chunk(&self, stream: Stream, bytes: &[u8]) {
        self.trace.chunk(stream, bytes);
        self.sink.chunk(stream, bytes);
    }

    fn progress(&self, progress: &Progress) {
        self.patience.extend(self.clock.now().since(self.began));
        match progress
            .message
            .as_deref()
            .and_then(|message| self.secrets.cleaned(message))
        {
            None => self.sink.progress(progress),
            message => self.sink.progress(&Progress {
                message,
                ..progress.clone()
            }),
        }
    }

    fn log(&self, log: &Log) {
        if self.secrets.is_empty() {
            return self.sink.log(log);
        }
        let mut log = log.clone();
        self.secrets.clean_value(&mut log.data);
        self.sink.log(&log);
    }

    fn fact(&self, name: &'static str, value: &str) {
        let value = self.secrets.clean(value);
        self.trace.fact(name, &value);
        self.sink.fact(name, &value);
    }

    fn refused(&self, connections: u64) {
        self.seen.refused.fetch_add(connections, Ordering::Relaxed);
    }

    fn hint(&self, hint: &ConfinementHint) {
        let told = &mut *self.seen.told();
        if told.hint.is_none() {
            let clean = |text: &Option<String>| {
                text.as_deref()
                    .map(|text| self.secrets.clean(text).into_owned())
            };
            told.hint = Some(Box::new(ConfinementHint {
                refused: hint.refused,
                subject: clean(&hint.subject),
                setting: clean(&hint.setting),
                note: clean(&hint.note),
            }));
        }
    }

    fn blocked(&self, guarantee: Guarantee) {
        let blocked = &mut self.seen.told().blocked;
        if blocked.len() < BLOCKED_MAX {
            blocked.push(guarantee);
        }
    }

    fn linger(&self) {
        self.sink.linger();
    }
}
