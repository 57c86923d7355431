//! Outputs as content blocks, for the wires that have them: MCP and the bridge.

use callgate_call::{Output, Tool};
use callgate_text::write_json_text;
use callgate_wires::json;
use callgate_wires::mcp::resource_links;
use serde_json::{Value, json};

/// How a tool's output becomes content.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// The output is content already.
    pub gives_content: bool,
    /// What can be read further is linked to.
    pub links: bool,
    /// The output is promised to be an object, and told as such too.
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
            json::write_value(value.get("content").unwrap_or(&json!([])), out);
            if let Some(structured) = value.get("structuredContent") {
                out.extend_from_slice(b",\"structuredContent\":");
                json::write_value(structured, out);
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

/// A text is itself, without the quotes it has as JSON.
pub(crate) fn as_text(output: &Output) -> &str {
    output.json.value().as_str().unwrap_or(output.json.text())
}

/// Only what is an object can be structured on every wire and in every era.
pub(crate) fn output_schema(tool: &Tool) -> Option<&Value> {
    tool.output_schema
        .as_ref()
        .filter(|schema| schema.get("type") == Some(&json!("object")))
}
