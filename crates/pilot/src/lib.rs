//! The pilot: a run of steps towards a goal, each of them a call through the gate. Contract
//! `docs/contracts/toolhost.md`, "Runs, selection, log and queue". The pilot is a caller of the
//! gate: [`Pilot`] takes, resumes and drives runs, [`queue_worker`] works off a folder of requests,
//! [`queue_http`] accepts requests over HTTP. Records of runs are kept by the store.
//!
//! A run is its events. A choice is recorded before it is carried out, under a key of its own
//! step; what came of it is recorded after. Whoever finds a choice without an end carries it out
//! by the same key, and the gate tells whether it was done already. So a step happens at most
//! once, wherever the process is killed.

pub mod menu;
pub mod policy_program;
pub mod queue_http;
pub mod queue_work;
pub mod queue_worker;
pub mod replay;
pub mod run;
pub mod select;

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_call::{
    Call, Caller, Cancel, Digest, Document, Fault, IdempotencyKey, Output, Tier, Wire, chain,
};
use callgate_gate::{Entry, Gate};
use callgate_pilot_events::{Progress, RunEnd, log, progress, report, state};
use callgate_store::{
    ApprovalId, ApprovalState, PilotBegun, PilotEvent, PilotFacts, PilotHold, PilotNote, StoreError,
};
use callgate_wires::toolhost::{
    RunHeader, RunRequest, Selection, SelectionKind, Status, merge_patch, patch_value,
};
use serde_json::{Map, Value, json};

use callgate_doors::toolhost::status_of;
use menu::{Menu, input_for};
use progress::{Deed, event};
use select::choose;
use state::{after, ds_digest, ds_digest_fast, patch};

/// Steps of one try. TH-145.
pub const STEPS_MAX: u32 = 64;
/// Invalid picks of one try; the next one ends it. TH-145.
pub const INVALID_PICKS_MAX: u32 = 8;
/// Calls at one menu and state; the next one is a loop. TH-145.
pub const MET_MAX: u32 = 3;
/// All inputs of a run, with every patch. A patch that would make them larger is an invalid pick.
pub const INPUTS_BYTES_MAX: usize = 256 * 1024;
/// What a person is asked about, in the list of approvals.
pub const ASK_TOOL: &str = "pilot/ask_sup";

/// Why a choice is an invalid pick that is none of a tool.
const NO_TOOL: &str = "the selection is no tool of the menu, or its patch too large";
/// The fault of a call that must not be made again.
const OUTCOME_UNKNOWN: &str = "outcome_unknown";

/// Why a run does not go on.
#[derive(Debug, thiserror::Error)]
pub enum PilotError {
    /// The state can not be read or written.
    #[error("{0}")]
    Store(String),
    /// Somebody else is at the run.
    #[error("{0}")]
    Busy(String),
    /// What is recorded of the run makes no sense.
    #[error("run {run}: {reason}")]
    Broken {
        /// Which.
        run: String,
        /// Why.
        reason: String,
    },
    /// The request can not be taken, or what comes of it not be kept.
    #[error("{0}")]
    Refused(String),
    /// It was told to stop between two steps; whoever takes it up again goes on from there.
    #[error("run {run} was stopped; `callgate pilot --resume {run}` goes on")]
    Stopped {
        /// Which.
        run: String,
    },
}

impl From<StoreError> for PilotError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy { reason } => Self::Busy(reason),
            error @ StoreError::TooLarge { .. } => Self::Refused(error.to_string()),
            error => Self::Store(chain(&error)),
        }
    }
}

/// When goals are reached: the slots that must be filled, by goal.
pub type Goals = BTreeMap<String, Vec<u8>>;

/// The owner's settings of runs.
pub struct PilotSettings {
    /// The policy program, if there is one.
    pub policy: Option<Arc<Entry>>,
    /// When goals are reached.
    pub goals: Goals,
}

impl PilotSettings {
    /// The pilot that drives the runs of `caller` through `gate`.
    #[must_use]
    pub fn pilot<'a>(&self, gate: &'a Gate, caller: Caller, cancel: Arc<Cancel>) -> Pilot<'a> {
        Pilot {
            gate,
            caller,
            policy: self.policy.clone(),
            goals: self.goals.clone(),
            cancel,
        }
    }
}

/// Drives runs.
pub struct Pilot<'a> {
    /// Every step goes through it.
    pub gate: &'a Gate,
    /// Whose runs they are.
    pub caller: Caller,
    /// The owner's policy program.
    pub policy: Option<Arc<Entry>>,
    /// When goals are reached.
    pub goals: Goals,
    /// Ends the run's call, and so the run.
    pub cancel: Arc<Cancel>,
}

