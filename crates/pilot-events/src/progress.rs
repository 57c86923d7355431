//! The progress of a run, computed from its events alone. The pilot that continues a run and the
//! replay of it read the same events in the same way as the pilot that wrote them.

use std::collections::{BTreeMap, BTreeSet};

use callgate_call::{Slots, Timestamp};
use callgate_store::PilotEvent;
use callgate_wires::toolhost::{RunHeader, RunRequest, read_patch};
use serde_json::{Map, Value};

use crate::state;

/// The AID of the choice to do nothing more.
pub const NOOP_AID: &str = "AID.NOOP.v1";

/// The names of events, in the contract's words where it has some.
#[allow(missing_docs, reason = "the names say what they are")]
pub mod event {
    pub const BEGIN: &str = "begin";
    pub const SELECTED: &str = "selected";
    pub const TOOL_OK: &str = "tool_ok";
    pub const TOOL_ERROR: &str = "tool_error";
    pub const INVALID_PICK: &str = "invalid_pick";
    pub const LOOP_GUARD: &str = "loop_guard_triggered";
    pub const BREAKER: &str = "breaker";
    pub const NOOP: &str = "noop";
    pub const ASK_SUP: &str = "ask_sup";
    pub const GOAL_DONE: &str = "goal_done";
    pub const RESUMED: &str = "resumed";

    /// True for those that a run ends with, until it is taken up again.
    pub fn is_end(event: &str) -> bool {
        [TOOL_ERROR, BREAKER, NOOP, ASK_SUP, GOAL_DONE].contains(&event)
    }
}

/// How far a run is.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say what they are")]
pub struct Progress {
    pub header: RunHeader,
    pub request: RunRequest,
    /// The inputs, with every patch so far.
    pub inputs: Map<String, Value>,
    pub slots: Slots,
    /// The newest step.
    pub step: u32,
    /// Where the next event belongs.
    pub place: u32,
    /// A choice that was made and not yet carried out.
    pub pending: Option<Chosen>,
    /// How it ended, unless it goes on.
    pub end: Option<RunEnd>,
    /// Which try of the run this is, from 1.
    pub attempt: u32,
    /// Steps and invalid picks of this try.
    pub steps: u32,
    pub invalid_picks: u32,
    /// How often a tool was called at a menu and a state, in this try.
    pub met: BTreeMap<(String, String), u32>,
    /// AIDs that were called with success, and those that were no use in this try.
    pub done: BTreeSet<String>,
    pub refused: BTreeSet<String>,
    /// What was called, and how it ended.
    pub history: Vec<(String, String)>,
}

/// A choice that was recorded.
#[allow(missing_docs, reason = "the names are the record's")]
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub kind: String,
    pub aid: String,
    pub input: Value,
    /// No call was made of it before this.
    pub at: Timestamp,
    pub menu_digest: String,
    pub state_digest: String,
}

/// The effect of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Nothing more: the run ends.
    Noop,
    /// A person is asked.
    Ask,
    /// A tool is called.
    Call,
    /// It means none of these.
    Nothing,
}

impl Chosen {
    /// The effect of this choice.
    pub fn deed(&self) -> Deed {
        match self.kind.as_str() {
            "NOOP" => Deed::Noop,
            "PICK" if self.aid == NOOP_AID => Deed::Noop,
            "ASK_SUP" => Deed::Ask,
            "PICK" if !self.aid.is_empty() => Deed::Call,
            _ => Deed::Nothing,
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// There is nothing more to do.
    Noop,
    /// A person is asked.
    AskSup {
        /// The approval that waits for a word.
        approval: String,
    },
    /// The goal is reached.
    GoalDone {
        /// Which.
        goal_id: String,
    },
    /// A tool failed.
    ToolError {
        /// Which.
        aid: String,
        /// How.
        err: String,
        /// The fault's kind, in the words of every wire.
        fault: String,
        /// Nobody knows whether it had its effect: it must not be tried again.
        unknown: bool,
    },
    /// Something was done too often.
    Breaker {
        /// What.
        reason: String,
    },
}

impl RunEnd {
    /// True for the ends that are none of a failure.
    #[must_use]
    pub fn is_good(&self) -> bool {
        matches!(
            self,
            Self::Noop | Self::AskSup { .. } | Self::GoalDone { .. }
        )
    }

    /// True if its call was cancelled, as happens to one that is under way when we are told to stop.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        matches!(self, Self::ToolError { fault, .. } if fault == "cancelled")
    }
}

/// The line's words. TH-146.
impl std::fmt::Display for RunEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Noop => f.write_str("noop"),
            Self::AskSup { .. } => f.write_str("ask_sup (stored)"),
            Self::GoalDone { goal_id } => write!(f, "goal_done {goal_id}"),
            Self::ToolError { aid, err, .. } => write!(f, "tool_error aid={aid} err={err}"),
            Self::Breaker { reason } => write!(f, "breaker({reason})"),
        }
    }
}

impl Progress {
    /// The progress that these events tell of.
    pub fn read(events: &[PilotEvent]) -> Result<Self, String> {
        let (first, rest) = events.split_first().ok_or("there is no such run")?;
        let mut progress = Self::begun(first)?;
        for event in rest {
            progress.apply(event)?;
        }
        Ok(progress)
    }

