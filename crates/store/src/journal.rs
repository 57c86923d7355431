//! The journal: segments of at most 4 MiB, appended to under one lock that all processes of the
//! workspace share, read by each of them as it grows. Bytes that were once true frames are never
//! rewritten. What a killed process left half-written at the very end is cut off by whoever next
//! holds the lock; anything else that is no frame is damage, and then nothing is appended.

mod append;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FlockOperation, fadvise, flock};

use crate::StoreError;
use crate::frame::{
    self, BadHeader, FRAME_HEADER_BYTES, Front, HASH_ZERO, Hash, RECORD_HEADER_BYTES, ROLL_BYTES,
    SEGMENT_HEADER_BYTES, SegmentHeader,
};

/// Largest segment. Decision T-12: a process whose files may have 8 MiB can still append.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Opens a file of a state that may only be read, too: what needs a record is refused when that
/// is to be written, the rest is served (T-12).
fn open_or_read(options: &OpenOptions, path: &Path) -> io::Result<File> {
    match options.open(path) {
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            File::open(path)
        }
        opened => opened,
    }
}

/// So many segments left behind are kept open until the next sync. Enough that the disk has the
/// oldest when it must be let go of, even if it is written to as fast as we can.
const DIRTY_MAX: usize = 32;

/// Where a record is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

/// Where a reader of the journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The segment it is in; 0 before the first.
    pub(crate) segment: u64,
    /// The next byte to read there.
    pub(crate) offset: u64,
    /// The newest record read.
    pub(crate) seq: u64,
    /// Its hash.
    pub(crate) hash: Hash,
}

impl Position {
    /// Before everything.
    pub(crate) const START: Self = Self {
        segment: 0,
        offset: 0,
        seq: 0,
        hash: HASH_ZERO,
    };
}

/// The journal as one process sees it.
pub(crate) struct Journal {
    dir: PathBuf,
    /// Or why there is none, and nothing can be written.
    lock: Result<Arc<File>, NoLock>,
    segment_bytes_max: u64,
    at: Position,
    file: Option<Arc<File>>,
    /// The current segment is closed; the chain goes on in the next.
    rolled: bool,
    damage: Option<(u64, String)>,
    /// Bytes read or written since the last `reset`.
    pub(crate) passed_bytes: u64,
    /// Segments this process left behind, not yet synced.
    pub(crate) dirty: Vec<Arc<File>>,
    /// A segment was made, and its folder not yet synced.
    pub(crate) dirty_dir: bool,
    pub(crate) writes: u64,
    pub(crate) frames: u64,
    buffer: Vec<u8>,
    /// The older segment read last, for replays.
    older: Option<(u32, File)>,
}

/// What could not be made, and why.
#[derive(Clone)]
struct NoLock {
    path: PathBuf,
    kind: ErrorKind,
}

/// The commit lock, held.
pub(crate) struct CommitLock(Arc<File>);

impl Drop for CommitLock {
    fn drop(&mut self) {
        // A lock that cannot be let go goes with the file, at the latest.
        let _ = flock(&*self.0, FlockOperation::Unlock);
    }
}

/// The file name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.seg")
}

