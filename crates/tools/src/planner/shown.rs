//! Plans and tasks as the contract writes them, in answers and in notifications.

use std::sync::Arc;

use callgate_call::{Audience, Topics};
use callgate_store::{Plan, PlanEar, PlanHead, PlanNews, Task, TaskStatus};
use serde::Serialize;
use serde_json::{Value, json};

/// Publishes what becomes of plans, to everyone.
#[must_use]
pub fn publisher(topics: Topics) -> PlanEar {
    Arc::new(move |news| {
        let (name, body) = notification(news);
        topics.publish(name, body.to_string(), Audience::Everyone);
    })
}

fn notification(news: PlanNews) -> (&'static str, Value) {
    match news {
        PlanNews::Made(head) => ("planner/plan_updated", json!({ "plan": shown_head(&head) })),
        PlanNews::Gone { plan, at } => {
            let plan = json!({
                "id": plan.to_string(),
                "updated_at": at.rfc3339(),
                "deleted": true,
            });
            ("planner/plan_updated", json!({ "plan": plan }))
        }
        PlanNews::Task {
            plan,
            place,
            task,
            children,
            at,
        } => {
            let body = json!({
                "plan_id": plan.to_string(),
                "task": ShownTask::new(place, &task, &children),
                "updated_at": at.rfc3339(),
            });
            ("planner/task_updated", body)
        }
    }
}

/// A plan in an answer or a notification.
#[derive(Serialize)]
struct ShownPlan<'a> {
    id: String,
    title: &'a str,
    created_at: String,
    updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<ShownTask<'a>>>,
}

impl<'a> ShownPlan<'a> {
    fn new(head: &'a PlanHead, tasks: Option<Vec<ShownTask<'a>>>) -> Self {
        Self {
            id: head.id.to_string(),
            title: &head.title,
            created_at: head.created_at.rfc3339(),
            updated_at: head.updated_at.rfc3339(),
            description: head.description.as_deref(),
            tasks,
        }
    }
}

/// A task in an answer or a notification.
#[derive(Serialize)]
struct ShownTask<'a> {
    id: String,
    description: &'a str,
    status: TaskStatus,
    assignee_role: &'a str,
    parent_id: Option<String>,
    children: Vec<String>,
}

impl<'a> ShownTask<'a> {
    /// The task at a place of a plan, counted from 1, and the places of its children.
    fn new(place: usize, task: &'a Task, children: &[usize]) -> Self {
        let id = |place: usize| format!("t{place}");
        Self {
            id: id(place),
            description: &task.description,
            status: task.status,
            assignee_role: &task.assignee_role,
            parent_id: task.parent.map(|index| id(index + 1)),
            children: children.iter().map(|place| id(*place)).collect(),
        }
    }

    fn of_plan(plan: &'a Plan, place: usize) -> Self {
        let children = plan.children(place - 1).into_iter();
        let children: Vec<usize> = children.map(|index| index + 1).collect();
        Self::new(place, &plan.tasks[place - 1], &children)
    }
}

/// A plan without its tasks.
pub fn shown_head(head: &PlanHead) -> Value {
    json!(ShownPlan::new(head, None))
}

/// A whole plan.
pub fn shown_plan(plan: &Plan) -> Value {
    let places = 1..=plan.tasks.len();
    let tasks = places.map(|place| ShownTask::of_plan(plan, place));
    json!(ShownPlan::new(&plan.head, Some(tasks.collect())))
}

/// The task at a place of a plan, counted from 1.
pub fn shown_task(plan: &Plan, place: usize) -> Value {
    json!(ShownTask::of_plan(plan, place))
}

/// The place that a task's id names.
pub fn place_of(id: &str) -> Option<usize> {
    let place: usize = id.strip_prefix('t')?.parse().ok()?;
    (format!("t{place}") == id).then_some(place)
}

/// The statuses, as a schema lists them.
pub fn statuses() -> Vec<&'static str> {
    TaskStatus::ALL.map(TaskStatus::as_str).to_vec()
}
