//! What a server says, and how it dies while calls are in flight.

use super::*;
use callgate_call::Fault;
use tokio::task::JoinSet;

fn hostile_bench(arguments: &[&str]) -> (Arc<Upstream>, Arc<Bench>) {
    let upstream = upstream_of(hostile(arguments));
    let bench = Arc::new(bench_of(&upstream, "act"));
    (upstream, bench)
}

async fn ok(bench: &Bench) -> Value {
    bench.value(json!({ "do": "ok" })).await["structuredContent"].take()
}

/// Calls `hold`, and waits until the server has it.
async fn held(
    upstream: &Arc<Upstream>,
    bench: &Arc<Bench>,
    count: usize,
) -> JoinSet<Result<Value, Fault>> {
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let bench = Arc::clone(bench);
        calls.spawn(async move {
            let output = bench.run(json!({ "do": "hold" })).await;
            output.map(|output| output.json.into_value())
        });
    }
    until("they are in flight", || in_flight(upstream) == count).await;
    calls
}

fn in_flight(upstream: &Upstream) -> usize {
    let processes = upstream.status().processes;
    processes.iter().map(|process| process.in_flight).sum()
}

/// U-1: after the request was written nobody knows what came of it, and it is never sent again.
#[tokio::test]
async fn u_1_a_server_that_dies_with_calls_in_flight() {
    let folder = folder();
    let effects = folder.join("effects");
    let (upstream, bench) = hostile_bench(&["plain"]);
    for act in ["die", "die_in_line"] {
        let mut held = held(&upstream, &bench, 3).await;
        let input = json!({ "do": act, "effect": effects, "stderr": "the backend is on fire" });
        let fault = bench.run(input).await.unwrap_err();
        let Fault::OutcomeUnknown {
            reason: Some(reason),
            ..
        } = &fault
        else {
            panic!("{fault:?}")
        };
        let wanted = "server `small` ended before it answered: exit 3: the backend is on fire";
        assert_eq!(reason, wanted);
        while let Some(other) = held.join_next().await {
            let fault = other.unwrap().unwrap_err();
            assert_eq!(fault.kind(), "outcome_unknown");
        }
    }
    let effects = std::fs::read_to_string(effects).unwrap();
    assert_eq!(effects, "effect\neffect\n");
    ok(&bench).await;
    let status = upstream.status();
    assert_eq!((status.starts, status.crashes), (3, 2));
    let _ = std::fs::remove_dir_all(folder);
}

/// U-1: the owner said that a second run does no harm.
#[tokio::test]
async fn u_1_an_idempotent_tool_is_called_once_more() {
    let folder = folder();
    let effects = folder.join("effects");
    let upstream = upstream_of(hostile(&["plain"]));
    let mut bench = bench_of(&upstream, "act");
    bench.tool.idempotent = true;
    let fault = bench.fault(json!({ "do": "die", "effect": effects })).await;
    assert!(fault.starts_with("outcome_unknown: "), "{fault}");
    let effects = std::fs::read_to_string(effects).unwrap();
    assert_eq!(effects, "effect\neffect\n");
    let _ = std::fs::remove_dir_all(folder);
}

/// U-1: what was answered before the death counts, also without a line's end.
#[tokio::test]
async fn u_1_an_answer_before_the_end_counts() {
    for act in ["die_after_answer", "answer_at_the_end"] {
        let (_upstream, bench) = hostile_bench(&["plain"]);
        let value = bench.value(json!({ "do": act })).await;
        assert_eq!(value["structuredContent"]["ok"], true, "{act}");
    }
}

