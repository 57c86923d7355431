//! The closed set of ways a call can fail. Each door maps it in one exhaustive `match`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::{Held, Unserved};

/// The member of a fault's data that names a definition which is not the pinned one.
pub const DEFINITION_CHANGED: &str = "definition_changed";

/// What programs may want to know of a fault beyond its message: `field`, `etag` …
pub type About = Option<Box<Map<String, Value>>>;

/// Why a call did not give an output.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Fault {
    #[error("tool not found: {tool}{}", unserved(*why))]
    UnknownTool { tool: String, why: Option<Unserved> },
    #[error("{reason}")]
    BadRequest { reason: String },
    #[error("{}", bad_input(field, reason))]
    BadInput { field: String, reason: String },
    #[error("{message}")]
    BadValue { message: String, about: About },
    #[error("{message}")]
    NotFound { message: String },
    #[error("denied: {reason}")]
    Denied { reason: String, about: About },
    #[error(
        "needs approval {approval}: ask the owner to run `callgate approvals show {approval}`, \
         then `callgate approvals grant {approval}`"
    )]
    NeedsApproval { approval: String },
    #[error("needs answers of the caller's user: {}", questions(requests))]
    NeedsInput {
        requests: Map<String, Value>,
        state: Option<Value>,
    },
    #[error(
        "lease_required: this call must bring a token, which `callgate lease grant {tool}` makes"
    )]
    LeaseRequired { tier: u8, tool: String, aid: String },
    #[error("lease_rejected: {refusal}")]
    LeaseRejected { refusal: LeaseRefusal },
    #[error("{message}")]
    Conflict { message: String, about: About },
    #[error("outcome unknown: {}", lost(call, reason.as_deref()))]
    OutcomeUnknown {
        call: String,
        reason: Option<String>,
    },
    #[error("rate limited: {reason}try again in {} ms", retry_after.as_millis())]
    RateLimited {
        retry_after: Duration,
        reason: String,
    },
    #[error("breaker open after repeated failures: try again in {} ms", retry_after.as_millis())]
    BreakerOpen { retry_after: Duration },
    #[error("unavailable: {reason}")]
    Unavailable { reason: String },
    #[error("cannot be enforced here: {}", not_kept(missing))]
    Unenforceable { missing: Vec<Held> },
    #[error("{}", stopped_by(guarantee, detail))]
    GuaranteeBlocked { guarantee: String, detail: String },
    #[error("{what} exceeds {}", limit_words(*max_bytes))]
    TooLarge {
        what: String,
        max_bytes: u64,
        about: About,
    },
    #[error("timed out after {} ms", after.as_millis())]
    Timeout { after: Duration },
    #[error("{message}")]
    Crash { message: String },
    #[error("bad output: {reason}")]
    BadOutput { reason: String },
    #[error("{message}")]
    ToolFailed {
        error_type: String,
        message: String,
        content: Option<Value>,
    },
    #[error("cancelled")]
    Cancelled,
    #[error("internal: {message}")]
    Internal { message: String },
}

/// The reason behind the words for an unknown tool.
fn unserved(why: Option<Unserved>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}

/// Why the outcome of a call is not known, where a runner knows that.
fn lost(call: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => reason.to_owned(),
        None => format!("call {call} started and its end was never recorded"),
    }
}

fn bad_input(field: &str, reason: &str) -> String {
    if field.is_empty() {
        format!("bad input: {reason}")
    } else {
        format!("bad input: {field}: {reason}")
    }
}

/// What is asked, in its own words where it has some.
fn questions(requests: &Map<String, Value>) -> String {
    let words = requests.iter().map(|(key, request)| {
        let message = request.pointer("/params/message").and_then(Value::as_str);
        message.unwrap_or(key)
    });
    words.collect::<Vec<_>>().join("; ")
}

/// `no_network (needs a network namespace)`, one after the other.
fn not_kept(missing: &[Held]) -> String {
    let words = |held: &Held| match held.missing.as_str() {
        "" => held.name().to_owned(),
        reason => format!("{} ({reason})", held.name()),
    };
    missing.iter().map(words).collect::<Vec<_>>().join(", ")
}

/// `blocked by guarantee no_network: …`.
fn stopped_by(guarantee: &str, detail: &str) -> String {
    match detail {
        "" => format!("blocked by guarantee {guarantee}"),
        detail => format!("blocked by guarantee {guarantee}: {detail}"),
    }
}

fn limit_words(bytes: u64) -> String {
    const MIB: u64 = 1024 * 1024;
    if bytes.is_multiple_of(MIB) {
        format!("{} MiB", bytes / MIB)
    } else {
        format!("{bytes} bytes")
    }
}

