//! A run once more: what was chosen is read again, the slots are rebuilt from the recorded
//! patches, and deterministic tools are run again, wherever they are from. What follows from what
//! came before must be as it follows; what came from outside must be what the chain of this
//! workspace says, if the run is one of its own. The first thing that is not as recorded is named.
//! TH-148.
//!
//! Nothing is recorded of the run, and nothing with an effect is run: what writes, and what depends
//! on files or machines, gives what it gave.

mod recorded;

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Call, Digest, Document, Fault, Output, Slots, Tier, Tool, Wire};
use callgate_gate::{Entry, Gate};
use callgate_store::PilotEvent;
use callgate_wires::toolhost::{RunHeader, Status, patch_value, read_patch};
use serde_json::{Value, json};

use super::menu::Menu;
use super::progress::{Chosen, event};
use super::select::{fallback, judge, settle};
use super::state::{OUTPUT_SLOT, after, apply, ds_digest, ds_digest_fast, fits, patch};
use super::{
    Deed, DueEnd, MET_MAX, Meant, NO_TOOL, OUTCOME_UNKNOWN, Pilot, Progress, RunEnd, invalid_doc,
    loop_doc, selection_value, trip_doc,
};
use callgate_doors::toolhost::status_of;
use recorded::Kept;

/// Faults of a deterministic tool that come again: its own words, and what it gives.
const FAULTS_AGAIN: [&str; 2] = ["tool_failed", "bad_output"];
/// How long a call waits for its tool's rate, all in all, and how long at a time at least.
const RATE_WAIT_MAX: Duration = Duration::from_secs(60);
const RATE_WAIT_MIN: Duration = Duration::from_millis(1);
/// Why a tool can not be called now.
const NOT_NOW: [&str; 3] = ["breaker_open", "rate_limited", "unavailable"];

/// A replay that found nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Events that were read.
    pub events: usize,
    /// Tools that were run again, with the same outcome.
    pub rerun: usize,
    /// Tools whose recorded outcome was taken.
    pub taken: usize,
}

/// The first thing that is not as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The event's place in the run, from 1.
    pub event: usize,
    /// Its step.
    pub step: u32,
    /// The tool it is about.
    pub aid: String,
    /// What differs.
    pub what: String,
    /// What was recorded.
    pub recorded: Value,
    /// What is.
    pub found: Value,
}

/// Why a replay did not come to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Halt {
    /// Something is not as recorded.
    Differs(Box<Difference>),
    /// A tool can not be had now, which says nothing of the run.
    NotRun {
        /// Which.
        aid: String,
        /// The step that called it.
        step: u32,
        /// Why it can not.
        fault: Fault,
    },
}

impl From<Box<Difference>> for Halt {
    fn from(difference: Box<Difference>) -> Self {
        Self::Differs(difference)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN_CHARS_MAX: usize = 200;
        let shown = |value: &Value| value.to_string().chars().take(SHOWN_CHARS_MAX).collect();
        let (recorded, found): (String, String) = (shown(&self.recorded), shown(&self.found));
        write!(f, "event {} (step {}", self.event, self.step)?;
        if !self.aid.is_empty() {
            write!(f, ", {}", self.aid)?;
        }
        write!(f, "): {}: recorded {recorded}, found {found}", self.what)
    }
}

