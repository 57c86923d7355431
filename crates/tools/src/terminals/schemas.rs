//! The schemas of the terminal tools: what each takes and gives, and what sessions publish.

use callgate_call::Notification;
use serde_json::{Value, json};

use crate::closed;

/// The input of a method about one session.
fn of_session(mut properties: Value, required: &[&str]) -> Value {
    properties["session_id"] = json!({ "type": "string" });
    closed(properties, &[&["session_id"], required].concat())
}

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

/// The schemas of `terminals/write`.
pub fn write() -> [Value; 2] {
    let data = json!({ "type": "string", "description": "UTF-8 text to write to stdin" });
    let output = json!({
        "type": "object",
        "properties": { "bytes": { "type": "integer" } },
        "required": ["bytes"],
    });
    [of_session(json!({ "data": data }), &["data"]), output]
}

/// The schemas of `terminals/resize`.
pub fn resize() -> [Value; 2] {
    let sides = json!({ "cols": { "type": "integer" }, "rows": { "type": "integer" } });
    [of_session(sides, &["cols", "rows"]), ok()]
}

/// The schemas of `terminals/kill`.
pub fn kill() -> [Value; 2] {
    let signal = json!({
        "type": ["string", "null"],
        "enum": ["SIGTERM", "SIGKILL", "SIGHUP", null],
    });
    [of_session(json!({ "signal": signal }), &[]), ok()]
}

/// The schemas of `terminals/attach`.
pub fn attach() -> [Value; 2] {
    [of_session(json!({}), &[]), ok()]
}

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

/// The schemas of `terminals/read_logs`.
pub fn read_logs() -> [Value; 2] {
    let input = json!({
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
    [of_session(input, &[]), closed(logs, &["logs"])]
}
