//! A group of processes (cgroup): what a tree may take together, whatever its members do.
//!
//! In trees of the second version a child is born in its group. To move a process there later, as
//! the first version wants it, waits for the whole machine; so the nanny moves, once, and its
//! children are born where it is. It stays for all its children, with other limits for each.
//!
//! Whoever made a group holds a lock on its folder for as long as it lives, so that what was left
//! behind can be told from what is in use.

use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::gate::facts::Cgroup;
use crate::nanny::places::{Places, number_in};
use crate::nanny::tree;
use crate::spec::Limits;
use crate::sys::{self, Pid};
use crate::wait;

/// What all names begin with.
const PREFIX: &str = "callgate-";

/// How many names are tried.
const TRIES_MAX: u32 = 64;

/// Of a processor's time, how long a share is counted.
const PERIOD_US: u64 = 100_000;

/// What a child may leave charged to its group for the next one: caches that the kernel lets go
/// of when it must. A group with more is given up.
const LEFT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// How often the members of a group that was left behind are killed before it is left alone.
const ROUNDS_MAX: usize = 100;

/// How long the killed get to go, each time.
const ROUND_MS: i64 = 10;

/// A group, in as many trees as it takes.
#[derive(Debug)]
pub(crate) struct Group {
    /// Where this process is now.
    joined: Vec<Folder>,
    /// Where its children are born.
    entered: Option<Folder>,
    /// Its members were killed together. There are kernels that then kill whoever is born in it.
    killed: Cell<bool>,
    /// As it is set.
    set: Option<Limits>,
    processes_max: Option<u64>,
}

/// A group in one tree.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Locked.
    folder: OwnedFd,
    holds: Cgroup,
}

impl Group {
    /// Makes one that can hold what is wanted, and joins it where children can not be born in it.
    pub fn make(places: &Places, wanted: Cgroup) -> io::Result<Self> {
        let mut group = Self {
            joined: Vec::new(),
            entered: None,
            killed: Cell::new(false),
            set: None,
            processes_max: places.processes_max,
        };
        match group.fill(places, wanted) {
            Ok(()) => Ok(group),
            Err(error) => {
                group.remove();
                Err(error)
            }
        }
    }

    fn fill(&mut self, places: &Places, wanted: Cgroup) -> io::Result<()> {
        if let Some((place, holds)) = &places.second {
            self.entered = Some(Folder::make(place, *holds)?);
        }
        for (place, holds) in &places.first {
            if !holds.and(wanted).is_none() {
                let folder = Folder::make(place, *holds)?;
                folder.write("cgroup.procs", "0")?;
                self.joined.push(folder);
            }
        }
        Ok(())
    }

    /// What it can hold.
    pub fn holds(&self) -> Cgroup {
        self.folders()
            .fold(Cgroup::NONE, |all, one| all.with(one.holds))
    }

    /// True if it can hold this.
    pub fn can_hold(&self, wanted: Cgroup) -> bool {
        wanted.without(self.holds()).is_none()
    }

    /// Sets what its processes may take together; what is not said is not limited. All that
    /// were in it are gone.
    pub fn set(&mut self, limits: &Limits) -> io::Result<()> {
        if let Some(old) = self.entered.take_if(|_| self.killed.replace(false)) {
            self.entered = Some(old.renew()?);
            self.set = None;
        }
        if self.set.as_ref() == Some(limits) {
            return Ok(());
        }
        self.set = None;
        for folder in &self.joined {
            folder.set_first(limits)?;
        }
        if let Some(folder) = &self.entered {
            folder.set_second(limits, self.processes_max)?;
        }
        self.set = Some(limits.clone());
        Ok(())
    }

    /// Where children are born, where that is not where we are.
    pub fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.entered.as_ref().map(|folder| folder.folder.as_fd())
    }

    /// Kills all children that were born in it and all that descends from them, at once. False
    /// where the kernel can not.
    pub fn kill(&self) -> bool {
        self.killed.set(true);
        let killed = self
            .entered
            .as_ref()
            .map(|folder| folder.write("cgroup.kill", "1"));
        killed.is_some_and(|killed| killed.is_ok())
    }

    /// The processor time that all that was ever born in it has taken.
    pub fn cpu(&self) -> Option<Duration> {
        // bound: a file of the kernel's
        let stat = fs::read_to_string(self.entered.as_ref()?.path.join("cpu.stat")).ok()?;
        let mut lines = stat.lines();
        let used = lines.find_map(|line| line.strip_prefix("usage_usec "))?;
        used.parse().ok().map(Duration::from_micros)
    }

    /// True if nothing of it is left to the next child's account, all processes being gone.
    pub fn is_clean(&self) -> bool {
        self.folders().all(Folder::is_clean)
    }

    /// The memory that is charged to it.
    pub fn memory(&self) -> Option<u64> {
        self.folders().find_map(Folder::memory)
    }

    /// Leaves it and removes it. Best effort: what is left is swept later.
    pub fn remove(self) {
        for folder in &self.joined {
            if let Some(parent) = folder.path.parent() {
                let _ = fs::write(parent.join("cgroup.procs"), "0");
            }
        }
        for folder in self.folders() {
            let _ = fs::remove_dir(&folder.path);
        }
    }

    fn folders(&self) -> impl Iterator<Item = &Folder> {
        self.joined.iter().chain(&self.entered)
    }
}

