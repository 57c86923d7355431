//! The story of one call: find, check, authorise, replay, lease, admit, plan, run, check,
//! commit, record. Each stage takes a value and gives the next one; only this file knows
//! their order.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use arc_swap::ArcSwap;
use callgate_call::{
    Call, CallId, CallIds, Caller, Changes, Clock, Digest, Enforcement, Fault, Job, LeaseToken,
    NoSink, Outcome, Output, Patience, Plan, Planner, ReplayWindow, Timestamp, Tool, Topics, Wire,
};
use callgate_store::failpoint::failpoint;
use callgate_store::{
    Begun, End, Finish, Health, KeyId, Refusal, Replay, Start, Store, StoreError,
    Ticket as StoreTicket, View,
};

use crate::admit::{Breaker, Buckets, Permit, health_of};
use crate::approvals::digest_displayed;
use crate::beside::brings_more;
use crate::catalog::Entry;
use crate::clean::{clean, cleaned, trace_id_of};
use crate::content;
use crate::errors::internal;
use crate::found::FoundTool;
use crate::metrics::Tallies;
use crate::oversize::kept;
use crate::policy::Decision;
use crate::replay::{Earlier, slots_text};
use crate::scope::{check_scope, unknown_within};
use crate::setup::{ConfigurationStatus, Setup};
use crate::ticket::Ticket;
use crate::tokens::Strangers;
use crate::trace::{Ended, Spans, Stage, Trace, Traces};
use crate::watched::{Observed, Watched};

/// The gate.
pub struct Gate {
    pub(crate) setup: ArcSwap<Setup>,
    pub(crate) status: ArcSwap<ConfigurationStatus>,
    pub(crate) store: Arc<Store>,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) clock: Arc<dyn Clock>,
    ids: CallIds,
    pub(crate) changes: Changes,
    pub(crate) topics: Topics,
    /// What tokens with a rate have left.
    rates: Buckets,
    pub(crate) strangers: Strangers,
    pub(crate) traces: Traces,
    pub(crate) tallies: Tallies,
    pub(crate) spans: Option<Arc<dyn Spans>>,
}

/// An outcome, and the point up to which records must be safe before it is told.
pub struct Answer {
    /// How the call ended.
    pub outcome: Outcome,
    /// For `Gate::settle`.
    pub ticket: Ticket,
}

/// How a call left the pipeline.
enum Left {
    /// Its tool ran.
    Ran(Result<Output, Fault>, Enforcement, StoreTicket, Observed),
    /// An earlier call with the same key answered it.
    Replayed(Result<Output, Fault>, StoreTicket),
}

impl Gate {
    /// A gate in front of the tools of `setup`. `seed` must be random.
    #[must_use]
    pub fn new(
        setup: Setup,
        store: Arc<Store>,
        planner: Arc<dyn Planner>,
        clock: Arc<dyn Clock>,
        seed: u64,
    ) -> Self {
        let status = ArcSwap::from_pointee(ConfigurationStatus::of(&setup));
        let setup = ArcSwap::from_pointee(setup);
        Self {
            setup,
            status,
            store,
            planner,
            clock,
            ids: CallIds::new(seed),
            changes: Changes::default(),
            topics: Topics::default(),
            rates: Buckets::default(),
            strangers: Strangers::default(),
            traces: Traces::default(),
            tallies: Tallies::default(),
            spans: None,
        }
    }

    /// Tells changes where tools of ours tell them, too.
    #[must_use]
    pub fn with_changes(mut self, changes: Changes) -> Self {
        self.changes = changes;
        self
    }

    /// Has the events of tools of ours, which publish them there.
    #[must_use]
    pub fn with_topics(mut self, topics: Topics) -> Self {
        self.topics = topics;
        self
    }

    /// Hands traces to `spans` too.
    #[must_use]
    pub fn with_spans(mut self, spans: Option<Arc<dyn Spans>>) -> Self {
        self.spans = spans;
        self
    }

    /// Takes one call through every stage. The outcome may be told once its ticket is
    /// settled; many calls may share one settling.
    pub async fn invoke(&self, call: &Call) -> Answer {
        self.invoke_found(call, &self.find(&call.tool)).await
    }

