//! Tools out of configuration: names, schemas, tiers, and the runner each one gets.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Face, Fault, Job, RunFuture, Runner, Tier, Tool, aid_of_name, is_name};
use callgate_runners::{
    Pool, PoolRunner, PoolSettings, ProcessRunner, ProcessSettings, PythonSettings, interpreter,
    python_pool,
};
use callgate_sandbox::{Limits, Spawner, Spec, resolve, scrubbed_env};
use callgate_wires::toolhost::tier_of_side_effects;

use crate::config::{LimitsConfig, PoolConfig, RunnerConfig, SchemaSource, ToolConfig};
use crate::environment::Environment;
use crate::needs::Ground;
use crate::workspace::any_object;

/// Calls of one tool at the same time, where nothing is said.
const CONCURRENCY_MAX_DEFAULT: usize = 64;

/// Makes tools out of their configuration.
pub struct Workshop<'a> {
    /// For `${NAME}` and the allow list.
    pub environment: &'a Environment,
    /// Children's working folder.
    pub root: PathBuf,
    /// Where children come from.
    pub spawner: Arc<Spawner>,
    /// What is the gate's own.
    pub ground: Ground,
    /// The variables of ours that hold a secret.
    pub secrets: &'a [String],
    /// What Python runs; made on first need.
    pub worker: &'a dyn Fn() -> Vec<OsString>,
    /// Pools are shared by the tools that name the same program, environment and bounds.
    pub pools: HashMap<String, Arc<Pool>>,
}

