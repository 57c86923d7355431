//! Tools out of configuration: names, schemas, tiers, and the runner each one gets.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Face, Fault, Guarantee, Isolation, Job, Needs, RunFuture, RunOrder, Runner, Tier, Tool,
    aid_of_name, is_name, visible,
};
use callgate_runners::{
    ExecutorRunner, ExecutorSettings, Executors, NodeSettings, Pool, PoolRunner, PoolSettings,
    ProcessRunner, ProcessSettings, PythonSettings, interpreter, node, node_pool, python_pool,
};
use callgate_sandbox::{Limits, Spawner, Spec, real, resolve, scrubbed_env};
use callgate_tools::runs::{RUN_TIMEOUT, RUN_TIMEOUT_CAP};
use callgate_wires::tool_protocol::slug;
use callgate_wires::toolhost::tier_of_side_effects;

use crate::bounds::check_bounds;
use crate::code::LoadedCode;
use crate::config::{
    ExecutorRunnerConfig, IsolationConfig, LimitsConfig, ModeConfig, PoolConfig, RunnerConfig,
    SchemaSource, ToolConfig,
};
use crate::environment::{Environment, Referrer};
use crate::needs::{Ground, guarantees};
use crate::project::{Bound, Code};
use crate::remote::{self, Remotes};
use crate::workspace::{any_object, escapes};

/// Calls of one tool at the same time, where nothing is said.
const CONCURRENCY_MAX_DEFAULT: usize = 64;

/// Where the Python worker finds what to import once.
const PRELOAD_VARIABLE: &str = "CALLGATE_PRELOAD";

/// Tells the Python and the Node worker what they may import from the workspace.
pub const IMPORTS_ARGUMENT: &str = "--imports";

/// Tells other Python programs the same.
const IMPORTS_VARIABLE: &str = "CALLGATE_IMPORTS";

/// Where Python programs find what holds them to it.
const PYTHON_PATH: &str = "PYTHONPATH";

/// Makes tools out of their configuration.
pub struct Workshop<'a> {
    /// For `${NAME}` and the allow list.
    pub environment: &'a Environment,
    /// Children's working folder.
    pub root: PathBuf,
    /// Where children come from.
    pub spawner: Arc<Spawner>,
    /// What is the gate's own.
    pub ground: &'a Ground,
    /// The variables of ours that hold a secret.
    pub secrets: &'a [String],
    /// What Python runs; made on first need.
    pub worker: &'a dyn Fn() -> Vec<OsString>,
    /// What Node runs; made on first need.
    pub node_worker: &'a dyn Fn() -> Vec<OsString>,
    /// Where a pack's code is; made on first need.
    pub lay_out: &'a dyn Fn(&Code) -> Result<PathBuf, String>,
    /// For services and containers; made on first need.
    pub remotes: Option<&'a dyn Fn() -> Arc<Remotes>>,
    /// For streamed runs: who starts them, and what they have that say nothing.
    pub runs: Option<(&'a Executors, RunOrder)>,
    /// Pools are shared by the tools that name the same program, environment and bounds, and
    /// are held to the same.
    pub pools: HashMap<String, Arc<Pool>>,
}

