//! `runs/list` and `runs/get`: what the store knows of runs.

use std::sync::Arc;

use callgate_call::{Fault, Job, Output, Tool, natural_number};
use callgate_store::{KeptArtifact, PilotRun, Run, RunCursor, RunFilter, RunState, Store};
use serde_json::{Value, json};

use super::kept::{self, KeptRun, RunKind, pilot_events};
use super::{TellPilot, unread};
use crate::{Builtin, builtin};

/// Runs of one page.
const RUNS_DEFAULT: u64 = 50;
const RUNS_MAX: u64 = 1000;
/// Events of one page, and their bytes.
const EVENTS_MAX: u64 = 1000;
const EVENTS_BYTES_MAX: usize = 512 * 1024;
/// Artifacts that are listed with a run.
const ARTIFACTS_MAX: usize = 1000;

/// `runs/list`.
pub fn list(store: Arc<Store>) -> Tool {
    let word = json!({ "type": "string" });
    let schema = crate::closed(
        json!({
            "kind": { "enum": ["stream", "pilot"] },
            "job_id": word,
            "state": { "enum": [
                "running", "lost", "success", "script_error", "executor_crash", "policy_failure",
                "version_mismatch", "noop", "goal_done", "ask_sup", "tool_error", "breaker",
            ] },
            "dataset": word,
            "source": word,
            "category": word,
            "limit": { "type": "integer", "minimum": 1, "maximum": RUNS_MAX, "default": RUNS_DEFAULT },
            "cursor": { "type": "integer", "minimum": 0,
                "description": "The `next` of the page before" },
        }),
        &[],
    );
    let function = move |job: &Job<'_>| listed(&store, job.call.input.value());
    reader(
        "runs/list",
        "AID.RUNS.LIST.v1",
        "List streamed runs and those of the pilot, the newest first",
        schema,
        function,
    )
}

/// `runs/get`.
pub fn get(store: Arc<Store>, tell: TellPilot) -> Tool {
    let schema = crate::closed(
        json!({
            "run_id": { "type": "string", "minLength": 1 },
            "events_from": { "type": "integer", "minimum": 0,
                "description": "Also the events from this one on, counted from 0" },
            "events_limit": { "type": "integer", "minimum": 1, "maximum": EVENTS_MAX,
                "default": EVENTS_MAX },
        }),
        &["run_id"],
    );
    let function = move |job: &Job<'_>| shown(&store, tell, job.call.input.value());
    reader(
        "runs/get",
        "AID.RUNS.GET.v1",
        "Show a run: its state, its artifacts or slots, its report, and some of its events",
        schema,
        function,
    )
}

