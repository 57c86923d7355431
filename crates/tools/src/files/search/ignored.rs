//! What `.gitignore` and `.ignore` files leave out, folder by folder.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::OFlags;

use crate::files::place::{Ground, plain};

/// The files, the stronger last.
const NAMES: [&str; 2] = [".gitignore", ".ignore"];
/// What is read of one of them.
const BYTES_MAX: u64 = 1024 * 1024;

/// Those of the folders from the root down to the present one.
#[derive(Default)]
pub struct Ignored(Vec<Gitignore>);

impl Ignored {
    /// Goes down into a folder.
    pub fn enter(&mut self, ground: &Ground, folder: &Path) {
        let mut rules = GitignoreBuilder::new(folder);
        for name in NAMES {
            let text = text(ground, &folder.join(name)).unwrap_or_default();
            for line in text.lines() {
                // A line that is no pattern says nothing.
                let _ = rules.add_line(None, line);
            }
        }
        self.0
            .push(rules.build().unwrap_or_else(|_| Gitignore::empty()));
    }

    /// Comes up again.
    pub fn leave(&mut self) {
        self.0.pop();
    }

    /// True if the nearest folder that says something says so.
    pub fn matches(&self, path: &Path, is_folder: bool) -> bool {
        let rules = self.0.iter().rev().filter(|rules| !rules.is_empty());
        for rules in rules {
            match rules.matched(path, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

/// Never by a link, which could be asked what is in a file elsewhere.
fn text(ground: &Ground, path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    let (found, real) = ground.find(path, flags).ok()?;
    plain(&found, path).ok()?;
    let mut bytes = Vec::new();
    let file = File::from(found);
    // bound: `BYTES_MAX`; what is beyond is not read
    file.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
    (real == path).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
