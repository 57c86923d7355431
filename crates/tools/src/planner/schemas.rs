//! The schemas of the contract, 4.7: what each method takes and gives; and the arguments that they
//! let through.

use callgate_call::Notification;
use callgate_store::TaskStatus;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::shown::statuses;
use crate::arguments::NaturalNumber;
use crate::closed;

/// What an answer says of every task.
const TASK_REQUIRED: [&str; 4] = ["id", "description", "status", "assignee_role"];

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

/// The arguments of `planner/create_plan`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanCreateArguments<'a> {
    pub title: &'a str,
    pub user_request: &'a str,
    pub context: Option<&'a str>,
    pub assignee_default: Option<&'a str>,
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

/// The arguments of `planner/update_task`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskUpdateArguments<'a> {
    pub plan_id: &'a str,
    pub task_id: &'a str,
    #[serde(borrow)]
    pub patch: TaskPatchArguments<'a>,
}

/// What is to change of a task; what is left out or null stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPatchArguments<'a> {
    pub description: Option<&'a str>,
    pub status: Option<TaskStatus>,
    pub assignee_role: Option<&'a str>,
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
    let output = json!({ "task": task(&TASK_REQUIRED), "plan_id": { "type": "string" } });
    [
        closed(input, &["plan_id", "task_id", "patch"]),
        closed(output, &["task", "plan_id"]),
    ]
}

/// The arguments of `planner/list_plans`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanListArguments<'a> {
    pub cursor: Option<&'a str>,
    pub limit: Option<NaturalNumber>,
}

fn list_plans() -> [Value; 2] {
    let input = json!({
        "cursor": { "type": ["string", "null"] },
        "limit": { "type": "integer", "minimum": 1, "maximum": 200, "default": super::LIMIT_DEFAULT },
    });
    let required = ["id", "title", "created_at", "updated_at"];
    let output = json!({
        "plans": { "type": "array", "items": plan(None, &required) },
        "next_cursor": { "type": ["string", "null"] },
    });
    [closed(input, &[]), closed(output, &["plans"])]
}

/// The arguments of `planner/get_plan` and `planner/delete_plan`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanArguments<'a> {
    pub plan_id: &'a str,
}

fn by_plan() -> Value {
    closed(json!({ "plan_id": { "type": "string" } }), &["plan_id"])
}

fn with_plan() -> Value {
    let tasks = json!({ "type": "array", "items": task(&TASK_REQUIRED) });
    let required = ["id", "title", "tasks", "created_at", "updated_at"];
    let plan = plan(Some(("tasks", tasks)), &required);
    closed(json!({ "plan": plan }), &["plan"])
}

/// What is told of plans: a new one without its tasks, one that is gone, a task's new state.
pub fn notifications() -> Vec<Notification> {
    let deleted = ("deleted", json!({ "type": "boolean" }));
    let about = plan(Some(deleted), &["id", "updated_at"]);
    // All of a task is published; the contract's own example has these two.
    let changed = task(&["id", "status"]);
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

/// The schema of a plan without its tasks, and perhaps with one more member.
fn plan(more: Option<(&str, Value)>, required: &[&str]) -> Value {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "description": "ISO-8601" });
    let own = [
        ("id", text.clone()),
        ("title", text.clone()),
        ("description", text),
        ("created_at", time.clone()),
        ("updated_at", time),
    ];
    let members = own.into_iter().chain(more);
    let members: Map<String, Value> = members
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    closed(members.into(), required)
}

fn task(required: &[&str]) -> Value {
    closed(
        json!({
            "id": { "type": "string" },
            "description": { "type": "string" },
            "status": { "type": "string", "enum": statuses() },
            "assignee_role": { "type": "string" },
            "parent_id": { "type": ["string", "null"] },
            "children": { "type": "array", "items": { "type": "string" } },
        }),
        required,
    )
}
