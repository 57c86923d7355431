//! What a token allows at most, and the patterns that say so.

use std::fmt;

use crate::{RateLimit, Tier, Tool, Unserved, host_name};

/// A bearer token, as somebody brings it. Never printed, and compared by its hash only.
#[derive(Clone)]
pub struct BearerToken(String);

impl BearerToken {
    /// Any text a caller sent.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself, for hashing and for showing once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What a caller's token allows. Policy may allow less, never more.
#[derive(Clone, Debug, PartialEq)]
pub struct Scope {
    /// Patterns over canonical names and AIDs, and over names that MCP shows if they are those of
    /// `--only`; none means every tool.
    pub tools: Vec<String>,
    /// The highest tier.
    pub tier_max: Tier,
    /// Calls a second, over all tools.
    pub rate: Option<RateLimit>,
    /// The caller came by MCP, where some built-in tools must be named to be there. G-14.
    pub is_mcp: bool,
    /// The patterns are those of `callgate mcp --only`.
    pub is_only: bool,
    /// The MCP client that the caller is, where it sees its own servers only.
    pub client: Option<ClientScope>,
}

/// The tools of `callgate mcp --client NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientScope {
    /// The name, as `[[client]]` has it.
    pub name: String,
    /// Tools that are of no MCP server are seen as well.
    pub builtins: bool,
}

impl ClientScope {
    fn sees(&self, tool: &Tool) -> bool {
        match &tool.of_server {
            Some(origin) => origin.clients.contains(&self.name),
            None => self.builtins,
        }
    }
}

impl Default for Scope {
    /// A scope that allows everything.
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            tier_max: Tier::Dangerous,
            rate: None,
            is_mcp: false,
            is_only: false,
            client: None,
        }
    }
}

impl Scope {
    /// True if `tool` is within it. What is not does not exist for this caller.
    #[must_use]
    pub fn allows(&self, tool: &Tool) -> bool {
        tool.tier <= self.tier_max
            && self.names(tool)
            && self.hides(tool).is_none()
            && self.client.as_ref().is_none_or(|client| client.sees(tool))
    }

    /// Patterns of tokens do not fit names over MCP: those that were made before would allow more.
    fn names(&self, tool: &Tool) -> bool {
        fits_any(&self.tools, &tool.rule_names())
            || self.is_only && names_tool(&self.tools, &tool.name, &tool.aid)
    }

    /// Returns why `tool` is missing, if it is only because no pattern of this scope names it.
    fn hides(&self, tool: &Tool) -> Option<Unserved> {
        let hides = self.is_mcp && self.tools.is_empty() && tool.tier <= self.tier_max;
        tool.hidden_over_mcp.filter(|_| hides)
    }

    /// Returns why `tool` is not within this scope, where the caller may know.
    #[must_use]
    pub fn why_not(&self, tool: &Tool) -> Option<Unserved> {
        let only = self.is_only && !self.names(tool);
        self.hides(tool).or(only.then_some(Unserved::NotAmongOnly))
    }

    /// Returns what [`Scope::why_not`] would of a tool of this name, which there need not be: the
    /// answer does not tell whether there is one.
    #[must_use]
    pub fn why_not_named(&self, name: &str) -> Option<Unserved> {
        let only = self.is_only && !fits_any(&self.tools, &[name]);
        only.then_some(Unserved::NotAmongOnly)
    }
}

/// Returns the words for a pattern of `--only` that fits no tool.
#[must_use]
pub fn idle_only_words(pattern: &str) -> String {
    format!("`--only {pattern}` fits no tool here")
}

/// Returns whether a pattern fits the name, the AID or the name over MCP of a tool. No pattern fits
/// none.
#[must_use]
pub fn names_tool(patterns: &[String], name: &str, aid: &str) -> bool {
    let host = host_name(name);
    !patterns.is_empty() && fits_any(patterns, &[name, aid, &host])
}

/// True if no pattern is given or one of them fits one of the names.
#[must_use]
pub fn fits_any(patterns: &[String], names: &[&str]) -> bool {
    patterns.is_empty()
        || patterns
            .iter()
            .any(|pattern| names.iter().any(|name| fits(pattern, name)))
}

/// A pattern is text in which `*` stands for any run of characters.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
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
        for (pattern, name, wanted) in [
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
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
