//! Runs and artifacts in the overlay and in the index: what the journal told of them, by the
//! names people ask by.

use std::collections::{BTreeMap, HashSet};

use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;

use super::docs::{ArtifactDoc, Closed, EndDoc, LostDoc, StartDoc};
use crate::StoreError;
use crate::index::Index;
use crate::state::Inner;

/// Runs and artifacts since the watermark.
#[derive(Default)]
pub(crate) struct RunStates {
    entries: BTreeMap<String, RunEntry>,
    /// By run and artifact.
    artifacts: BTreeMap<(String, String), (u64, ArtifactDoc)>,
}

#[derive(Default)]
struct RunEntry {
    /// The newest record about it.
    seq: u64,
    /// Its start and the record of that; else the index has it.
    start: Option<(u64, StartDoc)>,
    closed: Option<Closed>,
}

/// A run as the journal tells it.
#[derive(Clone, Debug)]
pub(crate) struct RunRow {
    /// The record of its start.
    pub(super) seq: u64,
    pub(super) start: StartDoc,
    pub(super) closed: Option<Closed>,
}

impl RunStates {
    pub(crate) fn started(&mut self, seq: u64, doc: StartDoc) {
        let entry = self.entries.entry(doc.run.clone()).or_default();
        entry.seq = seq;
        entry.start = Some((seq, doc));
    }

    pub(crate) fn ended(&mut self, seq: u64, doc: EndDoc) {
        self.close(seq, doc.run.clone(), Closed::Ended(doc));
    }

    pub(crate) fn lost(&mut self, seq: u64, doc: LostDoc) {
        self.close(seq, doc.run.clone(), Closed::Lost(doc));
    }

    fn close(&mut self, seq: u64, run: String, closed: Closed) {
        let entry = self.entries.entry(run).or_default();
        entry.seq = seq;
        entry.closed = Some(closed);
    }

    pub(crate) fn committed(&mut self, seq: u64, doc: ArtifactDoc) {
        let key = (doc.run.clone(), doc.artifact.clone());
        self.artifacts.insert(key, (seq, doc));
    }

    pub(crate) fn trim(&mut self, seq: u64) {
        self.entries.retain(|_, entry| entry.seq > seq);
        self.artifacts.retain(|_, (at, _)| *at > seq);
    }

    /// All of a run that is here.
    fn row(&self, run: &str) -> Option<RunRow> {
        self.entries.get(run).and_then(RunEntry::row)
    }

    /// What the index has of a run, with what is newer.
    fn newer(&self, mut row: RunRow) -> RunRow {
        if let Some(entry) = self.entries.get(&row.start.run)
            && entry.closed.is_some()
        {
            row.closed.clone_from(&entry.closed);
        }
        row
    }
}

impl RunEntry {
    fn row(&self) -> Option<RunRow> {
        let (seq, start) = self.start.as_ref()?;
        Some(RunRow {
            seq: *seq,
            start: start.clone(),
            closed: self.closed.clone(),
        })
    }
}

impl Inner {
    /// The index, if it has runs. Asked for before the overlay is looked at: one that is gone is
    /// the overlay's to make up for.
    fn runs_index(&mut self) -> Result<Option<&mut Index>, StoreError> {
        match &self.mark {
            Some(mark) if mark.streamed_runs => self.index(),
            _ => Ok(None),
        }
    }

    /// A run.
    pub(crate) fn run_row(&mut self, run: &str) -> Result<Option<RunRow>, StoreError> {
        let found = match self.runs_index()? {
            Some(index) => index.run_row(run)?,
            None => None,
        };
        let overlay = &self.overlay.runs;
        Ok(overlay
            .row(run)
            .or_else(|| found.map(|row| overlay.newer(row))))
    }

