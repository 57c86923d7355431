//! One process of a server as calls see it: a request goes out, its answer comes into the inbox
//! of its call. The process itself is driven by `process`, which reads the answers.
//!
//! Lock order: `state`, then an inbox. Neither is held across an await.

mod flight;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use callgate_call::{Cancel, Fault, Job};
use callgate_wires::mcp::client::{AnswerError, write_call, write_cancelled, write_method};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::end::ProcessEnd;
use super::outbox::{NotTaken, Outbox};
use super::pins::{Listed, Pinned, Pins};
use crate::answer::{bad, clipped, too_large};
use crate::egress::SharedOutlet;
use crate::hints;
use crate::pool::turns::Turns;
pub(super) use flight::Report;
use flight::{Answer, Flight, Inbox};

/// Ids of calls that were given up, whose late answers are no surprise.
const GIVEN_UP_MAX: usize = 1024;

/// How far a process has come.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Starting,
    Ready,
    Ended(Arc<ProcessEnd>),
}

/// One process of a server.
#[derive(Debug)]
pub(super) struct Link {
    pub turns: Turns,
    /// Set to have the process stopped.
    pub stop: Cancel,
    /// Rung when `look` has something to see to.
    pub bell: Notify,
    pub pid: AtomicU32,
    /// Answers and notifications that were dropped.
    pub dropped: AtomicU64,
    pub outlet: OnceLock<SharedOutlet>,
    phase: watch::Sender<Phase>,
    is_ready: AtomicBool,
    state: Mutex<LinkState>,
}

#[derive(Debug)]
struct LinkState {
    outbox: Outbox,
    next_id: u64,
    calls: HashMap<u64, Pending>,
    /// In the order in which they were given up.
    given_up: VecDeque<u64>,
    listed: Arc<Listed>,
    /// It is being stopped: no call is taken any more.
    is_closing: bool,
    has_ended: bool,
    last_used: Instant,
}

#[derive(Debug)]
struct Pending {
    inbox: Arc<Inbox>,
    /// The number of the first byte of the request.
    first_byte: u64,
}

/// What a server is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// A tool of this name, with the input of the call.
    Tool(&'a str),
    /// A method with these params, on behalf of what is pinned.
    Method(&'a str, &'a Value, Pinned<'a>),
}

impl<'a> Request<'a> {
    fn subject(self) -> Pinned<'a> {
        match self {
            Self::Tool(tool) => Pinned::Tool(tool),
            Self::Method(_, _, subject) => subject,
        }
    }
}

/// How an attempt at a call went.
pub(super) enum Attempt {
    Done(Result<Value, Fault>),
    /// The process ended before it can have seen anything of the request.
    NotSent,
    /// The process ended after the request was written, at least in part.
    Lost(Arc<ProcessEnd>),
}

/// Whose answer an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressee {
    Call,
    /// A call that was given up.
    GivenUp,
    Nobody,
}

