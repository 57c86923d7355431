//! `runs/list` and `runs/get`: what the store knows of runs, for callers and, at
//! `callgate://runs/…`, for MCP clients as a resource.

use std::sync::Arc;

use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner, Tool};
use callgate_pilot_events::report::report_of_events;
use callgate_store::{KeptArtifact, PilotRun, Run, RunCursor, RunFilter, RunState, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kept::{self, KeptRun, RunKind, pilot_events};
use super::unread;
use crate::arguments::{NaturalNumber, arguments};
use crate::{builtin, waited_for};

/// Where runs are, for those who fill in places.
pub const RUN_TEMPLATE: &str = "callgate://runs/{run_id}";

/// Runs of one page.
const RUNS_DEFAULT: usize = 50;
const RUNS_MAX: u64 = 1000;
/// Events of one page, and their bytes.
const EVENTS_MAX: u64 = 1000;
const EVENTS_BYTES_MAX: usize = 512 * 1024;
/// Artifacts that are listed with a run.
const ARTIFACTS_MAX: usize = 1000;

/// The arguments of `runs/list`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunListArguments {
    kind: Option<RunKind>,
    job_id: Option<String>,
    state: Option<String>,
    dataset: Option<String>,
    source: Option<String>,
    category: Option<String>,
    limit: Option<NaturalNumber>,
    cursor: Option<NaturalNumber>,
}

/// The schema of the input of `runs/list`.
pub(crate) fn list_schema() -> Value {
    let word = json!({ "type": "string" });
    crate::closed(
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
    )
}

/// `runs/list`.
pub fn list(store: Arc<Store>) -> Tool {
    let look = move |input: &Value, _: &Cancel| listed(&store, input);
    reader(
        "runs/list",
        "AID.RUNS.LIST.v1",
        "List streamed runs and those of the pilot, the newest first",
        list_schema(),
        look,
    )
}

/// The arguments of `runs/get`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunGetArguments<'a> {
    run_id: &'a str,
    events_from: Option<NaturalNumber>,
    events_offset: Option<NaturalNumber>,
    events_limit: Option<NaturalNumber>,
    uri: Option<&'a str>,
}

/// The schema of the input of `runs/get`.
pub(crate) fn get_schema() -> Value {
    crate::closed(
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
    )
}

