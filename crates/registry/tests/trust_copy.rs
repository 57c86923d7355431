//! The copy of what was trusted last: what it consists of, which names it closes to callers, and what
//! is left of it when a pack goes.

use callgate_testing::scripts::{ONE, TOOL, folder_of};
use serde_json::json;

use crate::support::calls::{fault, outcome, output};
use crate::support::desk::Desk;
use crate::support::in_process::{Folder, Opened, trust};

/// What an owner may restrict, and one tool.
const STRICT: &str = r#"
[files]
deny = [".env"]
[exec]
off = true
[[policy]]
tools = ["memory/*"]
decision = "deny"
[leases]
enforce_from_tier = 1
"#;

/// G-9: what the copy consists of: all that the digest covers, with schemas, toolpacks, prompts
/// and a project; the tools' code is the workspace's.
#[test]
fn the_copy_is_whole() {
    let config = format!(
        "toolpacks = [\"packs.json\"]\n{ONE}[[tool]]\nname = \"two\"\ninput_schema = \"in/two.json\"\n\
         writes = [\"effects.log\"]\ncode = [\"tool.sh\"]\nrunner = {{ kind = \"process\", command = [\"/bin/sh\", \"tool.sh\"] }}\n\
         [[resource]]\nuri = \"notes://a\"\nname = \"a\"\nfile = \"a.md\"\n"
    );
    let pack = json!({
        "toolpack_id": "toolpack.test", "toolpack_version": "1", "trust_tier": "tier2_untrusted",
        "tools": [{ "aid": "AID.PACK.THREE.v1", "name": "three", "tags": ["x"],
                    "confinement": { "code": ["tool.sh"] }, "runner": { "kind": "process", "command": ["/bin/sh", "tool.sh"] } }],
    });
    let folder = folder_of(&[
        ("callgate.toml", &config),
        ("tool.sh", TOOL),
        ("packs.json", &pack.to_string()),
        ("in/two.json", r#"{"type":"object","required":["a"]}"#),
        ("a.md", "what was trusted"),
        (".namel3ss/packs/keep", ""),
        (
            "tools/four.py",
            "def run(payload):\n    return {\"four\": True}\n",
        ),
    ]);
    trust(&folder);
    let names = || {
        let gate = Opened::new(&folder).gate().expect("a setup");
        let catalog = gate.catalog();
        let names = catalog.tools().map(|tool| tool.name.clone());
        let mut own: Vec<String> = names.filter(|name| !name.contains('/')).collect();
        own.sort();
        own
    };
    let all = ["four", "one", "three", "two"];
    assert_eq!(names(), all);
    for name in [
        "callgate.toml",
        "packs.json",
        "in/two.json",
        "a.md",
        "tools/four.py",
    ] {
        std::fs::remove_file(folder.join(name)).expect("remove it");
    }
    folder.write("packs.json", "[]");
    assert_eq!(names(), all);
    assert_eq!(
        fault(&folder, "two", &json!({})),
        Some("bad_input"),
        "its schema is the copy's"
    );
    assert_eq!(
        fault(&folder, "two", &json!({ "a": 1 })),
        None,
        "its code is the workspace's"
    );
    folder.write(
        "tools/four.py",
        "def run(payload):\n    return {\"four\": 4}\n",
    );
    assert_eq!(output(&folder, "four"), json!({ "four": 4 }));
}

/// G-9, P-11: a pack that is removed, and one whose key is no longer the owner's, take along their
/// tools and not what the configuration restricts.
#[test]
fn packs_that_go_leave_the_restrictions() {
    let desk = Desk::installed();
    let denied = || {
        let input = json!({ "path": ".env" });
        let read = outcome(&desk.opened(), "files/read", &input, None).result;
        let kind = read.as_ref().err().map(|fault| fault.kind());
        assert_eq!(kind, Some("denied"), "{read:?}");
    };
    desk.workspace.write(".env", "KEY=1");
    desk.workspace.write("callgate.toml", STRICT);
    desk.opened().trust().expect("a good configuration");
    desk.runs();
    desk.untrust_key("alice");
    assert!(desk.hello().is_err());
    denied();
    std::fs::remove_file(desk.workspace.join("callgate.toml")).expect("remove it");
    denied();
    std::fs::remove_dir_all(desk.installed_file("")).expect("remove it");
    assert!(desk.hello().is_err());
    denied();
}

/// G-9c: the names that make up a configuration are closed to callers, whether or not they are
/// there, and so are their other spellings.
#[test]
fn names_of_configuration_are_closed() {
    let folder = Folder::new();
    let write = |path: &str| {
        let input = json!({ "path": path, "content": "x" });
        fault(&folder, "files/write", &input)
    };
    for path in [
        "callgate.toml",
        "namel3ss.toml",
        "./namel3ss.toml",
        "NAMEL3SS.TOML",
        "toolpack.json",
        "pack.yaml",
        ".namel3ss/tools.yaml",
        "packs/capability/a/pack.yaml",
    ] {
        let is_other_file = path.chars().any(|c| c.is_ascii_uppercase());
        let kind = write(path);
        assert!(
            kind == Some("denied") || is_other_file && kind.is_none(),
            "{path}: {kind:?}"
        );
    }
    folder.write("a", "x");
    let moved = json!({ "from": "a", "to": "namel3ss.toml" });
    assert_eq!(fault(&folder, "files/move", &moved), Some("denied"));
    assert_eq!(write("manifest.json"), None, "other things are called so");
    folder.write("pack.yaml", "");
    std::fs::remove_file(folder.join("manifest.json")).expect("remove it");
    assert_eq!(
        write("manifest.json"),
        Some("denied"),
        "it would be read before pack.yaml"
    );
    folder.write("callgate.toml", "");
    assert_eq!(write("manifest.json"), None, "it would not be read");
}
