//! Plans: a request becomes tasks, which are worked off by whoever is connected. Durable, shared
//! by all processes of a workspace; the store tells everyone in the order of the changes. R-12.

mod outline;
mod program;
pub(crate) mod schemas;
mod shown;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callgate_call::{Fault, Job, Needs, Output, RunFuture, Runner, Secrets, Tier, Tool};
use callgate_store::{NewPlan, PlanId, Store, StoreError, Task, TaskPatch, TaskStatus};
use serde_json::{Value, json};

use crate::arguments::{NaturalNumber, arguments};
use crate::{Builtin, builtin};
use outline::outline;
use schemas::{
    PlanArguments, PlanCreateArguments, PlanListArguments, TaskPatchArguments, TaskUpdateArguments,
};
use shown::{place_of, shown_task};
pub use shown::{publisher, shown_head, shown_plan};

/// Longest request and longest other texts.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
const CONTEXT_BYTES_MAX: usize = 64 * 1024;
const TITLE_BYTES_MAX: usize = 1024;
const TASK_BYTES_MAX: usize = 16 * 1024;
const ROLE_BYTES_MAX: usize = 256;
/// Whose tasks are, where nobody says.
const ROLE_DEFAULT: &str = "developer";
const LIMIT_DEFAULT: usize = 50;
/// Before the number in a cursor, so that not every text is one.
const CURSOR: &str = "after:";
/// Calls of one tool at the same time: each is short, and waits for the journal only.
const CONCURRENCY_MAX: usize = 4096;

/// A program that plans, as a tool of its own would be carried out.
pub struct Program {
    /// Gets the input of `planner/create_plan`, and answers tasks.
    pub runner: Arc<dyn Runner>,
    /// What it needs and is kept from.
    pub needs: Option<Arc<Needs>>,
    /// The longest it may take.
    pub timeout: Option<std::time::Duration>,
}

/// Every tool of this module. `program` makes the tasks, where there is one.
#[must_use]
pub fn tools(store: &Arc<Store>, secrets: &Secrets, program: Option<Program>) -> Vec<Tool> {
    type Function = fn(&Store, &Secrets, &Value) -> Result<Value, Fault>;
    let named = |name: &str, title: &str, about: &str, runner: Arc<dyn Runner>| {
        let [input, output] = schemas::of(name);
        let name = format!("planner/{name}");
        let aid = format!("AID.{}.v1", name.replace('/', ".").to_uppercase());
        let mut tool = builtin(&name, &aid, about, input, runner);
        tool.output_schema = Some(output);
        tool.face.title = Some(title.to_owned());
        tool.tags.push("planner".to_owned());
        tool.tells = schemas::notifications();
        tool.concurrency_max = CONCURRENCY_MAX;
        tool
    };
    let tool = |name: &str, title: &str, about: &str, function: Function| {
        let (store, secrets) = (Arc::clone(store), secrets.clone());
        let function = move |job: &Job<'_>| {
            let input = job.call.input.value();
            function(&store, &secrets, input).map(Output::from_value)
        };
        let pure = false;
        named(name, title, about, Arc::new(Builtin { function, pure }))
    };
    let writes = |tool: Tool| Tool {
        tier: Tier::Write,
        side_effects: vec!["plan_write".to_owned()],
        ..tool
    };
    let reads = |tool: Tool| Tool {
        idempotent: true,
        ..tool
    };
    let (needs, timeout) = program
        .as_ref()
        .map(|program| (program.needs.clone(), program.timeout))
        .unwrap_or_default();
    let create = Create {
        store: Arc::clone(store),
        secrets: secrets.clone(),
        program: program.map(|program| program.runner),
    };
    let create = Tool {
        needs,
        timeout,
        ..named(
            "create_plan",
            "Create Plan",
            "Make a plan: the list items of a request, or its sentences, become tasks",
            Arc::new(create),
        )
    };
    vec![
        Tool {
            side_effects: vec!["plan_create".to_owned()],
            ..writes(create)
        },
        reads(tool(
            "get_plan",
            "Get Plan",
            "Show a plan and its tasks",
            get_plan,
        )),
        writes(tool(
            "update_task",
            "Update Task",
            "Change a task's description, status or role",
            update_task,
        )),
        reads(tool(
            "list_plans",
            "List Plans",
            "List the plans, without their tasks",
            list_plans,
        )),
        writes(tool(
            "delete_plan",
            "Delete Plan",
            "Remove a plan and its tasks",
            delete_plan,
        )),
    ]
}

