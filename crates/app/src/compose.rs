//! Puts the parts together: store, spawner, gate.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

pub use callgate_call::chain;
use callgate_call::{Clock, Topics};
use callgate_dial::Dialer;
use callgate_doors::service::is_path;
use callgate_exporters::{otlp, webhook};
use callgate_gate::{Gate, Setup};
use callgate_registry::config::{Config, DurabilityConfig, StoreConfig, TracesConfig};
use callgate_registry::environment::Environment;
use callgate_registry::paths::{Paths, model_folder};
use callgate_registry::setup::{Extensions, Parts};
use callgate_registry::trust::{Basis, keep_copy};
use callgate_runners::Containers;
use callgate_sandbox::{Confinement, Facility, Spawner, SpawnerSettings};
use callgate_search::Engine;
use callgate_store::{Durability, Options, Store, StoreError};
use callgate_tools::terminals::Terminals;

use crate::clock::SystemClock;
use crate::issuer;

/// What becomes of a process whose state folder can not even be made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NoState {
    /// It does not start.
    Refused,
    /// It serves what needs no record. T-12.
    Borne,
}

/// Opens the state of a workspace, as its configuration says once that is trusted.
pub fn open(
    environment: &Environment,
    paths: Paths,
    no_state: NoState,
) -> Result<Parts, StoreError> {
    let config = Config::default();
    let parts = open_for(environment, paths, &config, no_state)?;
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
            open_for(environment, parts.paths, &source.config, no_state)
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
) -> Result<Parts, StoreError> {
    let options = Options {
        may_lack_folder: no_state == NoState::Borne,
        ..store_options(config)
    };
    let durability = options.durability;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new(environment));
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
        dialer: Arc::new(Dialer::new(issuer::roots)),
        topics,
        terminals,
        servers: Arc::default(),
        clock,
        run_watch: None,
        extensions: Extensions {
            check: check_services,
        },
    })
}

/// A path of `[service]` that another door has, or that is none.
#[derive(Debug, thiserror::Error)]
#[error("service.path: `{0}` is not a path of its own, such as /run")]
struct ServicePathError(String);

/// Checks the settings of doors and exporters without starting any.
fn check_services(
    config: &Config,
    environment: &Environment,
    clock: &Arc<dyn Clock>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    if let Some(jwt) = &config.http.jwt {
        issuer::issuer(jwt, Arc::clone(clock), Vec::new())?;
    }
    otlp::exporter(&config.telemetry, environment, Dialer::new(issuer::roots))?;
    webhook::check(&config.runs)?;
    match config.service.path.as_ref().filter(|path| !is_path(path)) {
        Some(path) => Err(Box::new(ServicePathError(path.clone()))),
        None => Ok(()),
    }
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

/// True if the state is opened in the same way without this configuration.
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
