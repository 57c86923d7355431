//! The runner of each kind of tool, made of what is written of it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Isolation, Needs, Runner};
use callgate_runners::{
    ExecutorRunner, ExecutorSettings, Executors, NodeSettings, PoolPlan, PoolRunner, PoolSettings,
    ProcessRunner, ProcessSettings, PythonSettings, interpreter, node, node_plan, python_plan,
};
use callgate_sandbox::{Limits, SpawnError, Spec, real, resolve, scrubbed_env};

use super::{NoProgram, PoolKey, SettingError, UnsetVariable, Workshop};
use crate::bounds::check_bounds;
use crate::code::LoadedCode;
use crate::config::{ExecutorRunnerConfig, LimitsConfig, PoolConfig, RunnerConfig, ToolConfig};
use crate::environment::{Environment, Referrer};
use crate::remote::{self, Remotes};
use crate::workspace::escapes;

/// Where the Python worker finds what to import once.
const PRELOAD_VARIABLE: &str = "CALLGATE_PRELOAD";

/// Tells the Python and the Node worker what they may import from the workspace.
pub const IMPORTS_ARGUMENT: &str = "--imports";

/// Tells other Python programs the same.
const IMPORTS_VARIABLE: &str = "CALLGATE_IMPORTS";

/// Where Python programs find what holds them to it.
const PYTHON_PATH: &str = "PYTHONPATH";

/// What a tool runs, beside what its runner's table says.
pub(super) struct Loaded<'a> {
    /// The folders of its pack, where it is of one.
    pub pack: &'a [PathBuf],
    /// What it loads from the workspace.
    pub code: &'a LoadedCode,
}

/// The bounds of a worker pool, as written and as decided.
struct PoolBounds<'a> {
    limits: &'a LimitsConfig,
    pool: &'a PoolConfig,
    isolation: Isolation,
}

impl PoolBounds<'_> {
    fn set(&self, settings: &mut PoolSettings) {
        fn set<T>(place: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *place = value;
            }
        }
        let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
        let Self { limits, pool, .. } = self;
        settings.limits = child_limits(limits);
        settings.isolation = self.isolation;
        set(&mut settings.output_bytes_max, limits.output_bytes);
        set(&mut settings.workers_max, pool.workers_max);
        set(&mut settings.queue_max, pool.queue_max);
        set(&mut settings.backoff_min, ms(pool.backoff_min_ms));
        set(&mut settings.backoff_max, ms(pool.backoff_max_ms));
        set(&mut settings.crashes_max, pool.crashes_max);
        set(&mut settings.crash_window, ms(pool.crash_window_ms));
        set(&mut settings.idle_max, ms(pool.idle_ms));
        set(&mut settings.calls_max, pool.calls_max);
    }
}