pub(super) fn reader<F>(name: &str, aid: &str, about: &str, schema: Value, function: F) -> Tool
where
    F: Fn(&Job<'_>) -> Result<Output, Fault> + Send + Sync + 'static,
{
    let pure = true;
    Tool {
        idempotent: true,
        ..builtin(
            name,
            aid,
            about,
            schema,
            Arc::new(Builtin { function, pure }),
        )
    }
}

fn listed(store: &Store, input: &Value) -> Result<Output, Fault> {
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let filter = RunFilter {
        job_id: text("job_id"),
        state: text("state"),
        dataset: text("dataset"),
        source: text("source"),
        category: text("category"),
    };
    let limit = natural_number(&input["limit"]).unwrap_or(RUNS_DEFAULT);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = natural_number(&input["cursor"]).map(RunCursor);
    let kind = input["kind"].as_str().and_then(RunKind::parse);
    let runs = kept::page(store, kind, &filter, limit, after).map_err(|error| unread(&error))?;
    let more = runs.last().filter(|_| runs.len() == limit);
    Ok(Output::from_value(json!({
        "runs": runs.iter().map(KeptRun::shown).collect::<Vec<_>>(),
        "next": more.map(|run| run.cursor().0),
    })))
}

fn shown(store: &Store, tell: TellPilot, input: &Value) -> Result<Output, Fault> {
    let run_id = input["run_id"].as_str().unwrap_or_default();
    let found = kept::find(store, run_id).map_err(|error| unread(&error))?;
    match found {
        Some(KeptRun::Streamed(run)) => streamed(store, &run, input),
        Some(KeptRun::Piloted(run)) => piloted(store, tell, run, input),
        None => Err(Fault::NotFound {
            message: format!("there is no run {run_id:?}"),
        }),
    }
}

/// A pilot's run, with its slots where another has artifacts.
fn piloted(store: &Store, tell: TellPilot, run: PilotRun, input: &Value) -> Result<Output, Fault> {
    let events = store
        .pilot_events(&run.run)
        .map_err(|error| unread(&error))?;
    let mut told = tell(&events).map_err(|message| Fault::Internal { message })?;
    if let Some(from) = natural_number(&input["events_from"]) {
        let mut page = Page::new(from, input);
        let fit = pilot_events(&run.run, &events)
            .all(|event| page.takes(event.to_string().len(), || event));
        told["events"] = json!(page.events);
        told["events_next"] = json!((!fit).then_some(page.at));
    }
    told["run"] = KeptRun::Piloted(run).shown();
    Ok(Output::from_value(told))
}

fn streamed(store: &Store, found: &Run, input: &Value) -> Result<Output, Fault> {
    let run_id = &found.run_id;
    let artifacts = store
        .run_artifacts(run_id)
        .map_err(|error| unread(&error))?;
    let mut told = json!({
        "run": run(found),
        "artifacts": artifacts.iter().take(ARTIFACTS_MAX).map(artifact).collect::<Vec<_>>(),
    });
    let report = store.run_report(run_id).map_err(|error| unread(&error))?;
    if let Some(report) = report {
        told["report"] = serde_json::from_slice(&report).unwrap_or_default();
    }
    if let Some(from) = natural_number(&input["events_from"]) {
        let mut page = Page::new(from, input);
        let whole = fill(store, run_id, &mut page)?;
        told["events"] = json!(page.events);
        told["events_next"] = json!((!whole).then_some(page.at));
    }
    Ok(Output::from_value(told))
}

/// Some of the events of a run.
struct Page {
    from: u64,
    limit: u64,
    /// The event that comes next.
    at: u64,
    bytes: usize,
    events: Vec<Value>,
}

impl Page {
    fn new(from: u64, input: &Value) -> Self {
        Self {
            from,
            limit: natural_number(&input["events_limit"]).unwrap_or(EVENTS_MAX),
            at: 0,
            bytes: 0,
            events: Vec::new(),
        }
    }

    /// Takes the next event of so many bytes; false if the page is full before it.
    fn takes(&mut self, bytes: usize, event: impl FnOnce() -> Value) -> bool {
        if self.at >= self.from {
            self.bytes += bytes;
            let full = self.events.len() as u64 == self.limit || self.bytes > EVENTS_BYTES_MAX;
            if full && !self.events.is_empty() {
                return false;
            }
            self.events.push(event());
        }
        self.at += 1;
        true
    }
}

/// Fills a page with events of a streamed run; true if it has its last one.
fn fill(store: &Store, run_id: &str, page: &mut Page) -> Result<bool, Fault> {
    let lost = |error: std::io::Error| Fault::Internal {
        message: format!("the events of a run: {error}"),
    };
    let Some(mut all) = store.run_events(run_id).map_err(|error| unread(&error))? else {
        return Ok(true);
    };
    while let Some(line) = all.next_line().map_err(lost)? {
        if !page.takes(line.len(), || {
            serde_json::from_slice(line).unwrap_or_default()
        }) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A run, as callers see it.
#[must_use]
pub fn run(run: &Run) -> Value {
    let mut told = json!({
        "kind": RunKind::Stream.as_str(),
        "run_id": run.run_id,
        "call": run.call.to_string(),
        "attempt": run.attempt,
        "job_id": run.job_id,
        "parent_run_id": run.parent_run_id,
        "dataset": run.partition.dataset,
        "source": run.partition.source,
        "category": run.partition.category,
        "day": run.partition.day,
        "policy": run.policy,
        "state": run.state.as_str(),
        "started_at": run.started_at.rfc3339(),
    });
    match &run.state {
        RunState::Running => {}
        RunState::Lost(at) => told["ended_at"] = json!(at.rfc3339()),
        RunState::Ended(end) => {
            told["ended_at"] = json!(end.at.rfc3339());
            told["events"] = json!(end.persisted);
            told["events_bytes"] = json!(end.events_bytes);
            told["events_digest"] = json!(format!("b3-{}", end.events.to_hex()));
        }
    }
    told
}

/// An artifact, in the words of MCP for what can be read.
#[must_use]
pub fn artifact(artifact: &KeptArtifact) -> Value {
    let digest = format!("b3-{}", artifact.digest.to_hex());
    json!({
        "uri": format!("{}{digest}", super::artifact::ADDRESS),
        "run_id": artifact.run_id,
        "artifact_id": artifact.artifact_id,
        "digest": digest,
        "name": artifact.name,
        "mimeType": artifact.content_type,
        "size": artifact.bytes,
        "committed_at": artifact.committed_at.rfc3339(),
    })
}
