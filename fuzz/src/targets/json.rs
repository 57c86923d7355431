//! Strict JSON and its quick reader. G-1.

use callgate_wires::json;
use serde_json::Value;

/// Depths that contracts allow, and one at the edge of most inputs.
const DEPTHS: [usize; 3] = [3, 32, json::DEPTH_MAX];

/// The quick reader reads no text that the strict one refuses, and never another value.
pub fn quick(input: &[u8]) {
    for depth_max in DEPTHS {
        let strict = json::parse_strictly(input, depth_max).ok();
        if let Some(quick) = json::parse_quickly(input, depth_max) {
            // Compared as text: `Value` holds 0 and -0 for equal.
            let strict = strict.as_ref().map(Value::to_string);
            assert_eq!(Some(quick.to_string()), strict, "at depth {depth_max}");
        }
        assert_eq!(json::parse(input, depth_max).ok(), strict);
    }
}

/// Strict JSON is JSON with the same value, is read the same when written, and is refused deeper
/// than allowed. Outputs of tools are read the same but for integers beyond 64 bits.
pub fn strict(input: &[u8]) {
    let plain: Option<Value> = serde_json::from_slice(input).ok();
    let mut shallower_accepts = false;
    for depth_max in DEPTHS {
        let Ok(value) = json::parse(input, depth_max) else {
            assert!(!shallower_accepts, "a greater depth accepts more");
            continue;
        };
        shallower_accepts = true;
        assert_eq!(plain.as_ref(), Some(&value), "read as any parser reads");
        assert!(depth(&value) <= depth_max);
        let mut text = Vec::new();
        json::write_value(&value, &mut text);
        assert_eq!(json::parse(&text, depth_max).unwrap(), value);
        assert_eq!(json::parse_output(input, depth_max).unwrap(), value);
        if let Value::Object(object) = &value {
            let mut again = Vec::new();
            json::write_object(object, &mut again);
            assert_eq!(again, text);
        }
    }
    if let Ok(value) = json::parse_output(input, json::DEPTH_MAX) {
        assert_eq!(plain.as_ref(), Some(&value), "read as any parser reads");
    }
}

/// Arrays and objects around the innermost value.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
