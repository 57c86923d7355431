//! What the chain of the workspace says of a run: a digest of each event, and of what its calls
//! gave. It tells of what no replay can find out again: a policy program's words, the outcome of a
//! tool with an effect, a person's approval.

use std::collections::BTreeSet;

use callgate_call::Digest;
use callgate_gate::Gate;
use callgate_store::{PilotEvent, PilotRecords, StoreError};
use serde_json::{Value, json};

use super::{Difference, Place};
use crate::progress::event;

/// What is kept of a run here; nothing of a run of elsewhere.
pub struct Kept {
    records: Option<PilotRecords>,
    /// The events as they are kept, to tell what is another in one that is.
    events: Vec<PilotEvent>,
}

impl Kept {
    pub fn of(gate: &Gate, run: &str, events: &[PilotEvent]) -> Result<Self, StoreError> {
        let ended = events.iter().filter(|e| e.event == event::TOOL_OK);
        let calls: BTreeSet<String> = ended
            .filter_map(|happened| happened.doc["call"].as_str().map(str::to_owned))
            .collect();
        Ok(Self {
            records: gate.store().pilot_records(run, &calls)?,
            events: gate.store().pilot_events(run)?,
        })
    }

    pub fn check(&self, place: Place<'_>) -> Result<(), Box<Difference>> {
        let Some(records) = &self.records else {
            return Ok(());
        };
        let PilotEvent { event, doc, .. } = place.happened;
        let Some(record) = records.events.get(place.event - 1) else {
            return Err(place.differs("event", json!(event), Value::Null));
        };
        place.is(&record.event)?;
        place.is_of_step(record.step)?;
        let recorded = Digest::from_hex(&record.digest);
        if !recorded.is_some_and(|recorded| recorded.is_of_json(doc)) {
            if let Some(kept) = self.events.get(place.event - 1) {
                place.says(&kept.doc)?;
            }
            let digest = Digest::of_json(doc).to_hex();
            return Err(place.differs("digest", json!(digest), json!(record.digest)));
        }
        if event == event::TOOL_OK {
            let call = doc["call"].as_str().unwrap_or_default();
            place.same("output_digest", json!(records.outputs.get(call)))?;
        }
        Ok(())
    }
}
