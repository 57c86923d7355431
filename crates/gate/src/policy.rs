//! Who may call what: rules by caller and tool pattern. The first that fits decides; where
//! none does, the call is allowed.

use callgate_call::{Call, Caller, Fault, LeaseToken, Tier, Tool, Wire};

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
    /// On `gate.sock` and the command line.
    pub gate: Option<Tier>,
}

impl LeasePolicy {
    fn first_tier(self, wire: Wire) -> Option<Tier> {
        match wire {
            Wire::Toolhost => self.toolhost,
            Wire::Gate => self.gate,
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
        any(&self.tools, &[&tool.name, &tool.aid])
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

    /// The decision for a caller and a tool. A denial is the fault itself.
    pub fn decide(&self, caller: &Caller, tool: &Tool) -> Result<Decision, Fault> {
        let fits = |rule: &&Rule| any(&rule.callers, &[caller.as_str()]) && rule.covers(tool);
        match self
            .rules
            .iter()
            .find(fits)
            .map_or(Decision::Allow, |rule| rule.decision)
        {
            Decision::Deny => Err(Fault::Denied {
                reason: format!("policy forbids {caller} to call `{}`", tool.name),
            }),
            decision => Ok(decision),
        }
    }
}

fn any(patterns: &[String], names: &[&str]) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| names.iter().any(|name| matches(pattern, name)))
}

/// A pattern is text in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, fits) in [
            ("*", "anything", true),
            ("files/*", "files/read", true),
            ("files/*", "file", false),
            ("files/read", "files/read", true),
            ("files/read", "files/reader", false),
            ("*read*", "files/read", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("uid:*", "uid:0", true),
            ("", "x", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
