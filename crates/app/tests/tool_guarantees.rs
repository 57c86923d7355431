//! What the tool protocol says of guarantees is what holds: the handshake against real calls,
//! requests that tighten, and what is told where a machine has less to hold with.

use crate::support::drive::{Ran, cli, exchange, run, run_with};
use crate::support::web::{Request, Web};
use crate::support::workspace::{folder_of, trusted_with};
use crate::support::{Folder, callgate};
use serde_json::{Map, Value, json};

const CONFIG: &str = r#"
[[tool]]
name = "plain"
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "pure"
purity = "pure"
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "online"
network = true
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "two"
writes = ["in", "out"]
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "loose"
sandbox = false
runner = { kind = "python", entry = "kit:act" }
[[tool]]
name = "lenient"
allow_unsafe_execution = true
runner = { kind = "python", entry = "kit:act" }
"#;

/// Does what it is told, and says how that went if it must not fail.
const KIT: &str = r#"
import socket
def act(payload):
    if "connect" in payload:
        socket.create_connection(("127.0.0.1", payload["connect"]), timeout=5).close()
    if "read" in payload:
        open(payload["read"]).read()
    if "write" in payload:
        with open(payload["write"], "a") as file:
            file.write("x")
    return {"done": True}
"#;

fn workspace() -> Folder {
    trusted_with(&[
        ("callgate.toml", CONFIG),
        ("kit.py", KIT),
        ("in/.keep", ""),
        ("out/.keep", ""),
    ])
}

/// The trace of the newest call.
fn trace(folder: &Folder) -> Value {
    cli(folder, &["trace", "--last", "--json"]).good().json()
}

/// `callgate tool` on a machine without `hidden`.
fn tool_without(folder: &Folder, hidden: &str, request: &Value) -> Ran {
    let mut command = callgate(folder);
    command.arg("tool").env("CALLGATE_HIDE", hidden);
    run_with(&mut command, request.to_string().as_bytes())
}

fn tool(folder: &Folder, request: &Value) -> Value {
    tool_without(folder, "", request).good().json()
}

fn request(name: &str, payload: &Value, context: &Value) -> Value {
    json!({
        "protocol_version": 1, "tool": name, "entry": "kit:act", "payload": payload,
        "capability_context": context,
    })
}

/// An object and a status off a path of the gate's own socket.
fn ask(web: &Web, path: &str, body: &Value) -> Value {
    let request = Request::new(&format!("POST {path}"), body.to_string().as_bytes());
    let bytes = request.with("host", "gate").bytes("connection: close\r\n");
    let (status, reply) = exchange(&web.serve.socket, &bytes).expect("an answer");
    assert_eq!(status, 200, "{reply}");
    reply
}

const FLAGS: [&str; 6] = [
    "no_filesystem_read",
    "no_filesystem_write",
    "no_network",
    "no_subprocess",
    "no_env_read",
    "no_env_write",
];

/// P-3, P-5, TP-54, TP-55: a handshake says of each tool what its calls are then held to.
#[test]
fn handshakes_are_kept() {
    let folder = workspace();
    let web = Web::start(&folder, &[]);
    for name in ["plain", "pure", "online", "two", "loose", "builtin/echo"] {
        let call = ask(&web, "/v1/call", &json!({ "tool": name, "input": {} }));
        let held = call["enforcement"]["guarantees"].as_object();
        let level = |flag: &str| held.and_then(|held| held.get(flag)?.get("level")?.as_str());
        let shake = |required: &Value| {
            let body = json!({
                "protocol_version": 1, "tool_name": name, "runner": "service",
                "required_guarantees": required,
            });
            ask(&web, "/capabilities/handshake", &body)
        };
        let kept: Map<String, Value> = FLAGS
            .iter()
            .filter(|flag| level(flag) == Some("enforced"))
            .map(|flag| ((*flag).to_owned(), json!(true)))
            .collect();
        for flag in FLAGS {
            let reply = shake(&json!({ flag: true }));
            assert_eq!(
                reply["enforcement"],
                level(flag).unwrap_or("none"),
                "{name} {flag}: {call}"
            );
            let mut supported = reply["supported_guarantees"]
                .as_object()
                .cloned()
                .expect("some");
            supported.remove("secrets_allowed");
            assert_eq!(supported, kept, "{name}");
        }
        // Hosts list all six, those they do not require as false.
        let mut all: Map<String, Value> = FLAGS
            .iter()
            .map(|flag| ((*flag).to_owned(), json!(false)))
            .collect();
        all.extend(kept.clone());
        if !kept.is_empty() {
            assert_eq!(
                shake(&Value::Object(all))["enforcement"],
                "enforced",
                "{name}"
            );
        }
    }
    let plain = ask(
        &web,
        "/capabilities/handshake",
        &json!({ "protocol_version": 1, "tool_name": "plain", "required_guarantees": { "no_network": true } }),
    );
    assert_eq!(
        (
            &plain["enforcement"],
            &plain["supported_guarantees"]["no_network"]
        ),
        (&json!("enforced"), &json!(true))
    );
    assert!(web.serve.stop().success());
}

