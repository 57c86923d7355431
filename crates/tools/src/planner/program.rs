//! What a planner program answers: `{"tasks": [...]}`, each a text or an object with
//! `description` and perhaps `status`, `assignee_role` and `children`, which are tasks.

use callgate_call::Fault;
use callgate_store::{TASKS_MAX, TaskStatus};
use serde_json::{Map, Value};

use super::Draft;

/// The tasks of an answer, parents before their children.
/// Members are looked up one by one, so that a refusal names the one that is wrong.
pub fn drafts(answer: &Value) -> Result<Vec<Draft>, Fault> {
    let tasks = answer.get("tasks").and_then(Value::as_array);
    let tasks = tasks.ok_or_else(|| wrong("`tasks` must be an array"))?;
    let mut drafts = Vec::new();
    add(tasks, None, &mut drafts)?;
    Ok(drafts)
}

fn add(tasks: &[Value], parent: Option<usize>, drafts: &mut Vec<Draft>) -> Result<(), Fault> {
    for task in tasks {
        if drafts.len() >= TASKS_MAX {
            return Err(wrong(&format!("there are more than {TASKS_MAX} tasks")));
        }
        let index = drafts.len();
        match task {
            Value::String(text) => drafts.push(Draft::new(text.clone(), parent)),
            Value::Object(members) => {
                drafts.push(draft(members, parent)?);
                match members.get("children") {
                    None | Some(Value::Null) => {}
                    // As deep as JSON may be.
                    Some(Value::Array(children)) => add(children, Some(index), drafts)?,
                    Some(_) => return Err(wrong("`children` must be an array")),
                }
            }
            _ => return Err(wrong("a task must be a text or an object")),
        }
    }
    Ok(())
}

fn draft(members: &Map<String, Value>, parent: Option<usize>) -> Result<Draft, Fault> {
    let text = |name: &str| match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&format!("`{name}` must be a string"))),
    };
    let description = text("description")?.ok_or_else(|| wrong("`description` is missing"))?;
    let mut draft = Draft::new(description, parent);
    if let Some(word) = text("status")? {
        let status = TaskStatus::from_word(&word);
        draft.status = status.ok_or_else(|| wrong("`status` is none of the four"))?;
    }
    draft.role = text("assignee_role")?;
    Ok(draft)
}

fn wrong(reason: &str) -> Fault {
    Fault::BadOutput {
        reason: format!("the planner's answer: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers() {
        let answer = json!({ "tasks": [
            "plain",
            { "description": "whole", "status": "blocked", "assignee_role": "tester",
              "children": [{ "description": "part", "more": 1 }, "another"] },
            { "description": "bare", "status": null, "children": null },
        ] });
        let drafts = drafts(&answer).unwrap();
        let shown: Vec<_> = drafts
            .iter()
            .map(|d| (&*d.description, d.status, d.role.as_deref(), d.parent))
            .collect();
        let todo = TaskStatus::Todo;
        assert_eq!(
            shown,
            [
                ("plain", todo, None, None),
                ("whole", TaskStatus::Blocked, Some("tester"), None),
                ("part", todo, None, Some(1)),
                ("another", todo, None, Some(1)),
                ("bare", todo, None, None),
            ]
        );
    }

    #[test]
    fn answers_that_are_none() {
        for wrong in [
            json!({}),
            json!([]),
            json!({ "tasks": {} }),
            json!({ "tasks": [1] }),
            json!({ "tasks": [{}] }),
            json!({ "tasks": [{ "description": 1 }] }),
            json!({ "tasks": [{ "description": "x", "status": "ready" }] }),
            json!({ "tasks": [{ "description": "x", "children": {} }] }),
            json!({ "tasks": vec!["x"; TASKS_MAX + 1] }),
        ] {
            assert!(drafts(&wrong).is_err(), "{wrong}");
        }
    }
}
