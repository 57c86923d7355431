//! How the processes of a server begin and end.

use super::*;
use crate::support::{gone, tag, tagged};
use callgate_call::{Call, CallId, Caller, Cancel, Document, Job, NoSink, Patience, Plan, Wire};

async fn ok(bench: &Bench) -> Value {
    bench.value(json!({ "do": "ok" })).await["structuredContent"].take()
}

/// A call by a caller in a session: the process that served it.
async fn pid_of(upstream: &Arc<Upstream>, caller: &str, session: Option<&str>) -> Option<u32> {
    let bench = bench_of(upstream, "act");
    let input = Document::from_value(json!({ "do": "ok" }));
    let (caller, cancel) = (Caller::named(caller), Cancel::new());
    let mut call = Call::new(
        CallId(1),
        "test/tool",
        input,
        caller.clone(),
        Wire::Mcp,
        cancel,
    );
    call.session = session.map(Into::into);
    let patience = Patience::fixed(LONG);
    let job = Job {
        call: &call,
        tool: &bench.tool,
        plan: &Plan::default(),
        timeout: &patience,
        sink: &NoSink,
    };
    bench.tool.runner.run(job).await.unwrap();
    let processes = upstream.status().processes;
    let own = processes.iter().find(|process| {
        process
            .caller
            .as_deref()
            .is_none_or(|name| name == caller.as_str())
            && process.session.as_deref() == session.filter(|_| process.session.is_some())
    });
    own.unwrap().pid
}

/// Who shares a process is the owner's choice.
#[tokio::test]
async fn processes_are_shared_as_configured() {
    for (share, wanted) in [
        (Share::Workspace, 1),
        (Share::Caller, 2),
        (Share::Session, 4),
    ] {
        let mut settings = hostile(&["plain"]);
        settings.share = share;
        let upstream = upstream_of(settings);
        for _ in 0..2 {
            for (caller, session) in [
                ("ada", Some("1")),
                ("ada", Some("2")),
                ("ada", None),
                ("bob", Some("1")),
            ] {
                assert!(pid_of(&upstream, caller, session).await.is_some());
            }
        }
        let status = upstream.status();
        assert_eq!(
            (status.processes.len(), status.starts),
            (wanted, wanted as u64),
            "{share:?}"
        );
    }
}

/// Requests that are no calls of tools go to the same process.
#[tokio::test]
async fn other_requests() {
    let folder = folder();
    let upstream = upstream_of(python_server(&folder));
    let bench = bench_of(&upstream, "echo");
    bench.value(json!({})).await;
    let call = Call::new(
        CallId(1),
        "test/tool",
        Document::from_value(json!({})),
        Caller::uid(0),
        Wire::Gate,
        Cancel::new(),
    );
    let job = Job {
        call: &call,
        tool: &bench.tool,
        plan: &Plan::default(),
        timeout: &Patience::fixed(LONG),
        sink: &NoSink,
    };
    let params = json!({ "name": "greet" });
    let result = upstream.request("prompts/get", &params, job).await.unwrap();
    assert_eq!(result, json!({ "messages": [], "description": "greet" }));
    let fault = upstream.request("resources/read", &params, job).await;
    assert_eq!(fault.unwrap_err().kind(), "tool_failed");
    assert_eq!(upstream.status().starts, 1);
    let _ = std::fs::remove_dir_all(folder);
}

/// Past the bound the idle process that was used longest ago makes room.
#[tokio::test]
async fn processes_are_bounded() {
    let mut settings = hostile(&["plain"]);
    (settings.share, settings.processes_max) = (Share::Caller, 2);
    let upstream = upstream_of(settings);
    let first = pid_of(&upstream, "a", None).await;
    pid_of(&upstream, "b", None).await;
    assert_eq!(pid_of(&upstream, "a", None).await, first);
    pid_of(&upstream, "c", None).await;
    assert_eq!(pid_of(&upstream, "a", None).await, first);
    let status = upstream.status();
    assert_eq!((status.processes.len(), status.starts), (2, 3));
}

