//! `exec/run` as the configuration has it.

use std::collections::BTreeMap;
use std::sync::Arc;

use callgate_call::{Fault, Isolation, Needs, Secrets, Sink, Tier, Tool};
use callgate_runners::Served;
use callgate_sandbox::{Child, Limits, scrubbed_env};
use callgate_tools::exec::{self, ExecParts, ExecSettings, Hosts, HostsFuture, OpenHosts};
use callgate_tools::programs::{Allowed, Programs};

use crate::compose::Parts;
use crate::config::{Config, IpcConfig, LimitsConfig, RunnerConfig, ToolConfig};
use crate::needs::Ground;

/// Processes of a program and all it starts, where nothing is said; without cgroups those of
/// their user, ours included.
const PROCESSES_MAX: u64 = 4096;

/// The tool; nothing where the owner wants none.
pub fn tool(
    parts: &Parts<'_>,
    config: &Config,
    ground: &Ground,
    secrets: &Secrets,
) -> Result<Option<Tool>, String> {
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
        needs: needs(config, ground)?,
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
    let place = parts.paths.workspace.display();
    made.map(Some)
        .map_err(|error| format!("open the workspace {place}: {error}"))
}

/// What callers may run, by `exec/run` and on terminals.
pub fn programs(parts: &Parts<'_>, config: &Config) -> Programs {
    let named = |name: &String| (name.clone(), name.clone());
    let workspace = parts.paths.workspace.clone();
    let allow = config.exec.allow.iter();
    Programs {
        allow: allow
            .map(|program| Allowed::new(&workspace, program))
            .collect(),
        workspace,
        env: scrubbed_env(parts.environment.variables(), &config.exec.env),
        secret_variables: config.secrets.env.iter().map(named).collect(),
    }
}

/// How dangerous it is to run what a caller names.
pub fn tier(config: &Config) -> Result<Tier, String> {
    let tier = config.exec.tier.unwrap_or(Tier::System.number().into());
    Tier::from_number(tier).ok_or_else(|| format!("exec.tier: {tier} is not a number from 0 to 3"))
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
pub fn needs(config: &Config, ground: &Ground) -> Result<Arc<Needs>, String> {
    let exec = &config.exec;
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
        .map_err(|reason| format!("exec.{reason}"))?;
    Ok(needs.ok_or("exec: it has no needs")?)
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
    fn tell<'a>(&'a self, sink: &'a dyn Sink) -> HostsFuture<'a, ()> {
        Box::pin(self.0.tell(sink))
    }
}
