//! The parts of replies that several wires share: outputs as content blocks (MCP and the bridge),
//! the confinement of a call, and facts of it.

use std::collections::BTreeMap;

use callgate_call::{Enforcement, Held, Outcome, Output, Tool};
use callgate_text::write_json_text;
use callgate_wires::json;
use callgate_wires::mcp::{self, RawJson, resource_links};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form in which a tool's output becomes content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// The output is content already.
    pub gives_content: bool,
    /// Resources in the output are linked to.
    pub links: bool,
    /// The output is promised to be an object, and is structured content too.
    pub structured: bool,
}

impl Shape {
    pub fn of(tool: &Tool) -> Self {
        Self {
            gives_content: tool.gives_content,
            links: tool.gives_resources,
            structured: output_schema(tool).is_some(),
        }
    }

    /// Appends the list of blocks and, after a comma, `structuredContent` where there is some.
    pub fn write(self, output: &Output, out: &mut Vec<u8>) {
        let (value, text) = (output.json.value(), output.json.text());
        if self.gives_content {
            let given: ContentOutput = mcp::read(value).unwrap_or_default();
            let content = given.content.as_ref().map_or("[]", RawJson::get);
            out.extend_from_slice(content.as_bytes());
            if let Some(structured) = given.structured_content {
                out.extend_from_slice(b",\"structuredContent\":");
                out.extend_from_slice(structured.get().as_bytes());
            }
            return;
        }
        out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
        write_json_text(as_text(output), out);
        out.push(b'}');
        for link in resource_links(value).filter(|_| self.links) {
            out.push(b',');
            json::write_value(&link, out);
        }
        out.push(b']');
        if self.structured {
            out.extend_from_slice(b",\"structuredContent\":");
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// An output that is content already: its members are passed on as they are.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentOutput {
    content: Option<RawJson>,
    #[serde(default, deserialize_with = "mcp::present")]
    structured_content: Option<RawJson>,
}

/// A text is itself, without the quotes it has as JSON.
pub(crate) fn as_text(output: &Output) -> &str {
    output.json.value().as_str().unwrap_or(output.json.text())
}

/// Only what is an object can be structured on every wire and in every era.
pub(crate) fn output_schema(tool: &Tool) -> Option<&Value> {
    tool.output_schema
        .as_ref()
        .filter(|schema| is_of_object(schema))
}

/// True if a schema says that it is an object's.
pub(crate) fn is_of_object(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
}

/// The confinement of a call.
#[derive(Serialize)]
pub(crate) struct EnforcementBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    guarantees: Option<BTreeMap<&'static str, HeldBody<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<&'static str>,
    level: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<HeldBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<HeldBody<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unsafe_override: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<HeldBody<'a>>,
}

/// The level at which one guarantee or rule was kept.
#[derive(Serialize)]
struct HeldBody<'a> {
    level: &'static str,
    mechanisms: &'a [&'static str],
    #[serde(skip_serializing_if = "str::is_empty")]
    missing: &'a str,
    source: &'static str,
}

impl<'a> HeldBody<'a> {
    fn of(held: &'a Held) -> Self {
        Self {
            level: held.level.as_str(),
            mechanisms: &held.mechanisms,
            missing: &held.missing,
            source: held.asker.as_str(),
        }
    }
}

/// The confinement of a call, as replies report it.
pub(crate) fn enforcement_body(enforcement: &Enforcement) -> EnforcementBody<'_> {
    let detail = enforcement.detail.as_ref();
    EnforcementBody {
        guarantees: detail.map(|detail| {
            let held = detail.held.iter();
            held.map(|held| (held.name(), HeldBody::of(held))).collect()
        }),
        isolation: detail.map(|detail| detail.isolation.as_str()),
        level: enforcement.level.as_str(),
        limits: detail.and_then(|detail| detail.limits.as_ref().map(HeldBody::of)),
        network: detail.and_then(|detail| detail.network.as_ref().map(HeldBody::of)),
        unsafe_override: detail.is_some_and(|detail| detail.unsafe_override),
        writes: detail.and_then(|detail| detail.writes.as_ref().map(HeldBody::of)),
    }
}

/// Facts of a call for callers that know Callgate: `callgate/call`.
#[derive(Serialize)]
pub(crate) struct CallBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Value>,
    id: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    replayed: bool,
}

impl CallBody {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        Self {
            fault: outcome.result.as_ref().err().map(|fault| fault.kind()),
            hint: outcome.hint.as_ref().map(|hint| hint.to_value()),
            id: outcome.call.to_string(),
            replayed: outcome.replayed,
        }
    }

    /// The same for replies that have the fault in another place.
    pub(crate) fn without_fault(self) -> Self {
        Self {
            fault: None,
            ..self
        }
    }
}
