//! What tools are held to, through the real program: what replies, refusals and the chain say
//! of it, and what becomes of that where a machine has less to hold with.

use crate::support::drive::{Ran, chain, cli, run};
use crate::support::workspace::trusted_with;
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

/// A tool that answers with nothing.
fn workspace(more: &str) -> Folder {
    let config = format!(
        "[[tool]]\nname = \"one\"\n{more}\n\
         code = [\"tool.sh\"]\nrunner = {{ kind = \"process\", command = [\"/bin/sh\", \"tool.sh\"] }}\n"
    );
    let tool = "echo x >effect.log; echo '{}'\n";
    trusted_with(&[("callgate.toml", &config), ("tool.sh", tool)])
}

/// Calls it on a machine without `hidden`.
fn call(folder: &Folder, hidden: &str) -> Ran {
    let mut command = callgate(folder);
    command.env("CALLGATE_HIDE", hidden);
    run(command.args(["call", "one", "--json"]))
}

fn enforcement(ran: Ran) -> Value {
    ran.good().json()["enforcement"].clone()
}

/// The last record of this kind.
fn last(folder: &Folder, kind: &str) -> Value {
    let mut records = chain(folder).into_iter();
    records
        .rfind(|record| record["kind"] == kind)
        .expect("a record")
}

/// P-3, P-10: a tool that says nothing is held to two promises, and each says by what.
#[test]
fn a_tool_that_says_nothing() {
    let folder = workspace("");
    let held = |mechanisms: &[&str]| json!({ "level": "enforced", "mechanisms": mechanisms, "source": "engine" });
    assert_eq!(
        enforcement(call(&folder, "")),
        json!({
            "level": "enforced",
            "isolation": "cold",
            "guarantees": {
                "no_filesystem_write": held(&["landlock", "seccomp"]),
                "no_network": held(&["seccomp"]),
            },
        })
    );
    assert!(folder.read("effect.log").is_none());
    let start = last(&folder, "start");
    assert_eq!(
        (&start["enforcement"], &start["unsafe_override"]),
        (&json!("enforced"), &Value::Null)
    );
}

/// P-3, TP-33: with less to hold with, the calls that need it are refused before anything runs,
/// and the refusal says which promise and why.
#[test]
fn what_is_not_there_is_refused() {
    for (more, hidden, promise, reason) in [
        ("", "landlock", "no_filesystem_write", "Landlock"),
        ("", "seccomp", "no_network", "seccomp"),
        ("", "landlock,seccomp", "no_network", "seccomp"),
        (
            "writes = [\"effect.log\"]",
            "landlock",
            "no_filesystem_write",
            "Landlock",
        ),
        (
            "guarantees = { no_subprocess = true }",
            "seccomp",
            "no_subprocess",
            "seccomp",
        ),
        (
            "guarantees = { no_filesystem_read = true }",
            "landlock",
            "no_filesystem_read",
            "Landlock",
        ),
        (
            "guarantees = { no_env_read = true }",
            "landlock",
            "no_env_read",
            "Landlock",
        ),
        ("sandbox = \"strict\"", "netns", "no_network", "namespaces"),
        (
            "network = { allow = [\"api.example.com:443\"] }",
            "netns",
            "no_network",
            "a network namespace for `network.allow` (as root",
        ),
        (
            "network = { allow = [\"api.example.com:443\"] }",
            "seccomp",
            "no_network",
            "Unix sockets can be reached",
        ),
    ] {
        let folder = workspace(more);
        let ran = call(&folder, hidden);
        let reply = ran.json();
        assert_ne!(ran.code(), 0, "{more} {hidden}");
        let fault = &reply["fault"];
        assert_eq!(fault["kind"], "unenforceable", "{more} {hidden}: {reply}");
        let message = fault["message"].as_str().expect("words");
        assert!(
            message.contains(promise) && message.contains(reason),
            "{message}"
        );
        assert!(folder.read("effect.log").is_none(), "{more} {hidden}");
        assert_eq!(last(&folder, "refusal")["fault"], "unenforceable");
    }
}

