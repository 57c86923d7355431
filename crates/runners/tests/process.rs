//! The process runner against a program that misbehaves: each misbehaviour costs its own
//! call and leaves nothing behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, misbehave, spawner, tag, tagged, until};
use callgate_call::{Artifact, Document, Fault};
use callgate_runners::{ProcessRunner, ProcessSettings};
use serde_json::json;
use tokio::task::JoinSet;

fn settings(arguments: &[&str]) -> ProcessSettings {
    let mut command = vec![misbehave().as_os_str().to_owned()];
    command.extend(arguments.iter().map(Into::into));
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    ProcessSettings::new(command, env, PathBuf::from("/"))
}

fn bench_of(settings: ProcessSettings) -> Bench {
    Bench::new(Arc::new(ProcessRunner::new(spawner(), settings)))
}

fn bench(arguments: &[&str]) -> Bench {
    bench_of(settings(arguments))
}

#[tokio::test]
async fn the_output_is_what_it_printed() {
    let bench = bench(&[]);
    assert_eq!(
        bench.value(json!({ "do": "ok" })).await,
        json!({ "ok": true })
    );
    let input = json!({ "do": "echo", "text": "ü\n\"", "list": [1, 2.5, null] });
    assert_eq!(bench.value(input.clone()).await, input);
    let output = bench
        .run(json!({ "do": "print", "text": " {\n \"a\": 1\n}\n" }))
        .await
        .unwrap();
    assert_eq!(output.json.text(), "{\"a\":1}");
    // The text goes in as the door had it.
    let text = "{ \"do\" :\n \"echo\" }".to_owned();
    let input = Document::new(json!({ "do": "echo" }), text);
    assert_eq!(
        bench.run_input(input).await.unwrap().json.into_value(),
        json!({ "do": "echo" })
    );
}

#[tokio::test]
async fn what_is_not_json_is_bad_output() {
    let bench = bench(&[]);
    let fault = bench.fault(json!({ "do": "nothing" })).await;
    assert_eq!(fault, "bad_output: bad output: it printed nothing");
    for act in ["garbage", "half"] {
        let fault = bench.fault(json!({ "do": act })).await;
        assert!(
            fault.contains("bad_output") && fault.contains("strict JSON"),
            "{fault}"
        );
    }
}

/// T-13.
#[tokio::test]
async fn the_exit_code_decides() {
    let bench = bench(&[]);
    let exit = |code: i32, stdout: &str, stderr: &str| json!({ "do": "exit", "code": code, "stdout": stdout, "stderr": stderr });
    assert_eq!(
        bench.fault(exit(3, "{\"ok\":true}", "")).await,
        "crash: exit 3"
    );
    let fault = bench
        .fault(exit(3, "", "Traceback:\n  File x\nValueError: boom\n\n"))
        .await;
    assert_eq!(
        fault,
        "crash: exit 3: Traceback: | File x | ValueError: boom"
    );
    // Bounded: the last three lines, 400 characters of each.
    let long = format!("gone\n{0}\n{0}\n{0}\n", "y".repeat(1000));
    let fault = bench.fault(exit(3, "", &long)).await;
    let line = "y".repeat(400);
    assert_eq!(fault, format!("crash: exit 3: {line} | {line} | {line}"));
    let own = r#"{"error":{"type":"ValueError","message":"too small"}}"#;
    let wanted = Fault::ToolFailed {
        error_type: "ValueError".into(),
        message: "too small".into(),
        content: None,
    };
    assert_eq!(bench.run(exit(1, own, "noise")).await, Err(wanted));
    assert_eq!(bench.value(exit(0, "7", "noise")).await, json!(7));
}

/// T-13.
#[tokio::test]
async fn a_signal_is_a_crash() {
    let bench = bench(&[]);
    for (signal, name) in [(11, "SIGSEGV"), (9, "SIGKILL"), (6, "SIGABRT")] {
        let fault = bench
            .fault(json!({ "do": "signal", "signal": signal }))
            .await;
        assert_eq!(fault, format!("crash: killed by signal {signal} ({name})"));
    }
}

