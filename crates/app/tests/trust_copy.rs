//! What stays in force when a configuration changes without the owner's word: the copy of what was
//! trusted last, and the restrictions of what is there.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::drive::{Ran, Serve, cli, run_with, verified};
use crate::support::mcp::{initialize, mcp, modern_call, modern_meta};
use crate::support::workspace::{ONE, trusted, workspace};
use crate::support::{Folder, callgate, wait_for};

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

fn strict() -> String {
    format!("{STRICT}{ONE}")
}

/// The fault of a call, or nothing where it gave an output.
fn fault(folder: &Folder, tool: &str, input: &str) -> Value {
    let ran = cli(folder, &["call", "--json", tool, input]);
    ran.json()["fault"]["kind"].clone()
}

/// Each of the restrictions of `STRICT` holds, and its tool is served with a lease only.
fn assert_strict(folder: &Folder, why: &str) {
    let secret = fault(folder, "files/read", r#"{"path":".env"}"#);
    assert_eq!(secret, "denied", "{why}");
    let program = fault(folder, "exec/run", r#"{"command":"ls"}"#);
    assert_eq!(program, "unknown_tool", "{why}");
    let note = fault(folder, "memory/query", r#"{"query":"x"}"#);
    assert_eq!(note, "denied", "{why}");
    assert_eq!(fault(folder, "one", "{}"), "lease_required", "{why}");
}

/// The copies in the state, and what was left half made of others.
fn copies(folder: &Folder) -> Vec<PathBuf> {
    let list = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let workspaces = list(&folder.join("state/trusted"));
    workspaces.iter().flat_map(|path| list(path)).collect()
}

/// G-9: a change without the owner's word, whatever it is, takes nothing away from what was
/// trusted: neither at a start of the gate nor for what runs alone. Each says so.
#[test]
fn the_trusted_configuration_stays_in_force() {
    let folder = trusted(&strict());
    folder.write(".env", "KEY=1");
    assert_strict(&folder, "as trusted");
    let changes = [
        (
            "a comment",
            format!("{}# more\n", strict()),
            "changed since it was trusted",
        ),
        (
            "a syntax error",
            format!("{}[[[", strict()),
            "configuration not loaded",
        ),
        (
            "an unknown word",
            format!("colour = 1\n{}", strict()),
            "unknown field",
        ),
        (
            "without restrictions",
            ONE.to_owned(),
            "changed since it was trusted",
        ),
        ("empty", String::new(), "changed since it was trusted"),
    ];
    for (why, text, words) in changes {
        folder.write("callgate.toml", &text);
        assert_strict(&folder, why);
        let told = cli(&folder, &["call", "builtin/echo", "{}"]).good().err;
        assert!(
            told.contains(words) && told.contains("trusted last stays in force (1 tools)"),
            "{why}: {told}"
        );
    }
    std::fs::remove_file(folder.join("callgate.toml")).expect("remove it");
    assert_strict(&folder, "removed");

    folder.write("callgate.toml", &strict());
    folder.write("namel3ss.toml", "[[[");
    assert_strict(&folder, "a stray project");
    let doctor = cli(&folder, &["doctor", "--json"]);
    let checks = doctor.json()["checks"].clone();
    let configuration = checks.as_array().expect("checks").iter();
    let configuration = configuration
        .clone()
        .find(|one| one["name"] == "configuration");
    let configuration = configuration.expect("a check");
    assert_eq!((doctor.code(), &configuration["ok"]), (1, &json!(false)));
    let finding = configuration["finding"].as_str().expect("words");
    assert!(
        finding.contains("namel3ss.toml") && finding.contains("stays in force"),
        "{finding}"
    );

    let serve = Serve::start(&folder);
    serve.wait_said("stays in force");
    let read = |path: &str| {
        let body = serve.call(&json!({ "tool": "files/read", "input": { "path": path } }));
        body["fault"]["kind"].clone()
    };
    assert_eq!(read(".env"), "denied");
    let health = serve.get("/v1/health").1["configuration"].clone();
    assert!(
        health
            .as_str()
            .is_some_and(|note| note.contains("stays in force")),
        "{health}"
    );
    assert!(serve.stop().success());
    for args in [
        &["toolhost", "--run", "builtin", "AID.FILES.READ.v1"][..],
        &["tool_exec", "AID.FILES.READ.v1"],
    ] {
        let told = run_with(
            callgate(&folder).args(args),
            br#"{"inputs":{"path":".env"}}"#,
        );
        assert!(
            told.out.contains("denied") || told.out.contains("the owner's lists"),
            "{told:?}"
        );
    }
    verified(&folder);
}

/// G-9: what a configuration restricts applies before it is trusted, at a start and in a running
/// gate; what it grants does not.
#[test]
fn restrictions_apply_at_once() {
    let folder = workspace(&strict());
    folder.write(".env", "KEY=1");
    let kind = |tool: &str, input: &str| fault(&folder, tool, input);
    assert_eq!(kind("files/read", r#"{"path":".env"}"#), "denied");
    assert_eq!(kind("exec/run", r#"{"command":"ls"}"#), "unknown_tool");
    assert_eq!(kind("memory/query", r#"{"query":"x"}"#), "denied");
    assert_eq!(
        kind("files/write", r#"{"path":"a","content":"x"}"#),
        "lease_required"
    );
    assert_eq!(kind("one", "{}"), "unknown_tool", "it is not trusted");

    // Beside a trusted configuration: it denies more and allows nothing.
    let base = "[files]\nallow = [\"a/**\", \"b/**\"]\n[exec]\nallow = [\"ls\", \"cat\"]\n\
                [[policy]]\ntools = [\"memory/*\"]\ndecision = \"deny\"\n\
                [[policy]]\ntools = [\"builtin/*\"]\ndecision = \"ask\"\n";
    folder.write("callgate.toml", base);
    cli(&folder, &["trust"]).good();
    for name in ["a/x", "b/x", "b/y"] {
        folder.write(name, "x");
    }
    let serve = Serve::start(&folder);
    let told = |tool: &str, input: Value| {
        let body = serve.call(&json!({ "tool": tool, "input": input }));
        body["fault"]["kind"].clone()
    };
    let read = |path: &str| told("files/read", json!({ "path": path }));
    assert_eq!((read("a/x"), read("b/x")), (Value::Null, Value::Null));
    let edit = "[files]\nallow = [\"b/**\", \".env\"]\ndeny = [\"b/y\"]\n[exec]\nallow = [\"cat\", \"sh\"]\n\
                [leases]\nenforce_from_tier = 3\n\
                [[policy]]\ntools = [\"planner/*\"]\ndecision = \"deny\"\n\
                [[policy]]\ntools = [\"memory/*\", \"builtin/*\"]\ndecision = \"allow\"\n\
                [[policy]]\ndecision = \"ask\"\ntools = [\"memory/*\", \"vector/*\"]\n";
    folder.write("callgate.toml", edit);
    wait_for("the edit's restrictions", || {
        (read("a/x") == "denied").then_some(())
    });
    assert_eq!(
        (read("b/x"), read("b/y"), read(".env")),
        (Value::Null, json!("denied"), json!("denied"))
    );
    let run = |program: &str| told("exec/run", json!({ "command": program, "args": ["b/x"] }));
    assert_eq!(
        (run("cat"), run("ls"), run("sh")),
        (Value::Null, json!("denied"), json!("denied"))
    );
    assert_eq!(told("planner/list_plans", json!({})), "denied");
    assert_eq!(
        told("memory/query", json!({ "query": "x" })),
        "denied",
        "the stricter counts"
    );
    assert_eq!(
        told("builtin/echo", json!({})),
        "needs_approval",
        "the stricter counts"
    );
    assert_eq!(
        told("vector/search", json!({ "query": "x" })),
        "needs_approval"
    );
    serve.wait_said("with the restrictions of the present one");

    folder.write("callgate.toml", base);
    wait_for("the trusted form", || {
        (read("a/x") == Value::Null).then_some(())
    });
    assert!(serve.stop().success());
}

/// G-9: where nothing was trusted and what is there cannot be read, no tool is served by any wire,
/// and each says what to do.
#[test]
fn what_cannot_be_read_serves_nothing() {
    let folder = workspace("[files]\ndeny = [\".env\"]\n[[[");
    folder.write(".env", "KEY=1");
    let request = br#"{"inputs":{"path":".env"}}"#;
    let protocol =
        br#"{"protocol_version":1,"tool":"builtin/echo","entry":"tools.a:b","payload":{}}"#;
    let cases: [(&[&str], &[u8], i32); 8] = [
        (&["call", "files/read", "path=.env"], b"", 1),
        (&["call", "--json", "files/read", "path=.env"], b"", 1),
        (&["serve"], b"", 1),
        (&["rpc"], b"", 1),
        (&["tools"], b"", 1),
        (&["tool"], protocol, 1),
        (&["tool_exec", "AID.FILES.READ.v1"], request, 3),
        (
            &["toolhost", "--run", "builtin", "AID.FILES.READ.v1"],
            request,
            3,
        ),
    ];
    for (args, input, code) in cases {
        let ran: Ran = run_with(callgate(&folder).args(args), input);
        assert_eq!(ran.code(), code, "{args:?}: {ran:?}");
        let words = format!("{}{}", ran.out, ran.err);
        assert!(
            words.contains("nothing is served") && words.contains("callgate trust"),
            "{args:?}: {ran:?}"
        );
        assert!(!words.contains("KEY=1"), "{ran:?}");
    }
    // A host shows what a server says, and seldom what it printed before it ended.
    let asked = [
        initialize(1),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call",
            "params": { "name": "files_read", "arguments": { "path": ".env" } } }),
    ];
    let lines: String = asked.iter().map(|one| format!("{one}\n")).collect();
    let told = run_with(callgate(&folder).arg("mcp"), lines.as_bytes()).good();
    let answers: Vec<Value> = told
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let of = |id: u64| {
        answers
            .iter()
            .find(|one| one["id"] == id)
            .expect("an answer")
    };
    let words = "nothing is served";
    let instructions = of(1)["result"]["instructions"].as_str().unwrap_or_default();
    assert!(instructions.contains(words), "{}", of(1));
    assert_eq!(of(2)["result"]["tools"], json!([]));
    assert!(
        of(3)["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains(words)),
        "{}",
        of(3)
    );

    // Doctor says the same; what needs no tool works.
    assert!(cli(&folder, &["doctor"]).out.contains(words));
    verified(&folder);
    folder.write("callgate.toml", "");
    cli(&folder, &["call", "builtin/echo", "{}"]).good();
}

/// G-9: the removal is a word of the owner's too; a word that is taken back leaves no copy.
#[test]
fn removal_and_revocation() {
    let folder = trusted(&strict());
    let copies = || copies(&folder).len();
    assert_eq!(copies(), 1);
    std::fs::remove_file(folder.join("callgate.toml")).expect("remove it");
    let told = cli(&folder, &["tools"]).good();
    assert!(
        told.err.contains("callgate.toml is gone") && told.err.contains("record"),
        "{}",
        told.err
    );
    let told = cli(&folder, &["trust"]).good();
    assert!(
        told.err
            .contains("recorded that the configuration is removed"),
        "{}",
        told.err
    );
    assert_eq!(
        (copies(), fault(&folder, "exec/run", "{}")),
        (0, json!("bad_input"))
    );
    assert_eq!(
        cli(&folder, &["trust"]).code(),
        1,
        "there is nothing to record"
    );

    folder.write("callgate.toml", &strict());
    cli(&folder, &["trust"]).good();
    assert_eq!(
        (copies(), fault(&folder, "one", "{}")),
        (1, json!("lease_required"))
    );
    cli(&folder, &["trust", "--revoke"]).good();
    assert_eq!(
        (copies(), fault(&folder, "one", "{}")),
        (0, json!("unknown_tool"))
    );
    folder.write(".env", "KEY=1");
    assert_eq!(
        fault(&folder, "files/read", r#"{"path":".env"}"#),
        "denied",
        "its restrictions stay"
    );
    verified(&folder);
}

/// G-9: a state of an earlier release has a digest and no copy. The copy is made while the files
/// are what was trusted; later nothing is served. Nor is it by a copy that is damaged.
#[test]
fn without_a_copy_nothing_is_guessed() {
    let folder = trusted(&strict());
    let forget = || std::fs::remove_dir_all(folder.join("state/trusted")).expect("remove them");
    forget();
    cli(&folder, &["tools"]).good();
    folder.write("callgate.toml", ONE);
    assert_eq!(
        fault(&folder, "exec/run", "{}"),
        "unknown_tool",
        "the copy was made"
    );

    let copy = copies(&folder).pop().expect("a copy");
    let serves_nothing = |words: &str| {
        let ran = cli(&folder, &["call", "builtin/echo", "{}"]);
        assert_eq!(ran.code(), 1, "{ran:?}");
        assert!(
            ran.err.contains("nothing is served") && ran.err.contains(words),
            "{ran:?}"
        );
    };
    std::fs::write(copy.join("callgate.toml"), ONE).expect("damage it");
    serves_nothing("damaged");
    std::fs::write(copy.join("callgate.toml"), "[[[").expect("damage it");
    serves_nothing("does not load");
    forget();
    serves_nothing("there is no copy");
    folder.write("callgate.toml", &strict());
    cli(&folder, &["call", "builtin/echo", "{}"]).good();
    folder.write("callgate.toml", ONE);
    assert_eq!(
        fault(&folder, "exec/run", "{}"),
        "unknown_tool",
        "the copy was made again"
    );
}

/// G-9: killed at any point of `trust`, the earlier configuration is in force or the new one is.
#[cfg(feature = "failpoints")]
#[test]
fn a_killed_trust_leaves_one_or_the_other() {
    let first = strict();
    let second = first.replace(".env", "secret");
    let points = [
        ("folder.file", false),
        ("folder.before_put", false),
        ("folder.after_put", false),
        ("commit.before_write", false),
        ("commit.after_write", true),
    ];
    for (point, is_new) in points {
        let folder = trusted(&first);
        for name in [".env", "secret"] {
            folder.write(name, "x");
        }
        folder.write("callgate.toml", &second);
        let mut trust = callgate(&folder);
        let killed = crate::support::drive::run(
            trust
                .arg("trust")
                .env("CALLGATE_FAILPOINT", format!("{point}=kill")),
        );
        assert!(killed.was_killed(), "{point}: {killed:?}");
        folder.write("callgate.toml", ONE);
        let denied = [".env", "secret"].map(|path| {
            fault(&folder, "files/read", &json!({ "path": path }).to_string()) == "denied"
        });
        assert_eq!(denied, [!is_new, is_new], "{point}");
        folder.write("callgate.toml", &second);
        cli(&folder, &["trust"]).good();
        let copies = copies(&folder);
        assert_eq!(copies.len(), 1, "{point}: what was left half made is gone");
        verified(&folder);
    }
}

/// T-12, G-9: a workspace whose configuration was never trusted says so where a tool is missing: over
/// MCP in `instructions` of both eras and in the error, for `tool_exec` on standard error. A plugin
/// that is named on the command line is trusted by that, and silent.
#[test]
fn an_untrusted_workspace_says_so() {
    let folder = workspace(ONE);
    let words = "is not trusted yet";
    let discover = json!({
        "jsonrpc": "2.0", "id": 2, "method": "server/discover", "params": { "_meta": modern_meta() },
    });
    let serve = Serve::start(&folder);
    for args in [&["--standalone"][..], &[]] {
        let mut host = mcp(&folder, args);
        let begun = host.ask(&initialize(1));
        let found = host.ask(&discover);
        for said in [&begun, &found] {
            let instructions = said["result"]["instructions"].as_str();
            assert!(
                instructions.is_some_and(|text| text.contains(words)),
                "{said}"
            );
        }
        let missing = host.ask(&modern_call(3, "one", &json!({}), &json!({})));
        let message = missing["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with("tool not found: one: ") && message.contains(words),
            "{missing}"
        );
        assert!(host.end().success());
    }
    assert!(serve.stop().success());

    let exec = |aid: &str| run_with(callgate(&folder).args(["tool_exec", aid]), b"{}").good();
    let missing = exec("AID.TEST.ONE.v1");
    assert_eq!(missing.json()["error"], "MISSING_TOOL: AID.TEST.ONE.v1");
    assert!(
        missing.err.contains(words) && missing.err.contains("callgate trust"),
        "{}",
        missing.err
    );
    let named = run_with(
        callgate(&folder).args(["toolhost", "--run", ".", "AID.TEST.ONE.v1"]),
        b"{}",
    );
    let named = named.good();
    assert_eq!(
        (&named.json()["status"], named.err.as_str()),
        (&json!("OK"), "")
    );

    cli(&folder, &["trust"]).good();
    let found = exec("AID.TEST.ONE.v1");
    assert_eq!(
        (&found.json()["status"], found.err.as_str()),
        (&json!("OK"), "")
    );
}
