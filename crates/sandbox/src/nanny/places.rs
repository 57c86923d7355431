//! Where groups of processes (cgroups) can be made: below the group that we are in ourselves, so
//! that what holds us holds a tool too.
//!
//! The first version has a tree of folders for each controller, the second one for all; a machine
//! may have some controllers in the one and the rest in the other.

use std::fs;
use std::path::{Path, PathBuf};

use crate::gate::facts::Cgroup;

/// Where groups can be made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// Of the first version: a folder for each tree, and what it can hold.
    pub first: Vec<(PathBuf, Cgroup)>,
    /// Of the second version.
    pub second: Option<(PathBuf, Cgroup)>,
    /// How many processes there may be where we are; our groups may be beside that.
    pub processes_max: Option<u64>,
    /// All that were looked at on the way: others of ours may have made groups there.
    pub seen: Vec<PathBuf>,
}

/// The controllers we have a use for, by the kernel's names.
const CONTROLLERS: [(&str, Cgroup); 3] = [
    (
        "memory",
        Cgroup {
            memory: true,
            ..Cgroup::NONE
        },
    ),
    (
        "pids",
        Cgroup {
            processes: true,
            ..Cgroup::NONE
        },
    ),
    (
        "cpu",
        Cgroup {
            cpu_share: true,
            ..Cgroup::NONE
        },
    ),
];

impl Places {
    /// Looks where groups can be made that hold what is wanted, or as much of it as can be had.
    pub fn find(wanted: Cgroup) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let trees = trees(&mounts, &own);
        let mut places = Self::default();
        let mut first = Cgroup::NONE;
        for tree in trees.iter().filter(|tree| !tree.unified) {
            places.first.push((tree.own.clone(), tree.holds));
            places.seen.push(tree.own.clone());
            first = first.with(tree.holds);
        }
        if let Some(tree) = trees.iter().find(|tree| tree.unified) {
            places.look_up(tree, wanted.without(first));
        }
        places
    }

    /// The second version lets no group have both processes and groups that hold something, but
    /// for the first of all: where we are not in that, our groups stand beside us, as near as
    /// they can.
    fn look_up(&mut self, tree: &Tree, wanted: Cgroup) {
        let mut best: Option<(PathBuf, Cgroup)> = None;
        for folder in tree.own.ancestors() {
            let holds = held_in(folder, folder == tree.own);
            if !holds.is_none() && may_make(folder) {
                self.seen.push(folder.to_owned());
                let count = best.as_ref().map_or(0, |(_, best)| best.count());
                best = best.filter(|_| holds.count() <= count);
                best.get_or_insert_with(|| (folder.to_owned(), holds));
            }
            let enough = |best: &(PathBuf, Cgroup)| wanted.without(best.1).is_none();
            if best.as_ref().is_some_and(enough) || folder == tree.mount || has_own_limit(folder) {
                break;
            }
            self.processes_max = self.processes_max.or(number_in(&folder.join("pids.max")));
        }
        self.second = best;
    }
}

/// What groups made in `folder` can hold. Controllers are turned on where that is for us to do:
/// in the first group of all if we are in it, and in what was handed to us. Never where there are
/// processes beside: the kernel turns some on there, and then lets nobody into the groups below.
fn held_in(folder: &Path, own: bool) -> Cgroup {
    // bound: a file of the kernel's
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
    let is_on = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
    let first = !folder.join("cgroup.type").exists();
    let free = first || read("cgroup.procs").is_empty();
    if free && (first && own || is_delegated(folder)) {
        let (there, on) = (read("cgroup.controllers"), read("cgroup.subtree_control"));
        for (name, _) in CONTROLLERS {
            if is_on(&there, name) && !is_on(&on, name) {
                let control = folder.join("cgroup.subtree_control");
                let _ = fs::write(control, format!("+{name}"));
            }
        }
    }
    let on = read("cgroup.subtree_control");
    if !free && !on.trim().is_empty() {
        return Cgroup::NONE;
    }
    let held = CONTROLLERS.iter().filter(|(name, _)| is_on(&on, name));
    let tree = Cgroup {
        cpu_time: true,
        ..Cgroup::NONE
    };
    held.fold(tree, |all, (_, one)| all.with(*one))
}

