//! Plans as people and many clients at once have them: nothing is lost when many work on one plan,
//! everyone hears of it in the same order, and it lasts. What each method takes and gives is tested
//! in `doors`. R-12.

use std::thread;

use crate::support::Folder;
use crate::support::drive::{chain, cli, verified};
use crate::support::mcp::serve_http;
use crate::support::rpc::{Client, Events, Line, Posts, Ws, rpc, rpc_alone};
use crate::support::web::{Web, token};
use crate::support::workspace::trusted;
use serde_json::{Value, json};

fn create(client: &mut Client, request: &str) -> Value {
    let params = json!({ "title": "a plan", "user_request": request });
    client.good("planner/create_plan", params)["plan"].clone()
}

/// R-12, R-3: a thousand updates at once from pipes, WebSockets and posts, in three processes.
/// Each is made; every client hears of each, all in the order of the chain; a restart changes
/// nothing.
#[test]
fn a_thousand_updates_at_once() {
    const EACH: usize = 200;
    let folder = Folder::new();
    let (serve, port) = serve_http(&folder);
    let mut first = Client::ws(port);
    let lines: String = (1..=5).map(|n| format!("- worker {n}\n")).collect();
    let plan = create(&mut first, &lines);
    let id = plan["id"].as_str().expect("an id").to_owned();
    assert_eq!(first.event()["method"], "planner/plan_updated");
    let mut stream = Events::open(port, None);
    let patch = |worker: usize, n: usize| {
        let status = ["in_progress", "blocked", "done", "todo"][n % 4];
        json!({ "plan_id": id, "task_id": format!("t{worker}"),
                "patch": { "description": format!("{worker}:{n}"), "status": status } })
    };
    // Those on pipes are processes of their own, and have heard of nothing yet.
    let mut clients = vec![
        first,
        Client::ws(port),
        rpc_alone(&folder),
        rpc_alone(&folder),
    ];
    for client in &mut clients {
        client.good("planner/get_plan", json!({ "plan_id": id }));
    }
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let heard: Vec<Vec<[String; 4]>> = thread::scope(|scope| {
        let seen = |event: &Value| {
            let (task, at) = (&event["params"]["task"], &event["params"]["updated_at"]);
            [&task["description"], at, &task["id"], &task["status"]].map(text)
        };
        let patch = &patch;
        let mut hearing = vec![scope.spawn(move || {
            (0..5 * EACH)
                .map(|_| seen(&stream.next()))
                .collect::<Vec<_>>()
        })];
        hearing.extend(clients.into_iter().enumerate().map(|(index, mut client)| {
            scope.spawn(move || {
                let ids: Vec<u64> = (0..EACH)
                    .map(|n| client.send("planner/update_task", patch(index + 1, n)))
                    .collect();
                for id in ids {
                    let reply = client.answer(id);
                    assert!(reply["result"].is_object(), "{reply}");
                }
                (0..5 * EACH).map(|_| seen(&client.event())).collect()
            })
        }));
        let mut posts = Posts::new(port, "/rpc");
        for n in 0..EACH {
            let reply = posts.ask("planner/update_task", patch(5, n));
            assert!(reply["result"].is_object(), "{reply}");
        }
        let join = |one: thread::ScopedJoinHandle<'_, Vec<_>>| one.join().expect("it hears");
        hearing.into_iter().map(join).collect()
    });
    for others in &heard[1..] {
        assert!(*others == heard[0], "all hear the same in the same order");
    }
    let mut texts: Vec<&String> = heard[0].iter().map(|[text, ..]| text).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 5 * EACH, "each once");
    assert!(heard[0].is_sorted_by_key(|[_, at, ..]| at), "times go on");
    let get = |client: &mut Client| {
        client.good("planner/get_plan", json!({ "plan_id": id }))["plan"].clone()
    };
    let before = get(&mut Client::ws(port));
    for task in before["tasks"].as_array().expect("tasks") {
        let worker = &task["id"].as_str().expect("an id")[1..];
        let of = |event: &&[String; 4]| event[0].starts_with(&format!("{worker}:"));
        let last = heard[0].iter().rfind(of).expect("some");
        assert_eq!(task["description"], last[0]);
    }
    assert_eq!(before["updated_at"], heard[0].last().expect("some")[1]);
    serve.kill();
    let (_serve, port) = serve_http(&folder);
    assert_eq!(get(&mut Client::ws(port)), before);
    assert_eq!(get(&mut rpc(&folder)), before);
    let changes = chain(&folder);
    let of_tasks = changes
        .iter()
        .filter(|record| record["kind"] == "plan.task");
    let recorded: Vec<[String; 2]> = of_tasks
        .map(|record| [&record["task"], &record["status"]].map(text))
        .collect();
    let told: Vec<[String; 2]> = heard[0]
        .iter()
        .map(|[_, _, task, status]| [task.clone(), status.clone()])
        .collect();
    assert_eq!(recorded.len(), 5 * EACH);
    assert!(recorded == told, "what is heard has the order of the chain");
    verified(&folder);
}