/// Why a lease was not good for this call. Decision T-5.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum LeaseRefusal {
    Expired,
    NotFound,
    AlreadyConsumed,
    ToolMismatch { expected: String, got: String },
    TierTooLow { expected: u8, got: u8 },
    CallerMismatch { expected: String, got: String },
    InputMismatch { expected: String, got: String },
}

impl LeaseRefusal {
    /// The contract's text.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::NotFound => "not found",
            Self::AlreadyConsumed => "already consumed",
            Self::ToolMismatch { .. } => "tool mismatch",
            Self::TierTooLow { .. } => "tier too low",
            Self::CallerMismatch { .. } => "caller mismatch",
            Self::InputMismatch { .. } => "input mismatch",
        }
    }

    /// What was expected and what came, where that tells more.
    #[must_use]
    pub fn details(&self) -> Option<(Value, Value)> {
        match self {
            Self::Expired | Self::NotFound | Self::AlreadyConsumed => None,
            Self::ToolMismatch { expected, got }
            | Self::CallerMismatch { expected, got }
            | Self::InputMismatch { expected, got } => Some((json!(expected), json!(got))),
            Self::TierTooLow { expected, got } => Some((json!(expected), json!(got))),
        }
    }
}

impl std::fmt::Display for LeaseRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Fault {
    /// A tool that is not there.
    #[must_use]
    pub fn unknown_tool(tool: &str) -> Self {
        Self::UnknownTool {
            tool: tool.to_owned(),
            why: None,
        }
    }

    /// A value that fits the schema and is wrong all the same.
    pub fn bad_value(message: impl Into<String>) -> Self {
        let (message, about) = (message.into(), None);
        Self::BadValue { message, about }
    }

