//! `rpc/discover`: an OpenRPC document of every method a caller has, made of the schemas that
//! calls are checked by.

use callgate_call::Tool;
use callgate_gate::Gate;
use serde_json::{Value, json};

use super::Peer;

/// The document's own version.
const OPENRPC: &str = "1.3.2";

pub(super) fn document(gate: &Gate, peer: &Peer) -> Value {
    let entries = gate.visible_tools(&peer.caller, peer.scope.as_deref());
    let mut methods: Vec<Value> = entries.iter().map(|entry| method(&entry.tool)).collect();
    methods.push(json!({
        "name": "tools/list",
        "summary": "The tools there are",
        "paramStructure": "by-name",
        "params": [
            param("filter", &json!({ "type": "object" }), false),
            param("cursor", &json!({ "type": ["string", "null"] }), false),
            param("limit", &json!({ "type": "integer", "minimum": 1, "maximum": 200, "default": 50 }), false),
        ],
        "result": { "name": "result", "schema": { "type": "object" } },
    }));
    json!({
        "openrpc": OPENRPC,
        "info": { "title": "Callgate", "version": env!("CARGO_PKG_VERSION") },
        "methods": methods,
    })
}

fn method(tool: &Tool) -> Value {
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
    };
    let properties = tool
        .input_schema
        .get("properties")
        .and_then(Value::as_object);
    let params: Vec<Value> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| param(name, schema, is_required(name)))
        .collect();
    let result = tool.output_schema.clone().unwrap_or_else(|| json!({}));
    json!({
        "name": tool.name,
        "summary": tool.description,
        "tags": tool.tags.iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": "result", "schema": result },
    })
}

fn param(name: &str, schema: &Value, required: bool) -> Value {
    json!({ "name": name, "required": required, "schema": schema })
}
