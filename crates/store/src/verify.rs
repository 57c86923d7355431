//! Verifying: the whole chain, from the first byte of the first segment to the signed head. The
//! first record that is not as it was written is named.

use std::io::{self, BufRead, ErrorKind, Read as _};
use std::path::Path;

use callgate_call::Digest;
use callgate_call::bounded::read_path;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::frame::{
    self, BadFrame, BadHeader, FORMAT, Front, HASH_ZERO, Hash, SEGMENT_HEADER_BYTES, SegmentHeader,
    chain_hash, side_digest,
};
use crate::head::{self, KeptHead};
use crate::journal::{SEGMENT_BYTES_MAX, segment_name, segment_numbers};
use crate::side::{Change, Kept};
use crate::{Head, Record, Store, StoreError, blobs};

/// What verifying found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Records that are as they were written, from the first on.
    pub records: u64,
    /// The newest signed head, if it is good.
    pub head: Option<Head>,
    /// Bytes of a transaction that was never completed, at the very end. No fault: a process
    /// was killed, or is writing now.
    pub torn_bytes: u64,
    /// The first bad record.
    pub bad: Option<Bad>,
}

impl Verdict {
    /// True if nothing is wrong.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.bad.is_none()
    }
}

/// The first record that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// The record.
    pub seq: u64,
    /// The segment it is (or should be) in; for a file, 0.
    pub segment: u64,
    /// Where its transaction begins in the segment; for a file, the line.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

/// The fields of a body that verifying needs.
#[derive(Deserialize)]
struct Body<'a> {
    seq: u64,
    #[allow(dead_code, reason = "every record has a time")]
    at: u64,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    output: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    digest: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    displayed: Option<std::borrow::Cow<'a, str>>,
}

/// What is at hand of the change a record made.
enum Beside<'a> {
    /// In a journal, its bytes.
    Side(&'a [u8]),
    /// In an export, their digest.
    Digest(Hash),
}

/// How far a walk along the chain has come.
struct Walk<'a> {
    state: Option<&'a Path>,
    seq: u64,
    hash: Hash,
    head: Option<Head>,
    segment: u64,
    offset: u64,
    scratch: Vec<u8>,
}

impl Store {
    /// Checks the whole chain on disk. Damage is in the verdict, not an error.
    pub fn verify(&self) -> Result<Verdict, StoreError> {
        let mut inner = self.inner();
        // What waits here belongs to the chain; on a damaged one it cannot be written.
        let _ = self.write_pending(&mut inner);
        let verdict = verify_state(&self.dir)?;
        if verdict.is_good() {
            return Ok(verdict);
        }
        // Others may write just where we read, over what a crash left. Under the lock nobody
        // does, so what is bad then is bad.
        let _lock = inner.journal.lock()?;
        verify_state(&self.dir)
    }
}

fn verify_state(state: &Path) -> Result<Verdict, StoreError> {
    // The head is read first: the chain may grow meanwhile, and must reach it.
    let (head, head_bad) = match head::kept(state)? {
        KeptHead::None => (None, None),
        KeptHead::Good(head) => (Some(head), None),
        KeptHead::Bad(reason) => (None, Some(reason)),
    };
    let mut walk = Walk::new(Some(state), head.clone());
    let (torn_bytes, mut bad) = match walk.segments(&state.join("journal"))? {
        Ok(torn_bytes) => (torn_bytes, None),
        Err(bad) => (0, Some(bad)),
    };
    if bad.is_none() && head.as_ref().is_some_and(|head| head.seq > walk.seq) {
        bad = Some(walk.bad("it is missing: the signed head covers it"));
    }
    if let (None, Some(reason)) = (&bad, head_bad) {
        bad = Some(walk.bad(reason));
    }
    Ok(Verdict {
        records: walk.seq,
        head,
        torn_bytes,
        bad,
    })
}

impl<'a> Walk<'a> {
    fn new(state: Option<&'a Path>, head: Option<Head>) -> Self {
        let scratch = Vec::new();
        Self {
            state,
            seq: 0,
            hash: HASH_ZERO,
            head,
            segment: 0,
            offset: 0,
            scratch,
        }
    }

    /// The next record is bad.
    fn bad(&self, reason: &str) -> Bad {
        let (segment, offset) = (self.segment, self.offset);
        Bad {
            seq: self.seq + 1,
            segment,
            offset,
            reason: reason.to_owned(),
        }
    }

