//! MCP as both of its eras spell it: its messages in both directions, a file for each subject, its
//! revisions, the metadata of a request and the headers that mirror it. What a method does is the
//! door's business.
//!
//! What is passed on stays as it came ([`RawJson`], or JSON values), and members that are not known
//! here survive in `extra`. Members are written in alphabetical order, as in all JSON of ours.
//!
//! An era is known per message: a request whose `_meta` names a protocol version is modern
//! (2026-07-28, stateless); `initialize` and what follows it in a session is legacy.

mod capabilities;
pub mod client;
mod completion;
mod content;
mod discover;
mod elicitation;
mod fields;
mod headers;
mod identity;
mod initialize;
pub mod meta;
mod notifications;
mod params;
mod prompts;
mod raw;
mod resources;
mod results;
mod roots;
mod rounds;
mod sampling;
mod subscriptions;
mod tasks;
mod tools;
mod words;

use serde_json::{Map, Value, json};

use crate::jsonrpc::{INVALID_PARAMS, RpcError};

pub use capabilities::{
    ClientCapabilities, ElicitationCapability, ListCapability, RootsCapability, ServerCapabilities,
};
pub use completion::{
    CompleteParams, CompleteResult, Completion, CompletionArgument, CompletionContext,
    CompletionReference,
};
pub use content::{
    Annotations, ContentBlock, EmbeddedResource, MediaContent, ResourceLink, TextContent,
};
pub use discover::{DiscoverMeta, DiscoverResult, UnsupportedVersionData};
pub use elicitation::{
    ElicitAction, ElicitParams, ElicitResult, ElicitationCompleteParams, ElicitationMode,
};
pub use fields::{FieldError, present, read};
pub use headers::{HeaderCheck, asks_for_headers, check_headers, decode_header};
pub use identity::{Icon, Implementation};
pub use initialize::{InitializeParams, InitializeResult};
pub use meta::RequestMeta;
pub use notifications::{CancelledParams, ChangeParams, LogParams, ProgressParams, SetLevelParams};
pub(crate) use params::read_meta;
pub use params::{Message, Params, parse};
pub use prompts::{
    GetPromptParams, GetPromptResult, ListPromptsResult, PromptArgument, PromptDefinition,
    PromptMessage,
};
pub use raw::RawJson;
pub use resources::{
    ListResourceTemplatesResult, ListResourcesResult, ReadResourceParams, ReadResourceResult,
    ResourceContents, ResourceDefinition, ResourceTemplate, SubscribeParams,
};
pub use results::{CacheScope, EmptyParams, EmptyResult, ListParams, ResultType};
pub use roots::{ListRootsResult, Root};
pub use rounds::{InputRequest, InputRequests, InputRequiredResult, QuestionParams};
pub use sampling::{
    CreateMessageParams, CreateMessageResult, ModelHint, ModelPreferences, SamplingMessage, ToolUse,
};
pub use subscriptions::{AcknowledgedParams, ListenFilter, ListenParams, SubscriptionMeta};
pub use tasks::{
    CreateTaskResult, LegacyListTasksResult, LegacyTask, Task, TaskParams, TaskStatus,
    UpdateTaskParams,
};
pub use tools::{
    CallToolParams, CallToolResult, ListToolsResult, TaskSupport, ToolAnnotations, ToolDefinition,
    ToolExecution,
};

/// Members that are not known here, kept as they came.
pub type Extra = Map<String, Value>;

/// The stateless revision.
pub const MODERN: &str = "2026-07-28";
/// The revisions with a handshake, newest first.
pub const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// All of them.
pub const VERSIONS: [&str; 5] = [
    MODERN,
    HANDSHAKE[0],
    HANDSHAKE[1],
    HANDSHAKE[2],
    HANDSHAKE[3],
];

/// A mirrored header is missing or says something else than the body.
pub const HEADER_MISMATCH: i32 = -32020;
/// The request needs something its client did not say it can do.
pub const MISSING_CLIENT_CAPABILITY: i32 = -32021;
/// A revision we do not speak.
pub const UNSUPPORTED_VERSION: i32 = -32022;
/// A resource that is not there, in the legacy era.
pub const RESOURCE_NOT_FOUND: i32 = -32002;

/// The refusal of a revision.
#[must_use]
pub fn unsupported(version: &str) -> RpcError {
    RpcError::new(
        UNSUPPORTED_VERSION,
        format!("protocol version {version:?} is not supported"),
    )
    .with(json!({ "supported": VERSIONS, "requested": version }))
}

/// The refusal of a client that can not do what is needed.
#[must_use]
pub fn missing_capability(required: Value) -> RpcError {
    RpcError::new(
        MISSING_CLIENT_CAPABILITY,
        "the client did not declare a capability this request needs",
    )
    .with(json!({ "requiredCapabilities": required }))
}

/// The refusal of params.
#[must_use]
pub fn invalid(message: &str) -> RpcError {
    RpcError::new(INVALID_PARAMS, message)
}

/// The revision answered to a legacy client that proposes one.
#[must_use]
pub fn negotiate(proposed: &str) -> &'static str {
    HANDSHAKE
        .into_iter()
        .find(|version| *version == proposed)
        .unwrap_or(HANDSHAKE[0])
}

/// Links to what an output lists as `resources`, and to its `run`.
pub fn resource_links(output: &Value) -> impl Iterator<Item = Value> {
    let listed = output.get("resources").and_then(Value::as_array);
    let listed = listed.into_iter().flatten();
    listed.chain(output.get("run")).map(|resource| {
        let mut link = json!({ "type": "resource_link" });
        for name in ["uri", "name", "mimeType", "size"] {
            if let Some(value) = resource.get(name) {
                link[name] = value.clone();
            }
        }
        link
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("1999-01-01"), "2025-11-25");
        assert_eq!(negotiate(MODERN), "2025-11-25");
    }
}
