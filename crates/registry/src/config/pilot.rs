//! `[pilot]` as written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{NetworkConfig, RunnerConfig, ToolConfig};

/// The name of the policy program in the chain and in policies.
pub const POLICY_TOOL: &str = "pilot/policy";

/// `[pilot]`: who chooses the steps of runs, and when goals are reached.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PilotConfig {
    /// A program that chooses; it gets the path of its question as last argument.
    #[serde(default)]
    pub policy: Vec<String>,
    /// What the program loads beside its script.
    #[serde(default)]
    pub code: Vec<String>,
    /// Variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What it may read beside its own code.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Whom it may reach: nobody, if nothing is said.
    #[serde(default)]
    pub network: Option<NetworkConfig>,
    /// The longest a choice may take.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The slots that must be filled for a goal to be reached, by its id.
    #[serde(default)]
    pub goals: BTreeMap<String, Vec<u8>>,
}

impl PilotConfig {
    /// The program as a tool that says nothing more of itself: confined as any such tool is.
    pub fn tool(&self) -> Option<ToolConfig> {
        (!self.policy.is_empty()).then(|| ToolConfig {
            name: POLICY_TOOL.to_owned(),
            reads: self.reads.clone(),
            code: self.code.clone(),
            network: self.network.clone(),
            timeout_ms: self.timeout_ms,
            runner: Some(RunnerConfig::Process {
                command: self.policy.clone(),
                env: self.env.clone(),
                limits: super::LimitsConfig::default(),
            }),
            ..ToolConfig::default()
        })
    }
}
