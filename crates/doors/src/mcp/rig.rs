//! A server for the tests of this folder. Its tools hang until they are taken back, but for one.

use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Cancel, Clock, ManualClock, Timestamp, Wire};
use callgate_wires::jsonrpc::Id;
use callgate_wires::mcp::RequestMeta;
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
    fn tools(&self) -> &[Value] {
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

/// A server, and the clock its seals go by.
pub(super) fn server() -> (Arc<Server>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let settings = Settings {
        name: "test".to_owned(),
        version: "1".to_owned(),
        instructions: None,
        task_after: Duration::from_secs(3),
    };
    let seal = Seal::new([7; 32], Arc::clone(&clock) as Arc<dyn Clock>);
    let server = Server::new(Behind::Relay(Arc::new(Hangs)), settings, seal);
    (Arc::new(server), clock)
}

/// Somebody.
pub(super) fn peer() -> Peer {
    Peer {
        caller: Caller::uid(0),
        wire: Wire::Mcp,
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
    let (out, said) = Outbox::new();
    let request = Request {
        id: Id::number(1),
        method: "tools/list".to_owned(),
        meta: RequestMeta::read(Some(&params)).unwrap(),
        params: params.as_object().cloned().unwrap(),
        era: Era::Modern {
            capabilities: Map::new(),
            log_level: None,
        },
        peer: peer(),
        out,
        cancel: Arc::new(Cancel::new()),
    };
    (request, said)
}

/// A message that was said.
pub(super) fn message(said: &Outgoing) -> Value {
    match said {
        Outgoing::Message(message) => serde_json::from_slice(message).unwrap(),
        Outgoing::Linger => json!("linger"),
    }
}
