//! Values made of a JSON Schema: such that fit it, and such that are wrong in one place, with the
//! name of that place; and all the places there are. Knows what our schemas use.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::Random;

/// Returns input and output schema of each method of JSON-RPC, by `tools/list` and `rpc/discover`,
/// which must agree. `ask` gives the result of a method.
pub fn method_schemas(
    mut ask: impl FnMut(&str, Value) -> Value,
) -> BTreeMap<String, (Value, Option<Value>)> {
    let listed = ask("tools/list", json!({ "limit": 200 }));
    let tools = listed["tools"].as_array().expect("tools").iter();
    let mut schemas: BTreeMap<String, (Value, Option<Value>)> = tools
        .map(|tool| {
            let name = tool["name"].as_str().expect("a name").to_owned();
            let output = tool.get("output_schema").filter(|schema| !schema.is_null());
            (name, (tool["input_schema"].clone(), output.cloned()))
        })
        .collect();
    let discovered = ask("rpc/discover", json!({}));
    for method in discovered["methods"].as_array().expect("methods") {
        let name = method["name"].as_str().expect("a name");
        let params = method["params"].as_array().expect("params").iter();
        let text = |param: &Value| param["name"].as_str().expect("a name").to_owned();
        let required = params.clone().filter(|param| param["required"] == true);
        let required: Vec<String> = required.map(text).collect();
        let properties: Map<String, Value> = params
            .map(|param| (text(param), param["schema"].clone()))
            .collect();
        // The two say the same.
        match schemas.get(name) {
            Some((input, output)) => {
                let known = input.get("properties").cloned().unwrap_or(json!({}));
                assert_eq!(known, json!(properties), "{name}");
                let known = input["required"].as_array().into_iter().flatten();
                let known: BTreeSet<&str> = known.filter_map(Value::as_str).collect();
                let shown = required.iter().map(String::as_str).collect();
                assert_eq!(known, shown, "{name}");
                let known = output.clone().unwrap_or(json!({}));
                assert_eq!(known, method["result"]["schema"], "{name}");
            }
            None => {
                let input = json!({ "type": "object", "properties": properties,
                                    "required": required, "additionalProperties": false });
                let output = method["result"]["schema"].clone();
                schemas.insert(name.to_owned(), (input, Some(output)));
            }
        }
    }
    schemas
}

/// A value that fits.
pub fn fitting(random: &mut Random, schema: &Value) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        return random.pick(choices).clone();
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let choice = random.pick(choices).clone();
        return fitting(random, &choice);
    }
    let types = types(schema);
    let bound = |name: &str| schema[name].as_i64();
    match types[random.below(types.len())].as_str() {
        "null" => Value::Null,
        "boolean" => json!(random.one_in(2)),
        "integer" => {
            let least = bound("minimum").unwrap_or(-1000);
            let most = bound("maximum").unwrap_or(least + 2000);
            let span = usize::try_from(most - least).expect("a range");
            let step = i64::try_from(random.below(span + 1)).expect("small");
            json!(least + step)
        }
        "number" => json!(random.below(1000) as f64 / 8.0),
        "array" => {
            let least = size(schema, "minItems").unwrap_or(0);
            let most = size(schema, "maxItems").unwrap_or(usize::MAX);
            let count = (least + random.below(3)).min(most);
            (0..count)
                .map(|_| fitting(random, &schema["items"]))
                .collect()
        }
        "object" => object(random, schema),
        _ => text(random, schema),
    }
}

fn object(random: &mut Random, schema: &Value) -> Value {
    let mut members = Map::new();
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if is_required(schema, name) || random.one_in(2) {
            members.insert(name.clone(), fitting(random, inner));
        }
    }
    match &schema["additionalProperties"] {
        Value::Bool(false) => {}
        inner if random.one_in(2) => {
            let inner = if inner.is_object() {
                inner
            } else {
                &json!({ "type": "string" })
            };
            members.insert("another".to_owned(), fitting(random, inner));
        }
        _ => {}
    }
    Value::Object(members)
}

fn text(random: &mut Random, schema: &Value) -> Value {
    // A number fits each pattern there is, but that of addresses.
    if let Some(pattern) = schema["pattern"].as_str() {
        let scheme = if pattern.starts_with("^wss?") {
            "ws://h/"
        } else {
            ""
        };
        return json!(format!("{scheme}{}", random.below(1000)));
    }
    let words = ["a", "b c", "ä", "x/y", "1", "\"", "\u{1f600}"];
    let least = size(schema, "minLength").unwrap_or(0);
    let most = size(schema, "maxLength").unwrap_or(usize::MAX);
    let count = random.below(4) + least;
    let text: String = (0..count).map(|_| *random.pick(&words)).collect();
    json!(text.chars().take(most).collect::<String>())
}

/// A value that is wrong in one place.
pub struct Broken {
    /// The value.
    pub value: Value,
    /// The place as a refusal names it: `edits.0.old`.
    pub place: String,
    /// Which field that is, and in what way it is wrong: one of `fields`.
    pub field: String,
}

/// Every way in which a value can be wrong below its top, `*` for any item and any name: a field
/// that is not what it should be, one that is `missing`, and one that is `unheard_of`.
pub fn fields(schema: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    walk(schema, "", &mut all);
    all
}

fn walk(schema: &Value, field: &str, all: &mut BTreeSet<String>) {
    if !field.is_empty() && says_something(schema) {
        all.insert(field.to_owned());
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let at = under(field, name);
        if is_required(schema, name) {
            all.insert(missing(&at));
        }
        walk(inner, &at, all);
    }
    if schema.get("properties").is_some() && schema["additionalProperties"] == false {
        all.insert(under(field, UNHEARD_OF));
    }
    for any in [&schema["items"], &schema["additionalProperties"]] {
        if any.is_object() {
            walk(any, &under(field, "*"), all);
        }
    }
}

