//! `ds_state`: numbered slots as a whole or as a difference.

use std::collections::BTreeMap;

use callgate_text::write_json_text;
use serde_json::{Map, Value};

/// What one slot holds, in the contract's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Artifact {
    /// `type`, for example `text`.
    pub kind: String,
    /// `provenance`.
    pub provenance: String,
    /// `content_json`: JSON as text, not looked into.
    pub content_json: String,
    /// `size_bytes`, as given.
    pub size_bytes: u64,
}

/// A difference: first everything in `slots` is put, then `removed_slots` go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// New or changed slots.
    pub slots: BTreeMap<u8, Artifact>,
    /// Slots that go; removal wins.
    pub removed_slots: Vec<u8>,
}

/// What a request does to the state before its tool runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StateMessage {
    /// No `ds_state`, or `null`.
    #[default]
    Keep,
    /// A snapshot: the state becomes this.
    Replace(BTreeMap<u8, Artifact>),
    /// `"delta": true`.
    Change(Delta),
}

/// A `ds_state` that can not be taken. T-24.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("ds_state: {0}")]
pub struct StateError(String);

impl StateError {
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

fn wrong<T>(reason: impl Into<String>) -> Result<T, StateError> {
    Err(StateError(reason.into()))
}

impl StateMessage {
    /// Reads the `ds_state` of a request.
    pub fn from_value(value: Value) -> Result<Self, StateError> {
        let mut members = match value {
            Value::Null => return Ok(Self::Keep),
            Value::Object(members) => members,
            _ => return wrong("must be an object"),
        };
        let is_delta = match members.get("delta") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(delta)) => *delta,
            Some(_) => return wrong("`delta` must be true or false"),
        };
        let slots = match members.remove("slots") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(Value::Object(slots)) => read_slots(slots)?,
            Some(_) => return wrong("`slots` must be an object"),
        };
        let removed_slots = match members.get("removed_slots") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) if is_delta => {
                items.iter().map(removed_slot).collect::<Result<_, _>>()?
            }
            Some(Value::Array(_)) => return wrong("`removed_slots` needs `delta`: true"),
            Some(_) => return wrong("`removed_slots` must be a list of slot numbers"),
        };
        Ok(if is_delta {
            Self::Change(Delta {
                slots,
                removed_slots,
            })
        } else {
            Self::Replace(slots)
        })
    }
}

impl Delta {
    /// Reads the slots a tool sent back: `slots` and `removed_slots` of its answer (T-23).
    pub fn from_parts(slots: Option<Value>, removed: Option<Value>) -> Result<Self, StateError> {
        let mut members = Map::new();
        members.insert("delta".to_owned(), Value::Bool(true));
        members.insert("slots".to_owned(), slots.unwrap_or(Value::Null));
        members.insert("removed_slots".to_owned(), removed.unwrap_or(Value::Null));
        match StateMessage::from_value(Value::Object(members))? {
            StateMessage::Change(delta) => Ok(delta),
            StateMessage::Keep | StateMessage::Replace(_) => Ok(Self::default()),
        }
    }
}

fn read_slots(slots: Map<String, Value>) -> Result<BTreeMap<u8, Artifact>, StateError> {
    slots
        .into_iter()
        .map(|(key, value)| {
            let slot = slot_number(&key)?;
            match value {
                Value::Object(members) => Ok((slot, read_artifact(slot, members)?)),
                _ => wrong(format!("slot {slot} must be an object")),
            }
        })
        .collect()
}

fn slot_number(text: &str) -> Result<u8, StateError> {
    // `parse` alone would take "+7" and "007", which name one slot twice.
    match text.parse::<u8>() {
        Ok(number) if number.to_string() == text => Ok(number),
        _ => wrong(format!("slot {text:?} is not a number from 0 to 255")),
    }
}

fn removed_slot(value: &Value) -> Result<u8, StateError> {
    match value {
        Value::String(text) => slot_number(text),
        Value::Number(number) => slot_number(&number.to_string()),
        _ => wrong("`removed_slots` must be a list of slot numbers"),
    }
}

pub(super) fn read_artifact(
    slot: u8,
    mut members: Map<String, Value>,
) -> Result<Artifact, StateError> {
    let mut text = |name: &str| match members.remove(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => wrong(format!("slot {slot}: `{name}` must be a string")),
    };
    let (kind, provenance, content_json) =
        (text("type")?, text("provenance")?, text("content_json")?);
    let size_bytes = match members.get("size_bytes") {
        None => 0,
        Some(size) => match size.as_u64() {
            Some(size) => size,
            None => return wrong(format!("slot {slot}: `size_bytes` must be a whole number")),
        },
    };
    Ok(Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    })
}

