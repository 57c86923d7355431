//! Streamed runs over JSON-RPC: how they end, what is kept of them, and what a script can not do to
//! its gate. The executor is scripted: each run performs a list of acts.

use serde_json::{Value, json};

use crate::support::stage::Stage;
use callgate_testing_workspace::verified;

/// A chunk, and two bytes more in its frame.
const TRAILING: &str = concat!(
    "0000003a85a474797065ae61727469666163745f6368756e6bab61727469666163745f6964a161a3",
    "73657101a769735f6c617374c2a464617461c400c0c0",
);

fn stage() -> Stage {
    Stage::new("")
}

/// An event with an artifact's commit record.
fn commit(id: &str, bytes: u64) -> Value {
    json!({ "emit": { "type": "artifact", "payload": {
        "artifact_id": id, "name": "a.txt", "content_type": "text/plain", "size_bytes": bytes,
    } } })
}

fn joined(parts: &[&[Value]]) -> Value {
    Value::Array(parts.concat())
}

/// The end of a run that is content.
fn good_end() -> [Value; 2] {
    [
        json!({ "complete": { "summary": { "pages": 3 } } }),
        json!({ "result": { "status": "completed" } }),
    ]
}

/// ST-4, ST-10, ST-11, ST-12, ST-13, ST-15, ST-18, ST-25, ST-86, S-16: what an executor is given,
/// what is kept of what it sends, and the report.
#[test]
fn from_the_request_to_the_report() {
    let mut stage = stage();
    let acts = json!([
        { "tell": true },
        { "emit": { "type": "log", "payload": { "level": "warn", "message": "slow" } } },
        { "emit": { "type": "mystery", "payload": { "x": [1, null, 2.5] } } },
        { "chunk": { "id": "a", "seq": 1, "text": "hel" } },
        { "chunk": { "id": "a", "seq": 2, "text": "lo", "last": true } },
        commit("a", 5),
        { "chunk": { "id": "lost", "seq": 1, "text": "x", "last": true } },
        { "say": "words\n" },
        { "complete": { "summary": { "pages": 3 } } },
        { "result": { "status": "completed", "message": "all well", "proxy": "proxy.example" } },
        { "result": { "status": "crash", "message": "a second one" } },
    ]);
    let more = json!({
        "command": ["./misbehave", "executor", "crawl.js"],
        "job_id": "job-1", "dataset": "pages", "source": "shop", "category": "new",
    });
    let ended = stage.run_with(&acts, &more);
    assert_eq!(ended.outcome, "success", "{ended:?}");
    let report = &ended.report;
    assert_eq!(ended.message, "all well");
    let artifacts = json!({ "total": 2, "committed": 1, "orphaned": 1, "chunks": 3, "bytes": 6 });
    assert_eq!(report["artifacts"], artifacts);
    for (field, wanted) in [
        ("job_id", json!("job-1")),
        ("attempt", json!(1)),
        ("exit_code", json!(0)),
        ("event_count", json!(5)),
        ("terminal_summary", json!({ "summary": { "pages": 3 } })),
        ("stderr", json!("words\n")),
    ] {
        assert_eq!(report[field], wanted, "{field}");
    }
    let used = json!({
        "protocol": "http", "host": "proxy.example", "port": 8080, "username": "me",
    });
    assert_eq!(report["proxy_used"], used);
    assert!(report["duration_ms"].is_u64());
    let policy = &report["policy"];
    assert_eq!(policy["name"], "strict");
    assert_eq!(
        (&policy["events_received"], &policy["events_persisted"]),
        (&json!(5), &json!(5))
    );
    assert_eq!(policy["events_dropped"], 0);
    assert_eq!(report["metrics"]["runs_completed_total"], 1);

    // What the executor was given.
    let seen = stage.newest();
    assert_eq!(seen["report"], *report);
    let events = seen["events"].as_array().expect("events");
    let told = &events[0]["payload"]["data"];
    assert_eq!(told["args"], json!(["executor", "crawl.js"]));
    let request = &told["request"];
    let (run_id, day) = (&report["run_id"], &seen["run"]["day"]);
    let storage = json!({
        "dataset": "pages", "source": "shop", "category": "new", "day": day, "run_id": run_id,
    });
    let wanted = json!({
        "run_id": run_id, "attempt": 1, "job_id": "job-1", "job": null, "storage": storage,
    });
    assert_eq!(*request, wanted);
    // Events as they came, each with its number.
    let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(
        json!(kinds),
        json!(["item", "log", "mystery", "artifact", "run_complete"])
    );
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], at + 1);
        assert_eq!(event["run_id"], *run_id);
    }
    assert_eq!(events[2]["payload"], json!({ "x": [1, null, 2.5] }));
    let place = format!(
        "state/datasets/pages/partitions/source=shop/category=new/day={}/run_id={}/events.jsonl",
        day.as_str().unwrap(),
        run_id.as_str().unwrap(),
    );
    let lines = stage.folder.read(&place).expect("the events are there");
    assert_eq!(lines.lines().count(), 5);

    // The artifact by its digest, by its run and in pieces; the other one is none.
    let listed = seen["artifacts"].as_array().expect("artifacts");
    assert_eq!(listed.len(), 1);
    assert_eq!(report["resources"][0]["digest"], listed[0]["digest"]);
    let by_digest = json!({ "digest": listed[0]["digest"] });
    let read = stage.client.good("artifacts/read", by_digest);
    assert_eq!(
        (&read["data"], &read["next"]),
        (&json!("aGVsbG8="), &Value::Null)
    );
    let piece = json!({ "run_id": run_id, "artifact_id": "a", "offset": 1, "length": 3 });
    let read = stage.client.good("artifacts/read", piece);
    assert_eq!((&read["data"], &read["next"]), (&json!("ZWxs"), &json!(4)));
    for missing in [
        json!({ "run_id": run_id, "artifact_id": "lost" }),
        json!({ "digest": "b3-".to_owned() + &"0".repeat(64) }),
    ] {
        assert_eq!(stage.client.bad("artifacts/read", missing).0, 1001);
    }
    assert_eq!(
        stage.client.bad("runs/get", json!({ "run_id": "none" })).0,
        1001
    );
}