impl Link {
    pub fn new(calls_max: usize, queue_max: usize) -> Arc<Self> {
        Arc::new(Self {
            turns: Turns::new(calls_max, queue_max, "place at the server"),
            stop: Cancel::new(),
            bell: Notify::new(),
            pid: AtomicU32::new(0),
            dropped: AtomicU64::new(0),
            outlet: OnceLock::new(),
            phase: watch::Sender::new(Phase::Starting),
            is_ready: AtomicBool::new(false),
            state: Mutex::new(LinkState {
                outbox: Outbox::default(),
                next_id: 1,
                calls: HashMap::new(),
                given_up: VecDeque::new(),
                listed: Arc::default(),
                is_closing: false,
                has_ended: false,
                last_used: Instant::now(),
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process is born: what it reads.
    pub fn open(&self, outbox: Outbox) {
        self.state().outbox = outbox;
    }

    /// The process is ready for calls.
    pub fn set_ready(&self, listed: Listed) {
        self.set_listed(listed);
        self.state().last_used = Instant::now();
        self.is_ready.store(true, Ordering::Release);
        self.phase.send_replace(Phase::Ready);
    }

    pub fn set_listed(&self, listed: Listed) {
        self.state().listed = Arc::new(listed);
    }

    pub fn listed(&self) -> Arc<Listed> {
        Arc::clone(&self.state().listed)
    }

    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// The phase after `Starting`.
    pub async fn started(&self) -> Phase {
        let mut phase = self.phase.subscribe();
        let started = phase.wait_for(|phase| !matches!(phase, Phase::Starting));
        match started.await {
            Ok(phase) => phase.clone(),
            Err(_) => unreachable!("the sender is a field of the link that is waited on"),
        }
    }

    pub fn in_flight(&self) -> usize {
        self.state().calls.len()
    }

    /// Since when no call was in flight; nothing while one is.
    pub fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.calls.is_empty() && self.turns.taken() == 0).then_some(state.last_used)
    }

    /// Takes no more calls. Those in flight go on.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closing = true;
        self.ring(&state);
    }

    /// Closes the standard input of the process.
    pub fn close_input(&self) {
        self.state().outbox.close();
    }

    /// The next id for a request of the process's own driver.
    pub fn next_id(&self) -> u64 {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        id
    }

    /// Sends a message that belongs to no call. It is dropped where the server does not read.
    pub fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        let _ = state.outbox.send(write);
        self.ring(&state);
    }

    fn ring(&self, state: &LinkState) {
        let is_drained = state.is_closing && state.calls.is_empty();
        if is_drained || state.outbox.is_waiting() || state.outbox.is_closed() {
            self.bell.notify_one();
        }
    }

    /// Writes what waits by `write`. Returns whether something still waits.
    pub fn flush(&self, write: impl FnMut(&[u8]) -> io::Result<usize>) -> bool {
        let mut state = self.state();
        state.outbox.flush(write);
        state.outbox.is_waiting()
    }

    /// What the driver of the process has to see to.
    pub fn look(&self) -> Errand {
        let state = self.state();
        match state.outbox.pipe() {
            None | Some(Err(_)) => Errand::InputClosed,
            Some(Ok(pipe)) if state.outbox.is_waiting() => Errand::Unsent(pipe),
            Some(Ok(_)) if state.is_closing && state.calls.is_empty() => Errand::Drained,
            Some(Ok(_)) => Errand::None,
        }
    }

    /// Takes no more calls, if none is in flight. Returns whether that is so.
    pub fn close_if_idle(&self) -> bool {
        let mut state = self.state();
        let is_idle = state.calls.is_empty() && self.turns.taken() == 0;
        state.is_closing |= is_idle;
        is_idle
    }

    /// Ready when nothing is left of the process.
    pub async fn ended(&self) {
        let mut phase = self.phase.subscribe();
        let _ = phase
            .wait_for(|phase| matches!(phase, Phase::Ended(_)))
            .await;
    }

    /// Ready when the process takes no call any more.
    pub async fn closed(&self) {
        if self.is_open() {
            self.ended().await;
        }
    }

    /// Returns whether it is being stopped, or was.
    pub fn is_closing(&self) -> bool {
        self.state().is_closing
    }

    /// Returns whether it may take calls, now or once it is ready.
    pub fn is_open(&self) -> bool {
        let state = self.state();
        !state.is_closing && !state.has_ended
    }

    /// Takes one call to its end.
    pub async fn call(
        &self,
        server: &str,
        request: Request<'_>,
        pins: &Pins,
        (job, deadline): (Job<'_>, Instant),
        output_bytes_max: usize,
    ) -> Attempt {
        let _turn = match self.turns.take(job, deadline).await {
            Ok(turn) => turn,
            Err(fault) => return Attempt::Done(Err(fault)),
        };
        let subject = request.subject();
        if let Err(change) = pins.check(subject, &self.listed()) {
            return Attempt::Done(Err(change.fault(server, subject)));
        }
        let refused_before = self.outlet.get().map_or(0, SharedOutlet::count);
        let mut flight = match self.take_off(request, job) {
            Ok(flight) => flight,
            Err(NotTaken::Closed) => return Attempt::NotSent,
            Err(NotTaken::Full) => {
                return Attempt::Done(Err(Fault::Unavailable {
                    reason: format!("server `{server}` does not read its requests"),
                }));
            }
        };
        let answer = flight.answer(job, deadline).await;
        if let Some(outlet) = self.outlet.get() {
            hints::tell_host(job, outlet.tell_since(refused_before, job.sink));
        }
        match answer {
            Err(fault) => Attempt::Done(Err(fault)),
            Ok(Answer::Result { value, bytes }) if bytes <= output_bytes_max => {
                Attempt::Done(Ok(value))
            }
            Ok(Answer::Result { .. } | Answer::TooLong) => {
                Attempt::Done(Err(too_large(output_bytes_max)))
            }
            Ok(Answer::Failed(error)) => Attempt::Done(Err(fault_of(error))),
            Ok(Answer::Ended { was_sent: false }) => Attempt::NotSent,
            Ok(Answer::Ended { was_sent: true }) => match self.started().await {
                Phase::Ended(end) => Attempt::Lost(end),
                Phase::Starting | Phase::Ready => Attempt::NotSent,
            },
        }
    }

    /// Sends a request.
    fn take_off(&self, request: Request<'_>, job: Job<'_>) -> Result<Flight<'_>, NotTaken> {
        let input = &job.call.input;
        let rewritten;
        let arguments = match request {
            Request::Tool(_) if !input.is_one_line() => {
                rewritten = input.value().to_string();
                &rewritten
            }
            _ => input.text(),
        };
        let inbox = Arc::<Inbox>::default();
        let mut state = self.state();
        if state.is_closing || state.has_ended {
            return Err(NotTaken::Closed);
        }
        let id = state.next_id;
        let sent = state.outbox.send(|out| match request {
            Request::Tool(tool) => write_call(id, tool, arguments, out),
            Request::Method(method, params, _) => write_method(id, method, params, out),
        });
        self.ring(&state);
        let first_byte = sent?;
        state.next_id += 1;
        let pending = Pending {
            inbox: Arc::clone(&inbox),
            first_byte,
        };
        state.calls.insert(id, pending);
        drop(state);
        Ok(Flight::new(self, id, inbox))
    }

    /// The result of a request, or why there is none.
    pub fn answered(&self, id: u64, result: Result<Value, AnswerError>, bytes: usize) -> Addressee {
        let answer = match result {
            Ok(value) => Answer::Result { value, bytes },
            Err(error) => Answer::Failed(error),
        };
        self.deliver(id, answer)
    }

    /// The result of a request is longer than any line may be.
    pub fn answered_too_long(&self, id: u64) -> Addressee {
        self.deliver(id, Answer::TooLong)
    }

    fn deliver(&self, id: u64, answer: Answer) -> Addressee {
        let mut state = self.state();
        let Some(pending) = state.calls.remove(&id) else {
            let known = state.given_up.iter().position(|given_up| *given_up == id);
            return match known.and_then(|at| state.given_up.remove(at)) {
                Some(_) => Addressee::GivenUp,
                None => Addressee::Nobody,
            };
        };
        if state.calls.is_empty() {
            state.last_used = Instant::now();
            self.ring(&state);
        }
        drop(state);
        pending.inbox.put(answer);
        Addressee::Call
    }

    /// Hands a report to the call of an id; to the only one in flight without an id. Returns
    /// whether there is such a call with room for it.
    pub fn report(&self, id: Option<u64>, report: Report) -> bool {
        let state = self.state();
        let pending = match id {
            Some(id) => state.calls.get(&id),
            None if state.calls.len() == 1 => state.calls.values().next(),
            None => None,
        };
        pending.is_some_and(|pending| pending.inbox.report(report))
    }

    /// The process is gone, and with it the calls in flight.
    pub fn end(&self, end: ProcessEnd) {
        let mut state = self.state();
        state.has_ended = true;
        let read = state.outbox.read_by_server();
        state.outbox.close();
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        self.is_ready.store(false, Ordering::Release);
        self.phase.send_replace(Phase::Ended(Arc::new(end)));
        for pending in calls.into_values() {
            let was_sent = read > pending.first_byte;
            pending.inbox.put(Answer::Ended { was_sent });
        }
    }

    /// Gives a call up: its answer is not wanted any more.
    fn give_up(&self, id: u64, reason: &str) {
        let mut state = self.state();
        if state.calls.remove(&id).is_none() {
            return;
        }
        if state.given_up.len() == GIVEN_UP_MAX {
            state.given_up.pop_front();
        }
        state.given_up.push_back(id);
        state.last_used = Instant::now();
        // Best effort: a server that does not read is not told.
        let _ = state.outbox.send(|out| write_cancelled(id, reason, out));
        self.ring(&state);
    }
}

/// What the driver of a process has to see to.
pub(super) enum Errand {
    None,
    /// Something waits for room in this pipe.
    Unsent(OwnedFd),
    /// The process reads no more.
    InputClosed,
    /// No call is in flight and none will be.
    Drained,
}

/// The fault of an answer that is no result.
fn fault_of(error: AnswerError) -> Fault {
    match error {
        AnswerError::Malformed(reason) => bad(reason),
        AnswerError::Refused(error) => Fault::ToolFailed {
            error_type: "UpstreamError".to_owned(),
            message: format!(
                "{} (JSON-RPC error {})",
                clipped(&error.message),
                error.code
            ),
            content: None,
        },
    }
}
