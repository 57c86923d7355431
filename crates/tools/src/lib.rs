//! The built-in tools, registered like any other. Each is plain arguments to plain result.

mod arguments;
pub mod conformance;
mod echo;
pub mod exec;
pub mod files;
mod memory;
pub mod planner;
pub mod programs;
pub mod runs;
pub mod terminals;
pub mod vector;

use std::sync::Arc;

use callgate_call::{Cancel, Fault, Job, Output, RunFuture, Runner, Secrets, Tool};
use callgate_search::Engine;
use callgate_store::Store;
use serde_json::{Value, json};

/// The built-in tools that are served over MCP where `[builtins]` says nothing: those that only
/// read, and without which the results of other tools cannot be read. G-14.
pub const MCP_DEFAULT: [&str; 6] = [
    "artifacts/read",
    "files/list",
    "files/read",
    "files/search",
    "files/stat",
    "runs/get",
];

/// The names of all built-in tools, whichever of them a configuration leaves.
pub const BUILTIN_NAMES: [&str; 31] = [
    "artifacts/read",
    "builtin/echo",
    "exec/run",
    "files/delete",
    "files/edit",
    "files/list",
    "files/move",
    "files/read",
    "files/search",
    "files/stat",
    "files/write",
    "memory/append",
    "memory/query",
    "planner/create_plan",
    "planner/delete_plan",
    "planner/get_plan",
    "planner/list_plans",
    "planner/update_task",
    "runs/get",
    "runs/list",
    "runs/start",
    "terminals/attach",
    "terminals/create",
    "terminals/kill",
    "terminals/list",
    "terminals/read_logs",
    "terminals/resize",
    "terminals/write",
    "vector/delete",
    "vector/search",
    "vector/upsert",
];

/// Every built-in tool that needs nothing but the store. `notes` is the index of memory.
#[must_use]
pub fn builtins(store: &Arc<Store>, notes: &Arc<Engine>, secrets: &Secrets) -> Vec<Tool> {
    let mut tools = vec![echo::tool()];
    tools.extend(memory::tools(store, notes, secrets));
    tools
}

/// A function of this process, as a runner.
struct Builtin<F> {
    function: F,
    pure: bool,
}

impl<F> Runner for Builtin<F>
where
    F: Fn(&Job<'_>) -> Result<Output, Fault> + Send + Sync,
{
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(std::future::ready((self.function)(&job)))
    }

    fn is_pure(&self) -> bool {
        self.pure
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }
}

/// Work that may take a while, off the gate's own thread. When its call is cancelled or its time
/// is over it is told to stop, and its end is waited for: what it does is not done later.
async fn waited_for<T: Send + 'static>(
    job: &Job<'_>,
    work: impl FnOnce(&Cancel) -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    let stop = job.call.cancel.child_token();
    let _stops = stop.clone().drop_guard();
    let (after, told) = (job.timeout.until(), stop.clone());
    let mut work = tokio::task::spawn_blocking(move || work(&told));
    // The handle is borrowed: work that is late is told to stop, and its end is waited for.
    let (done, is_late) = tokio::select! {
        done = &mut work => (done, false),
        () = tokio::time::sleep(after) => {
            stop.cancel();
            (work.await, true)
        }
    };
    match done {
        Ok(Err(Fault::Cancelled)) if is_late => Err(Fault::Timeout { after }),
        Ok(done) => done,
        Err(_) => Err(Fault::Internal {
            message: "the call's task ended early".to_owned(),
        }),
    }
}

/// What all built-ins have in common.
fn builtin(
    name: &str,
    aid: &str,
    description: &str,
    input_schema: Value,
    runner: Arc<dyn Runner>,
) -> Tool {
    Tool {
        aid: aid.to_owned(),
        description: description.to_owned(),
        input_schema,
        tags: vec!["tag.builtin".to_owned()],
        side_effects: vec!["none".to_owned()],
        ..Tool::new(name, runner)
    }
}

/// A schema of an object that takes these members and no others.
fn closed(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}
