//! `[runs]` and `kind = "executor"` as written.

use std::collections::BTreeMap;
use std::time::Duration;

use callgate_call::{RunOrder, RunPolicy};
use serde::Deserialize;

use super::LimitsConfig;

/// `[runs]`: what holds for all streamed runs.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsConfig {
    /// Callers may not start executors of their own choice.
    #[serde(default)]
    pub off: bool,
    /// Versions of the stream contract that executors may speak; none: those of our major one.
    #[serde(default)]
    pub contract_versions: Vec<String>,
    /// Bytes of the largest artifact; 1 GiB if nothing is said.
    #[serde(default)]
    pub artifact_max: Option<u64>,
    /// Who is told when a run has ended.
    #[serde(default)]
    pub webhook: Option<WebhookConfig>,
}

/// `runs.webhook`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The address that is sent a POST.
    pub url: String,
    /// The variable with the secret that signs what is told.
    #[serde(default)]
    pub secret_env: Option<String>,
}

impl RunsConfig {
    /// What runs have that say nothing themselves.
    pub fn order(&self) -> RunOrder {
        RunOrder {
            contract_versions: self.contract_versions.clone(),
            artifact_bytes_max: self.artifact_max,
            ..RunOrder::default()
        }
    }
}

/// `kind = "executor"`: one streamed run per call, whose job is the call's input.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutorRunnerConfig {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The last argument.
    #[serde(default)]
    pub script: Option<String>,
    /// Variables of the executor.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Bounds of the executor.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// Dataset of the run.
    #[serde(default)]
    pub dataset: Option<String>,
    /// Source of the run.
    #[serde(default)]
    pub source: Option<String>,
    /// Category of the run.
    #[serde(default)]
    pub category: Option<String>,
    /// What the run may keep.
    #[serde(default)]
    pub policy: Option<RunPolicyConfig>,
    /// Artifacts of the run at most.
    #[serde(default)]
    pub artifact_max: Option<u64>,
}

/// When events are written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPolicyConfig {
    pub name: String,
    #[serde(default)]
    pub events: Option<u64>,
    #[serde(default)]
    pub bytes: Option<u64>,
    #[serde(default)]
    pub count: Option<u64>,
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

/// A `policy` that runs cannot have.
#[derive(Debug, thiserror::Error)]
#[error("policy: {0}")]
pub struct RunPolicyError(&'static str);

impl ExecutorRunnerConfig {
    /// The executor, its arguments and its script.
    pub fn words(&self) -> Vec<String> {
        self.command.iter().chain(&self.script).cloned().collect()
    }

    /// All but the job, on top of what holds for all runs.
    pub fn order(&self, usual: RunOrder) -> Result<RunOrder, RunPolicyError> {
        let named = |word: &Option<String>, usual: String| word.clone().unwrap_or(usual);
        Ok(RunOrder {
            dataset: named(&self.dataset, usual.dataset),
            source: named(&self.source, usual.source),
            category: named(&self.category, usual.category),
            policy: match &self.policy {
                Some(policy) => policy.read()?,
                None => usual.policy,
            },
            artifact_bytes_max: self.artifact_max.or(usual.artifact_bytes_max),
            ..usual
        })
    }
}

impl RunPolicyConfig {
    fn read(&self) -> Result<RunPolicy, RunPolicyError> {
        let interval = self.interval_ms.map(Duration::from_millis);
        RunPolicy::named(
            &self.name,
            (self.events, self.bytes),
            (self.count, interval),
        )
        .map_err(RunPolicyError)
    }
}
