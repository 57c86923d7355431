//! The pool behind `kind = "python"`: which interpreter serves, and the worker that ships
//! with us. The worker itself is in the Python package.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::interpreter::Interpreter;
use crate::{PoolPlan, PoolSettings};

/// Where Python is and what it runs.
#[derive(Clone, Debug)]
pub struct PythonSettings {
    /// The workspace, absolute. Its `.venv/bin/python3` is used if there is one.
    pub workspace: PathBuf,
    /// The configured interpreter, used where there is no `.venv`; else `python3` on `PATH`.
    pub interpreter: Option<PathBuf>,
    /// What the interpreter runs: the worker's path, or `-c` and its text.
    pub worker: Vec<OsString>,
    /// The environment of the workers.
    pub env: Vec<(OsString, OsString)>,
}

/// The plan of a pool of Python workers. `tune` may change any of the pool's defaults.
#[must_use]
pub fn python_plan(python: PythonSettings, tune: impl FnOnce(&mut PoolSettings)) -> PoolPlan {
    let PythonSettings {
        workspace,
        interpreter,
        worker,
        env,
    } = python;
    let mut settings = PoolSettings::new(Vec::new(), env.clone(), workspace.clone());
    settings.workers_max = 2;
    tune(&mut settings);
    let (kind, named) = choose(&workspace, interpreter.as_deref());
    // Unbuffered, so that what a tool prints comes with its call.
    let mut arguments = vec!["-u".into()];
    arguments.extend(worker);
    let interpreter = Interpreter {
        named,
        question: ["-c", "import sys; print(sys.executable)"],
        arguments,
        forks: true,
        env,
        facts: vec![
            ("python_env", kind.to_owned()),
            ("deps_source", deps_source(&workspace).to_owned()),
        ],
        path_fact: "python_path",
        workspace,
    };
    PoolPlan {
        settings,
        interpreter: Some(interpreter),
    }
}

/// The interpreter of a workspace, as its start would name it: `.venv` first, then what is
/// configured, then `python3` on `PATH`.
#[must_use]
pub fn interpreter(workspace: &Path, configured: Option<&Path>) -> PathBuf {
    choose(workspace, configured).1
}

/// The same, after the word traces have for it. TP-70.
fn choose(workspace: &Path, configured: Option<&Path>) -> (&'static str, PathBuf) {
    let venv = workspace.join(".venv/bin/python3");
    match configured {
        _ if venv.exists() => ("venv", venv),
        Some(path) => ("configured", path.to_owned()),
        None => ("system", PathBuf::from("python3")),
    }
}

/// The file in which a workspace says what its tools need installed. TP-72.
fn deps_source(workspace: &Path) -> &'static str {
    if workspace.join("pyproject.toml").exists() {
        "pyproject"
    } else if workspace.join("requirements.txt").exists() {
        "requirements"
    } else {
        "none"
    }
}
