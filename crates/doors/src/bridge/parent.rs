//! The parent's end: bridges connect and ask for calls of the gate's tools.
//!
//! Connections are independent; each carries one call at a time and is answered in order. A
//! bridge that goes away ends the call it waited for, since the protocol has no other way to
//! take one back; a call with a key runs on, because its caller will come back and ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::serve::Listener as _;
use callgate_call::{
    Call, CallId, Caller, Cancel, Document, Fault, IdempotencyKey, LeaseToken, Outcome, Output,
    Scope, Tool, Wire, host_name,
};
use callgate_gate::{Attempt, FoundTool, Gate, PendingCall, Ticket, lost_outcome, others_first};
use callgate_text::json_text_len;
use callgate_wires::bridge::limits::MESSAGE_BYTES_MAX;
use callgate_wires::bridge::{
    CallTool, IPC_ERROR, SIZE_ERROR, Said, ToolSchema, VALUE_ERROR, write_error, write_result,
};
use callgate_wires::json;
use callgate_wires::mcp::meta;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::stream::{Frames, Lost};
use crate::http::{Closing, SameUid};
use crate::mcp::input_schema;
use crate::reply::{CallBody, Shape, as_text};

/// Connections served at the same time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 512;

/// How long a bridge that does not read may hold us up once we stop.
const FAREWELL: Duration = Duration::from_secs(1);

/// The gate's tools as a schema file lists them, under the names hosts of models accept. A bridge's
/// client is one of MCP, so the list is the same.
#[must_use]
pub fn schemas(gate: &Gate, caller: &Caller) -> Vec<ToolSchema> {
    let scope = Scope {
        is_mcp: true,
        ..Scope::default()
    };
    gate.visible_tools(caller, Some(&scope))
        .iter()
        .map(|entry| schema_of(&entry.tool))
        .collect()
}

/// One tool as a schema file lists it.
#[must_use]
pub fn schema_of(tool: &Tool) -> ToolSchema {
    ToolSchema {
        name: host_name(&tool.name),
        description: tool.description.clone(),
        input_schema: input_schema(&tool.input_schema),
    }
}

/// Serves bridges until told to close; calls under way are answered first.
pub async fn serve(mut listener: SameUid, gate: Arc<Gate>, caller: Caller, closing: &Closing) {
    let stop = &closing.stop;
    let door = Arc::new(Door {
        gate,
        caller,
        calls: TaskTracker::new(),
        last: AtomicU64::new(0),
        stop: stop.clone(),
        end: Arc::new(closing.end.clone()),
    });
    let mut number = 0;
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (listener.accept().await.0, place)
        };
        let (stream, place) = tokio::select! {
            // A connection that was accepted and not handed out is closed, which says enough.
            next = next => next,
            () = stop.cancelled() => break,
        };
        let door = Arc::clone(&door);
        number += 1;
        connections.spawn(async move {
            // One that can not be watched is closed, which says enough.
            if let Ok(frames) = Frames::new(stream) {
                door.converse(Bridge { frames, number }).await;
            }
            drop(place);
        });
    }
    connections.close();
    connections.wait().await;
    door.calls.close();
    door.calls.wait().await;
}

/// What connections share.
struct Door {
    gate: Arc<Gate>,
    caller: Caller,
    /// Calls in tasks of their own; some outlive their connection.
    calls: TaskTracker,
    /// Which connection took the last call that answers at once.
    last: AtomicU64,
    stop: Cancel,
    /// Ends calls under way.
    end: Arc<Cancel>,
}

/// One connection.
struct Bridge {
    frames: Frames,
    /// From 1.
    number: u64,
}

