//! Where a workspace's things are: state and sockets, both outside the workspace.

use std::path::{Path, PathBuf};

use callgate_call::Digest;
use callgate_search::model::MODEL;
use callgate_store::{RunningGate, running_gate};

use crate::environment::Environment;

/// Where state is in a home.
const STATE_IN_HOME: &str = ".local/state";

/// A socket's path has this many bytes at most.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The folders of one workspace.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The workspace, with links resolved.
    pub workspace: PathBuf,
    /// Its state.
    pub state: PathBuf,
    /// The gate's socket: that of the gate that runs, or where the next one would have it.
    pub socket: PathBuf,
    /// The owner's home, which `~` in `reads` means.
    pub home: Option<PathBuf>,
    /// The gate that serves the workspace from this state, if one does.
    pub gate: Option<RunningGate>,
}

/// Why the folders can not be named.
#[derive(Debug, thiserror::Error)]
pub enum PathsError {
    /// The workspace is not there.
    #[error("workspace {}", path.display())]
    Workspace {
        /// As it was given.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// Nobody says where state goes.
    #[error(
        "no folder for state: set HOME or XDG_STATE_HOME to an absolute path, or pass --state DIR"
    )]
    NoState,
    /// The system would cut the socket's path.
    #[error(
        "socket path {} is longer than {SOCKET_PATH_BYTES_MAX} bytes: pass --socket or set XDG_RUNTIME_DIR",
        path.display()
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
    },
}

impl Paths {
    /// Names the folders of `workspace`; `state` and `socket` override the usual places.
    pub fn new(
        environment: &Environment,
        workspace: &Path,
        state: Option<&Path>,
        socket: Option<&Path>,
    ) -> Result<Self, PathsError> {
        let absolute = environment.current_dir.join(workspace);
        let workspace = absolute
            .canonicalize()
            .map_err(|source| PathsError::Workspace {
                path: workspace.to_owned(),
                source,
            })?;
        let name = folder_name(&workspace);
        let chosen = state.or(environment.os("CALLGATE_STATE").map(Path::new));
        let state = match chosen {
            Some(state) => environment.current_dir.join(state),
            None => state_home(environment)
                .ok_or(PathsError::NoState)?
                .join("callgate")
                .join(&name),
        };
        let socket = match (socket, environment.folder("XDG_RUNTIME_DIR")) {
            (Some(socket), _) => environment.current_dir.join(socket),
            // State that was put elsewhere takes its sockets along, so that two states of one
            // workspace do not meet.
            (None, Some(runtime)) if chosen.is_none() => {
                runtime.join("callgate").join(&name).join("gate.sock")
            }
            _ => state.join("gate.sock"),
        };
        Ok(Self {
            workspace,
            state,
            socket,
            home: environment
                .os("HOME")
                .map(PathBuf::from)
                .filter(|home| home.is_absolute()),
            gate: None,
        })
    }

    /// The same, with the running gate where there is one. Unless a socket was named the gate's
    /// own is used, wherever this environment would look for it.
    pub fn with_gate(mut self, named: Option<&Path>) -> Self {
        let gate = running_gate(&self.state).filter(|gate| gate.workspace == self.workspace);
        if let (None, Some(socket)) = (named, gate.as_ref().and_then(|gate| gate.socket.clone())) {
            self.socket = socket;
        }
        self.gate = gate;
        self
    }

    /// Returns whether a process that has nothing of this environment but the home of our user
    /// would find the state by itself.
    pub fn is_default_state(&self, environment: &Environment) -> bool {
        let home = environment.user_home();
        let usual = home.map(|home| home.join(STATE_IN_HOME).join("callgate").join(self.id()));
        usual.is_some_and(|usual| usual == self.state)
    }

    /// The workspace's own 16 hex digits.
    pub fn id(&self) -> String {
        folder_name(&self.workspace)
    }

    /// The socket, if its path can be one.
    pub fn usable_socket(&self) -> Result<&Path, PathsError> {
        if self.socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
            return Err(PathsError::SocketPath {
                path: self.socket.clone(),
            });
        }
        Ok(&self.socket)
    }
}

/// Where a gate's bridge is.
#[derive(Debug, Clone)]
pub struct BridgePaths {
    /// Where bridges connect.
    pub socket: PathBuf,
    /// What they list.
    pub schema: PathBuf,
}

impl BridgePaths {
    /// Beside the gate's own socket. A socket of another name takes that name along, so that
    /// two gates in one folder do not meet.
    pub fn beside(gate_socket: &Path) -> Self {
        let name = gate_socket.file_name().unwrap_or_default();
        let beside = |last: &str| {
            if name == "gate.sock" {
                return gate_socket.with_file_name(last);
            }
            let mut name = name.to_owned();
            name.push(".");
            name.push(last);
            gate_socket.with_file_name(name)
        };
        Self {
            socket: beside("bridge.sock"),
            schema: beside("bridge-schema.json"),
        }
    }
}

/// 16 hex digits of the digest of the workspace's real path.
fn folder_name(workspace: &Path) -> String {
    let mut name = Digest::of_bytes(workspace.as_os_str().as_encoded_bytes()).to_hex();
    name.truncate(16);
    name
}

fn state_home(environment: &Environment) -> Option<PathBuf> {
    let in_home = || Some(environment.folder("HOME")?.join(STATE_IN_HOME));
    let state = environment.folder("XDG_STATE_HOME").map(Path::to_owned);
    state.or_else(in_home)
}

/// Where the model is kept, for all workspaces of a user.
pub fn models(environment: &Environment) -> Option<PathBuf> {
    Some(state_home(environment)?.join("callgate").join("models"))
}

/// The user's folder for what can be fetched again.
pub fn user_cache(environment: &Environment) -> Option<PathBuf> {
    let cache = environment.folder("XDG_CACHE_HOME").map(Path::to_owned);
    let home = || environment.folder("HOME").map(|home| home.join(".cache"));
    Some(cache.or_else(home)?.join("callgate"))
}

/// The model's own folder.
pub fn model_folder(environment: &Environment) -> Option<PathBuf> {
    Some(models(environment)?.join(MODEL))
}