    fn segments(&mut self, dir: &Path) -> Result<Result<u64, Bad>, StoreError> {
        let numbers = segment_numbers(dir)?;
        let mut goes_on = true;
        let mut torn = 0;
        for (index, &number) in numbers.iter().enumerate() {
            let path = dir.join(segment_name(number));
            let bytes = match read_path(&path, SEGMENT_BYTES_MAX) {
                Err(e) if e.kind() == ErrorKind::FileTooLarge => {
                    (self.segment, self.offset) = (number, SEGMENT_BYTES_MAX);
                    return Ok(Err(
                        self.bad("its segment is larger than any that was written")
                    ));
                }
                bytes => bytes.map_err(|e| StoreError::read(&path, e))?,
            };
            let is_last = index + 1 == numbers.len();
            if is_last && bytes.len() <= SEGMENT_HEADER_BYTES && (!goes_on || torn > 0) {
                // Made, but never entered: its maker was killed before closing the one before.
                continue;
            }
            (self.segment, self.offset) = (number, 0);
            if number != index as u64 + 1 {
                self.segment = index as u64 + 1;
                return Ok(Err(self.bad("its segment is missing")));
            }
            if !goes_on || torn > 0 {
                return Ok(Err(self.bad("the end of the segment before is missing")));
            }
            match self.one_segment(&bytes, is_last) {
                Ok(Ended::Rolled) => {}
                Ok(Ended::Open) => goes_on = false,
                Ok(Ended::Torn(bytes)) => {
                    torn = bytes;
                    goes_on = false;
                }
                Err(bad) => return Ok(Err(bad)),
            }
        }
        if let Some(extra) = numbers.iter().find(|&&number| number == 0) {
            self.segment = *extra;
            return Ok(Err(self.bad("there is no such segment")));
        }
        Ok(Ok(torn))
    }

    fn one_segment(&mut self, bytes: &[u8], is_last: bool) -> Result<Ended, Bad> {
        if is_last && bytes.len() < SEGMENT_HEADER_BYTES {
            return Ok(Ended::Torn(bytes.len() as u64));
        }
        let wanted = SegmentHeader {
            number: self.segment,
            first_seq: self.seq + 1,
            hash: self.hash,
        };
        match SegmentHeader::decode(bytes) {
            Ok(found) if found == wanted => {}
            Ok(_) | Err(BadHeader::Broken) => {
                return Err(self.bad("the header of its segment is not as written"));
            }
            Err(BadHeader::OtherFormat(name)) => {
                let reason = format!("its segment is of format {name}, and only {FORMAT} is read");
                return Err(self.bad(&reason));
            }
        }
        let mut rest = &bytes[SEGMENT_HEADER_BYTES..];
        self.offset = SEGMENT_HEADER_BYTES as u64;
        loop {
            let len = match frame::front(rest) {
                Front::End => return Ok(Ended::Open),
                Front::Frame(frame) => {
                    if frame.first_seq != self.seq + 1 {
                        return Err(self.bad("another record is in its place"));
                    }
                    self.records(frame.payload)?;
                    frame.len
                }
                Front::Roll {
                    last_seq,
                    hash,
                    len,
                } => {
                    if last_seq != self.seq || hash != self.hash {
                        return Err(self.bad("the end of the segment before it is not as written"));
                    }
                    if rest.len() > len {
                        self.offset += len as u64;
                        return Err(self.bad("bytes follow the end of the segment"));
                    }
                    return Ok(Ended::Rolled);
                }
                Front::Torn if is_last => {
                    return Ok(Ended::Torn(rest.len() as u64));
                }
                Front::Torn => return Err(self.bad("its transaction is not whole")),
                Front::Bad(BadFrame::Header) => {
                    return Err(self.bad("the header of its transaction is not as written"));
                }
                Front::Bad(BadFrame::Check { payload }) => {
                    // Which record of the transaction is it?
                    let first = self.bad("the check of its transaction is not as written");
                    self.records(payload)?;
                    return Err(first);
                }
            };
            self.offset += len as u64;
            rest = &rest[len..];
        }
    }

    fn records(&mut self, payload: &[u8]) -> Result<(), Bad> {
        for record in frame::records(payload) {
            let Some(record) = record else {
                return Err(self.bad("the length of the record is not as written"));
            };
            self.record(record.body, &record.hash, &Beside::Side(record.side))?;
        }
        Ok(())
    }

