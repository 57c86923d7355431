//! The `ds_state` carried with calls: numbered slots, each holding one artifact. Changed
//! only by calls that succeed (T-17).

use std::collections::BTreeMap;

/// The highest slot number a wire may name.
pub const SLOT_MAX: u8 = 255;

/// What a slot holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Artifact {
    /// For example `text` or `table`.
    pub kind: String,
    /// Where it came from.
    pub provenance: String,
    /// JSON as text, not looked into.
    pub content_json: String,
    /// As given, not checked against the content.
    pub size_bytes: u64,
}

/// All slots of one conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slots(pub BTreeMap<u8, Artifact>);

/// What a call did to the slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotChange {
    /// New or changed slots.
    pub put: BTreeMap<u8, Artifact>,
    /// Slots that are gone; removal wins over `put`.
    pub removed: Vec<u8>,
}

impl SlotChange {
    /// True if nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.put.is_empty() && self.removed.is_empty()
    }
}

impl Slots {
    /// Carries out a change: first what is put, then what is removed.
    pub fn apply(&mut self, change: SlotChange) {
        self.0.extend(change.put);
        for slot in change.removed {
            self.0.remove(&slot);
        }
    }

    /// What turns `before` into these slots.
    #[must_use]
    pub fn since(&self, before: &Self) -> SlotChange {
        SlotChange {
            put: self
                .0
                .iter()
                .filter(|(slot, artifact)| before.0.get(slot) != Some(artifact))
                .map(|(&slot, artifact)| (slot, artifact.clone()))
                .collect(),
            removed: before
                .0
                .keys()
                .filter(|slot| !self.0.contains_key(slot))
                .copied()
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(pairs: &[(u8, &str)]) -> Slots {
        Slots(
            pairs
                .iter()
                .map(|&(slot, text)| {
                    (
                        slot,
                        Artifact {
                            content_json: text.to_owned(),
                            ..Artifact::default()
                        },
                    )
                })
                .collect(),
        )
    }

    #[test]
    fn a_difference_applied_gives_the_later_state() {
        let before = slots(&[(0, "a"), (1, "b"), (2, "c")]);
        let after = slots(&[(0, "a"), (1, "x"), (6, "n")]);
        let change = after.since(&before);
        assert_eq!(change.put.keys().copied().collect::<Vec<_>>(), [1, 6]);
        assert_eq!(change.removed, [2]);
        let mut replayed = before.clone();
        replayed.apply(change);
        assert_eq!(replayed, after);
        assert!(after.since(&after).is_empty());
    }

    #[test]
    fn removal_wins() {
        let mut state = Slots::default();
        let mut change = slots(&[(3, "a")]).since(&Slots::default());
        change.removed.push(3);
        state.apply(change);
        assert_eq!(state, Slots::default());
    }
}
