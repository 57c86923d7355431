//! Which programs callers may have run, where those are looked for and which variables they see:
//! the owner's word, for `exec/run` and for terminals alike.

mod variables;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use callgate_call::{Fault, Needs};
use callgate_sandbox::{held_env, real};
use serde_json::Value;

use variables::refusal;

/// What the owner lets callers run.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// Where they run. A real path.
    pub workspace: PathBuf,
    /// Those that may be named; none here: any.
    pub allow: Vec<String>,
    /// What they see of our environment.
    pub env: Vec<(OsString, OsString)>,
    /// Which of its variables hold a secret, and the secret's name.
    pub secret_variables: BTreeMap<String, String>,
}

impl Programs {
    /// A name stands for the program of that name, a path for itself alone.
    pub(crate) fn check_allowed(&self, field: &str, program: &str) -> Result<(), Fault> {
        if self.allow.is_empty() || self.allow.iter().any(|allowed| allowed == program) {
            return Ok(());
        }
        Err(
            Fault::denied(format!("`{program}` is not among exec.allow"))
                .with("field", field)
                .with("reason", "not allowed"),
        )
    }

    /// The owner's variables, and over them those of the call.
    pub(crate) fn env(
        &self,
        asked: &Value,
        needs: Option<&Needs>,
    ) -> Result<Vec<(OsString, OsString)>, Fault> {
        let mut env = match needs {
            None => self.env.clone(),
            Some(needs) => held_env(&self.env, &self.secret_variables, needs),
        };
        for (name, value) in asked.as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            if let Some(reason) = refusal(name, value) {
                return Err(bad(&format!("env.{name}"), reason));
            }
            set(&mut env, name, value);
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
        command.contains('/') || self.is_in_workspace(found)
    }

    fn is_in_workspace(&self, path: &Path) -> bool {
        real(path).starts_with(&self.workspace)
    }
}

/// Sets one variable, in place of another of its name.
pub(crate) fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: &str) {
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
