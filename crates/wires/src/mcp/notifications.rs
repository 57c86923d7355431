//! Notifications that belong to a request or to a list: progress, cancellation, log messages and
//! changes; and `logging/setLevel`, by which a legacy client chooses the messages.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::subscriptions::SubscriptionMeta;
use super::{Extra, RawJson, RequestMeta};
use crate::jsonrpc::Id;

/// Params of `notifications/progress`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressParams {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The progress so far; grows with each notification.
    pub progress: f64,
    /// Names the request: a string or a number, as the request had it.
    pub progress_token: Value,
    /// The final value of the progress, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `notifications/cancelled`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelledParams {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The id of the request: a string or a number.
    pub request_id: Value,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl CancelledParams {
    /// Returns the request, if its id can be one.
    #[must_use]
    pub fn request(&self) -> Option<Id> {
        Id::from_value(&self.request_id)
    }
}

/// Params of `notifications/message`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogParams {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// Any JSON.
    pub data: RawJson,
    /// One of the eight levels of syslog.
    pub level: String,
    /// The name of the logger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logger: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `logging/setLevel`. Legacy era.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetLevelParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The lowest level that is wanted.
    pub level: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of the three `notifications/…/list_changed` and of `notifications/resources/updated`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeParams {
    /// In the modern era, the stream that it belongs to.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<SubscriptionMeta>,
    /// The resource that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
