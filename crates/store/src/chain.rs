//! The chain as people ask for it: show and export. What is damaged is the business of
//! `verify`; showing stops there.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use callgate_call::Digest;
use callgate_call::bounded::read_path;
use serde::Deserialize;

use crate::frame::{self, BadHeader, Front, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::journal::{SEGMENT_BYTES_MAX, segment_name, segment_numbers};
use crate::{Head, Store, StoreError};

/// One record of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number, from 1.
    pub seq: u64,
    /// BLAKE3 over the hash before it, the digest of the change it made and its body. D-9.
    pub hash: Digest,
    /// Compact JSON with sorted keys, byte for byte as hashed.
    pub body: &'a str,
}

/// Which records to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only from this record on.
    pub from_seq: Option<u64>,
    /// Only this kind, or kinds that begin with it and a dot (`lease`).
    pub kind: Option<String>,
    /// Only records of this call, in hex.
    pub call: Option<String>,
    /// Only records of this tool.
    pub tool: Option<String>,
    /// Only so many of the newest.
    pub last: Option<usize>,
}

/// The fields of a body that are filtered by.
#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    call: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow, default)]
    tool: Option<std::borrow::Cow<'a, str>>,
}

impl Filter {
    /// Returns whether a record is one of those that are wanted, `last` apart.
    #[must_use]
    pub fn fits(&self, record: &Record<'_>) -> bool {
        if self.from_seq.is_some_and(|from| record.seq < from) {
            return false;
        }
        if self.kind.is_none() && self.call.is_none() && self.tool.is_none() {
            return true;
        }
        let Ok(named) = serde_json::from_str::<Named<'_>>(record.body) else {
            return false;
        };
        let same = |wanted: &Option<String>, got: &Option<std::borrow::Cow<'_, str>>| {
            wanted
                .as_deref()
                .is_none_or(|wanted| got.as_deref() == Some(wanted))
        };
        self.kind.as_deref().is_none_or(|wanted| {
            named
                .kind
                .strip_prefix(wanted)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }) && same(&self.call, &named.call)
            && same(&self.tool, &named.tool)
    }
}

impl Store {
    /// Hands every record that fits to `each`, oldest first, until it says `false`.
    pub fn show(
        &self,
        filter: &Filter,
        each: &mut dyn FnMut(Record<'_>) -> bool,
    ) -> Result<(), StoreError> {
        // On a damaged chain what waits cannot be written, but the rest can be shown.
        let _ = self.write_pending(&mut self.inner());
        let dir = self.dir.join("journal");
        let Some(last) = filter.last else {
            let from = first_segment(&dir, filter.from_seq.unwrap_or(1))?;
            walk(
                &dir,
                from,
                &mut |record, _| match filter.fits(&record) && !each(record) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                },
            )?;
            return Ok(());
        };
        for (seq, hash, body) in newest(&dir, filter, last)? {
            if !each(Record {
                seq,
                hash,
                body: &body,
            }) {
                break;
            }
        }
        Ok(())
    }

    /// Writes the whole chain as JSON lines, with a fresh signed head as the last. A line has the
    /// record's hash, its body and the digest of the change it made: all that the hash covers.
    pub fn export(&self, out: &mut dyn Write) -> Result<Option<Head>, StoreError> {
        let Some(head) = self.sign_head()? else {
            return Ok(None);
        };
        let mut failed = Ok(());
        walk(&self.dir.join("journal"), 1, &mut |record, side| {
            if record.seq > head.seq {
                return ControlFlow::Break(());
            }
            failed = writeln!(
                out,
                "{{\"hash\":\"{}\",\"record\":{},\"side\":\"{}\"}}",
                record.hash,
                record.body,
                Digest(frame::side_digest(side))
            );
            if failed.is_err() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        failed
            .and_then(|()| writeln!(out, "{{\"head\":{}}}", head.to_json()))
            .and_then(|()| out.flush())
            .map_err(|e| StoreError::write(Path::new("the export"), e))?;
        Ok(Some(head))
    }
}

/// The last segment that begins at or before a record.
fn first_segment(dir: &Path, seq: u64) -> Result<u64, StoreError> {
    let numbers = segment_numbers(dir)?;
    // The headers are sorted by their first record.
    let after = numbers.partition_point(|&number| {
        header(dir, number).is_some_and(|header| header.first_seq <= seq)
    });
    Ok(after.checked_sub(1).map_or(1, |index| numbers[index]))
}

fn header(dir: &Path, number: u64) -> Option<SegmentHeader> {
    use std::io::Read as _;
    let mut bytes = [0; SEGMENT_HEADER_BYTES];
    let mut file = std::fs::File::open(dir.join(segment_name(number))).ok()?;
    file.read_exact(&mut bytes).ok()?;
    SegmentHeader::decode(&bytes).ok()
}

/// Is handed a record and its side bytes; says whether to go on.
type Each<'a> = dyn FnMut(Record<'_>, &[u8]) -> ControlFlow<()> + 'a;

/// Hands the records from a segment on to `each`, as far as they are frames.
fn walk(dir: &Path, from: u64, each: &mut Each<'_>) -> Result<(), StoreError> {
    for number in from.. {
        let path = dir.join(segment_name(number));
        let bytes = match read_path(&path, SEGMENT_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => return Err(StoreError::read(&path, e)),
        };
        if walk_segment(&bytes, each)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Breaks where the chain does not go on in the next segment.
fn walk_segment(bytes: &[u8], each: &mut Each<'_>) -> Result<ControlFlow<()>, StoreError> {
    match SegmentHeader::decode(bytes) {
        Ok(_) => Ok(walk_frames(&bytes[SEGMENT_HEADER_BYTES..], each)),
        Err(BadHeader::Broken) => Ok(ControlFlow::Break(())),
        Err(BadHeader::OtherFormat(name)) => Err(StoreError::format(name)),
    }
}

fn walk_frames(mut rest: &[u8], each: &mut Each<'_>) -> ControlFlow<()> {
    loop {
        match frame::front(rest) {
            Front::Frame(frame) => {
                for (seq, record) in (frame.first_seq..).zip(frame::records(frame.payload)) {
                    let Some(record) = record else {
                        return ControlFlow::Break(());
                    };
                    let Ok(body) = std::str::from_utf8(record.body) else {
                        return ControlFlow::Break(());
                    };
                    let hash = Digest(record.hash);
                    each(Record { seq, hash, body }, record.side)?;
                }
                rest = &rest[frame.len..];
            }
            Front::Roll { .. } => return ControlFlow::Continue(()),
            Front::End | Front::Torn | Front::Bad(_) => return ControlFlow::Break(()),
        }
    }
}

/// The newest records that fit, oldest first; older segments are read only as needed.
fn newest(
    dir: &Path,
    filter: &Filter,
    last: usize,
) -> Result<Vec<(u64, Digest, String)>, StoreError> {
    let mut found: Vec<(u64, Digest, String)> = Vec::new();
    for number in segment_numbers(dir)?.into_iter().rev() {
        let path = dir.join(segment_name(number));
        let bytes = read_path(&path, SEGMENT_BYTES_MAX).map_err(|e| StoreError::read(&path, e))?;
        let mut here = Vec::new();
        let _ = walk_segment(&bytes, &mut |record, _| {
            if filter.fits(&record) {
                here.push((record.seq, record.hash, record.body.to_owned()));
            }
            ControlFlow::Continue(())
        })?;
        here.drain(..here.len().saturating_sub(last - found.len()));
        here.append(&mut found);
        found = here;
        if found.len() >= last {
            break;
        }
    }
    Ok(found)
}
