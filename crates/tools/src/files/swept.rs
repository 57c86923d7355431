//! Names that writers make for a moment, where there is no other way to give content a name that
//! is taken. One that is killed in that moment leaves its name behind; who next needs one in the
//! folder removes it. A lock on the content tells the living from the dead.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

const BEFORE: &str = ".callgate-";
const AFTER: &str = ".tmp";
/// Hexadecimal digits between them.
const DIGITS: usize = 16;

/// Folders that are remembered as swept; after so many we begin anew.
const FOLDERS_MAX: usize = 1024;

/// A name that nobody else has.
pub fn passing_name() -> Result<String, Errno> {
    let random = getrandom::u64().map_err(|_| Errno::IO)?;
    Ok(format!("{BEFORE}{random:016x}{AFTER}"))
}

fn is_passing_name(name: &[u8]) -> bool {
    let digits = name
        .strip_prefix(BEFORE.as_bytes())
        .and_then(|rest| rest.strip_suffix(AFTER.as_bytes()));
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Says that whoever gives this file a passing name lives, for as long as it is open. False if
/// somebody else has it already, which is not waited for.
pub fn keep(file: impl AsFd) -> bool {
    // Where a file system has no locks nothing is swept either.
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// The folders that this process has swept.
#[derive(Default)]
pub struct Swept(Mutex<BTreeSet<(u64, u64)>>);

impl Swept {
    /// Removes what dead writers left in a folder, the first time it is met. What can not be
    /// removed stays: it is in nobody's way.
    pub fn sweep(&self, folder: &OwnedFd) {
        let Ok(about) = fstat(folder) else { return };
        let is_new = {
            let mut swept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if swept.len() >= FOLDERS_MAX {
                swept.clear();
            }
            swept.insert((about.st_dev, about.st_ino))
        };
        let Some(entries) = is_new.then(|| Dir::read_from(folder).ok()).flatten() else {
            return;
        };
        for entry in entries.flatten() {
            if is_passing_name(entry.file_name().to_bytes()) {
                let _ = remove_if_dead(folder, entry.file_name());
            }
        }
    }
}

fn remove_if_dead(folder: &OwnedFd, name: &std::ffi::CStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::unlinkat(folder, name, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn only_what_the_dead_left_is_removed() {
        let name = format!("callgate-swept-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        let make = |name: &str| File::create(root.join(name)).unwrap();
        let names = || {
            let entries = std::fs::read_dir(&root).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<BTreeSet<_>>()
        };
        let (dead, living) = (passing_name().unwrap(), passing_name().unwrap());
        let others = [
            ".callgate-x.tmp",
            ".callgate-00000000000000.tmp",
            ".callgate-0123456789abcdeg.tmp",
            "callgate-0123456789abcdef.tmp",
            "a",
        ];
        make(&dead);
        others.iter().for_each(|other| drop(make(other)));
        let file = make(&living);
        keep(&file);
        let folder = OwnedFd::from(File::open(&root).unwrap());
        let swept = Swept::default();
        swept.sweep(&folder);
        let kept = others.iter().copied().chain([&*living]);
        assert_eq!(names(), kept.map(str::to_owned).collect());
        // Once it is dead its name goes too, by another process.
        drop(file);
        swept.sweep(&folder);
        assert!(names().contains(&living));
        Swept::default().sweep(&folder);
        assert_eq!(names(), others.map(str::to_owned).into());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
