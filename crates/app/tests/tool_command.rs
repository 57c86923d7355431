//! `callgate tool`: the owner's own command for one request, under the same gate as all others.

use crate::support::drive::{Ran, chain, cli, python, run_with, verified};
use crate::support::workspace::{effects, folder_of, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

fn tool(folder: &Folder, request: &Value) -> Ran {
    run_with(callgate(folder).arg("tool"), request.to_string().as_bytes())
}

fn request(name: &str, entry: &str, payload: &Value) -> Value {
    json!({ "protocol_version": 1, "tool": name, "entry": entry, "payload": payload })
}

const NOTE: &str = r#"
import os, sys
def note(payload):
    with open("effects.log", "a") as effects:
        effects.write("x\n")
    return {"noted": payload}
def where(payload):
    return {"prefix": sys.prefix, "cwd": os.getcwd()}
"#;

const CONFIG: &str = r#"
[leases]
enforce_from_tier = 2
[[policy]]
tools = ["entry/secret/*"]
decision = "deny"
[[tool]]
name = "note"
tier = 1
writes = ["."]
runner = { kind = "python", entry = "notes:note" }
[[tool]]
name = "risky"
tier = 2
writes = ["."]
runner = { kind = "python", entry = "notes:note" }
"#;

/// G-3: one key, one run, whatever the entry; a key of one function is no key of another.
#[test]
fn keys_and_leases() {
    let folder = trusted_with(&[("callgate.toml", CONFIG), ("notes.py", NOTE)]);
    let mut asked = request("note", "notes:note", &json!({ "n": 1 }));
    asked["callgate/idempotencyKey"] = json!("k");
    for replayed in [false, true] {
        let reply = tool(&folder, &asked).good().json();
        assert_eq!(reply["result"], json!({ "noted": { "n": 1 } }));
        assert_eq!(
            reply["callgate/call"]["replayed"] == true,
            replayed,
            "{reply}"
        );
    }
    assert_eq!(effects(&folder), 1);
    asked["entry"] = json!("notes:where");
    let reply = tool(&folder, &asked).good().json();
    assert_eq!(reply["error"]["type"], "ConflictError", "{reply}");

    let mut risky = request("risky", "notes:note", &json!({}));
    let reply = tool(&folder, &risky).good().json();
    assert_eq!(reply["error"]["reason_code"], "lease_required", "{reply}");
    let lease = cli(&folder, &["lease", "grant", "risky", "--json"])
        .good()
        .json();
    risky["callgate/leaseToken"] = lease["token"].clone();
    assert_eq!(tool(&folder, &risky).good().json()["ok"], true);
    let reply = tool(&folder, &risky).good().json();
    assert_eq!(reply["error"]["reason_code"], "lease_rejected", "{reply}");
    assert_eq!(effects(&folder), 2);
    verified(&folder);
}

/// The command is the owner's own: an entry named on it needs no trusted configuration, and
/// policy still has a say.
#[test]
fn entries_of_the_workspace() {
    let folder = folder_of(&[
        ("callgate.toml", CONFIG),
        ("notes.py", NOTE),
        ("secret.py", NOTE),
    ]);
    let call = |entry: &str| {
        tool(&folder, &request("x", entry, &json!({})))
            .good()
            .json()
    };
    let reply = call("notes:where");
    assert_eq!(reply["ok"], true, "no rule denies it: {reply}");
    let reply = call("secret:where");
    assert_eq!(
        reply["error"]["reason_code"], "policy_denied",
        "rules count before the file is trusted: {reply}"
    );
    cli(&folder, &["trust"]).good();
    let reply = call("secret:where");
    assert_eq!(reply["error"]["reason_code"], "policy_denied", "{reply}");
    let reply = call("notes:where");
    assert_eq!(reply["result"]["cwd"], folder.path().display().to_string());
    let names: Vec<Value> = chain(&folder)
        .iter()
        .filter(|record| record["kind"] == "start")
        .map(|record| json!([record["tool"], record["wire"]]))
        .collect();
    let wanted = ["entry/notes/where", "entry/notes/where"].map(|name| json!([name, "tool"]));
    assert_eq!(names, wanted);
}

/// `.venv` first, then what `[service] python` names, then the system's.
#[test]
fn interpreters() {
    let folder = folder_of(&[("notes.py", NOTE)]);
    let prefix = |folder: &Folder| {
        let reply = tool(folder, &request("x", "notes:where", &json!({})))
            .good()
            .json();
        reply["result"]["prefix"]
            .as_str()
            .expect("a prefix")
            .to_owned()
    };
    let system = prefix(&folder);
    let venv = |name: &str| {
        let mut command = std::process::Command::new(python());
        let made = command
            .args(["-m", "venv", "--without-pip", name])
            .current_dir(folder.path())
            .status();
        assert!(made.expect("python starts").success());
        folder.join(name).display().to_string()
    };
    let configured = venv("other");
    let config = format!("[service]\npython = \"{configured}/bin/python3\"\n");
    folder.write("callgate.toml", &config);
    assert_eq!(
        prefix(&folder),
        system,
        "what is not trusted does not count"
    );
    cli(&folder, &["trust"]).good();
    assert_eq!(prefix(&folder), configured);
    assert_eq!(prefix(&folder), prefix(&folder));
    let own = venv(".venv");
    assert_eq!(prefix(&folder), own);
}

/// TP-24, TP-2: what can not be carried out at all is told, with exit 1.
#[test]
fn nothing_carried_out() {
    let folder = folder_of(&[("notes.py", NOTE)]);
    folder.write("state", "not a folder");
    let ran = tool(&folder, &request("x", "notes:where", &json!({})));
    assert_eq!(
        (ran.code(), &ran.json()["error"]["type"]),
        (1, &json!("RuntimeError"))
    );
    let large = vec![b' '; 16 * 1024 * 1024 + 1];
    let ran = run_with(callgate(&folder).arg("tool"), &large);
    assert_eq!(
        (ran.code(), &ran.json()["error"]["type"]),
        (1, &json!("ValueError"))
    );
    let ran = cli(&folder, &["tool", "--no-such-flag"]);
    assert_eq!((ran.code(), ran.out.as_str()), (2, ""));
}
