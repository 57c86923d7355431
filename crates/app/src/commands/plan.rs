//! `callgate plan`: the workspace's plans, for people. What changes one is a call of a tool like any
//! other; what only looks reads the store, as `runs` and `audit` do.

use std::process::ExitCode;

use callgate_call::Fault;
use callgate_registry::environment::Environment;
use callgate_store::{PLANS_MAX, PlanId, Store, TaskStatus};
use callgate_tools::planner::{shown_head, shown_plan};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::call;
use crate::cli::{Done, Failure, Place};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// List the plans of this workspace, show them, tick tasks off.
#[derive(Args)]
pub struct Plan {
    #[command(subcommand)]
    command: Option<PlanCommand>,
}

#[derive(Subcommand)]
enum PlanCommand {
    /// All plans, the oldest first
    Ls,
    /// A plan and its tasks
    Show {
        /// The plan's id, such as p12
        plan: String,
    },
    /// Say that tasks are done
    Done {
        /// The plan's id
        plan: String,
        /// The tasks' ids, such as t3
        #[arg(required = true)]
        tasks: Vec<String>,
    },
    /// Remove a plan and its tasks
    Rm {
        /// The plan's id
        plan: String,
    },
}

pub fn run(environment: &Environment, place: &Place, plan: &Plan) -> Done {
    let calls = Calls { environment, place };
    match &plan.command {
        None | Some(PlanCommand::Ls) => look(environment, place, list)?,
        Some(PlanCommand::Show { plan }) => look(environment, place, |store, place| {
            let id = PlanId::parse(plan);
            let found = id.map(|id| store.plan(id).map_err(|e| chain(&e)));
            let found = found.transpose()?.flatten();
            let found = found.ok_or_else(|| no_plan(plan))?;
            show_plan(&shown_plan(&found), place);
            Ok(())
        })?,
        Some(PlanCommand::Done { plan, tasks }) => return calls.done(plan, tasks),
        Some(PlanCommand::Rm { plan }) => return calls.remove(plan),
    }
    Ok(ExitCode::SUCCESS)
}

fn look(
    environment: &Environment,
    place: &Place,
    show: impl FnOnce(&Store, &Place) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let parts = super::open(environment, place)?;
    show(&parts.store, place)?;
    super::close(&parts);
    Ok(())
}

fn list(store: &Store, place: &Place) -> Result<(), Failure> {
    let (heads, _) = store.plans(None, PLANS_MAX)?;
    if place.json {
        let plans: Vec<Value> = heads.iter().map(shown_head).collect();
        show::json(&json!({ "plans": plans }));
        return Ok(());
    }
    let mut rows = Vec::new();
    for head in heads {
        let tasks = store.plan(head.id)?;
        let tasks = tasks.map(|plan| plan.tasks).unwrap_or_default();
        let done = tasks.iter().filter(|task| task.status == TaskStatus::Done);
        rows.push(vec![
            head.id.to_string(),
            format!("{}/{}", done.count(), tasks.len()),
            show::time(head.updated_at.0),
            head.title,
        ]);
    }
    show::table_or(
        &["ID", "DONE", "CHANGED", "TITLE"],
        &rows,
        "there are no plans",
    );
    Ok(())
}

fn show_plan(plan: &Value, place: &Place) {
    if place.json {
        show::json(&json!({ "plan": plan }));
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut shown = format!("{}  {}\n", text(&plan["id"]), text(&plan["title"]));
    if let Some(description) = plan["description"].as_str() {
        shown.push_str(&format!("{description}\n"));
    }
    for task in tasks(plan) {
        let mark = match task["status"].as_str().and_then(TaskStatus::from_word) {
            Some(TaskStatus::InProgress) => "[~]",
            Some(TaskStatus::Done) => "[x]",
            Some(TaskStatus::Blocked) => "[!]",
            Some(TaskStatus::Todo) | None => "[ ]",
        };
        let indent = "  ".repeat(depth(plan, task));
        let [id, about, role] =
            ["id", "description", "assignee_role"].map(|name| text(&task[name]));
        shown.push_str(&format!("{indent}{mark} {id} {about} ({role})\n"));
    }
    show::data(&shown);
}

fn tasks(plan: &Value) -> &[Value] {
    plan["tasks"].as_array().map_or(&[], Vec::as_slice)
}

fn task<'a>(plan: &'a Value, id: &Value) -> Option<&'a Value> {
    tasks(plan).iter().find(|task| task["id"] == *id)
}

/// How many tasks a task is part of. A parent stands before its children.
fn depth(plan: &Value, of: &Value) -> usize {
    let parent = |of: &&Value| task(plan, &of["parent_id"]);
    let all = tasks(plan).len();
    std::iter::successors(parent(&of), parent).take(all).count()
}

fn no_plan(plan: &str) -> Failure {
    let message = format!("there is no plan {plan}: see `callgate plan ls`");
    Fault::NotFound { message }.into()
}

/// What is done by calls, through the running gate or in this process.
struct Calls<'a> {
    environment: &'a Environment,
    place: &'a Place,
}

impl Calls<'_> {
    fn done(&self, id: &str, wanted: &[String]) -> Done {
        let plan = match self.plan(id)? {
            Ok(plan) => plan,
            Err(code) => return Ok(code),
        };
        // All of it or nothing.
        if let Some(none) = wanted.iter().find(|one| task(&plan, &json!(one)).is_none()) {
            let message = format!("plan {id} has no task {none}");
            return Err(Fault::NotFound { message }.into());
        }
        for one in wanted {
            let patch = json!({ "status": TaskStatus::Done.as_str() });
            let input = json!({ "plan_id": id, "task_id": one, "patch": patch });
            if let Err(code) = self.call("planner/update_task", input)? {
                return Ok(code);
            }
        }
        match self.plan(id)? {
            Ok(plan) => show_plan(&plan, self.place),
            Err(code) => return Ok(code),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn remove(&self, id: &str) -> Done {
        let plan = match self.plan(id)? {
            Ok(plan) => plan,
            Err(code) => return Ok(code),
        };
        let deleted = match self.call("planner/delete_plan", json!({ "plan_id": id }))? {
            Ok(output) => output["deleted"].clone(),
            Err(code) => return Ok(code),
        };
        if self.place.json {
            show::json(&json!({ "deleted": deleted }));
        } else {
            let title = plan["title"].as_str().unwrap_or_default();
            show::data(&format!("removed {id}  {title}\n"));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A plan that must be there.
    fn plan(&self, id: &str) -> Result<Result<Value, ExitCode>, Failure> {
        let input = json!({ "plan_id": id });
        let got = call::asked(self.environment, self.place, "planner/get_plan", input)?;
        match got["fault"]["kind"] == "not_found" {
            true => Err(no_plan(id)),
            false => Ok(call::output_of(self.place, got, "planner/get_plan")
                .map(|mut output| output["plan"].take())),
        }
    }

    fn call(&self, tool: &str, input: Value) -> Result<Result<Value, ExitCode>, CommandError> {
        call::output(self.environment, self.place, tool, input)
    }
}
