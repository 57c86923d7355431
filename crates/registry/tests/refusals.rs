//! Slips in a configuration, which are named when it is to be trusted; and the names that its tools
//! may have. G-14, TP-64.

use callgate_testing::python;
use callgate_testing::scripts::{ONE, folder_of, workspace};

use callgate_tools::{BUILTIN_NAMES, MCP_DEFAULT};

use crate::support::calls::{output, refusal};
use crate::support::in_process::{Folder, Opened, trust, trusted};
use serde_json::json;

/// The line for people that says what is in force.
fn note(folder: &Folder) -> String {
    let in_force = Opened::new(folder).parts.in_force();
    in_force.expect("the state is readable").note()
}

/// The list that patterns are checked against, and the default, are those of the program.
#[test]
fn the_names_are_those_of_the_tools() {
    let gate = Opened::new(&Folder::new()).gate().expect("a setup");
    let catalog = gate.catalog();
    let mut served: Vec<&str> = catalog.tools().map(|tool| tool.name.as_str()).collect();
    served.sort();
    assert_eq!(served, BUILTIN_NAMES);
    assert!(MCP_DEFAULT.iter().all(|name| BUILTIN_NAMES.contains(name)));
}

/// A slip in `[builtins]` is named when it is trusted.
#[test]
fn slips_are_named() {
    for (text, words) in [
        (
            "allow = [\"file/read\"]",
            "no built-in tool fits `file/read`; did you mean `files/read`?",
        ),
        ("allow = [\"files/*\", \"\"]", "no built-in tool fits ``"),
        (
            "off = true\nallow = [\"*\"]",
            "say `off` or `allow`, not both",
        ),
        ("allow = \"files/*\"", "allow"),
        ("only = [\"files/*\"]", "only"),
    ] {
        let folder = Folder::new();
        folder.write("callgate.toml", &format!("[builtins]\n{text}\n"));
        let told = refusal(&folder);
        assert!(told.contains(words), "{text}: {told}");
    }
}

const NAME: &str = "Fetch a page";
const ID: &str = "fetch_a_page";

/// A worker that gives back the name under which it was asked.
const WORKER: &str = r#"
import json, os, socket
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"])).makefile("rw")
for text in gate:
    request = json.loads(text)
    gate.write(json.dumps({"call": request["call"], "output": {"tool": request["tool"]}}) + "\n")
    gate.flush()
"#;

fn config(more: &str) -> String {
    format!(
        "[[tool]]\nname = \"{NAME}\"\ntier = 1\ntags = [\"tag.page\"]\n\
         input_schema = {{ type = \"object\" }}\n\
         runner = {{ kind = \"pool\", command = [\"{}\", \"worker/run.py\"] }}\n{more}",
        python()
    )
}

/// A name that cannot be written anywhere, or means two tools, is refused.
#[test]
fn names_that_are_none() {
    let refused = |config: &str| {
        let folder = folder_of(&[("callgate.toml", config), ("worker/run.py", WORKER)]);
        refusal(&folder)
    };
    let long = "x ".repeat(70);
    for name in [
        "",
        " x",
        "x ",
        "a\\nb",
        "a\\u202Eb",
        "!!",
        "a//b c",
        "/a b",
        &long,
    ] {
        let told = refused(&config("").replace(NAME, name));
        assert!(
            told.contains("a name has letters or digits"),
            "{name:?}: {told}"
        );
    }
    let twice = config("") + &config("").replace(NAME, ID);
    assert!(refused(&twice).contains("names both"));
}

/// A runner that can not do it says what it can.
#[test]
fn an_isolation_that_cannot_be_had_is_refused() {
    for (runner, isolation, words) in [
        (
            r#"{ kind = "process", command = ["true"] }"#,
            "worker",
            "not `worker` but cold",
        ),
        (
            r#"{ kind = "pool", command = ["true"] }"#,
            "call",
            "not `call` but worker or cold",
        ),
        (
            r#"{ kind = "node", entry = "t.mjs:f" }"#,
            "call",
            "not `call` but worker or cold",
        ),
        (
            r#"{ kind = "node", entry = "../t.mjs:f" }"#,
            "cold",
            "is not `file:function`",
        ),
        (
            r#"{ kind = "python", entry = "t:f" }"#,
            "cell",
            "did you mean `call`?",
        ),
    ] {
        let folder = Folder::new();
        let text =
            format!("[[tool]]\nname = \"t\"\nisolation = \"{isolation}\"\nrunner = {runner}\n");
        folder.write("callgate.toml", &text);
        let told = refusal(&folder);
        assert!(told.contains(words), "{runner} {isolation}: {told}");
    }
}

/// G-9: a file that is no file, or has no end, is an error and not a hang.
#[test]
fn files_that_are_none_hold_nobody_up() {
    let folder = trusted(ONE);
    let fifo = std::process::Command::new("mkfifo")
        .arg(folder.join("pipe.json"))
        .status()
        .expect("mkfifo runs");
    assert!(fifo.success());
    for named in ["pipe.json", "/dev/zero", "../out.json"] {
        folder.write("callgate.toml", &format!("toolpacks = [\"{named}\"]\n"));
        let note = note(&folder);
        assert!(note.contains("not loaded"), "{named}: {note}");
    }
    std::fs::remove_file(folder.join("callgate.toml")).expect("it is there");
    std::fs::rename(folder.join("pipe.json"), folder.join("callgate.toml")).expect("a rename");
    output(&folder, "builtin/echo");
}

/// The number of tools that are served.
fn tools(folder: &Folder) -> usize {
    let gate = Opened::new(folder).gate().expect("a setup");
    gate.catalog().tools().count()
}

const TWO: &str = r#"
[[tool]]
name = "two"
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

/// G-9: the digest covers every file the configuration refers to.
#[test]
fn files_it_refers_to_are_trusted_with_it() {
    let folder = workspace(&format!(
        "toolpacks = [\"pack.json\"]\n{TWO}input_schema = \"in.json\"\n"
    ));
    let schema = r#"{"type":"object","required":["a"]}"#;
    let pack = json!({
        "toolpack_id": "toolpack.test", "toolpack_version": "1", "trust_tier": "tier2_untrusted",
        "tools": [{ "aid": "AID.PACK.THREE.v1", "name": "three", "tags": ["x"],
                    "confinement": { "code": ["tool.sh"] }, "runner": { "kind": "process", "command": ["/bin/sh", "tool.sh"] } }],
    });
    for (name, text) in [
        ("in.json", schema.to_owned()),
        ("pack.json", pack.to_string()),
    ] {
        folder.write("in.json", schema);
        folder.write("pack.json", &pack.to_string());
        trust(&folder);
        assert_eq!(tools(&folder), BUILTIN_NAMES.len() + 2);
        folder.write(name, &format!("{text} "));
        let told = note(&folder);
        assert!(
            told.contains("changed since it was trusted"),
            "{name} changed by a blank: {told}"
        );
        std::fs::remove_file(folder.join(name)).expect("remove it");
        let told = note(&folder);
        assert!(told.contains("not loaded"), "{name} is gone: {told}");
        refusal(&folder);
    }
}
