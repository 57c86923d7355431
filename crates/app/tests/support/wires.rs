//! One open conversation on each wire, all of one user, so that a test can make the same call by
//! all of them.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde_json::{Value, json};

use super::bridge::{Frames, bridge_to_gate, request};
use super::drive::{Host, Serve, cli, post_bytes, run_with, signal, spelt};
use super::mcp::{initialize, legacy_call, mcp, modern_call, post_mcp, post_open, read_answer};
use super::seen::{
    Seen, bridge_seen, gate_seen, mcp_seen, pilot_seen, protocol_seen, relay_seen, rpc_seen,
    toolhost_seen,
};
use super::web::{Request, hear};
use super::workspace::effects;
use super::{Folder, callgate, wait_for};

pub const WIRES: [&str; 13] = [
    "toolhost",
    "gate",
    "mcp",
    "mcp-legacy",
    "mcp-http",
    "mcp-http-legacy",
    "bridge",
    "relay",
    "relay-legacy",
    "tool",
    "service",
    "rpc",
    "rpc-http",
];

/// The name of a wire in records: both eras of MCP are one, and so are the frames of a bridge
/// whoever sends them.
pub fn recorded_as(wire: &str) -> &str {
    match wire {
        "mcp-legacy" => "mcp",
        "mcp-http-legacy" => "mcp-http",
        "relay" | "relay-legacy" => "bridge",
        other => other,
    }
}

/// One open conversation on each wire, all of one user.
pub struct Wires<'a> {
    folder: &'a Folder,
    pub toolhost: Host,
    /// The same wire for the built-in tools: a host has those of one plugin.
    pub builtins: Host,
    pub modern: Host,
    pub legacy: Host,
    /// The frames of a bridge, by hand.
    pub bridge: Frames,
    /// `callgate bridge`, by its MCP client.
    pub relay: Host,
    pub relay_legacy: Host,
    pub rpc: Host,
    pub serve: Serve,
    pub port: u16,
    pub token: String,
    /// A legacy session over HTTP, of a client that can not be asked.
    pub session: String,
    /// Which wire told which faults so far.
    pub told: BTreeSet<(String, String)>,
}

impl<'a> Wires<'a> {
    pub fn open(folder: &'a Folder) -> Self {
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
        let mut relay_legacy = bridge_to_gate(folder);
        for host in [&mut legacy, &mut relay_legacy] {
            host.ask(&initialize(0));
        }
        let port = port.expect("a port");
        let token = token.trim().to_owned();
        let mut hello = initialize(0);
        hello["params"]["capabilities"] = json!({});
        let authorization = format!("Bearer {token}");
        let begun = post_mcp(port, &hello, &[("authorization", &authorization)]);
        let session = begun.header("mcp-session-id").expect("a session");
        Self {
            folder,
            session: session.to_owned(),
            toolhost: Host::start(folder, "."),
            builtins: Host::start(folder, "builtin"),
            modern: mcp(folder, &["--standalone"]),
            legacy,
            bridge: Frames::connect(&folder.join("state/bridge.sock")),
            relay: bridge_to_gate(folder),
            relay_legacy,
            rpc: Host::spawn(callgate(folder).arg("rpc")),
            serve,
            port,
            token,
            told: BTreeSet::new(),
        }
    }

    /// One call by a wire; empty texts are no key and no lease.
    pub fn call(&mut self, wire: &str, tool: &str, input: &Value, key: &str, lease: &str) -> Seen {
        let seen = self.seen(wire, tool, input, key, lease);
        self.note(wire, seen)
    }

    /// Something that is no request on this wire.
    pub fn no_request(&mut self, wire: &str) -> Seen {
        let seen = self.refused(wire);
        self.note(wire, seen)
    }

    fn note(&mut self, wire: &str, seen: Seen) -> Seen {
        if let Seen::Fault(kind) = &seen {
            self.told.insert((wire.to_owned(), kind.clone()));
        }
        seen
    }

