//! One request to run a tool, as every door hands it to the gate.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::{Cancel, Document, Fault, Guarantees, Hearer, Output, Scope, Sink, Slots, Timestamp};

/// One request to run a tool. Not serialisable: each wire converts by hand.
pub struct Call {
    /// Names this call in replies, traces and the chain.
    pub id: CallId,
    /// The tool as the caller named it: canonical name, AID or alias.
    pub tool: String,
    /// The input, parsed strictly by the door.
    pub input: Document,
    /// Who calls.
    pub caller: Caller,
    /// What the caller's token allows at most; `None` allows all.
    pub scope: Option<Arc<Scope>>,
    /// The wire it came by.
    pub wire: Wire,
    /// Makes a retry safe.
    pub key: Option<IdempotencyKey>,
    /// How far back a finished key is replayed; `None` is as far as it is kept.
    pub replay_window: Option<ReplayWindow>,
    /// A single-use permission.
    pub lease: Option<LeaseToken>,
    /// Which default decides whether `lease` is needed. G-5.
    pub lease_group: LeaseGroup,
    /// How long a tool may take that says nothing itself. G-2.
    pub default_timeout: Duration,
    /// The longest the caller waits, whatever the tool says.
    pub timeout_max: Option<Duration>,
    /// The part of the caller's time that is not in `timeout_max`, but left for the answer.
    pub answer_margin: Duration,
    /// Correlates traces; opaque.
    pub trace_id: Option<String>,
    /// The conversation it belongs to, where its wire has conversations. Calls of one caller that
    /// name no session share everything.
    pub session: Option<Arc<str>>,
    /// The caller's span in that trace, in hex.
    pub parent_span: Option<String>,
    /// What the tool is to be held to beyond its own promises.
    pub asks: Option<Box<Guarantees>>,
    /// What its door has to say for its trace: a name and words.
    pub remarks: Vec<(&'static str, &'static str)>,
    /// The slots of the conversation, for tools that take them.
    pub slots: Slots,
    /// Whether the caller's wire can carry this output back. An outcome that can not be
    /// told is a failure, and recorded as one.
    pub fits: fn(&Call, &Output) -> Result<(), Fault>,
    /// What the caller's user answered to an earlier round of this call.
    pub answers: Option<Answers>,
    /// Where the tool's progress and words go while it runs.
    pub sink: Option<Arc<dyn Sink>>,
    /// Who hears what this call lets follow it, where the wire has a way to tell.
    pub hearer: Option<Hearer>,
    /// It is made to see what the tool gives, by a replay: how it ends says nothing of the tool's
    /// health.
    pub is_rerun: bool,
    /// Ends the call early. Shared: a clone of a token takes its lock.
    pub cancel: Arc<Cancel>,
}

/// The answers to what a tool asked for by `Fault::NeedsInput`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// By the names the tool gave its questions.
    pub responses: Map<String, Value>,
    /// What the tool wanted to be reminded of.
    pub state: Option<Value>,
}

impl Call {
    /// A call with nothing but the necessary; doors set the rest.
    #[must_use]
    pub fn new(
        id: CallId,
        tool: impl Into<String>,
        input: Document,
        caller: Caller,
        wire: Wire,
        cancel: impl Into<Arc<Cancel>>,
    ) -> Self {
        Self {
            id,
            tool: tool.into(),
            input,
            caller,
            scope: None,
            wire,
            key: None,
            replay_window: None,
            lease: None,
            lease_group: wire.lease_group(),
            default_timeout: wire.default_timeout(),
            timeout_max: None,
            answer_margin: Duration::ZERO,
            trace_id: None,
            session: None,
            parent_span: None,
            asks: None,
            remarks: Vec::new(),
            slots: Slots::default(),
            fits: |_, _| Ok(()),
            answers: None,
            sink: None,
            hearer: None,
            is_rerun: false,
            cancel: cancel.into(),
        }
    }

    /// Bounds the call by how long its caller waits for the answer. Part of that time is left for
    /// ending the tool and for the answer's way back. G-2c.
    pub fn answer_within(&mut self, patience: Duration) {
        self.answer_margin = answer_margin(patience);
        let limit = patience - self.answer_margin;
        self.default_timeout = limit;
        self.timeout_max = Some(limit);
    }

    /// All the time a call of a tool with `own` timeout has.
    #[must_use]
    pub fn timeout(&self, own: Option<Duration>) -> Duration {
        let wanted = own.unwrap_or(self.default_timeout);
        self.timeout_max.map_or(wanted, |max| wanted.min(max))
    }

