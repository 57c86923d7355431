//! One tool, every wire: the same outcome, the same fault, the same records, and one run for
//! one key wherever it is used. Table F of `docs/decisions/`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::bridge::Frames;
use support::callgate;
use support::drive::{Host, Serve, chain, cli, verified};
use support::mcp::{initialize, legacy_call, mcp, modern_call, post_mcp};
use support::workspace::{effects, trusted_with};

const CONFIG: &str = r#"
[leases]
enforce_from_tier = 3
[breaker]
failures_max = 0
[[policy]]
tools = ["denied"]
decision = "deny"
[[policy]]
tools = ["asked"]
decision = "ask"
"#;

/// Does what it is told, and notes what it did.
const WORK: &str = r#"
read -r input
echo "$input" >> effects.log
case $input in
  *crash*) echo 'last words' >&2; exit 3 ;;
  *garbage*) echo nonsense ;;
  *fail*) echo '{"error":{"type":"OwnError","message":"own words"}}'; exit 1 ;;
  *flood*) head -c 5000 /dev/zero | tr '\0' x ;;
  *hang*) exec sleep 1000 ;;
  *) printf '{"got":%s}' "$input" ;;
esac
"#;

/// Tools of one runner that differ in what they are allowed.
fn config() -> String {
    let tool = |name: &str, more: &str, command: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\n{more}\nwrites = [\"effects.log\"]\n\
             input_schema = {{ type = \"object\", properties = {{ do = {{ type = \"string\" }} }} }}\n\
             runner = {{ kind = \"process\", command = {command}, limits = {{ output_bytes = 1000 }} }}\n"
        )
    };
    let work = r#"["/bin/sh", "work.sh"]"#;
    let mut config = CONFIG.to_owned();
    for (name, more) in [
        ("work", "tier = 1"),
        ("denied", "tier = 1"),
        ("asked", "tier = 1"),
        ("leased", "tier = 3"),
        ("hangs", "tier = 1\ntimeout_ms = 300"),
    ] {
        config.push_str(&tool(name, more, work));
    }
    config.push_str(&tool("absent", "tier = 1", r#"["/nonexistent/program"]"#));
    for wire in WIRES {
        let limit = "tier = 1\nrate_limit = { per_second = 0.001, burst = 1 }";
        config.push_str(&tool(&format!("limited/{wire}"), limit, work));
    }
    config
}

const WIRES: [&str; 6] = [
    "toolhost",
    "gate",
    "mcp",
    "mcp-legacy",
    "mcp-http",
    "bridge",
];

/// What came of a call, in words all wires share.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Output { value: Value, replayed: bool },
    Fault(String),
}

/// One open conversation on each wire, all of one user.
struct Wires {
    toolhost: Host,
    modern: Host,
    legacy: Host,
    bridge: Frames,
    serve: Serve,
    port: u16,
    token: String,
}

impl Wires {
    fn open(folder: &support::Folder) -> Self {
        let serve = Serve::spawn(
            callgate(folder).args(["serve", "--port", "0"]),
            folder.join("state/gate.sock"),
        );
        serve.wait_said("MCP on http://127.0.0.1:");
        let said = serve.said();
        let (_, rest) = said.split_once("MCP on http://127.0.0.1:").expect("a port");
        let port = rest.split('/').next().and_then(|port| port.parse().ok());
        let token = cli(folder, &["token", "owner"]).good().out;
        let mut legacy = mcp(folder, &[]);
        legacy.ask(&initialize(0));
        Self {
            toolhost: Host::start(folder, "."),
            modern: mcp(folder, &["--standalone"]),
            legacy,
            bridge: Frames::connect(&folder.join("state/bridge.sock")),
            serve,
            port: port.expect("a port"),
            token: token.trim().to_owned(),
        }
    }