/// T-13, P-7: a hang ends at its milliseconds, and all of it.
#[tokio::test]
async fn a_hang_times_out() {
    let tag = tag();
    let mut bench = bench(&[&tag]);
    bench.timeout = Duration::from_millis(150);
    for act in ["hang", "close", "daemon_hang"] {
        let fault = bench.run(json!({ "do": act })).await.unwrap_err();
        assert_eq!(
            fault,
            Fault::Timeout {
                after: Duration::from_millis(150)
            },
            "{act}"
        );
        assert_eq!(tagged(&tag), [0; 0], "{act}");
    }
}

#[tokio::test]
async fn a_cancelled_call_ends_its_tree() {
    let tag = tag();
    let bench = bench(&[&tag]);
    let run = bench.run(json!({ "do": "hang" }));
    let cancel = async {
        until("it runs", || !tagged(&tag).is_empty()).await;
        bench.cancel.cancel();
    };
    let (result, ()) = tokio::join!(run, cancel);
    assert_eq!(result, Err(Fault::Cancelled));
    assert_eq!(tagged(&tag), [0; 0]);
}

#[tokio::test]
async fn a_dropped_call_ends_its_tree() {
    let tag = tag();
    let bench = bench(&[&tag]);
    let mut run = Box::pin(bench.run(json!({ "do": "hang" })));
    tokio::select! {
        _ = &mut run => panic!("it hangs"),
        () = until("it runs", || !tagged(&tag).is_empty()) => {}
    }
    drop(run);
    until("it is gone", || tagged(&tag).is_empty()).await;
}

/// P-7: a daemon that holds stdout open does not hold the call.
#[tokio::test]
async fn a_daemon_goes_with_its_call() {
    let tag = tag();
    let bench = bench(&[&tag]);
    for act in ["daemon", "chain"] {
        assert_eq!(
            bench.value(json!({ "do": act })).await,
            json!({ act: true })
        );
        assert_eq!(tagged(&tag), [0; 0], "{act}");
    }
}

/// T-13: each limit at its edge.
#[tokio::test]
async fn output_is_bounded() {
    let mut settings = settings(&[]);
    settings.output_bytes_max = 100_000;
    let bench = bench_of(settings);
    // Two quotes.
    let fits = bench
        .run(json!({ "do": "huge", "bytes": 99_998 }))
        .await
        .unwrap();
    assert_eq!(fits.json.text().len(), 100_000);
    let wanted = Fault::too_large("output", 100_000);
    for bytes in [99_999, 1_000_000] {
        let result = bench.run(json!({ "do": "huge", "bytes": bytes })).await;
        assert_eq!(result, Err(wanted.clone()), "{bytes}");
    }
    assert_eq!(bench.run(json!({ "do": "flood" })).await, Err(wanted));
}

/// T-13: a flood on stderr is slowed down and costs its own call only.
#[tokio::test]
async fn stderr_is_passed_on_and_its_floods_are_slowed() {
    let mut bench = bench(&[]);
    assert_eq!(
        bench
            .value(json!({ "do": "stderr_much", "bytes": 200_000 }))
            .await,
        json!({ "ok": true })
    );
    assert_eq!(bench.sink.stderr().len(), 200_000);
    bench.timeout = Duration::from_millis(300);
    let fault = bench.fault(json!({ "do": "stderr_flood" })).await;
    assert_eq!(fault, "timeout: timed out after 300 ms");
}

