//! `files/write`: the new content is made whole and safe beside the old, and then takes its
//! name. Whoever reads sees the one or the other; whoever has the old file open keeps it. R-7.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callgate_call::{Cancel, Fault};
use callgate_store::failpoint;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, openat};
use rustix::io::Errno;
use serde::Deserialize;
use serde_json::{Value, json};

use super::etag::{modified, size};
use super::heirs::Heir;
use super::place::{Outside, Spot, errno, fault, not_created, plain, shown};
use super::swept::{NAMES_TRIED, keep, passing_name};
use super::{Encoding, Files};
use crate::arguments::{WholeNumber, arguments, set};
use crate::closed;

/// Mode of a file that has none yet, before the umask.
const MODE_NEW: u32 = 0o666;
const MODE_MAX: u32 = 0o777;

/// How a file is to be written.
pub struct Terms<'a> {
    pub create: bool,
    pub overwrite: bool,
    /// What must be there.
    pub etag: Option<&'a str>,
    pub mode: Option<u32>,
}

/// What became of it.
pub struct Written {
    pub path: PathBuf,
    pub about: Stat,
    pub etag: String,
    pub created: bool,
}

/// The schemas of `files/write`: what it takes and what it gives.
pub fn schemas() -> [Value; 2] {
    let input = json!({
        "path": { "type": "string" },
        "content": { "type": ["string", "null"] },
        "content_base64": { "type": ["string", "null"] },
        "encoding": { "type": "string", "enum": ["utf-8", "base64"], "default": "utf-8" },
        "create": { "type": "boolean", "default": true },
        "overwrite": { "type": "boolean", "default": false },
        "etag": { "type": ["string", "null"] },
        "mode": { "type": ["integer", "null"], "description": "POSIX file mode" },
        "mkdirs": { "type": "boolean", "default": true },
    });
    let output = json!({
        "path": { "type": "string" },
        "size": { "type": "integer" },
        "etag": { "type": "string" },
        "mtime": { "type": "string" },
        "created": { "type": "boolean" },
        "overwritten": { "type": "boolean" },
    });
    [
        closed(input, &["path"]),
        closed(
            output,
            &["path", "size", "etag", "mtime", "created", "overwritten"],
        ),
    ]
}

/// The arguments of `files/write`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileWriteArguments<'a> {
    path: &'a str,
    content: Option<&'a str>,
    content_base64: Option<&'a str>,
    #[serde(default)]
    encoding: Encoding,
    #[serde(default = "set")]
    create: bool,
    #[serde(default)]
    overwrite: bool,
    etag: Option<&'a str>,
    mode: Option<WholeNumber>,
    #[serde(default = "set")]
    mkdirs: bool,
}

pub fn write(files: &Files, input: &Value, stop: &Cancel) -> Result<Value, Fault> {
    let asked: FileWriteArguments<'_> = arguments(input)?;
    let path = files.ground.within(asked.path, Outside::BadValue)?;
    let content = asked.bytes()?;
    let cap = files.limits.write_bytes_max;
    if content.len() as u64 > cap {
        return Err(Fault::too_large("content", cap).with("bytes", content.len()));
    }
    let terms = Terms {
        create: asked.create,
        overwrite: asked.overwrite,
        etag: asked.etag,
        mode: asked.permissions()?,
    };
    // Before a folder is made for nothing.
    let may_be_new = terms.create && terms.etag.is_none();
    let mkdirs = may_be_new && asked.mkdirs;
    let spot = match files.ground.spot(&path, mkdirs) {
        // Gone with its folder.
        Err(Fault::NotFound { .. }) if terms.etag.is_some() => return Err(gone(&path)),
        spot => spot?,
    };
    let written = replace(files, &spot, &content, &terms, stop)?;
    Ok(json!({
        "path": shown(&written.path),
        "size": size(&written.about),
        "etag": written.etag,
        "mtime": modified(&written.about).rfc3339(),
        "created": written.created,
        "overwritten": !written.created,
    }))
}

