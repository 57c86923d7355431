//! `elicitation/create`: a question to the user of a client, as a form or as an address to open.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::words::words;
use super::{Extra, RawJson, RequestMeta};

/// Params of `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// Names the question, where an address is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elicitation_id: Option<String>,
    /// For the user.
    pub message: String,
    /// A form if there is none: older revisions know no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ElicitationMode>,
    /// JSON Schema of a form's fields: an object of strings, numbers, booleans and choices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_schema: Option<RawJson>,
    /// The address to open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

words! {
    /// The way in which a question is put.
    ElicitationMode {
        /// As a form.
        "form" => Form,
        /// By an address to open.
        "url" => Url,
    }
}

/// Result of `elicitation/create`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ElicitResult<T = serde_json::Map<String, Value>> {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The user's action.
    pub action: ElicitAction,
    /// The fields of a form that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<T>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

words! {
    /// A user's action on a question.
    ElicitAction {
        /// Answered it.
        "accept" => Accept,
        /// Said no.
        "decline" => Decline,
        /// Closed it.
        "cancel" => Cancel,
    }
}

/// Params of `notifications/elicitation/complete`: an address that was opened is done with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElicitationCompleteParams {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The question.
    pub elicitation_id: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
