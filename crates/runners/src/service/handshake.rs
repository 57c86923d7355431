//! What a service says it would enforce: asked once, remembered for a while. TP-48 to TP-58.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_call::{Fault, Guarantee, Guarantees, Level};
use callgate_dial::{Reply, Trouble};
use callgate_wires::tool_protocol::outgoing::{HANDSHAKE_PATH, Handshake, handshake_body};
use tokio::time::Instant;

use crate::coverage::Kept;

pub(super) const PATH: &str = HANDSHAKE_PATH;

/// The longest answer that is read.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How long a handshake that covers what was asked for is believed.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// How long any other outcome is: whoever mends the service should not wait for us.
const BAD_FOR: Duration = Duration::from_secs(10);

/// Answers remembered, one for each set of promises; beyond, the oldest leaves.
const ENTRIES_MAX: usize = 64;

const MECHANISM: &str = "service handshake";

/// The question for what is wanted: all six, wanted or not.
pub(super) fn body(tool_name: &str, wanted: &Guarantees) -> Vec<u8> {
    let six = Guarantee::ALL
        .into_iter()
        .filter(|&one| one != Guarantee::SecretsAllowed)
        .map(|one| (one.name(), wanted.requires(one)))
        .collect::<Vec<_>>();
    let secrets = wanted
        .secrets()
        .map(|names| names.iter().map(String::as_str).collect::<Vec<_>>());
    handshake_body(tool_name, &six, secrets.as_deref())
}

/// What a service said.
#[derive(Clone, Debug)]
pub(super) struct Told(Handshake);

impl Told {
    /// A service that refuses, refused. TP-58.
    pub fn willing(told: Arc<Self>) -> Result<Arc<Self>, Fault> {
        match &told.0.refusal {
            None => Ok(told),
            Some(reason) => Err(Fault::Unenforceable {
                missing: format!("the service refuses its handshake: {reason}"),
            }),
        }
    }

    /// Its word on all of it, where that is one of the contract's.
    pub fn level_word(&self) -> &'static str {
        self.level().as_str()
    }

    fn level(&self) -> Level {
        match self.0.enforcement.as_str() {
            "enforced" => Level::Enforced,
            "partial" => Level::Partial,
            _ => Level::None,
        }
    }

    /// What one promise is worth by its word. TP-57.
    pub fn kept(&self, one: Guarantee, wanted: &Guarantees) -> Kept {
        let supported = match (one, wanted.secrets()) {
            (Guarantee::SecretsAllowed, Some(names)) => self.0.supports_secrets(names.iter()),
            (Guarantee::SecretsAllowed, None) => self.0.supports_secrets([].into_iter()),
            (other, _) => self.0.supports(other.name()),
        };
        match (supported, self.level()) {
            (true, Level::Enforced) => Kept::enforced(&[MECHANISM]),
            (true, Level::Partial) => {
                Kept::partial(&[MECHANISM], "the service says: enforcement partial")
            }
            (true, Level::None) => Kept::none(format!(
                "the service says: enforcement {}",
                clipped(&self.0.enforcement)
            )),
            (false, _) => Kept::none("the service does not support it"),
        }
    }

    fn covers(&self, wanted: &Guarantees) -> bool {
        self.0.refusal.is_none()
            && wanted
                .iter()
                .all(|(one, _)| self.kept(one, wanted).level == Level::Enforced)
    }
}

/// A service's own word in a message.
fn clipped(word: &str) -> String {
    match word {
        "" => "none".to_owned(),
        word => word.chars().take(32).collect(),
    }
}

/// The answers remembered.
#[derive(Debug, Default)]
pub(super) struct Handshakes(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    /// Only what is asked for; who asks makes no difference.
    asked: Vec<u8>,
    outcome: Result<Arc<Told>, Fault>,
    until: Instant,
}

impl Handshakes {
    /// The outcome, while it is believed.
    pub fn fresh(&self, wanted: &Guarantees) -> Option<Result<Arc<Told>, Fault>> {
        let asked = body("", wanted);
        let now = Instant::now();
        let entries = self.entries();
        let found = entries
            .iter()
            .find(|entry| entry.asked == asked && now < entry.until);
        found.map(|entry| entry.outcome.clone())
    }

    /// What was last said, however long ago.
    pub fn peek(&self, wanted: &Guarantees) -> Option<Arc<Told>> {
        let asked = body("", wanted);
        let entries = self.entries();
        let found = entries.iter().find(|entry| entry.asked == asked);
        found.and_then(|entry| entry.outcome.as_ref().ok().cloned())
    }

    /// Remembers how asking went; nothing came in time if there is no reply.
    pub fn learn(
        &self,
        wanted: &Guarantees,
        reply: Option<Result<Reply, Trouble>>,
    ) -> Result<Arc<Told>, Fault> {
        let outcome = read(reply).map(|handshake| Arc::new(Told(handshake)));
        let good = outcome.as_ref().is_ok_and(|told| told.covers(wanted));
        let until = Instant::now() + if good { GOOD_FOR } else { BAD_FOR };
        let asked = body("", wanted);
        let mut entries = self.entries();
        entries.retain(|entry| entry.asked != asked);
        if entries.len() >= ENTRIES_MAX {
            entries.remove(0);
        }
        entries.push(Entry {
            asked,
            outcome: outcome.clone(),
            until,
        });
        outcome
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service that does not answer may do so later; one that answers anything but a handshake
/// has nothing to promise.
fn read(reply: Option<Result<Reply, Trouble>>) -> Result<Handshake, Fault> {
    let unenforceable = |missing: String| Fault::Unenforceable { missing };
    match reply {
        Some(Ok(Reply {
            body: Some(body), ..
        })) => Handshake::parse(&body).map_err(unenforceable),
        Some(Ok(Reply { status, .. })) => Err(unenforceable(format!(
            "the service answers its handshake with status {status}"
        ))),
        Some(Err(Trouble::TooLarge { .. })) => Err(unenforceable(
            "the answer to its handshake is too long".to_owned(),
        )),
        Some(Err(Trouble::Unsent(reason) | Trouble::Lost(reason))) => Err(Fault::Unavailable {
            reason: format!("handshake: {reason}"),
        }),
        None => Err(Fault::Unavailable {
            reason: "the service did not answer its handshake in time".to_owned(),
        }),
    }
}
