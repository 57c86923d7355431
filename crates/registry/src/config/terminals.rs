//! `[terminals]`: what sessions may do beyond the workspace.

use serde::Deserialize;

/// `[terminals]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalsConfig {
    /// There are none.
    #[serde(default)]
    pub off: bool,
    /// They may reach everybody; nobody if not said.
    #[serde(default)]
    pub network: bool,
}
