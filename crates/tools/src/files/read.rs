//! `files/read`..

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_call::{Digest, Fault, Output, bounded};
use rustix::fs::{OFlags, Stat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use serde::Deserialize;
use serde_json::{Value, json};

use super::etag::{Stamp, modified, size};
use super::place::{Outside, errno, fault, plain, shown};
use super::{Encoding, Files};
use crate::arguments::{NaturalNumber, arguments};
use crate::closed;

/// What the names of artifacts begin with. A file of such a name is read as `./artifact:…`.
const ARTIFACT: &str = "artifact:b3-";

/// What is read at once, on the gate's own thread, if it is in memory.
const NOW_BYTES_MAX: u64 = 64 * 1024;

/// What is encoded at once: whole groups of base64, and little enough to stay in a cache.
const PIECE_BYTES: usize = 3 * 16 * 1024;

/// A character is at most so long.
const CHARACTER_BYTES_MAX: u64 = 4;

/// The schemas of `files/read`: what it takes and what it gives.
pub fn schemas() -> [Value; 2] {
    let input = json!({
        "path": { "type": "string" },
        "encoding": { "type": "string", "enum": ["utf-8", "base64"], "default": "utf-8" },
        "max_bytes": { "type": "integer", "minimum": 1 },
        "etag": { "type": ["string", "null"] },
        "offset": { "type": "integer", "minimum": 0 },
        "length": { "type": "integer", "minimum": 1 },
    });
    let output = json!({
        "path": { "type": "string" },
        "content": { "type": ["string", "null"] },
        "content_base64": { "type": ["string", "null"] },
        "encoding": { "type": "string" },
        "size": { "type": "integer" },
        "etag": { "type": "string" },
        "mtime": { "type": "string", "description": "ISO-8601" },
    });
    [
        closed(input, &["path"]),
        closed(output, &["path", "encoding", "size", "etag", "mtime"]),
    ]
}

/// The arguments of `files/read`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileReadArguments<'a> {
    path: &'a str,
    #[serde(default)]
    encoding: Encoding,
    max_bytes: Option<NaturalNumber>,
    etag: Option<&'a str>,
    offset: Option<NaturalNumber>,
    length: Option<NaturalNumber>,
}

pub fn read(files: &Files, input: &Value) -> Result<Value, Fault> {
    let asked: FileReadArguments<'_> = arguments(input)?;
    let (found, path, real) = match asked.path.strip_prefix(ARTIFACT) {
        Some(digest) => (
            artifact(files, digest)?,
            asked.path.into(),
            asked.path.into(),
        ),
        None => {
            let path = files.ground.within(asked.path, Outside::Denied)?;
            let (found, real) = files.ground.find(&path, OFlags::RDONLY)?;
            (found, path, real)
        }
    };
    let about = plain(&found, &path)?;
    let content = Content::InFile(File::from(found));
    answer(files, &asked, (content, &about), (&path, &real))
}

/// What is in a file.
enum Content {
    /// Still there.
    InFile(File),
    /// All of it.
    Read(Vec<u8>),
}

/// The same for a small file that is in memory: nothing is waited for, so that no other thread is
/// needed for it. `None` for all others, and for what must be refused.
pub fn read_now(files: &Files, input: &Value) -> Option<Output> {
    let asked: FileReadArguments<'_> = arguments(input).ok()?;
    if asked.path.starts_with(ARTIFACT) {
        return None;
    }
    let path = files.ground.within(asked.path, Outside::Denied).ok()?;
    let (found, real) = files.ground.find_now(&path)?;
    let about = plain(&found, &path).ok()?;
    let mut all = bounded::zeroed(size(&about), NOW_BYTES_MAX).ok()?;
    let file = File::from(found);
    let mut rest = [IoSliceMut::new(&mut all)];
    let read = preadv2(&file, &mut rest, 0, ReadWriteFlags::NOWAIT).ok()?;
    if read < all.len() {
        return None;
    }
    let stamp = Stamp::of(&about);
    let wants_all = asked.wants_all();
    if wants_all && let Some(answer) = files.told.again(&real, stamp, &all) {
        return Some(Output::new(answer));
    }
    let answer = answer(files, &asked, (Content::Read(all), &about), (&path, &real)).ok()?;
    let output = Output::from_value(answer);
    if wants_all {
        files.told.keep(&real, stamp, &output.json);
    }
    Some(output)
}

