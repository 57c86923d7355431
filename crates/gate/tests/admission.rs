//! Admission: scopes and rates of tokens, strangers, rates and breakers of tools.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Wanted, bench};
use callgate_call::{Caller, Fault, Job, Output, RateLimit, Scope, Tier, Tool, Wire};
use callgate_store::Filter;
use serde_json::{Value, json};

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
            is_mcp: false,
            is_only: false,
            client: None,
            tools: vec![tools.to_owned()],
            tier_max,
            rate: Some(rate),
        }));
        call
    };
    let unknown = Err(Fault::unknown_tool("demo/work"));
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
    assert_eq!(b.result(&good).await, Err(Fault::rate_limited(wait)));
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
    assert_eq!(refused, Err(Fault::rate_limited(Duration::from_secs(1))));
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

/// G-7: a tool that runs what its caller names is not to blame for it.
#[tokio::test]
async fn no_breaker_for_what_callers_run() {
    let late = |_: &Job<'_>| {
        Err(Fault::Timeout {
            after: Duration::from_secs(1),
        })
    };
    let b = bench(
        "callers_code",
        Wanted {
            function: Some(Box::new(late)),
            tool: Some(|tool: &mut Tool| tool.runs_callers_code = true),
            ..Wanted::default()
        },
    );
    for _ in 0..20 {
        let ended = b.result(&b.call(json!({}))).await;
        assert!(matches!(ended, Err(Fault::Timeout { .. })), "{ended:?}");
    }
}

/// G-7: callers who wait for less than a tool may take open its breaker for nobody, nor do they
/// close it; at its own timeout, or past it, they count as all others.
#[tokio::test]
async fn no_breaker_for_the_impatient() {
    let late = |job: &Job<'_>| {
        Err(Fault::Timeout {
            after: job.timeout.until(),
        })
    };
    let own = Duration::from_secs(5);
    for (own, usual) in [(Some(own), own), (None, Wire::Gate.default_timeout())] {
        let b = bench(
            "impatient",
            Wanted {
                function: Some(Box::new(late)),
                tool: Some(match own {
                    Some(_) => |tool: &mut Tool| tool.timeout = Some(Duration::from_secs(5)),
                    None => |_: &mut Tool| {},
                }),
                ..Wanted::default()
            },
        );
        let within = async |timeout: Duration| {
            let mut call = b.call(json!({}));
            call.default_timeout = timeout;
            call.timeout_max = Some(timeout);
            b.result(&call).await
        };
        let short = usual - Duration::from_millis(1);
        for _ in 0..20 {
            assert_eq!(within(short).await, Err(Fault::Timeout { after: short }));
        }
        for longer in [0, 0, 1, 1] {
            let ended = within(usual + Duration::from_millis(longer)).await;
            assert!(matches!(ended, Err(Fault::Timeout { .. })), "{ended:?}");
        }
        within(short).await.unwrap_err();
        within(usual).await.unwrap_err();
        let open = within(short).await;
        assert!(matches!(open, Err(Fault::BreakerOpen { .. })), "{open:?}");
    }
}
