//! The built-in tools, registered like any other. Each is plain arguments to plain result.

pub mod conformance;
mod echo;
pub mod exec;
pub mod files;
mod memory;
pub mod planner;
pub mod programs;
pub mod terminals;

use std::sync::Arc;

use callgate_call::{Fault, Job, Output, RunFuture, Runner, Secrets, Tool};
use callgate_store::Store;
use serde_json::{Value, json};

/// Every built-in tool.
#[must_use]
pub fn builtins(store: &Arc<Store>, secrets: &Secrets) -> Vec<Tool> {
    let mut tools = vec![echo::tool()];
    tools.extend(memory::tools(store, secrets));
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