    fn call(&mut self, wire: &str, tool: &str, input: &Value, key: &str, lease: &str) -> Seen {
        let mut meta = json!({});
        if !key.is_empty() {
            meta["callgate/idempotencyKey"] = key.into();
        }
        if !lease.is_empty() {
            meta["callgate/leaseToken"] = lease.into();
        }
        match wire {
            "toolhost" => {
                let aid = callgate_call::aid_of_name(tool);
                let mut request = json!({ "aid": aid, "inputs": input });
                if !key.is_empty() {
                    request["idempotency_key"] = key.into();
                }
                if !lease.is_empty() {
                    request["_lease_token"] = lease.into();
                }
                toolhost_seen(&self.toolhost.ask(&request))
            }
            "gate" => {
                let mut request = json!({ "tool": tool, "input": input });
                if !key.is_empty() {
                    request["idempotency_key"] = key.into();
                }
                if !lease.is_empty() {
                    request["lease_token"] = lease.into();
                }
                gate_seen(&self.serve.call(&request))
            }
            "mcp" => mcp_seen(
                &self
                    .modern
                    .ask(&modern_call(1, tool, input, &no_asking(meta))),
            ),
            "mcp-legacy" => {
                // A client that can be asked would be; this one says no to everything.
                self.legacy.send(&legacy_call(1, tool, input, &meta));
                loop {
                    let reply = self.legacy.reply();
                    if reply.get("method").is_none() {
                        return mcp_seen(&reply);
                    }
                    let error = json!({ "code": -1, "message": "no" });
                    let answer = json!({ "jsonrpc": "2.0", "id": reply["id"], "error": error });
                    self.legacy.send(&answer);
                }
            }
            "mcp-http" => {
                let authorization = format!("Bearer {}", self.token);
                let message = modern_call(1, tool, input, &no_asking(meta));
                let answer = post_mcp(self.port, &message, &[("authorization", &authorization)]);
                mcp_seen(&answer.json())
            }
            "bridge" => {
                let params = json!({ "name": tool, "arguments": input, "_meta": meta });
                let request = json!({ "method": "call_tool", "params": params });
                assert!(self.bridge.send(request.to_string().as_bytes()));
                bridge_seen(&self.bridge.message().expect("an answer"))
            }
            other => panic!("no wire {other}"),
        }
    }
}

/// A client that can not be asked anything.
fn no_asking(mut meta: Value) -> Value {
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    meta
}

fn gate_seen(reply: &Value) -> Seen {
    match reply["fault"]["kind"].as_str() {
        Some(kind) => Seen::Fault(kind.to_owned()),
        None => Seen::Output {
            value: reply["output"].clone(),
            replayed: reply["idempotent_hit"] == true,
        },
    }
}

fn mcp_seen(reply: &Value) -> Seen {
    if reply["error"]["code"] == -32602 {
        return Seen::Fault("unknown_tool".to_owned());
    }
    let call = &reply["result"]["_meta"]["callgate/call"];
    match call["fault"].as_str() {
        Some(kind) => {
            assert_eq!(reply["result"]["isError"], true, "{reply}");
            Seen::Fault(kind.to_owned())
        }
        None => Seen::Output {
            value: content_value(&reply["result"]),
            replayed: call["replayed"] == true,
        },
    }
}

fn content_value(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no text: {result}"));
    serde_json::from_str(text).expect("JSON in a text")
}

/// Several faults share a type here; the message tells them apart.
fn bridge_seen(reply: &Value) -> Seen {
    let Some(error) = reply.get("error") else {
        return Seen::Output {
            value: content_value(&reply["result"]),
            replayed: reply["result"]["_meta"]["callgate/call"]["replayed"] == true,
        };
    };
    let message = error["message"].as_str().unwrap_or_default();
    let kind = match error["type"].as_str().unwrap_or_default() {
        "ToolNotFoundError" => "unknown_tool",
        "ValueError" => "bad_input",
        "PermissionError" if message.starts_with("denied") => "denied",
        "PermissionError" if message.starts_with("needs approval") => "needs_approval",
        "PermissionError" if message.starts_with("lease_required") => "lease_required",
        "PermissionError" if message.starts_with("lease_rejected") => "lease_rejected",
        "ConflictError" => "conflict",
        "OutcomeUnknownError" => "outcome_unknown",
        "RateLimitError" => "rate_limited",
        "ToolUnavailableError" if message.starts_with("breaker open") => "breaker_open",
        "ToolUnavailableError" => "unavailable",
        "IPCMessageSizeError" => "too_large",
        "TimeoutError" => "timeout",
        "ToolCrashError" => "crash",
        "ToolOutputError" => "bad_output",
        "OwnError" => "tool_failed",
        other => panic!("type {other}: {reply}"),
    };
    Seen::Fault(kind.to_owned())
}

