//! `exec/run` as the configuration has it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Fault, Isolation, Needs, Secrets, Sink, Tier, Tool};
use callgate_runners::Served;
use callgate_sandbox::{Child, Homes, Limits, real, scrubbed_env};
use callgate_tools::exec::{self, ExecParts, ExecSettings, Hosts, HostsFuture, OpenHosts};
use callgate_tools::programs::{Allowed, Programs};

use crate::config::{Config, IpcConfig, LimitsConfig, RunnerConfig, ToolConfig};
use crate::needs::{Ground, NeedsError};
use crate::project;
use crate::setup::Parts;
use crate::toolchains::{Toolchains, is_link_in};

/// Processes of a program and all it starts, where nothing is said; without cgroups those of
/// their user, ours included.
const PROCESSES_MAX: u64 = 4096;

/// Bytes that a home may take where nothing is said. R-40.
const HOME_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// The least that may be said: less is emptied at every use.
const HOME_BYTES_MIN: u64 = 1024 * 1024;

/// Why programs of callers cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// `tier`.
    #[error("exec.tier: {0} is not a number from 0 to 3")]
    Tier(u64),
    /// `home_max_bytes`.
    #[error("exec.home_max_bytes: {0} is less than {HOME_BYTES_MIN}")]
    HomeBytes(u64),
    /// What they may reach.
    #[error("exec.{0}")]
    Needs(NeedsError),
    /// Programs that need nothing: there are none.
    #[error("exec: it has no needs")]
    NoNeeds,
    /// The workspace does not open.
    #[error("open the workspace {}", path.display())]
    Workspace {
        /// The workspace.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The tool; nothing where the owner wants none.
pub fn tool(
    parts: &Parts,
    config: &Config,
    ground: &Ground,
    secrets: &Secrets,
) -> Result<Option<Tool>, ExecError> {
    if config.exec.off {
        return Ok(None);
    }
    let settings = ExecSettings {
        programs: programs(parts, config),
        own: ground.own(),
        limits: Limits {
            processes: Some(processes(config)),
            ..Limits::default()
        },
        tier: tier(config)?,
        needs: needs(parts, config, ground)?,
    };
    let made = exec::tool(
        settings,
        ExecParts {
            spawner: Arc::clone(&parts.spawner),
            hosts: Box::new(Proxy),
            store: Arc::clone(&parts.store),
            secrets: secrets.clone(),
            clock: Arc::clone(&parts.clock),
        },
    );
    made.map(Some).map_err(|source| ExecError::Workspace {
        path: parts.paths.workspace.clone(),
        source,
    })
}

/// What callers may run, by `exec/run` and on terminals.
pub fn programs(parts: &Parts, config: &Config) -> Programs {
    let named = |name: &String| (name.clone(), name.clone());
    let workspace = parts.paths.workspace.clone();
    let allow = config.exec.allow.iter();
    let toolchains = toolchains(parts, config);
    let mut env = scrubbed_env(parts.environment.variables(), &config.exec.env);
    for (name, value) in toolchains.env {
        // What the owner passes on is the owner's word.
        if !env.iter().any(|(known, _)| known == name) {
            env.push((name.into(), value));
        }
    }
    let homes = Homes {
        root: homes_folder(parts),
        owner: heir(parts),
        bytes_max: config.exec.home_max_bytes.unwrap_or(HOME_BYTES_MAX),
        furnishings: toolchains.furnishings,
    };
    Programs {
        allow: allow
            .map(|program| Allowed::new(&workspace, program))
            .collect(),
        allow_env: config.exec.allow_env.clone(),
        workspace,
        env,
        secret_variables: config.secrets.env.iter().map(named).collect(),
        homes: Some(Arc::new(homes)),
    }
}

/// The owner's toolchains, as far as programs may read them. R-42.
pub fn toolchains(parts: &Parts, config: &Config) -> Toolchains {
    match config.exec.toolchains {
        Some(false) => Toolchains::default(),
        None | Some(true) => Toolchains::find(&parts.environment),
    }
}

/// Where the homes of programs are: with the state, or where those of another user can enter.
pub fn homes_folder(parts: &Parts) -> PathBuf {
    let elsewhere = project::code_home(&parts.environment, &parts.paths.workspace);
    match elsewhere {
        Some(folder) => real(&folder).join("homes").join(parts.paths.id()),
        None => real(&parts.paths.state).join("homes"),
    }
}

/// The user and group that programs become, where that is not ours. P-16.
fn heir(parts: &Parts) -> Option<(u32, u32)> {
    let workspace = &parts.paths.workspace;
    let owner = workspace.metadata().ok()?;
    project::is_of_another(&parts.environment, workspace).then(|| (owner.uid(), owner.gid()))
}

/// The owner's home, of which programs see nothing but what they may read. None where that is found
/// by links of the home, which would be gone as well.
fn covered_home(parts: &Parts, config: &Config) -> Option<PathBuf> {
    let home = parts.environment.os("HOME").map(Path::new)?;
    let leads_out = |path: &String| match path.strip_prefix("~/") {
        Some(rest) => is_link_in(home, &home.join(rest)),
        None => is_link_in(home, Path::new(path)),
    };
    let has_links =
        toolchains(parts, config).are_links_in(home) || config.exec.reads.iter().any(leads_out);
    (home.is_absolute() && !has_links).then(|| real(home))
}

/// How dangerous it is to run what a caller names.
pub fn tier(config: &Config) -> Result<Tier, ExecError> {
    let tier = config.exec.tier.unwrap_or(Tier::System.number().into());
    Tier::from_number(tier).ok_or(ExecError::Tier(tier))
}

/// Processes of one program and all it starts.
pub fn processes(config: &Config) -> u64 {
    config.exec.processes.unwrap_or(PROCESSES_MAX)
}

/// The means by which processes of one program talk to each other.
pub fn ipc(config: &Config) -> IpcConfig {
    match config.exec.ipc {
        None => IpcConfig::Private,
        Some(false) => IpcConfig::None,
        Some(true) => IpcConfig::Local,
    }
}

/// Those of a tool that may write the workspace, and says no more than the owner does.
pub fn needs(parts: &Parts, config: &Config, ground: &Ground) -> Result<Arc<Needs>, ExecError> {
    let exec = &config.exec;
    if let Some(bytes) = exec.home_max_bytes.filter(|bytes| *bytes < HOME_BYTES_MIN) {
        return Err(ExecError::HomeBytes(bytes));
    }
    let alike = ToolConfig {
        writes: vec![".".to_owned()],
        reads: exec.reads.clone(),
        network: exec.network.clone(),
        sandbox: exec.sandbox,
        ipc: ipc(config),
        allow_unsafe_execution: exec.allow_unsafe_execution,
        runner: Some(RunnerConfig::Process {
            command: Vec::new(),
            env: BTreeMap::new(),
            limits: LimitsConfig {
                processes: Some(processes(config)),
                ..LimitsConfig::default()
            },
        }),
        ..ToolConfig::default()
    };
    let needs = ground
        .needs(&alike, Isolation::Cold, Vec::new())
        .map_err(ExecError::Needs)?;
    let mut needs = Arc::unwrap_or_clone(needs.ok_or(ExecError::NoNeeds)?);
    needs.reads.extend(toolchains(parts, config).reads());
    needs.covered.extend(covered_home(parts, config));
    ground.show_files(&mut needs);
    Ok(Arc::new(needs))
}

/// The runners' proxy, for programs that are not a runner's.
struct Proxy;

impl Hosts for Proxy {
    fn open<'a>(
        &'a self,
        child: &'a mut Child,
        needs: &'a Needs,
    ) -> HostsFuture<'a, Result<Option<Box<dyn OpenHosts>>, Fault>> {
        Box::pin(async move {
            let served = Served::begin(child, needs).await?;
            Ok(served.map(|served| Box::new(Open(served)) as Box<dyn OpenHosts>))
        })
    }
}

struct Open(Served);

impl OpenHosts for Open {
    fn tell<'a>(&'a self, sink: &'a dyn Sink) -> HostsFuture<'a, Option<String>> {
        Box::pin(self.0.tell(sink))
    }
}