    /// The limit that applies, as it was configured or asked for: with the margin for the answer.
    #[must_use]
    pub fn limit(&self, own: Option<Duration>) -> Duration {
        let timeout = self.timeout(own);
        if self.timeout_max == Some(timeout) {
            timeout + self.answer_margin
        } else {
            timeout
        }
    }

    /// Returns whether the caller gives a tool with `own` timeout less time than that tool has by
    /// default.
    #[must_use]
    pub fn is_impatient(&self, own: Option<Duration>) -> bool {
        self.limit(own) < own.unwrap_or(self.wire.default_timeout())
    }
}

/// The part of a caller's `patience` that is left for ending the tool and answering: a caller that
/// waits no longer than it said would otherwise not receive the timeout. G-2c.
#[must_use]
pub fn answer_margin(patience: Duration) -> Duration {
    const MARGIN_MAX: Duration = Duration::from_millis(250);
    (patience / 10).min(MARGIN_MAX)
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .field("caller", &self.caller)
            .field("wire", &self.wire)
            .finish_non_exhaustive()
    }
}

/// 128 bits that sort by time: 48 of milliseconds, then a process's own sequence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u128);

impl CallId {
    /// Reads 32 hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&callgate_text::encode_hex(&self.0.to_be_bytes()))
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Hands out call ids that no other process hands out.
#[derive(Debug)]
pub struct CallIds {
    seed: u64,
    next: AtomicU64,
}

impl CallIds {
    /// `seed` must be random: it keeps two processes apart.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed: seed << 24,
            next: AtomicU64::new(0),
        }
    }

    /// A fresh id.
    pub fn next(&self, now: Timestamp) -> CallId {
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let low = u128::from(self.seed | (sequence & 0xFF_FFFF));
        let middle = u128::from((sequence >> 24) & 0xFFFF) << 64;
        CallId(u128::from(now.0 & 0xFFFF_FFFF_FFFF) << 80 | middle | low)
    }
}

/// Who calls: `uid:N`, later `token:NAME` and others. Decision G-11.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller(Arc<str>);

impl Caller {
    /// The owner of a pipe or the peer of a Unix socket.
    #[must_use]
    pub fn uid(uid: u32) -> Self {
        Self(format!("uid:{uid}").into())
    }

    /// A caller by its full name, as configuration and leases spell it.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    /// The full name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The wire a call came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// NDJSON and single-shot JSON.
    Toolhost,
    /// HTTP on the gate's own socket, and the command line.
    Gate,
    /// MCP over standard input and output or the gate's own socket.
    Mcp,
    /// MCP over HTTP on TCP.
    McpHttp,
    /// Length-prefixed JSON on the bridge's socket.
    Bridge,
    /// The tool protocol on standard input or the gate's own socket.
    Tool,
    /// The tool protocol over HTTP on TCP.
    Service,
    /// JSON-RPC on standard input and output or the gate's own socket.
    Rpc,
    /// JSON-RPC over HTTP on TCP.
    RpcHttp,
    /// A step of a run, taken by the pilot.
    Pilot,
}

impl Wire {
    /// The name in chain and traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Toolhost => "toolhost",
            Self::Gate => "gate",
            Self::Mcp => "mcp",
            Self::McpHttp => "mcp-http",
            Self::Bridge => "bridge",
            Self::Tool => "tool",
            Self::Service => "service",
            Self::Rpc => "rpc",
            Self::RpcHttp => "rpc-http",
            Self::Pilot => "pilot",
        }
    }

    /// The default for leases of calls that come by this wire. A door may choose another one for
    /// calls of the owner's own client.
    #[must_use]
    pub fn lease_group(self) -> LeaseGroup {
        match self {
            Self::Toolhost => LeaseGroup::Toolhost,
            Self::Gate | Self::Mcp | Self::Bridge | Self::Tool | Self::Rpc | Self::Pilot => {
                LeaseGroup::Local
            }
            Self::McpHttp | Self::Service | Self::RpcHttp => LeaseGroup::Tcp,
        }
    }

    /// How long a call may take when neither tool nor caller says. Decision G-2.
    #[must_use]
    pub fn default_timeout(self) -> Duration {
        match self {
            Self::Toolhost | Self::Pilot => Duration::from_secs(30),
            Self::Tool | Self::Service => Duration::from_secs(10),
            Self::Gate | Self::Mcp | Self::McpHttp | Self::Bridge | Self::Rpc | Self::RpcHttp => {
                Duration::from_secs(60)
            }
        }
    }
}

