//! `callgate serve`: the workspace's daemon. It owns the socket, watches the configuration
//! and keeps the store in order until it is told to stop.

mod bridge;
mod doors;
pub mod http;
mod socket;

use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Changes};
use callgate_dial::Dialer;
use callgate_exporters::otlp;
use callgate_gate::CatalogError;
use callgate_gate::{Catalog, Gate, Setup, Spans};
use callgate_registry::environment::Environment;
use callgate_registry::setup::{Parts, warnings};
use callgate_sandbox::leave_session;
use callgate_store::{GateLock, RunningGate};
use clap::Args;
use serde_json::json;

use crate::cli::{Done, Place, runtime};
use crate::compose::{self, chain};
use crate::error::CommandError;
use crate::freshness;
use crate::issuer;
use crate::mcp;
use crate::services::ServiceEnded;
use crate::show;
use crate::watch::Watched;
use doors::Doors;
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
    /// Serve the MCP clients of this user in the background: no HTTP, and the end once no client has
    /// been connected for a while. `callgate mcp --client` starts it
    #[arg(long, conflicts_with_all = ["port", "no_auth"])]
    background: bool,
    /// With --background: how long it stays without a client
    #[arg(long, requires = "background", value_name = "DURATION", value_parser = super::duration, default_value = "10m")]
    idle: Duration,
    /// Serve the fixture of the MCP conformance suite instead of the workspace's tools
    #[arg(long, hide = true)]
    conformance: bool,
}

pub fn run(environment: &Environment, place: &Place, serve: &Serve) -> Done {
    if serve.print_socket {
        let paths = place.paths(environment)?;
        match place.json {
            true => show::json(&json!({ "socket": paths.socket })),
            false => show::data(&format!("{}\n", paths.socket.display())),
        }
        return Ok(ExitCode::SUCCESS);
    }
    if serve.background {
        leave_session();
    }
    let parts = Arc::new(super::open(environment, place)?);
    let held = hold(&parts.paths, place.socket.is_some())?;
    let socket = parts.paths.usable_socket()?.to_owned();
    let _lock = lock(&socket)?;
    let on = (&*socket, held.as_ref());
    let ended = runtime()?.block_on(until_stopped(environment, place, serve, &parts, on))?;
    remove_socket(&socket)?;
    super::close(&parts);
    match ended {
        None => Ok(ExitCode::SUCCESS),
        Some(ended) => Err(ended.into()),
    }
}

/// Serves until a signal says to stop, or a service ends, which is given back.
async fn until_stopped(
    environment: &Environment,
    place: &Place,
    serve: &Serve,
    parts: &Arc<Parts>,
    (socket, held): (&Path, Option<&GateLock>),
) -> Result<Option<ServiceEnded>, CommandError> {
    // Before the socket is there: whoever sees it may tell us to stop.
    let mut signals = super::StopSignals::watch()?;
    let watched = Watched::now(parts)?;
    let changes = Changes::default();
    let asked = http::Asked {
        port: serve.port,
        no_auth: serve.no_auth,
        off: serve.background,
    };
    http::make_token(parts, asked)?;
    let (setup, task_after) = if serve.conformance {
        (fixture(&changes)?, FIXTURE_TASK_AFTER)
    } else {
        let setup = parts.setup()?;
        (setup, mcp::TASK_AFTER)
    };
    let doubts = warnings(&setup);
    parts.containers.begin_sweep();
    let telemetry = &http::configured(parts)?.telemetry;
    let dialer = Dialer::new(issuer::roots);
    let (spans, exporter) = otlp::exporter(telemetry, environment, dialer)?.unzip();
    let spans = spans.map(|queue| queue as Arc<dyn Spans>);
    let gate = compose::gate(parts, setup);
    let gate = Arc::new(gate.with_changes(changes).with_spans(spans));
    // From now on they miss nothing, though they begin to run with the doors.
    let (plans, caller) = (super::follow_plans(parts), Caller::uid(environment.uid));
    let doors = Doors::new(parts, &gate, &caller, task_after)?;
    let whose = (&caller, environment.uid);
    let bridge = bridge::Bridge::open(socket, &parts.paths.state, &gate, whose)?;
    let opened = http::open(parts, &gate, caller, asked).await?;
    let guard = opened.port().and_then(http::Tcp::guard);
    if let Some(held) = held {
        // Before anybody can connect, so that who finds the socket finds the record too.
        record(held, parts, socket, opened.port().map(|tcp| tcp.port));
    }
    let follow_issuer = {
        let parts = Arc::clone(parts);
        move |revoked: bool| match &guard {
            Some(guard) if revoked => guard.set_issuer(None),
            Some(guard) => http::follow(&parts, guard),
            None => {}
        }
    };
    let mut services = super::services_of(parts, &gate, watched, follow_issuer);
    services.start("plans", plans);
    services.start("search index", freshness::keep(Arc::clone(parts)));
    services.start("orphans", collect_orphans(Arc::clone(parts)));
    // Last, since whoever sees it may call, and secrets are made under the lock of all.
    let idle_max = serve.background.then_some(serve.idle);
    let (listener, kept) = Kept::bind(socket, environment.uid)?.split();
    services.start("socket", kept);
    announce(place, &gate, socket, &opened);
    doubts.iter().for_each(|doubt| show::warn(doubt));
    let clock = Arc::clone(&parts.clock);
    let open = doors.until_closed(listener, bridge, (opened.into_port(), clock), exporter);
    let work = Box::pin(async {
        // The other arms are never ready: they close the doors, which end once their calls are
        // answered.
        tokio::select! {
            served = open => served,
            never = doors.stop_at(&mut signals) => match never {},
            never = doors.stop_when_idle(idle_max) => match never {},
        }
    });
    let stop = |ended: &ServiceEnded| {
        show::say(&format!("stopping: {ended}"));
        doors.begin_stop();
    };
    let (served, ended) = services.while_running(work, stop).await;
    services.stop().await;
    served.map_err(CommandError::file("serve", socket))?;
    Ok(ended)
}

/// Tells the commands of other environments where this gate is.
fn record(held: &GateLock, parts: &Parts, socket: &Path, port: Option<u16>) {
    let gate = RunningGate {
        pid: std::process::id(),
        started_ms: parts.clock.now().0,
        workspace: parts.paths.workspace.clone(),
        socket: Some(socket.to_owned()),
        port,
    };
    if let Err(error) = held.record(&gate) {
        let why = chain(&error);
        show::warn(&format!("other environments may not find this gate: {why}"));
    }
}

/// Removes bytes that nobody needs, once, and then only waits to be stopped.
async fn collect_orphans(parts: Arc<Parts>) -> Infallible {
    super::collect_orphans(&parts.store).await;
    std::future::pending().await
}

/// A call that takes longer becomes a task in the fixture, whose tools are quick.
const FIXTURE_TASK_AFTER: Duration = Duration::from_millis(150);

/// The tools the conformance suite asks for, behind the same gate and doors as all others.
fn fixture(changes: &Changes) -> Result<Setup, CatalogError> {
    let (tools, shelf) = callgate_tools::conformance::fixture(changes);
    let mut catalog = Catalog::default();
    for tool in tools {
        catalog.add(tool)?;
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
