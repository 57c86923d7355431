//! Variables that configuration refers to and nobody set: commands that run no tool work without
//! them, and so do built-in tools without those of other tools. Decision G-15.

use std::collections::BTreeSet;

use crate::support::Folder;
use crate::support::callgate;
use crate::support::drive::{cli, run};
use crate::support::workspace::{TOOL, folder_of};

const UNSET: &str = "CALLGATE_TEST_UNSET";

/// Every place where a tool refers to a variable.
const TOOLS: &str = r#"
[[policy]]
tools = ["one"]
decision = "ask"
[runs.webhook]
url = "http://127.0.0.1:9/runs"
secret_env = "CALLGATE_TEST_UNSET"
[planner]
command = ["/bin/sh", "tool.sh"]
code = ["tool.sh"]
env = { A = "${CALLGATE_TEST_UNSET}" }
[[tool]]
name = "one"
tier = 1
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"], env = { A = "${CALLGATE_TEST_UNSET}" } }
[[tool]]
name = "pooled"
runner = { kind = "pool", command = ["/bin/cat"], env = { A = "${CALLGATE_TEST_UNSET}" } }
[[tool]]
name = "near"
runner = { kind = "python", entry = "near:f", env = { A = "${CALLGATE_TEST_UNSET}" } }
[[tool]]
name = "script"
runner = { kind = "node", entry = "tools/t.mjs:f", env = { A = "${CALLGATE_TEST_UNSET}" } }
[[tool]]
name = "far"
runner = { kind = "service", url = "http://127.0.0.1:9/tools", token_env = "CALLGATE_TEST_UNSET" }
[[tool]]
name = "boxed"
runner = { kind = "container", image = "none", command = ["true"], mode = "oneshot", env = { A = "${CALLGATE_TEST_UNSET}" } }
"#;

/// A workspace that was trusted while the variable was set, and an approval that waits.
fn workspace(more: &str) -> (Folder, String) {
    let config = format!("{TOOLS}{more}");
    let folder = folder_of(&[
        ("callgate.toml", &config),
        ("tool.sh", TOOL),
        ("near.py", "def f(payload):\n    return payload\n"),
        ("tools/t.mjs", "export const f = (input) => input;\n"),
    ]);
    let set = |args: &[&str]| run(callgate(&folder).args(args).env(UNSET, "set"));
    set(&["trust"]).good();
    let asked = set(&["--json", "call", "one", "{}"]).json();
    let id = asked["fault"]["data"]["approval"]
        .as_str()
        .unwrap_or_else(|| panic!("{asked}"));
    let id = id.to_owned();
    (folder, id)
}

/// G-15: whatever runs no tool works, also where built-in tools lack a variable of theirs.
#[test]
fn commands_that_run_no_tool_need_no_variables() {
    let chroma = "[search]\nstore = \"chroma\"\nurl = \"http://127.0.0.1:9\"\ntoken_env = \"CALLGATE_TEST_UNSET\"\n";
    let (folder, id) = workspace(chroma);
    let good = |args: &[&str]| cli(&folder, args).good();
    good(&["approvals"]);
    good(&["approvals", "show", &id]);
    good(&["approvals", "deny", &id]);
    let token = good(&["lease", "grant", "one"]).out;
    good(&["lease", "list"]);
    good(&["lease", "revoke", token.trim()]);
    for tool in ["one", "pooled", "near", "script", "far", "boxed"] {
        good(&["lease", "grant", tool]);
        good(&["tools", "show", tool]);
    }
    good(&["tools"]);
    good(&["bridge-config"]);
    good(&["token", "list"]);
    good(&["audit", "verify"]);
    good(&["trace", "--last"]);
    good(&["runs"]);
    good(&["artifacts"]);
    good(&["plan"]);
    good(&["toolhost", "--list", "."]);
    // What would run a tool still says what is missing.
    for args in [
        &["call", "one", "{}"][..],
        &["toolhost", "--run", ".", "AID.TOOL.ONE.v1"],
    ] {
        let refused = cli(&folder, args);
        assert_ne!(refused.code(), 0, "{args:?}");
        let said = format!("{}{}", refused.out, refused.err);
        assert!(
            said.contains("`CALLGATE_TEST_UNSET` is not set"),
            "{args:?}: {said}"
        );
    }
}

/// G-15: commands that run built-in tools need no variables of other tools.
#[test]
fn built_in_tools_need_no_variables_of_others() {
    let (folder, _) = workspace("");
    folder.write("notes.md", "# Needles\n\nA needle in a haystack.\n");
    cli(&folder, &["index"]).good();
    let found = cli(&folder, &["search", "needle"]).good();
    assert!(found.out.contains("notes.md"), "{}", found.out);
    cli(&folder, &["plan", "ls"]).good();
    let missing = cli(&folder, &["plan", "done", "p1", "t1"]);
    assert!(!missing.err.contains("is not set"), "{}", missing.err);
}

/// A new command is in one of these lists: it may run any tool and so needs what tools refer to, or
/// it does not and is tested above, or it has nothing to do with the configuration of tools.
#[test]
fn every_command_is_of_a_kind() {
    let any_tool = [
        "serve",
        "mcp",
        "rpc",
        "call",
        "run",
        "pilot",
        "replay",
        "toolhost",
        "tool_exec",
        "tool",
        "trust",
        "doctor",
        "term",
        "machina",
        "import",
        "add",
        "remove",
        "servers",
    ];
    let no_tool = [
        "approvals",
        "lease",
        "tools",
        "bridge-config",
        "token",
        "audit",
        "trace",
        "runs",
        "artifacts",
        "plan",
        "index",
        "search",
    ];
    let no_configuration = [
        "model",
        "pack",
        "bridge",
        "completions",
        "help",
        "describe",
        "restore",
        "secrets",
    ];
    let known: BTreeSet<&str> = any_tool
        .into_iter()
        .chain(no_tool)
        .chain(no_configuration)
        .collect();
    let help = cli(&Folder::new(), &["--help"]).good().out;
    let (_, commands) = help.split_once("Commands:").expect("commands");
    let names = commands.lines().skip(1).map_while(|line| {
        let name = line.strip_prefix("  ")?;
        Some(name.split(' ').next().unwrap_or_default())
    });
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(known.contains(name), "{name}: does it run a tool?");
    }
}
