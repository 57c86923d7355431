//! The test that the schema of each built-in tool and the struct of its arguments agree: the same
//! members, the same of them optional, the same words, at every depth.
//!
//! A schema is walked for values that it allows, which the struct must accept, and for values
//! that it refuses because a member is missing, is not known or has another type. What the struct
//! asks of its deserialiser on the way is its side: names of fields, names of variants.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::value::{BorrowedStrDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, json};

/// A tool, the schema of its input, and whether its struct accepts a value.
struct ToolArguments {
    tool: &'static str,
    schema: Value,
    read: fn(&Value, &Record) -> Result<(), Error>,
}

/// Pairs a tool's schema with the struct of its arguments.
macro_rules! pair {
    ($tool:literal, $schema:expr, $arguments:ty) => {
        ToolArguments {
            tool: $tool,
            schema: $schema,
            read: |value, record| {
                let deserializer = Recorded::root(value, record);
                <$arguments>::deserialize(deserializer).map(drop)
            },
        }
    };
}

/// What structs and enums declare, by their path in the arguments.
#[derive(Default)]
struct Record {
    fields: RefCell<BTreeMap<String, &'static [&'static str]>>,
    variants: RefCell<BTreeMap<String, &'static [&'static str]>>,
}

/// A deserialiser of a parsed value that keeps a record of what it is asked for.
#[derive(Clone)]
struct Recorded<'de, 'r> {
    value: &'de Value,
    path: String,
    record: &'r Record,
}

impl<'de, 'r> Recorded<'de, 'r> {
    fn root(value: &'de Value, record: &'r Record) -> Self {
        let path = String::new();
        Self {
            value,
            path,
            record,
        }
    }

    fn inner(&self, value: &'de Value, step: &str) -> Self {
        let (path, record) = (format!("{}/{step}", self.path), self.record);
        Self {
            value,
            path,
            record,
        }
    }
}

impl<'de> Deserializer<'de> for Recorded<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.inner(item, ITEMS));
                let mut items = SeqDeserializer::new(items);
                let read = visitor.visit_seq(&mut items)?;
                items.end().map(|()| read)
            }
            Value::Object(members) => {
                let member = |(name, value): (&'de String, _)| {
                    (BorrowedStrDeserializer::new(name), self.inner(value, name))
                };
                visitor.visit_map(MapDeserializer::new(members.iter().map(member)))
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.record
            .fields
            .borrow_mut()
            .insert(self.path.clone(), fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.record
            .variants
            .borrow_mut()
            .insert(self.path.clone(), variants);
        self.value.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Error> for Recorded<'de, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The step of a path that leads to the items of an array.
const ITEMS: &str = "[]";
/// A member that no schema has.
const UNKNOWN: &str = "a member that no schema has";

/// The members of an object's schema, by name; nothing for an object of free members.
fn members(schema: &Value) -> Option<&serde_json::Map<String, Value>> {
    schema.get("properties")?.as_object()
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let names = schema["required"].as_array().into_iter().flatten();
    names.map(|name| name.as_str().unwrap())
}

fn types(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().map(|one| one.as_str().unwrap()).collect(),
        _ => Vec::new(),
    }
}

/// Values that a schema allows; the first is the plainest.
fn allowed(schema: &Value) -> Vec<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return words.clone();
    }
    if let Some(several) = schema["anyOf"].as_array() {
        return several.iter().flat_map(allowed).collect();
    }
    let types = types(schema);
    if types.is_empty() {
        return vec![
            json!("any"),
            json!(1.5),
            json!([{}]),
            json!({ "a": null }),
            Value::Null,
        ];
    }
    types
        .into_iter()
        .flat_map(|one| allowed_of(one, schema))
        .collect()
}

fn allowed_of(kind: &str, schema: &Value) -> Vec<Value> {
    let bound = |name: &str, usual: usize| {
        schema[name]
            .as_u64()
            .map_or(usual, |bound| usize::try_from(bound).unwrap())
    };
    match kind {
        "null" => vec![Value::Null],
        "boolean" => vec![json!(false), json!(true)],
        "string" => {
            // A pattern of ours has both digits and an address, or one of them.
            let longest = bound("maxLength", 64).min(70_000);
            let shortest = bound("minLength", 0);
            let texts = ["1", "ws://a", &"é".repeat(longest), &"x".repeat(shortest)];
            texts.map(Value::from).to_vec()
        }
        "number" => vec![json!(0), json!(-1.5), json!(1e300), json!(u64::MAX)],
        "integer" => integers(schema),
        "array" => {
            let items = allowed(&schema["items"]);
            let (least, most) = (bound("minItems", 0), bound("maxItems", 3).min(100));
            let repeated = |count| Value::Array(vec![items[0].clone(); count]);
            let mut all = vec![repeated(least), repeated(most)];
            all.extend(
                items
                    .iter()
                    .map(|item| Value::Array(vec![item.clone(); least.max(1)])),
            );
            all
        }
        "object" => objects(schema),
        other => panic!("{other} is no type of ours"),
    }
}