impl Door {
    /// One connection to its end.
    async fn converse(&self, mut bridge: Bridge) {
        let mut out = Vec::new();
        // Made once: to wait for it anew with each frame would cost as much as to read one.
        let mut stopped = std::pin::pin!(self.stop.cancelled());
        while !self.stop.is_cancelled() {
            // `Frames::next` is cancel safe: bytes that were read stay in its decoder. Biased
            // because a request that has arrived needs no look at the stop, which the loop checks
            // between two requests.
            let next = tokio::select! {
                biased;
                next = bridge.frames.next() => next,
                () = &mut stopped => return,
            };
            let goes_on = match next {
                Ok(Some(payload)) => {
                    let Some(()) = self.answer(&payload, &bridge, &mut out).await else {
                        return; // nobody is left to tell
                    };
                    true
                }
                Ok(None) | Err(Lost::Io(_)) => return,
                Err(Lost::Frame(error)) => {
                    // What follows a bad frame can not be read; the bridge is told why. B-5.
                    let kind = match error {
                        callgate_wires::bridge::FrameError::TooLarge { .. } => SIZE_ERROR,
                        callgate_wires::bridge::FrameError::Cut { .. } => IPC_ERROR,
                    };
                    write_error(&Said::new(kind, error.to_string()), &mut out);
                    false
                }
            };
            let given_up = async {
                self.stop.cancelled().await;
                tokio::time::sleep(FAREWELL).await;
            };
            // A dropped write may have sent half a frame. The connection is closed then, so the
            // bridge reports it as lost; the outcome is in the journal. Biased so that an answer
            // the socket has room for is written even if the patience is over.
            let written = tokio::select! {
                biased;
                written = bridge.frames.write(&out) => written.is_ok(),
                () = given_up => false,
            };
            if !written || !goes_on {
                return;
            }
            out.clear();
            if out.capacity() > 1 << 20 {
                out = Vec::new();
            }
        }
    }

    /// Carries one payload out and appends its answer; `None` if the bridge went away.
    async fn answer(&self, payload: &[u8], bridge: &Bridge, out: &mut Vec<u8>) -> Option<()> {
        let asked = match CallTool::parse(payload) {
            Ok(asked) => asked,
            Err(said) => {
                write_error(&said, out);
                return Some(());
            }
        };
        let (call, found, told) = match self.call_of(asked) {
            Ok(made) => made,
            Err(said) => {
                write_error(&said, out);
                return Some(());
            }
        };
        let (id, mut ends_with_connection) = (call.id, None);
        let attempt = self.gate.attempt(call, found, |call| {
            let cancel = self.end.child_token();
            call.cancel = Arc::new(cancel.clone());
            ends_with_connection = call.key.is_none().then(|| cancel.drop_guard());
        });
        let outcome = match attempt {
            Attempt::Done(mut answer) => {
                let settled = self.settle(answer.ticket, bridge.number).await;
                if let Err(fault) = settled {
                    answer.outcome.result = Err(fault);
                }
                answer.outcome
            }
            // Boxed, so that what is answered at once has no room for it.
            Attempt::Pending(pending) => Box::pin(self.wait_for(pending, id, bridge)).await?,
        };
        drop(ends_with_connection);
        if let Err(said) = write_outcome(&told, outcome, out) {
            write_error(&said, out);
        }
        Some(())
    }

    /// A call as it was asked for, and its tool.
    fn call_of(&self, asked: CallTool) -> Result<(Call, FoundTool, Told), Said> {
        let knows_us = asked.meta.is_some();
        let meta = asked.meta.transpose();
        let meta = meta.map_err(|error| Said::new(VALUE_ERROR, error.message))?;
        let meta = meta.unwrap_or_default();
        let found = self.gate.find(&asked.name);
        let told = Told {
            shape: found.tool().map_or_else(Shape::default, Shape::of),
            knows_us,
        };
        let input = Document::from_value(Value::Object(asked.arguments));
        let (id, caller) = (self.gate.next_id(), self.caller.clone());
        // One of its own is made for a call that waits.
        let cancel = Arc::clone(&self.end);
        let mut call = Call::new(id, &asked.name, input, caller, Wire::Bridge, cancel);
        call.key = meta
            .idempotency_key
            .as_deref()
            .and_then(IdempotencyKey::new);
        call.lease = meta.lease_token.as_deref().map(LeaseToken::new);
        if let Some((trace, span)) = meta.trace() {
            call.trace_id = Some(trace.to_owned());
            call.parent_span = Some(span.to_owned());
        }
        call.fits = match told {
            Told { shape, .. } if shape.gives_content => fits_content,
            Told { shape, knows_us } if shape.structured && knows_us => fits_twice,
            Told { .. } => fits_text,
        };
        Ok((call, found, told))
    }

