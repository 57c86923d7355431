//! Which files may be reached at all: the owner's lists. They are about where a path led, not
//! about how it was spelt. JR-165.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Most patterns of a list.
const PATTERNS_MAX: usize = 256;

/// Patterns over paths from the workspace's root.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// A file must be in each of them.
    allow: Vec<GlobSet>,
    deny: Option<GlobSet>,
}

impl Lists {
    /// `*` stays within a folder, `**` does not. An empty list says nothing.
    pub fn new(allow: &[String], deny: &[String]) -> Result<Self, String> {
        let deny = compile(deny).map_err(|reason| format!("files.deny: {reason}"))?;
        let allow_all = Self {
            allow: Vec::new(),
            deny,
        };
        allow_all.narrowed(allow)
    }

    /// The same lists, and `allow` as a further list that a file must be in. An empty one says
    /// nothing.
    pub fn narrowed(mut self, allow: &[String]) -> Result<Self, String> {
        let allow = compile(allow).map_err(|reason| format!("files.allow: {reason}"))?;
        self.allow.extend(allow);
        Ok(self)
    }

    /// True if there is nothing to look up.
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.deny.is_none()
    }

    /// True if this, or a folder that it is in, is denied.
    pub fn denies(&self, path: &Path) -> bool {
        self.deny.as_ref().is_some_and(|deny| hits(deny, path))
    }

    /// True if a file may be here. Folders are on the way to such places, whatever they are
    /// called.
    pub fn allows(&self, path: &Path) -> bool {
        self.allow.iter().all(|allow| hits(allow, path))
    }
}

fn hits(set: &GlobSet, path: &Path) -> bool {
    let parts = path.components();
    let plain: PathBuf = parts.filter(|part| *part != Component::CurDir).collect();
    plain
        .ancestors()
        .filter(|path| !path.as_os_str().is_empty())
        .any(|path| set.is_match(path))
}

fn compile(patterns: &[String]) -> Result<Option<GlobSet>, String> {
    if patterns.is_empty() {
        return Ok(None);
    }
    if patterns.len() > PATTERNS_MAX {
        let count = patterns.len();
        return Err(format!("{count} patterns are more than {PATTERNS_MAX}"));
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let from_root = PathBuf::from(pattern);
        if from_root.is_absolute() || pattern.split('/').any(|part| part == "..") {
            return Err(format!("`{pattern}` is not a pattern over the workspace"));
        }
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        set.add(glob.map_err(|error| error.to_string())?);
    }
    set.build().map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(allow: &[&str], deny: &[&str]) -> Result<Lists, String> {
        let owned = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
        Lists::new(&owned(allow), &owned(deny))
    }

    #[test]
    fn patterns() {
        let lists = lists(&["src/**", "*.md"], &["**/.env", "src/private/"]).unwrap();
        for (path, allows, denies) in [
            ("src/a.rs", true, false),
            ("./src/./a.rs", true, false),
            ("src/b/c.rs", true, false),
            ("src", false, false),
            ("README.md", true, false),
            ("docs/README.md", false, false),
            (".env", false, true),
            ("src/x/.env", true, true),
            ("src/private", true, true),
            ("src/private/a", true, true),
            ("src/privately", true, false),
        ] {
            let path = Path::new(path);
            assert_eq!(
                (lists.allows(path), lists.denies(path)),
                (allows, denies),
                "{path:?}"
            );
        }
        let empty = Lists::default();
        assert!(empty.is_empty() && empty.allows(Path::new("a")) && !empty.denies(Path::new("a")));
        for wrong in ["/abs", "../up", "a/../b", "[", "{a"] {
            assert!(super::compile(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }
}