/// A task before it has a place in a plan.
struct Draft {
    description: String,
    status: TaskStatus,
    role: Option<String>,
    /// The index of the one it is part of.
    parent: Option<usize>,
}

impl Draft {
    fn new(description: String, parent: Option<usize>) -> Self {
        Self {
            description,
            status: TaskStatus::Todo,
            role: None,
            parent,
        }
    }

    fn is_too_long(&self) -> bool {
        let role = self.role.as_ref().map_or(0, String::len);
        self.description.len() > TASK_BYTES_MAX || role > ROLE_BYTES_MAX
    }
}

/// `planner/create_plan`, which may have to wait for a program.
struct Create {
    store: Arc<Store>,
    secrets: Secrets,
    program: Option<Arc<dyn Runner>>,
}

impl Create {
    async fn create(&self, job: Job<'_>) -> Result<Output, Fault> {
        let asked: PlanCreateArguments<'_> = arguments(job.call.input.value())?;
        check(&asked)?;
        let drafts = match &self.program {
            None => outline(asked.user_request),
            Some(program) => program::drafts(program.run(job).await?.json.value())?,
        };
        if drafts.is_empty() {
            return Err(bad("user_request", "there is nothing to do in it"));
        }
        if drafts.iter().any(Draft::is_too_long) {
            let words = format!("a task of it is longer than {TASK_BYTES_MAX} bytes");
            return Err(bad("user_request", &words));
        }
        let role = asked.assignee_default.unwrap_or(ROLE_DEFAULT);
        let tasks = drafts.into_iter().map(|draft| self.task(draft, role));
        let new = NewPlan {
            title: cleaned(&self.secrets, asked.title),
            description: asked.context.map(|text| cleaned(&self.secrets, text)),
            tasks: tasks.collect(),
        };
        let plan = self.store.create_plan(new).map_err(|error| fault(&error))?;
        Ok(Output::from_value(json!({ "plan": shown_plan(&plan) })))
    }

    fn task(&self, draft: Draft, role: &str) -> Task {
        Task {
            description: cleaned(&self.secrets, &draft.description),
            status: draft.status,
            assignee_role: cleaned(&self.secrets, draft.role.as_deref().unwrap_or(role)),
            parent: draft.parent,
        }
    }
}

impl Runner for Create {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(self.create(job))
    }

    fn kind(&self) -> &'static str {
        "builtin"
    }

    fn stop(&self) {
        if let Some(program) = &self.program {
            program.stop();
        }
    }
}

fn check(asked: &PlanCreateArguments<'_>) -> Result<(), Fault> {
    for (field, text, bytes_max) in [
        ("title", Some(asked.title), TITLE_BYTES_MAX),
        ("user_request", Some(asked.user_request), REQUEST_BYTES_MAX),
        ("context", asked.context, CONTEXT_BYTES_MAX),
        ("assignee_default", asked.assignee_default, ROLE_BYTES_MAX),
    ] {
        let Some(text) = text else {
            continue;
        };
        if text.len() > bytes_max {
            return Err(bad(field, &format!("is longer than {bytes_max} bytes")));
        }
        if text.trim().is_empty() && field != "context" {
            return Err(bad(field, "is empty"));
        }
    }
    Ok(())
}

