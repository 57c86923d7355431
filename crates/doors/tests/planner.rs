//! Plans over JSON-RPC: what each method takes and gives, and who makes the tasks. R-12.

use std::ffi::OsStr;

use callgate_testing::mcp::modern_call;
use callgate_testing::scripts::folder_of;
use serde_json::{Value, json};

use crate::support::host::Host;
use crate::support::rpc::{Client, rpc};
use callgate_testing_workspace::{Folder, Opened, environment, trust, trusted, verified};

fn create(client: &mut Client, request: &str) -> Value {
    let params = json!({ "title": "a plan", "user_request": request });
    client.good("planner/create_plan", params)["plan"].clone()
}

/// A task's id, description and parent.
fn outline(plan: &Value) -> Vec<(&str, &str, Option<&str>)> {
    let tasks = plan["tasks"].as_array().expect("tasks").iter();
    tasks
        .map(|task| {
            (
                task["id"].as_str().expect("an id"),
                task["description"].as_str().expect("a description"),
                task["parent_id"].as_str(),
            )
        })
        .collect()
}

/// JR-146, JR-147, JR-148, JR-149, JR-150, JR-151, JR-152, JR-153, R-12: the worked examples,
/// check boxes, sentences, and all fields of plans and tasks.
#[test]
fn a_request_becomes_tasks() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let plan = create(&mut client, "1. write tests\n2. fix bugs\n3. release");
    assert_eq!(
        outline(&plan),
        [
            ("t1", "write tests", None),
            ("t2", "fix bugs", None),
            ("t3", "release", None)
        ]
    );
    let nested = create(&mut client, "- api\n  - routes\n  - auth\n- docs");
    assert_eq!(
        outline(&nested),
        [
            ("t1", "api", None),
            ("t2", "routes", Some("t1")),
            ("t3", "auth", Some("t1")),
            ("t4", "docs", None)
        ]
    );
    assert_eq!(nested["tasks"][0]["children"], json!(["t2", "t3"]));
    let params = json!({
        "title": "whole", "user_request": "- [x] begun\n- [ ] open",
        "context": "because", "assignee_default": "tester",
    });
    let plan = client.good("planner/create_plan", params)["plan"].clone();
    let now = plan["created_at"].clone();
    let task = |id: &str, about: &str, status: &str| {
        json!({ "id": id, "description": about, "status": status, "assignee_role": "tester",
                "parent_id": null, "children": [] })
    };
    assert_eq!(
        plan,
        json!({
            "id": plan["id"], "title": "whole", "description": "because",
            "tasks": [task("t1", "begun", "done"), task("t2", "open", "todo")],
            "created_at": now, "updated_at": now,
        })
    );
    let now = now.as_str().expect("a time");
    assert!(
        now.starts_with("20") && now.ends_with('Z'),
        "ISO 8601: {now}"
    );
    let plain = json!({ "title": "t", "user_request": "Do this. Then that.", "context": null,
                        "assignee_default": null });
    let plan = client.good("planner/create_plan", plain)["plan"].clone();
    assert_eq!(
        outline(&plan),
        [("t1", "Do this.", None), ("t2", "Then that.", None)]
    );
    assert_eq!(plan["tasks"][0]["assignee_role"], "developer");
    assert!(plan.get("description").is_none());
    for (params, field) in [
        (json!({ "user_request": "x" }), "title"),
        (json!({ "title": "x" }), "user_request"),
        (json!({ "title": 1, "user_request": "x" }), "title"),
        (
            json!({ "title": "x", "user_request": null }),
            "user_request",
        ),
        (
            json!({ "title": "x", "user_request": "x", "context": 1 }),
            "context",
        ),
        (
            json!({ "title": "x", "user_request": "x", "assignee_default": [] }),
            "assignee_default",
        ),
        (
            json!({ "title": "x", "user_request": "x", "more": 1 }),
            "more",
        ),
    ] {
        let (code, data) = client.bad("planner/create_plan", params);
        assert_eq!((code, &data["field"]), (-32602, &json!(field)));
    }
    // JR-164: what fits the schema and can still not be done.
    for (params, field) in [
        (json!({ "title": " ", "user_request": "x" }), "title"),
        (
            json!({ "title": "x", "user_request": "\n" }),
            "user_request",
        ),
        (
            json!({ "title": "x".repeat(1025), "user_request": "x" }),
            "title",
        ),
        (
            json!({ "title": "x", "user_request": "x".repeat(256 * 1024 + 1) }),
            "user_request",
        ),
        (
            json!({ "title": "x", "user_request": "x".repeat(16 * 1024 + 1) }),
            "user_request",
        ),
    ] {
        let (code, data) = client.bad("planner/create_plan", params);
        assert_eq!((code, &data["field"]), (1003, &json!(field)));
    }
    let many = "- x\n".repeat(1001);
    let params = json!({ "title": "x", "user_request": many });
    assert_eq!(client.bad("planner/create_plan", params).0, 1003);
}

