//! `files/list`, `files/stat`, `files/delete` and `files/move`, in the style of the contract. R-8.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::{Cancel, Fault};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, RenameFlags, Stat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Files;
use super::etag::{modified, size};
use super::place::{Outside, Spot, fault, shown};
use super::write::{existing, stale, sync_folder};
use crate::arguments::{NaturalNumber, arguments, set};
use crate::closed;

/// Names of one folder that are looked at; more are refused.
const NAMES_MAX: usize = 100_000;
const LIMIT_DEFAULT: usize = 200;
/// Before the name in a cursor, so that not every text is one.
const CURSOR: &str = "after:";
/// Folders that a removal goes down.
const DEPTH_MAX: usize = 128;

/// The schemas of `files/list`: what it takes and what it gives.
pub fn list_schemas() -> [Value; 2] {
    let input = json!({
        "path": { "type": "string", "default": "." },
        "cursor": { "type": ["string", "null"] },
        "limit": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 200 },
    });
    let entry = closed(
        json!({
            "name": { "type": "string" },
            "path": { "type": "string" },
            "type": { "type": "string", "enum": ["file", "directory", "symlink", "other"] },
            "size": { "type": "integer" },
            "mtime": { "type": "string" },
        }),
        &["name", "path", "type", "size", "mtime"],
    );
    let output = json!({
        "path": { "type": "string" },
        "entries": { "type": "array", "items": entry },
        "next_cursor": { "type": ["string", "null"] },
    });
    [
        closed(input, &[]),
        closed(output, &["path", "entries", "next_cursor"]),
    ]
}

/// The arguments of `files/list`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileListArguments<'a> {
    path: Option<&'a str>,
    cursor: Option<&'a str>,
    limit: Option<NaturalNumber>,
}

/// A name of a folder, in an answer of `files/list`.
#[derive(Serialize)]
struct FolderEntry<'a> {
    name: &'a str,
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    mtime: String,
}

pub fn list(files: &Files, input: &Value) -> Result<Value, Fault> {
    let asked: FileListArguments<'_> = arguments(input)?;
    let path = asked.path.unwrap_or(".");
    let path = files.ground.within(path, Outside::BadValue)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let (folder, real) = files.ground.find(&path, flags)?;
    let after = asked.cursor.map(name_of_cursor).transpose()?;
    let limit = asked.limit.map_or(LIMIT_DEFAULT, NaturalNumber::count);
    let names = names(&folder, &path)?;
    let first = after.map_or(0, |after| names.partition_point(|name| *name <= after));
    let mut entries = Vec::new();
    let mut rest = names[first..].iter();
    for name in rest.by_ref() {
        let spot = real.join(name);
        // One that has gone meanwhile is not there.
        if let Ok(about) = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
            && !files.ground.is_hidden(&spot, kind(&about) == "directory")
        {
            entries.push(entry(name, &spot, &about));
        }
        if entries.len() >= limit {
            break;
        }
    }
    let next_cursor = match (rest.next(), entries.last()) {
        (Some(_), Some(last)) => Some(URL_SAFE_NO_PAD.encode(format!("{CURSOR}{}", last.name))),
        _ => None,
    };
    Ok(json!({ "path": shown(&real), "entries": entries, "next_cursor": next_cursor }))
}

/// In order, so that a cursor is a place among names and stays one when others come or go.
fn names(folder: &OwnedFd, path: &Path) -> Result<Vec<String>, Fault> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(|error| fault(error, path))? {
        let entry = entry.map_err(|error| fault(error, path))?;
        // What is not UTF-8 could not be asked for.
        if let Ok(name) = entry.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
        if names.len() > NAMES_MAX {
            return Err(Fault::bad_value(format!(
                "{} holds more than {NAMES_MAX} names",
                path.display()
            ))
            .with("field", "path"));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The name a cursor stands behind. R-4: one that is none of ours is the caller's error.
pub(crate) fn name_of_cursor(cursor: &str) -> Result<String, Fault> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.as_deref()
        .and_then(|text| text.strip_prefix(CURSOR))
        .map(str::to_owned)
        .ok_or_else(|| Fault::BadInput {
            field: "cursor".to_owned(),
            reason: "is none of ours".to_owned(),
        })
}

fn entry<'a>(name: &'a str, path: &Path, about: &Stat) -> FolderEntry<'a> {
    FolderEntry {
        name,
        path: shown(path),
        kind: kind(about),
        size: size(about),
        mtime: modified(about).rfc3339(),
    }
}

fn kind(about: &Stat) -> &'static str {
    match FileType::from_raw_mode(about.st_mode) {
        FileType::RegularFile => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        _ => "other",
    }
}

