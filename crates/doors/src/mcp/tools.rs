//! Tools as MCP shows them, and outcomes as MCP results. Table F.

use std::io::Write as _;

use callgate_call::{
    Call, ConfinementHint, Enforcement, Fault, Outcome, Output, Tasks, Tier, Tool, Unserved,
    host_name,
};
use callgate_gate::FoundTool;
use callgate_text::write_json_text;
use callgate_wires::json;
use callgate_wires::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcError};
use callgate_wires::mcp::{
    Extra, ListToolsResult, RawJson, TaskSupport, ToolAnnotations, ToolDefinition, ToolExecution,
    asks_for_headers, meta, read,
};
use serde_json::{Value, json};

use crate::reply::{Shape, enforcement_body, is_of_object, output_schema};

use super::dispatch::{Given, Page, Refusal};
use super::{Behind, Peer, Request, Server};

impl Server {
    pub(super) fn list_tools(&self, request: &Request) -> Result<Given, Refusal> {
        let page = match &self.behind {
            Behind::Relay(relay) => self.page(request, "tools", relay.tools().iter().cloned())?,
            Behind::Gate(gate) => {
                let scope = request.peer.scope.as_deref();
                let entries = gate.visible_tools(&request.peer.caller, scope);
                let Page { items, next_cursor } = self.page(request, "tools", entries)?;
                let is_modern = request.era.is_modern();
                let shown = items.iter().map(|entry| definition(&entry.tool, is_modern));
                Page {
                    items: shown.collect(),
                    next_cursor,
                }
            }
        };
        Ok(Given::of(&ListToolsResult {
            meta: None,
            cache_scope: request.era.cache_scope(),
            next_cursor: page.next_cursor,
            result_type: request.era.complete(),
            tools: page.items,
            ttl_ms: request.era.cache_ttl_ms(),
            extra: Extra::new(),
        }))
    }
}

/// The input schema of the tool that a call names, if it asks for headers of its own and the caller
/// may know of it.
pub(super) fn schema_with_headers<'a>(found: &'a FoundTool, peer: &Peer) -> Option<&'a Value> {
    // Hardly any asks, and only then does it matter who may know of it.
    if !asks_for_headers(&found.tool()?.input_schema) {
        return None;
    }
    let visible = found.tool_visible_to(&peer.caller, peer.scope.as_deref());
    visible.map(|tool| &tool.input_schema)
}

fn definition(tool: &Tool, modern: bool) -> ToolDefinition {
    let writes = tool.tier >= Tier::Write;
    let about = json!({
        "callgate/name": tool.name,
        "callgate/aid": tool.aid,
        "callgate/tier": tool.tier.number(),
        "callgate/tags": tool.tags,
    });
    if let Some(origin) = &tool.of_server
        && let Ok(passed) = read::<ToolDefinition>(&origin.definition)
    {
        return passed_on(tool, passed, about);
    }
    // A legacy client would not call what it can not have as a task, and there it has none.
    let needs_task = tool.tasks == Tasks::Required && modern;
    ToolDefinition {
        meta: about.as_object().cloned(),
        annotations: Some(ToolAnnotations {
            destructive_hint: Some(writes && !only_adds(tool)),
            idempotent_hint: Some(tool.idempotent),
            open_world_hint: Some(tool.tier >= Tier::System),
            read_only_hint: Some(!writes),
            ..ToolAnnotations::default()
        }),
        description: Some(tool.description.clone()),
        execution: needs_task.then(|| ToolExecution {
            task_support: Some(TaskSupport::Required),
            extra: Extra::new(),
        }),
        icons: tool.face.icons.iter().map(RawJson::of).collect(),
        input_schema: RawJson::of(&input_schema(&tool.input_schema)),
        name: host_name(&tool.name),
        output_schema: output_schema(tool).map(RawJson::of),
        title: tool.face.title.clone(),
        extra: Extra::new(),
    }
}