/// A run that was asked for, ours to drive for as long as this is there.
pub struct Taken {
    /// How far it is.
    pub progress: Progress,
    /// Its request was known before.
    pub known: bool,
    _hold: PilotHold,
}

impl Pilot<'_> {
    /// Takes a request: a new run under `run_id`, or the one that it became before, unless somebody
    /// is at it.
    pub fn take(&self, request: &RunRequest, run_id: String) -> Result<Taken, PilotError> {
        let mut recorded = request.to_value();
        if self.gate.secrets().clean_value(&mut recorded) {
            let words = "the request holds a secret, which would be kept: give it to the tool";
            return Err(PilotError::Refused(words.to_owned()));
        }
        if !are_small(&request.inputs) {
            let words = format!("the inputs of a run are {INPUTS_BYTES_MAX} bytes at most");
            return Err(PilotError::Refused(words));
        }
        let header = RunHeader::new(run_id.clone(), request);
        let doc = json!({ "header": header.to_value(), "request": recorded });
        let id = request.request_id.as_deref();
        let begun = self
            .gate
            .store()
            .pilot_begin(&run_id, id, event::BEGIN, &doc)?;
        let (run, known) = match begun {
            PilotBegun::New => (run_id, false),
            PilotBegun::Known { run } => (run, true),
        };
        let taken = self.take_up(&run)?;
        Ok(Taken { known, ..taken })
    }

    /// Takes up a run that is there, unless somebody is at it: two who carried out one choice could
    /// not tell whose outcome counts.
    pub fn take_up(&self, run: &str) -> Result<Taken, PilotError> {
        let hold = self.gate.store().pilot_hold(run)?;
        Ok(Taken {
            progress: self.find(run)?,
            known: true,
            _hold: hold,
        })
    }

    /// How far a run is.
    pub fn find(&self, run: &str) -> Result<Progress, PilotError> {
        let events = self.gate.store().pilot_events(run)?;
        Progress::read(&events).map_err(|reason| PilotError::Broken {
            run: run.to_owned(),
            reason,
        })
    }

    /// Goes on with a run that ended: one that failed is tried again if it is to be, one that was
    /// stopped goes on as one that was killed does, one that waits for a person once that person
    /// said yes; where no word came in time it asks anew. False if it stays as it is.
    pub fn resume(&self, progress: &mut Progress, retry: bool) -> Result<bool, PilotError> {
        match self.next(progress, retry)? {
            Next::Stays => return Ok(false),
            Next::AsksAnew => self.ask(progress)?,
            Next::GoesOn { attempt } => self.note(
                progress,
                event::RESUMED,
                json!({ "attempt": attempt }),
                PilotFacts::default(),
            )?,
        }
        Ok(true)
    }

    /// True if a run that ended would go on or ask anew, were it asked for again.
    pub fn goes_on(&self, progress: &Progress) -> Result<bool, PilotError> {
        Ok(self.next(progress, false)? != Next::Stays)
    }

    /// What becomes of a run that ended. Being stopped costs no try.
    fn next(&self, progress: &Progress, retry: bool) -> Result<Next, PilotError> {
        let attempt = progress.attempt;
        Ok(match &progress.end {
            Some(RunEnd::AskSup { approval }) => {
                let asked = self.gate.store().approval(&ApprovalId(approval.clone()))?;
                match asked.map(|asked| asked.state) {
                    Some(ApprovalState::Granted { .. } | ApprovalState::Spent { .. }) => {
                        Next::GoesOn { attempt }
                    }
                    Some(ApprovalState::Pending | ApprovalState::Denied { .. }) => Next::Stays,
                    // A call that waits is made once more, and asks anew by itself.
                    Some(ApprovalState::Expired) | None if progress.pending.is_some() => {
                        Next::GoesOn { attempt }
                    }
                    Some(ApprovalState::Expired) | None => Next::AsksAnew,
                }
            }
            Some(RunEnd::ToolError { unknown: true, .. }) => Next::Stays,
            Some(RunEnd::ToolError { .. } | RunEnd::Breaker { .. }) if retry => Next::GoesOn {
                attempt: attempt + 1,
            },
            Some(end) if end.was_stopped() => Next::GoesOn { attempt },
            _ => Next::Stays,
        })
    }

    /// Takes steps until the run ends.
    pub async fn drive(&self, progress: &mut Progress) -> Result<RunEnd, PilotError> {
        loop {
            if let Some(end) = &progress.end {
                return Ok(end.clone());
            }
            self.check_stop(progress)?;
            if progress.pending.is_some() {
                self.act(progress).await?;
                continue;
            }
            // Looked at here and not where it comes about: we may have been killed in between.
            match self.due_end(progress) {
                Some(DueEnd::Goal) => {
                    let doc = json!({ "goal_id": progress.request.goal_id });
                    self.note(progress, event::GOAL_DONE, doc, PilotFacts::default())?;
                }
                Some(DueEnd::Limit(reason)) => self.trip(progress, reason, "")?,
                None => self.select(progress).await?,
            }
        }
    }

    /// What a run has come to by what happened so far; nothing if there is a choice to make.
    fn due_end(&self, progress: &Progress) -> Option<DueEnd> {
        let filled = |slots: &Vec<u8>| slots.iter().all(|slot| progress.slots.0.contains_key(slot));
        let goal = self.goals.get(&progress.request.goal_id);
        if !progress.done.is_empty() && goal.is_some_and(filled) {
            Some(DueEnd::Goal)
        } else if progress.invalid_picks > INVALID_PICKS_MAX {
            Some(DueEnd::Limit("max_invalid_picks"))
        } else if progress.steps >= STEPS_MAX {
            Some(DueEnd::Limit("max_steps"))
        } else {
            None
        }
    }

    fn check_stop(&self, progress: &Progress) -> Result<(), PilotError> {
        match self.cancel.is_cancelled() {
            false => Ok(()),
            true => Err(PilotError::Stopped {
                run: progress.header.run_id.clone(),
            }),
        }
    }

    /// Records the next choice.
    async fn select(&self, progress: &mut Progress) -> Result<(), PilotError> {
        let menu = Menu::of(self.gate, &self.caller, &progress.request);
        let choice = choose(
            self.gate,
            &self.caller,
            self.policy.as_ref(),
            &self.cancel,
            (&menu, progress),
        )
        .await;
        // A policy program that was stopped has not failed: the choice is still to be made.
        self.check_stop(progress)?;
        let Meant {
            aid,
            inputs,
            input,
            dropped,
        } = Meant::by(&choice.selection, &menu, &progress.inputs);
        let (menu_digest, state_digest) = (menu.digest(), ds_digest(&progress.slots));
        let mut doc = json!({
            "menu_digest": menu_digest,
            "state_digest": state_digest,
            "control_mode": progress.request.control_mode.as_str(),
            "fallback_raw": choice.fallback_raw,
            "selection": selection_value(&choice.selection),
            "aid": aid,
            "inputs": inputs,
            "input": input,
            "dropped_keys": dropped,
        });
        match choice.policy {
            Some(Ok(raw)) => doc["policy_raw"] = json!(raw),
            Some(Err(why)) => doc["policy_failure"] = json!(why),
            None => {}
        }
        let facts = PilotFacts {
            aid: &aid,
            status: choice.selection.kind.as_str(),
            state: &state_digest,
        };
        progress.step += 1;
        self.note(progress, event::SELECTED, doc, facts)
    }

    /// Carries out the choice that was recorded.
    async fn act(&self, progress: &mut Progress) -> Result<(), PilotError> {
        let Some(chosen) = progress.pending.clone() else {
            return Ok(());
        };
        let plain = PilotFacts::default();
        match chosen.deed() {
            Deed::Noop => self.note(progress, event::NOOP, json!({}), plain),
            Deed::Ask => self.ask(progress),
            Deed::Call => self.call(progress).await,
            Deed::Nothing => self.invalid(progress, NO_TOOL),
        }
    }

    /// Calls the chosen tool.
    async fn call(&self, progress: &mut Progress) -> Result<(), PilotError> {
        let Some(chosen) = progress.pending.clone() else {
            return Ok(());
        };
        let aid = chosen.aid.as_str();
        if progress.met(&chosen) >= MET_MAX {
            let doc = loop_doc(aid);
            self.note(progress, event::LOOP_GUARD, doc, PilotFacts::default())?;
            return self.trip(progress, "loop_guard", "");
        }
        let now = self.gate.clock().now();
        // What the key said may be forgotten by now: nobody can tell whether it was done.
        if now.since(chosen.at) > self.gate.store().key_life() / 2 {
            let words = "outcome unknown: the run was left for too long";
            return self.failed(progress, aid, words, OUTCOME_UNKNOWN);
        }
        let (outcome, took_ms) = {
            let call = self.step_call(progress, aid, chosen.input.clone());
            let began = self.gate.clock().micros();
            let outcome = self.gate.call(&call).await;
            (
                outcome,
                self.gate.clock().micros().saturating_sub(began) / 1000,
            )
        };
        match outcome.result {
            Ok(output) => {
                let about = json!({
                    "call": outcome.call.to_string(),
                    "duration_ms": took_ms,
                    "recorded_before": outcome.replayed,
                });
                self.succeeded(progress, aid, &output, about)
            }
            Err(Fault::NeedsApproval { approval }) => {
                let doc = json!({ "approval": approval, "aid": aid, "call_waits": true });
                self.note(progress, event::ASK_SUP, doc, PilotFacts::default())
            }
            Err(fault) => self.fault(progress, aid, &fault),
        }
    }

    /// The call of a step; its key makes it the same one however often it is made.
    fn step_call(&self, progress: &Progress, aid: &str, input: Value) -> Call {
        let input = Document::from_value(input);
        let (id, caller) = (self.gate.next_id(), self.caller.clone());
        let cancel = Arc::clone(&self.cancel);
        let mut call = Call::new(id, aid, input, caller, Wire::Pilot, cancel);
        let key = format!("pilot:{}:{}", progress.header.run_id, progress.step);
        call.key = IdempotencyKey::new(&key);
        call.slots = progress.slots.clone();
        call.fits = |_, output| state::fits(output);
        call
    }

    fn succeeded(
        &self,
        progress: &mut Progress,
        aid: &str,
        output: &Output,
        mut doc: Value,
    ) -> Result<(), PilotError> {
        let catalog = self.gate.catalog();
        let entry = catalog.find(aid).map_err(|fault| PilotError::Broken {
            run: progress.header.run_id.clone(),
            reason: fault.to_string(),
        })?;
        let tool = &entry.tool;
        let slots = after(&progress.slots, tool, output);
        let digest = ds_digest(&slots);
        doc["aid"] = json!(aid);
        doc["status"] = json!(Status::Ok.as_str());
        doc["deterministic"] = json!(tool.deterministic);
        doc["replay_inputs"] = json!(tool.replay_inputs);
        doc["output_digest"] = json!(output.json.digest().to_hex());
        doc["tx_patch"] = patch_value(&patch(&progress.slots, &slots));
        doc["ds_digest"] = json!(digest);
        doc["ds_digest_fast"] = json!(ds_digest_fast(&slots));
        let facts = PilotFacts {
            aid,
            status: Status::Ok.as_str(),
            state: &digest,
        };
        self.note(progress, event::TOOL_OK, doc, facts)
    }

    fn fault(&self, progress: &mut Progress, aid: &str, fault: &Fault) -> Result<(), PilotError> {
        match status_of(fault) {
            Some(Status::InvalidPick) => self.invalid(progress, &fault.to_string()),
            Some(Status::BreakerTrip) => {
                let reason = format!("{} aid={aid}", fault.kind());
                self.trip(progress, &reason, aid)
            }
            Some(Status::Ok | Status::ToolError) | None => {
                self.failed(progress, aid, &fault.to_string(), fault.kind())
            }
        }
    }

    fn failed(
        &self,
        progress: &mut Progress,
        aid: &str,
        err: &str,
        fault: &str,
    ) -> Result<(), PilotError> {
        let status = Status::ToolError.as_str();
        let unknown = fault == OUTCOME_UNKNOWN;
        let doc = json!({
            "aid": aid, "status": status, "err": err, "fault": fault, "unknown": unknown,
        });
        let facts = PilotFacts {
            aid,
            status,
            state: "",
        };
        self.note(progress, event::TOOL_ERROR, doc, facts)
    }

    fn invalid(&self, progress: &mut Progress, why: &str) -> Result<(), PilotError> {
        let status = Status::InvalidPick.as_str();
        let aid = progress.pending.as_ref().map(|chosen| chosen.aid.clone());
        let aid = aid.unwrap_or_default();
        let doc = invalid_doc(&aid, why);
        let facts = PilotFacts {
            aid: &aid,
            status,
            state: "",
        };
        self.note(progress, event::INVALID_PICK, doc, facts)
    }

    fn trip(&self, progress: &mut Progress, reason: &str, aid: &str) -> Result<(), PilotError> {
        let status = Status::BreakerTrip.as_str();
        let doc = trip_doc(reason);
        let facts = PilotFacts {
            aid,
            status,
            state: "",
        };
        self.note(progress, event::BREAKER, doc, facts)
    }

    /// Has a person asked whether to go on.
    fn ask(&self, progress: &mut Progress) -> Result<(), PilotError> {
        let about = json!({
            "run_id": progress.header.run_id,
            "goal_id": progress.request.goal_id,
            "step": progress.step,
            "state_digest": ds_digest(&progress.slots),
        });
        let (input, shown) = (Digest::of_json(&about), about.to_string());
        let store = self.gate.store();
        let asked = store.ask(&self.caller, ASK_TOOL, input, Tier::Safe, &shown)?;
        let doc = json!({ "approval": asked.id.to_string() });
        self.note(progress, event::ASK_SUP, doc, PilotFacts::default())
    }

    /// Records what happened, then lets it count.
    fn note(
        &self,
        progress: &mut Progress,
        event: &str,
        doc: Value,
        facts: PilotFacts<'_>,
    ) -> Result<(), PilotError> {
        let run = progress.header.run_id.clone();
        let (place, step) = (progress.place, progress.step);
        callgate_store::failpoint("pilot.before_note");
        let store = self.gate.store();
        let note = PilotNote {
            event,
            step,
            ends: event::is_end(event),
        };
        store.pilot_append(&run, place, note, &doc, facts)?;
        callgate_store::failpoint("pilot.after_note");
        let happened = PilotEvent {
            event: event.to_owned(),
            step,
            at: self.gate.clock().now(),
            doc,
        };
        progress
            .apply(&happened)
            .map_err(|reason| PilotError::Broken { run, reason })
    }
}

