//! Questions inside a result: a server of the modern era sends no requests, but ends a round with
//! what it wants to know, and its client asks again with the answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Extra;
use super::results::ResultType;

/// Questions by their keys.
pub type InputRequests = BTreeMap<String, InputRequest>;

/// One question: a request of `elicitation/create`, `sampling/createMessage` or `roots/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    /// The method.
    pub method: String,
    /// Its params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<QuestionParams>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of a question: what a person is shown, and all else as it came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionParams {
    /// For the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The other members.
    #[serde(flatten)]
    pub extra: Extra,
}

impl InputRequest {
    /// The capability that a client needs to answer it: what stands before the `/`.
    #[must_use]
    pub fn capability(&self) -> &str {
        self.method.split('/').next().unwrap_or_default()
    }
}

/// A result that asks: of `tools/call`, `prompts/get` and `resources/read`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequiredResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// The state that the client keeps until its next round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Always `input_required`.
    pub result_type: ResultType,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
