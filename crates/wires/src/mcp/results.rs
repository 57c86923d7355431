//! Members that results of the modern era share, and what has no other members.

use serde::{Deserialize, Serialize};

use super::words::words;
use super::{Extra, RequestMeta};

words! {
    /// The kind of a result of the modern era.
    ResultType {
        /// The whole result of the method.
        "complete" => Complete,
        /// Questions that the client answers with its next request.
        "input_required" => InputRequired,
        /// A task that will have the result.
        "task" => Task,
    }
}

words! {
    /// The scope within which a result may be cached.
    CacheScope {
        /// Anybody.
        "public" => Public,
        /// The client that asked.
        "private" => Private,
    }
}

/// Params with nothing but metadata: `ping`, `server/discover`, `roots/list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EmptyParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A result that says no more than that it is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmptyResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of a method that lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The cursor of a page, from the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
