//! Every method's schemas, as `tools/list` and `rpc/discover` serve them, in both directions:
//! what fits is taken, and what is wrong in one place is refused with that place named. And
//! mutations: nothing that is sent for params brings a decoder down.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use crate::support::Folder;
use crate::support::drive::cli;
use crate::support::rpc::{Client, rpc};
use crate::support::shapes::{Broken, broken, fields, fitting};
use crate::support::workspace::trusted;
use callgate_call::Fault;
use callgate_gate::Schema;
use callgate_testing::{Random, mutant};
use callgate_wires::json as strict;
use serde_json::{Map, Value, json};

const ROUNDS: usize = 400;
/// By then every field there is has been wrong once.
const ROUNDS_MAX: usize = 100_000;
const CASES: usize = 100_000;

/// Input and output schema of each method.
pub fn schemas(client: &mut Client) -> BTreeMap<String, (Value, Option<Value>)> {
    let listed = client.good("tools/list", json!({ "limit": 200 }));
    let tools = listed["tools"].as_array().expect("tools").iter();
    let mut schemas: BTreeMap<String, (Value, Option<Value>)> = tools
        .map(|tool| {
            let name = tool["name"].as_str().expect("a name").to_owned();
            let output = tool.get("output_schema").filter(|schema| !schema.is_null());
            (name, (tool["input_schema"].clone(), output.cloned()))
        })
        .collect();
    let discovered = client.good("rpc/discover", json!({}));
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

/// The schema of each notification.
pub fn notifications(client: &mut Client) -> Vec<(String, Value)> {
    let discovered = client.good("rpc/discover", json!({}));
    let told = discovered["x-notifications"].as_array().expect("a list");
    let named = |one: &Value| {
        let name = one["name"].as_str().expect("a name").to_owned();
        (name, one["schema"].clone())
    };
    told.iter().map(named).collect()
}

/// ST-41, JR-143, JR-144, JR-162, JR-163: all there are.
#[test]
fn notifications_are_discovered() {
    let told = notifications(&mut rpc(&Folder::new()));
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "exec/stream",
        "planner/plan_updated",
        "planner/task_updated",
        "rpc/gap",
        "runs/updated",
        "terminals/exit",
        "terminals/stream",
    ];
    assert_eq!(names, wanted);
    // Those of tools that are not there are not.
    let folder = trusted("[exec]\noff = true\n[terminals]\noff = true\n");
    let told = notifications(&mut rpc(&folder));
    assert!(told.iter().all(|(name, _)| !name.ends_with("/stream")));
}

/// JR-16, JR-26: the checks themselves, both ways, of what goes in, what comes out and what is
/// told.
#[test]
fn what_fits_and_what_does_not() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let mut random = Random::new("schemas");
    let methods = schemas(&mut client)
        .into_iter()
        .flat_map(|(name, (input, output))| {
            let both = [Some(input), output].into_iter().flatten();
            both.map(move |schema| (name.clone(), schema))
        });
    let told = notifications(&mut client);
    for (name, schema) in methods.chain(told) {
        let check = Schema::compile(&schema).expect("it compiles");
        let mut untried = Untried::of(&name, &schema);
        while untried.goes_on(ROUNDS) {
            let value = fitting(&mut random, &schema);
            if let Err(fault) = check.check_input(&value) {
                panic!("{name}: {fault}: {value}");
            }
            let ways = broken(&mut random, &schema, &value);
            for Broken { value, place, .. } in untried.pick(&mut random, ways) {
                match check.check_input(&value) {
                    Err(Fault::BadInput { field, .. }) => {
                        assert_eq!(field.replace('/', "."), place, "{name}: {value}");
                    }
                    other => panic!("{name}: {place} of {value}: {other:?}"),
                }
            }
        }
    }
}

/// The fields of a schema that nothing was wrong with yet.
struct Untried<'a> {
    name: &'a str,
    fields: BTreeSet<String>,
    rounds: usize,
}

impl<'a> Untried<'a> {
    fn of(name: &'a str, schema: &Value) -> Self {
        Self {
            name,
            fields: fields(schema),
            rounds: 0,
        }
    }

    /// True for so many rounds, and until there is no such field.
    fn goes_on(&mut self, rounds: usize) -> bool {
        self.rounds += 1;
        let (name, left) = (self.name, &self.fields);
        assert!(self.rounds <= ROUNDS_MAX, "{name}: never wrong: {left:?}");
        self.rounds <= rounds || !left.is_empty()
    }

    /// Any one of these, and those that are the first of their field.
    fn pick(&mut self, random: &mut Random, ways: Vec<Broken>) -> Vec<Broken> {
        let any = random.below(ways.len());
        let ways = ways.into_iter().enumerate();
        ways.filter(|(index, way)| self.fields.remove(&way.field) || *index == any)
            .map(|(_, way)| way)
            .collect()
    }
}

/// JR-16, JR-26: the same over the wire, where nothing that is refused is carried out.
#[test]
fn refused_with_the_field_named() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let mut random = Random::new("refusals");
    for (name, (input, _)) in schemas(&mut client) {
        let mut untried = Untried::of(&name, &input);
        let mut wanted = Vec::new();
        while untried.goes_on(60) {
            let value = fitting(&mut random, &input);
            let ways = broken(&mut random, &input, &value);
            for Broken { value, place, .. } in untried.pick(&mut random, ways) {
                wanted.push((client.send(&name, value.clone()), value, place));
            }
        }
        for (id, value, place) in wanted {
            let reply = client.answer(id);
            let error = &reply["error"];
            assert_eq!(
                (&error["code"], &error["data"]["field"]),
                (&json!(-32602), &json!(place)),
                "{name} {value}: {reply}"
            );
            assert!(error["data"]["reason"].is_string(), "{reply}");
        }
    }
}

