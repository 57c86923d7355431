//! What one listener is told: events that are for it, of tools it may know of, and the gap where
//! it fell behind.

use std::sync::Arc;

use callgate_call::{Event, Notification, Subscription, Told};
use callgate_gate::Gate;
use callgate_text::write_json_text;
use serde_json::json;

use super::Peer;

/// Tells of events that were missed.
const GAP: &str = "rpc/gap";

/// What `rpc/gap` says.
pub(super) fn gap() -> Notification {
    Notification {
        name: GAP,
        schema: json!({
            "type": "object",
            "properties": { "missed": { "type": ["integer", "null"], "minimum": 1 } },
            "required": ["missed"],
            "additionalProperties": false,
        }),
    }
}

/// Events for one who listens.
pub(super) struct News {
    gate: Arc<Gate>,
    peer: Peer,
    subscription: Subscription,
}

impl News {
    pub fn new(gate: Arc<Gate>, peer: Peer, subscription: Subscription) -> Self {
        Self {
            gate,
            peer,
            subscription,
        }
    }

    /// Where to go on from to miss nothing.
    pub fn place(&self) -> u64 {
        self.subscription.place()
    }

    /// What there is to be told already.
    pub fn now(&mut self) -> Option<Told> {
        loop {
            let told = self.subscription.now()?;
            if self.is_for_them(&told) {
                return Some(told);
            }
        }
    }

    /// The next thing, when it happens. Nothing is lost where this is given up.
    pub async fn next(&mut self) -> Told {
        loop {
            let told = self.subscription.next().await;
            if self.is_for_them(&told) {
                return told;
            }
        }
    }

    fn is_for_them(&self, told: &Told) -> bool {
        let (caller, scope) = (&self.peer.caller, self.peer.scope.as_deref());
        match told {
            Told::Gap(_) => true,
            Told::Event(event) => self.gate.may_hear(event.name, caller, scope),
        }
    }
}

/// What is told, as a notification.
pub(super) fn notification(told: &Told) -> Vec<u8> {
    match told {
        Told::Event(Event { name, body, .. }) => written(name, body),
        Told::Gap(missed) => written(GAP, &format!("{{\"missed\":{missed}}}")),
    }
}

/// Nobody knows how much was missed: it was told, or not, by another process.
pub(super) fn lost() -> Vec<u8> {
    written(GAP, "{\"missed\":null}")
}

fn written(method: &str, params: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(method.len() + params.len() + 48);
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":");
    write_json_text(method, &mut out);
    out.extend_from_slice(b",\"params\":");
    out.extend_from_slice(params.as_bytes());
    out.push(b'}');
    out
}
