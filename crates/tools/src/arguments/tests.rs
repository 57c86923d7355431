//! Tests of how arguments are read.

mod agreement;

use super::*;
use serde_json::json;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    name: bool,
}

/// A refusal says what is expected and repeats nothing of a value.
#[test]
fn refusals_repeat_no_value() {
    for (input, reason) in [
        (json!({}), "missing field `name`"),
        (json!({ "name": "private" }), "expected a boolean"),
        (json!({ "name": "x, expected y" }), "expected a boolean"),
        (json!({ "name": true, "more": 1 }), "expected `name`"),
        (json!([]), "expected struct Sample with 1 element"),
    ] {
        let Err(Fault::BadInput { field, reason: why }) = arguments::<Sample>(&input) else {
            panic!("{input} is taken");
        };
        assert_eq!((&*field, &*why), ("", reason), "{input}");
    }
}

/// Numbers are read by the same rule as those of an untyped input.
#[test]
fn numbers_by_their_value() {
    for text in [
        "0",
        "5",
        "5.0",
        "1e3",
        "0.5e1",
        "-2",
        "-2.0",
        "0.5",
        "1e300",
        "-1e300",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
    ] {
        let value: Value = serde_json::from_str(text).unwrap();
        let whole = arguments::<WholeNumber>(&value).ok();
        assert_eq!(whole.map(|number| number.0), whole_number(&value), "{text}");
        let natural = arguments::<NaturalNumber>(&value).ok();
        assert_eq!(
            natural.map(|number| number.0),
            natural_number(&value),
            "{text}"
        );
    }
    assert!(arguments::<WholeNumber>(&json!("5")).is_err());
}
