//! What confined a tool, as replies report it.

use callgate_call::{Enforcement, Held};
use serde_json::{Map, Value, json};

/// `{level, isolation?, guarantees?, writes?, network?, limits?, unsafe_override?}`; each guarantee is
/// `{level, mechanisms, missing?, source}`.
pub(crate) fn enforcement_body(enforcement: &Enforcement) -> Value {
    let mut body = json!({ "level": enforcement.level.as_str() });
    let Some(detail) = &enforcement.detail else {
        return body;
    };
    let guarantees: Map<String, Value> = detail
        .held
        .iter()
        .map(|held| (held.name().to_owned(), held_body(held)))
        .collect();
    body["isolation"] = json!(detail.isolation.as_str());
    body["guarantees"] = Value::Object(guarantees);
    if let Some(writes) = &detail.writes {
        body["writes"] = held_body(writes);
    }
    if let Some(network) = &detail.network {
        body["network"] = held_body(network);
    }
    if let Some(limits) = &detail.limits {
        body["limits"] = held_body(limits);
    }
    if detail.unsafe_override {
        body["unsafe_override"] = json!(true);
    }
    body
}

fn held_body(held: &Held) -> Value {
    let mut body = json!({
        "level": held.level.as_str(),
        "mechanisms": held.mechanisms,
        "source": held.asker.as_str(),
    });
    if !held.missing.is_empty() {
        body["missing"] = json!(held.missing);
    }
    body
}
