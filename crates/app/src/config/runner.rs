//! How a tool is carried out, as written.

use std::collections::BTreeMap;

use callgate_call::TreeLimits;
use serde::Deserialize;

use super::remote::{ContainerRunnerConfig, ServiceRunnerConfig};
use super::runs::ExecutorRunnerConfig;

/// How a tool is carried out.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum RunnerConfig {
    /// One program per call.
    Process {
        command: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        limits: LimitsConfig,
    },
    /// Long-lived workers of any language.
    Pool {
        command: Vec<String>,
        #[serde(default)]
        entry: Option<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        limits: LimitsConfig,
        #[serde(default)]
        pool: PoolConfig,
    },
    /// A pool of the Python worker that ships.
    Python {
        /// `module:function`.
        entry: String,
        /// The interpreter; else `.venv`, else `python3`.
        #[serde(default)]
        python: Option<String>,
        /// Modules that are imported once, and not with each call, where `isolation` is `call`.
        #[serde(default)]
        preload: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        limits: LimitsConfig,
        #[serde(default)]
        pool: PoolConfig,
    },
    /// A pool of the Node worker that ships.
    Node {
        /// `file:function`, the file beside the configuration.
        entry: String,
        /// The interpreter; else `node`.
        #[serde(default)]
        node: Option<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        limits: LimitsConfig,
        #[serde(default)]
        pool: PoolConfig,
    },
    /// A foreign service.
    Service(ServiceRunnerConfig),
    /// A container of podman or docker.
    Container(Box<ContainerRunnerConfig>),
    /// One streamed run per call.
    Executor(Box<ExecutorRunnerConfig>),
}

impl RunnerConfig {
    /// Limits on children of our own; nothing for what others start.
    pub fn limits(&self) -> Option<&LimitsConfig> {
        match self {
            Self::Process { limits, .. }
            | Self::Pool { limits, .. }
            | Self::Python { limits, .. }
            | Self::Node { limits, .. } => Some(limits),
            Self::Executor(executor) => Some(&executor.limits),
            Self::Service(_) | Self::Container(_) => None,
        }
    }

    /// The variables that are declared for its children.
    pub fn env(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Process { env, .. }
            | Self::Pool { env, .. }
            | Self::Python { env, .. }
            | Self::Node { env, .. } => Some(env),
            Self::Executor(executor) => Some(&executor.env),
            Self::Container(container) => Some(&container.env),
            Self::Service(_) => None,
        }
    }

    /// The code it names, where it names any.
    pub fn entry(&self) -> Option<String> {
        match self {
            Self::Process { .. } | Self::Executor(_) => None,
            Self::Pool { entry, .. } => entry.clone(),
            Self::Python { entry, .. } | Self::Node { entry, .. } => Some(entry.clone()),
            Self::Service(service) => service.entry.clone(),
            Self::Container(container) => container.entry.clone(),
        }
    }
}

/// What a child may use at most; absent means as much as the gate itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    #[serde(default)]
    pub cpu_seconds: Option<u64>,
    #[serde(default)]
    pub file_bytes: Option<u64>,
    #[serde(default)]
    pub open_files: Option<u64>,
    #[serde(default)]
    pub processes: Option<u64>,
    /// Of the processors' time: 100 is one of them all the time.
    #[serde(default)]
    pub cpu_percent: Option<u64>,
    /// Memory, processes and processor time must be held for all processes together.
    #[serde(default)]
    pub whole_tree: bool,
    #[serde(default)]
    pub output_bytes: Option<usize>,
}

impl LimitsConfig {
    /// Those that are limits on all its processes together.
    pub fn of_tree(&self) -> TreeLimits {
        TreeLimits {
            memory: self.memory_bytes.is_some(),
            processes: self.processes.is_some(),
            cpu_seconds: self.cpu_seconds.is_some(),
            cpu_percent: self.cpu_percent.is_some(),
            whole_tree: self.whole_tree,
        }
    }
}

/// How a pool keeps its workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    #[serde(default)]
    pub workers_max: Option<usize>,
    #[serde(default)]
    pub queue_max: Option<usize>,
    #[serde(default)]
    pub backoff_min_ms: Option<u64>,
    #[serde(default)]
    pub backoff_max_ms: Option<u64>,
    #[serde(default)]
    pub crashes_max: Option<usize>,
    #[serde(default)]
    pub crash_window_ms: Option<u64>,
    #[serde(default)]
    pub idle_ms: Option<u64>,
    #[serde(default)]
    pub calls_max: Option<u64>,
}
