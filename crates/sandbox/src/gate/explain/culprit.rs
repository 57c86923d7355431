//! The file that keeps a program from running: itself, the interpreter of its first line, the end
//! of a link, or the installation that a virtual environment was made from.

use std::path::{Path, PathBuf};

use callgate_call::{ConfinementHint, RefusedAccess, Tool, toml_list};

use super::Reach;
use super::reach::{Wanted, Way};
use crate::gate::compile::real;
use crate::gate::program_roots::{env_program_of, home_of_venv, interpreter_of};

/// Scripts whose interpreter is a script are followed so far.
const DEPTH_MAX: usize = 4;

/// Names of files and folders that hold credentials: no hint asks to open them.
const CREDENTIALS: [&str; 17] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".password-store",
    ".mozilla",
    "gcloud",
    "keyrings",
    "credentials",
    "credentials.toml",
];

/// A file that a plan refuses, and the folder to open for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// The file that is refused. A real path.
    pub path: PathBuf,
    /// What to add to `reads`; nothing where that would open a home, or credentials.
    pub root: Option<PathBuf>,
    /// What it was needed for: a script, or an environment.
    pub needed_by: Option<PathBuf>,
    /// It is a program, or belongs to one.
    pub is_program: bool,
    /// It lies in a folder that the view leaves out, and may not be there at all.
    pub is_left_out: bool,
}

impl Culprit {
    /// A file that is refused by itself.
    pub(super) fn of_read(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            root: root_for(path),
            needed_by: None,
            is_program: false,
            is_left_out: false,
        }
    }

    /// A file in a folder that the view leaves out. Only its name is looked at.
    pub(super) fn left_out(path: &Path, needed_by: Option<&Path>, is_program: bool) -> Self {
        Self {
            path: path.to_owned(),
            root: root_by_name(path),
            needed_by: needed_by.map(Path::to_owned),
            is_program,
            is_left_out: true,
        }
    }

    fn of_program(path: &Path, needed_by: Option<&Path>) -> Self {
        Self {
            needed_by: needed_by.filter(|one| *one != path).map(Path::to_owned),
            is_program: true,
            ..Self::of_read(path)
        }
    }

    /// The same as a hint for `tool`. `closed` says why no setting opens it.
    #[must_use]
    pub fn hint(&self, tool: &Tool, closed: Option<&str>) -> ConfinementHint {
        self.hint_with(closed, |list| tool.setting("reads", list))
    }

    /// The same for programs that callers run.
    #[must_use]
    pub fn hint_for_programs(&self) -> ConfinementHint {
        self.hint_with(None, |list| Some(format!("[exec] reads = {list}")))
    }

    fn hint_with(
        &self,
        closed: Option<&str>,
        setting: impl Fn(&str) -> Option<String>,
    ) -> ConfinementHint {
        let root = self.root.as_deref().and_then(Path::to_str);
        let needed = self.needed_by.as_deref();
        let needed = needed.map(|script| format!("{} needs it", script.display()));
        let left_out = self.is_left_out.then(|| {
            "the program sees nothing there but what `reads` names; whether the file is there was \
             not looked at"
                .to_owned()
        });
        let notes: Vec<String> = needed.into_iter().chain(left_out).collect();
        let notes = (!notes.is_empty()).then(|| notes.join("; "));
        let (setting, note) = match (closed, root) {
            (Some(closed), _) => (None, Some(closed.to_owned())),
            (None, Some(root)) => {
                let list = toml_list(&[root.to_owned()]);
                (setting(&list), notes)
            }
            (None, None) => {
                let words = "it is a whole home or may hold credentials: \
                             name in `reads` only what is needed of it";
                (None, Some(words.to_owned()))
            }
        };
        ConfinementHint {
            refused: match self.is_program {
                true => RefusedAccess::Execute,
                false => RefusedAccess::Read,
            },
            subject: Some(self.path.display().to_string()),
            setting,
            note,
        }
    }
}

impl Reach {
    /// Returns what keeps a program from running, if its plan does.
    pub(crate) fn culprit_of(&self, program: &Path) -> Option<Culprit> {
        let (mut current, mut needed_by) = (program.to_owned(), None);
        for _ in 0..DEPTH_MAX {
            let found = match self.way(&current) {
                Way::Open(found) => found,
                Way::LeftOut(path) => {
                    return Some(Culprit::left_out(&path, needed_by.as_deref(), true));
                }
            };
            if !self.is_visible(&found) {
                return None;
            }
            if !self.reads(&found) {
                return Some(Culprit::of_program(&found, needed_by.as_deref()));
            }
            if let Some(culprit) = self.culprit_of_venv(&current) {
                return Some(culprit);
            }
            // Nothing of a file that its user could not read is told.
            if !self.user_may(&found, Wanted::Read) {
                return None;
            }
            let interpreter = interpreter_of(&found)?;
            let next = match env_program_of(&found) {
                Some(name) if self.reads_end_of(&interpreter) => self.named_program(&name)?,
                _ => interpreter,
            };
            needed_by = Some(current);
            current = next;
        }
        None
    }

    /// Returns what kept a program from being started, which its plan did: the program itself where
    /// nothing else is found.
    pub(crate) fn culprit_at_start(self, program: PathBuf, cwd: PathBuf) -> Culprit {
        let reach = Self { cwd, ..self };
        let culprit = reach.culprit_of(&program);
        culprit.unwrap_or_else(|| Culprit::of_program(&real(&program), None))
    }

