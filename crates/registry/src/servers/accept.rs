//! Changes of servers that their owner has agreed to: `callgate.toml` and `callgate.lock` are
//! written, and trusted as exactly what was written.
//!
//! A change begins with files that are trusted as they are, so that agreeing to it never agrees to
//! something else that was edited meanwhile.

use std::path::PathBuf;

use callgate_call::bounded::read_path_text;
use callgate_store::{StoreError, write_file};

use crate::candidate::{Candidate, CandidateError};
use crate::lock::{LOCK_FILE, LockError, LockedServers};
use crate::servers::edit::{ConfigEdit, EditError};
use crate::setup::Parts;
use crate::trust::{Basis, TrustError, declared};
use crate::workspace::{CONFIG_FILE, FILE_BYTES_MAX, SourceError};

/// Readable by all: nothing in these files is secret.
const MODE: u32 = 0o644;

/// The files of a configuration while its servers are changed.
pub struct ServersChange {
    /// The text as it was; empty where there was no file.
    before: String,
    had_file: bool,
    /// The text of `callgate.toml` as it is to be.
    pub config: ConfigEdit,
    /// The lock as it is to be.
    pub lock: LockedServers,
}

/// Why servers are not changed.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The files are not what was trusted.
    #[error(
        "{0}: look at the configuration and run `callgate trust` first, so that agreeing to this \
         agrees to nothing else"
    )]
    NotTrusted(String),
    /// The files changed while the owner was asked.
    #[error("{CONFIG_FILE} was changed meanwhile: nothing is written; try again")]
    Meanwhile,
    /// A file cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The text cannot be changed.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The lock cannot be read.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A file or the state cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was written does not load.
    #[error("written, and not trusted")]
    Source(#[from] SourceError),
    /// What was written makes no setup.
    #[error("written, and not trusted")]
    Candidate(#[from] CandidateError),
    /// The trust is not recorded.
    #[error("written, and not trusted")]
    Trust(#[from] TrustError),
}

impl ServersChange {
    /// Begins with the files as they are, which must be trusted or not be there.
    pub fn begin(parts: &Parts) -> Result<Self, AcceptError> {
        let in_force = parts.in_force()?;
        let (text, had_file) = read(parts, CONFIG_FILE)?;
        match in_force.basis {
            Basis::Files(_) => {}
            // A folder without a configuration may get its first one.
            Basis::Builtins if !had_file => {}
            _ => return Err(AcceptError::NotTrusted(in_force.note())),
        }
        let (lock, has_lock) = read(parts, LOCK_FILE)?;
        let lock = match has_lock {
            true => LockedServers::parse(&lock)?,
            false => LockedServers::default(),
        };
        Ok(Self {
            config: ConfigEdit::new(&text)?,
            before: text,
            had_file,
            lock,
        })
    }

    /// Writes the files and trusts them. A process that is killed in between leaves what was
    /// trusted before in force.
    pub fn accept(mut self, parts: &Parts) -> Result<(), AcceptError> {
        let names = self.config.names()?;
        self.lock.retain(|server| names.contains(&server.name));
        if read(parts, CONFIG_FILE)? != (self.before, self.had_file) {
            return Err(AcceptError::Meanwhile);
        }
        let root = &parts.paths.workspace;
        let text = self.config.text();
        write_file(&root.join(LOCK_FILE), &self.lock.text(), MODE)?;
        write_file(&root.join(CONFIG_FILE), &text, MODE)?;
        let candidate = Candidate::read(parts, declared(&parts.paths, &parts.store)?)?;
        let source = candidate.source();
        if source.text.as_deref() != Some(&*text) || source.config.lock.read()? != self.lock {
            return Err(AcceptError::Meanwhile);
        }
        candidate.refuse_unlisted(parts)?;
        candidate.check(parts)?.trust(parts)?;
        Ok(())
    }
}

/// The text of a file of the workspace, and whether it is there.
fn read(parts: &Parts, name: &str) -> Result<(String, bool), AcceptError> {
    let path = parts.paths.workspace.join(name);
    match read_path_text(&path, FILE_BYTES_MAX) {
        Ok(text) => Ok((text, true)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok((String::new(), false)),
        Err(source) => Err(AcceptError::Read { path, source }),
    }
}
