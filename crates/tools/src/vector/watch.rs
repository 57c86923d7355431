//! What the kernel tells of changes in the folders that are indexed.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use callgate_call::Fault;
use rustix::fs::Stat;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use super::walk::{Visitor, walk};
use crate::files::Files;
use crate::files::place::shown;

/// Folders that are watched. Of more the rest is seen by the next `callgate index`.
const FOLDERS_MAX: usize = 65_536;
/// Changes that are told one by one; of more, all is looked at.
const CHANGES_MAX: usize = 256;
const BUFFER_BYTES: usize = 16 * 1024;

/// A folder in which something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    path: String,
    /// Its folders may have changed as well.
    pub deep: bool,
}

impl Changed {
    /// Everything may have.
    #[must_use]
    pub fn all() -> Self {
        Self {
            path: ".".to_owned(),
            deep: true,
        }
    }

    /// The folder.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.path
    }
}

/// Watches folders of a workspace.
#[derive(Debug)]
pub struct Watcher {
    inotify: OwnedFd,
    root: PathBuf,
    folders: HashMap<i32, PathBuf>,
}

impl Watcher {
    /// Watches nothing yet.
    pub fn new(root: &Path) -> std::io::Result<Self> {
        Ok(Self {
            inotify: init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            root: root.to_owned(),
            folders: HashMap::new(),
        })
    }

    /// Watches a folder and those in it.
    pub fn watch(&mut self, files: &Files, changed: &Changed) {
        // A folder that can not be read is not indexed either.
        let _ = walk(files.ground(), Path::new(&changed.path), true, self);
    }

    /// Where something changed since the last look.
    pub fn changed(&mut self) -> Vec<Changed> {
        let mut deep: BTreeMap<PathBuf, bool> = BTreeMap::new();
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                deep.insert(PathBuf::new(), true);
            }
            if event.events().contains(ReadFlags::IGNORED) {
                self.folders.remove(&event.wd());
                continue;
            }
            let Some(folder) = self.folders.get(&event.wd()) else {
                continue;
            };
            let name = event
                .file_name()
                .map(|name| name.to_bytes())
                .unwrap_or_default();
            let of_folders = event.events().contains(ReadFlags::ISDIR);
            let rules = matches!(name, b".gitignore" | b".ignore");
            let known = deep.entry(folder.clone()).or_insert(false);
            *known |= of_folders || rules;
        }
        if deep.len() > CHANGES_MAX {
            return vec![Changed::all()];
        }
        let changed = |(path, deep): (PathBuf, bool)| Changed {
            path: shown(&path),
            deep,
        };
        deep.into_iter().map(changed).collect()
    }
}

impl Visitor for Watcher {
    fn folder(&mut self, path: &Path) {
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        if self.folders.len() < FOLDERS_MAX
            && let Ok(watch) = add_watch(&self.inotify, self.root.join(path), flags)
        {
            self.folders.insert(watch, path.to_owned());
        }
    }

    fn file(&mut self, _: &Path, _: File, _: &Stat) -> Result<bool, Fault> {
        Ok(true)
    }
}
