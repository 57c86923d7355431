//! Commands that fetch a package and start it: `npx`, `npm exec`, `pnpm dlx`, `bunx`, `yarn dlx`,
//! `uvx`, `uv tool run`, `uv run --with`, `pipx run`, and the start of a container.
//!
//! A command is read as its words, without a file system and without a shell. A flag whose meaning
//! would be lost is an error that names it. Not here: what is done with a command that is none of
//! these, which is for the caller to decide.

mod docker;
mod npm;
mod pypi;
mod shell;
mod words;

pub use docker::DockerRun;

use crate::spec::{PackageSpec, SpecError};

/// The meaning of a server's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// A program of an npm package.
    Npm(NpmLaunch),
    /// A program of a Python package.
    Pypi(PypiLaunch),
    /// A container.
    Docker(DockerRun),
    /// A line for a shell.
    Shell(ShellLine),
    /// A program of this machine, started as it is.
    Plain,
}

/// A program of an npm package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpmLaunch {
    /// The package.
    pub spec: PackageSpec,
    /// Further packages that are installed beside it.
    pub with: Vec<PackageSpec>,
    /// The program, if it is not the package's own.
    pub bin: Option<String>,
    /// Arguments of the program.
    pub args: Vec<String>,
}

/// A program of a Python package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PypiLaunch {
    /// The package.
    pub spec: PackageSpec,
    /// Further packages that are installed beside it.
    pub with: Vec<PackageSpec>,
    /// The interpreter, as the command names it: `3.12`, `python3.12`.
    pub python: Option<String>,
    /// What is started.
    pub program: PackageProgram,
    /// Arguments of the program.
    pub args: Vec<String>,
}

/// The program that a Python package is installed for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum PackageProgram {
    /// The script that has the name of the package, or its only one.
    #[default]
    Default,
    /// A script by name.
    Script(String),
    /// A module, as `python -m`.
    Module(String),
    /// The interpreter itself, whose first argument is a file or an option.
    Interpreter,
}

/// A line for a shell. No server is started by a shell, but a simple line can be taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellLine {
    /// The line.
    pub line: String,
    /// The words of the line, if a shell would do nothing but split it.
    pub words: Option<Vec<String>>,
}

/// The reason why a command is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    /// The command has no words.
    #[error("the command is empty")]
    Empty,
    /// The launcher has a flag that is not carried over.
    #[error("`{launcher}` has the flag `{flag}`, which can not be carried over")]
    Flag {
        /// The launcher.
        launcher: &'static str,
        /// The flag.
        flag: String,
    },
    /// A flag needs a value.
    #[error("`{launcher}` has the flag `{flag}` without a value")]
    MissingValue {
        /// The launcher.
        launcher: &'static str,
        /// The flag.
        flag: String,
    },
    /// The launcher names no package or image.
    #[error("`{launcher}` names nothing to start")]
    Nothing {
        /// The launcher.
        launcher: &'static str,
    },
    /// The package is refused.
    #[error("`{launcher}` names a package that can not be installed")]
    Spec {
        /// The launcher.
        launcher: &'static str,
        /// The reason.
        #[source]
        source: SpecError,
    },
}

/// Reads the command of a server.
///
/// # Errors
///
/// `LauncherError` if the command is a launcher whose meaning would not be kept.
pub fn parse_launcher(command: &[String]) -> Result<Launcher, LauncherError> {
    let Some((program, rest)) = command.split_first() else {
        return Err(LauncherError::Empty);
    };
    if program.trim().is_empty() {
        return Err(LauncherError::Empty);
    }
    if let Some(line) = shell::whole_line(program, rest) {
        return Ok(Launcher::Shell(line));
    }
    let name = words::program_name(program);
    match name.as_str() {
        "npx" | "npm" | "pnpm" | "pnpx" | "bunx" | "bun" | "yarn" => npm::parse(&name, rest),
        "uvx" | "uv" | "pipx" => pypi::parse(&name, rest),
        "docker" | "podman" | "nerdctl" => docker::parse(&name, rest),
        _ => Ok(shell::parse(&name, rest).map_or(Launcher::Plain, Launcher::Shell)),
    }
}

#[cfg(test)]
mod tests;
