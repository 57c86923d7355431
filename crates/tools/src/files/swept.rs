//! Names that writers make for a moment, where there is no other way to give content a name that
//! is taken, or a folder its owner before its name. One that is killed in that moment leaves its name behind; who next needs one in the
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

/// Passing names that are made before it is said that there are none to be had.
pub const NAMES_TRIED: usize = 8;

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

/// Says that whoever gives this file or folder a passing name lives, for as long as it is open. False if
/// somebody else has it already, which is not waited for.
pub fn keep(file: impl AsFd) -> bool {
    // Where a file system has no locks nothing is swept either.
    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

/// The folders that this process has swept.
#[derive(Debug, Default)]
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
    let how = match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => AtFlags::empty(),
        // Only an empty one goes, and ours had nothing in them.
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => return Ok(()),
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::unlinkat(folder, name, how)
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
        // And folders: one of the dead, one of the living, one that somebody uses.
        let folders = [(); 3].map(|()| passing_name().unwrap());
        folders
            .iter()
            .for_each(|name| std::fs::create_dir(root.join(name)).unwrap());
        let [_, living_folder, full] = &folders;
        make(&format!("{full}/a"));
        let kept_folder = File::open(root.join(living_folder)).unwrap();
        keep(&kept_folder);
        let folder = OwnedFd::from(File::open(&root).unwrap());
        let swept = Swept::default();
        swept.sweep(&folder);
        let living_all = [&*living, living_folder, full];
        let kept = others.iter().copied().chain(living_all);
        assert_eq!(names(), kept.map(str::to_owned).collect());
        // Once it is dead its name goes too, by another process.
        drop((file, kept_folder));
        swept.sweep(&folder);
        assert!(names().contains(&living));
        Swept::default().sweep(&folder);
        let kept = others.iter().copied().chain([&**full]);
        assert_eq!(names(), kept.map(str::to_owned).collect());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