/// Appends `{"slots":{…}}`.
pub fn write_snapshot<'a>(slots: impl IntoIterator<Item = (u8, &'a Artifact)>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"slots\":");
    write_slots(slots, out);
    out.push(b'}');
}

/// Appends `{"delta":true,"slots":{…},"removed_slots":[…]}`.
pub fn write_delta<'a>(
    slots: impl IntoIterator<Item = (u8, &'a Artifact)>,
    removed: &[u8],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"delta\":true,\"slots\":");
    write_slots(slots, out);
    out.extend_from_slice(b",\"removed_slots\":[");
    for (index, slot) in removed.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(slot.to_string().as_bytes());
    }
    out.extend_from_slice(b"]}");
}

fn write_slots<'a>(slots: impl IntoIterator<Item = (u8, &'a Artifact)>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (slot, artifact)) in slots.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!("\"{slot}\":{{\"type\":").as_bytes());
        write_json_text(&artifact.kind, out);
        out.extend_from_slice(b",\"provenance\":");
        write_json_text(&artifact.provenance, out);
        out.extend_from_slice(b",\"content_json\":");
        write_json_text(&artifact.content_json, out);
        out.extend_from_slice(format!(",\"size_bytes\":{}}}", artifact.size_bytes).as_bytes());
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use serde_json::json;

    fn artifact(content: &str) -> Artifact {
        Artifact {
            kind: "text".into(),
            provenance: "test".into(),
            content_json: content.into(),
            size_bytes: 7,
        }
    }

    /// T-24: slot numbers at both edges, and everything that is none.
    #[test]
    fn slot_keys() {
        for good in ["0", "7", "255"] {
            let message = StateMessage::from_value(json!({"slots": {good: {}}})).unwrap();
            let StateMessage::Replace(slots) = message else {
                panic!("a snapshot")
            };
            assert_eq!(slots.keys().map(u8::to_string).collect::<Vec<_>>(), [good]);
        }
        for bad in ["256", "-1", "7abc", "", "07", "+7", " 7", "1e1"] {
            let error = StateMessage::from_value(json!({"slots": {bad: {}}})).unwrap_err();
            assert!(error.to_string().contains("0 to 255"), "{error}");
        }
    }

    /// T-24: shapes that are refused instead of guessed at.
    #[test]
    fn wrong_shapes() {
        for bad in [
            json!([]),
            json!("x"),
            json!(1),
            json!({"delta": "yes"}),
            json!({"delta": 1}),
            json!({"slots": []}),
            json!({"slots": {"1": 2}}),
            json!({"slots": {"1": {"type": 1}}}),
            json!({"slots": {"1": {"size_bytes": -1}}}),
            json!({"slots": {"1": {"size_bytes": 1.5}}}),
            json!({"delta": true, "removed_slots": 1}),
            json!({"delta": true, "removed_slots": ["x"]}),
            json!({"delta": true, "removed_slots": [256]}),
            json!({"removed_slots": [1]}),
        ] {
            assert!(StateMessage::from_value(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn kept_replaced_changed() {
        assert_eq!(
            StateMessage::from_value(Value::Null).unwrap(),
            StateMessage::Keep
        );
        let empty = StateMessage::from_value(json!({})).unwrap();
        assert_eq!(empty, StateMessage::Replace(BTreeMap::new()));
        let change = StateMessage::from_value(
            json!({"delta": true, "slots": {"3": {"type": "text", "x": 1}}, "removed_slots": [3, "4"]}),
        )
        .unwrap();
        let StateMessage::Change(delta) = change else {
            panic!("a delta")
        };
        assert_eq!(delta.removed_slots, [3, 4]);
        assert_eq!(delta.slots[&3].kind, "text");
    }

    #[test]
    fn what_is_written_reads_back() {
        let slots = BTreeMap::from([(6, artifact("{\"echo\":\"é\\n\"}")), (255, artifact(""))]);
        let mut out = Vec::new();
        write_delta(slots.iter().map(|(&slot, a)| (slot, a)), &[1, 2], &mut out);
        let value = json::parse(&out, 32).unwrap();
        let wanted = Delta {
            slots: slots.clone(),
            removed_slots: vec![1, 2],
        };
        assert_eq!(
            StateMessage::from_value(value).unwrap(),
            StateMessage::Change(wanted)
        );
        out.clear();
        write_snapshot(slots.iter().map(|(&slot, a)| (slot, a)), &mut out);
        let value = json::parse(&out, 32).unwrap();
        assert_eq!(
            StateMessage::from_value(value).unwrap(),
            StateMessage::Replace(slots)
        );
    }
}
