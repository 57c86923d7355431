//! A terminal session as it goes: `GET /v1/terminals/SESSION` answers with an event a line, first
//! what the session shows, last its end. For `callgate term attach`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_call::{Call, Document, Fault, Output, Subscription, Told, Wire};
use http_body::Frame;
use serde::Deserialize;
use serde_json::json;

use super::{Door, answer, refusal};

/// The last event of a session.
const EXIT: &str = "terminals/exit";

pub(super) async fn attach(State(door): State<Arc<Door>>, Path(session): Path<String>) -> Response {
    let topics = door.gate.topics();
    let hearer = topics.connection();
    // Before it follows, so that nothing is missed in between.
    let mut heard = topics.listen(hearer.clone());
    let id = door.gate.next_id();
    let input = Document::from_value(json!({ "session_id": session }));
    let cancel = door.end.child_token();
    let mut call = Call::new(
        id,
        "terminals/attach",
        input,
        door.caller.clone(),
        Wire::Gate,
        cancel,
    );
    call.hearer = Some(hearer);
    let gate = Arc::clone(&door.gate);
    let outcome = door.calls.spawn(async move { gate.call(&call).await });
    let fault = match outcome.await.map(|outcome| outcome.result) {
        Ok(Ok(output)) if is_attached(&output) => return feed(heard),
        Ok(Ok(_)) => Fault::Unavailable {
            reason: format!(
                "session {session} has ended{}; terminals/read_logs has what it printed",
                how(&mut heard)
            ),
        },
        Ok(Err(fault)) => fault,
        Err(_) => Fault::Internal {
            message: "the call's task ended early".to_owned(),
        },
    };
    answer(StatusCode::NOT_FOUND, &refusal(id.to_string(), &fault))
}

/// How a session ended, as who comes too late is told.
fn how(heard: &mut Subscription) -> String {
    let told = std::iter::from_fn(|| heard.now());
    let mut exits = told.filter_map(|told| match told {
        Told::Event(event) if event.name == EXIT => Some(event.body),
        Told::Event(_) | Told::Gap(_) => None,
    });
    let exit: Exit = exits
        .next()
        .and_then(|body| serde_json::from_str(&body).ok())
        .unwrap_or_default();
    match (exit.code, exit.signal) {
        (Some(code), _) => format!(" with exit code {code}"),
        (_, Some(signal)) => format!(" by {signal}"),
        _ => String::new(),
    }
}

/// How a session ended, of the event.
#[derive(Default, Deserialize)]
struct Exit {
    code: Option<i64>,
    signal: Option<String>,
}

/// The output of `terminals/attach`.
#[derive(Deserialize)]
struct Attached {
    ok: bool,
}

fn is_attached(output: &Output) -> bool {
    Attached::deserialize(output.json.value()).is_ok_and(|attached| attached.ok)
}

fn feed(heard: Subscription) -> Response {
    let mut response = Response::new(Body::new(Feed(Some(Box::pin(next(heard))))));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn next(mut heard: Subscription) -> (Subscription, Told) {
    let told = heard.next().await;
    (heard, told)
}

/// The next event. Asked for only when its reader has taken the one before: who does not read is
/// told of the gap later.
type Next = Pin<Box<dyn Future<Output = (Subscription, Told)> + Send>>;

/// Events until the session ends.
struct Feed(Option<Next>);

impl http_body::Body for Feed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(waiting) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let (heard, told) = ready!(waiting.as_mut().poll(context));
        let (line, is_last) = match told {
            Told::Event(event) => {
                let (name, body) = (event.name, &event.body);
                let line = format!("{{\"method\":\"{name}\",\"params\":{body}}}\n");
                (line, name == EXIT)
            }
            Told::Gap(missed) => {
                let line = json!({ "method": "gap", "params": { "missed": missed } });
                (format!("{line}\n"), false)
            }
        };
        self.0 = (!is_last).then(|| -> Next { Box::pin(next(heard)) });
        Poll::Ready(Some(Ok(Frame::data(line.into()))))
    }
}
