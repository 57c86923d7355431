//! What everyone may hear of a run while it runs: `runs/updated`.

use callgate_call::{Audience, Topics};
use serde_json::{Value, json};

use super::keep::Kept;

/// Tells of one run; of none by default.
#[derive(Clone, Default)]
pub(super) struct News {
    topics: Option<Topics>,
    run: Value,
}

impl News {
    pub fn new(topics: &Topics, run_id: &str, job_id: Option<&str>, attempt: u32) -> Self {
        let mut run = json!({ "run_id": run_id, "attempt": attempt });
        if let Some(job_id) = job_id {
            run["job_id"] = json!(job_id);
        }
        let topics = Some(topics.clone());
        Self { topics, run }
    }

    pub fn started(&self) {
        self.publish("started", json!({}));
    }

    pub fn artifact(&self, kept: &Kept) {
        self.publish("artifact", json!({ "artifact": shown(kept) }));
    }

    pub fn ended(&self, outcome: &str) {
        self.publish("ended", json!({ "outcome": outcome }));
    }

    fn publish(&self, state: &str, more: Value) {
        let Some(topics) = &self.topics else { return };
        let mut body = self.run.clone();
        body["state"] = json!(state);
        if let (Value::Object(body), Value::Object(more)) = (&mut body, more) {
            body.extend(more);
        }
        topics.publish("runs/updated", body.to_string(), Audience::Everyone);
    }
}

/// A run as its report names it, in the words of MCP for what can be read.
pub(super) fn shown_run(run_id: &str) -> Value {
    json!({
        "uri": format!("callgate://runs/{run_id}"),
        "name": run_id,
        "mimeType": "application/json",
    })
}

/// An artifact as reports list it, in the words of MCP for what can be read.
pub(super) fn shown(kept: &Kept) -> Value {
    let digest = format!("b3-{}", kept.digest.to_hex());
    json!({
        "uri": format!("callgate://artifacts/{digest}"),
        "artifact_id": kept.whole.artifact_id,
        "digest": digest,
        "name": kept.whole.name,
        "mimeType": kept.whole.content_type,
        "size": kept.whole.bytes,
    })
}