/// ST-14, ST-19, ST-23: what is refused before anything runs, and an executor that refuses.
#[test]
fn what_makes_no_run() {
    let mut stage = stage();
    let order = |more: Value| Stage::order(&json!([]), &more);
    let proxy = |more: Value| {
        let mut proxy = json!({ "protocol": "http", "host": "p", "port": 1 });
        for (name, value) in more.as_object().unwrap() {
            proxy[name] = value.clone();
        }
        json!({ "proxy": proxy })
    };
    for (code, field, more) in [
        (1003, "parent_run_id", json!({ "attempt": 2 })),
        (1003, "parent_run_id", json!({ "parent_run_id": "r" })),
        (-32602, "attempt", json!({ "attempt": 0 })),
        (1003, "", json!({ "dataset": "../up" })),
        (1003, "", json!({ "source": "a/b" })),
        (-32602, "", json!({ "mystery": 1 })),
        (-32602, "command", json!({ "command": [] })),
        (1003, "command", json!({ "command": [""] })),
        (1003, "command", json!({ "command": ["a\0"] })),
        (1003, "policy", json!({ "policy": { "name": "buffered" } })),
        (
            1003,
            "policy",
            json!({ "policy": { "name": "streaming", "events": 1 } }),
        ),
        (-32602, "policy", json!({ "policy": { "name": "loose" } })),
        (1003, "proxy", proxy(json!({ "username": "me" }))),
        (1003, "proxy", proxy(json!({ "password": "s3cret" }))),
        (-32602, "", proxy(json!({ "protocol": "ftp" }))),
        (-32602, "", proxy(json!({ "port": 0 }))),
        (
            1003,
            "env.LD_PRELOAD",
            json!({ "env": { "LD_PRELOAD": "x" } }),
        ),
    ] {
        let (got, data) = stage.client.bad("runs/start", order(more.clone()));
        assert_eq!(got, code, "{more}: {data}");
        let named = data["field"].as_str().unwrap_or_default();
        assert!(named.starts_with(field), "{more}: {named}");
    }
    let none = order(json!({ "command": ["./no-such-program"] }));
    assert_eq!(stage.client.bad("runs/start", none).0, 1001);
    let listed = stage.client.good("runs/list", json!({}));
    assert_eq!(listed["runs"], json!([]), "none of these was a run");
    // Nothing of an executor that does not take its request.
    let ended = stage.run_with(&json!([{ "exit": 3 }]), &json!({}));
    assert_eq!(
        (&*ended.outcome, &*ended.message),
        ("executor_crash", "exit 3")
    );
    // A second attempt says which was the first.
    let second = json!({ "attempt": 2, "parent_run_id": "r-1" });
    let ended = stage.run_with(
        &json!([{ "tell": true }, good_end()[0], good_end()[1]]),
        &second,
    );
    assert_eq!(ended.outcome, "success", "{ended:?}");
    let seen = stage.newest();
    let told = &seen["events"][0];
    assert_eq!(told["payload"]["data"]["request"]["parent_run_id"], "r-1");
    assert_eq!(
        (&told["attempt"], &told["parent_run_id"]),
        (&json!(2), &json!("r-1"))
    );
}

