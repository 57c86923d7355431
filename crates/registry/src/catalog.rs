//! Tools out of configuration: names, schemas, tiers, and the runner each one gets.

mod error;
mod pools;
mod runners;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Face, Fault, Guarantee, Isolation, Job, RunFuture, RunOrder, Runner, Tier, Tool, aid_of_name,
    chain, is_name, visible,
};
use callgate_runners::Executors;
use callgate_sandbox::Spawner;
use callgate_tools::runs::{RUN_TIMEOUT, RUN_TIMEOUT_CAP};
use callgate_wires::tool_protocol::slug;
use callgate_wires::toolhost::tier_of_side_effects;

use crate::config::{IsolationConfig, ModeConfig, RunnerConfig, SchemaSource, ToolConfig};
use crate::environment::Environment;
use crate::needs::{Ground, guarantees};
use crate::project::{Bound, Code, LayOutError};
use crate::remote::Remotes;
use crate::workspace::any_object;

pub use error::{NoProgram, SettingError, ToolError, UnsetVariable};
pub use pools::{PoolKey, SharedPools};
use runners::Loaded;
pub use runners::{IMPORTS_ARGUMENT, ProgramError, child_env, child_limits, program_of, words};

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
    pub ground: &'a Ground,
    /// The variables of ours that hold a secret.
    pub secrets: &'a [String],
    /// What Python runs; made on first need.
    pub worker: &'a dyn Fn() -> Vec<OsString>,
    /// What Node runs; made on first need.
    pub node_worker: &'a dyn Fn() -> Vec<OsString>,
    /// Where a pack's code is; made on first need.
    pub lay_out: &'a dyn Fn(&Code) -> Result<PathBuf, LayOutError>,
    /// For services and containers; made on first need.
    pub remotes: Option<&'a dyn Fn() -> Arc<Remotes>>,
    /// For streamed runs: who starts them, and what they have that say nothing.
    pub runs: Option<(&'a Executors, RunOrder)>,
    /// Pools are shared by the tools that name the same program, environment and bounds, and
    /// are held to the same.
    pub pools: SharedPools,
}

impl Workshop<'_> {
    /// The tool a `[[tool]]` describes.
    pub fn tool(&mut self, config: ToolConfig) -> Result<Tool, ToolError> {
        let config = named(config)?;
        let name = config.name.clone();
        self.made(config).map_err(|error| error.of(&name))
    }

    fn made(&mut self, config: ToolConfig) -> Result<Tool, SettingError> {
        let aid = config
            .aid
            .clone()
            .unwrap_or_else(|| aid_of_name(&config.name));
        let tier = config
            .tier
            .unwrap_or_else(|| tier_of_side_effects(&aid, &config.side_effects));
        let tier = Tier::from_number(tier).ok_or(SettingError::Tier(tier))?;
        let isolation = match &config.runner {
            Some(runner) => {
                let bound = config.bound.as_ref();
                let pack = bound.is_some_and(|bound| bound.code.is_some());
                let promised = guarantees(&config).requires(Guarantee::NoEnvWrite);
                isolation(config.isolation, runner, pack, promised)?
            }
            None => Isolation::default(),
        };
        let code = self.code(config.bound.as_deref());
        let loaded = self.ground.code_of(&config);
        let own = code.iter().flatten().take(1).cloned();
        let own: Vec<PathBuf> = own.chain(self.worker_folder(&config, &loaded)).collect();
        let needs = self.ground.needs(&config, isolation, own)?;
        let runner: Arc<dyn Runner> = match (&config.runner, &code) {
            (Some(runner), Ok(code)) => {
                let loaded = Loaded {
                    pack: code,
                    code: &loaded,
                };
                self.runner(runner, isolation, &loaded, needs.as_deref())?
            }
            // A state that takes no files must not cost the other tools (T-12).
            (Some(_), Err(reason)) => Arc::new(NoRunner::new(chain(reason))),
            (None, _) => Arc::new(NoRunner::default()),
        };
        let [timeout, timeout_cap] = timeouts(&config)?;
        let bound = config.bound.map(|bound| *bound);
        let rate_limit = config.rate_limit.map(|rate| rate.read()).transpose()?;
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
            is_internal: false,
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
            of_server: None,
            runner,
        })
    }

    /// The folders of a pack in which its modules are looked for, the pack's own first.
    fn code(&self, bound: Option<&Bound>) -> Result<Vec<PathBuf>, LayOutError> {
        let local = bound.filter(|bound| bound.origin.runner == "local");
        let Some(code) = local.and_then(|bound| bound.code.as_deref()) else {
            return Ok(Vec::new());
        };
        let root = (self.lay_out)(code)?;
        let folders = ["src", "tools"].map(|name| root.join(name));
        let there = folders.into_iter().filter(|folder| folder.is_dir());
        Ok([root.clone()].into_iter().chain(there).collect())
    }
}

/// A tool under a name that every wire takes. Others are kept as its declared name, by which it
/// can be called as well: `fetch a page` is `fetch_a_page` where blanks cannot be written.
fn named(mut config: ToolConfig) -> Result<ToolConfig, ToolError> {
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
        return Err(ToolError::Name { name });
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
) -> Result<Isolation, SettingError> {
    let (usual, able): (_, &'static [_]) = match runner {
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
    Err(SettingError::Isolation {
        asked: isolation,
        able,
    })
}

/// The longest a tool may be given.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest a call may take, and one that shows progress. A run that does not say has what runs
/// have on every wire (G-2b); any other tool has the wire's.
fn timeouts(config: &ToolConfig) -> Result<[Option<Duration>; 2], SettingError> {
    let usual = match config.runner {
        Some(RunnerConfig::Executor(_)) => [Some(RUN_TIMEOUT), Some(RUN_TIMEOUT_CAP)],
        _ => [None, None],
    };
    let said = [timeout(config.timeout_ms)?, timeout(config.timeout_max_ms)?];
    Ok([said[0].or(usual[0]), said[1].or(usual[1])])
}

fn timeout(ms: Option<u64>) -> Result<Option<Duration>, SettingError> {
    match ms.map(Duration::from_millis) {
        Some(timeout) if timeout.is_zero() || timeout > TIMEOUT_MAX => Err(SettingError::Timeout {
            given: timeout.as_millis(),
            max: TIMEOUT_MAX.as_millis(),
        }),
        timeout => Ok(timeout),
    }
}

fn schema(source: Option<SchemaSource>) -> Option<serde_json::Value> {
    match source {
        Some(SchemaSource::Inline(value)) => Some(value),
        // Files were read in `workspace.rs`.
        Some(SchemaSource::File(_)) | None => None,
    }
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
