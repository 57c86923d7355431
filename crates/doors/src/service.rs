//! The tool protocol over HTTP: `POST /tools` and whatever path is configured, and
//! `POST /capabilities/handshake`. Contract `docs/contracts/tool-protocol.md`, decisions P.
//!
//! Its callers read nothing but answers of status 200, so everything they could act on is told
//! by one of these; other statuses are for requests that are no JSON object or not let in (P-4).

mod handshake;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use callgate_call::{Cancel, Fault, Outcome, Wire};
use callgate_gate::{Attempt, Gate, lost_outcome};
use callgate_wires::tool_protocol::{
    HANDSHAKE_PATH, HandshakeReply, HandshakeRequest, Ours, RequestError, SERVICE_PATH, Said,
    ServiceRequest, Told, write_service,
};
use tokio_util::task::TaskTracker;

use crate::tool::{Asked, Peer, Taken, known, said};
use callgate_listener::web::{Entrance, Refused, content_type_is_json, json_response, read_body};

/// What a service is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where calls are taken besides `/tools`.
    pub path: Option<String>,
    /// Told in handshakes.
    pub version: String,
    /// Whose rules apply: those of TCP, or those of a local socket.
    pub wire: Wire,
}

/// The tool protocol at one listener.
pub struct ServiceDoor {
    gate: Arc<Gate>,
    entrance: Entrance,
    settings: Settings,
    calls: TaskTracker,
    end: Cancel,
}

impl ServiceDoor {
    /// A door to `gate` for callers that `entrance` lets in. `calls` are answered before the
    /// listener closes; `end` ends them.
    #[must_use]
    pub fn new(
        gate: Arc<Gate>,
        entrance: Entrance,
        settings: Settings,
        calls: TaskTracker,
        end: Cancel,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate,
            entrance,
            settings,
            calls,
            end,
        })
    }
}

/// The paths of this door.
pub fn router(door: Arc<ServiceDoor>) -> Router {
    let mut router = Router::new()
        .route(SERVICE_PATH, post(run_tool))
        .route(HANDSHAKE_PATH, post(shake_hands));
    if let Some(path) = &door.settings.path {
        router = router.route(path, post(run_tool));
    }
    router.with_state(door)
}

/// True for a path that may be configured: plain segments, and none that another door has.
#[must_use]
pub fn is_path(path: &str) -> bool {
    let taken = [
        "/tools",
        "/capabilities",
        "/mcp",
        "/rpc",
        "/v1",
        "/metrics",
        "/.well-known",
    ];
    let is_taken = |taken: &str| {
        let rest = path.strip_prefix(taken);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    let segment = |segment: &str| {
        !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(plain)
    };
    path.len() <= 256
        && path
            .strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(segment))
        && !taken.into_iter().any(is_taken)
}

type Door = State<Arc<ServiceDoor>>;

async fn run_tool(State(door): Door, request: axum::extract::Request) -> Response {
    let (peer, body) = match door.take(request).await {
        Ok(taken) => taken,
        Err(response) => return *response,
    };
    match ServiceRequest::parse(&body) {
        Ok(request) => door.run(peer, request).await,
        Err(error) => malformed(&error),
    }
}

async fn shake_hands(State(door): Door, request: axum::extract::Request) -> Response {
    let (peer, body) = match door.take(request).await {
        Ok(taken) => taken,
        Err(response) => return *response,
    };
    let reply = match HandshakeRequest::parse(&body) {
        Ok(request) => door.handshake(&peer, &request),
        Err(error) => match status_of(&error) {
            StatusCode::OK => HandshakeReply::Refused(said(&bad_request(&error))),
            _ => return malformed(&error),
        },
    };
    let mut out = Vec::new();
    reply.write(&mut out);
    json_response(StatusCode::OK, out)
}

impl ServiceDoor {
    /// Who asks, and the whole body.
    async fn take(&self, request: axum::extract::Request) -> Result<(Peer, Bytes), Box<Response>> {
        let (head, body) = request.into_parts();
        // Before the body is read: a stranger gets no memory of ours.
        let admitted = self.entrance.admit(&head.headers).await;
        let identity = admitted.map_err(|refused| Box::new(self.refused(refused)))?;
        if !content_type_is_json(&head.headers) {
            let words = "the body must be application/json";
            return Err(Box::new(not_taken(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                words,
            )));
        }
        let body = read_body(body, &head.headers).await;
        let body = body.map_err(|unread| Box::new(not_taken(unread.status(), unread.words())))?;
        let peer = Peer {
            caller: identity.caller,
            scope: identity.scope,
            wire: self.settings.wire,
        };
        Ok((peer, body))
    }

