//! The first steps with an MCP host, as they are written down: the settings that are printed
//! work as printed, and so do the quick starts of the README.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use crate::support::Folder;
use crate::support::drive::{Host, Ran, cli, end_of, run};
use crate::support::mcp::{initialize, legacy_call, modern_meta};
use crate::support::outside::{modules, node};
use crate::support::readme::{Reader, blocks};
use crate::support::wait_for;
use crate::support::workspace::{ONE, trusted};
use serde_json::{Value, json};

const HOSTS: [(&str, &str); 6] = [
    ("claude-code", "mcpServers"),
    ("claude-desktop", "mcpServers"),
    ("cursor", "mcpServers"),
    ("vscode", "servers"),
    ("windsurf", "mcpServers"),
    ("zed", "context_servers"),
];

/// The Inspector's command line, with the words of its documentation.
fn inspector(folder: &Folder, target: &[&str], args: &[&str]) -> Ran {
    let script = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    run(node(folder)
        .arg(modules().join(script))
        .arg("--cli")
        .args(target)
        .args(["--format", "json", "-q"])
        .args(args))
}

/// Each host's settings name this program and this workspace, and what they name answers.
#[test]
fn printed_settings_work() {
    let folder = trusted(ONE);
    for (host, servers) in HOSTS {
        let printed = cli(&folder, &["mcp", "--print-config", host]).good();
        assert!(printed.err.starts_with("for "), "{host}: {}", printed.err);
        let entry = &printed.json()[servers]["callgate"];
        assert_eq!(entry["command"], json!(crate::support::program()), "{host}");
        let workspace = json!(folder.path());
        let args = entry["args"].as_array().expect("arguments");
        assert!(args.contains(&workspace), "{host}: {args:?}");
    }
    let printed = cli(&folder, &["mcp", "--print-config", "claude-code"]).good();
    let settings = folder.write("mcp.json", &printed.out);
    let listed = inspector(
        &folder,
        &[
            "--config",
            settings.to_str().expect("text"),
            "--server",
            "callgate",
        ],
        &[
            "--method",
            "tools/call",
            "--tool-name",
            "one",
            "--tool-arg",
            "n=3",
        ],
    );
    let result: Value = listed.good().json();
    assert_eq!(
        result["result"]["content"][0]["text"],
        "{\"got\":{\"n\":3}}"
    );
}

/// By HTTP an address and a place for the token, where the host can take them.
#[test]
fn printed_http_settings_have_the_address() {
    let folder = trusted(ONE);
    for (host, servers) in HOSTS {
        let printed = cli(
            &folder,
            &["mcp", "--print-config", host, "--http", "--port", "7412"],
        );
        if host == "claude-desktop" {
            assert_eq!(printed.code(), 1);
            assert!(printed.err.contains("leave out --http"), "{}", printed.err);
            continue;
        }
        let printed = printed.good();
        let entry = &printed.json()[servers]["callgate"];
        let url = if host == "windsurf" {
            &entry["serverUrl"]
        } else {
            &entry["url"]
        };
        assert_eq!(url, "http://127.0.0.1:7412/mcp", "{host}");
        let header = entry["headers"]["Authorization"]
            .as_str()
            .expect("a header");
        assert!(header.starts_with("Bearer "), "{host}: {header}");
        assert!(
            printed.err.contains("callgate token create"),
            "{}",
            printed.err
        );
    }
}

/// The folder that the quick starts are about.
const HELLO: &str = "examples/hello";

/// A handshake in each era, and the tools, at what an entry starts as a host would.
fn shakes_hands(reader: &Reader, entry: &Value) -> Host {
    let program = entry["command"].as_str().expect("a program");
    let mut command = reader.command(program, "");
    for word in entry["args"].as_array().expect("arguments") {
        command.arg(word.as_str().expect("text"));
    }
    let mut host = Host::spawn(&mut command);
    let begun = host.ask(&initialize(1));
    assert_eq!(begun["result"]["protocolVersion"], "2025-11-25", "{begun}");
    host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let discover = json!({
        "jsonrpc": "2.0", "id": 2, "method": "server/discover",
        "params": { "_meta": modern_meta() },
    });
    let found = host.ask(&discover);
    let versions = &found["result"]["supportedVersions"];
    assert_eq!(versions[0], "2026-07-28", "{found}");
    host
}

/// The names of a host's tools.
fn tools_of(host: &mut Host) -> Vec<String> {
    let listed = host.ask(&json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" }));
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let name = |tool: &Value| tool["name"].as_str().expect("a name").to_owned();
    tools.iter().map(name).collect()
}

fn text_of(reply: &Value) -> &str {
    let text = reply["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text: {reply}"))
}