/// The schemas of `files/stat`: what it takes and what it gives.
pub fn stat_schemas() -> [Value; 2] {
    let output = json!({
        "path": { "type": "string" },
        "type": { "type": "string", "enum": ["file", "directory", "symlink", "other"] },
        "size": { "type": "integer" },
        "mtime": { "type": "string" },
        "mode": { "type": "integer" },
        "etag": { "type": "string" },
    });
    [
        closed(json!({ "path": { "type": "string" } }), &["path"]),
        closed(output, &["path", "type", "size", "mtime", "mode"]),
    ]
}

/// The arguments of `files/stat`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStatArguments<'a> {
    path: &'a str,
}

/// An answer of `files/stat`.
#[derive(Serialize)]
struct FileDescription {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    mtime: String,
    mode: u32,
    /// Only files have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<String>,
}

/// A link is described itself, so that a caller can see that it is one.
pub fn stat(files: &Files, input: &Value) -> Result<Value, Fault> {
    let asked: FileStatArguments<'_> = arguments(input)?;
    let path = files.ground.within(asked.path, Outside::BadValue)?;
    let (found, real) = files.ground.find(&path, OFlags::PATH | OFlags::NOFOLLOW)?;
    let about = rustix::fs::fstat(&found).map_err(|error| fault(error, &path))?;
    let mut description = FileDescription {
        path: shown(&real),
        kind: kind(&about),
        size: size(&about),
        mtime: modified(&about).rfc3339(),
        mode: about.st_mode & 0o7777,
        etag: None,
    };
    if kind(&about) == "file"
        && let Ok((readable, _)) = files.ground.find(&path, OFlags::RDONLY | OFlags::NOFOLLOW)
        && let Ok(about) = rustix::fs::fstat(&readable)
    {
        let etag = files
            .etags
            .of(&File::from(readable), &about, &*files.clock, &path)?;
        description.etag = Some(etag);
    }
    Ok(json!(description))
}

/// The schemas of `files/delete`: what it takes and what it gives.
pub fn delete_schemas() -> [Value; 2] {
    let input = json!({
        "path": { "type": "string" },
        "etag": { "type": ["string", "null"] },
        "recursive": { "type": "boolean", "default": false },
    });
    let output = json!({ "path": { "type": "string" }, "deleted": { "type": "boolean" } });
    [
        closed(input, &["path"]),
        closed(output, &["path", "deleted"]),
    ]
}

/// The arguments of `files/delete`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileDeleteArguments<'a> {
    path: &'a str,
    etag: Option<&'a str>,
    #[serde(default)]
    recursive: bool,
}

pub fn delete(files: &Files, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: FileDeleteArguments<'_> = arguments(input)?;
    let path = files.ground.within(asked.path, Outside::BadValue)?;
    // Now, so that nothing changes its place once it was looked at.
    let _lock = files.lock.take(stop)?;
    let spot = files.ground.spot(&path, false)?;
    files.ground.check_holds_none(&spot.path, &path, stop)?;
    let about = look(&spot)?.ok_or_else(|| fault(Errno::NOENT, &path))?;
    if let Some(etag) = asked.etag {
        check_etag(files, &spot, etag)?;
    }
    match kind(&about) {
        "directory" if asked.recursive => {
            remove_folder(&spot.folder, spot.name.as_os_str(), 0, stop)
        }
        "directory" => rustix::fs::unlinkat(&spot.folder, &spot.name, AtFlags::REMOVEDIR),
        _ => rustix::fs::unlinkat(&spot.folder, &spot.name, AtFlags::empty()),
    }
    .map_err(|error| match error {
        Errno::NOTEMPTY => Fault::conflict(format!(
            "{} is not empty: pass recursive to remove all that is in it",
            path.display()
        ))
        .with("field", "recursive"),
        Errno::CANCELED => Fault::Cancelled,
        other => fault(other, &path),
    })?;
    sync_folder(&spot).map_err(|error| fault(error, &path))?;
    Ok(json!({ "path": shown(&spot.path), "deleted": true }))
}