/// JR-154, JR-155, JR-156, JR-157, JR-158, JR-159, JR-162, JR-163, R-12: a patch changes what it
/// names, and everyone hears of it.
#[test]
fn tasks_are_updated() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let plan = create(&mut client, "- a\n  - b");
    let id = &plan["id"];
    let heard = client.event();
    assert_eq!(heard["method"], "planner/plan_updated");
    let head = json!({ "id": id, "title": "a plan", "created_at": plan["created_at"],
                       "updated_at": plan["updated_at"] });
    assert_eq!(heard["params"], json!({ "plan": head }));
    let mut task = plan["tasks"][0].clone();
    for (patch, field, value) in [
        (json!({ "status": "in_progress" }), "status", "in_progress"),
        (
            json!({ "description": "other", "status": null }),
            "description",
            "other",
        ),
        (
            json!({ "assignee_role": "boss", "description": null }),
            "assignee_role",
            "boss",
        ),
        (json!({ "status": "blocked" }), "status", "blocked"),
        (json!({ "status": "done" }), "status", "done"),
        (json!({ "status": "todo" }), "status", "todo"),
    ] {
        task[field] = json!(value);
        let params = json!({ "plan_id": id, "task_id": "t1", "patch": patch });
        let result = client.good("planner/update_task", params);
        assert_eq!(result, json!({ "plan_id": id, "task": task }));
        let heard = client.event();
        assert_eq!(heard["method"], "planner/task_updated");
        let at = heard["params"]["updated_at"].clone();
        assert_eq!(
            heard["params"],
            json!({ "plan_id": id, "task": task, "updated_at": at })
        );
        let now = client.good("planner/get_plan", json!({ "plan_id": id }))["plan"].clone();
        assert_eq!((&now["tasks"][0], &now["updated_at"]), (&task, &at));
        assert_eq!(now["created_at"], plan["created_at"]);
    }
    // Nothing named, nothing changed, nobody told.
    let params = json!({ "plan_id": id, "task_id": "t1", "patch": { "status": null } });
    assert_eq!(client.good("planner/update_task", params)["task"], task);
    for (params, field) in [
        (json!({ "task_id": "t1", "patch": {} }), "plan_id"),
        (json!({ "plan_id": id, "patch": {} }), "task_id"),
        (json!({ "plan_id": id, "task_id": "t1" }), "patch"),
        (
            json!({ "plan_id": id, "task_id": "t1", "patch": { "status": "ready" } }),
            "patch.status",
        ),
        (
            json!({ "plan_id": id, "task_id": "t1", "patch": { "description": 1 } }),
            "patch.description",
        ),
        (
            json!({ "plan_id": id, "task_id": "t1", "patch": { "assignee_role": 1 } }),
            "patch.assignee_role",
        ),
        (
            json!({ "plan_id": id, "task_id": "t1", "patch": { "id": "t2" } }),
            "patch.id",
        ),
    ] {
        let (code, data) = client.bad("planner/update_task", params);
        assert_eq!((code, &data["field"]), (-32602, &json!(field)));
    }
    let (code, _) = client.bad("planner/get_plan", json!({}));
    assert_eq!(code, -32602);
    let long = json!({ "description": "x".repeat(16 * 1024 + 1) });
    let params = json!({ "plan_id": id, "task_id": "t1", "patch": long });
    assert_eq!(client.bad("planner/update_task", params).0, 1003);
    for (plan, task) in [("p0", "t1"), ("none", "t1"), ("", "t1")] {
        let params = json!({ "plan_id": plan, "task_id": task, "patch": {} });
        assert_eq!(client.bad("planner/update_task", params).0, 1001);
        let params = json!({ "plan_id": plan });
        assert_eq!(client.bad("planner/get_plan", params).0, 1001);
    }
    for task in ["t0", "t3", "1", "t01", ""] {
        let params = json!({ "plan_id": id, "task_id": task, "patch": {} });
        assert_eq!(client.bad("planner/update_task", params).0, 1001, "{task}");
    }
    // The next to be heard is the next to happen.
    let gone = client.good("planner/delete_plan", json!({ "plan_id": id }));
    assert_eq!(gone, json!({ "deleted": true }));
    let heard = client.event();
    assert_eq!(heard["method"], "planner/plan_updated");
    let told = &heard["params"]["plan"];
    assert_eq!((&told["id"], &told["deleted"]), (id, &json!(true)));
}

