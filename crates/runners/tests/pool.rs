//! The pool against a worker that misbehaves: every lie and every death costs its own call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, gone, misbehave, spawner, tag, tagged, until};
use callgate_call::{Answers, Artifact, Document, Fault};
use callgate_runners::{Pool, PoolRunner, PoolSettings};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const MS: Duration = Duration::from_millis(1);

fn settings(arguments: &[&str]) -> PoolSettings {
    let mut command = vec![misbehave().as_os_str().to_owned()];
    command.extend(arguments.iter().map(Into::into));
    let mut settings = PoolSettings::new(command, Vec::new(), PathBuf::from("/"));
    settings.workers_max = 1;
    settings.backoff_min = MS;
    settings.crashes_max = 1000;
    settings
}

fn runner_of(settings: PoolSettings) -> (Arc<Pool>, Bench) {
    let pool = Pool::new(spawner(), settings);
    let runner = PoolRunner::new(Arc::clone(&pool), Some("mod:fn".into()), "pool");
    (pool, Bench::new(Arc::new(runner)))
}

fn bench_of(settings: PoolSettings) -> Bench {
    runner_of(settings).1
}

async fn who(bench: &Bench) -> (u64, u64) {
    let value = bench.value(json!({ "do": "who" })).await;
    (
        value["pid"].as_u64().unwrap(),
        value["served"].as_u64().unwrap(),
    )
}

fn ok() -> Value {
    json!({ "do": "ok" })
}

#[tokio::test]
async fn one_worker_serves_many_calls() {
    let tag = tag();
    let (pool, bench) = runner_of(settings(&[&tag]));
    for call in 1..=100 {
        assert_eq!(who(&bench).await.1, call);
    }
    assert_eq!(tagged(&tag).len(), 1);
    pool.stop();
    until("it is gone", || tagged(&tag).is_empty()).await;
    assert_eq!(who(&bench).await.1, 1);
    drop((pool, bench));
    until("the last one too", || tagged(&tag).is_empty()).await;
}

#[tokio::test]
async fn the_request_is_one_line() {
    let bench = bench_of(settings(&[]));
    let input = Document::new(
        json!({ "do": "echo", "a": [1] }),
        "{\"do\":\n\"echo\",\"a\": [1]}".into(),
    );
    let seen = bench.run_input(input).await.unwrap().json.into_value();
    assert_eq!(seen["input"], json!({ "do": "echo", "a": [1] }));
    assert_eq!(
        (&seen["tool"], &seen["entry"]),
        (&json!("test/tool"), &json!("mod:fn"))
    );
    assert_eq!(seen.get("slots"), None);
    let none = PoolRunner::new(Pool::new(spawner(), settings(&[])), None, "pool");
    let seen = Bench::new(Arc::new(none))
        .value(json!({ "do": "echo" }))
        .await;
    assert_eq!(seen["entry"], Value::Null);
    assert_eq!(bench.value(json!({ "do": "null" })).await, Value::Null);
}

#[tokio::test]
async fn a_tool_s_own_error_leaves_the_worker() {
    let bench = bench_of(settings(&[]));
    let wanted = Fault::ToolFailed {
        error_type: "ValueError".into(),
        message: "no good".into(),
        content: None,
    };
    assert_eq!(bench.run(json!({ "do": "fail" })).await, Err(wanted));
    assert_eq!(who(&bench).await.1, 2);
}

