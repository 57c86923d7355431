//! The queue's endpoints on HTTP: how full it is, for all of this machine; and for its owner a request
//! to be queued, one to be run at once, and the end of its worker. TH-150.
//!
//! Whose word counts is the owner's token's, brought along or as the key of a signature.

mod signed;

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::request::Parts as Head;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use callgate_call::{Caller, Cancel, Clock, chain};
use callgate_gate::Gate;
use callgate_store::Nonce;
use callgate_wires::toolhost::RunRequest;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use callgate_listener::tcp::{self, Limits};
use callgate_listener::web::{Entrance, json_response, read_body_of};
use signed::{Signatures, Signed, Unsigned};

/// Largest body: inputs are a quarter of it at most. A signature covers it, so that it is read
/// before anybody is known.
const BODY_BYTES_MAX: usize = 1024 * 1024;
const _: () = assert!(4 * super::INPUTS_BYTES_MAX <= BODY_BYTES_MAX);
/// Connections at once; the next one is answered 503.
const CONNECTIONS_MAX: usize = 32;
/// Runs of `/run_sync` at once; the next one is answered 429.
const SYNC_RUNS_MAX: usize = 4;
/// Jobs that may wait; the next one is answered 429.
const WAITING_MAX: usize = 10_000;

/// What came of a request to run at once.
pub type Ran = Pin<Box<dyn Future<Output = Result<Value, Refusal>> + Send>>;

/// Why a request is not run.
#[derive(Debug)]
pub enum Refusal {
    /// It is no good.
    Bad(String),
    /// It is ours.
    Failed(String),
}

/// The queue and its worker.
pub trait Work: Send + Sync {
    /// How many jobs are in each folder.
    fn jobs(&self) -> Result<Vec<(&'static str, usize)>, String>;
    /// Queues a request; the file's name, or nothing if it is known.
    fn enqueue(&self, request: &RunRequest, text: &[u8]) -> Result<Option<String>, String>;
    /// Runs a request to its end.
    fn run(&self, request: RunRequest) -> Ran;
    /// Has the worker end.
    fn stop(&self);
}

/// The HTTP endpoints of one queue.
pub struct QueueHttp {
    gate: Arc<Gate>,
    entrance: Entrance,
    owner: Caller,
    work: Arc<dyn Work>,
    signatures: Signatures,
    runs: TaskTracker,
    places: Arc<Semaphore>,
}

impl QueueHttp {
    /// For callers that `entrance` recognises as `owner`, or that sign with the owner's `token`.
    #[must_use]
    pub fn new(
        gate: Arc<Gate>,
        entrance: Entrance,
        owner: Caller,
        token: &str,
        work: Arc<dyn Work>,
    ) -> Arc<Self> {
        Arc::new(Self {
            gate,
            entrance,
            owner,
            work,
            signatures: Signatures::new(token),
            runs: TaskTracker::new(),
            places: Arc::new(Semaphore::new(SYNC_RUNS_MAX)),
        })
    }

    /// Answers at `listener` until `stop`, and then until its runs have ended.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        clock: Arc<dyn Clock>,
        stop: Cancel,
    ) {
        let router = Router::new()
            .route("/health", get(health))
            .route("/stats", get(stats))
            .route("/metrics", get(metrics))
            .route("/enqueue", post(enqueue))
            .route("/run_sync", post(run_sync))
            .route("/shutdown", post(shutdown))
            .fallback(unknown_path)
            .with_state(Arc::clone(&self));
        let limits = Limits {
            connections_max: CONNECTIONS_MAX,
            ..Limits::default()
        };
        let runs = self.runs.clone();
        let under_way = async move {
            runs.close();
            runs.wait().await;
        };
        tcp::serve(listener, Arc::new(router), limits, clock, under_way, stop).await;
    }

    /// A request of the owner's, whole.
    async fn take(&self, request: axum::extract::Request) -> Result<Bytes, Box<Response>> {
        let (head, body) = request.into_parts();
        if let Err(refused) = self.entrance.check_names(&head.headers) {
            self.gate.refused_stranger(refused.reason);
            return Err(no(StatusCode::FORBIDDEN, "forbidden"));
        }
        let signed = signed::is_signed(&head.headers);
        if !signed {
            self.recognise(&head.headers).await?;
        }
        let body = read_body_of(body, &head.headers, BODY_BYTES_MAX).await;
        let body = body.map_err(|unread| no(unread.status(), "bad body"))?;
        if signed {
            self.check_signature(&head, &body)?;
        }
        Ok(body)
    }

    /// By the token that came along: the owner's, for a run may call whatever the owner may.
    async fn recognise(&self, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let token = headers.get("x-api-token").and_then(|v| v.to_str().ok());
        let identity = match token {
            None => self.entrance.admit(headers).await.map_err(|r| r.reason),
            Some(token) => {
                let known = self.entrance.access.recognise(Some(token)).await;
                known.map_err(|stranger| stranger.lacks.as_str())
            }
        };
        match identity {
            Ok(identity) if identity.caller == self.owner && identity.scope.is_none() => Ok(()),
            Ok(_) => Err(no(StatusCode::FORBIDDEN, "forbidden")),
            Err(reason) => {
                self.gate.refused_stranger(reason);
                Err(no(StatusCode::UNAUTHORIZED, "unauthorized"))
            }
        }
    }

