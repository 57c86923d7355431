//! What a running gate says of its configuration while the file changes. G-9.

use serde_json::{Value, json};

use crate::support::drive::Serve;
use crate::support::mcp::{initialize, mcp, modern_call};
use crate::support::workspace::{ONE, trusted};
use crate::support::{Folder, wait_for};

/// What a running gate says of its configuration: to people, and to a client of MCP in
/// `instructions` and in the error for a missing tool.
fn said_by(serve: &Serve, folder: &Folder) -> (String, Value, String) {
    let health = serve.get("/v1/health").1["configuration"].clone();
    let mut host = mcp(folder, &[]);
    let instructions = host.ask(&initialize(1))["result"]["instructions"].clone();
    let missing = host.ask(&modern_call(2, "none", &json!({}), &json!({})));
    assert!(host.end().success());
    let missing = missing["error"]["message"].as_str().unwrap_or_default();
    let health = health.as_str().unwrap_or_default();
    (health.to_owned(), instructions, missing.to_owned())
}

/// Waits until the health of the gate has these words.
fn wait_health(serve: &Serve, words: &str) {
    wait_for(words, || {
        let health = serve.get("/v1/health").1["configuration"].clone();
        health.as_str()?.contains(words).then_some(())
    });
}

/// G-9: a gate that is running says at each attempt to reload which configuration is in force and
/// why, whether or not that changes what is served, and goes back with the file. Callers read
/// nothing of the file.
#[test]
fn a_running_gate_says_what_is_in_force() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let as_trusted = said_by(&serve, &folder);
    assert!(as_trusted.0.contains("trusted (1 tools)"), "{as_trusted:?}");
    let silent = (Value::Null, "tool not found: none".to_owned());
    assert_eq!((as_trusted.1.clone(), as_trusted.2.clone()), silent);
    let put = |text: Option<&str>| match text {
        Some(text) => drop(folder.write("callgate.toml", text)),
        None => std::fs::remove_file(folder.join("callgate.toml")).expect("remove it"),
    };
    let comment = format!("{ONE}# Schlangenhaut\n");
    let broken = format!("{ONE}[[Schlangenhaut");
    let changes = [
        (Some(comment.as_str()), "changed since it was trusted"),
        (Some(&broken), "configuration not loaded"),
        (None, "is gone"),
        (Some(&comment), "changed since it was trusted"),
        (None, "is gone"),
        (Some(&broken), "configuration not loaded"),
    ];
    for (index, (text, words)) in changes.into_iter().enumerate() {
        put(text);
        wait_health(&serve, words);
        let (health, instructions, missing) = said_by(&serve, &folder);
        assert!(health.contains("stays in force"), "{health}");
        let instructions = instructions.as_str().expect("instructions");
        assert!(
            instructions.contains("what was trusted last is served"),
            "{instructions}"
        );
        assert_eq!(missing, format!("tool not found: none: {instructions}"));
        assert!(!instructions.contains("Schlangenhaut"), "{instructions}");
        let call = json!({ "tool": "one", "input": {} });
        assert_eq!(serve.call(&call)["ok"], true, "{words}");
        // From one to the next directly, and by way of the trusted file.
        if index >= 2 {
            put(Some(ONE));
            wait_health(&serve, "trusted (1 tools)");
            assert_eq!(said_by(&serve, &folder), as_trusted);
        }
    }
    assert!(serve.stop().success());
}

/// G-9: the same where nothing was trusted before: what does not load leaves the gate as it was.
#[test]
fn a_running_gate_without_trust_says_what_is_in_force() {
    let folder = Folder::new();
    let serve = Serve::start(&folder);
    let without = said_by(&serve, &folder);
    folder.write("callgate.toml", "[[");
    wait_health(&serve, "kept the old configuration");
    let instructions = said_by(&serve, &folder).1;
    let instructions = instructions.as_str().expect("instructions");
    assert!(
        instructions.contains("cannot be loaded, so what was served before still is"),
        "{instructions}"
    );
    folder.write("callgate.toml", ONE);
    wait_health(&serve, "is not trusted yet");
    std::fs::remove_file(folder.join("callgate.toml")).expect("remove it");
    wait_health(&serve, "no callgate.toml here");
    assert_eq!(said_by(&serve, &folder), without);
    assert!(serve.stop().success());
}
