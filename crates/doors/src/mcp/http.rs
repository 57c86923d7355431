//! MCP over HTTP: one address, `POST` for messages, `GET` and `DELETE` for legacy sessions.
//! An answer is one JSON object, or a stream of events when something is said before it or it
//! takes long.

mod admit;
mod sessions;
mod streams;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::{BearerToken, LogLevel, Wire};
use callgate_wires::jsonrpc::{
    self, INTERNAL_ERROR, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Message, RpcError,
};
use callgate_wires::mcp::{self as wire, MODERN, Params, RequestMeta, VERSIONS, check_headers};
use callgate_wires::sse;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use self::admit::metadata;
use self::sessions::{Held, Sessions};
use self::streams::Patient;
use super::eventlog::{EventLog, GRACE};
use super::{Answered, Era, Outbox, Peer, Request, Server, listen};
use callgate_listener::access::Identity;
use callgate_listener::tcp::{Head, Told};
use callgate_listener::web::{
    EVENTS_WAITING_MAX, Entrance, HEARTBEAT, Kinds, Names, accepts, empty, event_stream,
    json_response, kept_bearer, no_longer_good, read_body,
};

/// Where messages are sent.
pub(crate) const PATH: &str = "/mcp";
/// The revision that a request speaks.
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The request whose stream outlasts every call.
const LISTEN: &str = "subscriptions/listen";
/// What `callgate mcp` asks a connection of `gate.sock` to become.
pub const PIPE_PROTOCOL: &str = "callgate-mcp";
/// The same for `callgate mcp --only`. A gate that does not know `ONLY` does not know this protocol
/// either, and refuses it instead of serving all tools.
pub const NARROW_PIPE_PROTOCOL: &str = "callgate-mcp-only";
/// One pattern of `callgate mcp --only`.
pub const ONLY: &str = "callgate-only";

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
}

/// The paths of this door.
pub fn router(door: Arc<HttpDoor>) -> Router {
    Router::new()
        .route(PATH, post(post_message).get(get_stream).delete(end_session))
        .route("/mcp/pipe", get(pipe))
        .route("/.well-known/oauth-protected-resource", get(metadata))
        .route("/.well-known/oauth-protected-resource/mcp", get(metadata))
        .with_state(door)
}

type Door = State<Arc<HttpDoor>>;

impl HttpDoor {
    fn peer(&self, identity: Identity) -> Peer {
        Peer::new(identity.caller, self.wire, identity.scope, &[])
    }
}

