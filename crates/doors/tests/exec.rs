//! `exec/run` over JSON-RPC: what it takes and gives, what it refuses, and which secrets it does not
//! show. What becomes of the processes it starts is tested with the program., G-9.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;

use callgate_testing::mcp::modern_call;
use callgate_testing::scripts::ONE;
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Folder, Opened, environment, trusted, trusted_with};

fn ask(host: &mut Host, params: Value) -> Value {
    host.ask(&json!({ "jsonrpc": "2.0", "id": 4, "method": "exec/run", "params": params }))
}

fn good(host: &mut Host, params: Value) -> Value {
    let answer = ask(host, params);
    assert_eq!(answer.get("error"), None);
    answer["result"].clone()
}

/// A command of the shell.
fn sh(host: &mut Host, command: &str) -> Value {
    good(host, json!({ "command": command, "shell": true }))
}

/// The code, and which field is at fault.
fn bad(host: &mut Host, params: Value) -> (i64, String) {
    let answer = ask(host, params);
    assert_eq!(answer.get("result"), None, "{answer}");
    let error = &answer["error"];
    let field = error["data"]["field"].as_str().unwrap_or_default();
    (error["code"].as_i64().expect("a code"), field.to_owned())
}

/// JR-76, JR-77, JR-78, JR-79, JR-81, JR-82, JR-84, JR-85, JR-86, JR-87, JR-88, R-9.
#[test]
fn what_it_takes_and_gives() {
    let folder = Folder::new();
    folder.write("sub/a", "");
    let mut host = Host::rpc(&folder);
    let params = json!({ "command": "printf", "args": ["%s|", "a b", "$HOME", "*"] });
    let result = good(&mut host, params);
    assert_eq!(result["stdout"], "a b|$HOME|*|", "no shell");
    assert_eq!(
        (&result["exit_code"], &result["stderr"]),
        (&json!(0), &json!(""))
    );
    assert_eq!(result["timed_out"], false);
    assert!(result["duration_ms"].is_u64(), "{result}");
    assert_eq!(result.as_object().unwrap().len(), 5);
    let params = json!({
        "command": "echo \"$1-$2-$0\"; cat; echo err >&2; exit 7", "shell": true,
        "args": ["x y", "z"], "stdin": "words é",
    });
    let result = good(&mut host, params);
    assert_eq!(result["stdout"], "x y-z-sh\nwords é");
    assert_eq!(
        (&result["stderr"], &result["exit_code"]),
        (&json!("err\n"), &json!(7))
    );
    let params = json!({ "command": "pwd", "cwd": "sub", "stdin": null });
    let place = folder.join("sub").display().to_string();
    assert_eq!(good(&mut host, params)["stdout"], format!("{place}\n"));
    assert_eq!(
        good(&mut host, json!({ "command": "pwd", "cwd": null }))["stdout"],
        format!("{}\n", folder.path().display())
    );
    let params = json!({ "command": "cat" });
    assert_eq!(
        good(&mut host, params)["stdout"],
        "",
        "no input is an empty one"
    );
    let params = json!({ "command": "sh", "args": ["-c", "kill -SEGV $$"] });
    assert_eq!(good(&mut host, params)["exit_code"], 128 + 11);
    // It writes the workspace.
    sh(&mut host, "echo made > sub/b");
    assert_eq!(folder.read("sub/b").as_deref(), Some("made\n"));
    // Input that nobody reads, and more than a pipe holds.
    let params = json!({ "command": "true", "stdin": "x".repeat(1 << 20) });
    assert_eq!(good(&mut host, params)["exit_code"], 0);
    let params = json!({ "command": "wc", "args": ["-c"], "stdin": "x".repeat(1 << 20) });
    assert_eq!(
        good(&mut host, params)["stdout"].as_str().unwrap().trim(),
        "1048576"
    );
}

