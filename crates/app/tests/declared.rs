//! What functions declare with `@tool`: for a `[[tool]]` of the same function, once it is trusted;
//! and `callgate describe`, which needs no SDK. G-9e.

use crate::support::Folder;
use crate::support::drive::{Ran, Serve, cli, python};
use crate::support::workspace::folder_of;
use serde_json::{Value, json};

const KIT: &str = "\
import os

from callgate import tool

@tool(
    tier=1,
    writes=[\"out\"],
    env={\"WORD\": \"mine\"},
    code=[\"lib/**\"],
    timeout_ms=60000,
)
def keep(text: str, times: int = 1) -> dict:
    \"\"\"Keeps a text.\"\"\"
    from lib import words
    with open(\"out/kept\", \"a\") as file:
        file.write(text * times)
    return {\"word\": os.environ[\"WORD\"], \"lib\": words.WORD}

@tool
def plain(a: int) -> int:
    return a + 1

def loose(payload):
    return payload
";

fn tool(name: &str, more: &str) -> String {
    format!(
        "[[tool]]\nname = \"{name}\"\n{more}\n\
         runner = {{ kind = \"python\", entry = \"kit:{name}\", python = \"{}\" }}\n",
        python()
    )
}

fn workspace(config: &str) -> Folder {
    folder_of(&[
        ("callgate.toml", config),
        ("kit.py", KIT),
        ("lib/words.py", "WORD = 'lib'\n"),
    ])
}

fn call(folder: &Folder, tool: &str, input: &Value) -> Ran {
    cli(folder, &["call", tool, &input.to_string()])
}

/// A `[[tool]]` has the schema and the grants that its function declares, shown by `trust`; what
/// it says itself counts instead.
#[test]
fn a_tool_has_what_its_function_declares() {
    let config = tool("keep", "") + &tool("plain", "") + &tool("loose", "");
    let folder = workspace(&config);
    let shown = cli(&folder, &["trust", "--show"]).good();
    for words in ["writes out", "env WORD", "code lib/**"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    let told = cli(&folder, &["trust"]).good();
    let warned = "tool `loose` has no input_schema";
    assert!(told.err.contains(warned), "{}", told.err);
    for name in ["keep", "plain"] {
        assert!(
            !told.err.contains(&format!("`{name}` has no")),
            "{}",
            told.err
        );
    }
    let kept = call(&folder, "keep", &json!({ "text": "ab", "times": 2 })).good();
    assert_eq!(kept.json(), json!({ "word": "mine", "lib": "lib" }));
    assert_eq!(folder.read("out/kept").as_deref(), Some("abab"));
    let listed = cli(&folder, &["tools", "show", "keep"]).good().json();
    assert_eq!(listed["tier"], 1);
    assert_eq!(listed["description"], "Keeps a text.");
    let refused = call(&folder, "plain", &json!({ "a": "x" }));
    assert!(
        refused.err.contains("bad_input") || refused.err.contains("integer"),
        "{refused:?}"
    );
    call(&folder, "loose", &json!({ "any": [1] })).good();

    let said = tool("keep", "writes = []\ninput_schema = { type = \"object\" }");
    let folder = workspace(&said);
    let trusted = cli(&folder, &["trust", "--json"]).good().json();
    let grants = trusted["tools"][0]["grants"].as_str().expect("grants");
    assert!(
        !grants.contains("writes") && grants.contains("env WORD"),
        "{grants}"
    );
    let ran = call(&folder, "keep", &json!({ "text": "a" }));
    assert_ne!(ran.code(), 0, "it may not write: {ran:?}");
}

/// Nothing that a function declares counts before it is trusted, and a declaration that changed
/// waits for that: what was trusted stays in force. The rest of the file may change.
#[test]
fn a_changed_declaration_waits_for_trust() {
    let folder = workspace(&tool("keep", ""));
    cli(&folder, &["trust"]).good();
    let doubt = "changed since it was trusted";
    let says = || cli(&folder, &["tools"]).good().err;
    assert!(!says().contains(doubt));

    folder.write(
        "kit.py",
        &KIT.replace("Keeps a text", "Holds a text")
            .replace("text * times", "text"),
    );
    assert!(!says().contains(doubt), "the body is no declaration");

    let wider = KIT.replace(
        "writes=[\"out\"]",
        "writes=[\"out\", \"more\"], network=True",
    );
    folder.write("kit.py", &wider);
    assert!(says().contains(doubt));
    call(&folder, "keep", &json!({ "text": "a" })).good();
    let serve = Serve::start(&folder);
    serve.wait_said(doubt);
    cli(&folder, &["trust"]).good();
    serve.wait_said("reloaded");
    assert!(serve.stop().success());
    let shown = cli(&folder, &["trust", "--show"]).good().out;
    assert!(shown.contains("writes out more; network"), "{shown}");
    assert!(!says().contains(doubt));

    folder.write("callgate.toml", "");
    assert!(says().contains(doubt));
    call(&folder, "keep", &json!({ "text": "a" })).good();
}

/// A state whose configuration was trusted without declarations stays trusted as it was.
#[test]
fn without_declarations_nothing_changes() {
    let folder = workspace(&tool("loose", ""));
    cli(&folder, &["trust"]).good();
    folder.write(
        "kit.py",
        &KIT.replace("def loose(payload)", "@tool\ndef loose(payload: int)"),
    );
    let told = cli(&folder, &["tools"]).good();
    assert!(!told.err.contains("changed"), "{}", told.err);
}

/// A module that cannot be read without its rights declares nothing, and `trust` says why.
#[test]
fn a_module_that_does_not_load_is_told() {
    let folder = workspace(&tool("keep", ""));
    folder.write("kit.py", &format!("open('mine', 'w')\n{KIT}"));
    let told = cli(&folder, &["trust"]).good();
    assert!(
        told.err.contains("what kit:keep declares cannot be read"),
        "{}",
        told.err
    );
    assert!(!folder.join("mine").exists());
}

/// `callgate describe` prints a manifest that can be trusted as it is, or tables, without an
/// installed SDK; the module is imported by a process that may do nothing.
#[test]
fn described_without_an_installed_package() {
    let folder = workspace("");
    let run = |args: &[&str]| {
        cli(
            &folder,
            &[&["describe", "--python", &python()], args].concat(),
        )
    };
    let manifest = run(&["kit"]).good();
    let keep = &manifest.json()["tools"][0];
    assert_eq!(
        keep["confinement"],
        json!({ "writes": ["out"], "code": ["lib/**"] })
    );
    assert_eq!(keep["runner"]["env"], json!({ "WORD": "mine" }));
    assert_eq!(
        run(&["kit:plain"]).good().json()["tools"][0]["name"],
        "plain"
    );

    folder.write("pack.json", &manifest.out);
    folder.write("callgate.toml", "toolpacks = [\"pack.json\"]\n");
    cli(&folder, &["trust"]).good();
    let kept = call(&folder, "keep", &json!({ "text": "a" })).good();
    assert_eq!(kept.json()["word"], "mine");

    let tables = run(&["--toml", "kit"]).good();
    let folder = workspace(&tables.out);
    cli(&folder, &["trust"]).good();
    call(&folder, "keep", &json!({ "text": "a" })).good();

    for (target, words) in [
        ("kit:loose", "not declared with @tool"),
        ("nowhere", "cannot import"),
        ("json", "declares no tool"),
        ("kit.py", "`callgate describe kit`"),
        ("./lib/words.py", "`callgate describe lib.words`"),
    ] {
        let ran = cli(&folder, &["describe", target]);
        assert_eq!(ran.code(), 1, "{target}: {ran:?}");
        assert!(ran.err.contains(words), "{target}: {}", ran.err);
    }
    folder.write(
        "other.py",
        &KIT.replace("import os", "import os, lib.words"),
    );
    let ran = cli(&folder, &["describe", "other"]);
    assert!(
        ran.err.contains("lib/**") && ran.err.contains("--code"),
        "{ran:?}"
    );
    cli(&folder, &["describe", "other", "--code", "lib/**"]).good();
}

/// Whatever `[[tool]]` knows of a Python tool can be said by `@tool`, and by a pack.
#[test]
fn a_function_can_say_all_that_a_table_says() {
    let everything = "\
from callgate import tool

@tool(name='all/of', aid='AID.ALL.OF.v1', description='D', title='T', tier=2, tags=['tag.x'],
      aliases=['every'], deterministic=True, idempotent=True, side_effects=['none'],
      replay_inputs=['a'], timeout_ms=1000, timeout_max_ms=2000,
      rate_limit={'per_second': 5, 'burst': 10}, concurrency_max=2, tasks='forbidden',
      gives_content=True, writes=['out'], reads=['data'], code=['lib/**'],
      network=['api.example.com:443'], env={'A': 'b'}, limits={'open_files': 64},
      pool={'workers_max': 1}, preload=['json'], guarantees={'no_subprocess': True},
      purity='impure', sandbox='strict', ipc=False, isolation='call',
      allow_unsafe_execution=True)
def f(a: int) -> int:
    return a
";
    let folder = workspace("");
    folder.write("all.py", everything);
    folder.write("data", "");
    let tables = cli(&folder, &["describe", "--toml", "all"]).good().out;
    for word in [
        "title",
        "aliases",
        "replay_inputs",
        "timeout_max_ms",
        "rate_limit",
        "concurrency_max",
        "tasks",
        "gives_content",
        "writes",
        "reads",
        "code",
        "network",
        "env",
        "limits",
        "pool",
        "preload",
        "guarantees",
        "purity",
        "sandbox",
        "ipc",
        "isolation",
        "allow_unsafe_execution",
    ] {
        assert!(tables.contains(word), "{word}: {tables}");
    }
    folder.write("callgate.toml", &tables);
    cli(&folder, &["trust"]).good();
    let manifest = cli(&folder, &["describe", "all"]).good().out;
    folder.write("pack.json", &manifest);
    folder.write("callgate.toml", "toolpacks = [\"pack.json\"]\n");
    let trusted = cli(&folder, &["trust", "--json"]).good().json();
    let grants = trusted["tools"][0]["grants"].as_str().expect("grants");
    assert!(grants.contains("network api.example.com:443"), "{grants}");
}
