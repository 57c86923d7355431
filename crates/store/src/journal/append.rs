//! The writing half of the journal: frames and segments are added under the commit lock, after
//! all that is there has been read.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use super::{Journal, Position, segment_name};
use crate::frame::{self, Hash, ROLL_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::{StoreError, failpoint};

impl Journal {
    /// True if there are records in a next segment, which this one does not tell of. The next
    /// segment is made before this one is closed, and has only a header then.
    pub(super) fn goes_on(&self) -> bool {
        let next = self.dir.join(segment_name(self.at.segment + 1));
        !self.rolled
            && std::fs::metadata(&next)
                .is_ok_and(|next| next.is_file() && next.len() > SEGMENT_HEADER_BYTES as u64)
    }

    /// Looks, once and under the lock, for an end that was cut off: records that a signed head
    /// or the next segment tell of and that are not there, or a head that is not there itself.
    pub(crate) fn check_end(&mut self) -> Result<(), StoreError> {
        let seq = self.at.seq;
        let signed = self.signed_seq(seq + 1)?;
        if signed.is_some_and(|signed| signed > seq) || self.goes_on() {
            return Err(self.set_damaged(seq + 1, "it is missing"));
        }
        Ok(())
    }

    /// The newest record that a signed head covers. Damage to that head is damage at `seq`.
    pub(super) fn signed_seq(&mut self, seq: u64) -> Result<Option<u64>, StoreError> {
        let signed = self.dir.parent().map(crate::head::signed_seq);
        let signed = signed.unwrap_or(Ok(None));
        signed.map_err(|reason| self.set_damaged(seq, reason))
    }

    /// Appends one frame of `count` records, under the lock and after `tail`. `hash` is the
    /// chain's hash after it. Returns where the frame begins.
    pub(crate) fn append(
        &mut self,
        bytes: &[u8],
        count: usize,
        hash: Hash,
    ) -> Result<Position, StoreError> {
        self.check()?;
        let room = self.segment_bytes_max.saturating_sub(ROLL_BYTES as u64);
        let begun = self.file.is_some() && !self.rolled;
        let fresh = self.at.offset == SEGMENT_HEADER_BYTES as u64;
        if !begun || (self.at.offset + bytes.len() as u64 > room && !fresh) {
            self.roll()?;
        }
        let file = Arc::clone(self.file.as_ref().expect("rolled above"));
        if failpoint::armed("append.torn") {
            self.write(&file, &bytes[..bytes.len() / 2])?;
            failpoint::failpoint("append.torn");
        }
        self.write(&file, bytes)?;
        let begin = self.at;
        self.at.offset += bytes.len() as u64;
        self.at.seq += count as u64;
        self.at.hash = hash;
        self.passed_bytes += bytes.len() as u64;
        self.frames += 1;
        Ok(begin)
    }

    /// Closes the current segment, if there is one, and begins the next.
    fn roll(&mut self) -> Result<(), StoreError> {
        if self.goes_on() {
            return Err(self.set_damaged(self.at.seq + 1, "the end of its segment is missing"));
        }
        let number = self.at.segment + 1;
        let path = self.dir.join(segment_name(number));
        let next = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| StoreError::write(&path, e))?;
        let header = SegmentHeader {
            number,
            first_seq: self.at.seq + 1,
            hash: self.at.hash,
        };
        write_header(&next, &path, &header)?;
        if let Some(file) = self.file.clone()
            && !self.rolled
        {
            self.write(&file, &frame::roll_frame(self.at.seq, &self.at.hash))?;
            self.passed_bytes += ROLL_BYTES as u64;
        }
        if let Some(left) = self.file.take() {
            self.leave(left);
        }
        self.dirty_dir = true;
        self.file = Some(Arc::new(next));
        self.rolled = false;
        self.at.segment = number;
        self.at.offset = SEGMENT_HEADER_BYTES as u64;
        Ok(())
    }

    /// All of `bytes` at the end of the file, or none of them.
    fn write(&mut self, file: &File, bytes: &[u8]) -> Result<(), StoreError> {
        self.writes += 1;
        let mut to = file;
        to.write_all(bytes).map_err(|e| {
            // If even this fails, the next holder of the lock cuts the rest off.
            let _ = file.set_len(self.at.offset);
            StoreError::write(&self.dir.join(segment_name(self.at.segment)), e)
        })
    }
}

/// Makes `header` the whole of the file.
pub(super) fn write_header(
    file: &File,
    path: &Path,
    header: &SegmentHeader,
) -> Result<(), StoreError> {
    let mut to = file;
    file.set_len(0)
        .and_then(|()| to.write_all(&header.encode()))
        .map_err(|e| StoreError::write(path, e))
}
