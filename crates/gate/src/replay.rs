//! Replay: what an idempotency key says before anything runs. Decisions G-3, G-4.

use callgate_call::{Call, CallId, Document, Fault, Output, Tool};
use callgate_store::{KeyId, Recorded, Seen};

use crate::invoke::{Gate, internal, view_of};

/// The recorded end of an earlier call with the same key.
pub struct Earlier {
    pub call: CallId,
    pub key: KeyId,
    pub result: Result<Output, Fault>,
}

impl Gate {
    /// The earlier outcome that answers this call, if there is one. Waits for a call that is
    /// under way, here or in another process.
    pub(crate) async fn earlier(
        &self,
        call: &Call,
        tool: &Tool,
        key: Option<KeyId>,
    ) -> Result<Option<Earlier>, Fault> {
        let Some(key) = key else { return Ok(None) };
        let (input, view) = (call.input.digest(), view_of(call));
        let mut seen = self
            .store
            .peek(&key, &tool.name, &input, view)
            .map_err(|error| internal(&error))?;
        if matches!(seen, Seen::InFlight { .. }) {
            let patience = call.timeout(tool.timeout);
            // Boxed: it is rare, and large in a future that every call has.
            let waited = self
                .store
                .wait_finished(&key, &tool.name, &input, view, patience);
            seen = tokio::select! {
                seen = Box::pin(waited) => seen.map_err(|error| internal(&error))?,
                () = call.cancel.cancelled() => return Err(Fault::Cancelled),
            };
        }
        match seen {
            Seen::New => Ok(None),
            Seen::Finished(recorded) => Ok(Some(earlier(key, recorded))),
            Seen::InFlight { .. } => Err(Fault::Timeout {
                after: call.timeout(tool.timeout),
            }),
            Seen::Conflict { call } => Err(Fault::conflict(format!(
                "idempotency_conflict: the key was used with another tool or input by call {call}"
            ))),
            Seen::Unknown { .. } if tool.idempotent => Ok(None),
            Seen::Unknown { call } => Err(Fault::OutcomeUnknown {
                call: call.to_string(),
            }),
        }
    }
}

fn earlier(key: KeyId, recorded: Recorded) -> Earlier {
    let result = match recorded.result {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(value) => Ok(Output::new(Document::new(value, text))),
            Err(error) => Err(Fault::Internal {
                message: format!("recorded output is not JSON: {error}"),
            }),
        },
        Err(fault) => Err(Fault::recorded(&fault.kind, &fault.message, &fault.data)),
    };
    Earlier {
        call: recorded.call,
        key,
        result,
    }
}
