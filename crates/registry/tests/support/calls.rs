//! Calls of tools in a workspace that is opened for each, and what they leave in the chain.

use callgate_call::{Call, Caller, Cancel, Document, Fault, IdempotencyKey, Outcome, Wire};
use serde_json::{Value, json};

use super::in_process::{Folder, Opened, block_on};

/// The outcome of one call, made as `callgate call` makes it.
pub fn outcome(opened: &Opened, tool: &str, input: &Value, key: Option<&str>) -> Outcome {
    let gate = opened.gate().expect("a setup");
    let caller = Caller::uid(opened.parts.environment.uid);
    let input = Document::from_value(input.clone());
    let id = gate.next_id();
    let mut call = Call::new(id, tool, input, caller, Wire::Gate, Cancel::new());
    call.key = key.and_then(IdempotencyKey::new);
    block_on(gate.call(&call))
}

/// The reason why the configuration in `folder` cannot be trusted.
pub fn refusal(folder: &Folder) -> String {
    let trusted = Opened::new(folder).trust();
    trusted.expect_err("the configuration was trusted")
}

/// The result of one call in a workspace that is opened for it.
pub fn call(folder: &Folder, tool: &str, input: &Value) -> Result<Value, Fault> {
    let outcome = outcome(&Opened::new(folder), tool, input, None);
    outcome.result.map(|output| output.json.into_value())
}

/// The output of one call without input, which must succeed.
pub fn output(folder: &Folder, tool: &str) -> Value {
    call(folder, tool, &json!({})).unwrap_or_else(|fault| panic!("{tool}: {fault}"))
}

/// The words of one call without input, which must fail: those of the fault and of the hint.
pub fn failure(folder: &Folder, tool: &str) -> String {
    let outcome = outcome(&Opened::new(folder), tool, &json!({}), None);
    let hint = outcome.hint.map(|hint| hint.to_value().to_string());
    match outcome.result {
        Ok(output) => panic!("{tool}: {}", output.json.value()),
        Err(fault) => format!("{fault}\n{}", hint.unwrap_or_default()),
    }
}

/// The kind of the fault of one call; `None` if the call gave an output.
pub fn fault(folder: &Folder, tool: &str, input: &Value) -> Option<&'static str> {
    call(folder, tool, input).err().map(|fault| fault.kind())
}

/// The kind of the fault of one call without input in an open workspace.
pub fn fault_of(opened: &Opened, tool: &str) -> Option<&'static str> {
    let outcome = outcome(opened, tool, &json!({}), None);
    outcome.result.err().map(|fault| fault.kind())
}
