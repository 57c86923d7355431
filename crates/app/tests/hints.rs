//! A failure that confinement caused says so: it names what was refused and the line of
//! configuration that allows it, and that line does. What a program merely prints is not believed.
//! G-19.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use crate::support::bridge::Frames;
use crate::support::drive::{Host, Serve, cli, run, run_with};
use crate::support::mcp::{initialize, legacy_call, mcp, modern_call};
use crate::support::workspace::{folder_of, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Value, json};

/// One run of `exec/run`, as the gate's own wire tells it.
fn exec(folder: &Folder, input: &Value) -> Value {
    cli(folder, &["call", "exec/run", &input.to_string(), "--json"]).json()
}

fn shell(folder: &Folder, script: &str) -> Value {
    exec(folder, &json!({ "command": script, "shell": true }))
}

/// A folder beside the workspace with something to read.
fn outside() -> (Folder, String) {
    let outside = folder_of(&[("data.txt", "from outside\n")]);
    let path = outside
        .join("data.txt")
        .canonicalize()
        .expect("it is there");
    (outside, path.to_str().expect("text").to_owned())
}

/// `[exec] reads = […]` as a configuration.
fn config_of(setting: &str) -> String {
    setting.replacen("] ", "]\n", 1) + "\n"
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// R-9: a program that dies of a refused read says which line allows it, in the only text that its
/// result has, and that line allows it.
#[test]
fn a_refused_read_names_the_line_that_allows_it() {
    let folder = Folder::new();
    let (_outside, path) = outside();
    let cat = json!({ "command": "cat", "args": [path] });
    let told = exec(&folder, &cat);
    assert_eq!(told["output"]["exit_code"], 1, "{told}");
    let hint = &told["hint"];
    assert_eq!(
        (&hint["refused"], &hint["path"]),
        (&json!("read"), &json!(path))
    );
    let setting = text(&hint["setting"]);
    assert_eq!(setting, format!("[exec] reads = [\"{path}\"]"));
    let stderr = text(&told["output"]["stderr"]);
    let last = stderr.lines().last().expect("a line");
    assert!(
        last.starts_with("[callgate: ") && last.contains(setting),
        "{stderr}"
    );
    folder.write("callgate.toml", &config_of(setting));
    cli(&folder, &["trust"]).good();
    let told = exec(&folder, &cat);
    assert_eq!(told["output"]["stdout"], "from outside\n", "{told}");
    assert_eq!(told["hint"], Value::Null, "{told}");
}

/// The program that is named is not always the one that is refused: behind `.venv/bin/pip` it is
/// the interpreter that the environment was made from, and what stands beside that.
#[test]
fn an_environment_names_the_installation_it_was_made_from() {
    let folder = Folder::new();
    let prefix = folder_of(&[("bin/.keep", ""), ("lib/.keep", "")]);
    let root = prefix.path().canonicalize().expect("it is there");
    let root = root.to_str().expect("text");
    let interpreter = prefix.join("bin/python3");
    std::fs::copy("/bin/sh", &interpreter).expect("copy a program");
    folder.write(".venv/bin/.keep", "");
    symlink(&interpreter, folder.join(".venv/bin/python3")).expect("link");
    let python = folder.join(".venv/bin/python3");
    let script = format!("#!{}\necho it runs\n", python.display());
    folder.executable(".venv/bin/pip", &script);
    for asked in [
        json!({ "command": ".venv/bin/pip" }),
        json!({ "command": ".venv/bin/pip list", "shell": true }),
        json!({ "command": ".venv/bin/python3", "args": ["-V"] }),
    ] {
        let told = exec(&folder, &asked);
        let hint = &told["hint"];
        assert_eq!(hint["refused"], "execute", "{told}");
        assert_eq!(hint["path"], format!("{root}/bin/python3"), "{told}");
        assert_eq!(hint["setting"], format!("[exec] reads = [\"{root}\"]"));
    }
    folder.write("callgate.toml", &format!("[exec]\nreads = [\"{root}\"]\n"));
    cli(&folder, &["trust"]).good();
    let told = exec(&folder, &json!({ "command": ".venv/bin/pip" }));
    assert_eq!(told["output"]["stdout"], "it runs\n", "{told}");
}

/// Of the owner's home a program sees nothing, so the answer goes by the name alone: it is the same
/// whether anything is there, and the line that it names opens what is.
#[test]
fn the_owners_home_is_named_and_not_looked_at() {
    let home = folder_of(&[("notes/a.txt", "from home\n"), ("bin/.keep", "")]);
    let root = home.path().canonicalize().expect("it is there");
    let folder = Folder::new();
    let at_home = |input: &Value| {
        let mut command = callgate(&folder);
        let args = ["call", "exec/run", &input.to_string(), "--json"];
        run(command.env("HOME", &root).args(args)).json()
    };
    let cat = |name: &str| {
        let path = root.join(name);
        (at_home(&json!({ "command": "cat", "args": [path] })), path)
    };
    let names: &[&str] = match namespaces() {
        true => &["notes/a.txt", "notes/gone.txt"],
        false => &["notes/a.txt"],
    };
    for name in names {
        let (told, path) = cat(name);
        let line = format!("[exec] reads = [\"{}\"]", path.display());
        assert_eq!(told["hint"]["setting"], line, "{told}");
    }
    std::fs::copy("/bin/sh", home.join("bin/python3")).expect("copy a program");
    folder.write(".venv/bin/.keep", "");
    symlink(root.join("bin/python3"), folder.join(".venv/bin/python3")).expect("link");
    let told = at_home(&json!({ "command": ".venv/bin/python3", "args": ["-c", "echo ok"] }));
    let line = format!("[exec] reads = [\"{}/bin\"]", root.display());
    assert_eq!(told["hint"]["setting"], line, "{told}");
    folder.write(
        "callgate.toml",
        "[exec]\nreads = [\"~/notes\", \"~/bin\"]\n",
    );
    let mut trust = callgate(&folder);
    run(trust.env("HOME", &root).arg("trust")).good();
    assert_eq!(cat("notes/a.txt").0["output"]["stdout"], "from home\n");
    let told = at_home(&json!({ "command": ".venv/bin/python3", "args": ["-c", "echo ok"] }));
    assert_eq!(told["output"]["stdout"], "ok\n", "{told}");
}

/// What a program prints is no ground for a hint: the path must be there for the program to see,
/// and refused by its plan.
#[test]
fn what_is_only_printed_is_not_believed() {
    let folder = Folder::new();
    let (outside, path) = outside();
    let says = |words: &str| shell(&folder, &format!("echo '{words}' >&2; exit 1"));
    assert_eq!(
        says(&format!("{path}: Permission denied"))["hint"]["path"],
        path
    );
    for words in [
        // It is not there.
        format!("{path}.gone/x: Permission denied"),
        // It can be read.
        "/usr/bin/env: Permission denied".to_owned(),
        // Nothing was refused.
        path.clone(),
        // The gate's own.
        format!(
            "{}: Permission denied",
            folder.join("state/journal.lock").display()
        ),
    ] {
        let told = says(&words);
        assert_eq!(told["hint"], Value::Null, "{words}: {told}");
        assert_eq!(told["output"]["stderr"], format!("{words}\n"), "{told}");
    }
    // A success has none, whatever it prints.
    let told = shell(&folder, &format!("echo '{path}: Permission denied' >&2"));
    assert_eq!(told["hint"], Value::Null, "{told}");
    if namespaces() {
        // Of folders that a program does not see, the answer is the same whatever is in them.
        let folder = trusted_with(&[("callgate.toml", "[exec]\nipc = true\n")]);
        for path in [path.clone(), format!("{path}.gone")] {
            let told = shell(
                &folder,
                &format!("echo '{path}: Permission denied' >&2; exit 1"),
            );
            let line = format!("[exec] reads = [\"{path}\"]");
            assert_eq!(told["hint"]["setting"], line, "{told}");
        }
    }
    if rustix::process::geteuid().is_root() {
        // What its user could not see must not be found out by a hint: the gate could.
        let closed = outside.join("closed");
        std::fs::create_dir(&closed).expect("make a folder");
        std::fs::write(closed.join("x"), "").expect("write a file");
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&closed, mode).expect("close it");
        rustix::fs::chown(
            &closed,
            Some(rustix::fs::Uid::from_raw(64_123)),
            Some(rustix::fs::Gid::from_raw(64_123)),
        )
        .expect("give it away");
        for name in ["x", "gone"] {
            let told = says(&format!("{}/{name}: Permission denied", closed.display()));
            assert_eq!(told["hint"], Value::Null, "{name}: {told}");
        }
    }
}

