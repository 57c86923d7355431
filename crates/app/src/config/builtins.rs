//! `[builtins]` as written.

use serde::Deserialize;

/// `[builtins]`: which of the built-in tools are served.
#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuiltinsConfig {
    /// None of them.
    #[serde(default)]
    pub off: bool,
    /// Patterns over their names. Absent: all of them, and over MCP those of
    /// `callgate_tools::MCP_DEFAULT`.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
}
