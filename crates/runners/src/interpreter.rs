//! Finds the interpreter behind a pool: the file a name means, and where that is a version
//! manager's script, the program it stands for, asked once.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use callgate_call::Fault;
use callgate_sandbox::{Ending, Spawner, Spec};

use crate::ending;

/// How workers of one interpreter are started.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interpreter {
    /// As its owner would name it: a path, or a name on `PATH`.
    pub named: PathBuf,
    /// Arguments that make it print its own path.
    pub question: [&'static str; 2],
    /// What it is to run.
    pub arguments: Vec<OsString>,
    /// Its worker can fork for each call.
    pub forks: bool,
    pub workspace: PathBuf,
    pub env: Vec<(OsString, OsString)>,
    /// For traces.
    pub facts: Vec<(&'static str, String)>,
    /// The name under which traces tell where it is.
    pub path_fact: &'static str,
}

/// What was found out.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub command: Vec<OsString>,
    pub facts: Vec<(&'static str, String)>,
}

impl Interpreter {
    /// The command of a worker, and what there is to tell of it.
    pub async fn resolve(&self, spawner: &Spawner) -> Result<Resolved, Fault> {
        let path = match find(&self.named, &self.env) {
            // It would cost a shell with every start.
            Some(path) if is_script(&self.workspace.join(&path)) => self.ask(spawner, path).await?,
            Some(path) => path,
            // The start will say what is missing.
            None => self.named.clone(),
        };
        let mut facts = self.facts.clone();
        facts.push((self.path_fact, path.display().to_string()));
        let mut command = vec![path.into_os_string()];
        command.extend_from_slice(&self.arguments);
        Ok(Resolved { command, facts })
    }

    /// Asks a wrapper which interpreter it stands for.
    async fn ask(&self, spawner: &Spawner, wrapper: PathBuf) -> Result<PathBuf, Fault> {
        let (reader, writer) = std::io::pipe().map_err(|error| Fault::Internal {
            message: format!("make a pipe: {error}"),
        })?;
        let [first, second] = self.question.map(OsStr::new);
        let argv = [wrapper.as_os_str(), first, second];
        let mut spec = Spec::new(argv.map(OsStr::to_owned).into(), self.workspace.clone());
        spec.env.clone_from(&self.env);
        spec.stdout = std::os::fd::OwnedFd::from(writer).into();
        let child = spawner.spawn(spec).await;
        let exit = child
            .map_err(|error| ending::not_started(&error))?
            .wait()
            .await;
        let mut line = Vec::new();
        if exit.ending == Ending::Code(0) {
            // Its whole tree has ended, so that the end of the pipe is there.
            // bound: the 4096 bytes taken
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