/// Simultaneous first calls start one process.
#[tokio::test]
async fn u_28_calls_wait_for_one_start() {
    let upstream = upstream_of(hostile(&["slow_start", "100"]));
    let bench = bench_of(&upstream, "act");
    let calls = (0..50).map(|_| ok(&bench));
    let mut all = Vec::new();
    for call in calls.map(Box::pin) {
        all.push(call);
    }
    join_all(all).await;
    assert_eq!(upstream.status().starts, 1);
}

async fn join_all(futures: Vec<std::pin::Pin<Box<impl Future<Output = Value>>>>) {
    let mut futures = futures;
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        match futures.is_empty() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// U-28: a start that takes too long is the server's trouble, and nothing has run.
#[tokio::test]
async fn u_28_a_start_is_bounded() {
    let tag = tag();
    let mut settings = hostile(&["silent", "", &tag]);
    settings.start_timeout = Duration::from_millis(100);
    let upstream = upstream_of(settings);
    let fault = bench_of(&upstream, "act").fault(json!({})).await;
    assert!(
        fault.contains("did not start: it was not ready within 100 ms"),
        "{fault}"
    );
    until("it is gone", || tagged(&tag).is_empty()).await;
    let mut settings = hostile(&["endless_list"]);
    settings.restarts.crashes_max = 1;
    let upstream = upstream_of(settings);
    let bench = bench_of(&upstream, "act");
    let fault = bench.fault(json!({})).await;
    assert!(
        fault.contains("its tools/list has more than 64 pages"),
        "{fault}"
    );
}

/// The call's own time begins when the server is ready.
#[tokio::test]
async fn u_28_the_start_is_counted_apart() {
    let upstream = upstream_of(hostile(&["slow_start", "600"]));
    let mut bench = bench_of(&upstream, "act");
    bench.timeout = Duration::from_millis(500);
    ok(&bench).await;
}

/// Exit reason and last lines are in the fault; a crash loop says so, and `restart` ends it.
#[tokio::test]
async fn a_crash_loop() {
    let mut settings = hostile(&["dies"]);
    settings.restarts.crashes_max = 3;
    let upstream = upstream_of(settings);
    let bench = bench_of(&upstream, "act");
    let fault = bench.fault(json!({})).await;
    let wanted = "server `small` did not start: exit 7: cannot start: no backend";
    assert!(
        fault.starts_with("unavailable: ") && fault.ends_with(wanted),
        "{fault}"
    );
    let fault = bench.fault(json!({})).await;
    assert!(
        fault.contains("stopped after 3 crashes of its server within 600 s"),
        "{fault}"
    );
    let status = upstream.status();
    assert_eq!(status.state.as_str(), "crash_loop");
    assert_eq!((status.starts, status.crashes), (3, 3));
    assert_eq!(
        status.last_exit.as_deref(),
        Some("exit 7: cannot start: no backend")
    );
    assert!(upstream.log().ends_with("cannot start: no backend\n"));
    upstream.restart();
    assert_eq!(upstream.status().state, UpstreamState::Cold);
}

/// Waits after a crash are at least as long as configured, and a call that has the time waits.
#[tokio::test]
async fn backoff_is_waited_for() {
    let folder = folder();
    let mark = folder.join("mark");
    let mut settings = hostile(&["dies_once", mark.to_str().unwrap()]);
    settings.restarts.backoff_min = Duration::from_millis(300);
    settings.restarts.backoff_max = Duration::from_millis(300);
    let upstream = upstream_of(settings);
    let began = std::time::Instant::now();
    ok(&bench_of(&upstream, "act")).await;
    assert!(began.elapsed() >= Duration::from_millis(300));
    let _ = std::fs::remove_dir_all(folder);
}

/// An idle process is stopped and the next call starts another.
#[tokio::test]
async fn idle_processes_are_stopped() {
    let tag = tag();
    let mut settings = hostile(&["plain", "", &tag]);
    settings.idle_max = Duration::from_millis(50);
    let upstream = upstream_of(settings);
    let bench = bench_of(&upstream, "act");
    ok(&bench).await;
    until("it is gone", || tagged(&tag).is_empty()).await;
    until("it is cold", || {
        upstream.status().state == UpstreamState::Cold
    })
    .await;
    assert_eq!(upstream.status().last_exit.as_deref(), Some("it was idle"));
    ok(&bench).await;
    assert!(upstream.status().starts >= 2 && upstream.status().crashes == 0);
}

/// U-29: a server that ignores the end of its input, SIGTERM, and one that forks a daemon.
#[tokio::test]
async fn u_29_every_process_ends() {
    let folder = folder();
    let daemon = folder.join("daemon");
    for mode in ["plain", "stays", "daemon"] {
        for by_drop in [false, true] {
            let tag = tag();
            let mut settings = hostile(&[mode, daemon.to_str().unwrap(), &tag]);
            settings.close_grace = Duration::from_millis(50);
            settings.term_grace = Duration::from_millis(50);
            let upstream = upstream_of(settings);
            ok(&bench_of(&upstream, "act")).await;
            let pids = tagged(&tag);
            assert!(!pids.is_empty());
            if by_drop {
                drop(upstream);
            } else {
                upstream.stop_and_wait().await;
                assert!(gone(&pids), "{mode}");
            }
            until("all are gone", || gone(&pids) && tagged(&tag).is_empty()).await;
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// A process that is stopped finishes its calls first.
#[tokio::test]
async fn stopping_waits_for_calls() {
    let upstream = upstream_of(hostile(&["plain"]));
    let bench = Arc::new(bench_of(&upstream, "act"));
    let folder = folder();
    let go = folder.join("go");
    let call = {
        let (bench, go) = (Arc::clone(&bench), go.clone());
        tokio::spawn(async move {
            bench
                .value(json!({ "do": "progress_until", "path": go }))
                .await
        })
    };
    until("it is in flight", || {
        upstream
            .status()
            .processes
            .iter()
            .any(|process| process.in_flight == 1)
    })
    .await;
    upstream.stop();
    ok(&bench).await;
    std::fs::write(go, "").unwrap();
    call.await.unwrap();
    assert_eq!(
        (upstream.status().starts, upstream.status().crashes),
        (2, 0)
    );
    let _ = std::fs::remove_dir_all(folder);
}

/// U-1, U-29: nothing is left after many deaths.
#[tokio::test]
async fn many_deaths_leave_nothing() {
    let tag = tag();
    let upstream = upstream_of(hostile(&["plain", "", &tag]));
    let bench = bench_of(&upstream, "act");
    for _ in 0..50 {
        ok(&bench).await;
        let fault = bench.fault(json!({ "do": "die" })).await;
        assert!(fault.starts_with("outcome_unknown: "), "{fault}");
    }
    until("all are gone", || tagged(&tag).is_empty()).await;
    assert_eq!(upstream.status().crashes, 50);
}

/// Secrets in its environment are not in what is kept of its words.
#[tokio::test]
async fn secrets_are_not_kept() {
    let mut settings = hostile(&["plain"]);
    settings.env.push(("TOKEN".into(), "s3cret-value".into()));
    settings
        .secrets
        .insert("TOKEN".to_owned(), "token".to_owned());
    let upstream = upstream_of(settings);
    let bench = bench_of(&upstream, "act");
    let value = bench.value(json!({ "do": "env", "name": "TOKEN" })).await;
    assert_eq!(value["content"][0]["text"], "s3cret-value");
    let input = json!({ "do": "die", "stderr": "my token is s3cret-value!" });
    let fault = bench.fault(input).await;
    assert!(fault.ends_with("exit 3: my token is [secret]!"), "{fault}");
    assert!(upstream.log().ends_with("my token is [secret]!\n"));
}