const UNHEARD_OF: &str = "unheard_of";

fn missing(field: &str) -> String {
    format!("{field} missing")
}

fn under(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// One that says nothing fits anything.
fn says_something(schema: &Value) -> bool {
    let words = ["type", "enum", "anyOf"];
    words.iter().any(|word| schema.get(word).is_some())
}

/// `fits`, made wrong in every place below its top that can be wrong, each time in one of them.
pub fn broken(random: &mut Random, schema: &Value, fits: &Value) -> Vec<Broken> {
    let mut ways = Vec::new();
    collect(random, schema, fits, ("", ""), &mut ways);
    ways
}

/// Every place that can be made wrong, each in one way.
fn collect(
    random: &mut Random,
    schema: &Value,
    value: &Value,
    (path, field): (&str, &str),
    ways: &mut Vec<Broken>,
) {
    if !path.is_empty() && says_something(schema) {
        let missized = missized(random, schema, value);
        for value in [wrong(random, schema)].into_iter().chain(missized) {
            let (place, field) = (path.to_owned(), field.to_owned());
            ways.push(Broken {
                value,
                place,
                field,
            });
        }
    }
    match value {
        Value::Object(members) => {
            let with = |name: &str, changed: Option<Value>| {
                let mut members = members.clone();
                match changed {
                    Some(changed) => members.insert(name.to_owned(), changed),
                    None => members.remove(name),
                };
                Value::Object(members)
            };
            for (name, member) in members {
                let place = under(path, name);
                let (inner, field) = match schema["properties"].get(name) {
                    Some(inner) => (inner, under(field, name)),
                    None => (&schema["additionalProperties"], under(field, "*")),
                };
                if is_required(schema, name) {
                    ways.push(Broken {
                        value: with(name, None),
                        place: place.clone(),
                        field: missing(&field),
                    });
                }
                let mut inside = Vec::new();
                collect(random, inner, member, (&place, &field), &mut inside);
                ways.extend(inside.into_iter().map(|way| Broken {
                    value: with(name, Some(way.value)),
                    ..way
                }));
            }
            if schema.get("properties").is_some() && schema["additionalProperties"] == false {
                ways.push(Broken {
                    value: with(UNHEARD_OF, Some(json!(1))),
                    place: under(path, UNHEARD_OF),
                    field: under(field, UNHEARD_OF),
                });
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let mut inside = Vec::new();
                let at = (&*under(path, &index.to_string()), &*under(field, "*"));
                collect(random, &schema["items"], item, at, &mut inside);
                ways.extend(inside.into_iter().map(|way| {
                    let mut items = items.clone();
                    items[index] = way.value;
                    Broken {
                        value: Value::Array(items),
                        ..way
                    }
                }));
            }
        }
        _ => {}
    }
}

/// A value that does not fit: of another type, beyond a bound, none of the choices.
fn wrong(random: &mut Random, schema: &Value) -> Value {
    let types = types(schema);
    let mut values: Vec<Value> = [
        ("null", json!(null)),
        ("boolean", json!(true)),
        ("number", json!(1.5)),
        ("string", json!("none of them")),
        ("array", json!([])),
        ("object", json!({})),
    ]
    .into_iter()
    .filter(|(kind, _)| {
        let number = *kind == "number" && types.iter().any(|known| known == "number");
        !number && (schema.get("enum").is_some() || !types.iter().any(|known| known == kind))
    })
    .map(|(_, value)| value)
    .filter(|value| {
        !schema["enum"]
            .as_array()
            .is_some_and(|all| all.contains(value))
    })
    .collect();
    values.extend(schema["minimum"].as_i64().map(|least| json!(least - 1)));
    values.extend(schema["maximum"].as_i64().map(|most| json!(most + 1)));
    random.pick(&values).clone()
}

/// `fits` with less or more in it than may be, where something is said of that.
fn missized(random: &mut Random, schema: &Value, fits: &Value) -> Option<Value> {
    let mut values = Vec::new();
    match fits {
        Value::String(text) => {
            let of = |count| text.chars().chain(std::iter::repeat('x')).take(count);
            let one_less = size(schema, "minLength").and_then(|least| least.checked_sub(1));
            let one_more = size(schema, "maxLength").map(|most| most + 1);
            let counts = one_less.into_iter().chain(one_more);
            values.extend(counts.map(|count| json!(of(count).collect::<String>())));
        }
        Value::Array(items) => {
            let one_less = size(schema, "minItems").and_then(|least| least.checked_sub(1));
            values.extend(one_less.map(|count| json!(items[..count])));
            if let Some(most) = size(schema, "maxItems") {
                let item = fitting(random, &schema["items"]);
                let mut items = items.clone();
                // bound: one more than the schema allows, which is our own
                items.resize(most + 1, item);
                values.push(Value::Array(items));
            }
        }
        _ => {}
    }
    (!values.is_empty()).then(|| random.pick(&values).clone())
}

/// A bound on how much is in a value.
fn size(schema: &Value, bound: &str) -> Option<usize> {
    usize::try_from(schema[bound].as_u64()?).ok()
}

/// The types a schema allows; all texts where it does not say.
fn types(schema: &Value) -> Vec<String> {
    let one = |value: &Value| value.as_str().map(str::to_owned);
    match (&schema["type"], schema["anyOf"].as_array()) {
        (Value::String(kind), _) => vec![kind.clone()],
        (Value::Array(kinds), _) => kinds.iter().filter_map(one).collect(),
        (_, Some(choices)) => choices.iter().flat_map(types).collect(),
        _ => vec!["string".to_owned()],
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    let names = schema["required"].as_array();
    names.is_some_and(|names| names.iter().any(|known| known == name))
}
