//! Plans and tasks as the contract writes them, in answers and in notifications.

use std::sync::Arc;

use callgate_call::{Audience, Topics};
use callgate_store::{Plan, PlanEar, PlanHead, PlanNews, Task, TaskStatus};
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
                "task": shown(place, &task, &children),
                "updated_at": at.rfc3339(),
            });
            ("planner/task_updated", body)
        }
    }
}

/// A plan without its tasks.
pub fn shown_head(head: &PlanHead) -> Value {
    let mut plan = json!({
        "id": head.id.to_string(),
        "title": head.title,
        "created_at": head.created_at.rfc3339(),
        "updated_at": head.updated_at.rfc3339(),
    });
    if let Some(description) = &head.description {
        plan["description"] = json!(description);
    }
    plan
}

/// A whole plan.
pub fn shown_plan(plan: &Plan) -> Value {
    let places = 1..=plan.tasks.len();
    let tasks: Vec<Value> = places.map(|place| shown_task(plan, place)).collect();
    let mut shown = shown_head(&plan.head);
    shown["tasks"] = json!(tasks);
    shown
}

/// The task at a place of a plan, counted from 1.
pub fn shown_task(plan: &Plan, place: usize) -> Value {
    let children = plan.children(place - 1).into_iter();
    let children: Vec<usize> = children.map(|index| index + 1).collect();
    shown(place, &plan.tasks[place - 1], &children)
}

fn shown(place: usize, task: &Task, children: &[usize]) -> Value {
    let id = |place: usize| format!("t{place}");
    json!({
        "id": id(place),
        "description": task.description,
        "status": task.status.as_str(),
        "assignee_role": task.assignee_role,
        "parent_id": task.parent.map(|index| id(index + 1)),
        "children": children.iter().map(|place| id(*place)).collect::<Vec<_>>(),
    })
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
