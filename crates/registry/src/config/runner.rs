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
        /// The program and its arguments.
        command: Vec<String>,
        /// Variables of the child.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Bounds of the child.
        #[serde(default)]
        limits: LimitsConfig,
    },
    /// Long-lived workers of any language.
    Pool {
        /// The program and its arguments.
        command: Vec<String>,
        /// The function that a worker is asked for.
        #[serde(default)]
        entry: Option<String>,
        /// Variables of the child.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Bounds of the child.
        #[serde(default)]
        limits: LimitsConfig,
        /// How many workers there are, and for how long.
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
        /// Variables of the child.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Bounds of the child.
        #[serde(default)]
        limits: LimitsConfig,
        /// How many workers there are, and for how long.
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
        /// Variables of the child.
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Bounds of the child.
        #[serde(default)]
        limits: LimitsConfig,
        /// How many workers there are, and for how long.
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
    /// Memory of the tree, or address space of a process where there are no cgroups.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Processor time of the tree, or of a process where there are no cgroups.
    #[serde(default)]
    pub cpu_seconds: Option<u64>,
    /// Size of a file that is written.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// Open descriptors of a process.
    #[serde(default)]
    pub open_files: Option<u64>,
    /// Processes of the tree, or of the user where there are no cgroups.
    #[serde(default)]
    pub processes: Option<u64>,
    /// Of the processors' time: 100 is one of them all the time.
    #[serde(default)]
    pub cpu_percent: Option<u64>,
    /// Memory, processes and processor time must be held for all processes together.
    #[serde(default)]
    pub whole_tree: bool,
    /// Bytes that a call may print or answer.
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
    /// Workers at the same time.
    #[serde(default)]
    pub workers_max: Option<usize>,
    /// Calls that wait for a worker; further ones are refused.
    #[serde(default)]
    pub queue_max: Option<usize>,
    /// Pause after the first crash.
    #[serde(default)]
    pub backoff_min_ms: Option<u64>,
    /// Longest pause between starts.
    #[serde(default)]
    pub backoff_max_ms: Option<u64>,
    /// Crashes within the window after which the pool gives up for a while.
    #[serde(default)]
    pub crashes_max: Option<usize>,
    /// The window in which crashes are counted.
    #[serde(default)]
    pub crash_window_ms: Option<u64>,
    /// How long an unused worker is kept.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// Calls of one worker before it is replaced.
    #[serde(default)]
    pub calls_max: Option<u64>,
}