/// What becomes of a run that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It is as it is.
    Stays,
    /// It goes on, in this try.
    GoesOn {
        /// Which.
        attempt: u32,
    },
    /// It waits for a person still, who is asked once more.
    AsksAnew,
}

/// The end that is to be recorded next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DueEnd {
    /// The goal is reached: all its slots are filled.
    Goal,
    /// Something was done too often.
    Limit(&'static str),
}

fn invalid_doc(aid: &str, err: &str) -> Value {
    json!({ "aid": aid, "status": Status::InvalidPick.as_str(), "err": err })
}

fn loop_doc(aid: &str) -> Value {
    json!({ "aid": aid, "times": MET_MAX + 1 })
}

fn trip_doc(reason: &str) -> Value {
    json!({ "reason": reason, "status": Status::BreakerTrip.as_str() })
}

/// What a selection comes to.
struct Meant {
    /// The tool; empty where there is none to call.
    aid: String,
    /// The run's inputs from here on.
    inputs: Map<String, Value>,
    /// The tool's.
    input: Value,
    /// Keys of the patch that are not a patch's to set.
    dropped: Vec<String>,
}

impl Meant {
    fn by(selection: &Selection, menu: &Menu, before: &Map<String, Value>) -> Self {
        let mut inputs = before.clone();
        let dropped = merge_patch(&mut inputs, selection.patch());
        let mut aid = aid_of(selection, menu);
        if !are_small(&inputs) {
            (aid, inputs) = (String::new(), before.clone());
        }
        let tool = menu.tools().find(|(_, tool)| tool.aid == aid);
        let input = tool.map_or(json!({}), |(_, tool)| input_for(tool, &inputs));
        Self {
            aid,
            inputs,
            input,
            dropped,
        }
    }
}

