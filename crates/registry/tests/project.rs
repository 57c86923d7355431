//! A namel3ss project in a workspace: its files load as they are, count once they are trusted, and
//! every name means one tool.

use std::ffi::OsStr;

use callgate_call::{Fault, OriginSource};
use callgate_registry::candidate::Candidate;
use callgate_registry::config::RunnerConfig;
use callgate_registry::declared::Declarations;
use callgate_registry::environment::Environment;
use callgate_registry::pack::{Owner, Pack, Policy, judge, standing};
use serde_json::{Value, json};

use crate::support::calls::outcome;
use crate::support::in_process::{Folder, Opened, environment};

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
    fn environment(&self, more: &[(&str, &OsStr)]) -> Environment {
        let home = ("XDG_CONFIG_HOME", self.home.path().as_os_str());
        environment(&self.workspace, &[&[home], more].concat())
    }

    fn opened(&self) -> Opened {
        Opened::in_environment(&self.workspace, &self.environment(&[]))
    }

    fn trusted(self) -> Self {
        self.opened().trust().expect("a good project");
        self
    }

    /// The line for people that says what is in force.
    fn note(&self) -> String {
        let in_force = self.opened().parts.in_force();
        in_force.expect("the state is readable").note()
    }

    fn call(&self, tool: &str, input: &str) -> Result<Value, Fault> {
        let input = serde_json::from_str(input).expect("JSON");
        let outcome = outcome(&self.opened(), tool, &input, None);
        outcome.result.map(|output| output.json.into_value())
    }

    fn output(&self, tool: &str, input: &str) -> Value {
        let called = self.call(tool, input);
        called.unwrap_or_else(|fault| panic!("{tool}: {fault}"))
    }

    fn is_unknown(&self, tool: &str) -> bool {
        let called = self.call(tool, "{}");
        called.is_err_and(|fault| matches!(fault, Fault::UnknownTool { .. }))
    }

    /// A tool as its callers find it.
    fn shown(&self, tool: &str) -> Shown {
        shown(&self.opened(), tool)
    }

    /// The project cannot be trusted, and the reason says this.
    fn broken(&self, words: &[&str]) {
        let told = self.opened().trust().expect_err("it was trusted");
        for word in words {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
}

/// What a tool is, as far as the files of a project decide it.
#[derive(Debug)]
struct Shown {
    timeout_ms: Option<u128>,
    source: &'static str,
    entry: String,
    pack_version: Option<String>,
    runner: &'static str,
}

fn shown(opened: &Opened, name: &str) -> Shown {
    let gate = opened.gate().expect("a setup");
    let catalog = gate.catalog();
    let tool = &catalog.find(name).expect("it is there").tool;
    let origin = tool.origin.as_ref().expect("a tool of the project");
    Shown {
        timeout_ms: tool.timeout.map(|timeout| timeout.as_millis()),
        source: origin.source.as_str(),
        entry: origin.entry.clone(),
        pack_version: origin.pack.as_ref().map(|pack| pack.version.clone()),
        runner: tool.runner.kind(),
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
    assert!(project.is_unknown("greet someone"));
    let note = project.note();
    assert!(
        note.contains("the project here is not trusted yet"),
        "{note}"
    );
    let project = project.trusted();
    for name in ["greet someone", "greet_someone"] {
        assert_eq!(
            project.output(name, r#"{"name":"Ada"}"#),
            json!({ "greeting": "Hi Ada" })
        );
    }
    let shown = project.shown("quick");
    assert_eq!(shown.timeout_ms, Some(31_500));
    assert_eq!(
        (shown.source, shown.entry.as_str()),
        ("binding", "tools.greet:run")
    );
    assert_eq!(shown.pack_version, None);
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
        project.output("greet someone", "{}");
        !project.note().contains("changed since it was trusted")
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
        (shown.source, shown.pack_version.as_deref()),
        ("local_pack", Some("stable"))
    );
    let pack = Pack::read(&project.workspace.join("packs/capability/own.pack"));
    let pack = pack.expect("a pack");
    let keys = Owner::new(&project.environment(&[]))
        .read()
        .expect("keys")
        .keys;
    let standing = standing(&pack, &keys);
    assert_eq!(standing.word(), "unverified");
    assert!(standing.reason().contains("older form"));
    let (owners, none) = (Policy::default(), Policy::default());
    let local = OriginSource::LocalPack;
    assert_eq!(
        judge(&pack, local, &standing, false, &owners, &none),
        Ok(())
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
    bare.broken(&[]);
    let project = project(&files);
    project.workspace.write("namel3ss.toml", "");
    let project = project.trusted();
    for name in ["greet", "deep"] {
        assert_eq!(project.output(name, "{}"), json!({ "greeting": "Hi you" }));
    }
    for name in ["helper", "_private", "Odd-Name", "odd_name"] {
        assert!(project.is_unknown(name), "{name}");
    }
    project.workspace.write("tools/third.py", GREET);
    assert!(project.is_unknown("third"));
    project.output("greet", "{}");
    let note = project.note();
    assert!(note.contains("changed since it was trusted"), "{note}");
    project.workspace.write(".namel3ss/tools.yaml", "tools:\n");
    let project = project.trusted();
    assert!(project.is_unknown("greet"));
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
    assert_eq!(project.shown("greet someone").timeout_ms, Some(7000));
    assert_eq!(
        project.shown("quick").timeout_ms,
        Some(31_500),
        "the binding's own"
    );
    let overlay = [("N3_PYTHON_TOOL_TIMEOUT_SECONDS", OsStr::new("9"))];
    let environment = project.environment(&overlay);
    let overlaid = Opened::in_environment(&project.workspace, &environment);
    assert_eq!(shown(&overlaid, "greet someone").timeout_ms, Some(9000));
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
    let project = project.trusted();
    let shown = project.shown("in node");
    assert_eq!(shown.runner, "node");
    let source = Candidate::read(&project.opened().parts, Declarations::default());
    let source = source.expect("a project that reads");
    let runner = source.source().config.tools[0].runner.as_ref();
    assert!(
        matches!(runner, Some(RunnerConfig::Node { entry, .. }) if entry == "tools/js.mjs:run"),
        "{runner:?}"
    );
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
