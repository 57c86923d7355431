//! Records that wait for the next write of this process, numbered so that a ticket can say
//! which of them it means. Their place in the chain is decided under the commit lock.

use crate::Ticket;
use callgate_text::write_decimal;

use crate::body::BodyWriter;
use crate::frame::{FrameWriter, HASHED_BEFORE_BYTES, Hash, chain_hash, side_digest};
use crate::side::Change;

/// A frame is closed once it is this large, if its transaction is complete.
const FRAME_BYTES: usize = 1024 * 1024;
/// At this many bytes the store writes without being asked; at twice as many, if writing fails,
/// it gives records up.
pub(crate) const PENDING_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The waiting records.
#[derive(Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Number of the newest record ever added.
    newest: u64,
    /// Number of the newest record that was written, or given up.
    written: u64,
    frame: Vec<u8>,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    seq_at: usize,
    body_end: usize,
    end: usize,
    /// Where in the side bytes the ordinal belongs; 0 for none.
    ordinal_at: usize,
    /// The transaction goes on with the next record.
    more: bool,
}

/// A frame made of waiting records.
pub(crate) struct Framed {
    /// How many records are in it.
    pub(crate) count: usize,
    /// The chain's hash after it.
    pub(crate) hash: Hash,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn newest(&self) -> Ticket {
        Ticket(self.newest)
    }

    pub(crate) fn written(&self) -> Ticket {
        Ticket(self.written)
    }

    /// Adds a record. `more`: the next one belongs to the same transaction.
    pub(crate) fn push(
        &mut self,
        body: impl FnOnce(&mut BodyWriter<'_>),
        change: &Change<'_>,
        ordinal_at: usize,
        more: bool,
    ) -> Ticket {
        let start = self.bytes.len();
        let mut writer = BodyWriter::new(&mut self.bytes);
        body(&mut writer);
        let seq_at = writer.finish();
        let body_end = self.bytes.len();
        change.encode(&mut self.bytes);
        let end = self.bytes.len();
        self.slots.push(Slot {
            start,
            seq_at,
            body_end,
            end,
            ordinal_at,
            more,
        });
        self.newest += 1;
        Ticket(self.newest)
    }

    /// How many records wait.
    pub(crate) fn mark(&self) -> usize {
        self.slots.len()
    }

    /// Takes back the records added after `mark`.
    pub(crate) fn undo(&mut self, mark: usize) {
        if let Some(first) = self.slots.get(mark) {
            self.bytes.truncate(first.start);
            self.newest -= (self.slots.len() - mark) as u64;
            self.slots.truncate(mark);
        }
    }

    /// The side bytes of a waiting record, by its number.
    pub(crate) fn side(&self, ticket: Ticket) -> Option<&[u8]> {
        let index = usize::try_from(ticket.0.checked_sub(self.written + 1)?).ok()?;
        self.slots
            .get(index)
            .map(|slot| &self.bytes[slot.body_end..slot.end])
    }

    /// Number and side bytes of all waiting records.
    pub(crate) fn sides(&self) -> impl Iterator<Item = (Ticket, &[u8])> {
        self.slots.iter().enumerate().map(|(index, slot)| {
            (
                Ticket(self.written + 1 + index as u64),
                &self.bytes[slot.body_end..slot.end],
            )
        })
    }

    /// Makes a frame of the first waiting records; `ordinal` is the last one given out.
    pub(crate) fn frame(&mut self, seq: u64, hash: &Hash, mut ordinal: u64) -> Framed {
        let Self {
            bytes,
            slots,
            frame,
            scratch,
            ..
        } = self;
        frame.clear();
        let mut writer = FrameWriter::new(frame, seq + 1);
        let mut hash = *hash;
        let mut count = 0;
        let mut size = 0;
        for slot in slots.iter() {
            let seq = seq + 1 + count as u64;
            if slot.ordinal_at > 0 {
                let at = slot.body_end + slot.ordinal_at;
                // The byte before it says whether this entry is counted.
                ordinal += u64::from(bytes[at - 1]);
                bytes[at..at + 8].copy_from_slice(&ordinal.to_le_bytes());
            }
            let side = &bytes[slot.body_end..slot.end];
            scratch.clear();
            scratch.extend_from_slice(&hash);
            scratch.extend_from_slice(&side_digest(side));
            scratch.extend_from_slice(&bytes[slot.start..slot.seq_at]);
            write_decimal(seq, scratch);
            scratch.extend_from_slice(&bytes[slot.seq_at..slot.body_end]);
            hash = chain_hash(scratch);
            writer.record(&scratch[HASHED_BEFORE_BYTES..], &hash, side);
            count += 1;
            size += slot.end - slot.start;
            if size >= FRAME_BYTES && !slot.more {
                break;
            }
        }
        writer.finish();
        Framed { count, hash }
    }

    /// The bytes of the frame made last.
    pub(crate) fn frame_bytes(&self) -> &[u8] {
        &self.frame
    }

    /// The first `count` records are written (or given up).
    pub(crate) fn consume(&mut self, count: usize) {
        self.written += count as u64;
        if count == self.slots.len() {
            self.bytes.clear();
            self.slots.clear();
            self.bytes.shrink_to(PENDING_BYTES_MAX / 4);
            self.frame.shrink_to(PENDING_BYTES_MAX / 4);
            self.scratch.shrink_to(PENDING_BYTES_MAX / 4);
            return;
        }
        let from = self.slots[count].start;
        self.bytes.drain(..from);
        self.slots.drain(..count);
        for slot in &mut self.slots {
            slot.start -= from;
            slot.seq_at -= from;
            slot.body_end -= from;
            slot.end -= from;
        }
    }
}
