//! The files that are indexed: those that `files/search` would look into. Each is opened from the
//! root, links are not followed, and what the owner's lists or `.gitignore` leave out is not
//! there.

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use callgate_call::Fault;
use rustix::fs::{FileType, OFlags, Stat, fstat};

use crate::files::place::{Ground, fault};
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

/// Walks `from`, in the order of names, and what is in its folders if `deep`. What could not be
/// looked at is an error: nobody may take it for gone. Without descriptors that is the end of the
/// walk; where the disk fails it goes on, and the first such error is told when it is over.
pub fn walk(
    ground: &Ground,
    from: &Path,
    deep: bool,
    visitor: &mut dyn Visitor,
) -> Result<bool, Fault> {
    let mut ignored = Ignored::default();
    let plain = plain(from);
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
        failed: None,
    };
    let Some((found, _)) = there(ground.find(nonempty(&plain), OFlags::PATH))? else {
        // What is gone has nothing in it.
        return Ok(true);
    };
    let about = fstat(&found).map_err(|error| fault(error, &plain))?;
    let went_on = match kind(&about) {
        FileType::Directory => walk.folder(&plain, 0, &mut ignored)?,
        FileType::RegularFile => walk.file(&plain)?,
        _ => true,
    };
    match walk.failed {
        Some(fault) if went_on => Err(fault),
        _ => Ok(went_on),
    }
}

/// A path as files have it in the index; empty for the root.
pub fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}

/// `None` for what is not there, or is not to be shown.
fn there<T>(found: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Fault::NotFound { .. } | Fault::Denied { .. } | Fault::BadValue { .. }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

struct Walk<'a> {
    ground: &'a Ground,
    deep: bool,
    visitor: &'a mut dyn Visitor,
    /// Why something was passed over.
    failed: Option<Fault>,
}

impl Walk<'_> {
    fn folder(&mut self, path: &Path, depth: usize, ignored: &mut Ignored) -> Result<bool, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let Some((folder, real)) = there(self.ground.find(nonempty(path), flags))? else {
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
            let walked = match is_folder {
                true => self.folder(&path, depth + 1, ignored),
                false => self.file(&path),
            };
            goes_on = self.past(walked)?;
            if !goes_on {
                break;
            }
        }
        ignored.leave();
        Ok(goes_on)
    }

    /// What the disk does not give of one file or folder says nothing of the others.
    fn past(&mut self, walked: Result<bool, Fault>) -> Result<bool, Fault> {
        match walked {
            Err(fault @ Fault::Internal { .. }) => {
                self.failed.get_or_insert(fault);
                Ok(true)
            }
            walked => walked,
        }
    }

    fn file(&mut self, path: &Path) -> Result<bool, Fault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let Some((found, real)) = there(self.ground.find(path, flags))? else {
            return Ok(true);
        };
        let about = fstat(&found).map_err(|error| fault(error, path))?;
        match real == path && kind(&about) == FileType::RegularFile {
            true => self.visitor.file(path, File::from(found), &about),
            false => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Lists;
    use rustix::io::Errno;

    /// Meets files, one of which can not be read for a reason.
    struct Bad(Errno, Vec<PathBuf>);

    impl Visitor for Bad {
        fn folder(&mut self, _: &Path) {}

        fn file(&mut self, path: &Path, _: File, _: &Stat) -> Result<bool, Fault> {
            self.1.push(path.to_owned());
            match path.ends_with("bad") {
                true => Err(fault(self.0, path)),
                false => Ok(true),
            }
        }
    }

    /// A file that the disk does not give is passed over and told at the end; what all files need
    /// ends the walk.
    #[test]
    fn past_what_can_not_be_read() {
        let name = format!("callgate-walk-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(root.join("b")).unwrap();
        let all = ["a", "b/bad", "b/c", "d"];
        for path in all {
            std::fs::write(root.join(path), "").unwrap();
        }
        let ground = Ground::open(&root, Vec::new(), Lists::default()).unwrap();
        for (error, met) in [(Errno::IO, &all[..]), (Errno::MFILE, &all[..2])] {
            let mut bad = Bad(error, Vec::new());
            let walked = walk(&ground, Path::new("."), true, &mut bad);
            assert_eq!(walked, Err(fault(error, Path::new("b/bad"))));
            assert_eq!(bad.1, met.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn paths_as_the_index_has_them() {
        for (asked, path) in [
            (".", ""),
            ("./src/", "src"),
            ("src/../lib", "lib"),
            ("src/a/../../lib/./b", "lib/b"),
            ("src/..", ""),
        ] {
            assert_eq!(plain(Path::new(asked)), Path::new(path), "{asked}");
        }
    }
}
