//! Legacy sessions over HTTP. A session's name is sealed and says all that its handshake said,
//! so that one we do not hold (we were restarted, or it was idle too long) is simply held again.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use callgate_call::{Caller, Cancel, Timestamp};
use callgate_listener::web::empty;
use callgate_wires::jsonrpc::Id;
use callgate_wires::mcp::{CancelledParams, ClientCapabilities, HANDSHAKE, Params, negotiate};
use serde::{Deserialize, Serialize};

use super::super::eventlog::{EventLog, GRACE};
use super::super::{Peer, Server, Session};
use super::{Door, invalid};

/// What a stream keeps of its events.
type Stream = Arc<EventLog>;

/// The header that names a session.
pub(super) const HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
/// Sessions held at once; at the bound the one that was idle longest is let go of.
const HELD_MAX: usize = 4096;
/// How long a session is held that nobody uses.
const IDLE_MAX: Duration = Duration::from_secs(1800);
/// How often held sessions are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// How long a session is good that nobody ends.
const LIFE: Duration = Duration::from_secs(24 * 3600);
/// Ended sessions that are remembered as such.
const ENDED_MAX: usize = 4096;
/// Streams of one session that can be taken up again.
const STREAMS_MAX: usize = 32;
/// The seal's purpose.
const PURPOSE: &str = "session";

/// The sessions that are held.
///
/// Lock order: `held`, then the `in_flight` of a session; `streams`, then the events of a stream.
/// `ended` is a leaf, as are both of the latter, and none is held across an await.
#[derive(Default)]
pub(super) struct Sessions {
    /// By the bytes of their names.
    held: Mutex<HashMap<Vec<u8>, Arc<Held>>>,
    ended: Mutex<VecDeque<String>>,
    next: AtomicU64,
    swept: AtomicU64,
}

/// What the name of a session says.
#[derive(Serialize, Deserialize)]
struct SealedSession {
    #[serde(rename = "c")]
    capabilities: ClientCapabilities,
    #[serde(rename = "n")]
    nonce: String,
    #[serde(rename = "v")]
    version: String,
}

/// One session.
pub(super) struct Held {
    pub session: Arc<Session>,
    caller: Caller,
    used: AtomicU64,
    in_flight: Mutex<HashMap<Id, Cancel>>,
    streams: Mutex<VecDeque<Stream>>,
    next_stream: AtomicU64,
    over: Cancel,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Sessions {
    /// Holds a session from now on; gives its name.
    pub fn keep(&self, server: &Server, held: Arc<Held>) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let said = SealedSession {
            capabilities: held.session.capabilities(),
            nonce: server.seal.nonce(number),
            version: held.session.version().to_owned(),
        };
        let name = server.seal.close(&purpose(&held.caller), &said, LIFE);
        self.insert(server, name.clone(), held);
        name
    }

    fn insert(&self, server: &Server, name: String, new: Arc<Held>) {
        let now = server.seal.now();
        new.used.store(now.0, Ordering::Relaxed);
        let mut held = lock(&self.held);
        self.sweep(&mut held, now);
        if held.len() >= HELD_MAX {
            let idle = held
                .iter()
                .filter(|(_, held)| lock(&held.in_flight).is_empty())
                .min_by_key(|(_, held)| held.used.load(Ordering::Relaxed))
                .map(|(name, _)| name.clone());
            if let Some(idle) = idle {
                held.remove(&idle);
            }
        }
        held.insert(name.into_bytes(), new);
    }

    /// Lets go of what nobody came back for. A session that is let go of is held again when it
    /// is named: all that is lost are its subscriptions and streams.
    fn sweep(&self, held: &mut HashMap<Vec<u8>, Arc<Held>>, now: Timestamp) {
        let last = self.swept.load(Ordering::Relaxed);
        if now.since(Timestamp(last)) < SWEEP_EVERY {
            return;
        }
        self.swept.store(now.0, Ordering::Relaxed);
        held.retain(|_, held| {
            let used = Timestamp(held.used.load(Ordering::Relaxed));
            now.since(used) < IDLE_MAX || !lock(&held.in_flight).is_empty()
        });
    }

    /// The session a request names, if it is this caller's and has not ended.
    pub fn find(&self, server: &Server, headers: &HeaderMap, peer: &Peer) -> Option<Arc<Held>> {
        let (name, now) = (headers.get(HEADER)?, server.seal.now());
        let mut all = lock(&self.held);
        self.sweep(&mut all, now);
        let known = all.get(name.as_bytes()).cloned();
        drop(all);
        if let Some(held) = known {
            if held.caller != peer.caller {
                return None;
            }
            held.used.store(now.0, Ordering::Relaxed);
            return Some(held);
        }
        let name = name.to_str().ok()?;
        if lock(&self.ended).iter().any(|ended| ended == name) {
            return None;
        }
        let sealed = server.seal.open(&purpose(&peer.caller), name);
        let said: SealedSession = sealed.ok()?;
        let held = Arc::new(Held::new(peer));
        let version = negotiate(&said.version);
        held.session.begin(version, said.capabilities);
        self.insert(server, name.to_owned(), Arc::clone(&held));
        Some(held)
    }

    /// Ends a session: its requests end, and its name is good for nothing.
    pub fn end(&self, headers: &HeaderMap, held: &Held) {
        let Some(name) = headers.get(HEADER).and_then(|name| name.to_str().ok()) else {
            return;
        };
        lock(&self.held).remove(name.as_bytes());
        let mut ended = lock(&self.ended);
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(name.to_owned());
        held.over.cancel();
        for cancel in lock(&held.in_flight).values() {
            cancel.cancel();
        }
    }
}

