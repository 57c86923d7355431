//! What this process knows from the journal beyond the index: the latest state of every key,
//! lease, approval and note touched since the watermark, and the few things that are always in
//! memory (breakers, trust, tokens, counts). Applying the same records in the same order gives the same
//! overlay in every process.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use callgate_call::{CallId, Caller, Digest, Timestamp};

use crate::approvals::{ApprovalDoc, PENDING_MAX, PENDING_OF_CALLER_MAX};
use crate::journal::Place;
use crate::leases::LeaseDoc;
use crate::pilots::Pilots;
use crate::plans::Plans;
use crate::run::RunStates;
use crate::side::{Change, Claim, Ended};
use crate::tokens::{TOKENS_MAX, TokenDoc};
use crate::{BreakerState, Health, KeyId, OwnerId, StoreError, Ticket};

/// The latest state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: EntryState,
    /// The record that made it so.
    pub(crate) seq: u64,
    pub(crate) call: CallId,
    pub(crate) bond: Digest,
    /// When it started, ended or became unknown.
    pub(crate) at: u64,
}

/// What a key's run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    InFlight {
        owner: OwnerId,
    },
    Unknown,
    Finished {
        place: Place,
        ordinal: u64,
    },
    /// Ended in this process, not yet in the journal.
    Ending {
        ticket: Ticket,
        ordinal: u64,
    },
    /// The key is free, whatever the index says.
    Free,
}

impl EntryState {
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::InFlight { .. } | Self::Unknown)
    }
}

/// A note since the watermark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NoteDoc {
    pub(crate) id: u64,
    pub(crate) at: u64,
    pub(crate) text: String,
    pub(crate) meta: Option<String>,
}

/// What is always in memory, and goes with the watermark.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Small {
    pub(crate) breakers: BTreeMap<String, BreakerState>,
    pub(crate) trust: BTreeMap<String, String>,
    /// By name.
    pub(crate) tokens: BTreeMap<String, TokenDoc>,
    /// Approvals that nobody has decided, by id: whose, and when they were asked. Those that
    /// expired are dropped when there are too many.
    pub(crate) asks: BTreeMap<String, (String, u64)>,
    /// Entries ever finished that count in a `View::Recent`.
    pub(crate) ordinal: u64,
    /// Unfinished keys.
    pub(crate) open: u64,
}

impl Small {
    /// Returns an error if as many approvals wait for a decision as may.
    pub(crate) fn check_room(
        &self,
        caller: &Caller,
        now: Timestamp,
        life: Duration,
    ) -> Result<(), StoreError> {
        let alive = self.asks.values();
        let alive = alive.filter(|(_, at)| now.since(Timestamp(*at)) < life);
        let (mut own, mut all) = (0, 0);
        for (whose, _) in alive {
            all += 1;
            own += usize::from(whose == caller.as_str());
        }
        let full = |max, whose| Err(StoreError::ManyApprovals { max, whose });
        match () {
            () if own >= PENDING_OF_CALLER_MAX => full(PENDING_OF_CALLER_MAX, "of this caller"),
            () if all >= PENDING_MAX => full(PENDING_MAX, "in all"),
            () => Ok(()),
        }
    }

    fn approval(&mut self, doc: &ApprovalDoc) {
        if !doc.is_pending() {
            self.asks.remove(&doc.id);
            return;
        }
        let ask = (doc.caller.clone(), doc.asked_at);
        self.asks.insert(doc.id.clone(), ask);
        // No more are asked while these wait, so the oldest of more has expired.
        if self.asks.len() > PENDING_MAX {
            let oldest = self.asks.iter().min_by_key(|(id, (_, at))| (*at, *id));
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.asks.remove(&oldest);
            }
        }
    }

    fn token(&mut self, doc: TokenDoc) {
        self.tokens.insert(doc.name.clone(), doc);
        if self.tokens.len() <= TOKENS_MAX {
            return;
        }
        // By the record alone, so that every process forgets the same one.
        let revoked = self.tokens.values().filter(|doc| doc.revoked_at.is_some());
        let oldest = revoked.min_by_key(|doc| (doc.revoked_at, doc.name.clone()));
        if let Some(oldest) = oldest.map(|doc| doc.name.clone()) {
            self.tokens.remove(&oldest);
        }
    }
}