/// TP-10, TP-11, TP-33, P-3: a request may ask for more; what is not enforced is refused before
/// anything runs, capability by capability, with who asked.
#[test]
fn requests_tighten() {
    let folder = workspace();
    let context = json!({
        "guarantees": { "no_network": true, "no_subprocess": true },
        "sources": { "no_network": "tool", "no_subprocess": "policy" },
    });
    let asked = request("online", &json!({}), &context);
    let reply = tool(&folder, &asked);
    assert_eq!(
        (&reply["ok"], &reply["capability_checks"]),
        (&json!(true), &json!([])),
        "{reply}"
    );
    let reply = tool_without(&folder, "seccomp", &asked).good().json();
    let check = |capability: &str, source: &str| json!({ "capability": capability, "allowed": false, "guarantee_source": source, "reason": "coverage_missing" });
    assert_eq!(reply["error"]["type"], "CapabilityViolation", "{reply}");
    assert_eq!(reply["error"]["reason_code"], "coverage_missing");
    let checks = reply["capability_checks"].as_array().expect("checks");
    for wanted in [check("network", "tool"), check("subprocess", "policy")] {
        assert!(checks.contains(&wanted), "{wanted}: {reply}");
    }

    // A tool without a process of its own can be held to nothing.
    let mut echo = request("builtin/echo", &json!({}), &context);
    echo["entry"] = json!("builtin/echo");
    let reply = tool(&folder, &echo);
    let wanted = json!([check("network", "tool"), check("subprocess", "policy")]);
    assert_eq!(reply["capability_checks"], wanted, "{reply}");
}

/// TP-21, TP-22, P-3: an attempt that was stopped is told as such; the same tool without the
/// guarantee gets through.
#[test]
fn attempts_are_stopped() {
    let folder = workspace();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let connect = json!({ "connect": port });
    let reply = tool(
        &folder,
        &request("online", &connect, &json!({ "guarantees": {} })),
    );
    assert_eq!(reply["ok"], true, "{reply}");
    let context =
        json!({ "guarantees": { "no_network": true }, "sources": { "no_network": "user" } });
    let reply = tool(&folder, &request("online", &connect, &context));
    let error = &reply["error"];
    assert_eq!(
        (&error["type"], &error["reason_code"]),
        (&json!("CapabilityViolation"), &json!("guarantee_blocked")),
        "{reply}"
    );
    let check = json!({ "capability": "network", "allowed": false, "guarantee_source": "user", "reason": "guarantee_blocked" });
    assert_eq!(reply["capability_checks"], json!([check]));
}