    fn refused(&self, refused: Refused) -> Response {
        self.gate.refused_stranger(refused.reason);
        let said = Said::new("PermissionError", refused.words.as_str());
        let response = answer(refused.status, Err(&said));
        refused.finish(response)
    }

    async fn run(&self, peer: Peer, request: ServiceRequest) -> Response {
        let ours = request.ours.clone();
        let asked = match asked(request) {
            Ok(asked) => asked,
            Err(fault) => return answer(StatusCode::OK, Err(&said(&fault))),
        };
        let taken = Taken::new(&self.gate, &peer, asked, self.end.child_token());
        tell(&self.carry_out(taken).await, &ours)
    }

    /// In a task of its own if it has to wait, so that its end is recorded whatever becomes of the
    /// connection. A caller that hangs up ends its call; with a key it will come back and ask.
    async fn carry_out(&self, taken: Taken) -> Outcome {
        let Taken { call, found } = taken;
        let (id, cancel) = (call.id, Arc::clone(&call.cancel));
        let ends_with_connection = call.key.is_none();
        match self.gate.attempt(call, found, |_| {}) {
            Attempt::Done(answer) => self.gate.settled(answer).await,
            Attempt::Pending(pending) => {
                let _ends = ends_with_connection.then(|| Cancel::clone(&cancel).drop_guard());
                let work = pending.settled(Arc::clone(&self.gate));
                let outcome = self.calls.spawn(work).await;
                outcome.unwrap_or_else(|_| lost_outcome(id))
            }
        }
    }
}

fn asked(request: ServiceRequest) -> Result<Asked, Fault> {
    let has_roots = |context: &callgate_wires::tool_protocol::CapabilityContext| {
        context.filesystem_root.is_some() || !context.filesystem_read_roots.is_empty()
    };
    if request.context.as_ref().is_some_and(has_roots) {
        let reason = "`filesystem_root` is of the caller's machine, and the tool runs here";
        return Err(Fault::BadRequest {
            reason: reason.to_owned(),
        });
    }
    Ok(Asked {
        tool: request.tool_name,
        entry: request.entry,
        payload: request.payload,
        timeout: request.timeout_ms.map(Duration::from_millis),
        trace_id: request.trace_id,
        context: request.context,
        ours: request.ours,
    })
}

/// How a call went. Never with checks: P-1.
fn tell(outcome: &Outcome, ours: &Ours) -> Response {
    let (said, known) = (outcome.result.as_ref().map_err(said), known(outcome, ours));
    let told = Told {
        result: match &said {
            Ok(output) => Ok(output.json.text()),
            Err(said) => Err(said),
        },
        checks: None,
        call: known.as_ref(),
    };
    let mut out = Vec::new();
    write_service(&told, &mut out);
    json_response(StatusCode::OK, out)
}

fn bad_request(error: &RequestError) -> Fault {
    Fault::BadRequest {
        reason: error.to_string(),
    }
}

/// A JSON object with something wrong in it was well meant, and its sender should hear of it.
fn status_of(error: &RequestError) -> StatusCode {
    match error {
        RequestError::NotJson(_) | RequestError::NotAnObject => StatusCode::BAD_REQUEST,
        RequestError::Version | RequestError::Wrong(_) => StatusCode::OK,
    }
}

fn malformed(error: &RequestError) -> Response {
    answer(status_of(error), Err(&said(&bad_request(error))))
}

fn not_taken(status: StatusCode, words: &str) -> Response {
    answer(status, Err(&Said::new("ProtocolError", words)))
}

fn answer(status: StatusCode, result: Result<&str, &Said>) -> Response {
    let mut out = Vec::new();
    let told = Told {
        result,
        checks: None,
        call: None,
    };
    write_service(&told, &mut out);
    json_response(status, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TP-36: any plain path but those that mean something else.
    #[test]
    fn paths() {
        for good in ["/x", "/run/tool", "/a.b_c~d-e/1", "/toolsy", "/mcpx"] {
            assert!(is_path(good), "{good}");
        }
        let long = format!("/{}", "x".repeat(256));
        for bad in [
            "",
            "/",
            "x",
            "//",
            "/x/",
            "/x//y",
            "/{a}",
            "/*",
            "/:a",
            "/a b",
            "/a?b",
            "/../x",
            "/tools",
            "/mcp",
            "/mcp/x",
            "/v1/call",
            "/capabilities/handshake",
            "/.well-known/x",
            &long,
        ] {
            assert!(!is_path(bad), "{bad}");
        }
    }
}
