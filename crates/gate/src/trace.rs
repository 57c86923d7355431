//! What one call leaves behind beside its record: how long each stage took, what held it, what
//! its runner told, and the end of what it said. Gathered here while the call is under way, made
//! a document by `document.rs`, kept by the store once the call's record is safe.
//!
//! A tool of our own that only looks leaves nothing but its record: it is over before this is
//! worth it.

mod document;
mod find;
mod said;
mod text;

use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_call::{
    Call, CallId, Clock, ConfinementHint, Enforcement, Fault, Guarantee, Output, Secrets, Stream,
    Tool,
};
use callgate_store::Ticket;

use crate::catalog::Entry;
use crate::invoke::Gate;
use crate::setup::Setup;
pub use find::{Found, TraceError, find_trace, recent_traces};
use said::Said;
use text::Text;

/// Facts of one call; more are dropped.
const FACTS_MAX: usize = 24;
/// Traces that wait for their records to be safe; more are kept at once.
const WAITING_MAX: usize = 256;

/// Takes the traces of calls somewhere else; must not wait.
pub trait Spans: Send + Sync {
    /// One more, an object as JSON, whole and without secrets.
    fn offer(&self, trace: &str);

    /// How many were not taken on, or not delivered.
    fn dropped(&self) -> u64;
}

/// Where a call is in the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words are the pipeline's")]
pub(crate) enum Stage {
    Find,
    CheckInput,
    Authorise,
    Replay,
    Lease,
    Admit,
    Plan,
    Begin,
    Run,
    CheckOutput,
    Finish,
    Settle,
}

/// How traces call the stages, in order.
pub(crate) const STAGES: [&str; 12] = [
    "find",
    "check input",
    "authorise",
    "replay",
    "lease",
    "admit",
    "plan",
    "begin",
    "run",
    "check output",
    "finish",
    "settle",
];

/// The trace of a call under way; nothing for one that leaves none.
pub(crate) struct Trace<'a>(Option<Box<Open<'a>>>);

struct Open<'a> {
    clock: &'a dyn Clock,
    secrets: &'a Secrets,
    stored: bool,
    at_ms: u64,
    began_us: u64,
    seen: Mutex<Seen>,
}

struct Seen {
    stage: Stage,
    since_us: u64,
    /// How long each stage took, where it was reached.
    took_us: [Option<u64>; STAGES.len()],
    facts: Vec<(&'static str, String)>,
    stdout: Said,
    stderr: Said,
}

/// The end of a call, as its trace has it.
pub(crate) struct Ended<'a> {
    pub call: &'a Call,
    pub tool: Option<&'a Tool>,
    pub result: &'a Result<Output, Fault>,
    pub replayed: bool,
    pub enforcement: &'a Enforcement,
    pub hint: Option<&'a ConfinementHint>,
    pub blocked: &'a [Guarantee],
}

/// A finished trace that waits for its record to be safe.
pub(crate) struct Waiting {
    ticket: Ticket,
    call: CallId,
    ended_us: u64,
    stored: bool,
    document: Text,
}

impl<'a> Trace<'a> {
    /// Begins with the stage `find`.
    pub(crate) fn begin(gate: &'a Gate, setup: &'a Setup, found: &Result<&Entry, Fault>) -> Self {
        let only_looks = found
            .as_ref()
            .is_ok_and(|entry| entry.tool.runner.only_reads());
        let stored = !only_looks && gate.store.keeps_traces();
        if !stored && gate.spans.is_none() {
            return Self(None);
        }
        let clock = &*gate.clock;
        let began_us = clock.micros();
        let keep = setup.secrets.longest();
        Self(Some(Box::new(Open {
            clock,
            secrets: &setup.secrets,
            stored,
            at_ms: clock.now().0,
            began_us,
            seen: Mutex::new(Seen {
                stage: Stage::Find,
                since_us: began_us,
                took_us: [None; STAGES.len()],
                facts: Vec::new(),
                stdout: Said::new(keep),
                stderr: Said::new(keep),
            }),
        })))
    }

