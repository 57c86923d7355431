//! What is served, against what the contract says: its schemas place by place
//! (`vectors/rpc/schemas.json`), and its examples to the letter (`vectors/rpc/literals.json`).
//!
//! A vector of a schema has what is said of each place in `params` and `result`: `tools[].name` is
//! a field of a list's items, `env.*` one of any name, and `closed` takes no field but those that
//! are there. `ours` are the places where we serve something else, each with the decision that
//! says so; null where it is not served, nor anything below it.

use std::collections::{BTreeMap, BTreeSet};

use callgate_gate::Schema;
use callgate_wires::jsonrpc::{
    self, Message, RpcError, write_error, write_error_object, write_notification, write_request,
    write_result,
};
use serde_json::{Map, Value, json};

use crate::rpc_schemas::{notifications, schemas};
use crate::support::host::Host;
use crate::support::rpc::rpc;
use callgate_testing::vectors;
use callgate_testing_workspace::Folder;

/// Methods that the contract has no schema of.
const OURS: [&str; 16] = [
    "artifacts/read",
    "builtin/echo",
    "files/delete",
    "files/edit",
    "files/list",
    "files/move",
    "files/search",
    "files/stat",
    "memory/append",
    "memory/query",
    "rpc/discover",
    "runs/get",
    "runs/list",
    "runs/start",
    "vector/delete",
    "vector/upsert",
];

fn read(name: &str) -> Vec<Value> {
    let text = std::fs::read(vectors().join("rpc").join(name)).expect("vectors");
    serde_json::from_slice(&text).expect("JSON")
}

/// What a schema says, place by place; its top has no name.
fn said(schema: &Value) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    collect(schema, String::new(), false, &mut all);
    all
}

fn collect(schema: &Value, place: String, required: bool, all: &mut BTreeMap<String, Value>) {
    let mut said = schema.as_object().expect("a schema").clone();
    // Words for people.
    said.remove("description");
    let mut take = |word: &str| said.remove(word).unwrap_or_default();
    let (fields, items) = (take("properties"), take("items"));
    let (names, others) = (take("required"), take("additionalProperties"));
    if required {
        said.insert("required".to_owned(), json!(true));
    }
    if others == false {
        said.insert("closed".to_owned(), json!(true));
    }
    let mut required = texts(&names);
    for (name, inner) in fields.as_object().into_iter().flatten() {
        let inner_place = match place.as_str() {
            "" => name.clone(),
            place => format!("{place}.{name}"),
        };
        collect(inner, inner_place, required.remove(name), all);
    }
    assert!(required.is_empty(), "{place}: {required:?}");
    for (any, sign) in [(&items, "[]"), (&others, ".*")] {
        if any.is_object() {
            collect(any, format!("{place}{sign}"), false, all);
        }
    }
    all.insert(place, Value::Object(said));
}

fn texts(list: &Value) -> BTreeSet<String> {
    let texts = list.as_array().into_iter().flatten();
    texts
        .map(|one| one.as_str().expect("a text").to_owned())
        .collect()
}

/// What a vector wants of `params` or `result`, our own decisions applied.
fn wanted(vector: &Value, side: &str) -> BTreeMap<String, Value> {
    let places = vector[side].as_object().expect("places").clone();
    let mut wanted: BTreeMap<String, Value> = places.into_iter().collect();
    let ours = vector["ours"].as_array().into_iter().flatten();
    for one in ours.filter(|one| one["in"] == side) {
        let (row, place) = (&one["row"], one["place"].as_str().expect("a place"));
        let clauses = vector["clauses"].as_array().expect("clauses");
        assert!(clauses.contains(row), "{one}: a row that is cited");
        let before = wanted.clone();
        match &one["served"] {
            Value::Null => wanted.retain(|known, _| !known.starts_with(place)),
            served => drop(wanted.insert(place.to_owned(), served.clone())),
        }
        assert_ne!(wanted, before, "{one} is what the contract says");
    }
    wanted
}

/// JR-27 to JR-161, R-12: every field, its type, its bounds and whether it must be there.
#[test]
fn schemas_say_what_the_contract_says() {
    let mut served = schemas(&mut rpc(&Folder::new()));
    for vector in read("schemas.json") {
        let method = vector["method"].as_str().expect("a method");
        let (params, result) = served.remove(method).expect("it is served");
        let result = result.expect("the contract has a result for each");
        for (side, schema) in [("params", params), ("result", result)] {
            assert_eq!(said(&schema), wanted(&vector, side), "{method}: {side}");
        }
    }
    // Nothing else of the contract's is left unlooked at.
    let left: Vec<&str> = served.keys().map(String::as_str).collect();
    assert_eq!(left, OURS);
}

