//! `prompts/list` and `prompts/get`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::content::ContentBlock;
use super::results::{CacheScope, ResultType};
use super::{Extra, RawJson, RequestMeta};

/// A prompt as servers list it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptDefinition {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<PromptArgument>>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Pictures, each an [`Icon`](super::Icon).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<RawJson>,
    /// For programs.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One argument of a prompt. Its value is a string.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// For programs.
    pub name: String,
    /// It must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `prompts/list`: one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPromptsResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The scope within which the result may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The prompts.
    pub prompts: Vec<PromptDefinition>,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The `ttlMs` of results that may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `prompts/get`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPromptParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// Values by the names of arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
    /// Answers to the questions of the round before. Modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<Map<String, Value>>,
    /// The name of the prompt.
    pub name: String,
    /// The state that the round before gave the client to keep. Modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `prompts/get`. `M` are messages, or what is passed on as such.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPromptResult<M = PromptMessage> {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages for the model.
    pub messages: Vec<M>,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// One block.
    pub content: ContentBlock,
    /// `user` or `assistant`.
    pub role: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
