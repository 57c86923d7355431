//! A request of the tool protocol that names a root: nothing outside of it, the read roots and the
//! interpreter with its libraries is read, by tools of every kind, and what was stopped is told.
//! TP-12, P-20.

use crate::support::drive::run_with;
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "worker"
isolation = "worker"
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "fork"
isolation = "call"
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "cold"
isolation = "cold"
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "online"
network = true
writes = ["out"]
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "process"
code = ["read.sh"]
runner = { kind = "process", command = ["/bin/sh", "read.sh"] }
"#;

const KIT: &str = r#"
import json, os, socket, ssl, subprocess, sys, tempfile, time, zoneinfo
def act(payload):
    seen = {}
    for path in payload.get("read", []):
        try:
            seen[path] = len(os.listdir(path)) if os.path.isdir(path) else len(open(path, "rb").read())
        except OSError as error:
            seen[path] = type(error).__name__
            if not payload.get("caught", True):
                raise
    for path in payload.get("write", []):
        try:
            open(path, "w").close()
        except OSError as error:
            seen[path] = type(error).__name__
    if payload.get("works"):
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
        seen["sh"] = subprocess.run(["/bin/sh", "-c", "echo ok"], capture_output=True, text=True).stdout
        seen["time"] = time.localtime().tm_year > 2000
        seen["python"] = subprocess.run([sys.executable, "-c", "import json, ssl; print(1)"], capture_output=True, text=True).stdout
        seen["certificates"] = len(ssl.create_default_context().get_ca_certs()) >= 0
    return seen
"#;

const READ: &str = "read -r input\ncat /etc/passwd >/dev/null || exit 7\necho '{}'\n";

fn workspace() -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("kit.py", KIT),
        ("read.sh", READ),
        ("in/told", "in"),
        ("out/told", "out"),
    ])
}

fn ask(folder: &Folder, tool: &str, payload: &Value, context: &Value) -> Value {
    let entry = if tool == "process" { tool } else { "kit:act" };
    let request = json!({
        "protocol_version": 1, "tool": tool, "entry": entry, "payload": payload,
        "capability_context": context,
    });
    run_with(callgate(folder).arg("tool"), request.to_string().as_bytes()).json()
}

/// Checks that say no, by what they are about.
fn denied(reply: &Value) -> Vec<String> {
    let checks = reply["capability_checks"].as_array().expect("checks");
    let denied = checks.iter().filter(|check| check["allowed"] == false);
    let words = denied.map(|check| {
        let word = |name: &str| check[name].as_str().expect("text").to_owned();
        format!("{} {}", word("capability"), word("reason"))
    });
    words.collect()
}

const SYSTEM: [&str; 4] = ["/etc/passwd", "/etc/group", "/etc", "/usr/share"];

/// TP-12, TP-21: the system's settings are read without a root and not within one; each attempt is
/// a check, though the tool caught the error and went on.
#[test]
fn the_system_is_not_read_within_a_root() {
    let folder = workspace();
    let read = json!({ "read": SYSTEM });
    for tool in ["worker", "fork", "cold", "online"] {
        let free = ask(&folder, tool, &read, &json!({}));
        let bound = ask(&folder, tool, &read, &json!({ "filesystem_root": "." }));
        for path in SYSTEM {
            assert!(free["result"][path].is_number(), "{tool} {path}: {free}");
            assert_eq!(
                bound["result"][path], "PermissionError",
                "{tool} {path}: {bound}"
            );
        }
        let every = vec!["filesystem_read guarantee_blocked".to_owned(); SYSTEM.len()];
        assert_eq!(denied(&bound), every, "{tool}: {bound}");
        assert_eq!(denied(&free), [""; 0], "{tool}: {free}");
    }
}

