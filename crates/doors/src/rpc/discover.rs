//! `rpc/discover`: an OpenRPC document of every method a caller has, made of the schemas that
//! calls are checked by. OpenRPC has no word for notifications: those a caller may hear are in
//! `x-notifications`.

use std::collections::BTreeMap;

use callgate_call::{Notification, Tool};
use callgate_gate::Gate;
use callgate_wires::jsonrpc::RpcError;
use serde_json::{Map, Value, json};

use super::{Peer, bad_params, list, news};

/// The document's own version.
const OPENRPC: &str = "1.3.2";

pub(super) fn document(
    gate: &Gate,
    peer: &Peer,
    params: &Map<String, Value>,
) -> Result<Value, RpcError> {
    if let Some(name) = params.keys().next() {
        return Err(bad_params(name, "is not known"));
    }
    let entries = gate.visible_tools(&peer.caller, peer.scope.as_deref());
    let mut methods: Vec<Value> = entries.iter().map(|entry| of_tool(&entry.tool)).collect();
    let [input, output] = list::schemas();
    let about = "The tools there are";
    methods.push(method("tools/list", about, &[], &input, Some(&output)));
    let about = "This document";
    let output = json!({ "type": "object" });
    methods.push(method(
        "rpc/discover",
        about,
        &[],
        &json!({}),
        Some(&output),
    ));
    Ok(json!({
        "openrpc": OPENRPC,
        "info": { "title": "Callgate", "version": env!("CARGO_PKG_VERSION") },
        "methods": methods,
        "x-notifications": notifications(gate, peer),
    }))
}

/// What a caller may hear: of the families of tools it may know of. R-3.
fn notifications(gate: &Gate, peer: &Peer) -> Vec<Value> {
    let catalog = gate.catalog();
    let told = catalog.tools().flat_map(|tool| &tool.tells);
    let heard = told.filter(|one| gate.may_hear(one.name, &peer.caller, peer.scope.as_deref()));
    let gap = news::gap();
    let by_name: BTreeMap<&str, &Notification> = heard
        .chain(std::iter::once(&gap))
        .map(|one| (one.name, one))
        .collect();
    let shown = |one: &Notification| json!({ "name": one.name, "schema": one.schema });
    by_name.into_values().map(shown).collect()
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
    let mut properties: Vec<_> = properties.into_iter().flatten().collect();
    // OpenRPC has those that may be left out behind all others.
    properties.sort_by_key(|(name, _)| !is_required(name));
    let params: Vec<Value> = properties
        .into_iter()
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