/// JR-80, JR-89, R-9: what is refused, with which code, before anything runs.
#[test]
fn refusals() {
    let outside = Folder::new();
    let folder = trusted(ONE);
    folder.write("plain", "no program");
    folder.executable("broken.sh", "#!/no/such/interpreter\n");
    symlink(outside.path(), folder.join("door")).unwrap();
    let mut host = Host::rpc(&folder);
    for command in ["no-such-program", "./no-such", "./broken.sh"] {
        assert_eq!(
            bad(&mut host, json!({ "command": command })).0,
            1001,
            "{command}"
        );
    }
    for command in ["./plain", ".", "/etc/passwd"] {
        let refused = bad(&mut host, json!({ "command": command }));
        assert_eq!(refused, (1002, "command".to_owned()), "{command}");
    }
    for cwd in ["..", "/", "/etc", "door", "none", "plain", "a\0"] {
        let refused = bad(&mut host, json!({ "command": "true", "cwd": cwd }));
        assert_eq!(refused, (1003, "cwd".to_owned()), "{cwd:?}");
    }
    assert_eq!(
        bad(&mut host, json!({ "command": "true", "cwd": "state" })).0,
        1002
    );
    for (field, params) in [
        ("command", json!({ "command": "" })),
        ("command", json!({ "command": "a\0b" })),
        ("command", json!({ "command": "a\0b", "shell": true })),
        ("args", json!({ "command": "true", "args": ["\0"] })),
        (
            "args",
            json!({ "command": "true", "args": ["x".repeat(2 << 20)] }),
        ),
    ] {
        assert_eq!(bad(&mut host, params), (1003, field.to_owned()));
    }
    for (field, params) in [
        ("", json!({})),
        (
            "timeout_ms",
            json!({ "command": "true", "timeout_ms": 999 }),
        ),
        (
            "timeout_ms",
            json!({ "command": "true", "timeout_ms": 600_001 }),
        ),
        ("args.0", json!({ "command": "true", "args": [1] })),
        ("env.A", json!({ "command": "true", "env": { "A": 1 } })),
        ("shell", json!({ "command": "true", "shell": "yes" })),
        ("stream", json!({ "command": "true", "stream": null })),
        ("stdin", json!({ "command": "true", "stdin": 1 })),
        ("", json!({ "command": "true", "more": 1 })),
    ] {
        let (code, named) = bad(&mut host, params.clone());
        assert_eq!(code, -32602, "{params}");
        let named = named.replace('/', ".");
        assert!(field.is_empty() || named == field, "{params}: {named}");
    }
    for timeout_ms in [1000, 600_000] {
        good(
            &mut host,
            json!({ "command": "true", "timeout_ms": timeout_ms }),
        );
    }
}

/// R-9, G-13: a call sets a bounded number of variables. Far more are refused at once, and nobody
/// else waits.
#[test]
fn variables_are_bounded() {
    let folder = Folder::new();
    let mut host = Host::rpc(&folder);
    let env = |count: usize| -> Value {
        let pairs = (0..count).map(|at| (format!("V{at}"), json!("")));
        pairs.collect()
    };
    let most = good(&mut host, json!({ "command": "env", "env": env(4096) }));
    let set = most["stdout"].as_str().unwrap();
    assert_eq!(
        set.lines().filter(|line| line.starts_with('V')).count(),
        4096
    );
    let runner = json!({ "command": ["true"] });
    for count in [4097, 200_000] {
        let params = json!({ "command": "true", "env": env(count) });
        assert_eq!(bad(&mut host, params), (1003, "env".to_owned()));
        let params = json!({ "command": "cat", "env": env(count) });
        let request = json!({
            "jsonrpc": "2.0", "id": 5, "method": "terminals/create", "params": params,
        });
        assert_eq!(host.ask(&request)["error"]["data"]["field"], "env");
        let mut params = runner.clone();
        params["env"] = env(count);
        let request = json!({
            "jsonrpc": "2.0", "id": 6, "method": "runs/start", "params": params,
        });
        assert!(host.ask(&request).get("error").is_some());
    }
}

/// JR-8, JR-85, JR-86: bytes that are no text show as U+FFFD.
#[test]
fn binary_output() {
    let folder = Folder::new();
    let mut host = Host::rpc(&folder);
    let result = sh(&mut host, "printf 'a\\377\\000b\\342\\202'");
    assert_eq!(result["stdout"], "a\u{FFFD}\0b\u{FFFD}");
}

