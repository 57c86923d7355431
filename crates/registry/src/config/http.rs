//! `[http]` and `[service]`: what is served on a port, and to whom.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::RateLimitConfig;

/// `[http]`: MCP on a port of this machine (G-10).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    /// No port at all, unless the command line asks for one.
    #[serde(default)]
    pub off: bool,
    /// 7411 if not said.
    #[serde(default)]
    pub port: Option<u16>,
    /// Names it answers to besides those of this machine, for a proxy in front of it.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// `[http.jwt]`.
    #[serde(default)]
    pub jwt: Option<JwtConfig>,
}

/// `[service]`: the tool protocol over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Where calls are taken besides `/tools`.
    #[serde(default)]
    pub path: Option<String>,
    /// Patterns over `module:function` that may be run without being registered.
    #[serde(default)]
    pub allow_entries: Vec<String>,
    /// The interpreter of such entries where there is no `.venv`.
    #[serde(default)]
    pub python: Option<String>,
    /// What such entries, and tools of bindings, load beside the package of their entry.
    #[serde(default)]
    pub code: Vec<String>,
}

/// `[http.jwt]`: an issuer whose tokens count.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// `iss`, exactly.
    pub issuer: String,
    /// `aud` must hold this.
    pub audience: String,
    /// Where its keys are; else its discovery document says.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Which signatures count; all asymmetric ones if not said.
    #[serde(default)]
    pub algorithms: Vec<String>,
    /// The issuer's scope words, each as some of ours.
    #[serde(default)]
    pub scopes: BTreeMap<String, Vec<String>>,
    /// For each caller.
    #[serde(default)]
    pub rate: Option<RateLimitConfig>,
}