async fn post_message(State(door): Door, request: axum::extract::Request) -> Response {
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

fn invalid(status: StatusCode, words: &str) -> Response {
    refuse(status, None, &RpcError::new(INVALID_REQUEST, words)).into()
}

/// How far a message has come without anything to wait for.
enum Begun<'a> {
    /// Its answer.
    Told(Told),
    /// Its answer, once the records that it rests on are safe.
    Answered(Id, Vec<u8>, Answered),
    /// The rest takes its time. Boxed, so that what is answered at once has no room for it: a
    /// future is moved as a whole whenever one that has it is made.
    Waits(Pin<Box<dyn Future<Output = Told> + Send + 'a>>),
}

impl HttpDoor {
    /// Answers one message of a client's, which is here already.
    pub(crate) async fn message(&self, head: &Head, body: &[u8]) -> Told {
        match self.let_in(head.headers(), head.kinds()).await {
            Ok(identity) => self.take(identity, head.headers(), body).await,
            Err(response) => Told::Other(*response),
        }
    }

    /// Who asks, if they take the answers there are.
    async fn let_in(&self, headers: &HeaderMap, kinds: Kinds) -> Result<Identity, Box<Response>> {
        let identity = self.admit(headers).await?;
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
        match self.begin(identity, headers, body) {
            Begun::Told(told) => told,
            Begun::Answered(id, message, answered) => self.answer(&id, message, answered).await,
            Begun::Waits(rest) => rest.await,
        }
    }

    fn begin(&self, identity: Identity, headers: &HeaderMap, body: &[u8]) -> Begun<'_> {
        let message = match jsonrpc::parse(body) {
            Ok(message) => message,
            Err(malformed) => {
                let error = RpcError::new(malformed.code, malformed.message);
                let told = refuse(StatusCode::BAD_REQUEST, malformed.id.as_ref(), &error);
                return Begun::Told(told);
            }
        };
        let peer = self.peer(identity);
        match message {
            Message::Request {
                id, method, params, ..
            } => {
                let listens = method == LISTEN;
                let bearer = listens.then(|| kept_bearer(headers)).flatten();
                let incoming = Incoming {
                    id,
                    method,
                    params,
                    bearer,
                };
                self.request(peer, headers, incoming)
            }
            Message::Notification { method, params } => {
                if let Some(held) = self.sessions.find(&self.server, headers, &peer)
                    && method == "notifications/cancelled"
                {
                    held.cancelled(params.as_ref());
                }
                Begun::Told(empty(StatusCode::ACCEPTED).into())
            }
            Message::Response { id, result } => {
                let told = match self.sessions.find(&self.server, headers, &peer) {
                    Some(held) => {
                        held.session.answered(&id, result);
                        empty(StatusCode::ACCEPTED)
                    }
                    None => invalid(StatusCode::BAD_REQUEST, "an answer without a session"),
                };
                Begun::Told(told.into())
            }
        }
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

/// A request as it was read.
struct Incoming {
    id: Id,
    method: String,
    params: Option<Value>,
    /// The token of whoever will listen for long.
    bearer: Option<BearerToken>,
}

impl HttpDoor {
    fn request(&self, peer: Peer, headers: &HeaderMap, incoming: Incoming) -> Begun<'_> {
        let refused = |id: &Id, error: &RpcError| {
            Begun::Told(refuse(StatusCode::BAD_REQUEST, Some(id), error))
        };
        let mut meta = match RequestMeta::read(incoming.params.as_ref()) {
            Ok(meta) => meta,
            Err(error) => return refused(&incoming.id, &error),
        };
        let version = headers
            .get(VERSION)
            .and_then(|value| value.to_str().ok())
            .map(str::trim);
        let has_session = headers.contains_key(sessions::HEADER);
        let is_modern = meta.version.is_some() || version == Some(MODERN);
        if is_modern {
            if let Err(error) = self.check_modern(headers, &incoming, &meta, &peer) {
                return refused(&incoming.id, &error);
            }
            let era = Era::Modern {
                capabilities: meta.capabilities.take().unwrap_or_default(),
                log_level: meta.log_level.as_deref().and_then(LogLevel::parse),
            };
            return self.carry_out(peer, incoming, meta, era, None);
        }
        if let Some(version) = version
            && !VERSIONS.contains(&version)
        {
            return refused(&incoming.id, &wire::unsupported(version));
        }
        if incoming.method == "initialize" && !has_session {
            let held = Arc::new(Held::new(&peer));
            let era = Era::Legacy(Arc::clone(&held.session));
            let begun = self.carry_out(peer, incoming, meta, era, Some(Arc::clone(&held)));
            let Begun::Answered(_, message, ..) = begun else {
                return begun;
            };
            let mut response = json_response(StatusCode::OK, message);
            if held.has_begun() {
                let name = self.sessions.keep(&self.server, held);
                if let Ok(name) = HeaderValue::from_str(&name) {
                    response.headers_mut().insert(sessions::HEADER, name);
                }
            }
            return Begun::Told(response.into());
        }
        if !has_session {
            let words = "no session: begin with `initialize`, or send `_meta` as 2026-07-28 has it";
            return refused(&incoming.id, &RpcError::new(INVALID_REQUEST, words));
        }
        let Some(held) = self.sessions.find(&self.server, headers, &peer) else {
            let error = RpcError::new(INVALID_REQUEST, "the session has ended: begin a new one");
            let told = refuse(StatusCode::NOT_FOUND, Some(&incoming.id), &error);
            return Begun::Told(told);
        };
        let era = Era::Legacy(Arc::clone(&held.session));
        self.carry_out(peer, incoming, meta, era, Some(held))
    }

    /// Everything a modern request must bring, in the order its refusals are told.
    fn check_modern(
        &self,
        headers: &HeaderMap,
        incoming: &Incoming,
        meta: &RequestMeta,
        peer: &Peer,
    ) -> Result<(), RpcError> {
        let Some(version) = &meta.version else {
            return meta.check_modern();
        };
        let find = |name: &str| mirrored_header(headers, name).map(HeaderValue::as_bytes);
        let params = incoming.params.as_ref();
        let schema = (incoming.method == "tools/call")
            .then(|| self.server.schema_of(params, peer))
            .flatten();
        let params = Params::Other(params.cloned().unwrap_or_default());
        let mirrored = check_headers(&find, version, &incoming.method, &params, schema.as_ref());
        // A version nobody speaks is told as such when both places agree on it.
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

    /// Carries a request out, and answers as plain JSON if nothing is said before its answer.
    fn carry_out(
        &self,
        peer: Peer,
        incoming: Incoming,
        meta: RequestMeta,
        era: Era,
        held: Option<Arc<Held>>,
    ) -> Begun<'_> {
        let Incoming {
            id,
            method,
            params,
            bearer,
        } = incoming;
        let params = match params {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => {
                let error = wire::invalid("`params` must be an object");
                return Begun::Told(refuse(StatusCode::BAD_REQUEST, Some(&id), &error));
            }
        };
        // A stream that only listens does nothing anybody would come back for.
        let keyed = meta.idempotency_key.is_some() && method != LISTEN;
        let mut request = Request {
            id,
            method,
            params,
            meta,
            era,
            peer,
            out: self.server.nowhere.clone(),
            cancel: Arc::clone(&self.server.never),
        };
        let mut message = Vec::new();
        match self.server.answer_at_once(&mut request, &mut message) {
            Some(answered) => Begun::Answered(request.id, message, answered),
            None => Begun::Waits(Box::pin(self.wait_for(request, held, keyed, bearer))),
        }
    }

    /// Carries a request out that takes its time.
    async fn wait_for(
        &self,
        mut request: Request,
        held: Option<Arc<Held>>,
        keyed: bool,
        bearer: Option<BearerToken>,
    ) -> Told {
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
        // A task of its own, so that its end is recorded whatever becomes of the connection; and
        // so that it can be cancelled until then.
        let mut work = self.server.calls.spawn(async move {
            let _running = running;
            let mut message = Vec::new();
            let answered = server.answer(&mut request, &mut message).await;
            (message, answered)
        });
        // A client that hangs up takes its request back; with a key it will come and ask again.
        let guard = (!keyed).then(|| cancel.clone().drop_guard());
        let first = tokio::select! {
            biased;
            // What was said before the answer is told before it, however close they come.
            Some(first) = outgoing.recv() => Some(first),
            done = &mut work => {
                if let Some(guard) = guard { guard.disarm(); }
                return match done {
                    Ok((message, answered)) => self.answer(&id, message, answered).await,
                    Err(_) => self.lost(&id),
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

    async fn answer(&self, id: &Id, message: Vec<u8>, answered: Answered) -> Told {
        if let (Some(ticket), Some(gate)) = (answered.ticket, self.server.gate())
            && let Err(fault) = gate.settle_with_others(ticket).await
        {
            let error = RpcError::new(INTERNAL_ERROR, fault.to_string());
            return refuse(StatusCode::OK, Some(id), &error);
        }
        if answered.silent {
            return empty(StatusCode::ACCEPTED).into();
        }
        let status = StatusCode::from_u16(answered.status).unwrap_or(StatusCode::OK);
        Told::Json(status, message)
    }

    fn lost(&self, id: &Id) -> Told {
        let error = RpcError::new(INTERNAL_ERROR, "the request's task ended early");
        refuse(StatusCode::INTERNAL_SERVER_ERROR, Some(id), &error)
    }
}

/// `GET`: a legacy client listens for what belongs to no request, or comes back to a stream.
async fn get_stream(State(door): Door, headers: HeaderMap) -> Response {
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
    if let Some((log, after)) = last.and_then(|last| held.stream(last)) {
        let ending = door.server.ending.clone();
        door.server.calls.spawn(async move {
            tokio::select! {
                () = log.feed(after, &to) => {}
                () = ending.cancelled() => {}
            }
        });
        return event_stream(body);
    }
    if let Some(gate) = door.server.gate() {
        let mut changes = gate.changes().listen();
        let server = Arc::clone(&door.server);
        let gone = no_longer_good(Arc::clone(&door.entrance.access), kept_bearer(&headers));
        // It waits for no call, so that it ends with the first word of an end.
        let to = Patient {
            to,
            ending: server.stopping.clone(),
        };
        door.server.calls.spawn(async move {
            let mut gone = std::pin::pin!(gone);
            loop {
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
                    jsonrpc::write_notification(method, &Value::Object(params), &mut message);
                    if !to.send_message(&message).await {
                        return;
                    }
                }
            }
        });
    }
    event_stream(body)
}

/// The conversation of `stdio.rs` over this connection, for `callgate mcp` that attaches to us.
async fn pipe(State(door): Door, mut request: axum::extract::Request) -> Response {
    let identity = match door.admit(request.headers()).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    let Some((protocol, only)) =
        asked_pipe(request.headers()).filter(|_| matches!(door.entrance.names, Names::Any))
    else {
        let words = "only for `callgate mcp` on this machine";
        let error = RpcError::new(METHOD_NOT_FOUND, words);
        return refuse(StatusCode::NOT_FOUND, None, &error).into();
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let peer = Peer::new(identity.caller, door.wire, identity.scope, &only);
    let server = Arc::clone(&door.server);
    door.server.calls.spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let ends = super::stdio::Socket(TokioIo::new(upgraded));
            let stop = server.stopping.clone();
            // A reader that went away is no error of ours.
            let _ = super::stdio::serve(&server, peer, ends, &stop).await;
        }
    });
    let mut response = empty(StatusCode::SWITCHING_PROTOCOLS);
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// The protocol of a pipe and the patterns its tools must fit, if the request is for one. A narrow
/// pipe has at least one pattern, and no pipe ignores one that cannot be read.
fn asked_pipe(headers: &HeaderMap) -> Option<(&'static str, Vec<String>)> {
    let patterns = headers.get_all(ONLY).iter();
    let patterns: Result<Vec<String>, _> = patterns
        .map(|pattern| pattern.to_str().map(str::to_owned))
        .collect();
    let only = patterns.ok()?;
    match headers.get(header::UPGRADE)?.to_str().ok()? {
        PIPE_PROTOCOL if only.is_empty() => Some((PIPE_PROTOCOL, only)),
        NARROW_PIPE_PROTOCOL if !only.is_empty() => Some((NARROW_PIPE_PROTOCOL, only)),
        _ => None,
    }
}

/// `DELETE`: a legacy client says goodbye.
async fn end_session(State(door): Door, headers: HeaderMap) -> Response {
    let identity = match door.admit(&headers).await {
        Ok(identity) => identity,
        Err(response) => return *response,
    };
    let peer = door.peer(identity);
    match door.sessions.find(&door.server, &headers, &peer) {
        Some(held) => {
            door.sessions.end(&headers, &held);
            empty(StatusCode::NO_CONTENT)
        }
        None => invalid(StatusCode::NOT_FOUND, "there is no such session"),
    }
}

fn refuse(status: StatusCode, id: Option<&Id>, error: &RpcError) -> Told {
    let mut message = Vec::new();
    jsonrpc::write_error(id, error, &mut message);
    Told::Json(status, message)
}

/// The answer to any other path of a port.
pub async fn unknown_path() -> Response {
    let words = "no such path: MCP is at /mcp, the tool protocol at /tools, JSON-RPC at /rpc";
    let error = RpcError::new(METHOD_NOT_FOUND, words);
    refuse(StatusCode::NOT_FOUND, None, &error).into()
}

/// The log of a stream is named here for `sessions.rs`.
type Stream = Arc<EventLog>;

const _: () = assert!(HEARTBEAT.as_millis() < Duration::from_secs(60).as_millis());