/// A worker asks, stays, and gets the answers of all rounds with the next one.
#[tokio::test]
async fn a_question_leaves_the_worker() {
    let mut bench = bench_of(settings(&[]));
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let asks = |key: &str| {
        let question = json!({ "message": "How many?", "schema": schema });
        json!({ "do": "ask", "questions": { key: question } })
    };
    let Err(Fault::NeedsInput { requests, state }) = bench.run(asks("first")).await else {
        panic!("no question")
    };
    assert_eq!(requests["first"]["params"]["requestedSchema"], schema);
    assert_eq!(state, Some(json!({})));
    let said = json!({ "action": "accept", "content": { "n": 1 } });
    let responses = [("first".to_owned(), said.clone())].into_iter().collect();
    bench.answers = Some(Answers { responses, state });
    let Err(Fault::NeedsInput { state, .. }) = bench.run(asks("second")).await else {
        panic!("no question")
    };
    assert_eq!(state, Some(json!({ "first": said })));
    let more = json!({ "action": "decline" });
    let responses = [("second".to_owned(), more.clone())].into_iter().collect();
    bench.answers = Some(Answers { responses, state });
    let seen = bench.value(json!({ "do": "echo" })).await;
    assert_eq!(seen["answers"], json!({ "first": said, "second": more }));
    assert_eq!(who(&bench).await.1, 4, "one worker for all of it");

    bench.answers = None;
    let fault = bench.fault(json!({ "do": "ask", "questions": 7 })).await;
    assert!(fault.starts_with("bad_output: "), "{fault}");
    let seen = bench.value(json!({ "do": "echo" })).await;
    assert_eq!(seen.get("answers"), None);
}

/// T-13, P-8: a lie costs its own call and its worker.
#[tokio::test]
async fn lies_are_bad_output() {
    let tag = tag();
    let mut settings = settings(&[&tag]);
    settings.output_bytes_max = 1000;
    let mut bench = bench_of(settings);
    for (lie, wanted) in [
        (json!({ "do": "wrong_call" }), "another call"),
        (json!({ "do": "garbage" }), "not an answer"),
        (json!({ "do": "raw", "text": "\n" }), "not an answer"),
        (
            json!({ "do": "raw", "text": "{\"output\":1}\n" }),
            "another call",
        ),
        (
            json!({ "do": "raw", "text": "{\"call\":1,\"output\":1}\n" }),
            "not an answer",
        ),
        (
            json!({ "do": "raw", "text": "{\"call\":\"\",\"call\":\"\"}\n" }),
            "not an answer",
        ),
    ] {
        let fault = bench.fault(lie.clone()).await;
        assert!(
            fault.starts_with("bad_output") && fault.contains(wanted),
            "{lie}: {fault}"
        );
        assert_eq!(who(&bench).await.1, 1, "a new worker after {lie}");
    }
    // The line never ends: more than any output may take.
    assert_eq!(
        bench.fault(json!({ "do": "overlong" })).await,
        "too_large: output exceeds 1000 bytes"
    );
    // The first answer counts, but not the worker.
    assert_eq!(bench.value(json!({ "do": "two_replies" })).await, json!(1));
    assert_eq!(who(&bench).await.1, 1);
    for lie in ["no_newline", "half_line", "hang"] {
        // The worker is there before its time counts: a start under load takes longer.
        bench.timeout = crate::support::LONG;
        who(&bench).await;
        bench.timeout = 100 * MS;
        assert_eq!(
            bench.fault(json!({ "do": lie })).await,
            "timeout: timed out after 100 ms"
        );
        assert_eq!(tagged(&tag), [0; 0], "{lie}");
    }
    bench.timeout = crate::support::LONG;
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
}

/// A reply that nobody asked for does not answer the next call.
#[tokio::test]
async fn a_late_reply_is_nobody_s() {
    let bench = bench_of(settings(&[]));
    for _ in 0..20 {
        assert_eq!(bench.value(json!({ "do": "late_reply" })).await, json!(1));
        match bench.run(ok()).await {
            Ok(output) => assert_eq!(output.json.into_value(), json!({ "ok": true })),
            // It came after the next call had begun.
            Err(fault) => assert!(matches!(fault, Fault::BadOutput { .. }), "{fault}"),
        }
    }
}

/// T-19: at the edge, and the worker stays.
#[tokio::test]
async fn outputs_are_bounded() {
    let mut settings = settings(&[]);
    settings.output_bytes_max = 100_000;
    let bench = bench_of(settings);
    let huge = |bytes: u32| json!({ "do": "huge", "bytes": bytes });
    assert_eq!(
        bench.run(huge(99_998)).await.unwrap().json.text().len(),
        100_000
    );
    assert_eq!(
        bench.fault(huge(99_999)).await,
        "too_large: output exceeds 100000 bytes"
    );
    assert_eq!(who(&bench).await.1, 3);
    assert_eq!(
        bench.fault(huge(400_000)).await,
        "too_large: output exceeds 100000 bytes"
    );
    assert_eq!(who(&bench).await.1, 1);
}

