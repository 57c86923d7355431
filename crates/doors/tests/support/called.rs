//! Leases that are granted, and calls that are made, as the owner's commands do it.

use std::sync::Arc;

use callgate_call::{Call, Caller, Cancel, Document, LeaseToken, Wire};
use callgate_doors::http::outcome_body;
use callgate_gate::{Gate, LeaseRequest};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use callgate_testing_workspace::{Folder, Opened, block_on};

/// A request for a lease of this tool and nothing else.
pub fn lease(tool: &str) -> LeaseRequest {
    LeaseRequest {
        tool: tool.to_owned(),
        tier: None,
        ttl: None,
        caller: None,
        input: None,
    }
}

/// Grants a lease. Returns its token.
pub fn grant(folder: &Folder, request: &LeaseRequest) -> String {
    let gate = Opened::new(folder).gate().expect("a setup");
    let granted = gate.grant_lease(request).expect("a lease");
    let token = granted.token.reveal().to_owned();
    let hex = token.strip_prefix("lease_").expect("T-4: its form");
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    assert!(hex.len() == 32 && hex.chars().all(is_hex), "{token}");
    token
}

/// The body that a call of the owner's gets, with a lease if there is one.
pub fn called(folder: &Folder, tool: &str, input: &Value, lease: Option<&str>) -> Value {
    let opened = Opened::new(folder);
    let gate = opened.gate().expect("a setup");
    let caller = Caller::uid(opened.parts.environment.uid);
    let input = Document::from_value(input.clone());
    let id = gate.next_id();
    let mut call = Call::new(id, tool, input, caller, Wire::Gate, Cancel::new());
    call.lease = lease.map(LeaseToken::new);
    outcome_body(block_on(gate.call(&call)))
}

/// A gate that stays, so that its tools keep their workers, for calls of the owner's.
pub struct Gateway {
    runtime: Runtime,
    gate: Arc<Gate>,
    opened: Opened,
}

impl Gateway {
    /// Opens the workspace in `folder`.
    pub fn start(folder: &Folder) -> Self {
        let opened = Opened::new(folder);
        let runtime = Builder::new_current_thread().enable_all().build();
        Self {
            runtime: runtime.expect("a runtime"),
            gate: opened.gate().expect("a setup"),
            opened,
        }
    }

    /// The body that a request with a `tool` and an `input` gets.
    pub fn call(&self, body: &Value) -> Value {
        let tool = body["tool"].as_str().expect("a tool");
        let caller = Caller::uid(self.opened.parts.environment.uid);
        let input = Document::from_value(body["input"].clone());
        let id = self.gate.next_id();
        let call = Call::new(id, tool, input, caller, Wire::Gate, Cancel::new());
        outcome_body(self.runtime.block_on(self.gate.call(&call)))
    }

    /// Puts the configuration in force in place, as a gate does that watches it.
    pub fn reload(&self) {
        self.gate
            .replace(self.opened.parts.setup().expect("a setup"));
    }
}
