//! Runs as tools: `runs/start` has an executor run, by the same rules as `exec/run`;
//! `runs/list`, `runs/get` and `artifacts/read` tell what was kept of runs (`seen.rs`,
//! `artifact.rs`), those of the pilot among them (`kept.rs`). How a run is carried out is the
//! runners', and is handed in.

pub(crate) mod artifact;
mod kept;
pub(crate) mod order;
pub(crate) mod seen;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{
    Fault, Job, Needs, Notification, Output, RunFuture, RunOrder, Runner, Tier, Tool,
};
use callgate_sandbox::{Limits, Spec, resolve};
use callgate_store::{Store, StoreError};
use serde_json::{Value, json};

use crate::arguments::arguments;
use crate::builtin;
use crate::exec::not_started;
use crate::programs::{Programs, Variables, bad, leave, live_in, names_home};

pub use artifact::ARTIFACT_TEMPLATE;
pub use kept::{KeptRun, RunKind, find, page, pilot_events};
use order::RunStartArguments;
pub use seen::{RUN_TEMPLATE, artifact as shown_artifact, run as shown_run};

/// Runs at the same time: each has a thread of its own.
const CONCURRENCY_MAX: usize = 64;
/// For a run that does not say; further while it shows progress. G-2b.
pub const RUN_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// And no further than this. G-2b.
pub const RUN_TIMEOUT_CAP: Duration = Duration::from_secs(24 * 60 * 60);

/// Carries runs out.
pub trait Starts: Send + Sync {
    /// One run to its report. `spec` is the executor without its streams.
    fn start<'a>(&'a self, job: Job<'a>, spec: Spec, order: RunOrder) -> RunFuture<'a>;
}

/// What the owner lets be run, and how.
pub struct RunSettings {
    /// Which executors, where.
    pub programs: Programs,
    /// What each process may take.
    pub limits: Limits,
    /// How dangerous it is.
    pub tier: Tier,
    /// What confines it.
    pub needs: Arc<Needs>,
    /// What all runs have, unless a call says otherwise.
    pub order: RunOrder,
    /// Carries them out.
    pub starts: Box<dyn Starts>,
}

/// `runs/start`.
#[must_use]
pub fn start(settings: RunSettings) -> Tool {
    let (tier, needs) = (settings.tier, Arc::clone(&settings.needs));
    let about =
        "Run an executor: keep the events and artifacts that it streams, and say how it ended";
    let tool = builtin(
        "runs/start",
        "AID.RUNS.START.v1",
        about,
        order::schema(),
        Arc::new(Start { settings }),
    );
    Tool {
        tier,
        output_schema: Some(report_schema()),
        side_effects: vec!["process_spawn".to_owned(), "filesystem_write".to_owned()],
        writes: vec![".".to_owned()],
        concurrency_max: CONCURRENCY_MAX,
        timeout: Some(RUN_TIMEOUT),
        timeout_cap: Some(RUN_TIMEOUT_CAP),
        needs: Some(needs),
        gives_resources: true,
        runs_callers_code: true,
        ..titled(tool, "Start Run")
    }
}

/// The tools that tell what was kept.
#[must_use]
pub fn readers(store: &Arc<Store>) -> Vec<Tool> {
    vec![
        titled(seen::list(Arc::clone(store)), "List Runs"),
        titled(seen::get(Arc::clone(store)), "Show Run"),
        titled(artifact::read(Arc::clone(store)), "Read Artifact"),
    ]
}

fn titled(mut tool: Tool, title: &str) -> Tool {
    tool.face.title = Some(title.to_owned());
    tool.tags.push("runs".to_owned());
    tool.tells = vec![updated()];
    tool
}

