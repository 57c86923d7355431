//! The pilot as the configuration has it: the policy program, and when goals are reached.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Isolation;
use callgate_gate::{CatalogError, Entry};
use callgate_pilot::PilotSettings;
use callgate_pilot::policy_program::{self, PolicySettings, TIMEOUT_DEFAULT};
use callgate_registry::catalog::{UnsetVariable, child_env};
use callgate_registry::config::{Config, PilotConfig};
use callgate_registry::needs::{Ground, NeedsError};
use callgate_registry::project::is_of_another;
use callgate_registry::setup::Parts;
use callgate_store::{Passing, StoreError};
use callgate_wires::toolhost::SELECTION_BYTES_MAX;

/// Why the policy program of `[pilot]` cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum PilotSettingsError {
    /// The state cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder of its questions.
    #[error("pilot.policy")]
    Questions(#[source] StoreError),
    /// What it may reach.
    #[error("pilot.policy")]
    Needs(#[from] NeedsError),
    /// A variable of its environment.
    #[error("pilot.policy")]
    Variable(#[from] UnsetVariable),
    /// A program that needs nothing: there is none.
    #[error("pilot.policy: it has no needs")]
    NoNeeds,
    /// The tool that it is called by.
    #[error(transparent)]
    Entry(#[from] CatalogError),
}

/// The settings of runs, by the configuration in force.
pub fn pilot_settings(parts: &Parts) -> Result<PilotSettings, PilotSettingsError> {
    let in_force = parts.in_force()?;
    let files = in_force.source().map(|source| source.files.clone());
    let config = in_force.into_config();
    Ok(PilotSettings {
        policy: policy(parts, &config, &files.unwrap_or_default())?,
        goals: config.pilot.goals,
    })
}

fn policy(
    parts: &Parts,
    config: &Config,
    files: &[PathBuf],
) -> Result<Option<Arc<Entry>>, PilotSettingsError> {
    let PilotConfig {
        policy: command,
        env,
        timeout_ms,
        ..
    } = &config.pilot;
    let Some(tool) = config.pilot.tool() else {
        return Ok(None);
    };
    let questions = questions(parts).map_err(PilotSettingsError::Questions)?;
    let ground = Ground::new(&parts.paths, config, files);
    let own = vec![questions.folder().to_owned()];
    let needs = ground.needs(&tool, Isolation::Cold, own)?;
    let settings = PolicySettings {
        name: tool.name.clone(),
        command: command.iter().map(OsString::from).collect(),
        env: child_env(&parts.environment, env)?,
        cwd: parts.paths.workspace.clone(),
        questions,
        needs: needs.ok_or(PilotSettingsError::NoNeeds)?,
        timeout: timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis),
        output_bytes_max: SELECTION_BYTES_MAX,
    };
    let tool = policy_program::tool(Arc::clone(&parts.spawner), settings);
    let entry = Entry::new(tool)?;
    Ok(Some(Arc::new(entry)))
}

/// Outside the state, which no child may enter.
fn questions(parts: &Parts) -> Result<Passing, StoreError> {
    let environment = &parts.environment;
    let temporary = environment
        .os("TMPDIR")
        .map_or(Path::new("/tmp"), Path::new);
    let ours = temporary.join(format!("callgate-pilot-{}", environment.uid));
    let for_all = is_of_another(environment, &parts.paths.workspace);
    Passing::open(&ours, for_all).and_then(|_| Passing::open(&ours.join(parts.paths.id()), for_all))
}
