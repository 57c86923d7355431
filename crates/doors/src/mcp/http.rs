//! MCP over HTTP: one address, `POST` for messages (`post`), `GET` for streams (`listen`) and
//! `DELETE` for the ends of legacy sessions (`sessions`).

mod admit;
mod listen;
mod pipe;
mod post;
mod sessions;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::Wire;
use callgate_listener::access::Identity;
use callgate_listener::tcp::Told;
use callgate_listener::web::{Entrance, HEARTBEAT};
use callgate_wires::jsonrpc::{self, INVALID_REQUEST, Id, METHOD_NOT_FOUND, RpcError};

pub use self::pipe::{
    BUILTINS, CLIENT, CLIENT_PIPE_PROTOCOL, NARROW_PIPE_PROTOCOL, ONLY, PIPE_PROTOCOL,
};

use self::sessions::Sessions;
use super::{Peer, Server};

/// The path of messages.
pub(crate) const PATH: &str = "/mcp";

/// MCP at one listener.
pub struct HttpDoor {
    server: Arc<Server>,
    entrance: Entrance,
    wire: Wire,
    sessions: Sessions,
}

impl HttpDoor {
    /// A door to `server` for callers that `entrance` lets in.
    #[must_use]
    pub fn new(server: Arc<Server>, entrance: Entrance, wire: Wire) -> Arc<Self> {
        let sessions = Sessions::default();
        Arc::new(Self {
            server,
            entrance,
            wire,
            sessions,
        })
    }

    fn peer(&self, identity: Identity) -> Peer {
        Peer::new(identity.caller, self.wire, identity.scope, &[])
    }
}

/// The paths of this door.
pub fn router(door: Arc<HttpDoor>) -> Router {
    let messages = post(post::post_message)
        .get(listen::get_stream)
        .delete(sessions::end_session);
    let metadata = || get(admit::metadata);
    Router::new()
        .route(PATH, messages)
        .route("/mcp/pipe", get(pipe::pipe))
        .route("/.well-known/oauth-protected-resource", metadata())
        .route("/.well-known/oauth-protected-resource/mcp", metadata())
        .with_state(door)
}

type Door = State<Arc<HttpDoor>>;

fn refuse(status: StatusCode, id: Option<&Id>, error: &RpcError) -> Told {
    let mut message = Vec::new();
    jsonrpc::write_error(id, error, &mut message);
    Told::Json(status, message)
}

fn invalid(status: StatusCode, words: &str) -> Response {
    refuse(status, None, &RpcError::new(INVALID_REQUEST, words)).into()
}

/// The answer to any other path of a port.
pub async fn unknown_path() -> Response {
    let words = "no such path: MCP is at /mcp, the tool protocol at /tools, JSON-RPC at /rpc";
    let error = RpcError::new(METHOD_NOT_FOUND, words);
    refuse(StatusCode::NOT_FOUND, None, &error).into()
}

const _: () = assert!(HEARTBEAT.as_millis() < Duration::from_secs(60).as_millis());