#[tokio::test]
async fn large_inputs_pass() {
    let mut settings = settings(&[]);
    settings.output_bytes_max = 8 << 20;
    let bench = bench_of(settings);
    let input = json!({ "do": "echo", "text": "x".repeat(4 << 20) });
    assert_eq!(bench.value(input.clone()).await["input"], input);
}

/// T-13.
#[tokio::test]
async fn a_crash_costs_its_own_call() {
    let bench = bench_of(settings(&[]));
    for (act, wanted) in [
        (
            json!({ "do": "exit", "code": 3, "stderr": "x\nout of luck" }),
            "exit 3: x | out of luck",
        ),
        (
            json!({ "do": "exit", "code": 0, "stderr": "" }),
            "the worker ended (exit 0) without answering",
        ),
        (
            json!({ "do": "exit", "code": 0, "stderr": "enough\n" }),
            "the worker ended (exit 0) without answering: enough",
        ),
        (
            json!({ "do": "signal", "signal": 11 }),
            "killed by signal 11 (SIGSEGV)",
        ),
        (json!({ "do": "die_in_line" }), "exit 3: dying now"),
        (
            json!({ "do": "close" }),
            "the worker closed its reply descriptor",
        ),
    ] {
        assert_eq!(bench.fault(act).await, format!("crash: {wanted}"));
        assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    }
}

/// P-8: what is printed is captured, and belongs to its call.
#[tokio::test]
async fn what_it_prints_reaches_the_call_s_sink() {
    let mut bench = bench_of(settings(&[]));
    for _ in 0..50 {
        bench.sink = crate::support::Heard::default();
        assert_eq!(
            bench.value(json!({ "do": "say" })).await,
            json!({ "ok": true })
        );
        assert_eq!(
            (bench.sink.stdout(), bench.sink.stderr()),
            ("said out".into(), "said err".into())
        );
    }
    bench.sink = crate::support::Heard::default();
    assert_eq!(
        bench.value(json!({ "do": "chatty" })).await,
        json!({ "ok": true })
    );
    assert_eq!(
        (bench.sink.stdout().len(), bench.sink.stderr().len()),
        (1 << 20, 1 << 20)
    );
    bench.timeout = 200 * MS;
    assert_eq!(
        bench.fault(json!({ "do": "flood" })).await,
        "timeout: timed out after 200 ms"
    );
}

/// Reports reach the sink before the answer; what does not grow is dropped, and the worker
/// serves on.
#[tokio::test]
async fn reports_come_before_the_answer() {
    let bench = bench_of(settings(&[]));
    let go = crate::support::folder().join("go");
    let lines = [
        r#"{"call":"CALL","progress":{"progress":1,"total":3,"message":"one"}}"#,
        r#"{"call": "CALL", "log": {"level": "info", "data": {"a": [1]}, "logger": "l"}}"#,
        r#"{"call":"CALL","progress":{"progress":1}}"#,
        r#"{"call":"CALL","progress":{"progress":0.5}}"#,
        r#"{"call":"CALL","progress":{"progress":1.5}}"#,
    ];
    let input = json!({ "do": "report", "lines": lines, "go": go.to_str() });
    let heard = [
        "1 of Some(3.0): Some(\"one\")",
        "info Some(\"l\") {\"a\":[1]}",
        "1.5 of None: None",
    ];
    // The worker waits for us, and we for its reports: they can not have come with the answer.
    let (output, ()) = tokio::join!(bench.run(input), async {
        until("all is heard", || bench.sink.reports().len() == heard.len()).await;
        std::fs::write(&go, "").unwrap();
    });
    assert_eq!(*output.unwrap().json.value(), json!({ "ok": true }));
    assert_eq!(bench.sink.reports(), heard);
    assert_eq!(who(&bench).await.1, 2, "the same worker");
}

