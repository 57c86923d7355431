//! A namel3ss project in a workspace, with the real program: which time limit applies to its tools,
//! and that the levels of a pack are held. What its files mean is tested in `registry`.

use crate::support::drive::{Ran, run, run_with};
use crate::support::{Folder, callgate};
use serde_json::json;

/// A workspace with these files, and a home for its owner.
struct Project {
    workspace: Folder,
    home: Folder,
}

const GREET: &str =
    "def run(payload):\n    return {\"greeting\": \"Hi \" + payload.get(\"name\", \"you\")}\n";

const BINDINGS: &str = r#"tools:
  "greet someone":
    kind: "python"
    entry: "tools.greet:run"
  quick:
    kind: "python"
    entry: "tools.greet:run"
    purity: "pure"
    timeout_ms: 31500
"#;

fn project(files: &[(&str, &str)]) -> Project {
    let workspace = Folder::new();
    for (name, text) in files {
        workspace.write(name, text);
    }
    Project {
        workspace,
        home: Folder::new(),
    }
}

impl Project {
    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = callgate(&self.workspace);
        command.env("XDG_CONFIG_HOME", self.home.path()).args(args);
        command
    }

    fn go(&self, args: &[&str]) -> Ran {
        run(&mut self.command(args))
    }

    fn trusted(self) -> Self {
        self.go(&["trust"]).good();
        self
    }
}

const OWN: &str = r#"id: "own.pack"
name: "Own"
version: "stable"
description: "The project's own"
author: "us"
license: "MIT"
tools:
  - "own thing"
entrypoints:
  "own thing":
    kind: "python"
    entry: "tools.own:run"
    purity: "impure"
signer_id: "own.key"
signed_at: "not_recorded"
digest: "sha256:046cfce8ead19579bca480a44b1792f2714cbe264b04f0a88d548b983b3eef40"
"#;

/// TP-27, TP-67: which limit applies, as the trace of each call has it: the binding's, else the
/// project's default, else the 10 s of this protocol. What a host says for its own tool comes
/// with its call, and shortens.
#[test]
fn the_limit_that_applies() {
    let project = project(&[
        (".namel3ss/tools.yaml", BINDINGS),
        ("tools/greet.py", GREET),
    ])
    .trusted();
    let limit = |tool: &str| {
        let request = json!({
            "protocol_version": 1, "tool": tool, "entry": "tools.greet:run", "payload": {},
        });
        let ran = run_with(
            &mut project.command(&["tool"]),
            request.to_string().as_bytes(),
        );
        assert_eq!(ran.good().json()["ok"], true, "{tool}");
        let trace = project.go(&["trace", "--last", "--json"]).good().json();
        assert_eq!(trace["tool"], tool, "{trace}");
        trace["timeout_ms"].clone()
    };
    assert_eq!(
        (limit("greet someone"), limit("quick")),
        (json!(10_000), json!(31_500))
    );
    let settings = "[python_tools]\ntimeout_seconds = 47\n";
    project.workspace.write("namel3ss.toml", settings);
    project.go(&["trust"]).good();
    assert_eq!(
        (limit("greet someone"), limit("quick")),
        (json!(47_000), json!(31_500))
    );
}

const PROBE: &str = r#"
import errno, os, socket, subprocess

def attempt(act):
    try:
        act()
        return True
    except PermissionError:
        return False
    except ConnectionRefusedError:
        return True
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return False

def write(path):
    with open(path, "a") as file:
        file.write("x")

def run(payload):
    return {
        "network": attempt(lambda: socket.create_connection(("127.0.0.1", 9), 5)),
        "subprocess": attempt(lambda: subprocess.run(["/bin/true"], check=True)),
        "read": attempt(lambda: open("notes.txt").read()),
        "write": attempt(lambda: write("notes.txt")),
        "own": attempt(lambda: write(__file__)),
        "pack": attempt(lambda: write("packs/capability/own.pack/pack.yaml")),
        "env": "HOME" in os.environ,
    }
"#;

/// TP-31, TP-32, TP-63: each level of a pack opens what it says and nothing else, a user's
/// override closes it again, and the reply says who asked. A pack's own files stay shut.
#[test]
fn levels_of_a_pack_are_held() {
    let project = project(&[
        ("notes.txt", "notes"),
        ("packs/capability/own.pack/pack.yaml", OWN),
        ("packs/capability/own.pack/tools/own.py", PROBE),
    ]);
    let open = |file: &str, network: &str, env: &str, subprocess: &str, overrides: &str| {
        let text = format!(
            "capabilities:\n  own thing:\n    filesystem: {file}\n    network: {network}\n    \
             env: {env}\n    subprocess: {subprocess}\n"
        );
        let name = "packs/capability/own.pack/capabilities.yaml";
        project.workspace.write(name, &text);
        let overrides = format!("[capability_overrides]\n{overrides}\n");
        project.workspace.write("namel3ss.toml", &overrides);
        project.go(&["trust"]).good();
        let called = project
            .go(&["call", "own thing", "{}", "--json"])
            .good()
            .json();
        let output = called["output"].as_object().expect("an output").clone();
        let open: Vec<String> = output
            .into_iter()
            .filter_map(|(name, open)| (open == json!(true)).then_some(name))
            .collect();
        (open.join(" "), called["enforcement"]["guarantees"].clone())
    };
    let (all_shut, asked) = open("none", "none", "none", "none", "");
    assert_eq!(all_shut, "");
    assert_eq!(asked.as_object().map_or(0, serde_json::Map::len), 7);
    assert_eq!(asked["no_network"]["source"], "pack");
    assert_eq!(open("read", "none", "none", "none", "").0, "read");
    assert_eq!(open("write", "none", "none", "none", "").0, "read write");
    assert_eq!(open("none", "outbound", "none", "none", "").0, "network");
    assert_eq!(open("none", "none", "read", "none", "").0, "env");
    assert_eq!(open("none", "none", "none", "allow", "").0, "subprocess");
    let user = "\"own thing\" = { no_network = true }";
    let (closed, asked) = open("read", "outbound", "none", "none", user);
    assert_eq!(closed, "read");
    assert_eq!(asked["no_network"]["source"], "user");
    assert_eq!(asked["no_filesystem_write"]["source"], "pack");
}
