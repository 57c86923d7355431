//! HTTP on `gate.sock`: `POST /v1/call`, `GET /v1/tools`, `GET /v1/health`, and what the
//! command line needs of a running gate. Only peers of our own uid get this far (G-10b).

mod attach;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::{
    Call, Caller, Cancel, Document, Fault, IdempotencyKey, LeaseToken, Outcome, Tool, Wire, chain,
    natural_number,
};
use callgate_gate::{Attempt, Found, Gate, lost_outcome};
use callgate_wires::json;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::reply::{EnforcementBody, enforcement_body};

/// How long connections without a call may last once we stop.
const FAREWELL: Duration = Duration::from_secs(1);

/// Largest body of `POST /v1/call`.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Connections from other users are closed unread.
pub struct SameUid {
    listener: UnixListener,
    /// Takes its place, where its name was removed.
    anew: Option<mpsc::Receiver<UnixListener>>,
    uid: u32,
}

impl SameUid {
    /// Serves peers whose uid is `uid`.
    #[must_use]
    pub fn new(listener: UnixListener, uid: u32) -> Self {
        Self {
            listener,
            anew: None,
            uid,
        }
    }

    /// The same, and on whatever listener comes by `anew` from then on.
    #[must_use]
    pub fn renewed(self, anew: mpsc::Receiver<UnixListener>) -> Self {
        Self {
            anew: Some(anew),
            ..self
        }
    }
}

async fn next(anew: &mut Option<mpsc::Receiver<UnixListener>>) -> UnixListener {
    if let Some(anew) = anew
        && let Some(listener) = anew.recv().await
    {
        return listener;
    }
    std::future::pending().await
}

impl axum::serve::Listener for SameUid {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            // `accept` and `recv` are cancel safe: a connection stays in the backlog, a listener in
            // the channel.
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                listener = next(&mut self.anew) => {
                    self.listener = listener;
                    continue;
                }
            };
            match accepted {
                Ok((stream, addr)) => {
                    if stream.peer_cred().is_ok_and(|peer| peer.uid() == self.uid) {
                        return (stream, addr);
                    }
                }
                // Out of descriptors or the like: others may finish meanwhile.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// What the handlers need.
struct Door {
    gate: Arc<Gate>,
    caller: Caller,
    calls: TaskTracker,
    end: Cancel,
}

/// How a door is told to close.
#[derive(Clone, Debug, Default)]
pub struct Closing {
    /// No more calls; those under way are answered first.
    pub stop: Cancel,
    /// Those are ended as well.
    pub end: Cancel,
}

/// The gate's own paths, for `caller`. `end` ends calls under way.
pub fn router(gate: Arc<Gate>, caller: Caller, calls: TaskTracker, end: Cancel) -> Router {
    let door = Arc::new(Door {
        gate,
        caller,
        calls,
        end,
    });
    Router::new()
        .route("/v1/call", post(call))
        .route("/v1/tools", get(tools))
        .route("/v1/health", get(health))
        .route("/v1/traces/{call}", get(trace))
        .route("/v1/servers", get(servers::list))
        .route("/v1/servers/{name}/log", get(servers::log))
        .route("/v1/servers/{name}/stop", post(servers::stop))
        .route("/v1/terminals/{session}", get(attach::attach))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(door)
}

/// Serves `router` until told to close; `calls` are answered first.
pub async fn serve<L>(
    listener: L,
    router: Router,
    calls: TaskTracker,
    closing: &Closing,
) -> std::io::Result<()>
where
    L: axum::serve::Listener,
    L::Addr: std::fmt::Debug,
{
    let stop = &closing.stop;
    let router = router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method);
    let graceful = stop.clone().cancelled_owned();
    let served = axum::serve(listener, router).with_graceful_shutdown(graceful);
    // A connection with half a request on it would hold us up for ever; calls would not.
    let left_over = async {
        stop.cancelled().await;
        calls.close();
        calls.wait().await;
        tokio::time::sleep(FAREWELL).await;
    };
    // Connections are tasks of their own: dropping `served` stops waiting for them and cuts off
    // none. All calls have been answered by then.
    tokio::select! {
        served = served.into_future() => served?,
        () = left_over => {}
    }
    calls.close();
    calls.wait().await;
    Ok(())
}

