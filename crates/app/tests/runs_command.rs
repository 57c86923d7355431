//! `callgate runs` and `callgate artifacts`: what was kept, also of a run whose process was
//! killed. The executor is scripted.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::drive::{end_of, signal, verified};
use crate::support::play::{Theatre, artifact, done, item, lines};
use crate::support::readme::{Reader, blocks, copy_folder};
use crate::support::{callgate, wait_for};
use callgate_testing::misbehave;
use rustix::process::Signal;
use serde_json::{Value, json};

fn theatre() -> Theatre {
    Theatre::new(misbehave(), "")
}

/// A run that goes on until the file `go` is there; it has got as far as `until`.
fn going_on(theatre: &Theatre, until: Value, after: Value) -> Child {
    let wait = json!([{ "mark": "here" }, { "wait_for": "go" }]);
    let parts = [until, wait, after].map(|part| part.as_array().expect("acts").clone());
    let mut command = theatre.command(&["-q"], &Value::Array(parts.concat()));
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start it");
    wait_for("the executor", || theatre.folder.read("here"));
    child
}

/// Runs are listed, found by a beginning of their id, and shown.
#[test]
fn listed_and_shown() {
    let theatre = theatre();
    assert!(theatre.cli(&["runs"]).good().err.contains("no such runs"));
    assert_eq!(theatre.cli(&["runs", "show", "last"]).code(), 1);
    let [chunk, commit] = artifact("a", "hello");
    theatre
        .run(
            &["-q", "--job-id", "j-1"],
            &json!([item(1), chunk, commit, done()]),
        )
        .good();
    theatre.run(&["-q", "--source", "shop"], &json!([{ "exit": 4 }]));
    let runs = theatre.runs();
    let states: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["state"].as_str())
        .collect();
    assert_eq!(states, ["executor_crash", "success"]);
    let only = |args: &[&str]| {
        let args = [&["runs", "ls", "--json"], args].concat();
        lines(&theatre.cli(&args).good().out).len()
    };
    assert_eq!(only(&["--status", "success"]), 1);
    assert_eq!(only(&["--status", "running"]), 0);
    assert_eq!(
        (only(&["--job-id", "j-1"]), only(&["--source", "shop"])),
        (1, 1)
    );
    assert_eq!(only(&["--limit", "1"]), 1);
    let table = theatre.cli(&["runs", "ls"]).good().out;
    assert!(
        table.contains("success") && table.contains("j-1"),
        "{table}"
    );

    let id = runs[1]["run_id"].as_str().expect("an id");
    let shown = theatre.cli(&["runs", "show", id]).good().out;
    for words in [
        "success after",
        "events     3",
        "a.txt",
        "j-1, attempt 1",
        "run_id=",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let shown = theatre.cli(&["runs", "show", &id[..31], "--json"]);
    let several = theatre.cli(&["runs", "show", &id[..2]]);
    assert_eq!(several.code(), 1, "both begin so: {several:?}");
    let shown = match shown.code() {
        0 => shown,
        _ => theatre.cli(&["runs", "show", id, "--json"]).good(),
    };
    assert_eq!(shown.json()["artifacts"][0]["artifact_id"], "a");
    assert_eq!(theatre.cli(&["runs", "show", "nothing"]).code(), 1);
}