/// U-2: a process that is gone before the request was written is replaced within the call.
#[tokio::test]
async fn u_2_a_server_that_died_idle_is_started_again() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    ok(&bench).await;
    for round in 1..=5 {
        let pid = upstream.status().processes[0].pid.unwrap();
        kill(pid);
        until("it is gone", || upstream.status().processes.is_empty()).await;
        ok(&bench).await;
        assert_eq!(upstream.status().starts, round + 1);
    }
    let folder = folder();
    let mark = folder.join("mark");
    let (upstream, bench) = hostile_bench(&["dies_once", mark.to_str().unwrap()]);
    ok(&bench).await;
    assert_eq!(upstream.status().starts, 2);
    let _ = std::fs::remove_dir_all(folder);
}

/// U-2: a request that the process never read is as good as never written.
#[tokio::test]
async fn u_2_what_a_server_never_read_goes_to_the_next() {
    let folder = folder();
    let (go, effects) = (folder.join("go"), folder.join("effects"));
    let (upstream, bench) = hostile_bench(&["plain"]);
    let dying = bench.run(json!({ "do": "die_when", "path": go, "stderr": "not reading" }));
    let second = async {
        until("it has stopped reading", || {
            upstream.log().contains("not reading")
        })
        .await;
        let second = bench.run(json!({ "do": "ok", "effect": effects }));
        let killer = async {
            until("both are in flight", || in_flight(&upstream) == 2).await;
            std::fs::write(&go, "").unwrap();
        };
        tokio::join!(second, killer).0
    };
    let (died, second) = tokio::join!(dying, second);
    assert_eq!(died.unwrap_err().kind(), "outcome_unknown");
    second.unwrap();
    assert_eq!(std::fs::read_to_string(effects).unwrap(), "effect\n");
    assert_eq!(upstream.status().starts, 2);
    let _ = std::fs::remove_dir_all(folder);
}

/// U-7: answers to nobody are dropped and counted; too many of them end the server.
#[tokio::test]
async fn u_7_unknown_ids() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    bench.value(json!({ "do": "twice" })).await;
    bench.value(json!({ "do": "strays", "count": 90 })).await;
    ok(&bench).await;
    assert_eq!(upstream.status().dropped, 91);
    let fault = bench.fault(json!({ "do": "strays", "count": 10 })).await;
    assert!(fault.contains("answers that nobody asked for"), "{fault}");
    ok(&bench).await;
    assert_eq!(upstream.status().starts, 2);
}

/// U-8: a line past 16 MiB costs its own call if the id is in front, and the process if not.
#[tokio::test]
async fn u_8_lines_that_are_too_long() {
    const MIB: u64 = 1024 * 1024;
    let (upstream, bench) = hostile_bench(&["plain"]);
    let fault = bench
        .fault(json!({ "do": "huge", "bytes": 50 * MIB }))
        .await;
    assert_eq!(fault, "too_large: output exceeds 16 MiB");
    bench
        .value(json!({ "do": "huge_noise", "bytes": 50 * MIB }))
        .await;
    assert_eq!(upstream.status().starts, 1);
    let fault = bench
        .fault(json!({ "do": "huge_hidden", "bytes": 50 * MIB }))
        .await;
    assert!(
        fault.starts_with("outcome_unknown: ") && fault.contains("16777216 bytes"),
        "{fault}"
    );
    ok(&bench).await;
    assert_eq!(upstream.status().starts, 2);
}

/// U-8: results are bounded below that.
#[tokio::test]
async fn u_8_results_are_bounded() {
    let mut settings = hostile(&["plain"]);
    settings.output_bytes_max = 1024 * 1024;
    let upstream = upstream_of(settings);
    let bench = bench_of(&upstream, "act");
    let fault = bench
        .fault(json!({ "do": "huge", "bytes": 1024 * 1024 }))
        .await;
    assert_eq!(fault, "too_large: output exceeds 1 MiB");
    ok(&bench).await;
    assert_eq!(upstream.status().starts, 1);
}

