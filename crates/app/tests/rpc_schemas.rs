//! What fits the schema of a method is carried out, or refused for what it asks and not for how. The
//! schemas themselves are tested in `doors`.

use callgate_testing::Random;
use callgate_testing::shapes::{fitting, method_schemas};
use serde_json::{Map, Value, json};

use crate::support::Folder;
use crate::support::drive::cli;
use crate::support::rpc::{Client, rpc};

/// What the contract has for params that fit and still do not do.
const REFUSALS: [i64; 8] = [1001, 1002, 1003, 1004, 1005, 1006, 1007, 1010];

/// Methods that do nothing without an executor; `runs.rs` has one.
const NEED_AN_EXECUTOR: [&str; 3] = ["artifacts/read", "runs/get", "runs/start"];

/// Inputs of one method, of which one must be taken.
const TRIES_MAX: usize = 3_000;

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
    for (name, (mut input, _)) in method_schemas(|method, params| client.good(method, params)) {
        if NEED_AN_EXECUTOR.contains(&name.as_str()) {
            continue;
        }
        // Any text fits; ours are few.
        if let Some(properties) = input["properties"].as_object_mut() {
            properties.remove("cursor");
        }
        let mut good = 0;
        // Sixty inputs, and more where none of them was taken: what fits by chance is rare for
        // methods whose fields must agree with each other.
        for count in 0..TRIES_MAX {
            if count >= 60 && good > 0 {
                break;
            }
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
