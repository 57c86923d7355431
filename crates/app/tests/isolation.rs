//! What keeps one call of a tool from the next, as the configuration says it.

use crate::support::drive::cli;
use crate::support::workspace::trusted_with;

const TOOL: &str = r#"
import os, sys
calls = 0

def count(payload):
    global calls
    calls += 1
    return calls

def leave(payload):
    sys.exit(payload["code"])

def loaded(payload):
    return sorted(name for name in payload["names"] if name in sys.modules)
"#;

fn tool(name: &str, more: &str) -> String {
    let function = name.split('_').next().expect("a name");
    format!(
        "[[tool]]\nname = \"{name}\"\n{}\nrunner = {{ kind = \"python\", entry = \"t:{function}\"{} }}\n",
        more.split('|').next().unwrap_or_default(),
        more.split('|').nth(1).unwrap_or_default(),
    )
}

/// T-12: where the state takes no files, the worker comes as text, and forks as well.
#[test]
fn a_zygote_needs_no_file_of_ours() {
    let config = tool("count_call", "isolation = \"call\"");
    let folder = trusted_with(&[("callgate.toml", &config), ("t.py", TOOL)]);
    let counted = || {
        let ran = cli(&folder, &["call", "count_call", "--json"]).good();
        assert_eq!(ran.json()["output"], 1, "{}", ran.out);
    };
    counted();
    let entries = std::fs::read_dir(folder.join("state")).expect("the state");
    let package = entries
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("python-"))
        .expect("the package was laid out")
        .path();
    std::fs::remove_dir_all(&package).expect("it is ours");
    // Its place is taken.
    std::fs::write(&package, "").expect("write a file");
    counted();
    assert!(package.is_file());
}