impl Workshop<'_> {
    /// The tool a `[[tool]]` describes.
    pub fn tool(&mut self, config: ToolConfig) -> Result<Tool, String> {
        let about = |reason: String| format!("tool `{}`: {reason}", config.name);
        if !is_name(&config.name) {
            return Err(about(
                "a name is segments of letters, digits, `_`, `-` and `.`, joined by `/`".to_owned(),
            ));
        }
        let aid = config
            .aid
            .clone()
            .unwrap_or_else(|| aid_of_name(&config.name));
        let tier = config
            .tier
            .unwrap_or_else(|| tier_of_side_effects(&aid, &config.side_effects));
        let tier = Tier::from_number(tier)
            .ok_or_else(|| about(format!("tier: {tier} is not 0, 1, 2 or 3")))?;
        let runner: Arc<dyn Runner> = match &config.runner {
            Some(runner) => self.runner(runner).map_err(about)?,
            None => Arc::new(NoRunner),
        };
        let needs = match &config.runner {
            None => None,
            Some(runner) => {
                let worker = self.worker_folder(runner);
                let needs = self.ground.needs(&config, worker.as_deref());
                Some(Arc::new(needs.map_err(about)?))
            }
        };
        let rate_limit = config
            .rate_limit
            .map(|rate| rate.read().map_err(about))
            .transpose()?;
        Ok(Tool {
            aid,
            face: Face {
                title: config.title,
                icons: config.icons,
            },
            gives_content: config.gives_content,
            tasks: config.tasks.into(),
            timeout_cap: timeout(config.timeout_max_ms).map_err(about)?,
            description: config.description,
            input_schema: schema(config.input_schema).unwrap_or_else(any_object),
            output_schema: schema(config.output_schema),
            tags: config.tags,
            tier,
            timeout: timeout(config.timeout_ms).map_err(about)?,
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
            runner,
        })
    }

    fn runner(&mut self, config: &RunnerConfig) -> Result<Arc<dyn Runner>, String> {
        check_bounds(config)?;
        match config {
            RunnerConfig::Process {
                command,
                env,
                limits,
            } => {
                let secrets = self.secrets_of(env);
                let env = child_env(self.environment, env)?;
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
                let key = format!("{command:?} {env:?} {limits:?} {pool:?}");
                let declared = env;
                let pool = self.shared(key, |shop| {
                    let (command, env) = (words(command)?, child_env(shop.environment, env)?);
                    let secrets = shop.secrets_of(declared);
                    let mut settings = PoolSettings::new(command, env, shop.root.clone());
                    settings.secrets = secrets;
                    tune(&mut settings, limits, pool);
                    Ok(Pool::new(Arc::clone(&shop.spawner), settings))
                })?;
                Ok(Arc::new(PoolRunner::new(pool, entry.clone(), "pool")))
            }
            RunnerConfig::Python {
                entry,
                python,
                env,
                limits,
                pool,
            } => {
                if !entry.contains(':') {
                    return Err(format!("entry `{entry}` is not `module:function`"));
                }
                let key = format!("python {python:?} {env:?} {limits:?} {pool:?}");
                let pool = self.shared(key, |shop| {
                    let settings = PythonSettings {
                        workspace: shop.root.clone(),
                        interpreter: python.as_ref().map(PathBuf::from),
                        worker: (shop.worker)(),
                        env: child_env(shop.environment, env)?,
                    };
                    let tune = |settings: &mut PoolSettings| {
                        tune(settings, limits, pool);
                        settings.secrets = shop.secrets_of(env);
                    };
                    Ok(python_pool(Arc::clone(&shop.spawner), settings, tune))
                })?;
                Ok(Arc::new(PoolRunner::new(
                    pool,
                    Some(entry.clone()),
                    "python",
                )))
            }
        }
    }

    /// The folder of the Python worker, where it is a file.
    fn worker_folder(&self, runner: &RunnerConfig) -> Option<PathBuf> {
        if !matches!(runner, RunnerConfig::Python { .. }) {
            return None;
        }
        let command = (self.worker)();
        let file = Path::new(command.first()?);
        // The package's folder is on the path of its modules: `…/callgate/worker.py`.
        file.is_absolute()
            .then(|| file.parent()?.parent().map(Path::to_owned))?
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

/// The allow list and what the tool declares; `${NAME}` takes a variable of ours.
fn child_env(
    environment: &Environment,
    declared: &BTreeMap<String, String>,
) -> Result<Vec<(OsString, OsString)>, String> {
    let mut env = scrubbed_env(environment.variables(), &[]);
    for (name, value) in declared {
        let value = match reference(value) {
            None => OsString::from(value),
            Some(ours) => environment
                .os(ours)
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

/// The file a runner would start, found as its start would find it.
pub fn program_of(
    environment: &Environment,
    root: &Path,
    config: &RunnerConfig,
) -> Result<PathBuf, String> {
    let (command, env) = match config {
        RunnerConfig::Process { command, env, .. } | RunnerConfig::Pool { command, env, .. } => {
            (words(command)?, env)
        }
        RunnerConfig::Python { python, env, .. } => {
            let named = interpreter(root, python.as_deref().map(Path::new));
            (vec![named.into_os_string()], env)
        }
    };
    let mut spec = Spec::new(command, root.to_owned());
    spec.env = child_env(environment, env)?;
    resolve(&spec).map_err(|error| error.to_string())
}

/// The longest a tool may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

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

/// Refuses numbers that could only be slips, before they become queues and buffers.
fn check_bounds(config: &RunnerConfig) -> Result<(), String> {
    let (limits, pool) = match config {
        RunnerConfig::Process { limits, .. } => (limits, &PoolConfig::default()),
        RunnerConfig::Pool { limits, pool, .. } | RunnerConfig::Python { limits, pool, .. } => {
            (limits, pool)
        }
    };
    let within = |name: &str, value: Option<usize>, max: usize| match value {
        Some(value) if value == 0 || value > max => {
            Err(format!("{name}: {value} is not 1 to {max}"))
        }
        _ => Ok(()),
    };
    within("output_bytes", limits.output_bytes, 1 << 30)?;
    within("workers_max", pool.workers_max, 1024)?;
    within("queue_max", pool.queue_max, 65_536)?;
    within("crashes_max", pool.crashes_max, 1_000_000)
}

fn words(command: &[String]) -> Result<Vec<OsString>, String> {
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

fn child_limits(config: &LimitsConfig) -> Limits {
    Limits {
        address_space_bytes: config.memory_bytes,
        cpu_seconds: config.cpu_seconds,
        file_size_bytes: config.file_bytes,
        open_files: config.open_files,
        processes: config.processes,
    }
}

fn tune(settings: &mut PoolSettings, limits: &LimitsConfig, pool: &PoolConfig) {
    fn set<T>(place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
        }
    }
    let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
    settings.limits = child_limits(limits);
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

/// A tool of another host's pack: listed, and not available. T-23.
struct NoRunner;

impl Runner for NoRunner {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        let reason = "the pack says no `runner` for this tool".to_owned();
        Box::pin(std::future::ready(Err(Fault::Unavailable { reason })))
    }

    fn kind(&self) -> &'static str {
        "none"
    }
}
