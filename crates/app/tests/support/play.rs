//! `callgate run` with the scripted executor: what it is to do is its job.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::drive::{Ran, cli, run};
use super::workspace::trusted_with;
use super::{Folder, callgate, copy_program};

/// A workspace with the executor in it.
pub struct Theatre {
    pub folder: Folder,
}

impl Theatre {
    /// `misbehave` is where the program was built.
    pub fn new(misbehave: &Path, config: &str) -> Self {
        let folder = trusted_with(&[("callgate.toml", config)]);
        copy_program(misbehave, &folder.join("misbehave"));
        Self { folder }
    }

    /// The words of `callgate run OPTIONS… -- EXECUTOR` for these acts.
    pub fn words(&self, options: &[&str], acts: &Value) -> Vec<String> {
        let job = json!({ "acts": acts }).to_string();
        let words = ["run", "--job", &job].into_iter().chain(options.to_vec());
        let words = words.chain(["--", "./misbehave", "executor"]);
        words.map(str::to_owned).collect()
    }

    pub fn command(&self, options: &[&str], acts: &Value) -> Command {
        let mut command = callgate(&self.folder);
        command.args(self.words(options, acts));
        command
    }

    pub fn run(&self, options: &[&str], acts: &Value) -> Ran {
        run(&mut self.command(options, acts))
    }

    /// `callgate ARGS…`.
    pub fn cli(&self, args: &[&str]) -> Ran {
        cli(&self.folder, args)
    }

    /// All runs, the newest first.
    pub fn runs(&self) -> Vec<Value> {
        lines(
            &self
                .cli(&["runs", "ls", "--limit", "10000", "--json"])
                .good()
                .out,
        )
    }
}

/// Lines of JSON.
pub fn lines(text: &str) -> Vec<Value> {
    let read = |line: &str| serde_json::from_str(line).expect("a line of JSON");
    text.lines().map(read).collect()
}

/// An item.
pub fn item(data: impl Into<Value>) -> Value {
    json!({ "emit": { "type": "item", "payload": { "item_type": "x", "data": data.into() } } })
}

/// A whole artifact.
pub fn artifact(id: &str, text: &str) -> [Value; 2] {
    [
        json!({ "chunk": { "id": id, "seq": 1, "text": text, "last": true } }),
        json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": id, "name": format!("{id}.txt"), "content_type": "text/plain",
            "size_bytes": text.len(),
        } } }),
    ]
}

/// The end of a run that is content.
pub fn done() -> Value {
    json!({ "complete": { "summary": { "pages": 3 } } })
}