    /// True if anything is gathered.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// The call enters a stage; the one before is over. Entered again, its times add up.
    pub(crate) fn enter(&self, stage: Stage) {
        if let Some(open) = &self.0 {
            open.seen().enter(stage, open.clock.micros());
        }
    }

    /// Some bytes of a stream of the tool's.
    pub(crate) fn chunk(&self, stream: Stream, bytes: &[u8]) {
        if let Some(open) = &self.0 {
            let seen = &mut *open.seen();
            match stream {
                Stream::Stdout => seen.stdout.push(bytes),
                Stream::Stderr => seen.stderr.push(bytes),
            }
        }
    }

    /// What a runner tells, the newest of a name; without secrets already.
    pub(crate) fn fact(&self, name: &'static str, value: &str) {
        if let Some(open) = &self.0 {
            let facts = &mut open.seen().facts;
            let value = document::cut(value, document::FACT_BYTES_MAX).to_owned();
            facts.retain(|(known, _)| *known != name);
            if facts.len() < FACTS_MAX {
                facts.push((name, value));
            }
        }
    }

    /// The facts of a call that was refused before its tool ran.
    pub(crate) fn refused(&self, call: &Call, tool: &Tool) {
        if let Some(open) = &self.0 {
            for (name, value) in tool.runner.facts_of_refusal(call, tool) {
                self.fact(name, &open.secrets.clean(&value));
            }
        }
    }

    /// The call is over; what is left is to make its record safe.
    pub(crate) fn end(self, ended: &Ended<'_>, ticket: Ticket) -> Option<Waiting> {
        let open = self.0?;
        let ended_us = open.clock.micros();
        let mut seen = open.seen();
        let stopped = seen.stage;
        seen.enter(Stage::Settle, ended_us);
        let document = document::document(&open, &seen, ended, stopped, ended_us);
        drop(seen);
        Some(Waiting {
            ticket,
            call: ended.call.id,
            ended_us,
            stored: open.stored,
            document,
        })
    }
}

impl Open<'_> {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn enter(&mut self, stage: Stage, now_us: u64) {
        let took = now_us.saturating_sub(self.since_us);
        let before = &mut self.took_us[self.stage as usize];
        *before = Some(before.unwrap_or(0) + took);
        (self.stage, self.since_us) = (stage, now_us);
    }
}

/// Traces on their way to the store.
#[derive(Default)]
pub(crate) struct Traces(Mutex<Vec<Waiting>>);

impl Gate {
    /// Holds a trace until its record is safe.
    pub(crate) fn hold_trace(&self, waiting: Option<Waiting>) {
        let Some(waiting) = waiting else { return };
        let full = {
            let mut held = self.traces();
            held.push(waiting);
            held.len() >= WAITING_MAX
        };
        if full {
            // Whoever was to be told has gone away; the records are written with others'.
            self.keep_traces(None);
        }
    }

    /// Keeps the traces whose records are safe: those up to `ticket`, or all.
    pub(crate) fn keep_traces(&self, ticket: Option<Ticket>) {
        let ready: Vec<Waiting> = {
            let mut held = self.traces();
            if held.is_empty() {
                return;
            }
            let is_ready = |one: &mut Waiting| ticket.is_none_or(|ticket| one.ticket <= ticket);
            held.extract_if(.., is_ready).collect()
        };
        let now_us = self.clock.micros();
        let mut texts: Vec<(CallId, String)> = Vec::new();
        for one in ready {
            let text = document::settle(one.document, now_us.saturating_sub(one.ended_us));
            if let Some(spans) = &self.spans {
                spans.offer(&text);
            }
            if one.stored {
                texts.push((one.call, text));
            }
        }
        let lines = texts.iter().map(|(call, text)| (*call, text.as_str()));
        self.store.keep_traces(lines);
    }

    fn traces(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.traces.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.keep_traces(None);
    }
}
