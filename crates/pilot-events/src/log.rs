//! A run as a file of lines, each bound to the one before it by its hash. It is made of what is
//! recorded, and read again by whoever has nothing but the file. TH-147.

use callgate_call::Timestamp;
use callgate_store::PilotEvent;
use callgate_wires::json;
use callgate_wires::toolhost::RunHeader;
use serde_json::{Value, json};

use crate::state::sha256;

/// Deepest nesting of a line: a recorded input, and what stands around it.
const DEPTH_MAX: usize = 64;

/// The log of a run: one JSON line an event.
#[must_use]
pub fn write(header: &RunHeader, events: &[PilotEvent]) -> String {
    let mut before = "0".repeat(64);
    let mut text = String::new();
    for happened in events {
        let mut line = header.to_value();
        line["event"] = json!(happened.event);
        line["payload"] = happened.doc.clone();
        line["step"] = json!(happened.step);
        line["ts"] = json!(seconds(happened.at));
        let hash = sha256(&format!("{before}{}", canonical(&line)));
        line["chain_prev"] = json!(before);
        line["chain_hash"] = json!(hash);
        text.push_str(&line.to_string());
        text.push('\n');
        before = hash;
    }
    text
}

/// The events of a log, if every line follows from the one before it.
pub fn read(text: &str) -> Result<Vec<PilotEvent>, String> {
    let mut before = "0".repeat(64);
    let mut events = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = json::parse_text(line, DEPTH_MAX);
        let mut line = line.map_err(|error| format!("line {number} is not JSON: {error}"))?;
        let mut take = |name: &str| {
            let members = line.as_object_mut();
            members
                .and_then(|members| members.remove(name))
                .unwrap_or_default()
        };
        let (prev, hash) = (take("chain_prev"), take("chain_hash"));
        if prev != before.as_str() {
            return Err(format!(
                "line {number}: chain_prev is not the hash of the line before"
            ));
        }
        let wanted = sha256(&format!("{before}{}", canonical(&line)));
        if hash != wanted.as_str() {
            return Err(format!(
                "line {number} was changed: chain_hash does not fit"
            ));
        }
        before = wanted;
        let happened = event(&line).ok_or_else(|| format!("line {number} is no event"))?;
        events.push(happened);
        let run = events.first().map(|first| &first.doc["header"]);
        if run != Some(&header(line)) {
            return Err(format!(
                "line {number} is of another run than the first says"
            ));
        }
    }
    Ok(events)
}

fn event(line: &Value) -> Option<PilotEvent> {
    Some(PilotEvent {
        event: line["event"].as_str()?.to_owned(),
        step: u32::try_from(line["step"].as_u64()?).ok()?,
        at: Timestamp(0),
        doc: line.get("payload")?.clone(),
    })
}

/// What a line has of the run it belongs to.
fn header(mut line: Value) -> Value {
    if let Some(members) = line.as_object_mut() {
        members.retain(|name, _| !["event", "payload", "step", "ts"].contains(&name.as_str()));
    }
    line
}

/// Keys sorted at every level, compact, and a slash with a backslash before it, as the first
/// implementation wrote them.
fn canonical(line: &Value) -> String {
    line.to_string().replace('/', "\\/")
}

/// Whole seconds, UTC.
fn seconds(at: Timestamp) -> String {
    let text = at.rfc3339();
    text.split_once('.')
        .map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TH-147: the keys of a line, the chain, and that a change of any line shows.
    #[test]
    fn lines_are_chained() {
        let header = RunHeader {
            spec_version: "1.4.2".to_owned(),
            profile_id: "A".to_owned(),
            run_id: "0f".to_owned(),
            request_id: Some("r".to_owned()),
        };
        let happened = |event: &str, step, doc| PilotEvent {
            event: event.to_owned(),
            step,
            at: Timestamp(1_700_000_000_123),
            doc,
        };
        let events = [
            happened(
                "begin",
                0,
                json!({ "b": [1], "a": "x/y", "header": header.to_value() }),
            ),
            happened("noop", 1, json!({})),
        ];
        let text = write(&header, &events);
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let first = concat!(
            r#"{"event":"begin","payload":{"a":"x\/y","b":[1],"header":{"profile_id":"A","#,
            r#""request_id":"r","run_id":"0f","spec_version":"1.4.2"}},"profile_id":"A","#,
            r#""request_id":"r","run_id":"0f","spec_version":"1.4.2","step":0,"#,
            r#""ts":"2023-11-14T22:13:20Z"}"#
        );
        let zeros = "0".repeat(64);
        assert_eq!(lines[0]["chain_prev"], zeros);
        assert_eq!(lines[0]["chain_hash"], sha256(&format!("{zeros}{first}")));
        assert_eq!(lines[1]["chain_prev"], lines[0]["chain_hash"]);
        let back = read(&text).unwrap();
        let told = |e: &PilotEvent| (e.event.clone(), e.step, e.doc.clone());
        assert!(back.iter().map(told).eq(events.iter().map(told)));
        assert!(
            read(&text.replacen("\"noop\"", "\"done\"", 1))
                .unwrap_err()
                .contains("line 2")
        );
        assert!(
            read(&text.replacen("x/y", "x/z", 1))
                .unwrap_err()
                .contains("line 1")
        );
        let mut other = header;
        other.request_id = None;
        assert!(
            read(&write(&other, &events))
                .unwrap_err()
                .contains("another run")
        );
        assert!(
            read(text.split_once('\n').unwrap().1)
                .unwrap_err()
                .contains("chain_prev")
        );
    }
}
