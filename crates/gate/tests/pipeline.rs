//! The pipeline stage by stage, with a real store and tools that are closures: what is
//! refused, what is run, how often, and what the chain says of it.
//
// tidy: long because every stage is tested on the one bench that is made here.

#![allow(clippy::unwrap_used, reason = "a test that can not go on should stop")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callgate_call::{
    Call, Caller, Cancel, Clock, Document, Fault, IdempotencyKey, Job, LeaseRefusal, LeaseToken,
    ManualClock, Output, Plan, Planner, RateLimit, RunFuture, Runner, Scope, Secrets, Tier,
    Timestamp, Tool, Wire,
};
use callgate_gate::{
    BreakerPolicy, Catalog, Decision, Gate, LeasePolicy, LeaseRequest, Policy, Rule, Setup,
};
use callgate_store::{Filter, Options, Store};
use serde_json::{Value, json};

type Function = dyn Fn(&Job<'_>) -> Result<Output, Fault> + Send + Sync;

/// A tool that counts how often it ran.
struct Counted {
    runs: Arc<AtomicUsize>,
    function: Box<Function>,
    gate: Option<Arc<tokio::sync::Semaphore>>,
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
struct Bench {
    gate: Arc<Gate>,
    runs: Arc<AtomicUsize>,
    clock: Arc<ManualClock>,
    dir: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[derive(Default)]
struct Wanted {
    function: Option<Box<Function>>,
    hold: Option<Arc<tokio::sync::Semaphore>>,
    tool: Option<fn(&mut Tool)>,
    rules: Vec<Rule>,
    leases: LeasePolicy,
    secrets: Vec<String>,
}

fn bench(name: &str, wanted: Wanted) -> Bench {
    let dir = std::env::temp_dir().join(format!("callgate-gate-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let clock = Arc::new(ManualClock::at(Timestamp(1_000_000)));
    let as_clock: Arc<dyn Clock> = clock.clone();
    let store = Arc::new(Store::open(&dir, Options::default(), as_clock.clone()).unwrap());
    let runs = Arc::new(AtomicUsize::new(0));
    let echo = |job: &Job<'_>| Ok(Output::from_value(job.call.input.value().clone()));
    let runner = Counted {
        runs: Arc::clone(&runs),
        function: wanted.function.unwrap_or(Box::new(echo)),
        gate: wanted.hold,
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
    fn call(&self, input: Value) -> Call {
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

    fn keyed(&self, input: Value, key: &str) -> Call {
        let mut call = self.call(input);
        call.key = IdempotencyKey::new(key);
        call
    }

    async fn result(&self, call: &Call) -> Result<Value, Fault> {
        let result = self.gate.call(call).await.result;
        result.map(|output| output.json.into_value())
    }

    fn ran(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// How many chain records of each kind there are.
    fn chain(&self) -> BTreeMap<String, usize> {
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

fn kinds(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs
        .iter()
        .map(|&(kind, count)| (kind.to_owned(), count))
        .collect()
}

/// F-1, F-3: refused before anything runs, and recorded as refusals.
#[tokio::test]
async fn find_and_check_input() {
    let b = bench("find", Wanted::default());
    let mut unknown = b.call(json!({}));
    unknown.tool = "nobody".into();
    assert_eq!(
        b.result(&unknown).await,
        Err(Fault::UnknownTool {
            tool: "nobody".into()
        })
    );
    let bad = b.result(&b.call(json!({"n": "x"}))).await;
    assert!(
        matches!(bad, Err(Fault::BadInput { ref field, .. }) if field == "n"),
        "{bad:?}"
    );
    for name in ["demo/work", "AID.DEMO.WORK.v1", "work"] {
        let mut call = b.call(json!({"n": 1}));
        call.tool = name.into();
        assert_eq!(b.result(&call).await, Ok(json!({"n": 1})));
    }
    assert_eq!(b.ran(), 3);
    assert_eq!(
        b.chain(),
        kinds(&[("refusal", 2), ("start", 3), ("outcome", 3)])
    );
    assert!(b.gate.store().verify().unwrap().is_good());
}

/// F-6: the first rule that fits decides.
#[tokio::test]
async fn authorise() {
    let rule = |callers: &str, decision| Rule {
        tools: vec!["demo/*".into()],
        callers: vec![callers.into()],
        decision,
        approve_by_client: false,
    };
    let rules = vec![rule("uid:1000", Decision::Deny), rule("*", Decision::Allow)];
    let b = bench(
        "policy",
        Wanted {
            rules,
            ..Wanted::default()
        },
    );
    assert!(matches!(
        b.result(&b.call(json!({}))).await,
        Err(Fault::Denied { .. })
    ));
    let mut other = b.call(json!({}));
    other.caller = Caller::uid(1);
    assert_eq!(b.result(&other).await, Ok(json!({})));
}

/// G-6, F-7: an ask is granted by a person and good for one call with that input.
#[tokio::test]
async fn ask_and_approve() {
    let rules = vec![Rule {
        tools: vec![],
        callers: vec![],
        decision: Decision::Ask,
        approve_by_client: false,
    }];
    let b = bench(
        "ask",
        Wanted {
            rules,
            ..Wanted::default()
        },
    );
    let Err(Fault::NeedsApproval { approval }) = b.result(&b.call(json!({"n": 1}))).await else {
        panic!("an ask")
    };
    let Err(Fault::NeedsApproval { approval: again }) = b.result(&b.call(json!({"n": 1}))).await
    else {
        panic!("the same ask")
    };
    assert_eq!(approval, again);
    b.gate.decide(&approval, true, "uid:0").unwrap();
    let other = b.result(&b.call(json!({"n": 2}))).await;
    assert!(matches!(other, Err(Fault::NeedsApproval { .. })));
    assert_eq!(
        b.result(&b.call(json!({"n": 1}))).await,
        Ok(json!({"n": 1}))
    );
    let spent = b.result(&b.call(json!({"n": 1}))).await;
    let Err(Fault::NeedsApproval { approval }) = spent else {
        panic!("a new ask")
    };
    b.gate.decide(&approval, false, "uid:0").unwrap();
    assert!(matches!(
        b.result(&b.call(json!({"n": 1}))).await,
        Err(Fault::Denied { .. })
    ));
    assert_eq!(b.ran(), 1);
    assert!(b.gate.decide("nothing", true, "uid:0").is_err());
}

/// G-3, F-10: bound to caller, tool and input; failures of the tool are replayed too.
#[tokio::test]
async fn replay_by_key() {
    let b = bench("replay", Wanted::default());
    for round in 0..3 {
        let outcome = b.gate.call(&b.keyed(json!({"n": 1}), "k")).await;
        assert_eq!(outcome.result.unwrap().json.into_value(), json!({"n": 1}));
        assert_eq!(outcome.replayed, round > 0);
    }
    assert_eq!(b.ran(), 1);
    let conflict = b.result(&b.keyed(json!({"n": 2}), "k")).await;
    assert!(
        matches!(conflict, Err(Fault::Conflict { .. })),
        "{conflict:?}"
    );
    let mut other = b.keyed(json!({"n": 1}), "k");
    other.caller = Caller::uid(5);
    assert!(!b.gate.call(&other).await.replayed);
    assert_eq!(b.ran(), 2);
    assert_eq!(
        b.chain(),
        kinds(&[("start", 2), ("outcome", 2), ("replay", 2), ("refusal", 1)])
    );
}

/// G-3: a failure of the tool is an outcome like any other.
#[tokio::test]
async fn failures_are_replayed() {
    let fail = |_: &Job<'_>| {
        Err(Fault::ToolFailed {
            error_type: "ValueError".into(),
            message: "no".into(),
            content: None,
        })
    };
    let b = bench(
        "failures",
        Wanted {
            function: Some(Box::new(fail)),
            ..Wanted::default()
        },
    );
    let first = b.gate.call(&b.keyed(json!({}), "k")).await;
    let second = b.gate.call(&b.keyed(json!({}), "k")).await;
    assert_eq!(first.result.unwrap_err(), second.result.unwrap_err());
    assert!(second.replayed);
    assert_eq!(b.ran(), 1);
}

/// G-3: a second call with the key waits for the first and gets its outcome.
#[tokio::test]
async fn in_flight_is_waited_for() {
    let hold = Arc::new(tokio::sync::Semaphore::new(0));
    let b = bench(
        "flight",
        Wanted {
            hold: Some(Arc::clone(&hold)),
            ..Wanted::default()
        },
    );
    let calls: Vec<Call> = (0..8).map(|_| b.keyed(json!({"n": 1}), "k")).collect();
    let waiting: Vec<_> = calls
        .into_iter()
        .map(|call| {
            let gate = Arc::clone(&b.gate);
            tokio::spawn(async move { gate.call(&call).await })
        })
        .collect();
    while b.ran() == 0 {
        tokio::task::yield_now().await;
    }
    hold.add_permits(1);
    let mut replayed = 0;
    for task in waiting {
        let outcome = task.await.unwrap();
        assert_eq!(outcome.result.unwrap().json.into_value(), json!({"n": 1}));
        replayed += usize::from(outcome.replayed);
    }
    assert_eq!((b.ran(), replayed), (1, 7));
}

/// G-5, T-5, F-8, F-9: needed from the tier on, spent once, every mismatch by name.
#[tokio::test]
async fn leases() {
    let leases = LeasePolicy {
        local: Some(Tier::Write),
        ..LeasePolicy::default()
    };
    let b = bench(
        "leases",
        Wanted {
            leases,
            ..Wanted::default()
        },
    );
    let with = |token: Option<&LeaseToken>, input: Value| {
        let mut call = b.call(input);
        call.lease = token.cloned();
        call
    };
    let required = b.result(&with(None, json!({}))).await;
    assert!(matches!(
        required,
        Err(Fault::LeaseRequired { tier: 1, .. })
    ));
    let ask = |change: &dyn Fn(&mut LeaseRequest)| {
        let mut request = LeaseRequest {
            tool: "work".into(),
            tier: None,
            ttl: None,
            caller: None,
            input: None,
        };
        change(&mut request);
        b.gate.grant_lease(&request).unwrap().token
    };
    let refused = |result: Result<Value, Fault>| match result {
        Err(Fault::LeaseRejected { refusal }) => refusal.as_str(),
        other => panic!("{other:?}"),
    };
    let token = ask(&|_| {});
    assert_eq!(
        b.result(&with(Some(&token), json!({}))).await,
        Ok(json!({}))
    );
    let again = b.result(&with(Some(&token), json!({}))).await;
    assert_eq!(refused(again), LeaseRefusal::AlreadyConsumed.as_str());
    let nobody = LeaseToken::new("lease_00000000000000000000000000000000");
    assert_eq!(
        refused(b.result(&with(Some(&nobody), json!({}))).await),
        "not found"
    );
    let low = ask(&|request| request.tier = Some(Tier::Safe));
    assert_eq!(
        refused(b.result(&with(Some(&low), json!({}))).await),
        "tier too low"
    );
    let other = ask(&|request| request.caller = Some(Caller::uid(1)));
    assert_eq!(
        refused(b.result(&with(Some(&other), json!({}))).await),
        "caller mismatch"
    );
    let one = callgate_call::Digest::of_json(&json!({"n": 1}));
    let bound = ask(&|request| request.input = Some(one));
    assert_eq!(
        refused(b.result(&with(Some(&bound), json!({"n": 2}))).await),
        "input mismatch"
    );
    assert_eq!(
        b.result(&with(Some(&bound), json!({"n": 1}))).await,
        Ok(json!({"n": 1}))
    );
    let old = ask(&|request| request.ttl = Some(Duration::from_secs(60)));
    b.clock.advance(Duration::from_secs(60));
    assert_eq!(
        refused(b.result(&with(Some(&old), json!({}))).await),
        "expired"
    );
    assert_eq!(b.ran(), 2);
}

/// G-5: where nothing is enforced a token is ignored and not spent; a retry by key needs no
/// second lease.
#[tokio::test]
async fn leases_that_are_not_asked_for() {
    let b = bench("unasked", Wanted::default());
    let request = LeaseRequest {
        tool: "work".into(),
        tier: None,
        ttl: None,
        caller: None,
        input: None,
    };
    let token = b.gate.grant_lease(&request).unwrap().token;
    let mut call = b.call(json!({}));
    call.lease = Some(token);
    assert_eq!(b.result(&call).await, Ok(json!({})));
    assert_eq!(b.gate.lease_counts().unwrap().spent, 0);
}

/// G-5: the recorded outcome of a leased call is told again without a lease.
#[tokio::test]
async fn a_retry_needs_no_second_lease() {
    let leases = LeasePolicy {
        local: Some(Tier::Safe),
        ..LeasePolicy::default()
    };
    let b = bench(
        "retry",
        Wanted {
            leases,
            ..Wanted::default()
        },
    );
    let request = LeaseRequest {
        tool: "work".into(),
        tier: None,
        ttl: None,
        caller: None,
        input: None,
    };
    let mut call = b.keyed(json!({}), "k");
    call.lease = Some(b.gate.grant_lease(&request).unwrap().token);
    assert_eq!(b.result(&call).await, Ok(json!({})));
    let retry = b.gate.call(&b.keyed(json!({}), "k")).await;
    assert!(retry.replayed && retry.result.is_ok());
}

/// A tool that has no worker the first time.
fn late() -> Option<Box<Function>> {
    let tried = AtomicUsize::new(0);
    Some(Box::new(move |_: &Job<'_>| {
        if tried.fetch_add(1, Ordering::SeqCst) == 0 {
            let reason = "no worker".to_owned();
            return Err(Fault::Unavailable { reason });
        }
        Ok(Output::from_value(json!({})))
    }))
}

/// G-5, F-14: a call that got no worker ran nothing and spends no lease; one that ran does,
/// however it ended.
#[tokio::test]
async fn no_worker_spends_no_lease() {
    let b = bench(
        "no-worker-lease",
        Wanted {
            function: late(),
            leases: LeasePolicy {
                local: Some(Tier::Write),
                ..LeasePolicy::default()
            },
            ..Wanted::default()
        },
    );
    let token = b
        .gate
        .grant_lease(&LeaseRequest {
            tool: "work".into(),
            tier: None,
            ttl: None,
            caller: None,
            input: None,
        })
        .unwrap()
        .token;
    let leased = || {
        let mut call = b.keyed(json!({}), "k");
        call.lease = Some(token.clone());
        call
    };
    let none = b.result(&leased()).await;
    assert!(matches!(none, Err(Fault::Unavailable { .. })), "{none:?}");
    assert_eq!(b.result(&leased()).await, Ok(json!({})));
    let mut other = b.call(json!({}));
    other.lease = Some(token.clone());
    assert!(matches!(
        b.result(&other).await,
        Err(Fault::LeaseRejected { .. })
    ));
    let wanted = [
        ("lease.grant", 1),
        ("lease.return", 1),
        ("lease.spend", 2),
        ("outcome", 2),
        ("refusal", 1),
        ("start", 2),
    ];
    assert_eq!(b.chain(), kinds(&wanted));
}

/// G-6: the same for an approval.
#[tokio::test]
async fn no_worker_spends_no_approval() {
    let rules = vec![Rule {
        tools: vec![],
        callers: vec![],
        approve_by_client: false,
        decision: Decision::Ask,
    }];
    let b = bench(
        "no-worker-approval",
        Wanted {
            function: late(),
            rules,
            ..Wanted::default()
        },
    );
    let Err(Fault::NeedsApproval { approval }) = b.result(&b.call(json!({}))).await else {
        panic!("an ask")
    };
    b.gate.decide(&approval, true, "uid:0").unwrap();
    let none = b.result(&b.call(json!({}))).await;
    assert!(matches!(none, Err(Fault::Unavailable { .. })), "{none:?}");
    assert_eq!(b.result(&b.call(json!({}))).await, Ok(json!({})));
    let spent = b.result(&b.call(json!({}))).await;
    assert!(matches!(spent, Err(Fault::NeedsApproval { .. })));
}

/// G-10: what a token does not allow does not exist for its caller, and its rate holds over all
/// tools, for this caller only.
#[tokio::test]
async fn a_token_allows_no_more_than_its_scope() {
    let b = bench("scope", Wanted::default());
    let scoped = |tools: &str, tier_max: Tier, burst: u32| {
        let mut call = b.call(json!({}));
        call.caller = Caller::named("token:ci");
        let rate = RateLimit {
            per_second: 1.0,
            burst,
        };
        call.scope = Some(Arc::new(Scope {
            tools: vec![tools.to_owned()],
            tier_max,
            rate: Some(rate),
        }));
        call
    };
    let unknown = Err(Fault::UnknownTool {
        tool: "demo/work".into(),
    });
    let other = b.result(&scoped("files/*", Tier::Dangerous, 9)).await;
    assert_eq!(other, unknown);
    assert_eq!(
        b.result(&scoped("demo/*", Tier::Safe, 9)).await,
        unknown,
        "its tier is above"
    );
    let good = scoped("demo/*", Tier::Write, 2);
    assert_eq!(b.result(&good).await, Ok(json!({})));
    assert_eq!(b.result(&good).await, Ok(json!({})));
    let wait = Duration::from_secs(1);
    assert_eq!(
        b.result(&good).await,
        Err(Fault::RateLimited { retry_after: wait })
    );
    assert_eq!(b.result(&b.call(json!({}))).await, Ok(json!({})));
    b.clock.advance(wait);
    assert_eq!(b.result(&good).await, Ok(json!({})));
    assert_eq!(b.ran(), 4);
}

/// A flood of strangers is a few records, and none of them is forgotten.
#[tokio::test]
async fn strangers_are_counted() {
    let b = bench("strangers", Wanted::default());
    for _ in 0..1000 {
        b.gate.refused_stranger("no_token");
    }
    b.clock.advance(Duration::from_secs(60));
    b.gate.refused_stranger("invalid_token");
    b.gate.refused_stranger("origin");
    b.gate.flush_strangers();
    b.gate.flush_strangers();
    b.gate.store().close().unwrap();
    let mut told = Vec::new();
    let mut tell = |record: callgate_store::Record<'_>| {
        let body: Value = serde_json::from_str(record.body).unwrap();
        told.push((body["reason"].clone(), body["times"].clone()));
        true
    };
    b.gate.store().show(&Filter::default(), &mut tell).unwrap();
    assert_eq!(
        told,
        [("no_token", 1), ("invalid_token", 1000), ("origin", 1)]
            .map(|(reason, times)| (json!(reason), json!(times)))
    );
}

/// F-12, G-7: the rate, and when to come back.
#[tokio::test]
async fn rate_limited() {
    let tool = |tool: &mut Tool| {
        tool.rate_limit = Some(RateLimit {
            per_second: 1.0,
            burst: 1,
        });
    };
    let b = bench(
        "rate",
        Wanted {
            tool: Some(tool),
            ..Wanted::default()
        },
    );
    assert!(b.result(&b.call(json!({}))).await.is_ok());
    let refused = b.result(&b.call(json!({}))).await;
    assert_eq!(
        refused,
        Err(Fault::RateLimited {
            retry_after: Duration::from_secs(1)
        })
    );
    b.clock.advance(Duration::from_secs(1));
    assert!(b.result(&b.call(json!({}))).await.is_ok());
}

/// G-7, F-13: five crashes open the breaker, a probe after 30 s closes it again. A tool that
/// answers with an error of its own is no reason.
#[tokio::test]
async fn breaker() {
    let crash = |job: &Job<'_>| match job.call.input.value()["n"].as_i64() {
        Some(0) => Ok(Output::from_value(json!({}))),
        Some(1) => Err(Fault::Crash {
            message: "exit 1".into(),
        }),
        _ => Err(Fault::ToolFailed {
            error_type: "E".into(),
            message: "m".into(),
            content: None,
        }),
    };
    let b = bench(
        "breaker",
        Wanted {
            function: Some(Box::new(crash)),
            ..Wanted::default()
        },
    );
    for _ in 0..20 {
        let own = b.result(&b.call(json!({"n": 2}))).await;
        assert!(matches!(own, Err(Fault::ToolFailed { .. })));
    }
    for _ in 0..5 {
        assert!(matches!(
            b.result(&b.call(json!({"n": 1}))).await,
            Err(Fault::Crash { .. })
        ));
    }
    let open = b.result(&b.call(json!({"n": 0}))).await;
    assert_eq!(
        open,
        Err(Fault::BreakerOpen {
            retry_after: Duration::from_secs(30)
        })
    );
    b.clock.advance(Duration::from_secs(30));
    assert!(matches!(
        b.result(&b.call(json!({"n": 1}))).await,
        Err(Fault::Crash { .. })
    ));
    assert!(matches!(
        b.result(&b.call(json!({"n": 0}))).await,
        Err(Fault::BreakerOpen { .. })
    ));
    b.clock.advance(Duration::from_secs(30));
    assert!(b.result(&b.call(json!({"n": 0}))).await.is_ok());
    assert!(b.result(&b.call(json!({"n": 0}))).await.is_ok());
}

/// F-20: an output that breaks its schema is a failure of the tool.
#[tokio::test]
async fn output_is_checked() {
    let tool = |tool: &mut Tool| tool.output_schema = Some(json!({"required": ["done"]}));
    let b = bench(
        "output",
        Wanted {
            tool: Some(tool),
            ..Wanted::default()
        },
    );
    let result = b.result(&b.call(json!({}))).await;
    assert!(matches!(result, Err(Fault::BadOutput { .. })), "{result:?}");
    assert_eq!(
        b.result(&b.call(json!({"done": 1}))).await,
        Ok(json!({"done": 1}))
    );
}

/// Known secrets are in no answer and in no byte of the state.
#[tokio::test]
async fn secrets_never_leave() {
    let secret = "s3cr3t-value-77";
    let leak = move |job: &Job<'_>| {
        let words = format!("KEY={secret}");
        if job.call.input.value().get("n").is_some() {
            let request = json!({"method": "elicitation/create", "params": {"message": words}});
            return Err(Fault::NeedsInput {
                requests: [(secret.to_owned(), request)].into_iter().collect(),
                state: None,
            });
        }
        Ok(Output::from_value(json!({"env": words})))
    };
    let b = bench(
        "secrets",
        Wanted {
            function: Some(Box::new(leak)),
            secrets: vec![secret.into()],
            ..Wanted::default()
        },
    );
    assert_eq!(
        b.result(&b.keyed(json!({}), "k")).await,
        Ok(json!({"env": "KEY=[secret]"}))
    );
    // A question stays a question.
    let asked = b.result(&b.call(json!({"n": 1}))).await.unwrap_err();
    assert_eq!(asked.kind(), "needs_input");
    let wanted = json!({"method": "elicitation/create", "params": {"message": "KEY=[secret]"}});
    assert_eq!(asked.data(), json!({"requests": {"[secret]": wanted}}));
    b.gate.store().close().unwrap();
    let mut stack = vec![b.dir.clone()];
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes());
            assert!(!found, "{} has the secret", path.display());
        }
    }
}

/// Every plan says what it enforces: nothing yet, in the reply and in the chain.
#[tokio::test]
async fn enforcement_is_none_and_says_so() {
    let b = bench("none", Wanted::default());
    let outcome = b.gate.call(&b.call(json!({}))).await;
    assert_eq!(outcome.enforcement.level.as_str(), "none");
    let mut said = Vec::new();
    b.gate
        .store()
        .show(&Filter::default(), &mut |record| {
            let body: Value = serde_json::from_str(record.body).unwrap();
            said.push(body["enforcement"].clone());
            true
        })
        .unwrap();
    assert_eq!(said, [json!("none"), json!("none")]);
}
