//! `[[server]]` as written: an MCP server that somebody else wrote, run behind the gate.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LimitsConfig, NetworkConfig, RateLimitConfig};

/// One MCP server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// The prefix of its tools: those of `github` are `github/create_issue`.
    pub name: String,
    /// The program and its first arguments. Never a shell line.
    #[serde(default)]
    pub command: Vec<String>,
    /// An installed package, `npm:NAME@VERSION` or `pypi:NAME==VERSION`, in place of a command.
    #[serde(default)]
    pub package: Option<String>,
    /// Packages of the same registry that are installed beside it.
    #[serde(default)]
    pub with: Vec<String>,
    /// The Python that runs a package, such as `3.12`. Default: `python3`.
    #[serde(default)]
    pub python: Option<String>,
    /// The program of the package where that is not its own, or `-m MODULE`.
    #[serde(default)]
    pub program: Option<String>,
    /// Arguments after those of the command or of the package's program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables. Values may refer to `${VAR}`, `${VAR:-default}` and `${secret:NAME}`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// The working folder. Default: the server's own home.
    #[serde(default)]
    pub cwd: Option<String>,
    /// What the server gets before anything else is said.
    #[serde(default)]
    pub preset: PresetConfig,
    /// Hosts that it may reach. Default: none.
    #[serde(default)]
    pub network: Option<NetworkConfig>,
    /// Paths that it may read besides its own package.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Paths that it may write besides its own home.
    #[serde(default)]
    pub writes: Vec<String>,
    /// Ports on its loopback that lead to a host: `"5432" = "db.internal:5432"`.
    #[serde(default)]
    pub forward: BTreeMap<String, String>,
    /// Which of its tools are offered.
    #[serde(default)]
    pub tools: ServerToolsConfig,
    /// The prefix of its tools where that is not the name. Empty only where it is the only server.
    #[serde(default)]
    pub prefix: Option<String>,
    /// Who shares one process of the server.
    #[serde(default)]
    pub share: Option<ShareConfig>,
    /// When it is started.
    #[serde(default)]
    pub start: StartConfig,
    /// How long a process without calls is kept.
    #[serde(default)]
    pub idle_ms: Option<u64>,
    /// The longest that a start may take.
    #[serde(default)]
    pub start_timeout_ms: Option<u64>,
    /// The longest that a call may take without progress.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// How long progress may keep a call alive.
    #[serde(default)]
    pub timeout_max_ms: Option<u64>,
    /// Calls at the same time in one process. Default: 16.
    #[serde(default)]
    pub concurrency_max: Option<usize>,
    /// What its processes may use at most.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The owner's word on tools, by patterns over their names at the server.
    #[serde(default, rename = "tool")]
    pub overrides: BTreeMap<String, ServerToolConfig>,
    /// It stays in the file and is not served.
    #[serde(default)]
    pub disabled: bool,
    /// The client settings that it was imported from.
    #[serde(default)]
    pub imported: Option<ImportedConfig>,
}

/// What a server gets before anything else is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PresetConfig {
    /// A kept home of its own, `/proc` and shared memory of its own, no network.
    #[default]
    Base,
    /// The same with a throw-away home and no child processes.
    Pure,
    /// The same as the base, for servers that work on the files of `reads` and `writes`.
    Files,
    /// Files, and `git`, without hooks and without the owner's git settings.
    Git,
    /// HTTP to the hosts of `network`.
    Web,
    /// TCP to the ports of `forward`.
    Service,
    /// What a headless browser needs.
    Browser,
    /// Not confined. Recorded as an override.
    Off,
}

impl PresetConfig {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Pure => "pure",
            Self::Files => "files",
            Self::Git => "git",
            Self::Web => "web",
            Self::Service => "service",
            Self::Browser => "browser",
            Self::Off => "off",
        }
    }
}

/// Which tools of a server are offered, by patterns over their names at the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerToolsConfig {
    /// These only; empty: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Not these.
    #[serde(default)]
    pub deny: Vec<String>,
}

/// Who shares one process of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareConfig {
    /// The calls of one conversation; a caller whose wire has no conversations counts as one.
    Session,
    /// The calls of one caller.
    Caller,
    /// All calls. For servers that keep no state between calls.
    Workspace,
}

/// When a server is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartConfig {
    /// With the first call.
    #[default]
    Lazy,
    /// With the gate, where one process serves all.
    Eager,
}

/// The owner's word on some tools of a server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerToolConfig {
    /// How dangerous a call is, 0 to 3.
    #[serde(default)]
    pub tier: Option<u64>,
    /// A repeated call has no further effect, so that it may run again where an earlier outcome is
    /// unknown.
    #[serde(default)]
    pub idempotent: Option<bool>,
    /// The description that callers get in place of the server's.
    #[serde(default)]
    pub description: Option<String>,
    /// Calls per second and in a burst.
    #[serde(default)]
    pub rate_limit: Option<RateLimitConfig>,
}

/// Where an entry was imported from.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportedConfig {
    /// The client: `claude-code`.
    pub from: String,
    /// Its settings file.
    pub file: String,
    /// The place in the file.
    #[serde(default)]
    pub at: String,
}

/// `[[client]]`: the servers that one MCP client sees.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientConfig {
    /// The name in `callgate mcp --client NAME`.
    pub name: String,
    /// The servers whose tools it sees.
    #[serde(default)]
    pub servers: Vec<String>,
    /// Patterns over names of tools that it sees of those; empty: all.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Patterns over names of tools that it does not see.
    #[serde(default)]
    pub deny: Vec<String>,
}
