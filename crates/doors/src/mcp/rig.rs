//! Servers for the tests of this folder, one before a relay and one before a gate. Their tools hang
//! until they are taken back, but for one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Clock, Fault, Held, Job, ManualClock, Output, Plan, Planner, RunFuture,
    Runner, Timestamp, Tool, Wire,
};
use callgate_gate::{Catalog, Gate, Setup};
use callgate_store::{Options, Store};
use callgate_wires::jsonrpc::Message;
use callgate_wires::mcp::{self, ToolDefinition};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::outbox::Outgoing;
use super::{
    Behind, Era, Outbox, Peer, Relay, RelayCall, RelayFuture, Request, Seal, Server, Settings,
};

/// The tool that panics.
pub(super) const PANICS: &str = "panics";

struct Hangs;

impl Relay for Hangs {
    fn tools(&self) -> &[ToolDefinition] {
        &[]
    }

    fn call(&self, call: RelayCall) -> RelayFuture<'_> {
        Box::pin(async move {
            assert_ne!(call.name, PANICS);
            call.cancel.cancelled().await;
            Map::new()
        })
    }
}

impl Runner for Hangs {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move {
            job.call.cancel.cancelled().await;
            Err(Fault::Cancelled)
        })
    }

    fn kind(&self) -> &'static str {
        "test"
    }
}

impl Planner for Hangs {
    fn plan(&self, _: &Call, _: &Tool) -> Result<Plan, Fault> {
        Ok(Plan::default())
    }

    fn outlook(&self, _: &Tool) -> Vec<Held> {
        Vec::new()
    }
}

/// A folder that goes away with its test.
pub(super) struct State(PathBuf);

impl State {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("callgate-doors-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server before a gate with the tool `hangs`.
pub(super) fn gate_server(state: &State) -> Arc<Server> {
    server_with(state, Tool::new("hangs", Arc::new(Hangs)))
}

/// A server before a gate with one tool.
pub(super) fn server_with(state: &State, tool: Tool) -> Arc<Server> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let store = Store::open(&state.0, Options::default(), Arc::clone(&clock)).unwrap();
    let (setup, planner) = (setup_with(tool), Arc::new(Hangs));
    let gate = Gate::new(setup, Arc::new(store), planner, clock, 7);
    server_before(Behind::Gate(Arc::new(gate))).0
}

/// A configuration with one tool.
pub(super) fn setup_with(tool: Tool) -> Setup {
    let mut catalog = Catalog::default();
    catalog.add(tool).unwrap();
    Setup {
        catalog,
        ..Setup::default()
    }
}

/// A tool that answers at once with what it is given here.
pub(super) struct Answers {
    pub value: Value,
    pub is_pure: bool,
}

impl Runner for Answers {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move { Ok(Output::from_value(self.value.clone())) })
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn only_reads(&self) -> bool {
        self.is_pure
    }

    fn is_pure(&self) -> bool {
        self.is_pure
    }
}

/// A server, and the clock its seals go by.
pub(super) fn server() -> (Arc<Server>, Arc<ManualClock>) {
    server_before(Behind::Relay(Arc::new(Hangs)))
}

fn server_before(behind: Behind) -> (Arc<Server>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let settings = Settings {
        name: "test".to_owned(),
        version: "1".to_owned(),
        instructions: None,
        task_after: Duration::from_secs(3),
    };
    let seal = Seal::new([7; 32], Arc::clone(&clock) as Arc<dyn Clock>);
    let server = Server::new(behind, settings, seal);
    (Arc::new(server), clock)
}

/// Somebody.
pub(super) fn peer() -> Peer {
    Peer {
        caller: Caller::uid(0),
        wire: Wire::Mcp,
        session: None,
        scope: None,
    }
}

/// What a modern request says of its client.
pub(super) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A modern request, and what is said before its answer.
pub(super) fn request(params: Value) -> (Request, mpsc::Receiver<Outgoing>) {
    asked(&server().0, "tools/list", params)
}

/// The same of a call.
pub(super) fn call(server: &Server, params: Value) -> (Request, mpsc::Receiver<Outgoing>) {
    asked(server, "tools/call", params)
}

fn asked(server: &Server, method: &str, params: Value) -> (Request, mpsc::Receiver<Outgoing>) {
    let (out, said) = Outbox::new();
    let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let Ok(Message::Request {
        id, method, params, ..
    }) = mcp::parse(line.to_string().as_bytes())
    else {
        panic!("no request: {line}");
    };
    let mut asked = server.asked(method, params).unwrap();
    let era = Era::modern(&mut asked.meta);
    let mut request = server.request(id, asked, era, peer());
    request.out = out;
    request.cancel = Arc::new(Cancel::new());
    (request, said)
}

/// A message that was said.
pub(super) fn message(said: &Outgoing) -> Value {
    match said {
        Outgoing::Message(message) => serde_json::from_slice(message).unwrap(),
        Outgoing::Linger => json!("linger"),
    }
}
