//! Which built-in tools are served, and to whom: `[builtins]`, the default over MCP, and
//! `callgate mcp --only`. G-14.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support::bridge::bridge_to_gate;
use crate::support::drive::{Host, Serve, cli, run_with};
use crate::support::mcp::{mcp, modern_call, modern_meta};
use crate::support::rpc::{request, rpc, rpc_alone};
use crate::support::web::{Web, code, owner, token, trusted as trusted_web};
use crate::support::workspace::{ONE, trusted};
use crate::support::{Folder, callgate, wait_for};
use callgate_tools::{BUILTIN_NAMES, MCP_DEFAULT};
use serde_json::{Value, json};

fn host_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.replace('/', "_")).collect()
}

/// The names in a `tools/list` of MCP.
fn listed(host: &mut Host) -> Vec<String> {
    let params = json!({ "_meta": modern_meta() });
    let reply = host.ask(&request(1, "tools/list", params));
    names_in(&reply["result"]["tools"])
}

fn names_in(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().expect("tools");
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    tools.iter().map(name).collect()
}

/// The words of a protocol error; nothing if there is none.
fn error_of(host: &mut Host, tool: &str, input: &Value) -> Option<String> {
    let reply = host.ask(&modern_call(2, tool, input, &json!({})));
    let words = reply["error"]["message"].as_str();
    words.map(str::to_owned)
}

/// G-14: over MCP a client gets the configured tools and six that only read, in the list and in
/// calls; on every other wire all are there.
#[test]
fn few_are_served_over_mcp() {
    let folder = trusted(ONE);
    let echo = json!({ "command": "echo", "args": ["hello"] });
    let mut few = host_names(&MCP_DEFAULT);
    few.push("one".to_owned());
    few.sort();
    let check = |host: &mut Host| {
        assert_eq!(listed(host), few);
        for name in ["exec_run", "exec/run", "AID.EXEC.RUN.v1"] {
            let words = error_of(host, name, &echo).expect("an error");
            assert!(words.contains("`[builtins] allow`"), "{words}");
        }
        assert_eq!(error_of(host, "files_list", &json!({})), None);
        assert_eq!(error_of(host, "one", &json!({})), None);
    };
    let mut alone = mcp(&folder, &["--standalone"]);
    check(&mut alone);
    assert!(alone.end().success());
    let serve = Serve::start(&folder);
    let mut attached = mcp(&folder, &[]);
    check(&mut attached);
    assert!(attached.end().success());
    // A bridge lists the same; what it may call is the policy's business (B-10).
    let mut bridge = bridge_to_gate(&folder);
    assert_eq!(listed(&mut bridge), few);
    assert_eq!(error_of(&mut bridge, "exec_run", &echo), None);
    assert!(bridge.end().success());
    let mut all = rpc(&folder);
    assert_eq!(all.good("exec/run", echo.clone())["stdout"], "hello\n");
    let shown = all.good("tools/list", json!({ "limit": 200 }));
    assert_eq!(names_in(&shown["tools"]).len(), BUILTIN_NAMES.len() + 1);
    assert!(all.end());
    assert!(serve.stop().success());
    let ran = cli(&folder, &["call", "exec/run", &echo.to_string(), "--json"]);
    assert_eq!(ran.good().json()["ok"], true);
}

/// G-14: over HTTP too; a token whose patterns name built-in tools has them.
#[test]
fn tokens_name_what_they_want_over_mcp() {
    let folder = trusted_web("");
    let web = Web::start(&folder, &[]);
    let is_builtin = |name: &String| host_names(&BUILTIN_NAMES).contains(name);
    let seen = |token: &str| -> Vec<String> {
        let tools = web.tools(token);
        tools.into_iter().filter(is_builtin).collect()
    };
    let mine = owner(&folder);
    assert_eq!(seen(&mine), host_names(&MCP_DEFAULT));
    let plain = token(&folder, &["plain"]);
    assert_eq!(seen(&plain), host_names(&MCP_DEFAULT));
    let named = token(
        &folder,
        &["named", "--tools", "files/wr*", "exec/*", "--tier-max", "2"],
    );
    assert_eq!(seen(&named), ["exec_run", "files_write"]);
    let all = token(&folder, &["all", "--tools", "*", "--tier-max", "3"]);
    assert_eq!(seen(&all), host_names(&BUILTIN_NAMES));
    let write = json!({ "path": "a.txt", "content": "a" });
    assert_eq!(code(&web.call(&mine, "files_write", write.clone())), -32602);
    let written = web.call(&named, "files_write", write).json();
    assert_eq!(written["result"]["isError"], false, "{written}");
    // What hides a tool says so; what a token may not have at all looks like nothing.
    let hidden = web.call(&plain, "files_write", json!({})).json();
    let absent = web.call(&plain, "exec_run", json!({})).json();
    assert!(
        hidden["error"]["message"]
            .to_string()
            .contains("[builtins]")
    );
    assert_eq!(absent["error"]["message"], "tool not found: exec_run");
    assert!(web.serve.stop().success());
}

