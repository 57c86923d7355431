//! A gate that is killed at every operation on the disk that a run makes, by the program itself:
//! what was committed is whole afterwards, and nothing else is there. The same below every wire,
//! operation by operation, is `run_crashes` of the store.

#![cfg(feature = "failpoints")]

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::drive::{run, verified};
use crate::support::play::{Theatre, artifact, done, item};
use callgate_testing::misbehave;
use serde_json::{Value, json};

/// Names of the files below a folder.
fn files_below(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => names.extend(files_below(&entry.path())),
            false => drop(names.insert(entry.file_name().to_string_lossy().into_owned())),
        }
    }
    names
}

/// A run that dies at `point`, and what is left of it. False if it came through. Each has bytes of
/// its own: those that are there already would not be written.
fn is_killed(theatre: &Theatre, point: &str, committed: &mut BTreeSet<String>) -> bool {
    let [chunk, commit] = artifact("a", &format!("kept by {point}"));
    let orphan = json!({ "chunk": { "id": "o", "text": format!("left by {point}") } });
    let file = json!({ "file": { "name": "f", "text": "beside" } });
    let acts = json!([item(1), chunk, orphan, commit, file, { "ack": true }, done()]);
    let mut command = theatre.command(&["--json", "--job-id", point], &acts);
    let ran = run(command.env("CALLGATE_FAILPOINT", point));
    assert!(ran.was_killed() || ran.code() == 0, "{point}: {ran:?}");

    verified(&theatre.folder);
    let left = theatre.folder.join("state/incoming");
    let left = std::fs::read_dir(left).into_iter().flatten().count();
    assert_eq!(left, 0, "{point}: whoever comes next collects it");
    let whole = theatre.cli(&["artifacts", "verify", "--json"]);
    assert_eq!(whole.json()["ok"], true, "{point}: {whole:?}");
    let shown = theatre.cli(&["runs", "show", "last", "--json"]);
    let is_shown = shown.code() == 0 && shown.json()["run"]["job_id"] == point;
    if is_shown {
        committed.extend(digests(&shown.json(), point, ran.was_killed()));
    }
    assert!(is_shown || ran.was_killed(), "{point}: {shown:?}");
    ran.was_killed()
}

/// The digests of a run's artifacts, which are as its state says.
fn digests(shown: &Value, point: &str, was_killed: bool) -> Vec<String> {
    let artifacts = shown["artifacts"].as_array().expect("artifacts");
    let ids: Vec<&Value> = artifacts.iter().map(|it| &it["artifact_id"]).collect();
    let state = shown["run"]["state"].as_str().expect("a state");
    match state {
        "lost" => assert!(was_killed && (ids.is_empty() || ids == ["a"]), "{shown}"),
        "success" => assert_eq!(ids, ["a"], "{point}: {shown}"),
        other => panic!("{point}: {other}"),
    }
    let hex = |it: &Value| {
        let digest = it["digest"].as_str().expect("a digest");
        digest.trim_start_matches("b3-").to_owned()
    };
    artifacts.iter().map(hex).collect()
}

/// S-14, S-17, S-19: killed before each operation on the disk, and with each write half done.
#[test]
fn killed_at_every_step_of_a_run() {
    let theatre = Theatre::new(misbehave(), "");
    let mut committed = BTreeSet::new();
    for (name, steps_min) in [("run.io", 30), ("run.torn", 5)] {
        let point = |step: &u32| format!("{name}=kill:{step}");
        let steps = (0..).find(|step| !is_killed(&theatre, &point(step), &mut committed));
        let steps = steps.expect("a run has an end");
        assert!(steps >= steps_min, "{name}: {steps} steps");
        eprintln!("{name}: killed at {steps} steps");
    }
    theatre
        .cli(&["artifacts", "gc", "--older-than", "0s"])
        .good();
    let kept = files_below(&theatre.folder.join("state/artifacts"));
    assert_eq!(kept, committed, "all that was committed, and nothing else");
}
