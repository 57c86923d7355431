//! State patches, as a run's log has them: operations on the eight slots of the profile. One that
//! is not exactly such a list fails as a whole. TH-91.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::state::read_artifact;
use super::{Artifact, StateError};

/// The slots of the profile: DS0 to DS7.
pub const PROFILE_SLOTS: u8 = 8;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchOp {
    /// `add`, where nothing is, or `replace`, where something is.
    Put {
        /// Which slot.
        slot: u8,
        /// Something was there.
        replace: bool,
        /// What is there now.
        artifact: Artifact,
    },
    /// `remove`.
    Remove {
        /// Which slot.
        slot: u8,
    },
}

/// Reads a patch, all of it or nothing.
pub fn read_patch(value: &Value) -> Result<Vec<PatchOp>, StateError> {
    let operations = value.as_array().ok_or_else(|| bad("must be a list"))?;
    operations.iter().map(read_op).collect()
}

/// As a log has it.
#[must_use]
pub fn patch_value(patch: &[PatchOp]) -> Value {
    let operation = |op: &PatchOp| match op {
        PatchOp::Remove { slot } => json!({ "op": "remove", "path": format!("/slots/{slot}") }),
        PatchOp::Put {
            slot,
            replace,
            artifact,
        } => json!({
            "op": if *replace { "replace" } else { "add" },
            "path": format!("/slots/{slot}"),
            "value": artifact_value(artifact),
        }),
    };
    patch.iter().map(operation).collect()
}

/// Carries a patch out, or nothing of it: `add` needs an empty slot, the others a full one.
pub fn apply_patch(
    slots: &mut BTreeMap<u8, Artifact>,
    patch: Vec<PatchOp>,
) -> Result<(), StateError> {
    let mut after = slots.clone();
    for op in patch {
        match op {
            PatchOp::Put {
                slot,
                replace,
                artifact,
            } => {
                if after.insert(slot, artifact).is_some() != replace {
                    let word = if replace { "empty" } else { "full" };
                    return Err(bad(format!("slot {slot} is {word}")));
                }
            }
            PatchOp::Remove { slot } => {
                if after.remove(&slot).is_none() {
                    return Err(bad(format!("slot {slot} is empty")));
                }
            }
        }
    }
    *slots = after;
    Ok(())
}

/// An artifact in the contract's words.
#[must_use]
pub fn artifact_value(artifact: &Artifact) -> Value {
    json!({
        "type": artifact.kind,
        "provenance": artifact.provenance,
        "content_json": artifact.content_json,
        "size_bytes": artifact.size_bytes,
    })
}

fn bad(reason: impl Into<String>) -> StateError {
    StateError::new(format!("patch: {}", reason.into()))
}

fn read_op(value: &Value) -> Result<PatchOp, StateError> {
    let members = value
        .as_object()
        .ok_or_else(|| bad("an operation is an object"))?;
    let text = |name: &str| {
        members
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let slot = slot_of(text("path"))?;
    let known = |names: &[&str]| members.keys().all(|name| names.contains(&name.as_str()));
    match text("op") {
        "remove" if known(&["op", "path"]) => Ok(PatchOp::Remove { slot }),
        op @ ("add" | "replace") if known(&["op", "path", "value"]) => Ok(PatchOp::Put {
            slot,
            replace: op == "replace",
            artifact: read_artifact(slot, value_of(members)?)?,
        }),
        _ => Err(bad("an operation is add, replace or remove")),
    }
}

fn slot_of(path: &str) -> Result<u8, StateError> {
    let digit = path.strip_prefix("/slots/").map(str::as_bytes);
    match digit {
        Some([digit @ b'0'..=b'7']) => Ok(digit - b'0'),
        _ => Err(bad("a path is /slots/0 to /slots/7")),
    }
}

fn value_of(members: &Map<String, Value>) -> Result<Map<String, Value>, StateError> {
    match members.get("value") {
        Some(Value::Object(artifact)) => Ok(artifact.clone()),
        _ => Err(bad("`value` must be an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(content: &str) -> Artifact {
        Artifact {
            kind: "text".into(),
            provenance: "p".into(),
            content_json: content.into(),
            size_bytes: 3,
        }
    }

    /// TH-91: what is written is read back and carried out.
    #[test]
    fn there_and_back() {
        let patch = vec![
            PatchOp::Put {
                slot: 0,
                replace: false,
                artifact: artifact("a"),
            },
            PatchOp::Put {
                slot: 7,
                replace: true,
                artifact: artifact("b"),
            },
            PatchOp::Remove { slot: 3 },
        ];
        assert_eq!(read_patch(&patch_value(&patch)).unwrap(), patch);
        let mut slots = BTreeMap::from([(3, artifact("c")), (7, artifact("d"))]);
        apply_patch(&mut slots, patch.clone()).unwrap();
        assert_eq!(
            slots,
            BTreeMap::from([(0, artifact("a")), (7, artifact("b"))])
        );
        let before = slots.clone();
        assert!(apply_patch(&mut slots, patch).is_err());
        assert_eq!(slots, before, "a patch that fails changes nothing");
    }

    /// TH-91: any other operation, path or shape fails the whole patch.
    #[test]
    fn other_shapes() {
        let good = json!({"op": "add", "path": "/slots/1", "value": {}});
        for bad in [
            json!({}),
            json!(null),
            json!([1]),
            json!([good, {"op": "move", "path": "/slots/1"}]),
            json!([{"op": "add", "path": "/slots/8", "value": {}}]),
            json!([{"op": "add", "path": "/slots/01", "value": {}}]),
            json!([{"op": "add", "path": "/slots/-1", "value": {}}]),
            json!([{"op": "add", "path": "/slots/1/type", "value": {}}]),
            json!([{"op": "add", "path": "slots/1", "value": {}}]),
            json!([{"op": "add", "path": 1, "value": {}}]),
            json!([{"op": "add", "path": "/slots/1"}]),
            json!([{"op": "add", "path": "/slots/1", "value": "x"}]),
            json!([{"op": "add", "path": "/slots/1", "value": {"size_bytes": -1}}]),
            json!([{"op": "remove", "path": "/slots/1", "value": {}}]),
            json!([{"op": "remove", "path": "/slots/1", "from": "/slots/2"}]),
            json!([{"path": "/slots/1"}]),
        ] {
            assert!(read_patch(&bad).is_err(), "{bad}");
        }
    }
}