/// What each wire says of a built-in tool: whether it can be listed, and whether it can be called.
fn reach(folder: &Folder, name: &str, input: &Value) -> Vec<(&'static str, bool)> {
    let mut seen = Vec::new();
    let tools = cli(folder, &["tools", "--json"]).good().json();
    seen.push((
        "tools",
        names_in(&tools["tools"]).contains(&name.to_owned()),
    ));
    let called = cli(folder, &["call", name, &input.to_string(), "--json"]).json();
    seen.push(("call", called["fault"]["kind"] != "unknown_tool"));
    let mut rpc = rpc_alone(folder);
    let shown = rpc.good("tools/list", json!({ "limit": 200 }));
    seen.push((
        "rpc list",
        names_in(&shown["tools"]).contains(&name.to_owned()),
    ));
    let found = rpc.good("rpc/discover", json!({})).to_string();
    seen.push((
        "rpc discover",
        found.contains(&format!("\"name\":\"{name}\"")),
    ));
    let reply = rpc.ask(name, input.clone());
    seen.push(("rpc", reply["error"]["code"] != -32601));
    assert!(rpc.end());
    let mut host = mcp(folder, &["--standalone", "--only", "*"]);
    seen.push((
        "mcp list",
        listed(&mut host).contains(&name.replace('/', "_")),
    ));
    seen.push(("mcp", error_of(&mut host, name, input).is_none()));
    assert!(host.end().success());
    let aid = callgate_call::aid_of_name(name);
    let toolhost = run_with(
        callgate(folder).args(["tool_exec", &aid]),
        json!({ "inputs": input }).to_string().as_bytes(),
    );
    seen.push(("toolhost", !toolhost.out.contains("MISSING_TOOL")));
    let list = run_with(
        callgate(folder).args(["toolhost", "--list", "builtin"]),
        b"",
    );
    seen.push(("toolhost builtin", list.out.contains(&format!("\"{aid}\""))));
    let asked = json!({ "protocol_version": 1, "tool": name, "entry": name, "payload": input });
    let tool = run_with(callgate(folder).arg("tool"), asked.to_string().as_bytes());
    seen.push((
        "tool",
        !tool.out.contains("unknown_tool") && tool.json()["error"]["type"] != "ToolNotFoundError",
    ));
    seen
}

/// G-14: what `[builtins]` leaves out is on no wire, neither in lists nor in calls; and a form that
/// is not trusted leaves out at once, and puts nothing back.
#[test]
fn what_is_not_allowed_is_on_no_wire() {
    let folder = trusted("[builtins]\nallow = [\"files/*\", \"AID.BUILTIN.*\"]\n");
    let path = json!({ "path": "callgate.toml" });
    let query = json!({ "query": "x" });
    let run = json!({ "command": "true" });
    let all = |seen: Vec<(&'static str, bool)>, wanted: bool, what: &str| {
        let wrong: Vec<_> = seen.iter().filter(|(_, is)| *is != wanted).collect();
        assert!(wrong.is_empty(), "{what}: {wrong:?}");
    };
    all(reach(&folder, "files/stat", &path), true, "files/stat");
    all(
        reach(&folder, "builtin/echo", &json!({})),
        true,
        "builtin/echo",
    );
    all(reach(&folder, "exec/run", &run), false, "exec/run");
    all(
        reach(&folder, "vector/search", &query),
        false,
        "vector/search",
    );
    // Allowed by name is served over MCP without being asked for.
    let mut host = mcp(&folder, &["--standalone"]);
    assert!(listed(&mut host).contains(&"files_write".to_owned()));
    assert!(host.end().success());

    folder.write(
        "callgate.toml",
        "[builtins]\nallow = [\"builtin/*\", \"exec/*\"]\n",
    );
    all(
        reach(&folder, "files/stat", &path),
        false,
        "taken away by a form that is not trusted",
    );
    all(
        reach(&folder, "builtin/echo", &json!({})),
        true,
        "left by both",
    );
    all(
        reach(&folder, "exec/run", &run),
        false,
        "given by a form that is not trusted",
    );

    for none in ["off = true", "allow = []"] {
        let folder = trusted(&format!("{ONE}\n[builtins]\n{none}\n"));
        all(reach(&folder, "files/stat", &path), false, none);
        let tools = cli(&folder, &["tools", "--json"]).good().json();
        assert_eq!(names_in(&tools["tools"]), ["one"]);
    }
}

