//! The user's own gate: the one that serves the MCP servers of the user's clients. Its workspace is
//! the folder of our settings, never a home; the first client that needs it starts it, and it ends
//! by itself once no client has been there for a while.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use callgate_client::relay::{Pipe, attach};
use callgate_registry::environment::Environment;
use callgate_sandbox::start_detached;
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::cli::Place;
use crate::error::CommandError;

/// The folder below the user's settings.
const FOLDER: &str = "callgate";

/// The log of a gate in the background, in its state. It begins anew once it is long.
pub const LOG_FILE: &str = "serve.log";

/// A longer log is not continued by the next gate.
const LOG_BYTES_MAX: u64 = 1024 * 1024;

/// How long a gate may take to answer once it was started.
const START_MAX: Duration = Duration::from_secs(30);

/// How often a gate that was started is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The folder of the user's settings of Callgate, whether or not it is there.
pub fn folder(environment: &Environment) -> Result<PathBuf, CommandError> {
    let settings = environment.folder("XDG_CONFIG_HOME").map(Path::to_owned);
    let home = || {
        let home = environment.folder("HOME").map(Path::to_owned);
        home.or_else(|| environment.user_home())
    };
    settings
        .or_else(|| Some(home()?.join(".config")))
        .map(|settings| settings.join(FOLDER))
        .ok_or(CommandError::NoHome)
}

/// The place of the user's gate: `place`, with that folder for a workspace where none was named.
/// Makes the folder (0700).
pub fn place(environment: &Environment, place: &Place) -> Result<Place, CommandError> {
    if place.workspace != Path::new(".") {
        return Ok(place.clone());
    }
    let workspace = folder(environment)?;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&workspace);
    made.map_err(CommandError::file("make", &workspace))?;
    Ok(Place {
        workspace,
        ..place.clone()
    })
}

/// A conversation with the gate of `place`, which is started if none answers.
pub async fn attach_or_start(
    environment: &Environment,
    place: &Place,
    pipe: &Pipe,
) -> Result<UnixStream, CommandError> {
    let socket = || place.paths(environment).map(|paths| paths.socket);
    if let Some(gate) = attach(&socket()?, pipe).await {
        return Ok(gate);
    }
    start(environment, place)?;
    let deadline = Instant::now() + START_MAX;
    loop {
        // The gate that answers may be one that another client has started meanwhile.
        if let Some(gate) = attach(&socket()?, pipe).await {
            return Ok(gate);
        }
        if Instant::now() >= deadline {
            let log = place.paths(environment)?.state.join(LOG_FILE);
            return Err(CommandError::UserGateStart(log));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Starts `serve --background`. Of several that are started at the same time one stays.
fn start(environment: &Environment, place: &Place) -> Result<(), CommandError> {
    let paths = place.paths(environment)?;
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&paths.state);
    made.map_err(CommandError::file("make", &paths.state))?;
    let path = paths.state.join(LOG_FILE);
    let is_long = path.metadata().is_ok_and(|log| log.len() > LOG_BYTES_MAX);
    let log = OpenOptions::new()
        .create(true)
        .append(!is_long)
        .write(true)
        .truncate(is_long)
        .mode(0o600)
        .open(&path);
    let log = log.map_err(CommandError::file("open", &path))?;
    let mut args: Vec<OsString> = vec!["serve".into(), "--background".into()];
    args.extend(["--workspace".into(), paths.workspace.clone().into()]);
    if let Some(state) = &place.state {
        let state = environment.current_dir.join(state);
        args.extend(["--state".into(), state.into()]);
    }
    if place.socket.is_some() {
        args.extend(["--socket".into(), paths.socket.clone().into()]);
    }
    let variables = environment.variables().clone();
    start_detached(&environment.program, &args, variables, log)
        .map_err(CommandError::system("start a gate in the background"))
}