    /// The same for a tool that the door has found, in the configuration it was found in.
    pub fn invoke_found<'a>(
        &'a self,
        call: &'a Call,
        found: &'a FoundTool,
    ) -> impl Future<Output = Answer> + Send + 'a {
        let entry = found.entry.as_deref().map_err(Clone::clone);
        self.invoke_in(&found.setup, call, entry)
    }

    async fn invoke_in(&self, setup: &Setup, call: &Call, found: Result<&Entry, Fault>) -> Answer {
        let tally = self.tally(setup, &found);
        let (_in_flight, began_us) = (tally.begin(), self.clock.micros());
        let trace = Trace::begin(self, setup, &found);
        let tool = found.as_ref().ok().map(|entry| &entry.tool);
        let left = self.pass(setup, call, found, &trace).await;
        let (result, replayed, enforcement, ticket, seen) = match left {
            Ok(Left::Ran(result, enforcement, ticket, seen)) => {
                (result, false, enforcement, ticket, Some(seen))
            }
            Ok(Left::Replayed(result, ticket)) => {
                (result, true, Enforcement::default(), ticket, None)
            }
            Err(fault) => {
                let ticket = self.record_refusal(setup, call, tool, &fault);
                (Err(fault), false, Enforcement::default(), ticket, None)
            }
        };
        let (hint, blocked) = seen.map(Observed::into_told).unwrap_or_default();
        let trace_id = trace_id_of(&setup.secrets, call, tool);
        log(call, &result, replayed, &enforcement, trace_id.as_deref());
        let took_us = self.clock.micros().saturating_sub(began_us);
        tally.end(call, &result, replayed, &enforcement, took_us);
        let ended = Ended {
            call,
            tool,
            result: &result,
            replayed,
            enforcement: &enforcement,
            hint: hint.as_deref(),
            blocked: &blocked,
        };
        self.hold_trace(trace.end(&ended, ticket));
        Answer {
            outcome: Outcome {
                call: call.id,
                result,
                replayed,
                enforcement,
                hint,
                blocked,
            },
            ticket: Ticket(ticket),
        }
    }

    /// The stages. An error is a refusal: nothing has run.
    async fn pass(
        &self,
        setup: &Setup,
        call: &Call,
        found: Result<&Entry, Fault>,
        trace: &Trace<'_>,
    ) -> Result<Left, Fault> {
        let scope = call.scope.as_deref();
        let entry = found.map_err(|fault| unknown_within(fault, scope))?;
        let tool = &entry.tool;
        check_scope(scope, tool, &call.tool)?;
        trace.enter(Stage::CheckInput);
        entry.input.check_input(call.input.value())?;
        trace.enter(Stage::Authorise);
        let decision = setup.policy.decide(&call.caller, tool)?;
        let key = key_of(call);
        let trace_id = trace_id_of(&setup.secrets, call, Some(tool));
        loop {
            trace.enter(Stage::Replay);
            if let Some(earlier) = self.earlier(call, tool, key).await? {
                return Ok(self.replay(call, tool, earlier, trace_id.as_deref()));
            }
            trace.enter(Stage::Lease);
            let lease = setup.policy.lease(call, tool)?;
            trace.enter(Stage::Admit);
            let _places = self.admit(setup, call, entry)?;
            trace.enter(Stage::Plan);
            let plan = self.plan(call, tool).await;
            let mut plan = plan.inspect_err(|_| trace.refused(call, tool))?;
            plan.approved = decision == Decision::Ask;
            if call.cancel.is_cancelled() {
                return Err(Fault::Cancelled);
            }
            let displayed = digest_displayed(setup, decision, call, tool)?;
            let trace_id = trace_id.as_deref();
            let start = start_of(call, tool, key, lease, displayed, &plan, trace_id);
            trace.enter(Stage::Begin);
            let lazy = self.may_start_lazily(&start, tool);
            // Boxed, as whatever only some calls go through: a future is moved as a whole.
            if !lazy && Box::pin(self.begin(setup, call, tool, &start)).await? == Begin::KeyTaken {
                continue; // another call took the key since we looked
            }
            let began = self.clock.now();
            let seen = Observed::default();
            let result = self.run(setup, call, entry, &plan, trace, &seen).await;
            trace.enter(Stage::Finish);
            let refused = seen.connections_refused();
            let health = health_of(call, tool, &result);
            let (result, ticket) = self.finish(&start, lazy, health, result, began, refused);
            return Ok(Left::Ran(result, plan.enforcement, ticket, seen));
        }
    }
}

/// What came of recording a start.
#[derive(PartialEq, Eq)]
enum Begin {
    /// The tool may run.
    Go,
    /// The key is no longer free.
    KeyTaken,
}

