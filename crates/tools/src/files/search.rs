//! `files/search`: files by name, and lines by what is in them. Folders are walked in the order
//! of names, so that a cursor is a place in that order; each is opened from the root as every
//! other path is, and links are not followed. What `.gitignore` and `.ignore` leave out is left
//! out, as ripgrep does, on whose parts this stands. R-8.

pub(crate) mod ignored;
mod lines;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::Searcher;
use ignore::overrides::{Override, OverrideBuilder};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Files;
use super::place::{Outside, fault, shown};
use crate::arguments::{NaturalNumber, arguments, set};
use crate::closed;
use ignored::Ignored;
use lines::Lines;

const LIMIT_DEFAULT: usize = 200;
/// Folders in folders.
const DEPTH_MAX: usize = 128;
/// Names of one folder that are looked at.
const NAMES_MAX: usize = 100_000;
/// Larger files are not looked into, and counted.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// What a pattern may take once it is compiled.
const PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;
/// After so long a page is given as far as it is.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The schemas of `files/search`: what it takes and what it gives.
pub fn schemas() -> [Value; 2] {
    let input = json!({
        "query": { "type": ["string", "null"], "maxLength": 4096, "description": "A regular expression" },
        "literal": { "type": "boolean", "default": false },
        "case_sensitive": { "type": "boolean", "default": true },
        "path": { "type": "string", "default": "." },
        "glob": { "type": "array", "items": { "type": "string", "maxLength": 1024 }, "maxItems": 64 },
        "hidden": { "type": "boolean", "default": false },
        "ignored": { "type": "boolean", "default": false },
        "cursor": { "type": ["string", "null"] },
        "limit": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 200 },
    });
    let one = closed(
        json!({
            "path": { "type": "string" },
            "line": { "type": ["integer", "null"] },
            "column": { "type": ["integer", "null"] },
            "text": { "type": ["string", "null"] },
        }),
        &["path", "line", "column", "text"],
    );
    let output = json!({
        "path": { "type": "string" },
        "matches": { "type": "array", "items": one },
        "skipped": { "type": "integer" },
        "next_cursor": { "type": ["string", "null"] },
    });
    [
        closed(input, &[]),
        closed(output, &["path", "matches", "skipped", "next_cursor"]),
    ]
}

/// The arguments of `files/search`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSearchArguments<'a> {
    query: Option<&'a str>,
    #[serde(default)]
    literal: bool,
    #[serde(default = "set")]
    case_sensitive: bool,
    path: Option<&'a str>,
    #[serde(borrow, default)]
    glob: Vec<&'a str>,
    #[serde(default)]
    hidden: bool,
    #[serde(default)]
    ignored: bool,
    cursor: Option<&'a str>,
    limit: Option<NaturalNumber>,
}

/// Off the gate's own thread, and until nobody wants it any more.
pub struct SearchRunner(pub Arc<Files>);

impl Runner for SearchRunner {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        let (files, input) = (Arc::clone(&self.0), job.call.input.clone());
        let cancel = Cancel::clone(&job.call.cancel);
        let time = TIME_MAX.min(job.timeout.until() / 2);
        Box::pin(async move {
            let work = move || Search::new(&files, input.value(), cancel, time)?.run();
            match tokio::task::spawn_blocking(work).await {
                Ok(done) => done.map(Output::from_value),
                Err(_) => Err(Fault::Internal {
                    message: "the search's task ended early".to_owned(),
                }),
            }
        })
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

/// A place in the order of all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    /// The line in it; 0 where it is about the file alone.
    line: u64,
}

impl Place {
    fn cursor(&self) -> String {
        let text = json!([shown(&self.path), self.line]).to_string();
        URL_SAFE_NO_PAD.encode(text)
    }

    fn of_cursor(cursor: &str) -> Result<Self, Fault> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
        let pair = bytes.and_then(|bytes| serde_json::from_slice::<(String, u64)>(&bytes).ok());
        let place = pair.map(|(path, line)| Self {
            path: path.into(),
            line,
        });
        // A place has one cursor: any other that means it was made up.
        place
            .filter(|place| place.cursor() == cursor)
            .ok_or_else(|| bad("cursor", "is none of ours"))
    }
}

/// One search under way.
struct Search<'a> {
    files: &'a Files,
    from: PathBuf,
    pattern: Option<RegexMatcher>,
    searcher: Searcher,
    globs: Override,
    hidden: bool,
    ignored: bool,
    /// Where the page before ended.
    after: Option<Place>,
    limit: usize,
    cancel: Cancel,
    until_us: u64,
    found: Vec<(Place, Value)>,
    skipped: u64,
    /// The last file that was looked at, where the page must end before its time.
    stopped_at: Option<Place>,
}

/// Whether to go on.
enum Go {
    On,
    Stop,
}