/// ST-44, ST-50, ST-51, ST-52, ST-53, ST-54, ST-55, ST-56, ST-57, ST-80, ST-81, S-5, S-6, S-7: the
/// table, with a real process for each row.
#[test]
fn the_table_of_outcomes() {
    let mut stage = stage();
    let complete = json!({ "complete": {} });
    let failed = json!({ "fail": "no x" });
    let result = |status: &str| json!({ "result": { "status": status, "message": "words" } });
    let (completed, error, crash) = (result("completed"), result("error"), result("crash"));
    let exit = |code: i64| json!({ "exit": code });
    let signal = |number: i64| json!({ "signal": number });
    let rows: &[(&[&Value], &str, i64, &str)] = &[
        // A run result, and the exit code that decides.
        (&[&complete, &completed, &exit(0)], "success", 0, "words"),
        (
            &[&complete, &completed, &exit(1)],
            "script_error",
            1,
            "run_result says completed",
        ),
        (
            &[&complete, &completed, &exit(2)],
            "executor_crash",
            2,
            "run_result says completed",
        ),
        (
            &[&complete, &error, &exit(0)],
            "success",
            0,
            "its run_result says error (words)",
        ),
        (
            &[&failed, &error, &exit(0)],
            "success",
            0,
            "after run_error (TypeError: no x)",
        ),
        (
            &[&failed, &completed, &exit(0)],
            "success",
            0,
            "the exit code counts",
        ),
        (&[&failed, &error, &exit(1)], "script_error", 1, "words"),
        (
            &[&failed, &error, &exit(2)],
            "executor_crash",
            2,
            "exit 2 after run_error",
        ),
        (
            &[&complete, &crash, &exit(0)],
            "executor_crash",
            0,
            "exit 0 contradicts it",
        ),
        (
            &[&complete, &crash, &exit(1)],
            "executor_crash",
            1,
            "exit 1 contradicts it",
        ),
        (
            &[&crash, &exit(2)],
            "executor_crash",
            2,
            "its run_result says crash (words)",
        ),
        (&[&completed, &exit(0)], "executor_crash", 0, "early end"),
        (&[&completed, &exit(1)], "script_error", 1, "words"),
        (
            &[&complete, &completed, &exit(3)],
            "executor_crash",
            3,
            "exit 3 after run_complete",
        ),
        // A run result may come before the terminal event, and the first one counts.
        (
            &[&completed, &complete, &crash, &exit(0)],
            "success",
            0,
            "words",
        ),
        // None.
        (&[&complete, &exit(0)], "success", 0, "completed"),
        (
            &[&exit(0)],
            "executor_crash",
            0,
            "early end: exit 0 without a terminal event",
        ),
        (&[&failed, &exit(0)], "executor_crash", 0, "early end"),
        (&[&failed, &exit(1)], "script_error", 1, "TypeError: no x"),
        (
            &[&complete, &exit(1)],
            "executor_crash",
            1,
            "exit 1 after run_complete",
        ),
        (&[&exit(1)], "executor_crash", 1, "exit 1"),
        (&[&exit(2)], "executor_crash", 2, "exit 2"),
        (&[&exit(77)], "executor_crash", 77, "exit 77"),
        // By a signal.
        (
            &[&complete, &completed, &signal(9)],
            "executor_crash",
            137,
            "signal 9 (SIGKILL)",
        ),
        (
            &[&complete, &signal(11)],
            "executor_crash",
            139,
            "signal 11 (SIGSEGV)",
        ),
        (&[&signal(15)], "executor_crash", 143, "signal 15 (SIGTERM)"),
        (
            &[&failed, &error, &signal(6)],
            "executor_crash",
            134,
            "signal 6 (SIGABRT)",
        ),
    ];
    for (acts, outcome, exit_code, words) in rows {
        let ended = stage.run(&json!(acts));
        assert_eq!(ended.outcome, *outcome, "{acts:?}: {ended:?}");
        assert_eq!(ended.report["exit_code"], *exit_code, "{acts:?}");
        assert!(ended.message.contains(words), "{acts:?}: {}", ended.message);
        let seen = stage.newest();
        assert_eq!(seen["run"]["state"], *outcome, "{acts:?}");
        assert_eq!(seen["report"], ended.report, "{acts:?}");
    }
    verified(&stage.folder);
}