/// The stages that are a few lines each; the others have files of their own.
impl Gate {
    /// Rate, concurrency and breaker; the permits are given back when the call is over.
    fn admit<'a>(
        &self,
        setup: &Setup,
        call: &Call,
        entry: &'a Entry,
    ) -> Result<[Option<Permit<'a>>; 2], Fault> {
        let probe = match self.breaker(setup, &entry.tool)? {
            Breaker::Closed => None,
            Breaker::Probe => Some(entry.traffic.probe(setup.breaker)?),
        };
        let scoped = call.scope.as_ref().and_then(|scope| scope.rate);
        if scoped.is_some() || entry.traffic.has_rate() {
            let now = self.clock.now();
            if let Some(rate) = scoped {
                self.rates.take(&call.caller, rate, now)?;
            }
            entry.traffic.check_rate(&call.caller, now)?;
        }
        Ok([Some(entry.traffic.enter()?), probe])
    }

    fn breaker(&self, setup: &Setup, tool: &Tool) -> Result<Breaker, Fault> {
        // A tool of our own that only looks does not crash, hang or give bad output.
        if setup.breaker.failures_max == 0 || tool.runner.only_reads() {
            return Ok(Breaker::Closed);
        }
        let state = self
            .store
            .breaker(&tool.name)
            .map_err(|error| internal(&error))?;
        let now = self.clock.now();
        setup.breaker.check(state.failures, state.failed_at, now)
    }

    /// True if start and end may be one record (`call`): the tool has no effect and
    /// nothing is spent, so nothing is lost should we be killed in between. A key goes this
    /// way only where two calls of it give the same, and where records can be written; where
    /// not, it must be refused (T-12).
    fn may_start_lazily(&self, start: &Start<'_>, tool: &Tool) -> bool {
        let runner = &tool.runner;
        let goes = match start.key {
            None => runner.only_reads(),
            Some(_) => runner.is_pure() && self.store.writes_well(),
        };
        goes && start.lease.is_none() && start.displayed.is_none()
    }

    /// What will hold the tool. One that is no child of ours is asked after by its runner.
    pub(crate) async fn plan(&self, call: &Call, tool: &Tool) -> Result<Plan, Fault> {
        match tool.runner.plan(call, tool) {
            Some(plan) => plan.await,
            None => self.planner.plan(call, tool),
        }
    }

    /// Claims the key, spends lease and approval and records the start, as one change that is
    /// safe before the tool runs.
    async fn begin(
        &self,
        setup: &Setup,
        call: &Call,
        tool: &Tool,
        start: &Start<'_>,
    ) -> Result<Begin, Fault> {
        failpoint("begin.before");
        let begun = match self.store.begin(*start) {
            Ok(begun) => begun,
            Err(StoreError::Full { .. }) if !needs_record(start) => {
                tracing::error!(call = %start.call, "start not recorded: the state can not be written");
                return Ok(Begin::Go);
            }
            Err(error) => return Err(internal(&error)),
        };
        match begun {
            Begun::Started(started) => {
                self.settle(Ticket(started.ticket)).await?;
                failpoint("begin.after");
                Ok(Begin::Go)
            }
            Begun::Seen(_) => Ok(Begin::KeyTaken),
            Begun::LeaseRefused(refusal) => Err(Fault::LeaseRejected { refusal }),
            Begun::NotApproved(latest) => Err(self.ask(setup, call, tool, start, latest)),
            Begun::Full => Err(Fault::Unavailable {
                reason: "too many unfinished keyed calls; wait for some to finish".to_owned(),
            }),
        }
    }

    /// Runs the tool and checks what it gave.
    async fn run(
        &self,
        setup: &Setup,
        call: &Call,
        entry: &Entry,
        plan: &Plan,
        trace: &Trace<'_>,
        seen: &Observed,
    ) -> Result<Output, Fault> {
        trace.enter(Stage::Run);
        let tool = &entry.tool;
        let timeout = call.timeout(tool.timeout);
        let cap = call.timeout_max.unwrap_or_else(|| tool.cap(timeout));
        let patience = Patience::new(timeout, cap);
        let listens = call.sink.is_some() || trace.is_kept() || plan.confinement.is_some();
        let watched = listens.then(|| Watched {
            sink: call.sink.as_deref().unwrap_or(&NoSink),
            trace,
            secrets: &setup.secrets,
            patience: &patience,
            clock: &*self.clock,
            began: self.clock.now(),
            seen,
        });
        let job = Job {
            call,
            tool,
            plan,
            timeout: &patience,
            sink: match &watched {
                Some(watched) => watched,
                None => &NoSink,
            },
        };
        let result = tool.runner.run(job).await;
        failpoint("run.after");
        trace.enter(Stage::CheckOutput);
        let mut output = result.map_err(|fault| {
            let fault = cleaned(fault, &setup.secrets);
            match seen.hint() {
                Some(hint) => fault.explained(&hint.to_string()),
                None => fault,
            }
        })?;
        clean(&mut output, &setup.secrets);
        if tool.gives_content {
            content::check_result(output.json.value())?;
        }
        if let Some(schema) = &entry.output {
            schema.check_output(output.json.value())?;
        }
        (call.fits)(call, &output).map_err(|fault| kept(&self.store, fault, &output))?;
        Ok(output)
    }

    /// Records how the call ended. An end that can not be recorded is told as such.
    fn finish(
        &self,
        start: &Start<'_>,
        lazy: bool,
        health: Health,
        result: Result<Output, Fault>,
        began: Timestamp,
        network_refused: u64,
    ) -> (Result<Output, Fault>, StoreTicket) {
        failpoint("finish.before");
        let (message, data);
        let slots = kept_slots(start, &result);
        let (end, keep) = match &result {
            Ok(output) => {
                let (text, digest) = (output.json.text(), output.json.digest());
                (End::Output { text, digest }, true)
            }
            Err(fault) => {
                (message, data) = (fault.to_string(), fault.data());
                let end = End::Fault {
                    kind: fault.kind(),
                    message: &message,
                    data: &data,
                };
                (end, !fault.ran_nothing())
            }
        };
        let finish = Finish {
            call: start.call,
            tool: start.tool,
            input: start.input,
            key: start.key,
            view: start.view,
            end,
            slots: slots.as_deref(),
            health,
            enforcement: start.enforcement,
            unsafe_override: start.unsafe_override,
            network_refused,
            began,
            keep,
            trace_id: start.trace_id,
        };
        let recorded = if lazy {
            Ok(self.store.record_pure(*start, finish))
        } else if !keep && (start.lease.is_some() || start.displayed.is_some()) {
            Ok(self.store.finish_unrun(*start, finish))
        } else {
            self.store.finish(finish)
        };
        match recorded {
            Ok(ticket) => (result, ticket),
            Err(error) => (Err(internal(&error)), StoreTicket::default()),
        }
    }

    fn replay(&self, call: &Call, tool: &Tool, earlier: Earlier, trace_id: Option<&str>) -> Left {
        let replay = Replay {
            call: call.id,
            earlier: earlier.call,
            tool: &tool.name,
            caller: &call.caller,
            wire: call.wire.as_str(),
            input: call.input.digest(),
            key: earlier.key,
            trace_id,
        };
        let ticket = self.store.replayed(replay);
        Left::Replayed(earlier.result, ticket)
    }

    fn record_refusal(
        &self,
        setup: &Setup,
        call: &Call,
        tool: Option<&Tool>,
        fault: &Fault,
    ) -> StoreTicket {
        // A door may refuse a call of a tool that is there.
        let named = || setup.catalog.find(&call.tool).ok().map(|entry| &entry.tool);
        let found = tool.or_else(named);
        let tool = found.map_or(call.tool.as_str(), |tool| &tool.name);
        let trace_id = trace_id_of(&setup.secrets, call, found);
        let refusal = Refusal {
            call: call.id,
            tool: &setup.secrets.clean(tool),
            caller: &call.caller,
            wire: call.wire.as_str(),
            input: Some(call.input.digest()),
            fault: fault.kind(),
            trace_id: trace_id.as_deref(),
        };
        self.store.refuse(refusal)
    }
}