/// What may hold credentials, and whole homes, are named and not asked for.
#[test]
fn credentials_are_not_asked_for() {
    let folder = Folder::new();
    let outside = folder_of(&[(".ssh/id_ed25519", "secret")]);
    let key = outside
        .join(".ssh/id_ed25519")
        .canonicalize()
        .expect("there");
    let told = exec(&folder, &json!({ "command": "cat", "args": [key] }));
    let hint = &told["hint"];
    assert_eq!(hint["path"], key.to_str().expect("text"), "{told}");
    assert_eq!(hint["setting"], Value::Null, "{told}");
    assert!(text(&hint["message"]).contains("credentials"), "{told}");
}

const FETCH: &str = r#"
import os, urllib.error, urllib.request
def fetch(payload):
    try:
        urllib.request.urlopen(payload["url"], timeout=10).read()
    except urllib.error.HTTPError as error:
        if payload.get("caught"):
            return {"status": error.code, "proxy": error.headers.get("Proxy-Status")}
        raise
"#;

/// A refused host is the gate's rule and not the server's answer: the proxy signs its 403, and the
/// failure names the entry that allows the host.
#[test]
fn a_refused_host_is_told_from_a_server_that_refuses() {
    if !namespaces() {
        return;
    }
    let config = r#"
[[tool]]
name = "fetch"
network = { allow = ["one.test:80"] }
runner = { kind = "python", entry = "fetch:fetch" }
"#;
    let folder = trusted_with(&[("callgate.toml", config), ("fetch.py", FETCH)]);
    let call = |input: Value| cli(&folder, &["call", "fetch", &input.to_string(), "--json"]).json();
    let told = call(json!({ "url": "http://two.test:8080/" }));
    let hint = &told["hint"];
    assert_eq!(
        (&hint["refused"], &hint["host"]),
        (&json!("network"), &json!("two.test:8080")),
        "{told}"
    );
    let line =
        "[[tool]] name = \"fetch\": network = { allow = [\"one.test:80\", \"two.test:8080\"] }";
    assert_eq!(hint["setting"], line);
    let message = text(&told["fault"]["message"]);
    assert!(
        message.contains("the gate's egress rule") && message.contains(line),
        "{message}"
    );
    // A tool that takes the 403 for the server's can look, and its call says it all the same.
    let told = call(json!({ "url": "http://two.test:8080/", "caught": true }));
    assert_eq!(told["output"]["status"], 403, "{told}");
    assert_eq!(
        told["output"]["proxy"],
        "callgate; error=http_request_denied"
    );
    assert_eq!(told["hint"]["host"], "two.test:8080", "{told}");
}

