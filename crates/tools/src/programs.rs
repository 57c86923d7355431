//! Which programs callers may have run, where those are looked for and which variables they see:
//! the owner's word, for `exec/run` and for terminals alike.

mod home;
#[cfg(test)]
pub(crate) mod mutated;
mod start;
mod variables;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Fault, Needs};
use callgate_sandbox::{Homes, held_env, real};

pub(crate) use home::{leave, live_in, names_home};
pub(crate) use start::Start;
use variables::{NOT_PLAIN, is_plain, refusal};

/// Variables that a call sets.
pub(crate) type Variables<'a> = BTreeMap<&'a str, &'a str>;

/// Most variables that a call may set.
const VARIABLES_MAX: usize = 4096;

/// What the owner lets callers run.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Where they run. A real path.
    pub workspace: PathBuf,
    /// Those that may be named; none here: any.
    pub allow: Vec<Allowed>,
    /// Further variables that calls may set where programs are listed. R-41.
    pub allow_env: Vec<String>,
    /// What they see of our environment.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secret_variables: BTreeMap<String, String>,
    /// Where their homes are; none: the `HOME` of `env`.
    pub homes: Option<Arc<Homes>>,
}

/// A program that the owner lists.
#[derive(Clone, Debug)]
pub enum Allowed {
    /// The program of that name.
    Name(String),
    /// The file at a path from the workspace, and no other.
    Path {
        /// Where it is. What is there may be a link.
        place: PathBuf,
        /// Where that led when the list was read: whoever may change a link on the way there
        /// could put any program behind it.
        end: PathBuf,
    },
}

impl Allowed {
    /// As the list names it, and as things are now.
    pub fn new(workspace: &Path, program: &str) -> Self {
        if !is_path(program) {
            return Self::Name(program.to_owned());
        }
        let place = place(workspace, program);
        let end = real(&place);
        Self::Path { place, end }
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self, Self::Name(allowed) if allowed == name)
    }

    fn is_file(&self, meant: &Path) -> bool {
        matches!(self, Self::Path { place, end } if place == meant && *end == real(meant))
    }
}

impl Programs {
    /// What is run where a caller in `cwd` names `program`. A name stands for the program of that
    /// name, a path for the file there alone, if it leads where it led when the list was read.
    /// It is run by where it was found to be: what leads there may be another's by then.
    pub(crate) fn allowed(
        &self,
        field: &str,
        program: &str,
        cwd: &Path,
    ) -> Result<OsString, Fault> {
        let is_listed =
            self.allow.is_empty() || self.allow.iter().any(|allowed| allowed.is_name(program));
        if is_listed {
            return Ok(program.into());
        }
        let meant = place(cwd, program);
        if is_path(program) && self.allow.iter().any(|allowed| allowed.is_file(&meant)) {
            return Ok(meant.into());
        }
        let advice = match program.contains(char::is_whitespace) {
            true => ": name the program alone and put its arguments in `args`",
            false => "",
        };
        Err(
            Fault::denied(format!("`{program}` is not among exec.allow{advice}"))
                .with("field", field)
                .with("reason", "not allowed"),
        )
    }

    /// The owner's variables, and over them those of the call.
    pub(crate) fn env(
        &self,
        asked: &Variables<'_>,
        needs: Option<&Needs>,
    ) -> Result<Vec<(OsString, OsString)>, Fault> {
        let mut env = match needs {
            None => self.env.clone(),
            Some(needs) => held_env(&self.env, &self.secret_variables, needs),
        };
        if asked.len() > VARIABLES_MAX {
            let reason = format!("has more than {VARIABLES_MAX} variables");
            return Err(bad("env", reason));
        }
        // Once for all of them: a search for each would take the square of their number.
        env.retain(|(name, _)| name.to_str().is_none_or(|name| !asked.contains_key(name)));
        for (&name, &value) in asked {
            let passes = self.allow.is_empty() || is_plain(name, value, &self.allow_env);
            if let Some(reason) = refusal(name, value).or((!passes).then_some(NOT_PLAIN)) {
                return Err(bad(&format!("env.{name}"), reason));
            }
            env.push((name.into(), value.into()));
        }
        Ok(env)
    }

    /// Where programs are looked for is the owner's to say, whatever `PATH` a call sets; and not
    /// in the workspace, where anybody may have put one. Of those folders the ones that have
    /// something called `program`: what leads to the others need not be walked. None of them for
    /// a path, which is not looked for.
    pub(crate) fn search_path(&self, program: &OsStr) -> OsString {
        if program.as_encoded_bytes().contains(&b'/') {
            return OsString::new();
        }
        let path = self.env.iter().find(|(name, _)| name == "PATH");
        let folders = path
            .into_iter()
            .flat_map(|(_, path)| std::env::split_paths(path));
        let holds_it = |folder: &PathBuf| {
            let is_there = || folder.join(program).symlink_metadata().is_ok();
            folder.is_absolute() && is_there() && !self.is_in_workspace(folder)
        };
        std::env::join_paths(folders.filter(holds_it)).unwrap_or_default()
    }

    /// True if what a program needs beside itself is not opened for it: only what the owner has
    /// where programs are looked for brings that along.
    pub(crate) fn comes_alone(&self, command: &str, found: &Path) -> bool {
        is_path(command) || self.is_in_workspace(found)
    }

    fn is_in_workspace(&self, path: &Path) -> bool {
        real(path).starts_with(&self.workspace)
    }
}

fn is_path(program: &str) -> bool {
    program.contains('/')
}

/// Where a path leads. A link at its end stays one: some programs are many, by the name they are
/// called by.
fn place(from: &Path, path: &str) -> PathBuf {
    let path = from.join(path);
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => real(folder).join(name),
        _ => path,
    }
}

/// Sets one variable, in place of another of its name.
pub(crate) fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: impl Into<OsString>) {
    env.retain(|(known, _)| known != OsStr::new(name));
    env.push((name.into(), value.into()));
}

/// A param that fits its schema and makes no sense all the same.
pub(crate) fn bad(field: &str, reason: impl Into<String>) -> Fault {
    let reason = reason.into();
    Fault::bad_value(format!("{field}: {reason}"))
        .with("field", field)
        .with("reason", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// not in the workspace, whichever way leads there; and nowhere at all for a path.
    #[test]
    fn where_programs_are_looked_for() {
        let name = format!("callgate-programs-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        // What a killed run of the same number left behind is not ours.
        let _ = std::fs::remove_dir_all(&root);
        let [inside, outside] = ["workspace/bin", "outside"].map(|folder| root.join(folder));
        for folder in [&inside, &outside] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("program"), "").unwrap();
        }
        let link = root.join("link");
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        let folders = [
            &inside,
            &link,
            Path::new("outside"),
            Path::new("/nowhere"),
            &outside,
        ];
        let path = std::env::join_paths(folders).unwrap();
        let programs = Programs {
            workspace: root.join("workspace").canonicalize().unwrap(),
            env: vec![("PATH".into(), path)],
            ..Programs::default()
        };
        let found = ["program", "other", "bin/program"]
            .map(|program| programs.search_path(program.as_ref()));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            found,
            [outside.into_os_string(), OsString::new(), OsString::new()]
        );
    }
}