fn log(
    call: &Call,
    result: &Result<Output, Fault>,
    replayed: bool,
    enforcement: &Enforcement,
    trace_id: Option<&str>,
) {
    tracing::info!(
        call = %call.id,
        tool = call.tool,
        caller = call.caller.as_str(),
        wire = call.wire.as_str(),
        outcome = result.as_ref().map_or_else(Fault::kind, |_| "ok"),
        output_bytes = result.as_ref().map_or(0, |output| output.json.text().len()),
        replayed,
        enforcement = enforcement.level.as_str(),
        trace_id,
        "call finished"
    );
}

/// What doors ask beside calls.
impl Gate {
    /// Waits until everything up to `ticket` is as durable as configured.
    pub async fn settle(&self, ticket: Ticket) -> Result<(), Fault> {
        let settled = self.store.settle(ticket.0).await;
        self.keep_traces(Some(ticket.0));
        match settled {
            Ok(()) => Ok(()),
            // What must be recorded was recorded before it ran; the rest is served (T-12).
            Err(StoreError::Full { .. }) => {
                tracing::error!("outcomes not recorded: the state can not be written");
                Ok(())
            }
            Err(error) => Err(internal(&error)),
        }
    }

    /// As `settle`, once everybody who is ready has had a turn: calls that come by connections
    /// of their own then share one write. Whoever goes away meanwhile is told nothing; the
    /// record is written with the next one, or by the store's upkeep.
    pub async fn settle_with_others(&self, ticket: Ticket) -> Result<(), Fault> {
        others_first().await;
        self.settle(ticket).await
    }

