//! What MCP's benches say to every server alike.

use std::process::Command;

use serde_json::Value;

use crate::scratch::Scratch;
use crate::{Bench, Failure};

/// The tool that all of them have.
pub const TOOL: &str = "builtin_echo";

/// What a modern request has in its `_meta`.
pub const MODERN_META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"0"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

/// How a legacy client begins.
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"0"}}}"#;
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// `callgate` with a command, in a scratch folder.
pub fn callgate(bench: &Bench, scratch: &Scratch, words: &[&str]) -> Command {
    let mut command = bench.program();
    command.args(words);
    command
        .arg("--workspace")
        .arg(scratch.workspace())
        .arg("--state")
        .arg(scratch.state());
    command
}

/// Trusts the configuration of a scratch folder's workspace.
pub fn trust(bench: &Bench, scratch: &Scratch) -> Result<(), Failure> {
    let trusted = callgate(bench, scratch, &["trust"]).output()?;
    if trusted.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&trusted.stderr).into())
    }
}

/// Fails unless an answer is what the echo tool gives back for `request`.
pub fn check(request: &[u8], answer: &Value) -> Result<(), Failure> {
    let request: Value = serde_json::from_slice(request)?;
    let said = request["params"]["arguments"]["message"].as_str();
    let given = answer["result"]["content"][0]["text"].as_str();
    match (said, given) {
        // Ours gives back all its arguments, the others the message.
        (Some(said), Some(given)) if given.contains(said) && answer["id"] == request["id"] => {
            Ok(())
        }
        _ => Err(format!("answered {answer}").into()),
    }
}
