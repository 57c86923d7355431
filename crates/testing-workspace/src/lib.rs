//! A workspace that is opened, trusted and served in the test's own process, as commands of the program
//! do it in theirs. A development dependency only; nothing of it is in a release.

#![expect(
    clippy::disallowed_methods,
    reason = "tests read the environment and the time"
)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use callgate_call::{Clock, Timestamp, chain};
use callgate_gate::{Gate, Setup};
use callgate_registry::candidate::Candidate;
use callgate_registry::declared::Declarations;
use callgate_registry::environment::Environment;
use callgate_registry::open::{self, NoState, Surroundings};
use callgate_registry::paths::Paths;
use callgate_registry::setup::{Extensions, Parts};
use callgate_store::Filter;
use callgate_testing::scripts::{TOOL, folder_of};
use callgate_testing::{misbehave, search_path};
use serde_json::Value;

pub use callgate_testing::TempFolder as Folder;

/// The clock of the machine, or one that is ahead of it.
struct MachineClock {
    began: Instant,
    ahead_ms: u64,
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.expect("the year is past 1970");
        Timestamp(u64::try_from(since.as_millis()).expect("a time that fits") + self.ahead_ms)
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("a time that fits")
    }
}

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

    /// Opens the workspace with a clock that is ahead.
    pub fn ahead(folder: &Folder, ahead_ms: u64) -> Self {
        Self::with_clock(folder, &environment(folder, &[]), ahead_ms)
    }

    /// Opens the workspace with this environment.
    pub fn in_environment(folder: &Folder, environment: &Environment) -> Self {
        Self::with_clock(folder, environment, 0)
    }

    fn with_clock(folder: &Folder, environment: &Environment, ahead_ms: u64) -> Self {
        let began = Instant::now();
        let surroundings = Surroundings {
            clock: Arc::new(MachineClock { began, ahead_ms }),
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
        Ok(self.gate_of(setup))
    }

    /// Returns the gate in front of a setup.
    pub fn gate_of(&self, setup: Setup) -> Arc<Gate> {
        Arc::new(open::gate(&self.parts, setup))
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

/// Returns the records of the chain.
pub fn records(folder: &Folder) -> Vec<Value> {
    let opened = Opened::new(folder);
    let mut records = Vec::new();
    let shown = opened.parts.store.show(&Filter::default(), &mut |record| {
        records.push(serde_json::from_str(record.body).expect("a record"));
        true
    });
    shown.expect("read the chain");
    records
}

/// Verifies the chain, which must be good. Returns the number of its records.
pub fn verified(folder: &Folder) -> u64 {
    let verdict = Opened::new(folder).parts.store.verify().expect("verify");
    assert!(verdict.is_good(), "{verdict:?}");
    verdict.records
}
