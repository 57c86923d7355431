//! What a tool receives from the caller beside its input: the slots of the conversation, what the
//! caller's user answered, and the guarantees the caller asks for. The input's digest is of the
//! input alone, so a permission for an input is for none of these. Decision G-6f.

use callgate_call::{Artifact, Call, Digest, Secrets, Slots, Tool};
use serde_json::{Map, Value, json};

/// What stands in a displayed text between an input and what the call brings beside it. No JSON
/// value goes on after its end, so no input is displayed like that.
pub const BESIDE_INPUT: &str = " and beside it ";

/// Returns whether the tool receives data of the caller's that the digest of the input does not
/// cover.
pub(crate) fn brings_more(call: &Call, tool: &Tool) -> bool {
    has_slots(call, tool) || has_answers(call)
}

fn has_slots(call: &Call, tool: &Tool) -> bool {
    tool.slots && !call.slots.0.is_empty()
}

fn has_answers(call: &Call) -> bool {
    call.answers.as_ref().is_some_and(|answers| {
        let state = answers.state.as_ref();
        let says_nothing =
            |state: &Value| state.is_null() || state.as_object().is_some_and(Map::is_empty);
        !answers.responses.is_empty() || !state.is_none_or(says_nothing)
    })
}

/// Returns what is displayed beside the input, without secrets; `None` if there is nothing. What a
/// secret was taken out of has its digest beside it, as two of these are not to look the same.
pub(crate) fn beside(call: &Call, tool: &Tool, secrets: &Secrets) -> Option<Value> {
    let mut all = Map::new();
    if has_slots(call, tool) {
        all.insert("slots".to_owned(), slots_value(&call.slots));
    }
    if let Some(answers) = call.answers.as_ref().filter(|_| has_answers(call)) {
        let told = json!({ "responses": answers.responses, "state": answers.state });
        all.insert("answers".to_owned(), told);
    }
    if let Some(asks) = &call.asks {
        let names: Vec<&str> = asks.iter().map(|(one, _)| one.name()).collect();
        let told = json!({ "required": names, "secrets": asks.secrets() });
        all.insert("guarantees".to_owned(), told);
    }
    if all.is_empty() {
        return None;
    }
    let mut value = Value::Object(all);
    let whole = Digest::of_json(&value);
    let mut found = secrets.clean_value(&mut value);
    let slots = value.get_mut("slots").and_then(Value::as_object_mut);
    for artifact in slots.into_iter().flat_map(Map::values_mut) {
        found |= clean_content(&mut artifact["content_json"], secrets);
    }
    if found {
        value["digest"] = whole.to_hex().into();
    }
    Some(value)
}

fn slots_value(slots: &Slots) -> Value {
    let one = |(slot, artifact): (&u8, &Artifact)| {
        let Artifact {
            kind,
            provenance,
            content_json,
            size_bytes,
        } = artifact;
        let value = json!({
            "type": kind,
            "provenance": provenance,
            "content_json": content_json,
            "size_bytes": size_bytes,
        });
        (slot.to_string(), value)
    };
    Value::Object(slots.0.iter().map(one).collect())
}

/// Takes out secrets that an escape hides in JSON that is a text. True if there were any.
fn clean_content(content: &mut Value, secrets: &Secrets) -> bool {
    let text = content.as_str().unwrap_or_default();
    let Ok(mut inner) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let found = secrets.clean_value(&mut inner);
    if found {
        *content = inner.to_string().into();
    }
    found
}