/// The bounds of an integer, each also spelt as a fraction; without a bound whatever JSON has.
fn integers(schema: &Value) -> Vec<Value> {
    let numbers = [&schema["minimum"], &schema["maximum"], &schema["default"]];
    let mut all: Vec<Value> = numbers
        .into_iter()
        .filter(|number| number.is_number())
        .cloned()
        .collect();
    if schema["maximum"].is_null() {
        all.extend([json!(u64::MAX), json!(1e300), json!(1000)]);
    }
    if schema["minimum"].is_null() {
        all.extend([json!(0), json!(i64::MIN), json!(-1e300)]);
    }
    let fractions: Vec<Value> = all
        .iter()
        .map(|number| json!(number.as_f64().unwrap()))
        .collect();
    all.extend(fractions);
    all
}

fn objects(schema: &Value) -> Vec<Value> {
    let Some(members) = members(schema) else {
        let value = match &schema["additionalProperties"] {
            Value::Object(_) => allowed(&schema["additionalProperties"])[0].clone(),
            _ => json!([1]),
        };
        return vec![json!({}), json!({ "A": value, "b c": value })];
    };
    let plainest = plainest(schema);
    let mut all = vec![Value::Object(plainest.clone())];
    let whole = members
        .iter()
        .map(|(name, member)| (name.clone(), allowed(member)[0].clone()));
    all.push(Value::Object(whole.collect()));
    for (name, member) in members {
        for value in allowed(member) {
            let mut object = plainest.clone();
            object.insert(name.clone(), value);
            all.push(Value::Object(object));
        }
    }
    all
}

/// An object with what is required and no more.
fn plainest(schema: &Value) -> serde_json::Map<String, Value> {
    let member = |name: &str| {
        (
            name.to_owned(),
            allowed(&schema["properties"][name])[0].clone(),
        )
    };
    required(schema).map(member).collect()
}

/// Values that a schema refuses: each has one fault, which the text names.
fn refused(schema: &Value) -> Vec<(String, Value)> {
    let types = types(schema);
    let mut all = Vec::new();
    let others = [
        ("string", json!("1")),
        ("boolean", json!(true)),
        ("array", json!([[]])),
    ];
    for (kind, value) in others {
        if !types.is_empty() && !types.contains(&kind) {
            all.push((format!("is of type {kind}"), value));
        }
    }
    if types.contains(&"integer") {
        all.push(("is no whole number".to_owned(), json!(0.5)));
    }
    if types.contains(&"array") {
        let item = |(fault, item)| (format!("an item {fault}"), json!([item]));
        all.extend(refused(&schema["items"]).into_iter().map(item));
    }
    let Some(members) = members(schema) else {
        return all;
    };
    let plainest = plainest(schema);
    let with = |name: &str, value: Value| {
        let mut object = plainest.clone();
        object.insert(name.to_owned(), value);
        Value::Object(object)
    };
    if schema["additionalProperties"] == false {
        all.push(("has an unknown member".to_owned(), with(UNKNOWN, json!(1))));
    }
    for name in required(schema) {
        let mut object = plainest.clone();
        object.remove(name);
        all.push((format!("has no {name}"), Value::Object(object)));
    }
    for (name, member) in members {
        let inner = refused(member).into_iter();
        all.extend(inner.map(|(fault, value)| (format!("{name} {fault}"), with(name, value))));
    }
    all
}

/// The names that a schema has at each path: members of objects, and words.
fn declared(schema: &Value, path: &str, members_at: &mut Names, words_at: &mut Names) {
    if let Some(members) = members(schema) {
        members_at.insert(path.to_owned(), members.keys().cloned().collect());
        for (name, member) in members {
            declared(member, &format!("{path}/{name}"), members_at, words_at);
        }
    }
    if let Some(items) = schema.get("items") {
        declared(items, &format!("{path}/{ITEMS}"), members_at, words_at);
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).map(str::to_owned);
        words_at.insert(path.to_owned(), words.collect());
    }
}

