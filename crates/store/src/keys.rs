//! Idempotency keys and the records of calls (G-3, T-7): what a key says, and the one
//! transaction that claims it, redeems the lease and records the start.

use std::time::Duration;

use callgate_call::{Digest, Timestamp};

use crate::calls::bond;
use crate::leases;
use crate::overlay::{Entry, EntryState};
use crate::pending::Pending;
use crate::side::{Change, Claim, Ended, EndedKey, INLINE_BYTES_MAX, Kept, fault_parts};
use crate::state::Inner;
use crate::{
    ApprovalId, Begun, BreakerState, End, Finish, KeyId, LeaseId, OwnerId, Recorded, Refusal,
    Replay, Seen, Start, Started, Store, StoreError, Ticket, View, blobs, records,
};

/// First and longest pause between two looks at a call that another process runs.
const POLL_FIRST: Duration = Duration::from_millis(2);
const POLL_MAX: Duration = Duration::from_millis(50);

impl Store {
    /// What the key says, without the commit lock: one `fstat` when nothing is new.
    pub fn peek(
        &self,
        key: &KeyId,
        tool: &str,
        input: &Digest,
        view: View,
    ) -> Result<Seen, StoreError> {
        let bond = &bond(tool, input);
        match self.read(|inner, now| inner.judge(key, bond, view, now))? {
            Judged::Seen { seen, .. } => Ok(seen),
            Judged::Dead { .. } => self.commit(|inner, now| {
                // Nobody writes while we hold the lock, so a dead owner's last word is read.
                Ok(match inner.judge(key, bond, view, now)? {
                    Judged::Seen { seen, .. } => seen,
                    Judged::Dead { entry, owner } => inner.declare_unknown(key, &entry, owner, now),
                })
            }),
        }
    }

    /// Claims the key, redeems the lease, spends the approval and records the start, as one
    /// transaction or not at all. In the file on return.
    pub fn begin(&self, start: Start<'_>) -> Result<Begun, StoreError> {
        self.commit_at("begin.before_write", "begin.after_write", |inner, now| {
            inner.begin(&start, now)
        })
    }

    /// Records the end of a call that was begun. In memory until `settle`.
    ///
    /// Fails only where a large output could not be kept for replay, and then the call has ended
    /// all the same: with a fault (`internal`) that says so, which is what its key replays. As
    /// the caller has no ticket then, that end is written at once, or else with the next write.
    pub fn finish(&self, finish: Finish<'_>) -> Result<Ticket, StoreError> {
        let now = self.clock.now();
        match large_output(&finish).map(|text| self.keep_blob(text, now)) {
            None => Ok(self.finish_with(&finish, None, now)),
            Some(Ok(digest)) => Ok(self.finish_with(&finish, Some(digest), now)),
            Some(Err(error)) => {
                self.finish_unkept(finish, &error);
                Err(error)
            }
        }
    }

    fn finish_with(&self, finish: &Finish<'_>, blob: Option<Digest>, now: Timestamp) -> Ticket {
        let mut inner = self.inner();
        let ticket = inner.finish(finish, blob, now);
        self.bound_pending(&mut inner);
        drop(inner);
        if finish.key.is_some() {
            self.ended.notify_waiters();
        }
        ticket
    }

    /// Ends a call whose output could not be kept, so that its key is not in flight for as long
    /// as this process lives.
    fn finish_unkept(&self, finish: Finish<'_>, error: &StoreError) {
        // Not the path: the caller of the tool reads this.
        let cause = match error {
            StoreError::Full { source, .. } => source.to_string(),
            error => error.to_string(),
        };
        let end = End::Fault {
            kind: "internal",
            message: &format!("the tool ran, but its output could not be kept: {cause}"),
            data: &serde_json::json!({}),
        };
        self.finish_with(&Finish { end, ..finish }, None, self.clock.now());
        if let Err(error) = self.write_pending(&mut self.inner()) {
            tracing::debug!(%error, "the end of a call waits to be written");
        }
    }

