//! `[[tool]]` as written.

use callgate_call::{Isolation, RateLimit, Tasks};
use serde::Deserialize;
use serde_json::Value;

use super::{
    GuaranteesConfig, IpcConfig, NetworkConfig, PurityConfig, RunnerConfig, SandboxConfig,
};
use crate::project::Bound;

/// One tool.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolConfig {
    /// The name by which the tool is called.
    pub name: String,
    /// The stable identifier, `AID.NAME.v1`. Default: made of the name.
    #[serde(default)]
    pub aid: Option<String>,
    /// What the tool does, for callers.
    #[serde(default)]
    pub description: String,
    /// A name for people.
    #[serde(default)]
    pub title: Option<String>,
    /// Pictures, as MCP writes them.
    #[serde(default)]
    pub icons: Vec<Value>,
    /// Inline, or the path of a JSON file beside the configuration.
    #[serde(default)]
    pub input_schema: Option<SchemaSource>,
    /// Schema of the output; checked after each call.
    #[serde(default)]
    pub output_schema: Option<SchemaSource>,
    /// Words for lists and searches.
    #[serde(default)]
    pub tags: Vec<String>,
    /// How dangerous a call is, 0 to 3. Default: derived from the side effects.
    #[serde(default)]
    pub tier: Option<u64>,
    /// The longest a call may take without progress.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// How long progress may keep a call alive.
    #[serde(default)]
    pub timeout_max_ms: Option<u64>,
    /// Calls per second and in a burst.
    #[serde(default)]
    pub rate_limit: Option<RateLimitConfig>,
    /// Calls that run at the same time; further ones are refused.
    #[serde(default)]
    pub concurrency_max: Option<usize>,
    /// A repeated call has no further effect.
    #[serde(default)]
    pub idempotent: bool,
    /// The same input gives the same output.
    #[serde(default)]
    pub deterministic: bool,
    /// Names of side effects, from which the tier is derived.
    #[serde(default)]
    pub side_effects: Vec<String>,
    /// Inputs that decide whether a recorded answer is given again.
    #[serde(default)]
    pub replay_inputs: Vec<String>,
    /// Further names of the tool.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// Paths inside the workspace it may write.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Further paths it may read.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Files and folders of the workspace that it loads as code, beside those its runner names.
    #[serde(default)]
    pub code: Vec<String>,
    /// Hosts that the tool may reach. Default: all, unless a guarantee says otherwise.
    #[serde(default)]
    pub network: Option<NetworkConfig>,
    /// Promises that are enforced or the call is refused.
    #[serde(default)]
    pub guarantees: GuaranteesConfig,
    /// Pure tools are promised every guarantee.
    #[serde(default)]
    pub purity: Option<PurityConfig>,
    /// Whether and how strictly the tool is confined.
    #[serde(default)]
    pub sandbox: Option<SandboxConfig>,
    /// Shared memory, Unix sockets, a loopback and `/proc` of its own.
    #[serde(default)]
    pub ipc: IpcConfig,
    /// Runs even where a promise cannot be kept.
    #[serde(default)]
    pub allow_unsafe_execution: bool,
    /// It takes and changes the slots of the toolhost.
    #[serde(default)]
    pub slots: bool,
    /// Its output is `{"content": [...]}` as MCP has it.
    #[serde(default)]
    pub gives_content: bool,
    /// Whether a long call may become a task.
    #[serde(default)]
    pub tasks: TasksConfig,
    /// What keeps one call from the next; else as the runner does it.
    #[serde(default)]
    pub isolation: Option<IsolationConfig>,
    /// Absent only in toolpacks of other hosts: listed, and not available.
    #[serde(default)]
    pub runner: Option<RunnerConfig>,
    /// That of its pack, which alone has one.
    #[serde(skip)]
    pub version: Option<String>,
    /// The name it was declared by, where its own is made of that; never written.
    #[serde(skip)]
    pub declared: Option<String>,
    /// What a tool of a project brings along; never written in a configuration.
    #[serde(skip)]
    pub bound: Option<Box<Bound>>,
    /// It is described in a toolpack's manifest.
    #[serde(skip)]
    pub in_toolpack: bool,
}

/// Whether a long call may become a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TasksConfig {
    /// If the client asks for one.
    #[default]
    Allowed,
    /// Always.
    Required,
    /// Never.
    Forbidden,
}

impl From<TasksConfig> for Tasks {
    fn from(config: TasksConfig) -> Self {
        match config {
            TasksConfig::Allowed => Self::Allowed,
            TasksConfig::Required => Self::Required,
            TasksConfig::Forbidden => Self::Forbidden,
        }
    }
}

/// What keeps one call of a tool from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationConfig {
    /// A process for each call.
    Call,
    /// A process for many calls.
    Worker,
    /// A process for each call, started from nothing.
    Cold,
}

impl From<IsolationConfig> for Isolation {
    fn from(config: IsolationConfig) -> Self {
        match config {
            IsolationConfig::Call => Self::Call,
            IsolationConfig::Worker => Self::Worker,
            IsolationConfig::Cold => Self::Cold,
        }
    }
}

/// Where a schema is.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum SchemaSource {
    /// A path beside the configuration.
    File(String),
    /// The schema itself.
    Inline(Value),
}

/// A token bucket.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitConfig {
    pub(super) per_second: f64,
    pub(super) burst: u32,
}

/// A rate that could never let a call through.
#[derive(Debug, thiserror::Error)]
#[error("rate_limit: per_second {per_second} and burst {burst} are not above 0")]
pub struct RateError {
    per_second: f64,
    burst: u32,
}

impl RateLimitConfig {
    /// Refuses rates that could never let a call through.
    pub fn read(self) -> Result<RateLimit, RateError> {
        if !(self.per_second > 0.0 && self.per_second.is_finite()) || self.burst == 0 {
            return Err(RateError {
                per_second: self.per_second,
                burst: self.burst,
            });
        }
        Ok(RateLimit {
            per_second: self.per_second,
            burst: self.burst,
        })
    }
}
