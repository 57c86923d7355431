//! A workspace that is opened, trusted and called in the test's own process, as commands of the
//! program do it in theirs. The tests of `doors` include this file as well.

#![allow(
    dead_code,
    reason = "two crates include this file, and each uses a part of it"
)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use callgate_call::{Clock, Timestamp, Topics, chain};
use callgate_dial::Dialer;
use callgate_gate::{Gate, Setup};
use callgate_registry::candidate::Candidate;
use callgate_registry::declared::Declarations;
use callgate_registry::environment::Environment;
use callgate_registry::paths::{Paths, model_folder};
use callgate_registry::setup::{Extensions, Parts};
use callgate_runners::Containers;
use callgate_sandbox::{Confinement, Spawner, SpawnerSettings};
use callgate_search::Engine;
use callgate_store::{Filter, Options, Store};
use callgate_testing::misbehave;
use callgate_testing::scripts::{TOOL, folder_of};
use callgate_tools::terminals::Terminals;
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

/// An environment with the state in `folder/state`, the home in `folder` and these variables.
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

/// The interpreter of the tests first, then the usual folders.
fn search_path() -> OsString {
    let given = std::env::var_os("CALLGATE_TEST_PYTHON").map(PathBuf::from);
    let first = given.and_then(|python| python.parent().map(PathBuf::from));
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from);
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let rest: Vec<PathBuf> = std::env::split_paths(&inherited).collect();
    std::env::join_paths(first.into_iter().chain(usual).chain(rest))
        .expect("folders without a colon")
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

/// An open workspace. Its store is closed when it is dropped, as at the end of a command.
pub struct Opened {
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
        let paths = Paths::new(environment, folder.path(), None, None).expect("paths");
        let began = Instant::now();
        let clock: Arc<dyn Clock> = Arc::new(MachineClock { began, ahead_ms });
        let store = Store::open(&paths.state, Options::default(), Arc::clone(&clock));
        let settings = SpawnerSettings {
            scratch: std::env::temp_dir().join(format!("callgate-{}", environment.uid)),
            ..SpawnerSettings::default()
        };
        let spawner = Spawner::with_settings(environment.program.clone(), settings);
        let topics = Topics::default();
        let terminals = Terminals::new(Arc::clone(&spawner), topics.clone(), Arc::clone(&clock));
        let model = model_folder(environment);
        let engine = Arc::new(Engine::new(&paths.state, model, Arc::clone(&clock)));
        let notes = Arc::new(engine.beside(&paths.state.join("memory")));
        let parts = Parts {
            environment: Arc::new(environment.clone()),
            store: Arc::new(store.expect("open the state")),
            spawner,
            containers: Containers::new(environment.program.clone(), &paths.id()),
            dialer: Arc::new(Dialer::new(Vec::new)),
            topics,
            terminals,
            engine,
            notes,
            clock,
            run_watch: None,
            extensions: Extensions {
                check: |_, _, _| Ok(()),
            },
            paths,
        };
        Self {
            parts: Arc::new(parts),
        }
    }

    /// Records that the owner trusts the configuration; the error has the words for the owner.
    pub fn trust(&self) -> Result<(), String> {
        let words = |error: &dyn std::error::Error| chain(error);
        let candidate = Candidate::read(&self.parts, Declarations::default());
        let candidate = candidate.map_err(|error| words(&error))?;
        candidate
            .refuse_unlisted(&self.parts)
            .map_err(|error| words(&error))?;
        let checked = candidate
            .check(&self.parts)
            .map_err(|error| words(&error))?;
        checked.trust(&self.parts).map_err(|error| words(&error))
    }

    /// The gate with the configuration in force; the error has the words for the owner.
    pub fn gate(&self) -> Result<Arc<Gate>, String> {
        let setup = self.parts.setup().map_err(|error| chain(&error))?;
        Ok(self.gate_of(setup))
    }

    /// The gate in front of a setup.
    pub fn gate_of(&self, setup: Setup) -> Arc<Gate> {
        let gate = Gate::new(
            setup,
            Arc::clone(&self.parts.store),
            Arc::new(Confinement::new(Arc::clone(&self.parts.spawner))),
            Arc::clone(&self.parts.clock),
            u64::from(std::process::id()),
        );
        Arc::new(gate.with_topics(self.parts.topics.clone()))
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

/// The records of the chain.
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