    /// Runs that began before record `before`, the newest first, until `fits` has said yes
    /// `limit` times.
    pub(super) fn run_rows(
        &mut self,
        before: u64,
        limit: usize,
        mut fits: impl FnMut(&Self, &RunRow) -> bool,
    ) -> Result<Vec<RunRow>, StoreError> {
        self.runs_index()?;
        let here = self.overlay.runs.entries.values();
        let mut rows: Vec<RunRow> = here.filter_map(RunEntry::row).collect();
        rows.retain(|row| row.seq < before && fits(self, row));
        let mut from = before;
        let mut found = 0;
        while found < limit {
            let page = match self.runs_index()? {
                Some(index) => index.run_rows(from, PAGE)?,
                None => Vec::new(),
            };
            let Some(last) = page.last() else { break };
            from = last.seq;
            for row in page {
                let states = &self.overlay.runs;
                if states.row(&row.start.run).is_some() {
                    continue;
                }
                let row = states.newer(row);
                if fits(self, &row) {
                    rows.push(row);
                    found += 1;
                }
            }
        }
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.seq));
        rows.truncate(limit);
        Ok(rows)
    }

    /// The artifacts of a run, in the order of their commits.
    pub(super) fn artifacts_of(&mut self, run: &str) -> Result<Vec<ArtifactDoc>, StoreError> {
        let mut docs = match self.runs_index()? {
            Some(index) => index.artifacts("run = ?1 ORDER BY seq", run)?,
            None => Vec::new(),
        };
        let first = (run.to_owned(), String::new());
        let here = self.overlay.runs.artifacts.range(first..);
        let mut here: Vec<_> = here
            .take_while(|((of, _), _)| of == run)
            .map(|(_, (seq, doc))| (*seq, doc.clone()))
            .collect();
        here.sort_unstable_by_key(|(seq, _)| *seq);
        // Those that were folded since are in both.
        let folded: HashSet<String> = docs.iter().map(|doc| doc.artifact.clone()).collect();
        here.retain(|(_, doc)| !folded.contains(&doc.artifact));
        docs.extend(here.into_iter().map(|(_, doc)| doc));
        Ok(docs)
    }

    /// Artifacts of these bytes, whichever run made them.
    pub(super) fn artifacts_by(&mut self, digest: &str) -> Result<Vec<ArtifactDoc>, StoreError> {
        let mut docs = match self.runs_index()? {
            Some(index) => index.artifacts("digest = ?1 ORDER BY seq", digest)?,
            None => Vec::new(),
        };
        let here = self.overlay.runs.artifacts.values();
        let here = here.map(|(_, doc)| doc).filter(|doc| doc.digest == digest);
        for doc in here {
            if !docs.contains(doc) {
                docs.push(doc.clone());
            }
        }
        Ok(docs)
    }

    /// Digests of artifacts, sorted, those after `after` and at most `limit`.
    pub(super) fn digests(&mut self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut digests = match self.runs_index()? {
            Some(index) => index.digests(after, limit)?,
            None => Vec::new(),
        };
        let here = self.overlay.runs.artifacts.values();
        let here = here.map(|(_, doc)| &doc.digest);
        digests.extend(here.filter(|digest| digest.as_str() > after).cloned());
        digests.sort_unstable();
        digests.dedup();
        digests.truncate(limit);
        Ok(digests)
    }
}

/// Rows of the index that are read at a time.
const PAGE: usize = 256;

impl Index {
    fn run_row(&self, run: &str) -> Result<Option<RunRow>, StoreError> {
        let select = "SELECT seq, start, closed FROM streamed_runs WHERE id = ?1";
        let mut select = self.db.prepare_cached(select)?;
        Ok(select.query_row([run], row_of).optional()?.flatten())
    }

    fn run_rows(&self, before: u64, limit: usize) -> Result<Vec<RunRow>, StoreError> {
        let select = "SELECT seq, start, closed FROM streamed_runs
                      WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
        let mut select = self.db.prepare_cached(select)?;
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        let rows = select.query_map(params![before, limit as i64], row_of)?;
        let mut all = Vec::new();
        for row in rows {
            all.extend(row?);
        }
        Ok(all)
    }

    fn artifacts(
        &self,
        condition: &'static str,
        value: &str,
    ) -> Result<Vec<ArtifactDoc>, StoreError> {
        let select = format!("SELECT doc FROM run_artifacts WHERE {condition}");
        let mut select = self.db.prepare_cached(&select)?;
        let docs = select.query_map([value], |row| row.get::<_, String>(0))?;
        let mut all = Vec::new();
        for doc in docs {
            all.extend(serde_json::from_str(&doc?));
        }
        Ok(all)
    }

    fn digests(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        let select = "SELECT DISTINCT digest FROM run_artifacts
                      WHERE digest > ?1 ORDER BY digest LIMIT ?2";
        let mut select = self.db.prepare_cached(select)?;
        let digests = select.query_map(params![after, limit as i64], |row| row.get(0))?;
        Ok(digests.collect::<Result<_, _>>()?)
    }

    /// Folds what became of runs since record `folded_seq`.
    pub(crate) fn write_runs(&self, runs: &RunStates, folded_seq: u64) -> Result<(), StoreError> {
        let db = &self.db;
        let mut began =
            db.prepare_cached("INSERT OR REPLACE INTO streamed_runs VALUES (?1, ?2, ?3, ?4)")?;
        let mut closed = db.prepare_cached("UPDATE streamed_runs SET closed = ?2 WHERE id = ?1")?;
        let newer = runs.entries.iter().filter(|(_, e)| e.seq > folded_seq);
        for (run, entry) in newer {
            let end = entry.closed.as_ref().map(json);
            match &entry.start {
                Some((seq, start)) => began.execute(params![run, *seq as i64, json(start), end])?,
                None => closed.execute(params![run, end])?,
            };
        }
        let mut artifact =
            db.prepare_cached("INSERT OR REPLACE INTO run_artifacts VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let newer = runs.artifacts.values().filter(|(seq, _)| *seq > folded_seq);
        for (seq, doc) in newer {
            let seq = *seq as i64;
            artifact.execute(params![doc.run, doc.artifact, seq, doc.digest, json(doc)])?;
        }
        Ok(())
    }
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<RunRow>> {
    let (seq, start): (i64, String) = (row.get(0)?, row.get(1)?);
    let closed: Option<String> = row.get(2)?;
    let start = serde_json::from_str(&start).ok();
    Ok(start.map(|start| RunRow {
        seq: seq.unsigned_abs(),
        start,
        closed: closed.and_then(|closed| serde_json::from_str(&closed).ok()),
    }))
}

fn json(doc: &impl Serialize) -> String {
    serde_json::to_string(doc).expect("plain values become JSON")
}
