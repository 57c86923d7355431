//! The bridge and `callgate serve` as its parent, which comes and goes: cancellation, keys, files
//! on every way out, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use crate::support::bridge::{
    Frames, bridge, bridge_to_gate, keyed_call, told, tools_call, write_private,
};
use crate::support::drive::{Host, Serve, chain, cli, lines_of, python, run, verified};
use crate::support::processes::{descendants, words_of};
use crate::support::{Folder, callgate, unused_uid, wait_for};
use callgate_tools::MCP_DEFAULT;
use serde_json::{Value, json};

const ONE: &str = r#"
[[tool]]
name = "one"
tier = 1
writes = ["effects.log"]
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#;

/// Leaves a line for each run.
const APPEND: &str = "read -r input\necho ran >> effects.log\necho '{}'\n";

/// Leaves a line for each run and waits until `go` is there.
const SLOW: &str = r#"
read -r input
echo ran >> effects.log
while [ ! -e go ]; do sleep 0.02; done
echo '{}'
"#;

fn trusted(tool: &str) -> Folder {
    let folder = Folder::new();
    folder.write("callgate.toml", ONE);
    folder.write("tool.sh", tool);
    cli(&folder, &["trust"]).good();
    folder
}

/// The socket and the schema file of a folder's gate, as far as they are there.
fn leftovers(folder: &Folder) -> Vec<String> {
    let names = std::fs::read_dir(folder.join("state")).unwrap().flatten();
    let mut names: Vec<String> = names
        .map(|entry| entry.file_name().into_string().unwrap())
        // The lock of a socket stays: it is a file that nobody holds.
        .filter(|name| !name.ends_with(".lock"))
        .filter(|name| name.contains("bridge") || name.contains("sock"))
        .collect();
    names.sort();
    names
}

/// B-3: a parent that is killed and comes back between two calls is not noticed; one that is
/// away during a call fails that call and no other.
#[test]
fn a_parent_that_comes_back() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    let mut bridge = bridge_to_gate(&folder);
    assert_eq!(
        told(&bridge.ask(&tools_call(1, "one", &json!({})))),
        ("{}", false)
    );
    serve.kill();
    let serve = Serve::start(&folder);
    assert_eq!(
        told(&bridge.ask(&tools_call(2, "one", &json!({})))),
        ("{}", false)
    );
    serve.kill();
    let reply = bridge.ask(&tools_call(3, "one", &json!({})));
    let (words, is_error) = told(&reply);
    assert!(
        is_error && words.contains("Cannot connect to IPC server at"),
        "{words}"
    );
    let serve = Serve::start(&folder);
    assert_eq!(
        told(&bridge.ask(&tools_call(4, "one", &json!({})))),
        ("{}", false)
    );
    assert_eq!(lines_of(&folder.join("effects.log")).len(), 3);
    assert!(
        serve.stop().success(),
        "a connected bridge does not hold it up"
    );
    assert!(bridge.end().success());
    verified(&folder);
}

/// BR-22: a parent killed during a call fails that call, in words that say what is not known.
#[test]
fn a_parent_killed_during_a_call() {
    let folder = trusted(SLOW);
    let serve = Serve::start(&folder);
    let mut bridge = bridge_to_gate(&folder);
    assert!(bridge.send(&tools_call(1, "one", &json!({}))));
    wait_for("its start", || {
        (!lines_of(&folder.join("effects.log")).is_empty()).then_some(())
    });
    serve.kill();
    let reply = bridge.reply();
    let (words, is_error) = told(&reply);
    assert!(is_error && words.contains("Connection lost"), "{words}");
    folder.write("go", "");
    let serve = Serve::start(&folder);
    assert_eq!(
        told(&bridge.ask(&tools_call(2, "one", &json!({})))),
        ("{}", false)
    );
    assert!(serve.stop().success());
}