#[tokio::test]
async fn input_that_is_not_read_blocks_nobody() {
    let much = json!({ "text": "x".repeat(1 << 20) });
    let mut value = bench(&["no_read"]).value(much.clone()).await;
    assert_eq!(value["read"].take(), json!(false));
    let mut hangs = bench(&["no_read_hang"]);
    hangs.timeout = Duration::from_millis(100);
    assert_eq!(
        hangs.fault(much.clone()).await,
        "timeout: timed out after 100 ms"
    );
    let mut echo = much;
    echo["do"] = json!("echo");
    let mut settings = settings(&[]);
    settings.output_bytes_max = 2 << 20;
    assert_eq!(bench_of(settings).value(echo.clone()).await, echo);
}

#[tokio::test]
async fn a_closed_stdout_is_not_the_end() {
    let mut bench = bench(&[]);
    let value = bench.value(json!({ "do": "close_stdout", "ms": 20 })).await;
    assert_eq!(value, json!({ "closed": true }));
    bench.timeout = Duration::from_millis(100);
    let fault = bench
        .fault(json!({ "do": "close_stdout", "ms": 60_000 }))
        .await;
    assert_eq!(fault, "timeout: timed out after 100 ms");
}

#[tokio::test]
async fn a_program_that_is_not_there_says_so() {
    let mut settings = settings(&[]);
    settings.command = vec!["no-such-program".into()];
    assert_eq!(
        bench_of(settings).fault(json!({})).await,
        "unavailable: unavailable: start `no-such-program`: not found; is it installed and on PATH?"
    );
}

/// T-23.
#[tokio::test]
async fn slots_go_in_and_out() {
    let mut bench = bench(&[]);
    bench.tool.slots = true;
    let given = Artifact {
        kind: "text".into(),
        provenance: "before".into(),
        content_json: "{}".into(),
        size_bytes: 2,
    };
    bench.slots.0.insert(9, given);
    let output = bench.run(json!({ "name": "x" })).await.unwrap();
    assert_eq!(output.json.value()["given"], 1);
    assert_eq!(output.json.value()["slots"]["9"]["provenance"], "before");
    assert_eq!(output.slots.removed, [9]);
    assert_eq!(output.slots.put[&6].content_json, "{\"name\":\"x\"}");
    // Without slots the same program's answer is just its output.
    bench.tool.slots = false;
    let plain = bench
        .run(json!({ "input": { "name": "x" } }))
        .await
        .unwrap();
    assert!(plain.slots.is_empty());
    assert_eq!(plain.json.value()["removed_slots"], json!([9]));
}

/// T-13: many at once, of every kind, on one spawner.
#[tokio::test]
async fn many_misbehave_at_once() {
    let (tag, spawner) = (tag(), spawner());
    let bench = |timeout: Duration| {
        let runner = ProcessRunner::new(Arc::clone(&spawner), settings(&[&tag]));
        let mut bench = Bench::new(Arc::new(runner));
        bench.timeout = timeout;
        Arc::new(bench)
    };
    // Only those that never end run out of their time, however busy the machine is.
    let (patient, hasty) = (bench(crate::support::LONG), bench(Duration::from_secs(3)));
    let acts = [
        "ok",
        "hang",
        "garbage",
        "flood",
        "daemon",
        "stderr_flood",
        "nothing",
        "close",
    ];
    let mut runs = JoinSet::new();
    for number in 0..40 {
        let act = acts[number % acts.len()];
        let bench = match act {
            "hang" | "stderr_flood" | "close" => Arc::clone(&hasty),
            _ => Arc::clone(&patient),
        };
        runs.spawn(async move { (act, bench.run(json!({ "do": act })).await) });
    }
    let results = runs.join_all().await;
    for (act, result) in results {
        let kind = result.as_ref().map_or_else(Fault::kind, |_| "output");
        let wanted = match act {
            "ok" | "daemon" => "output",
            "garbage" | "nothing" => "bad_output",
            "flood" => "too_large",
            _ => "timeout",
        };
        assert_eq!(kind, wanted, "{act}: {result:?}");
    }
    assert_eq!(tagged(&tag), [0; 0]);
}