impl FileReadArguments<'_> {
    /// Returns whether a call asks for all of a file as text, whatever its etag.
    fn wants_all(&self) -> bool {
        let Self {
            path: _,
            encoding: Encoding::Utf8,
            max_bytes: None,
            etag: None,
            offset: None,
            length: None,
        } = self
        else {
            return false;
        };
        true
    }
}

fn answer(
    files: &Files,
    asked: &FileReadArguments<'_>,
    (content, about): (Content, &Stat),
    (path, real): (&Path, &Path),
) -> Result<Value, Fault> {
    let etag = match &content {
        Content::Read(all) => files.etags.of_read(all, about, &*files.clock),
        Content::InFile(file) => files.etags.of(file, about, &*files.clock, path)?,
    };
    let encoding = asked.encoding;
    let mut answer = json!({
        "path": shown(real),
        "encoding": encoding.as_str(),
        "size": size(about),
        "etag": etag,
        "mtime": modified(about).rfc3339(),
    });
    let field = encoding.field();
    if asked.etag == Some(&*etag) {
        answer[field] = Value::Null;
        return Ok(answer);
    }
    let wanted = wanted(asked, size(about), files.limits.read_bytes_max)?;
    let wrong = |error| fault(error, path);
    // Moved into the answer: a struct would have its content, of megabytes, copied once more.
    answer[field] = match encoding {
        Encoding::Utf8 => {
            let bytes = content.bytes(&wanted).map_err(wrong)?;
            text(bytes, &wanted, size(about), path)?.into()
        }
        Encoding::Base64 => content.base64(wanted).map_err(wrong)?.into(),
    };
    Ok(answer)
}

impl Content {
    fn bytes(self, range: &Range<u64>) -> Result<Vec<u8>, Errno> {
        match self {
            Self::Read(all) if range_of(range) == (0..all.len()) => Ok(all),
            Self::Read(all) => Ok(all[range_of(range)].to_vec()),
            Self::InFile(file) => {
                let length = range.end - range.start;
                let mut bytes = bounded::zeroed(length, length).map_err(|error| errno(&error))?;
                let filled = read_at(&file, &mut bytes, range.start)?;
                bytes.truncate(filled);
                Ok(bytes)
            }
        }
    }

    /// Piece by piece: a large range is never there as bytes.
    fn base64(self, range: Range<u64>) -> Result<String, Errno> {
        let file = match self {
            Self::Read(all) => return Ok(STANDARD.encode(&all[range_of(&range)])),
            Self::InFile(file) => file,
        };
        let length = (range.end - range.start).div_ceil(3) * 4;
        let room = bounded::room(length, length).map_err(|error| errno(&error))?;
        let mut encoded = String::from_utf8(room).unwrap_or_default();
        // bound: `PIECE_BYTES`
        let mut piece = vec![0; PIECE_BYTES.min(range_of(&range).len())];
        let mut at = range.start;
        while at < range.end {
            let room = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let room = piece.len().min(room);
            let filled = read_at(&file, &mut piece[..room], at)?;
            STANDARD.encode_string(&piece[..filled], &mut encoded);
            at += filled as u64;
            // It ends sooner than it did.
            if filled < room {
                break;
            }
        }
        Ok(encoded)
    }
}

/// What was too large for an answer, which said its name.
fn artifact(files: &Files, digest: &str) -> Result<OwnedFd, Fault> {
    let not_found = || Fault::NotFound {
        message: format!("{ARTIFACT}{digest} is not there, or not any more"),
    };
    let digest = Digest::from_hex(digest).ok_or_else(not_found)?;
    match files.store.artifact(&digest) {
        Ok(found) => found.map(OwnedFd::from).ok_or_else(not_found),
        Err(error) => Err(Fault::Internal {
            message: error.to_string(),
        }),
    }
}

