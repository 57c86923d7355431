//! One tool, every wire: the same outcome, the same fault, the same records, and one run for
//! one key wherever it is used. Table F of `docs/decisions/`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start the real program"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, Job, ManualClock, RunFuture, Runner,
    Timestamp, Tool, Wire,
};
use callgate_gate::{Catalog, Gate, Setup};
use callgate_store::{Options, Store};
use serde_json::{Value, json};
use support::bridge::Frames;
use support::drive::{Host, Serve, chain, cli, post_bytes, run_with, signal, verified};
use support::mcp::{initialize, legacy_call, mcp, modern_call, post_mcp, post_open};
use support::seen::{
    Seen, bridge_seen, gate_seen, mcp_seen, protocol_seen, rpc_seen, toolhost_seen,
};
use support::web::{Request, hear};
use support::workspace::{effects, trusted_with};
use support::{callgate, wait_for};

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

/// One that is promised more than a worker can keep, and one that tries what it must not.
const HELD: &str = r#"
[[tool]]
name = "unkept"
tier = 1
isolation = "worker"
guarantees = { no_env_write = true }
runner = { kind = "python", entry = "tries:connect" }
[[tool]]
name = "tries"
tier = 1
runner = { kind = "python", entry = "tries:connect" }
"#;

const TRIES: &str =
    "import socket\ndef connect(payload):\n    socket.create_connection((\"127.0.0.1\", 1))\n";

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
    let mut config = CONFIG.to_owned() + HELD;
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

const WIRES: [&str; 10] = [
    "toolhost",
    "gate",
    "mcp",
    "mcp-legacy",
    "mcp-http",
    "bridge",
    "tool",
    "service",
    "rpc",
    "rpc-http",
];

/// One open conversation on each wire, all of one user.
struct Wires<'a> {
    folder: &'a support::Folder,
    toolhost: Host,
    /// The same wire for the built-in tools: a host has those of one plugin.
    builtins: Host,
    modern: Host,
    legacy: Host,
    bridge: Frames,
    rpc: Host,
    serve: Serve,
    port: u16,
    token: String,
}

impl<'a> Wires<'a> {
    fn open(folder: &'a support::Folder) -> Self {
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
            folder,
            toolhost: Host::start(folder, "."),
            builtins: Host::start(folder, "builtin"),
            modern: mcp(folder, &["--standalone"]),
            legacy,
            bridge: Frames::connect(&folder.join("state/bridge.sock")),
            rpc: Host::spawn(callgate(folder).arg("rpc")),
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
                let host = match tool.starts_with("memory/") {
                    true => &mut self.builtins,
                    false => &mut self.toolhost,
                };
                toolhost_seen(&host.ask(&request))
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
            "tool" => {
                let bytes = local_request(tool, input, meta).to_string().into_bytes();
                let ran = run_with(callgate(self.folder).arg("tool"), &bytes);
                protocol_seen(&ran.json())
            }
            "service" => {
                let mut stream = self.post_tools(tool, input, meta);
                let reply = hear(&mut stream);
                assert_eq!(reply.status, 200, "{reply:?}");
                protocol_seen(&reply.json())
            }
            "rpc" => rpc_seen(&self.rpc.ask(&rpc_request(tool, input, key, lease))),
            "rpc-http" => {
                let mut stream = self.post_rpc(&rpc_request(tool, input, key, lease));
                let reply = hear(&mut stream);
                assert_eq!(reply.status, 200, "{reply:?}");
                rpc_seen(&reply.json())
            }
            other => panic!("no wire {other}"),
        }
    }

    /// `POST /rpc` with the owner's token, to be answered.
    fn post_rpc(&self, request: &Value) -> std::net::TcpStream {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        let bytes = Request::new("POST /rpc", request.to_string().as_bytes())
            .by(&self.token)
            .bytes("connection: close\r\n");
        stream.write_all(&bytes).expect("write");
        stream
    }

    /// `POST /tools` with the owner's token, to be answered.
    fn post_tools(&self, tool: &str, input: &Value, meta: Value) -> std::net::TcpStream {
        let mut request = meta;
        request["protocol_version"] = 1.into();
        request["tool_name"] = tool.into();
        request["payload"] = input.clone();
        request["callgate/call"] = true.into();
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        let bytes = Request::new("POST /tools", request.to_string().as_bytes())
            .by(&self.token)
            .bytes("connection: close\r\n");
        stream.write_all(&bytes).expect("write");
        stream
    }
}

/// A tool's name is its method; what is ours stands beside the params.
fn rpc_request(tool: &str, input: &Value, key: &str, lease: &str) -> Value {
    let mut ours = json!({});
    if !key.is_empty() {
        ours["idempotency_key"] = key.into();
    }
    if !lease.is_empty() {
        ours["lease_token"] = lease.into();
    }
    json!({ "jsonrpc": "2.0", "id": 1, "method": tool, "params": input, "callgate": ours })
}

