//! JSON on its way through the gate: what went in, and what came out.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::Digest;
use crate::canonical::compact_json;
use crate::spelling::{has_double, is_spelt_exactly, name_exactly};

/// One JSON document: the value, the text it was parsed from and their digest. A clone is the
/// same document, so that a tool that gives back what it got costs no second look at it.
#[derive(Clone, Debug)]
pub struct Document(Arc<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    value: Value,
    text: String,
    /// The text is known to be the canonical form, too: it need not be written to be hashed.
    is_canonical: bool,
    digest: OnceLock<Digest>,
}

impl Document {
    /// The caller vouches that `text` is the strict JSON of `value`.
    #[must_use]
    pub fn new(value: Value, text: String) -> Self {
        Self(Arc::new(Parts {
            value,
            text,
            is_canonical: false,
            digest: OnceLock::new(),
        }))
    }

    /// Returns the input of a call whose strict JSON the caller sent as `text`. The text is kept where
    /// its numbers, read exactly, are the ones that are digested; else it is written anew, so that no
    /// tool receives another number than the one that was checked. G-1f.
    #[must_use]
    pub fn of_input(mut value: Value, text: String) -> Self {
        if has_double(&value) {
            if !is_spelt_exactly(&text) {
                return Self::from_value(value);
            }
            name_exactly(&mut value);
        }
        Self::new(value, text)
    }

    /// A document that has no text of its own yet. It gets one whose numbers, read exactly, are the
    /// ones that are digested. G-1f.
    #[must_use]
    pub fn from_value(value: Value) -> Self {
        Self(Arc::new(Parts::of(value)))
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

    /// True if its text has no line breaks.
    #[must_use]
    pub fn is_one_line(&self) -> bool {
        // Canonical JSON never has one, and need not be searched.
        self.0.is_canonical || !self.0.text.contains('\n')
    }

    /// The digest of the canonical form, computed once.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let of_document = || match self.0.is_canonical {
            true => Digest::of_bytes(self.0.text.as_bytes()),
            false => Digest::of_json(&self.0.value),
        };
        *self.0.digest.get_or_init(of_document)
    }

    /// Returns the digest that release 0.1.0 made of the value, if it is another one. See
    /// `Digest::of_json_as_doubles`.
    #[must_use]
    pub fn digest_as_doubles(&self) -> Option<Digest> {
        Digest::of_json_as_doubles(&self.0.value)
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
            *parts = Parts::of(std::mem::take(&mut parts.value));
        }
    }
}

impl Parts {
    fn of(mut value: Value) -> Self {
        // bound: a constant more than the longest string in the value
        let mut text = Vec::with_capacity(room_for(&value));
        let mut is_canonical = compact_json(&value, &mut text);
        // A canonical text has no double.
        if !is_canonical && name_exactly(&mut value) {
            text.clear();
            is_canonical = compact_json(&value, &mut text);
        }
        Self {
            value,
            text: String::from_utf8(text).expect("JSON of strings is a string"),
            is_canonical,
            digest: OnceLock::new(),
        }
    }
}

/// Bytes that the text of a value will hardly exceed: most of a long one is one long string.
fn room_for(value: &Value) -> usize {
    const ROOM_BYTES: usize = 256;
    let longest = match value {
        Value::Object(members) => members
            .values()
            .filter_map(Value::as_str)
            .map(str::len)
            .max(),
        _ => None,
    };
    let longest = longest.unwrap_or(0);
    // Lines have an escape or two each.
    ROOM_BYTES + longest + longest / 8
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

    #[test]
    fn lines_are_told_apart() {
        let text = |text: &str| Document::new(json!({ "a": "\n" }), text.to_owned());
        assert!(Document::from_value(json!({ "a": "\n", "b": 1.5 })).is_one_line());
        assert!(text("{\"a\":\"\\n\"}").is_one_line());
        assert!(!text("{\n\"a\":\"\\n\"}").is_one_line());
    }

    /// G-1: by whichever text.
    #[test]
    fn one_digest_of_one_value() {
        for value in [json!({ "b": "é\n", "a": 7 }), json!([1.5, 1.0])] {
            let of_value = Digest::of_json(&value);
            assert_eq!(Document::from_value(value.clone()).digest(), of_value);
            assert_eq!(Document::new(value, String::new()).digest(), of_value);
        }
    }
}