/// What everyone is told while a run goes on, whoever carries it out.
fn updated() -> Notification {
    let text = json!({ "type": "string" });
    let artifact = json!({
        "uri": text, "artifact_id": text, "digest": text, "name": text, "mimeType": text,
        "size": { "type": "integer", "minimum": 0 },
    });
    let all = ["uri", "artifact_id", "digest", "name", "mimeType", "size"];
    let properties = json!({
        "run_id": text,
        "attempt": { "type": "integer", "minimum": 0 },
        "job_id": text,
        "state": { "type": "string", "enum": ["started", "artifact", "ended"] },
        "artifact": crate::closed(artifact, &all),
        "outcome": text,
    });
    Notification {
        name: "runs/updated",
        schema: crate::closed(properties, &["run_id", "attempt", "state"]),
    }
}

/// What a report has at least. ST-86.
fn report_schema() -> Value {
    let (text, number, object) = (
        json!({ "type": "string" }),
        json!({ "type": "integer" }),
        json!({ "type": "object" }),
    );
    json!({
        "type": "object",
        "properties": {
            "run_id": text,
            "job_id": { "type": ["string", "null"] },
            "attempt": number,
            "outcome": text,
            "message": text,
            "exit_code": { "type": ["integer", "null"] },
            "duration_ms": number,
            "event_count": number,
            "artifacts": object,
            "policy": object,
            "metrics": object,
            "resources": { "type": "array", "items": object },
            "run": object,
        },
        "required": [
            "run_id", "attempt", "outcome", "message", "duration_ms", "event_count", "artifacts",
            "policy", "metrics", "resources",
        ],
    })
}

struct Start {
    settings: RunSettings,
}

/// A run that a call asks for, ready to be started.
struct PreparedRun {
    /// The executor, without its streams.
    spec: Spec,
    order: RunOrder,
    /// The call names a home of its own.
    names_home: bool,
}

impl Runner for Start {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        match self.read(job) {
            Ok(prepared) => Box::pin(self.start(job, prepared)),
            Err(fault) => Box::pin(std::future::ready(Err(fault))),
        }
    }

    fn check(&self, job: Job<'_>) -> Result<(), Fault> {
        self.read(job).map(drop)
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

impl Start {
    async fn start(&self, job: Job<'_>, mut run: PreparedRun) -> Result<Output, Fault> {
        let home = self.settings.programs.home(job).await?;
        live_in(&mut run.spec, home.as_ref(), run.names_home);
        let ended = self.settings.starts.start(job, run.spec, run.order).await;
        leave(home).await;
        ended
    }

    fn read(&self, job: Job<'_>) -> Result<PreparedRun, Fault> {
        let mut asked: RunStartArguments<'_> = arguments(job.call.input.value())?;
        let argv = std::mem::take(&mut asked.command);
        let env = std::mem::take(&mut asked.env);
        let order = order::read(asked, &self.settings.order)?;
        Ok(PreparedRun {
            spec: self.spec(&argv, &env, job.plan.confinement.as_ref())?,
            order,
            names_home: names_home(&env),
        })
    }

    /// The executor that a call asks for, without its streams. R-9.
    fn spec(
        &self,
        argv: &[&str],
        env: &Variables<'_>,
        needs: Option<&Arc<Needs>>,
    ) -> Result<Spec, Fault> {
        let Some(command) = argv.first().filter(|command| !command.is_empty()) else {
            return Err(bad("command", "names no program"));
        };
        if argv.iter().any(|word| word.contains('\0')) {
            return Err(bad("command", "holds a zero byte"));
        }
        let programs = &self.settings.programs;
        let program = programs.allowed("command", command, &programs.workspace)?;
        let words = argv[1..].iter().map(OsString::from);
        let words = std::iter::once(program).chain(words).collect();
        let mut spec = Spec::new(words, programs.workspace.clone());
        spec.search = Some(programs.search_path(command.as_ref()));
        spec.env = programs.env(env, needs.map(|needs| &**needs))?;
        spec.limits = self.settings.limits.clone();
        spec.confine = needs.cloned();
        let found = resolve(&spec).map_err(|error| not_started(&error))?;
        spec.named_by_caller = programs.comes_alone(command, &found);
        Ok(spec)
    }
}

/// What could not be read.
fn unread(error: &StoreError) -> Fault {
    Fault::Internal {
        message: callgate_call::chain(error),
    }
}