/// G-14: `--only` narrows what one client has to the tools that fit, by a gate of its own and by a
/// running one, and names built-in tools that are not there otherwise.
#[test]
fn only_narrows_one_client() {
    let folder = trusted(ONE);
    let check = |host: &mut Host| {
        assert_eq!(listed(host), ["exec_run", "one"]);
        assert_eq!(
            error_of(host, "exec_run", &json!({ "command": "true" })),
            None
        );
        let outside = error_of(host, "files_list", &json!({}));
        let outside = outside.expect("an error");
        assert!(
            outside.starts_with("tool not found: files_list: "),
            "{outside}"
        );
    };
    let only = ["--only", "exec/*", "--only", "one"];
    let mut alone = mcp(&folder, &[&only[..], &["--standalone"]].concat());
    check(&mut alone);
    assert!(alone.end().success());
    let serve = Serve::start(&folder);
    let mut attached = mcp(&folder, &only);
    check(&mut attached);
    // The next gate is narrowed alike, and so is this process when there is none.
    serve.kill();
    let serve = Serve::start(&folder);
    check(&mut attached);
    serve.kill();
    check(&mut attached);
    assert!(attached.end().success());

    for bad in ["", "files/*\r\nx: y", "é", &"a".repeat(129)] {
        let told = cli(&folder, &["mcp", "--only", bad]);
        assert_eq!(told.code(), 2, "{bad}");
        assert!(
            told.err.contains("a pattern is a tool's name"),
            "{}",
            told.err
        );
    }
    let printed = cli(
        &folder,
        &["mcp", "--print-config", "claude-code", "--only", "exec/*"],
    );
    let args = printed.good().json()["mcpServers"]["callgate"]["args"].to_string();
    assert!(args.contains(r#""--only","exec/*""#), "{args}");
    let told = cli(
        &folder,
        &[
            "mcp",
            "--print-config",
            "claude-code",
            "--http",
            "--only",
            "one",
        ],
    );
    assert_eq!(told.code(), 2);
}

/// What a gate answers to a request for a pipe.
fn knock(socket: &Path, protocol: &str, headers: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a gate");
    let request = format!(
        "GET /mcp/pipe HTTP/1.1\r\nHost: gate\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).expect("write");
    let mut head = Vec::new();
    wait_for("the head", || {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
        head.ends_with(b"\r\n").then_some(())
    });
    String::from_utf8(head).expect("text")
}

/// A pipe is never wider than it was asked for: patterns where none are understood, and none where
/// some are, are refused.
#[test]
fn a_pipe_is_no_wider_than_asked() {
    let folder = trusted(ONE);
    let serve = Serve::start(&folder);
    let socket = folder.join("state/gate.sock");
    for (protocol, headers, status) in [
        ("callgate-mcp", "", "101"),
        ("callgate-mcp", "callgate-only: one\r\n", "404"),
        ("callgate-mcp-only", "", "404"),
        ("callgate-mcp-only", "callgate-only: one\r\n", "101"),
        ("callgate-mcp-only", "callgate-only: \u{e9}\r\n", "404"),
        ("callgate-rpc", "", "404"),
    ] {
        let head = knock(&socket, protocol, headers);
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{protocol} {headers:?}: {head}"
        );
    }
    assert!(serve.stop().success());
}
