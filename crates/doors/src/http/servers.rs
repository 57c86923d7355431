//! `/v1/servers` on `gate.sock`: what the MCP servers behind the gate are doing, their logs, and
//! their stop. For `callgate servers`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use callgate_call::{Fault, ServerProcess, ServerStatus, Tool};
use callgate_gate::Gate;
use serde::Serialize;
use serde_json::json;

use super::{Door, answer, refusal};

/// A server, as the gate's socket reports it.
#[derive(Serialize)]
struct ServerBody<'a> {
    name: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    processes: Vec<ProcessBody<'a>>,
    starts: u64,
    crashes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit: Option<&'a str>,
    refused_tools: &'a [String],
    dropped: u64,
}

#[derive(Serialize)]
struct ProcessBody<'a> {
    pid: Option<u32>,
    ready: bool,
    in_flight: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

impl<'a> ServerBody<'a> {
    fn of(status: &'a ServerStatus) -> Self {
        Self {
            name: &status.name,
            state: status.state,
            wait_ms: status.wait_ms,
            processes: status.processes.iter().map(ProcessBody::of).collect(),
            starts: status.starts,
            crashes: status.crashes,
            last_exit: status.last_exit.as_deref(),
            refused_tools: &status.refused_tools,
            dropped: status.dropped,
        }
    }
}

impl<'a> ProcessBody<'a> {
    fn of(process: &'a ServerProcess) -> Self {
        Self {
            pid: process.pid,
            ready: process.is_ready,
            in_flight: process.in_flight,
            caller: process.caller.as_deref(),
            session: process.session.as_deref(),
        }
    }
}

/// Answers with all servers.
pub(super) async fn list(State(door): State<Arc<Door>>) -> Response {
    let catalog = door.gate.catalog();
    let mut statuses: Vec<ServerStatus> = Vec::new();
    for tool in catalog.tools() {
        let is_known = |name: &str| statuses.iter().any(|status| status.name == name);
        let origin = tool.of_server.as_ref();
        if origin.is_none_or(|origin| is_known(&origin.server)) {
            continue;
        }
        statuses.extend(tool.runner.server().map(|server| server.status()));
    }
    let servers: Vec<ServerBody<'_>> = statuses.iter().map(ServerBody::of).collect();
    answer(StatusCode::OK, &json!({ "servers": servers }))
}

/// Answers with what a server printed last.
pub(super) async fn log(State(door): State<Arc<Door>>, Path(name): Path<String>) -> Response {
    with_tool(&door.gate, &name, |tool| {
        let log = tool.runner.server().map(|server| server.log());
        json!({ "log": log.unwrap_or_default() })
    })
}

/// Stops the processes of a server.
pub(super) async fn stop(State(door): State<Arc<Door>>, Path(name): Path<String>) -> Response {
    with_tool(&door.gate, &name, |tool| {
        if let Some(server) = tool.runner.server() {
            server.stop();
        }
        json!({ "ok": true })
    })
}

/// Answers with what `body` makes of a tool of the server.
fn with_tool(gate: &Gate, name: &str, body: impl Fn(&Tool) -> serde_json::Value) -> Response {
    let catalog = gate.catalog();
    let is_of = |tool: &&Tool| {
        tool.of_server
            .as_ref()
            .is_some_and(|origin| origin.server == name)
    };
    let found = catalog.tools().find(is_of);
    match found {
        Some(tool) => answer(StatusCode::OK, &body(tool)),
        None => {
            let message = format!("no server `{name}` is served here");
            let fault = Fault::NotFound { message };
            answer(StatusCode::NOT_FOUND, &refusal(name.to_owned(), &fault))
        }
    }
}