/// U-9: noise, byte order marks, CRLF, NUL and bytes that are no UTF-8.
#[tokio::test]
async fn u_9_what_is_no_message() {
    let (upstream, bench) = hostile_bench(&["noisy_start"]);
    for act in ["noise", "crlf", "ok"] {
        let value = bench.value(json!({ "do": act })).await;
        assert_eq!(value["structuredContent"]["ok"], true, "{act}");
    }
    let fault = bench.fault(json!({ "do": "bad_utf8" })).await;
    assert_eq!(fault, "bad_output: bad output: the answer is not UTF-8");
    let fault = bench.fault(json!({ "do": "not_content" })).await;
    assert_eq!(
        fault,
        "bad_output: bad output: its result has no list of content"
    );
    assert!(upstream.log().contains("stdout: Server running on stdio\n"));
    assert_eq!(upstream.status().starts, 1);
}

/// U-9: an answer without a line's end is none.
#[tokio::test]
async fn u_9_no_newline() {
    let mut settings = hostile(&["plain"]);
    settings.close_grace = Duration::ZERO;
    let upstream = upstream_of(settings);
    let mut bench = bench_of(&upstream, "act");
    ok(&bench).await;
    bench.timeout = Duration::from_millis(50);
    let fault = bench.fault(json!({ "do": "no_newline" })).await;
    assert_eq!(fault, "timeout: timed out after 50 ms");
}

/// U-10: log messages past the rate are dropped, and answers come through.
#[tokio::test]
async fn u_10_a_flood_of_notifications() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    bench.value(json!({ "do": "logs", "count": 10_000 })).await;
    let heard = bench.sink.reports().len();
    assert!(heard <= 300, "{heard}");
    assert!(upstream.status().dropped >= 9_700);
    bench.value(json!({ "do": "flood" })).await;
    for _ in 0..20 {
        ok(&bench).await;
    }
    let status = upstream.status();
    assert!(status.starts == 1 && status.dropped > 9_700);
}

/// U-10: a log message belongs to a call only where there is just one.
#[tokio::test]
async fn u_10_logs_of_one_call() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    bench.value(json!({ "do": "logs", "count": 2 })).await;
    let wanted = ["info Some(\"l\") 0", "info Some(\"l\") 1"];
    until("both are heard", || bench.sink.reports().len() == 3).await;
    assert_eq!(bench.sink.reports()[1..], wanted);
    let mut held = held(&upstream, &bench, 1).await;
    bench.value(json!({ "do": "logs", "count": 2 })).await;
    bench.value(json!({ "do": "release" })).await;
    held.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(bench.sink.reports().len(), 3);
    assert_eq!(upstream.status().dropped, 2);
}

/// Progress comes with our own tokens, and only to its call.
#[tokio::test]
async fn progress_is_passed_on() {
    let (_upstream, bench) = hostile_bench(&["plain"]);
    bench.value(json!({ "do": "progress", "count": 3 })).await;
    let wanted = [
        "0 of None: Some(\"starting server `small`\")",
        "1 of Some(3.0): Some(\"going\")",
        "2 of Some(3.0): Some(\"going\")",
        "3 of Some(3.0): Some(\"going\")",
    ];
    assert_eq!(bench.sink.reports(), wanted);
}

/// U-11: a storm of changes is one list, and never more than one each half second.
#[tokio::test]
async fn u_11_a_storm_of_list_changes() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    let began = std::time::Instant::now();
    for _ in 0..10 {
        bench
            .value(json!({ "do": "list_changed", "count": 1000 }))
            .await;
    }
    until("it is listed anew", || upstream.status().relists > 0).await;
    let allowed = 1 + began.elapsed().as_millis() / 500;
    let lists = ok(&bench).await["lists"].as_u64().unwrap();
    assert!(lists >= 2 && u128::from(lists) <= 2 + allowed, "{lists}");
    assert_eq!(upstream.status().starts, 1);
}

