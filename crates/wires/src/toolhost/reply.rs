//! Replies: one JSON object each, compact, keys in the contract's order.

use callgate_text::write_json_text;
use serde_json::Value;

use super::state::{Artifact, write_delta, write_snapshot};
use crate::json;
use std::collections::BTreeMap;

/// How a call that the host took went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The tool gave its output.
    Ok,
    /// The input does not fit the tool.
    InvalidPick,
    /// Anything else that went wrong with the call.
    ToolError,
    /// Refused for now: rate, breaker, not available.
    BreakerTrip,
}

impl Status {
    /// The contract's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::InvalidPick => "INVALID_PICK",
            Self::ToolError => "TOOL_ERROR",
            Self::BreakerTrip => "BREAKER_TRIP",
        }
    }
}

/// The `ds_state` of a reply: a difference in `--serve`, everything elsewhere.
#[derive(Clone, Copy, Debug)]
pub enum ReplyState<'a> {
    /// What the call changed.
    Delta(&'a BTreeMap<u8, Artifact>, &'a [u8]),
    /// The whole state.
    Snapshot(&'a BTreeMap<u8, Artifact>),
}

/// The answer to a call the host took.
#[derive(Clone, Copy, Debug)]
pub struct TookCall<'a> {
    /// How it went.
    pub status: Status,
    /// The output's JSON text; `{}` where there is none.
    pub output_json: &'a str,
    /// Empty on success.
    pub error: &'a str,
    /// The recorded outcome of an earlier call with the same key.
    pub idempotent_hit: bool,
    /// The state after it.
    pub state: ReplyState<'a>,
    /// `toolhost.strict_ok`: `ok` is false beside a failing status. T-6.
    pub strict_ok: bool,
}

/// Anything the host answers to one request.
#[derive(Clone, Debug)]
pub enum Reply<'a> {
    /// The call was taken.
    Took(TookCall<'a>),
    /// The request could not be taken.
    Refused {
        /// The contract's error text.
        error: &'a str,
        /// More for people, where there is more to say.
        detail: Option<&'a str>,
        /// Further members of the contract's shapes: `tier`, `aid`, `reason` …
        extra: Vec<(&'static str, Value)>,
        /// `tool_exec` puts `status` into every refusal, because its client looks at nothing
        /// else. T-20.
        with_status: bool,
    },
    /// `_lease.issue` was carried out.
    LeaseIssued(LeaseIssued<'a>),
    /// `_lease.gc` was carried out.
    LeaseCounts {
        /// Leases that can still be spent.
        active: u64,
        /// Issued so far.
        issued: u64,
        /// Spent so far.
        consumed: u64,
        /// Refused so far.
        rejected: u64,
    },
}

/// What `_lease.issue` answers.
#[derive(Clone, Copy, Debug)]
pub struct LeaseIssued<'a> {
    /// The token, shown this once.
    pub token_id: &'a str,
    /// The tool it is good for.
    pub tool_aid: &'a str,
    /// The highest tier it is good for.
    pub tier: u64,
}

impl Reply<'_> {
    /// Appends the reply, without a newline.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Took(took) => took.write(out),
            Self::Refused {
                error,
                detail,
                extra,
                with_status,
            } => {
                out.extend_from_slice(b"{\"ok\":false,");
                if *with_status {
                    out.extend_from_slice(b"\"status\":\"TOOL_ERROR\",");
                }
                out.extend_from_slice(b"\"error\":");
                write_json_text(error, out);
                for (name, value) in extra {
                    out.extend_from_slice(b",\"");
                    out.extend_from_slice(name.as_bytes());
                    out.extend_from_slice(b"\":");
                    json::write_value(value, out);
                }
                if let Some(detail) = detail {
                    out.extend_from_slice(b",\"detail\":");
                    write_json_text(detail, out);
                }
                out.push(b'}');
            }
            Self::LeaseIssued(LeaseIssued {
                token_id,
                tool_aid,
                tier,
            }) => {
                out.extend_from_slice(b"{\"ok\":true,\"token_id\":");
                write_json_text(token_id, out);
                out.extend_from_slice(b",\"tool_aid\":");
                write_json_text(tool_aid, out);
                out.extend_from_slice(format!(",\"tier\":{tier}}}").as_bytes());
            }
            Self::LeaseCounts {
                active,
                issued,
                consumed,
                rejected,
            } => out.extend_from_slice(
                format!(
                    "{{\"ok\":true,\"active\":{active},\"issued\":{issued},\
                     \"consumed\":{consumed},\"rejected\":{rejected}}}"
                )
                .as_bytes(),
            ),
        }
    }
}

