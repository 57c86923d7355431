//! `callgate serve`: the workspace's daemon. It owns the socket, watches the configuration
//! and keeps the store in order until it is told to stop.

mod bridge;
pub mod http;
mod socket;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Cancel, Changes, Wire};
use callgate_doors::http::{self as gate_http, Closing};
use callgate_doors::mcp::http::{self as mcp_http, HttpDoor};
use callgate_doors::metrics;
use callgate_doors::port::Port;
use callgate_doors::rpc::{self, Rpc};
use callgate_doors::service::{self, ServiceDoor};
use callgate_gate::{Catalog, Gate, Setup, Spans};
use callgate_listener::access::Everybody;
use callgate_listener::web::{Entrance, Names};
use callgate_store::{GateLock, RunningGate};
use clap::Args;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::cli::{Done, Place, runtime};
use crate::compose::{self, chain};
use crate::freshness;
use crate::mcp;
use crate::notify;
use crate::show;
use crate::telemetry;
use crate::watch::Watched;
use callgate_registry::environment::Environment;
use callgate_registry::setup::{Parts, warnings};
use socket::{Kept, hold, lock, remove_socket};

/// Start the workspace's gate and serve calls until stopped.
///
/// Calls come over a Unix socket of mode 0600, its folder made with mode 0700 where there is none.
#[derive(Args)]
pub struct Serve {
    /// Only print where the socket is
    #[arg(long = "where")]
    print_socket: bool,
    /// Port for MCP over HTTP on 127.0.0.1; 0 takes any [default: 7411]
    #[arg(long)]
    port: Option<u16>,
    /// Let every process of this machine call over HTTP, without a token
    #[arg(long)]
    no_auth: bool,
    /// Serve the fixture of the MCP conformance suite instead of the workspace's tools
    #[arg(long, hide = true)]
    conformance: bool,
}

