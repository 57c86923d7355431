//! Looking at processes from outside.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Ends, wait_for};

/// The processes that descend from `pid`, nearest first; zombies excepted.
pub fn descendants(pid: u32) -> Vec<u32> {
    let family = family(pid).into_iter();
    family
        .filter(|one| !one.is_zombie)
        .map(|one| one.pid)
        .collect()
}

/// Those that have ended, and whose parents, `pid` or descendants of it, have not looked.
pub fn zombies(pid: u32) -> Vec<u32> {
    let family = family(pid).into_iter();
    family
        .filter(|one| one.is_zombie)
        .map(|one| one.pid)
        .collect()
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    open.expect("its descriptors").count()
}

struct Relative {
    pid: u32,
    is_zombie: bool,
}

fn family(pid: u32) -> Vec<Relative> {
    let mut children: HashMap<u32, Vec<Relative>> = HashMap::new();
    for pid in all() {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let mut fields = rest.split_whitespace();
        let is_zombie = fields.next() == Some("Z");
        if let Some(parent) = fields.next().and_then(|text| text.parse().ok()) {
            let child = Relative { pid, is_zombie };
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = children.remove(&pid).unwrap_or_default();
    let mut next = 0;
    while let Some(one) = found.get(next) {
        let its = children.remove(&one.pid);
        found.extend(its.unwrap_or_default());
        next += 1;
    }
    found
}

/// The words a process was started with, joined by blanks.
pub fn words_of(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

/// The processes started with `word` among their words; zombies have none.
pub fn started_with(word: &str) -> Vec<u32> {
    all().filter(|&pid| words_of(pid).contains(word)).collect()
}

/// A time to sleep that no process of another run has. All are as long: none is in another.
pub fn forever(digits: u32) -> String {
    format!("{digits}.{:07}", std::process::id())
}

/// Waits until no process has `word` among its words.
pub fn gone(word: &str) {
    wait_for("the end of its processes", || {
        started_with(word).is_empty().then_some(())
    });
}

/// The most processes that had `word` among their words while `work` was done: a look takes a while,
/// so that it counts when the next one finds the same.
pub fn most_while<T>(word: &str, work: impl FnOnce() -> T) -> (T, usize) {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut most, mut before) = (0, Vec::new());
            while !done.load(Ordering::Relaxed) {
                let now = started_with(word);
                if now == before {
                    most = most.max(now.len());
                }
                before = now;
            }
            most
        });
        let worked = {
            let _ends = Ends(&done);
            work()
        };
        (worked, looks.join().expect("it looks"))
    })
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("it has memory");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("a number");
    kib * 1024
}

fn all() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("a /proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The most memory that a process had so far.
pub fn peak_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

/// How much of its memory are pages of files at present, its code above all.
pub fn of_files_kib(pid: u32) -> u64 {
    status_kib(pid, "RssFile:")
}

/// The memory of a process that is of no file, in bytes: how much of its code is there is up to
/// the kernel, and changes with what else the machine does.
pub fn own_bytes(pid: u32) -> u64 {
    resident_bytes(pid).saturating_sub(of_files_kib(pid) * 1024)
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status.lines().find(|line| line.starts_with(name));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok()).expect("a size")
}