/// A line that is almost a report is a bad answer.
#[tokio::test]
async fn bad_reports_are_bad_output() {
    let bench = bench_of(settings(&[]));
    let long = format!(
        r#"{{"call":"CALL","log":{{"level":"info","data":"{}"}}}}"#,
        "x".repeat(65536)
    );
    for line in [
        r#"{"call":"0","progress":{"progress":1}}"#,
        r#"{"call":"CALL","progress":{"progress":"1"}}"#,
        r#"{"call":"CALL","progress":{"progress":1,"extra":1}}"#,
        r#"{"call":"CALL","log":{"level":"loud","data":1}}"#,
        r#"{"call":"CALL","log":{"level":"info","data":{"a":1,"a":2}}}"#,
        r#"{"call":"CALL","log":{"level":"info","data":1},"progress":{"progress":1}}"#,
        r#"{"call":"CALL"}"#,
        &long,
    ] {
        let told = bench
            .fault(json!({ "do": "report", "lines": [line] }))
            .await;
        assert!(told.starts_with("bad_output"), "{line}: {told}");
    }
    assert_eq!(bench.sink.reports(), Vec::<String>::new());
}

/// P-7: a worker's daemons go with the worker, and a cancelled call takes both.
#[tokio::test]
async fn a_cancelled_call_ends_the_worker_s_tree() {
    let tag = tag();
    let mut bench = bench_of(settings(&[&tag]));
    assert_eq!(
        bench.value(json!({ "do": "daemon" })).await,
        json!({ "daemon": true })
    );
    // Whoever made the daemon may take a moment to leave.
    until("there are two", || tagged(&tag).len() == 2).await;
    let cancel = bench.cancel.clone();
    let run = bench.run(json!({ "do": "hang" }));
    let (result, ()) = tokio::join!(run, async move { cancel.cancel() });
    assert_eq!(result, Err(Fault::Cancelled));
    assert_eq!(tagged(&tag), [0; 0]);
    bench.cancel = callgate_call::Cancel::new();
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    let mut run = Box::pin(bench.run(json!({ "do": "hang" })));
    let polled = tokio::time::timeout(50 * MS, &mut run).await;
    assert!(polled.is_err(), "it hangs");
    drop(run);
    until("a dropped call's worker is gone", || {
        tagged(&tag).is_empty()
    })
    .await;
}

/// T-23.
#[tokio::test]
async fn slots_go_in_and_out() {
    let mut bench = bench_of(settings(&[]));
    bench.tool.slots = true;
    bench.slots.0.insert(
        9,
        Artifact {
            kind: "text".into(),
            ..Artifact::default()
        },
    );
    let output = bench.run(json!({ "do": "slots" })).await.unwrap();
    let given = json!({ "type": "text", "provenance": "", "content_json": "", "size_bytes": 0 });
    assert_eq!(output.json.into_value(), json!({ "slots": { "9": given } }));
    assert_eq!(output.slots.removed, [9]);
    assert_eq!(output.slots.put[&6].content_json, "{\"do\":\"slots\"}");
    bench.tool.slots = false;
    let fault = bench.fault(json!({ "do": "slots" })).await;
    assert!(fault.contains("does not take them"), "{fault}");
}

#[tokio::test]
async fn workers_and_queue_are_bounded() {
    let tag = tag();
    let mut settings = settings(&[&tag]);
    (settings.workers_max, settings.queue_max) = (2, 3);
    let bench = Arc::new(bench_of(settings));
    let mut runs = JoinSet::new();
    for _ in 0..8 {
        let bench = Arc::clone(&bench);
        runs.spawn(async move { bench.run(json!({ "do": "slow", "ms": 100 })).await });
    }
    let results = runs.join_all().await;
    let full = "unavailable: queue full: 3 calls wait for a worker";
    let refused = results
        .iter()
        .flatten_err()
        .filter(|fault| fault.to_string() == full)
        .count();
    assert_eq!(
        (
            refused,
            results.iter().filter(|result| result.is_ok()).count()
        ),
        (3, 5)
    );
    assert_eq!(tagged(&tag).len(), 2);
}

trait FlattenErr<'a> {
    fn flatten_err(self) -> impl Iterator<Item = &'a Fault>;
}

impl<'a, T: 'a, I: Iterator<Item = &'a Result<T, Fault>>> FlattenErr<'a> for I {
    fn flatten_err(self) -> impl Iterator<Item = &'a Fault> {
        self.filter_map(|result| result.as_ref().err())
    }
}

