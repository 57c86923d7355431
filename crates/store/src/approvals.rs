//! Approvals: a call that policy wants a person to see first. An ask is bound to caller, tool
//! and input; a granted one is good for one call, in the transaction that starts it.

use std::time::Duration;

use callgate_call::{CallId, Caller, Digest, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::index::Index;
use crate::leases::is_by;
use crate::state::Inner;
use crate::{Start, Store, StoreError, records};

/// So much of an input is kept for the person who decides.
const SHOWN_BYTES_MAX: usize = 2048;

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
    /// The beginning of that input, for the person who decides. Kept beside the chain, not
    /// in it.
    pub shown: String,
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
    /// Digest over caller, tool and input.
    pub(crate) bond: String,
    pub(crate) caller: String,
    pub(crate) tool: String,
    pub(crate) input: String,
    /// The beginning of the input's text.
    #[serde(default)]
    pub(crate) shown: String,
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
            tier: self.tier,
            asked_at: Timestamp(self.asked_at),
            state,
        }
    }
}

fn bond_of(caller: &Caller, tool: &str, input: &Digest) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(caller.as_str().as_bytes()).update(&[0]);
    hasher.update(tool.as_bytes()).update(&[0]).update(&input.0);
    hasher.finalize().to_hex()[..32].to_owned()
}

impl Store {
    /// Asks, showing the beginning of `shown`. A pending or granted approval for the same caller, tool and input is returned
    /// instead of a new one.
    pub fn ask(
        &self,
        caller: &Caller,
        tool: &str,
        input: Digest,
        tier: Tier,
        shown: &str,
    ) -> Result<Approval, StoreError> {
        let cut = (0..=SHOWN_BYTES_MAX.min(shown.len())).rev();
        let shown = &shown[..cut
            .into_iter()
            .find(|&at| shown.is_char_boundary(at))
            .unwrap_or(0)];
        let id = format!("a-{:012x}", crate::random_u64()? >> 16);
        let life = self.key_life;
        self.commit(|inner, now| {
            let bond = bond_of(caller, tool, &input);
            if let Some(doc) = inner.approval_by_bond(&bond)? {
                let known = doc.approval(now, life);
                if matches!(
                    known.state,
                    ApprovalState::Pending | ApprovalState::Granted { .. }
                ) {
                    return Ok(known);
                }
            }
            let doc = ApprovalDoc {
                id,
                bond,
                caller: caller.to_string(),
                tool: tool.to_owned(),
                input: input.to_hex(),
                shown: shown.to_owned(),
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

    /// The newest approval for a caller, tool and input.
    pub fn approval_for(
        &self,
        caller: &Caller,
        tool: &str,
        input: Digest,
    ) -> Result<Option<Approval>, StoreError> {
        let life = self.key_life;
        self.read(|inner, now| {
            let doc = inner.approval_by_bond(&bond_of(caller, tool, &input))?;
            Ok(doc.map(|doc| doc.approval(now, life)))
        })
    }

    /// A person's word on a pending approval.
    pub fn decide(&self, id: &ApprovalId, granted: bool, by: &str) -> Result<Approval, StoreError> {
        let life = self.key_life;
        self.commit(|inner, now| {
            let Some(mut doc) = inner.approval(&id.0)? else {
                return Err(StoreError::NotFound {
                    what: format!("approval {id}"),
                });
            };
            if doc.approval(now, life).state != ApprovalState::Pending {
                let reason = format!("approval {id} is not pending any more");
                return Err(StoreError::Refused { reason });
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
        now: Timestamp,
    ) -> Result<Result<ApprovalDoc, Option<Approval>>, StoreError> {
        let Some(doc) = self.approval_by_bond(&bond_of(start.caller, start.tool, &start.input))?
        else {
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
        if !start.needs_approval {
            return Ok(());
        }
        let bond = bond_of(start.caller, start.tool, &start.input);
        let spent = self.all_approvals()?.into_iter();
        let mut spent = spent.filter(|doc| doc.bond == bond && is_by(&doc.spent, start));
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