impl Folder {
    fn make(place: &Path, holds: Cgroup) -> io::Result<Self> {
        let owner = tree::own_pid();
        for attempt in 0..TRIES_MAX {
            let path = place.join(name(owner, attempt)?);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            // Whoever sweeps may be faster than we are, until the lock.
            if let Some(folder) = lock(&path)
                && path.exists()
            {
                return Ok(Self {
                    path,
                    folder,
                    holds,
                });
            }
        }
        Err(Errno::EXIST.into())
    }

    /// One like it in its place.
    fn renew(self) -> io::Result<Self> {
        let place = self.path.parent().unwrap_or(&self.path);
        let new = Self::make(place, self.holds)?;
        let _ = fs::remove_dir(&self.path);
        Ok(new)
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.path.join(file), text)
    }

    /// In the first version, where the nanny is one of them.
    fn set_first(&self, limits: &Limits) -> io::Result<()> {
        let number = |limit: Option<u64>, none: &str| {
            limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
        };
        if self.holds.memory {
            let bytes = number(limits.address_space_bytes, "-1");
            // With swap it is never less than without; not every kernel counts swap.
            let _ = self.write("memory.memsw.limit_in_bytes", "-1");
            self.write("memory.limit_in_bytes", &bytes)?;
            let _ = self.write("memory.memsw.limit_in_bytes", &bytes);
        }
        if self.holds.processes {
            let with_nanny = limits.processes.map(|limit| limit.saturating_add(1));
            self.write("pids.max", &number(with_nanny, "max"))?;
        }
        if self.holds.cpu_share {
            self.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            self.write("cpu.cfs_quota_us", &number(quota_us(limits), "-1"))?;
        }
        Ok(())
    }

    fn set_second(&self, limits: &Limits, processes_max: Option<u64>) -> io::Result<()> {
        let number = |limit: Option<u64>| limit.map_or("max".to_owned(), |limit| limit.to_string());
        if self.holds.memory {
            self.write("memory.max", &number(limits.address_space_bytes))?;
            // Not every kernel has swap.
            let swap = limits.address_space_bytes.map(|_| 0);
            let _ = self.write("memory.swap.max", &number(swap));
        }
        if self.holds.processes {
            let both = limits.processes.into_iter().chain(processes_max);
            self.write("pids.max", &number(both.min()))?;
        }
        if self.holds.cpu_share {
            let share = format!("{} {PERIOD_US}", number(quota_us(limits)));
            self.write("cpu.max", &share)?;
        }
        Ok(())
    }

    fn memory(&self) -> Option<u64> {
        let files = ["memory.usage_in_bytes", "memory.current"];
        files
            .iter()
            .find_map(|file| number_in(&self.path.join(file)))
    }

    fn is_clean(&self) -> bool {
        let little = || self.memory().is_none_or(|left| left <= LEFT_BYTES_MAX);
        if little() {
            return true;
        }
        // Each is known to one version.
        let _ = self.write("memory.force_empty", "0");
        let _ = self.write("memory.reclaim", "1G");
        little()
    }
}

fn quota_us(limits: &Limits) -> Option<u64> {
    let percent = limits.cpu_percent?;
    Some(percent.saturating_mul(PERIOD_US / 100))
}

/// A name that nobody else has. Nannies of several namespaces may have one process id.
fn name(owner: Pid, attempt: u32) -> io::Result<String> {
    let mut random = [0u8; 8];
    let read = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    if read < random.len() {
        return Err(Errno::IO.into());
    }
    let random = u64::from_ne_bytes(random);
    Ok(format!("{PREFIX}{owner}-{random:016x}-{attempt}"))
}

/// True if such a name was made here.
fn is_ours(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or_default();
    let parts: Vec<&str> = rest.split('-').collect();
    let [owner, random, attempt] = parts[..] else {
        return false;
    };
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let is_random = random.len() == 16 && u64::from_str_radix(random, 16).is_ok();
    is_number(owner) && is_random && is_number(attempt)
}

/// The folder, if nobody else holds it.
fn lock(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let locked = rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive);
    locked.is_ok().then_some(folder)
}

/// Ends and removes the groups whose makers are gone.
pub(crate) fn sweep(places: &Places) {
    for place in &places.seen {
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        for entry in entries {
            let ours = entry.file_name().to_str().is_some_and(is_ours);
            let path = entry.path();
            if ours && let Some(_held) = lock(&path) {
                clear(&path);
            }
        }
    }
}

/// Kills what is left in a group, until it can be removed.
fn clear(path: &Path) {
    for _ in 0..ROUNDS_MAX {
        if fs::remove_dir(path).is_ok() {
            return;
        }
        if fs::write(path.join("cgroup.kill"), "1").is_err() {
            // bound: a file of the kernel's
            let members = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            for pid in members.lines().filter_map(|line| line.parse().ok()) {
                sys::kill(pid, libc::SIGKILL);
            }
        }
        wait::readable(&[], Some(ROUND_MS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others have made is never swept, whatever they call it.
    #[test]
    fn names_are_known() {
        assert!(is_ours(&name(4711, 3).unwrap()));
        for other in [
            "callgate-docker",
            "callgate-1-2-3-4",
            "callgate-1-0123456789abcdef",
            "callgate-x-0123456789abcdef-0",
            "callgate-1-0123456789abcde-0",
            "x",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