/// TP-12: of what a tool may write and read, a request's roots leave what lies in them, and add
/// nothing.
#[test]
fn roots_narrow() {
    let folder = workspace();
    folder.write("in/told", "in");
    folder.write("out/told", "out");
    folder.write("apart/told", "apart");
    let within = |context: &Value, payload: &Value| {
        let reply = tool(&folder, &request("two", payload, context));
        reply["ok"] == true
    };
    let root = |root: &str| json!({ "filesystem_root": root });
    let write = |path: &str| json!({ "write": path });
    assert!(within(&root("."), &write("in/a")) && within(&root("."), &write("out/a")));
    assert!(within(&root("out"), &write("out/b")));
    assert!(!within(&root("out"), &write("in/b")));
    assert!(!within(&root("."), &write("elsewhere")));
    assert!(folder.read("in/b").is_none() && folder.read("out/b").is_some());
    assert!(folder.read("elsewhere").is_none());

    let read = |path: &str| json!({ "read": path });
    assert!(within(&json!({}), &read("apart/told")), "nothing is said");
    assert!(within(&root("out"), &read("out/told")));
    assert!(!within(&root("out"), &read("in/told")));
    assert!(!within(&root("out"), &read("apart/told")));
    let roots = json!({ "filesystem_root": "out", "filesystem_read_roots": ["apart", "gone"] });
    assert!(within(&roots, &read("apart/told")));
    assert!(
        !within(&roots, &write("apart/b")),
        "read roots are no write roots"
    );
    assert!(!within(&roots, &read("in/told")));
    let state = folder.join("state/journal.lock");
    let state = state.to_str().expect("text");
    let roots = json!({ "filesystem_root": "out", "filesystem_read_roots": ["state", "/"] });
    assert!(
        !within(&roots, &read(state)),
        "the gate's own stays its own"
    );
    let asked = request("two", &json!({}), &root("nowhere"));
    assert_eq!(tool(&folder, &asked)["error"]["type"], "FileNotFoundError");
}

/// P-14, TP-7: `sandbox` in a request tightens; it loosens only where the tool allows that, and
/// the trace says either.
#[test]
fn sandbox_in_requests() {
    let folder = workspace();
    let ignored = json!("false, ignored: the tool does not allow unsafe execution");
    for (name, sandbox, is_free, remark) in [
        ("plain", None, false, Value::Null),
        ("plain", Some(false), false, ignored),
        ("plain", Some(true), false, Value::Null),
        ("loose", None, true, Value::Null),
        ("loose", Some(false), true, Value::Null),
        ("loose", Some(true), false, Value::Null),
        ("lenient", None, false, Value::Null),
        ("lenient", Some(false), true, Value::Null),
    ] {
        let mut asked = request(name, &json!({ "write": "mark" }), &json!({}));
        if let Some(sandbox) = sandbox {
            asked["sandbox"] = sandbox.into();
        }
        let reply = tool(&folder, &asked);
        let case = format!("{name} {sandbox:?}: {reply}");
        assert_eq!(reply["ok"], is_free, "{case}");
        assert_eq!(folder.read("mark").is_some(), is_free, "{case}");
        let _ = std::fs::remove_file(folder.join("mark"));
        let trace = trace(&folder);
        assert_eq!(trace["sandbox_request"], remark, "{case}");
        assert_eq!(trace["sandbox"], !is_free, "{case}");
        assert_eq!(trace["unsafe_override"] == true, is_free, "{case}");
    }
}

/// TP-34: what is missing is let through by the owner's word alone, and shows; what the kernel
/// still keeps is kept.
#[test]
fn overrides_lift_missing_coverage_only() {
    let folder = workspace();
    let context = json!({ "guarantees": { "no_network": true } });
    let asked = request("lenient", &json!({ "write": "mark" }), &context);
    // Without the filter there is nothing to keep it off the network; Landlock keeps its files.
    let reply = tool_without(&folder, "seccomp", &asked).good().json();
    assert_eq!(reply["error"]["type"], "CapabilityViolation", "{reply}");
    assert!(folder.read("mark").is_none());
    let told = trace(&folder);
    assert_eq!(
        (&told["unsafe_override"], &told["status"]),
        (&json!(true), &json!("blocked")),
        "{told}"
    );
    let uncovered = json!({
        "capability": "network", "allowed": true, "guarantee_source": "user",
        "reason": "coverage_missing",
    });
    let reply = tool_without(
        &folder,
        "seccomp",
        &request("lenient", &json!({}), &context),
    );
    let reply = reply.good().json();
    assert_eq!(reply["ok"], true, "{reply}");
    let checks = reply["capability_checks"].as_array().expect("checks");
    assert!(checks.contains(&uncovered), "{reply}");
    assert_eq!(trace(&folder)["unsafe_override"], true);
    // Policy is no coverage: the same word does not help against it.
    let denied = format!("{CONFIG}\n[[policy]]\ntools = [\"lenient\"]\ndecision = \"deny\"\n");
    folder.write("callgate.toml", &denied);
    cli(&folder, &["trust"]).good();
    let reply = tool(&folder, &asked);
    assert_eq!(reply["error"]["reason_code"], "policy_denied", "{reply}");
    // Where nothing is missing there is nothing to override.
    folder.write("callgate.toml", CONFIG);
    cli(&folder, &["trust"]).good();
    assert_eq!(
        tool(&folder, &request("lenient", &json!({}), &context))["ok"],
        true
    );
    assert_eq!(trace(&folder)["unsafe_override"], Value::Null);
}

