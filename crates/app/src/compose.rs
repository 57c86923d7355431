//! Puts the parts together: store, spawner, gate.

use std::error::Error;
use std::sync::Arc;

use callgate_call::Clock;
pub use callgate_call::chain;
use callgate_dial::Dialer;
use callgate_doors::service::is_path;
use callgate_exporters::{otlp, webhook};
use callgate_registry::config::Config;
use callgate_registry::environment::Environment;
use callgate_registry::open::{self, Surroundings};
pub use callgate_registry::open::{NoState, gate};
use callgate_registry::paths::Paths;
use callgate_registry::setup::{Extensions, Parts};
use callgate_store::StoreError;

use crate::clock::SystemClock;
use crate::issuer;

/// Opens the state of a workspace, as its configuration says once that is trusted.
pub fn open(
    environment: &Environment,
    paths: Paths,
    no_state: NoState,
) -> Result<Parts, StoreError> {
    open::open(environment, paths, no_state, &surroundings(environment))
}

/// Opens the state for a configuration that counts.
pub fn open_for(
    environment: &Environment,
    paths: Paths,
    config: &Config,
    no_state: NoState,
) -> Result<Parts, StoreError> {
    let surroundings = surroundings(environment);
    open::open_for(environment, paths, config, no_state, &surroundings)
}

fn surroundings(environment: &Environment) -> Surroundings {
    Surroundings {
        clock: Arc::new(SystemClock::new(environment)),
        roots: issuer::roots,
        extensions: Extensions {
            check: check_services,
        },
    }
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