type Names = BTreeMap<String, BTreeSet<String>>;

fn names(record: &RefCell<BTreeMap<String, &'static [&'static str]>>) -> Names {
    let owned = |names: &&[&str]| names.iter().map(|&name| name.to_owned()).collect();
    record
        .borrow()
        .iter()
        .map(|(path, names)| (path.clone(), owned(names)))
        .collect()
}

/// Every disagreement between a schema and a struct.
fn disagreements(pair: &ToolArguments) -> Vec<String> {
    let record = Record::default();
    let mut all = Vec::new();
    for value in allowed(&pair.schema) {
        if let Err(error) = (pair.read)(&value, &record) {
            all.push(format!("the struct refuses {value}: {error}"));
        }
    }
    for (fault, value) in refused(&pair.schema) {
        if (pair.read)(&value, &Record::default()).is_ok() {
            all.push(format!("the struct takes what {fault}: {value}"));
        }
    }
    let (mut members_at, mut words_at) = (Names::new(), Names::new());
    declared(&pair.schema, "", &mut members_at, &mut words_at);
    let fields_at = names(&record.fields);
    if fields_at != members_at {
        all.push(format!(
            "the struct has {fields_at:?}, the schema {members_at:?}"
        ));
    }
    for (path, variants) in names(&record.variants) {
        if words_at.get(&path) != Some(&variants) {
            all.push(format!(
                "the words at {path} are {variants:?} and {:?}",
                words_at.get(&path)
            ));
        }
    }
    all
}

