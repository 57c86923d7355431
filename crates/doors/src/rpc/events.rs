//! `GET /rpc/events`: the events of a caller who has no connection that lasts, as server-sent
//! events. Each has an id to come back with; what happened meanwhile is told then, as far as it
//! is still in the ring. R-3.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use callgate_call::{Caller, Fault, Told};
use callgate_wires::jsonrpc::{INVALID_REQUEST, RpcError};
use callgate_wires::sse;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::http::{Door, answer};
use super::news::{News, lost, notification};
use super::{Rpc, error_of};
use callgate_listener::web::{
    EVENTS_WAITING_MAX, HEARTBEAT, accepts, event_stream, kept_bearer, no_longer_good,
};

/// Streams and WebSockets of one caller at the same time; the next one is refused.
const LISTENERS_MAX: usize = 32;
/// A client that lost its stream comes back after so long.
const RETRY_MS: u64 = 1000;
/// So much is gathered before it is written.
const GATHERED_BYTES: usize = 64 * 1024;

pub(super) async fn open(State(door): Door, headers: HeaderMap) -> Response {
    let identity = match door.admit(&headers).await {
        Ok(identity) => identity,
        Err(refused) => return *refused,
    };
    if headers.contains_key(header::ACCEPT) && !accepts(&headers, "text/event-stream") {
        let words = "Accept must list text/event-stream";
        let mut response = answer(&RpcError::new(INVALID_REQUEST, words));
        *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
        return response;
    }
    let peer = door.peer(identity);
    let rpc = Arc::clone(&door.rpc);
    let Some(place) = rpc.listeners.enter(&peer.caller) else {
        return rpc.listeners.full();
    };
    let topics = rpc.gate.topics();
    let hearer = Rpc::hearer(&peer.caller);
    let (subscription, begin) = match rpc.begin_of(&headers) {
        Begin::Now => (topics.listen(hearer), Vec::new()),
        Begin::At(event) => (topics.listen_from(hearer, event), Vec::new()),
        Begin::Elsewhere => (topics.listen(hearer), lost()),
    };
    let news = News::new(Arc::clone(&rpc.gate), peer, subscription);
    let (to, body) = mpsc::channel(EVENTS_WAITING_MAX);
    let gone = no_longer_good(Arc::clone(&door.entrance.access), kept_bearer(&headers));
    let listening = Arc::clone(&rpc);
    rpc.listeners.tasks.spawn(async move {
        let _place = place;
        // Dropping `feed` ends the stream. Events that were not sent stay in the ring for a client
        // that comes back.
        tokio::select! {
            () = feed(news, &listening.start, begin, to) => {}
            () = gone => {}
            () = listening.closing.stop.cancelled() => {}
        }
    });
    event_stream(body)
}

/// Where a stream begins.
enum Begin {
    Now,
    /// With this event.
    At(u64),
    /// Its client was told of events that are not ours.
    Elsewhere,
}

impl Rpc {
    fn begin_of(&self, headers: &HeaderMap) -> Begin {
        let Some(last) = headers.get("last-event-id") else {
            return Begin::Now;
        };
        let last = last.to_str().unwrap_or_default();
        let event = last
            .split_once('-')
            .filter(|(start, _)| *start == &*self.start)
            .and_then(|(_, event)| event.parse().ok())
            .filter(|event| *event <= self.gate.topics().count());
        event.map_or(Begin::Elsewhere, Begin::At)
    }
}

/// Tells what happens until nobody is there to hear it. Whoever reads slowly is waited for here,
/// while the ring goes on.
async fn feed(mut news: News, start: &str, begin: Vec<u8>, to: mpsc::Sender<Bytes>) {
    let mut out = Vec::new();
    // What to come back with before the first event.
    sse::write_place(&id(start, &news), RETRY_MS, &mut out);
    if !begin.is_empty() {
        sse::write_event(Some(&id(start, &news)), &begin, &mut out);
    }
    let put = |told: &Told, news: &News, out: &mut Vec<u8>| {
        sse::write_event(Some(&id(start, news)), &notification(told), out);
    };
    while to.send(std::mem::take(&mut out).into()).await.is_ok() {
        // `next` is cancel safe: an event stays in the ring until it is taken.
        tokio::select! {
            told = news.next() => {
                put(&told, &news, &mut out);
                while out.len() < GATHERED_BYTES && let Some(told) = news.now() {
                    put(&told, &news, &mut out);
                }
            }
            () = to.closed() => return,
            () = tokio::time::sleep(HEARTBEAT) => {
                out.extend_from_slice(sse::HEARTBEAT);
                // Past all that was for others meanwhile.
                sse::write_place(&id(start, &news), RETRY_MS, &mut out);
            }
        }
    }
}

/// What to come back with to go on after all that was told: no other process's is like it.
fn id(start: &str, news: &News) -> String {
    format!("{start}-{}", news.place())
}

/// Those who listen, so that one caller can not take all connections there are.
#[derive(Default)]
pub(super) struct Listeners {
    callers: Arc<Mutex<HashMap<Caller, usize>>>,
    /// What feeds them.
    pub tasks: TaskTracker,
}

impl Listeners {
    /// A place among them, until it is dropped; `None` if this caller has as many as there are.
    pub fn enter(&self, caller: &Caller) -> Option<Listening> {
        let mut callers = locked(&self.callers);
        let count = callers.entry(caller.clone()).or_default();
        if *count >= LISTENERS_MAX {
            return None;
        }
        *count += 1;
        Some(Listening {
            callers: Arc::clone(&self.callers),
            caller: caller.clone(),
        })
    }

    /// The answer to one listener too many.
    pub fn full(&self) -> Response {
        let fault = Fault::rate_limited(Duration::from_millis(RETRY_MS));
        let mut response = answer(&error_of(&fault));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let retry = HeaderValue::from(RETRY_MS.div_ceil(1000));
        response.headers_mut().insert(header::RETRY_AFTER, retry);
        response
    }
}

/// One who listens.
pub(super) struct Listening {
    callers: Arc<Mutex<HashMap<Caller, usize>>>,
    caller: Caller,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut callers = locked(&self.callers);
        if let Some(count) = callers.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                callers.remove(&self.caller);
            }
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
