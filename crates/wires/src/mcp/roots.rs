//! `roots/list`: the folders that a client lets a server work in. Its params are metadata alone
//! ([`super::EmptyParams`]).

use serde::{Deserialize, Serialize};

use super::Extra;

/// Result of `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListRootsResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The folders.
    pub roots: Vec<Root>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One folder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Root {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A `file://` address.
    pub uri: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