/// The README's quick starts for MCP, as they are written, with two clients: the Inspector and
/// fastmcp. Only the port is another one, because this machine's 7411 may be somebody's.
#[test]
fn the_mcp_quick_start_works() {
    let reader = Reader::new().with_clients();
    let config = reader.home.read("examples/hello/callgate.toml");
    let config = config.expect("the example") + "\n[http]\nport = 0\n";
    reader.home.write("examples/hello/callgate.toml", &config);
    let [print, serve, try_it] = &blocks("Quick start: MCP", "sh")[..] else {
        panic!("three blocks");
    };
    let printed = reader.types(print, "").ended().good();
    let (_, settings) = printed.out.split_once('{').expect("settings");
    let settings: Value = serde_json::from_str(&format!("{{{settings}")).expect("JSON");
    // Or for one of the others that it names.
    let (_, others) = print.split_once("# or ").expect("the others");
    let others: Vec<&str> = others.trim_end().split(", ").collect();
    let named: Vec<&str> = HOSTS.iter().map(|(host, _)| *host).skip(1).collect();
    assert_eq!(others, named);
    for (host, servers) in HOSTS {
        let settings = match host {
            "claude-code" => settings.clone(),
            other => {
                let asked = print.replace("claude-code", other);
                let asked = asked.lines().last().expect("a line").to_owned();
                let printed = reader.types(&asked, HELLO).ended().good();
                serde_json::from_str(&printed.out).expect("JSON")
            }
        };
        let mut host = shakes_hands(&reader, &settings[servers]["callgate"]);
        assert!(tools_of(&mut host).contains(&"greet".to_owned()));
        let called = host.ask(&legacy_call(
            4,
            "greet",
            &json!({ "name": "Ada" }),
            &json!({}),
        ));
        assert_eq!(text_of(&called), "{\"message\":\"Hello Ada\"}");
        assert!(host.end().success());
    }

    let serve = reader.types(serve, HELLO);
    let port = wait_for("the port", || {
        let said = serve.said();
        let (_, rest) = said.split_once("MCP on http://127.0.0.1:")?;
        Some(rest.split_once("/mcp")?.0.to_owned())
    });
    let try_it = try_it.replace("7411", &port);
    let commands: Vec<&str> = try_it.lines().collect();
    assert_eq!(commands.len(), 3, "{try_it}");
    for command in commands {
        let ran = reader.types(command, HELLO).ended().good();
        let wanted = match command.contains(" list ") {
            true => "append_line",
            false => "Hello Ada",
        };
        assert!(ran.out.contains(wanted), "{command}: {ran:?}");
    }
}

/// The README's quick start for the bridge, as it is written, up to a client that calls what the
/// printed entries reach; and the parent in Python, up to its end.
#[test]
fn the_bridge_quick_start_works() {
    let reader = Reader::new();
    let config = reader.home.read("examples/hello/callgate.toml");
    let config = config.expect("the example") + "\n[http]\nport = 0\n";
    reader.home.write("examples/hello/callgate.toml", &config);
    let [gate] = &blocks("Quick start: the bridge", "sh")[..] else {
        panic!("one list of commands");
    };
    let [parent] = &blocks("Quick start: the bridge", "python")[..] else {
        panic!("one program");
    };
    let mut typed = reader.types(gate, "");
    let printed = typed.ended().good();
    let entries: Vec<Value> = printed
        .out
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(entries.len(), 2, "{printed:?}");
    for (entry, only) in entries.iter().zip([false, true]) {
        let entry = &entry["mcpServers"]["callgate"];
        let schema = entry["args"][2].as_str().expect("a path");
        // The gate was started beside what printed this.
        wait_for("the gate", || {
            std::path::Path::new(schema).exists().then_some(())
        });
        let mut bridge = shakes_hands(&reader, entry);
        let tools = tools_of(&mut bridge);
        assert!(tools.contains(&"greet".to_owned()), "{tools:?}");
        assert_eq!(tools.len() == 1, only, "{tools:?}");
        let called = bridge.ask(&legacy_call(
            4,
            "greet",
            &json!({ "name": "Ada" }),
            &json!({}),
        ));
        assert_eq!(text_of(&called), "{\"message\":\"Hello Ada\"}");
        assert!(bridge.end().success());
    }
    drop(typed);

    reader.home.write("parent.py", parent);
    let mut parent = reader
        .command("python3", "")
        .arg("parent.py")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start Python");
    let mut stdin = parent.stdin.take().expect("piped");
    let stdout = parent.stdout.take().expect("piped");
    let mut printed = String::new();
    let read = BufReader::new(stdout).read_line(&mut printed);
    assert_ne!(read.expect("what it prints"), 0);
    let entry: Value = serde_json::from_str(&printed).expect("an entry");
    let mut bridge = shakes_hands(&reader, &entry);
    assert_eq!(tools_of(&mut bridge), ["add"]);
    let called = bridge.ask(&legacy_call(
        4,
        "add",
        &json!({ "a": 1, "b": 2 }),
        &json!({}),
    ));
    assert_eq!(text_of(&called), "3");
    assert!(bridge.end().success());
    stdin.write_all(b"\n").expect("it waits for Enter");
    assert!(end_of(&mut parent, "the parent").success());
    for path in [&entry["args"][1], &entry["args"][2]] {
        let path = path.as_str().expect("a path");
        assert!(!std::path::Path::new(path).exists(), "{path}");
    }
}