#[tokio::test]
async fn a_call_in_the_queue_can_time_out_and_be_cancelled() {
    let mut settings = settings(&[]);
    settings.queue_max = 1;
    let (pool, busy) = runner_of(settings);
    let mut waits = Bench::new(Arc::new(PoolRunner::new(pool, None, "pool")));
    let mut run = Box::pin(busy.run(json!({ "do": "hang" })));
    assert!(tokio::time::timeout(50 * MS, &mut run).await.is_err());
    waits.timeout = 50 * MS;
    assert_eq!(
        waits.fault(ok()).await,
        "unavailable: unavailable: no worker was free within 50 ms"
    );
    waits.timeout = crate::support::LONG;
    waits.cancel.cancel();
    assert_eq!(waits.run(ok()).await, Err(Fault::Cancelled));
    waits.cancel = callgate_call::Cancel::new();
    // Its turn comes when the other call is gone.
    drop(run);
    assert_eq!(waits.value(ok()).await, json!({ "ok": true }));
}

#[tokio::test]
async fn a_worker_is_replaced_after_its_calls() {
    let mut settings = settings(&[]);
    settings.calls_max = 3;
    let bench = bench_of(settings);
    let mut served = Vec::new();
    for _ in 0..7 {
        served.push(who(&bench).await.1);
    }
    assert_eq!(served, [1, 2, 3, 1, 2, 3, 1]);
}

#[tokio::test]
async fn an_idle_worker_is_ended() {
    let tag = tag();
    let mut settings = settings(&[&tag]);
    settings.idle_max = 100 * MS;
    settings.workers_max = 3;
    let bench = Arc::new(bench_of(settings));
    let mut runs = JoinSet::new();
    for _ in 0..3 {
        let bench = Arc::clone(&bench);
        runs.spawn(async move { bench.value(json!({ "do": "slow", "ms": 50 })).await });
    }
    runs.join_all().await;
    until("all are gone", || tagged(&tag).is_empty()).await;
    assert_eq!(who(&bench).await.1, 1);
}