/// BR-35, B-7: nothing is left by any end of the gate, and a killed one's is swept by the next.
#[test]
fn nothing_is_left() {
    let folder = trusted(APPEND);
    let both = ["bridge-schema.json", "bridge.sock", "gate.sock"];
    let serve = Serve::start(&folder);
    assert_eq!(leftovers(&folder), both);
    for name in &both {
        let found = std::fs::metadata(folder.join("state").join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert!(serve.stop().success());
    assert_eq!(leftovers(&folder), [""; 0], "after SIGTERM");
    let serve = Serve::start(&folder);
    crate::support::drive::signal(serve.pid(), rustix::process::Signal::INT);
    assert!(serve.ended().success());
    assert_eq!(leftovers(&folder), [""; 0], "after Ctrl-C");
    Serve::start(&folder).kill();
    assert_eq!(leftovers(&folder), both, "a killed gate can not clean up");
    // Half a schema file, and a mode that is wrong: the next one starts from nothing.
    let schema = folder.join("state/bridge-schema.json");
    std::fs::set_permissions(&schema, std::fs::Permissions::from_mode(0o644)).unwrap();
    // No process has this number; the last file is somebody else's, whatever its name begins with.
    folder.write("state/bridge-schema.json.4194305.new", "[{");
    folder.write(
        "state/bridge-schema-0123456789abcdef.json.4194305.new",
        "[{",
    );
    folder.write("state/bridge-schema-0123456789abcdef.json", "[{");
    folder.write("state/bridge-schema-ci.json", "[]");
    let serve = Serve::start(&folder);
    assert!(folder.join("state/bridge-schema-ci.json").exists());
    std::fs::remove_file(folder.join("state/bridge-schema-ci.json")).unwrap();
    assert_eq!(leftovers(&folder), both);
    let mode = std::fs::metadata(&schema).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(serve.stop().success());
    assert_eq!(
        leftovers(&folder),
        [""; 0],
        "after SIGKILL and the next one's end"
    );
    // A list for one client is written as long as somebody serves, and by whoever serves next.
    let asked = cli(&folder, &["bridge-config", "one"]).good().json();
    let list = asked["mcpServers"]["callgate"]["args"][2].as_str().unwrap();
    let list = Path::new(list);
    let with_list = [&both[..], &[list.file_name().unwrap().to_str().unwrap()]].concat();
    let with_list: BTreeSet<&str> = with_list.into_iter().collect();
    let is_left = |wanted: &BTreeSet<&str>| {
        let left = leftovers(&folder);
        assert_eq!(
            left.iter().map(String::as_str).collect::<BTreeSet<_>>(),
            *wanted
        );
    };
    is_left(&BTreeSet::new());
    folder.write("state/bridge-schema-0123456789abcdef.json", "[]");
    let serve = Serve::start(&folder);
    is_left(&with_list);
    serve.kill();
    is_left(&with_list);
    let serve = Serve::start(&folder);
    is_left(&with_list);
    assert!(serve.stop().success());
    is_left(&BTreeSet::new());
    // A gate that can not start leaves nothing either: a folder is where its socket goes.
    std::fs::create_dir(folder.join("state/gate.sock")).unwrap();
    assert_eq!(cli(&folder, &["serve"]).code(), 1);
    assert_eq!(
        leftovers(&folder),
        ["gate.sock"],
        "after a start that failed"
    );
}

/// BR-34, B-7, B-10: the file lists what is served, and follows the configuration.
#[test]
fn the_schema_file_follows_the_catalog() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    let names = || -> Vec<String> {
        let text = folder.read("state/bridge-schema.json").unwrap();
        let tools: Vec<Value> = serde_json::from_str(&text).unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(),
        [
            "artifacts_read",
            "files_list",
            "files_read",
            "files_search",
            "files_stat",
            "one",
            "runs_get",
        ]
    );
    let asked = cli(&folder, &["bridge-config", "one", "builtin/echo"]);
    let list = asked.good().json()["mcpServers"]["callgate"]["args"][2].clone();
    let listed = || -> Vec<String> {
        let text = std::fs::read_to_string(list.as_str().unwrap()).unwrap();
        let tools: Vec<Value> = serde_json::from_str(&text).unwrap();
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    };
    assert_eq!(listed(), ["builtin_echo", "one"]);
    folder.write("callgate.toml", &ONE.replace("\"one\"", "\"two\""));
    cli(&folder, &["trust"]).good();
    wait_for("a list without it", || {
        (listed() == ["builtin_echo"]).then_some(())
    });
    wait_for("the new name", || {
        names().contains(&"two".to_owned()).then_some(())
    });
    assert!(!names().contains(&"one".to_owned()));
    // A file that can not be written keeps no other from being.
    let schema = folder.join("state/bridge-schema.json");
    std::fs::remove_file(&schema).unwrap();
    std::fs::create_dir(&schema).unwrap();
    folder.write("callgate.toml", ONE);
    cli(&folder, &["trust"]).good();
    wait_for("the list", || {
        (listed() == ["builtin_echo", "one"]).then_some(())
    });
    assert!(serve.stop().success());
}

/// G-3, G-11: a key used over MCP or `gate.sock` replays over the bridge, also across a
/// restart of the gate, and the other way round.
#[test]
fn a_retry_over_the_bridge_runs_nothing() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    let mut mcp = Host::spawn(callgate(&folder).arg("mcp"));
    let first = mcp.ask(&keyed_call(1, "one", &json!({}), "by-mcp"));
    assert_eq!(told(&first), ("{}", false));
    assert!(mcp.end().success());
    serve.call(&json!({ "tool": "one", "input": {}, "idempotency_key": "by-gate" }));
    let runs = || lines_of(&folder.join("effects.log")).len();
    assert_eq!(runs(), 2);
    let mut bridge = bridge_to_gate(&folder);
    let retried = |bridge: &mut Host, key: &str| {
        let reply = bridge.ask(&keyed_call(2, "one", &json!({}), key));
        assert_eq!(told(&reply), ("{}", false));
        let call = &reply["result"]["_meta"]["callgate/call"];
        call["replayed"] == true
    };
    assert!(retried(&mut bridge, "by-mcp"));
    assert!(retried(&mut bridge, "by-gate"));
    assert!(!retried(&mut bridge, "by-bridge"));
    assert_eq!(runs(), 3);
    serve.kill();
    let serve = Serve::start(&folder);
    for key in ["by-mcp", "by-gate", "by-bridge"] {
        assert!(retried(&mut bridge, key), "{key}");
    }
    let body = json!({ "tool": "one", "input": {}, "idempotency_key": "by-bridge" });
    assert_eq!(serve.call(&body)["idempotent_hit"], true);
    assert_eq!(runs(), 3);
    assert!(serve.stop().success());
    verified(&folder);
}