impl<'a> Search<'a> {
    fn new(files: &'a Files, input: &Value, cancel: Cancel, time: Duration) -> Result<Self, Fault> {
        let asked: FileSearchArguments<'_> = arguments(input)?;
        let from = asked.path.unwrap_or(".");
        let pattern = asked.query.map(|query| pattern(query, &asked));
        if pattern.is_none() && asked.glob.is_empty() {
            return Err(Fault::bad_value("query or glob must say what to look for")
                .with("field", "query")
                .with("reason", "neither query nor glob"));
        }
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Ok(Self {
            files,
            from: files.ground.within(from, Outside::BadValue)?,
            pattern: pattern.transpose()?,
            searcher: lines::searcher(),
            globs: globs(&asked.glob)?,
            hidden: asked.hidden,
            ignored: asked.ignored,
            after: asked.cursor.map(Place::of_cursor).transpose()?,
            limit: asked.limit.map_or(LIMIT_DEFAULT, NaturalNumber::count),
            cancel,
            until_us: files.clock.micros().saturating_add(time_us),
            found: Vec::new(),
            skipped: 0,
            stopped_at: None,
        })
    }

    fn run(mut self) -> Result<Value, Fault> {
        let (found, real) = self.files.ground.find(&self.from, OFlags::PATH)?;
        let about = rustix::fs::fstat(&found).map_err(|error| fault(error, &self.from))?;
        match FileType::from_raw_mode(about.st_mode) {
            FileType::Directory => {
                let mut ignored = self.ignored_above(&real);
                self.folder(&real, 0, &mut ignored)?;
            }
            _ => {
                self.file(&real)?;
            }
        }
        if self.cancel.is_cancelled() {
            return Err(Fault::Cancelled);
        }
        Ok(self.answer(&real))
    }

    /// What the folders above the one to search say.
    fn ignored_above(&self, real: &Path) -> Ignored {
        let mut ignored = Ignored::default();
        let above: Vec<&Path> = real.ancestors().skip(1).collect();
        for folder in above.into_iter().rev().filter(|_| !self.ignored) {
            ignored.enter(&self.files.ground, folder);
        }
        ignored
    }

    fn answer(mut self, real: &Path) -> Value {
        let more = self.found.len() > self.limit;
        self.found.truncate(self.limit);
        let last = match more {
            true => self.found.last().map(|(place, _)| place.clone()),
            false => self.stopped_at,
        };
        let matches: Vec<Value> = self.found.into_iter().map(|(_, value)| value).collect();
        json!({
            "path": shown(real),
            "matches": matches,
            "skipped": self.skipped,
            "next_cursor": last.map(|place| place.cursor()),
        })
    }

    /// All of a folder, in the order of names.
    fn folder(&mut self, path: &Path, depth: usize, ignored: &mut Ignored) -> Result<Go, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        // One that has gone, was swapped for a link or is not to be shown is not there.
        let Ok((folder, real)) = self.files.ground.find(nonempty(path), flags) else {
            return Ok(Go::On);
        };
        if real != path || depth > DEPTH_MAX {
            return Ok(Go::On);
        }
        let entries = match entries(&folder, path) {
            // One with too many names is not looked into, unless it is what was asked for.
            Err(Fault::BadValue { .. }) if depth > 0 => {
                self.skipped += 1;
                return Ok(Go::On);
            }
            entries => entries?,
        };
        if !self.ignored {
            ignored.enter(&self.files.ground, path);
        }
        let mut go = Go::On;
        for (name, kind) in entries {
            let path = path.join(&name);
            go = if self.is_left_out(&path, &name, kind, ignored) {
                self.goes_on(&path)
            } else if kind != FileType::Directory {
                self.file(&path)?
            } else if let Go::Stop = self.goes_on(&path) {
                // The next page begins with it.
                Go::Stop
            } else {
                self.folder(&path, depth + 1, ignored)?
            };
            if let Go::Stop = go {
                break;
            }
        }
        if !self.ignored {
            ignored.leave();
        }
        Ok(go)
    }

    /// Whether to go on behind a name that was not looked into, or into a folder. Those up to
    /// where the page before ended take no time: each page comes further than that.
    fn goes_on(&mut self, path: &Path) -> Go {
        if self.cancel.is_cancelled() {
            return Go::Stop;
        }
        let is_new = |after: &Place| path > after.path.as_path();
        let is_late = || self.files.clock.micros() >= self.until_us;
        if self.after.as_ref().is_none_or(is_new) && is_late() {
            let (path, line) = (path.to_owned(), 0);
            self.stopped_at = Some(Place { path, line });
            return Go::Stop;
        }
        Go::On
    }

    fn is_left_out(&self, path: &Path, name: &OsStr, kind: FileType, ignored: &Ignored) -> bool {
        let is_folder = kind == FileType::Directory;
        if !self.hidden && name.as_bytes().starts_with(b".") || name == ".git" {
            return true;
        }
        if self.is_before_cursor(path, is_folder) {
            return true;
        }
        self.globs.matched(path, is_folder).is_ignore()
            || !self.ignored && ignored.matches(path, is_folder)
    }

    /// True if all that is here was told on an earlier page.
    fn is_before_cursor(&self, path: &Path, is_folder: bool) -> bool {
        let Some(after) = &self.after else {
            return false;
        };
        match is_folder {
            true => {
                let depth = path.components().count();
                let same: PathBuf = after.path.components().take(depth).collect();
                path < same.as_path()
            }
            // A file that was told as a whole is done with; of others lines may be left.
            false => path < after.path.as_path() || path == after.path && after.line == 0,
        }
    }

    fn file(&mut self, path: &Path) -> Result<Go, Fault> {
        if self.cancel.is_cancelled() {
            return Ok(Go::Stop);
        }
        let flags = match self.pattern {
            None => OFlags::PATH | OFlags::NOFOLLOW,
            Some(_) => OFlags::RDONLY | OFlags::NOFOLLOW,
        };
        if let Some(found) = self.files.ground.find_straight(path, flags)
            && let Ok(about) = rustix::fs::fstat(&found)
            && FileType::from_raw_mode(about.st_mode) == FileType::RegularFile
        {
            let size = u64::try_from(about.st_size).unwrap_or(0);
            match &self.pattern {
                None => self.found.push(file_match(path)),
                Some(_) if size > FILE_BYTES_MAX => self.skipped += 1,
                Some(pattern) => {
                    let after = self.after.as_ref().filter(|after| after.path == path);
                    let room = self.limit + 1 - self.found.len();
                    let lines = Lines::new(pattern, after.map_or(0, |after| after.line), room);
                    let lines = lines.of(&File::from(found), &mut self.searcher).into_iter();
                    let place = |line| Place {
                        path: path.to_owned(),
                        line,
                    };
                    let all = lines.map(|line| (place(line.number), line.told(path)));
                    self.found.extend(all);
                }
            }
        }
        if self.found.len() > self.limit {
            return Ok(Go::Stop);
        }
        if self.files.clock.micros() >= self.until_us {
            // The next page begins behind this file.
            let (path, line) = (path.to_owned(), 0);
            self.stopped_at = Some(Place { path, line });
            return Ok(Go::Stop);
        }
        Ok(Go::On)
    }
}

