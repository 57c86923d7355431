//! Whether a call would be let through, for callers that ask before they make it. Nothing is run and
//! nothing recorded.

use callgate_call::{Call, Enforcement, Fault, Job, NoSink, Patience};

use crate::invoke::Gate;
use crate::policy::Decision;

/// A call that would be let through.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Where a person would have to approve it first.
    pub needs_approval: bool,
    /// What would hold the tool.
    pub enforcement: Enforcement,
}

impl Gate {
    /// Takes a call through the stages up to its start, and does nothing: no record, no lease and no
    /// key is touched. Rates and breakers are not asked, because their state may be another one when
    /// the call is made.
    pub async fn rehearse(&self, call: &Call) -> Result<Rehearsal, Fault> {
        let setup = self.setup.load_full();
        let entry = setup.catalog.find(&call.tool)?;
        let tool = &entry.tool;
        entry.input.check_input(call.input.value())?;
        let decision = setup.policy.decide(&call.caller, tool)?;
        setup.policy.lease(call, tool)?;
        let plan = self.plan(call, tool).await?;
        let timeout = call.timeout(tool.timeout);
        let job = Job {
            call,
            tool,
            plan: &plan,
            timeout: &Patience::new(timeout, timeout),
            sink: &NoSink,
        };
        tool.runner.check(job)?;
        Ok(Rehearsal {
            needs_approval: decision == Decision::Ask,
            enforcement: plan.enforcement,
        })
    }
}
