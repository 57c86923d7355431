//! `POST`: one message. It is decoded into a request, the server answers that or has it wait, and the
//! answer is encoded: as one JSON object, or as a stream of events when something is said before it
//! or it takes long.

use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use callgate_call::BearerToken;
use callgate_gate::Attempt;
use callgate_listener::access::Identity;
use callgate_listener::tcp::{Head, Told};
use callgate_listener::web::{HEARTBEAT, Kinds, empty, json_response, kept_bearer, read_body};
use callgate_wires::jsonrpc::{INTERNAL_ERROR, INVALID_REQUEST, Id, Message, RpcError};
use callgate_wires::mcp::{self as wire, MODERN, VERSIONS, check_headers};

use super::super::request::Asked;
use super::super::tools::schema_with_headers;
use super::super::{Answered, Era, Outbox, Peer, Request};
use super::sessions::{self, Held};
use super::{Door, HttpDoor, invalid, refuse};

/// The revision that a request speaks.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The request whose stream outlasts every call.
const LISTEN: &str = "subscriptions/listen";

/// A message that the router has read the head of.
pub(super) async fn post_message(State(door): Door, request: axum::extract::Request) -> Response {
    let (head, body) = request.into_parts();
    // Before the body is read: a stranger gets no memory of ours.
    let identity = match door.let_in(&head.headers, Kinds::of(&head.headers)).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    match read_body(body, &head.headers).await {
        Ok(body) => door.take(identity, &head.headers, &body).await.into(),
        Err(unread) => invalid(unread.status(), unread.words()),
    }
}

/// A message as far as it comes without waiting. The rest is boxed, so that what is answered at once
/// has no room for it: a future is moved as a whole whenever one that has it is made.
type HttpAttempt<'a> = Attempt<Reply, Pin<Box<dyn Future<Output = Told> + Send + 'a>>>;

/// The reply to a message.
enum Reply {
    /// Whole.
    Encoded(Told),
    /// The answer to a request, whose record has to be made safe before.
    Answered(Answered, Vec<u8>),
}

/// A request, and what the connection it came by has to do with it.
struct Decoded {
    request: Request,
    /// The session it is of, or the one that it begins.
    held: Option<Arc<Held>>,
    begins_session: bool,
    /// The token of a client that will listen for long.
    bearer: Option<BearerToken>,
}

impl HttpDoor {
    /// Answers one message of a client's, which is here already.
    pub(crate) async fn message(&self, head: &Head, body: &[u8]) -> Told {
        match self.let_in(head.headers(), head.kinds()).await {
            Ok(identity) => self.take(identity, head.headers(), body).await,
            Err(response) => Told::Other(*response),
        }
    }

    /// Returns the caller, if it takes the answers there are.
    async fn let_in(&self, headers: &HeaderMap, kinds: Kinds) -> Result<Identity, Box<Response>> {
        let admitted = self.entrance.admit(headers).await;
        let identity = admitted.map_err(|refused| Box::new(self.refused(refused)))?;
        if !kinds.sends_json {
            let words = "the body must be application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Box::new(invalid(status, words)));
        }
        if !kinds.accepts_both {
            let words = "Accept must list application/json and text/event-stream";
            return Err(Box::new(invalid(StatusCode::NOT_ACCEPTABLE, words)));
        }
        Ok(identity)
    }

    /// One message, whole.
    async fn take(&self, identity: Identity, headers: &HeaderMap, body: &[u8]) -> Told {
        match self.attempt(identity, headers, body) {
            Attempt::Done(Reply::Encoded(told)) => told,
            Attempt::Done(Reply::Answered(answered, message)) => {
                self.encode(answered, message).await
            }
            Attempt::Pending(rest) => rest.await,
        }
    }

