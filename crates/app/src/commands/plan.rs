//! `callgate plan`: the workspace's plans, for people.

use std::process::ExitCode;

use callgate_store::{PLANS_MAX, Plan as Known, PlanId, Store, StoreError, TaskPatch, TaskStatus};
use callgate_tools::planner::{shown_head, shown_plan};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::{Done, Place};
use crate::compose::chain;
use crate::environment::Environment;
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
    let parts = super::open(environment, place)?;
    let store = &parts.store;
    match &plan.command {
        None | Some(PlanCommand::Ls) => list(store, place)?,
        Some(PlanCommand::Show { plan }) => show_plan(&find(store, plan)?, place),
        Some(PlanCommand::Done { plan, tasks }) => show_plan(&done(store, plan, tasks)?, place),
        Some(PlanCommand::Rm { plan }) => remove(store, plan, place)?,
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store, place: &Place) -> Result<(), String> {
    let (heads, _) = store.plans(None, PLANS_MAX).map_err(|e| chain(&e))?;
    if place.json {
        let plans: Vec<Value> = heads.iter().map(shown_head).collect();
        show::json(&json!({ "plans": plans }));
        return Ok(());
    }
    let mut rows = Vec::new();
    for head in heads {
        let tasks = store.plan(head.id).map_err(|e| chain(&e))?;
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

fn show_plan(plan: &Known, place: &Place) {
    if place.json {
        show::json(&json!({ "plan": shown_plan(plan) }));
        return;
    }
    let mut text = format!("{}  {}\n", plan.head.id, plan.head.title);
    if let Some(description) = &plan.head.description {
        text.push_str(&format!("{description}\n"));
    }
    for (index, task) in plan.tasks.iter().enumerate() {
        let mark = match task.status {
            TaskStatus::Todo => "[ ]",
            TaskStatus::InProgress => "[~]",
            TaskStatus::Done => "[x]",
            TaskStatus::Blocked => "[!]",
        };
        let indent = "  ".repeat(depth(plan, index));
        let (place, about, role) = (index + 1, &task.description, &task.assignee_role);
        text.push_str(&format!("{indent}{mark} t{place} {about} ({role})\n"));
    }
    show::data(&text);
}

/// How many tasks a task is part of. A parent stands before its children.
fn depth(plan: &Known, index: usize) -> usize {
    let parent = |index: &usize| plan.tasks[*index].parent.filter(|parent| parent < index);
    std::iter::successors(parent(&index), parent).count()
}

fn done(store: &Store, plan: &str, tasks: &[String]) -> Result<Known, String> {
    let mut known = find(store, plan)?;
    let patch = TaskPatch {
        status: Some(TaskStatus::Done),
        ..TaskPatch::default()
    };
    let place = |task: &String| {
        let place = task.strip_prefix('t').and_then(|place| place.parse().ok());
        let there = place.filter(|place| (1..=known.tasks.len()).contains(place));
        there.ok_or_else(|| format!("plan {plan} has no task {task}"))
    };
    let places: Vec<usize> = tasks.iter().map(place).collect::<Result<_, _>>()?;
    for place in places {
        let changed = store.update_task(known.head.id, place, &patch);
        known = changed.map_err(|e| chain(&e))?;
    }
    Ok(known)
}

fn remove(store: &Store, plan: &str, place: &Place) -> Result<(), String> {
    let known = find(store, plan)?;
    let id = known.head.id;
    let deleted = store.delete_plan(id).map_err(|e| chain(&e))?;
    if place.json {
        show::json(&json!({ "deleted": deleted }));
    } else {
        show::data(&format!("removed {id}  {}\n", known.head.title));
    }
    Ok(())
}

fn find(store: &Store, plan: &str) -> Result<Known, String> {
    let id = PlanId::parse(plan);
    let found: Result<Option<Known>, StoreError> = id.map_or(Ok(None), |id| store.plan(id));
    let found = found.map_err(|e| chain(&e))?;
    found.ok_or_else(|| format!("there is no plan {plan}: see `callgate plan ls`"))
}