/// A tool that fails of it is blocked, in the protocol's words; a program's own words say it too.
#[test]
fn a_failure_within_a_root_is_a_violation() {
    let folder = workspace();
    let payload = json!({ "read": ["/etc/passwd"], "caught": false });
    let bound = json!({ "filesystem_root": "." });
    let reply = ask(&folder, "worker", &payload, &bound);
    let error = &reply["error"];
    assert_eq!(
        (&error["type"], &error["reason_code"]),
        (&json!("CapabilityViolation"), &json!("guarantee_blocked")),
        "{reply}"
    );
    assert_eq!(
        denied(&reply),
        ["filesystem_read guarantee_blocked"],
        "{reply}"
    );
    let message = error["message"].as_str().expect("text");
    assert!(
        message.contains("/etc/passwd") && message.contains("filesystem_root"),
        "{reply}"
    );
    assert_eq!(ask(&folder, "process", &json!({}), &json!({}))["ok"], true);
    let reply = ask(&folder, "process", &json!({}), &bound);
    assert_eq!(reply["ok"], false, "{reply}");
    assert_eq!(
        denied(&reply),
        ["filesystem_read guarantee_blocked"],
        "{reply}"
    );
}

/// What is inside, and what an interpreter and its children need, works as before.
#[test]
fn what_programs_need_is_there_within_a_root() {
    let folder = workspace();
    let payload = json!({ "read": ["out/told", "in/told"], "works": true });
    for tool in ["worker", "fork", "cold", "online"] {
        let reply = ask(&folder, tool, &payload, &json!({ "filesystem_root": "." }));
        let result = &reply["result"];
        assert_eq!(result["sh"], "ok\n", "{tool}: {reply}");
        assert_eq!(result["python"], "1\n", "{tool}: {reply}");
        assert_eq!(
            (&result["out/told"], &result["in/told"]),
            (&json!(3), &json!(2))
        );
        assert_eq!(denied(&reply), [""; 0], "{tool}: {reply}");
    }
    let narrow = json!({ "filesystem_root": "out" });
    let write = json!({ "read": ["in/told", "out/told"], "write": ["in/x", "out/x"] });
    let reply = ask(&folder, "online", &write, &narrow);
    let result = &reply["result"];
    assert_eq!(
        (&result["in/told"], &result["out/told"], &result["out/x"]),
        (&json!("PermissionError"), &json!(3), &Value::Null),
        "{reply}"
    );
    // EACCES or, where all else is mounted read-only, EROFS.
    assert!(result["in/x"].is_string(), "{reply}");
    let both = [
        "filesystem_read guarantee_blocked",
        "filesystem_write guarantee_blocked",
    ];
    assert_eq!(denied(&reply), both, "{reply}");
}

/// Other promises that stopped an attempt are told as well, caught or not.
#[test]
fn caught_attempts_of_other_kinds_are_told() {
    let folder = workspace();
    let payload = json!({ "write": ["out/x", "/dev/null"] });
    let reply = ask(&folder, "worker", &payload, &json!({}));
    assert_eq!(
        reply["result"],
        json!({ "out/x": "PermissionError" }),
        "{reply}"
    );
    assert_eq!(
        denied(&reply),
        ["filesystem_write guarantee_blocked"],
        "{reply}"
    );
}

/// A tool of ours has no process that could be kept within less than the workspace: a root that is
/// less is refused, and one that holds the workspace is kept.
#[test]
fn built_in_tools_are_refused_where_they_can_not_be_kept() {
    let folder = workspace();
    let read = |root: &str| {
        let request = json!({
            "protocol_version": 1, "tool": "files/read", "entry": "files/read",
            "payload": { "path": "in/told" }, "capability_context": { "filesystem_root": root },
        });
        run_with(
            callgate(&folder).arg("tool"),
            request.to_string().as_bytes(),
        )
        .json()
    };
    assert_eq!(read(".")["ok"], true, "{}", read("."));
    let reply = read("out");
    assert_eq!(reply["error"]["reason_code"], "coverage_missing", "{reply}");
    assert!(
        denied(&reply).contains(&"filesystem_read coverage_missing".to_owned()),
        "{reply}"
    );
}
