//! MCP in lines, by hand: the essential checks of the conformance suite, which speaks HTTP only.

use std::collections::HashMap;

use callgate_testing::mcp::{initialize, legacy_call, modern_call, modern_meta};
use callgate_testing::scripts::{EVERY_BUILTIN, ONE, SLOW, effects, workspace};
use callgate_testing::{python, wait_for};
use serde_json::{Value, json};

use crate::support::host::Host;
use callgate_testing_workspace::{Opened, records, trusted, trusted_with};

fn modern(id: Value, method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": { "_meta": modern_meta() } })
}

fn legacy(id: Value, method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method })
}

/// Each message is of its own era, whatever came before it on the pipe; results have what
/// their era has and no more.
#[test]
fn eras_interleave() {
    let folder = trusted(ONE);
    let mut host = Host::mcp(&folder, &[]);
    let discovered = host.ask(&modern(json!("d"), "server/discover"));
    let result = &discovered["result"];
    assert_eq!(
        (&discovered["id"], &result["resultType"]),
        (&json!("d"), &json!("complete"))
    );
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert!(
        result["ttlMs"].is_u64() && result["cacheScope"].is_string(),
        "{result}"
    );
    let begun = host.ask(&initialize(1));
    assert_eq!(begun["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(begun["result"].get("resultType"), None);
    assert!(host.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })));
    assert_eq!(
        host.ask(&initialize(2))["error"]["code"],
        -32600,
        "a second handshake"
    );
    for round in 0..3 {
        let new = host.ask(&modern_call(round, "one", &json!({ "n": 1 }), &json!({})));
        let old = host.ask(&legacy_call(round, "one", &json!({ "n": 1 }), &json!({})));
        assert_eq!(new["result"]["resultType"], "complete");
        assert_eq!(old["result"].get("resultType"), None);
        assert_eq!(new["result"]["content"], old["result"]["content"]);
        let lists = [
            host.ask(&modern(json!(round), "tools/list")),
            host.ask(&legacy(json!(round), "tools/list")),
        ];
        assert_eq!(lists[0]["result"]["tools"], lists[1]["result"]["tools"]);
        assert!(lists[0]["result"]["ttlMs"].is_u64());
        assert_eq!(lists[1]["result"].get("ttlMs"), None);
    }
    // What one era has the other does not know.
    for method in [
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "initialize",
    ] {
        assert_eq!(
            host.ask(&modern(json!(7), method))["error"]["code"],
            -32601,
            "{method}"
        );
    }
    for method in ["tasks/get", "subscriptions/listen", "no/such"] {
        assert_eq!(
            host.ask(&legacy(json!(7), method))["error"]["code"],
            -32601,
            "{method}"
        );
    }
    let mut future = modern(json!(8), "tools/list");
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2099-01-01".into();
    let refused = host.ask(&future);
    assert_eq!(refused["error"]["code"], -32022, "{refused}");
    assert_eq!(refused["error"]["data"]["requested"], "2099-01-01");
    host.end();
}

/// Hosts ask before they let a tool destroy something, and go by what it is said to do. A tool
/// that wants to be a task says so only where there are tasks: in the older era it is called as
/// any other.
#[test]
fn what_tools_are_said_to_do() {
    let folder = trusted(&ONE.replace("tier = 1", "tier = 1\ntasks = \"required\""));
    let mut host = Host::mcp(&folder, &["*"]);
    let new = by_name(&host.ask(&modern(json!(1), "tools/list")));
    for (name, reads, destroys) in [
        ("files_read", true, false),
        ("files_delete", false, true),
        ("files_write", false, true),
        ("files_move", false, true),
        ("exec_run", false, true),
        ("planner_delete_plan", false, true),
        ("planner_create_plan", false, false),
        ("memory_append", false, false),
        ("one", false, true),
    ] {
        let hints = &new[name]["annotations"];
        assert_eq!(
            (&hints["readOnlyHint"], &hints["destructiveHint"]),
            (&json!(reads), &json!(destroys)),
            "{name}"
        );
    }
    let old = by_name(&host.ask(&legacy(json!(2), "tools/list")));
    assert_eq!(new["one"]["execution"]["taskSupport"], "required");
    assert_eq!(old["one"].get("execution"), None);
    let refused = host.ask(&modern_call(3, "one", &json!({}), &json!({})));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let called = host.ask(&legacy_call(4, "one", &json!({}), &json!({})));
    assert_eq!(called["result"]["isError"], false, "{called}");
    host.end();
}

