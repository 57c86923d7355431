//! Looking traces up. A call that has none (it was pure, its trace has left the ring, its gate
//! was killed) is told of as far as the chain knows it.

use std::collections::BTreeMap;

use callgate_store::{Filter, Store, StoreError};
use serde_json::{Value, json};

use super::document::status_of_kind;
use crate::invoke::Gate;

/// So many of the newest records are looked at for calls without a trace.
const RECORDS_MAX: usize = 4096;
/// So many calls of one beginning are told apart.
const SAME_MAX: usize = 8;

/// What a call's id, or the beginning of one, leads to.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// No such call.
    Nothing,
    /// Its trace.
    One(Box<Value>),
    /// The ids of several calls, not all of them perhaps.
    Several(Vec<String>),
}

/// A look-up that failed because the state could not be read.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TraceError(#[from] StoreError);

impl Gate {
    /// Returns the trace of the call whose id begins with `prefix`. Reads the whole ring of traces
    /// if it has to.
    pub fn find_trace(&self, prefix: &str) -> Result<Found, TraceError> {
        find_trace(&self.store, prefix)
    }
}

/// Returns the trace of the call whose id begins with `prefix`.
pub fn find_trace(store: &Store, prefix: &str) -> Result<Found, TraceError> {
    let is_id = prefix
        .bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if prefix.is_empty() || prefix.len() > 32 || !is_id {
        return Ok(Found::Nothing);
    }
    let kept = store.find_traces(prefix, SAME_MAX)?;
    let mut found: BTreeMap<String, Value> = kept.iter().filter_map(|text| read(text)).collect();
    if prefix.len() < 32 || found.is_empty() {
        for (call, trace) in of_chain(store, prefix, None)? {
            found.entry(call).or_insert(trace);
            if found.len() > SAME_MAX {
                break;
            }
        }
    }
    Ok(match found.len() {
        0 => Found::Nothing,
        1 => Found::One(Box::new(found.into_values().next().unwrap_or_default())),
        _ => Found::Several(found.into_keys().collect()),
    })
}

/// The newest `max` traces that `keep` wants, the newest call's first.
pub fn recent_traces(
    store: &Store,
    max: usize,
    keep: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, TraceError> {
    let mut found = of_chain(store, "", Some(RECORDS_MAX))?;
    found.retain(|_, trace| keep(trace));
    let mut kept = 0;
    store.show_traces(&mut |text| {
        if let Some((call, trace)) = read(text).filter(|(_, trace)| keep(trace)) {
            found.insert(call, trace);
            kept += 1;
        }
        kept < max
    })?;
    Ok(found.into_values().rev().take(max).collect())
}

/// A kept trace and whose it is; nothing if it is no whole one.
fn read(text: &str) -> Option<(String, Value)> {
    let trace: Value = serde_json::from_str(text).ok()?;
    Some((trace["call_id"].as_str()?.to_owned(), trace))
}

/// What the chain knows of calls, by their ids.
fn of_chain(
    store: &Store,
    prefix: &str,
    last: Option<usize>,
) -> Result<BTreeMap<String, Value>, StoreError> {
    let filter = Filter {
        last,
        call: (prefix.len() == 32).then(|| prefix.to_owned()),
        ..Filter::default()
    };
    let begins = format!("\"call\":\"{prefix}");
    let mut calls: BTreeMap<String, Value> = BTreeMap::new();
    store.show(&filter, &mut |record| {
        if !record.body.contains(&begins) {
            return true;
        }
        let body: Value = serde_json::from_str(record.body).unwrap_or_default();
        if let Some(call) = body["call"].as_str() {
            let fresh = || json!({ "call_id": call, "type": "tool_call", "from": "chain" });
            let known = calls.entry(call.to_owned()).or_insert_with(fresh);
            tell(known, &body);
        }
        prefix.is_empty() || calls.len() <= SAME_MAX
    })?;
    // An end whose start was not looked at says too little.
    calls.retain(|_, trace| trace["wire"].is_string());
    Ok(calls)
}

/// Adds what a record says of its call.
fn tell(trace: &mut Value, record: &Value) {
    let mut copy = |from: &str, to: &str| {
        if !record[from].is_null() {
            trace[to] = record[from].clone();
        }
    };
    copy("tool", "tool");
    copy("tool", "tool_name");
    copy("caller", "caller");
    copy("wire", "wire");
    copy("trace", "trace_id");
    copy("took_ms", "duration_ms");
    copy("earlier", "earlier");
    copy("fault", "fault");
    copy("fault", "error_type");
    copy("input", "input_digest");
    copy("output", "output_digest");
    if let Some(level) = record["enforcement"].as_str() {
        trace["enforcement"] = json!({ "level": level });
    }
    if trace["at_ms"].is_null() {
        trace["at_ms"] = record["at"].clone();
    }
    let status = match (record["kind"].as_str(), record["fault"].as_str()) {
        // Nobody knows: its gate died, or it is still running.
        (Some("start" | "unknown"), _) => "unknown",
        (Some("replay"), _) => "ok",
        (Some("call" | "outcome" | "refusal"), None) => "ok",
        (Some("call" | "outcome" | "refusal"), Some(kind)) => status_of_kind(kind),
        _ => return,
    };
    if record["kind"] == "replay" {
        trace["replayed"] = json!(true);
    }
    trace["status"] = json!(status);
}