    /// Checks one record and steps past it.
    fn record(&mut self, body: &[u8], hash: &Hash, beside: &Beside<'_>) -> Result<(), Bad> {
        let digest = match beside {
            Beside::Side(side) => side_digest(side),
            Beside::Digest(digest) => *digest,
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.hash);
        self.scratch.extend_from_slice(&digest);
        self.scratch.extend_from_slice(body);
        if chain_hash(&self.scratch) != *hash {
            let reason = "its hash does not follow from the one before, its change and its body";
            return Err(self.bad(reason));
        }
        let Ok(parsed) = serde_json::from_slice::<Body<'_>>(body) else {
            return Err(self.bad("its body is no record"));
        };
        if parsed.seq != self.seq + 1 {
            return Err(self.bad("another record is in its place"));
        }
        if let Beside::Side(side) = beside {
            self.side(&parsed, side)?;
        }
        let signed = self.head.as_ref().filter(|head| head.seq == parsed.seq);
        if signed.is_some_and(|head| head.hash.0 != *hash) {
            return Err(self.bad("its hash is not the one in the signed head"));
        }
        self.seq += 1;
        self.hash = *hash;
        Ok(())
    }

    /// What is kept beside the chain must be what the chain tells of.
    fn side(&self, body: &Body<'_>, side: &[u8]) -> Result<(), Bad> {
        let Some(change) = Change::decode(side) else {
            return Err(self.bad("the change it made makes no sense"));
        };
        let told =
            |hex: &Option<std::borrow::Cow<'_, str>>| hex.as_deref().and_then(Digest::from_hex);
        let fits = match change {
            Change::End(ended) => {
                (body.kind == "outcome" || body.kind == "call")
                    && match ended.key.and_then(|key| key.result) {
                        None => true,
                        Some(Kept::Fault { .. }) => body.output.is_none(),
                        Some(Kept::Text(text) | Kept::Slotted { text, .. }) => {
                            is_digest_of(told(&body.output), text)
                        }
                        Some(Kept::Blob(digest)) => match self.blob(&digest) {
                            // It goes with its key; what is there must be right.
                            Ok(None) => true,
                            Ok(Some(text)) => {
                                Digest::of_bytes(text.as_bytes()) == digest
                                    && is_digest_of(told(&body.output), &text)
                            }
                            Err(_) => false,
                        },
                    }
            }
            Change::Note { text, .. } => {
                told(&body.digest) == Some(Digest::of_bytes(text.as_bytes()))
            }
            Change::Claim(_) => body.kind == "start",
            Change::Unknown(_) => body.kind == "unknown",
            Change::Lease(_) => body.kind.starts_with("lease."),
            Change::Approval(doc) => match &*body.kind {
                "approval.ask" | "approval.grant" | "approval.deny" => {
                    doc.was_displayed_as(told(&body.displayed))
                }
                kind => kind.starts_with("approval."),
            },
            Change::Trust(_) => body.kind == "trust" || body.kind == "untrust",
            Change::Token(_) => body.kind.starts_with("token."),
            Change::Plan(_) => body.kind == "plan.create",
            Change::PlanTask(_) => body.kind == "plan.task",
            Change::PlanGone(_) => body.kind == "plan.delete",
            Change::RunStart(_) => body.kind == "run.start",
            Change::RunEnd(_) => body.kind == "run.end",
            Change::RunLost(_) => body.kind == "run.lost",
            Change::Artifact(doc) => {
                body.kind == "artifact.commit"
                    && body.digest.as_deref() == Some(doc.digest.as_str())
            }
            Change::Pilot(doc) => {
                body.kind.starts_with("pilot.")
                    && told(&body.digest).is_some_and(|digest| doc.has_digest(digest))
            }
            Change::Nothing => true,
        };
        if fits {
            Ok(())
        } else {
            Err(self.bad("what was kept is not what the record tells of"))
        }
    }

    fn blob(&self, digest: &Digest) -> Result<Option<String>, StoreError> {
        match self.state {
            Some(state) => blobs::read(state, digest),
            None => Ok(None),
        }
    }
}

enum Ended {
    /// The chain goes on in the next segment.
    Rolled,
    /// Here is the end.
    Open,
    /// Here is the end, and so many bytes of a transaction that never was.
    Torn(u64),
}

