//! Folding: the overlay goes into the index in one transaction, together with the watermark it
//! stands for. Nothing is decided here, and nothing is lost if it fails: the journal has it all.
//! The commit lock is not needed, since only what is in the journal is folded.

use std::collections::HashMap;
use std::time::Duration;

use callgate_call::Timestamp;
use rusqlite::{Connection, ErrorCode, params};

use crate::index::{self, Index, Mark};
use crate::journal::Place;
use crate::overlay::{EntryState, Overlay};
use crate::state::Inner;
use crate::{KeyId, OwnerId, StoreError, failpoint, key_runs, owner};

/// Leases and approvals are shown for a day after their end.
const SHOWN_MS: u64 = 24 * 60 * 60 * 1000;
/// So many unfinished keys are dropped in one fold.
const DEAD_KEYS_MAX: usize = 256;

impl Inner {
    /// Folds once enough has gathered. A fold that fails is tried again later.
    pub(crate) fn fold_if_due(&mut self, now: Timestamp) {
        if self.journal.passed_bytes < self.options.tuning.fold_bytes || !self.may_fold {
            return;
        }
        if let Err(error) = self.fold(now) {
            tracing::debug!(%error, "fold postponed");
            // Not at every call: after as much again.
            self.journal.passed_bytes = 0;
        }
    }

    /// Folds what is in the overlay and the journal.
    pub(crate) fn fold(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if !self.may_fold || !self.pending.is_empty() {
            return Ok(());
        }
        if self.index.is_none() {
            self.index = Some(Index::open(&self.dir, true)?);
        }
        let here = self.journal.position();
        let known = self.mark.as_ref().map_or(0, |mark| mark.seq);
        let index = self.index.as_mut().expect("opened above");
        index.db.busy_timeout(Duration::ZERO)?;
        let begun = index.db.execute_batch("BEGIN IMMEDIATE");
        index.db.busy_timeout(index::BUSY_TIMEOUT)?;
        if begun.as_ref().is_err_and(is_busy) {
            // Somebody else folds: a look a little later is soon enough.
            self.journal.passed_bytes = self.options.tuning.fold_bytes / 4 * 3;
            return Ok(());
        }
        begun?;
        let folded = index.mark()?;
        let folded_seq = folded.as_ref().map_or(0, |mark| mark.seq);
        if folded_seq < known || folded_seq >= here.seq {
            index.db.execute_batch("ROLLBACK")?;
            return if folded_seq < known {
                self.rebase(folded)
            } else {
                self.trim()
            };
        }
        let mut mark = Mark::new(here, &self.overlay.small);
        let written = write(
            index,
            &self.overlay,
            &self.options,
            folded_seq,
            now,
            |owner| {
                self.owner.as_ref().is_some_and(|own| own.id() == owner)
                    || owner::is_alive(&self.dir, owner)
            },
        )
        .and_then(|counts| {
            counts.tell(&mut mark);
            index.set_mark(&mark)?;
            failpoint("fold.mid");
            index.db.execute_batch("COMMIT")?;
            Ok(())
        });
        if let Err(error) = written {
            let _ = index.db.execute_batch("ROLLBACK");
            return Err(error);
        }
        index.changed()?;
        self.folds += 1;
        self.absent = None;
        self.overlay.reset(mark.small());
        self.journal.passed_bytes = 0;
        // Without the copy others read a little more of the journal.
        let _ = mark.write(&self.dir);
        self.mark = Some(mark);
        self.sweep(now, usize::MAX);
        Ok(())
    }
}

/// What the index holds after a fold.
struct Counts {
    open: u64,
    keys: bool,
    leases: bool,
    approvals: bool,
    notes: bool,
    plans: bool,
    streamed_runs: bool,
    pilots: bool,
}

impl Counts {
    fn tell(&self, mark: &mut Mark) {
        mark.set_open(self.open);
        mark.keys = self.keys;
        mark.leases = self.leases;
        mark.approvals = self.approvals;
        mark.notes = self.notes;
        mark.plans = self.plans;
        mark.streamed_runs = self.streamed_runs;
        mark.pilots = self.pilots;
    }
}