    fn attempt(&self, identity: Identity, headers: &HeaderMap, body: &[u8]) -> HttpAttempt<'_> {
        let decoded = match self.decode(identity, headers, body) {
            Ok(decoded) => decoded,
            Err(told) => return Attempt::Done(Reply::Encoded(*told)),
        };
        let Decoded {
            request,
            held,
            begins_session,
            bearer,
        } = decoded;
        let mut message = Vec::new();
        match self.server.attempt(request, &mut message) {
            Attempt::Done(_) if begins_session => {
                let begun = self.begun_session(held, message);
                Attempt::Done(Reply::Encoded(begun))
            }
            Attempt::Done(answered) => Attempt::Done(Reply::Answered(answered, message)),
            Attempt::Pending(request) => {
                Attempt::Pending(Box::pin(self.wait_for(request, held, bearer)))
            }
        }
    }

    /// Makes a request of a message. What is none is answered by what comes back.
    fn decode(
        &self,
        identity: Identity,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Decoded, Box<Told>> {
        let message = wire::parse(body).map_err(|malformed| {
            let error = RpcError::new(malformed.code, malformed.message);
            Box::new(refuse(
                StatusCode::BAD_REQUEST,
                malformed.id.as_ref(),
                &error,
            ))
        })?;
        let peer = self.peer(identity);
        match message {
            Message::Request {
                id, method, params, ..
            } => {
                let bad = |error| Box::new(refuse(StatusCode::BAD_REQUEST, Some(&id), &error));
                let asked = self.server.asked(method, params).map_err(bad)?;
                self.decode_request(peer, headers, id, asked)
            }
            Message::Notification { method, params } => {
                if let Some(held) = self.sessions.find(&self.server, headers, &peer)
                    && method == "notifications/cancelled"
                {
                    held.cancelled(&params.unwrap_or_default());
                }
                Err(Box::new(empty(StatusCode::ACCEPTED).into()))
            }
            Message::Response { id, result } => {
                let told = match self.sessions.find(&self.server, headers, &peer) {
                    Some(held) => {
                        held.session.answered(&id, result);
                        empty(StatusCode::ACCEPTED)
                    }
                    None => invalid(StatusCode::BAD_REQUEST, "an answer without a session"),
                };
                Err(Box::new(told.into()))
            }
        }
    }

    /// The era and the session of a request.
    fn decode_request(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        id: Id,
        mut asked: Asked,
    ) -> Result<Decoded, Box<Told>> {
        let refused = |id: &Id, error: &RpcError| {
            Err(Box::new(refuse(StatusCode::BAD_REQUEST, Some(id), error)))
        };
        let version = headers
            .get(VERSION)
            .and_then(|value| value.to_str().ok())
            .map(str::trim);
        let has_session = headers.contains_key(sessions::HEADER);
        let is_modern = asked.meta.version.is_some() || version == Some(MODERN);
        if is_modern {
            if let Err(error) = check_modern(headers, &asked, &peer) {
                return refused(&id, &error);
            }
            let listens = asked.method == LISTEN;
            let era = Era::modern(&mut asked.meta);
            return Ok(Decoded {
                request: self.server.request(id, asked, era, peer),
                held: None,
                begins_session: false,
                bearer: listens.then(|| kept_bearer(headers)).flatten(),
            });
        }
        if let Some(version) = version
            && !VERSIONS.contains(&version)
        {
            return refused(&id, &wire::unsupported(version));
        }
        let begins_session = asked.method == "initialize" && !has_session;
        let held = if begins_session {
            Arc::new(Held::new(&peer))
        } else if !has_session {
            let words = "no session: begin with `initialize`, or send `_meta` as 2026-07-28 has it";
            return refused(&id, &RpcError::new(INVALID_REQUEST, words));
        } else if let Some(held) = self.sessions.find(&self.server, headers, &peer) {
            held
        } else {
            let error = RpcError::new(INVALID_REQUEST, "the session has ended: begin a new one");
            let told = refuse(StatusCode::NOT_FOUND, Some(&id), &error);
            return Err(Box::new(told));
        };
        let era = Era::Legacy(Arc::clone(&held.session));
        Ok(Decoded {
            request: self.server.request(id, asked, era, peer),
            held: Some(held),
            begins_session,
            bearer: None,
        })
    }

    /// The answer to `initialize`, with the name of the session if it has begun.
    fn begun_session(&self, held: Option<Arc<Held>>, message: Vec<u8>) -> Told {
        let mut response = json_response(StatusCode::OK, message);
        if let Some(held) = held.filter(|held| held.has_begun()) {
            let name = self.sessions.keep(&self.server, held);
            if let Ok(name) = HeaderValue::from_str(&name) {
                response.headers_mut().insert(sessions::HEADER, name);
            }
        }
        response.into()
    }

    /// Carries a request out that takes its time.
    async fn wait_for(
        &self,
        mut request: Request,
        held: Option<Arc<Held>>,
        bearer: Option<BearerToken>,
    ) -> Told {
        // A stream that only listens does nothing that a client would ask for again.
        let keyed = request.meta.idempotency_key.is_some() && request.method != LISTEN;
        let id = request.id.clone();
        let (out, mut outgoing) = Outbox::new();
        request.out = out;
        let cancel = self.server.ending.child_token();
        request.cancel = Arc::new(cancel.clone());
        let running = held.as_ref().map(|held| held.begins(&id, &cancel));
        if let Some(None) = running {
            let words = "a request with this id is in flight";
            let error = RpcError::new(INVALID_REQUEST, words);
            return refuse(StatusCode::BAD_REQUEST, Some(&id), &error);
        }
        let server = Arc::clone(&self.server);
        // A task of its own, so that its end is recorded even if the connection is lost; and so
        // that it can be cancelled until then.
        let mut work = self.server.calls.spawn(async move {
            let _running = running;
            let mut message = Vec::new();
            let answered = server.answer(&mut request, &mut message).await;
            (message, answered)
        });
        // A client that hangs up takes its request back; with a key it will come and ask again.
        let guard = (!keyed).then(|| cancel.clone().drop_guard());
        // `recv` is cancel safe and the handle is borrowed: both go on in the stream that is made
        // below. Dropped as a whole, the task runs on, ended by `guard` unless it has a key.
        let first = tokio::select! {
            biased;
            // Notifications are sent before the answer, however close they come.
            Some(first) = outgoing.recv() => Some(first),
            done = &mut work => {
                if let Some(guard) = guard { guard.disarm(); }
                return match done {
                    Ok((message, answered)) => self.encode(answered, message).await,
                    Err(_) => lost(&id),
                };
            }
            () = tokio::time::sleep(HEARTBEAT) => None,
        };
        if let Some(guard) = guard {
            guard.disarm(); // the stream has its own
        }
        match held {
            Some(held) => self.legacy_stream(&held, work, outgoing, first, (cancel, keyed)),
            None => self.modern_stream(work, outgoing, first, cancel, keyed, bearer),
        }
        .into()
    }

    /// An answer as a response, once the records that it rests on are safe.
    async fn encode(&self, answered: Answered, message: Vec<u8>) -> Told {
        if let (Some(ticket), Some(gate)) = (answered.ticket, self.server.gate())
            && let Err(fault) = gate.settle_with_others(ticket).await
        {
            let error = RpcError::new(INTERNAL_ERROR, fault.to_string());
            return refuse(StatusCode::OK, Some(&answered.id), &error);
        }
        if answered.silent {
            return empty(StatusCode::ACCEPTED).into();
        }
        let status = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::OK);
        Told::Json(status, message)
    }
}