/// The contract has three words for all faults; the message tells the rest.
fn toolhost_seen(reply: &Value) -> Seen {
    if reply["status"] == "OK" {
        let text = reply["output_json"].as_str().expect("an output");
        return Seen::Output {
            value: serde_json::from_str(text).expect("JSON"),
            replayed: reply["idempotent_hit"] == true,
        };
    }
    let error = reply["error"].as_str().unwrap_or_default();
    let status = reply["status"].as_str().unwrap_or("refused");
    let kind = match (status, error) {
        ("refused", "lease_required") => "lease_required",
        ("refused", "lease_rejected") => "lease_rejected",
        ("refused", error) if error.starts_with("tool not found") => "unknown_tool",
        ("INVALID_PICK", _) => "bad_input",
        ("BREAKER_TRIP", error) if error.starts_with("rate limited") => "rate_limited",
        ("BREAKER_TRIP", error) if error.starts_with("breaker open") => "breaker_open",
        ("BREAKER_TRIP", error) if error.starts_with("unavailable") => "unavailable",
        ("TOOL_ERROR", error) => [
            ("denied", "denied"),
            ("needs approval", "needs_approval"),
            ("idempotency_conflict", "conflict"),
            ("outcome unknown", "outcome_unknown"),
            ("output exceeds", "too_large"),
            ("timed out", "timeout"),
            ("exit 3", "crash"),
            ("bad output", "bad_output"),
            ("own words", "tool_failed"),
        ]
        .into_iter()
        .find_map(|(words, kind)| error.starts_with(words).then_some(kind))
        .unwrap_or_else(|| panic!("{reply}")),
        _ => panic!("{reply}"),
    };
    Seen::Fault(kind.to_owned())
}

