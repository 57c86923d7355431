//! Memory over JSON-RPC: what is appended is found again by words, by every process, and also where
//! its index is not.

use serde_json::{Value, json};

use crate::support::host::Host;
use crate::support::rpc::{Client, rpc};
use callgate_testing_workspace::Folder;

fn append(client: &mut Client, text: &str) -> Value {
    let meta = json!({ "about": text.len() });
    client.good("memory/append", json!({ "text": text, "meta": meta }))["id"].clone()
}

fn query(client: &mut Client, query: &str, k: u64) -> Vec<Value> {
    let found = client.good("memory/query", json!({ "query": query, "k": k }));
    found["results"].as_array().expect("results").clone()
}

fn texts(found: &[Value]) -> Vec<&str> {
    found
        .iter()
        .map(|one| one["text"].as_str().expect("a text"))
        .collect()
}

/// A note has its number, its text, its time, a score of up to 1 and what came along. Rare words
/// count more than frequent ones; a name is found by its parts.
#[test]
fn by_words() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    assert!(query(&mut client, "sheep", 5).is_empty());
    let id = append(&mut client, "the sheep are in the barn");
    for text in [
        "the barn is red",
        "read_config reads the settings",
        "the barn has a door",
    ] {
        append(&mut client, text);
    }
    let found = query(&mut client, "barn sheep", 5);
    assert_eq!(found.len(), 3, "{found:?}");
    let first = &found[0];
    let (at, score) = (first["at_ms"].clone(), first["score"].clone());
    assert!(at.as_u64().is_some_and(|at| at > 0));
    assert!(
        score
            .as_f64()
            .is_some_and(|score| score > 0.0 && score <= 1.0)
    );
    assert_eq!(
        *first,
        json!({
            "id": id, "text": "the sheep are in the barn", "at_ms": at, "score": score,
            "meta": { "about": 25 },
        })
    );
    assert_eq!(query(&mut client, "barn", 2).len(), 2);
    let named = query(&mut client, "config", 5);
    assert_eq!(texts(&named), ["read_config reads the settings"]);
    for nothing in ["", " -- ", "nowhere"] {
        assert!(query(&mut client, nothing, 5).is_empty(), "{nothing}");
    }
    // Memory makes no index of files.
    let (code, _) = client.bad("vector/search", json!({ "query": "sheep" }));
    assert_eq!(code, 1010);
}

/// Another process finds it, also once the index is gone or broken: notes are in the journal.
#[test]
fn without_its_index() {
    let folder = Folder::new();
    append(&mut rpc(&folder), "goats are counted at noon");
    let index = folder.join("state/memory");
    assert_eq!(query(&mut rpc(&folder), "goats", 5).len(), 1);
    std::fs::remove_dir_all(&index).expect("there was an index");
    assert_eq!(query(&mut rpc(&folder), "goats", 5).len(), 1);
    std::fs::write(
        index.join("search.db"),
        b"no database at all, and long enough to be read",
    )
    .expect("written");
    for left in ["search.db-wal", "search.db-shm"] {
        let _ = std::fs::remove_file(index.join(left));
    }
    let mut client = rpc(&folder);
    assert_eq!(query(&mut client, "goats", 5).len(), 1);
    append(&mut client, "goats sleep");
    assert_eq!(query(&mut client, "goats", 5).len(), 2);
}

/// T-33: a stream has its own notes, however many others there are; without one all are looked through. On
/// the toolhost the words of the contract's first implementation stand beside ours.
#[test]
fn streams() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let mut note = |text: &str, stream: Option<&str>| {
        let mut params = json!({ "text": text });
        if let Some(stream) = stream {
            params["stream"] = stream.into();
        }
        client.good("memory/append", params);
    };
    note("the sheep of the hills", Some("hills"));
    // All of these fit better.
    for number in 0..60 {
        note(&format!("sheep {number}"), Some("valley"));
    }
    note("sheep of nobody", None);
    let mut found = |params: Value| {
        let found = client.good("memory/query", params);
        assert_eq!(found.get("matches"), None);
        found["results"].as_array().expect("results").clone()
    };
    let hills = found(json!({ "query": "sheep", "k": 1, "stream": "hills" }));
    assert_eq!(texts(&hills), ["the sheep of the hills"]);
    assert_eq!(hills[0]["meta"], json!({ "stream": "hills" }));
    let valley = found(json!({ "query": "sheep", "k": 100, "stream": "valley" }));
    assert_eq!(valley.len(), 60);
    assert!(valley.iter().all(|note| note["meta"]["stream"] == "valley"));
    assert_eq!(
        found(json!({ "query": "sheep", "stream": "nowhere" })),
        [] as [Value; 0]
    );
    assert_eq!(found(json!({ "query": "sheep", "k": 100 })).len(), 62);
    for bad in [json!(""), json!(1), json!(null), json!("x".repeat(129))] {
        let (code, data) = client.bad("memory/query", json!({ "query": "x", "stream": bad }));
        assert_eq!((code, &data["field"]), (-32602, &json!("stream")));
    }
    client.end();

    let inputs = json!({ "query": "sheep", "k": "2", "stream": "valley" });
    let request = json!({ "aid": "AID.MEMORY.QUERY.v1", "inputs": inputs });
    let reply = Host::toolhost_builtins(&folder).ask(&request);
    let output: Value =
        serde_json::from_str(reply["output_json"].as_str().expect("text")).expect("JSON");
    assert_eq!(
        (&output["ok"], output["matches"].as_array().map(Vec::len)),
        (&json!(true), Some(2))
    );
    assert_eq!(output["matches"], output["results"]);
}
