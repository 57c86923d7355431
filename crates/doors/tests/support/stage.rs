//! Streamed runs on a stage: a workspace with the scripted executor in it, and a client that has
//! it perform.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use callgate_testing::{copy_program, misbehave};
use serde_json::{Value, json};

use super::rpc::{Client, rpc};
use callgate_testing_workspace::{Folder, trusted_with};

/// How a run ended, as its caller heard it.
#[derive(Debug)]
pub struct Ended {
    pub outcome: String,
    pub message: String,
    pub report: Value,
}

/// A workspace whose program `./misbehave` is the scripted executor.
pub struct Stage {
    pub client: Client,
    pub folder: Folder,
}

impl Stage {
    /// A workspace with this configuration.
    pub fn new(config: &str) -> Self {
        let folder = trusted_with(&[("callgate.toml", config)]);
        copy_program(misbehave(), &folder.join("misbehave"));
        let client = rpc(&folder);
        Self { client, folder }
    }

    /// What `runs/start` gets for these acts and whatever `more` says.
    pub fn order(acts: &Value, more: &Value) -> Value {
        let mut order = json!({
            "command": ["./misbehave", "executor"],
            "job": { "acts": acts },
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            order[name] = value.clone();
        }
        order
    }

    /// Has these acts performed.
    pub fn run(&mut self, acts: &Value) -> Ended {
        self.run_with(acts, &json!({}))
    }

    pub fn run_with(&mut self, acts: &Value, more: &Value) -> Ended {
        let answer = self.client.ask("runs/start", Self::order(acts, more));
        ended(&answer)
    }

    /// The newest run, as `runs/get` has it.
    pub fn newest(&mut self) -> Value {
        let listed = self.client.good("runs/list", json!({ "limit": 1 }));
        let run_id = &listed["runs"][0]["run_id"];
        let wanted = json!({ "run_id": run_id, "events_from": 0 });
        self.client.good("runs/get", wanted)
    }

    /// Everything below the state folder, by its path.
    pub fn state(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        collect(&self.folder.join("state"), &mut all);
        all
    }
}

/// How a run ended, from the answer to the call that it was.
pub fn ended(answer: &Value) -> Ended {
    let report = match answer.get("result") {
        Some(report) => report.clone(),
        None => {
            let blocks = &answer["error"]["data"]["content"];
            let text = blocks[0]["text"].as_str();
            let text = text.unwrap_or_else(|| panic!("no report: {answer}"));
            serde_json::from_str(text).expect("a report is JSON")
        }
    };
    let text = |name: &str| report[name].as_str().unwrap_or_default().to_owned();
    let (outcome, message) = (text("outcome"), text("message"));
    if answer.get("result").is_none() {
        assert_eq!(answer["error"]["data"]["type"], outcome, "{answer}");
    }
    Ended {
        outcome,
        message,
        report,
    }
}

fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&path, all),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                all.insert(path, bytes);
            }
            _ => {}
        }
    }
}
