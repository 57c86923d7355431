//! A call as the store sees it: its start, its end, and what an idempotency key says of it.
//! Plain values; the rules are in `keys.rs`.

use std::time::Duration;

use callgate_call::{CallId, Caller, Digest, LeaseRefusal, LeaseToken, Tier, Timestamp};
use serde_json::Value;

use crate::{Approval, LeaseId, OwnerId};

/// An idempotency key of one caller: BLAKE3 over `caller 0 key`, cut to 128 bits. The key
/// itself is never stored. Which tool and input it was used for is kept beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 16]);

impl KeyId {
    /// The id of a caller's key.
    #[must_use]
    pub fn new(caller: &Caller, key: &str) -> Self {
        let hash = hash_of(&[caller.as_str().as_bytes(), &[0], key.as_bytes()]);
        let mut id = [0; 16];
        id.copy_from_slice(&hash[..16]);
        Self(id)
    }
}

/// What a key is good for: one tool, by its canonical name, with one input.
pub(crate) fn bond(tool: &str, input: &Digest) -> Digest {
    Digest(hash_of(&[tool.as_bytes(), &[0], &input.0]))
}

/// BLAKE3 over the parts. Hashing a few bytes in one go costs a fifth of an incremental hasher.
fn hash_of(parts: &[&[u8]]) -> [u8; 32] {
    let mut whole = [0; 256];
    let mut length = 0;
    for part in parts {
        match whole.get_mut(length..length + part.len()) {
            Some(place) => place.copy_from_slice(part),
            None => {
                let mut hasher = blake3::Hasher::new();
                parts.iter().for_each(|part| {
                    hasher.update(part);
                });
                return *hasher.finalize().as_bytes();
            }
        }
        length += part.len();
    }
    *blake3::hash(&whole[..length]).as_bytes()
}

impl std::fmt::Display for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl std::fmt::Debug for KeyId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// Which finished entries count for a caller. Unfinished and unknown ones count in every view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All that are kept.
    Full,
    /// Those younger than `max_age` and among the `max_entries` newest of this view. T-7.
    Recent {
        /// An entry exactly this old no longer counts.
        max_age: Duration,
        /// So many newest entries count.
        max_entries: u64,
    },
}

impl View {
    /// What the toolhost sees: 60 000 ms, 1024 entries. T-7.
    pub const TOOLHOST: Self = Self::Recent {
        max_age: Duration::from_millis(60_000),
        max_entries: 1024,
    };
}

/// What an idempotency key says.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// Nothing: the call may start.
    New,
    /// The call ended; this is how.
    Finished(Recorded),
    /// The call runs now.
    InFlight {
        /// The process that runs it.
        owner: OwnerId,
        /// The call that runs.
        call: CallId,
    },
    /// The key was used with another tool or another input.
    Conflict {
        /// The call that used it.
        call: CallId,
    },
    /// The call started and its process died before the end was recorded.
    Unknown {
        /// The call that started.
        call: CallId,
    },
}

/// A recorded end of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The call that ended.
    pub call: CallId,
    /// The output's text, or the fault.
    pub result: Result<String, RecordedFault>,
    /// What it did to the slots, where that was kept.
    pub slots: Option<String>,
}

/// A fault as it was recorded; `Fault::recorded` rebuilds it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedFault {
    /// `Fault::kind`.
    pub kind: String,
    /// The fault's text.
    pub message: String,
    /// `Fault::data`.
    pub data: Value,
}

/// A call about to run.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The call.
    pub call: CallId,
    /// The tool's canonical name.
    pub tool: &'a str,
    /// The tool's AID.
    pub aid: &'a str,
    /// The tool's tier.
    pub tier: Tier,
    /// Who calls.
    pub caller: &'a Caller,
    /// The wire's name.
    pub wire: &'a str,
    /// Digest of the input.
    pub input: Digest,
    /// The key, if the caller gave one.
    pub key: Option<KeyId>,
    /// Which finished entries count.
    pub view: View,
    /// `Some`: must be redeemed, in the same transaction.
    pub lease: Option<&'a LeaseToken>,
    /// `Some`: a granted approval for this caller, tool and input must be there, and is spent. It
    /// must have been granted on the text with this digest.
    pub displayed: Option<Digest>,
    /// The tool receives more from the caller than its input, which no permission covers that is for
    /// the input alone. G-6f.
    pub brings_more: bool,
    /// The tool may run again where an earlier outcome is unknown.
    pub idempotent: bool,
    /// What the plan will enforce, in a word.
    pub enforcement: &'a str,
    /// The owner's override lets it run with less than was asked for.
    pub unsafe_override: bool,
    /// The caller's trace id.
    pub trace_id: Option<&'a str>,
}

