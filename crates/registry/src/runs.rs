//! Streamed runs as the configuration has them.

use std::sync::Arc;

use callgate_call::{Job, RunFuture, RunOrder, Secrets, Tool};
use callgate_runners::{ExecutorParts, Executors};
use callgate_sandbox::{Limits, Spec};
use callgate_store::RunKeeper;
use callgate_tools::runs::{self, RunSettings, Starts};

use crate::config::Config;
use crate::exec::{self, ExecError};
use crate::needs::Ground;
use crate::setup::Parts;

/// Starts runs, and keeps what they stream in the store of the workspace.
pub fn executors(parts: &Parts, secrets: &Secrets) -> Executors {
    Executors::new(ExecutorParts {
        spawner: Arc::clone(&parts.spawner),
        runs: Arc::new(RunKeeper::new(Arc::clone(&parts.store))),
        topics: parts.topics.clone(),
        secrets: secrets.clone(),
        clock: Arc::clone(&parts.clock),
        watch: parts.run_watch.clone(),
    })
}

/// The tools over runs. Who may run no programs may start no executors either; what was kept is
/// there to be read all the same.
pub fn tools(
    parts: &Parts,
    config: &Config,
    ground: &Ground,
    executors: &Executors,
) -> Result<Vec<Tool>, ExecError> {
    let mut tools = runs::readers(&parts.store);
    if !config.exec.off && !config.runs.off {
        tools.push(runs::start(RunSettings {
            programs: exec::programs(parts, config),
            limits: Limits {
                processes: Some(exec::processes(config)),
                ..Limits::default()
            },
            tier: exec::tier(config)?,
            needs: exec::needs(parts, config, ground)?,
            order: config.runs.order(),
            starts: Box::new(By(executors.clone())),
        }));
    }
    Ok(tools)
}

struct By(Executors);

impl Starts for By {
    fn start<'a>(&'a self, job: Job<'a>, spec: Spec, order: RunOrder) -> RunFuture<'a> {
        Box::pin(self.0.run(job, spec, order))
    }
}
