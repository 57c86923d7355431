//! One open conversation on each wire, all of one user, so that a test can make the same call by
//! all of them.

use std::io::Write as _;

use serde_json::{Value, json};

use super::bridge::Frames;
use super::drive::{Host, Serve, cli, run_with};
use super::mcp::{initialize, legacy_call, mcp, modern_call, post_mcp, post_open, read_answer};
use super::seen::{
    Seen, bridge_seen, gate_seen, mcp_seen, pilot_seen, protocol_seen, rpc_seen, toolhost_seen,
};
use super::web::{Request, hear};
use super::{Folder, callgate};

pub const WIRES: [&str; 11] = [
    "toolhost",
    "gate",
    "mcp",
    "mcp-legacy",
    "mcp-http",
    "mcp-http-legacy",
    "bridge",
    "tool",
    "service",
    "rpc",
    "rpc-http",
];

/// One open conversation on each wire, all of one user.
pub struct Wires<'a> {
    folder: &'a Folder,
    pub toolhost: Host,
    /// The same wire for the built-in tools: a host has those of one plugin.
    pub builtins: Host,
    pub modern: Host,
    pub legacy: Host,
    pub bridge: Frames,
    pub rpc: Host,
    pub serve: Serve,
    pub port: u16,
    pub token: String,
    /// A legacy session over HTTP, of a client that can not be asked.
    pub session: String,
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
        legacy.ask(&initialize(0));
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
            rpc: Host::spawn(callgate(folder).arg("rpc")),
            serve,
            port,
            token,
        }
    }

    pub fn call(&mut self, wire: &str, tool: &str, input: &Value, key: &str, lease: &str) -> Seen {
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
            "rpc" => {
                self.rpc.send(&rpc_request(tool, input, key, lease));
                loop {
                    // Whoever is connected hears of runs.
                    let reply = self.rpc.reply();
                    if reply.get("method").is_none() {
                        return rpc_seen(&reply);
                    }
                }
            }
            "rpc-http" => {
                let mut stream = self.post_rpc(&rpc_request(tool, input, key, lease));
                let reply = hear(&mut stream);
                assert_eq!(reply.status, 200, "{reply:?}");
                rpc_seen(&reply.json())
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
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        let bytes = Request::new("POST /rpc", request.to_string().as_bytes())
            .by(&self.token)
            .bytes("connection: close\r\n");
        stream.write_all(&bytes).expect("write");
        stream
    }

    /// `POST /tools` with the owner's token, to be answered.
    pub fn post_tools(&self, tool: &str, input: &Value, meta: Value) -> std::net::TcpStream {
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
            self.rpc,
        ] {
            assert!(host.end().success());
        }
        assert!(self.serve.stop().success());
    }
}
