//! A trace as the document that is kept. Fields and words are those of the tool protocol
//! (TP-65 to TP-85), and ours beside them; bounded, and without secrets before it is text.

use callgate_call::{
    CapabilityCheck, Enforcement, Fault, Held, Level, Output, Secrets, Tool, capability_checks,
};
use callgate_store::TRACE_BYTES_MAX;
use serde_json::{Map, Value, json};

use super::{Ended, Open, STAGES, Seen, Stage};

/// What one fact may say.
pub(super) const FACT_BYTES_MAX: usize = 512;
/// Names and ids that others chose.
const WORD_BYTES_MAX: usize = 256;
const MESSAGE_BYTES_MAX: usize = 2 * 1024;
/// Keys of an object in its summary. TP-85.
const KEYS_MAX: usize = 10;
/// Characters of a text in its summary. TP-85.
const PREVIEW_CHARS_MAX: usize = 80;
/// TP-69.
const PROTOCOL_VERSION: u64 = 1;

/// All that is known once the call is over.
pub(super) fn document(
    open: &Open<'_>,
    seen: &Seen,
    ended: &Ended<'_>,
    stopped: Stage,
    ended_us: u64,
) -> Map<String, Value> {
    let mut fields = Fields {
        map: Map::new(),
        secrets: open.secrets,
    };
    for (name, value) in &seen.facts {
        match (*name, value.as_str()) {
            // The contract has a yes or a no here. TP-81.
            ("service_handshake", word @ ("true" | "false")) => fields.put(name, word == "true"),
            (name, value) => fields.word(name, value, FACT_BYTES_MAX),
        }
    }
    call(&mut fields, open, ended);
    if let Some(tool) = ended.tool {
        tool_fields(&mut fields, ended, tool);
    }
    end(&mut fields, ended);
    if ended.result.is_err() && stopped != Stage::Finish {
        fields.put("stopped_at", STAGES[stopped as usize]);
    }
    let took_us = ended_us.saturating_sub(open.began_us);
    fields.put("duration_ms", took_us / 1000);
    fields.put("duration_us", took_us);
    fields.put("stages", stages(seen));
    for (name, said) in [("stdout_tail", &seen.stdout), ("stderr_tail", &seen.stderr)] {
        if let Some(shown) = said.shown(open.secrets) {
            fields.put(name, shown);
        }
    }
    fields.map
}

/// Adds the time the call's record took to be safe.
pub(super) fn settle(document: &mut Map<String, Value>, took_us: u64) {
    if let Some(Value::Array(stages)) = document.get_mut("stages") {
        stages.push(stage(STAGES[Stage::Settle as usize], took_us));
    }
}

/// The document as text.
pub(super) fn text(document: &Map<String, Value>) -> String {
    let write =
        |document: &Map<String, Value>| serde_json::to_string(document).expect("keys are texts");
    let text = write(document);
    if text.len() <= TRACE_BYTES_MAX {
        return text;
    }
    // Each part has its bound; what has to go if they meet is what says least.
    let mut document = document.clone();
    document.insert("cut".to_owned(), json!(true));
    for part in [
        "stdout_tail",
        "stderr_tail",
        "input_summary",
        "output_summary",
    ] {
        document.remove(part);
        let text = write(&document);
        if text.len() <= TRACE_BYTES_MAX {
            return text;
        }
    }
    write(&document)
}

/// The longest beginning of at most `bytes_max` bytes.
pub(super) fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A document in the making.
struct Fields<'a> {
    map: Map<String, Value>,
    secrets: &'a Secrets,
}

impl Fields<'_> {
    fn put(&mut self, name: &str, value: impl Into<Value>) {
        self.map.insert(name.to_owned(), value.into());
    }

    /// Somebody's text: cleaned first, then cut, so that no half of a secret is left.
    fn word(&mut self, name: &str, text: &str, bytes_max: usize) {
        let clean = self.secrets.clean(text);
        self.put(name, cut(&clean, bytes_max));
    }
}

