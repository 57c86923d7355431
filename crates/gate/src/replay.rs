//! Replay: what an idempotency key says before anything runs. Decisions G-3, G-4.

use std::collections::BTreeMap;

use callgate_call::{Artifact, Call, CallId, Document, Fault, Output, SlotChange, Tool};
use callgate_store::{KeyId, Recorded, Seen};

use crate::errors::internal;
use crate::invoke::{Gate, view_of};

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
        let peeked = self.store.peek(&key, &tool.name, &input, view);
        let seen = match peeked.map_err(|error| internal(&error))? {
            // Boxed: it is rare, and large in a future that every call has.
            Seen::InFlight { .. } => Box::pin(self.in_flight(call, tool, key)).await?,
            seen => seen,
        };
        match seen {
            Seen::New => Ok(None),
            Seen::Finished(recorded) => Ok(Some(earlier(key, recorded))),
            Seen::InFlight { .. } => Err(Fault::Timeout {
                after: call.timeout(tool.timeout),
            }),
            Seen::Conflict { call: other } => Err(self.conflict(call, tool, &key, other)),
            Seen::Unknown { .. } if tool.idempotent => Ok(None),
            Seen::Unknown { call } => Err(Fault::OutcomeUnknown {
                call: call.to_string(),
                reason: None,
            }),
        }
    }

    /// Returns the fault of a key that another call holds. Release 0.1.0 digested whole numbers from
    /// 2^53 on as doubles: a key it recorded with such a digest was used with this input or with
    /// another one, so it neither replays nor runs, also where the tool is idempotent.
    fn conflict(&self, call: &Call, tool: &Tool, key: &KeyId, other: CallId) -> Fault {
        let peek = |input| self.store.peek(key, &tool.name, &input, view_of(call));
        match call.input.digest_as_doubles().map(peek) {
            None | Some(Ok(Seen::Conflict { .. } | Seen::New)) => Fault::conflict(format!(
                "idempotency_conflict: the key was used with another tool or input by call {other}"
            )),
            Some(Ok(_)) => Fault::OutcomeUnknown {
                call: other.to_string(),
                reason: None,
            },
            Some(Err(error)) => internal(&error),
        }
    }

    /// What the key says once the call that has it is over, or has taken too long.
    async fn in_flight(&self, call: &Call, tool: &Tool, key: KeyId) -> Result<Seen, Fault> {
        let (input, view) = (call.input.digest(), view_of(call));
        let patience = call.timeout(tool.timeout);
        let waited = self
            .store
            .wait_finished(&key, &tool.name, &input, view, patience);
        // Dropping the wait loses nothing: it only looks at the key, which the other call settles.
        tokio::select! {
            seen = waited => seen.map_err(|error| internal(&error)),
            () = call.cancel.cancelled() => Err(Fault::Cancelled),
        }
    }
}

fn earlier(key: KeyId, recorded: Recorded) -> Earlier {
    let result = match recorded.result {
        Ok(text) => match serde_json::from_str(&text) {
            Ok(value) => Ok(Output {
                json: Document::new(value, text),
                slots: recorded.slots.as_deref().map(slots_of).unwrap_or_default(),
            }),
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

/// How a change of slots is kept: what is put, what is removed.
type Kept = (BTreeMap<u8, (String, String, String, u64)>, Vec<u8>);

/// A change of slots as text.
pub(crate) fn slots_text(change: &SlotChange) -> String {
    let fields = |artifact: &Artifact| {
        let Artifact {
            kind,
            provenance,
            content_json,
            size_bytes,
        } = artifact.clone();
        (kind, provenance, content_json, size_bytes)
    };
    let put = change.put.iter().map(|(slot, a)| (*slot, fields(a)));
    let kept: Kept = (put.collect(), change.removed.clone());
    serde_json::to_string(&kept).expect("plain values become JSON")
}

/// The change that such a text is of.
fn slots_of(text: &str) -> SlotChange {
    let Ok((put, removed)) = serde_json::from_str::<Kept>(text) else {
        return SlotChange::default();
    };
    let artifact = |(kind, provenance, content_json, size_bytes)| Artifact {
        kind,
        provenance,
        content_json,
        size_bytes,
    };
    SlotChange {
        put: put
            .into_iter()
            .map(|(slot, fields)| (slot, artifact(fields)))
            .collect(),
        removed,
    }
}