fn write(
    index: &Index,
    overlay: &Overlay,
    options: &crate::Options,
    folded_seq: u64,
    now: Timestamp,
    alive: impl Fn(OwnerId) -> bool,
) -> Result<Counts, StoreError> {
    let db = &index.db;
    let life_ms = u64::try_from(options.key_life.as_millis()).unwrap_or(u64::MAX);
    let alive_from = now.0.saturating_sub(life_ms);
    write_keys(db, overlay, folded_seq, options.tuning.run_keys)?;
    key_runs::expire(db, alive_from, options.keys_max)?;
    expire_open(index, alive_from, alive)?;
    write_docs(db, overlay, folded_seq)?;
    index.write_plans(&overlay.plans, folded_seq)?;
    index.write_runs(&overlay.runs, folded_seq)?;
    index.write_pilots(&overlay.pilots, folded_seq)?;
    let shown_from = now.0.saturating_sub(SHOWN_MS) as i64;
    db.prepare_cached("DELETE FROM leases WHERE expires_at < ?1")?
        .execute([shown_from])?;
    db.prepare_cached("DELETE FROM approvals WHERE asked_at < ?1")?
        .execute([shown_from.saturating_sub(life_ms as i64)])?;
    let count = |table: &str| -> Result<i64, StoreError> {
        let select = format!("SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1)");
        Ok(db.query_row(&select, [], |row| row.get(0))?)
    };
    let open: i64 = db.query_row("SELECT count(*) FROM open_keys", [], |row| row.get(0))?;
    Ok(Counts {
        open: open.unsigned_abs(),
        keys: count("runs")? > 0,
        leases: count("leases")? > 0,
        approvals: count("approvals")? > 0,
        notes: count("notes")? > 0,
        plans: count("plans")? > 0,
        streamed_runs: count("streamed_runs")? > 0,
        pilots: count("pilot_runs")? > 0,
    })
}

fn write_keys(
    db: &Connection,
    overlay: &Overlay,
    folded_seq: u64,
    run_keys_max: usize,
) -> Result<(), StoreError> {
    let mut ended: Vec<(u64, KeyId, Place)> = Vec::new();
    let mut newest_at = 0;
    let mut open = db.prepare_cached("INSERT OR REPLACE INTO open_keys VALUES (?1, ?2)")?;
    for (key, entry) in overlay
        .keys
        .iter()
        .filter(|(_, entry)| entry.seq > folded_seq)
    {
        match entry.state {
            EntryState::Finished { place, .. } => ended.push((entry.seq, *key, place)),
            EntryState::Free => ended.push((entry.seq, *key, key_runs::FREE)),
            _ => {
                open.execute(params![key.0, index::encode_entry(entry)])?;
                continue;
            }
        }
        newest_at = newest_at.max(entry.at);
    }
    let any_open: bool = db.query_row("SELECT EXISTS (SELECT 1 FROM open_keys)", [], |row| {
        row.get(0)
    })?;
    if any_open {
        let mut close = db.prepare_cached("DELETE FROM open_keys WHERE key = ?1")?;
        for (_, key, _) in &ended {
            close.execute([key.0])?;
        }
    }
    ended.sort_unstable_by_key(|(seq, ..)| *seq);
    let ended: Vec<key_runs::Indexed> = ended.into_iter().map(|(_, key, at)| (key, at)).collect();
    Ok(key_runs::add(db, &ended, newest_at, run_keys_max)?)
}

/// Drops unfinished keys that no longer count: unknown, or of a dead owner, for too long.
fn expire_open(
    index: &Index,
    alive_from: u64,
    alive: impl Fn(OwnerId) -> bool,
) -> Result<(), StoreError> {
    let entries = index::load_open(&index.db)?;
    // A look at an owner is a system call or two, and few owners have many keys.
    let mut living: HashMap<OwnerId, bool> = HashMap::new();
    let over = entries
        .iter()
        .filter(|(_, entry)| entry.at <= alive_from)
        .filter(|(_, entry)| match entry.state {
            EntryState::InFlight { owner } => !*living.entry(owner).or_insert_with(|| alive(owner)),
            _ => true,
        })
        .take(DEAD_KEYS_MAX);
    let mut drop_key = index
        .db
        .prepare_cached("DELETE FROM open_keys WHERE key = ?1")?;
    for (key, _) in over {
        drop_key.execute([key.0])?;
    }
    Ok(())
}

fn write_docs(db: &Connection, overlay: &Overlay, folded_seq: u64) -> Result<(), StoreError> {
    let mut lease = db.prepare_cached("INSERT OR REPLACE INTO leases VALUES (?1, ?2, ?3, ?4)")?;
    for (_, doc) in overlay.leases.values().filter(|(seq, _)| *seq > folded_seq) {
        lease.execute(params![doc.hash, doc.id, doc.expires_at as i64, json(doc)])?;
    }
    let mut approval =
        db.prepare_cached("INSERT OR REPLACE INTO approvals VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (_, doc) in overlay
        .approvals
        .values()
        .filter(|(seq, _)| *seq > folded_seq)
    {
        let (at, seq) = (doc.asked_at as i64, doc.asked_seq as i64);
        approval.execute(params![doc.id, doc.bond, at, seq, json(doc)])?;
    }
    let mut note = db.prepare_cached("INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3, ?4)")?;
    let mut words = db.prepare_cached("INSERT INTO note_words (rowid, text) VALUES (?1, ?2)")?;
    for doc in overlay.notes.iter().filter(|note| note.id > folded_seq) {
        note.execute(params![doc.id as i64, doc.at as i64, doc.text, doc.meta])?;
        words.execute(params![doc.id as i64, doc.text])?;
    }
    Ok(())
}

fn json(doc: &impl serde::Serialize) -> String {
    serde_json::to_string(doc).expect("plain values become JSON")
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
