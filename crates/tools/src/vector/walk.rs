//! The files that are indexed: those that `files/search` would look into. Each is opened from the
//! root, links are not followed, and what the owner's lists or `.gitignore` leave out is not
//! there.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_call::Fault;
use rustix::fs::{FileType, OFlags, Stat, fstat};

use crate::files::place::Ground;
use crate::files::search::ignored::Ignored;
use crate::files::search::{entries, nonempty};

/// Folders in folders.
const DEPTH_MAX: usize = 128;

/// Told of what is met.
pub trait Visitor {
    /// A folder, before what is in it.
    fn folder(&mut self, path: &Path);
    /// A plain file; false ends the walk.
    fn file(&mut self, path: &Path, file: File, about: &Stat) -> Result<bool, Fault>;
}

/// Walks `from`, in the order of names, and what is in its folders if `deep`.
pub fn walk(
    ground: &Ground,
    from: &Path,
    deep: bool,
    visitor: &mut dyn Visitor,
) -> Result<bool, Fault> {
    let mut ignored = Ignored::default();
    let plain: PathBuf = from
        .components()
        .filter(|part| matches!(part, std::path::Component::Normal(_)))
        .collect();
    let above: Vec<&Path> = plain.ancestors().skip(1).collect();
    for folder in above.into_iter().rev() {
        if ignored.matches(folder, true) {
            return Ok(true);
        }
        ignored.enter(ground, folder);
    }
    if ignored.matches(&plain, true) {
        return Ok(true);
    }
    let mut walk = Walk {
        ground,
        deep,
        visitor,
    };
    match ground.find(nonempty(&plain), OFlags::PATH) {
        Ok((found, _)) if is_folder(&found) => walk.folder(&plain, 0, &mut ignored),
        Ok(_) => walk.file(&plain),
        // What is gone has nothing in it.
        Err(_) => Ok(true),
    }
}

fn is_folder(found: &std::os::fd::OwnedFd) -> bool {
    fstat(found).is_ok_and(|about| kind(&about) == FileType::Directory)
}

fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

struct Walk<'a> {
    ground: &'a Ground,
    deep: bool,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, depth: usize, ignored: &mut Ignored) -> Result<bool, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Ok((folder, real)) = self.ground.find(nonempty(path), flags) else {
            return Ok(true);
        };
        if real != path || depth > DEPTH_MAX {
            return Ok(true);
        }
        let entries = match entries(&folder, path) {
            // One with too many names is left out, and does not stand for all.
            Err(Fault::BadValue { .. }) if depth > 0 => return Ok(true),
            entries => entries?,
        };
        self.visitor.folder(path);
        ignored.enter(self.ground, path);
        let mut goes_on = true;
        for (name, kind) in entries {
            let path = path.join(&name);
            let is_folder = kind == FileType::Directory;
            let hidden = name.as_bytes().starts_with(b".");
            if hidden || ignored.matches(&path, is_folder) || is_folder && !self.deep {
                continue;
            }
            goes_on = match is_folder {
                true => self.folder(&path, depth + 1, ignored)?,
                false => self.file(&path)?,
            };
            if !goes_on {
                break;
            }
        }
        ignored.leave();
        Ok(goes_on)
    }

    fn file(&mut self, path: &Path) -> Result<bool, Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        if let Ok((found, real)) = self.ground.find(path, flags)
            && real == path
            && let Ok(about) = fstat(&found)
            && kind(&about) == FileType::RegularFile
        {
            return self.visitor.file(path, File::from(found), &about);
        }
        Ok(true)
    }
}
