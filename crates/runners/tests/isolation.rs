//! What keeps one call of a Python tool from the next, with the worker that ships.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Bench, folder, gone, spawner, tag, tagged, until};
use callgate_call::{Asker, Guarantee, Isolation, Needs};
use callgate_runners::{PoolRunner, PoolSettings, PythonSettings, python_plan};
use serde_json::{Value, json};

const TOOL: &str = include_str!("isolation/t.py");

/// A workspace, and a tool in it.
struct Place {
    bench: Bench,
    folder: PathBuf,
    /// In the arguments of every process of it.
    tag: String,
}

impl Place {
    fn new(isolation: Isolation) -> Self {
        Self::tuned(isolation, |_| ())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the Python of whoever runs the tests"
    )]
    fn tuned(isolation: Isolation, tune: impl FnOnce(&mut PoolSettings)) -> Self {
        let (folder, tag) = (folder(), tag());
        std::fs::write(folder.join("t.py"), TOOL).unwrap();
        let worker =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python/callgate/worker.py");
        let variable = |name: &str| (name.into(), std::env::var_os(name).unwrap_or_default());
        let settings = PythonSettings {
            workspace: folder.clone(),
            interpreter: None,
            worker: vec!["-X".into(), tag.clone().into(), worker.into()],
            env: vec![variable("PATH"), variable("HOME")],
        };
        let plan = python_plan(settings, |settings| {
            settings.workers_max = 1;
            settings.isolation = isolation;
            settings.backoff_min = Duration::from_millis(1);
            tune(settings);
        });
        let bench = Bench::new(Arc::new(PoolRunner::new(
            plan.pool(spawner()),
            Some("t:act".into()),
            "python",
        )));
        Self { bench, folder, tag }
    }

    async fn act(&self, what: &str) -> Value {
        self.bench.value(json!({ "do": what })).await
    }

    async fn fault(&self, input: Value) -> String {
        self.bench.fault(input).await
    }

    /// All its processes, by their numbers outside.
    fn alive(&self) -> Vec<u32> {
        tagged(&self.tag)
    }

    /// The one process that waits for calls, while nothing else is alive.
    async fn keeper(&self) -> u32 {
        assert_eq!(self.act("who").await["calls"], 1);
        let alive = self.alive();
        assert_eq!(alive.len(), 1, "{alive:?}");
        alive[0]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// P-17: globals and environment survive in a worker and nowhere else.
#[tokio::test]
async fn what_one_call_leaves_for_the_next() {
    for (isolation, survives) in [
        (Isolation::Worker, true),
        (Isolation::Call, false),
        (Isolation::Cold, false),
    ] {
        let place = Place::new(isolation);
        let first = place.act("who").await;
        let keeper = place.alive();
        assert_eq!(place.act("leave_in_environment").await, Value::Null);
        let left = if survives {
            json!("behind")
        } else {
            Value::Null
        };
        assert_eq!(place.act("leave_in_environment").await, left);
        let last = place.act("who").await;
        assert_eq!(last["calls"], json!(if survives { 4 } else { 1 }));
        // A fork has its parent's random numbers ahead of it, unless it is given its own.
        assert_ne!(first["dice"], last["dice"], "{isolation:?}");
        assert_eq!(place.bench.sink.fact_of("isolation"), isolation.as_str());
        assert_eq!(place.alive(), keeper, "{isolation:?}");
        assert_eq!(keeper.len(), usize::from(isolation != Isolation::Cold));
    }
}

#[tokio::test]
async fn a_cold_worker_is_gone_with_its_call() {
    let place = Place::new(Isolation::Cold);
    assert_eq!(place.act("daemon").await, json!("born"));
    assert_eq!(place.alive(), [0; 0]);
    let fault = place.fault(json!({ "do": "die", "how": "_exit", "code": 3 }));
    assert_eq!(fault.await, "crash: exit 3");
    assert_eq!(place.act("who").await["calls"], 1);
}

#[tokio::test]
async fn one_zygote_serves_two_hundred_calls() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    for _ in 0..200 {
        assert_eq!(place.keeper().await, zygote);
    }
}

#[tokio::test]
async fn a_zygote_is_replaced_after_its_calls() {
    let place = Place::tuned(Isolation::Call, |settings| settings.calls_max = 3);
    let zygote = place.keeper().await;
    assert_eq!(place.keeper().await, zygote);
    assert_eq!(place.act("who").await["calls"], 1);
    until("it is gone", || gone(&[zygote])).await;
    assert_ne!(place.keeper().await, zygote);
}

