//! A child's environment: an allow list and what the tool declares, nothing else. Reading
//! our own environment is the app's affair.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use callgate_call::{Guarantee, Needs};

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

/// What is technically needed where nothing of an environment may be read.
const NEEDED: [&str; 2] = ["LANG", "LC_ALL"];

/// The part of `env` that needs let through. `secrets` are the variables that hold one, each
/// with the name of the secret.
#[must_use]
pub fn held_env(
    env: &[(OsString, OsString)],
    secrets: &BTreeMap<String, String>,
    needs: &Needs,
) -> Vec<(OsString, OsString)> {
    if needs.guarantees.requires(Guarantee::NoEnvRead) {
        // Those of ours are how a worker is told its part.
        let is_held = env.iter().any(|(name, _)| name == "CALLGATE_IMPORTS");
        let needed = |(name, _): &&(OsString, OsString)| {
            NEEDED.iter().any(|word| name == word)
                || name.as_bytes().starts_with(b"CALLGATE_")
                // Where Python finds what holds it to the code of its tool.
                || (is_held && name == "PYTHONPATH")
        };
        let mut env: Vec<_> = env.iter().filter(needed).cloned().collect();
        env.push(("PATH".into(), DEFAULT_PATH.into()));
        return env;
    }
    let Some(allowed) = needs.guarantees.secrets() else {
        return env.to_vec();
    };
    let passes = |(name, _): &&(OsString, OsString)| {
        let secret = name.to_str().and_then(|name| secrets.get(name));
        secret.is_none_or(|secret| allowed.contains(secret))
    };
    env.iter().filter(passes).cloned().collect()
}

fn is_allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(b"LC_")
}

#[cfg(test)]
mod tests {
    use callgate_call::Asker;

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

    /// TP-35: a secret needs both to be let through.
    #[test]
    fn promises_narrow_it() {
        let env: Vec<_> = map(&[("KEY", "k"), ("LANG", "C"), ("OTHER", "o"), ("PATH", "/p")])
            .into_iter()
            .collect();
        let secrets = BTreeMap::from([("KEY".to_owned(), "TOKEN".to_owned())]);
        let held = |needs: &Needs| held_env(&env, &secrets, needs);
        let mut needs = Needs::default();
        assert_eq!(held(&needs), env);
        let allow = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        needs
            .guarantees
            .allow_secrets(allow(&["TOKEN"]), Asker::Tool);
        assert_eq!(held(&needs), env);
        needs.guarantees.allow_secrets(allow(&[]), Asker::User);
        assert_eq!(names(&held(&needs)), ["LANG", "OTHER", "PATH"]);
        needs.guarantees.require(Guarantee::NoEnvRead, Asker::User);
        assert_eq!(
            held(&needs),
            [
                ("LANG".into(), "C".into()),
                ("PATH".into(), DEFAULT_PATH.into())
            ]
        );
    }

    #[test]
    fn there_is_always_a_path() {
        let env = scrubbed_env(&map(&[]), &[]);
        assert_eq!(env, [("PATH".into(), DEFAULT_PATH.into())]);
    }
}