/// The definition of an MCP server's tool, under the tool's name here. Schemas, annotations and
/// unknown members stay as they came; our own metadata outranks metadata of the same key.
fn passed_on(tool: &Tool, passed: ToolDefinition, about: Value) -> ToolDefinition {
    let mut meta = passed.meta.unwrap_or_default();
    meta.retain(|key, _| !key.starts_with("callgate/"));
    if let Value::Object(about) = about {
        meta.extend(about);
    }
    ToolDefinition {
        meta: Some(meta),
        description: Some(tool.description.clone()),
        name: host_name(&tool.name),
        ..passed
    }
}

/// True if all that a tool says it does is to add to what is there.
fn only_adds(tool: &Tool) -> bool {
    let adds = |effect: &String| effect.ends_with("_append") || effect.ends_with("_create");
    tool.tier == Tier::Write && !tool.side_effects.is_empty() && tool.side_effects.iter().all(adds)
}

/// The protocol wants an object that says so; a schema that takes anything is made one.
pub(crate) fn input_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(_) if is_of_object(schema) => schema.clone(),
        Value::Object(members) if !members.contains_key("type") => {
            let mut members = members.clone();
            members.insert("type".to_owned(), "object".into());
            Value::Object(members)
        }
        _ => json!({ "type": "object" }),
    }
}

/// What became of a call, for its client.
pub(super) enum Told {
    /// A whole result.
    Result(Vec<u8>),
    /// An error of the protocol.
    Error(RpcError),
    /// Somebody must be asked first.
    Approve(String),
    /// The tool asks.
    Ask {
        requests: serde_json::Map<String, Value>,
        state: Option<Value>,
    },
    /// The client took it back.
    Nothing,
}

/// The result of a call. `modern` results say that they are complete.
pub(super) fn told(tool: &Tool, call: &Call, outcome: Outcome, modern: bool) -> Told {
    let Outcome {
        result,
        replayed,
        enforcement,
        hint,
        ..
    } = outcome;
    let tail = Tail {
        call,
        replayed,
        modern,
        enforcement: Some(&enforcement),
        hint: hint.as_deref(),
    };
    match result {
        Ok(output) => Told::Result(success(tool, &output, &tail)),
        Err(fault) => told_fault(&fault, &tail),
    }
}

/// The end of a call of a tool that is not there. `doubt` says why it may be missing.
pub(super) fn told_unknown(outcome: Outcome, name: &str, doubt: Option<String>) -> Told {
    let fault = outcome.result.err();
    let fault = fault.unwrap_or_else(|| Fault::unknown_tool(name));
    let code = match fault {
        Fault::Internal { .. } => INTERNAL_ERROR,
        _ => INVALID_PARAMS,
    };
    let words = match (&fault, doubt) {
        // The reason says it already.
        (
            Fault::UnknownTool {
                why: Some(Unserved::AwaitsTrust),
                ..
            },
            _,
        ) => fault.to_string(),
        (Fault::UnknownTool { why, .. }, Some(doubt)) => {
            let joint = if why.is_some() { "; " } else { ": " };
            format!("{fault}{joint}{doubt}")
        }
        _ => fault.to_string(),
    };
    Told::Error(RpcError::new(code, words))
}

/// One fault, on this wire. Table F.
fn told_fault(fault: &Fault, tail: &Tail<'_>) -> Told {
    match fault {
        Fault::UnknownTool { .. } => Told::Error(RpcError::new(INVALID_PARAMS, fault.to_string())),
        Fault::BadRequest { .. } => Told::Error(RpcError::new(INVALID_REQUEST, fault.to_string())),
        Fault::Internal { .. } => Told::Error(RpcError::new(INTERNAL_ERROR, fault.to_string())),
        Fault::NeedsApproval { approval } => Told::Approve(approval.clone()),
        Fault::NeedsInput { requests, state } => Told::Ask {
            requests: requests.clone(),
            state: state.clone(),
        },
        Fault::Cancelled if tail.call.cancel.is_cancelled() => Told::Nothing,
        Fault::BadInput { .. }
        | Fault::BadValue { .. }
        | Fault::NotFound { .. }
        | Fault::Denied { .. }
        | Fault::LeaseRequired { .. }
        | Fault::LeaseRejected { .. }
        | Fault::Conflict { .. }
        | Fault::OutcomeUnknown { .. }
        | Fault::RateLimited { .. }
        | Fault::BreakerOpen { .. }
        | Fault::Unavailable { .. }
        | Fault::Unenforceable { .. }
        | Fault::GuaranteeBlocked { .. }
        | Fault::TooLarge { .. }
        | Fault::Timeout { .. }
        | Fault::Crash { .. }
        | Fault::BadOutput { .. }
        | Fault::ToolFailed { .. }
        | Fault::Cancelled => Told::Result(failure(fault, tail)),
    }
}

