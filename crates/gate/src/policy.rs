//! Who may call what: rules by caller and tool pattern. The first that fits decides; where
//! none does, the call is allowed.

use callgate_call::{Call, Caller, Fault, LeaseToken, Tier, Tool, Wire, fits_any};

/// The rules of one configuration.
#[derive(Debug, Default)]
pub struct Policy {
    /// In the order they were written.
    pub rules: Vec<Rule>,
    /// When a lease is asked for.
    pub leases: LeasePolicy,
}

/// One `[[policy]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Patterns over canonical names and AIDs; none means every tool.
    pub tools: Vec<String>,
    /// Patterns over callers; none means every caller.
    pub callers: Vec<String>,
    /// What to do.
    pub decision: Decision,
    /// Where a person must be asked: the caller's own client may ask it, whatever the tier.
    pub approve_by_client: bool,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Allow,
    /// Refuse.
    Deny,
    /// A person must approve first.
    Ask,
}

/// From which tier on a lease is needed, per wire; `None` asks for none. Decision G-5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasePolicy {
    /// On the toolhost.
    pub toolhost: Option<Tier>,
    /// On pipes, `gate.sock`, `bridge.sock` and the command line.
    pub local: Option<Tier>,
    /// On TCP.
    pub tcp: Option<Tier>,
}

impl LeasePolicy {
    fn first_tier(self, wire: Wire) -> Option<Tier> {
        match wire {
            Wire::Toolhost => self.toolhost,
            Wire::Gate | Wire::Mcp | Wire::Bridge | Wire::Tool | Wire::Rpc | Wire::Pilot => {
                self.local
            }
            Wire::McpHttp | Wire::Service | Wire::RpcHttp => self.tcp,
        }
    }

    /// True if a call of `tool` by `wire` must bring a lease.
    #[must_use]
    pub fn asks(self, wire: Wire, tool: &Tool) -> bool {
        self.first_tier(wire).is_some_and(|from| tool.tier >= from)
    }
}

impl Rule {
    /// True if the rule is about `tool`, whoever calls.
    #[must_use]
    pub fn covers(&self, tool: &Tool) -> bool {
        fits_any(&self.tools, &[&tool.name, &tool.aid])
    }
}

impl Policy {
    /// The lease a call must spend; `None` where it needs none. A token that comes along
    /// unasked is ignored and not spent. Decision G-5.
    pub fn lease<'a>(&self, call: &'a Call, tool: &Tool) -> Result<Option<&'a LeaseToken>, Fault> {
        if !self.leases.asks(call.wire, tool) {
            return Ok(None);
        }
        call.lease
            .as_ref()
            .map(Some)
            .ok_or_else(|| Fault::LeaseRequired {
                tier: tool.tier.number(),
                tool: tool.name.clone(),
                aid: tool.aid.clone(),
            })
    }

    /// True if a call of this tool by this caller must bring a lease or wait for an approval.
    #[must_use]
    pub fn asks_leave(&self, caller: &Caller, tool: &Tool, wire: Wire) -> bool {
        self.leases.asks(wire, tool) || matches!(self.decide(caller, tool), Ok(Decision::Ask))
    }

    /// The rule that decides.
    fn rule(&self, caller: &Caller, tool: &Tool) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|rule| fits_any(&rule.callers, &[caller.as_str()]) && rule.covers(tool))
    }

    /// True if the caller's client may put the question to its user: up to tier 1 always, above
    /// where the rule says so. Decision G-6.
    #[must_use]
    pub fn may_client_approve(&self, caller: &Caller, tool: &Tool) -> bool {
        let named = |rule: &Rule| rule.approve_by_client;
        tool.tier <= Tier::Write || self.rule(caller, tool).is_some_and(named)
    }

    /// The decision for a caller and a tool. A denial is the fault itself.
    pub fn decide(&self, caller: &Caller, tool: &Tool) -> Result<Decision, Fault> {
        match self
            .rule(caller, tool)
            .map_or(Decision::Allow, |rule| rule.decision)
        {
            Decision::Deny => Err(Fault::denied(format!(
                "policy forbids {caller} to call `{}`",
                tool.name
            ))),
            decision => Ok(decision),
        }
    }
}