impl Workshop<'_> {
    /// The runner that a table describes.
    pub(super) fn runner(
        &mut self,
        config: &RunnerConfig,
        isolation: Isolation,
        loaded: &Loaded<'_>,
        needs: Option<&Needs>,
    ) -> Result<Arc<dyn Runner>, SettingError> {
        check_bounds(config)?;
        let bounds = |limits, pool| PoolBounds {
            limits,
            pool,
            isolation,
        };
        match config {
            RunnerConfig::Process {
                command,
                env,
                limits,
            } => self.process(command, env, limits, loaded.code),
            RunnerConfig::Executor(executor) => self.executor(executor, loaded.code),
            RunnerConfig::Service(service) => {
                let remotes = self.remotes()?;
                Ok(remotes.service(self.environment, &self.root, service)?)
            }
            RunnerConfig::Container(container) => {
                let remotes = self.remotes()?;
                // In a container the workspace is this folder.
                let imports = loaded.code.imports_text("/workspace");
                Ok(remotes.container(self.environment, &self.root, container, &imports)?)
            }
            RunnerConfig::Pool {
                command,
                entry,
                env,
                limits,
                pool,
            } => {
                let plan = self.program_plan(command, env, &bounds(limits, pool), loaded.code)?;
                Ok(self.pooled(plan, needs, entry.clone(), "pool"))
            }
            RunnerConfig::Python {
                entry,
                python,
                preload,
                env,
                limits,
                pool,
            } => {
                let interpreter = (python.as_deref(), preload.as_slice());
                let plan =
                    self.python_plan(entry, interpreter, env, &bounds(limits, pool), loaded)?;
                Ok(self.pooled(plan, needs, Some(entry.clone()), "python"))
            }
            RunnerConfig::Node {
                entry,
                node,
                env,
                limits,
                pool,
            } => {
                let node = node.as_deref();
                let plan = self.node_plan(entry, node, env, &bounds(limits, pool), loaded)?;
                // What a pack runs is its verified code.
                let entry = match loaded.pack.first() {
                    Some(folder) => folder.join(entry).to_string_lossy().into_owned(),
                    None => entry.clone(),
                };
                Ok(self.pooled(plan, needs, Some(entry), "node"))
            }
        }
    }

    /// A runner over the pool of a plan, which other tools may share.
    fn pooled(
        &mut self,
        plan: PoolPlan,
        needs: Option<&Needs>,
        entry: Option<String>,
        kind: &'static str,
    ) -> Arc<dyn Runner> {
        let pool = self.pools.get(PoolKey::new(plan, needs), &self.spawner);
        Arc::new(PoolRunner::new(pool, entry, kind))
    }

    fn program_plan(
        &self,
        command: &[String],
        declared: &BTreeMap<String, String>,
        bounds: &PoolBounds<'_>,
        code: &LoadedCode,
    ) -> Result<PoolPlan, SettingError> {
        let (command, env) = (words(command)?, self.program_env(declared, code)?);
        let mut settings = PoolSettings::new(command, env, self.root.clone());
        settings.secrets = self.secrets_of(declared);
        bounds.set(&mut settings);
        Ok(PoolPlan::program(settings))
    }

    fn python_plan(
        &self,
        entry: &str,
        (python, preload): (Option<&str>, &[String]),
        declared: &BTreeMap<String, String>,
        bounds: &PoolBounds<'_>,
        loaded: &Loaded<'_>,
    ) -> Result<PoolPlan, SettingError> {
        if !entry.contains(':') {
            return Err(entry_error(entry, "module:function"));
        }
        let imports = loaded.code.imports_text(&self.root.to_string_lossy());
        let mut env = child_env(self.environment, declared)?;
        self.leave_out_user_site(&mut env);
        if !preload.is_empty() {
            env.push((PRELOAD_VARIABLE.into(), preload.join(" ").into()));
        }
        let settings = PythonSettings {
            workspace: self.root.clone(),
            interpreter: python.map(PathBuf::from),
            worker: [
                (self.worker)(),
                vec![IMPORTS_ARGUMENT.into(), imports.into()],
                loaded.pack.iter().map(OsString::from).collect(),
            ]
            .concat(),
            env,
        };
        Ok(python_plan(settings, |settings| {
            bounds.set(settings);
            settings.secrets = self.secrets_of(declared);
        }))
    }

    fn node_plan(
        &self,
        entry: &str,
        node: Option<&str>,
        declared: &BTreeMap<String, String>,
        bounds: &PoolBounds<'_>,
        loaded: &Loaded<'_>,
    ) -> Result<PoolPlan, SettingError> {
        let file = entry.rsplit_once(':').map(|(file, _)| file);
        if file.is_none_or(escapes) {
            return Err(entry_error(entry, "file:function"));
        }
        let mut imports = loaded.code.imports_text(&self.root.to_string_lossy());
        // A pack's code may be below the workspace, in the state.
        for folder in loaded.pack {
            imports.push('\n');
            imports.push_str(&folder.to_string_lossy());
        }
        let settings = NodeSettings {
            workspace: self.root.clone(),
            interpreter: node.map(PathBuf::from),
            worker: [
                (self.node_worker)(),
                vec![IMPORTS_ARGUMENT.into(), imports.into()],
            ]
            .concat(),
            env: child_env(self.environment, declared)?,
        };
        Ok(node_plan(settings, |settings| {
            bounds.set(settings);
            settings.secrets = self.secrets_of(declared);
        }))
    }

    fn process(
        &self,
        command: &[String],
        declared: &BTreeMap<String, String>,
        limits: &LimitsConfig,
        code: &LoadedCode,
    ) -> Result<Arc<dyn Runner>, SettingError> {
        let (command, env) = (words(command)?, self.program_env(declared, code)?);
        let mut settings = ProcessSettings::new(command, env, self.root.clone());
        settings.secrets = self.secrets_of(declared);
        settings.limits = child_limits(limits);
        if let Some(bytes) = limits.output_bytes {
            settings.output_bytes_max = bytes;
        }
        let spawner = Arc::clone(&self.spawner);
        Ok(Arc::new(ProcessRunner::new(spawner, settings)))
    }

    fn executor(
        &self,
        config: &ExecutorRunnerConfig,
        loaded: &LoadedCode,
    ) -> Result<Arc<dyn Runner>, SettingError> {
        let runs = self.runs.as_ref();
        let (executors, usual) = runs.ok_or(SettingError::Unregistered("a streamed run"))?;
        let settings = ExecutorSettings {
            command: words(&config.words())?,
            env: self.program_env(&config.env, loaded)?,
            secrets: self.secrets_of(&config.env),
            cwd: self.root.clone(),
            limits: child_limits(&config.limits),
            order: config.order(usual.clone())?,
        };
        let executors = Executors::clone(executors);
        Ok(Arc::new(ExecutorRunner::new(executors, settings)))
    }

    fn remotes(&self) -> Result<Arc<Remotes>, SettingError> {
        let make = self.remotes.ok_or(SettingError::Unregistered("remote"))?;
        Ok(make())
    }

    /// The environment of a program: one that is Python is held to the code of its tool.
    fn program_env(
        &self,
        declared: &BTreeMap<String, String>,
        loaded: &LoadedCode,
    ) -> Result<Vec<(OsString, OsString)>, UnsetVariable> {
        let mut env = child_env(self.environment, declared)?;
        self.leave_out_user_site(&mut env);
        if !loaded.is_python_program {
            return Ok(env);
        }
        let worker = (self.worker)();
        let folder = worker.first().map(Path::new).and_then(Path::parent);
        // Without a state to lay it out in, there is none.
        let Some(folder) = folder.filter(|folder| folder.is_absolute()) else {
            return Ok(env);
        };
        let mut path = folder.join("guard").into_os_string();
        if let Some(at) = env.iter().position(|(name, _)| name == PYTHON_PATH) {
            path.push(":");
            path.push(env.swap_remove(at).1);
        }
        env.push((PYTHON_PATH.into(), path));
        let imports = loaded.imports_text(&self.root.to_string_lossy());
        env.push((IMPORTS_VARIABLE.into(), imports.into()));
        Ok(env)
    }

    /// Keeps Python from packages in a home that lies in the workspace, where callers write.
    fn leave_out_user_site(&self, env: &mut Vec<(OsString, OsString)>) {
        let home = env.iter().find(|(name, _)| name == "HOME");
        if home.is_some_and(|(_, home)| real(Path::new(home)).starts_with(&self.root)) {
            env.push(("PYTHONNOUSERSITE".into(), "1".into()));
        }
    }

    /// Where the worker stands that ships with us, where a tool runs it and it is a file.
    pub(super) fn worker_folder(
        &self,
        config: &ToolConfig,
        loaded: &LoadedCode,
    ) -> Option<PathBuf> {
        let command = match config.runner.as_ref()? {
            RunnerConfig::Python { .. } => (self.worker)(),
            RunnerConfig::Node { .. } => (self.node_worker)(),
            RunnerConfig::Process { .. }
            | RunnerConfig::Pool { .. }
            | RunnerConfig::Executor(_)
                if loaded.is_python_program =>
            {
                (self.worker)()
            }
            RunnerConfig::Process { .. }
            | RunnerConfig::Pool { .. }
            | RunnerConfig::Executor(_)
            | RunnerConfig::Service(_)
            | RunnerConfig::Container(_) => return None,
        };
        let file = Path::new(command.first()?);
        let folder = file.parent().filter(|_| file.is_absolute())?;
        // Python's is a module of a package, which is found by the folder above.
        match folder.file_name()?.to_str() {
            Some("callgate") => folder.parent().map(Path::to_owned),
            _ => Some(folder.to_owned()),
        }
    }

    /// Which variables of a child hold a secret, and its name.
    fn secrets_of(&self, declared: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let secret = |name: &str| self.secrets.iter().find(|secret| *secret == name).cloned();
        let of =
            |name: &str, value: &str| reference(value).and_then(secret).or_else(|| secret(name));
        declared
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), of(name, value)?)))
            .collect()
    }
}

