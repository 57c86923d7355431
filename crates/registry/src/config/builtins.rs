//! `[builtins]` as written.

use callgate_call::{aid_of_name, names_tool};
use callgate_tools::{BUILTIN_NAMES, MCP_DEFAULT};
use serde::Deserialize;

use crate::suggest;

/// `[builtins]`: which of the built-in tools are served.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltinsConfig {
    /// None of them.
    #[serde(default)]
    pub off: bool,
    /// Patterns over their names, AIDs and names over MCP. Absent: all of them, and over MCP those of
    /// `callgate_tools::MCP_DEFAULT`.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
}

/// Why `[builtins]` makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinsError {
    /// Two words that contradict each other.
    #[error("builtins: say `off` or `allow`, not both")]
    Both,
    /// A pattern that fits no tool.
    #[error("builtins.allow: no built-in tool fits `{pattern}`{near}")]
    Unknown {
        /// The pattern.
        pattern: String,
        /// The question whether another name was meant, or nothing.
        near: String,
    },
}

impl BuiltinsConfig {
    /// Checks that the two words do not contradict each other, and that each pattern fits a tool.
    pub fn check(&self) -> Result<(), BuiltinsError> {
        let Some(allow) = &self.allow else {
            return Ok(());
        };
        if self.off {
            return Err(BuiltinsError::Both);
        }
        let fits = |pattern: &&String| {
            let pattern = std::slice::from_ref(*pattern);
            let is_named = |name: &&str| names_tool(pattern, name, &aid_of_name(name));
            BUILTIN_NAMES.iter().any(is_named)
        };
        match allow.iter().find(|pattern| !fits(pattern)) {
            None => Ok(()),
            Some(pattern) => Err(BuiltinsError::Unknown {
                pattern: pattern.clone(),
                near: suggest::question(pattern, BUILTIN_NAMES),
            }),
        }
    }

    /// Returns whether the tool of this name is served at all. An empty list allows none.
    pub fn allows(&self, name: &str) -> bool {
        !self.off && (self.allow.is_none() || self.names(name))
    }

    /// Returns whether `allow` names the tool of this name.
    pub fn names(&self, name: &str) -> bool {
        let allow = self.allow.as_ref();
        !self.off && allow.is_some_and(|allow| names_tool(allow, name, &aid_of_name(name)))
    }

    /// Returns whether the tool of this name has to be named by a client of MCP to be served to it.
    pub fn hides_over_mcp(&self, name: &str) -> bool {
        self.allow.is_none() && !MCP_DEFAULT.contains(&name)
    }
}
