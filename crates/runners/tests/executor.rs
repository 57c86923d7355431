//! Executors and a store that is slow, or fails, or goes away: the script waits, nothing is lost,
//! and the run says truthfully how it ended.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{Bench, folder, misbehave, spawner, tag, tagged, until};
use callgate_call::{
    Digest, Fault, KeepError, ManualClock, RunArtifact, RunCounts, RunEvent, RunFile, RunLog,
    RunOrder, RunStart, RunVerdict, Runs, Secrets, Topics,
};
use callgate_runners::{ExecutorParts, ExecutorRunner, ExecutorSettings, Executors};
use callgate_sandbox::Limits;
use serde_json::{Value, json};

/// What is kept, and what goes wrong.
#[derive(Default)]
struct Kept {
    /// Numbers of events, in the order they came.
    events: Vec<u64>,
    bytes: u64,
    ended: Option<(RunVerdict, Value)>,
    dropped: bool,
    /// How long it was waited for.
    waited: Duration,
    /// So many events may be kept until somebody says otherwise.
    open_for: Option<usize>,
    /// What fails: `begin`, `event`, `chunk`, `commit`, `seal` or `end`.
    fails: &'static str,
}

/// A store in memory that can be closed.
#[derive(Clone, Default)]
struct Shelf(Arc<(Mutex<Kept>, Condvar)>);

impl Shelf {
    fn failing(fails: &'static str) -> Self {
        let shelf = Self::default();
        shelf.with(|kept| kept.fails = fails);
        shelf
    }

    fn with<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        let found = look(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
        found
    }

    fn check(&self, step: &str) -> Result<(), KeepError> {
        match self.with(|kept| kept.fails == step) {
            true => Err(KeepError::Failed(format!("no {step}"))),
            false => Ok(()),
        }
    }
}

impl Runs for Shelf {
    fn begin(&self, _: &RunStart) -> Result<Box<dyn RunLog>, KeepError> {
        self.check("begin")?;
        Ok(Box::new(Volume(self.clone())))
    }
}

struct Volume(Shelf);

impl RunLog for Volume {
    fn event(&mut self, event: &RunEvent<'_>) -> Result<(), KeepError> {
        self.0.check("event")?;
        let (kept, changed) = &*self.0.0;
        let mut kept = kept.lock().unwrap();
        while kept.open_for.is_some_and(|open| kept.events.len() >= open) {
            kept = changed.wait(kept).unwrap();
        }
        kept.events.push(event.seq);
        Ok(())
    }

    fn chunk(&mut self, _: &str, bytes: &[u8]) -> Result<(), KeepError> {
        self.0.check("chunk")?;
        self.0.with(|kept| kept.bytes += bytes.len() as u64);
        Ok(())
    }

    fn commit(&mut self, _: &RunArtifact<'_>) -> Result<Digest, KeepError> {
        self.0.check("commit")?;
        Ok(Digest([7; 32]))
    }

    fn file(&mut self, _: &RunFile<'_>) -> Result<(), KeepError> {
        Ok(())
    }

    fn idle(&mut self) -> Result<Option<Duration>, KeepError> {
        Ok(None)
    }

    fn seal(&mut self) -> Result<(), KeepError> {
        self.0.check("seal")
    }

    fn counts(&self) -> RunCounts {
        let received = self.0.with(|kept| kept.events.len() as u64);
        RunCounts {
            received,
            persisted: received,
            ..RunCounts::default()
        }
    }

    fn end(self: Box<Self>, verdict: RunVerdict, report: &Value) -> Result<(), KeepError> {
        self.0.check("end")?;
        self.0
            .with(|kept| kept.ended = Some((verdict, report.clone())));
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.0.with(|kept| kept.dropped = true);
    }
}

fn bench(shelf: &Shelf, tag: &str) -> Bench {
    let executors = Executors::new(ExecutorParts {
        spawner: spawner(),
        runs: Arc::new(shelf.clone()),
        topics: Topics::default(),
        secrets: Secrets::default(),
        clock: Arc::new(ManualClock::default()),
        watch: None,
    });
    let program = misbehave().as_os_str().to_owned();
    let settings = ExecutorSettings {
        command: vec![program, "executor".into(), tag.into()],
        env: Vec::new(),
        secrets: BTreeMap::new(),
        cwd: PathBuf::from("/"),
        limits: Limits::default(),
        order: RunOrder::default(),
    };
    Bench::new(Arc::new(ExecutorRunner::new(executors, settings)))
}

