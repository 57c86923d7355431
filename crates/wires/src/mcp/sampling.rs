//! `sampling/createMessage`: a server asks the model of its client.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tools::ToolDefinition;
use super::{Extra, RawJson, RequestMeta};

/// Params of `sampling/createMessage`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessageParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// Which context the client should add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_context: Option<String>,
    /// The most tokens of the answer.
    pub max_tokens: u64,
    /// The conversation.
    pub messages: Vec<SamplingMessage>,
    /// For the provider of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Extra>,
    /// Which model is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_preferences: Option<ModelPreferences>,
    /// Texts that end the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequences: Option<Vec<String>>,
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The temperature of sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Whether the model must use a tool, may or may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Extra>,
    /// Tools for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolDefinition>>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// One message of a conversation with a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// One block or a list of blocks.
    pub content: RawJson,
    /// `user` or `assistant`.
    pub role: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which model is wanted, from 0 to 1 each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// The weight of costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_priority: Option<f64>,
    /// Names or families of models, the best first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<ModelHint>>,
    /// The weight of the model's ability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intelligence_priority: Option<f64>,
    /// The weight of its speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_priority: Option<f64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A model that would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelHint {
    /// Part of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `sampling/createMessage`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateMessageResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// One block or a list of blocks.
    pub content: RawJson,
    /// The model that answered.
    pub model: String,
    /// `assistant`, most often.
    pub role: String,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A model's wish to have a tool called, as a block of its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// Names the wish.
    pub id: String,
    /// The arguments.
    pub input: serde_json::Map<String, Value>,
    /// The tool.
    pub name: String,
    /// Always `tool_use`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
