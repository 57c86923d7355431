//! Runs of the pilot in a workspace, as `callgate pilot` and `callgate replay` make them.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Caller, Cancel, Isolation};
use callgate_gate::{Entry, Gate};
use callgate_pilot::policy_program::{self, PolicySettings, TIMEOUT_DEFAULT};
use callgate_pilot::replay::Halt;
use callgate_pilot::run::{ended_json, fresh_run_id, keep_log, take_and_drive};
use callgate_pilot::{Pilot, PilotError, PilotSettings};
use callgate_pilot_events::log;
use callgate_registry::catalog::child_env;
use callgate_registry::needs::Ground;
use callgate_store::{Passing, PilotEvent};
use callgate_wires::toolhost::{RunRequest, SELECTION_BYTES_MAX};
use serde_json::{Value, json};

use callgate_testing_workspace::{Folder, Opened, block_on};

/// The gate of a workspace and the settings of its runs.
struct Piloted {
    opened: Opened,
    gate: Arc<Gate>,
    settings: PilotSettings,
}

impl Piloted {
    fn new(folder: &Folder) -> Self {
        let opened = Opened::new(folder);
        let gate = opened.gate().expect("a setup");
        let settings = settings(folder, &opened);
        Self {
            opened,
            gate,
            settings,
        }
    }

    fn pilot(&self) -> Pilot<'_> {
        let caller = Caller::uid(self.opened.parts.environment.uid);
        self.settings
            .pilot(&self.gate, caller, Arc::new(Cancel::new()))
    }

    /// The report of a run that ended, and its log.
    fn report(&self, progress: &callgate_pilot_events::Progress, known: bool) -> Value {
        let parts = &self.opened.parts;
        let log = keep_log(&parts.store, &parts.paths.state, &progress.header.run_id);
        ended_json(progress, known, &log.expect("a log"))
    }
}

/// The settings that the configuration in force has.
fn settings(folder: &Folder, opened: &Opened) -> PilotSettings {
    let parts = &opened.parts;
    let in_force = parts.in_force().expect("a readable state");
    let files = in_force.source().map(|source| source.files.clone());
    let config = in_force.into_config();
    let policy = config.pilot.tool().map(|tool| {
        let questions = Passing::open(&folder.join("questions"), false).expect("a folder");
        let ground = Ground::new(&parts.paths, &config, &files.unwrap_or_default());
        let own = vec![questions.folder().to_owned()];
        let needs = ground.needs(&tool, Isolation::Cold, own).expect("needs");
        let settings = PolicySettings {
            name: tool.name.clone(),
            command: config.pilot.policy.iter().map(OsString::from).collect(),
            env: child_env(&parts.environment, &config.pilot.env).expect("variables"),
            cwd: parts.paths.workspace.clone(),
            questions,
            needs: needs.expect("a program has needs"),
            timeout: config
                .pilot
                .timeout_ms
                .map_or(TIMEOUT_DEFAULT, Duration::from_millis),
            output_bytes_max: SELECTION_BYTES_MAX,
        };
        let tool = policy_program::tool(Arc::clone(&parts.spawner), settings);
        Arc::new(Entry::new(tool).expect("a tool"))
    });
    PilotSettings {
        policy,
        goals: config.pilot.goals,
    }
}

/// Takes a request and drives its run to its end.
pub fn taken(folder: &Folder, request: &Value) -> Result<Value, PilotError> {
    let request = RunRequest::parse(request.to_string().as_bytes()).expect("a request");
    let piloted = Piloted::new(folder);
    let run = fresh_run_id()?;
    let driven = block_on(take_and_drive(&piloted.pilot(), &request, run));
    driven.map(|(progress, _, known)| piloted.report(&progress, known))
}

/// The report of a run that came to its end, which need not be a good one.
pub fn ended(folder: &Folder, request: &Value) -> Value {
    let end = taken(folder, request);
    end.unwrap_or_else(|error| panic!("{error}"))
}

/// Goes on with a run.
pub fn resumed(folder: &Folder, run: &str) -> Value {
    let piloted = Piloted::new(folder);
    let pilot = piloted.pilot();
    let mut taken = pilot.take_up(run).expect("a run");
    pilot.resume(&mut taken.progress, true).expect("it goes on");
    block_on(pilot.drive(&mut taken.progress)).expect("an end");
    piloted.report(&taken.progress, true)
}

/// Records a person's decision.
pub fn decide(folder: &Folder, approval: &str, granted: bool) {
    let gate = Opened::new(folder).gate().expect("a setup");
    let decided = gate.decide(approval, granted, "uid:0", None);
    decided.expect("a decision");
}

/// What a replay of these events says: how much was replayed, or the first difference.
fn replayed(folder: &Folder, events: &[PilotEvent]) -> Value {
    let piloted = Piloted::new(folder);
    match block_on(piloted.pilot().replay(events)) {
        Ok(done) => json!({
            "ok": true, "events": done.events, "rerun": done.rerun, "taken": done.taken,
        }),
        Err(Halt::Differs(found)) => json!({ "ok": false, "difference": {
            "event": found.event, "step": found.step, "aid": found.aid, "what": found.what,
            "recorded": found.recorded, "found": found.found,
        } }),
        Err(halt) => panic!("{halt:?}"),
    }
}

/// Replays a run of the workspace.
pub fn replay(folder: &Folder, run: &str) -> Value {
    let events = Opened::new(folder).parts.store.pilot_events(run);
    let events = events.expect("a readable journal");
    assert!(!events.is_empty(), "there is no run {run}");
    replayed(folder, &events)
}

/// Replays a log.
pub fn replay_log(folder: &Folder, text: &str) -> Value {
    match log::read(text) {
        Ok(events) => replayed(folder, &events),
        Err(reason) => json!({ "ok": false, "difference": { "what": reason } }),
    }
}
