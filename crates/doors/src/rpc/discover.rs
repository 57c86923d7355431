//! `rpc/discover`: an OpenRPC document of every method a caller has, made of the schemas that
//! calls are checked by.

use callgate_call::Tool;
use callgate_gate::Gate;
use serde_json::{Value, json};

use super::{Peer, list};

/// The document's own version.
const OPENRPC: &str = "1.3.2";

pub(super) fn document(gate: &Gate, peer: &Peer) -> Value {
    let entries = gate.visible_tools(&peer.caller, peer.scope.as_deref());
    let mut methods: Vec<Value> = entries.iter().map(|entry| of_tool(&entry.tool)).collect();
    let [input, output] = list::schemas();
    let about = "The tools there are";
    methods.push(method("tools/list", about, &[], &input, Some(&output)));
    json!({
        "openrpc": OPENRPC,
        "info": { "title": "Callgate", "version": env!("CARGO_PKG_VERSION") },
        "methods": methods,
    })
}

fn of_tool(tool: &Tool) -> Value {
    let output = tool.output_schema.as_ref();
    method(
        &tool.name,
        &tool.description,
        &tool.tags,
        &tool.input_schema,
        output,
    )
}

fn method(
    name: &str,
    about: &str,
    tags: &[String],
    input: &Value,
    output: Option<&Value>,
) -> Value {
    let required = input.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
    };
    let properties = input.get("properties").and_then(Value::as_object);
    let params: Vec<Value> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| param(name, schema, is_required(name)))
        .collect();
    let result = output.cloned().unwrap_or_else(|| json!({}));
    json!({
        "name": name,
        "summary": about,
        "tags": tags.iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": "result", "schema": result },
    })
}

fn param(name: &str, schema: &Value, required: bool) -> Value {
    json!({ "name": name, "required": required, "schema": schema })
}