/// Gives a name new content, if what is there is what the terms say.
pub fn replace(
    files: &Files,
    spot: &Spot,
    content: &[u8],
    terms: &Terms<'_>,
    stop: &Cancel,
) -> Result<Written, Fault> {
    let path = spot.path.as_path();
    let failed = |error: Errno| fault(error, path);
    // Once here, so that nothing is written for nothing; and again under the lock.
    let before = check(files, spot, terms)?;
    let fresh = Fresh::make(files, spot).map_err(|error| match &before {
        None => not_created(error, path),
        Some(_) => failed(error),
    })?;
    (&fresh.file)
        .write_all(content)
        .map_err(|error| failed(errno(&error)))?;
    fresh
        .dress(spot, before.as_ref(), terms.mode)
        .map_err(failed)?;
    // Content, owner and rights are on the disk before the name leads to them. A crash before the
    // name leaves the earlier content, and at most a passing name, which is swept.
    fresh
        .file
        .sync_all()
        .map_err(|error| failed(errno(&error)))?;
    let _lock = files.lock.take(stop)?;
    files.ground.check_still_there(spot)?;
    let before = check(files, spot, terms)?;
    let created = before.is_none();
    fresh
        .take_place(files, spot, created)
        .map_err(|error| match error {
            Errno::EXIST => taken(files, spot),
            other => failed(other),
        })?;
    let about = fstat(&fresh.file).map_err(failed)?;
    let etag = files.etags.of_whole(content, &about, &*files.clock);
    Ok(Written {
        path: path.to_owned(),
        about,
        etag,
        created,
    })
}

/// What is there now, if the terms allow it to be replaced; nothing if it may be made.
fn check(files: &Files, spot: &Spot, terms: &Terms<'_>) -> Result<Option<Stat>, Fault> {
    let path = spot.path.as_path();
    let Some((file, about)) = existing(spot)? else {
        return match (terms.etag, terms.create) {
            (Some(_), _) => Err(gone(path)),
            (None, false) => Err(fault(Errno::NOENT, path)),
            (None, true) => Ok(None),
        };
    };
    match terms.etag {
        None if terms.overwrite => Ok(Some(about)),
        None => Err(taken(files, spot)),
        Some(etag) => {
            let current = files.etags.of(&file, &about, &*files.clock, path)?;
            if current == etag {
                return Ok(Some(about));
            }
            Err(stale(path, &current))
        }
    }
}

/// The file at a name. A link is never followed, and so never written through.
pub fn existing(spot: &Spot) -> Result<Option<(File, Stat)>, Fault> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match openat(&spot.folder, &spot.name, flags, Mode::empty()) {
        Ok(found) => {
            let about = plain(&found, &spot.path)?;
            Ok(Some((File::from(found), about)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::LOOP) => Err(Fault::denied(format!("{} is a link", spot.path.display()))
            .with("field", "path")
            .with("reason", "is a link")),
        Err(error) => Err(fault(error, &spot.path)),
    }
}

/// Nothing where the caller thinks something is.
fn gone(path: &Path) -> Fault {
    Fault::conflict(format!("{} is gone", path.display()))
        .with("field", "etag")
        .with("etag", Value::Null)
}

/// Another content than the caller thinks.
pub fn stale(path: &Path, current: &str) -> Fault {
    let path = path.display();
    Fault::conflict(format!("{path} is not what it was: its etag is {current}"))
        .with("field", "etag")
        .with("etag", current)
}

fn taken(files: &Files, spot: &Spot) -> Fault {
    let fault = Fault::conflict(format!(
        "{} is there: pass its etag, or overwrite",
        spot.path.display()
    ))
    .with("field", "overwrite");
    let current = existing(spot).ok().flatten().and_then(|(file, about)| {
        let etag = files.etags.of(&file, &about, &*files.clock, &spot.path);
        etag.ok()
    });
    match current {
        Some(etag) => fault.with("etag", etag),
        None => fault,
    }
}

impl<'a> FileWriteArguments<'a> {
    /// Returns the content to be written, decoded where it is given as base64.
    fn bytes(&self) -> Result<Cow<'a, [u8]>, Fault> {
        let bad = |field: &str, reason: &str| {
            Err(Fault::bad_value(format!("{field}: {reason}"))
                .with("field", field)
                .with("reason", reason))
        };
        match (self.content, self.content_base64) {
            (Some(text), None) if self.encoding == Encoding::Utf8 => Ok(text.as_bytes().into()),
            // The encoding may also say how `content` is meant.
            (Some(coded), None) | (None, Some(coded)) => match STANDARD.decode(coded) {
                Ok(bytes) => Ok(bytes.into()),
                Err(error) => bad("content_base64", &format!("not base64: {error}")),
            },
            (None, None) => bad("content", "one of content and content_base64 is needed"),
            (Some(_), Some(_)) => bad("content", "only one of content and content_base64"),
        }
    }

    /// Returns the mode that the file is to have, if the call names one.
    fn permissions(&self) -> Result<Option<u32>, Fault> {
        let Some(WholeNumber(mode)) = self.mode else {
            return Ok(None);
        };
        match u32::try_from(mode) {
            Ok(mode) if mode <= MODE_MAX => Ok(Some(mode)),
            _ => Err(Fault::bad_value("mode must be from 0 to 0777 (511)")
                .with("field", "mode")
                .with("reason", "beyond 0777")),
        }
    }
}

