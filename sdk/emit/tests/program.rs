//! A whole executor as a program of its own: its stream, its stderr and what it exits with.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "tests start real programs, and a test that can not go on has failed"
)]

mod support;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use support::{Stream, serve};

/// Where cargo puts the examples, which are built with the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let debug = test.parent().and_then(|deps| deps.parent()).unwrap();
    debug.join("examples").join(name)
}

struct Ended {
    stream: Stream,
    stderr: String,
    code: Option<i32>,
}

fn run_line(name: &str, line: &str) -> Ended {
    let mut child = Command::new(program(name))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(line.as_bytes()).unwrap();
    // A line that does not end is one whose pipe does.
    let stdin = line
        .ends_with('\n')
        .then(|| File::from(OwnedFd::from(stdin)));
    let mut stderr = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        stderr.read_to_string(&mut text).unwrap();
        text
    });
    let stream = serve(child.stdout.take().unwrap(), stdin, |_| None);
    Ended {
        stream,
        stderr: errors.join().unwrap(),
        code: child.wait().unwrap().code(),
    }
}

fn run(name: &str, job: &Value) -> Ended {
    let request = json!({"run_id": "r-1", "attempt": 1, "job": job,
        "proxy": {"protocol": "http", "host": "h", "port": 1}});
    run_line(name, &format!("{request}\n"))
}

fn result(ended: &Ended) -> &Value {
    assert_eq!(ended.stream.end, None);
    &ended.stream.frames.last().unwrap()["run_result"]
}

/// ST-9: prints of the script, also one from before the run, go to stderr; the stream is whole.
#[test]
fn stray_prints_do_no_harm() {
    let ended = run("trial", &json!({"do": "items", "count": 3}));
    let wanted = ["item", "item", "item", "run_complete", "run_result"];
    assert_eq!(ended.stream.kinds(), wanted);
    assert_eq!(ended.stderr.matches("a print between frames").count(), 3);
    assert!(ended.stderr.contains("a print before the run"));
    assert_eq!(result(&ended)["status"], "completed");
    assert_eq!(ended.code, Some(0));
}

/// ST-42, ST-43, ST-44: how a script ends is how its run ends: the terminal event is sent for it
/// unless it did so itself, then one run result, then the exit code.
#[test]
fn every_way_to_end() {
    for (job, kinds, status, message, code) in [
        (
            "items",
            ["run_complete", "run_result"],
            "completed",
            json!(null),
            0,
        ),
        (
            "complete",
            ["run_complete", "run_result"],
            "completed",
            json!(null),
            0,
        ),
        (
            "fail",
            ["run_error", "run_result"],
            "error",
            json!("the shop is closed"),
            1,
        ),
        (
            "panic",
            ["run_error", "run_result"],
            "error",
            json!("at the disco"),
            1,
        ),
        (
            "error",
            ["run_error", "run_result"],
            "error",
            json!("x is not a function"),
            1,
        ),
    ] {
        let ended = run("trial", &json!({"do": job}));
        assert_eq!(ended.stream.kinds(), kinds, "{job}");
        let said = (&result(&ended)["status"], &result(&ended)["message"]);
        assert_eq!(said, (&json!(status), &message), "{job}");
        assert_eq!(ended.code, Some(code), "{job}");
    }
}

/// ST-25: the result names the proxy that was used.
#[test]
fn a_proxy_that_was_used() {
    let ended = run("trial", &json!({"do": "proxy"}));
    let wanted = json!({"protocol": "http", "host": "h", "port": 1, "username": null});
    assert_eq!(result(&ended)["proxy_used"], wanted);
}

/// ST-19: a bad request ends with 3, some words on stderr and nothing on stdout.
#[test]
fn a_bad_request_ends_with_3() {
    for line in ["", "nonsense\n", "{}\n"] {
        let ended = run_line("trial", line);
        assert_eq!(ended.code, Some(3));
        assert!(ended.stream.frames.is_empty() && ended.stream.end.is_none());
        assert!(
            ended.stderr.contains("bad run request: "),
            "{}",
            ended.stderr
        );
    }
}

/// The example of the documentation is a run like any other.
#[test]
fn the_example() {
    let ended = run("shop", &json!({"page": 1}));
    let wanted = [
        "log",
        "item",
        "item",
        "chunk",
        "artifact",
        "file_write",
        "enqueue",
        "run_complete",
        "run_result",
    ];
    assert_eq!(ended.stream.kinds(), wanted);
    assert_eq!(ended.code, Some(0));
}
