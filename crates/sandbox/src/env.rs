//! A child's environment: an allow list and what the tool declares, nothing else. Reading
//! our own environment is the app's affair.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// What every child may see.
const ALLOWED: [&str; 7] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME"];

/// Where programs are looked for if nobody says.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The environment of a child: the allowed and the `declared` variables of `from`. There is
/// always a `PATH`.
#[must_use]
pub fn scrubbed_env(
    from: &BTreeMap<OsString, OsString>,
    declared: &[String],
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<_> = from
        .iter()
        .filter(|(name, _)| {
            is_allowed(name) || declared.iter().any(|word| name == &OsStr::new(word))
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env
}

fn is_allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(b"LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect()
    }

    fn names(env: &[(OsString, OsString)]) -> Vec<&str> {
        env.iter().map(|(name, _)| name.to_str().unwrap()).collect()
    }

    #[test]
    fn only_what_is_allowed_or_declared_passes() {
        let ours = map(&[
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("LD_PRELOAD", "x.so"),
            ("MY_KEY", "k"),
            ("PATH", "/bin"),
            ("PYTHONPATH", "/p"),
        ]);
        let env = scrubbed_env(&ours, &["MY_KEY".to_owned(), "ABSENT".to_owned()]);
        assert_eq!(names(&env), ["HOME", "LC_ALL", "MY_KEY", "PATH"]);
    }

    #[test]
    fn there_is_always_a_path() {
        let env = scrubbed_env(&map(&[]), &[]);
        assert_eq!(env, [("PATH".into(), DEFAULT_PATH.into())]);
    }
}