pub(crate) fn nonempty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn file_match(path: &Path) -> (Place, Value) {
    let place = Place {
        path: path.to_owned(),
        line: 0,
    };
    let told = json!({ "path": shown(path), "line": null, "column": null, "text": null });
    (place, told)
}

/// Folders and plain files by name; what is not UTF-8 could not be asked for.
pub(crate) fn entries(folder: &OwnedFd, path: &Path) -> Result<Vec<(OsString, FileType)>, Fault> {
    let mut entries: Vec<(OsString, FileType)> = Vec::new();
    for entry in Dir::read_from(folder).map_err(|error| fault(error, path))? {
        let entry = entry.map_err(|error| fault(error, path))?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        let kind = match entry.file_type() {
            FileType::Unknown => statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |about| {
                    FileType::from_raw_mode(about.st_mode)
                }),
            kind => kind,
        };
        let wanted = matches!(kind, FileType::Directory | FileType::RegularFile);
        if wanted && !matches!(name, "." | "..") {
            entries.push((name.into(), kind));
        }
        if entries.len() > NAMES_MAX {
            let words = format!("{} holds more than {NAMES_MAX} names", path.display());
            return Err(Fault::bad_value(words).with("field", "path"));
        }
    }
    entries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    Ok(entries)
}

fn pattern(query: &str, asked: &FileSearchArguments<'_>) -> Result<RegexMatcher, Fault> {
    RegexMatcherBuilder::new()
        .case_insensitive(!asked.case_sensitive)
        .fixed_strings(asked.literal)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .line_terminator(Some(b'\n'))
        .build(query)
        .map_err(|error| bad("query", &error.to_string()))
}

/// As `rg --glob`, later ones win and `!` leaves out; but what is ignored stays so.
fn globs(asked: &[&str]) -> Result<Override, Fault> {
    let mut globs = OverrideBuilder::new("");
    for glob in asked {
        globs
            .add(glob)
            .map_err(|error| bad("glob", &error.to_string()))?;
    }
    globs
        .build()
        .map_err(|error| bad("glob", &error.to_string()))
}

fn bad(field: &str, reason: &str) -> Fault {
    Fault::BadInput {
        field: field.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// 100,000 changed cursors: what is taken as one is one of ours.
    #[test]
    fn mutated_cursors() {
        let place = |(path, line): (&str, u64)| Place {
            path: path.into(),
            line,
        };
        let places = [("a", 0), ("src/é.rs", 12), ("x", u64::MAX)].map(place);
        let seeds = places.map(|place| place.cursor());
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        const WORDS: [&[u8]; 6] = [b"YWZ0", b"=", b"-_", b"A", b"\0", b"\xff"];
        let mut random = Random::new("mutated cursors");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let cursor = String::from_utf8_lossy(&bytes);
            if let Ok(place) = Place::of_cursor(&cursor) {
                assert_eq!(place.cursor(), cursor);
                taken += 1;
            }
        }
        assert!(taken > 0);
        for made_up in ["[\"\",1]", "[\"a\", 1]", "[\"a\",1,2]"] {
            let cursor = URL_SAFE_NO_PAD.encode(made_up);
            assert!(Place::of_cursor(&cursor).is_err(), "{made_up}");
        }
    }
}