/// ST-2, ST-3, ST-6, ST-7, ST-9, ST-28, ST-29, ST-33, ST-61, ST-70, ST-72, ST-75, S-2, S-4, S-8,
/// S-9: each ends the run with a reason of its own, and what came before it is kept.
#[test]
fn bad_streams() {
    let mut stage = stage();
    let crash = "executor_crash";
    let rows = [
        (
            crash,
            json!({ "raw": "00000010 81" }),
            "ended inside a frame: 5 of 20 bytes",
        ),
        (crash, json!({ "raw": "0000" }), "ended inside a frame"),
        (crash, json!({ "raw": "00000000" }), "a frame of no bytes"),
        (
            crash,
            json!({ "raw": "ffffffff" }),
            "frame of 4294967295 bytes",
        ),
        (
            crash,
            json!({ "raw": "00fffffd" }),
            "frame of 16777213 bytes",
        ),
        (
            crash,
            json!({ "text": "Hello, world\n" }),
            "text where a frame was due",
        ),
        (crash, json!({ "raw": "00000003 c0c0c0" }), "no map"),
        (crash, json!({ "raw": TRAILING }), "2 bytes after the map"),
        (
            crash,
            json!({ "raw": "0000000f 82a474797065a161a474797065a162" }),
            "twice in one map",
        ),
        (
            crash,
            json!({ "frame": { "type": "item", "seq": 2 } }),
            "without `",
        ),
        (
            crash,
            json!({ "frame": { "type": "file_write_ack", "write_id": 1, "ok": true } }),
            "`file_write_ack` from an executor",
        ),
        (
            crash,
            json!({ "emit": { "seq": 3 } }),
            "event seq is 3, not 2",
        ),
        (
            crash,
            json!({ "emit": { "seq": 1 } }),
            "event seq is 1, not 2",
        ),
        (
            crash,
            json!({ "emit": { "run_id": "other" } }),
            "run_id is \"other\"",
        ),
        (
            crash,
            json!({ "emit": { "attempt": 7 } }),
            "attempt is 7, not 1",
        ),
        (
            crash,
            json!({ "chunk": { "seq": 2 } }),
            "chunk seq is 2, not 1",
        ),
        (
            crash,
            json!({ "chunk": { "last": true }, "emit": { "type": "artifact", "payload": {
            "artifact_id": "a", "size_bytes": 3 } } }),
            "0 bytes came, size_bytes is 3",
        ),
        (
            crash,
            json!({ "emit": { "type": "artifact", "payload": { "artifact_id": "" } } }),
            "artifact_id is no text",
        ),
        (
            crash,
            json!({ "emit": { "type": "artifact", "payload": {
            "artifact_id": "a", "size_bytes": "3" } } }),
            "size_bytes is no whole number",
        ),
        (
            crash,
            json!({ "file": { "name": "../x", "text": "t" } }),
            "file name \"../x\"",
        ),
        (
            crash,
            json!({ "complete": {}, "emit": {} }),
            "after the terminal event",
        ),
        (
            crash,
            json!({ "complete": {}, "raw": "000000ff80" }),
            "ended inside a frame",
        ),
        (
            "version_mismatch",
            json!({ "emit": { "contract_version": "1.0.0" } }),
            "contract_version \"1.0.0\" is not 0.x",
        ),
    ];
    // What killed it is why its frame is not whole.
    let killed = json!([{ "emit": {} }, { "raw": "00000010 81" }, { "signal": 9 }]);
    let ended = stage.run(&killed);
    assert_eq!(ended.outcome, crash, "{ended:?}");
    assert_eq!(
        ended.message,
        "bad stream: the stream ended inside a frame: 5 of 20 bytes; killed by signal 9 (SIGKILL)"
    );
    assert_eq!(ended.report["exit_code"], 137);
    for (outcome, act, words) in rows {
        // It would go on for ever; the run does not.
        let mut acts = vec![json!({ "emit": { "payload": { "first": true } } })];
        let cut = act
            .get("raw")
            .is_some_and(|raw| words.contains("inside") && raw.is_string());
        let members = act.as_object().expect("acts");
        // Members come in the order of their names: what must be first is put there.
        for first in ["chunk", "complete"] {
            acts.extend(members.get(first).map(|with| json!({ first: with })));
        }
        let rest = members
            .iter()
            .filter(|(name, _)| !["chunk", "complete"].contains(&name.as_str()));
        acts.extend(rest.map(|(name, with)| json!({ name: with })));
        acts.push(if cut {
            json!({ "exit": 0 })
        } else {
            json!({ "hang": true })
        });
        let ended = stage.run(&json!(acts));
        assert_eq!(ended.outcome, outcome, "{act}: {ended:?}");
        assert!(ended.message.contains(words), "{act}: {}", ended.message);
        assert_eq!(
            stage.newest()["events"][0]["payload"],
            json!({ "first": true }),
            "{act}"
        );
    }
    // A chunk after the last.
    let last = json!({ "chunk": { "text": "x", "last": true } });
    let ended = stage.run(&json!([last, { "chunk": { "seq": 2 } }, { "hang": true }]));
    assert!(
        ended.message.contains("a chunk after the last"),
        "{ended:?}"
    );
    // A commit record whose bytes never come.
    let ended = stage.run(&joined(&[&[commit("a", 3)], &good_end()]));
    assert_eq!(ended.outcome, crash);
    assert!(ended.message.contains("0 of 3 bytes"), "{ended:?}");
    // The program lives, and the chain is whole.
    let ended = stage.run(&joined(&[&good_end()]));
    assert_eq!(ended.outcome, "success");
    verified(&stage.folder);
}

