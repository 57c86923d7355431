//! Opening a workspace: its state, the spawner of its children, its index and its sessions, as its
//! configuration says once that is trusted. Serving it is what processes do with the parts.

use std::path::Path;
use std::sync::Arc;

use callgate_call::{Clock, Topics, chain};
use callgate_dial::Dialer;
use callgate_gate::{Gate, Setup};
use callgate_runners::Containers;
use callgate_sandbox::{Confinement, Facility, Spawner, SpawnerSettings};
use callgate_search::Engine;
use callgate_store::{Durability, Options, Store, StoreError};
use callgate_tools::terminals::Terminals;

use crate::config::{Config, DurabilityConfig, StoreConfig, TracesConfig};
use crate::environment::Environment;
use crate::paths::{Paths, model_folder};
use crate::setup::{Extensions, Parts};
use crate::trust::{Basis, keep_copy};

/// The fate of a process whose state folder cannot even be created.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NoState {
    /// The process does not start.
    Refused,
    /// The process serves what needs no record. T-12.
    Borne,
}

/// Functions and sources that a process brings along.
#[derive(Clone)]
pub struct Surroundings {
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Certificates (DER) of the authorities that may vouch for servers.
    pub roots: fn() -> Vec<Vec<u8>>,
    /// Contributions of the crates above this one.
    pub extensions: Extensions,
}

/// Opens the state of a workspace, as its configuration says once that is trusted.
pub fn open(
    environment: &Environment,
    paths: Paths,
    no_state: NoState,
    surroundings: &Surroundings,
) -> Result<Parts, StoreError> {
    let config = Config::default();
    let parts = open_for(environment, paths, &config, no_state, surroundings)?;
    // A damaged chain must not keep `audit verify` from saying so: it is met again by
    // whoever needs the configuration.
    let Ok(in_force) = parts.in_force() else {
        return Ok(parts);
    };
    if let Basis::Files(source) = &in_force.basis
        && let Err(error) = keep_copy(environment, &parts.paths, &parts.store, source.digest)
    {
        tracing::warn!(error = chain(&error), "copy the trusted configuration");
    }
    match in_force.source() {
        Some(source) if !keeps_as_usual(&source.config) => {
            let config = &source.config;
            open_for(environment, parts.paths, config, no_state, surroundings)
        }
        _ => Ok(parts),
    }
}

/// Opens the state for a configuration that counts.
pub fn open_for(
    environment: &Environment,
    paths: Paths,
    config: &Config,
    no_state: NoState,
    surroundings: &Surroundings,
) -> Result<Parts, StoreError> {
    let options = Options {
        may_lack_folder: no_state == NoState::Borne,
        ..store_options(config)
    };
    let durability = options.durability;
    let clock = Arc::clone(&surroundings.clock);
    let store = Arc::new(Store::open(&paths.state, options, Arc::clone(&clock))?);
    let spawner =
        Spawner::with_settings(environment.program.clone(), spawner_settings(environment));
    let containers = Containers::new(environment.program.clone(), &paths.id());
    let topics = Topics::default();
    let terminals = Terminals::new(Arc::clone(&spawner), topics.clone(), Arc::clone(&clock));
    let model = model_folder(environment);
    let engine = Engine::new(&paths.state, model, Arc::clone(&clock)).keeping(durability);
    let engine = Arc::new(engine);
    let notes = Arc::new(engine.beside(&paths.state.join("memory")));
    Ok(Parts {
        environment: Arc::new(environment.clone()),
        paths,
        engine,
        notes,
        store,
        spawner,
        containers,
        dialer: Arc::new(Dialer::new(surroundings.roots)),
        topics,
        terminals,
        servers: Arc::default(),
        clock,
        run_watch: None,
        extensions: surroundings.extensions,
    })
}

/// The gate in front of a setup.
pub fn gate(parts: &Parts, setup: Setup) -> Gate {
    let seed = getrandom::u64().unwrap_or_else(|_| {
        // Without randomness the process id and the clock must keep ids apart.
        parts.clock.now().0 ^ (u64::from(std::process::id()) << 40)
    });
    let store = Arc::clone(&parts.store);
    Gate::new(
        setup,
        store,
        Arc::new(Confinement::new(Arc::clone(&parts.spawner))),
        Arc::clone(&parts.clock),
        seed,
    )
    .with_topics(parts.topics.clone())
}

/// Returns whether the state is opened in the same way without this configuration.
fn keeps_as_usual(config: &Config) -> bool {
    config.store == StoreConfig::default() && config.traces == TracesConfig::default()
}

fn spawner_settings(environment: &Environment) -> SpawnerSettings {
    let words = environment.text("CALLGATE_HIDE").unwrap_or_default();
    let temporary = environment
        .os("TMPDIR")
        .map_or(Path::new("/tmp"), Path::new);
    SpawnerSettings {
        scratch: temporary.join(format!("callgate-{}", environment.uid)),
        // For tests and `doctor`: how we do without.
        hidden: words.split(',').filter_map(Facility::from_word).collect(),
        ..SpawnerSettings::default()
    }
}

fn store_options(config: &Config) -> Options {
    let usual = Options::default();
    Options {
        durability: match config.store.durability {
            DurabilityConfig::Process => Durability::Process,
            DurabilityConfig::Power => Durability::Power,
        },
        keys_max: config.store.keys_max.unwrap_or(usual.keys_max),
        key_life: config.store.key_life().unwrap_or(usual.key_life),
        traces_max_bytes: config.traces.max_bytes.unwrap_or(usual.traces_max_bytes),
        runs_bytes_max: config.store.runs_max_bytes.unwrap_or(usual.runs_bytes_max),
        ..usual
    }
}
