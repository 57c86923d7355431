//! `GET`: a legacy client listens for what belongs to no request, or comes back to a stream.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_listener::web::{
    EVENTS_WAITING_MAX, HEARTBEAT, accepts, event_stream, kept_bearer, no_longer_good,
};
use callgate_wires::{jsonrpc, sse};
use tokio::sync::mpsc;

use super::super::listen;
use super::sessions::{self, Held};
use super::streams::Patient;
use super::{Door, HttpDoor, invalid};

/// Opens a stream, or takes one up again.
pub(super) async fn get_stream(State(door): Door, headers: HeaderMap) -> Response {
    let identity = match door.admit(&headers).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    if !headers.contains_key(sessions::HEADER) {
        let mut response = invalid(
            StatusCode::METHOD_NOT_ALLOWED,
            "streams are opened by POST, or by a session's GET",
        );
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    if !accepts(&headers, "text/event-stream") {
        return invalid(
            StatusCode::NOT_ACCEPTABLE,
            "Accept must list text/event-stream",
        );
    }
    let peer = door.peer(identity);
    let Some(held) = door.sessions.find(&door.server, &headers, &peer) else {
        return invalid(
            StatusCode::NOT_FOUND,
            "the session has ended: begin a new one",
        );
    };
    let (to, body) = mpsc::channel(EVENTS_WAITING_MAX);
    let last = headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok());
    match last.and_then(|last| held.stream(last)) {
        Some((log, after)) => {
            let ending = door.server.ending.clone();
            door.server.calls.spawn(async move {
                // Dropping `feed` leaves the events in the log, where a client that comes back
                // finds them.
                tokio::select! {
                    () = log.feed(after, &to) => {}
                    () = ending.cancelled() => {}
                }
            });
        }
        None => door.tell_changes(held, &headers, to),
    }
    event_stream(body)
}

impl HttpDoor {
    /// Tells a session what changes, until either end closes.
    fn tell_changes(&self, held: Arc<Held>, headers: &HeaderMap, to: mpsc::Sender<Bytes>) {
        let Some(gate) = self.server.gate() else {
            return;
        };
        let mut changes = gate.changes().listen();
        let server = Arc::clone(&self.server);
        let gone = no_longer_good(Arc::clone(&self.entrance.access), kept_bearer(headers));
        // It waits for no call, so that it ends with the first word of an end.
        let to = Patient {
            to,
            ending: server.stopping.clone(),
        };
        self.server.calls.spawn(async move {
            let mut gone = std::pin::pin!(gone);
            loop {
                // `next` is cancel safe: a change stays in the channel. The other arms but the
                // heartbeat end the stream.
                let change = tokio::select! {
                    change = changes.next() => change,
                    () = to.to.closed() => return,
                    () = server.stopping.cancelled() => return,
                    () = held.gone() => return,
                    () = &mut gone => return,
                    () = tokio::time::sleep(HEARTBEAT) => {
                        if !to.send(Bytes::from_static(sse::HEARTBEAT)).await {
                            return;
                        }
                        continue;
                    }
                };
                for change in listen::told(&held.session, change) {
                    let (method, params) = listen::notification(&change);
                    let mut message = Vec::new();
                    jsonrpc::write_notification(method, &params, &mut message);
                    if !to.send_message(&message).await {
                        return;
                    }
                }
            }
        });
    }
}
