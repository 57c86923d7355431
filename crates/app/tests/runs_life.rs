//! The life of streamed runs: they end on time whatever their script does, their secrets stay
//! where they are, and whoever watches hears of them. By JSON-RPC and by MCP.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::drive::{Host, chain, cli, end_of, run_records};
use crate::support::mcp::{initialize, legacy_call, modern_call, modern_meta};
use crate::support::processes::{started_with, words_of};
use crate::support::rpc::{Client, Line};
use crate::support::stage::{Stage, ended};
use crate::support::{callgate, wait_for};
use callgate_testing::misbehave;
use serde_json::{Value, json};

fn stage() -> Stage {
    Stage::new(misbehave(), "[breaker]\nfailures_max = 0\n")
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

/// Nothing of this stage's executors is left.
fn nothing_left(tag: &str) {
    wait_for("the end of all processes", || {
        started_with(tag).is_empty().then_some(())
    });
}

/// The acts, by an executor that can be found by its tag.
fn tagged(tag: &str, more: Value) -> Value {
    let mut more = more;
    more["command"] = json!(["./misbehave", "executor", tag]);
    more
}

fn tag_of(stage: &Stage, what: &str) -> String {
    format!(
        "{what}-{}",
        stage.folder.path().file_name().expect("a name").display()
    )
}

/// ST-9, S-12, S-13: more stderr than any pipe holds, a daemon that holds the stream open, a script
/// that sleeps for ever, one that does not end when it is told to, and one that closes its stdout.
#[test]
fn runs_end_on_time() {
    /// Long enough for all to begin on a machine that has other things to do.
    const TIMEOUT_MS: u64 = 15_000;
    /// Two seconds to end by itself, and what such a machine takes to end it.
    const LATE_MS: u64 = 2_000 + 30_000;
    let mut stage = stage();
    // Both ends of what was said are in the report, and nothing waited for it.
    let say = [
        json!({ "say": "begin\n" }),
        json!({ "say_much": 3_000_000 }),
        json!({ "say": "end\n" }),
    ];
    let ended = stage.run(&then_good(&say));
    assert_eq!(ended.outcome, "success", "{}", ended.message);
    let stderr = ended.report["stderr"].as_str().expect("words");
    assert!(stderr.starts_with("begin\n") && stderr.ends_with("end\n"));
    assert!(stderr.contains("bytes left out]") && stderr.len() < 64 * 1024);

    // Out of its tree's reach as far as a process can go, with the stream in its hands.
    let tag = tag_of(&stage, "daemon");
    let acts = then_good(&[json!({ "daemon": "" })]);
    let ended = stage.run_with(&acts, &tagged(&tag, json!({})));
    assert_eq!(ended.outcome, "success", "{ended:?}");
    nothing_left(&tag);

    // All at once: each takes as long as it may.
    let cases = [
        ("sleeps", json!([{ "emit": {} }, { "hang": true }])),
        ("floods", json!([{ "emit": {} }, { "flood_stderr": true }])),
        (
            "stays",
            json!([{ "emit": {} }, { "ignore": 15 }, { "ignore": 1 }, { "hang": true }]),
        ),
        (
            "leaves",
            json!([{ "emit": {} }, { "daemon": "" }, { "hang": true }]),
        ),
        (
            "is-done",
            json!([{ "emit": {} }, { "complete": {} }, { "hang": true }]),
        ),
        (
            "closes",
            json!([{ "emit": {} }, { "complete": {} }, { "close": 1 }, { "hang": true }]),
        ),
        (
            "is-cut",
            json!([{ "emit": {} }, { "raw": "000000ff81" }, { "hang": true }]),
        ),
    ];
    let asked = cases.map(|(name, acts)| {
        let tag = tag_of(&stage, name);
        let more = json!({ "timeout_ms": TIMEOUT_MS, "job_id": name });
        let order = Stage::order(&acts, &tagged(&tag, more));
        (name, tag, stage.client.send("runs/start", order))
    });
    for (name, tag, id) in asked {
        let answer = stage.client.answer(id);
        assert_eq!(
            answer["error"]["data"]["after_ms"], TIMEOUT_MS,
            "{name}: {answer}"
        );
        nothing_left(&tag);
        let listed = stage.client.good("runs/list", json!({ "limit": 20 }));
        let runs = listed["runs"].as_array().expect("runs");
        let run = runs.iter().find(|run| run["job_id"] == name);
        let run_id = &run.expect("the run")["run_id"];
        let wanted = json!({ "run_id": run_id, "events_from": 0 });
        let seen = stage.client.good("runs/get", wanted);
        assert_eq!(seen["run"]["state"], "executor_crash", "{name}");
        let message = format!("timed out after {TIMEOUT_MS} ms");
        assert_eq!(seen["report"]["message"], message, "{name}");
        let took_ms = seen["report"]["duration_ms"].as_u64().expect("a time");
        let on_time = TIMEOUT_MS..TIMEOUT_MS + LATE_MS;
        assert!(on_time.contains(&took_ms), "{name}: {took_ms} ms");
        assert_eq!(seen["report"]["exit_code"], Value::Null, "{name}");
        assert_eq!(seen["events"][0]["seq"], 1, "{name}: what came is kept");
    }
}

/// A caller that goes away takes its run along, and a word to the wise ends it too.
#[test]
fn a_run_ends_with_its_caller() {
    let mut stage = stage();
    let tag = tag_of(&stage, "left");
    let acts = json!([{ "emit": {} }, { "ignore": 15 }, { "mark": "here" }, { "hang": true }]);
    let order = Stage::order(&acts, &tagged(&tag, json!({})));
    let mut host = callgate(&stage.folder)
        .arg("rpc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the host");
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": "runs/start", "params": order });
    let mut stdin = host.stdin.take().expect("piped");
    writeln!(stdin, "{request}").expect("it reads");
    wait_for("the executor", || stage.folder.read("here"));
    assert!(!started_with(&tag).is_empty());
    drop((stdin, host.stdout.take()));
    assert!(end_of(&mut host, "the host").success());
    nothing_left(&tag);
    let seen = wait_for("the end of the run", || {
        let seen = stage.newest();
        (seen["run"]["state"] != "running").then_some(seen)
    });
    assert_eq!(seen["run"]["state"], "executor_crash");
    assert_eq!(seen["report"]["message"], "cancelled");
    assert_eq!(seen["events"][0]["seq"], 1);
}

/// ST-16, ST-20, ST-21, ST-22, ST-23, ST-24, S-18: the executor has the password; no report, event,
/// trace, record or process list has.
#[test]
fn proxy_passwords() {
    const PASSWORD: &str = "pr0xy-\"pass\\word";
    let escaped = json!(PASSWORD).to_string();
    let escaped = escaped.trim_matches('"');
    let mut stage = stage();
    let proxy = json!({
        "protocol": "socks5", "host": "proxy.example", "port": 1080,
        "username": "me", "password": PASSWORD,
    });
    let more = json!({ "proxy": proxy });
    // It tells all it was given in an event, on stderr, in its terminal event and its result.
    let acts = |end: Value| {
        json!([
            { "tell": true },
            { "say": format!("the password is {PASSWORD}\n") },
            { "emit": { "type": "log", "payload": { "level": "info", "message": PASSWORD } } },
            end,
            { "result": { "status": "error", "message": PASSWORD, "proxy": "proxy.example" } },
            { "mark": "told" },
            { "wait_for": "go" },
            { "exit": 1 },
        ])
    };
    let order = Stage::order(&acts(json!({ "fail": PASSWORD })), &more);
    let id = stage.client.send("runs/start", order);
    wait_for("the executor", || stage.folder.read("told"));
    let lines: Vec<String> = std::fs::read_dir("/proc")
        .expect("a /proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .map(words_of)
        .collect();
    assert!(
        !lines.iter().any(|line| line.contains(PASSWORD)),
        "in a process list"
    );
    stage.folder.write("go", "");
    let answer = stage.client.answer(id);
    let told = ended(&answer);
    assert_eq!(told.outcome, "script_error", "{told:?}");
    assert_eq!(told.report["proxy_used"]["host"], "proxy.example");
    let seen = stage.newest();
    let request = &seen["events"][0]["payload"]["data"]["request"];
    let given = json!({
        "protocol": "socks5", "host": "proxy.example", "port": 1080,
        "username": "me", "password": "[secret]",
    });
    assert_eq!(request["proxy"], given, "it was given, and is not kept");
    let trace = cli(
        &stage.folder,
        &["trace", told.report["run_id"].as_str().unwrap(), "--json"],
    );
    let all = [
        ("answer", answer.to_string()),
        ("run", seen.to_string()),
        ("chain", format!("{:?}", chain(&stage.folder))),
        ("trace", trace.out + &trace.err),
    ];
    for (what, text) in &all {
        for password in [PASSWORD, escaped, &json!(escaped).to_string()] {
            assert!(!text.contains(password.trim_matches('"')), "{what}: {text}");
        }
    }
    for (path, bytes) in stage.state() {
        let text = String::from_utf8_lossy(&bytes);
        let found = text.contains(PASSWORD) || text.contains(escaped);
        assert!(!found, "{}", path.display());
    }
}

/// R-15: what the owner calls a secret is not kept, whatever a script does with it.
#[test]
fn secrets_of_the_workspace() {
    let config = "[secrets]\nenv = [\"API_KEY\"]\n[exec]\nenv = [\"API_KEY\"]\n";
    let mut stage = Stage::new(misbehave(), config);
    let host = Host::spawn(
        callgate(&stage.folder)
            .arg("rpc")
            .env("API_KEY", "k3y-of-the-owner"),
    );
    stage.client = Client::new(Line::Pipes(host));
    let acts = [
        json!({ "emit": { "payload": { "said": "it is k3y-of-the-owner." } } }),
        json!({ "say": "k3y-of-the-" }),
        json!({ "say": "owner\n" }),
    ];
    let ended = stage.run(&then_good(&acts));
    assert_eq!(ended.report["stderr"], "[secret]\n");
    assert_eq!(
        stage.newest()["events"][0]["payload"]["said"],
        "it is [secret]."
    );
    for (path, bytes) in stage.state() {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("k3y-of-the-owner"), "{}", path.display());
    }
}

/// The same run by JSON-RPC, by MCP (waited for, and as a task) and by the command line (as a call,
/// and as a run): the same events, artifacts and records.
#[test]
fn the_same_by_every_wire() {
    let mut stage = stage();
    let acts = then_good(&[
        json!({ "wait_for": "go" }),
        json!({ "emit": { "payload": { "n": 1 } } }),
        json!({ "chunk": { "text": "hello", "last": true } }),
        json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": "a", "name": "a.txt", "content_type": "text/plain", "size_bytes": 5,
        } } }),
    ]);
    let order = Stage::order(&acts, &json!({ "job_id": "j" }));
    let mut mcp = Host::spawn(callgate(&stage.folder).args(["mcp", "--only", "*"]));
    let mut all = Vec::new();
    for wire in ["task", "rpc", "mcp", "call", "run"] {
        let before = chain(&stage.folder).len();
        let mut report = match wire {
            "task" => as_a_task(&mut mcp, &stage, &order),
            "rpc" => ended(&stage.client.ask("runs/start", order.clone())).report,
            "mcp" => {
                let reply = mcp.ask(&modern_call(1, "runs_start", &order, &json!({})));
                reply["result"]["structuredContent"].clone()
            }
            "call" => {
                let order = order.to_string();
                cli(&stage.folder, &["call", "runs/start", &order])
                    .good()
                    .json()
            }
            _ => {
                let job = order["job"].to_string();
                let run = ["run", "--json", "--job-id", "j", "--job", &job, "--"];
                let command = ["./misbehave", "executor"];
                cli(&stage.folder, &[&run[..], &command].concat())
                    .good()
                    .json()
            }
        };
        let run_id = report["run_id"]
            .as_str()
            .unwrap_or_else(|| panic!("{wire}: {report}"));
        let run_id = run_id.to_owned();
        let mut records = run_records(&stage.folder, before);
        // The command line says what others leave to be taken for granted.
        assert!(records[0]["input"].is_string(), "{wire}: {records:?}");
        records[0]["input"] = Value::Null;
        let mut seen = stage.newest();
        assert_eq!(seen["report"], report, "{wire}");
        assert_eq!(report["run"]["uri"], format!("callgate://runs/{run_id}"));
        for changing in ["run_id", "run", "duration_ms", "metrics"] {
            report[changing] = Value::Null;
        }
        // A slow moment adds a flush.
        report["policy"]["flush_triggers"] = Value::Null;
        for event in seen["events"].as_array_mut().expect("events") {
            assert_eq!(event["run_id"], run_id);
            event["run_id"] = Value::Null;
        }
        all.push((wire, report, seen["events"].clone(), records));
    }
    let (_, report, events, records) = &all[0];
    assert!(
        records.len() >= 4,
        "a start, a run, an artifact and an end: {records:?}"
    );
    for (wire, other_report, other_events, other_records) in &all[1..] {
        assert_eq!(report, other_report, "{wire}");
        assert_eq!(events, other_events, "{wire}");
        assert_eq!(records, other_records, "{wire}");
    }
}