/// True if `digest` is that of the text, or of the JSON value in it.
fn is_digest_of(digest: Option<Digest>, text: &str) -> bool {
    let Some(digest) = digest else { return false };
    Digest::of_bytes(text.as_bytes()) == digest
        || serde_json::from_str(text).is_ok_and(|value| digest.is_of_json(&value))
}

/// A line of an export that is as it was written.
enum Checked<'a> {
    Record(Record<'a>),
    Head(Head),
}

/// One line of an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow, default)]
    hash: Option<&'a str>,
    #[serde(borrow, default)]
    record: Option<&'a RawValue>,
    #[serde(borrow, default)]
    side: Option<&'a str>,
    #[serde(borrow, default)]
    head: Option<&'a RawValue>,
}

/// The longest line of an export: a record, and what stands beside it.
const LINE_BYTES_MAX: u64 = 2 * SEGMENT_BYTES_MAX;

/// Checks an exported chain. `public_key`: whose heads count; else the one in the file.
pub fn verify_file(lines: &mut dyn BufRead, public_key: Option<&[u8; 32]>) -> io::Result<Verdict> {
    show_file(lines, public_key, &mut |_| {})
}

/// The same, and hands every record to `each` that follows from those before it.
pub fn show_file(
    lines: &mut dyn BufRead,
    public_key: Option<&[u8; 32]>,
    each: &mut dyn FnMut(Record<'_>),
) -> io::Result<Verdict> {
    let mut walk = Walk::new(None, None);
    let mut head = None;
    let mut line = String::new();
    let bad = loop {
        line.clear();
        // bound: `take`
        match (&mut *lines).take(LINE_BYTES_MAX + 1).read_line(&mut line) {
            Ok(0) => break None,
            Ok(read) if read as u64 > LINE_BYTES_MAX => {
                walk.offset += 1;
                break Some(walk.bad("the line is longer than any that is exported"));
            }
            Ok(_) => walk.offset += 1,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                walk.offset += 1;
                break Some(walk.bad("the line is not text"));
            }
            Err(e) => return Err(e),
        }
        if head.is_some() {
            break Some(walk.bad("a line follows the head"));
        }
        match walk.line(&line, public_key) {
            Ok(Checked::Record(record)) => each(record),
            Ok(Checked::Head(found)) => head = Some(found),
            Err(bad) => break Some(bad),
        }
    };
    let bad = bad.or_else(|| {
        head.is_none()
            .then(|| walk.bad("the end of the file is missing"))
    });
    Ok(Verdict {
        records: walk.seq,
        head,
        torn_bytes: 0,
        bad,
    })
}

impl Walk<'_> {
    /// Checks one line.
    fn line<'a>(
        &mut self,
        text: &'a str,
        public_key: Option<&[u8; 32]>,
    ) -> Result<Checked<'a>, Bad> {
        let Some(Ok(line)) = text
            .strip_suffix('\n')
            .map(serde_json::from_str::<Line<'_>>)
        else {
            return Err(self.bad("the line is not as it was written"));
        };
        match line {
            Line {
                hash: Some(hash),
                record: Some(body),
                side: Some(side),
                head: None,
            } => {
                let body = body.get();
                let written =
                    format!("{{\"hash\":\"{hash}\",\"record\":{body},\"side\":\"{side}\"}}\n");
                let digest = |hex: &str| Digest::from_hex(hex).filter(|it| it.to_hex() == hex);
                let (Some(hash), Some(side), true) = (digest(hash), digest(side), written == text)
                else {
                    return Err(self.bad("the line is not as it was written"));
                };
                self.record(body.as_bytes(), &hash.0, &Beside::Digest(side.0))?;
                let seq = self.seq;
                Ok(Checked::Record(Record { seq, hash, body }))
            }
            Line {
                hash: None,
                record: None,
                side: None,
                head: Some(raw),
            } => {
                let head = Head::from_json(raw.get())
                    .filter(Head::is_signed)
                    .filter(|_| format!("{{\"head\":{}}}\n", raw.get()) == text);
                let Some(head) = head else {
                    return Err(self.bad("the head is not rightly signed"));
                };
                if head.seq != self.seq || head.hash.0 != self.hash {
                    return Err(self.bad("the head is that of another chain"));
                }
                if public_key.is_some_and(|key| *key != head.public_key) {
                    return Err(self.bad("the head is signed by a foreign key"));
                }
                Ok(Checked::Head(head))
            }
            _ => Err(self.bad("the line is not as it was written")),
        }
    }
}
