//! Runs as people ask for them. A run whose process is dead and that has no end was lost:
//! whoever finds that out says so in the chain.

use std::collections::BTreeMap;
use std::fs::File;

use callgate_call::{CallId, Digest, Partition, RunVerdict, Timestamp};

use super::commit::ARTIFACTS;
use super::disk::Folder;
use super::docs::{ArtifactDoc, Closed, EndDoc, LostDoc};
use super::index::RunRow;
use super::names;
use crate::state::Inner;
use crate::{OwnerId, Store, StoreError, records};

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its name.
    pub run_id: String,
    /// The call that it is.
    pub call: CallId,
    /// 1 for the first try of a job.
    pub attempt: u32,
    /// What it works on.
    pub job_id: Option<String>,
    /// The try before this one.
    pub parent_run_id: Option<String>,
    /// Where its events are.
    pub partition: Partition,
    /// The policy's word.
    pub policy: String,
    /// When it began.
    pub started_at: Timestamp,
    /// How far it is.
    pub state: RunState,
    /// Where a list goes on after it.
    pub cursor: RunCursor,
}

impl Run {
    /// Its folder, below that of the state. S-16.
    #[must_use]
    pub fn path(&self) -> String {
        names::path_of(&self.partition, &self.run_id).join("/")
    }
}

/// A place in the list of runs: the number of a start record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunCursor(pub u64);

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Its process lives.
    Running,
    /// It ended.
    Ended(RunEnd),
    /// Its process died, or gave it up; found out at this time.
    Lost(Timestamp),
}

impl RunState {
    /// `running`, `lost`, or the verdict's word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended(end) => end.verdict.as_str(),
            Self::Lost(_) => "lost",
        }
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The contract's word for it.
    pub verdict: RunVerdict,
    /// When.
    pub at: Timestamp,
    /// Events that came.
    pub received: u64,
    /// Events that were written.
    pub persisted: u64,
    /// Events left out by policy, by type.
    pub dropped: BTreeMap<String, u64>,
    /// Bytes of `events.jsonl`.
    pub events_bytes: u64,
    /// Their digest.
    pub events: Digest,
    /// The digest of `report.json`.
    pub report: Digest,
}

/// A committed artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptArtifact {
    /// The run that made it.
    pub run_id: String,
    /// As its executor named it.
    pub artifact_id: String,
    /// For people.
    pub name: String,
    /// What kind of bytes.
    pub content_type: String,
    /// How many.
    pub bytes: u64,
    /// Their digest.
    pub digest: Digest,
    /// When it came into being.
    pub committed_at: Timestamp,
}

/// Which runs to list. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Of this job.
    pub job_id: Option<String>,
    /// In this state, by its word.
    pub state: Option<String>,
    /// Of this dataset.
    pub dataset: Option<String>,
    /// Of this source.
    pub source: Option<String>,
    /// Of this category.
    pub category: Option<String>,
}

impl RunFilter {
    fn fits(&self, run: &Run) -> bool {
        let is = |wanted: &Option<String>, got: &str| wanted.as_deref().is_none_or(|w| w == got);
        (self.job_id.is_none() || self.job_id == run.job_id)
            && is(&self.state, run.state.as_str())
            && is(&self.dataset, &run.partition.dataset)
            && is(&self.source, &run.partition.source)
            && is(&self.category, &run.partition.category)
    }
}

impl Store {
    /// A run; nothing if there is none of that name.
    pub fn run(&self, run_id: &str) -> Result<Option<Run>, StoreError> {
        let found = self.read(|inner, now| {
            let row = inner.run_row(run_id)?;
            Ok(row.map(|row| judge(inner, &row, now)))
        })?;
        self.tell_lost(found.iter());
        Ok(found.map(|(run, _)| run))
    }

    /// Runs that fit, the newest first: those after the cursor, and at most `limit`. There may
    /// be more if there are `limit`.
    pub fn runs(
        &self,
        filter: &RunFilter,
        limit: usize,
        after: Option<RunCursor>,
    ) -> Result<Vec<Run>, StoreError> {
        let before = after.map_or(u64::MAX, |cursor| cursor.0);
        let found = self.read(|inner, now| {
            let fits = |inner: &Inner, row: &RunRow| filter.fits(&judge(inner, row, now).0);
            let rows = inner.run_rows(before, limit, fits)?;
            let judged = rows.iter().map(|row| judge(inner, row, now));
            Ok(judged.collect::<Vec<_>>())
        })?;
        self.tell_lost(found.iter());
        Ok(found.into_iter().map(|(run, _)| run).collect())
    }

    /// The artifacts that a run committed, in that order.
    pub fn run_artifacts(&self, run_id: &str) -> Result<Vec<KeptArtifact>, StoreError> {
        let docs = self.read(|inner, _| inner.artifacts_of(run_id))?;
        Ok(docs.iter().filter_map(kept).collect())
    }

