//! Whether the numbers of a text are spelt as what is digested of them. A double has many spellings,
//! and who reads one exactly, as Python's `decimal` does, gets another number by each. G-1f.

use serde_json::{Number, Value};

use crate::canonical::{digested_spelling, exact_integer};

/// Returns whether each number of valid JSON is the digested one when it is read exactly.
pub(crate) fn is_spelt_exactly(json: &str) -> bool {
    doubles(json.as_bytes()).all(is_digested)
}

/// Makes those doubles integers whose shortest spelling stands for another number than is digested:
/// a whole number from 2^53 on that fits 64 bits is digested by all of its digits. Returns whether
/// there were any.
pub(crate) fn name_exactly(value: &mut Value) -> bool {
    match value {
        Value::Number(number) => match integer_of(number) {
            Some(integer) => {
                *number = integer;
                true
            }
            None => false,
        },
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |any, item| any | name_exactly(item)),
        Value::Object(members) => members
            .values_mut()
            .fold(false, |any, member| any | name_exactly(member)),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

fn integer_of(number: &Number) -> Option<Number> {
    if !number.is_f64() || is_digested(&number.to_string()) {
        return None;
    }
    let whole = exact_integer(number)?;
    let positive = u64::try_from(whole).ok().map(Number::from);
    positive.or_else(|| i64::try_from(whole).ok().map(Number::from))
}

/// Returns whether a number of the value is a double.
pub(crate) fn has_double(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_double),
        Value::Object(members) => members.values().any(has_double),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Returns the numbers of valid JSON that have a fraction or an exponent.
fn doubles(json: &[u8]) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = json.get(at..).filter(|rest| !rest.is_empty())?;
            match rest[0] {
                b'"' => at += string_bytes(rest),
                b'-' | b'0'..=b'9' => {
                    let in_number =
                        |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                    let length = rest.iter().take_while(in_number).count();
                    at += length;
                    let number = std::str::from_utf8(&rest[..length]).unwrap_or_default();
                    if number.contains(['.', 'e', 'E']) {
                        return Some(number);
                    }
                }
                _ => at += 1,
            }
        }
    })
}

/// Returns the length of the string that begins here, with its quotes.
fn string_bytes(json: &[u8]) -> usize {
    let mut at = 1;
    loop {
        match json.get(at) {
            None => return json.len(),
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

fn is_digested(number: &str) -> bool {
    let Some(double) = number.parse().ok().and_then(Number::from_f64) else {
        return false;
    };
    let read = Decimal::read(number);
    read.is_some() && read == Decimal::read(&digested_spelling(&double))
}

/// A number without rounding: its digits neither begin nor end with a zero.
#[derive(Debug, Default, PartialEq)]
struct Decimal {
    is_negative: bool,
    digits: Vec<u8>,
    exponent: i64,
}

impl Decimal {
    /// Reads a JSON number; `None` of an exponent beyond all reason.
    fn read(number: &str) -> Option<Self> {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = whole.bytes().chain(fraction.bytes());
        let mut digits: Vec<u8> = all.skip_while(|digit| *digit == b'0').collect();
        let significant = digits.iter().rposition(|digit| *digit != b'0');
        let Some(last) = significant else {
            // One zero: the sign of it is no other value.
            return Some(Self::default());
        };
        let zeros = digits.len() - (last + 1);
        digits.truncate(last + 1);
        let exponent: i64 = exponent.parse().ok()?;
        let exponent = exponent
            .checked_sub(i64::try_from(fraction.len()).ok()?)?
            .checked_add(i64::try_from(zeros).ok()?)?;
        Some(Self {
            is_negative,
            digits,
            exponent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_exact(text: &str) -> bool {
        let value: Value = serde_json::from_str(text).expect("JSON");
        let kept = crate::Document::of_input(value, text.to_owned()).text() == text;
        assert_eq!(kept, is_spelt_exactly(text), "{text}");
        kept
    }

    /// G-1f: integers, shortest spellings and other spellings of the same decimal stay.
    #[test]
    fn kept_as_sent() {
        for number in [
            "0",
            "-0",
            "-0.0",
            "0e-999999999999999999999",
            "1.0",
            "1.50",
            "15e-1",
            "0.1",
            "1e3",
            "1E+3",
            "9007199254740993",
            "18446744073709551615",
            "9007199254740992.0",
            "9223372036854775808e0",
            "1.8446744073709552e19",
            "1e21",
            "5e-324",
            "1.7976931348623157e308",
        ] {
            assert!(is_exact(number), "{number}");
            let text = format!("{{ \"a\\\"0.10000000000000000555\": [\"1e\", {number} ,7] }}");
            assert!(is_exact(&text), "{text}");
        }
    }

    /// G-1f: what rounds to the digested number, or is a short name of it, is not it.
    #[test]
    fn written_anew() {
        for (number, anew) in [
            ("9007199254740993.0", "9007199254740992.0"),
            ("18446744073709551617.0", "1.8446744073709552e+19"),
            ("18446744073709551616.0", "1.8446744073709552e+19"),
            ("9.223372036854776e18", "9223372036854775808"),
            ("-9.223372036854776e18", "-9223372036854775808"),
            ("0.10000000000000000555", "0.1"),
            ("2e-324", "0.0"),
            ("1e-999999999999999999999", "0.0"),
            ("3e-324", "5e-324"),
        ] {
            let text = format!("[1, \"\\\\\", {number}]");
            assert!(!is_exact(&text), "{text}");
            let value = serde_json::from_str(&text).expect("JSON");
            let input = crate::Document::of_input(value, text);
            assert_eq!(input.text(), format!("[1,\"\\\\\",{anew}]"));
            assert_eq!(input.value().to_string(), input.text());
            assert!(is_exact(input.text()), "{}", input.text());
        }
    }
}
