//! JSON-RPC over HTTP: `POST /rpc`, and `POST /` for clients that are given no path. A request
//! with an id is answered with 200 whatever became of it, because existing clients read no other
//! answer; what only notifies gets 204.. What follows a call is heard at `/rpc/events`,
//! or on `/rpc/ws`, which does all of it over one connection.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::{Fault, LeaseGroup, Wire};
use callgate_wires::jsonrpc::{self, INVALID_REQUEST, METHOD_NOT_FOUND, RpcError, parse_batch};
use hyper_util::rt::TokioIo;

use super::{BATCH_MAX, Peer, Reached, Rpc, error_of, events, stdio, ws};
use crate::mcp::stdio::Socket;
use callgate_listener::access::Identity;
use callgate_listener::tcp::{Head, Told};
use callgate_listener::web::{Entrance, Kinds, Names, empty, json_response, read_body};

/// What a connection of `callgate rpc` becomes.
pub const PIPE_PROTOCOL: &str = "callgate-rpc";
/// Largest body, as it is told.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Where messages are sent.
pub(crate) const PATH: &str = "/rpc";
/// The same.
pub(crate) const NO_PATH: &str = "/";

/// JSON-RPC at one listener.
pub struct HttpDoor {
    pub(super) rpc: Arc<Rpc>,
    pub(super) entrance: Entrance,
    wire: Wire,
}

impl HttpDoor {
    /// A door to `rpc` for callers that `entrance` lets in.
    #[must_use]
    pub fn new(rpc: Arc<Rpc>, entrance: Entrance, wire: Wire) -> Arc<Self> {
        Arc::new(Self {
            rpc,
            entrance,
            wire,
        })
    }

    /// Answers what a client sent, which is here already.
    pub(crate) async fn message(&self, head: &Head, body: &[u8]) -> Told {
        match self.let_in(head.headers(), head.kinds()).await {
            Ok(identity) => self.take(identity, head.headers(), body).await,
            Err(response) => Told::Other(*response),
        }
    }

    /// Who asks, if they send what we read.
    async fn let_in(&self, headers: &HeaderMap, kinds: Kinds) -> Result<Identity, Box<Response>> {
        let identity = self.admit(headers).await?;
        if kinds.sends_json {
            return Ok(identity);
        }
        let error = RpcError::new(INVALID_REQUEST, "the body must be application/json");
        Err(Box::new(answer(&error)))
    }

    /// One message or several, whole.
    async fn take(&self, identity: Identity, headers: &HeaderMap, body: &[u8]) -> Told {
        let peer = self.peer(identity);
        let reached = Reached::Http(headers.get(header::HOST).cloned());
        let came = parse_batch(body, BATCH_MAX);
        match self.rpc.answer(&peer, &reached, came).await {
            Some(answer) => Told::Json(StatusCode::OK, answer),
            None => empty(StatusCode::NO_CONTENT).into(),
        }
    }

    /// Who asks, or the answer to a stranger.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Box<Response>> {
        self.entrance.admit(headers).await.map_err(|refused| {
            self.rpc.gate.refused_stranger(refused.reason);
            let error = error_of(&Fault::denied(refused.words.as_str()));
            Box::new(refused.finish(answer(&error)))
        })
    }

    pub(super) fn peer(&self, identity: Identity) -> Peer {
        // A client of this contract cannot send a lease, and whoever has the owner's token could
        // make one. G-5.
        let lease_group = if identity.has_owner_token {
            LeaseGroup::Local
        } else {
            self.wire.lease_group()
        };
        Peer {
            hearer: Some(Rpc::hearer(&identity.caller)),
            caller: identity.caller,
            scope: identity.scope,
            wire: self.wire,
            lease_group,
        }
    }
}

/// The paths of this door.
pub fn router(door: Arc<HttpDoor>) -> Router {
    Router::new()
        .route(PATH, post(post_message))
        .route(NO_PATH, post(post_message))
        .route("/rpc/events", get(events::open))
        .route("/rpc/ws", get(ws::open))
        .route("/rpc/pipe", get(pipe))
        .with_state(door)
}

pub(super) type Door = State<Arc<HttpDoor>>;

async fn post_message(State(door): Door, request: axum::extract::Request) -> Response {
    let (head, body) = request.into_parts();
    // Before the body is read: a stranger gets no memory of ours.
    let identity = match door.let_in(&head.headers, Kinds::of(&head.headers)).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    match read_body(body, &head.headers).await {
        Ok(body) => door.take(identity, &head.headers, &body).await.into(),
        Err(unread) if unread.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            answer(&error_of(&Fault::too_large("request", BODY_BYTES_MAX)))
        }
        Err(unread) => answer(&RpcError::new(INVALID_REQUEST, unread.words())),
    }
}

/// The conversation of `stdio.rs` over this connection, for `callgate rpc` that attaches to us.
async fn pipe(State(door): Door, mut request: axum::extract::Request) -> Response {
    let identity = match door.admit(request.headers()).await {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    let asked = request.headers().get(header::UPGRADE);
    let asked = asked.map(HeaderValue::as_bytes);
    if !matches!(door.entrance.names, Names::Any) || asked != Some(PIPE_PROTOCOL.as_bytes()) {
        let words = "only for `callgate rpc` on this machine";
        let mut response = answer(&RpcError::new(METHOD_NOT_FOUND, words));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let upgrade = hyper::upgrade::on(&mut request);
    let (rpc, peer) = (Arc::clone(&door.rpc), door.peer(identity));
    door.rpc.listeners.tasks.spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let (ends, stop) = (Socket(TokioIo::new(upgraded)), rpc.closing.stop.clone());
            // A reader that went away is no error of ours.
            let _ = stdio::serve(&rpc, peer, ends, &stop).await;
        }
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(PIPE_PROTOCOL));
    response
}

/// An answer to nobody in particular.
pub(super) fn answer(error: &RpcError) -> Response {
    let mut message = Vec::new();
    jsonrpc::write_error(None, error, &mut message);
    json_response(StatusCode::OK, message)
}
