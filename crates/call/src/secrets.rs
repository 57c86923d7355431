//! Values that must never be stored, logged or answered, and their removal.

use std::borrow::Cow;

use serde_json::Value;

/// What stands in a secret's place.
pub(crate) const PLACEHOLDER: &str = "[secret]";

/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 4;

/// The known secrets. Prints nothing of them.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Longer values go first, so that a secret inside another does not break it up.
    #[must_use]
    pub fn new(mut values: Vec<String>) -> Self {
        values.retain(|value| value.len() >= SECRET_BYTES_MIN);
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Self(values)
    }

    /// True if nothing is secret, so that nothing needs to be looked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The longer ones first.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Bytes of the longest: so much must be seen with a text that was cut, to find a secret
    /// at the cut.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }

    /// Bytes at the end of `text` with which a secret may have begun: what comes next shows
    /// whether one has.
    #[must_use]
    pub fn begun(&self, text: &str) -> usize {
        let begun = |secret: &String| {
            let longest = text.len().min(secret.len() - 1);
            let (text, secret) = (text.as_bytes(), secret.as_bytes());
            (1..=longest)
                .rev()
                .find(|&length| text.ends_with(&secret[..length]))
        };
        self.0.iter().filter_map(begun).max().unwrap_or(0)
    }

    /// The text without its secrets; `None` if it has none.
    #[must_use]
    pub fn cleaned(&self, text: &str) -> Option<String> {
        let mut cleaned: Option<String> = None;
        for secret in &self.0 {
            let current = cleaned.as_deref().unwrap_or(text);
            if current.contains(secret.as_str()) {
                cleaned = Some(current.replace(secret.as_str(), PLACEHOLDER));
            }
        }
        cleaned
    }

    /// The text without its secrets.
    #[must_use]
    pub fn clean<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.cleaned(text).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Cleans every string and key inside `value`; true if anything was found.
    pub fn clean_value(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => match self.cleaned(text) {
                Some(cleaned) => {
                    *text = cleaned;
                    true
                }
                None => false,
            },
            Value::Array(items) => items
                .iter_mut()
                .fold(false, |found, item| self.clean_value(item) | found),
            Value::Object(members) => {
                let mut found = false;
                for key in members.keys().cloned().collect::<Vec<_>>() {
                    if let Some(cleaned) = self.cleaned(&key)
                        && let Some(inner) = members.remove(&key)
                    {
                        members.insert(cleaned, inner);
                        found = true;
                    }
                }
                members
                    .values_mut()
                    .fold(found, |found, inner| self.clean_value(inner) | found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// in strings, in keys, at any depth, and one inside another.
    #[test]
    fn found_everywhere() {
        let secrets = Secrets::new(vec!["s3cret".into(), "s3cret-long".into(), "abc".into()]);
        let mut value = json!({"a": ["x s3cret-long y", {"s3cret": 1}], "abc": "abc"});
        assert!(secrets.clean_value(&mut value));
        assert_eq!(
            value,
            json!({"a": ["x [secret] y", {"[secret]": 1}], "abc": "abc"})
        );
        assert!(!secrets.clean_value(&mut json!({"clean": true})));
        assert_eq!(format!("{secrets:?}"), "Secrets(2)");
    }

    #[test]
    fn the_beginning_of_one_is_seen() {
        let secrets = Secrets::new(vec!["abab-é!".into(), "xyzzy".into()]);
        for (text, begun) in [
            ("", 0),
            ("plain", 0),
            ("b", 0),
            ("tab", 2),
            ("ab-ab", 2),
            ("aabab-é", 7),
            ("abab-é!", 0),
            ("é xyz", 3),
        ] {
            assert_eq!(secrets.begun(text), begun, "{text}");
        }
    }
}
