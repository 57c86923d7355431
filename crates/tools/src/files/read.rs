//! `files/read`..

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_call::{Digest, Fault};
use rustix::fs::OFlags;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::etag::{modified, size};
use super::place::{Outside, errno, fault, plain, shown};
use super::{Encoding, Files};

/// What the names of artifacts begin with. A file of such a name is read as `./artifact:…`.
const ARTIFACT: &str = "artifact:b3-";

/// A character is at most so long.
const CHARACTER_BYTES_MAX: u64 = 4;

pub fn read(files: &Files, input: &Value) -> Result<Value, Fault> {
    let asked = input["path"].as_str().unwrap_or_default();
    let (found, path, real) = match asked.strip_prefix(ARTIFACT) {
        Some(digest) => (artifact(files, digest)?, asked.into(), asked.into()),
        None => {
            let path = files.ground.within(asked, Outside::Denied)?;
            let (found, real) = files.ground.find(&path, OFlags::RDONLY)?;
            (found, path, real)
        }
    };
    let about = plain(&found, &path)?;
    let file = File::from(found);
    let etag = files.etags.of(&file, &about, &*files.clock, &path)?;
    let encoding = Encoding::of(input);
    let mut answer = json!({
        "path": shown(&real),
        "encoding": encoding.as_str(),
        "size": size(&about),
        "etag": etag,
        "mtime": modified(&about).rfc3339(),
    });
    let field = encoding.field();
    if input["etag"].as_str() == Some(&etag) {
        answer[field] = Value::Null;
        return Ok(answer);
    }
    let wanted = wanted(input, size(&about), files.limits.read_bytes_max)?;
    let bytes = read_at(&file, wanted.clone()).map_err(|error| fault(error, &path))?;
    answer[field] = match encoding {
        Encoding::Utf8 => text(&bytes, &wanted, size(&about), &path)?.into(),
        Encoding::Base64 => STANDARD.encode(&bytes).into(),
    };
    Ok(answer)
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
fn wanted(input: &Value, size: u64, cap: u64) -> Result<Range<u64>, Fault> {
    let start = input["offset"].as_u64().unwrap_or(0).min(size);
    let end = match input["length"].as_u64() {
        Some(length) => start.saturating_add(length).min(size),
        None => size,
    };
    let max_bytes = input["max_bytes"].as_u64().unwrap_or(cap).min(cap);
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

/// A file may shrink meanwhile; then there is less.
fn read_at(file: &File, range: Range<u64>) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(errno(&error)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The range as text. Where it begins or ends inside a character it shrinks; whatever else is
/// not UTF-8 is refused.
fn text<'a>(bytes: &'a [u8], range: &Range<u64>, size: u64, path: &Path) -> Result<&'a str, Fault> {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let mut bytes = bytes;
    if range.start > 0 {
        let skipped = bytes.iter().take_while(|byte| is_inside(byte)).count();
        if (skipped as u64) < CHARACTER_BYTES_MAX {
            bytes = &bytes[skipped..];
        }
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text),
        // Nothing wrong but that the last character is not all there.
        Err(error) if error.error_len().is_none() && range.end < size => {
            Ok(std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default())
        }
        Err(_) => Err(Fault::BadInput {
            field: "encoding".to_owned(),
            reason: format!("{} is not UTF-8: ask for base64", path.display()),
        }),
    }
}
