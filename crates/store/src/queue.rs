//! A queue of jobs as folders of files, so that anything that can write a file can add to it. A
//! job is where its file is, and moves by renaming alone: whatever kills us, it is in one folder.
//! Whoever works on a job holds a lock on its file; one in `processing` that nobody holds is taken
//! up again. TH-149.
//!
//! ```text
//! inbox/p0100_name.json                    waits; a smaller number comes first, 5000 without one
//! processing/name.rRUN.a1.json.processing  somebody is at it: its run, its try
//! retry/retry_DUE_name.rRUN.a2.json        failed, and is tried again once DUE (ms) has come
//! done/ failed/ dlq/                       worked off, no request at all, given up
//! out/name.attempt1.result.json            what came of a try
//! ```
//!
//! What waits is whoever's who put it there, and stays. Of what is over the newest is kept.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use callgate_call::bounded::read_path;
use callgate_call::{Digest, Timestamp};
use rustix::fs::{FlockOperation, RenameFlags, flock, renameat_with};

use crate::{StoreError, failpoint, keep_newest, write_file, write_file_with};

/// Jobs of one folder that are looked at together; the others wait their turn.
const JOBS_SEEN_MAX: usize = 10_000;
/// Files of `done`, `failed`, `dlq` and `out`; one more, and all but the newest `KEPT_MIN` go.
const KEPT_MAX: usize = 10_000;
const KEPT_MIN: usize = 9000;
/// Longest name of a file.
const NAME_BYTES_MAX: usize = 255;
/// Longest first name of a job: every later one of it still is a file's name.
pub const BASE_BYTES_MAX: usize = NAME_BYTES_MAX - LATER_BYTES_MAX;
/// What the longest of the later names, that in `retry`, adds to the first: `retry_`, `_`, `.r`,
/// `.a` and `.json`, with a time of 20 digits, a run of 32 and a try of 10.
const LATER_BYTES_MAX: usize = 16 + 20 + 32 + 10;
/// A job without a number comes with this one.
const PRIORITY_DEFAULT: u32 = 5000;

/// The folders.
#[derive(Debug)]
pub struct Queue {
    dir: PathBuf,
}

/// A job that is ours until it is put somewhere.
#[derive(Debug)]
pub struct Job {
    /// Its file's first name, without `.json`; cut if that is too long.
    pub base: String,
    /// The run it is.
    pub run: String,
    /// Which try this is, from 1.
    pub attempt: u32,
    /// False if its name is longer than [`BASE_BYTES_MAX`]: it can only be shelved.
    pub name_fits: bool,
    path: PathBuf,
    _lock: File,
}

/// Where a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    /// It is worked off.
    Done,
    /// It is no request.
    Failed,
    /// It is given up.
    DeadLetters,
}

impl Shelf {
    fn folder(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::DeadLetters => "dlq",
        }
    }
}

/// What a file's name says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    base: String,
    due_ms: u64,
    run: Option<String>,
    attempt: u32,
}

impl Name {
    fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let name = name.strip_suffix(".processing").unwrap_or(name);
        let mut rest = name
            .strip_suffix(".json")
            .filter(|rest| !rest.starts_with('.'))?;
        let mut due_ms = 0;
        if let Some((due, later)) = rest.strip_prefix("retry_").and_then(|r| r.split_once('_'))
            && let Ok(due) = due.parse()
        {
            (due_ms, rest) = (due, later);
        }
        let mut attempt = 1;
        if let Some((before, number)) = rest.rsplit_once(".a")
            && let Ok(number) = number.parse()
        {
            (attempt, rest) = (number, before);
        }
        let mut run = None;
        if let Some((before, id)) = rest.rsplit_once(".r")
            && id.len() == 32
            && id.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            (run, rest) = (Some(id.to_owned()), before);
        }
        let base = rest.to_owned();
        (!base.is_empty()).then_some(Self {
            base,
            due_ms,
            run,
            attempt,
        })
    }

    /// Smaller ones come first.
    fn rank(&self) -> (u32, &str) {
        let digits = self
            .base
            .strip_prefix('p')
            .and_then(|rest| rest.split_once('_'));
        let number = digits.filter(|(digits, _)| digits.len() == 4);
        let number = number.and_then(|(digits, _)| digits.parse().ok());
        (number.unwrap_or(PRIORITY_DEFAULT), &self.base)
    }
}

