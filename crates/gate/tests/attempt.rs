//! A call is tried where it was read, and goes by the configuration that its tool was found in.

use std::sync::Arc;

use crate::support::{Wanted, bench};
use callgate_call::{Call, Fault, Job, Output, RunFuture, Runner, Tool};
use callgate_gate::{Attempt, Catalog, Decision, Gate, Policy, Rule, Setup};
use serde_json::{Value, json};

/// The tool of a later configuration.
struct Later;

impl Runner for Later {
    fn run<'a>(&'a self, _: Job<'a>) -> RunFuture<'a> {
        Box::pin(async { Ok(Output::from_value(json!("later"))) })
    }

    fn kind(&self) -> &'static str {
        "test"
    }
}

/// Another tool under the name, with another schema, that another policy forbids.
fn later(decision: Decision) -> Setup {
    let mut catalog = Catalog::default();
    let tool = Tool {
        input_schema: json!({"type": "object", "properties": {"n": {"type": "string"}}}),
        aliases: vec!["work".into()],
        ..Tool::new("demo/work", Arc::new(Later))
    };
    catalog.add(tool).unwrap();
    let rule = Rule {
        tools: vec!["*".into()],
        callers: vec!["*".into()],
        decision,
        approve_by_client: false,
    };
    let policy = Policy {
        rules: vec![rule],
        ..Policy::default()
    };
    Setup {
        catalog,
        policy,
        ..Setup::default()
    }
}

fn output(attempt: Attempt) -> Option<Result<Value, Fault>> {
    match attempt {
        Attempt::Done(answer) => Some(answer.outcome.result.map(|output| output.json.into_value())),
        Attempt::Pending(_) => None,
    }
}

/// A reload between the lookup of a tool and its run mixes nothing of the two: schema, policy, tool
/// and output are all of the one that was found.
#[tokio::test]
async fn a_reload_does_not_mix_two_tools() {
    for is_pure in [false, true] {
        let wanted = Wanted {
            is_pure,
            ..Wanted::default()
        };
        let b = bench("reload", wanted);
        let (call, found) = (b.call(json!({"n": 1})), b.gate.find("work"));
        b.gate.replace(later(Decision::Deny));
        assert!(matches!(
            b.result(&b.call(json!({}))).await,
            Err(Fault::Denied { .. })
        ));
        let attempt = b.gate.attempt(call, found.clone(), |_| {});
        assert_eq!(
            output(attempt),
            Some(Ok(json!({"n": 1}))),
            "pure: {is_pure}"
        );
        let answer = b.gate.invoke_found(&b.call(json!({"n": 1})), &found).await;
        let output = answer.outcome.result.unwrap();
        assert_eq!(output.json.value(), &json!({"n": 1}));
        assert_eq!(b.ran(), 2);

        let found = b.gate.find("work");
        b.gate.replace(later(Decision::Allow));
        let refused = b.gate.invoke_found(&b.call(json!({})), &found).await;
        assert!(matches!(refused.outcome.result, Err(Fault::Denied { .. })));
        assert_eq!(b.result(&b.call(json!({}))).await, Ok(json!("later")));
        let bad = b.result(&b.call(json!({"n": 1}))).await;
        assert!(matches!(bad, Err(Fault::BadInput { .. })), "{bad:?}");
        assert_eq!(b.ran(), 2);
    }
}

fn attempt(gate: &Arc<Gate>, call: Call) -> (Attempt, bool) {
    let (found, mut is_prepared) = (gate.find(&call.tool), false);
    let attempt = gate.attempt(call, found, |_| is_prepared = true);
    (attempt, is_prepared)
}

/// What waits for nothing is done; what is pure needs not even be prepared to wait.
#[tokio::test]
async fn attempts() {
    for is_pure in [false, true] {
        let wanted = Wanted {
            is_pure,
            ..Wanted::default()
        };
        let b = bench("attempts", wanted);
        let (done, is_prepared) = attempt(&b.gate, b.call(json!({"n": 1})));
        assert_eq!(output(done), Some(Ok(json!({"n": 1}))));
        assert_eq!(is_prepared, !is_pure);
        let mut unknown = b.call(json!({}));
        unknown.tool = "nobody".to_owned();
        let (refused, _) = attempt(&b.gate, unknown);
        assert_eq!(output(refused), Some(Err(Fault::unknown_tool("nobody"))));
    }
    let hold = Arc::new(tokio::sync::Semaphore::new(0));
    let wanted = Wanted {
        hold: Some(Arc::clone(&hold)),
        ..Wanted::default()
    };
    let b = bench("waits", wanted);
    let (Attempt::Pending(pending), true) = attempt(&b.gate, b.call(json!({"n": 1}))) else {
        panic!("it waits");
    };
    assert_eq!(b.ran(), 1, "it was begun where it was read");
    let work = tokio::spawn(pending.settled(Arc::clone(&b.gate)));
    hold.add_permits(1);
    let output = work.await.unwrap().result.unwrap();
    assert_eq!(output.json.value(), &json!({"n": 1}));
    assert_eq!(b.ran(), 1);
}

/// A panic ends the task of its call, and not whoever read the call.
#[tokio::test]
async fn a_panic_is_the_task_s() {
    let wanted = Wanted {
        function: Some(Box::new(|_| panic!("on purpose"))),
        ..Wanted::default()
    };
    let b = bench("panics", wanted);
    let (Attempt::Pending(pending), _) = attempt(&b.gate, b.call(json!({}))) else {
        panic!("it broke off");
    };
    let ended = tokio::spawn(pending.settled(Arc::clone(&b.gate))).await;
    assert!(ended.unwrap_err().is_panic());
}