/// S-4: versions that the owner names, and no others.
#[test]
fn versions_of_the_owner() {
    let mut stage = Stage::new("[runs]\ncontract_versions = [\"7.1\"]\n");
    let acts = |version: &str| {
        let complete = json!({ "type": "run_complete", "contract_version": version });
        json!([{ "emit": complete }, good_end()[1]])
    };
    assert_eq!(stage.run(&acts("7.1")).outcome, "success");
    let ended = stage.run(&acts("0.13.4"));
    assert_eq!(ended.outcome, "version_mismatch");
    assert_eq!(ended.message, "contract_version \"0.13.4\" is not 7.1");
}

/// ST-58, ST-62, ST-64, ST-66, ST-67, ST-68, ST-69, S-10: bounds at their edge, and the commit
/// record before, between and after the bytes.
#[test]
fn artifacts() {
    let mut stage = stage();
    let chunk =
        |seq: u64, last: bool| json!({ "chunk": { "seq": seq, "text": "12345", "last": last } });
    for at in 0..=2 {
        let mut acts = vec![chunk(1, false), chunk(2, true)];
        acts.insert(at, commit("a", 10));
        let ended = stage.run(&joined(&[&acts, &good_end()]));
        assert_eq!(ended.outcome, "success", "{at}: {ended:?}");
        assert_eq!(ended.report["resources"][0]["size"], 10);
        let digest = json!({ "digest": ended.report["resources"][0]["digest"] });
        let read = stage.client.good("artifacts/read", digest);
        assert_eq!(read["data"], "MTIzNDUxMjM0NQ==", "{at}");
    }
    // An empty one is one too.
    let empty = [
        json!({ "chunk": { "id": "e", "last": true } }),
        commit("e", 0),
    ];
    let ended = stage.run(&joined(&[&empty, &good_end()]));
    assert_eq!(ended.report["artifacts"]["committed"], 1, "{ended:?}");
    // The bound, declared and received.
    let max = json!({ "artifact_max": 1_000_000 });
    for bytes in [999_999, 1_000_000] {
        let acts = [
            json!({ "chunk": { "bytes": bytes, "last": true } }),
            commit("a", bytes),
        ];
        let ended = stage.run_with(&joined(&[&acts, &good_end()]), &max);
        assert_eq!(ended.outcome, "success", "{ended:?}");
        assert_eq!(ended.report["artifacts"]["bytes"], bytes);
    }
    for past in [
        json!([{ "chunk": { "bytes": 1_000_001 } }, { "hang": true }]),
        json!([commit("a", 1_000_001), { "hang": true }]),
        json!([{ "chunk": { "bytes": 600_000 } }, { "chunk": { "seq": 2, "bytes": 400_001 } },
            { "hang": true }]),
    ] {
        let ended = stage.run_with(&past, &max);
        assert_eq!(ended.outcome, "executor_crash", "{ended:?}");
        assert!(
            ended.message.contains("at most 1000000 are taken"),
            "{ended:?}"
        );
        assert_eq!(ended.report["artifacts"]["committed"], 0);
    }
    // Killed before the commit record: there are bytes, and no artifact.
    let ended = stage.run(&json!([{ "chunk": { "text": "gone", "last": true } }, { "signal": 9 }]));
    assert_eq!(ended.outcome, "executor_crash");
    assert_eq!(ended.report["artifacts"]["orphaned"], 1);
    assert_eq!(stage.newest()["artifacts"], json!([]));
    let gone = |bytes: &Vec<u8>| bytes == b"gone";
    assert!(
        !stage.state().values().any(gone),
        "orphaned bytes are gone with their run"
    );
}