    fn seen(&mut self, wire: &str, tool: &str, input: &Value, key: &str, lease: &str) -> Seen {
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
                let built_in = ["memory/", "vector/", "runs/", "files/"];
                let host = match built_in.iter().any(|of| tool.starts_with(of)) {
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
            "mcp-http-legacy" => {
                let message = legacy_call(1, tool, input, &meta);
                let answer = read_answer(self.post_legacy(&message));
                mcp_seen(&answer.json())
            }
            "bridge" => {
                let params = json!({ "name": tool, "arguments": input, "_meta": meta });
                let request = json!({ "method": "call_tool", "params": params });
                assert!(self.bridge.send(spelt(&request).as_bytes()));
                bridge_seen(&self.bridge.message().expect("an answer"))
            }
            "relay" => {
                let message = modern_call(1, tool, input, &no_asking(meta));
                relay_seen(&self.relay.ask(&message))
            }
            "relay-legacy" => {
                let message = legacy_call(1, tool, input, &meta);
                relay_seen(&self.relay_legacy.ask(&message))
            }
            "tool" => {
                let bytes = spelt(&local_request(tool, input, meta)).into_bytes();
                let ran = run_with(callgate(self.folder).arg("tool"), &bytes);
                protocol_seen(&ran.json())
            }
            "service" => {
                let mut stream = self.post_tools(tool, input, meta);
                let reply = hear(&mut stream);
                // What is not strict JSON is no request. P-13.
                let is_json = reply.json()["error"]["type"] != "ProtocolError";
                assert_eq!(reply.status, if is_json { 200 } else { 400 }, "{reply:?}");
                protocol_seen(&reply.json())
            }
            "rpc" => rpc_seen(&self.ask_rpc(&rpc_request(tool, input, key, lease))),
            "rpc-http" => {
                let mut stream = self.post_rpc(&rpc_request(tool, input, key, lease));
                let reply = hear(&mut stream);
                assert_eq!(reply.status, 200, "{reply:?}");
                rpc_seen(&reply.json())
            }
            other => panic!("no wire {other}"),
        }
    }

    /// A call that would be good, but for one thing that makes it none.
    fn refused(&mut self, wire: &str) -> Seen {
        let none = json!({});
        let mut modern = modern_call(1, "work", &none, &no_asking(json!({})));
        let mut legacy = legacy_call(1, "work", &none, &none);
        let mut rpc = rpc_request("work", &none, "", "");
        for message in [&mut modern, &mut legacy, &mut rpc] {
            message["jsonrpc"] = "1.0".into();
        }
        let authorization = format!("Bearer {}", self.token);
        let authorization = [("authorization", authorization.as_str())];
        match wire {
            "toolhost" => {
                let aid = callgate_call::aid_of_name("work");
                let request = json!({ "aid": aid, "inputs": none, "idempotency_key": 7 });
                toolhost_seen(&self.toolhost.ask(&request))
            }
            "gate" => gate_seen(&self.serve.call(&json!({ "tool": "work", "inputs": none }))),
            "mcp" => mcp_seen(&self.modern.ask(&modern)),
            "mcp-legacy" => mcp_seen(&self.legacy.ask(&legacy)),
            "mcp-http" => mcp_seen(&post_mcp(self.port, &modern, &authorization).json()),
            "mcp-http-legacy" => mcp_seen(&read_answer(self.post_legacy(&legacy)).json()),
            "bridge" => {
                let request = json!({ "method": "call_tool", "params": { "name": 7 } });
                assert!(self.bridge.send(request.to_string().as_bytes()));
                bridge_seen(&self.bridge.message().expect("an answer"))
            }
            "relay" => relay_seen(&self.relay.ask(&modern)),
            "relay-legacy" => relay_seen(&self.relay_legacy.ask(&legacy)),
            "tool" => {
                let mut request = local_request("work", &none, json!({}));
                request["protocol_version"] = 2.into();
                let bytes = request.to_string().into_bytes();
                protocol_seen(&run_with(callgate(self.folder).arg("tool"), &bytes).json())
            }
            "service" => {
                let mut request = service_request("work", &none, json!({}));
                request["protocol_version"] = 2.into();
                protocol_seen(&hear(&mut self.post("/tools", &request)).json())
            }
            "rpc" => rpc_seen(&self.ask_rpc(&rpc)),
            "rpc-http" => rpc_seen(&hear(&mut self.post_rpc(&rpc)).json()),
            other => panic!("no wire {other}"),
        }
    }