#[tokio::test]
async fn a_worker_that_died_idle_is_replaced_when_needed() {
    let tag = tag();
    let bench = bench_of(settings(&[&tag]));
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    let first = tagged(&tag);
    assert_eq!(
        bench.value(json!({ "do": "exit_after" })).await,
        json!({ "ok": true })
    );
    until("it has left", || gone(&first)).await;
    assert_eq!(who(&bench).await.1, 1);
    let second = tagged(&tag);
    let pid = rustix::process::Pid::from_raw(i32::try_from(second[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("it is dead", || gone(&second)).await;
    assert_eq!(who(&bench).await.1, 1);
}

#[tokio::test]
async fn restarts_wait_and_a_success_ends_the_wait() {
    let bench_with = |backoff: Duration| {
        let mut settings = settings(&[]);
        (settings.backoff_min, settings.backoff_max) = (backoff, 10 * backoff);
        bench_of(settings)
    };
    let crash = json!({ "do": "exit", "code": 1 });
    // There is not time enough to wait for the restart.
    let slow = bench_with(2 * crate::support::LONG);
    assert_eq!(slow.fault(crash.clone()).await, "crash: exit 1: leaving");
    let fault = slow.fault(ok()).await;
    assert!(
        fault.starts_with("unavailable") && fault.contains("try again in"),
        "{fault}"
    );
    let bench = bench_with(60 * MS);
    assert_eq!(bench.fault(crash.clone()).await, "crash: exit 1: leaving");
    let begun = tokio::time::Instant::now();
    assert_eq!(bench.fault(crash.clone()).await, "crash: exit 1: leaving");
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    // The rest of 60 ms, then 120 ms.
    assert!(begun.elapsed() >= 120 * MS, "{:?}", begun.elapsed());
    let begun = tokio::time::Instant::now();
    assert_eq!(bench.fault(crash).await, "crash: exit 1: leaving");
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    assert!(begun.elapsed() >= 60 * MS, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_crash_loop_stops_the_pool_until_it_is_cleared() {
    let mut settings = settings(&[]);
    (settings.crashes_max, settings.crash_window) = (5, Duration::from_secs(60));
    let (pool, bench) = runner_of(settings);
    for crash in 0..5 {
        assert_eq!(bench.value(ok()).await, json!({ "ok": true }), "{crash}");
        let act = json!({ "do": "exit", "code": 7, "stderr": "first\nsecond" });
        assert_eq!(bench.fault(act).await, "crash: exit 7: first | second");
    }
    let fault = bench.fault(ok()).await;
    assert!(fault.starts_with("unavailable"), "{fault}");
    assert!(
        fault.contains("5 crashes") && fault.contains("first | second"),
        "{fault}"
    );
    pool.stop();
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
}

#[tokio::test]
async fn a_crash_loop_ends_by_itself() {
    let mut settings = settings(&["worker_exit"]);
    // Long enough for two workers to crash in it.
    (settings.crashes_max, settings.crash_window) = (2, 2000 * MS);
    let bench = bench_of(settings);
    assert_eq!(
        bench.fault(ok()).await,
        "crash: exit 9: cannot start: bad day"
    );
    until_async(async || bench.fault(ok()).await.contains("2 crashes")).await;
    until_async(async || bench.fault(ok()).await.starts_with("crash")).await;
}

async fn until_async(mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..12_000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(5 * MS).await;
    }
    panic!("waited in vain");
}

/// Our own kills are not the worker's crashes.
#[tokio::test]
async fn timeouts_do_not_count_as_crashes() {
    let mut settings = settings(&[]);
    settings.crashes_max = 2;
    let mut bench = bench_of(settings);
    bench.timeout = 30 * MS;
    for _ in 0..4 {
        assert_eq!(
            bench.fault(json!({ "do": "hang" })).await,
            "timeout: timed out after 30 ms"
        );
    }
    bench.timeout = crate::support::LONG;
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
}

#[tokio::test]
async fn tools_share_a_pool() {
    let (pool, first) = runner_of(settings(&[]));
    let second = Bench::new(Arc::new(PoolRunner::new(pool, Some("b".into()), "python")));
    assert_eq!(second.tool.runner.kind(), "python");
    assert_eq!(who(&first).await.1, 1);
    assert_eq!(who(&second).await.1, 2);
}

#[tokio::test]
async fn a_lost_spawner_costs_the_calls_that_run() {
    let spawner = spawner();
    let pool = Pool::new(Arc::clone(&spawner), settings(&[]));
    let bench = Bench::new(Arc::new(PoolRunner::new(pool, None, "pool")));
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
    let pid = i32::try_from(spawner.pid().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let kill = || rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    let (fault, killed) = tokio::join!(bench.fault(json!({ "do": "hang" })), async { kill() });
    killed.unwrap();
    assert!(fault.starts_with("crash: "), "{fault}");
    assert_eq!(bench.value(ok()).await, json!({ "ok": true }));
}

/// A call that is cancelled while its worker starts is over when that worker is, wherever on the
/// way it was: none comes to life after the answer.
#[tokio::test]
async fn a_worker_that_is_not_needed_any_more_is_gone() {
    let (tag, spawner, folder) = (tag(), spawner(), crate::support::folder());
    let births = folder.join("births");
    let born = || std::fs::read(&births).map_or(0, |bytes| bytes.len());
    let script = format!("printf x >> {}; exec sleep 1000 # {tag}", births.display());
    let command: Vec<std::ffi::OsString> = ["/bin/sh", "-c", &script].map(Into::into).to_vec();
    let bench = |settings: PoolSettings| {
        let pool = Pool::new(Arc::clone(&spawner), settings);
        Bench::new(Arc::new(PoolRunner::new(pool, None, "pool")))
    };
    for turns in 0..100 {
        let unneeded = bench(PoolSettings {
            command: command.clone(),
            ..settings(&[])
        });
        let cancel = async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            unneeded.cancel.cancel();
        };
        let (fault, ()) = tokio::join!(unneeded.fault(ok()), cancel);
        assert!(fault.starts_with("cancelled"), "{fault}");
        let before = born();
        assert_eq!(tagged(&tag), [0; 0], "after {turns}");
        // Children are born one after the other: with this one, the other was or never is.
        assert_eq!(
            bench(settings(&[])).value(ok()).await,
            json!({ "ok": true })
        );
        assert_eq!(born(), before, "after {turns}");
    }
}