/// The bytes asked for, as far as there are any; refused if there are too many.
fn wanted(asked: &FileReadArguments<'_>, size: u64, cap: u64) -> Result<Range<u64>, Fault> {
    let start = asked.offset.map_or(0, |offset| offset.0).min(size);
    let end = match asked.length {
        Some(length) => start.saturating_add(length.0).min(size),
        None => size,
    };
    let max_bytes = asked.max_bytes.map_or(cap, |max| max.0).min(cap);
    if end - start > max_bytes {
        let bytes = end - start;
        return Err(
            Fault::too_large(format!("content of {bytes} bytes"), max_bytes)
                .with("bytes", bytes)
                .with("field", "max_bytes")
                .with("reason", "ask for a range by offset and length"),
        );
    }
    Ok(start..end)
}

/// No file is larger than what can be counted here.
fn range_of(range: &Range<u64>) -> Range<usize> {
    let place = |place| usize::try_from(place).unwrap_or(usize::MAX);
    place(range.start)..place(range.end)
}

/// Reads until `bytes` are full, or the file ends: it may shrink meanwhile.
fn read_at(file: &File, bytes: &mut [u8], start: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
    Ok(filled)
}

/// The range as text. Where it begins or ends inside a character it shrinks; whatever else is
/// not UTF-8 is refused.
fn text(mut bytes: Vec<u8>, range: &Range<u64>, size: u64, path: &Path) -> Result<String, Fault> {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    if range.start > 0 {
        let skipped = bytes.iter().take_while(|byte| is_inside(byte)).count();
        if (skipped as u64) < CHARACTER_BYTES_MAX {
            bytes.drain(..skipped);
        }
    }
    let error = match String::from_utf8(bytes) {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let wrong = error.utf8_error();
    // Nothing wrong but that the last character is not all there.
    if wrong.error_len().is_none() && range.end < size {
        let mut bytes = error.into_bytes();
        bytes.truncate(wrong.valid_up_to());
        return Ok(String::from_utf8(bytes).unwrap_or_default());
    }
    Err(Fault::BadInput {
        field: "encoding".to_owned(),
        reason: format!("{} is not UTF-8: ask for base64", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// 100,000 changed ranges: each is inside the file and within the bound, and what is text
    /// of it is whole characters of the file's.
    #[test]
    fn mutated_ranges() {
        const FILE: &str = "aé€𝄞z, and so on";
        const CAP: u64 = 16;
        const SEEDS: [&[u8]; 3] = [
            b"{\"path\":\"a\",\"offset\":2,\"length\":7}",
            b"{\"path\":\"a\",\"offset\":1.0,\"length\":1e1,\"max_bytes\":9}",
            b"{\"path\":\"a\",\"max_bytes\":18446744073709551615}",
        ];
        const WORDS: [&[u8]; 10] = [
            b"0",
            b"-1",
            b"1e300",
            b".0",
            b"9223372036854775807",
            b"18446744073709551616",
            b"null",
            b"\"offset\":",
            b",",
            b"\xff",
        ];
        let (size, path) = (FILE.len() as u64, Path::new("a"));
        let mut random = Random::new("mutated ranges");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let Ok(input) = serde_json::from_slice::<Value>(&bytes) else {
                continue;
            };
            let Ok(asked) = arguments::<FileReadArguments<'_>>(&input) else {
                continue;
            };
            let Ok(range) = wanted(&asked, size, CAP) else {
                continue;
            };
            assert!(range.start <= range.end && range.end <= size, "{input}");
            assert!(range.end - range.start <= CAP, "{input}");
            let part = &FILE.as_bytes()[range_of(&range)];
            let text = text(part.to_vec(), &range, size, path).unwrap();
            assert!(FILE.contains(&text), "{input}");
            taken += 1;
        }
        assert!(taken > 0);
    }
}
