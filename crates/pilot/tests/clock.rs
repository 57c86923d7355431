//! Runs of the pilot by a clock of the test's own, with tools that are functions: what a day, a
//! second driver and a tool that can not be had make of a run.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Clock, Fault, Held, Job, ManualClock, Output, Plan, Planner, RateLimit,
    RunFuture, Runner, Timestamp, Tool,
};
use callgate_gate::{Catalog, Decision, Entry, Gate, Policy, Rule, Setup};
use callgate_pilot::replay::{Halt, Replayed};
use callgate_pilot::{Goals, Pilot, PilotError};
use callgate_pilot_events::{Progress, RunEnd};
use callgate_store::{ApprovalId, Options, Store};
use callgate_testing::TempFolder;
use callgate_wires::toolhost::RunRequest;
use serde_json::{Value, json};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const RUN: &str = "0123456789abcdef0123456789abcdef";

type Function = Box<dyn Fn(&Call) -> Result<Value, Fault> + Send + Sync>;

struct Does(Function);

impl Runner for Does {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        Box::pin(async move { (self.0)(job.call).map(Output::from_value) })
    }

    fn kind(&self) -> &'static str {
        "test"
    }
}

struct NoPlan;

impl Planner for NoPlan {
    fn plan(&self, _: &Call, _: &Tool) -> Result<Plan, Fault> {
        Ok(Plan::default())
    }

    fn outlook(&self, _: &Tool) -> Vec<Held> {
        Vec::new()
    }
}

/// A workspace whose clock stands still.
struct Bench {
    folder: TempFolder,
    clock: Arc<ManualClock>,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp(1_750_000_000_000)));
        let folder = TempFolder::new();
        Self { folder, clock }
    }

    /// A gate of its own, as another process would have, with one tool.
    fn gate(&self, tool: Tool) -> Gate {
        self.gate_by(self.clock.clone(), tool)
    }

    fn gate_by(&self, clock: Arc<dyn Clock>, tool: Tool) -> Gate {
        let state = self.folder.join("state");
        let store = Store::open(&state, Options::default(), Arc::clone(&clock));
        let mut catalog = Catalog::default();
        let tool = Tool {
            tags: vec!["tag.run".to_owned()],
            ..tool
        };
        catalog.add(tool).expect("a tool");
        let asks = Rule {
            tools: vec!["asks".to_owned()],
            callers: Vec::new(),
            decision: Decision::Ask,
            approve_by_client: false,
        };
        let setup = Setup {
            catalog,
            policy: Policy {
                rules: vec![asks],
                ..Policy::default()
            },
            ..Setup::default()
        };
        let store = Arc::new(store.expect("the state"));
        Gate::new(setup, store, Arc::new(NoPlan), clock, 7)
    }
}

/// Whoever drives by this policy, which says the same at every step.
fn pilot<'a>(gate: &'a Gate, says: &'static str) -> Pilot<'a> {
    let said = tool("pilot/policy", move |_| Ok(json!({ "text": says })));
    Pilot {
        gate,
        caller: Caller::uid(1000),
        policy: Some(Arc::new(Entry::new(said).expect("a policy"))),
        goals: Goals::new(),
        cancel: Arc::new(Cancel::new()),
    }
}

fn tool(name: &str, does: impl Fn(&Call) -> Result<Value, Fault> + Send + Sync + 'static) -> Tool {
    Tool::new(name, Arc::new(Does(Box::new(does))))
}

fn request(mode: &str) -> RunRequest {
    let request = json!({ "goal_id": "g", "candidate_tags": ["tag.run"], "control_mode": mode,
                          "request_id": "r" });
    RunRequest::from_value(&request).expect("a request")
}

fn approval(end: &RunEnd) -> ApprovalId {
    match end {
        RunEnd::AskSup { approval } => ApprovalId(approval.clone()),
        other => panic!("{other}"),
    }
}

async fn replayed(pilot: &Pilot<'_>) -> Replayed {
    let events = pilot.gate.store().pilot_events(RUN).expect("events");
    pilot.replay(&events).await.expect("as recorded")
}

/// TH-146, T-29: a run whose ask nobody answered within a day asks anew when it is taken up again,
/// whoever asked: the policy, or a tool that a person must see first. After a yes it goes on.
#[tokio::test]
async fn an_ask_that_expired_is_made_anew() {
    for (mode, asks_by) in [("POLICY_ONLY", "policy"), ("FALLBACK_ONLY", "tool")] {
        let bench = Bench::new();
        let gate = bench.gate(tool("asks", |_| Ok(json!({}))));
        let pilot = pilot(&gate, "<ASK_SUP><END>");
        let mut progress = pilot
            .take(&request(mode), RUN.to_owned())
            .expect("taken")
            .progress;
        let first = approval(&pilot.drive(&mut progress).await.expect("asked"));
        bench.clock.advance(DAY - Duration::from_millis(1));
        assert!(
            !pilot.resume(&mut progress, true).expect("waits"),
            "{asks_by}"
        );
        bench.clock.advance(Duration::from_millis(1));
        assert!(pilot.goes_on(&progress).expect("goes on"), "{asks_by}");
        assert!(
            pilot.resume(&mut progress, false).expect("asks"),
            "{asks_by}"
        );
        let second = approval(&pilot.drive(&mut progress).await.expect("asked anew"));
        assert_ne!(first, second, "{asks_by}");
        let found: Progress = pilot.find(RUN).expect("the run");
        assert_eq!(found.end.as_ref().map(approval), Some(second.clone()));
        assert!(
            !pilot.resume(&mut progress, true).expect("waits"),
            "{asks_by}"
        );
        replayed(&pilot).await;
        gate.store()
            .decide(&second, true, "uid:0", None)
            .expect("a yes");
        assert!(
            pilot.resume(&mut progress, false).expect("goes on"),
            "{asks_by}"
        );
        let end = pilot.drive(&mut progress).await.expect("an end");
        match asks_by {
            // It asks at its next step as well: another question.
            "policy" => assert!(![first, second].contains(&approval(&end))),
            _ => assert_eq!(end, RunEnd::Noop),
        }
        replayed(&pilot).await;
    }
}