async fn call(State(door): State<Arc<Door>>, body: Result<Bytes, BytesRejection>) -> Response {
    let id = door.gate.next_id();
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            let status = rejection.status();
            let fault = if status == StatusCode::PAYLOAD_TOO_LARGE {
                let max_bytes = BODY_BYTES_MAX as u64;
                Fault::too_large("request", max_bytes)
            } else {
                Fault::BadRequest {
                    reason: rejection.body_text(),
                }
            };
            return answer(status, &refusal(id.to_string(), &fault));
        }
    };
    let call = match read_call(&body) {
        Ok(asked) => asked.into_call(id, door.caller.clone(), door.end.child_token()),
        Err(reason) => {
            let fault = Fault::BadRequest { reason };
            return answer(StatusCode::BAD_REQUEST, &refusal(id.to_string(), &fault));
        }
    };
    // A caller that hangs up ends its call: the guard goes when the connection's future does.
    // With a key the call runs on, because its caller will come back and ask.
    let _ends_with_connection = call
        .key
        .is_none()
        .then(|| Cancel::clone(&call.cancel).drop_guard());
    let found = door.gate.find(&call.tool);
    let outcome = match door.gate.attempt(call, found, |_| {}) {
        Attempt::Done(answered) => Ok(door.gate.settled(answered).await),
        Attempt::Pending(pending) => {
            let work = pending.settled(Arc::clone(&door.gate));
            door.calls.spawn(work).await
        }
    };
    match outcome {
        Ok(outcome) => answer(StatusCode::OK, &outcome_body(outcome)),
        Err(_) => {
            let body = outcome_body(lost_outcome(id));
            answer(StatusCode::INTERNAL_SERVER_ERROR, &body)
        }
    }
}

/// `POST /v1/call` as it was sent.
struct Asked {
    tool: String,
    input: Value,
    idempotency_key: Option<String>,
    lease_token: Option<String>,
    timeout: Option<Duration>,
    trace_id: Option<String>,
}

impl Asked {
    fn into_call(self, id: callgate_call::CallId, caller: Caller, cancel: Cancel) -> Call {
        let mut call = Call::new(
            id,
            self.tool,
            Document::from_value(self.input),
            caller,
            Wire::Gate,
            cancel,
        );
        call.key = self
            .idempotency_key
            .as_deref()
            .and_then(IdempotencyKey::new);
        call.lease = self.lease_token.as_deref().map(LeaseToken::new);
        if let Some(timeout) = self.timeout {
            call.answer_within(timeout);
        }
        call.trace_id = self.trace_id;
        call
    }
}

fn read_call(body: &[u8]) -> Result<Asked, String> {
    let value = json::parse(body, json::DEPTH_MAX).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut members) = value else {
        return Err("the body must be an object".to_owned());
    };
    let tool = text(&mut members, "tool")?.ok_or("`tool` is required")?;
    let asked = Asked {
        tool,
        input: members
            .remove("input")
            .unwrap_or_else(|| Value::Object(Map::new())),
        idempotency_key: match text(&mut members, "idempotency_key")? {
            // Elsewhere the empty text is no key; here it is more likely a slip.
            Some(key) if key.is_empty() => {
                return Err("`idempotency_key` must not be empty".to_owned());
            }
            key => key,
        },
        lease_token: text(&mut members, "lease_token")?,
        timeout: match members.remove("timeout_ms") {
            None | Some(Value::Null) => None,
            Some(given) => match natural_number(&given) {
                Some(ms) if ms > 0 => Some(Duration::from_millis(ms)),
                _ => return Err("`timeout_ms` must be a whole number above 0".to_owned()),
            },
        },
        trace_id: text(&mut members, "trace_id")?,
    };
    // Unlike the older wires this one is ours: a misspelt field is told, not ignored.
    match members.keys().next() {
        Some(unknown) => Err(format!("unknown field `{unknown}`")),
        None => Ok(asked),
    }
}

fn text(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match members.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be a string")),
    }
}

/// How a call ended, but for its output: `enforcement` where it is `ok`, else `fault`.
#[derive(Serialize)]
struct OutcomeBody<'a> {
    ok: bool,
    call_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforcement: Option<EnforcementBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<FaultBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idempotent_hit: bool,
}

#[derive(Serialize)]
struct FaultBody {
    kind: &'static str,
    message: String,
    data: Value,
}

impl FaultBody {
    fn of(fault: &Fault) -> Self {
        Self {
            kind: fault.kind(),
            message: fault.to_string(),
            data: fault.data(),
        }
    }
}

/// `{ok:true, call_id, output, idempotent_hit?, enforcement}` or
/// `{ok:false, call_id, fault:{kind, message, data}}`.
#[must_use]
pub fn outcome_body(outcome: Outcome) -> Value {
    let is_ok = outcome.result.is_ok();
    let mut body = json!(OutcomeBody {
        ok: is_ok,
        call_id: outcome.call.to_string(),
        enforcement: is_ok.then(|| enforcement_body(&outcome.enforcement)),
        fault: outcome.result.as_ref().err().map(FaultBody::of),
        hint: outcome.hint.as_ref().map(|hint| hint.to_value()),
        idempotent_hit: outcome.replayed,
    });
    // Moved, not copied: it may be large.
    if let (Ok(output), Value::Object(members)) = (outcome.result, &mut body) {
        members.insert("output".to_owned(), output.json.into_value());
    }
    body
}

