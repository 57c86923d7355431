//! JSON that is passed on as it came, byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

/// One JSON value as text. Two are equal if their texts are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The JSON of `value`; `null` for what JSON can not say.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }

    /// A text, if it is one JSON value.
    #[must_use]
    pub fn from_text(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(Self)
    }

    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl Default for RawJson {
    fn default() -> Self {
        Self(RawValue::NULL.to_owned())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for RawJson {}
