//! The tool that a caller means, together with the configuration it was found in. A door looks a
//! tool up once for each call: the decisions of the door and the stages of the gate then go by one
//! configuration, even if another one is put in place before the call has ended.

use std::sync::Arc;

use callgate_call::{Caller, Fault, Scope, Tool};

use crate::catalog::Entry;
use crate::invoke::Gate;
use crate::policy::Decision;
use crate::setup::Setup;

/// A tool and the configuration it is of; or the fault of a tool that is not there.
#[derive(Clone)]
pub struct FoundTool {
    pub(crate) setup: Arc<Setup>,
    pub(crate) entry: Result<Arc<Entry>, Fault>,
}

impl Gate {
    /// Looks a tool up by canonical name, AID or alias.
    #[must_use]
    pub fn find(&self, name: &str) -> FoundTool {
        let setup = self.setup.load_full();
        let entry = setup.catalog.find(name).cloned();
        FoundTool { setup, entry }
    }

    /// A tool that stands in no catalog, in the present configuration.
    #[must_use]
    pub fn found(&self, entry: Result<Arc<Entry>, Fault>) -> FoundTool {
        let setup = self.setup.load_full();
        FoundTool { setup, entry }
    }
}

impl FoundTool {
    /// The tool with its schemas, or the fault of a tool that is not there.
    pub fn entry(&self) -> Result<&Arc<Entry>, &Fault> {
        self.entry.as_ref()
    }

    /// The tool, if it is there.
    #[must_use]
    pub fn tool(&self) -> Option<&Tool> {
        self.entry.as_ref().ok().map(|entry| &entry.tool)
    }

    /// The tool, if it is there and `scope` allows it.
    #[must_use]
    pub fn tool_within(&self, scope: Option<&Scope>) -> Option<&Tool> {
        let tool = self.tool()?;
        scope.is_none_or(|scope| scope.allows(tool)).then_some(tool)
    }

    /// The same, if policy lets `caller` know of the tool as well.
    #[must_use]
    pub fn tool_visible_to(&self, caller: &Caller, scope: Option<&Scope>) -> Option<&Tool> {
        let tool = self.tool_within(scope)?;
        let decision = self.setup.policy.decide(caller, tool);
        decision.is_ok().then_some(tool)
    }

    /// Returns whether a call of the tool answers without waiting for anything outside. A tool that
    /// is not there does.
    #[must_use]
    pub fn answers_at_once(&self) -> bool {
        self.tool().is_none_or(|tool| tool.runner.is_pure())
    }

    /// Returns whether policy wants a person to see calls of this tool by this caller first.
    #[must_use]
    pub fn asks(&self, caller: &Caller) -> bool {
        let policy = &self.setup.policy;
        let asks = |tool| matches!(policy.decide(caller, tool), Ok(Decision::Ask));
        policy.has_rules() && self.tool().is_some_and(asks)
    }

    /// Returns whether the caller's own client may ask its user for approval. Decision G-6.
    #[must_use]
    pub fn may_client_approve(&self, caller: &Caller) -> bool {
        let policy = &self.setup.policy;
        self.tool()
            .is_some_and(|tool| policy.may_client_approve(caller, tool))
    }

    /// The tool that runs code which is not registered; `None` where the owner does not allow
    /// this code.
    #[must_use]
    pub fn by_code(&self, code: &str) -> Option<Result<Arc<Entry>, Fault>> {
        self.setup.entries.as_ref()?.find(code)
    }

    /// Puts another form of the tool, or a fault, in its place.
    #[must_use]
    pub fn with(self, entry: Result<Arc<Entry>, Fault>) -> Self {
        Self { entry, ..self }
    }
}
