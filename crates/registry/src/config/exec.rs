//! `[exec]` as written.

use serde::Deserialize;

use super::{NetworkConfig, SandboxConfig};

/// `[exec]`: what `exec/run` may do.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// There is no such tool.
    #[serde(default)]
    pub off: bool,
    /// Programs that may be named; none here: any.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Further variables that calls may set where `allow` names programs; `*` at the end of one
    /// stands for any rest.
    #[serde(default)]
    pub allow_env: Vec<String>,
    /// What programs of the workspace in `allow` load: closed to callers as they are.
    #[serde(default)]
    pub code: Vec<String>,
    /// How dangerous it is; 2 if nothing is said.
    #[serde(default)]
    pub tier: Option<u64>,
    /// Variables of the gate that programs get to see.
    #[serde(default)]
    pub env: Vec<String>,
    /// Further paths they may read.
    #[serde(default)]
    pub reads: Vec<String>,
    /// Whom they may reach; nobody if nothing is said.
    #[serde(default)]
    pub network: Option<NetworkConfig>,
    /// Whether and how strictly programs are confined.
    #[serde(default)]
    pub sandbox: Option<SandboxConfig>,
    /// True: a loopback and Unix sockets besides shared memory and `/proc`, all their own. False:
    /// none of it.
    #[serde(default)]
    pub ipc: Option<bool>,
    /// False: programs may not read the owner's toolchains.
    #[serde(default)]
    pub toolchains: Option<bool>,
    /// Bytes that the home of one caller's programs may take; 2 GiB if nothing is said.
    #[serde(default)]
    pub home_max_bytes: Option<u64>,
    /// Runs even where a promise cannot be kept.
    #[serde(default)]
    pub allow_unsafe_execution: bool,
    /// Programs that may not be named while restrictions hold, and are kept from change all the
    /// same; never written.
    #[serde(skip)]
    pub kept: Vec<String>,
    /// Processes of their user.
    #[serde(default)]
    pub processes: Option<u64>,
}
