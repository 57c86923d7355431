//! `tools/list` and `tools/call`. Schemas and structured content are passed on as they came.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::content::ContentBlock;
use super::fields;
use super::results::{CacheScope, ResultType};
use super::words::words;
use super::{Extra, RawJson, RequestMeta};

/// A tool as servers list it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// Hints on what it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// For models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Rules for its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ToolExecution>,
    /// Pictures, each an [`Icon`](super::Icon).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<RawJson>,
    /// JSON Schema of its arguments, an object's.
    pub input_schema: RawJson,
    /// For programs.
    pub name: String,
    /// JSON Schema of its structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<RawJson>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Hints on what a tool does. None of them is a promise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// May undo or overwrite something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A second call with the same arguments has no further effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Reaches beyond its own domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// Changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Rules for calls of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecution {
    /// Whether its calls may or must be tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_support: Option<TaskSupport>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

words! {
    /// Whether calls of a tool may be tasks.
    TaskSupport {
        /// Never.
        "forbidden" => Forbidden,
        /// They may.
        "optional" => Optional,
        /// Always.
        "required" => Required,
    }
}

/// Result of `tools/list`: one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListToolsResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The scope within which the result may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_scope: Option<CacheScope>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// The tools.
    pub tools: Vec<ToolDefinition>,
    /// The `ttlMs` of results that may be cached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `tools/call`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The arguments; none are the same as an empty object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Map<String, Value>>,
    /// Answers to the questions of the round before. Modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<Map<String, Value>>,
    /// The name of the tool.
    pub name: String,
    /// The state that the round before gave the client to keep. Modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl CallToolParams {
    /// Takes params apart, or returns them if they are malformed. Arguments are moved, however
    /// large.
    pub fn of(mut params: Value) -> Result<Self, Value> {
        let arguments = match params.get_mut("arguments") {
            Some(arguments @ Value::Object(_)) => Some(std::mem::take(arguments)),
            _ => None,
        };
        match (fields::read::<Self>(&params), arguments) {
            (Ok(read), Some(Value::Object(arguments))) => Ok(Self {
                arguments: Some(arguments),
                ..read
            }),
            (Ok(read), _) => Ok(read),
            (Err(_), arguments) => {
                if let (Some(arguments), Value::Object(members)) = (arguments, &mut params) {
                    members.insert("arguments".to_owned(), arguments);
                }
                Err(params)
            }
        }
    }
}

/// Result of `tools/call`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// For models.
    #[serde(default)]
    pub content: Vec<ContentBlock>,
    /// The tool failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// For programs: any JSON, an object in the legacy era.
    #[serde(
        default,
        deserialize_with = "fields::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub structured_content: Option<RawJson>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