/// JR-167, R-15: known secrets are replaced wherever they show, artifacts included.
#[test]
fn secrets_do_not_show() {
    let folder = trusted("[secrets]\nenv = [\"TOKEN\"]\n[exec]\nenv = [\"TOKEN\"]\n");
    let environment = environment(&folder, &[("TOKEN", OsStr::new("s3cret-value"))]);
    let mut host = Host::rpc_of(Opened::in_environment(&folder, &environment));
    // In two writes, with time between them for the first to be read.
    let script = "printf 's3cret'; sleep 0.3; printf -- '-value'; echo \" $TOKEN\" >&2";
    let result = sh(&mut host, script);
    assert_eq!(result["stdout"], "[secret]");
    assert_eq!(result["stderr"], " [secret]\n");
    let long = "head -c 6000000 /dev/zero | tr '\\0' x; echo $TOKEN; head -c 6000000 /dev/zero | tr '\\0' x";
    let result = sh(&mut host, long);
    let text = result["stdout"].as_str().unwrap();
    let name = text
        .split([' ', '\n'])
        .find(|word| word.starts_with("artifact:"))
        .unwrap();
    let params = json!({ "path": name, "offset": 5_999_999, "length": 11 });
    let answer =
        host.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "files/read", "params": params }));
    assert_eq!(answer["result"]["content"], "x[secret]\nx");
}

/// so is what programs are let see under a name that says what it is, and the owner's token.
#[test]
fn secrets_by_their_names() {
    let folder = trusted("[exec]\nenv = [\"MY_API_TOKEN\", \"PLACE\"]\n");
    let token = Opened::new(&folder).parts.store.owner_token();
    let token = token.expect("a token").0.reveal().to_owned();
    let variables = [
        ("MY_API_TOKEN", OsStr::new("s3cret-value")),
        ("PLACE", OsStr::new("somewhere")),
    ];
    let environment = environment(&folder, &variables);
    let mut host = Host::rpc_of(Opened::in_environment(&folder, &environment));
    let params =
        json!({ "command": "echo $MY_API_TOKEN $PLACE $1", "shell": true, "args": [token] });
    assert_eq!(
        good(&mut host, params)["stdout"],
        "[secret] somewhere [secret]\n"
    );
}

/// A configured tool takes its place; the owner may want none at all.
#[test]
fn the_owner_decides() {
    let folder = trusted(&ONE.replace("name = \"one\"", "name = \"exec/run\""));
    let mut host = Host::rpc(&folder);
    assert_eq!(good(&mut host, json!({ "n": 1 }))["got"], json!({ "n": 1 }));
    let folder = trusted("[exec]\noff = true\n");
    assert_eq!(
        bad(&mut Host::rpc(&folder), json!({ "command": "true" })).0,
        -32601
    );
    let folder = trusted_with(&[("callgate.toml", "[exec]\ntier = 3\n")]);
    let listed =
        Host::rpc(&folder).ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert!(
        tools.iter().any(|tool| tool["name"] == "exec/run"),
        "{listed}"
    );
}

/// JR-77, JR-84, R-9: the same over MCP and toolhost, faults included.
#[test]
fn on_other_wires() {
    let folder = Folder::new();
    let params = json!({ "command": "echo $1; exit 3", "shell": true, "args": ["é"] });
    let mut wanted = good(&mut Host::rpc(&folder), params.clone());
    let no_time = |result: &mut Value| result["duration_ms"] = json!(0);
    no_time(&mut wanted);
    let mut mcp = Host::mcp(&folder, &["exec/*"]);
    let call = modern_call(1, "exec_run", &params, &json!({}));
    let mut by_mcp = mcp.ask(&call)["result"]["structuredContent"].clone();
    no_time(&mut by_mcp);
    assert_eq!(by_mcp, wanted);
    let mut toolhost = Host::toolhost_builtins(&folder);
    let line = |params: &Value| json!({ "aid": "AID.EXEC.RUN.v1", "inputs": params });
    let reply = toolhost.ask(&line(&params));
    let output = reply["output_json"]
        .as_str()
        .unwrap_or_else(|| panic!("{reply}"));
    let mut by_toolhost: Value = serde_json::from_str(output).unwrap();
    no_time(&mut by_toolhost);
    assert_eq!(by_toolhost, wanted);
    let params = json!({ "command": "no-such-program" });
    assert_eq!(toolhost.ask(&line(&params))["status"], "TOOL_ERROR");
    let call = modern_call(2, "exec_run", &params, &json!({}));
    assert_eq!(mcp.ask(&call)["result"]["isError"], true);
}