fn get_plan(store: &Store, _: &Secrets, input: &Value) -> Result<Value, Fault> {
    let PlanArguments { plan_id } = arguments(input)?;
    let id = plan_of(plan_id)?;
    let plan = store.plan(id).map_err(|error| fault(&error))?;
    let plan = plan.ok_or_else(|| missing(plan_id))?;
    Ok(json!({ "plan": shown_plan(&plan) }))
}

fn update_task(store: &Store, secrets: &Secrets, input: &Value) -> Result<Value, Fault> {
    let asked: TaskUpdateArguments<'_> = arguments(input)?;
    let (id, task) = (plan_of(asked.plan_id)?, asked.task_id);
    // A name that could be none is as good as one that is none.
    let place = place_of(task).unwrap_or(0);
    let patch = patch_of(&asked.patch, secrets)?;
    let plan = match store.update_task(id, place, &patch) {
        Err(StoreError::NotFound { .. }) if place == 0 => {
            return Err(Fault::NotFound {
                message: format!("task {task} of plan {id} not found"),
            });
        }
        plan => plan.map_err(|error| fault(&error))?,
    };
    Ok(json!({ "plan_id": id.to_string(), "task": shown_task(&plan, place) }))
}

/// What is to change; what is null stays as it is.
fn patch_of(patch: &TaskPatchArguments<'_>, secrets: &Secrets) -> Result<TaskPatch, Fault> {
    let text = |field: &str, text: Option<&str>, bytes_max: usize| match text {
        None => Ok(None),
        Some(text) if text.len() > bytes_max => {
            let words = format!("is longer than {bytes_max} bytes");
            Err(bad(&format!("patch.{field}"), &words))
        }
        Some(text) => Ok(Some(cleaned(secrets, text))),
    };
    Ok(TaskPatch {
        description: text("description", patch.description, TASK_BYTES_MAX)?,
        status: patch.status,
        assignee_role: text("assignee_role", patch.assignee_role, ROLE_BYTES_MAX)?,
    })
}

fn list_plans(store: &Store, _: &Secrets, input: &Value) -> Result<Value, Fault> {
    let asked: PlanListArguments<'_> = arguments(input)?;
    let after = asked.cursor.map(after).transpose()?;
    let limit = asked.limit.map_or(LIMIT_DEFAULT, NaturalNumber::count);
    let (plans, more) = store.plans(after, limit).map_err(|error| fault(&error))?;
    let next_cursor = plans.last().filter(|_| more).map(|last| {
        let id = last.id;
        URL_SAFE_NO_PAD.encode(format!("{CURSOR}{id}"))
    });
    let plans: Vec<Value> = plans.iter().map(shown_head).collect();
    Ok(json!({ "plans": plans, "next_cursor": next_cursor }))
}

/// The plan a cursor stands behind. R-4: one that is none of ours is the caller's error.
fn after(cursor: &str) -> Result<PlanId, Fault> {
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let id = text.and_then(|text| PlanId::parse(text.strip_prefix(CURSOR)?));
    id.ok_or_else(|| Fault::BadInput {
        field: "cursor".to_owned(),
        reason: "is none of ours".to_owned(),
    })
}

fn delete_plan(store: &Store, _: &Secrets, input: &Value) -> Result<Value, Fault> {
    let PlanArguments { plan_id } = arguments(input)?;
    let deleted = match PlanId::parse(plan_id) {
        Some(id) => store.delete_plan(id).map_err(|error| fault(&error))?,
        None => false,
    };
    Ok(json!({ "deleted": deleted }))
}

