//! What a tool may reach and what it is held to, as written.

use std::collections::BTreeSet;

use callgate_call::Ipc;
use serde::Deserialize;

/// `network = …`.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "`network` is true, false or { allow = [\"host:port\"] }"
)]
pub enum NetworkConfig {
    /// Everybody, or nobody.
    All(bool),
    /// Some hosts.
    Some(HostsConfig),
}

impl NetworkConfig {
    /// Returns whether any host can be reached.
    pub fn allows_any(&self) -> bool {
        match self {
            Self::All(all) => *all,
            Self::Some(hosts) => !hosts.allow.is_empty(),
        }
    }
}

/// `network = { allow = [...] }`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsConfig {
    /// `host:port` each.
    pub allow: Vec<String>,
}

/// `sandbox = …`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "`sandbox` is true, false or \"strict\"")]
pub enum SandboxConfig {
    /// As usual, or not at all.
    Is(bool),
    /// With more layers.
    More(StrictConfig),
}

/// The word.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StrictConfig {
    /// `"strict"`: network and IPC namespaces too.
    Strict,
}

/// `ipc = …`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "bool")]
pub enum IpcConfig {
    /// The tool has none of them.
    #[default]
    None,
    /// Never written: what programs of `exec/run` have.
    Private,
    /// All of them, within the machine.
    Local,
}

impl From<bool> for IpcConfig {
    fn from(said: bool) -> Self {
        match said {
            false => Self::None,
            true => Self::Local,
        }
    }
}

impl From<IpcConfig> for Ipc {
    fn from(config: IpcConfig) -> Self {
        match config {
            IpcConfig::None => Self::None,
            IpcConfig::Private => Self::Private,
            IpcConfig::Local => Self::Local,
        }
    }
}

/// `purity = …`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PurityConfig {
    /// Promised every guarantee.
    Pure,
    /// Promised none by this word.
    Impure,
}

/// `guarantees = { … }`: false asks for nothing (P-2).
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuaranteesConfig {
    /// No file outside its own code is read.
    #[serde(default)]
    pub no_filesystem_read: bool,
    /// No file is written.
    #[serde(default)]
    pub no_filesystem_write: bool,
    /// No host is reached.
    #[serde(default)]
    pub no_network: bool,
    /// No process is started.
    #[serde(default)]
    pub no_subprocess: bool,
    /// No variable is read but the declared ones.
    #[serde(default)]
    pub no_env_read: bool,
    /// No variable outlives the call.
    #[serde(default)]
    pub no_env_write: bool,
    /// The only secrets that may be used, by name.
    #[serde(default)]
    pub secrets_allowed: Option<BTreeSet<String>>,
}