/// Whether a tool can be kept to some hosts here.
fn namespaces() -> bool {
    let told = cli(&Folder::new(), &["doctor", "--json"]).json();
    let mut checks = told["checks"].as_array().expect("checks").iter();
    let hosts = checks.find(|check| check["name"] == "network.allow");
    text(&hosts.expect("a finding")["finding"]).starts_with("enforced")
}

/// A program without network: the answer says that it has none, and names the host that it named.
#[test]
fn a_program_without_network_is_told_so() {
    let folder = Folder::new();
    let told = shell(
        &folder,
        "echo 'curl: (6) Could not resolve host: example.com' >&2; exit 6",
    );
    let hint = &told["hint"];
    assert_eq!(hint["host"], "example.com:443", "{told}");
    assert_eq!(
        hint["setting"],
        "[exec] network = { allow = [\"example.com:443\"] }"
    );
    let config = "[exec]\nnetwork = true\n";
    let folder = trusted_with(&[("callgate.toml", config)]);
    let told = shell(
        &folder,
        "echo 'curl: (6) Could not resolve host: example.com' >&2; exit 6",
    );
    assert_eq!(told["hint"], Value::Null, "{told}");
}

const ACT: &str = r#"
import os
def act(payload):
    if "write" in payload:
        os.makedirs(os.path.dirname(payload["write"]), exist_ok=True)
        with open(payload["write"], "w") as file:
            file.write("x")
    return {}
