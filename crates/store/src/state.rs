//! The state of the workspace as this process has it: journal, overlay, index and what waits to
//! be written, behind one lock that is held for short sections and never across an await.
//! `read` looks; `commit` decides and appends under the lock of all processes. The order of the
//! locks is at [`Store`].

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_call::Timestamp;

use crate::frame::{self, FRAME_HEADER_BYTES};
use crate::index::{Found, Index, Mark};
use crate::journal::{Journal, Place, Position};
use crate::overlay::{Entry, EntryState, Overlay};
use crate::owner::Owner;
use crate::pending::{PENDING_BYTES_MAX, Pending};
use crate::side::Change;
use crate::{KeyId, Options, OwnerId, Store, StoreError, Ticket, failpoint, key_runs};

/// Everything behind the lock.
pub(crate) struct Inner {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// This process may write the index.
    pub(crate) may_fold: bool,
    pub(crate) journal: Journal,
    pub(crate) overlay: Overlay,
    pub(crate) pending: Pending,
    pub(crate) index: Option<Index>,
    /// What the overlay starts from; `None` from the start of the journal.
    pub(crate) mark: Option<Mark>,
    pub(crate) owner: Option<Owner>,
    pub(crate) records: u64,
    pub(crate) folds: u64,
    pub(crate) lost: u64,
    /// Records up to this one may have been given up.
    pub(crate) lost_through: Ticket,
    /// The newest record a head was signed for, as far as this process knows.
    pub(crate) signed_seq: u64,
    /// At so many pending bytes the store writes without being asked.
    write_at_bytes: usize,
    /// The newest write of this process went well.
    pub(crate) writes_well: bool,
    end_checked: bool,
    segment_seen: u64,
    /// The last key the index did not have; until the overlay goes into the index.
    pub(crate) absent: Option<KeyId>,
}