/// JR-164, JR-168, R-13: rates of a tool and of a client; both say when to come back.
#[test]
fn rates() {
    let folder = trusted(
        r#"
[[tool]]
name = "one"
input_schema = { type = "object" }
rate_limit = { per_second = 0.001, burst = 2 }
code = ["tool.sh"]
runner = { kind = "process", command = ["/bin/sh", "tool.sh"] }
"#,
    );
    let mut client = rpc(&folder);
    let mut codes = (0..3).map(|_| client.ask("one", json!({})));
    assert!(
        codes
            .by_ref()
            .take(2)
            .all(|reply| reply["result"].is_object())
    );
    let error = codes.next().expect("the third")["error"].clone();
    drop(codes);
    assert_eq!(error["code"], 1004);
    assert!(
        error["data"]["retry_after_ms"].as_u64() > Some(1000),
        "{error}"
    );
    let web = Web::start(&folder, &[]);
    let slow = token(&folder, &["slow", "--rate", "0.001/s,1"]);
    let other = token(&folder, &["other"]);
    let by = |token: &str| Client::new(Line::Socket(Ws::open(web.port, Some(token))));
    let mut slow = by(&slow);
    create(&mut slow, "x");
    for method in ["planner/list_plans", "planner/create_plan"] {
        let params = match method {
            "planner/list_plans" => json!({}),
            _ => json!({ "title": "x", "user_request": "x" }),
        };
        let (code, data) = slow.bad(method, params);
        assert_eq!(code, 1004);
        assert!(data["retry_after_ms"].as_u64() > Some(1000), "{data}");
    }
    // Another client has its own.
    create(&mut by(&other), "x");
}

/// Whoever changes a plan, in whichever process, all who are connected hear of it.
#[test]
fn people() {
    let folder = Folder::new();
    assert_eq!(cli(&folder, &["plan"]).good().err, "there are no plans\n");
    let (_serve, port) = serve_http(&folder);
    let mut client = Client::ws(port);
    let plan = create(&mut client, "- api\n  - routes\n- docs");
    let id = plan["id"].as_str().expect("an id");
    client.event();
    let shown = cli(&folder, &["plan", "show", id]).good().out;
    assert_eq!(
        shown,
        format!(
            "{id}  a plan\n[ ] t1 api (developer)\n  [ ] t2 routes (developer)\n[ ] t3 docs (developer)\n"
        )
    );
    let told = cli(&folder, &["plan", "done", id, "t2", "t3"]).good().out;
    assert!(told.contains("  [x] t2 routes") && told.contains("[ ] t1 api"));
    for task in ["t2", "t3"] {
        let heard = client.event();
        assert_eq!(heard["method"], "planner/task_updated");
        let heard = &heard["params"]["task"];
        assert_eq!(
            (&heard["id"], &heard["status"]),
            (&json!(task), &json!("done"))
        );
    }
    let listed = cli(&folder, &["plan", "ls"]).good().out;
    assert!(listed.contains(id) && listed.contains("2/3"), "{listed}");
    let listed = cli(&folder, &["plan", "ls", "--json"]).good().json();
    assert_eq!(listed["plans"][0]["id"], id);
    let now = client.good("planner/get_plan", json!({ "plan_id": id }));
    assert_eq!(
        cli(&folder, &["plan", "show", id, "--json"]).good().json(),
        now
    );
    // All of it or nothing.
    let refused = cli(&folder, &["plan", "done", id, "t1", "t9"]);
    assert!(!refused.status.success() && refused.err.contains("no task t9"));
    assert!(!cli(&folder, &["plan", "show", "p0"]).status.success());
    let gone = cli(&folder, &["plan", "rm", id]).good().out;
    assert_eq!(gone, format!("removed {id}  a plan\n"));
    assert_eq!(client.event()["params"]["plan"]["deleted"], true);
    let none = cli(&folder, &["plan", "rm", id]);
    assert_eq!(none.code(), 1);
    assert!(none.err.contains("see `callgate plan ls`"), "{none:?}");
    let none = cli(&folder, &["plan", "done", id, "t1", "--json"]);
    assert_eq!(
        (none.code(), &none.json()["fault"]["kind"]),
        (1, &json!("not_found"))
    );
}

/// What people change by the command is a call of a tool: recorded, under the owner's rules, by the
/// gate that runs or alone.
#[test]
fn people_call_tools() {
    let folder = trusted("");
    let plan = create(&mut rpc_alone(&folder), "- a\n- b\n- c");
    let id = plan["id"].as_str().expect("an id");
    let calls = |tool: &str| {
        let records = chain(&folder).into_iter();
        let of_tool = records.filter(|one| one["tool"] == tool && one["kind"] == "start");
        of_tool.map(|one| one["wire"].clone()).collect::<Vec<_>>()
    };
    cli(&folder, &["plan", "done", id, "t1"]).good();
    assert_eq!(calls("planner/update_task"), ["gate"]);
    let serve = crate::support::drive::Serve::start(&folder);
    cli(&folder, &["plan", "done", id, "t2"]).good();
    assert_eq!(calls("planner/update_task"), ["gate", "gate"]);
    let rule = "[[policy]]\ntools = [\"planner/update_task\", \"planner/delete_plan\"]\ndecision = \"deny\"\n";
    folder.write("callgate.toml", rule);
    cli(&folder, &["trust"]).good();
    serve.wait_said("reloaded");
    let refused = |args: &[&str]| {
        let ran = cli(&folder, args);
        assert!(ran.code() == 1 && ran.err.contains("denied"), "{ran:?}");
    };
    refused(&["plan", "done", id, "t3"]);
    refused(&["plan", "rm", id]);
    assert!(serve.stop().success());
    refused(&["plan", "done", id, "t3"]);
    refused(&["plan", "rm", id]);
    let shown = cli(&folder, &["plan", "show", id]).good().out;
    assert!(
        shown.contains("[x] t2 b") && shown.contains("[ ] t3 c"),
        "{shown}"
    );
    folder.write("callgate.toml", "");
    cli(&folder, &["trust"]).good();
    let gone = cli(&folder, &["plan", "rm", id, "--json"]).good().json();
    assert_eq!(gone, json!({ "deleted": true }));
    assert_eq!(calls("planner/delete_plan"), ["gate"]);
}