    /// Records that a call that was begun ran nothing: its key is free again, and so are the
    /// lease and the approval it spent, all in one transaction. In the file on return. Where
    /// that can not be written only the end is recorded, in memory until `settle`, and what was
    /// spent stays spent; as it does when we are killed before.
    pub fn finish_unrun(&self, start: Start<'_>, finish: Finish<'_>) -> Ticket {
        let finish = Finish {
            keep: false,
            ..finish
        };
        let given_back =
            self.commit_at("finish.before_write", "settle.after_write", |inner, now| {
                inner.give_back_lease(&start, now)?;
                inner.give_back_approval(&start, now)?;
                Ok(inner.finish(&finish, None, now))
            });
        match given_back {
            Ok(ticket) => {
                self.ended.notify_waiters();
                ticket
            }
            Err(error) => {
                tracing::debug!(%error, "what a call spent is not given back");
                self.finish_with(&finish, None, self.clock.now())
            }
        }
    }

    /// Records a call that had no effect and spent nothing, start and end in one record. In
    /// memory until `settle`: were we killed before, nothing happened. Its key, if it has one,
    /// is claimed and ended together; where the output can not be kept the key stays free, as
    /// such a call may well run again.
    pub fn record_pure(&self, start: Start<'_>, finish: Finish<'_>) -> Ticket {
        let now = self.clock.now();
        let (mut key, mut blob) = (finish.key, None);
        match large_output(&finish).map(|text| self.keep_blob(text, now)) {
            None => {}
            Some(Ok(digest)) => blob = Some(digest),
            Some(Err(error)) => {
                tracing::debug!(%error, "an output is not kept, its key stays free");
                key = None;
            }
        }
        let mut inner = self.inner();
        // A key of which nothing can be told is left alone, too.
        let claimed = key.and_then(|key| Some((key, inner.is_held(&key).ok()?)));
        let key = claimed.map(|(key, _)| key);
        let held = claimed.is_some_and(|(_, held)| held);
        let finish = Finish { key, ..finish };
        let ticket = inner.end(&finish, blob, held, now, |pending, ended| {
            records::call(pending, now, &start, &finish, ended)
        });
        self.bound_pending(&mut inner);
        drop(inner);
        if key.is_some() {
            self.ended.notify_waiters();
        }
        ticket
    }

    /// Records a refusal. In memory until `settle`.
    pub fn refuse(&self, refusal: Refusal<'_>) -> Ticket {
        let mut inner = self.inner();
        let ticket = records::refusal(&mut inner.pending, self.clock.now(), &refusal);
        self.bound_pending(&mut inner);
        ticket
    }

    /// Records that an earlier call's end answered. In memory until `settle`.
    pub fn replayed(&self, replay: Replay<'_>) -> Ticket {
        let mut inner = self.inner();
        let ticket = records::replay(&mut inner.pending, self.clock.now(), &replay);
        self.bound_pending(&mut inner);
        ticket
    }

    /// Waits until the key's call has ended, its process has died, or `within` has passed; then
    /// says what the key says.
    pub async fn wait_finished(
        &self,
        key: &KeyId,
        tool: &str,
        input: &Digest,
        view: View,
        within: Duration,
    ) -> Result<Seen, StoreError> {
        let deadline = tokio::time::sleep(within);
        tokio::pin!(deadline);
        let mut pause = POLL_FIRST;
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let seen = self.peek(key, tool, input, view)?;
            let Seen::InFlight { owner, .. } = &seen else {
                return Ok(seen);
            };
            let ours = self
                .inner()
                .owner
                .as_ref()
                .is_some_and(|own| own.id() == *owner);
            // Losing an arm loses nothing: the key is looked at again.
            tokio::select! {
                () = &mut deadline => return self.peek(key, tool, input, view),
                () = ended => {}
                () = tokio::time::sleep(pause), if !ours => pause = POLL_MAX.min(pause * 2),
            }
        }
    }

    /// A tool's consecutive failures. G-7.
    pub fn breaker(&self, tool: &str) -> Result<BreakerState, StoreError> {
        self.read(|inner, _| Ok(inner.overlay.breaker(tool)))
    }
}

/// What the state says of a key.
enum Judged {
    /// `held`: its earlier run is unfinished, so it is counted already.
    Seen { seen: Seen, held: bool },
    /// In flight, and its owner is dead.
    Dead { entry: Entry, owner: OwnerId },
}

