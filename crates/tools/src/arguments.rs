//! Arguments of built-in tools: the JSON of a call becomes the struct that a tool declares next to
//! its schema. The gate has checked that schema before the tool runs, so a mismatch here is a
//! defect of the struct; `tests::agreement` is the test that there is none.

#[cfg(test)]
mod tests;

use std::time::Duration;

use callgate_call::{Fault, natural_number, whole_number};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Number, Value};

/// Reads the arguments of a call. Texts are borrowed from `input`.
pub(crate) fn arguments<'a, T: Deserialize<'a>>(input: &'a Value) -> Result<T, Fault> {
    T::deserialize(input).map_err(|error| Fault::BadInput {
        field: String::new(),
        reason: expectation(&error),
    })
}

/// Describes what would have been right. The beginning of the error's own text repeats the value,
/// which may be large or private.
fn expectation(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once("expected ") {
        Some((_, expected)) => format!("expected {expected}"),
        None => text,
    }
}

/// A whole number, however it is spelt: 5, 5.0 and 0.5e1 are the same. The nearest `i64` stands
/// for one that is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WholeNumber(pub(crate) i64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::Number(Number::deserialize(deserializer)?);
        let whole = whole_number(&number).map(Self);
        whole.ok_or_else(|| D::Error::custom("expected a whole number"))
    }
}

/// A whole number that is not negative, read as [`WholeNumber`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NaturalNumber(pub(crate) u64);

impl NaturalNumber {
    /// The number as a count of things in memory.
    pub(crate) fn count(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// The number as so many milliseconds.
    pub(crate) fn milliseconds(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl<'de> Deserialize<'de> for NaturalNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::Number(Number::deserialize(deserializer)?);
        let natural = natural_number(&number).map(Self);
        natural.ok_or_else(|| D::Error::custom("expected a whole number that is not negative"))
    }
}

/// The default of a flag that is set unless a call clears it.
pub(crate) fn set() -> bool {
    true
}
