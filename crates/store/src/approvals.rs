//! Approvals: a call that policy wants a person to see first. An ask is bound to caller, tool,
//! input and the text that is displayed of it; a granted one is good for one call, in the
//! transaction that starts it.

use std::time::Duration;

use callgate_call::{CallId, Caller, Digest, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::leases::is_by;
use crate::state::Inner;
use crate::{Start, Store, StoreError, records};

/// The longest text that is kept for the person who decides. G-6d.
pub const DISPLAYED_BYTES_MAX: usize = 64 * 1024;

/// Approvals that may wait for a decision, of one caller and of all. G-6e.
pub const PENDING_OF_CALLER_MAX: usize = 64;
/// See `PENDING_OF_CALLER_MAX`.
pub const PENDING_MAX: usize = 1024;

/// Release 0.1.0 kept at most 2,048 bytes of an input, cut at a character: a text of this size may
/// be the beginning of a longer one.
const EARLIER_WHOLE_BYTES_MAX: usize = 2044;

/// Names an approval, short enough to type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ApprovalId(pub String);

impl std::fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An ask and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its name.
    pub id: ApprovalId,
    /// Who wants to call.
    pub caller: String,
    /// Which tool.
    pub tool: String,
    /// With which input.
    pub input: Digest,
    /// That input as it is displayed to the person who decides, without secrets. Kept beside the
    /// chain, not in it.
    pub shown: String,
    /// Digest of `shown`, which the chain has. `None` for approvals of release 0.1.0.
    pub displayed: Option<Digest>,
    /// `shown` is all of the input. Release 0.1.0 kept only the beginning of longer ones.
    pub is_whole: bool,
    /// The tool's tier.
    pub tier: u8,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// What became of it.
    pub state: ApprovalState,
}

/// What became of an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody decided yet.
    Pending,
    /// Good for one call.
    Granted {
        /// Who decided.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// Not to be called.
    Denied {
        /// Who decided.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// A call used it.
    Spent {
        /// The call.
        call: CallId,
        /// When.
        at: Timestamp,
    },
    /// Nobody decided, or no call came, for a day.
    Expired,
}

/// An approval as the journal and the index hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalDoc {
    pub(crate) id: String,
    /// Digest over caller, tool, input and what is displayed.
    pub(crate) bond: String,
    pub(crate) caller: String,
    pub(crate) tool: String,
    pub(crate) input: String,
    /// The input's text, without secrets.
    #[serde(default)]
    pub(crate) shown: String,
    /// Digest of `shown`; absent in documents of release 0.1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) displayed: Option<String>,
    pub(crate) tier: u8,
    pub(crate) asked_at: u64,
    /// Tells asks of one millisecond apart: the chain's newest record at the time.
    pub(crate) asked_seq: u64,
    /// Yes or no, who said so, when.
    pub(crate) decided: Option<(bool, String, u64)>,
    /// The call, in hex, and when.
    pub(crate) spent: Option<(String, u64)>,
}

impl ApprovalDoc {
    /// When it was asked or decided, whichever came last.
    fn touched_at(&self) -> u64 {
        self.decided
            .as_ref()
            .map_or(self.asked_at, |(_, _, at)| *at)
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.decided.is_none() && self.spent.is_none()
    }

    fn is_whole(&self) -> bool {
        self.displayed.is_some() || self.shown.len() <= EARLIER_WHOLE_BYTES_MAX
    }

    /// Returns whether the digest that a record has is the one of the text that is kept.
    pub(crate) fn was_displayed_as(&self, digest: Option<Digest>) -> bool {
        let own = self.displayed.as_deref().and_then(Digest::from_hex);
        own == digest && own.is_none_or(|own| own == Digest::of_bytes(self.shown.as_bytes()))
    }