/// ST-71, ST-73, ST-74, ST-75, ST-76, S-11: files beside the events, and what is said of them.
#[test]
fn sidecar_files() {
    let mut stage = stage();
    let file = |id: u64, name: &str| json!({ "file": { "id": id, "name": name, "text": "kept" } });
    let acts = [
        file(1, "a.txt"),
        json!({ "ack": true }),
        file(7, "a.txt"),
        json!({ "ack": true }),
        file(0, "silent.txt"),
        file(9, &"x".repeat(300)),
        json!({ "ack": true }),
        json!({ "complete": {} }),
        file(10, "late.txt"),
        json!({ "ack": true }),
        good_end()[1].clone(),
    ];
    let ended = stage.run(&json!(acts));
    assert_eq!(ended.outcome, "success", "{ended:?}");
    let stderr = ended.report["stderr"].as_str().expect("acknowledgements");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines[0], "ack: 1 true ");
    assert!(
        lines[1].starts_with("ack: 7 false ") && lines[1].contains("exists"),
        "{stderr}"
    );
    assert!(lines[2].starts_with("ack: 9 false "), "{stderr}");
    assert_eq!(lines[3], "ack: 10 false the run has announced its end");
    assert!(
        !stderr.contains(&*stage.folder.path().to_string_lossy()),
        "no path of ours"
    );
    let named = |name: &str| {
        let state = stage.state();
        let found = state
            .into_iter()
            .find(|(path, _)| path.ends_with(format!("files/{name}")));
        found.map(|(_, bytes)| bytes)
    };
    for name in ["a.txt", "silent.txt"] {
        assert_eq!(named(name).as_deref(), Some(&b"kept"[..]), "{name}");
    }
    assert_eq!(named("late.txt"), None);
    // One that never reads them is not waited for.
    let file = json!({ "id": 5, "name": "a.txt", "text": "" });
    let acts =
        json!([{ "repeat": { "times": 20_000, "acts": [{ "file": file }] } }, { "hang": true }]);
    let ended = stage.run(&acts);
    assert_eq!(ended.outcome, "executor_crash");
    assert!(
        ended.message.contains("does not read its acknowledgements"),
        "{ended:?}"
    );
}

/// G-7: runs that reach their own timeout, however many, are no reason to leave the next ones alone.
#[test]
fn late_runs_are_no_sick_tool() {
    let mut stage = Stage::new("[breaker]\nfailures_max = 1\nopen_ms = 600000\n");
    for _ in 0..3 {
        let order = Stage::order(&json!([{ "hang": true }]), &json!({ "timeout_ms": 200 }));
        let answer = stage.client.ask("runs/start", order);
        assert_eq!(answer["error"]["data"]["kind"], "timeout", "{answer}");
    }
    assert_eq!(stage.run(&json!([{ "complete": {} }])).outcome, "success");
}