/// A slow call holds up no other, and no other costs it its answer; one pipe, answers as they come.
#[test]
fn a_slow_call_holds_up_nothing() {
    let folder = trusted_with(&[
        ("callgate.toml", &format!("{ONE}{EVERY_BUILTIN}")),
        ("tool.sh", SLOW),
    ]);
    let mut host = Host::mcp(&folder, &[]);
    assert!(host.send(&modern_call(1, "one", &json!({}), &json!({}))));
    assert!(host.send(&legacy_call(2, "one", &json!({}), &json!({}))));
    wait_for("both to begin", || (effects(&folder) == 2).then_some(()));
    for id in 3..50 {
        let echoed = host.ask(&modern_call(
            id,
            "builtin_echo",
            &json!({ "n": id }),
            &json!({}),
        ));
        assert_eq!(echoed["id"], id);
        assert_eq!(echoed["result"]["isError"], false, "{echoed}");
    }
    let again = host.ask(&legacy_call(1, "one", &json!({}), &json!({})));
    assert_eq!(
        again["error"]["code"], -32600,
        "an id that is in flight: {again}"
    );
    // Nor does junk cost it anything: a line that is no message, and one that is too long.
    assert!(host.send_bytes(b"nonsense\n"));
    assert_eq!(host.reply()["error"]["code"], -32700);
    let mut long = vec![b'x'; (16 << 20) + 2];
    long.push(b'\n');
    assert!(host.send_bytes(&long));
    assert_eq!(host.reply()["error"]["code"], -32600);
    folder.write("go", "");
    let mut ids = [host.reply(), host.reply()].map(|reply| reply["id"].as_u64());
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);
    host.end();
}

/// The tools of a list, by their names.
fn by_name(listed: &Value) -> HashMap<String, Value> {
    let tools = listed["result"]["tools"].as_array().expect("tools").clone();
    let named = |tool: Value| (tool["name"].as_str().expect("a name").to_owned(), tool);
    tools.into_iter().map(named).collect()
}

/// A tool is found by the name that hosts take and by its own. The first does not change with the
/// tools beside it, and one that is too long is cut and still its own.
#[test]
fn names_for_hosts() {
    let named = |name: &str, number: usize| {
        let tool = ONE.replace("\"one\"", &format!("\"{name}\""));
        tool.replace("ONE", &format!("N{number}"))
    };
    let long = "a/".to_owned() + &"long.name/".repeat(8);
    let names = [
        "text/greet".to_owned(),
        "text/greet-all".to_owned(),
        format!("{long}x"),
        format!("{long}y"),
    ];
    let mut seen: Vec<Vec<String>> = Vec::new();
    for count in [3, 4] {
        let tools = names.iter().enumerate().take(count);
        let config: String = tools.map(|(number, name)| named(name, number)).collect();
        let folder = trusted(&config);
        let mut host = Host::mcp(&folder, &[]);
        let tools = by_name(&host.ask(&modern(json!(1), "tools/list")));
        let shown = names[..count].iter().map(|name| {
            let found = tools
                .values()
                .find(|tool| tool["_meta"]["callgate/name"] == **name);
            let shown = found.expect("it is listed")["name"].as_str();
            shown.expect("a name").to_owned()
        });
        let shown: Vec<String> = shown.collect();
        for (number, name) in shown.iter().chain(&names[..count]).enumerate() {
            let called = host.ask(&modern_call(2, name, &json!({ "n": number }), &json!({})));
            let text = &called["result"]["content"][0]["text"];
            assert_eq!(*text, format!("{{\"got\":{{\"n\":{number}}}}}"), "{called}");
        }
        host.end();
        seen.push(shown);
    }
    let shown = &seen[1];
    assert_eq!(seen[0], shown[..3]);
    assert_eq!(shown[..2], ["text_greet", "text_greet-all"]);
    assert_ne!(shown[2], shown[3]);
    let takes = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    for name in shown {
        assert!(name.len() <= 64 && name.chars().all(takes), "{name}");
    }
    assert_eq!(shown[3].len(), 64);
}