/// What `callgate tool` takes. A tool that has no entry is meant by its name.
fn local_request(tool: &str, input: &Value, meta: Value) -> Value {
    let mut request = meta;
    request["protocol_version"] = 1.into();
    request["tool"] = tool.into();
    request["entry"] = tool.into();
    request["payload"] = input.clone();
    request["callgate/call"] = true.into();
    request
}

/// A client that can not be asked anything.
fn no_asking(mut meta: Value) -> Value {
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    meta
}

/// F, F-15, F-16, G-3, G-11, JR-17, JR-21, JR-23, R-13: a tool registered once is callable over every wire under the same rules.
#[test]
fn the_same_rules_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("work.sh", WORK),
        ("tries.py", TRIES),
    ]);
    let mut wires = Wires::open(&folder);
    let faults = [
        ("nowhere", json!({}), "unknown_tool"),
        ("work", json!({ "do": 7 }), "bad_input"),
        ("denied", json!({}), "denied"),
        ("asked", json!({}), "needs_approval"),
        ("leased", json!({}), "lease_required"),
        ("absent", json!({}), "unavailable"),
        ("unkept", json!({}), "unenforceable"),
        ("tries", json!({}), "guarantee_blocked"),
        ("hangs", json!({ "do": "hang" }), "timeout"),
        ("work", json!({ "do": "crash" }), "crash"),
        ("work", json!({ "do": "garbage" }), "bad_output"),
        ("work", json!({ "do": "fail" }), "tool_failed"),
        ("work", json!({ "do": "flood" }), "too_large"),
        (
            "memory/query",
            json!({ "query": "x", "k": "0" }),
            "bad_value",
        ),
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
        // Rates are counted by each process for itself (G-7), and `callgate tool` is one a call.
        if wire != "tool" {
            let seen = wires.call(wire, &limited, &json!({}), "", "");
            assert_eq!(seen, Seen::Fault("rate_limited".to_owned()), "{wire}");
        }

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
        builtins,
        modern,
        legacy,
        serve,
        bridge,
        rpc,
        ..
    } = wires;
    drop(bridge);
    for host in [toolhost, builtins, modern, legacy, rpc] {
        assert!(host.end().success());
    }
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

/// Ends as it was told to.
struct Ends(Fault);

impl Runner for Ends {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        Box::pin(async { Err(self.0.clone()) })
    }

    fn kind(&self) -> &'static str {
        "test"
    }
}

/// Records an end of `work` under a key of this user's, by a gate with another `work`.
async fn record_end(folder: &support::Folder, input: &Value, key: &str, fault: Fault) {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970");
    let now = u64::try_from(since.as_millis()).expect("not so late");
    let clock = Arc::new(ManualClock::at(Timestamp(now)));
    let store = Store::open(&folder.join("state"), Options::default(), clock.clone());
    let mut catalog = Catalog::default();
    catalog
        .add(Tool::new("work", Arc::new(Ends(fault))))
        .expect("a tool");
    let setup = Setup {
        catalog,
        ..Setup::default()
    };
    // The tool has no child: the spawner is never started.
    let spawner = callgate_sandbox::Spawner::new("/proc/self/exe".into());
    let planner = Arc::new(callgate_sandbox::Confinement::new(spawner));
    let store = Arc::new(store.expect("the state"));
    let gate = Gate::new(setup, store, planner, clock, 7);
    let caller = Caller::uid(rustix::process::geteuid().as_raw());
    let input = Document::from_value(input.clone());
    let (id, cancel) = (gate.next_id(), Cancel::new());
    let mut call = Call::new(id, "work", input, caller, Wire::Gate, cancel);
    call.key = IdempotencyKey::new(key);
    assert!(gate.call(&call).await.result.is_err());
}

/// F, G-3: no tool of today ends so, but one of another version may have: what is recorded is
/// told on every wire in its words.
#[tokio::test]
async fn recorded_ends_are_told_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let (input, key) = (json!({ "do": "read" }), "not-found");
    let message = "no such thing: notes.txt".to_owned();
    record_end(&folder, &input, key, Fault::NotFound { message }).await;
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, key, "");
        assert_eq!(seen, Seen::Fault("not_found".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), 0);
}