    /// Returns what was not there for a program that could not be started, because the view leaves
    /// it out.
    pub(crate) fn left_out_at_start(&self, program: &Path) -> Option<Culprit> {
        self.culprit_of(program).filter(|found| found.is_left_out)
    }

    /// The installation that a virtual environment was made from, where that is refused.
    fn culprit_of_venv(&self, program: &Path) -> Option<Culprit> {
        let folder = program.parent().filter(|folder| folder.ends_with("bin"))?;
        let environment = folder.parent()?;
        let base = home_of_venv(environment)?.parent()?.to_owned();
        let library = match self.way(&base.join("lib")) {
            Way::Open(found) => found,
            Way::LeftOut(path) => return Some(Culprit::left_out(&path, Some(environment), true)),
        };
        let is_refused = library.is_dir() && self.is_visible(&library) && !self.reads(&library);
        is_refused.then(|| Culprit::of_program(&library, Some(environment)))
    }
}

/// The folder to open so that a file can be used: the installation it belongs to, its tree of
/// modules, or itself. Nothing where that would open too much.
fn root_for(path: &Path) -> Option<PathBuf> {
    let mut names = path.iter().filter_map(|name| name.to_str());
    if names.any(|name| CREDENTIALS.contains(&name)) || is_home(path) {
        return None;
    }
    let modules = path.ancestors();
    let modules = modules.filter(|folder| folder.ends_with("node_modules"));
    if let Some(modules) = modules.last() {
        return Some(modules.to_owned());
    }
    let is_installation = |folder: &&Path| {
        folder.join("bin").is_dir() && folder.join("lib").is_dir() && !is_home(folder)
    };
    if let Some(folder) = path.ancestors().find(is_installation) {
        return Some(folder.to_owned());
    }
    // A program needs what stands beside it, and what is above it may be anything.
    let folder = path.parent().filter(|folder| folder.ends_with("bin"));
    Some(folder.unwrap_or(path).to_owned())
}

/// The same by the name alone, for what must not be looked at.
fn root_by_name(path: &Path) -> Option<PathBuf> {
    let mut names = path.iter().filter_map(|name| name.to_str());
    if names.any(|name| CREDENTIALS.contains(&name)) || is_home_by_name(path) {
        return None;
    }
    let mut above = path.ancestors();
    if let Some(version) = above.find(|folder| is_version(folder)) {
        return Some(version.to_owned());
    }
    let folder = path.parent().filter(|folder| folder.ends_with("bin"));
    Some(folder.unwrap_or(path).to_owned())
}

/// Returns whether a folder is one version of a version manager's: `versions/3.12.4`,
/// `versions/node/v22.1.0`, `toolchains/stable`.
fn is_version(folder: &Path) -> bool {
    let above = |levels: usize| folder.ancestors().nth(levels);
    let is_node = above(1).is_some_and(|parent| parent.ends_with("versions/node"));
    let is_other = above(1).is_some_and(|parent| {
        parent.ends_with("versions") && !folder.ends_with("node") || parent.ends_with("toolchains")
    });
    is_node || is_other
}

/// Returns whether a folder is so wide that nobody should open it: the root, or somebody's home or
/// what looks like one.
fn is_home(folder: &Path) -> bool {
    let marks = [".bashrc", ".profile", ".ssh"];
    is_home_by_name(folder) || marks.iter().any(|name| folder.join(name).exists())
}

fn is_home_by_name(folder: &Path) -> bool {
    let is_homes = |path: &Path| path == Path::new("/home") || path == Path::new("/Users");
    match folder.parent() {
        None => true,
        Some(parent) => {
            is_homes(folder)
                || is_homes(parent)
                || folder == Path::new("/root")
                || folder.ends_with(".local")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a hint asks to open is no home and holds no credentials.
    #[test]
    fn nothing_too_wide_is_named() {
        for closed in [
            "/",
            "/root",
            "/home",
            "/home/ada",
            "/home/ada/.ssh/id_ed25519",
            "/home/ada/.aws/credentials",
            "/srv/app/credentials.toml",
        ] {
            assert_eq!(root_for(Path::new(closed)), None, "{closed}");
        }
        for (path, root) in [
            (
                "/home/ada/.pyenv/versions/3.12.4/bin/python3",
                Some("/home/ada/.pyenv/versions/3.12.4"),
            ),
            (
                "/home/ada/.nvm/versions/node/v22.1.0/bin/npm",
                Some("/home/ada/.nvm/versions/node/v22.1.0"),
            ),
            ("/home/ada/tools/bin/run", Some("/home/ada/tools/bin")),
            ("/home/ada/notes.txt", Some("/home/ada/notes.txt")),
            ("/home/ada/.ssh/config", None),
            ("/home/ada", None),
        ] {
            let found = root_by_name(Path::new(path));
            assert_eq!(found.as_deref(), root.map(Path::new), "{path}");
        }
        for (path, root) in [
            ("/srv/data/a.txt", "/srv/data/a.txt"),
            ("/srv/tools/bin/run", "/srv/tools/bin"),
            (
                "/srv/app/node_modules/a/node_modules/b/i.js",
                "/srv/app/node_modules",
            ),
        ] {
            assert_eq!(root_for(Path::new(path)).as_deref(), Some(Path::new(root)));
        }
    }
}