    /// An artifact of a run, by its id or by its digest in hex, and its bytes; no bytes if they
    /// are not there, which is damage.
    pub fn artifact_of(
        &self,
        run_id: &str,
        name: &str,
    ) -> Result<Option<(KeptArtifact, Option<File>)>, StoreError> {
        let artifacts = self.run_artifacts(run_id)?;
        let by_id = artifacts.iter().find(|it| it.artifact_id == name);
        let by_digest = || artifacts.iter().find(|it| it.digest.to_hex() == name);
        let Some(artifact) = by_id.or_else(by_digest) else {
            return Ok(None);
        };
        let file = self.content(&artifact.digest)?;
        Ok(Some((artifact.clone(), file)))
    }

    /// Artifacts of these bytes, whichever run made them.
    pub fn artifacts_by(&self, digest: &str) -> Result<Vec<KeptArtifact>, StoreError> {
        let docs = self.read(|inner, _| inner.artifacts_by(digest))?;
        Ok(docs.iter().filter_map(kept).collect())
    }

    /// The bytes of an artifact that some run committed.
    pub(crate) fn committed(&self, digest: &Digest) -> Result<Option<File>, StoreError> {
        let hex = digest.to_hex();
        match self.read(|inner, _| inner.artifacts_by(&hex))?.is_empty() {
            // Bytes that the chain does not tell of are no artifact.
            true => Ok(None),
            false => self.content(digest),
        }
    }

    /// A file of the content store.
    pub(super) fn content(&self, digest: &Digest) -> Result<Option<File>, StoreError> {
        let hex = digest.to_hex();
        let open = || {
            let artifacts = Folder::open(&self.dir)?.enter(ARTIFACTS)?;
            artifacts.enter(&hex[..2])?.read(&hex)
        };
        match open() {
            Ok(file) => Ok(file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::read(&self.dir.join(ARTIFACTS), e)),
        }
    }

    /// Says in the chain that runs are lost, unless somebody has. Where that can not be written
    /// they are lost all the same.
    fn tell_lost<'a>(&self, found: impl Iterator<Item = &'a (Run, bool)>) {
        let news = found.filter(|(_, is_news)| *is_news);
        let lost: Vec<&str> = news.map(|(run, _)| run.run_id.as_str()).collect();
        if lost.is_empty() {
            return;
        }
        let told = self.commit(|inner, now| {
            for run in &lost {
                // Nobody writes now, so a dead owner's last word has been read.
                let row = inner.run_row(run)?.filter(|row| row.closed.is_none());
                let Some(row) = row else { continue };
                let doc = LostDoc {
                    run: (*run).to_owned(),
                    at: now.0,
                };
                records::run_lost(&mut inner.pending, now, &row.start.call, doc);
            }
            Ok(())
        });
        if let Err(error) = told {
            tracing::debug!(%error, "lost runs were not recorded");
        }
    }
}

/// A run, and whether it was lost and nobody has said so.
fn judge(inner: &Inner, row: &RunRow, now: Timestamp) -> (Run, bool) {
    let start = &row.start;
    let (state, is_news) = match &row.closed {
        Some(Closed::Ended(doc)) => (end_of(doc), false),
        Some(Closed::Lost(doc)) => (RunState::Lost(Timestamp(doc.at)), false),
        None if inner.owner_alive(OwnerId(start.owner)) => (RunState::Running, false),
        None => (RunState::Lost(now), true),
    };
    let run = Run {
        run_id: start.run.clone(),
        call: CallId::parse(&start.call).unwrap_or(CallId(0)),
        attempt: start.attempt,
        job_id: start.job.clone(),
        parent_run_id: start.parent.clone(),
        partition: Partition {
            dataset: start.dataset.clone(),
            source: start.source.clone(),
            category: start.category.clone(),
            day: start.day.clone(),
        },
        policy: start.policy.clone(),
        started_at: Timestamp(start.at),
        state,
        cursor: RunCursor(row.seq),
    };
    (run, is_news)
}

fn end_of(doc: &EndDoc) -> RunState {
    let digest = |hex: &str| Digest::from_hex(hex).unwrap_or(Digest([0; 32]));
    RunState::Ended(RunEnd {
        verdict: verdict_of(&doc.verdict),
        at: Timestamp(doc.at),
        received: doc.received,
        persisted: doc.persisted,
        dropped: doc.dropped.clone(),
        events_bytes: doc.events_bytes,
        events: digest(&doc.events),
        report: digest(&doc.report),
    })
}

fn verdict_of(word: &str) -> RunVerdict {
    use RunVerdict::{ExecutorCrash, PolicyFailure, ScriptError, Success, VersionMismatch};
    let all = [Success, ScriptError, PolicyFailure, VersionMismatch];
    // A word of a later version is no success.
    let known = all.into_iter().find(|verdict| verdict.as_str() == word);
    known.unwrap_or(ExecutorCrash)
}

fn kept(doc: &ArtifactDoc) -> Option<KeptArtifact> {
    Some(KeptArtifact {
        run_id: doc.run.clone(),
        artifact_id: doc.artifact.clone(),
        name: doc.name.clone(),
        content_type: doc.content_type.clone(),
        bytes: doc.bytes,
        digest: Digest::from_hex(&doc.digest)?,
        committed_at: Timestamp(doc.at),
    })
}
