//! A tool that is not served says why, in the same words wherever it is asked for. G-14.

use serde_json::{Value, json};

use crate::support::drive::{Host, Ran, Serve, cli, run_with};
use crate::support::mcp::{initialize, mcp, modern_call};
use crate::support::rpc::rpc_alone;
use crate::support::workspace::{ONE, trusted, workspace};
use crate::support::{Folder, callgate};

/// The words of `tools/call` of a tool that is not there.
fn error_of(host: &mut Host, tool: &str) -> String {
    let reply = host.ask(&modern_call(2, tool, &json!({}), &json!({})));
    let words = reply["error"]["message"].as_str();
    words.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// The same of a client of its own.
fn mcp_error(folder: &Folder, args: &[&str], tool: &str) -> String {
    let mut host = mcp(folder, args);
    let words = error_of(&mut host, tool);
    assert!(host.end().success());
    words
}

/// What the program says when it is refused.
fn refusal(folder: &Folder, args: &[&str]) -> String {
    let ran: Ran = cli(folder, args);
    assert_ne!(ran.code(), 0, "{args:?}: {ran:?}");
    ran.err
}

/// A file that names a tool and is not trusted sends its owner to `callgate trust`, not to the file.
#[test]
fn what_waits_for_trust_says_so() {
    let words = "not served: callgate.toml names it in `[builtins] allow`, but is not trusted yet: \
                 its owner runs `callgate trust`";
    let naming = "[builtins]\nallow = [\"files/*\", \"exec/run\"]\n";
    let never = workspace(naming);
    let serve = Serve::start(&never);
    for args in [&["--standalone"][..], &[]] {
        let said = mcp_error(&never, args, "exec_run");
        assert_eq!(said, format!("tool not found: exec_run: {words}"));
        let other = mcp_error(&never, args, "runs_start");
        assert!(other.contains("its owner adds it"), "{other}");
    }
    assert!(serve.stop().success());
    let changed = trusted("[builtins]\nallow = [\"files/*\"]\n");
    changed.write("callgate.toml", naming);
    let said = mcp_error(&changed, &["--standalone"], "exec_run");
    assert_eq!(said, format!("tool not found: exec_run: {words}"));
    let said = refusal(&changed, &["call", "exec/run", "command=true"]);
    assert!(said.contains(words), "{said}");
}

/// What `[builtins] allow` leaves out has one text, for owners and callers; contracts that have a
/// text of their own keep it. What `serve` proposes to try is served.
#[test]
fn what_is_left_out_has_one_text() {
    let folder = trusted("[builtins]\nallow = [\"files/*\", \"exec/run\"]\n");
    folder.write("x.py", "");
    let text = |tool: &str| {
        format!(
            "tool not found: {tool}: this built-in tool is not served here: its owner adds it to \
             `[builtins] allow` in callgate.toml, then runs `callgate trust`"
        )
    };
    let check = || {
        for (args, tool) in [
            (&["run", "--", "/bin/true"][..], "runs/start"),
            (&["run", "--dry-run", "--", "/bin/true"], "runs/start"),
            (&["search", "x"], "vector/search"),
            (&["plan", "done", "p1", "t1"], "planner/get_plan"),
            (&["call", "planner/create_plan"], "planner/create_plan"),
            (&["call", "AID.RUNS.START.v1"], "AID.RUNS.START.v1"),
            (&["tools", "show", "runs/start"], "runs/start"),
            (&["lease", "grant", "runs/start"], "runs/start"),
        ] {
            let said = refusal(&folder, args);
            assert!(said.contains(&text(tool)), "{args:?}: {said}");
        }
    };
    check();
    let serve = Serve::start(&folder);
    check();
    let said = refusal(&folder, &["term", "new"]);
    assert!(said.contains(&text("terminals/create")), "{said}");
    let posted = serve.call(&json!({ "tool": "runs/start", "input": {} }));
    let fault = json!({ "kind": "unknown_tool", "message": text("runs/start") });
    for member in ["kind", "message"] {
        assert_eq!(posted["fault"][member], fault[member], "{posted}");
    }
    for args in [&["--standalone"][..], &[], &["--only", "*"]] {
        assert_eq!(mcp_error(&folder, args, "runs_start"), text("runs_start"));
    }
    let said = serve.said();
    let tried = said.lines().find(|line| line.starts_with("try:"));
    assert_eq!(tried, Some("try:  callgate call files/list '{}'"), "{said}");
    assert!(!said.contains("builtin/echo"), "{said}");
    cli(&folder, &["call", "files/list", "{}"]).good();
    assert!(serve.stop().success());

    let mut rpc = rpc_alone(&folder);
    let reply = rpc.ask("runs/start", json!({}));
    assert_eq!(reply["error"]["code"], -32601);
    assert_eq!(reply["error"]["message"], text("runs/start"));
    assert!(rpc.end());
    let line = b"{\"aid\":\"AID.RUNS.START.v1\"}\n";
    let reply = run_with(callgate(&folder).args(["toolhost", "--serve", "."]), line);
    assert_eq!(
        reply.json()["error"],
        "tool not found: AID.RUNS.START.v1",
        "the contract's whole text"
    );
    let mut asked = json!({ "protocol_version": 1, "tool": "runs/start", "entry": "runs/start" });
    asked["payload"] = json!({});
    let reply = run_with(callgate(&folder).arg("tool"), asked.to_string().as_bytes());
    assert_eq!(
        reply.json()["error"]["message"],
        "tool not found: runs/start",
        "the contract's whole text"
    );
}

/// A client that is narrowed by `--only` is told so, whether or not there is such a tool.
#[test]
fn what_only_leaves_out_says_so() {
    let folder = trusted(ONE);
    let only = |tool: &str| {
        format!(
            "tool not found: {tool}: this client is served only the tools that fit an `--only` of \
             its `callgate mcp`"
        )
    };
    let serve = Serve::start(&folder);
    for more in [&["--standalone"][..], &[]] {
        let args = [more, &["--only", "exec/run"]].concat();
        for tool in ["one", "files_list", "nosuch"] {
            assert_eq!(mcp_error(&folder, &args, tool), only(tool));
        }
    }
    assert!(serve.stop().success());
}

/// `--only` and `[builtins] allow` take the name that a client of MCP shows; a pattern of `--only`
/// that fits no tool is said, on standard error and in `instructions`.
#[test]
fn patterns_are_of_names_over_mcp_too() {
    let folder = trusted(ONE);
    let mut lines = format!("{}\n", initialize(1));
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    lines.push_str(&format!("{list}\n"));
    let told = |more: &[&str]| -> (Vec<String>, Value, String) {
        let mut command = callgate(&folder);
        command.arg("mcp").args(more);
        let ran = run_with(&mut command, lines.as_bytes()).good();
        let replies: Vec<Value> = ran
            .out
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let of = |id: u64| {
            let reply = replies.iter().find(|reply| reply["id"] == id);
            reply.expect("a reply")["result"].clone()
        };
        let tools = of(2)["tools"].as_array().expect("tools").clone();
        let names = tools
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned());
        (names.collect(), of(1)["instructions"].clone(), ran.err)
    };
    let check = |more: &[&str]| {
        let with = |only: &[&str]| told(&[more, only].concat());
        let (names, instructions, err) = with(&["--only", "files_read", "--only", "runs_*"]);
        let wanted = ["files_read", "runs_get", "runs_list", "runs_start"];
        assert!(
            names.iter().all(|name| wanted.contains(&name.as_str())),
            "{names:?}"
        );
        assert!(names.contains(&"files_read".to_owned()), "{names:?}");
        assert!(names.contains(&"runs_start".to_owned()), "{names:?}");
        assert_eq!(instructions, Value::Null);
        assert!(!err.contains("fits no tool"), "{err}");
        let (names, instructions, err) = with(&["--only", "nosuch*", "--only", "one"]);
        assert_eq!(names, ["one"]);
        let words = "`--only nosuch*` fits no tool here";
        assert_eq!(instructions, words);
        assert_eq!(err.matches(words).count(), 1, "{err}");
    };
    check(&["--standalone"]);
    let serve = Serve::start(&folder);
    check(&[]);
    assert!(serve.stop().success());

    let folder = trusted("[builtins]\nallow = [\"files_read\"]\n");
    folder.write("a.txt", "a");
    cli(&folder, &["call", "files/read", "path=a.txt"]).good();
    let said = refusal(&folder, &["call", "files/stat", "path=a.txt"]);
    assert!(said.contains("`[builtins] allow`"), "{said}");
}