/// TP-24, P-15: how the process of a call ended outranks what it said, and costs nobody else.
#[tokio::test]
async fn every_death_costs_its_own_call() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    let forged = "{\"call\":\"x\",\"output\":\"forged\"}\n";
    for (how, wanted) in [
        (json!({ "how": "exit", "code": 3 }), "crash: exit 3"),
        (
            json!({ "how": "exit", "code": 0 }),
            "crash: the tool ended (exit 0) without an output",
        ),
        (json!({ "how": "_exit", "code": 9 }), "crash: exit 9"),
        (
            json!({ "how": "_exit", "code": 0 }),
            "crash: the tool ended (exit 0) without an output",
        ),
        (
            json!({ "how": "segv" }),
            "crash: killed by signal 11 (SIGSEGV)",
        ),
        (json!({ "how": "after", "text": forged }), "crash: exit 9"),
    ] {
        let mut input = how.clone();
        input["do"] = json!("die");
        assert_eq!(place.fault(input).await, wanted, "{how}");
        assert_eq!(place.keeper().await, zygote, "{how}");
    }
    let raises = json!({ "do": "die", "how": "raise" });
    assert_eq!(place.fault(raises).await, "tool_failed: no good");
    assert_eq!(place.keeper().await, zygote);
}

/// TP-24: the same words where the tool shares a process with others.
#[tokio::test]
async fn a_worker_outlives_a_tool_that_leaves() {
    let place = Place::new(Isolation::Worker);
    let worker = place.keeper().await;
    let fault = place.fault(json!({ "do": "die", "how": "exit", "code": 3 }));
    assert_eq!(fault.await, "crash: exit 3");
    assert_eq!(place.act("who").await["calls"], 3);
    assert_eq!(place.alive(), [worker]);
}

/// P-8: what a tool writes, wherever it writes it, is not another call's reply, nor the end of
/// its own.
#[tokio::test]
async fn nothing_can_be_forged() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    let everywhere: Vec<u32> = (1..20).collect();
    let prints = json!({ "do": "say", "fds": [1, 2], "text": "{\"output\":\"forged\"}\n" });
    assert_eq!(place.bench.value(prints).await, json!("mine"));
    assert!(place.bench.sink.stdout().contains("forged"));
    for text in [
        "{\"call\":\"x\",\"output\":\"forged\"}\n",
        "{\"output\":\"forged\"}\n",
        "half a line",
        "\n\n\n",
    ] {
        let input = json!({ "do": "say", "fds": everywhere, "text": text });
        let fault = place.fault(input).await;
        assert!(fault.starts_with("bad_output: "), "{text}: {fault}");
        assert_eq!(place.keeper().await, zygote, "{text}");
    }
    for text in ["\t{\"exit\":0}\n", "x\t{\"exit\":0}\n", "\t"] {
        let input = json!({ "do": "say", "fds": everywhere, "text": text, "pause": true });
        let fault = place.fault(input).await;
        assert!(fault.starts_with("crash: killed by signal 9"), "{fault}");
        assert_eq!(place.keeper().await, zygote, "{text}");
    }
}

/// A tool has neither the stream of calls nor its zygote's other descriptors.
#[tokio::test]
async fn nothing_can_be_read_ahead() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    assert_eq!(place.act("read_all").await, json!([]));
    let fault = place.fault(json!({ "do": "close_all" })).await;
    assert_eq!(fault, "crash: exit 1");
    assert_eq!(place.keeper().await, zygote);
}

/// TP-28, P-7: at the timeout the tree is gone, and the next call has a zygote of its own.
#[tokio::test]
async fn a_call_that_does_not_end_is_ended() {
    let mut place = Place::new(Isolation::Call);
    for what in ["hang", "spin"] {
        place.keeper().await;
        place.bench.timeout = Duration::from_millis(200);
        let fault = place.fault(json!({ "do": what })).await;
        assert_eq!(fault, "timeout: timed out after 200 ms");
        assert_eq!(place.alive(), [0; 0], "{what}");
        place.bench.timeout = crate::support::LONG;
    }
    place.keeper().await;
}

/// P-7: nothing a call started is alive once it is answered.
#[tokio::test]
async fn what_a_call_started_ends_with_it() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    let program = json!({ "do": "program", "tag": place.tag });
    assert_eq!(place.bench.value(program).await, Value::Null);
    assert_eq!(place.alive(), [zygote]);
    // What stays in its group costs no zygote; what leaves it, and holds the pipe, does.
    let child = json!({ "do": "daemon", "session": false });
    assert_eq!(place.bench.value(child).await, json!("born"));
    assert_eq!(place.alive(), [zygote]);
    assert_eq!(place.act("daemon").await, json!("born"));
    assert_eq!(place.alive(), [0; 0]);
    assert_ne!(place.keeper().await, zygote);
}

