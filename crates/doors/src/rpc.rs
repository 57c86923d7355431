//! The workspace contract: JSON-RPC 2.0 whose methods are tools. `files/read` is the tool of that
//! name, and so is any other; `tools/list` and `rpc/discover` tell of them. Contract
//! `docs/contracts/json-rpc.md`, decisions R.

mod conversation;
mod discover;
mod errors;
mod events;
mod frames;
pub mod http;
mod list;
#[cfg(test)]
mod mutations;
mod news;
pub mod stdio;
mod stream;
mod ws;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use callgate_call::{
    Call, CallId, Caller, Cancel, Document, Fault, Hearer, IdempotencyKey, LeaseGroup, LeaseToken,
    Outcome, Scope, Sink, Wire, natural_number,
};
use callgate_gate::{Answer, Attempt, Gate, PendingCall, lost_outcome};
use callgate_wires::json;
use callgate_wires::jsonrpc::{self, Batch, Id, METHOD_NOT_FOUND, Malformed, Message, RpcError};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;

pub use conversation::LAST_WORDS;
pub use errors::error_of;
#[cfg(feature = "fuzzing")]
pub(crate) use frames::properties::check_cuts;

use self::events::Listeners;
use crate::http::Closing;
use crate::reply::{EnforcementBody, enforcement_body};

/// Messages of one batch. R-2.
pub const BATCH_MAX: usize = 64;

/// Who asks, and by which wire.
#[derive(Clone)]
pub struct Peer {
    /// Who.
    pub caller: Caller,
    /// What they may see and call, where that is bounded.
    pub scope: Option<Arc<Scope>>,
    /// The wire, as records name it.
    pub wire: Wire,
    /// Which default for leases applies. G-5.
    pub lease_group: LeaseGroup,
    /// Who hears what follows their calls; a conversation has its own.
    pub hearer: Option<Hearer>,
}

/// How a client reached us, as `tools/list` tells it. R-14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By pipes.
    Stdio,
    /// At this host, in the client's words.
    Http(Option<HeaderValue>),
}

/// The methods, whoever carries them.
pub struct Rpc {
    gate: Arc<Gate>,
    calls: TaskTracker,
    closing: Closing,
    listeners: Listeners,
    /// Tells the events of this process from those of others.
    start: String,
}

impl Rpc {
    /// `calls` are answered before the door closes, which ends all listening first.
    #[must_use]
    pub fn new(gate: Arc<Gate>, calls: TaskTracker, closing: Closing) -> Arc<Self> {
        Arc::new(Self {
            start: gate.next_id().to_string(),
            gate,
            calls,
            closing,
            listeners: Listeners::default(),
        })
    }

    /// Ready when nobody listens any more, once the door is closing.
    pub async fn unheard(&self) {
        self.listeners.tasks.close();
        self.listeners.tasks.wait().await;
    }

    /// Whoever comes as `caller`, without a connection that lasts.
    fn hearer(caller: &Caller) -> Hearer {
        Hearer::Caller(caller.as_str().into())
    }

    /// Answers what came at once; nothing where nobody waits for an answer.
    pub async fn answer(
        self: &Arc<Self>,
        peer: &Peer,
        reached: &Reached,
        came: Batch,
    ) -> Option<Vec<u8>> {
        match came {
            Batch::One(message) => self.message(peer, reached, message).await,
            // Boxed: they are rare, and what is alone needs no room for them.
            Batch::Many(messages) => Box::pin(self.many(peer, reached, messages)).await,
        }
    }

    /// All of a batch at the same time; answers in the order of their requests.
    async fn many(
        self: &Arc<Self>,
        peer: &Peer,
        reached: &Reached,
        messages: Vec<Result<Message, Malformed>>,
    ) -> Option<Vec<u8>> {
        let mut answers: Vec<Option<Vec<u8>>> = messages.iter().map(|_| None).collect();
        let mut work = JoinSet::new();
        for (index, message) in messages.into_iter().enumerate() {
            let (rpc, peer, reached) = (Arc::clone(self), peer.clone(), reached.clone());
            work.spawn(async move {
                let answer = rpc.message(&peer, &reached, message).await;
                (index, answer)
            });
        }
        while let Some(done) = work.join_next().await {
            if let Ok((index, answer)) = done {
                answers[index] = answer;
            }
        }
        let answers: Vec<Vec<u8>> = answers.into_iter().flatten().collect();
        if answers.is_empty() {
            return None;
        }
        let mut all = vec![b'['];
        all.extend_from_slice(&answers.join(&b','));
        all.push(b']');
        Some(all)
    }