/// Takes the lock.
pub(crate) fn locked(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    // A panic elsewhere leaves whole values behind: state changes only after a write.
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        locked(&self.inner)
    }

    /// Looks at the newest state, without the commit lock.
    pub(crate) fn read<T>(
        &self,
        look: impl FnOnce(&mut Inner, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut inner = self.inner();
        inner.tail(false)?;
        look(&mut inner, self.clock.now())
    }

    /// Decides on the newest state under the commit lock; what `decide` adds to the pending
    /// records is in the file on return, or nothing of it is.
    pub(crate) fn commit<T>(
        &self,
        decide: impl FnOnce(&mut Inner, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.commit_at("commit.before_write", "commit.after_write", decide)
    }

    /// As `commit`, with crash points of its own.
    pub(crate) fn commit_at<T>(
        &self,
        before_write: &'static str,
        after_write: &'static str,
        decide: impl FnOnce(&mut Inner, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut inner = self.inner();
        let inner = &mut *inner;
        let lock = inner.journal.lock()?;
        inner.tail(true)?;
        if inner.pending.bytes_len() > PENDING_BYTES_MAX / 8 {
            inner.flush()?;
        }
        let before = inner.pending.mark();
        let decided = decide(inner, self.clock.now());
        // One that only writes what others left pending adds nothing.
        let added = inner.pending.mark().saturating_sub(before);
        let done = decided.and_then(|value| {
            failpoint(before_write);
            inner.flush()?;
            failpoint(after_write);
            Ok(value)
        });
        if done.is_err() {
            inner
                .pending
                .undo(inner.pending.mark().saturating_sub(added));
        }
        drop(lock);
        inner.fold_if_due(self.clock.now());
        done
    }

    /// Writes what is pending.
    pub(crate) fn write_pending(&self, inner: &mut Inner) -> Result<(), StoreError> {
        if inner.pending.is_empty() {
            return Ok(());
        }
        failpoint("finish.before_write");
        let lock = inner.journal.lock()?;
        inner.tail(true)?;
        inner.flush()?;
        drop(lock);
        failpoint("settle.after_write");
        inner.fold_if_due(self.clock.now());
        Ok(())
    }

    /// Bounds what is pending: writes it, or gives it up if that has long been impossible.
    pub(crate) fn bound_pending(&self, inner: &mut Inner) {
        if inner.pending.bytes_len() < inner.write_at_bytes {
            return;
        }
        if self.write_pending(inner).is_ok() {
            inner.write_at_bytes = PENDING_BYTES_MAX;
            return;
        }
        // Not at every record: a try is not free.
        inner.write_at_bytes = inner.pending.bytes_len() + PENDING_BYTES_MAX / 16;
        if inner.pending.bytes_len() >= 2 * PENDING_BYTES_MAX {
            inner.give_up(self.clock.now());
            inner.write_at_bytes = PENDING_BYTES_MAX;
        }
    }
}

impl Inner {
    pub(crate) fn new(
        dir: PathBuf,
        options: Options,
        may_fold: bool,
        journal: Journal,
        mark: Option<Mark>,
    ) -> Self {
        let mut overlay = Overlay::default();
        if let Some(mark) = &mark {
            overlay.reset(mark.small());
        }
        Self {
            dir,
            options,
            may_fold,
            journal,
            overlay,
            pending: Pending::default(),
            index: None,
            mark,
            owner: None,
            records: 0,
            folds: 0,
            lost: 0,
            lost_through: Ticket(0),
            signed_seq: 0,
            write_at_bytes: PENDING_BYTES_MAX,
            writes_well: false,
            end_checked: false,
            segment_seen: 0,
            absent: None,
        }
    }

    /// Reads what is new in the journal.
    pub(crate) fn tail(&mut self, locked: bool) -> Result<(), StoreError> {
        let overlay = &mut self.overlay;
        self.journal
            .tail(locked, |seq, place, side| overlay.apply(seq, place, side))?;
        if locked && !self.end_checked {
            self.journal.check_end()?;
            self.end_checked = true;
        }
        let segment = self.journal.position().segment;
        if segment != self.segment_seen {
            let first = self.segment_seen == 0;
            self.segment_seen = segment;
            if !first {
                self.trim()?;
            }
        }
        Ok(())
    }

    /// Writes all pending records; needs the commit lock and a fresh `tail`.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        while !self.pending.is_empty() {
            let at = self.journal.position();
            let framed = self
                .pending
                .frame(at.seq, &at.hash, self.overlay.small.ordinal);
            let appended =
                self.journal
                    .append(self.pending.frame_bytes(), framed.count, framed.hash);
            self.writes_well = appended.is_ok();
            let begin = appended?;
            self.apply_frame(begin);
            self.records += framed.count as u64;
            self.pending.consume(framed.count);
        }
        self.overlay.settled();
        Ok(())
    }

    fn apply_frame(&mut self, begin: Position) {
        let payload = &self.pending.frame_bytes()[FRAME_HEADER_BYTES..];
        let place = |offset: u32| Place {
            segment: u32::try_from(begin.segment).expect("2^32 segments are 16 PiB"),
            offset: u32::try_from(begin.offset).expect("segments are small") + offset,
        };
        for (seq, record) in (begin.seq + 1..).zip(frame::records(payload)) {
            let record = record.expect("our own frame");
            if !record.side.is_empty() {
                let sense = self.overlay.apply(seq, place(record.offset), record.side);
                debug_assert!(sense, "our own record");
            }
        }
    }

    /// Gives up all pending records and says so in one.
    fn give_up(&mut self, now: Timestamp) {
        let lost = self.pending.mark();
        self.lost += lost as u64;
        self.lost_through = self.pending.newest();
        self.pending.consume(lost);
        self.overlay.given_up();
        crate::records::lost(&mut self.pending, now, lost as u64);
    }

    /// The index, if it holds anything this process has not in its overlay.
    pub(crate) fn index(&mut self) -> Result<Option<&mut Index>, StoreError> {
        if self.mark.is_none() {
            return Ok(None);
        }
        if self.index.is_none() {
            let index = Index::open(&self.dir, self.may_fold)?;
            let mark = index.mark()?;
            self.index = Some(index);
            let seq = |mark: &Option<Mark>| mark.as_ref().map_or(0, |mark| mark.seq);
            if seq(&mark) < seq(&self.mark) {
                self.rebase(mark)?;
            }
        }
        Ok(if self.mark.is_some() {
            self.index.as_mut()
        } else {
            None
        })
    }

    /// Starts over from what the index really holds: it lost its end, or was deleted.
    pub(crate) fn rebase(&mut self, mark: Option<Mark>) -> Result<(), StoreError> {
        let position = mark.as_ref().and_then(Mark::position);
        self.overlay
            .reset(mark.as_ref().map(Mark::small).unwrap_or_default());
        self.journal.reset(position.unwrap_or(Position::START));
        self.mark = mark;
        self.segment_seen = 0;
        let overlay = &mut self.overlay;
        self.journal
            .tail(false, |seq, place, side| overlay.apply(seq, place, side))?;
        for (ticket, side) in self.pending.sides() {
            if let Some(Change::End(ended)) = Change::decode(side) {
                self.overlay.ending(ticket, &ended);
            }
        }
        Ok(())
    }

    /// Forgets what another process folded.
    pub(crate) fn trim(&mut self) -> Result<(), StoreError> {
        let known = self.mark.as_ref().map_or(0, |mark| mark.seq);
        self.absent = None;
        let Some(told) = Mark::read(&self.dir).filter(|told| told.seq > known) else {
            return Ok(());
        };
        self.mark.get_or_insert(told);
        let Some(index) = self.index()? else {
            return Ok(());
        };
        let Some(mark) = index.mark()?.filter(|mark| mark.seq > known) else {
            return Ok(());
        };
        // The sieve must know what the overlay forgets.
        index.changed()?;
        if mark.seq > self.journal.position().seq {
            return Ok(());
        }
        self.overlay.trim(mark.seq);
        if let Some(folded) = mark.position() {
            let here = self.journal.position();
            let whole = self.options.tuning.segment_bytes;
            let segments = here.segment.saturating_sub(folded.segment);
            self.journal.passed_bytes =
                (segments * whole + here.offset).saturating_sub(folded.offset);
        }
        self.mark = Some(mark);
        Ok(())
    }

    /// The latest state of a key.
    pub(crate) fn entry(&mut self, key: &KeyId) -> Result<Option<Entry>, StoreError> {
        if let Some(entry) = self.overlay.keys.get(key) {
            return Ok(Some(*entry));
        }
        if self
            .mark
            .as_ref()
            .is_none_or(|mark| !mark.keys && !mark.has_open())
        {
            return Ok(None);
        }
        // A call that starts looks twice.
        if self.absent == Some(*key) {
            return Ok(None);
        }
        let Some(index) = self.index()? else {
            return Ok(self.overlay.keys.get(key).copied());
        };
        match index.find(key)? {
            None => {
                let newer = self.overlay.keys.get(key).copied();
                self.absent = newer.is_none().then_some(*key);
                Ok(newer)
            }
            Some(Found::Open(entry)) => Ok(Some(entry)),
            Some(Found::Finished(place)) if place == key_runs::FREE => Ok(None),
            Some(Found::Finished(place)) => {
                let side = self.journal.side_at(place)?;
                Ok(match Change::decode(&side) {
                    Some(Change::End(ended)) => {
                        ended
                            .key
                            .filter(|ended| ended.key == *key)
                            .map(|ended_key| Entry {
                                state: EntryState::Finished {
                                    place,
                                    ordinal: ended_key.ordinal,
                                },
                                seq: 0,
                                call: ended_key.call,
                                bond: ended_key.bond,
                                at: ended.at,
                            })
                    }
                    _ => None,
                })
            }
        }
    }

    /// This process's name, with its lock taken.
    pub(crate) fn owner(&mut self) -> Result<OwnerId, StoreError> {
        if self.owner.is_none() {
            self.owner = Some(Owner::new(&self.dir)?);
        }
        Ok(self.owner.as_ref().expect("made above").id())
    }

    /// True if the owner's process lives.
    pub(crate) fn owner_alive(&self, owner: OwnerId) -> bool {
        self.owner.as_ref().is_some_and(|own| own.id() == owner)
            || crate::owner::is_alive(&self.dir, owner)
    }
}