/// Checks that a modern request brings all it must, in the order of the refusals.
fn check_modern(headers: &HeaderMap, asked: &Asked, peer: &Peer) -> Result<(), RpcError> {
    let (meta, method) = (&asked.meta, &asked.method);
    let Some(version) = &meta.version else {
        return meta.check_modern();
    };
    let find = |name: &str| mirrored_header(headers, name).map(HeaderValue::as_bytes);
    let found = asked.found.as_ref();
    let schema = found.and_then(|found| schema_with_headers(found, peer));
    let mirrored = check_headers(&find, version, method, &asked.params, schema);
    // An unknown version is refused as such when header and body agree on it.
    match (&mirrored, meta.check_modern()) {
        (Err(error), _)
            if headers
                .get(VERSION)
                .is_none_or(|v| v.as_bytes().trim_ascii() != version.as_bytes()) =>
        {
            Err(error.clone())
        }
        (_, Err(error)) => Err(error),
        (Err(error), Ok(())) => Err(error.clone()),
        (Ok(()), Ok(())) => Ok(()),
    }
}

/// Names that every request has are not read anew for each.
fn mirrored_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a HeaderValue> {
    match name {
        "mcp-protocol-version" => headers.get(VERSION),
        "mcp-method" => headers.get(METHOD),
        "mcp-name" => headers.get(NAME),
        other => headers.get(other),
    }
}

fn lost(id: &Id) -> Told {
    let error = RpcError::new(INTERNAL_ERROR, "the request's task ended early");
    refuse(StatusCode::INTERNAL_SERVER_ERROR, Some(id), &error)
}