fn call(fields: &mut Fields<'_>, open: &Open<'_>, ended: &Ended<'_>) {
    let call = ended.call;
    let name = ended.tool.map_or(call.tool.as_str(), |tool| &tool.name);
    fields.put("type", "tool_call");
    fields.put("call_id", call.id.to_string());
    fields.put("at_ms", open.at_ms);
    fields.word("tool", name, WORD_BYTES_MAX);
    fields.word("tool_name", name, WORD_BYTES_MAX);
    fields.word("caller", call.caller.as_str(), WORD_BYTES_MAX);
    fields.put("wire", call.wire.as_str());
    fields.put("protocol_version", PROTOCOL_VERSION);
    if let Some(id) = &call.trace_id {
        fields.word("trace_id", id, WORD_BYTES_MAX);
    }
    if let Some(id) = &call.parent_span {
        fields.word("parent_span_id", id, WORD_BYTES_MAX);
    }
    for (name, words) in &call.remarks {
        fields.put(name, *words);
    }
    let input = summary(call.input.value(), fields.secrets);
    fields.put("input_summary", input);
}

fn tool_fields(fields: &mut Fields<'_>, ended: &Ended<'_>, tool: &Tool) {
    let limit = ended.call.timeout(tool.timeout);
    let runner = runner(tool);
    fields.put("kind", tool.runner.kind());
    fields.put("runner", runner);
    fields.put("resolved_source", source(tool));
    fields.put(
        "timeout_ms",
        u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
    );
    let is_pure = match &tool.origin {
        Some(origin) => origin.pure,
        None => tool.runner.is_pure(),
    };
    if !is_pure {
        fields.put("purity", "impure");
    }
    let pack = tool.origin.as_ref().and_then(|origin| origin.pack.as_ref());
    match (pack, &tool.entry) {
        (Some(pack), _) => {
            fields.word("pack_id", &pack.id, WORD_BYTES_MAX);
            fields.word("pack_name", &pack.name, WORD_BYTES_MAX);
            fields.word("pack_version", &pack.version, WORD_BYTES_MAX);
        }
        (None, Some(entry)) => fields.word("entry", entry, WORD_BYTES_MAX),
        (None, None) => {}
    }
    let detail = ended.enforcement.detail.as_deref();
    if runner == "local" {
        let holds = |held: &Held| held.level != Level::None;
        let confined = detail.is_some_and(|detail| {
            let mut all = detail.held.iter().chain(&detail.writes);
            all.any(holds) || detail.network.as_ref().is_some_and(holds)
        });
        fields.put("sandbox", confined);
    }
    if ended.enforcement.is_override() {
        fields.put("unsafe_override", true);
    }
    let body = enforcement(ended.enforcement, fields.secrets);
    fields.put("enforcement", body);
}

/// Where it is carried out. TP-65.
fn runner(tool: &Tool) -> &'static str {
    match (&tool.origin, tool.runner.kind()) {
        (Some(origin), _) => origin.runner,
        (None, "service") => "service",
        (None, "container") => "container",
        (None, _) => "local",
    }
}

/// Where it was found. TP-66.
fn source(tool: &Tool) -> &'static str {
    match (&tool.origin, tool.runner.kind()) {
        (Some(origin), _) => origin.source.as_str(),
        (None, "builtin") => "builtin_pack",
        (None, _) => "binding",
    }
}

fn end(fields: &mut Fields<'_>, ended: &Ended<'_>) {
    let checks = capability_checks(ended.result, ended.enforcement, ended.call.asks.as_deref());
    let blocked = checks.iter().find(|check| !check.allowed);
    let status = status(ended.result);
    fields.put("status", status);
    fields.put("result", status);
    fields.put(
        "decision",
        if status == "blocked" {
            "blocked"
        } else {
            "allowed"
        },
    );
    fields.put(
        "capability",
        blocked.map_or("none", |check| check.guarantee.capability()),
    );
    if ended.replayed {
        fields.put("replayed", true);
    }
    match ended.result {
        Ok(output) => {
            let output = summary(output.json.value(), fields.secrets);
            fields.put("output_summary", output);
            fields.put("reason", "ok");
        }
        Err(fault) => {
            let kind = match fault {
                Fault::ToolFailed { error_type, .. } => error_type.as_str(),
                other => other.kind(),
            };
            fields.put("fault", fault.kind());
            fields.word("error_type", kind, WORD_BYTES_MAX);
            fields.word("error_message", &fault.to_string(), MESSAGE_BYTES_MAX);
            fields.put("reason", blocked.map_or(fault.kind(), |check| check.reason));
        }
    }
    if !checks.is_empty() {
        let known = |name: &str| fields.map.get(name).cloned().unwrap_or_default();
        let common = ["tool_name", "runner", "resolved_source"].map(|name| (name, known(name)));
        let checks: Vec<Value> = checks.iter().map(|one| check(*one, &common)).collect();
        fields.put("capability_checks", checks);
    }
}