fn good_end() -> [Value; 2] {
    [json!({ "complete": {} }), json!({ "result": {} })]
}

/// ST-77, S-15: while the store takes nothing, the script does not get on: there is room for a
/// pipe and a buffer between them, and it has forty times as much to say. Then all of it comes, in
/// order.
#[tokio::test]
async fn a_slow_store_stalls_the_script() {
    let shelf = Shelf::default();
    shelf.with(|kept| kept.open_for = Some(3));
    let place = folder();
    let done = place.join("done");
    let item = json!({ "emit": { "payload": { "text": "x".repeat(100_000) } } });
    let acts = json!([
        { "repeat": { "times": 500, "acts": [item] } },
        { "mark": done },
        good_end()[0], good_end()[1],
    ]);
    let bench = bench(&shelf, &tag());
    let run = tokio::spawn(async move { bench.value(json!({ "acts": acts })).await });
    until("three events are kept", || {
        shelf.with(|kept| kept.events.len() == 3)
    })
    .await;
    for open in 4..8 {
        assert!(!done.exists(), "it is held up");
        shelf.with(|kept| kept.open_for = Some(open));
        until("one more", || shelf.with(|kept| kept.events.len() == open)).await;
    }
    shelf.with(|kept| kept.open_for = None);
    let report = run.await.unwrap();
    assert_eq!(report["outcome"], "success", "{report}");
    let events = shelf.with(|kept| kept.events.clone());
    assert!(
        events.iter().copied().eq(1..=501),
        "none is lost, and none comes twice"
    );
    std::fs::remove_dir_all(place).unwrap();
}

/// A store that fails is a `policy_failure`, wherever it does; the executor is not left running.
#[tokio::test]
async fn a_store_that_fails() {
    let chunk = json!({ "chunk": { "text": "hello", "last": true } });
    let commit = json!({ "emit": { "type": "artifact", "payload": {
        "artifact_id": "a", "name": "n", "content_type": "t", "size_bytes": 5,
    } } });
    for step in ["event", "chunk", "commit", "seal", "end"] {
        let (shelf, tag) = (Shelf::failing(step), tag());
        let bench = bench(&shelf, &tag);
        let mut acts = vec![chunk.clone(), commit.clone()];
        match step {
            "seal" | "end" => acts.extend(good_end()),
            _ => acts.push(json!({ "hang": true })),
        }
        let fault = bench.run(json!({ "acts": acts })).await.unwrap_err();
        let Fault::ToolFailed {
            error_type,
            message,
            content: Some(content),
        } = fault
        else {
            panic!("{step}: {fault:?}")
        };
        assert_eq!(error_type, "policy_failure", "{step}");
        assert!(
            message.starts_with(&format!("not kept: no {step}")),
            "{message}"
        );
        let report: Value = serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(report["outcome"], "policy_failure", "{step}");
        let recorded = shelf
            .with(|kept| kept.ended.clone())
            .map(|(verdict, _)| verdict);
        let wanted = (step != "end").then_some(RunVerdict::PolicyFailure);
        assert_eq!(recorded, wanted, "{step}");
        assert!(tagged(&tag).is_empty(), "{step}");
    }
    let fault = bench(&Shelf::failing("begin"), &tag())
        .fault(json!({ "acts": [] }))
        .await;
    assert_eq!(fault, "unavailable: unavailable: no begin");
}

/// S-13: taken back, and given up: nothing is left of the executor, and the store hears of both.
#[tokio::test]
async fn a_run_that_nobody_waits_for() {
    let acts = json!({ "acts": [{ "emit": {} }, { "ignore": 15 }, { "hang": true }] });
    let (shelf, tag) = (Shelf::default(), tag());
    let mut taken_back = bench(&shelf, &tag);
    taken_back.timeout = Duration::from_secs(3600);
    let cancel = taken_back.cancel.clone();
    let input = acts.clone();
    let run = tokio::spawn(async move { taken_back.run(input).await });
    until("it runs", || shelf.with(|kept| !kept.events.is_empty())).await;
    cancel.cancel();
    assert_eq!(run.await.unwrap().unwrap_err(), Fault::Cancelled);
    assert!(tagged(&tag).is_empty());
    let (verdict, report) = shelf.with(|kept| kept.ended.clone()).unwrap();
    assert_eq!(verdict, RunVerdict::ExecutorCrash);
    assert_eq!(report["message"], "cancelled");

    let shelf = Shelf::default();
    let given_up = bench(&shelf, &tag);
    let run = tokio::spawn(async move { given_up.run(acts).await });
    until("it runs", || shelf.with(|kept| !kept.events.is_empty())).await;
    run.abort();
    until("nothing is left", || tagged(&tag).is_empty()).await;
    until("the store is let go of", || shelf.with(|kept| kept.dropped)).await;
    assert!(shelf.with(|kept| kept.ended.is_none()));
}

