//! The slots of a run: their digests, and patches between two states. TH-90, TH-91.

use std::collections::BTreeMap;

use callgate_call::{Artifact, Fault, Output, SlotChange, Slots, Tool};
use callgate_text::encode_hex;
use callgate_wires::toolhost::{self as wire, PROFILE_SLOTS, PatchOp};
use ring::digest::{SHA256, digest};

/// Where the output of a tool that knows no slots is put: the last one of the profile.
pub const OUTPUT_SLOT: u8 = PROFILE_SLOTS - 1;

/// SHA-256 in hexadecimal.
#[must_use]
pub fn sha256(text: &str) -> String {
    encode_hex(digest(&SHA256, text.as_bytes()).as_ref())
}

/// The state's digest.
#[must_use]
pub fn ds_digest(slots: &Slots) -> String {
    sha256(&digested(slots))
}

/// The same by 64-bit FNV-1a, with the offset basis that the contract writes.
#[must_use]
pub fn ds_digest_fast(slots: &Slots) -> String {
    const BASIS: u64 = 1_469_598_103_934_665_603;
    const PRIME: u64 = 1_099_511_628_211;
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    format!("{:016x}", digested(slots).bytes().fold(BASIS, step))
}

fn digested(slots: &Slots) -> String {
    let entry = |(slot, artifact): (&u8, &Artifact)| {
        let Artifact {
            kind,
            provenance,
            content_json,
            size_bytes,
        } = artifact;
        format!(
            "{slot}:{kind}:{provenance}:{size_bytes}:{}|",
            sha256(content_json)
        )
    };
    slots.0.iter().map(entry).collect()
}

/// What a successful call makes of the slots. The output of a tool that knows none is an artifact
/// of its own: else no other tool could ever see it.
#[must_use]
pub fn after(before: &Slots, tool: &Tool, output: &Output) -> Slots {
    let mut after = before.clone();
    if tool.slots {
        after.apply(output.slots.clone());
    } else {
        let text = output.json.text();
        let artifact = Artifact {
            kind: "json".to_owned(),
            provenance: tool.aid.clone(),
            content_json: text.to_owned(),
            size_bytes: text.len() as u64,
        };
        after.0.insert(OUTPUT_SLOT, artifact);
    }
    after
}

/// What turns one state into another, as records have it.
#[must_use]
pub fn patch(before: &Slots, after: &Slots) -> Vec<PatchOp> {
    let SlotChange { put, removed } = after.since(before);
    let put = put.into_iter().map(|(slot, artifact)| PatchOp::Put {
        slot,
        replace: before.0.contains_key(&slot),
        artifact: to_wire(artifact),
    });
    let removed = removed.into_iter().map(|slot| PatchOp::Remove { slot });
    put.chain(removed).collect()
}

/// Carries a recorded patch out, or nothing of it.
pub fn apply(slots: &mut Slots, patch: Vec<PatchOp>) -> Result<(), wire::StateError> {
    let all = std::mem::take(&mut slots.0).into_iter();
    let mut all: BTreeMap<u8, wire::Artifact> = all.map(|(slot, a)| (slot, to_wire(a))).collect();
    let applied = wire::apply_patch(&mut all, patch);
    slots.0 = all
        .into_iter()
        .map(|(slot, a)| (slot, from_wire(a)))
        .collect();
    applied
}

/// Whether a step's output can be recorded: in a slot of the profile, and not too large.
pub fn fits(output: &Output) -> Result<(), Fault> {
    let all = output.slots.put.keys().chain(&output.slots.removed);
    if let Some(slot) = all.copied().find(|slot| *slot >= PROFILE_SLOTS) {
        return Err(Fault::BadOutput {
            reason: format!("slot {slot} is none of the profile's 0 to 7"),
        });
    }
    let size = |a: &Artifact| a.kind.len() + a.provenance.len() + a.content_json.len();
    let slots: usize = output.slots.put.values().map(size).sum();
    if output.json.text().len() + slots > STEP_BYTES_MAX {
        return Err(Fault::too_large("output", STEP_BYTES_MAX as u64));
    }
    Ok(())
}

/// Largest output of a step with what it puts into slots: it is in the journal twice.
const STEP_BYTES_MAX: usize = 256 * 1024;

/// The artifact of a slot as the toolhost contract writes it.
pub fn to_wire(artifact: Artifact) -> wire::Artifact {
    let Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    } = artifact;
    wire::Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    }
}

fn from_wire(artifact: wire::Artifact) -> Artifact {
    let wire::Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    } = artifact;
    Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_wires::toolhost::{patch_value, read_patch};

    fn artifact(content: &str) -> Artifact {
        Artifact {
            kind: "text".to_owned(),
            provenance: "p".to_owned(),
            content_json: content.to_owned(),
            size_bytes: 2,
        }
    }

    /// TH-90: known values, and the empty state.
    #[test]
    fn digests() {
        let empty = Slots::default();
        assert_eq!(
            ds_digest(&empty),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(ds_digest_fast(&empty), "14650fb0739d0383");
        let slots = Slots(BTreeMap::from([(5, artifact("b")), (1, artifact("a"))]));
        let (a, b) = (sha256("a"), sha256("b"));
        assert_eq!(
            ds_digest(&slots),
            sha256(&format!("1:text:p:2:{a}|5:text:p:2:{b}|"))
        );
        assert_eq!(ds_digest_fast(&slots).len(), 16);
        for change in [
            Artifact {
                kind: "x".to_owned(),
                ..artifact("a")
            },
            Artifact {
                provenance: "x".to_owned(),
                ..artifact("a")
            },
            Artifact {
                size_bytes: 3,
                ..artifact("a")
            },
            artifact("x"),
        ] {
            let mut other = slots.clone();
            other.0.insert(1, change);
            assert_ne!(ds_digest(&other), ds_digest(&slots));
            assert_ne!(ds_digest_fast(&other), ds_digest_fast(&slots));
        }
    }

    /// TH-91: a patch between two states, written and read, gives the second.
    #[test]
    fn patches_rebuild() {
        let before = Slots(BTreeMap::from([(0, artifact("a")), (1, artifact("b"))]));
        let later = Slots(BTreeMap::from([(1, artifact("c")), (7, artifact("d"))]));
        let written = patch_value(&patch(&before, &later));
        let mut rebuilt = before;
        apply(&mut rebuilt, read_patch(&written).unwrap()).unwrap();
        assert_eq!(rebuilt, later);
    }
}
