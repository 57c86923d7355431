//! `[files]` as written.

use serde::Deserialize;

/// `[files]`: what `files/*` may reach.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Patterns over paths from the workspace; none here: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Those that are refused all the same.
    #[serde(default)]
    pub deny: Vec<String>,
}