/// JR-160, JR-161, R-4, R-12: pages of plans without their tasks, stable while others are added;
/// a plan that is deleted is gone.
#[test]
fn plans_are_listed_and_deleted() {
    let folder = Folder::new();
    let mut client = rpc(&folder);
    let empty = client.good("planner/list_plans", json!({}));
    assert_eq!(empty, json!({ "plans": [], "next_cursor": null }));
    let made: Vec<Value> = (0..7).map(|_| create(&mut client, "x")).collect();
    let mut ids: Vec<Value> = made.iter().map(|plan| plan["id"].clone()).collect();
    let (mut listed, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = json!({ "limit": 3, "cursor": cursor });
        let page = client.good("planner/list_plans", params);
        for plan in page["plans"].as_array().expect("plans") {
            assert!(plan.get("tasks").is_none(), "{plan}");
            listed.push(plan["id"].clone());
        }
        if listed.len() == 3 {
            ids.push(create(&mut client, "added meanwhile")["id"].clone());
        }
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(listed, ids);
    for (params, field) in [
        (json!({ "cursor": "none" }), "cursor"),
        (json!({ "cursor": "YWZ0ZXI6cDAx" }), "cursor"),
        (json!({ "cursor": 1 }), "cursor"),
        (json!({ "limit": 0 }), "limit"),
        (json!({ "limit": 201 }), "limit"),
        (json!({ "more": 1 }), "more"),
    ] {
        let (code, data) = client.bad("planner/list_plans", params);
        assert_eq!((code, &data["field"]), (-32602, &json!(field)));
    }
    for (id, deleted) in [(&ids[2], true), (&ids[2], false), (&json!("none"), false)] {
        let gone = client.good("planner/delete_plan", json!({ "plan_id": id }));
        assert_eq!(gone, json!({ "deleted": deleted }));
    }
    ids.remove(2);
    client.end();
    let mut client = rpc(&folder);
    let all = client.good("planner/list_plans", json!({ "limit": 200 }));
    let left: Vec<Value> = all["plans"]
        .as_array()
        .expect("plans")
        .iter()
        .map(|plan| plan["id"].clone())
        .collect();
    assert_eq!(left, ids);
    client.end();
    verified(&folder);
}

const PLANNER: &str = r#"
read -r input
case $input in
  *nonsense*) echo '{"tasks":7}' ;;
  *hang*) exec sleep 1000 ;;
  *peek*) cat callgate.toml >&2 && echo '{"tasks":["read it"]}' || echo '{"tasks":["kept out"]}' ;;
  *) echo '{"tasks":["first",{"description":"second","assignee_role":"tester","children":["third"]}]}' ;;
esac
"#;

/// R-12: another program plans, confined and bounded as any tool of its kind.
#[test]
fn a_program_plans() {
    let config = "[planner]\ncommand = [\"/bin/sh\", \"plan.sh\"]\ncode = [\"plan.sh\"]\ntimeout_ms = 20000\n";
    let folder = folder_of(&[("callgate.toml", config), ("plan.sh", PLANNER)]);
    trust(&folder);
    let mut client = rpc(&folder);
    let plan = create(&mut client, "1. not read as a list");
    assert_eq!(
        outline(&plan),
        [
            ("t1", "first", None),
            ("t2", "second", None),
            ("t3", "third", Some("t2"))
        ]
    );
    let roles: Vec<&Value> = plan["tasks"]
        .as_array()
        .expect("tasks")
        .iter()
        .map(|task| &task["assignee_role"])
        .collect();
    assert_eq!(roles, ["developer", "tester", "developer"]);
    let plan = create(&mut client, "peek");
    assert_eq!(outline(&plan), [("t1", "kept out", None)]);
    let params = json!({ "title": "x", "user_request": "nonsense" });
    let (code, data) = client.bad("planner/create_plan", params);
    assert_eq!((code, &data["kind"]), (-32603, &json!("bad_output")));
    let params = json!({ "path": "plan.sh", "content": "x", "overwrite": true });
    assert_eq!(
        client.bad("files/write", params).0,
        1002,
        "its code is the gate's own"
    );
    let plans = client.good("planner/list_plans", json!({}))["plans"].clone();
    assert_eq!(plans.as_array().expect("plans").len(), 2);
}

