//! What doors ask of the gate beside calls: which tools there are for whom, what stands beside
//! them, what changed, and what the chain has of a call.

use std::sync::Arc;

use callgate_call::{
    CallId, Caller, Change, Changes, Fault, Held, LeaseGroup, Scope, Shelf, Tool, Topics,
};
use callgate_store::{Filter, Store};
use serde_json::Value;

use crate::catalog::{Catalog, Entry};
use crate::errors::internal;
use crate::invoke::Gate;
use crate::scope::check_scope;
use crate::setup::{ConfigurationStatus, Setup};

impl Gate {
    /// The present configuration's tools.
    #[must_use]
    pub fn catalog(&self) -> CatalogRef {
        CatalogRef(self.setup.load_full())
    }

    /// What would hold a tool of this caller's to each of the seven guarantees.
    pub fn outlook(
        &self,
        name: &str,
        caller: &Caller,
        scope: Option<&Scope>,
    ) -> Result<(Arc<Entry>, Vec<Held>), Fault> {
        let entry = self.visible(name, caller, scope)?;
        let held = match entry.tool.runner.outlook(&entry.tool) {
            Some(held) => held,
            None => self.planner.outlook(&entry.tool),
        };
        Ok((entry, held))
    }

    /// True if policy wants a person to see calls of this tool by this caller first.
    #[must_use]
    pub fn asks(&self, tool: &str, caller: &Caller) -> bool {
        self.find(tool).asks(caller)
    }

    /// True if a call of this tool by this caller must bring a lease or wait for an approval.
    #[must_use]
    pub fn asks_leave(&self, tool: &Tool, caller: &Caller, group: LeaseGroup) -> bool {
        self.setup.load().policy.asks_leave(caller, tool, group)
    }

    /// The tool a caller means, if it may know of it.
    pub fn visible(
        &self,
        name: &str,
        caller: &Caller,
        scope: Option<&Scope>,
    ) -> Result<Arc<Entry>, Fault> {
        let setup = self.setup.load();
        let entry = setup.catalog.find(name)?;
        check_scope(scope, &entry.tool, name)?;
        match setup.policy.decide(caller, &entry.tool) {
            Ok(_) => Ok(Arc::clone(entry)),
            Err(_) => Err(Fault::unknown_tool(name)),
        }
    }

    /// The tools a caller may know of, by name.
    #[must_use]
    pub fn visible_tools(&self, caller: &Caller, scope: Option<&Scope>) -> Vec<Arc<Entry>> {
        let setup = self.setup.load();
        let mut entries: Vec<_> = setup
            .catalog
            .entries()
            .filter(|entry| !entry.tool.is_internal && !entry.tool.runner.is_hidden())
            .filter(|entry| scope.is_none_or(|scope| scope.allows(&entry.tool)))
            .filter(|entry| setup.policy.decide(caller, &entry.tool).is_ok())
            .cloned()
            .collect();
        entries.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
        entries
    }

    /// True if a caller may hear events of this name: it may know of a tool of their family,
    /// which is what stands before the `/`.
    #[must_use]
    pub fn may_hear(&self, event: &str, caller: &Caller, scope: Option<&Scope>) -> bool {
        let setup = self.setup.load();
        if scope.is_none() && !setup.policy.has_rules() {
            return true;
        }
        let family = event.split_once('/').map_or(event, |(family, _)| family);
        let is_of = |name: &str| {
            let rest = name.strip_prefix(family);
            rest.is_some_and(|rest| rest.starts_with('/'))
        };
        setup
            .catalog
            .entries()
            .filter(|entry| is_of(&entry.tool.name))
            .filter(|entry| scope.is_none_or(|scope| scope.allows(&entry.tool)))
            .any(|entry| setup.policy.decide(caller, &entry.tool).is_ok())
    }

    /// The chain's records of one call of `caller`, as JSON.
    pub fn trail(&self, call: CallId, caller: &Caller) -> Result<Vec<String>, Fault> {
        let filter = Filter {
            call: Some(call.to_string()),
            ..Filter::default()
        };
        let mut records = Vec::new();
        let mut is_theirs = false;
        self.store
            .show(&filter, &mut |record| {
                // Only the record of its start or refusal says whose it is.
                let body: Value = serde_json::from_str(record.body).unwrap_or_default();
                is_theirs |= body["caller"] == caller.as_str();
                records.push(record.body.to_owned());
                true
            })
            .map_err(|error| internal(&error))?;
        Ok(if is_theirs { records } else { Vec::new() })
    }

    /// Where changes of what there is are told.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Where events that outlive their call are heard.
    #[must_use]
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Why tools that the workspace's files name may be missing, if that may be.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        self.status.load().doubt.clone()
    }

    /// What the present configuration is, for people.
    #[must_use]
    pub fn note(&self) -> String {
        self.status.load().note.clone()
    }

    /// Replaces the words on the configuration in force, and nothing else.
    pub fn set_status(&self, status: ConfigurationStatus) {
        self.status.store(Arc::new(status));
    }

    /// Puts another configuration in place. Calls under way end under the old one.
    pub fn replace(&self, setup: Setup) {
        let new = Arc::new(setup);
        let old = self.setup.swap(Arc::clone(&new));
        self.set_status(ConfigurationStatus::of(&new));
        old.catalog.stop();
        if let Some(entries) = &old.entries {
            entries.stop();
        }
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            self.changes.tell(change);
        }
        // What is at an address has changed if it is not the same, or gone.
        let resources = &new.shelf.resources;
        for resource in old
            .shelf
            .resources
            .iter()
            .filter(|r| !resources.contains(r))
        {
            self.changes.tell(Change::Resource(resource.uri.clone()));
        }
    }

    /// What must never leave, nor be kept.
    #[must_use]
    pub fn secrets(&self) -> callgate_call::Secrets {
        self.setup.load().secrets.clone()
    }

    /// Counts of records and traces.
    #[must_use]
    pub fn record_totals(&self) -> RecordTotals {
        let stats = self.store.stats();
        RecordTotals {
            chain_records: stats.seq,
            records_lost: stats.lost,
            traces_lost: self.store.traces_lost(),
        }
    }

    /// The store, for crates that may use it. Doors may not.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }
}

/// Counts of records and traces since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordTotals {
    /// Records in the chain.
    pub chain_records: u64,
    /// Records that could not be written and were given up.
    pub records_lost: u64,
    /// Traces that could not be kept.
    pub traces_lost: u64,
}

/// The tools of one configuration, kept while it is looked at.
pub struct CatalogRef(Arc<Setup>);

impl CatalogRef {
    /// What stands beside the tools.
    #[must_use]
    pub fn shelf(&self) -> &Shelf {
        &self.0.shelf
    }
}

impl std::ops::Deref for CatalogRef {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.0.catalog
    }
}