/// What came of `Store::begin`.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Begun {
    /// The start is recorded: run the tool, then `Store::finish`.
    Started(Started),
    /// The key already says something other than `Seen::New`.
    Seen(Seen),
    /// The lease is not good for this call. Nothing changed.
    LeaseRefused(LeaseRefusal),
    /// There is no granted approval; the latest one for this caller, tool and input, if any.
    /// Nothing changed.
    NotApproved(Option<Approval>),
    /// As many calls are unfinished as keys may be kept. Nothing changed. G-3.
    Full,
}

/// A recorded start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// To settle before the run under `Durability::Power`; already written.
    pub ticket: Ticket,
    /// The lease that was spent.
    pub lease: Option<LeaseId>,
    /// The earlier call with this key whose outcome is unknown, for an idempotent tool.
    pub again: Option<CallId>,
}

/// A call that ended.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// The call.
    pub call: CallId,
    /// The tool's canonical name.
    pub tool: &'a str,
    /// Digest of the input, as at the start.
    pub input: Digest,
    /// The key, as at the start.
    pub key: Option<KeyId>,
    /// The view, as at the start.
    pub view: View,
    /// How it ended.
    pub end: End<'a>,
    /// What it did to the slots, as text, for a caller that wants it again with the output; it
    /// and the output are small enough to be kept in the journal.
    pub slots: Option<&'a str>,
    /// What the end says of the tool. G-7.
    pub health: Health,
    /// What was enforced, in a word.
    pub enforcement: &'a str,
    /// As at the start.
    pub unsafe_override: bool,
    /// Connections that the tool was refused.
    pub network_refused: u64,
    /// When the run began; it ended now.
    pub began: Timestamp,
    /// False: nothing was run after all, so the key is free again. The record is still made.
    pub keep: bool,
    /// The caller's trace id.
    pub trace_id: Option<&'a str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// With an output: its JSON text, and its digest (over the text or over the canonical form).
    Output {
        /// The text, kept for replay if there is a key.
        text: &'a str,
        /// The digest in the chain.
        digest: Digest,
    },
    /// With a fault, in the parts of `Fault`.
    Fault {
        /// `Fault::kind`.
        kind: &'a str,
        /// The fault's text.
        message: &'a str,
        /// `Fault::data`.
        data: &'a Value,
    },
}

impl End<'_> {
    pub(crate) fn is_output(&self) -> bool {
        matches!(self, Self::Output { .. })
    }
}

/// What the end of a call says of its tool, for the breaker. G-7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works: consecutive failures start anew.
    Works,
    /// It failed or timed out: one more failure.
    Trouble,
    /// Nothing (cancelled, never run).
    Silent,
}

/// A call that was refused before it ran.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The call.
    pub call: CallId,
    /// The tool's canonical name, or what the caller asked for.
    pub tool: &'a str,
    /// Who called.
    pub caller: &'a Caller,
    /// The wire's name.
    pub wire: &'a str,
    /// Digest of the input.
    pub input: Option<Digest>,
    /// `Fault::kind`.
    pub fault: &'a str,
    /// The caller's trace id.
    pub trace_id: Option<&'a str>,
}

/// A call that was answered by the record of an earlier one.
#[derive(Clone, Copy, Debug)]
pub struct Replay<'a> {
    /// The call.
    pub call: CallId,
    /// The earlier call whose end answered.
    pub earlier: CallId,
    /// The tool's canonical name.
    pub tool: &'a str,
    /// Who called.
    pub caller: &'a Caller,
    /// The wire's name.
    pub wire: &'a str,
    /// Digest of the input.
    pub input: Digest,
    /// The key.
    pub key: KeyId,
    /// The caller's trace id.
    pub trace_id: Option<&'a str>,
}

/// Names a point in this process's records; `Store::settle` waits until all up to it are safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// A tool's consecutive failures, in every process of the workspace together. G-7.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerState {
    /// Failures since the last success.
    pub failures: u32,
    /// When the newest of them was recorded, ms.
    pub failed_at: Timestamp,
}
