//! The schemas of the contract, 4.7: what each method takes and gives.

use callgate_call::Notification;
use serde_json::{Value, json};

use super::shown::statuses;
use crate::closed;

/// Input and output of a method.
pub fn of(method: &str) -> [Value; 2] {
    match method {
        "create_plan" => create_plan(),
        "get_plan" => [by_plan(), with_plan()],
        "update_task" => update_task(),
        "list_plans" => list_plans(),
        _ => [
            by_plan(),
            closed(json!({ "deleted": { "type": "boolean" } }), &["deleted"]),
        ],
    }
}

fn create_plan() -> [Value; 2] {
    let input = json!({
        "title": { "type": "string" },
        "user_request": { "type": "string" },
        "context": { "type": ["string", "null"] },
        "assignee_default": { "type": ["string", "null"] },
    });
    [closed(input, &["title", "user_request"]), with_plan()]
}

fn update_task() -> [Value; 2] {
    let mut or_null: Vec<Value> = statuses().into_iter().map(Value::from).collect();
    or_null.push(Value::Null);
    let patch = json!({
        "description": { "type": ["string", "null"] },
        "status": { "type": ["string", "null"], "enum": or_null },
        "assignee_role": { "type": ["string", "null"] },
    });
    let input = json!({
        "plan_id": { "type": "string" },
        "task_id": { "type": "string" },
        "patch": closed(patch, &[]),
    });
    let output = json!({ "task": task(), "plan_id": { "type": "string" } });
    [
        closed(input, &["plan_id", "task_id", "patch"]),
        closed(output, &["task", "plan_id"]),
    ]
}

fn list_plans() -> [Value; 2] {
    let input = json!({
        "cursor": { "type": ["string", "null"] },
        "limit": { "type": "integer", "minimum": 1, "maximum": 200, "default": super::LIMIT_DEFAULT },
    });
    let output = json!({
        "plans": { "type": "array", "items": plan(false) },
        "next_cursor": { "type": ["string", "null"] },
    });
    [closed(input, &[]), closed(output, &["plans"])]
}

fn by_plan() -> Value {
    closed(json!({ "plan_id": { "type": "string" } }), &["plan_id"])
}

fn with_plan() -> Value {
    closed(json!({ "plan": plan(true) }), &["plan"])
}

/// What is told of plans: a new one without its tasks, one that is gone, a task's new state.
pub fn notifications() -> Vec<Notification> {
    let mut about = plan(false);
    about["properties"]["deleted"] = json!({ "type": "boolean" });
    about["required"] = json!(["id", "updated_at"]);
    // We tell all of a task; the contract's own example has these two.
    let mut changed = task();
    changed["required"] = json!(["id", "status"]);
    let change = json!({
        "plan_id": { "type": "string" },
        "task": changed,
        "updated_at": { "type": "string", "description": "ISO-8601" },
    });
    vec![
        Notification {
            name: "planner/plan_updated",
            schema: closed(json!({ "plan": about }), &["plan"]),
        },
        Notification {
            name: "planner/task_updated",
            schema: closed(change, &["plan_id", "task", "updated_at"]),
        },
    ]
}

fn plan(with_tasks: bool) -> Value {
    let mut plan = closed(
        json!({
            "id": { "type": "string" },
            "title": { "type": "string" },
            "description": { "type": "string" },
            "created_at": { "type": "string", "description": "ISO-8601" },
            "updated_at": { "type": "string", "description": "ISO-8601" },
        }),
        &["id", "title", "created_at", "updated_at"],
    );
    if with_tasks {
        plan["properties"]["tasks"] = json!({ "type": "array", "items": task() });
        plan["required"] = json!(["id", "title", "tasks", "created_at", "updated_at"]);
    }
    plan
}

fn task() -> Value {
    closed(
        json!({
            "id": { "type": "string" },
            "description": { "type": "string" },
            "status": { "type": "string", "enum": statuses() },
            "assignee_role": { "type": "string" },
            "parent_id": { "type": ["string", "null"] },
            "children": { "type": "array", "items": { "type": "string" } },
        }),
        &["id", "description", "status", "assignee_role"],
    )
}