"#;

/// F-16: a blocked write names the `writes` that is missing, and with that line it works.
#[test]
fn a_blocked_write_names_the_missing_writes() {
    let table = "[[tool]]\nname = \"act\"\n";
    let runner = "runner = { kind = \"python\", entry = \"act:act\" }\n";
    let folder = trusted_with(&[
        ("callgate.toml", &format!("{table}{runner}")),
        ("act.py", ACT),
        ("out/.keep", ""),
    ]);
    let input = json!({ "write": "out/x.txt" }).to_string();
    let call = || cli(&folder, &["call", "act", &input, "--json"]).json();
    let told = call();
    assert_eq!(told["fault"]["kind"], "guarantee_blocked", "{told}");
    let line = "[[tool]] name = \"act\": writes = [\"out\"]";
    assert_eq!(told["hint"]["setting"], line, "{told}");
    assert!(text(&told["fault"]["message"]).contains(line), "{told}");
    let trace = run(callgate(&folder).args(["trace", "--last", "--json"]))
        .good()
        .json();
    assert!(text(&trace["hint"]).contains(line), "{trace}");
    // What somebody else asked for is not lifted by the tool's configuration, and so is not named.
    let asked = json!({
        "protocol_version": 1, "tool": "act", "entry": "act:act", "payload": { "write": "out/x.txt" },
        "capability_context": { "guarantees": { "no_filesystem_write": true } },
    });
    let reply = run_with(callgate(&folder).arg("tool"), asked.to_string().as_bytes()).json();
    let message = text(&reply["error"]["message"]);
    assert!(
        !message.contains("writes = ") && message.contains("asked for by"),
        "{reply}"
    );
    let (_, field) = line.split_once(": ").expect("a field");
    folder.write("callgate.toml", &format!("{table}{field}\n{runner}"));
    cli(&folder, &["trust"]).good();
    assert_eq!(call()["ok"], true);
}