impl TookCall<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let ok = self.status == Status::Ok || !self.strict_ok;
        out.extend_from_slice(if ok {
            b"{\"ok\":true"
        } else {
            b"{\"ok\":false"
        });
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b"\",\"output_json\":");
        write_json_text(self.output_json, out);
        out.extend_from_slice(b",\"error\":");
        write_json_text(self.error, out);
        if self.idempotent_hit {
            out.extend_from_slice(b",\"idempotent_hit\":true");
        }
        out.extend_from_slice(b",\"ds_state\":");
        match self.state {
            ReplyState::Delta(slots, removed) => write_delta(pairs(slots), removed, out),
            ReplyState::Snapshot(slots) => write_snapshot(pairs(slots), out),
        }
        out.push(b'}');
    }
}

fn pairs(slots: &BTreeMap<u8, Artifact>) -> impl Iterator<Item = (u8, &Artifact)> {
    slots.iter().map(|(&slot, artifact)| (slot, artifact))
}

/// Appends a refusal that has nothing but its error text.
pub fn write_refusal(error: &str, out: &mut Vec<u8>) {
    Reply::Refused {
        error,
        detail: None,
        extra: Vec::new(),
        with_status: false,
    }
    .write(out);
}

/// One tool of `--list`.
#[derive(Clone, Copy, Debug)]
pub struct ListedTool<'a> {
    /// `aid`.
    pub aid: &'a str,
    /// `name`.
    pub name: &'a str,
    /// `deterministic`.
    pub deterministic: bool,
    /// `tags`.
    pub tags: &'a [String],
    /// `side_effects`; never empty on the wire.
    pub side_effects: &'a [String],
    /// `replay_inputs`.
    pub replay_inputs: &'a [String],
}

/// Appends the reply of `--list`.
pub fn write_list<'a>(tools: impl IntoIterator<Item = ListedTool<'a>>, out: &mut Vec<u8>) {
    let tools: Vec<Value> = tools
        .into_iter()
        .map(|tool| {
            let none = [String::from("none")];
            let side_effects: &[String] = if tool.side_effects.is_empty() {
                &none
            } else {
                tool.side_effects
            };
            serde_json::json!({
                "aid": tool.aid,
                "name": tool.name,
                "deterministic": tool.deterministic,
                "tags": tool.tags,
                "side_effects": side_effects,
                "replay_inputs": tool.replay_inputs,
            })
        })
        .collect();
    json::write_value(&serde_json::json!({ "ok": true, "tools": tools }), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: &Reply<'_>) -> String {
        let mut out = Vec::new();
        reply.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn took(status: Status, strict_ok: bool) -> String {
        let slots = BTreeMap::new();
        text(&Reply::Took(TookCall {
            status,
            output_json: "{\"a\":1}",
            error: "",
            idempotent_hit: status == Status::Ok,
            state: ReplyState::Delta(&slots, &[]),
            strict_ok,
        }))
    }

    /// T-6, T-9: the order of the contract's keys, the empty difference of a hit.
    #[test]
    fn took_a_call() {
        assert_eq!(
            took(Status::Ok, false),
            r#"{"ok":true,"status":"OK","output_json":"{\"a\":1}","error":"","idempotent_hit":true,"ds_state":{"delta":true,"slots":{},"removed_slots":[]}}"#
        );
        assert!(took(Status::ToolError, false).starts_with(r#"{"ok":true,"status":"TOOL_ERROR""#));
        assert!(took(Status::ToolError, true).starts_with(r#"{"ok":false,"status":"TOOL_ERROR""#));
        assert!(took(Status::Ok, true).starts_with(r#"{"ok":true,"status":"OK""#));
    }

    /// T-5, T-20: the lease shapes, with and without a status.
    #[test]
    fn refusals() {
        let refused = |with_status| {
            text(&Reply::Refused {
                error: "lease_required",
                detail: None,
                extra: vec![("tier", 2.into()), ("aid", "AID.XX".into())],
                with_status,
            })
        };
        assert_eq!(
            refused(false),
            r#"{"ok":false,"error":"lease_required","tier":2,"aid":"AID.XX"}"#
        );
        assert_eq!(
            refused(true),
            r#"{"ok":false,"status":"TOOL_ERROR","error":"lease_required","tier":2,"aid":"AID.XX"}"#
        );
    }
}