fn plan_of(id: &str) -> Result<PlanId, Fault> {
    PlanId::parse(id).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> Fault {
    Fault::NotFound {
        message: format!("plan {id} not found"),
    }
}

fn bad(field: &str, reason: &str) -> Fault {
    let fault = Fault::bad_value(format!("{field} {reason}"));
    fault.with("field", field).with("reason", reason)
}

fn cleaned(secrets: &Secrets, text: &str) -> String {
    secrets.cleaned(text).unwrap_or_else(|| text.to_owned())
}

fn fault(error: &StoreError) -> Fault {
    match error {
        StoreError::NotFound { .. } => Fault::NotFound {
            message: error.to_string(),
        },
        // The contract has no other code for what does not fit.
        StoreError::Refused { .. } | StoreError::TooLarge { .. } => {
            Fault::bad_value(error.to_string())
        }
        StoreError::Full { .. } => Fault::Unavailable {
            reason: error.to_string(),
        },
        _ => Fault::Internal {
            message: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callgate_testing::{Random, mutant};

    /// R-4: 100,000 changed cursors: what is taken as one is one of ours.
    #[test]
    fn mutated_cursors() {
        let cursor_of = |id: PlanId| URL_SAFE_NO_PAD.encode(format!("{CURSOR}{id}"));
        let seeds =
            ["p1", "p23", "p18446744073709551615"].map(|id| cursor_of(PlanId::parse(id).unwrap()));
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        const WORDS: [&[u8]; 6] = [b"YWZ0", b"=", b"-_", b"A", b"\0", b"\xff"];
        let mut random = Random::new("mutated cursors");
        let mut taken = 0;
        for _ in 0..100_000 {
            let bytes = mutant(&mut random, &seeds, &WORDS);
            let cursor = String::from_utf8_lossy(&bytes);
            if let Ok(id) = after(&cursor) {
                assert_eq!(after(&cursor_of(id)), Ok(id));
                taken += 1;
            }
        }
        assert!(taken > 0);
    }

    /// R-12: 100,000 changed patches: what is said is what changes, and no text is too long.
    #[test]
    fn mutated_patches() {
        const CASES: usize = 100_000;
        const WORDS: [&[u8]; 12] = [
            b"null",
            b"true",
            b"1",
            b"\"",
            b",",
            b"\\u0000",
            b"\"done\"",
            b"\"todo\"",
            b"\"status\":",
            b"\"description\":",
            b"\"assignee_role\":\"",
            b"\xff",
        ];
        let role = "r".repeat(ROLE_BYTES_MAX);
        let task = "t".repeat(TASK_BYTES_MAX);
        let seeds = [
            json!({ "description": "d\u{e9}", "status": "in_progress", "assignee_role": "tester" }),
            json!({ "description": null, "status": null, "assignee_role": role }),
            json!({ "status": "blocked" }),
        ];
        let seeds = seeds.map(|seed| seed.to_string());
        let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
        let long = json!({ "description": task, "status": "done" }).to_string();
        let mut random = Random::new("mutated patches");
        let (mut taken, mut refused) = (0, 0);
        for case in 0..CASES {
            // Those are slow to change, and few are enough.
            let bytes = match case % 64 {
                0 => mutant(&mut random, &[long.as_bytes()], &WORDS),
                _ => mutant(&mut random, &seeds, &WORDS),
            };
            let Ok(said) = serde_json::from_slice::<Value>(&bytes) else {
                continue;
            };
            let length = |field: &str| said[field].as_str().map_or(0, str::len);
            let is_short = length("description") <= TASK_BYTES_MAX
                && length("assignee_role") <= ROLE_BYTES_MAX;
            let Ok(read) = arguments::<TaskPatchArguments<'_>>(&said) else {
                continue;
            };
            let Ok(patch) = patch_of(&read, &Secrets::default()) else {
                assert!(!is_short, "{said}");
                refused += 1;
                continue;
            };
            assert!(is_short, "{said}");
            assert_eq!(patch.description.as_deref(), said["description"].as_str());
            let role = said["assignee_role"].as_str();
            assert_eq!(patch.assignee_role.as_deref(), role);
            let status = said["status"].as_str();
            assert_eq!(patch.status.map(TaskStatus::as_str), status);
            taken += 1;
        }
        eprintln!("mutated patches: {taken} taken, {refused} refused, of {CASES}");
        assert!(taken > 0 && refused > 0);
    }
}