fn pairs() -> Vec<ToolArguments> {
    use crate::exec;
    use crate::files::{edit, entries, read, search, write};
    use crate::memory;
    use crate::planner::schemas as planner;
    use crate::runs::{artifact, order, seen};
    use crate::terminals::schemas as terminals;
    use crate::vector::schemas as vector;
    vec![
        pair!(
            "artifacts/read",
            artifact::schema(),
            artifact::ArtifactReadArguments<'_>
        ),
        pair!(
            "memory/append",
            memory::append_schema(),
            memory::MemoryAppendArguments<'_>
        ),
        pair!(
            "memory/query",
            memory::query_schema(),
            memory::MemoryQueryArguments<'_>
        ),
        pair!(
            "planner/create_plan",
            planner::of("create_plan")[0].clone(),
            planner::PlanCreateArguments<'_>
        ),
        pair!(
            "planner/get_plan",
            planner::of("get_plan")[0].clone(),
            planner::PlanArguments<'_>
        ),
        pair!(
            "planner/update_task",
            planner::of("update_task")[0].clone(),
            planner::TaskUpdateArguments<'_>
        ),
        pair!(
            "planner/list_plans",
            planner::of("list_plans")[0].clone(),
            planner::PlanListArguments<'_>
        ),
        pair!(
            "planner/delete_plan",
            planner::of("delete_plan")[0].clone(),
            planner::PlanArguments<'_>
        ),
        pair!("runs/get", seen::get_schema(), seen::RunGetArguments<'_>),
        pair!("runs/list", seen::list_schema(), seen::RunListArguments),
        pair!(
            "vector/search",
            vector::search()[0].clone(),
            vector::VectorSearchArguments
        ),
        pair!(
            "vector/upsert",
            vector::upsert()[0].clone(),
            vector::VectorUpsertArguments<'_>
        ),
        pair!(
            "vector/delete",
            vector::delete()[0].clone(),
            vector::VectorDeleteArguments<'_>
        ),
        pair!(
            "exec/run",
            exec::schemas()[0].clone(),
            exec::ExecArguments<'_>
        ),
        pair!("runs/start", order::schema(), order::RunStartArguments<'_>),
        pair!(
            "terminals/create",
            terminals::create()[0].clone(),
            terminals::TerminalCreateArguments<'_>
        ),
        pair!(
            "terminals/write",
            terminals::write()[0].clone(),
            terminals::TerminalWriteArguments<'_>
        ),
        pair!(
            "terminals/resize",
            terminals::resize()[0].clone(),
            terminals::TerminalResizeArguments<'_>
        ),
        pair!(
            "terminals/kill",
            terminals::kill()[0].clone(),
            terminals::TerminalKillArguments<'_>
        ),
        pair!(
            "terminals/attach",
            terminals::attach()[0].clone(),
            terminals::TerminalAttachArguments<'_>
        ),
        pair!(
            "terminals/list",
            terminals::list()[0].clone(),
            terminals::TerminalListArguments
        ),
        pair!(
            "terminals/read_logs",
            terminals::read_logs()[0].clone(),
            terminals::TerminalLogArguments<'_>
        ),
        pair!(
            "files/read",
            read::schemas()[0].clone(),
            read::FileReadArguments<'_>
        ),
        pair!(
            "files/write",
            write::schemas()[0].clone(),
            write::FileWriteArguments<'_>
        ),
        pair!(
            "files/edit",
            edit::schemas()[0].clone(),
            edit::FileEditArguments<'_>
        ),
        pair!(
            "files/search",
            search::schemas()[0].clone(),
            search::FileSearchArguments<'_>
        ),
        pair!(
            "files/list",
            entries::list_schemas()[0].clone(),
            entries::FileListArguments<'_>
        ),
        pair!(
            "files/stat",
            entries::stat_schemas()[0].clone(),
            entries::FileStatArguments<'_>
        ),
        pair!(
            "files/delete",
            entries::delete_schemas()[0].clone(),
            entries::FileDeleteArguments<'_>
        ),
        pair!(
            "files/move",
            entries::move_schemas()[0].clone(),
            entries::FileMoveArguments<'_>
        ),
    ]
}

/// The tools of the conformance suite that take arguments.
fn fixture_pairs() -> Vec<ToolArguments> {
    use crate::conformance::schemas;
    vec![
        pair!(
            "test_custom_header",
            schemas::header(),
            schemas::HeaderArguments<'_>
        ),
        pair!("greet", schemas::greet(), schemas::GreetArguments<'_>),
        pair!(
            "slow_compute",
            schemas::compute(),
            schemas::ComputeArguments<'_>
        ),
        pair!(
            "confirm_delete",
            schemas::confirm_delete(),
            schemas::ConfirmDeleteArguments<'_>
        ),
        pair!(
            "test_sampling",
            schemas::sampling(),
            schemas::SamplingArguments<'_>
        ),
        pair!(
            "test_elicitation",
            schemas::elicitation(),
            schemas::ElicitationArguments<'_>
        ),
    ]
}

#[test]
fn every_tool_reads_what_its_schema_allows() {
    let (pairs, fixture) = (pairs(), fixture_pairs());
    for pair in pairs.iter().chain(&fixture) {
        let found = disagreements(pair);
        assert!(found.is_empty(), "{}: {found:#?}", pair.tool);
    }
    // One gives back whatever it gets.
    let tools: BTreeSet<&str> = pairs
        .iter()
        .map(|pair| pair.tool)
        .chain(["builtin/echo"])
        .collect();
    assert_eq!(tools, BTreeSet::from(crate::BUILTIN_NAMES));
}

/// The test finds what is on one side only.
#[test]
fn disagreements_are_found() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what is declared matters")]
    struct Sample<'a> {
        path: &'a str,
        #[serde(default)]
        deep: bool,
        order: Option<Order>,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        Up,
        Down,
    }
    let schema = || {
        let properties = json!({
            "path": { "type": "string" },
            "deep": { "type": "boolean" },
            "order": { "type": "string", "enum": ["up", "down"] },
        });
        crate::closed(properties, &["path"])
    };
    let check = |schema: Value| disagreements(&pair!("sample", schema, Sample<'_>));
    assert_eq!(check(schema()), Vec::<String>::new());
    let changes: [(&str, Value); 6] = [
        ("/properties", json!({ "path": { "type": "string" } })),
        (
            "/properties/deep",
            json!({ "type": ["boolean", "integer"] }),
        ),
        ("/properties/order/enum", json!(["up"])),
        ("/properties/order/enum", json!(["up", "down", "left"])),
        ("/required", json!([])),
        ("/required", json!(["path", "deep"])),
    ];
    for (place, change) in changes {
        let mut changed = schema();
        *changed.pointer_mut(place).unwrap() = change.clone();
        assert_ne!(check(changed), Vec::<String>::new(), "{place}: {change}");
    }
    let mut more = schema();
    more["properties"]["more"] = json!({ "type": "string" });
    assert_ne!(check(more), Vec::<String>::new());
}
