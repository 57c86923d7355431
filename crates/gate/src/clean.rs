//! Known secrets leave neither in what a tool gave nor in what it said when it failed.

use callgate_call::{Artifact, Fault, Output, Secrets};
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
