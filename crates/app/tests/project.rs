//! A namel3ss project in a workspace, with the real program: its files load as they are, count
//! once they are trusted, and every name means one tool.

use crate::support::drive::{Ran, run, run_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

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

    fn output(&self, tool: &str, input: &str) -> Value {
        self.go(&["call", tool, input]).good().json()
    }

    fn shown(&self, tool: &str) -> Value {
        self.go(&["tools", "show", tool]).good().json()
    }

    /// `trust` fails, and says this.
    fn broken(&self, words: &[&str]) {
        let told = self.go(&["trust"]);
        assert_eq!(told.code(), 1, "{told:?}");
        for word in words {
            assert!(told.err.contains(word), "{word}: {}", told.err);
        }
    }
}

/// TP-59, TP-60: bindings are tools by their plain names and by their slugs, with
/// no callgate.toml at all.
#[test]
fn bindings_are_tools() {
    let project = project(&[
        (".namel3ss/tools.yaml", BINDINGS),
        ("tools/greet.py", GREET),
    ]);
    let told = project.go(&["call", "greet someone", "{}"]);
    assert!(
        told.code() == 1 && told.err.contains("the project here is not trusted yet"),
        "{told:?}"
    );
    let project = project.trusted();
    for name in ["greet someone", "greet_someone"] {
        assert_eq!(
            project.output(name, r#"{"name":"Ada"}"#),
            json!({ "greeting": "Hi Ada" })
        );
    }
    let shown = project.shown("quick");
    assert_eq!(shown["timeout_ms"], 31_500);
    assert_eq!(
        (&shown["resolved_source"], &shown["entry"]),
        (&json!("binding"), &json!("tools.greet:run"))
    );
    assert_eq!(shown["pack"], Value::Null);
}

/// G-9: the trust covers what a project consists of, and nothing that it does not.
#[test]
fn trust_covers_the_project() {
    let project = project(&[
        ("callgate.toml", ""),
        ("namel3ss.toml", "[ai]\nprovider = \"x\"\n"),
        (".namel3ss/tools.yaml", BINDINGS),
        ("tools/greet.py", GREET),
        ("packs/capability/own.pack/pack.yaml", OWN),
        ("packs/capability/own.pack/tools/own.py", GREET),
    ])
    .trusted();
    // What changed is not what counts: the copy of what was trusted does.
    let counts = || {
        let told = project.go(&["call", "greet someone", "{}"]).good();
        !told.err.contains("changed since it was trusted")
    };
    assert!(counts());
    for name in [
        "callgate.toml",
        "namel3ss.toml",
        ".namel3ss/tools.yaml",
        "packs/capability/own.pack/pack.yaml",
        "packs/capability/own.pack/tools/own.py",
    ] {
        let text = project.workspace.read(name).expect("a file of the project");
        project.workspace.write(name, &format!("{text}\n# more\n"));
        assert!(!counts(), "{name}");
        project.workspace.write(name, &text);
        assert!(counts(), "{name}");
    }
    project
        .workspace
        .write(".namel3ss/trust/policy.toml", "max_risk = \"high\"\n");
    assert!(!counts(), "a policy appeared");
    std::fs::remove_file(project.workspace.join(".namel3ss/trust/policy.toml")).expect("remove it");
    project.workspace.write("notes.txt", "not of the project");
    assert!(counts());
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

/// P-11, TP-61: a pack in the older form, entry points and signature in its manifest, loads as
/// a part of the project and is listed as unverified. Its modules come before the project's of
/// the same name.
#[test]
fn packs_of_the_older_form_load() {
    let project = project(&[
        (
            "tools/own.py",
            "def run(payload):\n    return {\"from\": \"project\"}\n",
        ),
        ("packs/capability/own.pack/pack.yaml", OWN),
        (
            "packs/capability/own.pack/tools/own.py",
            "def run(payload):\n    return {\"from\": \"pack\"}\n",
        ),
        (
            "packs/capability/own.pack/signature.txt",
            "hmac-sha256:00\n",
        ),
        ("packs/capability/own.pack/intent.md", "What it is for\n"),
    ])
    .trusted();
    assert_eq!(project.output("own thing", "{}"), json!({ "from": "pack" }));
    let shown = project.shown("own.pack/own_thing");
    assert_eq!(
        (&shown["resolved_source"], &shown["pack"]["version"]),
        (&json!("local_pack"), &json!("stable"))
    );
    let listed = project.go(&["pack", "list", "--json"]).good().json();
    let pack = &listed["packs"][0];
    assert_eq!(
        (&pack["standing"], &pack["use"]),
        (&json!("unverified"), &json!("enabled"))
    );
    assert!(
        pack["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("older form"))
    );
}

/// TP-59: without a bindings file, `tools/NAME.py` with `run` is the tool NAME; with one, only
/// what it names is. Outside a project such a folder means nothing.
#[test]
fn tools_are_found_by_their_files() {
    let files = [
        ("tools/greet.py", GREET),
        ("tools/deep/__init__.py", GREET),
        ("tools/helper.py", "def other():\n    pass\n"),
        ("tools/_private.py", GREET),
        ("tools/Odd-Name.py", GREET),
    ];
    let bare = project(&files);
    assert_eq!(bare.go(&["trust"]).code(), 1);
    let project = project(&files);
    project.workspace.write("namel3ss.toml", "");
    let project = project.trusted();
    for name in ["greet", "deep"] {
        assert_eq!(project.output(name, "{}"), json!({ "greeting": "Hi you" }));
    }
    for name in ["helper", "_private", "Odd-Name", "odd_name"] {
        assert_eq!(project.go(&["call", name, "{}"]).code(), 1, "{name}");
    }
    project.workspace.write("tools/third.py", GREET);
    assert_eq!(project.go(&["call", "third", "{}"]).code(), 1);
    let told = project.go(&["call", "greet", "{}"]).good();
    assert!(
        told.err.contains("changed since it was trusted"),
        "{told:?}"
    );
    project.workspace.write(".namel3ss/tools.yaml", "tools:\n");
    let project = project.trusted();
    assert_eq!(project.go(&["call", "greet", "{}"]).code(), 1);
}

/// TP-27, TP-64: what `namel3ss.toml` and the environment say, and what is wrong in any file,
/// with its place.
#[test]
fn settings_and_slips() {
    let settings = "[python_tools]\ntimeout_seconds = 7\n[capability_overrides]\n\"greet someone\" = { no_network = true }\n";
    let project = project(&[
        ("namel3ss.toml", settings),
        (".namel3ss/tools.yaml", BINDINGS),
        ("tools/greet.py", GREET),
    ])
    .trusted();
    assert_eq!(project.shown("greet someone")["timeout_ms"], 7000);
    assert_eq!(
        project.shown("quick")["timeout_ms"],
        31_500,
        "the binding's own"
    );
    let overlaid = run(project
        .command(&["tools", "show", "greet someone"])
        .env("N3_PYTHON_TOOL_TIMEOUT_SECONDS", "9"));
    assert_eq!(overlaid.good().json()["timeout_ms"], 9000);
    for (file, text, words) in [
        (
            "namel3ss.toml",
            "[capability_overrides]\n\"greet sone\" = { no_network = true }\n",
            &["unknown_tool", "did you mean"][..],
        ),
        (
            "namel3ss.toml",
            "[capability_overrides]\nquick = { no_netwrk = true }\n",
            &["did you mean `no_network`?"],
        ),
        (
            "namel3ss.toml",
            "[tool_packs]\nenabled_packs = [\"gone\"]\n",
            &["pack_unavailable_or_unverified", "gone"],
        ),
        (
            "namel3ss.toml",
            "[tool_packs]\npinned_tools = { quick = \"gone\" }\n",
            &["pack_pin_missing", "gone"],
        ),
        (".namel3ss/tools.yaml", "", &["line 1, column 1", "empty"]),
        (
            ".namel3ss/tools.yaml",
            "tools:\n  a:\n    kind: python\n    entry: os:system\n",
            &["binding_error", "tools.MODULE:FUNCTION"],
        ),
        (
            ".namel3ss/tools.yaml",
            "tools:\n  a:\n    kind: python\n    entry: tools.gone:run\n",
            &["binding_error", "there is no tools/gone.py"],
        ),
        (
            ".namel3ss/tools.yaml",
            "tools:\n  a:\n    kind: python\n    entry: tools.greet:run\n    runner: cloud\n",
            &["line 5, column 13", "local, service, container"],
        ),
        (
            ".namel3ss/trust/policy.toml",
            "max_risk = \"huge\"\n",
            &["max_risk: `huge`"],
        ),
        (
            "packs/capability/own.pack/pack.yaml",
            &OWN.replace("license: \"MIT\"\n", ""),
            &["pack.yaml: line 1", "`license` is missing"],
        ),
        (
            "packs/capability/own.pack/pack.yaml",
            &OWN.replace("own.pack", "other"),
            &["its id is other"],
        ),
        (
            "packs/capability/own.pack/pack.yaml",
            &OWN.replace("tools.own:run", "tools.gone:run"),
            &["no tools/gone.py"],
        ),
    ] {
        let before = project.workspace.read(file);
        project
            .workspace
            .write("packs/capability/own.pack/tools/own.py", GREET);
        if !file.starts_with("packs") {
            project
                .workspace
                .write("packs/capability/own.pack/pack.yaml", OWN);
        }
        project.workspace.write(file, text);
        project.broken(words);
        match before {
            Some(before) => drop(project.workspace.write(file, &before)),
            None => std::fs::remove_file(project.workspace.join(file)).expect("remove it"),
        }
        std::fs::remove_dir_all(project.workspace.join("packs")).expect("remove it");
    }
    project.trusted();
}

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

/// TP-60, TP-62: a Node binding names a module, and what runs is its file. Services and
/// containers are listed with what they name.
#[test]
fn other_runners_are_chosen_at_load() {
    let bindings = "tools:\n  \"in node\":\n    kind: node\n    entry: tools.js:run\n";
    let project = project(&[(".namel3ss/tools.yaml", bindings)]);
    project.broken(&["binding_error", "there is no tools/js.mjs"]);
    project
        .workspace
        .write("tools/js.mjs", "export function run() { return {}; }\n");
    let shown = project.go(&["trust"]).good();
    assert!(shown.out.contains("tools/js.mjs:run"), "{shown:?}");
    assert_eq!(project.shown("in node")["runner"], "node");
}

/// TP-64: a name that is bound and packed, and one of two packs without a pin, are errors; a
/// pin decides, and the other keeps its long name. A pack that is disabled is not read.
#[test]
fn a_name_means_one_tool() {
    let other = OWN.replace("own.pack", "other.pack");
    let project = project(&[
        ("packs/capability/own.pack/pack.yaml", OWN),
        (
            "packs/capability/own.pack/tools/own.py",
            "def run(payload):\n    return {\"from\": \"own\"}\n",
        ),
        ("packs/capability/other.pack/pack.yaml", &other),
        (
            "packs/capability/other.pack/tools/own.py",
            "def run(payload):\n    return {\"from\": \"other\"}\n",
        ),
    ]);
    project.broken(&[
        "pack_collision",
        "`own thing`",
        "other.pack and of own.pack",
        "pinned_tools",
    ]);
    project.workspace.write(
        "namel3ss.toml",
        "[tool_packs]\npinned_tools = { \"own thing\" = \"own.pack\" }\n",
    );
    let project = project.trusted();
    assert_eq!(project.output("own thing", "{}"), json!({ "from": "own" }));
    assert_eq!(
        project.output("other.pack/own_thing", "{}"),
        json!({ "from": "other" })
    );
    project
        .workspace
        .write("packs/capability/other.pack/pack.yaml", "broken");
    project.broken(&["other.pack: pack.yaml: line 1"]);
    project.workspace.write(
        "namel3ss.toml",
        "[tool_packs]\ndisabled_packs = [\"other.pack\"]\n",
    );
    let project = project.trusted();
    assert_eq!(project.output("own thing", "{}"), json!({ "from": "own" }));
    let binding = "tools:\n  \"own thing\":\n    kind: python\n    entry: tools.greet:run\n";
    project.workspace.write("tools/greet.py", GREET);
    project.workspace.write(".namel3ss/tools.yaml", binding);
    project.broken(&["pack_collision", "is bound, and is a tool of pack own.pack"]);
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