    /// Returns whether a tool that ends with this fault has done nothing: its runner refused the
    /// call, could not be had, or asks before it does anything. The key of the call stays free, and
    /// lease and approval are given back (G-5, G-6).
    #[must_use]
    pub fn ran_nothing(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::NeedsInput { .. } => true,
            Self::Denied { about, .. } => {
                let about = about.as_deref();
                about.is_some_and(|about| about.contains_key(DEFINITION_CHANGED))
            }
            _ => false,
        }
    }

    /// Something the caller may not do.
    pub fn denied(reason: impl Into<String>) -> Self {
        let (reason, about) = (reason.into(), None);
        Self::Denied { reason, about }
    }

    /// Something another call did before.
    pub fn conflict(message: impl Into<String>) -> Self {
        let (message, about) = (message.into(), None);
        Self::Conflict { message, about }
    }

    /// More calls than there may be for now.
    #[must_use]
    pub fn rate_limited(retry_after: Duration) -> Self {
        Self::RateLimited {
            retry_after,
            reason: String::new(),
        }
    }

    /// More of `what` than there may be.
    pub fn too_large(what: impl Into<String>, max_bytes: u64) -> Self {
        let (what, about) = (what.into(), None);
        Self::TooLarge {
            what,
            max_bytes,
            about,
        }
    }

    /// The same fault with something more for programs, where it has room for it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        if let Self::BadValue { about, .. }
        | Self::Denied { about, .. }
        | Self::Conflict { about, .. }
        | Self::TooLarge { about, .. } = &mut self
        {
            let about = about.get_or_insert_default();
            about.insert(name.to_owned(), value.into());
        }
        self
    }

    /// The same fault with the words of a hint, where it has words of its own to add them to.
    #[must_use]
    pub fn explained(mut self, hint: &str) -> Self {
        match &mut self {
            Self::Crash { message: words }
            | Self::OutcomeUnknown {
                reason: Some(words),
                ..
            }
            | Self::BadOutput { reason: words }
            | Self::Denied { reason: words, .. }
            | Self::NotFound { message: words }
            | Self::Unavailable { reason: words }
            | Self::GuaranteeBlocked { detail: words, .. } => add_hint(words, hint),
            Self::ToolFailed {
                message, content, ..
            } => {
                add_hint(message, hint);
                // Wires that have content show nothing else.
                if let Some(Value::Array(blocks)) = content {
                    blocks.push(json!({ "type": "text", "text": hint }));
                }
            }
            _ => {}
        }
        self
    }

    /// The fault's name on our own wires, in traces and in the chain.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::UnknownTool { .. } => "unknown_tool",
            Self::BadRequest { .. } => "bad_request",
            Self::BadInput { .. } => "bad_input",
            Self::BadValue { .. } => "bad_value",
            Self::NotFound { .. } => "not_found",
            Self::Denied { .. } => "denied",
            Self::NeedsApproval { .. } => "needs_approval",
            Self::NeedsInput { .. } => "needs_input",
            Self::LeaseRequired { .. } => "lease_required",
            Self::LeaseRejected { .. } => "lease_rejected",
            Self::Conflict { .. } => "conflict",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::RateLimited { .. } => "rate_limited",
            Self::BreakerOpen { .. } => "breaker_open",
            Self::Unavailable { .. } => "unavailable",
            Self::Unenforceable { .. } => "unenforceable",
            Self::GuaranteeBlocked { .. } => "guarantee_blocked",
            Self::TooLarge { .. } => "too_large",
            Self::Timeout { .. } => "timeout",
            Self::Crash { .. } => "crash",
            Self::BadOutput { .. } => "bad_output",
            Self::ToolFailed { .. } => "tool_failed",
            Self::Cancelled => "cancelled",
            Self::Internal { .. } => "internal",
        }
    }

    /// The values behind the message, for programs.
    #[must_use]
    pub fn data(&self) -> Value {
        match self {
            Self::UnknownTool { tool, .. } => json!({ "tool": tool }),
            Self::BadInput { field, reason } => json!({ "field": field, "reason": reason }),
            Self::NeedsApproval { approval } => json!({ "approval": approval }),
            Self::NeedsInput { requests, .. } => json!({ "requests": requests }),
            Self::LeaseRequired { tier, tool, aid } => {
                json!({ "tier": tier, "tool": tool, "aid": aid })
            }
            Self::LeaseRejected { refusal } => match refusal.details() {
                None => json!({ "reason": refusal.as_str() }),
                Some((expected, got)) => {
                    json!({ "reason": refusal.as_str(), "expected": expected, "got": got })
                }
            },
            Self::OutcomeUnknown { call, reason: None } => json!({ "call": call }),
            Self::OutcomeUnknown {
                call,
                reason: Some(reason),
            } => json!({ "call": call, "reason": reason }),
            Self::RateLimited { retry_after, .. } | Self::BreakerOpen { retry_after } => {
                json!({ "retry_after_ms": millis(*retry_after) })
            }
            Self::TooLarge {
                what,
                max_bytes,
                about,
            } => {
                let mut data = about.as_deref().cloned().unwrap_or_default();
                data.insert("what".to_owned(), json!(what));
                data.insert("max_bytes".to_owned(), json!(max_bytes));
                Value::Object(data)
            }
            Self::BadValue { about, .. }
            | Self::Denied { about, .. }
            | Self::Conflict { about, .. } => {
                Value::Object(about.as_deref().cloned().unwrap_or_default())
            }
            Self::Timeout { after } => json!({ "after_ms": millis(*after) }),
            Self::ToolFailed {
                error_type,
                content: None,
                ..
            } => json!({ "type": error_type }),
            Self::ToolFailed {
                error_type,
                content: Some(content),
                ..
            } => json!({ "type": error_type, "content": content }),
            Self::Unenforceable { missing } => {
                let names: Vec<&str> = missing.iter().map(Held::name).collect();
                json!({ "missing": names })
            }
            Self::GuaranteeBlocked { guarantee, .. } => json!({ "guarantee": guarantee }),
            Self::BadRequest { .. }
            | Self::NotFound { .. }
            | Self::Unavailable { .. }
            | Self::Crash { .. }
            | Self::BadOutput { .. }
            | Self::Cancelled
            | Self::Internal { .. } => json!({}),
        }
    }

    /// True if it says that the tool itself is in trouble, so that the breaker counts it.
    /// A tool that answers with an error of its own works.
    #[must_use]
    pub fn is_tool_trouble(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. }
                | Self::Crash { .. }
                | Self::BadOutput { .. }
                | Self::OutcomeUnknown {
                    reason: Some(_),
                    ..
                }
        )
    }

    /// Rebuilds a recorded end of a run from its parts. A kind that can not be the end of a
    /// run comes back as `ToolFailed`, so that nothing recorded is lost.
    #[must_use]
    pub fn recorded(kind: &str, message: &str, data: &Value) -> Self {
        let number = |name: &str| data.get(name).and_then(Value::as_u64).unwrap_or(0);
        let text = |name: &str| {
            data.get(name)
                .and_then(Value::as_str)
                .unwrap_or("")
                .to_owned()
        };
        let about = |but: &[&str]| {
            let mut rest = data.as_object().cloned().unwrap_or_default();
            rest.retain(|name, _| !but.contains(&name.as_str()));
            (!rest.is_empty()).then(|| Box::new(rest))
        };
        let message = message.to_owned();
        let without = |prefix: &str| message.strip_prefix(prefix).unwrap_or(&message).to_owned();
        match kind {
            "bad_value" => Self::BadValue {
                message,
                about: about(&[]),
            },
            "denied" => Self::Denied {
                reason: without("denied: "),
                about: about(&[]),
            },
            "conflict" => Self::Conflict {
                message,
                about: about(&[]),
            },
            "not_found" => Self::NotFound { message },
            "unavailable" => Self::Unavailable {
                reason: without("unavailable: "),
            },
            "guarantee_blocked" => {
                let guarantee = text("guarantee");
                let detail = without(&format!("{}: ", stopped_by(&guarantee, "")));
                let is_bare = detail == stopped_by(&guarantee, "");
                Self::GuaranteeBlocked {
                    guarantee,
                    detail: if is_bare { String::new() } else { detail },
                }
            }
            "too_large" => Self::TooLarge {
                what: text("what"),
                max_bytes: number("max_bytes"),
                about: about(&["what", "max_bytes"]),
            },
            "outcome_unknown" => Self::OutcomeUnknown {
                call: text("call"),
                reason: data
                    .get("reason")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            },
            "timeout" => Self::Timeout {
                after: Duration::from_millis(number("after_ms")),
            },
            "crash" => Self::Crash { message },
            "bad_output" => Self::BadOutput {
                reason: without("bad output: "),
            },
            "cancelled" => Self::Cancelled,
            "internal" => Self::Internal {
                message: without("internal: "),
            },
            _ => Self::ToolFailed {
                error_type: text("type"),
                message,
                content: data.get("content").cloned(),
            },
        }
    }
}

