//! Every method's schemas, as `tools/list` and `rpc/discover` serve them, in both directions:
//! what fits is taken, and what is wrong in one place is refused with that place named. And
//! mutations: nothing that is sent for params brings a decoder down.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use callgate_call::Fault;
use callgate_gate::Schema;
use callgate_testing::shapes::{Broken, broken, fields, fitting, method_schemas};
use callgate_testing::{Random, mutant};
use callgate_wires::json as strict;
use serde_json::{Value, json};

use crate::support::rpc::{Client, rpc};
use callgate_testing_workspace::{Folder, trusted};

const ROUNDS: usize = 400;
/// By then every field there is has been wrong once.
const ROUNDS_MAX: usize = 100_000;
const CASES: usize = 100_000;

/// Input and output schema of each method.
pub fn schemas(client: &mut Client) -> BTreeMap<String, (Value, Option<Value>)> {
    method_schemas(|method, params| client.good(method, params))
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