/// ST-41: whoever listens hears the script's own words.
#[tokio::test]
async fn logs_are_told() {
    let log = |level: &str| {
        let payload = json!({ "level": level, "message": "m", "fields": { "n": 1 } });
        json!({ "emit": { "type": "log", "payload": payload } })
    };
    let acts = json!([
        log("debug"),
        log("info"),
        log("warn"),
        log("error"),
        good_end()[0]
    ]);
    let mut bench = bench(&Shelf::default(), &tag());
    bench.listens = true;
    let output = bench.run(json!({ "acts": acts })).await;
    assert!(output.is_ok(), "{output:?}");
    let told = bench.sink.reports();
    for level in ["debug", "info", "warning", "error"] {
        let found = |report: &&String| report.contains(level) && report.contains("\"n\":1");
        assert_eq!(told.iter().filter(found).count(), 1, "{told:?}");
    }
}

/// A caller hears how far it is.
#[tokio::test]
async fn progress_is_told() {
    let shelf = Shelf::default();
    let place = folder();
    let go = place.join("go");
    let bench = bench(&shelf, &tag());
    let acts = json!([{ "emit": {} }, { "wait_for": go }, good_end()[0], good_end()[1]]);
    let run = bench.run(json!({ "acts": acts }));
    let heard = async {
        until("it is told", || {
            let reports = bench.sink.reports();
            reports
                .iter()
                .any(|report| report.contains("1 events, 0 artifacts"))
        })
        .await;
        std::fs::write(&go, "").unwrap();
    };
    let (run, ()) = tokio::join!(run, heard);
    assert!(run.is_ok(), "{run:?}");
    std::fs::remove_dir_all(place).unwrap();
}

/// S-13: a store that says nothing for 30 s once the executor is gone is not waited for any longer:
/// the run ends without an end of its own, as `policy_failure`, and its caller hears why.
#[tokio::test]
async fn a_store_that_is_silent() {
    let (shelf, tag) = (Shelf::default(), tag());
    shelf.with(|kept| kept.open_for = Some(1));
    let mut bench = bench(&shelf, &tag);
    bench.timeout = Duration::from_secs(24 * 3600);
    let acts = json!([{ "emit": {} }, { "emit": {} }, good_end()[0], good_end()[1]]);
    let run = bench.run(json!({ "acts": acts }));
    let time_passes = async {
        until("one is kept", || shelf.with(|kept| kept.events.len() == 1)).await;
        until("it is gone", || tagged(&tag).is_empty()).await;
        let gone = tokio::time::Instant::now();
        tokio::time::pause();
        loop {
            // A second of the run's in a moment of ours: its end is noticed long before a day is
            // over.
            tokio::time::sleep(Duration::from_secs(1)).await;
            std::thread::sleep(Duration::from_millis(1));
            shelf.with(|kept| kept.waited = gone.elapsed());
        }
    };
    let ended = tokio::select! {
        ended = run => ended,
        () = time_passes => unreachable!("it never ends"),
    };
    let Err(Fault::ToolFailed {
        error_type,
        message,
        ..
    }) = ended
    else {
        panic!("{ended:?}")
    };
    assert_eq!(error_type, "policy_failure");
    assert_eq!(message, "not kept: the store does not answer");
    shelf.with(|kept| {
        // We may see that it is gone some time after the run does.
        assert!(kept.waited >= Duration::from_secs(25), "{:?}", kept.waited);
        assert!(kept.ended.is_none(), "nobody can record it");
        kept.open_for = None;
    });
    tokio::time::resume();
    until("the store is let go of", || shelf.with(|kept| kept.dropped)).await;
}
