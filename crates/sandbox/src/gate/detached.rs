//! Starts this program once more as a process that outlives its parent: a gate in the background.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{self, Stdio};

/// Starts `program` with `args` and `env`, without standard input and output, in the root folder.
/// Standard error goes to `log`.
///
/// The process is no child that anybody waits for: it makes a session of its own
/// ([`leave_session`]) and ends when it decides to.
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "our own program, which is not confined and not waited for"
)]
pub fn start_detached(
    program: &Path,
    args: &[OsString],
    env: impl IntoIterator<Item = (OsString, OsString)>,
    log: File,
) -> io::Result<()> {
    let mut command = process::Command::new(program);
    command
        .arg0("callgate")
        .args(args)
        .env_clear()
        .envs(env)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().map(drop)
}

/// Leaves the session and the process group of the parent, so that signals of its terminal do not
/// reach this process. Does nothing for a process that leads a group already.
pub fn leave_session() {
    // The one error there is says that we lead a group.
    let _ = rustix::process::setsid();
}
