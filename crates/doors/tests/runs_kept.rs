//! Streamed runs over JSON-RPC: the policies by which events are kept, what clients hear of a run, and
//! that its passwords are kept nowhere. ST-24, ST-41, S-15, S-18.

use callgate_gate::Schema;
use serde_json::{Value, json};

use crate::support::stage::{Stage, ended};
use callgate_testing_workspace::records;

fn stage() -> Stage {
    Stage::new("[breaker]\nfailures_max = 0\n")
}

fn good_end() -> [Value; 2] {
    [
        json!({ "complete": {} }),
        json!({ "result": { "status": "completed" } }),
    ]
}

fn then_good(acts: &[Value]) -> Value {
    Value::Array([acts, &good_end()].concat())
}

/// ST-24, S-18: nor does a password hide in names and types, in a URL, or at the place where a
/// long message is cut.
#[test]
fn proxy_passwords_in_disguise() {
    const PASSWORD: &str = "p@ss/w0rd";
    const IN_URLS: &str = "p%40ss%2Fw0rd";
    let mut stage = stage();
    let proxy = json!({
        "protocol": "http", "host": "proxy.example", "port": 3128,
        "username": "me", "password": PASSWORD,
    });
    let url = format!("http://me:{IN_URLS}@proxy.example:3128");
    let acts = json!([
        { "emit": { "type": format!("seen-{PASSWORD}"), "payload": { "url": url } } },
        { "say": format!("through {url}\n") },
        { "chunk": { "id": PASSWORD, "text": "hello", "last": true } },
        { "emit": { "type": "artifact", "payload": {
            "artifact_id": PASSWORD, "name": url, "content_type": format!("text/{PASSWORD}"),
            "size_bytes": 5,
        } } },
        { "chunk": { "id": format!("{IN_URLS}-2"), "last": true } },
        { "emit": { "type": "artifact", "payload": {
            "artifact_id": format!("{IN_URLS}-2"), "name": "", "content_type": "", "size_bytes": 0,
        } } },
        { "file": { "name": format!("{IN_URLS}.txt"), "text": "x" } },
        { "ack": true },
        { "result": { "status": "error", "message": format!("{}{PASSWORD}", "x".repeat(4090)) } },
        { "exit": 1 },
    ]);
    let order = Stage::order(&acts, &json!({ "proxy": proxy }));
    let answer = stage.client.ask("runs/start", order);
    let told = ended(&answer);
    assert_eq!(told.outcome, "script_error", "{told:?}");
    assert!(told.message.ends_with("xxx[secre"), "{}", told.message);
    let resource = &told.report["resources"][0];
    assert_eq!(resource["artifact_id"], "[secret]", "{told:?}");
    assert_eq!(resource["name"], "http://me:[secret]@proxy.example:3128");
    assert_eq!(resource["mimeType"], "text/[secret]");
    assert_eq!(told.report["events_by_type"]["seen-[secret]"], 1);
    let stderr = told.report["stderr"].as_str().expect("words");
    assert!(stderr.contains("me:[secret]@"), "{stderr}");
    assert!(
        stderr.contains("ack: 1 false its name holds a secret"),
        "{stderr}"
    );
    let mut heard = vec![answer.to_string(), stage.newest().to_string()];
    while !heard
        .last()
        .is_some_and(|event| event.contains("\"ended\""))
    {
        heard.push(stage.client.event().to_string());
    }
    heard.push(format!("{:?}", records(&stage.folder)));
    let state = stage.state();
    let kept = state.iter().map(|(path, bytes)| {
        let text = String::from_utf8_lossy(bytes);
        format!("{}: {text}", path.display())
    });
    for text in heard.into_iter().chain(kept) {
        for part in ["p@ss", "p%40ss", "w0rd"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }
}

/// S-18: whoever is asked to approve a run sees what it is, without the password.
#[test]
fn approvals_do_not_keep_passwords() {
    let config = "[[policy]]\ntools = [\"runs/start\"]\ndecision = \"ask\"\n";
    let mut stage = Stage::new(config);
    let proxy = json!({
        "protocol": "http", "host": "proxy.example", "port": 1, "username": "me",
        "password": "pr0xy-password",
    });
    let order = Stage::order(&json!([]), &json!({ "proxy": proxy }));
    let (_, data) = stage.client.bad("runs/start", order);
    assert!(data["approval"].is_string(), "{data}");
    let state = stage.state();
    let texts = || state.values().map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        texts().any(|text| text.contains("proxy.example")),
        "it is shown"
    );
    assert!(!texts().any(|text| text.contains("pr0xy-password")));
}

/// ST-83, ST-84, ST-85, S-15: each policy to its end; a full buffer drops what may be dropped and
/// fails the run at what may not.
#[test]
fn policies() {
    let mut stage = stage();
    let item = json!({ "emit": {} });
    let log = json!({ "emit": { "type": "log", "payload": { "message": "m" } } });
    let streaming = json!({ "policy": { "name": "streaming", "count": 2 } });
    let ended = stage.run_with(
        &then_good(&[item.clone(), item.clone(), item.clone()]),
        &streaming,
    );
    assert_eq!(ended.report["policy"]["events_persisted"], 4, "{ended:?}");
    assert!(
        ended.report["policy"]["flush_triggers"]["count"].as_u64() >= Some(1),
        "{ended:?}"
    );
    let buffered = json!({ "policy": { "name": "buffered", "events": 3 } });
    let acts = [log.clone(), log.clone(), item.clone(), item.clone()];
    let ended = stage.run_with(&then_good(&acts), &buffered);
    assert_eq!(ended.outcome, "success", "{ended:?}");
    assert_eq!(
        ended.report["policy"]["dropped_by_type"],
        json!({ "log": 2 })
    );
    let acts = json!([item, item, item, item, { "hang": true }]);
    let ended = stage.run_with(&acts, &buffered);
    assert_eq!(ended.outcome, "policy_failure", "{ended:?}");
    assert_eq!(ended.message, "not kept: the buffer of the policy is full");
    assert_eq!(stage.newest()["run"]["state"], "policy_failure");
}

/// ST-41: clients hear of a run's begin, its artifacts and its end, as they were told they would.
#[test]
fn notifications() {
    let mut stage = stage();
    let discovered = stage.client.good("rpc/discover", json!({}));
    let mut told = discovered["x-notifications"].as_array().unwrap().iter();
    let told = told.find(|one| one["name"] == "runs/updated").unwrap();
    let check = Schema::compile(&told["schema"]).unwrap();
    let acts = [
        json!({ "chunk": { "text": "hello", "last": true } }),
        json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": "a", "name": "a.txt", "content_type": "text/plain", "size_bytes": 5,
        } } }),
    ];
    let more = json!({ "job_id": "j" });
    let ended = stage.run_with(&then_good(&acts), &more);
    let run_id = &ended.report["run_id"];
    let mut states = Vec::new();
    while states.last() != Some(&json!("ended")) {
        let event = stage.client.event();
        assert_eq!(event["method"], "runs/updated", "{event}");
        let params = &event["params"];
        assert!(check.check_input(params).is_ok(), "{event}");
        assert_eq!(
            (&params["run_id"], &params["job_id"]),
            (run_id, &json!("j"))
        );
        if params["state"] == "artifact" {
            assert_eq!(params["artifact"], ended.report["resources"][0]);
        }
        states.push(params["state"].clone());
    }
    assert_eq!(json!(states), json!(["started", "artifact", "ended"]));
}