impl Queue {
    /// The queue in `dir`; its folders are made if they are missing.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        for name in [
            "inbox",
            "processing",
            "retry",
            "done",
            "failed",
            "dlq",
            "out",
            "tmp",
        ] {
            let folder = dir.join(name);
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&folder);
            made.map_err(|error| StoreError::write(&folder, error))?;
        }
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Queues a job; false if one of its name waits already, or is worked on.
    pub fn add(&self, base: &str, text: &[u8]) -> Result<bool, StoreError> {
        for folder in ["inbox", "processing", "retry"] {
            if self.jobs(folder)?.iter().any(|(name, _)| name.base == base) {
                return Ok(false);
            }
        }
        let name = format!("{base}.json");
        let beside = self.dir.join("tmp").join(&name);
        write_file_with(&beside, 0o600, |file| std::io::Write::write_all(file, text))?;
        let added = rename(&beside, &self.dir.join("inbox").join(name))?;
        if !added {
            let _ = std::fs::remove_file(&beside);
        }
        Ok(added)
    }

    /// How many jobs are in each folder.
    pub fn counts(&self) -> Result<Vec<(&'static str, usize)>, StoreError> {
        let folders = ["inbox", "processing", "retry", "done", "failed", "dlq"];
        let count = |folder| Ok((folder, self.named(folder)?.count()));
        folders.into_iter().map(count).collect()
    }

    /// Puts jobs whose worker is gone back to where they wait. Returns how many.
    pub fn recover(&self) -> Result<usize, StoreError> {
        let mut recovered = 0;
        for (name, path) in self.jobs("processing")? {
            // A name without its run never left the claim; both wait under the name they have.
            let back = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let back = back.strip_suffix(".processing").unwrap_or(back);
            // Held while it moves, so that nobody takes it up in between.
            let Some(_lock) = lock(&path) else { continue };
            failpoint("queue.before_recover");
            recovered += usize::from(rename(&path, &self.dir.join("inbox").join(back))?);
            tracing::debug!(job = name.base, "taken up again");
        }
        Ok(recovered)
    }

    /// The next job that is due, claimed; `None` if there is none. `run` names a new one's run.
    pub fn claim(&self, now: Timestamp, run: &str) -> Result<Option<Job>, StoreError> {
        let mut waiting = self.jobs("inbox")?;
        waiting.extend(self.jobs("retry")?);
        waiting.retain(|(name, _)| name.due_ms <= now.0);
        waiting.sort_by(|(a, _), (b, _)| a.rank().cmp(&b.rank()));
        for (name, path) in waiting {
            if let Some(job) = self.take(&name, &path, run)? {
                return Ok(Some(job));
            }
        }
        Ok(None)
    }

    /// When the next job is due that is not yet; `None` if none waits.
    pub fn next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let retries = self.jobs("retry")?.into_iter();
        Ok(retries.map(|(name, _)| Timestamp(name.due_ms)).min())
    }

    /// The lock comes first: what has a worker is never taken up again by another.
    fn take(&self, name: &Name, path: &Path, run: &str) -> Result<Option<Job>, StoreError> {
        let Some(lock) = lock(path) else {
            return Ok(None);
        };
        let run = name.run.clone().unwrap_or_else(|| run.to_owned());
        if name.base.len() > BASE_BYTES_MAX {
            // Stays where it is, so that whoever comes after us finds it too long as well.
            return Ok(Some(Job {
                base: cut(&name.base),
                run,
                attempt: name.attempt,
                name_fits: false,
                path: path.to_owned(),
                _lock: lock,
            }));
        }
        let claimed = format!("{}.r{run}.a{}.json.processing", name.base, name.attempt);
        let claimed = self.dir.join("processing").join(claimed);
        if !rename(path, &claimed)? || !is_same(&lock, &claimed) {
            return Ok(None);
        }
        failpoint("queue.after_claim");
        Ok(Some(Job {
            base: name.base.clone(),
            run,
            attempt: name.attempt,
            name_fits: true,
            path: claimed,
            _lock: lock,
        }))
    }

    /// Tells what came of a job's try, whole or not at all.
    pub fn tell(&self, job: &Job, result: &str) -> Result<(), StoreError> {
        let name = format!("{}.attempt{}.result.json", job.base, job.attempt);
        let beside = self.dir.join("tmp").join(&name);
        write_file(&beside, result, 0o600)?;
        let path = self.dir.join("out").join(name);
        std::fs::rename(&beside, &path).map_err(|error| StoreError::write(&path, error))?;
        failpoint("queue.after_tell");
        self.trim("out");
        Ok(())
    }

    /// Puts a job on a shelf. A name that is taken there gets the run beside it.
    pub fn shelve(&self, job: Job, shelf: Shelf) -> Result<(), StoreError> {
        failpoint("queue.before_shelve");
        let folder = self.dir.join(shelf.folder());
        let plain = folder.join(format!("{}.json", job.base));
        if !rename(&job.path, &plain)? {
            rename(
                &job.path,
                &folder.join(format!("{}.r{}.json", job.base, job.run)),
            )?;
        }
        failpoint("queue.after_shelve");
        self.trim(shelf.folder());
        Ok(())
    }

    /// Lets a job be tried again once `due` has come.
    pub fn put_off(&self, job: Job, due: Timestamp) -> Result<(), StoreError> {
        let attempt = job.attempt.saturating_add(1);
        self.put_back(Job { attempt, ..job }, due)
    }

    /// Lets a job wait until `due` has come; its try is still to be made.
    pub fn put_back(&self, job: Job, due: Timestamp) -> Result<(), StoreError> {
        failpoint("queue.before_put_off");
        let Job {
            base, run, attempt, ..
        } = &job;
        let name = format!("retry_{}_{base}.r{run}.a{attempt}.json", due.0);
        rename(&job.path, &self.dir.join("retry").join(name))?;
        failpoint("queue.after_put_off");
        Ok(())
    }

    /// Lets go of the oldest in a folder that has become too full; not of one alone, so that not
    /// every job has all the others looked at.
    fn trim(&self, folder: &str) {
        let folder = self.dir.join(folder);
        if std::fs::read_dir(&folder).is_ok_and(|entries| entries.count() > KEPT_MAX) {
            keep_newest(&folder, KEPT_MIN);
        }
    }

    fn jobs(&self, folder: &str) -> Result<Vec<(Name, PathBuf)>, StoreError> {
        Ok(self.named(folder)?.take(JOBS_SEEN_MAX).collect())
    }

    fn named(&self, folder: &str) -> Result<impl Iterator<Item = (Name, PathBuf)>, StoreError> {
        let folder = self.dir.join(folder);
        let entries = std::fs::read_dir(&folder).map_err(|e| StoreError::read(&folder, e))?;
        let files = entries.flatten().filter(|entry| {
            let kind = entry.file_type();
            kind.is_ok_and(|kind| kind.is_file())
        });
        Ok(files.filter_map(|entry| Some((Name::parse(&entry.file_name())?, entry.path()))))
    }
}

