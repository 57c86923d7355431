//! JSON-RPC over HTTP: `POST /rpc`, and `POST /` for clients that are given no path. A request
//! with an id is answered with 200 whatever became of it, because existing clients read no other
//! answer; what only notifies gets 204.. What follows a call is heard at `/rpc/events`,
//! or on `/rpc/ws`, which does all of it over one connection.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::{Fault, Wire};
use callgate_wires::jsonrpc::{self, INVALID_REQUEST, RpcError, parse_batch};

use super::{BATCH_MAX, Peer, Reached, Rpc, error_of, events, ws};
use crate::access::Identity;
use crate::web::{Entrance, content_type_is_json, empty, json_response, read_body};

/// Largest body, as it is told.
const BODY_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) struct Door {
    pub(super) rpc: Arc<Rpc>,
    pub(super) entrance: Entrance,
    wire: Wire,
}

impl Door {
    /// Who asks, or the answer to a stranger.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<Identity, Box<Response>> {
        self.entrance.admit(headers).await.map_err(|refused| {
            self.rpc.gate.refused_stranger(refused.reason);
            let error = error_of(&Fault::denied(refused.words.as_str()));
            Box::new(refused.finish(answer(&error)))
        })
    }

    pub(super) fn peer(&self, identity: Identity) -> Peer {
        Peer {
            hearer: Some(Rpc::hearer(&identity.caller)),
            caller: identity.caller,
            scope: identity.scope,
            wire: self.wire,
        }
    }
}

/// The paths of this door.
pub fn router(rpc: Arc<Rpc>, entrance: Entrance, wire: Wire) -> Router {
    let door = Door {
        rpc,
        entrance,
        wire,
    };
    Router::new()
        .route("/rpc", post(take))
        .route("/", post(take))
        .route("/rpc/events", get(events::open))
        .route("/rpc/ws", get(ws::open))
        .with_state(Arc::new(door))
}

async fn take(State(door): State<Arc<Door>>, request: axum::extract::Request) -> Response {
    let (head, body) = request.into_parts();
    // Before the body is read: a stranger gets no memory of ours.
    let identity = match door.admit(&head.headers).await {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    if !content_type_is_json(&head.headers) {
        let error = RpcError::new(INVALID_REQUEST, "the body must be application/json");
        return answer(&error);
    }
    let body = match read_body(body, &head.headers).await {
        Ok(body) => body,
        Err(unread) if unread.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return answer(&error_of(&Fault::too_large("request", BODY_BYTES_MAX)));
        }
        Err(unread) => return answer(&RpcError::new(INVALID_REQUEST, unread.words())),
    };
    let peer = door.peer(identity);
    let reached = Reached::Http(endpoint(&head.headers));
    let came = parse_batch(&body, BATCH_MAX);
    match door.rpc.answer(&peer, &reached, came).await {
        Some(answer) => json_response(StatusCode::OK, answer),
        None => empty(StatusCode::NO_CONTENT),
    }
}

/// Where the client found us, in its own words.
pub(super) fn endpoint(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(format!("http://{host}/rpc"))
}

/// An answer to nobody in particular.
pub(super) fn answer(error: &RpcError) -> Response {
    let mut message = Vec::new();
    jsonrpc::write_error(None, error, &mut message);
    json_response(StatusCode::OK, message)
}