impl Pilot<'_> {
    /// Replays a run from its events.
    pub async fn replay(&self, events: &[PilotEvent]) -> Result<Replayed, Halt> {
        let broken = |index: usize, reason: String| {
            let step = events.get(index).map_or(0, |happened| happened.step);
            Box::new(Difference {
                event: index + 1,
                step,
                aid: String::new(),
                what: "the record makes no sense".to_owned(),
                recorded: json!(reason),
                found: Value::Null,
            })
        };
        let first = events
            .first()
            .ok_or_else(|| broken(0, "no events".to_owned()))?;
        let mut progress = Progress::begun(first).map_err(|reason| broken(0, reason))?;
        let kept = Kept::of(self.gate, &progress.header.run_id, events);
        let kept = kept.map_err(|error| broken(0, error.to_string()))?;
        let mut replayed = Replayed {
            events: events.len(),
            ..Replayed::default()
        };
        for (index, happened) in events.iter().enumerate() {
            let place = Place {
                event: index + 1,
                happened,
                before: index.checked_sub(1).and_then(|before| events.get(before)),
            };
            match self.follows(place, &progress).await? {
                Followed::Rerun => replayed.rerun += 1,
                Followed::Taken => replayed.taken += 1,
                Followed::Plainly => {}
            }
            kept.check(place)?;
            if index > 0 {
                progress
                    .apply(happened)
                    .map_err(|reason| broken(index, reason))?;
            }
        }
        Ok(replayed)
    }

    /// Whether an event is what comes of those before it.
    async fn follows(&self, place: Place<'_>, progress: &Progress) -> Result<Followed, Halt> {
        if place.before.is_none() {
            place.begins(progress)?;
            return Ok(Followed::Plainly);
        }
        let name = place.happened.event.as_str();
        let choice = progress.end.is_none() && progress.pending.is_none();
        let due = choice.then(|| self.due_end(progress));
        place.is_of_step(progress.step + u32::from(due == Some(None)))?;
        match (&progress.end, &progress.pending) {
            (Some(end), _) => place.resumes(progress, end)?,
            (None, Some(chosen)) => return self.acted(place, progress, chosen).await,
            (None, None) => match due.flatten() {
                Some(DueEnd::Goal) => {
                    place.is(event::GOAL_DONE)?;
                    place.says(&json!({ "goal_id": progress.request.goal_id }))?;
                }
                Some(DueEnd::Limit(reason)) => {
                    place.is(event::BREAKER)?;
                    place.says(&trip_doc(reason))?;
                }
                None if name == event::SELECTED => self.reselect(place, progress)?,
                None => return Err(place.is_not(event::SELECTED).into()),
            },
        }
        Ok(Followed::Plainly)
    }

    /// The choice: menu, state, what the text says, and what it makes of the inputs.
    fn reselect(&self, place: Place<'_>, progress: &Progress) -> Result<(), Box<Difference>> {
        let menu = Menu::of(self.gate, &self.caller, &progress.request);
        let mode = progress.request.control_mode;
        place.same("state_digest", json!(ds_digest(&progress.slots)))?;
        place.same("menu_digest", json!(menu.digest()))?;
        place.same("control_mode", json!(mode.as_str()))?;
        let fallback = fallback(&menu, progress);
        place.same("fallback_raw", json!(fallback.raw))?;
        let policy = place.policy(mode.asks_policy(), &menu)?;
        let selection = settle(mode, fallback, policy.as_ref());
        place.same("selection", selection_value(&selection))?;
        let meant = Meant::by(&selection, &menu, &progress.inputs);
        place.same("aid", json!(meant.aid))?;
        place.same("inputs", Value::Object(meant.inputs))?;
        place.same("input", meant.input)?;
        place.same("dropped_keys", json!(meant.dropped))
    }

    /// What came of a choice.
    async fn acted(
        &self,
        place: Place<'_>,
        progress: &Progress,
        chosen: &Chosen,
    ) -> Result<Followed, Halt> {
        match chosen.deed() {
            Deed::Noop => {
                place.is(event::NOOP)?;
                place.says(&json!({}))?;
            }
            Deed::Ask => {
                place.is(event::ASK_SUP)?;
                place.says(&json!({ "approval": place.happened.doc["approval"] }))?;
            }
            Deed::Nothing => {
                place.is(event::INVALID_PICK)?;
                place.says(&invalid_doc(&chosen.aid, NO_TOOL))?;
            }
            Deed::Call if progress.met(chosen) >= MET_MAX => place.loops(&chosen.aid)?,
            Deed::Call => return self.called(place, progress, chosen).await,
        }
        Ok(Followed::Plainly)
    }

    /// What came of a call.
    async fn called(
        &self,
        place: Place<'_>,
        progress: &Progress,
        chosen: &Chosen,
    ) -> Result<Followed, Halt> {
        let catalog = self.gate.catalog();
        let entry = catalog.find(&chosen.aid);
        let entry = entry.map_err(|_| place.differs("tool", json!(chosen.aid), Value::Null))?;
        let doc = &place.happened.doc;
        match place.happened.event.as_str() {
            event::TOOL_OK => self.succeeded_again(place, progress, chosen, entry).await,
            event::TOOL_ERROR => {
                let fault = doc["fault"].as_str().unwrap_or_default();
                place.says(&json!({
                    "aid": chosen.aid,
                    "status": Status::ToolError.as_str(),
                    "err": doc["err"],
                    "fault": fault,
                    "unknown": fault == OUTCOME_UNKNOWN,
                }))?;
                let again = FAULTS_AGAIN.contains(&fault);
                self.failed_again(place, progress, chosen, (entry, again))
                    .await
            }
            event::INVALID_PICK => {
                let err = doc["err"].as_str().unwrap_or_default();
                place.says(&invalid_doc(&chosen.aid, err))?;
                self.failed_again(place, progress, chosen, (entry, true))
                    .await
            }
            event::BREAKER => {
                let reason = doc["reason"].as_str().unwrap_or_default();
                let tail = format!(" aid={}", chosen.aid);
                let kind = reason.strip_suffix(&tail).unwrap_or_default();
                if !NOT_NOW.contains(&kind) {
                    let found = json!(format!("none of {}", NOT_NOW.join(", ")));
                    return Err(place.differs("reason", json!(reason), found).into());
                }
                place.says(&trip_doc(reason))?;
                Ok(Followed::Taken)
            }
            event::ASK_SUP => {
                let asks =
                    self.gate
                        .asks_leave(&entry.tool, &self.caller, Wire::Pilot.lease_group());
                let approval = &doc["approval"];
                place.says(
                    &json!({ "aid": chosen.aid, "approval": approval, "call_waits": asks }),
                )?;
                Ok(Followed::Taken)
            }
            _ => Err(place.is_not(event::TOOL_OK).into()),
        }
    }

    /// A tool's outcome.
    async fn succeeded_again(
        &self,
        place: Place<'_>,
        progress: &Progress,
        chosen: &Chosen,
        entry: &Entry,
    ) -> Result<Followed, Halt> {
        let tool = &entry.tool;
        place.same("aid", json!(chosen.aid))?;
        place.same("status", json!(Status::Ok.as_str()))?;
        place.same("deterministic", json!(tool.deterministic))?;
        place.same("replay_inputs", json!(tool.replay_inputs))?;
        let again = may_rerun(self.gate, &self.caller, tool);
        let slots = match again {
            true => {
                let output = self.once_more(progress, chosen).await?;
                let output = output.map_err(|fault| {
                    place.differs("status", json!("OK"), json!(fault.to_string()))
                })?;
                place.same_output(&output)?;
                let slots = after(&progress.slots, tool, &output);
                place.same("tx_patch", patch_value(&patch(&progress.slots, &slots)))?;
                slots
            }
            false => place.taken(progress)?,
        };
        place.same("ds_digest", json!(ds_digest(&slots)))?;
        place.same("ds_digest_fast", json!(ds_digest_fast(&slots)))?;
        if again {
            return Ok(Followed::Rerun);
        }
        if !tool.slots {
            place.put_out(progress, tool, &slots)?;
        }
        Ok(Followed::Taken)
    }

    /// A call that came to nothing: one that never can comes to the same, and so does that of a
    /// deterministic tool, if its fault is one that comes `again`.
    async fn failed_again(
        &self,
        place: Place<'_>,
        progress: &Progress,
        chosen: &Chosen,
        (entry, again): (&Entry, bool),
    ) -> Result<Followed, Halt> {
        let again = again && may_rerun(self.gate, &self.caller, &entry.tool);
        let result = match entry.check_input(&chosen.input) {
            Err(fault) => Err(fault),
            Ok(()) if again => self.once_more(progress, chosen).await?,
            Ok(()) => return Ok(Followed::Taken),
        };
        let status = &place.happened.doc["status"];
        let fault = match result {
            Ok(_) => return Err(place.differs("status", status.clone(), json!("OK")).into()),
            Err(fault) => fault,
        };
        let found = status_of(&fault).unwrap_or(Status::ToolError);
        place.same("status", json!(found.as_str()))?;
        if found == Status::ToolError {
            place.same("fault", json!(fault.kind()))?;
        }
        place.same("err", json!(fault.to_string()))?;
        Ok(match again {
            true => Followed::Rerun,
            false => Followed::Plainly,
        })
    }

    /// Runs a tool again. A rate is waited out, for what a run did over an hour is replayed at once.
    async fn once_more(
        &self,
        progress: &Progress,
        chosen: &Chosen,
    ) -> Result<Result<Output, Fault>, Halt> {
        let mut patience = RATE_WAIT_MAX;
        loop {
            let fault = match self.rerun(progress, chosen).await {
                Err(fault) if status_of(&fault) == Some(Status::BreakerTrip) => fault,
                result => return Ok(result),
            };
            let Some(wait) = rate_wait(&fault, patience) else {
                return Err(Halt::NotRun {
                    aid: chosen.aid.clone(),
                    step: progress.step,
                    fault,
                });
            };
            patience -= wait;
            tokio::time::sleep(wait).await;
        }
    }

    async fn rerun(&self, progress: &Progress, chosen: &Chosen) -> Result<Output, Fault> {
        let (id, caller) = (self.gate.next_id(), self.caller.clone());
        let input = Document::from_value(chosen.input.clone());
        let cancel = Arc::clone(&self.cancel);
        let mut call = Call::new(id, &chosen.aid, input, caller, Wire::Pilot, cancel);
        call.slots = progress.slots.clone();
        call.fits = |_, output| fits(output);
        call.is_rerun = true;
        self.gate.call(&call).await.result
    }
}