/// Callers that share one default of lease enforcement. Decision G-5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseGroup {
    /// The toolhost: off, or as `MACHINA_LEASE_ENFORCE` says.
    Toolhost,
    /// The owner's own client, on a pipe, a socket of ours, the command line, or `/rpc` with the
    /// owner's token: off.
    Local,
    /// Everybody else on TCP: from tier 2.
    Tcp,
}

/// What a wire's own contract says of old keys: they count while younger than `max_age`
/// and among the newest `entries_max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayWindow {
    /// Counted from the end of the first call.
    pub max_age: Duration,
    /// Finished keys of this wire.
    pub entries_max: u64,
}

/// A caller's word that two requests are one. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

impl IdempotencyKey {
    /// `None` for the empty text, which is no key.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A lease token. Prints as `…`, whoever prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseToken(String);

impl LeaseToken {
    /// Any text a caller sent.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The secret itself, for hashing and for showing once.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_sort_by_time_and_parse() {
        let ids = CallIds::new(7);
        let (a, b, c) = (
            ids.next(Timestamp(5)),
            ids.next(Timestamp(5)),
            ids.next(Timestamp(6)),
        );
        assert!(a != b && a < c && b < c);
        assert_eq!(CallId::parse(&a.to_string()), Some(a));
        assert_eq!(a.to_string().len(), 32);
        assert_ne!(CallIds::new(8).next(Timestamp(5)), a);
    }

    /// G-2, T-2: the tool's own timeout, else the wire's; the caller's patience bounds both.
    #[test]
    fn timeouts() {
        let input = Document::from_value(serde_json::Value::Null);
        let (caller, cancel) = (Caller::uid(0), Cancel::new());
        let mut call = Call::new(CallId(1), "t", input, caller, Wire::Toolhost, cancel);
        let seconds = Duration::from_secs;
        assert_eq!(call.timeout(None), seconds(30));
        assert_eq!(call.timeout(Some(seconds(90))), seconds(90));
        call.timeout_max = Some(seconds(8));
        assert_eq!(call.timeout(None), seconds(8));
        assert_eq!(call.timeout(Some(seconds(3))), seconds(3));
    }

    /// G-2b: what a tool without a timeout of its own has, by wire.
    #[test]
    fn default_timeouts() {
        use Wire::{Bridge, Gate, Mcp, McpHttp, Rpc, RpcHttp, Service, Tool};
        for wire in [Tool, Service] {
            assert_eq!(wire.default_timeout(), Duration::from_secs(10), "{wire:?}");
        }
        for wire in [Gate, Mcp, McpHttp, Bridge, Rpc, RpcHttp] {
            assert_eq!(wire.default_timeout(), Duration::from_secs(60), "{wire:?}");
        }
    }

    /// G-2c, P-7: a tenth of the caller's time, and never more than 250 ms.
    #[test]
    fn the_answer_comes_before_the_caller_gives_up() {
        let margin = |ms| answer_margin(Duration::from_millis(ms)).as_millis();
        let margins = [1, 9, 10, 1000, 2500, 2501, 10_000].map(margin);
        assert_eq!(margins, [0, 0, 1, 100, 250, 250, 250]);
    }

    /// G-7: who gives a tool less time than it has by default is impatient, whichever way that was
    /// said.
    #[test]
    fn impatience() {
        let input = Document::from_value(serde_json::Value::Null);
        let (caller, cancel) = (Caller::uid(0), Cancel::new());
        let mut call = Call::new(CallId(1), "t", input, caller, Wire::Toolhost, cancel);
        let seconds = Duration::from_secs;
        let own = [None, Some(seconds(5)), Some(seconds(30)), Some(seconds(90))];
        assert_eq!(own.map(|own| call.is_impatient(own)), [false; 4]);
        call.default_timeout = seconds(7);
        let found = own.map(|own| call.is_impatient(own));
        assert_eq!(found, [true, false, false, false]);
        call.answer_within(seconds(30));
        let found = own.map(|own| call.is_impatient(own));
        assert_eq!(found, [false, false, false, true]);
        call.answer_within(seconds(29));
        let found = own.map(|own| call.is_impatient(own));
        assert_eq!(found, [true, false, true, true]);
    }

    /// T-4: the token is opaque and never shows in logs.
    #[test]
    fn a_token_prints_as_dots() {
        assert_eq!(
            format!("{:?}", Some(LeaseToken::new("lease_00"))),
            "Some(…)"
        );
    }
}
