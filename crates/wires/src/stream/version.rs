//! Versions of the contract. S-4.

/// The version that our own executors announce.
pub const CONTRACT_VERSION: &str = "0.13.4";

/// The part before the first dot, if it is a number.
#[must_use]
pub fn major(version: &str) -> Option<u64> {
    let first = version.split('.').next()?;
    let digits = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| first.parse().ok()).flatten()
}

/// True for a version that is taken: one of a configured set, or without one any with the
/// major version of [`CONTRACT_VERSION`].
#[must_use]
pub fn accepts<S: AsRef<str>>(said: &str, configured: &[S]) -> bool {
    if configured.is_empty() {
        return major(said).is_some() && major(said) == major(CONTRACT_VERSION);
    }
    configured.iter().any(|version| version.as_ref() == said)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-4: our major version by default, else the set and nothing beside it.
    #[test]
    fn which_versions_are_taken() {
        let none: [&str; 0] = [];
        for (said, taken) in [
            ("0.1.0", true),
            ("0.13.4", true),
            ("0", true),
            ("00.1", true),
            ("1.0.0", false),
            ("", false),
            (".1", false),
            ("v0.1", false),
            ("+0.1", false),
            ("99999999999999999999.0", false),
        ] {
            assert_eq!(accepts(said, &none), taken, "{said:?}");
        }
        assert!(accepts("2.0.0", &["1.0.0", "2.0.0"]));
        assert!(!accepts("0.13.4", &["1.0.0".to_owned()]));
    }
}
