//! The program that speaks to a container runtime: podman or docker.
//!
//! It is our child like any other, but not confined: it makes namespaces, mounts and cgroups
//! for the tool, and needs the owner's rights for that. Its tree is owned without a pid
//! namespace, because the process ids it writes down must mean the same to the next client.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{NoSink, Stream};
use callgate_sandbox::{Ending, Spawner, Spec};
use tokio::net::unix::pipe;

use crate::chatter::Chatter;
use crate::ending;
use crate::tail::Tail;

/// The longest that asking or removing may take.
const ERRAND_MAX: Duration = Duration::from_secs(20);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often a removal is tried: the first may only find out that the container has ended.
const REMOVALS_MAX: usize = 3;

/// Which runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// Needs no service.
    Podman,
    /// By its service.
    Docker,
}

impl Runtime {
    /// The program, and the word in traces.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

/// What came of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removed {
    /// There is none of that name.
    Gone,
    /// It is still there.
    Stays,
    /// The runtime does not say.
    Unknown,
}

/// One runtime as its client is started here.
#[derive(Debug)]
pub struct Client {
    pub(super) runtime: Runtime,
    spawner: Arc<Spawner>,
    /// Before the client's own command.
    options: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    pub(super) swept: tokio::sync::OnceCell<()>,
}

impl Client {
    pub(super) fn new(
        spawner: Arc<Spawner>,
        runtime: Runtime,
        options: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        cwd: PathBuf,
    ) -> Self {
        Self {
            runtime,
            spawner,
            options,
            env,
            cwd,
            swept: tokio::sync::OnceCell::new(),
        }
    }

    pub(super) fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    pub(super) fn env(&self) -> &[(OsString, OsString)] {
        &self.env
    }

    pub(super) fn is(&self, runtime: Runtime, options: &[OsString]) -> bool {
        self.runtime == runtime && self.options == options
    }

    /// The client with these words.
    pub(super) fn spec(&self, words: Vec<OsString>) -> Spec {
        let mut argv = vec![OsString::from(self.runtime.as_str())];
        argv.extend_from_slice(&self.options);
        argv.extend(words);
        let mut spec = Spec::new(argv, self.cwd.clone());
        spec.env.clone_from(&self.env);
        spec.may_gain_rights = true;
        spec
    }

    /// What the client prints to these words; the error is how it failed.
    pub(super) async fn ask(&self, words: &[&str]) -> Result<Vec<u8>, String> {
        let words = words.iter().map(OsString::from).collect();
        match tokio::time::timeout(ERRAND_MAX, self.run(self.spec(words))).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("{} does not answer", self.runtime.as_str())),
        }
    }

    async fn run(&self, mut spec: Spec) -> Result<Vec<u8>, String> {
        let pipes = |error: io::Error| format!("make pipes: {error}");
        let (near, far) = io::pipe().map_err(pipes)?;
        let (mut stderr, stderr_far) = Chatter::new(Stream::Stderr).map_err(pipes)?;
        (spec.stdout, spec.stderr) = (std::os::fd::OwnedFd::from(far).into(), stderr_far.into());
        let stdout = pipe::Receiver::from_owned_fd(near.into()).map_err(pipes)?;
        let child = self.spawner.spawn(spec).await;
        let mut child = child.map_err(|error| ending::not_started(&error).to_string())?;
        let mut tail = Tail::default();
        // Only `read_all` ends, so it is never dropped before its end; the pump keeps what it reads
        // in `tail`.
        let answer = tokio::select! {
            answer = read_all(&stdout) => answer,
            () = stderr.pump(&mut tail, &NoSink) => unreachable!("it never ends"),
        };
        let exit = child.wait().await;
        stderr.pass_rest(&mut tail, &NoSink);
        match exit.ending {
            Ending::Code(0) => answer.ok_or_else(|| "its answer is too long".to_owned()),
            other => Err(ending::with_last_words(&ending::describe(other), &tail)),
        }
    }

    /// Removes a container by name, running or not.
    pub(super) async fn remove(&self, name: &str) -> Removed {
        let words: &[&str] = match self.runtime {
            Runtime::Podman => &["rm", "--force", "--time", "0", "--ignore", name],
            Runtime::Docker => &["rm", "--force", name],
        };
        for _ in 0..REMOVALS_MAX {
            if self.ask(words).await.is_ok() {
                return Removed::Gone;
            }
        }
        // Docker calls it a failure if there is none.
        match self.names(name).await {
            Ok(left) if left.iter().any(|other| other == name) => Removed::Stays,
            Ok(_) => Removed::Gone,
            Err(_) => Removed::Unknown,
        }
    }

    /// The names of all containers whose name begins with this.
    pub(super) async fn names(&self, beginning: &str) -> Result<Vec<String>, String> {
        let filter = format!("name={beginning}");
        let words = [
            "ps",
            "--all",
            "--no-trunc",
            "--filter",
            &filter,
            "--format",
            "{{.Names}}",
        ];
        let listed = self.ask(&words).await?;
        let names = String::from_utf8_lossy(&listed);
        let names = names.split_whitespace();
        let ours = names.filter(|name| name.starts_with(beginning));
        Ok(ours.map(str::to_owned).collect())
    }
}

/// All that is written, up to the bound; nothing if there is more.
async fn read_all(stdout: &pipe::Receiver) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    while stdout.readable().await.is_ok() {
        match stdout.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(read) if all.len() + read > ANSWER_BYTES_MAX => return None,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    Some(all)
}