/// F, G-3, G-11: a tool registered once is callable over every wire under the same rules.
#[test]
fn the_same_rules_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    let faults = [
        ("nowhere", json!({}), "unknown_tool"),
        ("work", json!({ "do": 7 }), "bad_input"),
        ("denied", json!({}), "denied"),
        ("asked", json!({}), "needs_approval"),
        ("leased", json!({}), "lease_required"),
        ("absent", json!({}), "unavailable"),
        ("hangs", json!({ "do": "hang" }), "timeout"),
        ("work", json!({ "do": "crash" }), "crash"),
        ("work", json!({ "do": "garbage" }), "bad_output"),
        ("work", json!({ "do": "fail" }), "tool_failed"),
        ("work", json!({ "do": "flood" }), "too_large"),
    ];
    for wire in WIRES {
        for (tool, input, kind) in &faults {
            let seen = wires.call(wire, tool, input, "", "");
            assert_eq!(
                seen,
                Seen::Fault((*kind).to_owned()),
                "{wire}: {tool} {input}"
            );
        }
        let bad = wires.call(wire, "leased", &json!({}), "", "lease_made_up");
        assert_eq!(bad, Seen::Fault("lease_rejected".to_owned()), "{wire}");
        let limited = format!("limited/{wire}");
        assert!(matches!(
            wires.call(wire, &limited, &json!({}), "", ""),
            Seen::Output { .. }
        ));
        let seen = wires.call(wire, &limited, &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("rate_limited".to_owned()), "{wire}");

        let lease = cli(&folder, &["lease", "grant", "leased", "--json"])
            .good()
            .json();
        let token = lease["token"].as_str().expect("a token");
        let first = wires.call(wire, "leased", &json!({ "do": "x" }), "", token);
        assert!(matches!(first, Seen::Output { .. }), "{wire}: {first:?}");
        let again = wires.call(wire, "leased", &json!({ "do": "x" }), "", token);
        assert_eq!(again, Seen::Fault("lease_rejected".to_owned()), "{wire}");
    }

    // One key, used first on each wire in turn and then on all: one run each.
    let ran = effects(&folder);
    for (number, first) in WIRES.into_iter().enumerate() {
        let (key, input) = (
            format!("key-{number}"),
            json!({ "do": format!("k{number}") }),
        );
        let value = json!({ "got": input });
        let seen = wires.call(first, "work", &input, &key, "");
        let wanted = Seen::Output {
            value: value.clone(),
            replayed: false,
        };
        assert_eq!(seen, wanted, "{first}");
        for wire in WIRES {
            let wanted = Seen::Output {
                value: value.clone(),
                replayed: true,
            };
            assert_eq!(
                wires.call(wire, "work", &input, &key, ""),
                wanted,
                "{first}, {wire}"
            );
            let other = wires.call(wire, "work", &json!({ "do": "other" }), &key, "");
            assert_eq!(other, Seen::Fault("conflict".to_owned()), "{first}, {wire}");
        }
    }
    assert_eq!(effects(&folder), ran + WIRES.len());

    // A call whose gate was killed while it ran: nobody knows, on any wire.
    let mut killed = mcp(&folder, &["--standalone"]);
    let key = json!({ "callgate/idempotencyKey": "lost" });
    let input = json!({ "do": "hang" });
    killed.send(&modern_call(1, "work", &input, &key));
    support::wait_for("the effect", || {
        (effects(&folder) == ran + WIRES.len() + 1).then_some(())
    });
    killed.kill();
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, "lost", "");
        assert_eq!(seen, Seen::Fault("outcome_unknown".to_owned()), "{wire}");
    }

    let Wires {
        toolhost,
        modern,
        legacy,
        serve,
        bridge,
        ..
    } = wires;
    drop(bridge);
    assert!(toolhost.end().success() && modern.end().success() && legacy.end().success());
    assert!(serve.stop().success());
    verified(&folder);
    same_records(&chain(&folder));
}

/// F, G-7: a tool that failed on one wire is left alone on all of them.
#[test]
fn a_breaker_opens_on_every_wire() {
    let config = config().replace("failures_max = 0", "failures_max = 1\nopen_ms = 600000");
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    let crash = wires.call("gate", "work", &json!({ "do": "crash" }), "", "");
    assert_eq!(crash, Seen::Fault("crash".to_owned()));
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("breaker_open".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), 1);
}

/// What the chain says of a plain call is the same for every wire but its name and what is
/// different for every call.
fn same_records(records: &[Value]) {
    let own = ["seq", "at", "call", "wire", "took_ms", "tool", "aid"];
    let shape = |record: &Value| {
        let mut record = record.clone();
        if let Some(members) = record.as_object_mut() {
            members.retain(|name, _| !own.contains(&name.as_str()));
        }
        record.to_string()
    };
    let mut shapes = BTreeSet::new();
    let mut wires = BTreeSet::new();
    for start in records {
        let is_limited = start["tool"]
            .as_str()
            .is_some_and(|tool| tool.starts_with("limited/"));
        if start["kind"] == "start" && is_limited {
            wires.insert(start["wire"].as_str().unwrap_or_default().to_owned());
            let outcome = records
                .iter()
                .find(|record| record["kind"] == "outcome" && record["call"] == start["call"])
                .expect("its outcome");
            shapes.insert((shape(start), shape(outcome)));
        }
    }
    assert_eq!(shapes.len(), 1, "{shapes:#?}");
    let wanted = ["bridge", "gate", "mcp", "mcp-http", "toolhost"];
    assert!(wires.iter().eq(wanted), "{wires:?}");
}
