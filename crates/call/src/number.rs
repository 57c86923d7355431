//! Numbers of a call's input. A schema's `integer` is a matter of value and not of spelling: 5,
//! 5.0 and 0.5e1 are the same number, and are to be taken the same.

use serde_json::Value;

/// A whole number, or the nearest one that can be had where it is out of range; nothing if it is
/// none.
#[must_use]
pub fn whole_number(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is out of range becomes the nearest"
    )]
    (number.fract() == 0.0).then_some(number as i64)
}

/// The same where there is nothing below zero.
#[must_use]
pub fn natural_number(value: &Value) -> Option<u64> {
    u64::try_from(whole_number(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_their_value() {
        for (text, whole) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("1e3", Some(1000)),
            ("0.5e1", Some(5)),
            ("-2.0", Some(-2)),
            ("9223372036854775808", Some(i64::MAX)),
            ("18446744073709551616", Some(i64::MAX)),
            ("1e300", Some(i64::MAX)),
            ("-1e300", Some(i64::MIN)),
            ("0.5", None),
            ("1e-3", None),
            ("null", None),
            ("\"5\"", None),
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(whole_number(&value), whole, "{text}");
            let natural = whole.and_then(|whole| u64::try_from(whole).ok());
            assert_eq!(natural_number(&value), natural, "{text}");
        }
    }
}