const SECRETS: &str = r#"
[secrets]
env = ["API_KEY"]
"#;

/// Two variables of one secret, one of none.
const LOOK: &str = r#"
import os
def look(payload):
    return {name: name in os.environ for name in ("API_KEY", "KEY_TOO", "PLAIN")}
"#;

/// TP-35: a secret is read by whoever may read the environment and this secret; the rest of the
/// environment by whoever may read that. Said by the tool or by a request, for programs and for
/// Python.
#[test]
fn secrets_need_both() {
    const NONE: [bool; 3] = [false; 3];
    const PLAIN: [bool; 3] = [false, false, true];
    const ALL: [bool; 3] = [true; 3];
    let cases = [
        (json!({}), ALL),
        (json!({ "secrets_allowed": [] }), PLAIN),
        (json!({ "secrets_allowed": ["OTHER"] }), PLAIN),
        (json!({ "secrets_allowed": ["API_KEY"] }), ALL),
        (json!({ "no_env_read": true }), NONE),
        (
            json!({ "no_env_read": true, "secrets_allowed": ["API_KEY"] }),
            NONE,
        ),
    ];
    let env = r#"env = { API_KEY = "${API_KEY}", KEY_TOO = "${API_KEY}", PLAIN = "x" }"#;
    let mut config = SECRETS.to_owned();
    for (number, (guarantees, _)) in cases.iter().enumerate() {
        let said: Vec<String> = guarantees
            .as_object()
            .expect("members")
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let said = said.join(", ");
        config.push_str(&format!(
            "[[tool]]\nname = \"own{number}\"\nguarantees = {{ {said} }}\n\
             runner = {{ kind = \"python\", entry = \"look:look\", {env} }}\n\
             [[tool]]\nname = \"sh{number}\"\nguarantees = {{ {said} }}\n\
             code = [\"look.sh\"]\nrunner = {{ kind = \"process\", command = [\"/bin/sh\", \"look.sh\"], {env} }}\n"
        ));
    }
    let script = "is() { if [ -n \"$1\" ]; then echo true; else echo false; fi; }\n\
        echo \"{\\\"API_KEY\\\":$(is \"$API_KEY\"),\\\"KEY_TOO\\\":$(is \"$KEY_TOO\"),\\\"PLAIN\\\":$(is \"$PLAIN\")}\"\n";
    let folder = folder_of(&[
        ("callgate.toml", &config),
        ("look.py", LOOK),
        ("look.sh", script),
    ]);
    let with_key = |args: &[&str]| {
        let mut command = callgate(&folder);
        command.args(args).env("API_KEY", "sk-9a8b7c6d5e");
        command
    };
    run(&mut with_key(&["trust"])).good();
    let seen = |asked: &Value| {
        let ran = run_with(&mut with_key(&["tool"]), asked.to_string().as_bytes());
        let reply = ran.good().json();
        ["API_KEY", "KEY_TOO", "PLAIN"].map(|name| {
            let seen = reply["result"][name].as_bool();
            seen.unwrap_or_else(|| panic!("{asked}: {reply}"))
        })
    };
    for (number, (guarantees, wanted)) in cases.iter().enumerate() {
        for (name, entry) in [("own", "look:look"), ("sh", "")] {
            let ask = |number: usize, guarantees: &Value| {
                let name = format!("{name}{number}");
                let entry = if entry.is_empty() { &name } else { entry };
                seen(&json!({
                    "protocol_version": 1, "tool": name, "entry": entry, "payload": {},
                    "capability_context": { "guarantees": guarantees },
                }))
            };
            assert_eq!(ask(number, &json!({})), *wanted, "{name} says {guarantees}");
            assert_eq!(ask(0, guarantees), *wanted, "{name} is asked {guarantees}");
        }
    }
}