    /// One message.
    async fn message(
        &self,
        peer: &Peer,
        reached: &Reached,
        message: Result<Message, Malformed>,
    ) -> Option<Vec<u8>> {
        match self.attempt(peer, reached, message) {
            Attempt::Done(Reply::Written(answer)) => answer,
            Attempt::Done(Reply::Called(called, mut answer)) => {
                self.gate.settle_answer(&mut answer).await;
                called.told(answer.outcome)
            }
            // Boxed, so that what is answered at once has no room for it.
            Attempt::Pending((called, pending)) => {
                let work = pending.settled(Arc::clone(&self.gate));
                let outcome = Box::pin(self.calls.spawn(work)).await;
                let outcome = outcome.unwrap_or_else(|_| lost_outcome(called.call));
                called.told(outcome)
            }
        }
    }

    /// A message as far as it comes without waiting.
    fn attempt(
        &self,
        peer: &Peer,
        reached: &Reached,
        message: Result<Message, Malformed>,
    ) -> RpcAttempt {
        let asked = match message {
            Ok(Message::Request {
                id,
                method,
                params,
                ours,
            }) => Asked {
                id: Some(id),
                method,
                params,
                ours,
            },
            // It is carried out like any other; only its answer is nobody's.
            Ok(Message::Notification { method, params }) => Asked {
                id: None,
                method,
                params,
                ours: None,
            },
            // We ask nothing.
            Ok(Message::Response { .. }) => return Attempt::Done(Reply::Written(None)),
            Err(malformed) => {
                let error = RpcError::new(malformed.code, malformed.message);
                let mut out = Vec::new();
                jsonrpc::write_error(malformed.id.as_ref(), &error, &mut out);
                return Attempt::Done(Reply::Written(Some(out)));
            }
        };
        let id = asked.id.clone();
        self.request(peer, reached, asked)
            .unwrap_or_else(|error| Attempt::Done(Reply::Written(written(id, Err(error), None))))
    }

    fn request(
        &self,
        peer: &Peer,
        reached: &Reached,
        asked: Asked,
    ) -> Result<RpcAttempt, RpcError> {
        let params = match asked.params {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(bad_params("", "params must be an object")),
        };
        let method = unversioned(&asked.method, |name| self.has(name))?;
        let document = match method {
            "tools/list" => list::tools(&self.gate, peer, reached, params)?,
            "rpc/discover" => discover::document(&self.gate, peer, &params)?,
            _ => {
                let params = Document::from_value(Value::Object(params));
                return self.call(peer, (method, asked.id), params, asked.ours);
            }
        };
        let document = Document::from_value(document);
        let answer = written(asked.id, Ok(document), None);
        Ok(Attempt::Done(Reply::Written(answer)))
    }

    /// True if there is a tool of just this name.
    fn has(&self, name: &str) -> bool {
        let catalog = self.gate.catalog();
        catalog
            .find(name)
            .is_ok_and(|entry| entry.tool.name == name)
    }

