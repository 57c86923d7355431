//! What a call asks to be run, as a child to be born, or why not. R-9, JR-166.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use callgate_call::{Fault, Needs};
use callgate_sandbox::{SpawnError, Spec, resolve};

use super::{Exec, ExecArguments};
use crate::programs::{Start, bad};

const SHELL: &str = "/bin/sh";

/// The `reason` of a refusal that is the program's own fault, not a rule's.
pub const NOT_EXECUTABLE: &str = "not executable";
/// Why a program is refused that is one, but not where programs may look.
pub const OUT_OF_REACH: &str = "outside of what programs may read";

impl Exec {
    /// The child that a call asks for, without its streams.
    pub(super) fn spec(
        &self,
        asked: &ExecArguments<'_>,
        needs: Option<&Arc<Needs>>,
    ) -> Result<Spec, Fault> {
        let &ExecArguments { command, shell, .. } = asked;
        if command.is_empty() {
            return Err(bad("command", "names no program"));
        }
        let programs = &self.settings.programs;
        let start = Start::find(&self.ground, &programs.workspace, asked.cwd)?;
        let cwd = start.path;
        let mut argv: Vec<OsString> = match shell {
            true => {
                programs.allowed("shell", "sh", &cwd)?;
                [SHELL, "-c", command, "sh"].map(OsString::from).to_vec()
            }
            false => vec![programs.allowed("command", command, &cwd)?],
        };
        argv.extend(asked.args.iter().map(OsString::from));
        if let Some(at) = argv.iter().position(|word| has_zero(word)) {
            let field = if at < 3 && shell || at == 0 {
                "command"
            } else {
                "args"
            };
            return Err(bad(field, "holds a zero byte"));
        }
        let search = programs.search_path(&argv[0]);
        let mut spec = Spec::new(argv, cwd);
        spec.folder = start.folder;
        spec.search = Some(search);
        spec.env = programs.env(&asked.env, needs.map(|needs| &**needs))?;
        spec.limits = self.settings.limits.clone();
        spec.confine = needs.cloned();
        let found = resolve(&spec).map_err(|error| not_started(&error))?;
        spec.named_by_caller = !shell && programs.comes_alone(command, &found);
        Ok(spec)
    }
}

fn has_zero(word: &OsStr) -> bool {
    word.as_encoded_bytes().contains(&0)
}

/// A program that was not started. Nothing has run.
pub(crate) fn not_started(error: &SpawnError) -> Fault {
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
            .with("reason", NOT_EXECUTABLE),
        SpawnError::OutOfReach { .. } => Fault::denied(text)
            .with("field", "command")
            .with("reason", OUT_OF_REACH),
        SpawnError::Step { step, .. } if step.starts_with("not a program") => Fault::denied(text)
            .with("field", "command")
            .with("reason", NOT_EXECUTABLE),
        SpawnError::Cwd { .. } => bad("cwd", "can not be entered"),
        SpawnError::BadSpec { reason, .. } => bad("command", *reason),
        SpawnError::TooLarge { .. } => Fault::bad_value(text)
            .with("field", "args")
            .with("reason", "too long together with the environment"),
        SpawnError::Lost { .. } => Fault::Crash { message: text },
        SpawnError::NoProcesses { .. }
        | SpawnError::Writes { .. }
        | SpawnError::Step { .. }
        | SpawnError::Spawner { .. } => Fault::Unavailable { reason: text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::arguments;
    use crate::exec::{ExecParts, ExecSettings, Hosts, HostsFuture, OpenHosts};
    use crate::programs::Allowed;
    use crate::programs::mutated::{Scene, check_refusal, params};
    use callgate_call::{Clock, ManualClock, Secrets, Tier, Timestamp};
    use callgate_sandbox::{Child, Limits, Spawner};
    use callgate_store::{Options, Store};
    use callgate_testing::Random;
    use serde_json::Value;

    struct Nobody;

    impl Hosts for Nobody {
        fn open<'a>(
            &'a self,
            _: &'a mut Child,
            _: &'a Needs,
        ) -> HostsFuture<'a, Result<Option<Box<dyn OpenHosts>>, Fault>> {
            Box::pin(std::future::ready(Ok(None)))
        }
    }

    fn exec(scene: &Scene) -> Exec {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp(1)));
        let state = scene.root.join("state");
        let store = Store::open(&state, Options::default(), Arc::clone(&clock)).unwrap();
        let programs = scene.programs.clone();
        Exec {
            ground: scene.ground(),
            settings: ExecSettings {
                programs,
                own: scene.own.clone(),
                limits: Limits::default(),
                tier: Tier::System,
                needs: Arc::default(),
            },
            parts: ExecParts {
                // It makes nothing before it is asked to.
                spawner: Spawner::new("/nowhere".into()),
                hosts: Box::new(Nobody),
                store: Arc::new(store),
                secrets: Secrets::default(),
                clock,
            },
        }
    }

    /// 100,000 changed params: what is taken is what was asked for, in the workspace, by a
    /// program that is allowed, and what is refused is told with its field.
    #[test]
    fn mutated_commands() {
        let mut scene = Scene::new("commands");
        let listed = ["tool", "sh", "bin/inside", "nothing"];
        let workspace = &scene.programs.workspace;
        scene.programs.allow = listed
            .map(|program| Allowed::new(workspace, program))
            .into();
        let inside = scene.programs.workspace.join("bin/inside");
        let inside = inside.to_str().unwrap().to_owned();
        let exec = exec(&scene);
        let mut random = Random::new("mutated commands");
        let mut taken = 0;
        for _ in 0..100_000 {
            let asked = params(&mut random);
            let spec = match exec.spec(&arguments(&asked).unwrap(), None) {
                Ok(spec) => spec,
                Err(fault) => {
                    check_refusal(&asked, &fault);
                    continue;
                }
            };
            scene.check(&asked, &spec.cwd, &spec.env);
            scene.check_search(&asked, spec.search.as_ref().unwrap());
            let is_named = asked["cwd"].is_string();
            assert_eq!(spec.folder.is_some(), is_named, "{asked}");
            let command = asked["command"].as_str().unwrap();
            let mut argv = match asked["shell"] == true {
                true => vec!["/bin/sh", "-c", command, "sh"],
                false => vec![command],
            };
            // A path is run by where it leads, from wherever it is named.
            if argv[0].contains('/') && asked["shell"] != true {
                argv[0] = &inside;
            }
            assert!(listed.iter().any(|known| argv[0].ends_with(known)));
            let args = asked["args"].as_array().into_iter().flatten();
            argv.extend(args.filter_map(Value::as_str));
            assert_eq!(spec.argv, argv, "{asked}");
            assert!(
                !argv.concat().contains('\0') && resolve(&spec).is_ok(),
                "{asked}"
            );
            taken += 1;
        }
        assert!(taken > 0 && taken < 100_000);
    }
}
