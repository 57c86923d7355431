//! The pipeline stage by stage: what is refused before anything runs, what is checked after, and what
//! the chain says of it.

use crate::support::{Wanted, bench, kinds};
use callgate_call::{Caller, Fault, Job, Output, Tool};
use callgate_gate::{Decision, Rule};
use callgate_store::Filter;
use serde_json::{Value, json};

/// F-1, F-3: refused before anything runs, and recorded as refusals.
#[tokio::test]
async fn find_and_check_input() {
    let b = bench("find", Wanted::default());
    let mut unknown = b.call(json!({}));
    unknown.tool = "nobody".into();
    assert_eq!(b.result(&unknown).await, Err(Fault::unknown_tool("nobody")));
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
