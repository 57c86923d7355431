//! What is seen of runs while they stream. The readers of their streams write it, whoever draws
//! it looks at it; neither waits for the other longer than a copy takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use callgate_call::{RunArtifact, RunEvent, RunEye, RunStart, RunWatch};
use serde_json::Value;

use super::fan::{Bounds, Fan};

/// Types of events that are counted by name; further ones, and those with long names, together.
const KINDS_MAX: usize = 64;
const KIND_BYTES_MAX: usize = 64;
/// The longest line of a log event that is shown.
const LOG_LINE_MAX: usize = 16 * 1024;

/// All runs of one command, together.
pub struct Live {
    seen: Arc<Mutex<Seen>>,
    pub fan: Arc<Fan>,
}

/// How far they are.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub events: u64,
    pub kinds: BTreeMap<String, u64>,
    /// Those that exist.
    pub artifacts: u64,
    /// Of all artifacts, those to come as well.
    pub artifact_bytes: u64,
    /// The newest log event as it was written.
    log: Vec<u8>,
}

impl Live {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            seen: Arc::default(),
            fan: Arc::new(Fan::new(bounds)),
        }
    }

    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }
}

impl Seen {
    /// The newest log event, in words.
    pub fn last_log(&self) -> Option<String> {
        let event: Value = serde_json::from_slice(&self.log).ok()?;
        let (level, message) = (&event["payload"]["level"], &event["payload"]["message"]);
        Some(format!(
            "{}: {}",
            level.as_str().unwrap_or("log"),
            message.as_str()?
        ))
    }

    fn count(&mut self, kind: &str) {
        self.events += 1;
        if let Some(count) = self.kinds.get_mut(kind) {
            *count += 1;
            return;
        }
        let by_name = self.kinds.len() < KINDS_MAX && kind.len() <= KIND_BYTES_MAX;
        let name = if by_name { kind } else { "others" };
        *self.kinds.entry(name.to_owned()).or_default() += 1;
    }
}

impl RunWatch for Live {
    fn begins(&self, run: &RunStart) -> Box<dyn RunEye> {
        Box::new(Eye {
            run_id: run.run_id.clone(),
            seen: Arc::clone(&self.seen),
            fan: Arc::clone(&self.fan),
        })
    }
}

struct Eye {
    run_id: String,
    seen: Arc<Mutex<Seen>>,
    fan: Arc<Fan>,
}

impl RunEye for Eye {
    fn event(&mut self, event: &RunEvent<'_>) {
        let mut seen = lock(&self.seen);
        seen.count(event.kind);
        if event.kind == "log" && event.line.len() <= LOG_LINE_MAX {
            seen.log.clear();
            seen.log.extend_from_slice(event.line);
        }
        drop(seen);
        if event.kind == "enqueue" {
            self.fan.offer(&self.run_id, event.line);
        }
    }

    fn bytes(&mut self, bytes: usize) {
        lock(&self.seen).artifact_bytes += bytes as u64;
    }

    fn committed(&mut self, _: &RunArtifact<'_>) {
        lock(&self.seen).artifacts += 1;
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Counters are whole whenever the lock is free.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script may make up types, of any length: at the bounds and past them.
    #[test]
    fn types_are_bounded() {
        let mut seen = Seen::default();
        let (longest, longer) = ("x".repeat(KIND_BYTES_MAX), "x".repeat(KIND_BYTES_MAX + 1));
        seen.count(&longest);
        seen.count(&longer);
        for number in 2..=KINDS_MAX {
            seen.count(&number.to_string());
        }
        assert_eq!(seen.events, KINDS_MAX as u64 + 1);
        assert_eq!(seen.kinds.get(&longest), Some(&1));
        assert_eq!(seen.kinds.get("others"), Some(&2));
        assert_eq!(seen.kinds.len(), KINDS_MAX);
    }
}