/// What the contract has for params that fit and still do not do.
const REFUSALS: [i64; 8] = [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1010];

/// Methods that do nothing without an executor; `runs.rs` has one.
const NEED_AN_EXECUTOR: [&str; 3] = ["artifacts/read", "runs/get", "runs/start"];

/// JR-16, R-4, R-6: the other way over the wire: what fits is carried out, or refused for what it
/// asks and not for how.
#[test]
fn what_fits_is_taken() {
    let folder = Folder::new();
    folder.write("file", "a b c");
    cli(&folder, &["index", "--lexical"]).good();
    let mut client = rpc(&folder);
    let mut random = Random::new("acceptances");
    let mut there = There {
        folder: &folder,
        session: Value::Null,
    };
    for (name, (mut input, _)) in schemas(&mut client) {
        if NEED_AN_EXECUTOR.contains(&name.as_str()) {
            continue;
        }
        // Any text fits; ours are few.
        if let Some(properties) = input["properties"].as_object_mut() {
            properties.remove("cursor");
        }
        let mut good = 0;
        for _ in 0..60 {
            let mut value = fitting(&mut random, &input);
            if random.one_in(2) {
                there.name(&mut client, &name, &mut value);
            }
            let reply = client.ask(&name, value.clone());
            let error = &reply["error"];
            let code = error["code"].as_i64();
            // A file that is no text asks for another encoding.
            let other = (code, &error["data"]["field"]) == (Some(-32602), &json!("encoding"));
            let known = code.is_none_or(|code| REFUSALS.contains(&code));
            assert!(known || other, "{name} {value}: {reply}");
            good += usize::from(code.is_none());
        }
        assert!(good > 0, "{name}");
    }
    assert!(client.end());
}

/// Things that are there, for params to name.
struct There<'a> {
    folder: &'a Folder,
    session: Value,
}

impl There<'_> {
    /// Has `params` name what is there; what a method would remove is made anew.
    fn name(&mut self, client: &mut Client, method: &str, params: &mut Value) {
        self.folder.write("file", "a b c ä x/y 1 \" \u{1f600}\n");
        if self.session.is_null() {
            let made = client.good("terminals/create", json!({ "command": "cat" }));
            self.session = made["session_id"].clone();
        }
        let session = match method {
            "terminals/kill" => self.session.take(),
            _ => self.session.clone(),
        };
        let mut plan = Value::Null;
        if params.get("plan_id").is_some() {
            let asked = json!({ "title": "t", "user_request": "- a" });
            plan = client.good("planner/create_plan", asked)["plan"]["id"].clone();
        }
        for (name, known) in [
            ("session_id", session),
            ("plan_id", plan),
            ("task_id", json!("t1")),
            ("path", json!("file")),
            ("from", json!("file")),
            ("command", json!("true")),
            ("etag", Value::Null),
            ("cwd", Value::Null),
            ("cols", json!(80)),
            ("rows", json!(24)),
        ] {
            if let Some(member) = params.get_mut(name) {
                *member = known;
            }
        }
        let Some(params) = params.as_object_mut() else {
            return;
        };
        match method {
            // Folders are listed, and all of them are searched.
            "files/list" | "files/search" => drop(params.remove("path")),
            "files/edit" => {
                let edits = json!([{ "old": "b", "new": "ä" }]);
                *params = Map::from_iter([
                    ("path".to_owned(), json!("file")),
                    ("edits".to_owned(), edits),
                ]);
            }
            _ => {}
        }
    }
}

const WORDS: [&[u8]; 22] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\"",
    b"\\",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e308",
    b"1e309",
    b"18446744073709551616",
    b"\\ud800",
    b"\xff",
    b"\0",
    b"..",
    b"\"path\":",
    b"\"limit\":",
    b"\"patch\":{}",
];

/// JR-16: 100,000 changed params for each method: each is refused, or fits and fits again.
#[test]
fn changed_params() {
    let folder = Folder::new();
    let mut random = Random::new("params");
    let all: Vec<_> = schemas(&mut rpc(&folder)).into_iter().collect();
    let mut work: Vec<_> = all
        .into_iter()
        .map(|(name, (input, _))| (name, input, random.fork()))
        .collect();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = work.len().div_ceil(threads);
    thread::scope(|scope| {
        while !work.is_empty() {
            let part: Vec<_> = work.drain(..share.min(work.len())).collect();
            scope.spawn(move || {
                for (name, input, random) in part {
                    let accepted = change(&input, random);
                    eprintln!("{name}: {accepted} of {CASES} accepted");
                    assert!(accepted > 0 && accepted < CASES, "{name}");
                }
            });
        }
    });
}

fn change(input: &Value, mut random: Random) -> usize {
    let check = Schema::compile(input).expect("it compiles");
    let seeds: Vec<Vec<u8>> = (0..8)
        .map(|_| fitting(&mut random, input).to_string().into_bytes())
        .collect();
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let mut accepted = 0;
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &seeds, &WORDS);
        let Ok(params) = strict::parse(&bytes, strict::DEPTH_MAX) else {
            continue;
        };
        if !params.is_object() || check.check_input(&params).is_err() {
            continue;
        }
        let mut written = Vec::new();
        strict::write_value(&params, &mut written);
        let again = strict::parse(&written, strict::DEPTH_MAX).expect("we wrote it");
        assert_eq!(again, params);
        assert!(check.check_input(&again).is_ok());
        accepted += 1;
    }
    accepted
}
