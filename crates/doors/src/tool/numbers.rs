//! Text that spells a number, where a schema wants one. Callers of this protocol write decimals
//! as text; a tool gets the number. P-9.

use callgate_wires::json;
use serde_json::Value;

/// References followed from one place of a schema; more can only be a circle.
const REFS_MAX: usize = 16;

/// Longest text that is looked at; no number anybody means is longer.
const DIGITS_MAX: usize = 400;

/// Puts numbers in the place of texts wherever `schema` wants a number there and no text.
pub(super) fn read(schema: &Value, value: &mut Value) {
    Place { root: schema }.read(schema, value);
}

#[derive(Clone, Copy)]
struct Place<'a> {
    root: &'a Value,
}

impl<'a> Place<'a> {
    fn read(self, schema: &'a Value, value: &mut Value) {
        let schema = self.resolve(schema);
        match value {
            Value::String(text) if wants_number(schema) => {
                if let Some(number) = number(text) {
                    *value = number;
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let own = schema.get("properties").and_then(|known| known.get(name));
                    if let Some(schema) = own.or_else(|| schema.get("additionalProperties")) {
                        self.read(schema, member);
                    }
                }
            }
            Value::Array(items) => {
                let first = schema.get("prefixItems").and_then(Value::as_array);
                for (index, item) in items.iter_mut().enumerate() {
                    let own = first.and_then(|schemas| schemas.get(index));
                    if let Some(schema) = own.or_else(|| schema.get("items")) {
                        self.read(schema, item);
                    }
                }
            }
            _ => {}
        }
    }

    /// The schema a reference within this document means.
    fn resolve(self, mut schema: &'a Value) -> &'a Value {
        for _ in 0..REFS_MAX {
            let pointer = schema.get("$ref").and_then(Value::as_str);
            let target = pointer.and_then(|pointer| pointer.strip_prefix('#'));
            match target.and_then(|pointer| self.root.pointer(pointer)) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }
}

fn wants_number(schema: &Value) -> bool {
    let is = |kind: &Value, word: &str| kind == word;
    let number = |kind: &Value| is(kind, "number") || is(kind, "integer");
    match schema.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(number) && !kinds.iter().any(|kind| is(kind, "string"))
        }
        Some(kind) => number(kind),
        None => false,
    }
}

/// JSON's own spelling and no other, so that what is taken is what any parser reads.
fn number(text: &str) -> Option<Value> {
    if text.len() > DIGITS_MAX {
        return None;
    }
    json::parse_text(text, 0)
        .ok()
        .filter(|value| value.is_number() && text == text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn after(schema: Value, mut value: Value) -> Value {
        read(&schema, &mut value);
        value
    }

    /// P-9: where the schema says number, and only there.
    #[test]
    fn texts_become_numbers() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "number"}, "i": {"type": "integer"}, "s": {"type": "string"},
            "both": {"type": ["number", "string"]}, "maybe": {"type": ["number", "null"]},
            "list": {"type": "array", "items": {"type": "number"}},
            "pair": {"prefixItems": [{"type": "string"}, {"type": "number"}]},
            "inner": {"type": "object", "properties": {"n": {"type": "number"}}},
            "any": {},
        }, "additionalProperties": {"type": "number"}});
        let given = json!({
            "n": "1.5", "i": "2", "s": "1.5", "both": "1.5", "maybe": "-3e2",
            "list": ["1", 2, "x"], "pair": ["1", "2"], "inner": {"n": "7"}, "any": "1", "other": "8",
        });
        let wanted = json!({
            "n": 1.5, "i": 2, "s": "1.5", "both": "1.5", "maybe": -3e2,
            "list": [1, 2, "x"], "pair": ["1", 2], "inner": {"n": 7}, "any": "1", "other": 8,
        });
        assert_eq!(after(schema, given), wanted);
    }

    /// What is no number stays for the schema to refuse.
    #[test]
    fn what_spells_none_stays() {
        let schema = json!({"type": "number"});
        for text in [
            "", " ", " 1", "1 ", "+1", "01", ".5", "NaN", "1e999", "1,5", "[1]", "\"1\"",
        ] {
            assert_eq!(after(schema.clone(), json!(text)), json!(text), "{text:?}");
        }
        let long = "1".repeat(DIGITS_MAX + 1);
        assert_eq!(after(schema, json!(long)), json!(long));
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let schema = json!({
            "$defs": {"n": {"type": "number"}, "a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            "properties": {"n": {"$ref": "#/$defs/n"}, "c": {"$ref": "#/$defs/a"},
                           "out": {"$ref": "https://example.com/x"}},
        });
        let given = json!({"n": "1", "c": "1", "out": "1"});
        assert_eq!(after(schema, given), json!({"n": 1, "c": "1", "out": "1"}));
    }
}
