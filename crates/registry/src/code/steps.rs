//! Follows a path as the kernel does, one component after the other, and collects the names of the
//! workspace on which its end depends. No decision about what is code.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Most links of one path. The kernel follows no more either.
const LINKS_MAX: usize = 40;

/// A path, followed to its end.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PathSteps {
    /// Names of the workspace that lead elsewhere once they are replaced: links, and folders that
    /// a `..` leaves again.
    pub passed: Vec<PathBuf>,
    /// The end of the path without links. The rest of a path that is not there is as written.
    pub end: PathBuf,
}

/// Follows a path from the workspace's root. `root` has no links itself.
pub fn steps_of(root: &Path, path: &Path) -> PathSteps {
    let is_inside = |path: &Path| path.starts_with(root) && path != root;
    let mut at = root.to_owned();
    let mut links: Vec<PathBuf> = Vec::new();
    let mut left: Vec<PathBuf> = Vec::new();
    let mut followed = 0;
    let mut rest = components_of(path);
    while let Some(name) = rest.pop() {
        if name == "/" {
            at = PathBuf::from("/");
            continue;
        }
        if name == ".." {
            // The folder of a closed link cannot be replaced either.
            if is_inside(&at) && !links.iter().any(|link| link.starts_with(&at)) {
                left.push(at.clone());
            }
            at.pop();
            continue;
        }
        at.push(&name);
        // The working folder of a tool is the root, whatever that of this process is.
        if at.starts_with("/proc") && name == "cwd" {
            at = root.to_owned();
            continue;
        }
        let Ok(target) = fs::read_link(&at) else {
            continue;
        };
        if is_inside(&at) {
            links.push(at.clone());
        }
        followed += 1;
        if followed > LINKS_MAX {
            break;
        }
        at.pop();
        rest.extend(components_of(&target));
    }
    at.extend(rest.into_iter().rev());
    links.extend(left);
    PathSteps {
        passed: links,
        end: at,
    }
}

/// The components of a path, the first one last. The root is `/`.
fn components_of(path: &Path) -> Vec<OsString> {
    let names = path.components().filter(|part| *part != Component::CurDir);
    names
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// A path without `.` and `..`, as programs shorten it that do not ask the kernel.
pub fn shortened(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                short.pop();
            }
            part => short.push(part),
        }
    }
    short
}

/// All names of the workspace that decide what a path leads to: its own, its end, and those that
/// it passes.
pub fn names_of(root: &Path, path: &Path) -> Vec<PathBuf> {
    let path = root.join(path);
    let short = shortened(&path);
    let mut names = Vec::new();
    for path in [&path, &short] {
        let steps = steps_of(root, path);
        names.extend(steps.passed);
        names.push(steps.end);
    }
    names.push(short);
    names.retain(|name| name.starts_with(root) && name != root);
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_passed() {
        let folder = std::env::temp_dir().join(format!("callgate-steps-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let outer = folder.canonicalize().expect("a real path");
        let root = outer.join("w");
        fs::create_dir_all(root.join("releases/v1")).expect("folders");
        fs::create_dir_all(root.join("x")).expect("a folder");
        fs::write(root.join("releases/v1/run"), "").expect("a file");
        for (target, link) in [
            ("current", "w/app"),
            ("releases/v1", "w/current"),
            ("../releases/v1/run", "w/x/run"),
            ("w", "alias"),
            ("loop", "w/loop"),
            ("gone", "w/broken"),
        ] {
            symlink(target, outer.join(link)).expect("a link");
        }
        let alias = outer.join("alias/app/run").display().to_string();
        for (path, passed, end) in [
            ("app/run", vec!["app", "current"], "releases/v1/run"),
            ("./app//run", vec!["app", "current"], "releases/v1/run"),
            ("x/run", vec!["x/run"], "releases/v1/run"),
            ("x/../app", vec!["app", "current", "x"], "releases/v1"),
            ("../w/current/run", vec!["current"], "releases/v1/run"),
            (&alias, vec!["app", "current"], "releases/v1/run"),
            ("/proc/self/cwd/app", vec!["app", "current"], "releases/v1"),
            ("broken/x", vec!["broken"], "gone/x"),
            ("gone/y", vec![], "gone/y"),
        ] {
            let steps = steps_of(&root, &root.join(path));
            let passed: Vec<PathBuf> = passed.iter().map(|name| root.join(name)).collect();
            assert_eq!(
                (steps.passed, steps.end),
                (passed, root.join(end)),
                "{path}"
            );
        }
        assert!(steps_of(&root, &root.join("loop")).passed.len() > LINKS_MAX);
        let names = names_of(&root, Path::new("x/../app"));
        for name in ["app", "current", "x", "releases/v1"] {
            assert!(names.contains(&root.join(name)), "{name}: {names:?}");
        }
        fs::remove_dir_all(folder).expect("it goes");
    }
}