    /// A tool's call, as far as it comes without waiting.
    fn call(
        &self,
        peer: &Peer,
        (method, id): (&str, Option<Id>),
        input: Document,
        ours: Option<Value>,
    ) -> Result<RpcAttempt, RpcError> {
        let tells_beside = ours.is_some();
        let ours = Ours::read(ours.as_ref())?;
        let cancel = Arc::new(self.closing.end.child_token());
        let (call_id, caller) = (self.gate.next_id(), peer.caller.clone());
        let wire = peer.wire;
        let mut call = Call::new(call_id, method, input, caller, wire, Arc::clone(&cancel));
        call.scope.clone_from(&peer.scope);
        call.lease_group = peer.lease_group;
        call.hearer.clone_from(&peer.hearer);
        call.key = ours.key.as_deref().and_then(IdempotencyKey::new);
        call.lease = ours.lease.as_deref().map(LeaseToken::new);
        call.trace_id = ours.trace_id;
        if let Some(timeout) = ours.timeout {
            call.answer_within(timeout);
        }
        // With a key its caller will come back and ask; without, nobody is left to tell.
        let ends_with_connection = call
            .key
            .is_none()
            .then(|| Cancel::clone(&cancel).drop_guard());
        let streamed = stream::Streamed::of(&self.gate, &call, id.as_ref());
        call.sink = streamed.clone().map(|sink| sink as Arc<dyn Sink>);
        let called = Called {
            call: call.id,
            id,
            method: method.to_owned(),
            streamed,
            tells_beside,
            _ends_with_connection: ends_with_connection,
        };
        let found = self.gate.find(&call.tool);
        Ok(match self.gate.attempt(call, found, |_| {}) {
            Attempt::Done(answer) => Attempt::Done(Reply::Called(called, answer)),
            Attempt::Pending(pending) => Attempt::Pending((called, pending)),
        })
    }
}

/// A message as far as it comes without waiting.
type RpcAttempt = Attempt<Reply, (Called, PendingCall)>;

/// The reply to a message.
#[expect(
    clippy::large_enum_variant,
    reason = "it is taken apart where it was made; a box would cost each call an allocation"
)]
enum Reply {
    /// Whole; nothing if nobody waits for one.
    Written(Option<Vec<u8>>),
    /// That of a call, whose record has to be made safe before.
    Called(Called, Answer),
}

/// What is known of a call while it is carried out.
struct Called {
    call: CallId,
    /// Of its request.
    id: Option<Id>,
    method: String,
    streamed: Option<Arc<stream::Streamed>>,
    /// Its request brought something beside its params, so its answer may, too.
    tells_beside: bool,
    /// Ends it with whoever waits for its answer.
    _ends_with_connection: Option<DropGuard>,
}

impl Called {
    /// Its answer, if anybody waits for one.
    fn told(self, outcome: Outcome) -> Option<Vec<u8>> {
        if let Some(streamed) = self.streamed {
            streamed.end();
        }
        let beside = self.tells_beside.then(|| beside(&outcome));
        written(self.id, told(&self.method, outcome), beside)
    }
}

/// A method and what it is asked with.
struct Asked {
    id: Option<Id>,
    method: String,
    params: Option<Value>,
    ours: Option<Value>,
}

/// What is told of a call beside its answer, to whoever brought something beside their request.
#[derive(Serialize)]
struct Beside<'a> {
    call: String,
    enforcement: EnforcementBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idempotent_hit: bool,
}

fn beside(outcome: &Outcome) -> Value {
    json!(Beside {
        call: outcome.call.to_string(),
        enforcement: enforcement_body(&outcome.enforcement),
        fault: outcome.result.as_ref().err().map(Fault::kind),
        hint: outcome.hint.as_ref().map(|hint| hint.to_value()),
        idempotent_hit: outcome.replayed,
    })
}

/// The answer to a request; nothing to what only notifies.
fn written(
    id: Option<Id>,
    result: Result<Document, RpcError>,
    beside: Option<Value>,
) -> Option<Vec<u8>> {
    let id = id?;
    let mut out = Vec::new();
    match result {
        Ok(result) => write_result(&id, &result, &mut out),
        Err(error) => jsonrpc::write_error(Some(&id), &error, &mut out),
    }
    if let Some(beside) = beside
        && out.pop() == Some(b'}')
    {
        out.extend_from_slice(b",\"callgate\":");
        json::write_value(&beside, &mut out);
        out.push(b'}');
    }
    Some(out)
}

fn told(method: &str, outcome: Outcome) -> Result<Document, RpcError> {
    match outcome.result {
        Ok(output) => Ok(output.json),
        Err(fault) => {
            let error = errors::error_of_method(method, &fault);
            Err(match &outcome.hint {
                Some(hint) => error.with_member("hint", hint.to_value()),
                None => error,
            })
        }
    }
}