    fn check_signature(&self, head: &Head, body: &[u8]) -> Result<(), Box<Response>> {
        let now = self.gate.clock().now();
        let (method, path) = (head.method.as_str(), head.uri.path());
        let checked = self
            .signatures
            .check(&head.headers, (method, path), body, now);
        let bad = || {
            self.gate.refused_stranger("bad_signature");
            no(StatusCode::UNAUTHORIZED, "bad_signature")
        };
        let Signed { nonce, until } = checked.map_err(|Unsigned| bad())?;
        match self.gate.store().take_nonce(&nonce, until) {
            Ok(Nonce::New) => Ok(()),
            Ok(Nonce::Seen) => Err(bad()),
            Ok(Nonce::Full) => Err(no(StatusCode::TOO_MANY_REQUESTS, "rate_limited")),
            Err(error) => Err(failed(&chain(&error))),
        }
    }

    /// The run request in a body; one with a secret in it must not even wait in a file.
    fn read(&self, body: &[u8]) -> Result<RunRequest, Box<Response>> {
        let request = RunRequest::parse(body).map_err(|error| {
            let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
            let missing = value.is_object() && value.get("goal_id").is_none();
            let word = if missing {
                "missing goal_id"
            } else {
                "bad body"
            };
            refusal(StatusCode::BAD_REQUEST, word, &error.to_string())
        })?;
        if self.gate.secrets().clean_value(&mut request.to_value()) {
            let words = "the request holds a secret, which would be kept";
            return Err(refusal(StatusCode::BAD_REQUEST, "bad body", words));
        }
        Ok(request)
    }

    fn jobs(&self) -> Result<Vec<(&'static str, usize)>, Box<Response>> {
        self.work.jobs().map_err(|words| failed(&words))
    }
}

type Door = State<Arc<QueueHttp>>;

async fn health() -> Response {
    told(&json!({ "ok": true }))
}

async fn unknown_path() -> Response {
    *no(StatusCode::NOT_FOUND, "not_found")
}

async fn stats(State(face): Door, headers: HeaderMap) -> Response {
    if face.entrance.check_names(&headers).is_err() {
        return *no(StatusCode::FORBIDDEN, "forbidden");
    }
    let jobs = match face.jobs() {
        Ok(jobs) => jobs,
        Err(response) => return *response,
    };
    let mut stats = json!({ "ok": true });
    for (folder, count) in jobs {
        stats[folder] = json!(count);
    }
    told(&stats)
}

async fn metrics(State(face): Door, headers: HeaderMap) -> Response {
    if face.entrance.check_names(&headers).is_err() {
        return *no(StatusCode::FORBIDDEN, "forbidden");
    }
    let jobs = match face.jobs() {
        Ok(jobs) => jobs,
        Err(response) => return *response,
    };
    let mut page = String::from("# TYPE callgate_queue_jobs gauge\n");
    for (folder, count) in jobs {
        page.push_str(&format!(
            "callgate_queue_jobs{{folder=\"{folder}\"}} {count}\n"
        ));
    }
    let mut response = Response::new(Body::from(page));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn enqueue(State(face): Door, request: axum::extract::Request) -> Response {
    let queued = async {
        let body = face.take(request).await?;
        let request = face.read(&body)?;
        let waiting = face.jobs()?.into_iter().find(|(name, _)| *name == "inbox");
        if waiting.is_some_and(|(_, count)| count >= WAITING_MAX) {
            return Err(no(StatusCode::TOO_MANY_REQUESTS, "rate_limited"));
        }
        let queued = face.work.enqueue(&request, &body);
        queued.map_err(|words| failed(&words))
    };
    match queued.await {
        Ok(Some(file)) => told(&json!({ "ok": true, "queued": file })),
        Ok(None) => told(&json!({ "ok": true, "deduplicated": true })),
        Err(response) => *response,
    }
}

async fn run_sync(State(face): Door, request: axum::extract::Request) -> Response {
    let ran = async {
        let body = face.take(request).await?;
        let request = face.read(&body)?;
        let Ok(place) = Arc::clone(&face.places).try_acquire_owned() else {
            return Err(no(StatusCode::TOO_MANY_REQUESTS, "rate_limited"));
        };
        // In a task of its own: a run goes on when its caller hangs up, and is told again.
        let run = face.work.run(request);
        let run = face.runs.spawn(async move {
            let ran = run.await;
            drop(place);
            ran
        });
        match run.await {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(Refusal::Bad(words))) => {
                Err(refusal(StatusCode::BAD_REQUEST, "bad body", &words))
            }
            Ok(Err(Refusal::Failed(words))) => Err(failed(&words)),
            Err(_) => Err(failed("the run's task ended early")),
        }
    };
    match ran.await {
        Ok(report) => told(&report),
        Err(response) => *response,
    }
}

async fn shutdown(State(face): Door, request: axum::extract::Request) -> Response {
    match face.take(request).await {
        Ok(_) => {
            face.work.stop();
            told(&json!({ "ok": true }))
        }
        Err(response) => *response,
    }
}

fn told(value: &Value) -> Response {
    json_response(StatusCode::OK, value.to_string().into_bytes())
}

fn no(status: StatusCode, error: &str) -> Box<Response> {
    let body = json!({ "ok": false, "error": error }).to_string();
    Box::new(json_response(status, body.into_bytes()))
}

/// With words for people beside the contract's.
fn refusal(status: StatusCode, error: &str, words: &str) -> Box<Response> {
    let body = json!({ "ok": false, "error": error, "detail": words }).to_string();
    Box::new(json_response(status, body.into_bytes()))
}

fn failed(words: &str) -> Box<Response> {
    refusal(StatusCode::INTERNAL_SERVER_ERROR, "internal", words)
}