impl Inner {
    fn judge(
        &mut self,
        key: &KeyId,
        bond: &Digest,
        view: View,
        now: Timestamp,
    ) -> Result<Judged, StoreError> {
        let seen = |seen| Ok(Judged::Seen { seen, held: false });
        let Some(entry) = self.entry(key)? else {
            return seen(Seen::New);
        };
        let age = now.since(Timestamp(entry.at));
        let counts = match entry.state {
            EntryState::Free => false,
            EntryState::InFlight { .. } => true,
            EntryState::Unknown => age < self.options.key_life,
            EntryState::Finished { ordinal, .. } | EntryState::Ending { ordinal, .. } => {
                age < self.options.key_life && self.in_view(view, age, ordinal)
            }
        };
        if !counts {
            return Ok(Judged::Seen {
                seen: Seen::New,
                held: entry.state.is_open(),
            });
        }
        if entry.bond != *bond {
            return seen(Seen::Conflict { call: entry.call });
        }
        match entry.state {
            EntryState::InFlight { owner } if self.owner_alive(owner) => seen(Seen::InFlight {
                owner,
                call: entry.call,
            }),
            // What nobody asked about for so long is over, as if it had been declared.
            EntryState::InFlight { .. } if age >= self.options.key_life => Ok(Judged::Seen {
                seen: Seen::New,
                held: true,
            }),
            EntryState::InFlight { owner } => Ok(Judged::Dead { entry, owner }),
            EntryState::Unknown => Ok(Judged::Seen {
                seen: Seen::Unknown { call: entry.call },
                held: true,
            }),
            EntryState::Finished { .. } | EntryState::Ending { .. } => seen(self.recorded(&entry)?),
            EntryState::Free => seen(Seen::New),
        }
    }

    fn in_view(&self, view: View, age: Duration, ordinal: u64) -> bool {
        match view {
            View::Full => true,
            View::Recent {
                max_age,
                max_entries,
            } => age < max_age && self.overlay.ordinal().saturating_sub(ordinal) < max_entries,
        }
    }

    /// How a finished call ended, read from its record.
    fn recorded(&mut self, entry: &Entry) -> Result<Seen, StoreError> {
        let read;
        let side = match entry.state {
            EntryState::Finished { place, .. } => {
                read = self.journal.side_at(place)?;
                &read[..]
            }
            EntryState::Ending { ticket, .. } => self.pending.side(ticket).unwrap_or(&[]),
            _ => &[],
        };
        let kept = match Change::decode(side) {
            Some(Change::End(ended)) => ended.key.and_then(|key| key.result),
            _ => None,
        };
        let result = match kept {
            Some(Kept::Text(text) | Kept::Slotted { text, .. }) => Some(Ok(text.to_owned())),
            Some(Kept::Blob(digest)) => blobs::read(&self.dir, &digest)?.map(Ok),
            Some(fault @ Kept::Fault { .. }) => fault.fault().map(Err),
            None => None,
        };
        let slots = match kept {
            Some(Kept::Slotted { slots, .. }) => Some(slots.to_owned()),
            _ => None,
        };
        // An end that was given up for want of space, or whose output somebody removed, is as
        // good as never recorded.
        let call = entry.call;
        Ok(match result {
            Some(result) => Seen::Finished(Recorded {
                call,
                result,
                slots,
            }),
            None => Seen::Unknown { call },
        })
    }

    fn declare_unknown(
        &mut self,
        key: &KeyId,
        entry: &Entry,
        owner: OwnerId,
        now: Timestamp,
    ) -> Seen {
        let claim = Claim {
            key: *key,
            bond: entry.bond,
            call: entry.call,
            owner,
            at: now.0,
            again: true,
        };
        records::unknown(&mut self.pending, claim);
        Seen::Unknown { call: entry.call }
    }

    /// True if an earlier run of the key is unfinished, so that it is counted already.
    fn is_held(&mut self, key: &KeyId) -> Result<bool, StoreError> {
        let entry = self.entry(key)?;
        Ok(entry.is_some_and(|entry| entry.state.is_open()))
    }

