//! Comparing what came with what a vector expects: `"<any>"` fits anything, `{"<contains>":"x"}`
//! texts with x inside, `{"<json>":…}` texts that hold such JSON; all else only itself.

use serde_json::Value;

/// Compares whole values; the error says where they part.
pub fn fits(pattern: &Value, value: &Value) -> Result<(), String> {
    let differs = || Err(format!(": expected {pattern}, found {}", short(value)));
    if pattern == "<any>" {
        return Ok(());
    }
    if let Some(part) = pattern["<contains>"].as_str() {
        return if value.as_str().is_some_and(|text| text.contains(part)) {
            Ok(())
        } else {
            differs()
        };
    }
    if let Some(inner) = pattern.get("<json>") {
        let held = value
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        return held.map_or_else(differs, |held: Value| fits(inner, &held));
    }
    match (pattern, value) {
        (Value::Object(wanted), Value::Object(found)) if wanted.keys().eq(found.keys()) => {
            wanted.iter().try_for_each(|(name, inner)| {
                fits(inner, &found[name]).map_err(|e| format!(".{name}{e}"))
            })
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => wanted
            .iter()
            .zip(found)
            .enumerate()
            .try_for_each(|(index, (inner, item))| {
                fits(inner, item).map_err(|e| format!("[{index}]{e}"))
            }),
        _ if pattern == value => Ok(()),
        _ => differs(),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(1000).collect()
}