/// TP-85.
fn status(result: &Result<Output, Fault>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(fault) => status_of_kind(fault.kind()),
    }
}

/// `blocked` where the gate or what holds the tool did not let it, else `error`.
pub(super) fn status_of_kind(kind: &str) -> &'static str {
    match kind {
        "denied" | "needs_approval" | "lease_required" | "lease_rejected" | "rate_limited"
        | "breaker_open" | "unenforceable" | "guarantee_blocked" => "blocked",
        _ => "error",
    }
}

fn check(known: CapabilityCheck, common: &[(&str, Value)]) -> Value {
    let mut body = json!({
        "type": "capability_check",
        "capability": known.guarantee.capability(),
        "allowed": known.allowed,
        "guarantee_source": known.asker.as_str(),
        "reason": known.reason,
        "protocol_version": PROTOCOL_VERSION,
    });
    for (name, value) in common {
        body[*name] = value.clone();
    }
    body
}

fn enforcement(enforcement: &Enforcement, secrets: &Secrets) -> Value {
    let mut body = json!({ "level": enforcement.level.as_str() });
    if let Some(detail) = enforcement.detail.as_deref() {
        let held = detail.held.iter().map(|held| held_body(held, secrets));
        body["isolation"] = json!(detail.isolation.as_str());
        body["held"] = held.collect();
        if let Some(writes) = &detail.writes {
            body["writes"] = held_body(writes, secrets);
        }
        if let Some(network) = &detail.network {
            body["network"] = held_body(network, secrets);
            // It is not that it reaches nobody.
            body["network"]["guarantee"] = json!("network.allow");
        }
        if let Some(limits) = &detail.limits {
            body["limits"] = held_body(limits, secrets);
        }
    }
    body
}

fn held_body(held: &Held, secrets: &Secrets) -> Value {
    let mut body = json!({
        "guarantee": held.name(),
        "source": held.asker.as_str(),
        "level": held.level.as_str(),
        "mechanisms": held.mechanisms,
    });
    if !held.missing.is_empty() {
        body["missing"] = json!(cut(&secrets.clean(&held.missing), WORD_BYTES_MAX));
    }
    body
}

/// Those that were reached; the last is added once it is over.
fn stages(seen: &Seen) -> Vec<Value> {
    let reached = STAGES.iter().zip(seen.took_us);
    reached
        .filter_map(|(name, took_us)| took_us.map(|took_us| stage(name, took_us)))
        .collect()
}

fn stage(name: &str, took_us: u64) -> Value {
    json!({ "stage": name, "us": took_us })
}

/// What may be said of a value without saying it. TP-85.
fn summary(value: &Value, secrets: &Secrets) -> Value {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_unstable();
            let shown = |key: &&String| {
                let clean = secrets.clean(key);
                clean.chars().take(PREVIEW_CHARS_MAX).collect::<String>()
            };
            let shown: Vec<String> = keys.iter().take(KEYS_MAX).map(shown).collect();
            json!({ "type": "object", "keys": shown, "count": members.len() })
        }
        Value::Array(items) => json!({ "type": "list", "count": items.len() }),
        Value::String(text) => {
            let clean = secrets.clean(text);
            let preview: String = clean.chars().take(PREVIEW_CHARS_MAX).collect();
            json!({ "type": "text", "chars": text.chars().count(), "preview": preview })
        }
        Value::Number(_) => json!({ "type": "number" }),
        Value::Bool(_) => json!({ "type": "boolean" }),
        Value::Null => json!({ "type": "null" }),
    }
}