/// The result of a call that needs more than its client can be asked for.
pub(super) fn told_fault_as_result(fault: &Fault, call: &Call, modern: bool) -> Vec<u8> {
    let tail = Tail {
        call,
        replayed: false,
        modern,
        enforcement: None,
        hint: None,
    };
    failure(fault, &tail)
}

/// What stands at the end of every result of a call.
struct Tail<'a> {
    call: &'a Call,
    replayed: bool,
    modern: bool,
    enforcement: Option<&'a Enforcement>,
    hint: Option<&'a ConfinementHint>,
}

impl Tail<'_> {
    fn write(&self, fault: Option<&Fault>, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"isError\":");
        out.extend_from_slice(if fault.is_some() { b"true" } else { b"false" });
        if self.modern {
            out.extend_from_slice(b",\"resultType\":\"complete\"");
        }
        out.extend_from_slice(b",\"_meta\":{\"");
        out.extend_from_slice(meta::CALL.as_bytes());
        out.extend_from_slice(b"\":{\"id\":\"");
        let _ = write!(out, "{}", self.call.id);
        out.push(b'"');
        if self.replayed {
            out.extend_from_slice(b",\"replayed\":true");
        }
        // A tool without a child is held to nothing, and costs no words.
        if let Some(enforcement) = self.enforcement.filter(|e| e.detail.is_some()) {
            out.extend_from_slice(b",\"enforcement\":");
            json::write(&enforcement_body(enforcement), out);
        }
        if let Some(hint) = self.hint {
            out.extend_from_slice(b",\"hint\":");
            json::write_value(&hint.to_value(), out);
        }
        if let Some(fault) = fault {
            out.extend_from_slice(b",\"fault\":\"");
            out.extend_from_slice(fault.kind().as_bytes());
            out.extend_from_slice(b"\",\"data\":");
            // What the client gets as content already is not repeated.
            let data = match fault {
                Fault::ToolFailed { error_type, .. } => json!({ "type": error_type }),
                other => other.data(),
            };
            json::write_value(&data, out);
        }
        out.extend_from_slice(b"}}}");
    }
}

fn success(tool: &Tool, output: &Output, tail: &Tail<'_>) -> Vec<u8> {
    // bound: the text in memory
    let mut out = Vec::with_capacity(output.json.text().len() + 256);
    out.extend_from_slice(b"{\"content\":");
    Shape::of(tool).write(output, &mut out);
    tail.write(None, &mut out);
    out
}

/// The words of a fault on this wire, where a token is what its client brings to be let in.
fn words_of(fault: &Fault) -> String {
    let Fault::LeaseRequired { tier, tool, .. } = fault else {
        return fault.to_string();
    };
    let lift = match tier {
        // The highest tier that can be named is the dangerous one's.
        0..=2 => format!(
            "; its owner can lift this by `[leases] enforce_from_tier = {}` in callgate.toml",
            tier + 1
        ),
        _ => String::new(),
    };
    format!(
        "lease_required: this call must bring a single-use lease, which `callgate lease grant \
         {tool}` makes, in `_meta` as \"callgate/leaseToken\"{lift}"
    )
}

fn failure(fault: &Fault, tail: &Tail<'_>) -> Vec<u8> {
    let mut out = b"{\"content\":".to_vec();
    match fault {
        Fault::ToolFailed {
            content: Some(content),
            ..
        } => json::write_value(content, &mut out),
        other => {
            out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
            write_json_text(&words_of(other), &mut out);
            out.extend_from_slice(b"}]");
        }
    }
    tail.write(Some(fault), &mut out);
    out
}
