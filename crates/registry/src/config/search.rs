//! `[search]` as written.

use serde::Deserialize;

/// `[search]`: who keeps the search index.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchConfig {
    /// Where the index is.
    #[serde(default)]
    pub store: StoreKind,
    /// Where the server is.
    #[serde(default)]
    pub url: Option<String>,
    /// The collection of the workspace's files; those of namespaces begin with its name.
    #[serde(default)]
    pub collection: Option<String>,
    /// Tenant of a Chroma server.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Database of a Chroma server.
    #[serde(default)]
    pub database: Option<String>,
    /// The variable of ours with the token that goes along.
    #[serde(default)]
    pub token_env: Option<String>,
}

/// What keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// The workspace's state.
    #[default]
    Local,
    /// A Chroma server.
    Chroma,
}
