//! A trace as the document that is kept. Fields and words are those of the tool protocol
//! (TP-65 to TP-85), and ours beside them; bounded, and without secrets before it is text.

use callgate_call::{
    CapabilityCheck, Enforcement, Fault, Held, Level, Output, Secrets, Tool, capability_checks,
};
use callgate_store::TRACE_BYTES_MAX;
use serde_json::{Map, Value, json};

use super::text::Text;
use super::{Ended, Open, STAGES, Seen, Stage};
use crate::clean::trace_id_of;

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

/// All that is known once the call is over, but for the time its record takes to be safe.
pub(super) fn document(
    open: &Open<'_>,
    seen: &Seen,
    ended: &Ended<'_>,
    stopped: Stage,
    ended_us: u64,
) -> Text {
    let mut fields = Fields {
        text: Text::new(),
        secrets: open.secrets,
    };
    for (name, value) in &seen.facts {
        match (*name, value.as_str()) {
            // The contract has a yes or a no here. TP-81.
            ("service_handshake", word @ ("true" | "false")) => fields.flag(name, word == "true"),
            (name, value) => fields.word(name, value, FACT_BYTES_MAX),
        }
    }
    call(&mut fields, open, ended);
    if let Some(tool) = ended.tool {
        tool_fields(&mut fields, ended, tool);
    }
    end(&mut fields, ended);
    if let Some(hint) = ended.hint {
        fields.word("hint", &hint.to_string(), MESSAGE_BYTES_MAX);
    }
    if ended.result.is_err() && stopped != Stage::Finish {
        fields.put("stopped_at", STAGES[stopped as usize]);
    }
    let took_us = ended_us.saturating_sub(open.began_us);
    fields.number("duration_ms", took_us / 1000);
    fields.number("duration_us", took_us);
    for (name, said) in [("stdout_tail", &seen.stdout), ("stderr_tail", &seen.stderr)] {
        if let Some(shown) = said.shown(open.secrets) {
            fields.put(name, &shown);
        }
    }
    let mut text = fields.text;
    text.name("stages").open_array();
    // Those that were reached; the last is added once it is over.
    for (name, took_us) in STAGES.iter().zip(seen.took_us) {
        if let Some(took_us) = took_us {
            stage(&mut text, name, took_us);
        }
    }
    text
}

/// Adds the time the call's record took to be safe, and is text then.
pub(super) fn settle(mut document: Text, took_us: u64) -> String {
    stage(&mut document, STAGES[Stage::Settle as usize], took_us);
    document.close_array();
    let text = document.finish();
    match text.len() <= TRACE_BYTES_MAX {
        true => text,
        false => shorter(&text),
    }
}

fn stage(text: &mut Text, name: &str, took_us: u64) {
    text.object(|text| {
        text.name("stage").string(name).name("us").number(took_us);
    });
}

/// Each part has its bound; what has to go if they meet is what says least.
fn shorter(text: &str) -> String {
    let mut document: Map<String, Value> = serde_json::from_str(text).expect("just written");
    document.insert("cut".to_owned(), json!(true));
    let write =
        |document: &Map<String, Value>| serde_json::to_string(document).expect("keys are texts");
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
    text: Text,
    secrets: &'a Secrets,
}

impl Fields<'_> {
    fn put(&mut self, name: &'static str, words: &str) {
        self.text.name(name).string(words);
    }

    fn number(&mut self, name: &'static str, number: u64) {
        self.text.name(name).number(number);
    }

    fn flag(&mut self, name: &'static str, flag: bool) {
        self.text.name(name).flag(flag);
    }

    /// Somebody's text: cleaned first, then cut, so that no half of a secret is left.
    fn word(&mut self, name: &'static str, text: &str, bytes_max: usize) {
        let clean = self.secrets.clean(text);
        self.put(name, cut(&clean, bytes_max));
    }
}

fn call(fields: &mut Fields<'_>, open: &Open<'_>, ended: &Ended<'_>) {
    let call = ended.call;
    let name = ended.tool.map_or(call.tool.as_str(), Tool::declared_name);
    fields.put("type", "tool_call");
    fields.put("call_id", &call.id.to_string());
    fields.number("at_ms", open.at_ms);
    fields.word("tool", name, WORD_BYTES_MAX);
    fields.word("tool_name", name, WORD_BYTES_MAX);
    if let Some(tool) = ended.tool.filter(|tool| tool.declared.is_some()) {
        fields.word("tool_id", &tool.name, WORD_BYTES_MAX);
    }
    fields.word("caller", call.caller.as_str(), WORD_BYTES_MAX);
    fields.put("wire", call.wire.as_str());
    fields.number("protocol_version", PROTOCOL_VERSION);
    if let Some(id) = trace_id_of(open.secrets, call, ended.tool) {
        fields.word("trace_id", &id, WORD_BYTES_MAX);
    }
    if let Some(id) = &call.parent_span {
        fields.word("parent_span_id", id, WORD_BYTES_MAX);
    }
    for (name, words) in &call.remarks {
        fields.put(name, words);
    }
    summary(fields, "input_summary", call.input.value());
}

