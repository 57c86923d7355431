//! Which built-in tools are served over MCP, and why one is not. G-14.

use callgate_testing::mcp::{modern_call, modern_meta};
use serde_json::{Value, json};

use crate::support::host::Host;
use crate::support::rpc::{request, rpc};
use callgate_testing_workspace::{Folder, trusted};

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

/// G-14: a built-in tool that gives a prompt or a resource is served with it.
#[test]
fn what_a_shelf_names_is_served_over_mcp() {
    let shelf =
        "[[resource]]\nuri = \"memory://{query}\"\nname = \"memory\"\ntool = \"memory/query\"\n";
    let folder = trusted(shelf);
    let mut client = rpc(&folder);
    client.good("memory/append", json!({ "text": "the sheep" }));
    client.end();
    let mut host = Host::mcp(&folder, &[]);
    assert!(listed(&mut host).contains(&"memory_query".to_owned()));
    let params = json!({ "uri": "memory://sheep", "_meta": modern_meta() });
    let read = host.ask(&request(1, "resources/read", params));
    let text = read["result"]["contents"][0]["text"].as_str();
    assert!(
        text.is_some_and(|text| text.contains("the sheep")),
        "{read}"
    );
    host.end();
}

/// The words of `tools/call` of a tool that is not there.
fn missing(folder: &Folder, only: &[&str], tool: &str) -> String {
    let reply = Host::mcp(folder, only).ask(&modern_call(2, tool, &json!({}), &json!({})));
    let words = reply["error"]["message"].as_str();
    words.unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// What a section turns off names the section.
#[test]
fn what_is_turned_off_names_its_section() {
    for (config, tool, words) in [
        (
            "[builtins]\noff = true\n",
            "files/read",
            "takes `off` out of `[builtins]`",
        ),
        ("[exec]\noff = true\n", "exec/run", "turned off by `[exec]`"),
        (
            "[exec]\noff = true\n",
            "runs/start",
            "turned off by `[exec]`",
        ),
        (
            "[runs]\noff = true\n",
            "runs/start",
            "turned off by `[runs]`",
        ),
        (
            "[terminals]\noff = true\n",
            "terminals/list",
            "turned off by `[terminals]`",
        ),
    ] {
        let folder = trusted(config);
        let said = missing(&folder, &["*"], tool);
        assert!(said.contains(words), "{config}: {said}");
        let mut client = rpc(&folder);
        let reply = client.ask(tool, json!({}));
        let said = reply["error"]["message"].as_str().expect("words");
        assert!(said.contains(words), "{config}: {said}");
        // A tool that nobody ever had has no reason.
        let said = missing(&folder, &[], "nosuch");
        assert_eq!(said, "tool not found: nosuch");
    }
}