    pub(crate) fn approval(&self, now: Timestamp, life: Duration) -> Approval {
        let alive = now.since(Timestamp(self.touched_at())) < life;
        let state = match (&self.spent, &self.decided) {
            (Some((call, at)), _) => ApprovalState::Spent {
                call: CallId::parse(call).unwrap_or(CallId(0)),
                at: Timestamp(*at),
            },
            (None, _) if !alive => ApprovalState::Expired,
            (None, Some((true, by, at))) => ApprovalState::Granted {
                by: by.clone(),
                at: Timestamp(*at),
            },
            (None, Some((false, by, at))) => ApprovalState::Denied {
                by: by.clone(),
                at: Timestamp(*at),
            },
            (None, None) => ApprovalState::Pending,
        };
        Approval {
            id: ApprovalId(self.id.clone()),
            caller: self.caller.clone(),
            tool: self.tool.clone(),
            input: Digest::from_hex(&self.input).unwrap_or(Digest([0; 32])),
            shown: self.shown.clone(),
            displayed: self.displayed.as_deref().and_then(Digest::from_hex),
            is_whole: self.is_whole(),
            tier: self.tier,
            asked_at: Timestamp(self.asked_at),
            state,
        }
    }
}

/// What an ask is for. Approvals of release 0.1.0 are not bound to what is displayed.
fn bond_of(caller: &Caller, tool: &str, input: &Digest, displayed: Option<&Digest>) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(caller.as_str().as_bytes()).update(&[0]);
    hasher.update(tool.as_bytes()).update(&[0]).update(&input.0);
    if let Some(displayed) = displayed {
        hasher.update(&displayed.0);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

impl Store {
    /// Asks, and keeps `shown` for the person who decides. A pending or granted approval for the
    /// same caller, tool, input and text is returned instead of a new one.
    pub fn ask(
        &self,
        caller: &Caller,
        tool: &str,
        input: Digest,
        tier: Tier,
        shown: &str,
    ) -> Result<Approval, StoreError> {
        if shown.len() > DISPLAYED_BYTES_MAX {
            return Err(StoreError::TooLarge {
                what: "what a person must approve",
                max_bytes: DISPLAYED_BYTES_MAX,
            });
        }
        let id = format!("a-{:012x}", crate::random_u64()? >> 16);
        let life = self.key_life;
        self.commit(|inner, now| {
            let displayed = Digest::of_bytes(shown.as_bytes());
            if let Some(doc) = inner.approval_of(caller, tool, &input, &displayed)? {
                let known = doc.approval(now, life);
                // Release 0.1.0 displayed the input alone, whatever else the call brought.
                let is_other = doc.displayed.is_none() && doc.is_whole() && doc.shown != shown;
                match known.state {
                    _ if is_other => {}
                    ApprovalState::Pending if known.is_whole => return Ok(known),
                    ApprovalState::Granted { .. } => return Ok(known),
                    _ => {}
                }
            }
            inner.overlay.small.check_room(caller, now, life)?;
            let doc = ApprovalDoc {
                id,
                bond: bond_of(caller, tool, &input, Some(&displayed)),
                caller: caller.to_string(),
                tool: tool.to_owned(),
                input: input.to_hex(),
                shown: shown.to_owned(),
                displayed: Some(displayed.to_hex()),
                tier: tier.number(),
                asked_at: now.0,
                asked_seq: inner.journal.position().seq,
                decided: None,
                spent: None,
            };
            records::approval_ask(&mut inner.pending, now, doc.clone());
            Ok(doc.approval(now, life))
        })
    }

    /// Records a person's decision on a pending approval. `displayed` is the digest of the text
    /// that the person saw, where whoever asked knows it: a decision on another text is refused.
    pub fn decide(
        &self,
        id: &ApprovalId,
        granted: bool,
        by: &str,
        displayed: Option<&Digest>,
    ) -> Result<Approval, StoreError> {
        let life = self.key_life;
        self.commit(|inner, now| {
            let Some(mut doc) = inner.approval(&id.0)? else {
                return Err(StoreError::NotFound {
                    what: format!("approval {id}"),
                });
            };
            let refused = |reason: String| Err(StoreError::Refused { reason });
            let approval = doc.approval(now, life);
            if approval.state != ApprovalState::Pending {
                return refused(format!("approval {id} is not pending any more"));
            }
            if displayed.is_some_and(|displayed| approval.displayed != Some(*displayed)) {
                return refused(format!(
                    "what was displayed is not what approval {id} is about: look at \
                     `callgate approvals show {id}`"
                ));
            }
            if granted && !approval.is_whole {
                return refused(format!(
                    "approval {id} was asked by an earlier release, which kept only the beginning \
                     of the input: repeat the call to ask anew"
                ));
            }
            doc.decided = Some((granted, by.to_owned(), now.0));
            records::approval_decide(&mut inner.pending, now, granted, by, doc.clone());
            Ok(doc.approval(now, life))
        })
    }

    /// One approval by its name.
    pub fn approval(&self, id: &ApprovalId) -> Result<Option<Approval>, StoreError> {
        let life = self.key_life;
        self.read(|inner, now| Ok(inner.approval(&id.0)?.map(|doc| doc.approval(now, life))))
    }

    /// The approvals of the last days, newest first.
    pub fn approvals(&self) -> Result<Vec<Approval>, StoreError> {
        let life = self.key_life;
        self.read(|inner, now| {
            let mut docs = inner.all_approvals()?;
            docs.sort_by(|a, b| {
                (b.asked_at, b.asked_seq, &b.id).cmp(&(a.asked_at, a.asked_seq, &a.id))
            });
            Ok(docs.iter().map(|doc| doc.approval(now, life)).collect())
        })
    }
}

impl Inner {
    /// The granted approval that the call may spend, or the newest one that does not do.
    pub(crate) fn granted(
        &mut self,
        start: &Start<'_>,
        displayed: &Digest,
        now: Timestamp,
    ) -> Result<Result<ApprovalDoc, Option<Approval>>, StoreError> {
        let found = self.approval_of(start.caller, start.tool, &start.input, displayed)?;
        let covers = |doc: &ApprovalDoc| doc.displayed.is_some() || !start.brings_more;
        let Some(doc) = found.filter(covers) else {
            return Ok(Err(None));
        };
        let approval = doc.approval(now, self.options.key_life);
        let granted = matches!(approval.state, ApprovalState::Granted { .. });
        Ok(if granted {
            Ok(doc)
        } else {
            Err(Some(approval))
        })
    }

    /// Makes the approval that `start` spent good again. An ask that came after it still comes
    /// first.
    pub(crate) fn give_back_approval(
        &mut self,
        start: &Start<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(displayed) = &start.displayed else {
            return Ok(());
        };
        let bonds = [Some(displayed), None]
            .map(|displayed| bond_of(start.caller, start.tool, &start.input, displayed));
        let spent = self.all_approvals()?.into_iter();
        let mut spent = spent.filter(|doc| bonds.contains(&doc.bond) && is_by(&doc.spent, start));
        if let Some(mut doc) = spent.next() {
            doc.spent = None;
            records::approval_use(&mut self.pending, now, records::Use::Returned, start, doc);
        }
        Ok(())
    }

    fn approval(&mut self, id: &str) -> Result<Option<ApprovalDoc>, StoreError> {
        let found = match self.approvals_index()? {
            Some(index) => index.approval(id)?,
            None => None,
        };
        Ok(self
            .overlay
            .approvals
            .get(id)
            .map(|(_, doc)| doc.clone())
            .or(found))
    }

    /// The newest approval for a caller, tool, input and text, or else one of release 0.1.0 for the
    /// first three.
    fn approval_of(
        &mut self,
        caller: &Caller,
        tool: &str,
        input: &Digest,
        displayed: &Digest,
    ) -> Result<Option<ApprovalDoc>, StoreError> {
        let bond = bond_of(caller, tool, input, Some(displayed));
        match self.approval_by_bond(&bond)? {
            Some(doc) => Ok(Some(doc)),
            None => self.approval_by_bond(&bond_of(caller, tool, input, None)),
        }
    }

    fn approval_by_bond(&mut self, bond: &str) -> Result<Option<ApprovalDoc>, StoreError> {
        let found = match self.approvals_index()? {
            Some(index) => index.approval_by_bond(bond)?,
            None => None,
        };
        let newer = self
            .overlay
            .approval_by_bond(bond)
            .map(|(_, doc)| doc.clone());
        // The overlay may hold a later state of an ask that is older than the index's newest.
        let age = |doc: &ApprovalDoc| (doc.asked_at, doc.asked_seq);
        Ok(match (newer, found) {
            (Some(newer), Some(found)) if age(&found) > age(&newer) => Some(found),
            (newer, found) => newer.or(found),
        })
    }

    fn all_approvals(&mut self) -> Result<Vec<ApprovalDoc>, StoreError> {
        let mut all = match self.approvals_index()? {
            Some(index) => index.approvals()?,
            None => Vec::new(),
        };
        all.retain(|doc| !self.overlay.approvals.contains_key(&doc.id));
        all.extend(self.overlay.approvals.values().map(|(_, doc)| doc.clone()));
        Ok(all)
    }

    fn approvals_index(&mut self) -> Result<Option<&mut Index>, StoreError> {
        match &self.mark {
            Some(mark) if mark.approvals => self.index(),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use callgate_call::ManualClock;

    use super::*;
    use crate::Options;

    /// An ask as release 0.1.0 recorded it.
    fn ask_of_0_1_0(store: &Store, shown: &str) -> ApprovalId {
        let (caller, input) = (Caller::uid(7), Digest::of_bytes(shown.as_bytes()));
        let id = format!("a-{}", &input.to_hex()[..12]);
        let doc = ApprovalDoc {
            id: id.clone(),
            bond: bond_of(&caller, "t", &input, None),
            caller: caller.to_string(),
            tool: "t".to_owned(),
            input: input.to_hex(),
            shown: shown.to_owned(),
            displayed: None,
            tier: 1,
            asked_at: 0,
            asked_seq: 0,
            decided: None,
            spent: None,
        };
        let asked = store.commit(|inner, now| {
            records::approval_ask(&mut inner.pending, now, doc);
            Ok(())
        });
        asked.expect("it is recorded");
        ApprovalId(id)
    }

    /// G-6f: an approval of release 0.1.0 displayed the input alone, so a call that brings more asks
    /// anew.
    #[test]
    fn approvals_of_0_1_0_are_for_inputs_alone() {
        let name = format!("callgate-asks-beside-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        let clock = Arc::new(ManualClock::at(Timestamp(1000)));
        let store = Store::open(&folder, Options::default(), clock).expect("a state");
        let (caller, input) = (Caller::uid(7), Digest::of_bytes(b"{}"));
        let id = ask_of_0_1_0(&store, "{}");
        let more = "{} and beside it {\"slots\":{}}";
        let asked = store.ask(&caller, "t", input, Tier::Write, more);
        assert_ne!(asked.expect("it is asked").id, id);
        let known = store.ask(&caller, "t", input, Tier::Write, "{}");
        assert_eq!(known.expect("it is asked").id, id);
        drop(store);
        let _ = std::fs::remove_dir_all(&folder);
    }

    /// G-6d: an approval of release 0.1.0 counts if all of its input was kept. One that may be cut
    /// can be refused and not granted, and the call that is repeated asks anew.
    #[test]
    fn approvals_of_0_1_0() {
        let folder = std::env::temp_dir().join(format!("callgate-asks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let clock = Arc::new(ManualClock::at(Timestamp(1000)));
        let store = Store::open(&folder, Options::default(), clock).expect("a state");
        let caller = Caller::uid(7);
        for length in [0, 10, 2044, 2045, 2048] {
            let shown = "x".repeat(length);
            let input = Digest::of_bytes(shown.as_bytes());
            let id = ask_of_0_1_0(&store, &shown);
            let again = store.ask(&caller, "t", input, Tier::Write, &shown);
            let again = again.expect("it is asked");
            let granted = store.decide(&id, true, "uid:0", None);
            if length <= EARLIER_WHOLE_BYTES_MAX {
                assert_eq!(again.id, id, "{length}");
                assert!(granted.is_ok(), "{length}: {granted:?}");
            } else {
                assert_ne!(again.id, id, "{length}");
                assert!(again.is_whole && again.displayed.is_some());
                let words = granted.expect_err("it hides something").to_string();
                assert!(words.contains("repeat the call"), "{words}");
                assert!(store.decide(&id, false, "uid:0", None).is_ok());
            }
        }
        drop(store);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
