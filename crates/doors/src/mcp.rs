//! MCP towards its clients, in both eras: 2025-11-25 and older with `initialize` and sessions,
//! 2026-07-28 stateless. `docs/mcp.md` says what we add to the protocol.
//!
//! One request is one value (`Request`) that goes to `Server::answer` and comes back as bytes,
//! whatever it came by; `stdio.rs` and `http.rs` differ in how they carry it. A tool that needs
//! its caller's user asks in the modern way, by rounds (`rounds.rs`); for a legacy client the
//! door turns each round into requests of its own.

mod calls;
mod dispatch;
mod eventlog;
pub mod http;
mod listen;
mod outbox;
mod progress;
mod relay;
mod request;
#[cfg(test)]
mod rig;
mod rounds;
mod seal;
mod session;
mod shelf;
pub mod stdio;
mod tasks;
mod tools;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use callgate_call::{Caller, Cancel, ClientScope, Scope, Wire};
use callgate_gate::Gate;
use tokio_util::task::TaskTracker;

pub use outbox::Outbox;
pub use relay::{Relay, RelayCall, RelayFuture};
pub use seal::Seal;
pub use session::Session;

/// What a server is told at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Told to clients.
    pub name: String,
    /// Told to clients.
    pub version: String,
    /// Words for the model, if any.
    pub instructions: Option<String>,
    /// A call that takes longer becomes a task, where its client knows tasks.
    pub task_after: Duration,
}

/// What is behind the door.
pub enum Behind {
    /// The gate.
    Gate(Arc<Gate>),
    /// Somebody else's tools, whose answers are passed on.
    Relay(Arc<dyn Relay>),
}

/// One MCP server, shared by all its connections.
pub struct Server {
    behind: Behind,
    settings: Settings,
    seal: Seal,
    tasks: Arc<tasks::Tasks>,
    /// What legacy streams keep of their events.
    logs: Arc<eventlog::EventLogs>,
    /// Every call in progress; stopping waits for them.
    pub(crate) calls: TaskTracker,
    /// Conversations on pipes so far: the number of each names it.
    conversations: AtomicUsize,
    /// Cancelled when the door closes: whatever only waits ends then.
    stopping: Cancel,
    /// Cancelled when even running calls must end.
    ending: Cancel,
    /// For requests that are answered at once: nothing cancels them.
    never: Arc<Cancel>,
    /// For the same: they say nothing before their answer.
    nowhere: Outbox,
    /// Calls that wait for their tools.
    running: AtomicUsize,
}

/// One call that waits for its tool.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Server {
    /// A server in front of `behind`.
    #[must_use]
    pub fn new(behind: Behind, settings: Settings, seal: Seal) -> Self {
        Self {
            behind,
            settings,
            seal,
            tasks: Arc::default(),
            logs: Arc::default(),
            calls: TaskTracker::new(),
            conversations: AtomicUsize::new(0),
            stopping: Cancel::new(),
            ending: Cancel::new(),
            never: Arc::default(),
            nowhere: Outbox::new().0,
            running: AtomicUsize::new(0),
        }
    }

    /// How many calls wait for their tools.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    /// Returns whether no conversation is open and no call runs.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.running() == 0
    }

    /// A name for a conversation that no other conversation of this process has.
    fn next_conversation(&self) -> Arc<str> {
        let number = self.conversations.fetch_add(1, Ordering::Relaxed);
        format!("pipe-{number}").into()
    }

    /// Ends whatever only listens.
    pub fn begin_stop(&self) {
        self.stopping.cancel();
    }

    /// Ends whatever only listens, and waits for calls in progress.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.calls.close();
        self.calls.wait().await;
    }

    /// Ends calls in progress as well.
    pub fn cancel_all(&self) {
        self.stopping.cancel();
        self.ending.cancel();
        self.tasks.cancel_all();
    }

    fn gate(&self) -> Option<&Arc<Gate>> {
        match &self.behind {
            Behind::Gate(gate) => Some(gate),
            Behind::Relay(_) => None,
        }
    }
}

/// Who asks, and by which wire.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Who.
    pub caller: Caller,
    /// The wire.
    pub wire: Wire,
    /// What a token allows at most; `None` allows all.
    pub scope: Option<Arc<Scope>>,
    /// The conversation that its calls are of, where its wire has conversations.
    pub session: Option<Arc<str>>,
}

/// The scope of callers without a token's. Made once, not for each request.
static OWNERS_SCOPE: LazyLock<Arc<Scope>> = LazyLock::new(|| {
    Arc::new(Scope {
        is_mcp: true,
        ..Scope::default()
    })
});

impl Peer {
    /// A caller that came by MCP, with what its token allows, or `only` the tools that fit these
    /// patterns.
    #[must_use]
    pub fn new(caller: Caller, wire: Wire, scope: Option<Arc<Scope>>, only: &[String]) -> Self {
        let scope = match scope {
            None if only.is_empty() => Arc::clone(&OWNERS_SCOPE),
            scope => {
                let mut scope = scope.map_or_else(Scope::default, Arc::unwrap_or_clone);
                scope.is_mcp = true;
                if scope.tools.is_empty() && !only.is_empty() {
                    scope.tools = only.to_vec();
                    scope.is_only = true;
                }
                Arc::new(scope)
            }
        };
        Self {
            caller,
            wire,
            scope: Some(scope),
            session: None,
        }
    }

    /// The same for an MCP client that sees its own servers only.
    #[must_use]
    pub fn of_client(self, client: Option<ClientScope>) -> Self {
        let scope = self.scope.map_or_else(Scope::default, Arc::unwrap_or_clone);
        let scope = Some(Arc::new(Scope { client, ..scope }));
        Self { scope, ..self }
    }
}

pub(crate) use dispatch::Answered;
pub(crate) use request::{Era, Request};
pub(crate) use tools::input_schema;