fn purpose(caller: &Caller) -> String {
    format!("{PURPOSE}\n{caller}")
}

impl Held {
    pub fn new(peer: &Peer) -> Self {
        Self {
            session: Arc::default(),
            caller: peer.caller.clone(),
            used: AtomicU64::new(Timestamp::default().0),
            in_flight: Mutex::default(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            over: Cancel::new(),
        }
    }

    pub fn has_begun(&self) -> bool {
        self.session.begun.load(Ordering::Relaxed)
    }

    /// Ready when the session has ended.
    pub async fn gone(&self) {
        self.over.cancelled().await;
    }

    /// Taking up streams came with 2025-11-25.
    pub fn can_resume(&self) -> bool {
        self.session.version() == HANDSHAKE[0]
    }

    /// A request of this session can be cancelled while what this gives is there. Nothing, if
    /// another of the same id is at work: the one must not be taken for the other.
    pub fn begins(self: &Arc<Self>, id: &Id, cancel: &Cancel) -> Option<Running> {
        let id = id.plain();
        match lock(&self.in_flight).entry(id.clone()) {
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => free.insert(cancel.clone()),
        };
        Some(Running {
            held: Arc::clone(self),
            id,
        })
    }

    pub fn cancelled(&self, params: &Params) {
        let id = params.read().ok();
        let id = id.and_then(|params: CancelledParams| params.request());
        if let Some(cancel) = id.and_then(|id| lock(&self.in_flight).get(&id).cloned()) {
            cancel.cancel();
        }
    }

    pub fn new_stream(&self, server: &Server) -> Stream {
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed);
        let log = EventLog::new(number.to_string(), &server.logs);
        let mut streams = lock(&self.streams);
        if streams.len() >= STREAMS_MAX {
            let ended = streams.iter().position(|stream| stream.has_ended());
            streams.remove(ended.unwrap_or(0));
        }
        streams.push_back(Arc::clone(&log));
        log
    }

    /// Ends a stream, and forgets it once whoever wanted to come back for it has.
    pub async fn end_stream(&self, server: &Server, log: Stream) {
        log.end();
        // Both arms only wait.
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = server.stopping.cancelled() => {}
        }
        lock(&self.streams).retain(|stream| !Arc::ptr_eq(stream, &log));
    }

    /// The stream an event belongs to, and the event's number.
    pub fn stream(&self, event: &str) -> Option<(Stream, u64)> {
        let (stream, number) = event.rsplit_once('-')?;
        let number = number.parse().ok()?;
        let streams = lock(&self.streams);
        let log = streams.iter().find(|log| log.is_named(stream))?;
        Some((Arc::clone(log), number))
    }
}

/// Forgets a request when it is over.
pub(super) struct Running {
    held: Arc<Held>,
    id: Id,
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.held.in_flight).remove(&self.id);
    }
}

/// `DELETE`: a legacy client says goodbye.
pub(super) async fn end_session(State(door): Door, headers: HeaderMap) -> Response {
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

#[cfg(test)]
mod tests {
    use super::super::super::rig;
    use super::*;
    use axum::http::HeaderValue;

    /// A stream that ended can be taken up for a while, and is gone then by itself.
    #[tokio::test(start_paused = true)]
    async fn ended_streams_are_forgotten() {
        let (server, _) = rig::server();
        let held = Arc::new(Held::new(&rig::peer()));
        let log = held.new_stream(&server);
        log.push(b"x");
        let ended = held.end_stream(&server, log);
        let looked = async {
            tokio::time::sleep(GRACE - Duration::from_secs(1)).await;
            assert!(held.stream("1-1").is_some());
        };
        tokio::join!(ended, looked);
        assert!(held.stream("1-1").is_none() && lock(&held.streams).is_empty());
        // A server that stops does not wait for anybody to come back.
        let log = held.new_stream(&server);
        server.begin_stop();
        held.end_stream(&server, log).await;
        assert!(lock(&held.streams).is_empty());
    }

    /// At the bound the one that was idle longest is let go of, but none that is at work; whoever
    /// was let go of and comes back is held again.
    #[test]
    fn held_sessions_are_bounded() {
        let (server, clock) = rig::server();
        let (sessions, peer) = (Sessions::default(), rig::peer());
        let keep = || {
            // The clock of a gate moves; seconds less than until the next sweep.
            clock.advance(Duration::from_millis(1));
            let held = Arc::new(Held::new(&peer));
            held.session
                .begin(HANDSHAKE[0], ClientCapabilities::default());
            (sessions.keep(&server, Arc::clone(&held)), held)
        };
        let is_held = |name: &str| lock(&sessions.held).contains_key(name.as_bytes());
        let (first, busy) = keep();
        let running = busy.begins(&Id::number(1), &Cancel::new());
        assert!(running.is_some() && busy.begins(&Id::number(1), &Cancel::new()).is_none());
        let (second, _) = keep();
        let (third, _) = keep();
        for _ in 3..HELD_MAX {
            keep();
        }
        assert_eq!(lock(&sessions.held).len(), HELD_MAX);
        assert!(is_held(&first) && is_held(&second));
        keep();
        assert_eq!(lock(&sessions.held).len(), HELD_MAX);
        assert!(is_held(&first) && !is_held(&second) && is_held(&third));

        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(&second).unwrap());
        let again = sessions.find(&server, &headers, &peer).unwrap();
        assert!(again.has_begun() && is_held(&second) && !is_held(&third));
        assert_eq!(lock(&sessions.held).len(), HELD_MAX);
        let mut stranger = rig::peer();
        stranger.caller = Caller::uid(1);
        assert!(sessions.find(&server, &headers, &stranger).is_none());
        drop(running);
        keep();
        assert!(!is_held(&first));
    }
}