/// P-10, TP-34: an override lets it run, and reply and chain say so; where nothing is missing
/// there is nothing to override.
#[test]
fn overrides_are_told() {
    let folder = workspace("allow_unsafe_execution = true");
    let told = enforcement(call(&folder, "landlock"));
    assert_eq!(
        (&told["level"], &told["unsafe_override"]),
        (&json!("none"), &json!(true))
    );
    assert_eq!(folder.read("effect.log").as_deref(), Some("x\n"));
    for kind in ["start", "outcome"] {
        assert_eq!(last(&folder, kind)["unsafe_override"], true, "{kind}");
    }
    let told = enforcement(call(&folder, ""));
    assert_eq!(
        (&told["level"], &told["unsafe_override"]),
        (&json!("enforced"), &Value::Null)
    );

    let folder = workspace("sandbox = false");
    let told = enforcement(call(&folder, ""));
    assert_eq!(
        (&told["level"], &told["unsafe_override"]),
        (&json!("none"), &json!(true))
    );
    assert_eq!(folder.read("effect.log").as_deref(), Some("x\n"));
    assert_eq!(last(&folder, "start")["unsafe_override"], true);
}

/// G-9b: inside a root as wide as the workspace the gate's own things need mounts; without them
/// it is told what can be changed.
#[test]
fn a_wide_root_says_what_it_leaves_open() {
    let folder = workspace("writes = [\".\"]");
    for name in [".venv", ".namel3ss", "packs"] {
        std::fs::create_dir(folder.join(name)).expect("make a folder");
    }
    let writes = |hidden: &str| enforcement(call(&folder, hidden))["writes"].clone();
    let told = writes("mountns");
    assert_eq!(told["level"], "partial");
    let missing = told["missing"].as_str().expect("words");
    assert!(missing.contains("tool.sh"), "{missing}");
    if rustix::process::geteuid().is_root() {
        assert_eq!(writes("")["level"], "enforced");
    }
}

/// `doctor` tells what each promise rests on, and what is missing.
#[test]
fn doctor_tells_what_is_enforced() {
    let folder = workspace("");
    let finding = |hidden: &str, name: &str| -> Value {
        let mut command = callgate(&folder);
        command.env("CALLGATE_HIDE", hidden);
        let told = run(command.args(["doctor", "--json"])).json();
        let mut checks = told["checks"].as_array().expect("checks").iter();
        checks
            .find(|check| check["name"] == name)
            .expect("it")
            .clone()
    };
    assert_eq!(
        finding("", "no_network"),
        json!({ "name": "no_network", "ok": true, "finding": "enforced by seccomp" })
    );
    let without = finding("landlock", "no_filesystem_write");
    assert_eq!(without["ok"], false);
    let words = without["finding"].as_str().expect("words");
    assert!(words.starts_with("none: needs Landlock"), "{words}");
    cli(&folder, &["doctor"]).good();
}

/// K-1. What passes the filter can be read without its source.
#[test]
fn doctor_lists_system_calls() {
    let folder = workspace("");
    let told = cli(&folder, &["doctor", "--syscalls", "--json"])
        .good()
        .json();
    let calls = told["syscalls"].as_array().expect("calls");
    let call = |name: &str| {
        let found = calls.iter().find(|call| call["name"] == name);
        found.expect("a known call").clone()
    };
    assert_eq!(told["others"], "ENOSYS");
    assert_eq!(call("openat")["verdicts"]["tool"], "allow");
    assert_eq!(call("connect")["verdicts"]["tool"], "EPERM");
    assert_eq!(call("connect")["verdicts"]["network"], "allow");
    assert_eq!(call("execve")["verdicts"]["no_subprocess"], "once");
    let has = |list: &Value, word: &str| list.as_array().expect("words").contains(&word.into());
    assert!(has(&call("fcntl")["commands"], "F_SETLK"));
    assert!(!has(&call("fcntl")["commands"], "F_SETLEASE"));
    assert!(has(
        &call("ioctl")["commands_with_writes"],
        "FS_IOC_SETFLAGS"
    ));
    let table = cli(&folder, &["doctor", "--syscalls"]).good().out;
    assert!(table.contains("F_DUPFD_CLOEXEC") && table.contains("ENOSYS"));
}
