//! `[builtins]` as written.

use callgate_call::{Tool, fits_any};
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
    /// Patterns over their names and AIDs. Absent: all of them, and over MCP those of
    /// `callgate_tools::MCP_DEFAULT`.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
}

impl BuiltinsConfig {
    /// Checks that the two words do not contradict each other, and that each pattern fits a tool.
    pub fn check(&self) -> Result<(), String> {
        let Some(allow) = &self.allow else {
            return Ok(());
        };
        if self.off {
            return Err("builtins: say `off` or `allow`, not both".to_owned());
        }
        let aids = BUILTIN_NAMES.map(callgate_call::aid_of_name);
        let fits = |pattern: &&String| {
            let pattern = std::slice::from_ref(*pattern);
            let names = BUILTIN_NAMES.iter().zip(&aids);
            names
                .into_iter()
                .any(|(name, aid)| fits_any(pattern, &[name, aid]))
        };
        match allow.iter().find(|pattern| !fits(pattern)) {
            None => Ok(()),
            Some(pattern) => {
                let near = suggest::question(pattern, BUILTIN_NAMES);
                Err(format!(
                    "builtins.allow: no built-in tool fits `{pattern}`{near}"
                ))
            }
        }
    }

    /// Returns whether `tool` is served at all. An empty list allows none.
    pub fn allows(&self, tool: &Tool) -> bool {
        let is_allowed =
            |allow: &Vec<String>| !allow.is_empty() && fits_any(allow, &[&tool.name, &tool.aid]);
        !self.off && self.allow.as_ref().is_none_or(is_allowed)
    }

    /// Returns whether `tool` has to be named by a client of MCP to be served to it.
    pub fn hides_over_mcp(&self, tool: &Tool) -> bool {
        self.allow.is_none() && !MCP_DEFAULT.contains(&tool.name.as_str())
    }
}