#[derive(Default)]
pub(crate) struct Overlay {
    pub(crate) small: Small,
    pub(crate) keys: HashMap<KeyId, Entry, BuildHasherDefault<KeyHasher>>,
    /// By the hash of the token.
    pub(crate) leases: HashMap<String, (u64, LeaseDoc)>,
    /// By id.
    pub(crate) approvals: BTreeMap<String, (u64, ApprovalDoc)>,
    pub(crate) notes: Vec<NoteDoc>,
    pub(crate) plans: Plans,
    pub(crate) runs: RunStates,
    pub(crate) pilots: Pilots,
    /// What pending records will do to breakers.
    pending: BTreeMap<String, PendingHealth>,
    /// How many pending ends will count in a `View::Recent`.
    pending_recent: u64,
}

#[derive(Clone, Copy, Default)]
struct PendingHealth {
    works: bool,
    failures: u32,
    at: u64,
}

impl Overlay {
    /// Applies a record of the journal. False if its side bytes make no sense.
    pub(crate) fn apply(&mut self, seq: u64, place: Place, side: &[u8]) -> bool {
        let Some(change) = Change::decode(side) else {
            return false;
        };
        match change {
            Change::Nothing => {}
            Change::Claim(claim) => self.claim(seq, &claim),
            Change::Unknown(claim) => {
                self.keys
                    .insert(claim.key, entry(EntryState::Unknown, seq, &claim));
            }
            Change::End(ended) => self.end(seq, place, &ended),
            Change::Lease(doc) => {
                self.leases.insert(doc.hash.clone(), (seq, doc));
            }
            Change::Approval(doc) => {
                self.small.approval(&doc);
                self.approvals.insert(doc.id.clone(), (seq, doc));
            }
            Change::Trust(doc) => {
                match doc.digest {
                    Some(digest) => self.small.trust.insert(doc.path, digest),
                    None => self.small.trust.remove(&doc.path),
                };
            }
            Change::Token(doc) => self.small.token(doc),
            Change::Plan(doc) => self.plans.made(seq, doc),
            Change::PlanTask(doc) => self.plans.task(seq, doc),
            Change::PlanGone(doc) => self.plans.gone(seq, &doc),
            Change::RunStart(doc) => self.runs.started(seq, doc),
            Change::RunEnd(doc) => self.runs.ended(seq, doc),
            Change::RunLost(doc) => self.runs.lost(seq, doc),
            Change::Artifact(doc) => self.runs.committed(seq, doc),
            Change::Pilot(doc) => self.pilots.add(seq, doc),
            Change::Note { at, meta, text } => self.notes.push(NoteDoc {
                id: seq,
                at,
                text: text.to_owned(),
                meta: meta.map(str::to_owned),
            }),
        }
        true
    }

    fn claim(&mut self, seq: u64, claim: &Claim) {
        self.small.open += u64::from(!claim.again);
        let state = EntryState::InFlight { owner: claim.owner };
        self.keys.insert(claim.key, entry(state, seq, claim));
    }

    fn end(&mut self, seq: u64, place: Place, ended: &Ended<'_>) {
        match ended.health {
            Health::Silent => {}
            Health::Works => {
                if !self.small.breakers.is_empty() {
                    self.small.breakers.remove(ended.tool);
                }
            }
            Health::Trouble => {
                let breaker = self
                    .small
                    .breakers
                    .entry(ended.tool.to_owned())
                    .or_default();
                breaker.failures = breaker.failures.saturating_add(1);
                breaker.failed_at = Timestamp(ended.at);
            }
        }
        let Some(key) = &ended.key else { return };
        self.small.open = self.small.open.saturating_sub(u64::from(key.held));
        self.small.ordinal = key.ordinal.max(self.small.ordinal);
        let state = match key.result {
            Some(_) => EntryState::Finished {
                place,
                ordinal: key.ordinal,
            },
            None => EntryState::Free,
        };
        let entry = Entry {
            state,
            seq,
            call: key.call,
            bond: key.bond,
            at: ended.at,
        };
        self.keys.insert(key.key, entry);
    }