    /// That of a run whose first event this is.
    pub fn begun(first: &PilotEvent) -> Result<Self, String> {
        if first.event != event::BEGIN {
            return Err(format!("a run begins with `begin`, not `{}`", first.event));
        }
        let header = RunHeader::from_value(&first.doc["header"]).map_err(|e| e.to_string())?;
        let request = RunRequest::from_value(&first.doc["request"]).map_err(|e| e.to_string())?;
        Ok(Self {
            header,
            inputs: request.inputs.clone(),
            request,
            slots: Slots::default(),
            step: 0,
            place: 1,
            pending: None,
            end: None,
            attempt: 1,
            steps: 0,
            invalid_picks: 0,
            met: BTreeMap::new(),
            done: BTreeSet::new(),
            refused: BTreeSet::new(),
            history: Vec::new(),
        })
    }

    /// One event further.
    pub fn apply(&mut self, happened: &PilotEvent) -> Result<(), String> {
        let doc = &happened.doc;
        match happened.event.as_str() {
            event::SELECTED => self.selected(happened)?,
            event::TOOL_OK => self.tool_ok(doc)?,
            event::TOOL_ERROR => {
                self.called(doc, "TOOL_ERROR");
                self.end = Some(RunEnd::ToolError {
                    aid: text(doc, "aid"),
                    err: text(doc, "err"),
                    fault: text(doc, "fault"),
                    unknown: doc["unknown"] == true,
                });
            }
            event::INVALID_PICK => {
                self.invalid_picks += 1;
                self.refused.insert(text(doc, "aid"));
                self.called(doc, "INVALID_PICK");
            }
            event::LOOP_GUARD => {}
            event::BREAKER => {
                self.pending = None;
                let reason = text(doc, "reason");
                self.end = Some(RunEnd::Breaker { reason });
            }
            event::NOOP => {
                self.pending = None;
                self.end = Some(RunEnd::Noop);
            }
            event::ASK_SUP => {
                // A call that a person must see first is still to be made.
                if doc["call_waits"] != true {
                    self.pending = None;
                }
                let approval = text(doc, "approval");
                self.end = Some(RunEnd::AskSup { approval });
            }
            event::GOAL_DONE => {
                let goal_id = text(doc, "goal_id");
                self.end = Some(RunEnd::GoalDone { goal_id });
            }
            event::RESUMED => self.resumed(happened),
            other => return Err(format!("no event is called `{other}`")),
        }
        self.place += 1;
        Ok(())
    }

    /// How often a tool was called at the menu and the state of this choice.
    pub fn met(&self, chosen: &Chosen) -> u32 {
        let at = (chosen.menu_digest.clone(), chosen.state_digest.clone());
        self.met.get(&at).copied().unwrap_or(0)
    }

    fn selected(&mut self, happened: &PilotEvent) -> Result<(), String> {
        let doc = &happened.doc;
        let inputs = doc["inputs"].as_object();
        self.inputs = inputs.ok_or("a choice without inputs")?.clone();
        self.step = happened.step;
        self.steps += 1;
        self.pending = Some(Chosen {
            kind: text(&doc["selection"], "kind"),
            aid: text(doc, "aid"),
            input: doc["input"].clone(),
            at: happened.at,
            menu_digest: text(doc, "menu_digest"),
            state_digest: text(doc, "state_digest"),
        });
        Ok(())
    }

    fn tool_ok(&mut self, doc: &Value) -> Result<(), String> {
        let patch = read_patch(&doc["tx_patch"]).map_err(|error| error.to_string())?;
        state::apply(&mut self.slots, patch).map_err(|error| error.to_string())?;
        if let Some(chosen) = &self.pending {
            let at = (chosen.menu_digest.clone(), chosen.state_digest.clone());
            *self.met.entry(at).or_default() += 1;
        }
        self.done.insert(text(doc, "aid"));
        self.called(doc, "OK");
        Ok(())
    }

    fn called(&mut self, doc: &Value, status: &str) {
        self.pending = None;
        self.history.push((text(doc, "aid"), status.to_owned()));
    }

    /// Limits are those of a try; what was done stays done.
    fn resumed(&mut self, happened: &PilotEvent) {
        self.end = None;
        // A call that waited for a person was not made before this.
        if let Some(chosen) = &mut self.pending {
            chosen.at = happened.at;
        }
        if happened.doc["attempt"]
            .as_u64()
            .is_some_and(|n| n > u64::from(self.attempt))
        {
            self.attempt += 1;
            (self.steps, self.invalid_picks) = (0, 0);
            self.met.clear();
            self.refused.clear();
        }
    }
}

fn text(doc: &Value, name: &str) -> String {
    doc[name].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn happened(event: &str, step: u32, at: u64, doc: Value) -> PilotEvent {
        PilotEvent {
            event: event.to_owned(),
            step,
            at: Timestamp(at),
            doc,
        }
    }

    /// TH-146: a call that waited for a person was not made before that person's word: how long it
    /// waited says nothing of its key.
    #[test]
    fn a_call_that_waited_is_as_old_as_its_leave() {
        let begun = json!({ "header": { "run_id": "0f" }, "request": { "goal_id": "g" } });
        let chosen = json!({ "inputs": {}, "input": {}, "aid": "AID.A.B.v1",
                             "selection": { "kind": "PICK" } });
        let asked = json!({ "approval": "a", "aid": "AID.A.B.v1", "call_waits": true });
        let mut events = vec![
            happened(event::BEGIN, 0, 1, begun),
            happened(event::SELECTED, 1, 2, chosen),
            happened(event::ASK_SUP, 1, 3, asked),
        ];
        let pending = |events: &[PilotEvent]| Progress::read(events).unwrap().pending.unwrap().at;
        assert_eq!(pending(&events), Timestamp(2));
        events.push(happened(event::RESUMED, 1, 90, json!({ "attempt": 1 })));
        assert_eq!(pending(&events), Timestamp(90));
    }
}
