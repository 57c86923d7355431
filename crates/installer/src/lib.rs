//! Packages of MCP servers, installed once with a lock and then started without a network.
//!
//! [`parse_launcher`] reads the commands by which people start servers (`npx -y X`, `uvx X`) and
//! finds the package behind them.
//!
//! Not here: configuration, pins and the processes of servers.

mod launcher;
mod spec;

pub use launcher::{
    DockerRun, Launcher, LauncherError, NpmLaunch, PypiLaunch, PypiProgram, ShellLine,
    parse_launcher,
};
pub use spec::{ForeignSource, PackageSpec, Registry, SpecError, WantedVersion};