/// True if whoever manages the groups of this machine has left this one to us.
fn is_delegated(folder: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0u8; 8];
        rustix::fs::getxattr(folder, *name, &mut value).is_ok_and(|read| value[..read] == *b"1")
    })
}

fn may_make(folder: &Path) -> bool {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(folder, access).is_ok()
        && rustix::fs::access(folder.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).is_ok()
}

/// True if a group beside this one would get out of what holds this one.
fn has_own_limit(folder: &Path) -> bool {
    ["memory.max", "cpu.max"].iter().any(|name| {
        // bound: a file of the kernel's
        let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
        !text.is_empty() && !text.starts_with("max")
    })
}

/// The number in a file; nothing if it has a word.
pub(crate) fn number_in(file: &Path) -> Option<u64> {
    // bound: a file of the kernel's
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A tree of groups.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    unified: bool,
    mount: PathBuf,
    /// Where we are in it.
    own: PathBuf,
    /// What its controllers can hold; those of the second version are looked up in its folders.
    holds: Cgroup,
}

fn trees(mounts: &str, own: &str) -> Vec<Tree> {
    let mut trees: Vec<Tree> = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let path = own.lines().find_map(|line| mount.path_of(line));
        let folder = path.and_then(|path| mount.folder(path));
        let (Some(folder), holds) = (folder, mount.holds()) else {
            continue;
        };
        // One mounted twice is the same tree.
        let known = |tree: &Tree| tree.unified == mount.unified && tree.holds == holds;
        if (mount.unified || holds != Cgroup::NONE) && !trees.iter().any(known) {
            trees.push(Tree {
                unified: mount.unified,
                mount: mount.at,
                own: folder,
                holds,
            });
        }
    }
    trees
}

struct Mount<'a> {
    unified: bool,
    /// Which group of the tree is mounted.
    root: &'a str,
    at: PathBuf,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1)?;
        let mut before = before.split(' ').skip(3);
        // A path with a space in it is written otherwise; no system has its groups there.
        let (root, at) = (before.next()?, before.next()?.into());
        matches!(kind, "cgroup" | "cgroup2").then_some(Self {
            unified: kind == "cgroup2",
            root,
            at,
            options,
        })
    }

    fn has(&self, controller: &str) -> bool {
        !self.unified && self.options.split(',').any(|option| option == controller)
    }

    fn holds(&self) -> Cgroup {
        let held = CONTROLLERS.iter().filter(|(name, _)| self.has(name));
        held.fold(Cgroup::NONE, |all, (_, one)| all.with(*one))
    }

    /// Where we are in this tree, if this line of `/proc/self/cgroup` is about it.
    fn path_of<'b>(&self, line: &'b str) -> Option<&'b str> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let ours = match controllers {
            "" => self.unified,
            list => list.split(',').all(|one| self.has(one)),
        };
        ours.then_some(path)
    }

    fn folder(&self, path: &str) -> Option<PathBuf> {
        let inside = match self.root {
            "/" => path,
            root => path.strip_prefix(root)?,
        };
        let inside = inside.trim_start_matches('/');
        // Outside of what we see.
        let beyond = inside.split('/').any(|part| part == "..");
        let folder = match inside {
            "" => self.at.clone(),
            inside => self.at.join(inside),
        };
        (!beyond).then_some(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_both_versions_are_found() {
        let mounts = "25 1 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            30 25 0:31 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
            31 25 0:32 /docker/x /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
            32 25 0:33 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
            33 25 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "3:memory:/docker/x/y\n2:freezer:/\n1:cpu,cpuacct:/\n0::/user/one\n";
        let found = trees(mounts, own);
        let at = |tree: &Tree| tree.own.display().to_string();
        assert_eq!(
            found.iter().map(at).collect::<Vec<_>>(),
            [
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/memory/y",
                "/sys/fs/cgroup/unified/user/one"
            ]
        );
        assert!(found[0].holds.cpu_share && found[1].holds.memory && found[2].unified);
        // What is not below our part of the tree can not be reached.
        let outside = trees(mounts, "3:memory:/docker\n0::/../other\n");
        assert_eq!(outside, []);
    }
}
