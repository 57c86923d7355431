//! Secrets on their way out: a payload may carry the value of a known secret only if the tool
//! is allowed to have it.

use std::collections::BTreeSet;
use std::fmt;

use callgate_call::{Fault, Guarantee};
use serde_json::Value;

/// Shorter values would be found everywhere.
const SECRET_BYTES_MIN: usize = 4;

/// Known secrets by name. Prints nothing of them.
#[derive(Clone, Default)]
pub struct NamedSecrets(Vec<(String, String)>);

impl fmt::Debug for NamedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedSecrets({})", self.0.len())
    }
}

impl NamedSecrets {
    /// Pairs of name and value.
    #[must_use]
    pub fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.retain(|(_, value)| value.len() >= SECRET_BYTES_MIN);
        Self(pairs)
    }

    /// True if this is, by name or value, a secret that is not among `allowed`.
    pub(crate) fn is_withheld(&self, name: &str, value: &str, allowed: &BTreeSet<String>) -> bool {
        self.0
            .iter()
            .any(|(known, secret)| !allowed.contains(known) && (known == name || secret == value))
    }

    /// Refuses a payload with a secret in it that is not among `allowed`.
    pub(crate) fn look(&self, payload: &Value, allowed: &BTreeSet<String>) -> Result<(), Fault> {
        let mut withheld = self.0.iter().filter(|(name, _)| !allowed.contains(name));
        if withheld.any(|(_, secret)| holds(payload, secret)) {
            return Err(Fault::GuaranteeBlocked {
                guarantee: Guarantee::SecretsAllowed.name().to_owned(),
                detail: String::new(),
            });
        }
        Ok(())
    }
}

/// True if the text is in any string or key.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(string) => string.contains(text),
        Value::Array(items) => items.iter().any(|item| holds(item, text)),
        Value::Object(members) => members
            .iter()
            .any(|(key, value)| key.contains(text) || holds(value, text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn found_unless_allowed() {
        let pairs = [
            ("KEY", "s3cret"),
            ("OTHER", "other-value"),
            ("SHORT", "abc"),
        ];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = NamedSecrets::new(pairs.to_vec());
        let allowed = BTreeSet::from(["OTHER".to_owned()]);
        for clean in [
            json!({}),
            json!({"a": ["abc", 1, null]}),
            json!("other-value"),
        ] {
            assert!(secrets.look(&clean, &allowed).is_ok(), "{clean}");
        }
        for leak in [
            json!({"a": ["x s3cret y"]}),
            json!({"s3cret": 1}),
            json!("s3cret"),
        ] {
            let fault = secrets.look(&leak, &allowed).unwrap_err();
            assert_eq!(fault.to_string(), "blocked by guarantee secrets_allowed");
        }
        assert!(secrets.is_withheld("KEY", "x", &allowed));
        assert!(secrets.is_withheld("ALIAS", "s3cret", &allowed));
        assert!(!secrets.is_withheld("OTHER", "other-value", &allowed));
        assert_eq!(format!("{secrets:?}"), "NamedSecrets(2)");
    }
}
