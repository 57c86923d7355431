//! What the chain says of the same call by every wire, which must be the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::wires::{WIRES, recorded_as};

/// How many calls there are of each wire, by its name in records.
pub type Counts = BTreeMap<&'static str, usize>;

/// What there is of each when every wire has made so many calls.
pub fn each(times: usize) -> Counts {
    let mut wanted = BTreeMap::new();
    for wire in WIRES {
        *wanted.entry(recorded_as(wire)).or_insert(0) += times;
    }
    wanted
}

fn outcome_of<'a>(records: &'a [Value], start: &Value) -> Option<&'a Value> {
    let is_its = |record: &&Value| record["kind"] == "outcome" && record["call"] == start["call"];
    records.iter().find(is_its)
}

pub fn is_good(records: &[Value], start: &Value) -> bool {
    let outcome = outcome_of(records, start);
    outcome.is_some_and(|outcome| outcome.get("fault").is_none())
}

/// A record without what is different for every call.
fn shape(record: &Value) -> Value {
    let own = [
        "seq", "at", "call", "wire", "took_ms", "tool", "aid", "key", "input", "output", "lease",
        "earlier",
    ];
    let mut record = record.clone();
    if let Some(members) = record.as_object_mut() {
        members.retain(|name, _| !own.contains(&name.as_str()));
    }
    record
}

/// These are the same for every wire, of which each has as many as it should; gives one of them.
fn alike(what: &str, found: &[(&str, Vec<Value>)], wanted: &Counts) -> Vec<Value> {
    let mut counts = BTreeMap::new();
    for (wire, _) in found {
        *counts.entry(*wire).or_insert(0) += 1;
    }
    assert_eq!(&counts, wanted, "{what}");
    let (_, first) = &found[0];
    for (wire, other) in found {
        assert_eq!(other, first, "{what}: {wire}");
    }
    first.clone()
}

fn wire_of(record: &Value) -> &str {
    record["wire"].as_str().unwrap_or_default()
}

/// What the chain says of a call that was refused or failed is the same for every wire too, the
/// digest of its input included. The tool may be one of several, each of a wire of its own. A
/// pilot's call has a key, and so may have a start of its own.
pub fn same_faults(records: &[Value], tool: &str, kind: &str, wanted: &Counts) {
    let of_wires = WIRES.map(|wire| format!("{tool}/{wire}"));
    let names = of_wires.into_iter().chain([tool.to_owned()]);
    let names: BTreeSet<String> = names
        .flat_map(|name| [callgate_call::aid_of_name(&name), name])
        .collect();
    let mut found = Vec::new();
    for end in records.iter().filter(|record| record["fault"] == kind) {
        let is_start = |record: &&Value| record["kind"] == "start" && record["call"] == end["call"];
        let start = records.iter().find(is_start);
        let first = start.unwrap_or(end);
        let named = first["tool"]
            .as_str()
            .is_some_and(|tool| names.contains(tool));
        if named && wire_of(first) != "pilot" && first.get("key").is_none() {
            let mut said: Vec<Value> = start.map(shape).into_iter().collect();
            said.extend([shape(end), first["input"].clone()]);
            found.push((wire_of(first), said));
        }
    }
    alike(&format!("{tool}, {kind}"), &found, wanted);
}

/// What the chain says of these calls is the same for every wire but its name and what is
/// different for every call; gives the kinds of their records.
pub fn same_records(
    records: &[Value],
    wanted: &Counts,
    of: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let starts = records.iter().filter(|record| record["kind"] == "start");
    let kind_of = |record: &Value| record["kind"].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for start in starts.filter(|start| of(start)) {
        assert!(outcome_of(records, start).is_some(), "{start}");
        let its = records
            .iter()
            .filter(|record| record["call"] == start["call"])
            // What a pilot notes of its own is not of the call.
            .filter(|record| !kind_of(record).starts_with("pilot."));
        found.push((wire_of(start), its.map(shape).collect()));
    }
    let first = alike("calls", &found, wanted);
    first.iter().map(kind_of).collect()
}

/// The same for calls that were answered by an earlier one, each wire's so many.
pub fn same_replays(records: &[Value], tool: &str, times: usize) {
    let replays = records.iter().filter(|record| record["kind"] == "replay");
    let found: Vec<_> = replays
        .inspect(|replay| assert_eq!(replay["tool"], tool))
        .map(|replay| (wire_of(replay), vec![shape(replay)]))
        .collect();
    alike("replays", &found, &each(times));
}
