//! The pilot as the configuration has it: the policy program, and when goals are reached.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::Isolation;
use callgate_gate::Entry;
use callgate_pilot::PilotSettings;
use callgate_pilot::policy_program::{self, PolicySettings, TIMEOUT_DEFAULT};
use callgate_registry::catalog::child_env;
use callgate_registry::config::{Config, PilotConfig};
use callgate_registry::needs::Ground;
use callgate_registry::project::is_of_another;
use callgate_registry::setup::Parts;
use callgate_store::Passing;
use callgate_wires::toolhost::SELECTION_BYTES_MAX;

use crate::compose::chain;

/// The settings of runs, by the configuration in force.
pub fn pilot_settings(parts: &Parts) -> Result<PilotSettings, String> {
    let in_force = parts.in_force().map_err(|error| chain(&error))?;
    let files = in_force.source().map(|source| source.files.clone());
    let config = in_force.into_config();
    Ok(PilotSettings {
        policy: policy(parts, &config, &files.unwrap_or_default())?,
        goals: config.pilot.goals,
    })
}

fn policy(parts: &Parts, config: &Config, files: &[PathBuf]) -> Result<Option<Arc<Entry>>, String> {
    let PilotConfig {
        policy: command,
        env,
        timeout_ms,
        ..
    } = &config.pilot;
    let Some(tool) = config.pilot.tool() else {
        return Ok(None);
    };
    let about = |reason: String| format!("pilot.policy: {reason}");
    let questions = questions(parts).map_err(about)?;
    let ground = Ground::new(&parts.paths, config, files);
    let own = vec![questions.folder().to_owned()];
    let needs = ground
        .needs(&tool, Isolation::Cold, own)
        .map_err(|error| about(chain(&error)))?;
    let settings = PolicySettings {
        name: tool.name.clone(),
        command: command.iter().map(OsString::from).collect(),
        env: child_env(&parts.environment, env).map_err(|error| about(chain(&error)))?,
        cwd: parts.paths.workspace.clone(),
        questions,
        needs: needs.ok_or("pilot.policy: it has no needs")?,
        timeout: timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis),
        output_bytes_max: SELECTION_BYTES_MAX,
    };
    let tool = policy_program::tool(Arc::clone(&parts.spawner), settings);
    let entry = Entry::new(tool).map_err(|error| error.to_string())?;
    Ok(Some(Arc::new(entry)))
}

/// Outside the state, which no child may enter.
fn questions(parts: &Parts) -> Result<Passing, String> {
    let environment = &parts.environment;
    let temporary = environment
        .os("TMPDIR")
        .map_or(Path::new("/tmp"), Path::new);
    let ours = temporary.join(format!("callgate-pilot-{}", environment.uid));
    let for_all = is_of_another(environment, &parts.paths.workspace);
    let opened = Passing::open(&ours, for_all)
        .and_then(|_| Passing::open(&ours.join(parts.paths.id()), for_all));
    opened.map_err(|error| chain(&error))
}
