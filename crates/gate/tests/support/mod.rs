//! A gate with a real store and a tool that is a closure, for tests of the pipeline's stages.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use callgate_call::{
    Call, Caller, Cancel, Clock, Document, Fault, IdempotencyKey, Job, ManualClock, Output, Plan,
    Planner, RunFuture, Runner, Secrets, Tier, Timestamp, Tool, Wire,
};
use callgate_gate::{BreakerPolicy, Catalog, Gate, LeasePolicy, Policy, Rule, Setup};
use callgate_store::{Durability, Filter, Options, Store};
use serde_json::{Value, json};

pub type Function = dyn Fn(&Job<'_>) -> Result<Output, Fault> + Send + Sync;

/// A tool that counts how often it ran.
struct Counted {
    runs: Arc<AtomicUsize>,
    function: Box<Function>,
    gate: Option<Arc<tokio::sync::Semaphore>>,
    is_pure: bool,
}

impl Runner for Counted {
    fn run<'a>(&'a self, job: Job<'a>) -> RunFuture<'a> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.acquire().await.expect("never closed").forget();
            }
            (self.function)(&job)
        })
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn only_reads(&self) -> bool {
        self.is_pure
    }

    fn is_pure(&self) -> bool {
        self.is_pure
    }
}

struct NoPlan;

impl Planner for NoPlan {
    fn plan(&self, _: &Call, _: &Tool) -> Result<Plan, Fault> {
        Ok(Plan::default())
    }

    fn outlook(&self, _: &Tool) -> Vec<callgate_call::Held> {
        Vec::new()
    }
}

/// A gate over a fresh state folder, and everything a test turns.
pub struct Bench {
    pub gate: Arc<Gate>,
    pub runs: Arc<AtomicUsize>,
    pub clock: Arc<ManualClock>,
    pub dir: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[derive(Default)]
pub struct Wanted {
    pub function: Option<Box<Function>>,
    pub hold: Option<Arc<tokio::sync::Semaphore>>,
    pub tool: Option<fn(&mut Tool)>,
    pub rules: Vec<Rule>,
    pub leases: LeasePolicy,
    pub secrets: Vec<String>,
    pub is_pure: bool,
    pub durability: Durability,
}

/// A folder of the test's own that is not there yet.
pub fn folder(name: &str) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("callgate-gate-{name}-{}-{number}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&dir);
    dir
}

pub fn bench(name: &str, wanted: Wanted) -> Bench {
    let dir = folder(name);
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let as_clock: Arc<dyn Clock> = clock.clone();
    let options = Options {
        durability: wanted.durability,
        ..Options::default()
    };
    let store = Arc::new(Store::open(&dir, options, as_clock.clone()).unwrap());
    let runs = Arc::new(AtomicUsize::new(0));
    let echo = |job: &Job<'_>| Ok(Output::from_value(job.call.input.value().clone()));
    let runner = Counted {
        runs: Arc::clone(&runs),
        function: wanted.function.unwrap_or(Box::new(echo)),
        gate: wanted.hold,
        is_pure: wanted.is_pure,
    };
    let mut tool = Tool {
        input_schema: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
        tier: Tier::Write,
        concurrency_max: 64,
        aliases: vec!["work".into()],
        ..Tool::new("demo/work", Arc::new(runner))
    };
    if let Some(change) = wanted.tool {
        change(&mut tool);
    }
    let mut catalog = Catalog::default();
    catalog.add(tool).unwrap();
    let setup = Setup {
        catalog,
        policy: Policy {
            restrictions: Vec::new(),
            rules: wanted.rules,
            leases: wanted.leases,
        },
        breaker: BreakerPolicy::default(),
        secrets: Secrets::new(wanted.secrets),
        ..Setup::default()
    };
    let gate = Arc::new(Gate::new(setup, store, Arc::new(NoPlan), as_clock, 7));
    Bench {
        gate,
        runs,
        clock,
        dir,
    }
}

impl Bench {
    pub fn call(&self, input: Value) -> Call {
        let caller = Caller::uid(1000);
        Call::new(
            self.gate.next_id(),
            "demo/work",
            Document::from_value(input),
            caller,
            Wire::Gate,
            Cancel::new(),
        )
    }

    pub fn keyed(&self, input: Value, key: &str) -> Call {
        let mut call = self.call(input);
        call.key = IdempotencyKey::new(key);
        call
    }

    pub async fn result(&self, call: &Call) -> Result<Value, Fault> {
        let result = self.gate.call(call).await.result;
        result.map(|output| output.json.into_value())
    }

    pub fn ran(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// How many chain records of each kind there are.
    pub fn chain(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        self.gate
            .store()
            .show(&Filter::default(), &mut |record| {
                let body: Value = serde_json::from_str(record.body).unwrap();
                *kinds
                    .entry(body["kind"].as_str().unwrap().to_owned())
                    .or_default() += 1;
                true
            })
            .unwrap();
        kinds
    }
}

pub fn kinds(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs
        .iter()
        .map(|&(kind, count)| (kind.to_owned(), count))
        .collect()
}