/// T-13: floods are bounded, on the private pipe too.
#[tokio::test]
async fn a_flood_costs_its_own_call() {
    let mut place = Place::tuned(Isolation::Call, |settings| {
        settings.output_bytes_max = 100_000;
    });
    place.keeper().await;
    let flood = json!({ "do": "flood", "from": 3, "text": "x" });
    assert_eq!(
        place.fault(flood).await,
        "too_large: output exceeds 100000 bytes"
    );
    assert_eq!(place.alive(), [0; 0]);
    // Prints without an end: the time is what ends them.
    place.keeper().await;
    place.bench.timeout = Duration::from_millis(300);
    let prints = json!({ "do": "flood", "from": 1, "to": 3, "text": "y\n" });
    let fault = place.fault(prints).await;
    assert_eq!(fault, "timeout: timed out after 300 ms");
    place.bench.timeout = crate::support::LONG;
    let zygote = place.keeper().await;
    let huge = |bytes: u32| json!({ "do": "huge", "bytes": bytes });
    assert_eq!(
        place.bench.value(huge(99_998)).await,
        json!("x".repeat(99_998))
    );
    assert_eq!(
        place.fault(huge(99_999)).await,
        "too_large: output exceeds 100000 bytes"
    );
    assert_eq!(place.keeper().await, zygote);
}

/// T-13: a worker that never stops talking is heard no longer than its call may take, and holds
/// up nobody else meanwhile.
#[tokio::test]
async fn a_flood_of_lines_ends_in_time() {
    for (isolation, with) in [
        (Isolation::Call, "newlines"),
        (Isolation::Call, "reports"),
        (Isolation::Worker, "reports"),
    ] {
        let mut place = Place::new(isolation);
        place.keeper().await;
        place.bench.timeout = Duration::from_secs(5);
        let others = async {
            let mut turns = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                turns += 1;
                if turns == 20 {
                    return;
                }
            }
        };
        let act = json!({ "do": "drown", "with": with });
        let drowned = async {
            let mut drowned = std::pin::pin!(place.fault(act));
            tokio::select! {
                fault = &mut drowned => panic!("{with}: the others had no turn: {fault}"),
                () = others => {}
            }
            drowned.await
        };
        assert_eq!(drowned.await, "timeout: timed out after 5000 ms", "{with}");
        assert_eq!(place.alive(), [0; 0], "{with}");
        place.bench.timeout = crate::support::LONG;
        place.keeper().await;
    }
}

#[tokio::test]
async fn a_killed_zygote_is_replaced() {
    let place = Place::new(Isolation::Call);
    let zygote = place.keeper().await;
    let fault = place.fault(json!({ "do": "die", "how": "parent" })).await;
    assert_eq!(fault, "crash: killed by signal 9 (SIGKILL)");
    assert_eq!(place.alive(), [0; 0]);
    assert_ne!(place.keeper().await, zygote);
}

#[tokio::test]
async fn reports_and_questions_pass_a_zygote() {
    let place = Place::new(Isolation::Call);
    assert_eq!(place.act("report").await, json!("done"));
    assert_eq!(
        place.bench.sink.reports(),
        ["1 of Some(2.0): None", "info None \"half\""]
    );
    let fault = place.fault(json!({ "do": "ask" })).await;
    assert!(fault.starts_with("needs_input: "), "{fault}");
}

/// A plan decides over the pool's own habit, and a worker serves no call with other needs.
#[tokio::test]
async fn workers_are_for_calls_of_the_same_needs() {
    let mut place = Place::new(Isolation::Worker);
    let worker = place.keeper().await;
    let mut needs = Needs {
        isolation: Isolation::Worker,
        reads: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/python")],
        ..Needs::default()
    };
    needs.guarantees.require(Guarantee::NoNetwork, Asker::User);
    place.bench.plan.confinement = Some(Arc::new(needs.clone()));
    assert_eq!(place.act("who").await["calls"], 1);
    // There is room for one: the other had to go.
    until("it is gone", || gone(&[worker])).await;
    let confined = place.alive();
    place.bench.plan.confinement = Some(Arc::new(needs.clone()));
    assert_eq!(place.act("who").await["calls"], 2);
    assert_eq!(place.alive(), confined);
    needs.isolation = Isolation::Call;
    place.bench.plan.confinement = Some(Arc::new(needs));
    assert_eq!(place.act("who").await["calls"], 1);
    until("it is gone", || gone(&confined)).await;
    place.keeper().await;
}