    /// Starts a call of `work` that hangs and takes it back, the way a caller of the wire does.
    pub fn cancel(&mut self, wire: &str) {
        let input = json!({ "do": "hang" });
        let folder = self.folder;
        let before = effects(folder);
        let runs = || wait_for("the effect", || (effects(folder) > before).then_some(()));
        let take_back = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 9 },
        });
        let modern = modern_call(9, "work", &input, &json!({}));
        let legacy = legacy_call(9, "work", &input, &json!({}));
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
                    std::os::unix::net::UnixStream::connect(&self.serve.socket).expect("the gate");
                let sent = stream.write_all(&post_bytes(body.as_bytes()));
                sent.expect("the gate reads");
                runs();
            }
            "mcp" | "mcp-legacy" | "relay" | "relay-legacy" => {
                let (host, call) = match wire {
                    "mcp" => (&mut self.modern, modern),
                    "mcp-legacy" => (&mut self.legacy, legacy),
                    "relay" => (&mut self.relay, modern),
                    _ => (&mut self.relay_legacy, legacy),
                };
                host.send(&call);
                runs();
                host.send(&take_back);
            }
            "mcp-http" => {
                let authorization = format!("Bearer {}", self.token);
                let open = post_open(self.port, &modern, &[("authorization", &authorization)]);
                runs();
                drop(open);
            }
            "mcp-http-legacy" => {
                let open = self.post_legacy(&legacy);
                runs();
                drop(open);
            }
            "bridge" => {
                let mut frames = Frames::connect(&folder.join("state/bridge.sock"));
                assert!(frames.send(request("work", &input).to_string().as_bytes()));
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
                let open = self.post_tools("work", &input, json!({}));
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
                let open = self.post_rpc(&rpc_request("work", &input, "", ""));
                runs();
                drop(open);
            }
            other => panic!("no wire {other}"),
        }
    }

    /// A step of the pilot: a run whose menu has one tool. A pilot brings keys of its own, asks
    /// for no leases, and knows no tool that is not there.
    pub fn pilot(&self, tool: &str, input: &Value) -> Seen {
        let request = json!({
            "goal_id": "goal.wire",
            "candidate_tags": ["tag.wire", "tag.builtin"],
            "inputs": input,
            "_capabilities": { "allowed_tools": [callgate_call::aid_of_name(tool)] },
        });
        self.folder
            .write(".pilot-request.json", &request.to_string());
        let ran = cli(self.folder, &["pilot", ".pilot-request.json", "--json"]);
        let report = ran.json();
        let id = report["header"]["run_id"].as_str().expect("a run id");
        let shown = cli(self.folder, &["runs", "show", id, "--json"]).good();
        pilot_seen(&shown.json())
    }

    fn ask_rpc(&mut self, request: &Value) -> Value {
        self.rpc.send(request);
        loop {
            // Whoever is connected hears of runs.
            let reply = self.rpc.reply();
            if reply.get("method").is_none() {
                return reply;
            }
        }
    }

    /// `POST /mcp` in the legacy session with the owner's token, to be answered.
    pub fn post_legacy(&self, message: &Value) -> std::net::TcpStream {
        let authorization = format!("Bearer {}", self.token);
        let headers = [
            ("authorization", authorization.as_str()),
            ("mcp-session-id", &self.session),
            ("connection", "close"),
        ];
        post_open(self.port, message, &headers)
    }

    /// `POST /rpc` with the owner's token, to be answered.
    pub fn post_rpc(&self, request: &Value) -> std::net::TcpStream {
        self.post("/rpc", request)
    }

    /// `POST /tools` with the owner's token, to be answered.
    pub fn post_tools(&self, tool: &str, input: &Value, meta: Value) -> std::net::TcpStream {
        self.post("/tools", &service_request(tool, input, meta))
    }

    fn post(&self, path: &str, request: &Value) -> std::net::TcpStream {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        let line = format!("POST {path}");
        let bytes = Request::new(&line, spelt(request).as_bytes())
            .by(&self.token)
            .bytes("connection: close\r\n");
        stream.write_all(&bytes).expect("write");
        stream
    }
}

/// A tool's name is its method; what is ours stands beside the params.
pub fn rpc_request(tool: &str, input: &Value, key: &str, lease: &str) -> Value {
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
pub fn local_request(tool: &str, input: &Value, meta: Value) -> Value {
    let mut request = meta;
    request["protocol_version"] = 1.into();
    request["tool"] = tool.into();
    request["entry"] = tool.into();
    request["payload"] = input.clone();
    request["callgate/call"] = true.into();
    request
}

/// What `POST /tools` takes.
fn service_request(tool: &str, input: &Value, meta: Value) -> Value {
    let mut request = meta;
    request["protocol_version"] = 1.into();
    request["tool_name"] = tool.into();
    request["payload"] = input.clone();
    request["callgate/call"] = true.into();
    request
}

/// A client that can not be asked anything.
fn no_asking(mut meta: Value) -> Value {
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
    meta
}

/// Ends them all, and looks whether each ends well.
impl Wires<'_> {
    pub fn close(self) {
        drop(self.bridge);
        for host in [
            self.toolhost,
            self.builtins,
            self.modern,
            self.legacy,
            self.relay,
            self.relay_legacy,
            self.rpc,
        ] {
            assert!(host.end().success());
        }
        assert!(self.serve.stop().success());
    }
}
