//! Leases: single-use permissions for one call (G-5). Only a hash of the token is kept; what a
//! lease is good for is checked in the transaction that spends it (T-5).

use std::time::Duration;

use callgate_call::{CallId, Caller, Digest, LeaseRefusal, LeaseToken, Tier, Timestamp};
use serde::{Deserialize, Serialize};

use crate::state::Inner;
use crate::{Start, Store, StoreError, records};

/// The public name of a lease, good for lists and the chain, not for calling.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub String);

impl std::fmt::Display for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The longest a lease may live. G-5.
pub const LEASE_LIFE_MAX: Duration = Duration::from_secs(60 * 60);

/// What a new lease is good for.
#[derive(Clone, Copy, Debug)]
pub struct LeaseGrant<'a> {
    /// The tool's canonical name (or its AID).
    pub tool: &'a str,
    /// The highest tier it opens.
    pub tier: Tier,
    /// How long it lives; at most `LEASE_LIFE_MAX`.
    pub life: Duration,
    /// The only caller that may use it.
    pub caller: Option<&'a Caller>,
    /// The only input it may be used with.
    pub input: Option<Digest>,
}

/// A lease as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its public name.
    pub id: LeaseId,
    /// The tool it opens.
    pub tool: String,
    /// The highest tier it opens.
    pub tier: u8,
    /// The only caller, if bound.
    pub caller: Option<String>,
    /// The only input, if bound.
    pub input: Option<Digest>,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// From when on it is expired.
    pub expires_at: Timestamp,
    /// What became of it.
    pub state: LeaseState,
}

/// What became of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// It can be spent.
    Active,
    /// A call spent it.
    Spent {
        /// The call.
        call: CallId,
        /// When.
        at: Timestamp,
    },
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked {
        /// When.
        at: Timestamp,
    },
}

/// How many leases there are of each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Can be spent.
    pub active: u64,
    /// Were spent.
    pub spent: u64,
    /// Ran out.
    pub expired: u64,
    /// Were taken back.
    pub revoked: u64,
}

/// A lease as the journal and the index hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseDoc {
    pub(crate) id: String,
    /// BLAKE3 of the token, in hex.
    pub(crate) hash: String,
    pub(crate) tool: String,
    pub(crate) tier: u8,
    pub(crate) caller: Option<String>,
    pub(crate) input: Option<String>,
    pub(crate) granted_at: u64,
    pub(crate) expires_at: u64,
    /// The call, in hex, and when.
    pub(crate) spent: Option<(String, u64)>,
    pub(crate) revoked_at: Option<u64>,
}

impl LeaseDoc {
    fn lease(&self, now: Timestamp) -> Lease {
        let state = match (&self.spent, self.revoked_at) {
            (Some((call, at)), _) => LeaseState::Spent {
                call: CallId::parse(call).unwrap_or(CallId(0)),
                at: Timestamp(*at),
            },
            (None, Some(at)) => LeaseState::Revoked { at: Timestamp(at) },
            (None, None) if now.0 >= self.expires_at => LeaseState::Expired,
            (None, None) => LeaseState::Active,
        };
        Lease {
            id: LeaseId(self.id.clone()),
            tool: self.tool.clone(),
            tier: self.tier,
            caller: self.caller.clone(),
            input: self.input.as_deref().and_then(Digest::from_hex),
            granted_at: Timestamp(self.granted_at),
            expires_at: Timestamp(self.expires_at),
            state,
        }
    }

    /// Why it is not good for this call, in the order of T-5.
    pub(crate) fn refusal(&self, start: &Start<'_>, now: Timestamp) -> Option<LeaseRefusal> {
        if self.revoked_at.is_some() && self.spent.is_none() {
            return Some(LeaseRefusal::NotFound);
        }
        if now.0 >= self.expires_at {
            return Some(LeaseRefusal::Expired);
        }
        if self.spent.is_some() {
            return Some(LeaseRefusal::AlreadyConsumed);
        }
        if self.tool != start.tool && self.tool != start.aid {
            let (expected, got) = (self.tool.clone(), start.tool.to_owned());
            return Some(LeaseRefusal::ToolMismatch { expected, got });
        }
        if self.tier < start.tier.number() {
            let (expected, got) = (start.tier.number(), self.tier);
            return Some(LeaseRefusal::TierTooLow { expected, got });
        }
        if let Some(expected) = self
            .caller
            .clone()
            .filter(|only| only != start.caller.as_str())
        {
            let got = start.caller.to_string();
            return Some(LeaseRefusal::CallerMismatch { expected, got });
        }
        let expected = self.input.clone()?;
        let mut got = start.input.to_hex();
        if expected == got {
            if !start.brings_more {
                return None;
            }
            got.push_str(
                " and slots or answers beside it: a lease for them is granted without `--input`",
            );
        }
        Some(LeaseRefusal::InputMismatch { expected, got })
    }
}

/// What is kept of a token.
pub(crate) fn hash_of(token: &str) -> String {
    Digest::of_bytes(token.as_bytes()).to_hex()
}