impl Job {
    /// The request's bytes, no more than `bytes_max`; `None` if there are more.
    pub fn read(&self, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        match read_path(&self.path, bytes_max) {
            Err(error) if error.kind() == ErrorKind::FileTooLarge => Ok(None),
            read => read.map(Some).map_err(|e| StoreError::read(&self.path, e)),
        }
    }
}

/// A name that fits, another for each that does not.
fn cut(base: &str) -> String {
    let digest = &Digest::of_bytes(base.as_bytes()).to_hex()[..16];
    let at = base.floor_char_boundary(BASE_BYTES_MAX - digest.len() - 1);
    format!("{}~{digest}", &base[..at])
}

/// The file, ours for as long as it is open; `None` if somebody has it, or it went meanwhile.
fn lock(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    is_same(&file, path).then_some(file)
}

/// Moves a file to where none is. False if it is gone, or one is there.
fn rename(from: &Path, to: &Path) -> Result<bool, StoreError> {
    use rustix::io::Errno;
    match renameat_with(
        rustix::fs::CWD,
        from,
        rustix::fs::CWD,
        to,
        RenameFlags::NOREPLACE,
    ) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::EXIST) => Ok(false),
        Err(error) => Err(StoreError::write(to, error)),
    }
}

/// Somebody may have put another file under the name between our look and our rename.
fn is_same(file: &File, path: &Path) -> bool {
    let id = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(there)) => id(ours) == id(there),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Place;

    fn name(text: &str) -> Option<(String, u64, Option<String>, u32)> {
        let name = Name::parse(OsStr::new(text))?;
        Some((name.base, name.due_ms, name.run, name.attempt))
    }

    /// TH-149: what a name says, in each folder.
    #[test]
    fn names() {
        let id = "0123456789abcdef0123456789abcdef";
        let job = |due, run: Option<&str>, attempt| {
            Some(("p0100_x".to_owned(), due, run.map(str::to_owned), attempt))
        };
        assert_eq!(name("p0100_x.json"), job(0, None, 1));
        assert_eq!(
            name(&format!("p0100_x.r{id}.a1.json.processing")),
            job(0, Some(id), 1)
        );
        assert_eq!(
            name(&format!("retry_77_p0100_x.r{id}.a3.json")),
            job(77, Some(id), 3)
        );
        assert_eq!(name(&format!("p0100_x.r{id}.a2.json")), job(0, Some(id), 2));
        assert_eq!(name("retry_x.json").unwrap().0, "retry_x");
        assert_eq!(name("a.about.json").unwrap().0, "a.about");
        for none in ["x.txt", ".x.json", ".json", "x", "x.json.tmp"] {
            assert_eq!(name(none), None, "{none}");
        }
    }

    fn put(place: &Place, name: &str) {
        std::fs::write(place.0.join(name), "{}").unwrap();
    }

    /// TH-149: order, claim, retry when due, and jobs whose worker is gone.
    #[test]
    fn a_job_is_in_one_folder() {
        let place = Place::new("q-order");
        let queue = Queue::open(&place.0).unwrap();
        for name in ["b.json", "a.json", "p9000_z.json", "p0001_y.json", "no.txt"] {
            put(&place, &format!("inbox/{name}"));
        }
        let runs = |n: u32| format!("{n:032x}");
        let mut jobs = Vec::new();
        while let Some(job) = queue.claim(Timestamp(5), &runs(jobs.len() as u32)).unwrap() {
            jobs.push(job);
        }
        let bases: Vec<&str> = jobs.iter().map(|job| job.base.as_str()).collect();
        assert_eq!(bases, ["p0001_y", "a", "b", "p9000_z"]);
        assert_eq!(queue.recover().unwrap(), 0, "they have a worker");
        let last = jobs.pop().unwrap();
        queue.put_off(last, Timestamp(9)).unwrap();
        assert_eq!(queue.next_due().unwrap(), Some(Timestamp(9)));
        assert!(queue.claim(Timestamp(8), "x").unwrap().is_none());
        let again = queue.claim(Timestamp(9), &runs(7)).unwrap().unwrap();
        assert_eq!(
            (again.attempt, &again.run),
            (2, &runs(3)),
            "the same run, the next try"
        );
        queue.tell(&again, "{}").unwrap();
        queue.shelve(again, Shelf::DeadLetters).unwrap();
        assert_eq!(place.names("dlq"), ["p9000_z.json"]);
        assert_eq!(place.names("out"), ["p9000_z.attempt2.result.json"]);
        drop(jobs);
        assert_eq!(queue.recover().unwrap(), 3);
        let first = queue.claim(Timestamp(9), &runs(8)).unwrap().unwrap();
        assert_eq!(
            (first.base.as_str(), &first.run),
            ("p0001_y", &runs(0)),
            "its run is kept"
        );
        queue.shelve(first, Shelf::Done).unwrap();
        put(&place, "inbox/p0001_y.json");
        let twin = queue.claim(Timestamp(9), &runs(9)).unwrap().unwrap();
        queue.shelve(twin, Shelf::Done).unwrap();
        assert_eq!(
            place.names("done").len(),
            2,
            "a taken name is no reason to lose a job"
        );
    }

    /// TH-149: a name that leaves no room for what is added to it is shelved under one that fits;
    /// one that just does goes through every folder.
    #[test]
    fn names_that_are_too_long() {
        let place = Place::new("q-long");
        let queue = Queue::open(&place.0).unwrap();
        let run = "f".repeat(32);
        let long = "é".repeat(BASE_BYTES_MAX / 2 + 1);
        for name in [&format!("{long}1"), &format!("{long}2")] {
            put(&place, &format!("inbox/{name}.json"));
            let job = queue.claim(Timestamp(1), &run).unwrap().unwrap();
            assert!(!job.name_fits && long.starts_with(job.base.split('~').next().unwrap()));
            assert_eq!(place.names("inbox"), [format!("{name}.json")], "it stays");
            assert!(queue.claim(Timestamp(1), &run).unwrap().is_none(), "ours");
            queue.tell(&job, "{}").unwrap();
            queue.shelve(job, Shelf::Failed).unwrap();
        }
        assert_eq!(place.names("out").len(), 2);
        assert_eq!(place.names("failed").len(), 2);
        put(
            &place,
            &format!("inbox/{}.json", "x".repeat(BASE_BYTES_MAX)),
        );
        let job = queue.claim(Timestamp(1), &run).unwrap().unwrap();
        assert!(job.name_fits);
        let job = Job {
            attempt: u32::MAX - 1,
            ..job
        };
        queue.put_off(job, Timestamp(u64::MAX)).unwrap();
        let name = &place.names("retry")[0];
        assert_eq!(name.len(), NAME_BYTES_MAX);
        let job = queue.claim(Timestamp(u64::MAX), &run).unwrap().unwrap();
        queue.tell(&job, "{}").unwrap();
        queue.shelve(job, Shelf::Done).unwrap();
        assert_eq!(place.names("done").len(), 1);
    }

    /// What is over is kept up to a bound, then the oldest go; a file that was written long ago and
    /// moved just now is no old one. What waits is counted, however much it is.
    #[test]
    fn the_newest_are_kept() {
        let place = Place::new("q-kept");
        let queue = Queue::open(&place.0).unwrap();
        let end = |shelf| {
            put(&place, "inbox/new.json");
            let job = queue.claim(Timestamp(1), &"0".repeat(32)).unwrap().unwrap();
            File::open(&job.path)
                .unwrap()
                .set_modified(std::time::UNIX_EPOCH)
                .unwrap();
            queue.tell(&job, "{}").unwrap();
            queue.shelve(job, shelf).unwrap();
        };
        let fill = |folder: &str, count| {
            for number in 0..count {
                put(&place, &format!("{folder}/z{number}.json"));
            }
        };
        fill("done", KEPT_MAX - 1);
        fill("out", KEPT_MAX);
        end(Shelf::Done);
        assert_eq!(place.names("done").len(), KEPT_MAX, "at the bound all stay");
        assert_eq!(place.names("out").len(), KEPT_MIN);
        assert!(
            place
                .names("out")
                .contains(&"new.attempt1.result.json".to_owned())
        );
        end(Shelf::Done);
        assert_eq!(place.names("done").len(), KEPT_MIN);
        let done = place.names("done");
        assert!(
            done.iter().any(|name| name.starts_with("new.r")),
            "{done:?}"
        );
        fill("inbox", JOBS_SEEN_MAX + 1);
        let counts = queue.counts().unwrap();
        assert!(counts.contains(&("inbox", JOBS_SEEN_MAX + 1)), "{counts:?}");
    }

    /// TH-150: a job is added once while it waits or is worked on, and counted where it is.
    #[test]
    fn added_and_counted() {
        let place = Place::new("q-added");
        let queue = Queue::open(&place.0).unwrap();
        let count = |of: &str| {
            let counts = queue.counts().unwrap();
            counts.into_iter().find(|(name, _)| *name == of).unwrap().1
        };
        assert!(queue.add("x", b"{}").unwrap());
        assert!(!queue.add("x", b"{}").unwrap());
        assert_eq!((count("inbox"), place.names("tmp").len()), (1, 0));
        let job = queue.claim(Timestamp(1), "0".repeat(32).as_str());
        let job = job.unwrap().unwrap();
        assert!(!queue.add("x", b"{}").unwrap());
        assert_eq!((count("inbox"), count("processing")), (0, 1));
        queue.put_off(job, Timestamp(9)).unwrap();
        assert!(!queue.add("x", b"{}").unwrap());
        let job = queue.claim(Timestamp(9), "unused").unwrap().unwrap();
        queue.shelve(job, Shelf::Done).unwrap();
        assert!(queue.add("x", b"{}").unwrap());
        assert_eq!((count("inbox"), count("done")), (1, 1));
    }
}