fn tool_fields(fields: &mut Fields<'_>, ended: &Ended<'_>, tool: &Tool) {
    let limit = ended.call.limit(tool.timeout);
    let runner = runner(tool);
    fields.put("kind", tool.runner.kind());
    fields.put("runner", runner);
    fields.put("resolved_source", source(tool));
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    fields.number("timeout_ms", limit_ms);
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
        fields.flag("sandbox", confined);
    }
    if ended.enforcement.is_override() {
        fields.flag("unsafe_override", true);
    }
    enforcement(fields, ended.enforcement);
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
    let checks = capability_checks(
        ended.result,
        ended.enforcement,
        ended.call.asks.as_deref(),
        ended.blocked,
    );
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
        fields.flag("replayed", true);
    }
    match ended.result {
        Ok(output) => {
            summary(fields, "output_summary", output.json.value());
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
        fields.text.name("capability_checks").open_array();
        for known in checks {
            check(fields, known, ended);
        }
        fields.text.close_array();
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

fn check(fields: &mut Fields<'_>, known: CapabilityCheck, ended: &Ended<'_>) {
    let name = ended.tool.map_or(&*ended.call.tool, Tool::declared_name);
    let name = fields.secrets.clean(name);
    fields.text.object(|text| {
        text.name("type").string("capability_check");
        text.name("capability").string(known.guarantee.capability());
        text.name("allowed").flag(known.allowed);
        text.name("guarantee_source").string(known.asker.as_str());
        text.name("reason").string(known.reason);
        text.name("protocol_version").number(PROTOCOL_VERSION);
        text.name("tool_name").string(cut(&name, WORD_BYTES_MAX));
        if let Some(tool) = ended.tool {
            text.name("runner").string(runner(tool));
            text.name("resolved_source").string(source(tool));
        }
    });
}

fn enforcement(fields: &mut Fields<'_>, enforcement: &Enforcement) {
    let secrets = fields.secrets;
    fields.text.name("enforcement").object(|text| {
        text.name("level").string(enforcement.level.as_str());
        let Some(detail) = enforcement.detail.as_deref() else {
            return;
        };
        text.name("isolation").string(detail.isolation.as_str());
        text.name("held").array(|text| {
            for held in &detail.held {
                held_body(text, held.name(), held, secrets);
            }
        });
        if let Some(writes) = &detail.writes {
            held_body(text.name("writes"), writes.name(), writes, secrets);
        }
        if let Some(network) = &detail.network {
            // It is not that it reaches nobody.
            held_body(text.name("network"), "network.allow", network, secrets);
        }
        if let Some(limits) = &detail.limits {
            held_body(text.name("limits"), limits.name(), limits, secrets);
        }
    });
}

fn held_body(text: &mut Text, guarantee: &str, held: &Held, secrets: &Secrets) {
    text.object(|text| {
        text.name("guarantee").string(guarantee);
        text.name("source").string(held.asker.as_str());
        text.name("level").string(held.level.as_str());
        text.name("mechanisms").array(|text| {
            for mechanism in &held.mechanisms {
                text.string(mechanism);
            }
        });
        if !held.missing.is_empty() {
            let clean = secrets.clean(&held.missing);
            text.name("missing").string(cut(&clean, WORD_BYTES_MAX));
        }
    });
}

/// What may be said of a value without saying it. TP-85.
fn summary(fields: &mut Fields<'_>, name: &'static str, value: &Value) {
    let secrets = fields.secrets;
    let preview = |text: &str| -> String {
        let clean = secrets.clean(text);
        clean.chars().take(PREVIEW_CHARS_MAX).collect()
    };
    fields.text.name(name).object(|text| match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_unstable();
            text.name("type").string("object").name("keys");
            text.array(|text| {
                for key in keys.iter().take(KEYS_MAX) {
                    text.string(&preview(key));
                }
            });
            text.name("count").number(members.len() as u64);
        }
        Value::Array(items) => {
            text.name("type").string("list");
            text.name("count").number(items.len() as u64);
        }
        Value::String(words) => {
            text.name("type").string("text");
            text.name("chars").number(words.chars().count() as u64);
            text.name("preview").string(&preview(words));
        }
        Value::Number(_) => _ = text.name("type").string("number"),
        Value::Bool(_) => _ = text.name("type").string("boolean"),
        Value::Null => _ = text.name("type").string("null"),
    });
}