impl Workshop<'_> {
    /// The tool a `[[tool]]` describes.
    pub fn tool(&mut self, config: ToolConfig) -> Result<Tool, String> {
        let config = named(config)?;
        let about = |reason: String| format!("tool `{}`: {reason}", config.name);
        let aid = config
            .aid
            .clone()
            .unwrap_or_else(|| aid_of_name(&config.name));
        let tier = config
            .tier
            .unwrap_or_else(|| tier_of_side_effects(&aid, &config.side_effects));
        let tier = Tier::from_number(tier)
            .ok_or_else(|| about(format!("tier: {tier} is not a number from 0 to 3")))?;
        let isolation = match &config.runner {
            Some(runner) => {
                let bound = config.bound.as_ref();
                let pack = bound.is_some_and(|bound| bound.code.is_some());
                let promised = guarantees(&config).requires(Guarantee::NoEnvWrite);
                isolation(config.isolation, runner, pack, promised).map_err(about)?
            }
            None => Isolation::default(),
        };
        let code = self.code(config.bound.as_deref());
        let loaded = self.ground.code_of(&config);
        let own = code.iter().flatten().take(1).cloned();
        let own: Vec<PathBuf> = own.chain(self.worker_folder(&config, &loaded)).collect();
        let needs = self.ground.needs(&config, isolation, own).map_err(about)?;
        let runner: Arc<dyn Runner> = match (&config.runner, &code) {
            (Some(runner), Ok(code)) => {
                let made = self.runner(runner, isolation, (code, &loaded), needs.as_deref());
                made.map_err(about)?
            }
            // A state that takes no files must not cost the other tools (T-12).
            (Some(_), Err(reason)) => Arc::new(NoRunner::new(reason.clone())),
            (None, _) => Arc::new(NoRunner::default()),
        };
        let [timeout, timeout_cap] = timeouts(&config).map_err(about)?;
        let bound = config.bound.map(|bound| *bound);
        let rate_limit = config
            .rate_limit
            .map(|rate| rate.read().map_err(about))
            .transpose()?;
        Ok(Tool {
            runs_callers_code: false,
            declared: config.declared,
            aid,
            entry: config.runner.as_ref().and_then(RunnerConfig::entry),
            face: Face {
                title: config.title,
                icons: config.icons,
            },
            hidden_over_mcp: None,
            gives_content: config.gives_content,
            gives_resources: matches!(config.runner, Some(RunnerConfig::Executor(_))),
            tasks: config.tasks.into(),
            timeout_cap,
            description: config.description,
            version: config.version,
            input_schema: schema(config.input_schema).unwrap_or_else(any_object),
            output_schema: schema(config.output_schema),
            tags: config.tags,
            tier,
            timeout,
            rate_limit,
            concurrency_max: config.concurrency_max.unwrap_or(CONCURRENCY_MAX_DEFAULT),
            idempotent: config.idempotent,
            deterministic: config.deterministic,
            side_effects: config.side_effects,
            replay_inputs: config.replay_inputs,
            aliases: config.aliases,
            writes: config.writes,
            slots: config.slots,
            name: config.name,
            needs,
            in_toolpack: config.in_toolpack,
            origin: bound.map(|bound| bound.origin),
            tells: Vec::new(),
            runner,
        })
    }

    /// The folders of a pack in which its modules are looked for, the pack's own first.
    fn code(&self, bound: Option<&Bound>) -> Result<Vec<PathBuf>, String> {
        let local = bound.filter(|bound| bound.origin.runner == "local");
        let Some(code) = local.and_then(|bound| bound.code.as_deref()) else {
            return Ok(Vec::new());
        };
        let root = (self.lay_out)(code)?;
        let folders = ["src", "tools"].map(|name| root.join(name));
        let there = folders.into_iter().filter(|folder| folder.is_dir());
        Ok([root.clone()].into_iter().chain(there).collect())
    }

    fn runner(
        &mut self,
        config: &RunnerConfig,
        isolation: Isolation,
        (code, loaded): (&[PathBuf], &LoadedCode),
        needs: Option<&Needs>,
    ) -> Result<Arc<dyn Runner>, String> {
        check_bounds(config)?;
        let imports = loaded.imports_text(&self.root.to_string_lossy());
        match config {
            RunnerConfig::Process {
                command,
                env,
                limits,
            } => {
                let secrets = self.secrets_of(env);
                let env = self.program_env(env, loaded)?;
                let mut settings = ProcessSettings::new(words(command)?, env, self.root.clone());
                settings.secrets = secrets;
                settings.limits = child_limits(limits);
                if let Some(bytes) = limits.output_bytes {
                    settings.output_bytes_max = bytes;
                }
                Ok(Arc::new(ProcessRunner::new(
                    Arc::clone(&self.spawner),
                    settings,
                )))
            }
            RunnerConfig::Pool {
                command,
                entry,
                env,
                limits,
                pool,
            } => {
                let key =
                    format!("{command:?} {env:?} {limits:?} {pool:?} {needs:?} {isolation:?}");
                let declared = env;
                let pool = self.shared(key, |shop| {
                    let (command, env) = (words(command)?, shop.program_env(env, loaded)?);
                    let secrets = shop.secrets_of(declared);
                    let mut settings = PoolSettings::new(command, env, shop.root.clone());
                    settings.secrets = secrets;
                    tune(&mut settings, limits, pool, isolation);
                    Ok(Pool::new(Arc::clone(&shop.spawner), settings))
                })?;
                Ok(Arc::new(PoolRunner::new(pool, entry.clone(), "pool")))
            }
            RunnerConfig::Python {
                entry,
                python,
                preload,
                env,
                limits,
                pool,
            } => {
                if !entry.contains(':') {
                    return Err(format!("entry `{entry}` is not `module:function`"));
                }
                let key = format!(
                    "python {python:?} {preload:?} {env:?} {limits:?} {pool:?} {code:?} {imports:?} {needs:?} {isolation:?}"
                );
                let pool = self.shared(key, |shop| {
                    let secrets = shop.secrets_of(env);
                    let mut env = child_env(shop.environment, env)?;
                    shop.leave_out_user_site(&mut env);
                    if !preload.is_empty() {
                        env.push((PRELOAD_VARIABLE.into(), preload.join(" ").into()));
                    }
                    let settings = PythonSettings {
                        workspace: shop.root.clone(),
                        interpreter: python.as_ref().map(PathBuf::from),
                        worker: [
                            (shop.worker)(),
                            vec![IMPORTS_ARGUMENT.into(), imports.clone().into()],
                            code.iter().map(OsString::from).collect(),
                        ]
                        .concat(),
                        env,
                    };
                    let tune = |settings: &mut PoolSettings| {
                        tune(settings, limits, pool, isolation);
                        settings.secrets = secrets;
                    };
                    Ok(python_pool(Arc::clone(&shop.spawner), settings, tune))
                })?;
                Ok(Arc::new(PoolRunner::new(
                    pool,
                    Some(entry.clone()),
                    "python",
                )))
            }
            RunnerConfig::Node {
                entry,
                node,
                env,
                limits,
                pool,
            } => {
                let file = entry.rsplit_once(':').map(|(file, _)| file);
                if file.is_none_or(escapes) {
                    return Err(format!("entry `{entry}` is not `file:function`"));
                }
                // What a pack runs is its verified code.
                let entry = match code.first() {
                    Some(folder) => folder.join(entry).to_string_lossy().into_owned(),
                    None => entry.clone(),
                };
                // A pack's code may be below the workspace, in the state.
                let folders = code.iter().map(|folder| format!("\n{}", folder.display()));
                let imports = imports + &folders.collect::<String>();
                let key = format!(
                    "node {node:?} {env:?} {limits:?} {pool:?} {imports:?} {needs:?} {isolation:?}"
                );
                let pool = self.shared(key, |shop| {
                    let settings = NodeSettings {
                        workspace: shop.root.clone(),
                        interpreter: node.as_ref().map(PathBuf::from),
                        worker: [
                            (shop.node_worker)(),
                            vec![IMPORTS_ARGUMENT.into(), imports.clone().into()],
                        ]
                        .concat(),
                        env: child_env(shop.environment, env)?,
                    };
                    let tune = |settings: &mut PoolSettings| {
                        tune(settings, limits, pool, isolation);
                        settings.secrets = shop.secrets_of(env);
                    };
                    Ok(node_pool(Arc::clone(&shop.spawner), settings, tune))
                })?;
                Ok(Arc::new(PoolRunner::new(pool, Some(entry), "node")))
            }
            RunnerConfig::Executor(executor) => self.executor(executor, loaded),
            RunnerConfig::Service(service) => {
                self.remotes()?
                    .service(self.environment, &self.root, service)
            }
            RunnerConfig::Container(container) => {
                // In a container the workspace is this folder.
                let imports = loaded.imports_text("/workspace");
                self.remotes()?
                    .container(self.environment, &self.root, container, &imports)
            }
        }
    }

    fn executor(
        &self,
        config: &ExecutorRunnerConfig,
        loaded: &LoadedCode,
    ) -> Result<Arc<dyn Runner>, String> {
        let runs = self.runs.as_ref();
        let (executors, usual) = runs.ok_or("only a registered tool may be a streamed run")?;
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

    fn remotes(&self) -> Result<Arc<Remotes>, String> {
        let make = self.remotes.ok_or("only a registered tool may be remote")?;
        Ok(make())
    }

    /// The environment of a program: one that is Python is held to the code of its tool.
    fn program_env(
        &self,
        declared: &BTreeMap<String, String>,
        loaded: &LoadedCode,
    ) -> Result<Vec<(OsString, OsString)>, String> {
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
    fn worker_folder(&self, config: &ToolConfig, loaded: &LoadedCode) -> Option<PathBuf> {
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

    /// The pool of this key, made if there is none yet.
    fn shared(
        &mut self,
        key: String,
        make: impl FnOnce(&Self) -> Result<Arc<Pool>, String>,
    ) -> Result<Arc<Pool>, String> {
        if let Some(pool) = self.pools.get(&key) {
            return Ok(Arc::clone(pool));
        }
        let made = make(self)?;
        self.pools.insert(key, Arc::clone(&made));
        Ok(made)
    }
}

/// A tool under a name that every wire takes. Others are kept as its declared name, by which it
/// can be called as well: `fetch a page` is `fetch_a_page` where blanks cannot be written.
fn named(mut config: ToolConfig) -> Result<ToolConfig, String> {
    let name = config.name.clone();
    if is_name(&name) {
        return Ok(config);
    }
    let plain = name.split('/').map(slug).collect::<Vec<_>>().join("/");
    let is_text = visible(&name) == name;
    let has_words = name
        .split('/')
        .all(|part| part.contains(char::is_alphanumeric));
    if !is_text || !has_words || name.trim() != name || !is_name(&plain) {
        return Err(format!(
            "tool {name:?}: a name has letters or digits in each of its parts between `/`, at most \
             128 bytes, no control characters and no blanks around it"
        ));
    }
    config.title.get_or_insert_with(|| name.clone());
    if !config.aliases.contains(&name) {
        config.aliases.push(name.clone());
    }
    config.name = plain;
    config.declared = Some(name);
    Ok(config)
}

/// What keeps one call from the next: what the tool asks for, if its runner can do it, else
/// what the runner does by itself; a pack's code is trusted less than the workspace's, and what
/// is `promised` is kept by no process that serves many calls (P-17).
fn isolation(
    asked: Option<IsolationConfig>,
    runner: &RunnerConfig,
    pack: bool,
    promised: bool,
) -> Result<Isolation, String> {
    let (usual, able): (_, &[_]) = match runner {
        RunnerConfig::Process { .. } | RunnerConfig::Executor(_) | RunnerConfig::Service(_) => {
            (Isolation::Cold, &[Isolation::Cold])
        }
        RunnerConfig::Container(container) => match container.mode {
            ModeConfig::Worker => (Isolation::Worker, &[Isolation::Worker]),
            ModeConfig::Oneshot => (Isolation::Cold, &[Isolation::Cold]),
        },
        RunnerConfig::Pool { .. } | RunnerConfig::Node { .. } => (
            if promised {
                Isolation::Cold
            } else {
                Isolation::Worker
            },
            &[Isolation::Worker, Isolation::Cold],
        ),
        RunnerConfig::Python { .. } => (
            if pack || promised {
                Isolation::Call
            } else {
                Isolation::Worker
            },
            &[Isolation::Call, Isolation::Worker, Isolation::Cold],
        ),
    };
    let isolation = asked.map_or(usual, Isolation::from);
    if able.contains(&isolation) {
        return Ok(isolation);
    }
    let able: Vec<&str> = able.iter().map(|one| one.as_str()).collect();
    Err(format!(
        "isolation: this runner is not `{}` but {}",
        isolation.as_str(),
        able.join(" or ")
    ))
}

/// The allow list and what the tool declares; `${NAME}` takes a variable of ours.
pub fn child_env(
    environment: &Environment,
    declared: &BTreeMap<String, String>,
) -> Result<Vec<(OsString, OsString)>, String> {
    let mut env = scrubbed_env(environment.variables(), &[]);
    for (name, value) in declared {
        let value = match reference(value) {
            None => OsString::from(value),
            Some(ours) => environment
                .referred(ours, Referrer::Tool)
                .ok_or_else(|| format!("env: `{ours}` is not set"))?
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
) -> Result<Option<PathBuf>, String> {
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
            return remote::client_program(environment, root, container).map(Some);
        }
    };
    let mut spec = Spec::new(command, root.to_owned());
    spec.env = child_env(environment, env)?;
    resolve(&spec).map(Some).map_err(|error| error.to_string())
}

/// The longest a tool may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest a call may take, and one that shows progress. A run that does not say has what runs
/// have on every wire (G-2b); any other tool has the wire's.
fn timeouts(config: &ToolConfig) -> Result<[Option<Duration>; 2], String> {
    let usual = match config.runner {
        Some(RunnerConfig::Executor(_)) => [Some(RUN_TIMEOUT), Some(RUN_TIMEOUT_CAP)],
        _ => [None, None],
    };
    let said = [timeout(config.timeout_ms)?, timeout(config.timeout_max_ms)?];
    Ok([said[0].or(usual[0]), said[1].or(usual[1])])
}

fn timeout(ms: Option<u64>) -> Result<Option<Duration>, String> {
    match ms.map(Duration::from_millis) {
        Some(timeout) if timeout.is_zero() || timeout > TIMEOUT_MAX => Err(format!(
            "timeout_ms: {} is not 1 to {} (a day)",
            timeout.as_millis(),
            TIMEOUT_MAX.as_millis()
        )),
        timeout => Ok(timeout),
    }
}

/// The words of a command, the program first.
pub fn words(command: &[String]) -> Result<Vec<OsString>, String> {
    match command.first() {
        Some(program) if !program.is_empty() => Ok(command.iter().map(OsString::from).collect()),
        _ => Err("command needs a program".to_owned()),
    }
}

fn schema(source: Option<SchemaSource>) -> Option<serde_json::Value> {
    match source {
        Some(SchemaSource::Inline(value)) => Some(value),
        // Files were read in `workspace.rs`.
        Some(SchemaSource::File(_)) | None => None,
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

fn tune(
    settings: &mut PoolSettings,
    limits: &LimitsConfig,
    pool: &PoolConfig,
    isolation: Isolation,
) {
    fn set<T>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
    settings.limits = child_limits(limits);
    settings.isolation = isolation;
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

/// A tool that is listed, and not available: of another host's pack (T-23), or one whose runner
/// is not there.
struct NoRunner {
    reason: String,
}

impl NoRunner {
    fn new(reason: String) -> Self {
        Self { reason }
    }
}

impl Default for NoRunner {
    fn default() -> Self {
        Self::new("the pack says no `runner` for this tool".to_owned())
    }
}

impl Runner for NoRunner {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        let reason = self.reason.clone();
        Box::pin(std::future::ready(Err(Fault::Unavailable { reason })))
    }

    fn is_there(&self) -> bool {
        false
    }

    fn kind(&self) -> &'static str {
        "none"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    /// G-2b: a tool that is a run has what runs have, and any other what its wire says, unless it
    /// says itself.
    #[test]
    fn how_long_tools_may_take() {
        let hours = |hours: u64| Some(Duration::from_secs(hours * 60 * 60));
        let second = Some(Duration::from_secs(1));
        for (says, kind, times) in [
            ("", "executor", [hours(1), hours(24)]),
            ("timeout_ms = 1000", "executor", [second, hours(24)]),
            ("timeout_max_ms = 1000", "executor", [hours(1), second]),
            ("", "process", [None, None]),
            ("timeout_max_ms = 1000", "process", [None, second]),
        ] {
            let text = format!(
                "[[tool]]\nname = \"t\"\n{says}\nrunner = {{ kind = \"{kind}\", command = [\"x\"] }}\n"
            );
            let config = parse(&text).unwrap();
            assert_eq!(timeouts(&config.tools[0]).unwrap(), times, "{text}");
        }
    }
}