    fn begin(&mut self, start: &Start<'_>, now: Timestamp) -> Result<Begun, StoreError> {
        let mut again = None;
        let mut held = false;
        if let Some(key) = &start.key {
            let bond = bond(start.tool, &start.input);
            let seen = match self.judge(key, &bond, start.view, now)? {
                Judged::Seen {
                    seen,
                    held: counted,
                } => {
                    held = counted;
                    seen
                }
                Judged::Dead { entry, owner } => {
                    held = true;
                    self.declare_unknown(key, &entry, owner, now)
                }
            };
            match seen {
                Seen::New => {}
                Seen::Unknown { call } if start.idempotent => again = Some(call),
                seen => return Ok(Begun::Seen(seen)),
            }
            if !held && self.overlay.small.open >= self.options.keys_max {
                return Ok(Begun::Full);
            }
        }
        let lease = match start.lease {
            None => None,
            Some(token) => {
                let hash = leases::hash_of(token.reveal());
                let Some(doc) = self.lease(&hash)? else {
                    return Ok(Begun::LeaseRefused(callgate_call::LeaseRefusal::NotFound));
                };
                if let Some(refusal) = doc.refusal(start, now) {
                    return Ok(Begun::LeaseRefused(refusal));
                }
                Some(doc)
            }
        };
        let approval = match &start.displayed {
            None => None,
            Some(displayed) => match self.granted(start, displayed, now)? {
                Ok(doc) => Some(doc),
                Err(latest) => return Ok(Begun::NotApproved(latest)),
            },
        };
        let claim = match start.key {
            None => None,
            Some(key) => Some(Claim {
                key,
                bond: bond(start.tool, &start.input),
                call: start.call,
                owner: self.owner()?,
                at: now.0,
                again: held,
            }),
        };
        // All is decided: from here on nothing fails but the write.
        let spent = Some((start.call.to_string(), now.0));
        let lease_id = lease.as_ref().map(|doc| LeaseId(doc.id.clone()));
        if let Some(mut doc) = lease {
            doc.spent.clone_from(&spent);
            records::lease_use(&mut self.pending, now, records::Use::Spent, start, doc);
        }
        let approval_id = approval.as_ref().map(|doc| ApprovalId(doc.id.clone()));
        if let Some(mut doc) = approval {
            doc.spent = spent;
            records::approval_use(&mut self.pending, now, records::Use::Spent, start, doc);
        }
        let ticket = records::start(
            &mut self.pending,
            now,
            start,
            claim,
            lease_id.as_ref(),
            approval_id.as_ref(),
        );
        Ok(Begun::Started(Started {
            ticket,
            lease: lease_id,
            again,
        }))
    }

    fn finish(&mut self, finish: &Finish<'_>, blob: Option<Digest>, now: Timestamp) -> Ticket {
        self.end(finish, blob, true, now, |pending, ended| {
            records::outcome(pending, now, finish, ended)
        })
    }

    /// Adds the record of an end. `held`: the key was claimed by an earlier record.
    fn end(
        &mut self,
        finish: &Finish<'_>,
        blob: Option<Digest>,
        held: bool,
        now: Timestamp,
        record: impl FnOnce(&mut Pending, Ended<'_>) -> Ticket,
    ) -> Ticket {
        let data;
        let result = match finish.end {
            _ if !finish.keep || finish.key.is_none() => None,
            End::Output { text, .. } => Some(match (blob, finish.slots) {
                (Some(digest), _) => Kept::Blob(digest),
                (None, Some(slots)) => Kept::Slotted { text, slots },
                (None, None) => Kept::Text(text),
            }),
            End::Fault {
                kind,
                message,
                data: values,
            } => {
                data = values.to_string();
                let (message, data) = fault_parts(message, &data);
                Some(Kept::Fault {
                    kind,
                    message,
                    data,
                })
            }
        };
        let recent = result.is_some() && matches!(finish.view, View::Recent { .. });
        let key = finish.key.map(|key| EndedKey {
            key,
            bond: bond(finish.tool, &finish.input),
            call: finish.call,
            held,
            recent,
            ordinal: 0,
            result,
        });
        let ended = Ended {
            at: now.0,
            health: finish.health,
            tool: finish.tool,
            key,
        };
        let ticket = record(&mut self.pending, ended.clone());
        self.overlay.ending(ticket, &ended);
        ticket
    }
}

/// The output, if it is to be kept for replay and too large for its record.
fn large_output<'a>(finish: &Finish<'a>) -> Option<&'a str> {
    match finish.end {
        End::Output { text, .. } if finish.key.is_some() && finish.keep => {
            Some(text).filter(|text| text.len() > INLINE_BYTES_MAX)
        }
        _ => None,
    }
}
