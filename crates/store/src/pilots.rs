//! Runs of the pilot: each event of one is a record, in the order it happened, so that whoever
//! comes after a crash knows what was chosen and what was done. What an event holds is the
//! pilot's to say; here it is a document of one run at one place.
//!
//! A run has one driver at a time, who holds its lock, and one writer: an event names the place it
//! believes to be the next, and one that is mistaken is refused.

use std::collections::{BTreeMap, BTreeSet};

use callgate_call::{Digest, Timestamp};
use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::index::Index;
use crate::owner::LockFile;
use crate::state::Inner;
use crate::{Filter, OwnerId, RunCursor, Store, StoreError, records};

/// Runs that are kept for showing, replaying and knowing their requests again; the oldest leave
/// the index first. The chain keeps its records.
pub const PILOT_RUNS_MAX: usize = 10_000;
/// Largest document of one event.
pub const PILOT_EVENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// An event of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct PilotEvent {
    /// Its name.
    pub event: String,
    /// The step it belongs to, from 1; 0 before the first.
    pub step: u32,
    /// When it was recorded.
    pub at: Timestamp,
    /// What the pilot noted.
    pub doc: Value,
}

/// What the chain says of an event, for all to read; texts that are empty are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct PilotFacts<'a> {
    /// The tool's AID.
    pub aid: &'a str,
    /// How its call ended.
    pub status: &'a str,
    /// Digest of the slots after the event.
    pub state: &'a str,
}

/// What happened, beside its document.
#[derive(Clone, Copy, Debug)]
pub struct PilotNote<'a> {
    /// Its name.
    pub event: &'a str,
    /// The step it belongs to.
    pub step: u32,
    /// The run ends with it.
    pub ends: bool,
}

/// A run without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotRun {
    /// Its id.
    pub run: String,
    /// The caller's own id.
    pub request: Option<String>,
    /// When it began.
    pub at: Timestamp,
    /// How many events it has.
    pub events: u32,
    /// When the newest of them was.
    pub newest_at: Timestamp,
    /// How far it is.
    pub state: PilotState,
    /// Where a list goes on after it.
    pub cursor: RunCursor,
}

/// How far a run is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PilotState {
    /// The process that drives it lives.
    Running,
    /// That process died; the run can be taken up again.
    Lost,
    /// It ended with the event of this name.
    Ended(String),
}

impl PilotState {
    /// `running`, `lost`, or the name of the event that it ended with.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Lost => "lost",
            Self::Ended(event) => event,
        }
    }
}

/// What the chain says of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PilotRecords {
    /// Its events, in their order.
    pub events: Vec<PilotRecord>,
    /// The digests of what calls gave, by the calls' ids.
    pub outputs: BTreeMap<String, String>,
}

/// What the chain says of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilotRecord {
    /// Its name.
    pub event: String,
    /// The step it belongs to.
    pub step: u32,
    /// The digest of its document.
    pub digest: String,
}

/// What came of asking for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PilotBegun {
    /// It is new, and its first event recorded.
    New,
    /// A run of this request is there already.
    Known {
        /// That run.
        run: String,
    },
}

/// A run that is ours to drive, for as long as this is there.
#[derive(Debug)]
pub struct PilotHold(#[expect(dead_code, reason = "it is held")] LockFile);

/// What a record says that [`PilotRecords`] are made of.
#[derive(Deserialize)]
struct Said {
    kind: String,
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    step: u32,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    call: String,
    #[serde(default)]
    earlier: Option<String>,
    #[serde(default)]
    output: Option<String>,
}

/// An event as the journal holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PilotDoc {
    pub(crate) run: String,
    /// From 0.
    pub(crate) place: u32,
    /// The request, on the first event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    pub(crate) event: String,
    pub(crate) step: u32,
    pub(crate) at: u64,
    /// The process that goes on with the run; none if it ended here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<u64>,
    pub(crate) doc: Value,
}

/// The events since the watermark, by run and place, each with its record.
#[derive(Default)]
pub(crate) struct Pilots(BTreeMap<String, BTreeMap<u32, (u64, PilotDoc)>>);

impl Pilots {
    pub(crate) fn add(&mut self, seq: u64, doc: PilotDoc) {
        let run = self.0.entry(doc.run.clone()).or_default();
        run.insert(doc.place, (seq, doc));
    }

    pub(crate) fn trim(&mut self, seq: u64) {
        self.0.retain(|_, events| {
            events.retain(|_, (at, _)| *at > seq);
            !events.is_empty()
        });
    }

    fn docs(&self) -> impl Iterator<Item = &(u64, PilotDoc)> {
        self.0.values().flat_map(BTreeMap::values)
    }

