//! The toolhost: requests of a parent, states and patches of tools, runs and their selectors.

use std::collections::BTreeMap;

use callgate_wires::json;
use callgate_wires::toolhost::{
    LeaseCommand, Manifest, Request, RequestInput, RunRequest, Selection, SelectionKind,
    StateMessage, apply_patch, patch_value, read_patch, write_delta, write_snapshot,
};
use serde_json::{Value, json};

/// A request that is taken is the same one when written again. TH-25 to TH-36, T-1, T-24, T-25.
pub fn requests(input: &[u8]) {
    let _ = LeaseCommand::parse(input);
    let Ok(request) = Request::parse(input) else {
        return;
    };
    let text = rewritten(&request);
    let again = Request::parse(text.as_bytes()).expect("what is written is read");
    if matches!(request.input, RequestInput::Broken(_)) {
        assert!(matches!(again.input, RequestInput::Broken(_)), "{text}");
        assert_eq!((again.aid, again.state), (request.aid, request.state));
    } else {
        assert_eq!(again, request, "{text}");
    }
}

fn rewritten(request: &Request) -> String {
    let mut body = json!({});
    for (name, text) in [
        ("aid", &request.aid),
        ("idempotency_key", &request.idempotency_key),
        ("_lease_token", &request.lease_token),
    ] {
        if let Some(text) = text {
            body[name] = json!(text);
        }
    }
    body["input_json"] = match &request.input {
        RequestInput::Json(_, text) => json!(text),
        RequestInput::Broken(_) => json!("{broken"),
    };
    if let Some(state) = written(&request.state) {
        body["ds_state"] = serde_json::from_slice(&state).expect("what is written is JSON");
    }
    body.to_string()
}

/// The state as a message carries it; `None` where it carries none.
fn written(state: &StateMessage) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match state {
        StateMessage::Keep => return None,
        StateMessage::Replace(slots) => {
            let slots = slots.iter().map(|(&slot, artifact)| (slot, artifact));
            write_snapshot(slots, &mut out);
        }
        StateMessage::Change(delta) => {
            let slots = delta.slots.iter().map(|(&slot, artifact)| (slot, artifact));
            write_delta(slots, &delta.removed_slots, &mut out);
        }
    }
    Some(out)
}

/// States and patches that are taken are the same when written again; a patch is applied whole or
/// not at all. TH-77 to TH-91, T-24.
pub fn states(input: &[u8]) {
    let Ok(value) = json::parse(input, 32) else {
        return;
    };
    if let Ok(patch) = read_patch(&value) {
        let again = read_patch(&patch_value(&patch)).expect("what is written is read");
        assert_eq!(again, patch, "{value}");
        let mut slots = BTreeMap::new();
        let _ = apply_patch(&mut slots, patch);
        let before = slots.clone();
        if apply_patch(&mut slots, again).is_err() {
            assert_eq!(slots, before, "{value}");
        }
    }
    if let Ok(state) = StateMessage::from_value(value)
        && let Some(bytes) = written(&state)
    {
        let value = json::parse(&bytes, 32).unwrap();
        assert_eq!(StateMessage::from_value(value).unwrap(), state);
    }
}

/// Manifests and requests for runs that are taken are the same when written again. TH-95 to
/// TH-108, TH-135.
pub fn runs(input: &[u8]) {
    if let Ok(manifest) = Manifest::parse(input) {
        let value = json::parse(input, json::DEPTH_MAX).expect("a manifest is strict JSON");
        let again = Manifest::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{manifest:?}"));
    }
    if let Ok(request) = RunRequest::parse(input) {
        let text = request.to_value().to_string();
        assert_eq!(RunRequest::parse(text.as_bytes()), Ok(request), "{text}");
    }
}

/// A selector's answer is kept as it came; only a pick has an entry, and its patch is an object.
/// TH-140 to TH-142.
pub fn selections(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let selection = Selection::parse(&text);
    assert_eq!(selection.raw, text);
    let is_pick = selection.kind == SelectionKind::Pick;
    assert_eq!(selection.sid.is_some(), is_pick);
    if let Some(patch) = &selection.input_patch_json {
        assert!(is_pick);
        let read = json::parse(patch.as_bytes(), 32).unwrap();
        assert_eq!(read, Value::Object(selection.patch()));
    }
    assert_eq!(Selection::parse(&selection.raw), selection);
}
