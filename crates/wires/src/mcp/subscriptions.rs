//! `subscriptions/listen`, the stream of changes for modern clients.

use serde::{Deserialize, Serialize};

use super::{Extra, RequestMeta};

/// Params of `subscriptions/listen`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListenParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The notifications that the client wants.
    pub notifications: ListenFilter,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The notifications of one stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenFilter {
    /// The list of prompts changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts_list_changed: Option<bool>,
    /// One of these resources changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_subscriptions: Option<Vec<String>>,
    /// The list of resources changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_list_changed: Option<bool>,
    /// One of these tasks changed. Of the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_ids: Option<Vec<String>>,
    /// The list of tools changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_list_changed: Option<bool>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `notifications/subscriptions/acknowledged`, the first message of a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AcknowledgedParams {
    /// Names the stream.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<SubscriptionMeta>,
    /// The notifications that the client will get.
    pub notifications: ListenFilter,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Metadata of each notification on a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionMeta {
    /// The id of the request that opened the stream, as a string.
    #[serde(
        rename = "io.modelcontextprotocol/subscriptionId",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub subscription: Option<String>,
    /// Other metadata.
    #[serde(flatten)]
    pub extra: Extra,
}