    /// Takes one call through and settles it.
    pub async fn call(&self, call: &Call) -> Outcome {
        self.call_found(call, &self.find(&call.tool)).await
    }

    /// The same for a tool that the door has found.
    pub async fn call_found(&self, call: &Call, found: &FoundTool) -> Outcome {
        let mut answer = self.invoke_found(call, found).await;
        tell(&mut answer.outcome, self.settle(answer.ticket).await);
        answer.outcome
    }

    /// What may be told of a call once its record is safe, together with others'.
    pub async fn settled(&self, mut answer: Answer) -> Outcome {
        self.settle_answer(&mut answer).await;
        answer.outcome
    }

    /// The same for an answer that stays where it is.
    pub async fn settle_answer(&self, answer: &mut Answer) {
        let settled = self.settle_with_others(answer.ticket).await;
        tell(&mut answer.outcome, settled);
    }

    /// Records that a door refused a call before it could be one: its input was not JSON, or
    /// there is no such tool and its input was not looked at.
    pub fn refuse(&self, tool: &str, caller: &Caller, wire: Wire, fault: &Fault) -> Ticket {
        Ticket(self.store.refuse(Refusal {
            call: self.next_id(),
            tool: &self.setup.load().secrets.clean(tool),
            caller,
            wire: wire.as_str(),
            input: None,
            fault: fault.kind(),
            trace_id: None,
        }))
    }

    /// Where time comes from.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// A fresh call id.
    pub fn next_id(&self) -> CallId {
        self.ids.next(self.clock.now())
    }
}

/// Lets every task have a turn that is ready now. The runtime's own way to yield has it ask the
/// kernel first who else is, which costs as much as some calls.
pub async fn others_first() {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        // To the end of the queue of those who are ready.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An outcome whose record is safe, or is not, is about to be told.
fn tell(outcome: &mut Outcome, settled: Result<(), Fault>) {
    if let Err(fault) = settled {
        outcome.result = Err(fault);
    }
    failpoint("answer.before");
}

fn key_of(call: &Call) -> Option<KeyId> {
    call.key
        .as_ref()
        .map(|key| KeyId::new(&call.caller, key.as_str()))
}

pub(crate) fn view_of(call: &Call) -> View {
    match call.replay_window {
        None => View::Full,
        Some(ReplayWindow {
            max_age,
            entries_max,
        }) => View::Recent {
            max_age,
            max_entries: entries_max,
        },
    }
}

fn start_of<'a>(
    call: &'a Call,
    tool: &'a Tool,
    key: Option<KeyId>,
    lease: Option<&'a LeaseToken>,
    displayed: Option<Digest>,
    plan: &Plan,
    trace_id: Option<&'a str>,
) -> Start<'a> {
    Start {
        call: call.id,
        tool: &tool.name,
        aid: &tool.aid,
        tier: tool.tier,
        caller: &call.caller,
        wire: call.wire.as_str(),
        input: call.input.digest(),
        key,
        view: view_of(call),
        lease,
        displayed,
        brings_more: brings_more(call, tool),
        idempotent: tool.idempotent,
        enforcement: plan.enforcement.level.as_str(),
        unsafe_override: plan.enforcement.is_override(),
        trace_id,
    }
}

/// A run goes on from its slots after a crash, so what a step did to them is kept with its output.
fn kept_slots(start: &Start<'_>, result: &Result<Output, Fault>) -> Option<String> {
    let is_step = start.key.is_some() && start.wire == Wire::Pilot.as_str();
    let output = result.as_ref().ok().filter(|_| is_step)?;
    (!output.slots.is_empty()).then(|| slots_text(&output.slots))
}

/// True if nothing may be done without a record: something is spent or claimed by starting, or the
/// wire is not the one that must work where nothing can be written (T-12).
fn needs_record(start: &Start<'_>) -> bool {
    start.key.is_some()
        || start.lease.is_some()
        || start.displayed.is_some()
        || start.wire != Wire::Toolhost.as_str()
}
