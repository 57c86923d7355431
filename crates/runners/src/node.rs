//! The pool behind `kind = "node"`: which Node serves, and the worker that ships with us.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::interpreter::Interpreter;
use crate::{PoolPlan, PoolSettings};

/// Where Node is and what it runs.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// The configured Node; else `node` on `PATH`.
    pub interpreter: Option<PathBuf>,
    /// What Node runs: the worker's path, or arguments that hold its text.
    pub worker: Vec<OsString>,
    /// The environment of the workers.
    pub env: Vec<(OsString, OsString)>,
}

/// The plan of a pool of Node workers. `tune` may change any of the pool's defaults.
#[must_use]
pub fn node_plan(node: NodeSettings, tune: impl FnOnce(&mut PoolSettings)) -> PoolPlan {
    let NodeSettings {
        workspace,
        interpreter,
        worker,
        env,
    } = node;
    let mut settings = PoolSettings::new(Vec::new(), env.clone(), workspace.clone());
    settings.workers_max = 2;
    tune(&mut settings);
    let interpreter = Interpreter {
        named: self::node(interpreter.as_deref()),
        question: ["-p", "process.execPath"],
        arguments: worker,
        // Its threads would not live through a fork.
        forks: false,
        env,
        facts: Vec::new(),
        path_fact: "node_path",
        workspace,
    };
    PoolPlan {
        settings,
        interpreter: Some(interpreter),
    }
}

/// Node as its start would name it.
#[must_use]
pub fn node(configured: Option<&Path>) -> PathBuf {
    configured.map_or_else(|| PathBuf::from("node"), Path::to_owned)
}