/// Appends a whole result, in the words it was made in unless they are several lines: on pipes a
/// message is one.
fn write_result(id: &Id, result: &Document, out: &mut Vec<u8>) {
    if !result.is_one_line() {
        return jsonrpc::write_result(id, result.value(), out);
    }
    let text = result.text();
    out.reserve(text.len() + 64);
    jsonrpc::open_result(id, out);
    out.extend_from_slice(text.as_bytes());
    out.push(b'}');
}

/// What a request may bring beside its params, in a member `callgate` of its own: the params of
/// this contract are closed.
#[derive(Default)]
struct Ours {
    key: Option<String>,
    lease: Option<String>,
    trace_id: Option<String>,
    timeout: Option<Duration>,
}

impl Ours {
    fn read(given: Option<&Value>) -> Result<Self, RpcError> {
        let Some(given) = given else {
            return Ok(Self::default());
        };
        let Value::Object(members) = given else {
            return Err(bad_params("callgate", "must be an object"));
        };
        let text = |name: &str| match members.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(bad_params(&format!("callgate.{name}"), "must be a string")),
        };
        let known = ["idempotency_key", "lease_token", "trace_id", "timeout_ms"];
        if let Some(other) = members.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(bad_params(&format!("callgate.{other}"), "is not known"));
        }
        let timeout = match members.get("timeout_ms") {
            None | Some(Value::Null) => None,
            Some(given) => match natural_number(given).filter(|ms| *ms > 0) {
                Some(ms) => Some(Duration::from_millis(ms)),
                None => {
                    let words = "must be a whole number above 0";
                    return Err(bad_params("callgate.timeout_ms", words));
                }
            },
        };
        let key = text("idempotency_key")?;
        // Taken for none, it would be a call that can run twice.
        if key.as_deref() == Some("") {
            return Err(bad_params("callgate.idempotency_key", "must not be empty"));
        }
        Ok(Self {
            key,
            lease: text("lease_token")?,
            trace_id: text("trace_id")?,
            timeout,
        })
    }
}

fn bad_params(field: &str, reason: &str) -> RpcError {
    error_of(&Fault::BadInput {
        field: field.to_owned(),
        reason: reason.to_owned(),
    })
}

/// `X.v1` is `X`; other versions are not there, unless somebody has called a tool so. R-16.
fn unversioned(method: &str, is_tool: impl FnOnce(&str) -> bool) -> Result<&str, RpcError> {
    let Some((name, version)) = method.rsplit_once(".v") else {
        return Ok(method);
    };
    let is_version = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit());
    if !is_version || is_tool(method) {
        return Ok(method);
    }
    if version == "1" {
        return Ok(name);
    }
    let words = format!("there is no version {version} of {name}");
    let supported = json!({ "supported": [format!("{name}.v1")] });
    Err(RpcError::new(METHOD_NOT_FOUND, words).with(supported))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that is empty is no key, and whoever sent it thinks that it is one.
    #[test]
    fn what_stands_beside_params() {
        let read = |ours: Value| Ours::read(Some(&ours)).map(|ours| ours.key);
        let key = |key: Value| read(json!({ "idempotency_key": key }));
        assert_eq!(key(json!("k")), Ok(Some("k".to_owned())));
        assert_eq!(key(Value::Null), Ok(None));
        for bad in [json!(""), json!(5)] {
            assert_eq!(key(bad).unwrap_err().code, -32602);
        }
    }

    ///
    #[test]
    fn versions() {
        let none = |_: &str| false;
        assert_eq!(unversioned("files/read.v1", none), Ok("files/read"));
        assert_eq!(unversioned("files/read", none), Ok("files/read"));
        assert_eq!(unversioned("a.vx", none), Ok("a.vx"));
        assert_eq!(unversioned("a.v", none), Ok("a.v"));
        for own in ["ours.v1", "ours.v2"] {
            assert_eq!(unversioned(own, |name| name == own), Ok(own));
        }
        let error = unversioned("files/read.v2", none).unwrap_err();
        assert_eq!(error.code, -32601);
        assert_eq!(error.data, Some(json!({ "supported": ["files/read.v1"] })));
    }
}
