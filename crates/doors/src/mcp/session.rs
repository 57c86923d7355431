//! What a legacy client said in its handshake, and the requests of ours it has not answered.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use callgate_call::{Cancel, LogLevel};
use callgate_wires::jsonrpc::{self, Id};
use callgate_wires::mcp::{ClientCapabilities, HANDSHAKE, InputRequest};
use serde_json::Value;
use tokio::sync::oneshot;

use super::Outbox;

/// Requests of ours that may wait for their answers.
const PENDING_MAX: usize = 64;
/// Resources one client may subscribe to.
const SUBSCRIPTIONS_MAX: usize = 1024;
/// How long a person may take to answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(600);

/// One handshake.
#[derive(Debug, Default)]
pub struct Session {
    shared: Mutex<Shared>,
    next_id: AtomicU64,
    salt: Salt,
    /// `initialize` was answered.
    pub(crate) begun: AtomicBool,
}

/// A number no other session has.
#[derive(Debug)]
struct Salt(u64);

impl Default for Salt {
    fn default() -> Self {
        use std::hash::{BuildHasher as _, Hasher as _};
        Self(std::hash::RandomState::new().build_hasher().finish())
    }
}

#[derive(Debug)]
struct Shared {
    version: &'static str,
    capabilities: ClientCapabilities,
    log_level: LogLevel,
    subscriptions: HashSet<String>,
    pending: HashMap<String, oneshot::Sender<Result<Value, Value>>>,
    /// Nothing more comes from the client.
    is_silent: bool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            version: HANDSHAKE[0],
            capabilities: ClientCapabilities::default(),
            log_level: LogLevel::Info,
            subscriptions: HashSet::new(),
            pending: HashMap::new(),
            is_silent: false,
        }
    }
}

impl Session {
    fn shared(&self) -> std::sync::MutexGuard<'_, Shared> {
        self.shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the client said of itself.
    pub(crate) fn begin(&self, version: &'static str, capabilities: ClientCapabilities) {
        let mut shared = self.shared();
        shared.version = version;
        shared.capabilities = capabilities;
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(crate) fn version(&self) -> &'static str {
        self.shared().version
    }

    /// The names of what the client can do that we make use of; their details are its own.
    pub(crate) fn capabilities(&self) -> ClientCapabilities {
        let shared = self.shared();
        let said = &shared.capabilities;
        ClientCapabilities {
            elicitation: said.elicitation.as_ref().map(|_| Default::default()),
            roots: said.roots.as_ref().map(|_| Default::default()),
            sampling: said.sampling.as_ref().map(|_| Default::default()),
            ..ClientCapabilities::default()
        }
    }

    pub(crate) fn has(&self, capability: &str) -> bool {
        self.shared().capabilities.has(capability)
    }

    pub(crate) fn log_level(&self) -> LogLevel {
        self.shared().log_level
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        self.shared().log_level = level;
    }

    /// False at the bound.
    pub(crate) fn subscribe(&self, uri: &str) -> bool {
        let mut shared = self.shared();
        if shared.subscriptions.len() >= SUBSCRIPTIONS_MAX && !shared.subscriptions.contains(uri) {
            return false;
        }
        shared.subscriptions.insert(uri.to_owned());
        true
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        self.shared().subscriptions.remove(uri);
    }

    pub(crate) fn is_subscribed(&self, uri: &str) -> bool {
        self.shared().subscriptions.contains(uri)
    }

    /// Asks the client something on `out` and waits for its answer; `None` if it refuses, is gone
    /// or too slow, or the call is cancelled.
    pub(crate) async fn ask(
        &self,
        out: &Outbox,
        cancel: &Cancel,
        question: &InputRequest,
    ) -> Option<Value> {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        // Named after this very session: a late answer to a question of an earlier process
        // must not be taken for one to a question of ours.
        let id = Id::text(&format!("cg-{:x}-{number}", self.salt.0));
        let (sender, receiver) = oneshot::channel();
        {
            let mut shared = self.shared();
            if shared.is_silent || shared.pending.len() >= PENDING_MAX {
                return None;
            }
            shared.pending.insert(id.as_json().to_owned(), sender);
        }
        let _forget = Forget {
            session: self,
            id: &id,
        };
        let mut message = Vec::new();
        let params = question.params.clone().unwrap_or_default();
        jsonrpc::write_request(&id, &question.method, &params, &mut message);
        if !out.send(message).await {
            return None;
        }
        // An answer that comes after the wait was given up is dropped: `_forget` takes the question
        // back.
        tokio::select! {
            answer = receiver => answer.ok()?.ok(),
            () = cancel.cancelled() => None,
            () = tokio::time::sleep(ANSWER_WAIT_MAX) => None,
        }
    }

    /// The client will answer nothing any more; whoever waits for it need not.
    pub(crate) fn fall_silent(&self) {
        let mut shared = self.shared();
        shared.is_silent = true;
        shared.pending.clear();
    }

    /// The client answered. An answer nobody waits for is dropped.
    pub(crate) fn answered(&self, id: &Id, result: Result<Value, Value>) {
        let waiting = self.shared().pending.remove(id.as_json());
        if let Some(waiting) = waiting {
            let _ = waiting.send(result);
        }
    }
}

struct Forget<'a> {
    session: &'a Session,
    id: &'a Id,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.session.shared().pending.remove(self.id.as_json());
    }
}