/// `tail` shows what is there and what comes until the end; `export` gives lines of JSON.
#[test]
fn followed_and_exported() {
    let theatre = theatre();
    let log = json!({ "emit": { "type": "log", "payload": { "level": "info", "message": "hi" } } });
    let mut child = going_on(&theatre, json!([item(1), log]), json!([item(2), done()]));
    let mut tail = callgate(&theatre.folder)
        .args(["runs", "tail", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start it");
    let mut seen = BufReader::new(tail.stdout.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = seen.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(
        (next()["seq"].clone(), next()["type"].clone()),
        (json!(1), json!("log"))
    );
    assert_eq!(theatre.runs()[0]["state"], "running");
    theatre.folder.write("go", "");
    assert_eq!(
        (next()["seq"].clone(), next()["type"].clone()),
        (json!(3), json!("run_complete"))
    );
    assert!(end_of(&mut tail, "tail").success(), "it ends with the run");
    assert!(end_of(&mut child, "the run").success());

    let newest = theatre.cli(&["runs", "tail", "last", "-n", "3"]).good().out;
    assert_eq!(newest.lines().count(), 3);
    assert!(newest.contains("log  info: hi"), "{newest}");
    let all = theatre.cli(&["runs", "export", "last"]).good().out;
    assert_eq!(lines(&all).len(), 4);
    theatre
        .cli(&[
            "runs",
            "export",
            "last",
            "--type",
            "item",
            "--out",
            "items.jsonl",
        ])
        .good();
    let items = lines(&theatre.folder.read("items.jsonl").expect("a file"));
    let numbers: Vec<&Value> = items.iter().map(|item| &item["seq"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(3)]);
}

/// ST-67, ST-68, S-17: a run whose process was killed is lost, and told so; what was committed is
/// whole, what was not is gone.
#[test]
fn a_killed_run_is_lost() {
    let theatre = theatre();
    let [chunk, commit] = artifact("kept", "hello");
    let open = json!({ "chunk": { "id": "open", "seq": 1, "text": "half", "last": false } });
    let child = going_on(
        &theatre,
        json!([item(1), chunk, commit, open]),
        json!([done()]),
    );
    wait_for("the bytes", || {
        let shown = theatre
            .cli(&["runs", "show", "last", "--json"])
            .good()
            .json();
        (shown["artifacts"].as_array()?.len() == 1 && shown["run"]["events"] == 2).then_some(())
    });
    let mut child = child;
    signal(child.id(), Signal::KILL);
    end_of(&mut child, "the run");
    let shown = theatre.cli(&["runs", "show", "last"]).good().out;
    assert!(shown.contains("lost: its process died"), "{shown}");
    assert!(shown.contains("kept.txt"), "{shown}");
    let shown = theatre
        .cli(&["runs", "show", "last", "--json"])
        .good()
        .json();
    assert_eq!(
        (&shown["run"]["state"], &shown["report"]),
        (&json!("lost"), &Value::Null)
    );
    assert_eq!(theatre.runs()[0]["state"], "lost");
    let tail = theatre.cli(&["runs", "tail", "last"]).good();
    assert!(tail.err.contains("lost"), "{}", tail.err);
    assert_eq!(tail.out.lines().count(), 2);
    let got = theatre
        .cli(&["artifacts", "get", "kept", "--run", "last"])
        .good();
    assert_eq!(got.out, "hello");
    assert_eq!(
        theatre
            .cli(&["artifacts", "get", "open", "--run", "last"])
            .code(),
        1
    );
    let gc = theatre
        .cli(&["artifacts", "gc", "--older-than", "0s", "--json"])
        .good();
    assert_eq!(gc.json()["unrecorded"], 0, "{}", gc.out);
    let incoming = theatre.folder.join("state/incoming");
    let left = std::fs::read_dir(incoming).into_iter().flatten().count();
    assert_eq!(left, 0, "orphans are collected");
    verified(&theatre.folder);
}

/// S-15, S-16: the command line says where events are kept, and how long they may wait: this one is
/// there while the run goes on.
#[test]
fn where_and_when_events_are_kept() {
    let theatre = theatre();
    let options = [
        "--dataset",
        "pages",
        "--source",
        "shop",
        "--category",
        "books",
        "--policy",
        "streaming",
        "--flush-interval",
        "20ms",
        "--json",
    ];
    let mut command = theatre.command(&options, &json!([item(1), { "wait_for": "go" }, done()]));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let child = child.expect("start it");
    let run = wait_for("the run", || theatre.runs().into_iter().next());
    let text = |name: &str| run[name].as_str().expect("a word");
    let path = format!(
        "state/datasets/pages/partitions/source=shop/category=books/day={}/run_id={}/events.jsonl",
        text("day"),
        text("run_id")
    );
    let kept = wait_for("its event", || {
        let kept = theatre.folder.read(&path)?;
        kept.ends_with('\n').then_some(kept)
    });
    assert_eq!(lines(&kept)[0]["payload"]["data"], 1, "{kept}");
    theatre.folder.write("go", "");
    let ended = child.wait_with_output().expect("its report");
    let report: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(report["outcome"], "success", "{report}");
    assert_eq!(report["policy"]["name"], "streaming");
    let by_time = &report["policy"]["flush_triggers"]["interval"];
    assert!(by_time.as_u64().is_some_and(|times| times >= 1), "{report}");
    for (name, value) in [
        ("dataset", "pages"),
        ("source", "shop"),
        ("category", "books"),
    ] {
        assert_eq!(text(name), value);
    }
    assert_eq!(lines(&theatre.folder.read(&path).expect("events")).len(), 2);
}

/// S-14, S-15: bounds of the command line, just below, at and past what comes.
#[test]
fn bounds_of_the_command_line() {
    let theatre = theatre();
    let reports = |options: &[&str], acts: &Value| {
        let ran = theatre.run(&[options, &["--json", "-q"]].concat(), acts);
        (ran.code(), ran.json())
    };
    for (text, code) in [("four", 0), ("fives", 0), ("sixsix", 2)] {
        let [chunk, commit] = artifact("a", text);
        let acts = json!([chunk, commit, done()]);
        let (exited, report) = reports(&["--artifact-max", "5"], &acts);
        assert_eq!(exited, code, "{report}");
        let message = report["message"].as_str().expect("a message");
        assert_eq!(
            message.contains("at most 5 are taken"),
            code != 0,
            "{message}"
        );
        assert_eq!(report["artifacts"]["committed"], u8::from(code == 0));
    }

    let acts = json!([item("of some bytes"), done()]);
    let held = |bytes: u64| {
        let bytes = bytes.to_string();
        reports(&["--policy", "buffered", "--buffer-bytes", &bytes], &acts)
    };
    let (code, report) = held(1 << 20);
    assert_eq!(code, 0, "{report}");
    assert_eq!(report["policy"]["name"], "buffered");
    let bytes = theatre.runs()[0]["events_bytes"].as_u64().expect("bytes");
    for (max, code, outcome) in [
        (bytes + 1, 0, "success"),
        (bytes, 0, "success"),
        (bytes - 1, 3, "policy_failure"),
    ] {
        let (exited, report) = held(max);
        assert_eq!(
            (exited, &report["outcome"]),
            (code, &json!(outcome)),
            "{report}"
        );
    }
}

/// Artifacts are listed, given whole or not at all, and damage is seen.
#[test]
fn artifacts() {
    let theatre = theatre();
    let [chunk, commit] = artifact("a", "hello");
    let [chunk_b, commit_b] = artifact("b", "other");
    let acts = json!([chunk, commit, chunk_b, commit_b, done()]);
    theatre.run(&["-q"], &acts).good();
    let listed = lines(&theatre.cli(&["artifacts", "ls", "--json"]).good().out);
    assert_eq!(listed.len(), 2);
    let table = theatre
        .cli(&["artifacts", "ls", "--run", "last"])
        .good()
        .out;
    assert!(
        table.contains("a.txt") && table.contains("b.txt"),
        "{table}"
    );
    let digest = listed[0]["digest"].as_str().expect("a digest");
    for name in [digest, &digest[3..], &digest[..15]] {
        assert_eq!(theatre.cli(&["artifacts", "get", name]).good().out, "hello");
    }
    theatre
        .cli(&["artifacts", "get", digest, "--out", "got.txt"])
        .good();
    assert_eq!(theatre.folder.read("got.txt").as_deref(), Some("hello"));
    let verified = theatre
        .cli(&["artifacts", "verify", "--json"])
        .good()
        .json();
    assert_eq!(
        (&verified["files"], &verified["bytes"]),
        (&json!(2), &json!(10))
    );

    let hex = &digest[3..];
    let path = theatre
        .folder
        .join(&format!("state/artifacts/{}/{hex}", &hex[..2]));
    damage(&path);
    let damaged = theatre.cli(&["artifacts", "get", digest, "--out", "damaged.txt"]);
    assert_eq!(damaged.code(), 1, "{damaged:?}");
    assert_eq!(
        theatre.folder.read("damaged.txt"),
        None,
        "whole or not at all"
    );
    assert_eq!(theatre.cli(&["artifacts", "get", digest]).code(), 1);
    let verified = theatre.cli(&["artifacts", "verify"]);
    assert_eq!(verified.code(), 1, "{verified:?}");
    assert!(
        verified.err.contains("changed") && verified.err.contains("a.txt"),
        "{verified:?}"
    );
    assert!(
        verified
            .out
            .contains("1 artifact is not what was committed")
    );

    let stray = "00".repeat(32);
    let stray = theatre
        .folder
        .write(&format!("state/artifacts/00/{stray}"), "nobody's");
    let gc = |args: &[&str]| {
        theatre
            .cli(&[&["artifacts", "gc"], args].concat())
            .good()
            .out
    };
    assert!(gc(&[]).contains("removed 0 files"), "too young");
    assert!(gc(&["--older-than", "0s", "--dry-run"]).contains("would remove 1 files, 8 B"));
    assert!(stray.exists());
    assert!(gc(&["--older-than", "0s"]).contains("removed 1 files, 8 B"));
    assert!(!stray.exists());
}

/// Changes a byte of a file that nobody may write.
fn damage(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    std::fs::write(path, "hullo").expect("write");
}

/// The README's quick start, as it is written, but with an interpreter that has the package
/// without a virtual environment.
#[test]
fn the_quick_start_works() {
    let reader = Reader::new();
    let [script] = &blocks("Quick start: streamed runs", "python")[..] else {
        panic!("one script");
    };
    let [commands] = &blocks("Quick start: streamed runs", "sh")[..] else {
        panic!("one list of commands");
    };
    let package = reader.home.join("packages/callgate");
    copy_folder(&package, &reader.home.join("work/callgate"));
    reader.home.write("work/crawl.py", script);
    let commands = commands.replace(".venv/bin/python", "python3");
    let ran = reader.types(&commands, "work").ended().good();
    assert!(ran.out.contains("success after"), "{ran:?}");
    assert!(ran.out.contains("\"number\":2"), "{ran:?}");
    assert!(ran.out.ends_with("all of them"), "{ran:?}");
    let report = reader.home.read("work/report.json").expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["events_by_type"]["item"], 3, "{report}");
}
