//! What the journal keeps of runs: their start, their end, and the artifacts they committed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartDoc {
    pub(crate) run: String,
    /// Hex.
    pub(crate) call: String,
    pub(crate) attempt: u32,
    pub(crate) job: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) dataset: String,
    pub(crate) source: String,
    pub(crate) category: String,
    pub(crate) day: String,
    pub(crate) policy: String,
    /// The process that keeps it.
    pub(crate) owner: u64,
    pub(crate) at: u64,
}

/// A run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndDoc {
    pub(crate) run: String,
    pub(crate) at: u64,
    pub(crate) verdict: String,
    pub(crate) received: u64,
    pub(crate) persisted: u64,
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Of `events.jsonl`: its bytes, and their digest in hex.
    pub(crate) events_bytes: u64,
    pub(crate) events: String,
    /// The digest of `report.json`.
    pub(crate) report: String,
}

/// A run's process died before its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LostDoc {
    pub(crate) run: String,
    pub(crate) at: u64,
}

/// An artifact exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArtifactDoc {
    pub(crate) run: String,
    pub(crate) artifact: String,
    pub(crate) name: String,
    pub(crate) content_type: String,
    pub(crate) bytes: u64,
    /// Hex.
    pub(crate) digest: String,
    pub(crate) at: u64,
}

/// How a run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Closed {
    Ended(EndDoc),
    Lost(LostDoc),
}