impl Store {
    /// Grants a lease. The token is returned once and kept nowhere.
    pub fn grant_lease(&self, grant: LeaseGrant<'_>) -> Result<(LeaseId, LeaseToken), StoreError> {
        if grant.life > LEASE_LIFE_MAX {
            let reason = format!("a lease lives at most {} s", LEASE_LIFE_MAX.as_secs());
            return Err(StoreError::Refused { reason });
        }
        let secret = u128::from(crate::random_u64()?) << 64 | u128::from(crate::random_u64()?);
        let token = format!("lease_{secret:032x}");
        let hash = hash_of(&token);
        let id = format!("l-{}", &hash[..12]);
        self.commit(|inner, now| {
            let doc = LeaseDoc {
                id: id.clone(),
                hash,
                tool: grant.tool.to_owned(),
                tier: grant.tier.number(),
                caller: grant.caller.map(ToString::to_string),
                input: grant.input.map(Digest::to_hex),
                granted_at: now.0,
                expires_at: now.plus(grant.life).0,
                spent: None,
                revoked_at: None,
            };
            records::lease_grant(&mut inner.pending, now, doc);
            Ok(())
        })?;
        Ok((LeaseId(id), LeaseToken::new(&token)))
    }

    /// The leases of the last day, newest first.
    pub fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.read(|inner, now| {
            let mut leases: Vec<Lease> = inner
                .all_leases()?
                .iter()
                .map(|doc| doc.lease(now))
                .collect();
            leases.sort_by(|a, b| (b.granted_at, &b.id).cmp(&(a.granted_at, &a.id)));
            Ok(leases)
        })
    }

    /// Takes back a lease, by its id or its token. One that is spent stays so, and is not good
    /// for another call either should the one that spent it give it back.
    pub fn revoke_lease(&self, id_or_token: &str) -> Result<Lease, StoreError> {
        self.commit(|inner, now| {
            let found = match inner.lease(&hash_of(id_or_token))? {
                Some(doc) => Some(doc),
                None => inner.lease_by_id(id_or_token)?,
            };
            let Some(mut doc) = found else {
                return Err(StoreError::NotFound {
                    what: "lease".to_owned(),
                });
            };
            if doc.revoked_at.is_none() {
                doc.revoked_at = Some(now.0);
                records::lease_revoke(&mut inner.pending, now, doc.clone());
            }
            Ok(doc.lease(now))
        })
    }

    /// How many leases there are of each state.
    pub fn lease_counts(&self) -> Result<LeaseCounts, StoreError> {
        let mut counts = LeaseCounts::default();
        for lease in self.leases()? {
            match lease.state {
                LeaseState::Active => counts.active += 1,
                LeaseState::Spent { .. } => counts.spent += 1,
                LeaseState::Expired => counts.expired += 1,
                LeaseState::Revoked { .. } => counts.revoked += 1,
            }
        }
        Ok(counts)
    }
}

/// Whether it was this call that spent something.
pub(crate) fn is_by(spent: &Option<(String, u64)>, start: &Start<'_>) -> bool {
    let call = start.call.to_string();
    spent.as_ref().is_some_and(|(by, _)| *by == call)
}

impl Inner {
    /// A lease by the hash of its token.
    pub(crate) fn lease(&mut self, hash: &str) -> Result<Option<LeaseDoc>, StoreError> {
        if let Some((_, doc)) = self.overlay.leases.get(hash) {
            return Ok(Some(doc.clone()));
        }
        if !self.mark.as_ref().is_some_and(|mark| mark.leases) {
            return Ok(None);
        }
        let found = match self.index()? {
            Some(index) => index.lease(hash)?,
            None => None,
        };
        // Opening the index may have shown more of the journal.
        let newer = self.overlay.leases.get(hash).map(|(_, doc)| doc.clone());
        Ok(newer.or(found))
    }

    /// Makes the lease that `start` spent good again.
    pub(crate) fn give_back_lease(
        &mut self,
        start: &Start<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(token) = start.lease else {
            return Ok(());
        };
        let spent = self.lease(&hash_of(token.reveal()))?;
        if let Some(mut doc) = spent.filter(|doc| is_by(&doc.spent, start)) {
            doc.spent = None;
            records::lease_use(&mut self.pending, now, records::Use::Returned, start, doc);
        }
        Ok(())
    }

    fn lease_by_id(&mut self, id: &str) -> Result<Option<LeaseDoc>, StoreError> {
        let hash = match self.index()? {
            Some(index) => index.lease_by_id(id)?.map(|doc| doc.hash),
            None => None,
        };
        let newer = self.overlay.leases.values().find(|(_, doc)| doc.id == id);
        match newer.map(|(_, doc)| doc.hash.clone()).or(hash) {
            Some(hash) => self.lease(&hash),
            None => Ok(None),
        }
    }

    fn all_leases(&mut self) -> Result<Vec<LeaseDoc>, StoreError> {
        let mut all = match self.index()? {
            Some(index) => index.leases()?,
            None => Vec::new(),
        };
        all.retain(|doc| !self.overlay.leases.contains_key(&doc.hash));
        all.extend(self.overlay.leases.values().map(|(_, doc)| doc.clone()));
        Ok(all)
    }
}
