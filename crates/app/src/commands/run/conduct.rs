//! Runs from the first to the last: each is a call, so many at a time, until nothing waits.

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, LeaseToken, Outcome, Wire,
};
use callgate_exporters::webhook::{NoticeError, Notifier, notice};
use callgate_gate::{Gate, Rehearsal};
use callgate_registry::setup::Parts;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Run;
use super::fan::{Child, Tally};
use super::live::Live;
use super::screen::{Counts, DRAW_EVERY_MS, Screen};
use crate::commands::{StopSignals, tend};
use crate::compose::chain;
use crate::error::CommandError;

/// Ends that are told of at a time.
const NOTICES_MAX: usize = 8;

/// Whoever sees to it all.
pub struct Conductor<'a> {
    pub parts: &'a Parts,
    pub gate: Arc<Gate>,
    pub live: Arc<Live>,
    pub notifier: Option<Arc<Notifier>>,
    pub asked: &'a Run,
    /// The input of the first run.
    pub order: Value,
}

/// What came of it.
pub struct All {
    /// The id of the first call, which its run has too.
    pub run_id: String,
    /// The report of the first run, or why there is none.
    pub first: Result<Value, Fault>,
    pub others: Vec<Brief>,
    pub tally: Tally,
    /// Why somebody could not be told of an end.
    pub untold: Vec<String>,
}

/// One of the other runs.
pub struct Brief {
    pub run_id: String,
    pub target: String,
    pub depth: u32,
    /// The outcome's word, or `refused`.
    pub outcome: String,
    pub message: String,
}

/// A run that is over.
struct Over {
    run_id: String,
    outcome: Outcome,
    /// Nothing for the first.
    child: Option<(String, u32)>,
}

/// What goes on.
struct Stage {
    running: JoinSet<Over>,
    notices: JoinSet<Result<(), NoticeError>>,
    notices_at_once: Arc<Semaphore>,
    cancel: Cancel,
    first: Option<Result<Value, Fault>>,
    run_id: String,
    others: Vec<Brief>,
    untold: Vec<String>,
}