/// What `write` writes, as JSON.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice(&out).expect("we wrote JSON")
}

fn error_of(object: &Value) -> RpcError {
    let code = object["code"]
        .as_i64()
        .and_then(|code| i32::try_from(code).ok());
    let words = object["message"].as_str().expect("a message");
    RpcError::new(code.expect("a code"), words).with(object["data"].clone())
}

fn names(members: &Value) -> BTreeSet<String> {
    let members = members.as_object().expect("an object");
    members.keys().cloned().collect()
}

/// What the examples are held to.
struct Held {
    methods: BTreeMap<String, (Value, Option<Value>)>,
    told: Map<String, Value>,
    host: Host,
}

impl Held {
    /// A message is read and written as it stands, and fits what is served of it.
    fn message(&mut self, message: &Value, result_of: Option<&str>) {
        let read = jsonrpc::parse(message.to_string().as_bytes()).expect("a message");
        let again = written(|out| match &read {
            Message::Request {
                id,
                method,
                params: Some(params),
                ours: None,
            } => write_request(id, method, params, out),
            Message::Response {
                id,
                result: Ok(result),
            } => write_result(id, result, out),
            Message::Response {
                id,
                result: Err(error),
            } => write_error(Some(id), &error_of(error), out),
            other => panic!("{other:?}"),
        });
        assert_eq!(&again, message);
        if let Message::Request { method, params, .. } = read {
            self.request(message, &method, &params.unwrap_or_default());
        }
        if let Some(method) = result_of {
            let (_, output) = &self.methods[method];
            let check = Schema::compile(output.as_ref().expect("a schema")).expect("it compiles");
            assert_eq!(check.check_output(&message["result"]), Ok(()), "{message}");
        }
    }

    /// A request is also carried out, or refused for what it asks and not for how.
    fn request(&mut self, message: &Value, method: &str, params: &Value) {
        let answer = self.host.ask(message);
        assert_eq!(answer["id"], message["id"], "{answer}");
        let code = answer["error"]["code"].as_i64();
        let Some((input, output)) = self.methods.get(method) else {
            assert_eq!(code, Some(-32601), "{message}: {answer}");
            return;
        };
        let check = Schema::compile(input).expect("it compiles");
        assert_eq!(check.check_input(params), Ok(()), "{message}");
        assert!(code.is_none_or(|code| code > 0), "{message}: {answer}");
        if let Some(result) = answer.get("result") {
            let check = Schema::compile(output.as_ref().expect("a schema")).expect("it compiles");
            assert_eq!(check.check_output(result), Ok(()), "{answer}");
        }
    }

    /// What a notification of the contract has is what we tell in it.
    fn notification(&self, method: &str, params: &Value) {
        let schema = &self.told[method];
        let check = Schema::compile(schema).expect("it compiles");
        assert_eq!(check.check_output(params), Ok(()), "{method}");
        assert_eq!(names(&schema["properties"]), names(params), "{method}");
        assert_eq!(texts(&schema["required"]), names(params), "{method}");
        let message = written(|out| write_notification(method, params, out));
        let read = jsonrpc::parse(message.to_string().as_bytes());
        let (method, params) = (method.to_owned(), Some(params.clone()));
        assert_eq!(read, Ok(Message::Notification { method, params }));
    }
}

/// JR-1 to JR-6, JR-26, JR-143, JR-144, JR-162, JR-163: requests in, everything else out.
#[test]
fn examples_to_the_letter() {
    let folder = Folder::new();
    folder.write("src/main.rs", "fn main() {}");
    let mut client = rpc(&folder);
    let mut held = Held {
        methods: schemas(&mut client),
        told: notifications(&mut client).into_iter().collect(),
        host: Host::rpc(&folder),
    };
    let literals = read("literals.json");
    for vector in &literals {
        if let Some(method) = vector["notification"].as_str() {
            held.notification(method, &vector["params"]);
        } else if let Some(error) = vector.get("error") {
            let again = written(|out| write_error_object(&error_of(error), out));
            assert_eq!(&again, error);
        } else {
            held.message(&vector["message"], vector["result_of"].as_str());
        }
    }
    assert_eq!(literals.len(), 14, "as many as the contract has");
}
