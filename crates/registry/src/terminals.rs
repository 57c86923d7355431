//! What terminal sessions are given: the workspace, the user's shell and a plain environment.

use std::ffi::OsString;
use std::path::Path;

use callgate_call::{Secrets, Tool};
use callgate_sandbox::Limits;
use callgate_tools::terminals::{self, TerminalSettings};

use crate::config::Config;
use crate::environment::Environment;
use crate::exec::{self, ExecError, programs};
use crate::needs::Ground;
use crate::setup::Parts;

/// The shell of a user who has none.
const SHELL: &str = "/bin/sh";

/// The tools over the sessions of this process; none where the owner wants none.
pub fn tools(
    parts: &Parts,
    ground: &Ground,
    config: &Config,
    secrets: &Secrets,
) -> Result<Vec<Tool>, ExecError> {
    if config.terminals.off {
        return Ok(Vec::new());
    }
    let settings = TerminalSettings {
        programs: programs(parts, config),
        own: ground.own(),
        shell: shell(&parts.environment),
        secrets: secrets.clone(),
        limits: Limits {
            processes: Some(exec::processes(config)),
            ..Limits::default()
        },
        needs: ground.sessions(
            config.terminals.network,
            &*exec::needs(parts, config, ground)?,
        ),
    };
    terminals::tools(&parts.terminals, settings).map_err(|source| ExecError::Workspace {
        path: parts.paths.workspace.clone(),
        source,
    })
}

fn shell(environment: &Environment) -> OsString {
    let theirs = environment.os("SHELL").map(Path::new);
    let theirs = theirs.filter(|shell| shell.is_absolute() && shell.is_file());
    theirs.map_or(SHELL.into(), |shell| shell.as_os_str().to_owned())
}
