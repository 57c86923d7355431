//! The arguments of the terminal tools, and the schemas of what each takes and gives and of what
//! sessions publish.

use callgate_call::Notification;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{WholeNumber, set};
use crate::closed;
use crate::programs::Variables;

/// Results that the contract leaves open.
fn ok() -> Value {
    json!({ "type": "object", "properties": { "ok": { "type": "boolean" } }, "required": ["ok"] })
}

/// What those who follow a session are told.
pub fn notifications() -> Vec<Notification> {
    let stream = json!({
        "session_id": { "type": "string" },
        "stream": { "type": "string", "enum": ["stdout", "stderr"] },
        "data": { "type": "string" },
        "timestamp": { "type": "string", "description": "ISO-8601" },
    });
    let exit = json!({
        "session_id": { "type": "string" },
        "code": { "type": ["integer", "null"] },
        "signal": { "type": ["string", "null"] },
        "duration_ms": { "type": "integer", "minimum": 0 },
    });
    vec![
        Notification {
            name: "terminals/stream",
            schema: closed(stream, &["session_id", "stream", "data", "timestamp"]),
        },
        Notification {
            name: "terminals/exit",
            schema: closed(exit, &["session_id", "code", "signal", "duration_ms"]),
        },
    ]
}

/// The arguments of `terminals/create`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalCreateArguments<'a> {
    pub name: Option<&'a str>,
    pub cwd: Option<&'a str>,
    #[serde(borrow, default)]
    pub env: Variables<'a>,
    pub command: Option<&'a str>,
    #[serde(borrow, default)]
    pub args: Vec<&'a str>,
    #[serde(default)]
    pub shell: bool,
    pub cols: Option<WholeNumber>,
    pub rows: Option<WholeNumber>,
    #[serde(default = "set")]
    pub attach: bool,
}

/// The schemas of `terminals/create`.
pub fn create() -> [Value; 2] {
    let input = json!({
        "name": { "type": ["string", "null"] },
        "cwd": { "type": ["string", "null"] },
        "env": { "type": "object", "additionalProperties": { "type": "string" } },
        "command": {
            "type": ["string", "null"],
            "description": "If omitted, spawn user's shell",
        },
        "args": { "type": "array", "items": { "type": "string" }, "default": [] },
        "shell": { "type": "boolean", "default": false },
        "cols": { "type": ["integer", "null"] },
        "rows": { "type": ["integer", "null"] },
        "attach": { "type": "boolean", "default": true },
    });
    let output = json!({
        "session_id": { "type": "string" },
        "pid": { "type": ["integer", "null"] },
        "name": { "type": ["string", "null"] },
        "cwd": { "type": ["string", "null"] },
        "started_at": { "type": "string", "description": "ISO-8601" },
    });
    [
        closed(input, &[]),
        closed(output, &["session_id", "started_at"]),
    ]
}

/// The arguments of `terminals/write`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalWriteArguments<'a> {
    pub session_id: &'a str,
    pub data: &'a str,
}

/// The schemas of `terminals/write`.
pub fn write() -> [Value; 2] {
    let data = json!({ "type": "string", "description": "UTF-8 text to write to stdin" });
    let output = json!({
        "type": "object",
        "properties": { "bytes": { "type": "integer" } },
        "required": ["bytes"],
    });
    let input = json!({ "session_id": { "type": "string" }, "data": data });
    [closed(input, &["session_id", "data"]), output]
}

/// The arguments of `terminals/resize`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalResizeArguments<'a> {
    pub session_id: &'a str,
    pub cols: WholeNumber,
    pub rows: WholeNumber,
}

/// The schemas of `terminals/resize`.
pub fn resize() -> [Value; 2] {
    let input = json!({
        "session_id": { "type": "string" },
        "cols": { "type": "integer" },
        "rows": { "type": "integer" },
    });
    [closed(input, &["session_id", "cols", "rows"]), ok()]
}

/// The arguments of `terminals/kill`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalKillArguments<'a> {
    pub session_id: &'a str,
    pub signal: Option<TerminalSignal>,
}

/// A signal that a caller may send to a session.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub enum TerminalSignal {
    #[default]
    #[serde(rename = "SIGTERM")]
    Terminate,
    #[serde(rename = "SIGKILL")]
    Kill,
    #[serde(rename = "SIGHUP")]
    HangUp,
}

impl TerminalSignal {
    /// The number of the signal.
    pub fn number(self) -> u8 {
        match self {
            Self::HangUp => 1,
            Self::Kill => 9,
            Self::Terminate => 15,
        }
    }
}

/// The schemas of `terminals/kill`.
pub fn kill() -> [Value; 2] {
    let signal = json!({
        "type": ["string", "null"],
        "enum": ["SIGTERM", "SIGKILL", "SIGHUP", null],
    });
    let input = json!({ "session_id": { "type": "string" }, "signal": signal });
    [closed(input, &["session_id"]), ok()]
}

/// The arguments of `terminals/attach`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalAttachArguments<'a> {
    pub session_id: &'a str,
}

/// The schemas of `terminals/attach`.
pub fn attach() -> [Value; 2] {
    let input = json!({ "session_id": { "type": "string" } });
    [closed(input, &["session_id"]), ok()]
}

/// The arguments of `terminals/list`: none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalListArguments {}

/// The schemas of `terminals/list`.
pub fn list() -> [Value; 2] {
    let session = closed(
        json!({
            "session_id": { "type": "string" },
            "name": { "type": ["string", "null"] },
            "cwd": { "type": ["string", "null"] },
            "started_at": { "type": "string" },
            "ended_at": { "type": ["string", "null"] },
            "status": { "type": "string", "enum": ["running", "exited", "killed"] },
        }),
        &["session_id", "status", "started_at"],
    );
    let sessions = json!({ "sessions": { "type": "array", "items": session } });
    [closed(json!({}), &[]), closed(sessions, &["sessions"])]
}

/// The arguments of `terminals/read_logs`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalLogArguments<'a> {
    pub session_id: &'a str,
    pub since_ts: Option<&'a str>,
    pub limit_lines: Option<WholeNumber>,
}

/// The schemas of `terminals/read_logs`.
pub fn read_logs() -> [Value; 2] {
    let input = json!({
        "session_id": { "type": "string" },
        "since_ts": { "type": ["string", "null"] },
        "limit_lines": { "type": ["integer", "null"] },
    });
    let line = closed(
        json!({
            "ts": { "type": "string" },
            "stream": { "type": "string", "enum": ["stdout", "stderr"] },
            "data": { "type": "string" },
        }),
        &["ts", "stream", "data"],
    );
    let logs = json!({ "logs": { "type": "array", "items": line } });
    [closed(input, &["session_id"]), closed(logs, &["logs"])]
}