/// The hint is in the answer of every wire.
#[test]
fn every_wire_has_it() {
    let (_outside, path) = outside();
    let config = format!(
        "[breaker]\nfailures_max = 0\n[[tool]]\nname = \"one\"\nrunner = {{ kind = \"process\", command = [\"/bin/cat\", \"{path}\"] }}\n"
    );
    let folder = trusted_with(&[("callgate.toml", &config)]);
    let line = format!("[[tool]] name = \"one\": reads = [\"{path}\"]");
    let serve = Serve::start(&folder);
    let none = json!({});
    let request = json!({
        "protocol_version": 1, "tool": "one", "entry": "one", "payload": {},
        "callgate/idempotencyKey": "k",
    });
    let mut legacy = mcp(&folder, &[]);
    legacy.ask(&initialize(0));
    let local = run_with(
        callgate(&folder).arg("tool"),
        request.to_string().as_bytes(),
    );
    let told = cli(&folder, &["call", "one"]);
    assert!(told.err.contains(&line), "{}", told.err);
    let answers = [
        ("toolhost", {
            let mut host = Host::start(&folder, ".");
            host.ask(&json!({ "aid": callgate_call::aid_of_name("one"), "inputs": {} }))
        }),
        ("gate", serve.call(&json!({ "tool": "one", "input": {} }))),
        (
            "mcp",
            mcp(&folder, &[]).ask(&modern_call(1, "one", &none, &none)),
        ),
        (
            "mcp-legacy",
            legacy.ask(&legacy_call(2, "one", &none, &none)),
        ),
        ("bridge", {
            Frames::connect(&folder.join("state/bridge.sock")).call("one", &none)
        }),
        ("tool", local.json()),
        ("rpc", {
            let mut host = Host::spawn(callgate(&folder).arg("rpc"));
            host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "one", "params": {} }))
        }),
    ];
    for (wire, answer) in &answers {
        assert!(has_text(answer, &line), "{wire}: {answer}");
    }
    let of = |wire: &str| {
        let found = answers.iter().find(|(name, _)| *name == wire);
        found.expect("an answer").1.clone()
    };
    let settings = [
        of("gate")["hint"]["setting"].clone(),
        of("mcp")["result"]["_meta"]["callgate/call"]["hint"]["setting"].clone(),
        of("tool")["callgate/call"]["hint"]["setting"].clone(),
        of("rpc")["error"]["data"]["hint"]["setting"].clone(),
    ];
    assert_eq!(settings, [(); 4].map(|()| json!(line)));
    // A recorded outcome has the words that were told.
    let again = run_with(
        callgate(&folder).arg("tool"),
        request.to_string().as_bytes(),
    )
    .json();
    assert_eq!(again["error"]["message"], of("tool")["error"]["message"]);
}

/// Whether a text in a value has these words.
fn has_text(value: &Value, words: &str) -> bool {
    match value {
        Value::String(text) => text.contains(words),
        Value::Array(items) => items.iter().any(|item| has_text(item, words)),
        Value::Object(members) => members.values().any(|member| has_text(member, words)),
        _ => false,
    }
}

/// `~` in `reads` is the owner's home; what is not there is a warning, and what means nothing is
/// refused.
#[test]
fn reads_below_the_home() {
    let home = folder_of(&[("x/data.txt", "from home\n")]);
    let folder = Folder::new();
    let at_home = |args: &[&str]| {
        let mut command = callgate(&folder);
        run(command.env("HOME", home.path()).args(args))
    };
    folder.write("callgate.toml", "[exec]\nreads = [\"~/x\", \"~/gone\"]\n");
    let told = at_home(&["trust"]).good();
    assert!(told.err.contains("`~/gone` is not there"), "{}", told.err);
    assert!(!told.err.contains("`~/x`"), "{}", told.err);
    let doctor = at_home(&["doctor", "--json"]).json();
    let checks = doctor["checks"].as_array().expect("checks");
    let missing = checks.iter().find(|check| check["name"] == "reads");
    let finding = text(&missing.expect("a finding")["finding"]);
    assert!(finding.contains("`~/gone`"), "{finding}");
    let data = home.join("x/data.txt").canonicalize().expect("there");
    let input = json!({ "command": "cat", "args": [data] }).to_string();
    let told = at_home(&["call", "exec/run", &input, "--json"]).json();
    assert_eq!(told["output"]["stdout"], "from home\n", "{told}");
    for (line, words) in [
        ("reads = [\"~root/x\"]", "only `~`"),
        ("reads = [\"~x\"]", "only `~`"),
    ] {
        folder.write("callgate.toml", &format!("[exec]\n{line}\n"));
        let told = at_home(&["trust"]);
        assert!(
            told.code() != 0 && told.err.contains(words),
            "{line}: {}",
            told.err
        );
    }
    let tool = "[[tool]]\nname = \"t\"\nwrites = [\"~/x\"]\nrunner = { kind = \"process\", command = [\"/bin/cat\"] }\n";
    folder.write("callgate.toml", tool);
    let told = at_home(&["trust"]);
    assert!(
        told.code() != 0 && told.err.contains("inside the workspace"),
        "{}",
        told.err
    );
}