/// Starts a call that hangs and takes it back, the way a caller of the wire does.
fn cancel(folder: &support::Folder, wires: &mut Wires<'_>, wire: &str) {
    let input = json!({ "do": "hang" });
    let before = effects(folder);
    let runs = || wait_for("the effect", || (effects(folder) > before).then_some(()));
    let take_back = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 },
    });
    match wire {
        "toolhost" => {
            let mut host = Host::start(folder, ".");
            host.send(&json!({ "aid": callgate_call::aid_of_name("work"), "inputs": input }));
            runs();
            signal(host.pid(), rustix::process::Signal::TERM);
            let seen = toolhost_seen(&host.reply());
            assert_eq!(seen, Seen::Fault("cancelled".to_owned()));
        }
        "gate" => {
            let body = json!({ "tool": "work", "input": input }).to_string();
            let mut stream =
                std::os::unix::net::UnixStream::connect(&wires.serve.socket).expect("the gate");
            let sent = stream.write_all(&post_bytes(body.as_bytes()));
            sent.expect("the gate reads");
            runs();
        }
        "mcp" => {
            let call = modern_call(9, "work", &input, &json!({}));
            wires.modern.send(&call);
            runs();
            wires.modern.send(&take_back);
        }
        "mcp-legacy" => {
            wires
                .legacy
                .send(&legacy_call(9, "work", &input, &json!({})));
            runs();
            wires.legacy.send(&take_back);
        }
        "mcp-http" => {
            let authorization = format!("Bearer {}", wires.token);
            let call = modern_call(9, "work", &input, &json!({}));
            let open = post_open(wires.port, &call, &[("authorization", &authorization)]);
            runs();
            drop(open);
        }
        "bridge" => {
            let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
            let request = support::bridge::request("work", &input);
            assert!(frames.send(request.to_string().as_bytes()));
            runs();
        }
        "tool" => {
            let mut child = callgate(folder)
                .arg("tool")
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("start the program");
            let request = local_request("work", &input, json!({})).to_string();
            let mut stdin = child.stdin.take().expect("piped");
            stdin.write_all(request.as_bytes()).expect("it reads");
            drop(stdin);
            runs();
            signal(child.id(), rustix::process::Signal::TERM);
            let reply = child.wait_with_output().expect("its end").stdout;
            let seen = protocol_seen(&serde_json::from_slice(&reply).expect("a reply"));
            assert_eq!(seen, Seen::Fault("cancelled".to_owned()));
        }
        "service" => {
            let open = wires.post_tools("work", &input, json!({}));
            runs();
            drop(open);
        }
        "rpc" => {
            let mut host = Host::spawn(callgate(folder).arg("rpc"));
            host.send(&rpc_request("work", &input, "", ""));
            runs();
            signal(host.pid(), rustix::process::Signal::TERM);
            assert!(host.end().success());
        }
        "rpc-http" => {
            let open = wires.post_rpc(&rpc_request("work", &input, "", ""));
            runs();
            drop(open);
        }
        other => panic!("no wire {other}"),
    }
}

/// F-22: a caller that goes away, or takes its call back, ends it on every wire, and nothing is
/// told to it but on the toolhost's and by `callgate tool`, which end; a key that was ended so says
/// it everywhere.
#[test]
fn cancelled_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        cancel(&folder, &mut wires, wire);
    }
    let ended = wait_for("the ends", || {
        let records = chain(&folder);
        let mut ended = BTreeMap::new();
        for end in records.iter().filter(|r| r["fault"] == "cancelled") {
            let start = records
                .iter()
                .find(|r| r["kind"] == "start" && r["call"] == end["call"]);
            let wire = start.and_then(|start| start["wire"].as_str());
            *ended.entry(wire.expect("a wire").to_owned()).or_insert(0) += 1;
        }
        (ended.values().sum::<usize>() == WIRES.len()).then_some(ended)
    });
    // Both eras are one wire.
    let once = [
        "bridge", "gate", "mcp-http", "rpc", "rpc-http", "service", "tool", "toolhost",
    ];
    let once = once.map(|wire| (wire.to_owned(), 1));
    let twice = ("mcp".to_owned(), 2);
    assert_eq!(ended, once.into_iter().chain([twice]).collect());

    let mut host = mcp(&folder, &["--standalone"]);
    let input = json!({ "do": "hang" });
    let key = json!({ "callgate/idempotencyKey": "taken-back" });
    host.send(&modern_call(1, "work", &input, &key));
    wait_for("the effect", || {
        (effects(&folder) == WIRES.len() + 1).then_some(())
    });
    signal(host.pid(), rustix::process::Signal::TERM);
    assert!(host.end().success());
    for wire in WIRES {
        let seen = wires.call(wire, "work", &input, "taken-back", "");
        assert_eq!(seen, Seen::Fault("cancelled".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), WIRES.len() + 1);
}

/// F-23: a journal that somebody has cut is not written to any more, and every wire says that
/// this is no fault of the caller's; nothing runs that could not be recorded.
#[test]
fn internal_on_every_wire() {
    let config = config();
    let folder = trusted_with(&[("callgate.toml", &config), ("work.sh", WORK)]);
    let mut wires = Wires::open(&folder);
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert!(matches!(seen, Seen::Output { .. }), "{wire}: {seen:?}");
    }
    let segments = std::fs::read_dir(folder.join("state/journal")).expect("a journal");
    for segment in segments.flatten() {
        let file = std::fs::File::options().write(true).open(segment.path());
        file.and_then(|file| file.set_len(64)).expect("cut it");
    }
    for wire in WIRES {
        let seen = wires.call(wire, "work", &json!({}), "", "");
        assert_eq!(seen, Seen::Fault("internal".to_owned()), "{wire}");
    }
    assert_eq!(effects(&folder), WIRES.len());
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
    let wanted = [
        "bridge", "gate", "mcp", "mcp-http", "rpc", "rpc-http", "service", "tool", "toolhost",
    ];
    assert!(wires.iter().eq(wanted), "{wires:?}");
}
