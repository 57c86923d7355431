//! MCP tasks at the real program, by hand: what is told of them to whoever follows them, on a
//! pipe and over HTTP, and what `tasks/cancel` ends. The conformance suite has the rest of the
//! extension, and skips this.

use crate::support::drive::{Host, chain};
use crate::support::mcp::{Events, mcp, modern_call, post_mcp, post_open, serve_http};
use crate::support::processes::{descendants, words_of};
use crate::support::wait_for;
use crate::support::workspace::{HANGS, ONE, SLOW, effects, trusted_with};
use serde_json::{Value, json};

/// What a client says that knows tasks.
fn knows() -> Value {
    json!({ "io.modelcontextprotocol/clientCapabilities": {
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    } })
}

/// A request of such a client.
fn request(id: Value, method: &str, mut params: Value) -> Value {
    let meta = &modern_call(0, "", &Value::Null, &knows())["params"]["_meta"];
    params["_meta"] = meta.clone();
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn listen(id: &str, tasks: &[&str]) -> Value {
    let wanted = json!({ "notifications": { "taskIds": tasks } });
    request(json!(id), "subscriptions/listen", wanted)
}

/// The id of a task that a call has become.
fn task_of(reply: &Value) -> String {
    assert_eq!(reply["result"]["resultType"], "task", "{reply}");
    let id = reply["result"]["taskId"].as_str();
    id.expect("an id").to_owned()
}

/// What a notification says of a task, without the stream it came by.
fn told(message: &Value, stream: &str) -> Value {
    assert_eq!(message["method"], "notifications/tasks", "{message}");
    let mut task = message["params"].clone();
    let meta = task.as_object_mut().and_then(|task| task.remove("_meta"));
    let wanted = json!({ "io.modelcontextprotocol/subscriptionId": stream });
    assert_eq!(meta, Some(wanted));
    task
}

fn acknowledged(message: &Value) -> &Value {
    let method = "notifications/subscriptions/acknowledged";
    assert_eq!(message["method"], method, "{message}");
    &message["params"]["notifications"]
}

/// The same as `tasks/get` says.
fn asked_after(host: &mut Host, id: &str) -> Value {
    let reply = host.ask(&request(json!(9), "tasks/get", json!({ "taskId": id })));
    let mut task = reply["result"].clone();
    let kind = task
        .as_object_mut()
        .and_then(|task| task.remove("resultType"));
    assert_eq!(kind, Some(json!("complete")), "{reply}");
    task
}

/// A client that follows its tasks is told how they stand and what becomes of them, whole, on a
/// pipe and over HTTP; `tasks/cancel` ends the tool's process. Nobody hears of tasks of others.
#[test]
fn tasks_are_told_and_cancelled() {
    let two = ONE.replace("\"one\"", "\"two\"").replace("ONE", "TWO");
    let config = format!("{ONE}{}", two.replace("tool.sh", "hangs.sh"));
    let folder = trusted_with(&[
        ("callgate.toml", &config),
        ("tool.sh", SLOW),
        ("hangs.sh", HANGS),
    ]);
    let (serve, port) = serve_http(&folder);
    let mut host = mcp(&folder, &[]);
    host.send(&modern_call(1, "one", &json!({}), &knows()));
    host.send(&modern_call(2, "two", &json!({}), &knows()));
    let web = post_mcp(port, &modern_call(3, "one", &json!({}), &knows()), &[]);
    let theirs = task_of(&web.last());
    let mut mine = [host.reply(), host.reply()];
    mine.sort_by_key(|reply| reply["id"].as_u64());
    let [slow, hangs] = mine.map(|reply| task_of(&reply));
    wait_for("all three", || (effects(&folder) == 3).then_some(()));

    // A client that does not say it knows tasks is told what is missing.
    let mut stranger = listen("s", &[&slow]);
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    stranger["params"]["_meta"][capabilities] = json!({});
    let refused = host.ask(&stranger);
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let required = &refused["error"]["data"]["requiredCapabilities"];
    assert!(
        required["extensions"]["io.modelcontextprotocol/tasks"].is_object(),
        "{refused}"
    );
    assert_eq!(post_mcp(port, &stranger, &[]).status, 400);
    let many = vec!["x"; 1025];
    assert_eq!(host.ask(&listen("s", &many))["error"]["code"], -32602);
    let numbers = json!({ "notifications": { "taskIds": [7] } });
    let refused = host.ask(&request(json!("s"), "subscriptions/listen", numbers));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");

    let all = [&*slow, &*hangs, &*slow, &*theirs, "task_made_up"];
    host.send(&listen("pipe", &all));
    let granted = host.reply();
    assert_eq!(acknowledged(&granted), &json!({ "taskIds": [slow, hangs] }));
    let stand = [host.reply(), host.reply()];
    for (id, message) in [&slow, &hangs].into_iter().zip(&stand) {
        let task = told(message, "pipe");
        assert_eq!(
            (&task["taskId"], &task["status"]),
            (&json!(id), &json!("working"))
        );
        assert_eq!(task, asked_after(&mut host, id));
    }
    let mut stream = Events::of(post_open(port, &listen("web", &all), &[]));
    assert_eq!(
        acknowledged(&stream.next()),
        &json!({ "taskIds": [theirs] })
    );
    let task = told(&stream.next(), "web");
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(theirs), &json!("working"))
    );

    // As many ids as a stream may follow; none of them is a task.
    let many = vec!["x"; 1024];
    host.send(&listen("many", &many));
    assert_eq!(acknowledged(&host.reply()), &json!({}));

    let sleeping = || {
        let all = descendants(serve.pid()).into_iter();
        all.filter(|&pid| words_of(pid).contains("sleep 1000"))
            .count()
    };
    assert_eq!(sleeping(), 1);
    host.send(&request(
        json!(4),
        "tasks/cancel",
        json!({ "taskId": hangs }),
    ));
    let said = [host.reply(), host.reply()];
    let [answer, notice] = match said[0]["id"] == 4 {
        true => said,
        false => {
            let [notice, answer] = said;
            [answer, notice]
        }
    };
    assert_eq!(answer["result"], json!({ "resultType": "complete" }));
    let task = told(&notice, "pipe");
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(hangs), &json!("cancelled"))
    );
    assert_eq!(sleeping(), 0, "the call is over when it is told");
    let ends = chain(&folder);
    assert!(ends.iter().any(|record| record["fault"] == "cancelled"));

    folder.write("go", "");
    let task = told(&host.reply(), "pipe");
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(slow), &json!("completed"))
    );
    assert_eq!(task["result"]["content"][0]["text"], r#"{"done":true}"#);
    assert_eq!(task, asked_after(&mut host, &slow));
    let task = told(&stream.next(), "web");
    assert_eq!(
        (&task["taskId"], &task["status"]),
        (&json!(theirs), &json!("completed"))
    );

    // Whoever comes late is told how it ended, and nobody is told twice.
    host.send(&listen("late", &[&hangs, &slow]));
    acknowledged(&host.reply());
    for status in ["cancelled", "completed"] {
        assert_eq!(told(&host.reply(), "late")["status"], status);
    }
    let next = host.ask(&json!({ "jsonrpc": "2.0", "id": 5, "method": "ping" }));
    assert_eq!(next["id"], 5, "{next}");
    assert!(host.end().success());
    assert!(serve.stop().success());
}
