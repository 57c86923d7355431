//! Known secrets leave neither in what a tool gave nor in what it said when it failed.

use std::borrow::Cow;

use callgate_call::{Artifact, Call, Fault, Output, Secrets, Tool};
use serde_json::{Map, Value};

/// Takes known secrets out of all that a tool gave.
pub(crate) fn clean(output: &mut Output, secrets: &Secrets) {
    if secrets.is_empty() {
        return;
    }
    output.json.change(|value| secrets.clean_value(value));
    for artifact in output.slots.put.values_mut() {
        let Artifact {
            kind,
            provenance,
            content_json,
            size_bytes: _,
        } = artifact;
        for text in [kind, provenance, content_json] {
            if let Some(cleaned) = secrets.cleaned(text) {
                *text = cleaned;
            }
        }
    }
}

/// Returns the secrets of the workspace, and the values of this call that the tool's schema calls
/// `writeOnly`. S-18.
pub(crate) fn secrets_of<'a>(
    secrets: &'a Secrets,
    call: &Call,
    tool: Option<&Tool>,
) -> Cow<'a, Secrets> {
    let mut own = Vec::new();
    if let Some(tool) = tool {
        write_only(&tool.input_schema, call.input.value(), &mut own);
    }
    match own.is_empty() {
        true => Cow::Borrowed(secrets),
        false => Cow::Owned(secrets.with(own).in_urls()),
    }
}

/// Returns the caller's trace id without secrets.
pub(crate) fn trace_id_of<'a>(
    secrets: &Secrets,
    call: &'a Call,
    tool: Option<&Tool>,
) -> Option<Cow<'a, str>> {
    let id = call.trace_id.as_deref()?;
    let cleaned = secrets_of(secrets, call, tool).cleaned(id);
    Some(cleaned.map_or(Cow::Borrowed(id), Cow::Owned))
}

/// Collects the texts of a value that its schema calls `writeOnly`.
fn write_only(schema: &Value, value: &Value, texts: &mut Vec<String>) {
    if schema.get("writeOnly") == Some(&Value::Bool(true)) {
        texts.extend(value.as_str().map(str::to_owned));
        return;
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, inner) in properties.into_iter().flatten() {
        if let Some(member) = value.get(name) {
            write_only(inner, member, texts);
        }
    }
}

/// A tool's own words, without secrets and no longer than anyone reads.
pub(crate) fn cleaned(fault: Fault, secrets: &Secrets) -> Fault {
    if let Fault::NeedsInput { requests, state } = fault {
        // Still a question when it is clean. The state goes out sealed.
        return Fault::NeedsInput {
            requests: cleaned_questions(requests, secrets),
            state,
        };
    }
    const MESSAGE_BYTES_MAX: usize = 16 * 1024;
    let (message, mut data) = (fault.to_string(), fault.data());
    let clean = secrets.cleaned(&message);
    let found = secrets.clean_value(&mut data);
    if clean.is_none() && !found && message.len() <= MESSAGE_BYTES_MAX {
        return fault;
    }
    let mut text = clean.unwrap_or(message);
    let cut = (0..=MESSAGE_BYTES_MAX.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at));
    text.truncate(cut.unwrap_or(0));
    Fault::recorded(fault.kind(), &text, &data)
}

fn cleaned_questions(requests: Map<String, Value>, secrets: &Secrets) -> Map<String, Value> {
    let clean = |(key, mut request): (String, Value)| {
        secrets.clean_value(&mut request);
        (secrets.clean(&key).into_owned(), request)
    };
    requests.into_iter().map(clean).collect()
}