/// T-29, TH-134: while a run is driven nobody else drives it, in another process or in the same: a
/// second one is turned away before any step. Afterwards it is told how the run ended.
#[tokio::test]
async fn a_run_has_one_driver() {
    let bench = Bench::new();
    let other = bench.gate(tool("work", |_| panic!("the other takes no step")));
    let gates: Arc<OnceLock<[Gate; 2]>> = Arc::default();
    let asked = Arc::clone(&gates);
    let work = tool("work", move |_| {
        for gate in asked.get().expect("both gates") {
            let second = pilot(gate, "");
            let wanted = request("FALLBACK_ONLY");
            let taken = second.take(&wanted, RUN.replace('0', "f")).map(|_| ());
            assert!(matches!(taken, Err(PilotError::Busy(_))), "{taken:?}");
            let taken = second.take_up(RUN).map(|_| ());
            assert!(matches!(taken, Err(PilotError::Busy(_))), "{taken:?}");
        }
        Ok(json!({}))
    });
    let [ours, theirs] = gates.get_or_init(|| [bench.gate(work), other]);
    let first = pilot(ours, "");
    let mut taken = first
        .take(&request("FALLBACK_ONLY"), RUN.to_owned())
        .expect("ours");
    let end = first.drive(&mut taken.progress).await.expect("an end");
    assert_eq!((end, taken.known), (RunEnd::Noop, false));
    drop(taken);
    let second = pilot(theirs, "").take(&request("FALLBACK_ONLY"), "f".repeat(32));
    let second = second.expect("free again");
    assert_eq!(
        (second.progress.end, second.known),
        (Some(RunEnd::Noop), true)
    );
}

/// A clock that moves on whenever somebody looks.
struct Looked(ManualClock);

impl Clock for Looked {
    fn now(&self) -> Timestamp {
        self.0.advance(Duration::from_millis(5));
        self.0.now()
    }
}

/// T-31, TH-148: a tool that can not be had now is no difference. A rate is waited out; a breaker that
/// is open, and a tool that is unavailable, are told as what they are. What a tool does in a replay
/// says nothing of its health.
#[tokio::test]
async fn a_tool_that_can_not_be_had() {
    let bench = Bench::new();
    let again = |does: Result<Value, Fault>| Tool {
        deterministic: true,
        ..tool("work", move |_| does.clone())
    };
    let good = || Ok(json!({ "n": 1 }));
    let gate = bench.gate(again(good()));
    // The same call until the loop guard ends it.
    let first = pilot(&gate, "<PICK><SID0001><END>");
    let taken = first.take(&request("POLICY_ONLY"), RUN.to_owned());
    let mut progress = taken.expect("taken").progress;
    first.drive(&mut progress).await.expect("an end");
    assert_eq!(replayed(&first).await.rerun, 4);

    let slow = Tool {
        rate_limit: Some(RateLimit {
            per_second: 20.0,
            burst: 1,
        }),
        ..again(good())
    };
    let clock = Arc::new(Looked(ManualClock::at(bench.clock.now())));
    let rated = bench.gate_by(clock, slow);
    assert_eq!(replayed(&pilot(&rated, "")).await.rerun, 4);

    let events = gate.store().pilot_events(RUN).expect("events");
    let gone = Fault::Unavailable {
        reason: "no worker".to_owned(),
    };
    let without = bench.gate(again(Err(gone.clone())));
    let halt = pilot(&without, "").replay(&events).await.expect_err("gone");
    let aid = "AID.TOOL.WORK.v1".to_owned();
    let not_run = |fault| Halt::NotRun {
        aid: aid.clone(),
        step: 1,
        fault,
    };
    assert_eq!(halt, not_run(gone));

    let crashes = bench.gate(again(Err(Fault::Crash {
        message: "exit 3".to_owned(),
    })));
    let crashing = pilot(&crashes, "");
    for _ in 0..6 {
        let halt = crashing.replay(&events).await.expect_err("another end");
        assert!(matches!(halt, Halt::Differs(_)), "{halt:?}");
    }
    assert_eq!(replayed(&first).await.rerun, 4, "its breaker is closed");
    for step in 0..5 {
        let (id, caller) = (crashes.next_id(), Caller::uid(1000));
        let input = callgate_call::Document::from_value(json!({ "step": step }));
        let wire = callgate_call::Wire::Gate;
        let call = Call::new(id, "work", input, caller, wire, Cancel::new());
        crashes.call(&call).await.result.expect_err("a crash");
    }
    let halt = first.replay(&events).await.expect_err("open");
    assert_eq!(
        halt,
        not_run(Fault::BreakerOpen {
            retry_after: Duration::from_secs(30)
        })
    );
}
