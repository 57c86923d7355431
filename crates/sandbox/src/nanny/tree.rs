//! The tree of one call: how it is ended, wholly, whatever its members did to get away.

use std::collections::BTreeSet;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::CWD;

use crate::nanny::group::Group;
use crate::sys::{self, Gone, Pid, Reaped};
use crate::wait;

/// How often new members are looked for before the killing starts. A tree that still grows
/// then is killed in rounds.
const STOP_ROUNDS_MAX: usize = 8;

/// How a nanny owns its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// It is the first process of a pid namespace.
    Namespace,
    /// It adopts orphans, so that all members descend from it at all times.
    Subreaper,
}

/// How long a round of killing may wait for its first death. Longer only when the kernel's
/// list of children missed somebody, which it may while it changes.
const ROUND_MS_MAX: i64 = 5;

/// Ends every process that descends from this one and reaps it. `saw` gets each one that was
/// reaped; `signals` shows our SIGCHLD. What was born in a group can not get out of it.
pub(crate) fn end(
    ownership: Ownership,
    group: Option<&Group>,
    signals: BorrowedFd<'_>,
    mut saw: impl FnMut(&Gone),
) {
    loop {
        match sys::reap() {
            Reaped::One(gone) => saw(&gone),
            Reaped::Nobody => return,
            Reaped::NoneYet => {
                match ownership {
                    Ownership::Namespace => sys::kill_namespace(),
                    Ownership::Subreaper if group.is_some_and(Group::kill) => {}
                    Ownership::Subreaper => kill_descendants(children_of(own_pid())),
                }
                wait::readable(&[signals], Some(ROUND_MS_MAX));
                wait::clear(signals);
            }
        }
    }
}

/// Kills `roots` and all that descends from them. They are stopped first, so that none can
/// fork its way past us.
pub(crate) fn kill_descendants(roots: Vec<Pid>) {
    let mut members = BTreeSet::new();
    for _ in 0..STOP_ROUNDS_MAX {
        let mut fresh = false;
        let mut next = roots.clone();
        let mut seen = BTreeSet::new();
        while let Some(pid) = next.pop() {
            if !seen.insert(pid) {
                continue;
            }
            if members.insert(pid) {
                sys::kill(pid, libc::SIGSTOP);
                fresh = true;
            }
            next.extend(children_of(pid));
        }
        if !fresh {
            break;
        }
    }
    for pid in members {
        sys::kill(pid, libc::SIGKILL);
    }
}

/// The children of a process, as the `/proc` we see numbers them.
pub(crate) fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        // bound: a file of the kernel's
        match fs::read_to_string(thread.path().join("children")) {
            Ok(text) => children.extend(text.split_whitespace().filter_map(parse_pid)),
            Err(_) if has_children_files() => {}
            Err(_) => return children_by_search(pid),
        }
    }
    children
}

/// False on kernels built without that list.
fn has_children_files() -> bool {
    fs::exists("/proc/thread-self/children").unwrap_or(false)
}

fn children_by_search(parent: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| parse_pid(entry.file_name().to_str()?));
    pids.filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything; after it come state and parent.
    let (_, rest) = stat.rsplit_once(')')?;
    parse_pid(rest.split_whitespace().nth(1)?)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok()
}

/// Our own process id, as `/proc` numbers it.
pub(crate) fn own_pid() -> Pid {
    // Nothing is allocated: a process that shares its nanny's memory asks too.
    let mut buffer = [MaybeUninit::uninit(); 16];
    let link = rustix::fs::readlinkat_raw(CWD, c"/proc/self", &mut buffer);
    let link = link
        .ok()
        .and_then(|(link, _)| std::str::from_utf8(link).ok());
    link.and_then(parse_pid)
        .unwrap_or_else(|| Pid::try_from(std::process::id()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_listing_agree_on_our_parent() {
        let own = own_pid();
        let parent = parent_of(own).unwrap();
        assert!(children_by_search(parent).contains(&own));
        if has_children_files() {
            assert!(children_of(parent).contains(&own));
        }
    }
}
