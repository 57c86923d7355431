//! A configuration that its owner is asked to trust: read from the files of the workspace, checked,
//! and recorded as trusted. Showing it, and asking functions what they declare, is the command's.

use callgate_call::Digest;
use callgate_gate::Setup;

use crate::declared::Declarations;
use crate::needs::unlisted_code;
use crate::setup::{Builtins, Parts, SetupError};
use crate::trust::{TrustError, trust_as};
use crate::workspace::{CopiedFiles, Source, SourceError};

/// A configuration as it was read, not checked yet.
#[derive(Debug)]
pub struct Candidate {
    source: Source,
    files: CopiedFiles,
}

/// A configuration that holds together.
pub struct CheckedCandidate {
    digest: Digest,
    files: CopiedFiles,
    /// The setup that the configuration makes.
    pub setup: Setup,
}

/// The reason why a configuration cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum CandidateError {
    /// It is not known what its tools load as code: a line for each.
    #[error("{}", .0.join("\n"))]
    Unlisted(Vec<String>),
    /// It makes no setup.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Candidate {
    /// Reads the configuration of the workspace, with what its functions declare.
    pub fn read(parts: &Parts, declared: Declarations) -> Result<Self, SourceError> {
        let root = &parts.paths.workspace;
        let (source, files) = Source::to_copy(&parts.environment, root, declared)?;
        Ok(Self { source, files })
    }

    /// The configuration.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The code that tools may load and that is not listed: a line for each.
    pub fn unlisted(&self, parts: &Parts) -> Vec<String> {
        unlisted_code(&parts.paths.workspace, &self.source.config)
    }

    /// Refuses a configuration with code that is not listed.
    pub fn refuse_unlisted(&self, parts: &Parts) -> Result<(), CandidateError> {
        let unlisted = self.unlisted(parts);
        match unlisted.is_empty() {
            true => Ok(()),
            false => Err(CandidateError::Unlisted(unlisted)),
        }
    }

    /// Makes the setup of the configuration: nothing is trusted that would not load.
    pub fn check(self, parts: &Parts) -> Result<CheckedCandidate, CandidateError> {
        let (digest, files) = (self.source.digest, self.files);
        let setup = parts.setup_of(self.source, Builtins::With, String::new())?;
        Ok(CheckedCandidate {
            digest,
            files,
            setup,
        })
    }
}

impl CheckedCandidate {
    /// Records that the owner trusts the configuration.
    pub fn trust(&self, parts: &Parts) -> Result<(), TrustError> {
        trust_as(
            &parts.environment,
            &parts.paths,
            &parts.store,
            self.digest,
            &self.files,
        )
    }
}