impl Conductor<'_> {
    /// Whether the first run would begin, and its input; nothing is run or recorded.
    pub async fn rehearse(&self) -> Result<(Rehearsal, Value), Fault> {
        let mut call = self.first_call(&Cancel::new());
        let input = self.order.clone();
        if let Some(id) = &self.asked.run_id {
            let taken = self.parts.store.run(id).map_err(|error| Fault::Internal {
                message: chain(&error),
            })?;
            if taken.is_some() {
                return Err(Fault::conflict(format!("run {id} is there already")));
            }
        }
        call.key = None;
        let rehearsal = self.gate.rehearse(&call).await?;
        Ok((rehearsal, input))
    }

    /// Runs all of it.
    pub async fn conduct(self) -> Result<All, CommandError> {
        let mut signals = StopSignals::watch()?;
        let mut screen = Screen::new(self.asked.quiet, self.parts.clock.micros());
        let mut ticks = tokio::time::interval(Duration::from_millis(DRAW_EVERY_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut upkeep = std::pin::pin!(tend(&self.parts.store));
        let mut stage = self.begin();
        while !stage.running.is_empty() {
            // An arm that is dropped loses nothing: runs are tasks, and the rest is asked anew.
            tokio::select! {
                over = stage.running.join_next() => match over {
                    Some(over) => self.over(&mut stage, over?),
                    None => break,
                },
                () = signals.next() => {
                    self.live.fan.close();
                    stage.cancel.cancel();
                }
                () = self.live.fan.news.notified() => {}
                _ = ticks.tick() => self.show(&mut screen, &stage),
                never = &mut upkeep => match never {},
            }
            self.start_waiting(&mut stage);
        }
        screen.clear();
        deliver(&mut stage, &mut signals).await;
        Ok(All {
            run_id: stage.run_id,
            first: stage.first.unwrap_or(Err(Fault::Cancelled)),
            others: stage.others,
            tally: self.live.fan.tally(),
            untold: stage.untold,
        })
    }

    fn begin(&self) -> Stage {
        let mut stage = Stage {
            running: JoinSet::new(),
            notices: JoinSet::new(),
            notices_at_once: Arc::new(Semaphore::new(NOTICES_MAX)),
            cancel: Cancel::new(),
            first: None,
            run_id: String::new(),
            others: Vec::new(),
            untold: Vec::new(),
        };
        if let [_, .., script] = self.asked.command.as_slice() {
            self.live.fan.begin(script, &self.order["job"]);
        }
        let call = self.first_call(&stage.cancel);
        stage.run_id = run_of(&call);
        self.start(&mut stage, call, None);
        stage
    }

    fn first_call(&self, cancel: &Cancel) -> Call {
        let mut call = self.call(cancel, self.order.clone());
        call.key = self.asked.key.as_deref().and_then(IdempotencyKey::new);
        call.lease = self.asked.lease.as_deref().map(LeaseToken::new);
        call
    }

    /// What one call begins with. All of a command are of one trace.
    fn call(&self, cancel: &Cancel, input: Value) -> Call {
        let caller = Caller::uid(self.parts.environment.uid);
        let (id, cancel) = (self.gate.next_id(), cancel.child_token());
        let input = Document::from_value(input);
        let mut call = Call::new(id, "runs/start", input, caller, Wire::Gate, cancel);
        call.trace_id.clone_from(&self.asked.trace_id);
        call
    }

    fn start(&self, stage: &mut Stage, call: Call, child: Option<(String, u32)>) {
        let depth = child.as_ref().map_or(0, |(_, depth)| *depth);
        let run_id = run_of(&call);
        self.live.fan.runs(&run_id, depth);
        let gate = Arc::clone(&self.gate);
        stage.running.spawn(async move {
            let outcome = gate.call(&call).await;
            Over {
                run_id,
                outcome,
                child,
            }
        });
    }

    fn start_waiting(&self, stage: &mut Stage) {
        while stage.running.len() < self.asked.parallel as usize
            && let Some(child) = self.live.fan.next()
        {
            let call = self.call(&stage.cancel, self.input_of(&child));
            self.start(stage, call, Some((child.target, child.depth)));
        }
    }

    /// The input of a run that another asked for: a first try, and nobody's next one.
    fn input_of(&self, child: &Child) -> Value {
        let mut input = self.order.clone();
        if let Some(members) = input.as_object_mut() {
            for name in ["run_id", "attempt", "parent_run_id", "job_id"] {
                members.remove(name);
            }
        }
        input["command"] = json!(command_of(&self.asked.command, &child.target));
        input["job"] = child.params.clone();
        for (name, value) in [("source", &child.source), ("category", &child.category)] {
            if let Some(value) = value {
                input[name] = json!(value);
            }
        }
        input
    }

    fn over(&self, stage: &mut Stage, over: Over) {
        let run_id = over.run_id;
        self.live.fan.ended(&run_id);
        // What was told of earlier, under the same key, is not told again.
        let is_new = !over.outcome.replayed;
        let report = self.report_of(&run_id, over.outcome);
        if report
            .as_ref()
            .is_ok_and(|report| is_new && report["run_id"] == run_id)
        {
            self.tell(stage, &run_id, report.as_ref().ok());
        }
        let Some((target, depth)) = over.child else {
            stage.first = Some(report);
            return;
        };
        let word = |report: &Value, name: &str| report[name].as_str().unwrap_or("").to_owned();
        let (outcome, message) = match &report {
            Ok(report) => (word(report, "outcome"), word(report, "message")),
            Err(fault) => ("refused".to_owned(), fault.to_string()),
        };
        stage.others.push(Brief {
            run_id,
            target,
            depth,
            outcome,
            message,
        });
    }

    /// How a run ended, in its report: that of the store, since a call that was ended early has
    /// no output.
    fn report_of(&self, run_id: &str, outcome: Outcome) -> Result<Value, Fault> {
        let fault = match outcome.result {
            Ok(output) => return Ok(output.json.into_value()),
            Err(fault) => fault,
        };
        let kept = self.parts.store.run(run_id).ok().flatten();
        // Another run may have the name that this one was refused.
        let kept = kept.filter(|run| run.call == outcome.call);
        let kept = kept.and_then(|run| self.parts.store.run_report(&run.run_id).ok());
        let kept = kept.flatten();
        let kept = kept.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        let Some(mut report) = kept.or_else(|| report_in(&fault)) else {
            return Err(fault);
        };
        if report["outcome"] == "success" {
            // It went well, and its call could not be recorded: it is not known tomorrow.
            report["outcome"] = json!("policy_failure");
            report["message"] = json!(format!("not recorded: {fault}"));
        }
        Ok(report)
    }

    /// Tells whoever wants to know that a run has ended.
    fn tell(&self, stage: &mut Stage, run_id: &str, report: Option<&Value>) {
        let Some(notifier) = &self.notifier else {
            return;
        };
        let run = self.parts.store.run(run_id).ok().flatten();
        let (Some(run), Some(report)) = (run, report) else {
            return;
        };
        let body = notice(&run, report, self.parts.clock.now());
        let (notifier, slots) = (Arc::clone(notifier), Arc::clone(&stage.notices_at_once));
        let (dialer, clock) = (
            Arc::clone(&self.parts.dialer),
            Arc::clone(&self.parts.clock),
        );
        stage.notices.spawn(async move {
            let _slot = slots.acquire().await;
            notifier.tell(&dialer, &*clock, &body).await
        });
    }

    fn show(&self, screen: &mut Screen, stage: &Stage) {
        let counts = Counts {
            ended: stage.others.len() + usize::from(stage.first.is_some()),
            running: stage.running.len(),
            waiting: self.live.fan.waiting(),
        };
        let now = self.parts.clock.micros();
        let title = format!("run {}", stage.run_id);
        screen.show(now, &title, &self.live.seen(), counts);
    }
}

/// Waits until everybody was told, or we are told to stop.
async fn deliver(stage: &mut Stage, signals: &mut StopSignals) {
    loop {
        // Interrupting the delivery drops the notices that are still under way, as the signal asks;
        // the report names their number.
        let told = tokio::select! {
            told = stage.notices.join_next() => told,
            () = signals.next() => {
                let left = stage.notices.len();
                stage.untold.push(format!("{left} ends were told to nobody: interrupted"));
                None
            }
        };
        match told {
            None => break,
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => stage.untold.push(chain(&error)),
            Some(Err(error)) => stage.untold.push(error.to_string()),
        }
    }
}

/// The name of the run that a call is: the one that was asked for, or that of the call.
fn run_of(call: &Call) -> String {
    let asked = call.input.value()["run_id"].as_str();
    asked.map_or_else(|| call.id.to_string(), str::to_owned)
}

/// The same executor with another script: in place of the last word, or after the only one.
fn command_of(command: &[String], target: &str) -> Vec<String> {
    let kept = command.len().saturating_sub(1).max(1);
    let words = command.iter().take(kept).map(String::as_str);
    words.chain([target]).map(str::to_owned).collect()
}

/// The report that a failed call brings along.
fn report_in(fault: &Fault) -> Option<Value> {
    let data = fault.data();
    let text = data["content"][0]["text"].as_str()?;
    let report: Value = serde_json::from_str(text).ok()?;
    report["outcome"].is_string().then_some(report)
}

#[cfg(test)]
mod tests {
    use super::command_of;

    /// ST-10: the executor is started with the script as its argument.
    #[test]
    fn the_script_is_the_last_word() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command_of(&words, "next.py").join(" ")
        };
        assert_eq!(of(&["python3", "-m", "x", "a.py"]), "python3 -m x next.py");
        assert_eq!(of(&["./executor"]), "./executor next.py");
    }
}