/// `runs/get`.
pub fn get(store: Arc<Store>) -> Tool {
    let look = move |input: &Value, stop: &Cancel| given(&store, input, stop);
    reader(
        "runs/get",
        "AID.RUNS.GET.v1",
        "Show a run: its state, its artifacts or slots, its report, and some of its events",
        get_schema(),
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
        let input = job.call.input.clone();
        Box::pin(async move {
            let work = move |stop: &Cancel| look(input.value(), stop);
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
    let asked: RunListArguments = arguments(input)?;
    let filter = RunFilter {
        job_id: asked.job_id,
        state: asked.state,
        dataset: asked.dataset,
        source: asked.source,
        category: asked.category,
    };
    let limit = asked.limit.map_or(RUNS_DEFAULT, NaturalNumber::count);
    let after = asked.cursor.map(|cursor| RunCursor(cursor.0));
    let runs =
        kept::page(store, asked.kind, &filter, limit, after).map_err(|error| unread(&error))?;
    let more = runs.last().filter(|_| runs.len() == limit);
    Ok(Output::from_value(json!({
        "runs": runs.iter().map(KeptRun::shown).collect::<Vec<_>>(),
        "next": more.map(|run| run.cursor().0),
    })))
}

/// A run: as it is, or as clients of MCP have resources.
fn given(store: &Store, input: &Value, stop: &Cancel) -> Result<Output, Fault> {
    let asked: RunGetArguments<'_> = arguments(input)?;
    let told = shown(store, &asked, stop)?;
    let Some(uri) = asked.uri else {
        return Ok(told);
    };
    let content = json!({
        "uri": uri,
        "mimeType": "application/json",
        "text": told.json.text(),
    });
    Ok(Output::from_value(json!({ "contents": [content] })))
}

fn shown(store: &Store, asked: &RunGetArguments<'_>, stop: &Cancel) -> Result<Output, Fault> {
    let run_id = asked.run_id;
    let found = kept::find(store, run_id).map_err(|error| unread(&error))?;
    match found {
        Some(KeptRun::Streamed(run)) => streamed(store, &run, asked, stop),
        Some(KeptRun::Piloted(run)) => piloted(store, run, asked),
        None => Err(Fault::NotFound {
            message: format!("there is no run {run_id:?}"),
        }),
    }
}

/// A page of events in an answer of `runs/get`.
#[derive(Serialize)]
struct ShownEvents {
    events: Vec<Value>,
    /// The event that the next page begins with; null if there is none.
    events_next: Option<u64>,
    /// The place in the file where the next page begins; only files have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    events_offset: Option<u64>,
}

/// The run of a pilot in an answer of `runs/get`: its report and slots, and more.
#[derive(Serialize)]
struct ShownPiloted {
    #[serde(flatten)]
    told: Value,
    #[serde(flatten)]
    page: Option<ShownEvents>,
    run: Value,
}

/// A streamed run in an answer of `runs/get`.
#[derive(Serialize)]
struct ShownStreamed<'a> {
    run: ShownRun<'a>,
    artifacts: Vec<ShownArtifact<'a>>,
    /// As the run ended with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Value>,
    #[serde(flatten)]
    page: Option<ShownEvents>,
}

/// A pilot's run, with its slots where another has artifacts.
fn piloted(store: &Store, run: PilotRun, asked: &RunGetArguments<'_>) -> Result<Output, Fault> {
    let events = store
        .pilot_events(&run.run)
        .map_err(|error| unread(&error))?;
    let told = report_of_events(&events).map_err(|message| Fault::Internal { message })?;
    let page = asked.events_from.map(|from| {
        let mut page = Page::new(from.0, asked);
        let fit = pilot_events(&run.run, &events)
            .all(|event| page.takes(event.to_string().len(), || event));
        page.shown(fit, None)
    });
    let run = KeptRun::Piloted(run).shown();
    Ok(Output::from_value(json!(ShownPiloted { told, page, run })))
}

fn streamed(
    store: &Store,
    found: &Run,
    asked: &RunGetArguments<'_>,
    stop: &Cancel,
) -> Result<Output, Fault> {
    let run_id = &found.run_id;
    let artifacts = store
        .run_artifacts(run_id)
        .map_err(|error| unread(&error))?;
    let report = store.run_report(run_id).map_err(|error| unread(&error))?;
    let mut shown = None;
    if let Some(from) = asked.events_from {
        let mut page = Page::new(from.0, asked);
        let offset = asked.events_offset.map(|offset| offset.0);
        let (whole, offset) = fill(store, run_id, offset, &mut page, stop)?;
        shown = Some(page.shown(whole, Some(offset)));
    }
    let artifacts = artifacts.iter().take(ARTIFACTS_MAX);
    Ok(Output::from_value(json!(ShownStreamed {
        run: ShownRun::new(found),
        artifacts: artifacts.map(ShownArtifact::new).collect(),
        report: report.map(|report| serde_json::from_slice(&report).unwrap_or_default()),
        page: shown,
    })))
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
    fn new(from: u64, asked: &RunGetArguments<'_>) -> Self {
        Self {
            from,
            limit: asked.events_limit.map_or(EVENTS_MAX, |limit| limit.0),
            at: 0,
            bytes: 0,
            events: Vec::new(),
        }
    }

    /// The page in an answer; `is_last` if there is none after it.
    fn shown(self, is_last: bool, offset: Option<u64>) -> ShownEvents {
        ShownEvents {
            events: self.events,
            events_next: (!is_last).then_some(self.at),
            events_offset: offset,
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

/// A streamed run in an answer.
#[derive(Serialize)]
struct ShownRun<'a> {
    kind: &'static str,
    run_id: &'a str,
    call: String,
    attempt: u32,
    job_id: Option<&'a str>,
    parent_run_id: Option<&'a str>,
    dataset: &'a str,
    source: &'a str,
    category: &'a str,
    day: &'a str,
    policy: &'a str,
    state: &'a str,
    started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
    #[serde(flatten)]
    end: Option<ShownEnd>,
}

/// The part of an answer that only a run has that came to its own end.
#[derive(Serialize)]
struct ShownEnd {
    events: u64,
    events_bytes: u64,
    events_digest: String,
}

impl<'a> ShownRun<'a> {
    fn new(run: &'a Run) -> Self {
        let (ended_at, end) = match &run.state {
            RunState::Running => (None, None),
            RunState::Lost(at) => (Some(*at), None),
            RunState::Ended(end) => (Some(end.at), Some(end)),
        };
        Self {
            kind: RunKind::Stream.as_str(),
            run_id: &run.run_id,
            call: run.call.to_string(),
            attempt: run.attempt,
            job_id: run.job_id.as_deref(),
            parent_run_id: run.parent_run_id.as_deref(),
            dataset: &run.partition.dataset,
            source: &run.partition.source,
            category: &run.partition.category,
            day: &run.partition.day,
            policy: &run.policy,
            state: run.state.as_str(),
            started_at: run.started_at.rfc3339(),
            ended_at: ended_at.map(|at| at.rfc3339()),
            end: end.map(|end| ShownEnd {
                events: end.persisted,
                events_bytes: end.events_bytes,
                events_digest: format!("b3-{}", end.events.to_hex()),
            }),
        }
    }
}

/// A run, as callers see it.
#[must_use]
pub fn run(run: &Run) -> Value {
    json!(ShownRun::new(run))
}

/// An artifact in an answer, in the words of MCP for what can be read.
#[derive(Serialize)]
pub(super) struct ShownArtifact<'a> {
    uri: String,
    run_id: &'a str,
    artifact_id: &'a str,
    digest: String,
    name: &'a str,
    #[serde(rename = "mimeType")]
    mime_type: &'a str,
    size: u64,
    committed_at: String,
}

impl<'a> ShownArtifact<'a> {
    pub(super) fn new(artifact: &'a KeptArtifact) -> Self {
        let digest = format!("b3-{}", artifact.digest.to_hex());
        Self {
            uri: format!("{}{digest}", super::artifact::ADDRESS),
            run_id: &artifact.run_id,
            artifact_id: &artifact.artifact_id,
            digest,
            name: &artifact.name,
            mime_type: &artifact.content_type,
            size: artifact.bytes,
            committed_at: artifact.committed_at.rfc3339(),
        }
    }
}

/// An artifact, as callers see it.
#[must_use]
pub fn artifact(artifact: &KeptArtifact) -> Value {
    json!(ShownArtifact::new(artifact))
}
