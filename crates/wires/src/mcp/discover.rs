//! `server/discover`, which the modern era has in place of a handshake. Its params are metadata
//! alone ([`super::EmptyParams`]).

use serde::{Deserialize, Serialize};

use super::Extra;
use super::capabilities::ServerCapabilities;
use super::identity::Implementation;
use super::results::{CacheScope, ResultType};

/// Result of `server/discover`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult {
    /// The identity of the server, among other metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<DiscoverMeta>,
    /// The scope within which the result may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// The capabilities of the server.
    pub capabilities: ServerCapabilities,
    /// Words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Always `complete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The revisions that the server speaks.
    pub supported_versions: Vec<String>,
    /// The `ttlMs` of results that may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Metadata of that result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiscoverMeta {
    /// The identity of the server.
    #[serde(
        rename = "io.modelcontextprotocol/serverInfo",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub server: Option<Implementation>,
    /// Other metadata.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The data of the error for a revision that is not spoken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnsupportedVersionData {
    /// The revision of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// Revisions that are spoken.
    pub supported: Vec<String>,
}