    /// Runs that began since the watermark, and their first records.
    fn begun(&self) -> impl Iterator<Item = (u64, &str)> {
        let first = self.docs().filter(|(_, doc)| doc.place == 0);
        first.map(|(seq, doc)| (*seq, doc.run.as_str()))
    }

    fn newest(&self, run: &str) -> Option<&PilotDoc> {
        let (_, (_, doc)) = self.0.get(run)?.last_key_value()?;
        Some(doc)
    }

    fn run_of(&self, request: &str) -> Option<&str> {
        let first = |(_, doc): &&(u64, PilotDoc)| doc.request.as_deref() == Some(request);
        self.docs().find(first).map(|(_, doc)| doc.run.as_str())
    }
}

impl Store {
    /// Begins a run, unless one of the same request is there. One run of an id.
    pub fn pilot_begin(
        &self,
        run: &str,
        request: Option<&str>,
        event: &str,
        doc: &Value,
    ) -> Result<PilotBegun, StoreError> {
        check(doc)?;
        self.commit(|inner, now| {
            if let Some(request) = request
                && let Some(run) = inner.pilot_of_request(request)?
            {
                return Ok(PilotBegun::Known { run });
            }
            if inner.pilot_places(run)? > 0 {
                let reason = format!("run {run} is there already");
                return Err(StoreError::Refused { reason });
            }
            let doc = PilotDoc {
                run: run.to_owned(),
                place: 0,
                request: request.map(str::to_owned),
                event: event.to_owned(),
                step: 0,
                at: now.0,
                owner: Some(inner.owner()?.0),
                doc: doc.clone(),
            };
            records::pilot(&mut inner.pending, now, &doc, PilotFacts::default());
            Ok(PilotBegun::New)
        })
    }

    /// Holds a run, so that nobody else drives it, in this process or another; busy if somebody
    /// does.
    pub fn pilot_hold(&self, run: &str) -> Result<PilotHold, StoreError> {
        let name = format!("run-{}", &Digest::of_bytes(run.as_bytes()).to_hex()[..32]);
        let held = self.commit(|_, _| LockFile::take(&self.dir, &name))?;
        held.map(PilotHold).ok_or_else(|| StoreError::Busy {
            reason: format!("somebody else is at run {run}"),
        })
    }

    /// Adds an event at `place`, which must be the next one; it is in the file on return.
    pub fn pilot_append(
        &self,
        run: &str,
        place: u32,
        note: PilotNote<'_>,
        doc: &Value,
        facts: PilotFacts<'_>,
    ) -> Result<(), StoreError> {
        check(doc)?;
        self.commit(|inner, now| {
            let next = inner.pilot_places(run)?;
            if next != place {
                let reason = format!("somebody else is at run {run}: it has {next} events");
                return Err(StoreError::Busy { reason });
            }
            let owner = match note.ends {
                true => None,
                false => Some(inner.owner()?.0),
            };
            let doc = PilotDoc {
                run: run.to_owned(),
                place,
                request: None,
                event: note.event.to_owned(),
                step: note.step,
                at: now.0,
                owner,
                doc: doc.clone(),
            };
            records::pilot(&mut inner.pending, now, &doc, facts);
            Ok(())
        })
    }

    /// The events of a run, in their order; none if there is no such run.
    pub fn pilot_events(&self, run: &str) -> Result<Vec<PilotEvent>, StoreError> {
        self.read(|inner, _| {
            let events = inner.pilot_docs(run)?.into_values();
            Ok(events.map(PilotDoc::event).collect())
        })
    }

    /// The run that a request became.
    pub fn pilot_of_request(&self, request: &str) -> Result<Option<String>, StoreError> {
        self.read(|inner, _| inner.pilot_of_request(request))
    }

    /// A run; nothing if there is none of that name.
    pub fn pilot_run(&self, run: &str) -> Result<Option<PilotRun>, StoreError> {
        self.read(|inner, _| inner.pilot_run(run))
    }

    /// What the chain says of a run, and of the `calls` that it made; nothing if there is no run
    /// of that name.
    pub fn pilot_records(
        &self,
        run: &str,
        calls: &BTreeSet<String>,
    ) -> Result<Option<PilotRecords>, StoreError> {
        let Some(found) = self.pilot_run(run)? else {
            return Ok(None);
        };
        let mut records = PilotRecords::default();
        // What answered a call that was answered by an earlier one's record.
        let mut earlier: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let since = Filter {
            from_seq: Some(found.cursor.0),
            ..Filter::default()
        };
        self.show(&since, &mut |record| {
            let Ok(said) = serde_json::from_str::<Said>(record.body) else {
                return true;
            };
            match (said.kind.split_once('.'), said.kind.as_str()) {
                (Some(("pilot", event)), _) if said.run.as_deref() == Some(run) => {
                    records.events.push(PilotRecord {
                        event: event.to_owned(),
                        step: said.step,
                        digest: said.digest.unwrap_or_default(),
                    });
                }
                (None, "replay") if calls.contains(&said.call) => {
                    let of = said.earlier.unwrap_or_default();
                    earlier.entry(of).or_default().insert(said.call);
                }
                (None, "outcome" | "call") if calls.contains(&said.call) => {
                    records.outputs.extend(said.output.map(|o| (said.call, o)));
                }
                _ => {}
            }
            true
        })?;
        if earlier.is_empty() {
            return Ok(Some(records));
        }
        self.show(&since, &mut |record| {
            let said = serde_json::from_str::<Said>(record.body).ok();
            let said = said.filter(|said| ["outcome", "call"].contains(&said.kind.as_str()));
            if let Some(Said {
                call,
                output: Some(output),
                ..
            }) = said
            {
                for later in earlier.get(&call).into_iter().flatten() {
                    records.outputs.insert(later.clone(), output.clone());
                }
            }
            true
        })?;
        Ok(Some(records))
    }