fn add_hint(words: &mut String, hint: &str) {
    if !words.is_empty() {
        words.push_str("; ");
    }
    words.push_str(hint);
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An error with its causes, on one line. A cause that its error repeats is said once.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G-3: what is replayed equals what was recorded.
    #[test]
    fn an_end_of_a_run_survives_recording() {
        let ends = [
            Fault::bad_value("no"),
            Fault::bad_value("no").with("field", "path"),
            Fault::denied("outside").with("field", "path"),
            Fault::conflict("changed").with("etag", "b3-00"),
            Fault::too_large("file", 7).with("bytes", 8),
            Fault::NotFound {
                message: "gone".into(),
            },
            Fault::Unavailable {
                reason: "down".into(),
            },
            Fault::GuaranteeBlocked {
                guarantee: "no_network".into(),
                detail: String::new(),
            },
            Fault::GuaranteeBlocked {
                guarantee: "no_network".into(),
                detail: "[Errno 1] Operation not permitted".into(),
            },
            Fault::too_large("output", 1024 * 1024),
            Fault::OutcomeUnknown {
                call: "7".into(),
                reason: None,
            },
            Fault::OutcomeUnknown {
                call: "7".into(),
                reason: Some("the server died".into()),
            },
            Fault::Timeout {
                after: Duration::from_millis(1500),
            },
            Fault::Crash {
                message: "exit 3".into(),
            },
            Fault::BadOutput {
                reason: "not JSON".into(),
            },
            Fault::ToolFailed {
                error_type: "ValueError".into(),
                message: "m".into(),
                content: None,
            },
            Fault::ToolFailed {
                error_type: "ToolError".into(),
                message: "m".into(),
                content: Some(json!([{ "type": "text", "text": "m" }])),
            },
            Fault::Cancelled,
            Fault::Internal {
                message: "x".into(),
            },
        ];
        for fault in ends {
            assert_eq!(
                Fault::recorded(fault.kind(), &fault.to_string(), &fault.data()),
                fault
            );
        }
    }

    /// F-15: each guarantee, and what it lacks.
    #[test]
    fn what_is_not_kept_in_words() {
        let held = |guarantee, missing: &str| Held {
            guarantee: Some(guarantee),
            asker: crate::Asker::Tool,
            level: crate::Level::None,
            mechanisms: Vec::new(),
            missing: missing.to_owned(),
        };
        let fault = Fault::Unenforceable {
            missing: vec![
                held(crate::Guarantee::NoNetwork, "no seccomp"),
                held(crate::Guarantee::NoEnvRead, ""),
            ],
        };
        assert_eq!(
            fault.to_string(),
            "cannot be enforced here: no_network (no seccomp), no_env_read"
        );
        assert_eq!(
            fault.data(),
            json!({ "missing": ["no_network", "no_env_read"] })
        );
    }

    /// T-19: the words of the limit.
    #[test]
    fn limits_in_words() {
        let fault = Fault::too_large("output", 1 << 20);
        assert_eq!(fault.to_string(), "output exceeds 1 MiB");
    }
}
