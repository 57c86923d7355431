//! A run as a document for display: how far it is, what it did, what is in its slots.

use callgate_store::PilotEvent;
use callgate_wires::toolhost::artifact_value;
use serde_json::{Map, Value, json};

use crate::state::{ds_digest, to_wire};
use crate::{Progress, RunEnd};

/// The report and the slots of the run that consists of `events`.
pub fn report_of_events(events: &[PilotEvent]) -> Result<Value, String> {
    let progress = Progress::read(events)?;
    let slots = progress.slots.0.iter().map(|(slot, artifact)| {
        let artifact = artifact_value(&to_wire(artifact.clone()));
        (slot.to_string(), artifact)
    });
    let slots: Map<String, Value> = slots.collect();
    Ok(json!({ "report": report(&progress), "slots": slots }))
}

/// How far a run is; `end` is null while it goes on.
#[must_use]
pub fn report(progress: &Progress) -> Value {
    let (end, data) = match &progress.end {
        None => (Value::Null, json!({})),
        Some(end) => {
            let (word, data) = in_words(end);
            (json!(word), data)
        }
    };
    let steps: Vec<Value> = progress
        .history
        .iter()
        .map(|(aid, status)| json!({ "aid": aid, "status": status }))
        .collect();
    json!({
        "ok": progress.end.as_ref().is_some_and(RunEnd::is_good),
        "header": progress.header.to_value(),
        "goal_id": progress.request.goal_id,
        "attempt": progress.attempt,
        "end": end,
        "data": data,
        "message": progress.end.as_ref().map(ToString::to_string),
        "steps": steps,
        "ds_digest": ds_digest(&progress.slots),
    })
}

fn in_words(end: &RunEnd) -> (&'static str, Value) {
    match end {
        RunEnd::Noop => ("noop", json!({})),
        RunEnd::AskSup { approval } => ("ask_sup", json!({ "approval": approval })),
        RunEnd::GoalDone { goal_id } => ("goal_done", json!({ "goal_id": goal_id })),
        RunEnd::ToolError {
            aid,
            err,
            fault,
            unknown,
        } => (
            "tool_error",
            json!({ "aid": aid, "err": err, "fault": fault, "outcome_unknown": unknown }),
        ),
        RunEnd::Breaker { reason } => ("breaker", json!({ "reason": reason })),
    }
}