    async fn wait_for(&self, pending: PendingCall, id: CallId, bridge: &Bridge) -> Option<Outcome> {
        // A task of its own, so that the outcome is recorded whatever becomes of the bridge.
        let work = pending.settled(Arc::clone(&self.gate));
        let work = self.calls.spawn(work);
        // Dropping the handle detaches the task, which records the outcome. Biased so that an
        // outcome that is there is answered even if the bridge closes at the same time.
        tokio::select! {
            biased;
            done = work => Some(done.unwrap_or_else(|_| lost_outcome(id))),
            () = bridge.frames.closed() => None,
        }
    }
}

impl Door {
    /// Makes the record of a call safe that waited for nothing outside. Where several bridges call
    /// at the same time, the others come first, so that one write does it for all of them.
    async fn settle(&self, ticket: Ticket, bridge: u64) -> Result<(), Fault> {
        let alone = self.last.swap(bridge, Ordering::Relaxed) == bridge;
        if !alone {
            others_first().await;
        }
        self.gate.settle(ticket).await
    }
}

/// How a call's outcome is told.
struct Told {
    shape: Shape,
    /// The bridge sent metadata, so it can take ours.
    knows_us: bool,
}

/// Appends the frame of an outcome, or gives the error to be told instead.
fn write_outcome(told: &Told, outcome: Outcome, out: &mut Vec<u8>) -> Result<(), Said> {
    let text_bytes = outcome.result.as_ref().map_or(0, |o| o.json.text().len());
    // bound: the text of the output
    let mut result = Vec::with_capacity(text_bytes + 128);
    result.extend_from_slice(b"{\"content\":");
    match &outcome.result {
        // A foreign bridge knows nothing of structure, nor of links.
        Ok(output) => Shape {
            structured: told.shape.structured && told.knows_us,
            links: told.shape.links && told.knows_us,
            ..told.shape
        }
        .write(output, &mut result),
        // A tool's own content says more than its message would.
        Err(Fault::ToolFailed {
            content: Some(content),
            ..
        }) => {
            json::write_value(content, &mut result);
            result.extend_from_slice(b",\"isError\":true");
        }
        Err(fault) => return Err(said(fault)),
    }
    if told.knows_us {
        let known = CallBody::of(&outcome).without_fault();
        result.extend_from_slice(b",\"_meta\":{\"");
        result.extend_from_slice(meta::CALL.as_bytes());
        result.extend_from_slice(b"\":");
        json::write(&known, &mut result);
        result.push(b'}');
    }
    result.push(b'}');
    // Only an outcome recorded by another wire can be too large here: ours are checked before
    // they are recorded.
    write_result(&result, out).map_err(|_| said(&too_large()))
}

/// Whether an output fits a frame, as content that it is.
fn fits_content(_: &Call, output: &Output) -> Result<(), Fault> {
    fits(output.json.text().len())
}

/// The same, as one text.
fn fits_text(_: &Call, output: &Output) -> Result<(), Fault> {
    fits(text_bytes(output))
}

/// The same, as a text and once more as it is.
fn fits_twice(_: &Call, output: &Output) -> Result<(), Fault> {
    fits(text_bytes(output) + output.json.text().len())
}

/// Escaping makes a byte six at most, and most outputs are small: those are not counted.
fn text_bytes(output: &Output) -> usize {
    let bytes = output.json.text().len();
    if bytes < MESSAGE_BYTES_MAX / 8 {
        bytes
    } else {
        json_text_len(as_text(output))
    }
}

/// What stands around an output is bounded by `AROUND_BYTES`.
fn fits(bytes: usize) -> Result<(), Fault> {
    const AROUND_BYTES: usize = 1024;
    if bytes + AROUND_BYTES <= MESSAGE_BYTES_MAX {
        Ok(())
    } else {
        Err(too_large())
    }
}

fn too_large() -> Fault {
    Fault::too_large("output", MESSAGE_BYTES_MAX as u64)
}

