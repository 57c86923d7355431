//! What a child may reach, as its plan was compiled, and what its user could reach without one.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::Reach;
use crate::confine::{Access, Identity};
use crate::gate::compile::real;

/// An access to a file, as mode bits name it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Read,
    Write,
    Enter,
}

impl Wanted {
    fn bit(self) -> u32 {
        match self {
            Self::Read => 0o4,
            Self::Write => 0o2,
            Self::Enter => 0o1,
        }
    }
}

/// Where a path leads in the view of a child.
pub(super) enum Way {
    /// To this file, links resolved.
    Open(PathBuf),
    /// Into a folder that the view leaves out, by this name. Whether anything is there was not
    /// looked at: the child can not know, so its caller is not told.
    LeftOut(PathBuf),
}

impl Reach {
    /// Follows a path as the child would, to where its view ends.
    pub(super) fn way(&self, path: &Path) -> Way {
        const LINKS_MAX: usize = 40;
        let mut whole = path.to_owned();
        'links: for _ in 0..LINKS_MAX {
            let mut there = PathBuf::new();
            let mut parts = whole.components();
            while let Some(part) = parts.next() {
                there.push(part);
                let is_left_out = is_beneath(&self.confine.covered, &there);
                if is_left_out && !self.reads(&whole) {
                    return Way::LeftOut(whole);
                }
                if let Ok(end) = fs::read_link(&there) {
                    there.pop();
                    whole = there.join(end).join(parts.as_path());
                    continue 'links;
                }
            }
            break;
        }
        Way::Open(real(&whole))
    }

    /// Returns whether the plan lets a real path be read.
    pub(super) fn reads(&self, path: &Path) -> bool {
        let confine = &*self.confine;
        let is_open = confine.landlock == 0 && !is_beneath(&confine.covered, path);
        is_open || self.roots().any(|(root, _)| path.starts_with(root)) || self.is_scratch(path)
    }

    /// Returns whether the plan lets a real path be written or made.
    pub(super) fn writes(&self, path: &Path) -> bool {
        let confine = &*self.confine;
        let is_open = confine.landlock == 0 && !confine.read_only;
        let mut roots = self.roots();
        let in_root = roots.any(|(root, writes)| writes && path.starts_with(root));
        (is_open || in_root || self.is_scratch(path)) && !self.is_kept(path)
    }

    /// Returns whether the plan refuses reading a path that is there, for the child to see.
    #[must_use]
    pub fn refuses_read(&self, path: &Path) -> bool {
        let path = self.cwd.join(path);
        let found = real(&path);
        self.is_visible(&path) && self.is_visible(&found) && found.exists() && !self.reads(&found)
    }

    /// Returns whether the plan refuses changing or making a path.
    #[must_use]
    pub fn refuses_write(&self, path: &Path) -> bool {
        let path = self.cwd.join(path);
        let found = real(&path);
        self.is_visible(&path) && self.is_visible(&found) && !self.writes(&found)
    }

    fn roots(&self) -> impl Iterator<Item = (&Path, bool)> {
        let roots = self.confine.roots.iter();
        let writes =
            |access: Access| access.writes() || matches!(access, Access::Device | Access::Terminal);
        roots.map(move |root| (path_of(&root.path), writes(root.access)))
    }

    /// Temporary folders and shared memory are made for each child.
    fn is_scratch(&self, path: &Path) -> bool {
        let scratch = self.confine.scratch.as_ref();
        let in_scratch = scratch.is_some_and(|scratch| path.starts_with(path_of(scratch)));
        in_scratch || self.confine.shm && path.starts_with("/dev/shm")
    }

    /// Returns whether a path is the gate's own and can only be read.
    pub(super) fn is_kept(&self, path: &Path) -> bool {
        self.needs.kept.iter().any(|kept| path.starts_with(kept))
    }

    /// Returns whether a path is closed altogether: the gate's own, or root's alone.
    pub(super) fn is_ours(&self, path: &Path) -> bool {
        is_beneath(&self.confine.hidden, path)
            || self
                .needs
                .hidden
                .iter()
                .any(|hidden| path.starts_with(hidden))
    }

    /// Returns whether the child itself could find out that a path is there, or that the folder in
    /// which it would be made is. What the gate sees beyond that is not told to callers.
    pub(super) fn is_visible(&self, path: &Path) -> bool {
        if self.is_ours(path) || is_beneath(&self.confine.covered, path) && !self.reads(path) {
            return false;
        }
        let Some(folder) = path.parent() else {
            return true;
        };
        if !folder.is_dir() {
            return false;
        }
        let Some(identity) = self.confine.identity else {
            // It is the gate's own user, who sees no more.
            return true;
        };
        let mut above = folder.ancestors();
        above.all(|folder| is_permitted(folder, identity, Wanted::Enter))
    }

    /// Returns whether the child's user could do so without confinement. A path that is not there
    /// is made in its folder.
    pub(super) fn user_may(&self, path: &Path, wanted: Wanted) -> bool {
        let there = match path.exists() {
            true => Some(path),
            false => path.parent(),
        };
        let Some(there) = there else { return false };
        match self.confine.identity {
            Some(identity) => is_permitted(there, identity, wanted),
            None => {
                let access = match wanted {
                    Wanted::Read => rustix::fs::Access::READ_OK,
                    Wanted::Write => rustix::fs::Access::WRITE_OK,
                    Wanted::Enter => rustix::fs::Access::EXEC_OK,
                };
                rustix::fs::access(there, access).is_ok()
            }
        }
    }

    /// The program of a name that has no slash, where the child looks for programs. The search goes
    /// past files that are refused, so one of those is meant only where there is no other.
    pub(super) fn named_program(&self, name: &str) -> Option<PathBuf> {
        if name.contains('/') || name.is_empty() {
            return None;
        }
        let folders = std::env::split_paths(self.search.as_ref()?);
        let candidates = folders
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name));
        let visible = candidates.filter(|path| self.is_visible(path) && path.is_file());
        let found: Vec<PathBuf> = visible.collect();
        let open = found.iter().find(|path| self.reads_end_of(path));
        open.or(found.first()).cloned()
    }

    /// Returns whether the plan lets the file that a path leads to be read.
    pub(super) fn reads_end_of(&self, path: &Path) -> bool {
        match self.way(path) {
            Way::Open(found) => self.reads(&found),
            Way::LeftOut(_) => false,
        }
    }
}

fn is_beneath(list: &[CString], path: &Path) -> bool {
    list.iter().any(|root| path.starts_with(path_of(root)))
}

fn path_of(text: &CString) -> &Path {
    Path::new(OsStr::from_bytes(text.as_bytes()))
}

/// What the mode bits of a file say of a user without capabilities and further groups.
fn is_permitted(path: &Path, identity: Identity, wanted: Wanted) -> bool {
    let Ok(found) = fs::metadata(path) else {
        return false;
    };
    let shift = if found.uid() == identity.uid {
        6
    } else if found.gid() == identity.gid {
        3
    } else {
        0
    };
    found.mode() >> shift & wanted.bit() != 0
}