/// Its report, from a client that is told of a task and asks after it.
fn as_a_task(mcp: &mut Host, stage: &Stage, order: &Value) -> Value {
    let knows = json!({ "io.modelcontextprotocol/clientCapabilities": {
        "extensions": { "io.modelcontextprotocol/tasks": {} },
    } });
    let told = mcp.ask(&modern_call(1, "runs_start", order, &knows));
    assert_eq!(told["result"]["resultType"], "task", "{told}");
    assert_eq!(told["result"]["status"], "working", "{told}");
    let mut get = modern_call(2, "", &Value::Null, &knows);
    get["method"] = json!("tasks/get");
    get["params"] = json!({
        "taskId": told["result"]["taskId"], "_meta": get["params"]["_meta"],
    });
    stage.folder.write("go", "");
    wait_for("the end of the task", || {
        let task = &mcp.ask(&get)["result"];
        let is_over = task["status"] != "working";
        is_over.then(|| task["result"]["structuredContent"].clone())
    })
}

/// A tool whose runner is an executor: its input is the job. By MCP its result has links to the
/// artifacts, which are resources there.
#[test]
fn a_tool_that_is_a_run() {
    let config = r#"
[[tool]]
name = "crawl"
input_schema = { type = "object", properties = { acts = { type = "array" } } }
writes = ["out"]
runner = { kind = "executor", command = ["./misbehave", "executor"], script = "crawl.js", dataset = "pages", policy = { name = "streaming", count = 10 }, artifact_max = 100 }
"#;
    let mut stage = Stage::new(misbehave(), config);
    let artifact = |id: &str, kind: &str, name: &str| {
        json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": id, "name": name, "content_type": kind, "size_bytes": 5,
        } } })
    };
    let chunk = |id: &str, text: &str| json!({ "chunk": { "id": id, "text": text, "last": true } });
    let acts = then_good(&[
        json!({ "tell": true }),
        chunk("t", "hello"),
        artifact("t", "text/plain", "t.txt"),
        chunk("p", "world"),
        artifact("p", "image/png", "p.png"),
    ]);
    let answer = stage.client.ask("crawl", json!({ "acts": acts }));
    let report = ended(&answer).report;
    assert_eq!(report["outcome"], "success", "{answer}");
    assert_eq!(report["policy"]["name"], "streaming");
    let seen = stage.newest();
    assert_eq!(seen["run"]["dataset"], "pages");
    let args = &seen["events"][0]["payload"]["data"]["args"];
    assert_eq!(*args, json!(["executor", "crawl.js"]));
    let past = json!([{ "chunk": { "bytes": 101 } }, { "hang": true }]);
    let answer = stage.client.ask("crawl", json!({ "acts": past }));
    assert_eq!(
        answer["error"]["data"]["type"], "executor_crash",
        "{answer}"
    );

    let mut mcp = Host::spawn(callgate(&stage.folder).args(["mcp", "--only", "*"]));
    mcp.ask(&initialize(1));
    mcp.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let reply = mcp.ask(&legacy_call(
        2,
        "crawl",
        &json!({ "acts": acts }),
        &json!({}),
    ));
    let content = reply["result"]["content"].as_array().expect("content");
    let links: Vec<&Value> = content[1..].iter().collect();
    assert_eq!(links.len(), 3, "{reply}");
    let uri = report["resources"][0]["uri"].clone();
    let link = json!({
        "type": "resource_link", "uri": uri, "name": "t.txt", "mimeType": "text/plain", "size": 5,
    });
    assert_eq!(*links[0], link);
    let run_id = report_in(&reply["result"])["run_id"].clone();
    let run_uri = json!(format!(
        "callgate://runs/{}",
        run_id.as_str().expect("an id")
    ));
    let link = json!({
        "type": "resource_link", "uri": run_uri, "name": run_id, "mimeType": "application/json",
    });
    assert_eq!(*links[2], link);
    let templates = json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/templates/list" });
    let templates = mcp.ask(&templates)["result"]["resourceTemplates"].clone();
    let all = templates.as_array().expect("templates");
    for template in ["callgate://artifacts/{digest}", "callgate://runs/{run_id}"] {
        assert!(all.iter().any(|one| one["uriTemplate"] == template));
    }
    let mut read = |uri: &Value| {
        let request = json!({
            "jsonrpc": "2.0", "id": 4, "method": "resources/read", "params": { "uri": uri },
        });
        mcp.ask(&request)
    };
    let content = read(&uri)["result"]["contents"][0].clone();
    assert_eq!(
        (&content["text"], &content["mimeType"]),
        (&json!("hello"), &json!("text/plain"))
    );
    assert_eq!(content["uri"], uri);
    let content = read(&run_uri)["result"]["contents"][0].clone();
    assert_eq!(
        (&content["uri"], &content["mimeType"]),
        (&run_uri, &json!("application/json"))
    );
    let text = content["text"].as_str().expect("text");
    let shown: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(shown["run"]["run_id"], run_id);
    assert_eq!(shown["report"]["outcome"], "success");
    // What is not there is told as such, in the words of each era.
    let artifact = format!("callgate://artifacts/b3-{}", "0".repeat(64));
    for uri in [artifact.as_str(), "callgate://runs/none"] {
        for (meta, code) in [(json!({}), -32002), (modern_meta(), -32602)] {
            let error = mcp.ask(&json!({
                "jsonrpc": "2.0", "id": 4, "method": "resources/read",
                "params": { "uri": uri, "_meta": meta },
            }))["error"]
                .clone();
            assert_eq!(
                (&error["code"], &error["data"]),
                (&json!(code), &json!({ "uri": uri })),
                "{error}"
            );
        }
    }
    // A failed run has its report and its links too, in both eras.
    let mut failing = acts.as_array().unwrap().clone();
    failing.push(json!({ "exit": 2 }));
    let reply = mcp.ask(&modern_call(
        5,
        "crawl",
        &json!({ "acts": failing }),
        &json!({}),
    ));
    let result = &reply["result"];
    assert_eq!(result["isError"], true, "{reply}");
    let report = report_in(result);
    assert_eq!(report["outcome"], "executor_crash");
    assert_eq!(result["content"][1]["type"], "resource_link");
    let last = result["content"]
        .as_array()
        .and_then(|blocks| blocks.last());
    assert_eq!(
        last.map(|link| &link["uri"]),
        Some(&report["run"]["uri"]),
        "{reply}"
    );
}

/// The report that a result has as text.
fn report_in(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().expect("a report");
    serde_json::from_str(text).expect("JSON")
}