/// One fault, on this wire. Table F.
pub(super) fn said(fault: &Fault) -> Said {
    let kind = match fault {
        Fault::UnknownTool { tool, .. } => {
            return Said::new("ToolNotFoundError", format!("Unknown tool: {tool}"));
        }
        Fault::BadRequest { .. } | Fault::BadInput { .. } | Fault::BadValue { .. } => VALUE_ERROR,
        Fault::NotFound { .. } => "FileNotFoundError",
        // Nobody can be asked on this wire: like an approval, it must come by another one.
        Fault::Denied { .. }
        | Fault::NeedsApproval { .. }
        | Fault::NeedsInput { .. }
        | Fault::LeaseRequired { .. }
        | Fault::LeaseRejected { .. }
        | Fault::Unenforceable { .. }
        | Fault::GuaranteeBlocked { .. } => "PermissionError",
        Fault::Conflict { .. } => "ConflictError",
        Fault::OutcomeUnknown { .. } => "OutcomeUnknownError",
        Fault::RateLimited { .. } => "RateLimitError",
        Fault::BreakerOpen { .. } | Fault::Unavailable { .. } => "ToolUnavailableError",
        Fault::TooLarge { .. } => SIZE_ERROR,
        Fault::Timeout { .. } => "TimeoutError",
        Fault::Crash { .. } => "ToolCrashError",
        Fault::BadOutput { .. } => "ToolOutputError",
        Fault::ToolFailed { error_type, .. } if error_type.is_empty() => "ToolError",
        Fault::ToolFailed { error_type, .. } => error_type,
        Fault::Cancelled => "CancelledError",
        Fault::Internal { .. } => "RuntimeError",
    };
    Said::new(kind, fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-1 to F-24: the names of exceptions a bridge sees.
    #[test]
    fn faults() {
        use Duration as D;
        let text = String::new;
        let lease = callgate_call::LeaseRefusal::Expired;
        for (fault, kind) in [
            (Fault::unknown_tool("x"), "ToolNotFoundError"),
            (Fault::BadRequest { reason: text() }, "ValueError"),
            (Fault::bad_value(text()), "ValueError"),
            (Fault::NotFound { message: text() }, "FileNotFoundError"),
            (Fault::denied(text()), "PermissionError"),
            (Fault::NeedsApproval { approval: text() }, "PermissionError"),
            (
                Fault::NeedsInput {
                    requests: serde_json::Map::new(),
                    state: None,
                },
                "PermissionError",
            ),
            (Fault::LeaseRejected { refusal: lease }, "PermissionError"),
            (Fault::conflict(text()), "ConflictError"),
            (
                Fault::OutcomeUnknown {
                    call: text(),
                    reason: None,
                },
                "OutcomeUnknownError",
            ),
            (Fault::rate_limited(D::ZERO), "RateLimitError"),
            (
                Fault::BreakerOpen {
                    retry_after: D::ZERO,
                },
                "ToolUnavailableError",
            ),
            (
                Fault::Unavailable { reason: text() },
                "ToolUnavailableError",
            ),
            (Fault::Unenforceable { missing: vec![] }, "PermissionError"),
            (
                Fault::GuaranteeBlocked {
                    guarantee: text(),
                    detail: text(),
                },
                "PermissionError",
            ),
            (too_large(), "IPCMessageSizeError"),
            (Fault::Timeout { after: D::ZERO }, "TimeoutError"),
            (Fault::Crash { message: text() }, "ToolCrashError"),
            (Fault::BadOutput { reason: text() }, "ToolOutputError"),
            (Fault::Cancelled, "CancelledError"),
            (Fault::Internal { message: text() }, "RuntimeError"),
        ] {
            assert_eq!(said(&fault).kind, kind, "{fault:?}");
        }
        let failed = |error_type: &str| Fault::ToolFailed {
            error_type: error_type.to_owned(),
            message: "m".to_owned(),
            content: None,
        };
        assert_eq!(said(&failed("KeyError")), Said::new("KeyError", "m"));
        assert_eq!(said(&failed("")).kind, "ToolError");
        let unknown = said(&Fault::unknown_tool("x"));
        assert_eq!(unknown.message, "Unknown tool: x");
    }
}
