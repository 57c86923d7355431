//! Tasks: calls that a client asks after. In the modern era an extension (`tasks/get`,
//! `tasks/update`, `tasks/cancel`, and the server decides); in 2025-11-25 an experiment in which
//! the client decides and fetches the result by `tasks/result`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::results::ResultType;
use super::rounds::InputRequests;
use super::words::words;
use super::{Extra, RawJson, RequestMeta, fields};

/// Params of `tasks/get`, `tasks/cancel`, and `tasks/result` of the legacy era.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// The task.
    pub task_id: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Params of `tasks/update`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateTaskParams {
    /// Metadata.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "RequestMeta::is_empty"
    )]
    pub meta: RequestMeta,
    /// Answers to questions of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<Map<String, Value>>,
    /// The task.
    pub task_id: String,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

words! {
    /// The status of a task.
    TaskStatus {
        /// Not over.
        "working" => Working,
        /// Waits for answers.
        "input_required" => InputRequired,
        /// Has its result.
        "completed" => Completed,
        /// Ended with an error of the protocol.
        "failed" => Failed,
        /// Was cancelled.
        "cancelled" => Cancelled,
    }
}

/// A task: the answer to a request that became one, the result of `tasks/get` and the params of
/// `notifications/tasks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Metadata; in a notification, the stream that it belongs to.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// When it began, as RFC 3339 has it.
    pub created_at: String,
    /// The error of a task that failed.
    #[serde(
        default,
        deserialize_with = "fields::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub error: Option<RawJson>,
    /// The questions of a task that waits for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_requests: Option<InputRequests>,
    /// When its status changed last, as RFC 3339 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated_at: Option<String>,
    /// The interval at which to ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval_ms: Option<u64>,
    /// The result of a task that is completed.
    #[serde(
        default,
        deserialize_with = "fields::present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// `task` where a request became one, `complete` in the result of `tasks/get`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_type: Option<ResultType>,
    /// Its status.
    pub status: TaskStatus,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// Its name, which only its server understands.
    pub task_id: String,
    /// Its time to live, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The answer to a request that became a task in the legacy era.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreateTaskResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The task.
    pub task: LegacyTask,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A task of the legacy era: also the result of its `tasks/get` and `tasks/cancel`, and the params
/// of `notifications/tasks/status`. The result of `tasks/result` is that of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyTask {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// When it began, as RFC 3339 has it.
    pub created_at: String,
    /// When its status changed last, as RFC 3339 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated_at: Option<String>,
    /// The interval at which to ask, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<u64>,
    /// Its status.
    pub status: TaskStatus,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// Its name, which only its server understands.
    pub task_id: String,
    /// Its time to live in milliseconds, or `null`.
    pub ttl: Option<u64>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Result of `tasks/list`, which only the legacy era has: one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LegacyListTasksResult {
    /// Metadata.
    #[serde(rename = "_meta", default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Extra>,
    /// The cursor of the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The tasks.
    pub tasks: Vec<LegacyTask>,
    /// Members of later revisions.
    #[serde(flatten)]
    pub extra: Extra,
}
