//! What a service says it would enforce: asked once, remembered for a while. TP-48 to TP-58.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use callgate_call::{Fault, Guarantee, Guarantees, Level};
use callgate_dial::{Reply, Trouble};
use callgate_wires::tool_protocol::{GuaranteeSet, HandshakeReply, HandshakeRequest};
use tokio::time::Instant;

use crate::answer;
use crate::coverage::Kept;

/// The longest answer that is read.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// How long a handshake that covers what was asked for is believed.
const GOOD_FOR: Duration = Duration::from_secs(5 * 60);

/// How long any other outcome is: whoever mends the service should not wait for us.
const BAD_FOR: Duration = Duration::from_secs(10);

/// Answers remembered, one for each set of promises; beyond, the oldest leaves.
const ENTRIES_MAX: usize = 64;

const MECHANISM: &str = "service handshake";

/// The promises as messages write them.
pub(super) fn as_asked(wanted: &Guarantees) -> GuaranteeSet {
    let mut set = GuaranteeSet::default();
    for (one, _) in wanted.iter() {
        set.require(one.name());
    }
    set.secrets_allowed = wanted
        .secrets()
        .map(|names| names.iter().cloned().collect());
    set
}

/// The question for what is wanted.
pub(super) fn body(tool_name: &str, wanted: &Guarantees) -> Vec<u8> {
    let request = HandshakeRequest {
        tool_name: tool_name.to_owned(),
        runner: Some("service".to_owned()),
        required: as_asked(wanted),
    };
    let mut body = Vec::new();
    request.write(&mut body);
    body
}

/// What a service said to a handshake.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Told {
    /// Its own word: `enforced`, `partial`, `none`, or anything.
    enforcement: String,
    supported: GuaranteeSet,
    /// Why it promises nothing. TP-58.
    pub refusal: Option<String>,
}

impl Told {
    fn refused(reason: String) -> Self {
        Self {
            refusal: Some(reason),
            ..Self::default()
        }
    }

    /// Its word on all of it.
    pub fn level(&self) -> Level {
        match self.enforcement.as_str() {
            "enforced" => Level::Enforced,
            "partial" => Level::Partial,
            _ => Level::None,
        }
    }

    /// What one promise is worth by its word. TP-57.
    pub fn kept(&self, one: Guarantee, wanted: &Guarantees) -> Kept {
        if let Some(reason) = &self.refusal {
            return Kept::none(reason.as_str());
        }
        match (self.supports(one, wanted), self.level()) {
            (true, Level::Enforced) => Kept::enforced(&[MECHANISM]),
            (true, Level::Partial) => {
                Kept::partial(&[MECHANISM], "the service says: enforcement partial")
            }
            (true, Level::None) => Kept::none(format!(
                "the service says: enforcement {}",
                clipped(&self.enforcement)
            )),
            (false, _) => Kept::none("the service does not support it"),
        }
    }

    /// Of secrets it must know at least those that the tool may have.
    fn supports(&self, one: Guarantee, wanted: &Guarantees) -> bool {
        if one != Guarantee::SecretsAllowed {
            return self.supported.requires(one.name());
        }
        let Some(known) = &self.supported.secrets_allowed else {
            return false;
        };
        let mut names = wanted.secrets().into_iter().flatten();
        names.all(|name| known.contains(name))
    }

    fn covers(&self, wanted: &Guarantees) -> bool {
        self.refusal.is_none()
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
    asked: GuaranteeSet,
    outcome: Result<Arc<Told>, Fault>,
    until: Instant,
}

impl Handshakes {
    /// The outcome, while it is believed.
    pub fn fresh(&self, wanted: &Guarantees) -> Option<Result<Arc<Told>, Fault>> {
        let asked = as_asked(wanted);
        let now = Instant::now();
        let entries = self.entries();
        let found = entries
            .iter()
            .find(|entry| entry.asked == asked && now < entry.until);
        found.map(|entry| entry.outcome.clone())
    }

    /// What was last said, however long ago.
    pub fn peek(&self, wanted: &Guarantees) -> Option<Arc<Told>> {
        let asked = as_asked(wanted);
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
        let outcome = read(reply).map(Arc::new);
        let good = outcome.as_ref().is_ok_and(|told| told.covers(wanted));
        let until = Instant::now() + if good { GOOD_FOR } else { BAD_FOR };
        let asked = as_asked(wanted);
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
/// promises nothing.
fn read(reply: Option<Result<Reply, Trouble>>) -> Result<Told, Fault> {
    let told = match reply {
        Some(Ok(Reply {
            body: Some(body), ..
        })) => read_body(&body),
        Some(Ok(Reply { status, .. })) => Told::refused(format!(
            "the service answers its handshake with status {status}"
        )),
        Some(Err(Trouble::TooLarge { .. })) => {
            Told::refused("the answer to its handshake is too long".to_owned())
        }
        Some(Err(Trouble::Unsent(reason) | Trouble::Lost(reason))) => {
            let reason = format!("handshake: {reason}");
            return Err(Fault::Unavailable { reason });
        }
        None => {
            let reason = "the service did not answer its handshake in time".to_owned();
            return Err(Fault::Unavailable { reason });
        }
    };
    Ok(told)
}

fn read_body(body: &[u8]) -> Told {
    match HandshakeReply::parse(body) {
        Ok(HandshakeReply::Levels {
            enforcement,
            supported,
            ..
        }) => Told {
            enforcement: enforcement.unwrap_or_default(),
            supported,
            refusal: None,
        },
        Ok(HandshakeReply::Refused(said)) => Told::refused(format!(
            "the service refuses its handshake: {}",
            answer::clipped(&said.message)
        )),
        Err(error) => Told::refused(format!("its handshake is none: {error:?}")),
    }
}
