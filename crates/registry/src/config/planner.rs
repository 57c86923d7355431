//! `[planner]` as written.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{RunnerConfig, ToolConfig};

/// `[planner]`: who makes tasks of a request.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannerConfig {
    /// A program that gets the request as JSON and answers tasks; absent: its list is read.
    #[serde(default)]
    pub command: Vec<String>,
    /// Variables of the program.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The longest the program may take.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// What the program loads beside its script.
    #[serde(default)]
    pub code: Vec<String>,
}

impl PlannerConfig {
    /// How the program is run, if there is one.
    fn runner(&self) -> Option<RunnerConfig> {
        (!self.command.is_empty()).then(|| RunnerConfig::Process {
            command: self.command.clone(),
            env: self.env.clone(),
            limits: super::LimitsConfig::default(),
        })
    }

    /// The program as a tool that says nothing of itself: confined as any such tool is.
    pub fn tool(&self) -> Option<ToolConfig> {
        self.runner().map(|runner| ToolConfig {
            name: "planner/create_plan".to_owned(),
            timeout_ms: self.timeout_ms,
            code: self.code.clone(),
            runner: Some(runner),
            ..ToolConfig::default()
        })
    }
}
