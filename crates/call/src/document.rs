//! JSON on its way through the gate: what went in, and what came out.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::Digest;

/// One JSON document: the value, the text it was parsed from and their digest. A clone is the
/// same document, so that a tool that gives back what it got costs no second look at it.
#[derive(Clone, Debug)]
pub struct Document(Arc<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    value: Value,
    text: String,
    digest: OnceLock<Digest>,
}

impl Document {
    /// The caller vouches that `text` is the strict JSON of `value`.
    #[must_use]
    pub fn new(value: Value, text: String) -> Self {
        Self(Arc::new(Parts {
            value,
            text,
            digest: OnceLock::new(),
        }))
    }

    /// A document that has no text of its own yet.
    #[must_use]
    pub fn from_value(value: Value) -> Self {
        let text = json_of(&value);
        Self::new(value, text)
    }

    /// The parsed value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// The JSON text; what was checked is what is passed on.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The digest of the canonical form, computed once.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let of_value = || Digest::of_json(&self.0.value);
        *self.0.digest.get_or_init(of_value)
    }

    /// The value alone.
    #[must_use]
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0).value
    }

    /// Lets `change` at the value; if it says that it changed something the text follows.
    pub fn change(&mut self, change: impl FnOnce(&mut Value) -> bool) {
        let parts = Arc::make_mut(&mut self.0);
        if change(&mut parts.value) {
            parts.text = json_of(&parts.value);
            parts.digest = OnceLock::new();
        }
    }
}

/// Compact JSON. By `Display` it would cost three times as much.
fn json_of(value: &Value) -> String {
    serde_json::to_string(value).expect("a value has no keys but strings")
}

/// The same value in the same words.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value() && self.text() == other.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_leaves_other_holders_alone() {
        let before = Document::new(json!({ "a": 1 }), "{ \"a\": 1 }".to_owned());
        let digest = before.digest();
        let mut after = before.clone();
        after.change(|_| false);
        assert_eq!(after, before);
        after.change(|value| {
            value["a"] = json!(2);
            true
        });
        assert_eq!(after.text(), "{\"a\":2}");
        assert_eq!(after.digest(), Digest::of_json(&json!({ "a": 2 })));
        assert_eq!((before.text(), before.digest()), ("{ \"a\": 1 }", digest));
        assert_eq!(after.into_value(), json!({ "a": 2 }));
    }
}
