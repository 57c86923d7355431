//! The pool behind `kind = "python"`: finds the interpreter and starts the worker that
//! ships with us. The worker itself is in the Python package.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::Fault;
use callgate_sandbox::{Ending, Spawner, Spec};

use crate::ending;
use crate::{Pool, PoolSettings};

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

/// A pool of Python workers. `tune` may change any of the pool's defaults.
#[must_use]
pub fn python_pool(
    spawner: Arc<Spawner>,
    python: PythonSettings,
    tune: impl FnOnce(&mut PoolSettings),
) -> Arc<Pool> {
    let mut settings = PoolSettings::new(Vec::new(), python.env.clone(), python.workspace.clone());
    settings.workers_max = 2;
    tune(&mut settings);
    Pool::with_python(spawner, settings, Some(Python(python)))
}

/// The interpreter of a workspace, as its start would name it: `.venv` first, then what is
/// configured, then `python3` on `PATH`.
#[must_use]
pub fn interpreter(workspace: &Path, configured: Option<&Path>) -> PathBuf {
    let venv = workspace.join(".venv/bin/python3");
    match configured {
        _ if venv.exists() => venv,
        Some(path) => path.to_owned(),
        None => PathBuf::from("python3"),
    }
}

/// Finds out how to start a worker.
#[derive(Debug)]
pub(crate) struct Python(PythonSettings);

impl Python {
    /// The command of a worker.
    pub async fn command(&self, spawner: &Spawner) -> Result<Vec<OsString>, Fault> {
        let interpreter = self.interpreter(spawner).await?;
        // Unbuffered, so that what a tool prints comes with its call.
        let mut command = vec![interpreter.into(), "-u".into()];
        command.extend_from_slice(&self.0.worker);
        Ok(command)
    }

    async fn interpreter(&self, spawner: &Spawner) -> Result<PathBuf, Fault> {
        let PythonSettings {
            workspace,
            interpreter,
            env,
            ..
        } = &self.0;
        let named = self::interpreter(workspace, interpreter.as_deref());
        match find(&named, env) {
            // A version manager's script would cost a shell with every start.
            Some(path) if is_script(&workspace.join(&path)) => self.ask(spawner, path).await,
            Some(path) => Ok(path),
            // The start will say what is missing.
            None => Ok(named),
        }
    }

    /// Asks a wrapper which interpreter it stands for.
    async fn ask(&self, spawner: &Spawner, wrapper: PathBuf) -> Result<PathBuf, Fault> {
        let (reader, writer) = std::io::pipe().map_err(|error| Fault::Internal {
            message: format!("make a pipe: {error}"),
        })?;
        let argv = [
            wrapper.as_os_str(),
            "-c".as_ref(),
            "import sys; print(sys.executable)".as_ref(),
        ];
        let mut spec = Spec::new(argv.map(OsStr::to_owned).into(), self.0.workspace.clone());
        spec.env.clone_from(&self.0.env);
        spec.stdout = std::os::fd::OwnedFd::from(writer).into();
        let child = spawner.spawn(spec).await;
        let exit = child
            .map_err(|error| ending::not_started(&error))?
            .wait()
            .await;
        let mut line = Vec::new();
        if exit.ending == Ending::Code(0) {
            // Its whole tree has ended, so that the end of the pipe is there.
            let _ = reader.take(4096).read_to_end(&mut line);
        }
        let path = Path::new(OsStr::from_bytes(line.trim_ascii()));
        // What it does not tell it may still do: it is started as it is.
        Ok(if path.is_absolute() {
            path.to_owned()
        } else {
            wrapper
        })
    }
}

/// The file a name means: itself with a slash, else the first in `PATH`.
fn find(named: &Path, env: &[(OsString, OsString)]) -> Option<PathBuf> {
    if named.as_os_str().as_bytes().contains(&b'/') {
        return Some(named.to_owned());
    }
    let (_, path) = env.iter().find(|(name, _)| name == "PATH")?;
    let folders = path.as_bytes().split(|&byte| byte == b':');
    folders
        .map(|folder| Path::new(OsStr::from_bytes(folder)).join(named))
        .find(|file| file.is_file())
}

fn is_script(path: &Path) -> bool {
    let mut head = [0; 2];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut head))
        .is_ok()
        && &head == b"#!"
}