/// How long a rate is waited for, if there is patience for it. One that gives no time to wait for
/// is asked again a little later.
fn rate_wait(fault: &Fault, patience: Duration) -> Option<Duration> {
    let Fault::RateLimited { retry_after, .. } = fault else {
        return None;
    };
    let wait = RATE_WAIT_MIN.max(*retry_after);
    (wait <= patience).then_some(wait)
}

/// How an event was found to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// From the events before it.
    Plainly,
    /// Its tool gave the same again.
    Rerun,
    /// It was taken as recorded.
    Taken,
}

/// True for tools that give the same again and do nothing else.
fn may_rerun(gate: &Gate, caller: &callgate_call::Caller, tool: &Tool) -> bool {
    tool.deterministic
        && tool.tier == Tier::Safe
        && tool.replay_inputs.is_empty()
        && !gate.asks_leave(tool, caller, Wire::Pilot.lease_group())
}

/// An event that is looked at.
#[derive(Clone, Copy)]
struct Place<'a> {
    event: usize,
    happened: &'a PilotEvent,
    before: Option<&'a PilotEvent>,
}

impl Place<'_> {
    fn aid(self) -> String {
        self.happened.doc["aid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    fn differs(self, what: &str, recorded: Value, found: Value) -> Box<Difference> {
        Box::new(Difference {
            event: self.event,
            step: self.happened.step,
            aid: self.aid(),
            what: what.to_owned(),
            recorded,
            found,
        })
    }

    fn same(self, name: &str, found: Value) -> Result<(), Box<Difference>> {
        let recorded = &self.happened.doc[name];
        if *recorded == found {
            return Ok(());
        }
        Err(self.differs(name, recorded.clone(), found))
    }

    /// Compares the recorded digest of an output, which release 0.1.0 may have made.
    fn same_output(self, output: &Output) -> Result<(), Box<Difference>> {
        let recorded = self.happened.doc["output_digest"].as_str();
        let recorded = recorded.and_then(Digest::from_hex);
        if recorded.is_some_and(|recorded| recorded.is_of_json(output.json.value())) {
            return Ok(());
        }
        self.same("output_digest", json!(output.json.digest().to_hex()))
    }

    /// Whether the event's document is this one, and nothing else.
    fn says(self, wanted: &Value) -> Result<(), Box<Difference>> {
        let none = serde_json::Map::new();
        let recorded = self.happened.doc.as_object().unwrap_or(&none);
        let wanted = wanted.as_object().unwrap_or(&none);
        for name in wanted.keys().chain(recorded.keys()) {
            self.same(name, wanted.get(name).cloned().unwrap_or_default())?;
        }
        Ok(())
    }

    fn is_not(self, wanted: &str) -> Box<Difference> {
        self.differs("event", json!(self.happened.event), json!(wanted))
    }

    fn is(self, wanted: &str) -> Result<(), Box<Difference>> {
        match self.happened.event == wanted {
            true => Ok(()),
            false => Err(self.is_not(wanted)),
        }
    }

    fn is_of_step(self, step: u32) -> Result<(), Box<Difference>> {
        match self.happened.step == step {
            true => Ok(()),
            false => Err(self.differs("step", json!(self.happened.step), json!(step))),
        }
    }

    fn begins(self, progress: &Progress) -> Result<(), Box<Difference>> {
        let run = progress.header.run_id.clone();
        let header = RunHeader::new(run, &progress.request);
        self.is_of_step(0)?;
        let request = progress.request.to_value();
        self.says(&json!({ "header": header.to_value(), "request": request }))
    }

    /// A run that ended was taken up again, or its person was asked anew.
    fn resumes(self, progress: &Progress, end: &RunEnd) -> Result<(), Box<Difference>> {
        if let (RunEnd::AskSup { approval }, None) = (end, &progress.pending)
            && self.happened.event == event::ASK_SUP
        {
            return self.asks_anew(approval);
        }
        self.is(event::RESUMED)?;
        let recorded = self.happened.doc["attempt"].as_u64();
        let next = u64::from(progress.attempt) + 1;
        let same = matches!(end, RunEnd::AskSup { .. }) || end.was_stopped();
        match end {
            RunEnd::ToolError { unknown: true, .. } | RunEnd::Noop | RunEnd::GoalDone { .. } => {
                Err(self.is_not("none: the run had ended"))
            }
            _ if same && recorded == Some(next - 1) => Ok(()),
            RunEnd::AskSup { .. } => self.same("attempt", json!(next - 1)),
            RunEnd::ToolError { .. } | RunEnd::Breaker { .. } => self.same("attempt", json!(next)),
        }
    }

    /// Nobody answered the ask before, so there is another.
    fn asks_anew(self, before: &str) -> Result<(), Box<Difference>> {
        let approval = &self.happened.doc["approval"];
        if approval == before {
            let found = json!("another approval");
            return Err(self.differs("approval", approval.clone(), found));
        }
        self.says(&json!({ "approval": approval }))
    }

    /// What the policy program said, or why it said nothing that counts.
    fn policy(
        self,
        asked: bool,
        menu: &Menu,
    ) -> Result<Option<Result<String, String>>, Box<Difference>> {
        let doc = &self.happened.doc;
        let text = |name: &str| doc.get(name).and_then(Value::as_str).map(str::to_owned);
        match (asked, text("policy_raw"), text("policy_failure")) {
            (false, None, None) => Ok(None),
            (true, Some(raw), None) => match judge(&raw, &json!({ "menu": menu.to_value() })) {
                Ok(()) => Ok(Some(Ok(raw))),
                Err(why) => Err(self.differs("policy_raw", json!(raw), json!(why))),
            },
            (true, None, Some(why)) => Ok(Some(Err(why))),
            (false, raw, why) => Err(self.differs("policy_raw", json!(raw.or(why)), Value::Null)),
            (true, raw, _) => {
                let found = json!("what the policy program said, or why it failed");
                Err(self.differs("policy_raw", json!(raw), found))
            }
        }
    }

    /// The loop guard's word, and then the end. Whoever was killed between the two says it again.
    fn loops(self, aid: &str) -> Result<(), Box<Difference>> {
        let said = self.before.is_some_and(|b| b.event == event::LOOP_GUARD);
        if said && self.happened.event == event::BREAKER {
            return self.says(&trip_doc("loop_guard"));
        }
        self.is(event::LOOP_GUARD)?;
        self.says(&loop_doc(aid))
    }

    /// The slots as the recorded patch makes them.
    fn taken(self, progress: &Progress) -> Result<Slots, Box<Difference>> {
        let recorded = &self.happened.doc["tx_patch"];
        let mut slots = progress.slots.clone();
        let patched = read_patch(recorded).and_then(|patch| apply(&mut slots, patch));
        patched.map_err(|error| {
            self.differs("tx_patch", recorded.clone(), json!(error.to_string()))
        })?;
        Ok(slots)
    }

    /// Whether the slots hold the output, where all of it is put into one.
    fn put_out(
        self,
        progress: &Progress,
        tool: &Tool,
        slots: &Slots,
    ) -> Result<(), Box<Difference>> {
        let put = slots.0.get(&OUTPUT_SLOT).map(|put| &put.content_json);
        let text = put.cloned().unwrap_or_default();
        let value = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let output = Output::new(Document::new(value, text));
        self.same_output(&output)?;
        let slots = after(&progress.slots, tool, &output);
        self.same("tx_patch", patch_value(&patch(&progress.slots, &slots)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiting for a rate has an end, also where it gives no time to wait for.
    #[test]
    fn patience_for_a_rate_ends() {
        for (retry_after, waits) in [
            (Duration::ZERO, 60_000),
            (RATE_WAIT_MAX, 1),
            (RATE_WAIT_MAX + RATE_WAIT_MIN, 0),
        ] {
            let fault = Fault::rate_limited(retry_after);
            let next = |patience: &Duration| Some(*patience - rate_wait(&fault, *patience)?);
            let left = std::iter::successors(Some(RATE_WAIT_MAX), next);
            assert_eq!(left.take(waits + 2).count(), waits + 1, "{retry_after:?}");
        }
        assert_eq!(rate_wait(&Fault::Cancelled, RATE_WAIT_MAX), None);
    }
}
