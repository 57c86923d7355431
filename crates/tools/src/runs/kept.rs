//! Runs of either kind in one list: those that an executor streamed, and those of the pilot.

use callgate_store::{
    PilotEvent, PilotRun, PilotState, Run, RunCursor, RunFilter, Store, StoreError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::seen;

/// A run.
#[derive(Clone, Debug)]
pub enum KeptRun {
    /// Of an executor.
    Streamed(Box<Run>),
    /// Of the pilot.
    Piloted(PilotRun),
}

/// Which runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    /// Those of executors.
    Stream,
    /// Those of the pilot.
    Pilot,
}

impl RunKind {
    /// By its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Stream, Self::Pilot]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Pilot => "pilot",
        }
    }
}

impl KeptRun {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Streamed(run) => &run.run_id,
            Self::Piloted(run) => &run.run,
        }
    }

    /// Where a list goes on after it.
    #[must_use]
    pub fn cursor(&self) -> RunCursor {
        match self {
            Self::Streamed(run) => run.cursor,
            Self::Piloted(run) => run.cursor,
        }
    }

    /// As callers see it.
    #[must_use]
    pub fn shown(&self) -> Value {
        match self {
            Self::Streamed(run) => seen::run(run),
            Self::Piloted(run) => piloted(run),
        }
    }
}

/// A run of either kind; nothing if there is none of that name.
pub fn find(store: &Store, run_id: &str) -> Result<Option<KeptRun>, StoreError> {
    if let Some(run) = store.run(run_id)? {
        return Ok(Some(KeptRun::Streamed(Box::new(run))));
    }
    Ok(store.pilot_run(run_id)?.map(KeptRun::Piloted))
}

/// Runs that fit, the newest first: those after the cursor, and at most `limit`. There may be
/// more if there are `limit`.
pub fn page(
    store: &Store,
    kind: Option<RunKind>,
    filter: &RunFilter,
    limit: usize,
    after: Option<RunCursor>,
) -> Result<Vec<KeptRun>, StoreError> {
    let mut runs = Vec::new();
    if kind != Some(RunKind::Pilot) {
        let streamed = store.runs(filter, limit, after)?;
        let streamed = streamed.into_iter().map(Box::new);
        runs.extend(streamed.map(KeptRun::Streamed));
    }
    if kind != Some(RunKind::Stream) {
        let piloted = store.pilot_runs(limit, after, |run| fits(filter, run))?;
        runs.extend(piloted.into_iter().map(KeptRun::Piloted));
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.cursor()));
    runs.truncate(limit);
    Ok(runs)
}

/// A pilot's request is what a job is to an executor; it has no partition.
fn fits(filter: &RunFilter, run: &PilotRun) -> bool {
    let RunFilter {
        job_id,
        state,
        dataset,
        source,
        category,
    } = filter;
    (job_id.is_none() || *job_id == run.request)
        && state
            .as_deref()
            .is_none_or(|word| word == run.state.as_str())
        && [dataset, source, category].into_iter().all(Option::is_none)
}

/// A run of the pilot in an answer.
#[derive(Serialize)]
struct ShownPilotRun<'a> {
    kind: &'static str,
    run_id: &'a str,
    job_id: Option<&'a str>,
    state: &'a str,
    started_at: String,
    events: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<String>,
}

fn piloted(run: &PilotRun) -> Value {
    let ended_at = match run.state {
        PilotState::Running | PilotState::Lost => None,
        PilotState::Ended(_) => Some(run.newest_at.rfc3339()),
    };
    json!(ShownPilotRun {
        kind: RunKind::Pilot.as_str(),
        run_id: &run.run,
        job_id: run.request.as_deref(),
        state: run.state.as_str(),
        started_at: run.at.rfc3339(),
        events: run.events,
        ended_at,
    })
}

/// The events of a pilot's run, in the shape of those that executors emit.
pub fn pilot_events(run: &str, events: &[PilotEvent]) -> impl Iterator<Item = Value> {
    events.iter().zip(1_u64..).map(move |(event, seq)| {
        json!({
            "run_id": run,
            "seq": seq,
            "ts": event.at.rfc3339(),
            "type": event.event,
            "step": event.step,
            "payload": event.doc,
        })
    })
}