/// BR-36: a call that is taken back, and one whose client went away, end with their tool; one
/// with a key runs on, because its caller will come back and ask.
#[test]
fn cancelled_calls_end_their_tool() {
    let folder = trusted(SLOW);
    let serve = Serve::start(&folder);
    let started = |count: usize| {
        wait_for("its start", || {
            (lines_of(&folder.join("effects.log")).len() == count).then_some(())
        });
    };
    let gate = serve.pid();
    let ended = || {
        wait_for("its end", || {
            let left = descendants(gate);
            let running = left.iter().any(|&pid| words_of(pid).contains("tool.sh"));
            (!running).then_some(())
        });
    };
    let mut bridge = bridge_to_gate(&folder);
    assert!(bridge.send(&tools_call(1, "one", &json!({}))));
    started(1);
    assert!(bridge.send(&json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": 1 },
    })));
    ended();
    assert!(bridge.send(&tools_call(2, "one", &json!({}))));
    started(2);
    assert!(bridge.end().success(), "the end of its input");
    ended();
    let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
    frames.send(br#"{"method":"call_tool","params":{"name":"one"}}"#);
    started(3);
    drop(frames);
    ended();
    // One that has said all it had to say still waits, until it is gone.
    let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
    frames.send(br#"{"method":"call_tool","params":{"name":"one"}}"#);
    frames.0.shutdown(std::net::Shutdown::Write).unwrap();
    started(4);
    drop(frames);
    ended();
    let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
    frames.send(br#"{"method":"call_tool","params":{"name":"one","_meta":{"callgate/idempotencyKey":"k"}}}"#);
    started(5);
    drop(frames);
    folder.write("go", "");
    let mut bridge = bridge_to_gate(&folder);
    let reply = bridge.ask(&keyed_call(3, "one", &json!({}), "k"));
    assert_eq!(told(&reply), ("{}", false));
    ended();
    assert_eq!(lines_of(&folder.join("effects.log")).len(), 5);
    drop(bridge);
    assert!(serve.stop().success());
    let records = chain(&folder);
    let cancelled = records
        .iter()
        .filter(|record| record["fault"] == "cancelled");
    assert_eq!(cancelled.count(), 4, "{records:?}");
    verified(&folder);
}

/// BR-24: exactly two arguments.
#[test]
fn usage() {
    let folder = Folder::new();
    for args in [vec![], vec!["a"], vec!["a", "b", "c"], vec!["--help"]] {
        let ran = run(callgate(&folder).arg("bridge").args(&args));
        assert_eq!((ran.code(), ran.out.as_str()), (1, ""), "{args:?}");
        assert!(
            ran.err.contains("usage: callgate bridge SOCKET SCHEMA"),
            "{}",
            ran.err
        );
    }
}

/// BR-28, BR-33: a schema file that is missing, broken or not the owner's alone ends the
/// bridge at its start.
#[test]
fn schema_files_that_are_refused() {
    let folder = Folder::new();
    let schema = folder.join("schema.json");
    let refused = |path: &Path, words: &str| {
        let ran = run(callgate(&folder).args(["bridge", "p.sock"]).arg(path));
        assert_eq!((ran.code(), ran.out.as_str()), (1, ""), "{words}");
        assert!(ran.err.contains(words), "{}", ran.err);
        assert!(ran.err.contains(path.to_str().unwrap()), "{}", ran.err);
    };
    refused(&schema, "No such file");
    for (text, words) in [
        ("", "not JSON"),
        ("{}", "not a JSON array"),
        (
            r#"[{"name":"a","description":"b"}]"#,
            "`input_schema` must be an object",
        ),
        (
            r#"[{"name":1,"description":"b","input_schema":{}}]"#,
            "`name` must be a string",
        ),
    ] {
        write_private(&schema, text);
        refused(&schema, words);
    }
    write_private(&schema, "[]");
    for (mode, words) in [(0o644, "0644"), (0o660, "0660"), (0o602, "0602")] {
        std::fs::set_permissions(&schema, std::fs::Permissions::from_mode(mode)).unwrap();
        refused(&schema, words);
    }
    refused(folder.path(), "no regular file");
    let pipe = folder.join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    refused(&pipe, "no regular file");
    if rustix::process::geteuid().is_root() {
        let foreign = folder.join("foreign.json");
        write_private(&foreign, "[]");
        std::os::unix::fs::chown(&foreign, Some(64123), None).unwrap();
        refused(&foreign, "belongs to user 64123");
    }
    std::fs::set_permissions(&schema, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut well = bridge(&folder, &folder.join("p.sock"), &schema);
    let listed = well.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert_eq!(listed["result"], json!({ "tools": [] }));
}

/// B-7: the files are their owner's alone, and neither end talks to a process of another user.
/// Only root can be a second user; anybody else's tests of `doors` hold the two ends to a number
/// that is not theirs.
#[test]
fn another_user_is_not_served() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    for (name, wanted) in [
        ("state", 0o700),
        ("state/bridge.sock", 0o600),
        ("state/bridge-schema.json", 0o600),
    ] {
        let found = std::fs::metadata(folder.join(name)).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, wanted, "{name}");
    }
    if rustix::process::geteuid().is_root() {
        let uid = unused_uid().to_string();
        is_closed_on(&folder, &uid);
        assert!(serve.stop().success());
        is_not_told(&folder, &uid);
    } else {
        assert!(serve.stop().success());
    }
}

/// The gate's end, even where the modes would let that user in.
fn is_closed_on(folder: &Folder, uid: &str) {
    let socket = folder.join("state/bridge.sock");
    for (path, mode) in [(folder.join("state"), 0o755), (socket.clone(), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let script = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
uid = int(sys.argv[1])
if uid: os.setgroups([]); os.setgid(uid); os.setuid(uid)
s.connect(sys.argv[2])
answer = b""
try:
    s.sendall(b'\0\0\0\x0e{"method":"x"}')
    answer = s.recv(4096)
except (BrokenPipeError, ConnectionResetError):
    pass
print(len(answer))
"#;
    let answered = |uid: &str| {
        let mut command = Command::new(python());
        let ran = run(command.args(["-c", script, uid]).arg(&socket)).good();
        ran.out.trim() != "0"
    };
    assert!(!answered(uid));
    assert!(answered("0"));
}

/// The bridge's end, at a socket of that user's.
fn is_not_told(folder: &Folder, uid: &str) {
    let parent = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
uid = int(sys.argv[1])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
s.bind(sys.argv[2]); s.listen()
print("up", flush=True)
sys.stdin.read()
"#;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let theirs = folder.join("theirs.sock");
    let mut child = Command::new(python())
        .args(["-c", parent, uid])
        .arg(&theirs)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("their socket", || theirs.exists().then_some(()));
    write_private(&folder.join("schema.json"), "[]");
    let mut bridge = bridge(folder, &theirs, &folder.join("schema.json"));
    wait_for("a refusal by user", || {
        let reply = bridge.ask(&tools_call(1, "one", &json!({})));
        let (words, is_error) = told(&reply);
        assert!(is_error);
        words
            .contains(&format!("served by user {uid}"))
            .then_some(())
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// B-10: the printed entry starts a bridge that works, for all tools or for those that are named.
#[test]
fn the_client_entry_works() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    let listed = |args: &[&str]| -> Vec<String> {
        let entry = cli(&folder, args).good().json();
        let entry = &entry["mcpServers"]["callgate"];
        assert_eq!(entry["type"], "stdio");
        let mut command = Command::new(entry["command"].as_str().unwrap());
        for word in entry["args"].as_array().unwrap() {
            command.arg(word.as_str().unwrap());
        }
        let mut bridge = Host::spawn(&mut command);
        let listed = bridge.ask(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
        assert_eq!(told(&bridge.ask(&tools_call(2, "one", &json!({})))).0, "{}");
        let tools = listed["result"]["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(listed(&["bridge-config"]).len(), MCP_DEFAULT.len() + 1);
    assert_eq!(listed(&["bridge-config", "one"]), ["one"]);
    let named = [
        "bridge-config",
        "one",
        "builtin/echo",
        "--schema",
        "two.json",
    ];
    assert_eq!(listed(&named), ["builtin_echo", "one"]);
    let mode = std::fs::metadata(folder.join("two.json")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let absent = || {
        let unknown = cli(&folder, &["bridge-config", "absent"]);
        assert_eq!(unknown.code(), 1);
        let words = "tool not found: absent";
        assert!(unknown.err.contains(words), "{}", unknown.err);
    };
    absent();
    // The entry is the same while nobody serves, and it is said what it needs.
    let printed = |tools: &[&str]| cli(&folder, &[&["bridge-config"], tools].concat()).good();
    let said = "`callgate serve` must run for this entry to work";
    let served = [printed(&[]), printed(&["one"])];
    assert!(
        served.iter().all(|ran| !ran.err.contains(said)),
        "{served:?}"
    );
    assert!(serve.stop().success());
    for (tools, served) in [&[][..], &["one"]].into_iter().zip(served) {
        let unserved = printed(tools);
        assert_eq!(unserved.out, served.out);
        assert!(unserved.err.contains(said), "{unserved:?}");
    }
    absent();
}

/// Connections that vanish, half frames and bad frames harm nobody else on the socket.
#[test]
fn bad_neighbours() {
    let folder = trusted(APPEND);
    let serve = Serve::start(&folder);
    let socket = folder.join("state/bridge.sock");
    let mut good = Frames::connect(&socket);
    let open = || {
        std::fs::read_dir(format!("/proc/{}/fd", serve.pid()))
            .unwrap()
            .count()
    };
    assert_eq!(
        good.call("one", &json!({}))["result"]["content"][0]["text"],
        "{}"
    );
    let before = open();
    for round in 0..500 {
        let mut frames = Frames::connect(&socket);
        let bytes: &[u8] = match round % 4 {
            0 => b"",
            1 => b"\0\0",
            2 => b"\0\xa0\0\0{\"method\"",
            _ => b"\xff\xff\xff\xff",
        };
        frames.0.write_all(bytes).unwrap();
    }
    assert_eq!(
        good.call("one", &json!({}))["result"]["content"][0]["text"],
        "{}"
    );
    wait_for("their end", || (open() <= before).then_some(()));
    assert!(
        serve.stop().success(),
        "an idle connection does not hold it up"
    );
    assert_eq!(good.message(), None);
}