pub fn run(environment: &Environment, place: &Place, serve: &Serve) -> Done {
    if serve.print_socket {
        let paths = place.paths(environment).map_err(|error| chain(&error))?;
        match place.json {
            true => show::json(&json!({ "socket": paths.socket })),
            false => show::data(&format!("{}\n", paths.socket.display())),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let parts = super::open(environment, place)?;
    let held = hold(&parts.paths, place.socket.is_some())?;
    let socket = parts
        .paths
        .usable_socket()
        .map_err(|error| chain(&error))?
        .to_owned();
    let _lock = lock(&socket)?;
    let on = (&*socket, held.as_ref());
    runtime()?.block_on(until_stopped(environment, place, serve, &parts, on))?;
    remove_socket(&socket)?;
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

async fn until_stopped(
    environment: &Environment,
    place: &Place,
    serve: &Serve,
    parts: &Parts<'_>,
    (socket, held): (&Path, Option<&GateLock>),
) -> Result<(), String> {
    // Before the socket is there: whoever sees it may tell us to stop.
    let mut signals = super::StopSignals::watch()?;
    let watched = Watched::now(parts).map_err(|error| chain(&error))?;
    let changes = Changes::default();
    let asked = http::Asked {
        port: serve.port,
        no_auth: serve.no_auth,
    };
    http::make_token(parts, asked)?;
    let (setup, task_after) = if serve.conformance {
        (fixture(&changes)?, FIXTURE_TASK_AFTER)
    } else {
        let setup = parts.setup().map_err(|error| chain(&error))?;
        (setup, mcp::TASK_AFTER)
    };
    let doubts = warnings(&setup);
    parts.containers.begin_sweep();
    let telemetry = &http::configured(parts)?.telemetry;
    let (spans, exporter) = telemetry::exporter(telemetry, environment)
        .map_err(|error| chain(&error))?
        .unzip();
    let spans = spans.map(|queue| queue as Arc<dyn Spans>);
    let gate = Arc::new(
        compose::gate(parts, setup)
            .with_changes(changes)
            .with_spans(spans),
    );
    let plans = super::follow_plans(parts);
    let ends = notify::follow(parts);
    let closing = Closing::default();
    let calls = TaskTracker::new();
    let server = mcp::server(parts, Arc::clone(&gate), task_after);
    let caller = Caller::uid(environment.uid);
    let whose = (&caller, environment.uid);
    let bridge = bridge::Bridge::open(socket, &parts.paths.state, &gate, whose)?;
    let path = http::configured(parts)?.service.path;
    let methods = Rpc::new(Arc::clone(&gate), calls.clone(), closing.clone());
    let doors = |entrance: Entrance, [mcp_wire, service_wire, rpc_wire]: [Wire; 3]| {
        let mcp = HttpDoor::new(Arc::clone(&server), entrance.clone(), mcp_wire);
        let settings = service::Settings {
            path: path.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wire: service_wire,
        };
        let (gate, end) = (Arc::clone(&gate), closing.end.clone());
        let numbers = metrics::router(Arc::clone(&gate), entrance.clone(), caller.clone());
        let rpc = rpc::http::HttpDoor::new(Arc::clone(&methods), entrance.clone(), rpc_wire);
        let service = ServiceDoor::new(gate, entrance, settings, calls.clone(), end);
        let router = mcp_http::router(Arc::clone(&mcp))
            .merge(service::router(service))
            .merge(rpc::http::router(Arc::clone(&rpc)))
            .merge(numbers);
        Port { mcp, rpc, router }
    };
    let everybody = Arc::new(Everybody(caller.clone()));
    let local = Entrance::new(everybody, Names::Any);
    let own = gate_http::router(
        Arc::clone(&gate),
        caller.clone(),
        calls.clone(),
        closing.end.clone(),
    );
    let shared = doors(local, [Wire::Mcp, Wire::Tool, Wire::Rpc]);
    let router = own.merge(shared.router);
    let opened = http::open(parts, &gate, caller.clone(), asked).await?;
    let guard = opened.port().and_then(http::Tcp::guard);
    if let Some(held) = held {
        // Before anybody can connect, so that who finds the socket finds the record too.
        let gate = RunningGate {
            pid: std::process::id(),
            started_ms: parts.clock.now().0,
            workspace: parts.paths.workspace.clone(),
            socket: Some(socket.to_owned()),
            port: opened.port().map(|tcp| tcp.port),
        };
        if let Err(error) = held.record(&gate) {
            let why = chain(&error);
            show::warn(&format!("other environments may not find this gate: {why}"));
        }
    }
    // Last, since whoever sees it may call, and secrets are made under the lock of all.
    let (listener, kept) = Kept::bind(socket, environment.uid)?.split();
    announce(place, &gate, socket, &opened);
    doubts.iter().for_each(|doubt| show::warn(doubt));
    let on_tcp = async {
        if let Some(tcp) = opened.into_port() {
            let wires = [Wire::McpHttp, Wire::Service, Wire::RpcHttp];
            let mut port = doors(tcp.entrance(), wires);
            port.router = port.router.fallback(mcp_http::unknown_path);
            let under_way = async {
                server.stop().await;
                calls.close();
                calls.wait().await;
            };
            let stop = closing.stop.clone();
            let clock = Arc::clone(&parts.clock);
            tcp.serve(port, clock, under_way, stop).await;
        }
    };
    let on_socket = gate_http::serve(listener, router, calls.clone(), &closing);
    let ended = Cancel::new();
    let export = async {
        if let Some(exporter) = exporter {
            exporter.run(ended.cancelled()).await;
        }
    };
    let door = async {
        let on_socket = async {
            let served = on_socket.await;
            closing.stop.cancel();
            served
        };
        let bridge = bridge.serve(&closing);
        let (served, (), ()) = tokio::join!(on_socket, bridge, on_tcp);
        server.stop().await;
        methods.unheard().await;
        gate.flush_strangers();
        ended.cancel();
        served
    };
    let door = async { tokio::join!(door, export).0 };
    let told = async {
        signals.next().await;
        closing.stop.cancel();
        server.begin_stop();
        say_wait(calls.len() + server.running());
        signals.next().await;
        closing.end.cancel();
        server.cancel_all();
        std::future::pending::<()>().await;
    };
    let follow_issuer = |revoked: bool| match &guard {
        Some(guard) if revoked => guard.set_issuer(None),
        Some(guard) => http::follow(parts, guard),
        None => {}
    };
    tokio::select! {
        served = door => served.map_err(|error| format!("serve {}: {error}", socket.display())),
        () = told => unreachable!("waits for the door to close"),
        () = watched.follow(parts, &gate, &follow_issuer) => unreachable!("never ends"),
        () = async {
            super::collect_orphans(&parts.store).await;
            super::tend(&parts.store).await;
        } => unreachable!("never ends"),
        () = plans => unreachable!("never ends"),
        () = freshness::keep(parts) => unreachable!("never ends"),
        () = ends => unreachable!("never ends"),
        () = kept => unreachable!("never ends"),
    }
}

/// A call that takes longer becomes a task in the fixture, whose tools are quick.
const FIXTURE_TASK_AFTER: Duration = Duration::from_millis(150);

/// The tools the conformance suite asks for, behind the same gate and doors as all others.
fn fixture(changes: &Changes) -> Result<Setup, String> {
    let (tools, shelf) = callgate_tools::conformance::fixture(changes);
    let mut catalog = Catalog::default();
    for tool in tools {
        catalog.add(tool).map_err(|error| chain(&error))?;
    }
    Ok(Setup {
        catalog,
        shelf,
        note: "the fixture of the MCP conformance suite".to_owned(),
        ..Setup::default()
    })
}

/// Why a gate that was told to stop is still there.
fn say_wait(calls: usize) {
    let calls = match calls {
        0 => return,
        1 => "1 running call".to_owned(),
        more => format!("{more} running calls"),
    };
    show::say(&format!(
        "stopping: waiting for {calls}; a second signal ends at once"
    ));
}

/// What is offered and how to connect.
fn announce(place: &Place, gate: &Gate, socket: &Path, opened: &http::Opened) {
    let catalog = gate.catalog();
    let tools: Vec<&str> = catalog.tools().map(|tool| tool.name.as_str()).collect();
    if place.json {
        show::json(&json!({
            "socket": socket,
            "port": opened.port().map(|tcp| tcp.port),
            "tools": tools,
            "configuration": gate.note(),
        }));
        if let http::Opened::Taken(why) = opened {
            show::warn(why);
        }
        return;
    }
    show::say(&format!(
        "callgate {} serves {} tools:",
        env!("CARGO_PKG_VERSION"),
        tools.len()
    ));
    for tool in catalog.tools() {
        show::say(&format!("  {:<24} {}", tool.name, tool.description));
    }
    show::say(&gate.note());
    show::say("tools are confined to what they declare (`callgate doctor` says what holds them)");
    show::say(&format!("listening on {}", socket.display()));
    if let Some(words) = opened.words() {
        show::say(&words);
    }
    // One that does nothing, else whichever is there.
    let tried = ["builtin/echo", "files/list"];
    let tried = tried.into_iter().find(|name| tools.contains(name));
    let Some(tool) = tried.or_else(|| tools.first().copied()) else {
        return;
    };
    let input = match tool {
        "builtin/echo" => r#"{"hello":"world"}"#,
        _ => "{}",
    };
    show::say(&format!("try:  callgate call {tool} '{input}'"));
    show::say(&format!(
        "or:   curl --unix-socket {} http://gate/v1/call -d '{{\"tool\":\"{tool}\",\"input\":{{}}}}'",
        socket.display()
    ));
}
