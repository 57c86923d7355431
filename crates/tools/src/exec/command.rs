//! What a call asks to be run, as a child to be born, or why not. R-9, JR-166.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Fault, Needs};
use callgate_sandbox::{SpawnError, Spec, held_env, real, resolve};
use rustix::fs::OFlags;
use serde_json::Value;

use super::Exec;
use super::variables::refusal;
use crate::files::place::Outside;

const SHELL: &str = "/bin/sh";

impl Exec {
    /// The child that a call asks for, without its streams.
    pub(super) fn spec(&self, input: &Value, needs: Option<&Arc<Needs>>) -> Result<Spec, Fault> {
        let command = input["command"].as_str().unwrap_or_default();
        if command.is_empty() {
            return Err(bad("command", "names no program"));
        }
        let shell = input["shell"].as_bool().unwrap_or(false);
        self.check_allowed(command, shell)?;
        let mut argv: Vec<OsString> = match shell {
            true => [SHELL, "-c", command, "sh"].map(OsString::from).to_vec(),
            false => vec![command.into()],
        };
        let args = input["args"].as_array().into_iter().flatten();
        argv.extend(args.filter_map(Value::as_str).map(OsString::from));
        if let Some(at) = argv.iter().position(|word| has_zero(word)) {
            let field = if at < 3 && shell || at == 0 {
                "command"
            } else {
                "args"
            };
            return Err(bad(field, "holds a zero byte"));
        }
        let mut spec = Spec::new(argv, self.cwd(input)?);
        spec.search = Some(self.search_path());
        spec.env = self.env(input, needs)?;
        spec.limits = self.settings.limits.clone();
        spec.confine = needs.cloned();
        let found = resolve(&spec).map_err(|error| not_started(&error))?;
        // Only what the owner has where programs are looked for brings along what it needs.
        spec.named_by_caller = command.contains('/') || self.is_in_workspace(&found);
        spec.named_by_caller &= !shell;
        Ok(spec)
    }

    /// A name stands for the program of that name, a path for itself alone.
    fn check_allowed(&self, command: &str, shell: bool) -> Result<(), Fault> {
        let (field, program) = match shell {
            true => ("shell", "sh"),
            false => ("command", command),
        };
        let allow = &self.settings.allow;
        if allow.is_empty() || allow.iter().any(|allowed| allowed == program) {
            return Ok(());
        }
        Err(
            Fault::denied(format!("`{program}` is not among exec.allow"))
                .with("field", field)
                .with("reason", "not allowed"),
        )
    }

    /// The folder to run in, which must be there and inside the workspace.
    fn cwd(&self, input: &Value) -> Result<PathBuf, Fault> {
        let Some(asked) = input["cwd"].as_str() else {
            return Ok(self.settings.workspace.clone());
        };
        let path = self.ground.within(asked, Outside::BadValue);
        let path = path.map_err(|fault| fault.with("field", "cwd"))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.ground.find(&path, flags) {
            Ok((_, real)) => Ok(self.settings.workspace.join(real)),
            Err(Fault::NotFound { .. }) => Err(bad("cwd", "no such folder")),
            // A link that leads out is outside too.
            Err(Fault::Denied { about, .. }) if reason_of(&about).contains("link") => {
                Err(bad("cwd", "Path outside workspace"))
            }
            Err(fault) => Err(fault.with("field", "cwd")),
        }
    }

    /// The owner's variables, and over them those of the call.
    fn env(
        &self,
        input: &Value,
        needs: Option<&Arc<Needs>>,
    ) -> Result<Vec<(OsString, OsString)>, Fault> {
        let mut env = self.settings.env.clone();
        if let Some(needs) = needs {
            env = held_env(&env, &self.settings.secret_variables, needs);
        }
        for (name, value) in input["env"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            if let Some(reason) = refusal(name, value) {
                return Err(bad(&format!("env.{name}"), reason));
            }
            env.retain(|(known, _)| known != OsStr::new(name));
            env.push((name.into(), value.into()));
        }
        Ok(env)
    }

    /// Where programs are looked for is the owner's to say, whatever `PATH` a call sets; and not
    /// in the workspace, where anybody may have put one.
    fn search_path(&self) -> OsString {
        let path = self.settings.env.iter().find(|(name, _)| name == "PATH");
        let folders = path
            .into_iter()
            .flat_map(|(_, path)| std::env::split_paths(path));
        let outside = |folder: &PathBuf| folder.is_absolute() && !self.is_in_workspace(folder);
        std::env::join_paths(folders.filter(outside)).unwrap_or_default()
    }

    fn is_in_workspace(&self, path: &Path) -> bool {
        real(path).starts_with(&self.settings.workspace)
    }
}

fn has_zero(word: &OsStr) -> bool {
    word.as_encoded_bytes().contains(&0)
}

fn reason_of(about: &callgate_call::About) -> &str {
    let reason = about.as_ref().and_then(|about| about.get("reason"));
    reason.and_then(Value::as_str).unwrap_or_default()
}

fn bad(field: &str, reason: &str) -> Fault {
    Fault::bad_value(format!("{field}: {reason}"))
        .with("field", field)
        .with("reason", reason)
}

/// A program that was not started. Nothing has run.
pub(super) fn not_started(error: &SpawnError) -> Fault {
    let text = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    match error {
        SpawnError::NotFound { .. } | SpawnError::NoInterpreter { .. } => {
            Fault::NotFound { message: text }
        }
        SpawnError::NotExecutable { .. } => Fault::denied(text)
            .with("field", "command")
            .with("reason", "not executable"),
        SpawnError::Step { step, .. } if step.starts_with("not a program") => Fault::denied(text)
            .with("field", "command")
            .with("reason", "not executable"),
        SpawnError::Cwd { .. } => bad("cwd", "can not be entered"),
        SpawnError::BadSpec { reason, .. } => bad("command", reason),
        SpawnError::TooLarge { .. } => Fault::bad_value(text)
            .with("field", "args")
            .with("reason", "too long together with the environment"),
        SpawnError::Lost { .. } => Fault::Crash { message: text },
        SpawnError::NoProcesses { .. } | SpawnError::Step { .. } | SpawnError::Spawner { .. } => {
            Fault::Unavailable { reason: text }
        }
    }
}