    /// Runs that fit, the newest first: those after the cursor, and at most `limit`.
    pub fn pilot_runs(
        &self,
        limit: usize,
        after: Option<RunCursor>,
        fits: impl Fn(&PilotRun) -> bool,
    ) -> Result<Vec<PilotRun>, StoreError> {
        let before = after.map_or(u64::MAX, |cursor| cursor.0);
        self.read(|inner, _| {
            let mut runs = Vec::new();
            for run in inner.pilot_ids(before)? {
                if runs.len() == limit {
                    break;
                }
                runs.extend(inner.pilot_run(&run)?.filter(&fits));
            }
            Ok(runs)
        })
    }
}

impl PilotDoc {
    fn event(self) -> PilotEvent {
        PilotEvent {
            event: self.event,
            step: self.step,
            at: Timestamp(self.at),
            doc: self.doc,
        }
    }

    /// What the chain says of the document.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of_json(&self.doc)
    }

    /// Returns whether a record with this digest is of the document.
    pub(crate) fn has_digest(&self, digest: Digest) -> bool {
        digest.is_of_json(&self.doc)
    }
}

fn check(doc: &Value) -> Result<(), StoreError> {
    let size = serde_json::to_string(doc).map_or(usize::MAX, |text| text.len());
    if size > PILOT_EVENT_BYTES_MAX {
        return Err(StoreError::TooLarge {
            what: "event of a run",
            max_bytes: PILOT_EVENT_BYTES_MAX,
        });
    }
    Ok(())
}

impl Inner {
    fn pilots_index(&mut self) -> Result<Option<&mut Index>, StoreError> {
        match &self.mark {
            Some(mark) if mark.pilots => self.index(),
            _ => Ok(None),
        }
    }

    fn pilot_docs(&mut self, run: &str) -> Result<BTreeMap<u32, PilotDoc>, StoreError> {
        let mut docs = match self.pilots_index()? {
            Some(index) => index.pilot_docs(run)?,
            None => BTreeMap::new(),
        };
        if let Some(newer) = self.overlay.pilots.0.get(run) {
            docs.extend(newer.iter().map(|(place, (_, doc))| (*place, doc.clone())));
        }
        Ok(docs)
    }

    /// How many events a run has.
    fn pilot_places(&mut self, run: &str) -> Result<u32, StoreError> {
        let folded = match self.pilots_index()? {
            Some(index) => index.pilot_places(run)?,
            None => 0,
        };
        let newer = self.overlay.pilots.0.get(run);
        let newest = newer.and_then(|events| events.keys().next_back());
        Ok(folded.max(newest.map_or(0, |place| place + 1)))
    }

    fn pilot_of_request(&mut self, request: &str) -> Result<Option<String>, StoreError> {
        let folded = match self.pilots_index()? {
            Some(index) => index.pilot_of_request(request)?,
            None => None,
        };
        let newer = self.overlay.pilots.run_of(request).map(str::to_owned);
        Ok(newer.or(folded))
    }

    /// The runs that began before record `before`, the newest first.
    fn pilot_ids(&mut self, before: u64) -> Result<Vec<String>, StoreError> {
        let folded = match self.pilots_index()? {
            Some(index) => index.pilot_ids()?,
            None => BTreeMap::new(),
        };
        let mut ids = folded;
        let newer = self.overlay.pilots.begun();
        ids.extend(newer.map(|(seq, run)| (seq, run.to_owned())));
        let older = ids.into_iter().rev().filter(|(seq, _)| *seq < before);
        Ok(older.map(|(_, run)| run).take(PILOT_RUNS_MAX).collect())
    }

