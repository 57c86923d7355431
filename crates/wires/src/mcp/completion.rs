//! `completion/complete`: values for an argument of a prompt or a variable of a template.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::results::ResultType;
use super::{Extra, RequestMeta};

/// Params of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompleteParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The argument, as far as it was typed.
    pub argument: CompletionArgument,
    /// The values of the other arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<CompletionContext>,
    /// The prompt or the resource that has the argument.
    #[serde(rename = "ref")]
    pub reference: CompletionReference,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The argument that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionArgument {
    /// Its name.
    pub name: String,
    /// The text that was typed so far.
    pub value: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Arguments that have their values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionContext {
    /// Values by names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The owner of an argument: `ref/prompt` with a name, or `ref/resource` with an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionReference {
    /// The name of a prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `ref/prompt` or `ref/resource`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The address, or its template, of a resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `completion/complete`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CompleteResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The values.
    pub completion: Completion,
    /// `complete` in the modern era.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Values that fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// There are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_more: Option<bool>,
    /// The number of all values that fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// At most 100 of them.
    pub values: Vec<String>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
