//! Runners whose tools are no children of ours: services and containers.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LimitsConfig, PoolConfig};

/// `runner = { kind = "service", … }`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceRunnerConfig {
    /// Where calls are posted, exactly.
    pub url: String,
    /// `module:function`, for services that want it.
    #[serde(default)]
    pub entry: Option<String>,
    /// The tool's name there; its own if not said.
    #[serde(default)]
    pub tool_name: Option<String>,
    /// Whether the service is asked what it enforces; if not said, when something is asked for.
    #[serde(default)]
    pub handshake: Option<bool>,
    /// The variable of ours with the token that goes along.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The largest output; nothing else is in our hands.
    #[serde(default)]
    pub output_bytes: Option<usize>,
}

/// `runner = { kind = "container", … }`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerRunnerConfig {
    /// By name or by digest; it must be there already.
    pub image: String,
    /// `module:function`.
    #[serde(default)]
    pub entry: Option<String>,
    /// A worker of the image's own, or the program of `mode = "oneshot"`.
    #[serde(default)]
    pub command: Vec<String>,
    /// One container for many calls, or one for each.
    #[serde(default)]
    pub mode: ModeConfig,
    /// The image's Python, for the worker that ships.
    #[serde(default)]
    pub python: Option<String>,
    /// Podman if it is there, else docker.
    #[serde(default)]
    pub runtime: Option<RuntimeConfig>,
    /// Before the client's own command: `["--root", "/srv/containers"]`.
    #[serde(default)]
    pub runtime_options: Vec<String>,
    /// `uid:gid` inside.
    #[serde(default)]
    pub user: Option<String>,
    /// Variables of the tool in the container.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Bounds of the container.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// How many workers there are, and for how long.
    #[serde(default)]
    pub pool: PoolConfig,
}

/// What a container serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModeConfig {
    /// Many calls, in our lines.
    #[default]
    Worker,
    /// One call, in the tool protocol's local form.
    Oneshot,
}

/// Which program starts containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeConfig {
    /// `podman`.
    Podman,
    /// `docker`.
    Docker,
}
