//! Seeded mutations of what stands beside the params of a request, 100,000: it is read as it is
//! said, or refused with the name of what is wrong.

use super::*;
use callgate_testing::{Random, mutant};

const CASES: usize = 100_000;

const SEEDS: [&[u8]; 4] = [
    br#"{"idempotency_key":"k","lease_token":"lease_00","trace_id":"t","timeout_ms":5000}"#,
    br#"{"timeout_ms":1.5e3,"idempotency_key":null,"trace_id":"\u00e9"}"#,
    br#"{"lease_token":null,"timeout_ms":null}"#,
    br#"{"idempotency_key":"one that is longer"}"#,
];

const WORDS: [&[u8]; 19] = [
    b"{",
    b"}",
    b"[",
    b":",
    b",",
    b"\"",
    b"\"\"",
    b"null",
    b"true",
    b"0",
    b"-1",
    b".5",
    b"1e300",
    b"18446744073709551616",
    b"\"timeout_ms\":",
    b"\"timeout_ms\":0,",
    b"\"idempotency_key\":",
    b"\\ud800",
    b"\xff",
];

/// JR-16.
#[test]
fn beside_params() {
    let mut random = Random::new("beside params");
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..CASES {
        let bytes = mutant(&mut random, &SEEDS, &WORDS);
        let Ok(given) = json::parse(&bytes, json::DEPTH_MAX) else {
            continue;
        };
        match Ours::read(Some(&given)) {
            Ok(ours) => {
                check(&ours, &given);
                taken += 1;
            }
            Err(error) => {
                let data = error.data.unwrap_or_default();
                let field = data["field"].as_str().unwrap_or_default();
                let is_ours = field == "callgate" || field.starts_with("callgate.");
                assert!(error.code == -32602 && is_ours, "{given}: {data}");
                refused += 1;
            }
        }
    }
    eprintln!("beside params: {taken} taken, {refused} refused, of {CASES}");
    assert!(taken > 0 && refused > 0);
}

/// All that was said was heard, and nothing else.
fn check(ours: &Ours, given: &Value) {
    let members = given.as_object().expect("only an object is taken");
    for (name, value) in members {
        let said = match name.as_str() {
            "idempotency_key" => ours.key.clone().map(Value::from),
            "lease_token" => ours.lease.clone().map(Value::from),
            "trace_id" => ours.trace_id.clone().map(Value::from),
            "timeout_ms" => {
                let heard = ours.timeout.map(|timeout| timeout.as_millis());
                let said = natural_number(value).map(u128::from);
                assert!(heard == said && heard != Some(0), "{given}");
                assert_eq!(heard.is_none(), value.is_null(), "{given}");
                continue;
            }
            _ => panic!("{given}: {name} is not known"),
        };
        assert_eq!(said.unwrap_or_default(), *value, "{given}");
    }
    assert_ne!(ours.key.as_deref(), Some(""), "{given}");
    let silent = |name: &str| !members.contains_key(name);
    assert!(ours.key.is_none() || !silent("idempotency_key"), "{given}");
    assert!(ours.lease.is_none() || !silent("lease_token"), "{given}");
    assert!(ours.trace_id.is_none() || !silent("trace_id"), "{given}");
    assert!(ours.timeout.is_none() || !silent("timeout_ms"), "{given}");
}