/// R-12: a program that does not answer is ended at its timeout.
#[test]
fn a_program_that_hangs() {
    let config =
        "[planner]\ncommand = [\"/bin/sh\", \"plan.sh\"]\ncode = [\"plan.sh\"]\ntimeout_ms = 500\n";
    let folder = folder_of(&[("callgate.toml", config), ("plan.sh", PLANNER)]);
    trust(&folder);
    let mut client = rpc(&folder);
    let params = json!({ "title": "x", "user_request": "hang" });
    let (code, data) = client.bad("planner/create_plan", params);
    assert_eq!((code, &data["kind"]), (-32603, &json!("timeout")));
    let plans = client.good("planner/list_plans", json!({}))["plans"].clone();
    assert_eq!(plans, json!([]));
}

/// R-15: what is known as a secret is neither kept nor told.
#[test]
fn secrets() {
    let folder = trusted("[secrets]\nenv = [\"SESAME\"]\n");
    let environment = environment(&folder, &[("SESAME", OsStr::new("open-sesame-1234"))]);
    let mut client = Client::of(Opened::in_environment(&folder, &environment));
    let params = json!({
        "title": "say open-sesame-1234", "user_request": "- try open-sesame-1234",
        "context": "it is open-sesame-1234", "assignee_default": "open-sesame-1234",
    });
    let plan = client.good("planner/create_plan", params)["plan"].clone();
    let params = json!({ "plan_id": plan["id"], "task_id": "t1",
                         "patch": { "description": "not open-sesame-1234" } });
    client.good("planner/update_task", params);
    let told = [client.event(), client.event()];
    client.end();
    let kept = rpc(&folder).good("planner/get_plan", json!({ "plan_id": plan["id"] }));
    for text in [plan.to_string(), kept.to_string(), json!(told).to_string()] {
        assert!(!text.contains("sesame-1234"), "{text}");
    }
    assert!(told[1]["params"]["task"]["description"].as_str() > Some("not "));
}

/// The same tool over MCP and toolhost makes the same plan.
#[test]
fn over_other_wires() {
    let folder = Folder::new();
    let input = json!({ "title": "a plan", "user_request": "- a\n  - b\nand so on" });
    let plain = |mut plan: Value| {
        for name in ["id", "created_at", "updated_at"] {
            assert!(plan[name].is_string(), "{plan}");
            plan[name] = json!(name);
        }
        plan
    };
    let here = create(&mut rpc(&folder), "- a\n  - b\nand so on");
    let mut by_mcp = Host::mcp(&folder, &["planner/*"]);
    let reply = by_mcp.ask(&modern_call(1, "planner/create_plan", &input, &json!({})));
    let structured = reply["result"]["structuredContent"]["plan"].clone();
    assert!(structured.is_object(), "{reply}");
    let mut host = Host::toolhost_builtins(&folder);
    let reply = host.ask(&json!({ "aid": "AID.PLANNER.CREATE_PLAN.v1", "inputs": input }));
    let output = match &reply["output"] {
        Value::Null => &reply["output_json"],
        output => output,
    };
    let output = match output {
        Value::String(text) => serde_json::from_str(text).expect("JSON"),
        output => output.clone(),
    };
    let by_host = output["plan"].clone();
    assert!(by_host.is_object(), "{reply}");
    let here = plain(here);
    assert_eq!(plain(structured), here);
    assert_eq!(plain(by_host), here);
    let plans = rpc(&folder).good("planner/list_plans", json!({}));
    assert_eq!(plans["plans"].as_array().expect("plans").len(), 3);
}