/// Two tools that a host could not tell apart are refused with the configuration, and so are
/// those that share a name in any other way.
#[test]
fn names_that_collide_are_refused() {
    let greet = ONE.replace("\"one\"", "\"text/greet\"");
    for (second, name) in [
        (ONE.replace("\"one\"", "\"text_greet\""), "text_greet"),
        (ONE.replace("\"one\"", "\"text.greet\""), "text_greet"),
        (
            ONE.replace("tier = 1", "tier = 1\naliases = [\"text_greet\"]"),
            "text_greet",
        ),
        (
            ONE.replace("tier = 1", "tier = 1\naliases = [\"files_read\"]"),
            "files_read",
        ),
        (ONE.to_owned(), "AID.TEST.ONE.v1"),
    ] {
        let second = match name.starts_with("AID") {
            true => second,
            false => second.replace("ONE", "TWO"),
        };
        let folder = workspace(&format!("{greet}{second}"));
        let refused = Opened::new(&folder).trust().expect_err("it was trusted");
        let words = format!("`{name}` names both");
        assert!(refused.contains(&words), "{second}: {refused}");
    }
}

/// Reports progress for as long as it is left alone.
const TALKS: &str = r#"
import json, os, socket, time
gate = socket.socket(fileno=int(os.environ["CALLGATE_FD"]))
call = json.loads(gate.makefile().readline())["call"]
for step in range(10**6):
    progress = {"call": call, "progress": {"progress": step}}
    gate.sendall((json.dumps(progress) + "\n").encode())
    time.sleep(0.05)
"#;

/// A tool that shows progress has its timeout anew with each report, and ends at the cap all the
/// same: however much it talks, it is not for ever.
#[test]
fn progress_extends_a_call_up_to_its_cap() {
    let python = python();
    let pool = format!("kind = \"pool\", command = [\"{python}\", \"tool.py\"]");
    let config = ONE
        .replace(
            r#"kind = "process", command = ["/bin/sh", "tool.sh"]"#,
            &pool,
        )
        .replace("code = [\"tool.sh\"]", "code = [\"tool.py\"]")
        .replace(
            "tier = 1",
            "tier = 1\ntimeout_ms = 2500\ntimeout_max_ms = 5000",
        );
    let folder = trusted_with(&[("callgate.toml", &config), ("tool.py", TALKS)]);
    let mut host = Host::mcp(&folder, &[]);
    let token = json!({ "progressToken": "p" });
    host.send(&modern_call(1, "one", &json!({}), &token));
    let (mut last, mut reports) = (-1.0, 0);
    let end = loop {
        let said = host.reply();
        if said["method"] != "notifications/progress" {
            break said;
        }
        assert_eq!(said["params"]["progressToken"], "p");
        let progress = said["params"]["progress"].as_f64().expect("a number");
        assert!(progress > last, "{progress} after {last}");
        (last, reports) = (progress, reports + 1);
    };
    assert!(reports > 1, "{end}");
    let fault = &end["result"]["_meta"]["callgate/call"]["fault"];
    assert_eq!(fault, "timeout", "{end}");
    host.end();
    let records = records(&folder);
    let outcome = records.iter().find(|record| record["kind"] == "outcome");
    let took = outcome.and_then(|outcome| outcome["took_ms"].as_u64());
    assert!(took.expect("it ended") >= 5000, "{outcome:?}");
}