/// Whether inputs can be recorded with each choice.
fn are_small(inputs: &Map<String, Value>) -> bool {
    serde_json::to_string(inputs).is_ok_and(|text| text.len() <= INPUTS_BYTES_MAX)
}

/// The AID that a selection means; none where it means no tool, or one that is not on the menu.
fn aid_of(selection: &Selection, menu: &Menu) -> String {
    let sid = match selection.kind {
        SelectionKind::Pick => selection.sid.as_deref(),
        SelectionKind::AskSup | SelectionKind::Noop | SelectionKind::Invalid => None,
    };
    sid.and_then(|sid| menu.aid(sid))
        .unwrap_or_default()
        .to_owned()
}

/// A selection as records have it.
fn selection_value(selection: &Selection) -> Value {
    let mut value = json!({ "kind": selection.kind.as_str(), "raw": selection.raw });
    if let Some(sid) = &selection.sid {
        value["sid"] = json!(sid);
    }
    if let Some(patch) = &selection.input_patch_json {
        value["input_patch_json"] = json!(patch);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a run that somebody is at is worth waiting for.
    #[test]
    fn what_the_store_says() {
        let reason = String::new;
        let busy = StoreError::Busy { reason: reason() };
        assert!(matches!(PilotError::from(busy), PilotError::Busy(_)));
        let refused = StoreError::Refused { reason: reason() };
        assert!(matches!(PilotError::from(refused), PilotError::Store(_)));
    }
}
