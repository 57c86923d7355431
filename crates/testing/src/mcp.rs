//! Requests of MCP clients, in both eras.

use serde_json::{Value, json};

/// `_meta` of a modern request.
pub fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
    })
}

/// A modern `tools/call`; `meta` is added to what every request has.
pub fn modern_call(id: u64, tool: &str, arguments: &Value, meta: &Value) -> Value {
    let mut all = modern_meta();
    for (key, value) in meta.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": all },
    })
}

/// A legacy `tools/call`.
pub fn legacy_call(id: u64, tool: &str, arguments: &Value, meta: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": meta },
    })
}

/// `initialize` of a client that can be asked.
pub fn initialize(id: u64) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "test", "version": "1" },
        },
    })
}
