//! A conversation's slots around one call, and whether a reply with them is within what
//! clients read. TH-57, T-17, T-19.

use std::collections::BTreeMap;

use callgate_call::{Artifact, Call, Fault, Output, SlotChange, Slots};
use callgate_text::json_text_len;
use callgate_wires::toolhost::{self as wire, REPLY_BYTES_MAX, StateMessage};

/// The slots of a pipe. What tools changed can be taken back until it is settled; what the caller
/// sent stays (TH-89).
#[derive(Debug, Default)]
pub(super) struct Held {
    now: Slots,
    /// Without what tools changed since the last settling; nothing if none did.
    sent: Sent,
}

/// What `Held` keeps for the case that tools' changes must be taken back.
pub(super) type Sent = Option<Slots>;

impl Held {
    pub(super) fn now(&self) -> &Slots {
        &self.now
    }

    /// The slots a request leaves before its tool runs. They count once the call was taken.
    pub(super) fn merge(&self, message: StateMessage) -> (Slots, Sent) {
        let sent = self.sent.as_ref();
        let sent = sent.map(|sent| merge(sent, message.clone()));
        (merge(&self.now, message), sent)
    }

    /// A call was taken whose tool changed nothing.
    pub(super) fn keep(&mut self, merged: Slots, sent: Sent) {
        (self.now, self.sent) = (merged, sent);
    }

    /// A call was taken whose tool changed them.
    pub(super) fn change(&mut self, merged: Slots, sent: Sent, after: Slots) {
        (self.now, self.sent) = (after, sent.or(Some(merged)));
    }

    /// All that was answered is recorded.
    pub(super) fn settle(&mut self) {
        self.sent = None;
    }

    /// What was answered since the last settling is not recorded, and is told as failed.
    pub(super) fn take_back(&mut self) {
        if let Some(sent) = self.sent.take() {
            self.now = sent;
        }
    }
}

fn merge(slots: &Slots, message: StateMessage) -> Slots {
    match message {
        StateMessage::Keep => slots.clone(),
        StateMessage::Replace(all) => Slots(from_wire(all)),
        StateMessage::Change(delta) => {
            let mut merged = slots.clone();
            let put = from_wire(delta.slots);
            merged.apply(SlotChange {
                put,
                removed: delta.removed_slots,
            });
            merged
        }
    }
}

/// The slots after a call, and what the call itself changed.
pub(super) fn after(before: &Slots, change: &SlotChange) -> (Slots, SlotChange) {
    let mut after = before.clone();
    if change.is_empty() {
        return (after, SlotChange::default());
    }
    after.apply(change.clone());
    let really = after.since(before);
    (after, really)
}

fn from_wire(slots: BTreeMap<u8, wire::Artifact>) -> BTreeMap<u8, Artifact> {
    let convert = |wire::Artifact {
                       kind,
                       provenance,
                       content_json,
                       size_bytes,
                   }| Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    };
    slots
        .into_iter()
        .map(|(slot, artifact)| (slot, convert(artifact)))
        .collect()
}

pub(super) fn to_wire(slots: &BTreeMap<u8, Artifact>) -> BTreeMap<u8, wire::Artifact> {
    let convert = |artifact: &Artifact| wire::Artifact {
        kind: artifact.kind.clone(),
        provenance: artifact.provenance.clone(),
        content_json: artifact.content_json.clone(),
        size_bytes: artifact.size_bytes,
    };
    slots
        .iter()
        .map(|(&slot, artifact)| (slot, convert(artifact)))
        .collect()
}

/// Whether the reply line, newline included, is within what clients read. T-19.
pub(super) fn fits_line(call: &Call, output: &Output) -> Result<(), Fault> {
    fits(call, output, true)
}

/// The same for the entries that answer with the whole state.
pub(super) fn fits_snapshot(call: &Call, output: &Output) -> Result<(), Fault> {
    fits(call, output, false)
}

fn fits(call: &Call, output: &Output, delta: bool) -> Result<(), Fault> {
    // Escaping makes a byte six at most, and most replies are small.
    if output.json.text().len() < REPLY_BYTES_MAX / 8
        && output.slots.is_empty()
        && call.slots.0.is_empty()
    {
        return Ok(());
    }
    let (after, change) = after(&call.slots, &output.slots);
    let mut state = Vec::new();
    if delta {
        let put = to_wire(&change.put);
        wire::write_delta(
            put.iter().map(|(&slot, a)| (slot, a)),
            &change.removed,
            &mut state,
        );
    } else {
        let all = to_wire(&after.0);
        wire::write_snapshot(all.iter().map(|(&slot, a)| (slot, a)), &mut state);
    }
    const AROUND: &str = r#"{"ok":true,"status":"OK","output_json":,"error":"","ds_state":}"#;
    // A keyed answer is told again later, with this beside it.
    let hit = if call.key.is_some() {
        r#","idempotent_hit":true"#.len()
    } else {
        0
    };
    let newline = 1;
    let line = AROUND.len() + hit + json_text_len(output.json.text()) + state.len() + newline;
    if line <= REPLY_BYTES_MAX {
        Ok(())
    } else {
        let max_bytes = u64::try_from(REPLY_BYTES_MAX).unwrap_or(u64::MAX);
        Err(Fault::too_large("output", max_bytes))
    }
}
