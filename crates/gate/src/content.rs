//! Content blocks of MCP, where they come from outside: the results of a bridge's parent, outputs
//! of tools that give content, messages of prompts. Blocks of a known type must have the fields
//! that clients of that type read; blocks of other types pass, if they name their type.

use std::sync::LazyLock;

use callgate_call::Fault;
use serde_json::{Value, json};

use crate::schema::Schema;

static RESULT: LazyLock<Schema> = LazyLock::new(|| Schema::builtin(&result_schema()));
static MESSAGES: LazyLock<Schema> = LazyLock::new(|| Schema::builtin(&messages_schema()));
static CONTENTS: LazyLock<Schema> = LazyLock::new(|| Schema::builtin(&contents_schema()));

/// Checks the result of a call: `content` and the members that MCP defines beside it.
pub fn check_result(result: &Value) -> Result<(), Fault> {
    RESULT.check_output(result)
}

/// Checks the messages of a prompt.
pub fn check_messages(messages: &Value) -> Result<(), Fault> {
    MESSAGES.check_output(messages)
}

/// Checks the contents of a resource.
pub fn check_contents(contents: &Value) -> Result<(), Fault> {
    CONTENTS.check_output(contents)
}

fn result_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "content": { "type": "array", "items": block_schema() },
            "isError": { "type": "boolean" },
            "structuredContent": { "type": "object" },
            "_meta": { "type": "object" },
        },
        "required": ["content"],
    })
}

fn messages_schema() -> Value {
    let message = json!({
        "type": "object",
        "properties": {
            "role": { "enum": ["user", "assistant"] },
            "content": block_schema(),
        },
        "required": ["role", "content"],
    });
    json!({ "type": "array", "items": message })
}

fn contents_schema() -> Value {
    json!({ "type": "array", "items": resource_schema() })
}

/// One block. Its `type` decides what else it must have.
fn block_schema() -> Value {
    let text = json!({ "type": "string" });
    let data = json!({ "data": text, "mimeType": text });
    let link = json!({ "uri": text, "name": text });
    let types = [
        ("text", json!({ "text": text })),
        ("image", data.clone()),
        ("audio", data),
        ("resource_link", link),
        ("resource", json!({ "resource": resource_schema() })),
    ];
    let rules = types.map(|(name, fields)| {
        let required: Vec<&String> = fields
            .as_object()
            .into_iter()
            .flatten()
            .map(|f| f.0)
            .collect();
        json!({
            "if": { "properties": { "type": { "const": name } }, "required": ["type"] },
            "then": { "required": required, "properties": fields },
        })
    });
    json!({
        "type": "object",
        "properties": {
            "type": text,
            "annotations": { "type": "object" },
            "_meta": { "type": "object" },
        },
        "required": ["type"],
        "allOf": rules,
    })
}

fn resource_schema() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "properties": { "uri": text, "mimeType": text, "text": text, "blob": text },
        "required": ["uri"],
        "if": { "required": ["blob"] },
        "else": { "required": ["text"] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(checked: Result<(), Fault>) -> Option<String> {
        match checked {
            Ok(()) => None,
            Err(Fault::BadOutput { reason }) => Some(reason),
            Err(other) => panic!("{other}"),
        }
    }

    /// B-4: blocks of every type pass, a type that is not known among them.
    #[test]
    fn well_formed_blocks() {
        let resource =
            |member: &str| json!({ "type": "resource", "resource": { "uri": "x:y", member: "" } });
        let blocks = json!([
            { "type": "text", "text": "" },
            { "type": "text", "text": "a", "annotations": { "priority": 1 }, "later": [1] },
            { "type": "image", "data": "AA==", "mimeType": "image/png" },
            { "type": "audio", "data": "AA==", "mimeType": "audio/wav" },
            { "type": "resource_link", "uri": "x:y", "name": "n" },
            resource("text"),
            resource("blob"),
            { "type": "later", "x": [1] },
        ]);
        assert_eq!(reason(check_result(&json!({ "content": blocks }))), None);
        assert_eq!(reason(check_result(&json!({ "content": [] }))), None);
    }

    /// B-4: a block that a client could not read is refused, with its place.
    #[test]
    fn malformed_blocks() {
        for (block, place) in [
            (json!("text"), "content/1: "),
            (json!(1), "content/1: "),
            (json!(null), "content/1: "),
            (json!([]), "content/1: "),
            (json!({}), "content/1/type: is required"),
            (json!({ "text": "a" }), "content/1/type: is required"),
            (json!({ "type": 1, "text": "a" }), "content/1/type: "),
            (json!({ "type": null }), "content/1/type: "),
            (json!({ "type": "text" }), "content/1/text: is required"),
            (json!({ "type": "text", "text": 1 }), "content/1/text: "),
            (json!({ "type": "text", "text": null }), "content/1/text: "),
            (
                json!({ "type": "text", "text": "", "annotations": 1 }),
                "content/1/annotations: ",
            ),
            (
                json!({ "type": "image", "mimeType": "a/b" }),
                "content/1/data: is required",
            ),
            (
                json!({ "type": "audio", "data": "" }),
                "content/1/mimeType: is required",
            ),
            (
                json!({ "type": "image", "data": [], "mimeType": "a/b" }),
                "content/1/data: ",
            ),
            (
                json!({ "type": "resource_link", "uri": "x:y" }),
                "content/1/name: is required",
            ),
            (
                json!({ "type": "resource" }),
                "content/1/resource: is required",
            ),
            (
                json!({ "type": "resource", "resource": "x:y" }),
                "content/1/resource: ",
            ),
            (
                json!({ "type": "resource", "resource": { "uri": "x:y" } }),
                "content/1/resource/text: is required",
            ),
        ] {
            let content = json!([{ "type": "text", "text": "" }, block]);
            let found = reason(check_result(&json!({ "content": content })));
            let found = found.unwrap_or_else(|| panic!("{block} passes"));
            assert!(found.starts_with(place), "{block}: {found}");
        }
    }

    #[test]
    fn malformed_results() {
        for result in [
            json!(null),
            json!({}),
            json!({ "content": "a" }),
            json!({ "content": { "type": "text", "text": "a" } }),
            json!({ "content": [], "isError": "no" }),
            json!({ "content": [], "structuredContent": [1] }),
            json!({ "content": [], "_meta": "x" }),
        ] {
            assert!(check_result(&result).is_err(), "{result}");
        }
    }

    #[test]
    fn messages_and_contents() {
        let block = json!({ "type": "text", "text": "a" });
        let good = json!([{ "role": "user", "content": block }]);
        assert_eq!(reason(check_messages(&good)), None);
        for bad in [
            json!({}),
            json!("say it"),
            json!(["say it"]),
            json!([{ "role": "system", "content": block }]),
            json!([{ "role": "user", "content": "say it" }]),
            json!([{ "role": "user", "content": [block] }]),
            json!([{ "content": block }]),
        ] {
            assert!(check_messages(&bad).is_err(), "{bad}");
        }
        let good = json!([{ "uri": "x:y", "text": "a" }, { "uri": "x:y", "blob": "" }]);
        assert_eq!(reason(check_contents(&good)), None);
        for bad in [
            json!([{ "uri": "x:y" }]),
            json!([{ "uri": "x:y", "text": 1 }]),
            json!([{ "uri": 1, "text": "" }]),
        ] {
            assert!(check_contents(&bad).is_err(), "{bad}");
        }
    }
}
