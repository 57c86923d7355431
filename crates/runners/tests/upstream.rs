//! Servers that speak MCP over stdio, as runners: a small one in Python and one that misbehaves.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, LONG, folder, misbehave, spawner, until};
use callgate_runners::{Share, Upstream, UpstreamRunner, UpstreamSettings, UpstreamState};
use serde_json::{Value, json};

#[path = "upstream/confined.rs"]
mod confined;
#[path = "upstream/hard.rs"]
mod hard;
#[path = "upstream/life.rs"]
mod life;
#[path = "upstream/pins.rs"]
mod pins;

/// A server of the standard library alone.
const SERVER: &str = r#"
import json, os, sys
TOOLS = [{"name": n, "description": n, "inputSchema": {"type": "object"}}
         for n in ("echo", "fail", "pid", "refuse")]
def send(message):
    sys.stdout.write(json.dumps(dict(message, jsonrpc="2.0")) + "\n")
    sys.stdout.flush()
def call(name, arguments):
    if name == "echo":
        return {"content": [{"type": "text", "text": json.dumps(arguments)}],
                "structuredContent": arguments}
    if name == "fail":
        return {"content": [{"type": "text", "text": "no luck"}], "isError": True}
    return {"content": [], "structuredContent": {"pid": os.getpid()}}
for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params", {})
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "instructions": "Use it.",
                  "capabilities": {"tools": {}, "prompts": {}}, "serverInfo": {"name": "small"}}
    elif method == "tools/list":
        at = int(params.get("cursor", 0))
        result = {"tools": TOOLS[at:at + 3]}
        if at + 3 < len(TOOLS):
            result["nextCursor"] = str(at + 3)
    elif method == "prompts/list":
        result = {"prompts": [{"name": "greet"}]}
    elif method == "prompts/get":
        result = {"messages": [], "description": params["name"]}
    elif method == "tools/call" and params["name"] != "refuse":
        result = call(params["name"], params["arguments"])
    elif "id" in request:
        send({"id": request["id"], "error": {"code": -32602, "message": "no such thing"}})
        continue
    else:
        continue
    send({"id": request["id"], "result": result})
"#;

fn python_server(folder: &Path) -> UpstreamSettings {
    let script = folder.join("server.py");
    std::fs::write(&script, SERVER).unwrap();
    let command = ["python3".into(), script.into_os_string()];
    settings(command.to_vec())
}

/// `misbehave mcp`, found by its tag.
fn hostile(arguments: &[&str]) -> UpstreamSettings {
    let mut command = vec![misbehave().as_os_str().to_owned(), "mcp".into()];
    command.extend(arguments.iter().map(Into::into));
    let mut settings = settings(command);
    settings.restarts.backoff_min = Duration::from_millis(1);
    settings.restarts.backoff_max = Duration::from_millis(1);
    settings.restarts.crashes_max = 1000;
    settings
}

/// Kills one process.
fn kill(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL).unwrap();
}

fn settings(command: Vec<OsString>) -> UpstreamSettings {
    let path = std::env::var_os("PATH").unwrap();
    let env = vec![("PATH".into(), path)];
    UpstreamSettings::new("small", command, env, PathBuf::from("/"))
}

fn upstream_of(settings: UpstreamSettings) -> Arc<Upstream> {
    Upstream::new(spawner(), settings)
}

fn bench_of(upstream: &Arc<Upstream>, tool: &str) -> Bench {
    Bench::new(Arc::new(UpstreamRunner::new(Arc::clone(upstream), tool)))
}

#[tokio::test]
async fn a_server_in_python_is_called() {
    let folder = folder();
    let upstream = upstream_of(python_server(&folder));
    assert_eq!(upstream.status().state, UpstreamState::Cold);
    let echo = bench_of(&upstream, "echo");
    for n in 0..10 {
        let value = echo.value(json!({ "n": n, "t": "é\n" })).await;
        assert_eq!(value["structuredContent"], json!({ "n": n, "t": "é\n" }));
    }
    let pid = bench_of(&upstream, "pid");
    assert_eq!(pid.value(json!({})).await, pid.value(json!({})).await);
    let status = upstream.status();
    assert_eq!(status.state, UpstreamState::Ready);
    assert_eq!(status.processes.len(), 1);
    assert!(status.processes[0].pid.is_some() && status.processes[0].in_flight == 0);
    assert_eq!((status.starts, status.crashes), (1, 0));
    let fault = bench_of(&upstream, "fail").fault(json!({})).await;
    assert_eq!(fault, "tool_failed: no luck");
    let fault = bench_of(&upstream, "refuse").fault(json!({})).await;
    assert_eq!(fault, "tool_failed: no such thing (JSON-RPC error -32602)");
    upstream.stop_and_wait().await;
    assert_eq!(upstream.status().state, UpstreamState::Cold);
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_server_is_listed() {
    let folder = folder();
    let upstream = upstream_of(python_server(&folder));
    let listing = upstream.list(None).await.unwrap();
    assert_eq!(listing.protocol_version, "2025-11-25");
    assert_eq!(listing.instructions.as_deref(), Some("Use it."));
    assert_eq!(listing.server_info, json!({ "name": "small" }));
    let names: Vec<Value> = listing
        .tools
        .iter()
        .map(|tool| serde_json::from_str::<Value>(tool.get()).unwrap()["name"].clone())
        .collect();
    assert_eq!(json!(names), json!(["echo", "fail", "pid", "refuse"]));
    assert_eq!(listing.prompts.len(), 1);
    assert!(listing.resources.is_empty() && listing.resource_templates.is_empty());
    let _ = std::fs::remove_dir_all(folder);
}