    /// Notes the end of a run whose record waits as `ticket`.
    pub(crate) fn ending(&mut self, ticket: Ticket, ended: &Ended<'_>) {
        let pending = match ended.health {
            Health::Silent => None,
            Health::Works if self.small.breakers.is_empty() && self.pending.is_empty() => None,
            Health::Works => Some(PendingHealth {
                works: true,
                failures: 0,
                at: 0,
            }),
            Health::Trouble => {
                let before = self.pending.get(ended.tool).copied().unwrap_or_default();
                Some(PendingHealth {
                    failures: before.failures + 1,
                    at: ended.at,
                    works: before.works,
                })
            }
        };
        if let Some(pending) = pending {
            self.pending.insert(ended.tool.to_owned(), pending);
        }
        let Some(key) = &ended.key else { return };
        let state = match key.result {
            // As if nobody else wrote meanwhile; the record will tell exactly.
            Some(_) => {
                self.pending_recent += u64::from(key.recent);
                EntryState::Ending {
                    ticket,
                    ordinal: self.ordinal(),
                }
            }
            None => EntryState::Free,
        };
        let entry = Entry {
            state,
            seq: u64::MAX,
            call: key.call,
            bond: key.bond,
            at: ended.at,
        };
        self.keys.insert(key.key, entry);
    }

    /// All pending records were given up: as far as anyone can tell, the runs they ended never
    /// ended.
    pub(crate) fn given_up(&mut self) {
        for entry in self.keys.values_mut() {
            if matches!(entry.state, EntryState::Ending { .. }) {
                entry.state = EntryState::Unknown;
            }
        }
    }

    /// How many entries ever ended that count in a `View::Recent`.
    pub(crate) fn ordinal(&self) -> u64 {
        self.small.ordinal + self.pending_recent
    }

    /// Nothing is pending any more.
    pub(crate) fn settled(&mut self) {
        self.pending_recent = 0;
        if !self.pending.is_empty() {
            self.pending.clear();
        }
    }

    /// A tool's breaker, with what is pending.
    pub(crate) fn breaker(&self, tool: &str) -> BreakerState {
        let recorded = self.small.breakers.get(tool).copied().unwrap_or_default();
        match self.pending.get(tool) {
            None => recorded,
            Some(pending) => {
                let before = if pending.works { 0 } else { recorded.failures };
                let failures = before.saturating_add(pending.failures);
                let failed_at = if pending.failures > 0 {
                    Timestamp(pending.at)
                } else if failures > 0 {
                    recorded.failed_at
                } else {
                    Timestamp(0)
                };
                BreakerState {
                    failures,
                    failed_at,
                }
            }
        }
    }

    /// The newest approval since the watermark with this bond.
    pub(crate) fn approval_by_bond(&self, bond: &str) -> Option<&(u64, ApprovalDoc)> {
        self.approvals
            .values()
            .filter(|(_, doc)| doc.bond == bond)
            .max_by_key(|(_, doc)| (doc.asked_at, doc.asked_seq))
    }

    /// Forgets what the index holds up to record `seq`.
    pub(crate) fn trim(&mut self, seq: u64) {
        self.keys.retain(|_, entry| entry.seq > seq);
        self.leases.retain(|_, (at, _)| *at > seq);
        self.approvals.retain(|_, (at, _)| *at > seq);
        self.notes.retain(|note| note.id > seq);
        self.plans.trim(seq);
        self.runs.trim(seq);
        self.pilots.trim(seq);
    }

    /// Starts over from the index.
    pub(crate) fn reset(&mut self, small: Small) {
        // As many keys will come until the next fold; growing the table again costs more than
        // the fold of a key does.
        let mut keys = std::mem::take(&mut self.keys);
        keys.clear();
        let mut plans = std::mem::take(&mut self.plans);
        plans.reset();
        *self = Self {
            small,
            keys,
            plans,
            pending: std::mem::take(&mut self.pending),
            ..Self::default()
        };
    }
}

fn entry(state: EntryState, seq: u64, claim: &Claim) -> Entry {
    Entry {
        state,
        seq,
        call: claim.call,
        bond: claim.bond,
        at: claim.at,
    }
}

/// A `KeyId` is a hash already.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(word) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*word);
        }
    }

    fn write_usize(&mut self, _length: usize) {}
}