/// The segments there are, in order.
pub(crate) fn segment_numbers(dir: &Path) -> Result<Vec<u64>, StoreError> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| StoreError::read(dir, e))? {
        let name = entry.map_err(|e| StoreError::read(dir, e))?.file_name();
        if let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".seg")) {
            numbers.extend(number.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

impl Journal {
    /// Opens the journal of a state folder, to be read from `at` on.
    pub(crate) fn open(
        state: &Path,
        at: Position,
        segment_bytes_max: u64,
    ) -> Result<Self, StoreError> {
        let path = state.join("journal.lock");
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let lock = open_or_read(&options, &path).map_err(|e| match e.kind() {
            // It could not be made, and was not there to be read.
            ErrorKind::NotFound => StoreError::write(&path, e),
            _ => StoreError::open(&path, e),
        })?;
        Ok(Self::new(
            state.join("journal"),
            Ok(Arc::new(lock)),
            at,
            segment_bytes_max,
        ))
    }

    /// A journal that has no place: empty, and `path` is why nothing is appended. It stays so
    /// should the place be made later: others would hold a lock that we do not know.
    pub(crate) fn nowhere(path: &Path, why: &io::Error) -> Self {
        let lock = NoLock {
            path: path.to_owned(),
            kind: why.kind(),
        };
        Self::new(path.to_owned(), Err(lock), Position::START, 0)
    }

    fn new(
        dir: PathBuf,
        lock: Result<Arc<File>, NoLock>,
        at: Position,
        segment_bytes_max: u64,
    ) -> Self {
        Self {
            dir,
            lock,
            segment_bytes_max: segment_bytes_max.min(SEGMENT_BYTES_MAX),
            at,
            file: None,
            rolled: false,
            damage: None,
            passed_bytes: 0,
            dirty: Vec::new(),
            dirty_dir: false,
            writes: 0,
            frames: 0,
            buffer: Vec::new(),
            older: None,
        }
    }

    /// Waits for the commit lock. Its holder may be killed at any moment; then it is free.
    pub(crate) fn lock(&self) -> Result<CommitLock, StoreError> {
        let lock = self
            .lock
            .as_ref()
            .map_err(|no| StoreError::write(&no.path, no.kind))?;
        loop {
            match flock(&**lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(CommitLock(Arc::clone(lock))),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(StoreError::open(&self.dir, e)),
            }
        }
    }

    /// The commit lock, if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<CommitLock> {
        let lock = self.lock.as_ref().ok()?;
        flock(&**lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(CommitLock(Arc::clone(lock)))
    }

    /// Where a reader that has seen as much would go on.
    pub(crate) fn position(&self) -> Position {
        // The frame that closes the segment is to be read again, for what it says.
        let back = if self.rolled { ROLL_BYTES as u64 } else { 0 };
        Position {
            offset: self.at.offset - back,
            ..self.at
        }
    }

    /// The file to sync.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts over from another position.
    pub(crate) fn reset(&mut self, at: Position) {
        self.at = at;
        self.file = None;
        self.rolled = false;
        self.passed_bytes = 0;
    }

    /// From now on nothing is appended.
    pub(crate) fn set_damaged(&mut self, seq: u64, reason: &str) -> StoreError {
        self.damage.get_or_insert_with(|| (seq, reason.to_owned()));
        self.check().expect_err("set above")
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.damage {
            None => Ok(()),
            Some((seq, reason)) => Err(StoreError::Damaged {
                seq: *seq,
                reason: reason.clone(),
            }),
        }
    }

    /// Reads what is new and hands each record's place and side bytes to `each`, which says
    /// whether they made sense. With the commit lock (`locked`) the end is mended; without,
    /// reading stops at the first thing that is no frame.
    pub(crate) fn tail(
        &mut self,
        locked: bool,
        mut each: impl FnMut(u64, Place, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if locked {
            self.check()?;
        }
        if self.lock.is_err() {
            return Ok(());
        }
        loop {
            if self.file.is_none() && !self.enter(locked)? {
                return Ok(());
            }
            let file = Arc::clone(self.file.as_ref().expect("entered above"));
            let size = self.size(&file)?;
            if size < self.at.offset {
                let reason = "the journal is shorter than it was";
                return Err(self.set_damaged(self.at.seq + 1, reason));
            }
            if size > self.at.offset {
                self.read_new(&file, size, locked, &mut each)?;
            }
            if !self.rolled || !self.enter(locked)? {
                return Ok(());
            }
        }
    }

    /// Goes to the first or next segment. False if it is not there (yet).
    fn enter(&mut self, locked: bool) -> Result<bool, StoreError> {
        // A position from the index is inside its segment; else the next one is wanted.
        let inside = self.at.offset > 0 && !self.rolled;
        let number = if inside {
            self.at.segment
        } else {
            self.at.segment + 1
        };
        let path = self.dir.join(segment_name(number));
        let file = match open_or_read(OpenOptions::new().read(true).append(true), &path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if inside {
                    return Err(self.set_damaged(self.at.seq + 1, "its segment is missing"));
                }
                return Ok(false);
            }
            Err(e) => return Err(StoreError::open(&path, e)),
        };
        let wanted = SegmentHeader {
            number,
            first_seq: self.at.seq + 1,
            hash: self.at.hash,
        };
        let mut header = [0; SEGMENT_HEADER_BYTES];
        match file.read_exact_at(&mut header, 0) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                // Its maker was killed before the first bytes were down.
                if !locked || inside {
                    return Ok(false);
                }
                self.check_unsigned("the header of its segment is broken")?;
                append::write_header(&file, &path, &wanted)?;
                header = wanted.encode();
            }
            Err(e) => return Err(StoreError::read(&path, e)),
        }
        let fits = match SegmentHeader::decode(&header) {
            Ok(found) if inside => found.number == number,
            Ok(found) => found == wanted,
            Err(BadHeader::Broken) => false,
            Err(BadHeader::OtherFormat(name)) => return Err(StoreError::format(name)),
        };
        if !fits {
            return Err(self.set_damaged(self.at.seq + 1, "its segment does not follow"));
        }
        if let Some(left) = self.file.take() {
            self.leave(left);
        }
        self.file = Some(Arc::new(file));
        if !inside {
            self.at.segment = number;
            self.at.offset = SEGMENT_HEADER_BYTES as u64;
            self.rolled = false;
        }
        Ok(true)
    }

    /// Whoever syncs later must sync the segments before it too; a few are kept open for that.
    fn leave(&mut self, file: Arc<File>) {
        if self.dirty.len() == DIRTY_MAX {
            // The oldest goes to the disk before it is forgotten, so that the next sync confirms no
            // record of which it does not know the file. Its error comes again at the next sync of
            // the segment after it, or never mattered.
            let _ = self.dirty.remove(0).sync_data();
        }
        // Its bytes set out for the disk now, so that a later sync hardly has to wait.
        let _ = fadvise(&*file, 0, None, Advice::DontNeed);
        self.dirty.push(file);
        self.dirty_dir = true;
    }

    fn size(&self, file: &File) -> Result<u64, StoreError> {
        let stat = rustix::fs::fstat(file).map_err(|e| StoreError::read(&self.dir, e))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    fn read_new(
        &mut self,
        file: &File,
        size: u64,
        locked: bool,
        each: &mut impl FnMut(u64, Place, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let from = self.at.offset;
        // A segment is never larger, so neither is what is read.
        let bytes = usize::try_from((size - from).min(SEGMENT_BYTES_MAX + 1)).unwrap_or(0);
        // bound: `SEGMENT_BYTES_MAX`
        buffer.resize(bytes, 0);
        let done = match file.read_exact_at(&mut buffer, from) {
            Ok(()) => self.take_frames(&buffer, file, locked, each),
            // The holder of the lock cut off a torn end meanwhile.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && !locked => Ok(()),
            Err(e) => Err(StoreError::read(&self.dir, e)),
        };
        buffer.clear();
        buffer.shrink_to(64 * 1024);
        self.buffer = buffer;
        done
    }

    fn take_frames(
        &mut self,
        bytes: &[u8],
        file: &File,
        locked: bool,
        each: &mut impl FnMut(u64, Place, &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut rest = bytes;
        loop {
            let seq = self.at.seq + 1;
            let len = match frame::front(rest) {
                Front::End => return Ok(()),
                Front::Frame(frame) if frame.first_seq == seq && !self.rolled => {
                    if let Err(seq) = self.take_records(frame.payload, each) {
                        return Err(self.set_damaged(seq, "its change makes no sense"));
                    }
                    frame.len
                }
                Front::Roll {
                    last_seq,
                    hash,
                    len,
                } if last_seq + 1 == seq && hash == self.at.hash && !self.rolled => {
                    self.rolled = true;
                    len
                }
                Front::Frame(_) | Front::Roll { .. } => {
                    return Err(self.set_damaged(seq, "it does not follow the one before"));
                }
                Front::Torn | Front::Bad(_) if !locked => return Ok(()),
                Front::Torn | Front::Bad(_) => return self.mend(rest, file),
            };
            self.at.offset += len as u64;
            self.passed_bytes += len as u64;
            rest = &rest[len..];
        }
    }

    fn take_records(
        &mut self,
        payload: &[u8],
        each: &mut impl FnMut(u64, Place, &[u8]) -> bool,
    ) -> Result<(), u64> {
        for record in frame::records(payload) {
            let seq = self.at.seq + 1;
            let record = record.ok_or(seq)?;
            if !each(seq, self.place(record.offset), record.side) {
                return Err(seq);
            }
            self.at.seq = seq;
            self.at.hash = record.hash;
        }
        Ok(())
    }

    /// Where a record is that lies `offset` into the frame at the present position.
    fn place(&self, offset: u32) -> Place {
        Place {
            segment: u32::try_from(self.at.segment).expect("2^32 segments are 16 PiB"),
            offset: u32::try_from(self.at.offset).expect("segments are small") + offset,
        }
    }

    /// Cuts off what a killed process left, if that is what it is.
    fn mend(&mut self, rest: &[u8], file: &File) -> Result<(), StoreError> {
        let seq = self.at.seq + 1;
        // A frame that is begun and reaches past the end has nothing behind it. What is no
        // frame at all may have: then it was not the end that broke.
        let is_bad = matches!(frame::front(rest), Front::Bad(_));
        if self.goes_on() || is_bad && frame::any_frame(&rest[1..]) {
            return Err(self.set_damaged(seq, "bytes in the middle are not as written"));
        }
        self.check_unsigned("it is broken")?;
        if is_bad {
            // No killed process leaves this; a power cut may. It is kept for whoever wonders.
            let kept = self.dir.join(format!("{seq:020}.cut"));
            let mut options = OpenOptions::new();
            let kept = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(kept);
            let _ = kept.and_then(|mut kept| kept.write_all(rest));
        }
        file.set_len(self.at.offset)
            .map_err(|e| StoreError::write(&self.dir, e))
    }

    /// What a signed head covers was on disk whole, so nothing of it is mended.
    fn check_unsigned(&mut self, reason: &str) -> Result<(), StoreError> {
        let seq = self.at.seq + 1;
        let signed = self.signed_seq(seq)?;
        if signed.is_some_and(|signed| signed >= seq) {
            return Err(self.set_damaged(seq, reason));
        }
        Ok(())
    }

    /// The side bytes of a record somewhere in the journal.
    pub(crate) fn side_at(&mut self, place: Place) -> Result<Vec<u8>, StoreError> {
        if u64::from(place.segment) == self.at.segment
            && let Some(file) = &self.file
        {
            return read_side(file, place).map_err(|e| StoreError::read(&self.dir, e));
        }
        if self
            .older
            .as_ref()
            .is_none_or(|(segment, _)| *segment != place.segment)
        {
            let path = self.dir.join(segment_name(u64::from(place.segment)));
            let file = File::open(&path).map_err(|e| StoreError::read(&path, e))?;
            self.older = Some((place.segment, file));
        }
        let (_, file) = self.older.as_ref().expect("opened above");
        read_side(file, place).map_err(|e| StoreError::read(&self.dir, e))
    }
}

fn read_side(file: &File, place: Place) -> io::Result<Vec<u8>> {
    // Most records fit one read.
    let mut first = [0; 1024];
    let got = file.read_at(&mut first, u64::from(place.offset))?;
    let Some(header) = first[..got].first_chunk::<RECORD_HEADER_BYTES>() else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let (body, side) = frame::record_lengths(header);
    let whole = body.saturating_add(side);
    if whole > frame::PAYLOAD_BYTES_MAX - FRAME_HEADER_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let from = RECORD_HEADER_BYTES + body;
    if let Some(bytes) = first[..got].get(from..from + side) {
        return Ok(bytes.to_vec());
    }
    // bound: `PAYLOAD_BYTES_MAX`, compared above
    let mut bytes = vec![0; side];
    file.read_exact_at(&mut bytes, u64::from(place.offset) + from as u64)?;
    Ok(bytes)
}
