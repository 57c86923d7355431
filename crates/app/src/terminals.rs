//! What terminal sessions are given: the workspace, the user's shell and a plain environment.

use std::ffi::OsString;
use std::path::Path;

use callgate_call::{Secrets, Tool};
use callgate_sandbox::{Limits, scrubbed_env};
use callgate_tools::terminals::{self, TerminalSettings};

use crate::compose::Parts;
use crate::config::TerminalsConfig;
use crate::environment::Environment;
use crate::needs::Ground;

/// The shell of a user who has none.
const SHELL: &str = "/bin/sh";

/// Processes of their user, ours included.
const PROCESSES_MAX: u64 = 4096;

/// The tools over the sessions of this process; none where the owner wants none.
pub fn tools(
    parts: &Parts<'_>,
    ground: &Ground,
    config: &TerminalsConfig,
    secrets: &Secrets,
) -> Vec<Tool> {
    if config.off {
        return Vec::new();
    }
    let settings = TerminalSettings {
        workspace: parts.paths.workspace.clone(),
        own: ground.own(),
        env: scrubbed_env(parts.environment.variables(), &[]),
        shell: shell(parts.environment),
        secrets: secrets.clone(),
        limits: Limits {
            processes: Some(PROCESSES_MAX),
            ..Limits::default()
        },
        needs: ground.sessions(config.network),
    };
    terminals::tools(&parts.terminals, settings)
}

fn shell(environment: &Environment) -> OsString {
    let theirs = environment.os("SHELL").map(Path::new);
    let theirs = theirs.filter(|shell| shell.is_absolute() && shell.is_file());
    theirs.map_or(SHELL.into(), |shell| shell.as_os_str().to_owned())
}