/// Removes a folder by its own descriptor, so that a link swapped in for it is removed and not
/// followed.
fn remove_folder(parent: &OwnedFd, name: &OsStr, depth: usize, stop: &Cancel) -> Result<(), Errno> {
    if depth > DEPTH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = match rustix::fs::openat(parent, name, flags, rustix::fs::Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return rustix::fs::unlinkat(parent, name, AtFlags::empty());
        }
        folder => folder?,
    };
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let inner = entry.file_name();
        if inner == c"." || inner == c".." {
            continue;
        }
        if stop.is_cancelled() {
            return Err(Errno::CANCELED);
        }
        use std::os::unix::ffi::OsStrExt as _;
        let inner = OsStr::from_bytes(inner.to_bytes());
        match rustix::fs::unlinkat(&folder, inner, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => remove_folder(&folder, inner, depth + 1, stop)?,
            Err(Errno::NOENT) => {}
            removed => removed?,
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// The schemas of `files/move`: what it takes and what it gives.
pub fn move_schemas() -> [Value; 2] {
    let input = json!({
        "from": { "type": "string" },
        "to": { "type": "string" },
        "etag": { "type": ["string", "null"] },
        "overwrite": { "type": "boolean", "default": false },
        "mkdirs": { "type": "boolean", "default": true },
    });
    let output = json!({
        "from": { "type": "string" },
        "to": { "type": "string" },
        "overwritten": { "type": "boolean" },
    });
    [
        closed(input, &["from", "to"]),
        closed(output, &["from", "to", "overwritten"]),
    ]
}

/// The arguments of `files/move`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMoveArguments<'a> {
    from: &'a str,
    to: &'a str,
    etag: Option<&'a str>,
    #[serde(default)]
    overwrite: bool,
    #[serde(default = "set")]
    mkdirs: bool,
}

pub fn rename(files: &Files, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: FileMoveArguments<'_> = arguments(input)?;
    let path_of = |field: &str, path: &str| {
        let path = files.ground.within(path, Outside::BadValue);
        path.map_err(|fault| fault.with("field", field))
    };
    let (from_path, to_path) = (path_of("from", asked.from)?, path_of("to", asked.to)?);
    // Now, so that nothing changes its place once it was looked at.
    let _lock = files.lock.take(stop)?;
    let spot_of = |field: &str, path: &Path, make: bool| -> Result<Spot, Fault> {
        let named = |fault: Fault| fault.with("field", field);
        let spot = files.ground.spot(path, make).map_err(named)?;
        files
            .ground
            .check_holds_none(&spot.path, path, stop)
            .map_err(named)?;
        Ok(spot)
    };
    let from = spot_of("from", &from_path, false)?;
    let to = spot_of("to", &to_path, asked.mkdirs)?;
    files
        .ground
        .check_may_be((&from.path, &to.path), &to_path, stop)
        .map_err(|fault| fault.with("field", "to"))?;
    look(&from)?.ok_or_else(|| fault(Errno::NOENT, &from_path))?;
    if let Some(etag) = asked.etag {
        check_etag(files, &from, etag)?;
    }
    let replaced = asked.overwrite && look(&to)?.is_some();
    let flags = if asked.overwrite {
        RenameFlags::empty()
    } else {
        RenameFlags::NOREPLACE
    };
    rustix::fs::renameat_with(&from.folder, &from.name, &to.folder, &to.name, flags).map_err(
        |error| match error {
            Errno::EXIST | Errno::NOTEMPTY => {
                Fault::conflict(format!("{} is there: pass overwrite", to.path.display()))
                    .with("field", "overwrite")
            }
            Errno::INVAL => {
                Fault::bad_value("a folder can not be moved into itself").with("field", "to")
            }
            other => fault(other, &to.path),
        },
    )?;
    // The new name is on the disk before the old one is gone from it: should the file system write
    // the two apart, a loss of power in between leaves both names rather than none.
    for spot in [&to, &from] {
        sync_folder(spot).map_err(|error| fault(error, &spot.path))?;
    }
    Ok(json!({
        "from": shown(&from.path),
        "to": shown(&to.path),
        "overwritten": replaced,
    }))
}

/// What is at a name, links themselves.
fn look(spot: &Spot) -> Result<Option<Stat>, Fault> {
    match statat(&spot.folder, &spot.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(about) => Ok(Some(about)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(fault(error, &spot.path)),
    }
}

fn check_etag(files: &Files, spot: &Spot, wanted: &str) -> Result<(), Fault> {
    let (file, about) = existing(spot)?.ok_or_else(|| fault(Errno::NOENT, &spot.path))?;
    let current = files.etags.of(&file, &about, &*files.clock, &spot.path)?;
    if current == wanted {
        return Ok(());
    }
    Err(stale(&spot.path, &current))
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// 100,000 changed cursors: what is taken as one is one of ours.
    #[test]
    fn mutated_cursors() {
        let cursor_of = |name: &str| URL_SAFE_NO_PAD.encode(format!("{CURSOR}{name}"));
        let seeds = ["", "a", "a name.txt", "é"].map(cursor_of);
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        const WORDS: [&[u8]; 6] = [b"YWZ0", b"=", b"-_", b"A", b"\0", b"\xff"];
        let mut random = Random::new("mutated cursors");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let cursor = String::from_utf8_lossy(&bytes);
            if let Ok(name) = name_of_cursor(&cursor) {
                assert_eq!(cursor_of(&name), cursor);
                taken += 1;
            }
        }
        assert!(taken > 0);
    }
}