fn entry_error(entry: &str, form: &'static str) -> SettingError {
    SettingError::Entry {
        entry: entry.to_owned(),
        form,
    }
}

/// Why the program of a runner is not found.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The runner's table names none.
    #[error(transparent)]
    Unnamed(#[from] NoProgram),
    /// A variable of its environment.
    #[error(transparent)]
    Variable(#[from] UnsetVariable),
    /// The program is not there.
    #[error(transparent)]
    Missing(#[from] SpawnError),
}

/// The allow list and what the tool declares; `${NAME}` takes a variable of ours.
pub fn child_env(
    environment: &Environment,
    declared: &BTreeMap<String, String>,
) -> Result<Vec<(OsString, OsString)>, UnsetVariable> {
    let mut env = scrubbed_env(environment.variables(), &[]);
    for (name, value) in declared {
        let value = match reference(value) {
            None => OsString::from(value),
            Some(ours) => environment
                .referred(ours, Referrer::Tool)
                .ok_or_else(|| UnsetVariable(ours.to_owned()))?
                .to_owned(),
        };
        env.retain(|(known, _)| known != name.as_str());
        env.push((name.into(), value));
    }
    Ok(env)
}

/// The variable of ours that a value stands for.
fn reference(value: &str) -> Option<&str> {
    value.strip_prefix("${")?.strip_suffix('}')
}

/// The file a runner would start, if it starts any, found as its start would find it.
pub fn program_of(
    environment: &Environment,
    root: &Path,
    config: &RunnerConfig,
) -> Result<Option<PathBuf>, ProgramError> {
    let (command, env) = match config {
        RunnerConfig::Process { command, env, .. } | RunnerConfig::Pool { command, env, .. } => {
            (words(command)?, env)
        }
        RunnerConfig::Executor(executor) => (words(&executor.words())?, &executor.env),
        RunnerConfig::Python { python, env, .. } => {
            let named = interpreter(root, python.as_deref().map(Path::new));
            (vec![named.into_os_string()], env)
        }
        RunnerConfig::Node { node, env, .. } => {
            let named = self::node(node.as_deref().map(Path::new));
            (vec![named.into_os_string()], env)
        }
        RunnerConfig::Service(_) => return Ok(None),
        RunnerConfig::Container(container) => {
            return Ok(Some(remote::client_program(environment, root, container)?));
        }
    };
    let mut spec = Spec::new(command, root.to_owned());
    spec.env = child_env(environment, env)?;
    Ok(Some(resolve(&spec)?))
}

/// The words of a command, the program first.
pub fn words(command: &[String]) -> Result<Vec<OsString>, NoProgram> {
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command.iter().map(OsString::from).collect()),
        _ => Err(NoProgram),
    }
}

/// The limits of a child as the sandbox takes them.
pub fn child_limits(config: &LimitsConfig) -> Limits {
    Limits {
        address_space_bytes: config.memory_bytes,
        cpu_seconds: config.cpu_seconds,
        file_size_bytes: config.file_bytes,
        open_files: config.open_files,
        processes: config.processes,
        cpu_percent: config.cpu_percent,
    }
}