/// U-12, U-13: versions.
#[tokio::test]
async fn u_12_d_13_versions() {
    let (_upstream, bench) = hostile_bench(&["old"]);
    ok(&bench).await;
    let (upstream, bench) = hostile_bench(&["future"]);
    let fault = bench.fault(json!({})).await;
    assert_eq!(
        fault,
        "unavailable: unavailable: server `small` did not start: incompatible: it speaks protocol \
         version \"2099-01-01\""
    );
    assert_eq!(upstream.status().starts, 1);
}

/// U-15, U-20: what a server asks is answered at once, and declined.
#[tokio::test]
async fn u_15_d_20_questions_are_declined() {
    let (_upstream, bench) = hostile_bench(&["plain"]);
    let methods = [
        "ping",
        "roots/list",
        "sampling/createMessage",
        "elicitation/create",
    ];
    let value = bench
        .value(json!({ "do": "asks", "methods": methods }))
        .await;
    let answers = value["structuredContent"]["answers"].as_array().unwrap();
    assert_eq!(answers[0]["result"], json!({}));
    for answer in &answers[1..] {
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
    }
    assert_eq!(answers.len(), 4);
}

/// U-30: what is cancelled is told to the server, and a late answer is nobody's.
#[tokio::test]
async fn u_30_cancelled_and_late() {
    let upstream = upstream_of(hostile(&["plain"]));
    let mut bench = bench_of(&upstream, "act");
    ok(&bench).await;
    bench.timeout = Duration::from_millis(50);
    let fault = bench.fault(json!({ "do": "hold" })).await;
    assert_eq!(fault, "timeout: timed out after 50 ms");
    bench.timeout = LONG;
    let cancel = bench.cancel.clone();
    let canceller = async {
        until("it is in flight", || in_flight(&upstream) == 1).await;
        cancel.cancel();
    };
    let (fault, ()) = tokio::join!(bench.run(json!({ "do": "hold" })), canceller);
    assert_eq!(fault, Err(Fault::Cancelled));
    let bench = bench_of(&upstream, "act");
    // A call that is dropped.
    tokio::select! {
        _ = bench.run(json!({ "do": "hold" })) => panic!("nobody released it"),
        () = until("it is in flight", || in_flight(&upstream) == 1) => {}
    }
    let seen = ok(&bench).await;
    assert_eq!(seen["cancelled"].as_array().unwrap().len(), 3, "{seen}");
    bench.value(json!({ "do": "answer_late" })).await;
    ok(&bench).await;
    assert_eq!(
        (upstream.status().dropped, upstream.status().starts),
        (0, 1)
    );
}

/// Many calls at once over one process, each with its own answer.
#[tokio::test]
async fn calls_are_multiplexed() {
    let folder = folder();
    let upstream = upstream_of(python_server(&folder));
    let bench = Arc::new(bench_of(&upstream, "echo"));
    let mut calls = JoinSet::new();
    for n in 0..1000 {
        let bench = Arc::clone(&bench);
        calls.spawn(async move { (n, bench.value(json!({ "n": n })).await) });
    }
    while let Some(call) = calls.join_next().await {
        let (n, value) = call.unwrap();
        assert_eq!(value["structuredContent"]["n"], n);
    }
    assert_eq!(upstream.status().starts, 1);
    let _ = std::fs::remove_dir_all(folder);
}

/// A server that does not read holds up nobody but its own calls.
#[tokio::test]
async fn a_large_input_waits_for_the_server() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    ok(&bench).await;
    let filler = "x".repeat(3 * 1024 * 1024);
    for _ in 0..3 {
        bench.value(json!({ "do": "ok", "filler": filler })).await;
    }
    assert_eq!(upstream.status().starts, 1);
}

/// Closed descriptors end the process.
#[tokio::test]
async fn a_server_that_closes_its_pipes() {
    let (upstream, bench) = hostile_bench(&["plain"]);
    let fault = bench.fault(json!({ "do": "close_output" })).await;
    assert!(fault.contains("closed its standard output"), "{fault}");
    bench.value(json!({ "do": "close_input" })).await;
    ok(&bench).await;
    assert_eq!(upstream.status().starts, 3);
}
