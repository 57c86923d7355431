//! Who may call what: rules by caller and tool pattern. The first that fits decides; where
//! none does, the call is allowed.

use callgate_call::{Call, Caller, Fault, LeaseGroup, LeaseToken, Tier, Tool, fits_any};

/// The rules of one configuration.
#[derive(Debug, Default)]
pub struct Policy {
    /// In the order they were written.
    pub rules: Vec<Rule>,
    /// Rules of a configuration that is not trusted, in their order. They decide beside `rules`,
    /// and the stricter decision counts: they never grant anything. G-9.
    pub restrictions: Vec<Rule>,
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

/// What a rule says, the laxest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// Go on.
    Allow,
    /// A person must approve first.
    Ask,
    /// Refuse.
    Deny,
}

/// The tier from which on a lease is needed, for each group of callers; `None` asks for none.
/// Decision G-5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeasePolicy {
    /// On the toolhost.
    pub toolhost: Option<Tier>,
    /// On pipes, `gate.sock`, `bridge.sock`, the command line, and on `/rpc` for the owner.
    pub local: Option<Tier>,
    /// For everybody else on TCP.
    pub tcp: Option<Tier>,
}

impl LeasePolicy {
    /// Asks for a lease from `tier` on, of every group that is asked for none or from a higher tier on.
    pub fn tighten(&mut self, tier: Tier) {
        for first in [&mut self.toolhost, &mut self.local, &mut self.tcp] {
            *first = Some(first.map_or(tier, |first| first.min(tier)));
        }
    }

    /// Returns whether a call of `tool` by a caller of `group` must bring a lease.
    #[must_use]
    pub fn asks(self, group: LeaseGroup, tool: &Tool) -> bool {
        let from = match group {
            LeaseGroup::Toolhost => self.toolhost,
            LeaseGroup::Local => self.local,
            LeaseGroup::Tcp => self.tcp,
        };
        from.is_some_and(|from| tool.tier >= from)
    }
}

impl Rule {
    /// True if the rule is about `tool`, whoever calls.
    #[must_use]
    pub fn covers(&self, tool: &Tool) -> bool {
        fits_any(&self.tools, &tool.rule_names())
    }
}

impl Policy {
    /// The lease a call must spend; `None` where it needs none. A token that comes along
    /// unasked is ignored and not spent. Decision G-5.
    pub fn lease<'a>(&self, call: &'a Call, tool: &Tool) -> Result<Option<&'a LeaseToken>, Fault> {
        if !self.leases.asks(call.lease_group, tool) {
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
    pub fn asks_leave(&self, caller: &Caller, tool: &Tool, group: LeaseGroup) -> bool {
        self.leases.asks(group, tool) || matches!(self.decide(caller, tool), Ok(Decision::Ask))
    }

    /// Returns whether any rule is written, so that tools may differ by caller.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        !(self.rules.is_empty() && self.restrictions.is_empty())
    }

    /// True if the caller's client may put the question to its user: up to tier 1 always, above
    /// where every rule that asks says so. Decision G-6.
    #[must_use]
    pub fn may_client_approve(&self, caller: &Caller, tool: &Tool) -> bool {
        if tool.tier <= Tier::Write {
            return true;
        }
        let [rule, restriction] = self.deciding(caller, tool);
        rule.is_some_and(|rule| rule.approve_by_client)
            && restriction
                .is_none_or(|rule| rule.decision == Decision::Allow || rule.approve_by_client)
    }

    /// The decision for a caller and a tool. A denial is the fault itself.
    pub fn decide(&self, caller: &Caller, tool: &Tool) -> Result<Decision, Fault> {
        let decisions = self.deciding(caller, tool).into_iter().flatten();
        let decisions = decisions.map(|rule| rule.decision);
        match decisions.max().unwrap_or(Decision::Allow) {
            Decision::Deny => Err(Fault::denied(format!(
                "policy forbids {caller} to call `{}`",
                tool.name
            ))),
            decision => Ok(decision),
        }
    }

    /// The first rule that fits, of those that count and of those that only restrict.
    fn deciding(&self, caller: &Caller, tool: &Tool) -> [Option<&Rule>; 2] {
        [&self.rules, &self.restrictions].map(|rules| {
            rules
                .iter()
                .find(|rule| fits_any(&rule.callers, &[caller.as_str()]) && rule.covers(tool))
        })
    }
}