    fn pilot_run(&mut self, run: &str) -> Result<Option<PilotRun>, StoreError> {
        let folded = match self.pilots_index()? {
            Some(index) => index.pilot_ends(run)?,
            None => None,
        };
        let pilots = &self.overlay.pilots;
        let begun = pilots.0.get(run).and_then(|events| events.get(&0));
        let begun = begun.map(|(seq, first)| (*seq, first.clone(), first.clone()));
        let Some((seq, first, last)) = begun.or(folded) else {
            return Ok(None);
        };
        let newest = pilots.newest(run).unwrap_or(&last);
        Ok(Some(self.judge_pilot(seq, &first, newest)))
    }

    /// A run by its first event and its newest.
    fn judge_pilot(&self, seq: u64, first: &PilotDoc, newest: &PilotDoc) -> PilotRun {
        let state = match newest.owner {
            None => PilotState::Ended(newest.event.clone()),
            Some(owner) if self.owner_alive(OwnerId(owner)) => PilotState::Running,
            Some(_) => PilotState::Lost,
        };
        PilotRun {
            run: first.run.clone(),
            request: first.request.clone(),
            at: Timestamp(first.at),
            events: newest.place + 1,
            newest_at: Timestamp(newest.at),
            state,
            cursor: RunCursor(seq),
        }
    }
}

impl Index {
    /// All runs by their first records.
    fn pilot_ids(&self) -> Result<BTreeMap<u64, String>, StoreError> {
        let mut select = self.db.prepare_cached("SELECT seq, run FROM pilot_runs")?;
        let rows = select.query_map([], |row| {
            Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get(1)?))
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The first record of a run, its first event and its newest.
    fn pilot_ends(&self, run: &str) -> Result<Option<(u64, PilotDoc, PilotDoc)>, StoreError> {
        let select = "SELECT seq, (SELECT doc FROM pilot_events WHERE run = ?1 AND place = 0),
                             (SELECT doc FROM pilot_events WHERE run = ?1
                              ORDER BY place DESC LIMIT 1)
                      FROM pilot_runs WHERE run = ?1";
        let found: Option<(i64, String, String)> = self
            .db
            .prepare_cached(select)?
            .query_row([run], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        Ok(found.and_then(|(seq, first, last)| {
            let read = |doc: &str| serde_json::from_str(doc).ok();
            Some((seq.unsigned_abs(), read(&first)?, read(&last)?))
        }))
    }

    fn pilot_docs(&self, run: &str) -> Result<BTreeMap<u32, PilotDoc>, StoreError> {
        let mut select = self
            .db
            .prepare_cached("SELECT doc FROM pilot_events WHERE run = ?1")?;
        let rows = select.query_map([run], |row| row.get::<_, String>(0))?;
        let mut docs = BTreeMap::new();
        for row in rows {
            if let Ok(doc) = serde_json::from_str::<PilotDoc>(&row?) {
                docs.insert(doc.place, doc);
            }
        }
        Ok(docs)
    }

    fn pilot_places(&self, run: &str) -> Result<u32, StoreError> {
        let select = "SELECT max(place) FROM pilot_events WHERE run = ?1";
        let newest: Option<i64> = self
            .db
            .prepare_cached(select)?
            .query_row([run], |row| row.get(0))?;
        Ok(newest.map_or(0, |place| u32::try_from(place).unwrap_or(u32::MAX - 1) + 1))
    }

    fn pilot_of_request(&self, request: &str) -> Result<Option<String>, StoreError> {
        let select = "SELECT run FROM pilot_runs WHERE request = ?1";
        let found = self
            .db
            .prepare_cached(select)?
            .query_row([request], |row| row.get(0))
            .optional()?;
        Ok(found)
    }

    /// Folds the events since record `folded_seq`; the oldest runs beyond the bound leave.
    pub(crate) fn write_pilots(&self, pilots: &Pilots, folded_seq: u64) -> Result<(), StoreError> {
        let db = &self.db;
        let mut run = db.prepare_cached("INSERT OR REPLACE INTO pilot_runs VALUES (?1, ?2, ?3)")?;
        let mut event =
            db.prepare_cached("INSERT OR REPLACE INTO pilot_events VALUES (?1, ?2, ?3)")?;
        for (seq, doc) in pilots.docs().filter(|(seq, _)| *seq > folded_seq) {
            if doc.place == 0 {
                run.execute(params![doc.run, *seq as i64, doc.request])?;
            }
            let text = serde_json::to_string(doc).expect("plain values become JSON");
            event.execute(params![doc.run, i64::from(doc.place), text])?;
        }
        let old = "SELECT run FROM pilot_runs ORDER BY seq DESC LIMIT -1 OFFSET ?1";
        let kept = PILOT_RUNS_MAX as i64;
        db.execute(
            &format!("DELETE FROM pilot_events WHERE run IN ({old})"),
            [kept],
        )?;
        db.execute(
            &format!("DELETE FROM pilot_runs WHERE run IN ({old})"),
            [kept],
        )?;
        Ok(())
    }
}
