//! Search over the workspace: what `vector/search` takes and gives on the wire, what is indexed and
//! what is not. R-17.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::process::{Command, Stdio};

use callgate_call::Cancel;
use callgate_store::search::SearchDb;
use callgate_testing::python;
use callgate_testing::scripts::folder_of;
use callgate_tools::vector::{self, Scope};
use serde_json::{Value, json};

use crate::support::rpc::{Client, rpc};
use callgate_testing_workspace::{Folder, Opened, environment, trust, trusted_with};

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

/// Indexes the workspace by words. Returns what was done.
fn indexed(folder: &Folder) -> Value {
    indexed_from(&Opened::new(folder), ".")
}

/// Indexes a part of the workspace by words, as `callgate index` does.
fn indexed_from(opened: &Opened, from: &str) -> Value {
    let parts = &opened.parts;
    let (files, secrets) = parts.workspace_files().expect("the workspace");
    let (scope, cancel) = (Scope { from, deep: true }, Cancel::new());
    let of = (&files, &secrets);
    let report = vector::index(of, &parts.paths.state, scope, &cancel, &mut |_| {});
    let report = report.expect("an index");
    let db = SearchDb::open(&parts.paths.state).expect("an index");
    let counts = db.expect("an index").counts().expect("counts");
    json!({
        "seen": report.seen, "indexed": report.indexed, "removed": report.removed,
        "files": counts.files, "chunks": counts.chunks,
    })
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
        .arg(folder.join("state/search.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut holder = command.spawn().expect("start Python");
    let mut said = [0; 3];
    let stdout = holder.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut said).expect("it holds the database");
    let mut client = rpc(&folder);
    let reply = client.ask("vector/search", json!({ "query": "sheep" }));
    assert_eq!(reply["error"]["code"], 1010, "{reply}");
    let words = reply["error"]["message"].as_str().unwrap_or_default();
    assert!(words.contains("locked"), "{words}");
    drop(holder.stdin.take());
    assert!(holder.wait().expect("its end").success());
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
    assert!(command.status().expect("start Python").success());
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
    trust(&folder);
    indexed(&folder);
    let found = matches(&mut rpc(&folder), json!({ "query": "sheep" }));
    assert_eq!(found.len(), 2);
    folder.write("callgate.toml", "[files]\ndeny = [\"private\"]\n");
    trust(&folder);
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
    let third = indexed_from(&Opened::new(&folder), "src");
    assert_eq!((&third["seen"], &third["removed"]), (&json!(1), &json!(0)));
    let third = indexed_from(&Opened::new(&folder), "src/../new");
    assert_eq!(third["removed"], 1);
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
    let environment = environment(&folder, &[("WORD", OsStr::new("hunter2hunter2"))]);
    let mut client = Client::of(Opened::in_environment(&folder, &environment));
    client.good("vector/upsert", json!({ "namespace": "n", "items": items }));
    client.end();
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
    let secrets = [
        ("WORD", OsStr::new("hunter2hunter2")),
        ("PEM", OsStr::new("begin\nhunter3hunter3\nend")),
    ];
    let environment = environment(&folder, &secrets);
    indexed_from(&Opened::in_environment(&folder, &environment), ".");
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
