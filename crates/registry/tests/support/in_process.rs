//! A workspace that is opened and trusted in the test's own process, as commands of the program do it
//! in theirs. Tests of the crates above have the like in `testing-workspace`, which uses this crate.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use callgate_call::{ManualClock, Timestamp, chain};
use callgate_gate::Gate;
use callgate_registry::candidate::Candidate;
use callgate_registry::declared::Declarations;
use callgate_registry::environment::Environment;
use callgate_registry::open::{self, NoState, Surroundings};
use callgate_registry::paths::Paths;
use callgate_registry::setup::{Extensions, Parts};
use callgate_testing::scripts::{TOOL, folder_of};
use callgate_testing::{misbehave, search_path};

pub use callgate_testing::TempFolder as Folder;

/// Returns an environment with the state in `folder/state`, the home in `folder` and these variables.
pub fn environment(folder: &Folder, variables: &[(&str, &OsStr)]) -> Environment {
    let own = [
        ("PATH", search_path()),
        ("HOME", folder.path().as_os_str().to_owned()),
        ("CALLGATE_STATE", folder.join("state").into_os_string()),
    ];
    let own = own.map(|(name, value)| (OsString::from(name), value));
    let more = variables
        .iter()
        .map(|(name, value)| (OsString::from(name), value.to_os_string()));
    let all: BTreeMap<OsString, OsString> = own.into_iter().chain(more).collect();
    let uid = rustix::process::geteuid().as_raw();
    let mut environment = Environment::new(all, folder.path().to_owned(), uid);
    misbehave().clone_into(&mut environment.program);
    environment
}

/// An open workspace. Its store is closed when it is dropped, as at the end of a command.
pub struct Opened {
    /// The parts that serve the workspace.
    pub parts: Arc<Parts>,
}

impl Opened {
    /// Opens the workspace in `folder`.
    pub fn new(folder: &Folder) -> Self {
        Self::in_environment(folder, &environment(folder, &[]))
    }

    /// Opens the workspace with this environment.
    pub fn in_environment(folder: &Folder, environment: &Environment) -> Self {
        let surroundings = Surroundings {
            clock: Arc::new(ManualClock::at(Timestamp(1_790_000_000_000))),
            roots: Vec::new,
            extensions: Extensions {
                check: |_, _, _| Ok(()),
            },
        };
        let paths = Paths::new(environment, folder.path(), None, None).expect("paths");
        let parts = open::open(environment, paths, NoState::Refused, &surroundings);
        Self {
            parts: Arc::new(parts.expect("open the state")),
        }
    }

    /// Records that the owner trusts the configuration. The error has the words for the owner.
    pub fn trust(&self) -> Result<(), String> {
        let candidate = Candidate::read(&self.parts, Declarations::default());
        let candidate = candidate.map_err(|error| chain(&error))?;
        let refused = candidate.refuse_unlisted(&self.parts);
        refused.map_err(|error| chain(&error))?;
        let checked = candidate
            .check(&self.parts)
            .map_err(|error| chain(&error))?;
        checked.trust(&self.parts).map_err(|error| chain(&error))
    }

    /// Returns the gate with the configuration in force. The error has the words for the owner.
    pub fn gate(&self) -> Result<Arc<Gate>, String> {
        let setup = self.parts.setup().map_err(|error| chain(&error))?;
        Ok(Arc::new(open::gate(&self.parts, setup)))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A store that the test has damaged need not close.
        let _ = self.parts.store.close();
    }
}

/// Runs a future to its end.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future)
}

/// Trusts the configuration in `folder`, which must be good.
pub fn trust(folder: &Folder) {
    Opened::new(folder).trust().expect("a good configuration");
}

/// Creates a workspace with these files, its configuration among them, and trusts it.
pub fn trusted_with(files: &[(&str, &str)]) -> Folder {
    let folder = folder_of(files);
    trust(&folder);
    folder
}

/// Creates a trusted workspace with this configuration and `TOOL` as `tool.sh`.
pub fn trusted(config: &str) -> Folder {
    trusted_with(&[("callgate.toml", config), ("tool.sh", TOOL)])
}
