//! What is written beside a run's events: its report, its manifest, and what kind its files are.

use callgate_call::{Digest, RunArtifact, RunFile, RunVerdict, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::events::EVENTS;
use super::log::KeptRun;

pub(super) const REPORT: &str = "report.json";
pub(super) const MANIFEST: &str = "manifest.json";

/// A committed artifact, in the manifest.
#[derive(Serialize)]
pub(super) struct ArtifactLine {
    artifact_id: String,
    name: String,
    content_type: String,
    size_bytes: u64,
    digest: String,
}

impl ArtifactLine {
    pub(super) fn new(artifact: &RunArtifact<'_>, digest: Digest) -> Self {
        Self {
            artifact_id: artifact.artifact_id.to_owned(),
            name: artifact.name.to_owned(),
            content_type: artifact.content_type.to_owned(),
            size_bytes: artifact.bytes,
            digest: digest.to_hex(),
        }
    }
}

/// A file, in the manifest.
#[derive(Serialize)]
pub(super) struct FileLine {
    name: String,
    content_type: String,
    size_bytes: u64,
    digest: String,
}

impl FileLine {
    pub(super) fn new(file: &RunFile<'_>) -> Self {
        Self {
            name: file.name.to_owned(),
            content_type: file.content_type.to_owned(),
            size_bytes: file.data.len() as u64,
            digest: Digest::of_bytes(file.data).to_hex(),
        }
    }
}

/// What stands beside a file: the name, and the text.
pub(super) fn meta_of(file: &RunFile<'_>) -> (String, Vec<u8>) {
    let meta = json!({ "content_type": file.content_type });
    (format!("{}.meta.json", file.name), json_line(&meta))
}

pub(super) fn json_line(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec(value).expect("a value becomes JSON");
    text.push(b'\n');
    text
}

impl KeptRun {
    pub(super) fn manifest(&self, verdict: RunVerdict, ended: Timestamp, report: &[u8]) -> Value {
        let (start, counts) = (&self.start, &self.counts);
        json!({
            "run_id": start.run_id,
            "call_id": start.call.to_string(),
            "attempt": start.attempt,
            "job_id": start.job_id,
            "parent_run_id": start.parent_run_id,
            "policy": start.policy.as_str(),
            "outcome": verdict.as_str(),
            "started_at": self.began.rfc3339(),
            "ended_at": ended.rfc3339(),
            "events": {
                "file": EVENTS,
                "received": counts.received,
                "persisted": counts.persisted,
                "dropped": counts.dropped,
                "flushes": counts.flushes,
                "rows": self.rows.by_name(),
                "size_bytes": self.events.bytes(),
                "digest": self.events.digest().to_hex(),
            },
            "report": {
                "file": REPORT,
                "size_bytes": report.len(),
                "digest": Digest::of_bytes(report).to_hex(),
            },
            "artifacts": self.artifacts,
            "files": self.files,
        })
    }
}
