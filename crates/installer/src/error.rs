//! The reasons why a package is not installed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use callgate_sandbox::SpawnError;

use crate::spec::Registry;

/// The reason why a package is not resolved, installed, listed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A program that installs packages is missing.
    #[error("{program} is missing: {advice}")]
    ProgramMissing {
        /// The program.
        program: String,
        /// How to get it.
        advice: &'static str,
    },
    /// A program that installs packages is too old.
    #[error("{program} is {found}, and {needed} or later is needed: {advice}")]
    ProgramTooOld {
        /// The program.
        program: String,
        /// Its version.
        found: String,
        /// The first version that serves.
        needed: &'static str,
        /// How to get it.
        advice: &'static str,
    },
    /// The lock was made for another interpreter.
    #[error("the lock is for {wanted}, and {found} would run it: install anew")]
    OtherInterpreter {
        /// The interpreter and platform in the lock.
        wanted: String,
        /// Those of this machine.
        found: String,
    },
    /// This machine can not confine the installation.
    #[error("the installation can not be confined: it needs {missing}")]
    Unconfined {
        /// What is missing.
        missing: String,
    },
    /// The package manager was not started.
    #[error("start the package manager")]
    Start(#[source] SpawnError),
    /// The package manager ended with an error.
    #[error("{program} failed{}: {words}", refused.as_ref().map(|host| format!(" (it tried to reach {host}, which is not the registry)")).unwrap_or_default())]
    Failed {
        /// The package manager.
        program: String,
        /// The last lines of its error output.
        words: String,
        /// The first host that it was not allowed to reach.
        refused: Option<String>,
    },
    /// The package manager did not end in time.
    #[error("{program} did not end within {} s", after.as_secs())]
    Timeout {
        /// The package manager.
        program: String,
        /// The time that it had.
        after: Duration,
    },
    /// The package manager printed more than can be read.
    #[error("{program} printed more than {bytes_max} bytes")]
    TooMuchOutput {
        /// The package manager.
        program: String,
        /// The bound.
        bytes_max: usize,
    },
    /// The installation is too large.
    #[error("the installation has more than {bytes_max} bytes or {files_max} files")]
    TooLarge {
        /// The bound of bytes.
        bytes_max: u64,
        /// The bound of files.
        files_max: u64,
    },
    /// The lock is refused.
    #[error("the lock is refused")]
    Lock(#[from] LockError),
    /// What was installed is not what the lock says.
    #[error("the installation differs from its lock: {difference}")]
    Differs {
        /// The first difference.
        difference: String,
    },
    /// The package has no program to start.
    #[error("`{package}` has no program to start")]
    NoProgram {
        /// The package.
        package: String,
    },
    /// The package has other programs than the wanted one.
    #[error("`{package}` has no program `{wanted}`; its programs are {}", known.join(", "))]
    OtherPrograms {
        /// The package.
        package: String,
        /// The wanted program.
        wanted: String,
        /// The programs of the package.
        known: Vec<String>,
    },
    /// The registry's address is not one.
    #[error("the address of the registry of {} is not `https://host/path`", registry.as_str())]
    BadRegistry {
        /// The registry.
        registry: Registry,
    },
    /// A file or folder of the installation can not be read or written.
    #[error("{step} {}", path.display())]
    File {
        /// What was tried.
        step: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl InstallError {
    /// A function that makes the error of a file from its reason.
    pub(crate) fn file(
        step: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { step, path, source }
    }
}

/// The reason why a lock is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The text is not a lock of the registry.
    #[error("the text is not a lock of {}: {reason}", registry.as_str())]
    Syntax {
        /// The registry.
        registry: Registry,
        /// The reason.
        reason: String,
    },
    /// A package of the lock does not come from the registry with a digest.
    #[error("`{package}` {problem}")]
    Package {
        /// The package.
        package: String,
        /// The problem.
        problem: String,
    },
    /// The lock is not one of the wanted package.
    #[error("the lock has no `{wanted}`")]
    OtherPackage {
        /// The wanted package.
        wanted: String,
    },
}

impl LockError {
    pub(crate) fn package(package: &str, problem: impl Into<String>) -> Self {
        Self::Package {
            package: package.to_owned(),
            problem: problem.into(),
        }
    }
}
