//! Why a child was not born.

use std::io;
use std::path::PathBuf;

use callgate_call::{ConfinementHint, Tool};

use crate::gate::explain::Culprit;

/// Why a child was not born. Nothing of the program has run, except perhaps for `Lost`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum SpawnError {
    #[error("start `{program}`: not found; {}", advice(program))]
    NotFound { program: String },
    #[error("start `{program}`: {path} is not executable; `chmod +x` it, or name its interpreter")]
    NotExecutable { program: String, path: PathBuf },
    #[error(
        "start `{program}`: its confinement keeps {} from it, unless `reads` names that or a \
         folder above",
        culprit.path.display()
    )]
    OutOfReach {
        program: String,
        culprit: Box<Culprit>,
    },
    #[error("start `{program}`: the interpreter named in the first line of {path} is not there")]
    NoInterpreter { program: String, path: PathBuf },
    #[error("start `{program}`: working folder {cwd} cannot be entered")]
    Cwd {
        program: String,
        cwd: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "start `{program}`: cannot create {}, which its `writes` lists: create it, or let the \
         gate's user write to the folder it is in",
        path.display()
    )]
    Writes {
        program: String,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("start `{program}`: {reason}")]
    BadSpec {
        program: String,
        reason: &'static str,
    },
    #[error("start `{program}`: arguments and environment exceed {max_bytes} bytes")]
    TooLarge { program: String, max_bytes: usize },
    #[error("start `{program}`: no more processes allowed ({step})")]
    NoProcesses {
        program: String,
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("start `{program}`: {step}")]
    Step {
        program: String,
        step: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("start the spawner {program}")]
    Spawner {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("start `{program}`: the spawner died meanwhile")]
    Lost { program: String },
}

/// Returns the likely mistake behind a program that was not found: a whole command line in place
/// of its name, such as `cargo build`, or a program that is not installed.
fn advice(program: &str) -> &'static str {
    match program.contains(char::is_whitespace) {
        true => "name the program alone and give its arguments separately",
        false => "is it installed and on PATH?",
    }
}

impl SpawnError {
    /// Returns the hint for a program that its confinement kept from starting.
    #[must_use]
    pub fn hint(&self, tool: &Tool) -> Option<ConfinementHint> {
        match self {
            Self::OutOfReach { culprit, .. } => Some(culprit.hint(tool, None)),
            _ => None,
        }
    }
}
