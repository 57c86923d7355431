//! Granting leases: what a person or, in band, a pipe asks for, filled in from the catalog.
//! Spending them is part of starting a call (`invoke.rs`). Decision G-5.

use std::time::Duration;

use callgate_call::{Caller, Digest, Fault, LeaseToken, Tier};
use callgate_store::{LEASE_LIFE_MAX, Lease, LeaseGrant};

use crate::errors::{internal, not_found};
use crate::invoke::Gate;

/// How long a lease lives that says nothing.
const LIFE_DEFAULT: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct LeaseRequest {
    /// The tool, by any of its names.
    pub tool: String,
    /// The highest tier; the tool's own if not said.
    pub tier: Option<Tier>,
    /// How long it lives; 60 s if not said, an hour at most.
    pub ttl: Option<Duration>,
    /// The only caller, if it is bound to one.
    pub caller: Option<Caller>,
    /// The only input, if it is bound to one. Such a lease opens no call that brings slots or
    /// answers beside its input.
    pub input: Option<Digest>,
}

/// A fresh lease.
#[derive(Debug)]
pub struct LeaseGranted {
    /// Its public name.
    pub id: String,
    /// The token, shown this once.
    pub token: LeaseToken,
    /// The tool's canonical name.
    pub tool: String,
    /// The highest tier it opens.
    pub tier: Tier,
    /// How long it lives.
    pub ttl: Duration,
}

/// The number of leases in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseTotals {
    /// Leases that can be spent.
    pub active: u64,
    /// Leases that a call has spent.
    pub spent: u64,
    /// Leases that expired unspent.
    pub expired: u64,
    /// Leases that were revoked.
    pub revoked: u64,
}

impl Gate {
    /// Grants a lease for one call.
    pub fn grant_lease(&self, request: &LeaseRequest) -> Result<LeaseGranted, Fault> {
        let catalog = self.catalog();
        let tool = &catalog.find(&request.tool)?.tool;
        let ttl = request.ttl.unwrap_or(LIFE_DEFAULT);
        if ttl.is_zero() || ttl > LEASE_LIFE_MAX {
            return Err(Fault::bad_value(
                "a lease lives more than 0 and at most 3600 seconds",
            ));
        }
        let tier = request.tier.unwrap_or(tool.tier);
        let grant = LeaseGrant {
            tool: &tool.name,
            tier,
            life: ttl,
            caller: request.caller.as_ref(),
            input: request.input,
        };
        let (id, token) = self
            .store
            .grant_lease(grant)
            .map_err(|error| internal(&error))?;
        Ok(LeaseGranted {
            id: id.to_string(),
            token,
            tool: tool.name.clone(),
            tier,
            ttl,
        })
    }

    /// The leases of the last day.
    pub fn leases(&self) -> Result<Vec<Lease>, Fault> {
        self.store.leases().map_err(|error| internal(&error))
    }

    /// Takes a lease back.
    pub fn revoke_lease(&self, id_or_token: &str) -> Result<Lease, Fault> {
        self.store
            .revoke_lease(id_or_token)
            .map_err(|error| not_found(&error))
    }

    /// The number of leases in each state.
    pub fn lease_totals(&self) -> Result<LeaseTotals, Fault> {
        let counts = self.store.lease_counts();
        let counts = counts.map_err(|error| internal(&error))?;
        Ok(LeaseTotals {
            active: counts.active,
            spent: counts.spent,
            expired: counts.expired,
            revoked: counts.revoked,
        })
    }
}