/// New content without a name, or under one of its own where the file system has no such thing.
struct Fresh<'a> {
    file: File,
    /// Removed, unless it took its place.
    name: Option<Temporary<'a>>,
}

/// A name that goes with us.
struct Temporary<'a> {
    spot: &'a Spot,
    name: String,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Where it took its place, it is no longer there.
        let _ = rustix::fs::unlinkat(&self.spot.folder, &self.name, AtFlags::empty());
    }
}

impl<'a> Temporary<'a> {
    fn new(spot: &'a Spot) -> Result<Self, Errno> {
        let name = passing_name()?;
        Ok(Self { spot, name })
    }
}

impl<'a> Fresh<'a> {
    fn make(files: &Files, spot: &'a Spot) -> Result<Self, Errno> {
        let mode = Mode::from_raw_mode(MODE_NEW);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match openat(&spot.folder, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(Self {
                file: File::from(file),
                name: None,
            }),
            // The file system, or the kernel, knows no files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
                files.ground.swept().sweep(&spot.folder);
                Self::make_named(spot)
            }
            Err(error) => Err(error),
        }
    }

    fn make_named(spot: &'a Spot) -> Result<Self, Errno> {
        let mode = Mode::from_raw_mode(MODE_NEW);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        for _ in 0..NAMES_TRIED {
            let name = Temporary::new(spot)?;
            let file = openat(&spot.folder, &name.name, flags | OFlags::NOFOLLOW, mode)?;
            // Or it was swept before that was said.
            if keep(&file) && fstat(&file)?.st_nlink > 0 {
                let file = File::from(file);
                let name = Some(name);
                return Ok(Self { file, name });
            }
        }
        Err(Errno::BUSY)
    }

    /// As what it replaces was dressed, or as asked.
    fn dress(&self, spot: &Spot, before: Option<&Stat>, mode: Option<u32>) -> Result<(), Errno> {
        let heir = match before {
            Some(before) => Some(Heir::of(before)),
            None => Heir::of_new_in(&spot.folder)?,
        };
        if let Some(heir) = heir
            && heir != Heir::of(&fstat(&self.file)?)
        {
            heir.inherit(&self.file);
        }
        // Neither setuid nor setgid outlives a change of content.
        let mode = mode.or(before.map(|before| before.st_mode & 0o777));
        match mode {
            Some(mode) => rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)),
            None => Ok(()),
        }
    }

    /// Takes the name, from whoever has it unless it is to be new. Whoever has the lock has
    /// `waiting` too.
    fn take_place(&self, files: &Files, spot: &Spot, is_new: bool) -> Result<(), Errno> {
        match &self.name {
            Some(named) => Self::rename(spot, named, is_new)?,
            None if is_new => self.link(&spot.folder, &spot.name)?,
            None => {
                if !self.replaces(spot, &files.waiting)? {
                    files.ground.swept().sweep(&spot.folder);
                    // Before it has a name that could be swept; nobody else has it open.
                    let _ = keep(&self.file);
                    let named = Temporary::new(spot)?;
                    self.link(&spot.folder, Path::new(&named.name))?;
                    failpoint("files.named");
                    Self::rename(spot, &named, is_new)?;
                }
            }
        }
        sync_folder(spot)
    }

    /// Only what has a name can take another's. It waits under one beside our state, so that
    /// nothing is left in the workspace if we die between the two steps. False if that is on
    /// another file system.
    fn replaces(&self, spot: &Spot, waiting: &Path) -> Result<bool, Errno> {
        let mut linked = self.link(CWD, waiting);
        if linked == Err(Errno::EXIST) {
            // Of one that died so.
            rustix::fs::unlink(waiting)?;
            linked = self.link(CWD, waiting);
        }
        if linked.is_err() {
            return Ok(false);
        }
        let renamed = rustix::fs::renameat(CWD, waiting, &spot.folder, &spot.name);
        if renamed.is_err() {
            let _ = rustix::fs::unlink(waiting);
        }
        match renamed {
            Ok(()) => Ok(true),
            Err(Errno::XDEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn rename(spot: &Spot, named: &Temporary<'_>, is_new: bool) -> Result<(), Errno> {
        let flags = if is_new {
            RenameFlags::NOREPLACE
        } else {
            RenameFlags::empty()
        };
        let folder = &spot.folder;
        rustix::fs::renameat_with(folder, &named.name, folder, &spot.name, flags)
    }

    fn link(&self, folder: impl AsFd, name: &Path) -> Result<(), Errno> {
        let fd = format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd());
        rustix::fs::linkat(CWD, fd, folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

/// Syncs the folder of a name, so that the name outlives a loss of power as well. The last step of
/// a change, before its caller is answered: a crash before it leaves the earlier name or the new one.
pub fn sync_folder(spot: &Spot) -> Result<(), Errno> {
    rustix::fs::fsync(&spot.folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// 100,000 changed texts: what is taken as base64 is that of its bytes.
    #[test]
    fn mutated_base64() {
        const SEEDS: [&[u8]; 4] = [b"", b"/wAB", b"aGVsbG8=", b"aGVsbG8gdGhlcmUsIHdvcmxkIQ=="];
        const WORDS: [&[u8]; 7] = [b"=", b"==", b"+", b"-", b"\n", b"\0", b"\xff"];
        let mut random = Random::new("mutated base64");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let text = String::from_utf8_lossy(&bytes);
            for input in [
                json!({ "path": "a", "content_base64": text }),
                json!({ "path": "a", "content": text, "encoding": "base64" }),
            ] {
                let asked: FileWriteArguments<'_> = arguments(&input).unwrap();
                if let Ok(bytes) = asked.bytes() {
                    assert_eq!(STANDARD.encode(bytes), text);
                    taken += 1;
                }
            }
        }
        assert!(taken > 0);
    }

    /// R-7: 100,000 changed params: content is what one of the two says, and no mode is beyond
    /// 0777.
    #[test]
    fn mutated_params() {
        const CASES: usize = 100_000;
        const SEEDS: [&[u8]; 4] = [
            br#"{"path":"a","content":"h\u00e9llo","mode":420}"#,
            br#"{"path":"a","content_base64":"/wAB","encoding":"base64","mode":null}"#,
            br#"{"path":"a","content":"aGVsbG8=","encoding":"base64","mode":5.11e2}"#,
            br#"{"path":"a","content":null,"content_base64":"aGk=","encoding":"utf-8","mode":0}"#,
        ];
        const WORDS: [&[u8]; 14] = [
            b"511",
            b"512",
            b"-1",
            b".5",
            b"1e300",
            b"18446744073709551616",
            b"null",
            b"\"mode\":",
            b"\"content\":",
            b"\"content_base64\":\"AA==\",",
            b"=",
            b"\\u0000",
            b",",
            b"\xff",
        ];
        let mut random = Random::new("mutated params of files/write");
        let (mut contents, mut modes) = ([0, 0], [0, 0]);
        for _ in 0..CASES {
            let bytes = mutant(&mut random, &SEEDS, &WORDS);
            let Ok(input) = serde_json::from_slice::<Value>(&bytes) else {
                continue;
            };
            let Ok(asked) = arguments::<FileWriteArguments<'_>>(&input) else {
                continue;
            };
            let read = asked.bytes();
            contents[usize::from(read.is_ok())] += 1;
            let (text, coded) = (input["content"].as_str(), input["content_base64"].as_str());
            assert!(
                text.is_some() != coded.is_some() || read.is_err(),
                "{input}"
            );
            if let (Ok(bytes), Some(said)) = (read, text.or(coded)) {
                let is_plain = text.is_some() && input["encoding"] != "base64";
                let told = match is_plain {
                    true => String::from_utf8(bytes.into()).unwrap(),
                    false => STANDARD.encode(bytes),
                };
                assert_eq!(told, said, "{input}");
            }
            let read = asked.permissions();
            modes[usize::from(read.is_ok())] += 1;
            match read {
                Ok(None) => assert!(input["mode"].is_null(), "{input}"),
                Ok(Some(mode)) => {
                    let is_said = input["mode"].as_f64() == Some(f64::from(mode));
                    assert!(is_said && mode <= 0o777, "{input}");
                }
                Err(fault) => assert!(matches!(fault, Fault::BadValue { .. }), "{fault:?}"),
            }
        }
        eprintln!("refused and taken: contents {contents:?}, modes {modes:?}");
        assert!(
            [contents, modes]
                .as_flattened()
                .iter()
                .all(|count| *count > 0)
        );
    }
}
