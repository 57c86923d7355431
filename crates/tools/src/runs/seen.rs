//! `runs/list` and `runs/get`: what the store knows of runs, for callers and, at
//! `callgate://runs/…`, for MCP clients as a resource.

use std::sync::Arc;

use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner, Tool, natural_number};
use callgate_store::{KeptArtifact, PilotRun, Run, RunCursor, RunFilter, RunState, Store};
use serde_json::{Value, json};

use super::kept::{self, KeptRun, RunKind, pilot_events};
use super::{TellPilot, unread};
use crate::{builtin, waited_for};

/// Where runs are, for those who fill in places.
pub const RUN_TEMPLATE: &str = "callgate://runs/{run_id}";

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
    let look = move |input: &Value, _: &Cancel| listed(&store, input);
    reader(
        "runs/list",
        "AID.RUNS.LIST.v1",
        "List streamed runs and those of the pilot, the newest first",
        schema,
        look,
    )
}

/// `runs/get`.
pub fn get(store: Arc<Store>, tell: TellPilot) -> Tool {
    let schema = crate::closed(
        json!({
            "run_id": { "type": "string", "minLength": 1 },
            "events_from": { "type": "integer", "minimum": 0,
                "description": "Also the events from this one on, counted from 0" },
            "events_offset": { "type": "integer", "minimum": 0,
                "description": "The `events_offset` of the page before: where that event begins" },
            "events_limit": { "type": "integer", "minimum": 1, "maximum": EVENTS_MAX,
                "default": EVENTS_MAX },
            "uri": { "type": "string", "description": "It is read as this resource" },
        }),
        &["run_id"],
    );
    let look = move |input: &Value, stop: &Cancel| given(&store, tell, input, stop);
    reader(
        "runs/get",
        "AID.RUNS.GET.v1",
        "Show a run: its state, its artifacts or slots, its report, and some of its events",
        schema,
        look,
    )
}

/// A look at what was kept, off the gate's own thread: a run may have gigabytes of events.
struct Look<F>(Arc<F>);

impl<F> Runner for Look<F>
where
    F: Fn(&Value, &Cancel) -> Result<Output, Fault> + Send + Sync + 'static,
{
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        let look = Arc::clone(&self.0);
        let input = job.call.input.value().clone();
        Box::pin(async move {
            let work = move |stop: &Cancel| look(&input, stop);
            waited_for(&job, work).await
        })
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

pub(super) fn reader<F>(name: &str, aid: &str, about: &str, schema: Value, look: F) -> Tool
where
    F: Fn(&Value, &Cancel) -> Result<Output, Fault> + Send + Sync + 'static,
{
    Tool {
        idempotent: true,
        ..builtin(name, aid, about, schema, Arc::new(Look(Arc::new(look))))
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

/// A run: as it is, or as clients of MCP have resources.
fn given(store: &Store, tell: TellPilot, input: &Value, stop: &Cancel) -> Result<Output, Fault> {
    let told = shown(store, tell, input, stop)?;
    let Some(uri) = input["uri"].as_str() else {
        return Ok(told);
    };
    let content = json!({
        "uri": uri,
        "mimeType": "application/json",
        "text": told.json.text(),
    });
    Ok(Output::from_value(json!({ "contents": [content] })))
}

fn shown(store: &Store, tell: TellPilot, input: &Value, stop: &Cancel) -> Result<Output, Fault> {
    let run_id = input["run_id"].as_str().unwrap_or_default();
    let found = kept::find(store, run_id).map_err(|error| unread(&error))?;
    match found {
        Some(KeptRun::Streamed(run)) => streamed(store, &run, input, stop),
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

fn streamed(store: &Store, found: &Run, input: &Value, stop: &Cancel) -> Result<Output, Fault> {
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
        let offset = natural_number(&input["events_offset"]);
        let (whole, offset) = fill(store, run_id, offset, &mut page, stop)?;
        told["events"] = json!(page.events);
        told["events_next"] = json!((!whole).then_some(page.at));
        told["events_offset"] = json!(offset);
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

/// Fills a page with events of a streamed run, from where its first one is said to begin: what was
/// read for the pages before is not read again. True if it has the last one, and where the one
/// after it begins.
fn fill(
    store: &Store,
    run_id: &str,
    offset: Option<u64>,
    page: &mut Page,
    stop: &Cancel,
) -> Result<(bool, u64), Fault> {
    let lost = |error: std::io::Error| Fault::Internal {
        message: format!("the events of a run: {error}"),
    };
    let Some(mut all) = store.run_events(run_id).map_err(|error| unread(&error))? else {
        return Ok((true, 0));
    };
    if let Some(offset) = offset {
        if !all.go_to(offset).map_err(lost)? {
            return Err(Fault::BadInput {
                field: "events_offset".to_owned(),
                reason: "no event begins there".to_owned(),
            });
        }
        page.at = page.from;
    }
    loop {
        if stop.is_cancelled() {
            return Err(Fault::Cancelled);
        }
        let at = all.offset();
        let Some(line) = all.next_line().map_err(lost)? else {
            return Ok((true, at));
        };
        let event = || serde_json::from_slice(line).unwrap_or_default();
        if !page.takes(line.len(), event) {
            return Ok((false, at));
        }
    }
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