fn refusal(call_id: String, fault: &Fault) -> Value {
    json!({ "ok": false, "call_id": call_id, "fault": FaultBody::of(fault) })
}

async fn tools(State(door): State<Arc<Door>>) -> Response {
    let catalog = door.gate.catalog();
    let tools: Vec<Value> = catalog.tools().map(tool_body).collect();
    answer(StatusCode::OK, &json!({ "tools": tools }))
}

/// A tool as it is shown.
#[derive(Serialize)]
struct ToolBody<'a> {
    name: &'a str,
    aid: &'a str,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a Value>,
    tags: &'a [String],
    tier: u8,
    side_effects: &'a [String],
    aliases: &'a [String],
    writes: Value,
    idempotent: bool,
    slots: Value,
    runner: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pack: Option<PackBody<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<Value>,
}

/// The pack a tool came with.
#[derive(Serialize)]
struct PackBody<'a> {
    id: &'a str,
    name: &'a str,
    version: &'a str,
}

/// A tool as `GET /v1/tools` and `callgate tools --json` show it.
#[must_use]
pub fn tool_body(tool: &Tool) -> Value {
    let origin = tool.origin.as_ref();
    let pack = origin.and_then(|origin| origin.pack.as_ref());
    json!(ToolBody {
        name: &tool.name,
        aid: &tool.aid,
        description: &tool.description,
        input_schema: &tool.input_schema,
        output_schema: tool.output_schema.as_ref(),
        tags: &tool.tags,
        tier: tool.tier.number(),
        side_effects: &tool.side_effects,
        aliases: &tool.aliases,
        writes: json!(tool.writes),
        idempotent: tool.idempotent,
        slots: json!(tool.slots),
        runner: tool.runner.kind(),
        timeout_ms: tool
            .timeout
            .map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
        resolved_source: origin.map(|origin| origin.source.as_str()),
        entry: origin.map(|origin| json!(origin.entry)),
        pack: pack.map(|pack| PackBody {
            id: &pack.id,
            name: &pack.name,
            version: &pack.version,
        }),
        rate_limit: tool
            .rate_limit
            .map(|rate| json!({ "per_second": rate.per_second, "burst": rate.burst })),
    })
}

async fn health(State(door): State<Arc<Door>>) -> Response {
    let tools = door.gate.catalog().tools().count();
    answer(
        StatusCode::OK,
        &json!({ "ok": true, "tools": tools, "configuration": door.gate.note() }),
    )
}

async fn trace(State(door): State<Arc<Door>>, Path(call): Path<String>) -> Response {
    let gate = Arc::clone(&door.gate);
    let prefix = call.clone();
    // The whole ring may have to be read, and calls must not wait for that.
    let looked = tokio::task::spawn_blocking(move || gate.find_trace(&prefix)).await;
    let message = match looked {
        Ok(Ok(Found::One(trace))) => return answer(StatusCode::OK, &trace),
        Ok(Ok(Found::Nothing)) => format!("nothing is known of a call {call}"),
        Ok(Ok(Found::Several(ids))) => format!("several calls begin so: {}", ids.join(", ")),
        Ok(Err(error)) => chain(&error),
        Err(_) => "the look-up ended early".to_owned(),
    };
    let fault = Fault::NotFound { message };
    answer(StatusCode::NOT_FOUND, &refusal(call, &fault))
}

async fn unknown_path() -> Response {
    not_served(StatusCode::NOT_FOUND, "no such path")
}

async fn wrong_method() -> Response {
    not_served(StatusCode::METHOD_NOT_ALLOWED, "no such method here")
}

fn not_served(status: StatusCode, what: &str) -> Response {
    let fault = Fault::BadRequest {
        reason: format!(
            "{what}: POST /v1/call, GET /v1/tools, GET /v1/traces/CALL, GET /v1/terminals/SESSION, GET /v1/health or GET /metrics"
        ),
    };
    let body = json!({
        "ok": false,
        "fault": { "kind": fault.kind(), "message": fault.to_string(), "data": {} },
    });
    answer(status, &body)
}

fn answer(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::serve::Listener as _;
    use tokio::io::AsyncReadExt as _;

    /// G-10b, B-7: whoever is not of the user that is served is closed unread.
    #[tokio::test]
    async fn another_user_s_connection() {
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("callgate-same-uid-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        for (of, is_served) in [(uid, true), (uid + 1, false)] {
            let _ = std::fs::remove_file(&path);
            let mut listener = SameUid::new(UnixListener::bind(&path).unwrap(), of);
            let mut peer = UnixStream::connect(&path).await.unwrap();
            tokio::select! {
                _ = listener.accept() => assert!(is_served),
                closed = peer.read_u8() => assert!(closed.is_err() && !is_served),
            }
        }
        std::fs::remove_file(&path).unwrap();
    }
}
