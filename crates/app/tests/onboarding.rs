//! The first steps with an MCP host, as they are written down: the settings that are printed
//! work as printed, and so do the quick starts of the README.

use crate::support::Folder;
use crate::support::drive::{Ran, cli, run};
use crate::support::mcp::serve_http;
use crate::support::outside::{client_python, modules, node};
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

/// The README's quick starts for MCP, with two clients: the Inspector and fastmcp.
#[test]
fn the_quick_starts_work() {
    let folder = trusted(ONE);
    let program = crate::support::program().to_str().expect("text");
    let (workspace, state) = (folder.path().display(), folder.join("state"));
    let command = format!(
        "{program} mcp --workspace {workspace} --state {}",
        state.display()
    );
    let call = ["--target", "one", "--input-json", "{\"n\":4}", "--json"];
    let fastmcp = |args: &[&str]| {
        run(client_python(&folder)
            .args(["-m", "fastmcp.cli"])
            .args(args))
    };
    let called = fastmcp(&[&["call", "--command", &command][..], &call].concat()).good();
    assert!(
        called.out.contains("\\\"n\\\":4") || called.out.contains("\"n\":4"),
        "{called:?}"
    );

    let (serve, port) = serve_http(&folder);
    let url = format!("http://127.0.0.1:{port}/mcp");
    let listed = fastmcp(&["list", &url]).good();
    assert!(listed.out.contains("builtin_echo"), "{listed:?}");
    let args = [
        "--method",
        "tools/call",
        "--tool-name",
        "one",
        "--tool-arg",
        "n=5",
    ];
    for era in ["modern", "legacy"] {
        let called = inspector(
            &folder,
            &[&url],
            &[&args[..], &["--protocol-era", era]].concat(),
        );
        let result = called.good().json();
        assert_eq!(
            result["result"]["content"][0]["text"],
            "{\"got\":{\"n\":5}}"
        );
    }
    assert!(serve.stop().success());
}
