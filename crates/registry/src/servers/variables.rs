//! References in the settings of a server: `${VAR}`, `${VAR:-default}`, `${secret:NAME}`,
//! `${file:/path}` and `${server:home}`.
//!
//! A reference without a value is an error that names it: a server that is started with the text
//! `${TOKEN}` as its token fails in ways that nobody understands.

use std::collections::BTreeSet;
use std::path::Path;

use callgate_call::bounded::read_path_text;
use callgate_runners::HOME_PLACEHOLDER;
use callgate_store::{OwnerSecretError, OwnerSecrets};

use crate::environment::Environment;

/// Longest file that a reference takes in.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Why a text cannot be expanded.
#[derive(Debug, thiserror::Error)]
pub enum VariableError {
    /// A variable without a value and without a default.
    #[error(
        "`${{{0}}}` is not set: set it where the gate is started, or write `${{{0}:-default}}`"
    )]
    Unset(String),
    /// A reference that does not end.
    #[error("`{0}` has a `${{` without a `}}`")]
    Open(String),
    /// A reference that names nothing.
    #[error(
        "`${{{0}}}` is no reference: `${{VAR}}`, `${{VAR:-default}}`, `${{secret:NAME}}`, `${{file:/path}}` and `${{server:home}}` are"
    )]
    Unknown(String),
    /// The home of a server that has none.
    #[error("`${{server:home}}` is for servers that keep a home: `pure` ones do not")]
    NoHome,
    /// A secret.
    #[error(transparent)]
    Secret(#[from] OwnerSecretError),
    /// A file.
    #[error("`${{file:{path}}}`")]
    File {
        /// As written.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// A text with its references replaced.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The text.
    pub text: String,
    /// The names of the secrets in it.
    pub secrets: BTreeSet<String>,
    /// The values that are secret.
    pub secret_values: Vec<String>,
}

/// Values of references.
pub struct Variables<'a> {
    /// For `${VAR}`.
    pub environment: &'a Environment,
    /// For `${secret:NAME}`.
    pub secrets: &'a OwnerSecrets,
    /// The variables that hold a secret.
    pub secret_variables: &'a [String],
    /// Whether the server has a home.
    pub has_home: bool,
}

impl Variables<'_> {
    /// Replaces the references in `text`.
    pub fn expand(&self, text: &str) -> Result<Expanded, VariableError> {
        let mut out = Expanded::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            // A dollar in front makes it a text: `$${` is `${`.
            if let Some(before) = before.strip_suffix('$') {
                out.text.push_str(before);
                out.text.push_str("${");
                rest = after;
                continue;
            }
            let (reference, after) = after
                .split_once('}')
                .ok_or_else(|| VariableError::Open(text.to_owned()))?;
            out.text.push_str(before);
            self.add(reference, &mut out)?;
            rest = after;
        }
        out.text.push_str(rest);
        Ok(out)
    }

    fn add(&self, reference: &str, out: &mut Expanded) -> Result<(), VariableError> {
        if let Some(name) = reference.strip_prefix("secret:") {
            let value = self.secrets.get(name)?;
            out.text.push_str(value.reveal());
            out.secrets.insert(name.to_owned());
            out.secret_values.push(value.reveal().to_owned());
            return Ok(());
        }
        if reference == "server:home" {
            if !self.has_home {
                return Err(VariableError::NoHome);
            }
            // The home is known once a process starts.
            out.text.push_str(HOME_PLACEHOLDER);
            return Ok(());
        }
        if let Some(path) = reference.strip_prefix("file:") {
            let text = read_path_text(Path::new(path), FILE_BYTES_MAX).map_err(|source| {
                let path = path.to_owned();
                VariableError::File { path, source }
            })?;
            out.text.push_str(text.trim_end_matches(['\n', '\r']));
            return Ok(());
        }
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if !is_variable(name) {
            return Err(VariableError::Unknown(reference.to_owned()));
        }
        let value = self.environment.text(name).or(default);
        let value = value.ok_or_else(|| VariableError::Unset(name.to_owned()))?;
        out.text.push_str(value);
        if self.secret_variables.iter().any(|secret| secret == name) {
            out.secrets.insert(name.to_owned());
            out.secret_values.push(value.to_owned());
        }
        Ok(())
    }
}

fn is_variable(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_word) && !name.as_bytes()[0].is_ascii_digit()
}

/// The names of secrets that a text refers to, whether or not they are kept.
pub fn secrets_in(text: &str) -> impl Iterator<Item = &str> {
    let references = text.split("${").skip(1);
    references.filter_map(|rest| rest.strip_prefix("secret:")?.split('}').next())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use callgate_testing::TempFolder;

    use super::*;

    #[test]
    fn references() {
        let folder = TempFolder::new();
        let secrets = OwnerSecrets::of_state(folder.path());
        secrets.set("github", "ghp_x").unwrap();
        let file = folder.write("f", "text\n");
        let variables = [("A", "1"), ("T", "tok"), ("EMPTY", "")];
        let variables: BTreeMap<_, _> = variables.map(|(k, v)| (k.into(), v.into())).into();
        let environment = Environment::new(variables, "/".into(), 0);
        let known = Variables {
            environment: &environment,
            secrets: &secrets,
            secret_variables: &["T".to_owned()],
            has_home: true,
        };
        let text = |text: &str| known.expand(text).map(|out| out.text);
        for (written, wanted) in [
            ("plain $A {A}", "plain $A {A}"),
            ("$${A} $${", "${A} ${"),
            ("a${A}b${A}", "a1b1"),
            ("${B:-x y}", "x y"),
            ("${A:-x}", "1"),
            ("${EMPTY:-x}", "x"),
            ("${B:-}", ""),
            ("Bearer ${secret:github}", "Bearer ghp_x"),
        ] {
            assert_eq!(text(written).unwrap(), wanted, "{written}");
        }
        assert_eq!(
            text(&format!("${{file:{}}}", file.display())).unwrap(),
            "text"
        );
        let out = known.expand("${secret:github} ${T}").unwrap();
        assert_eq!(out.secret_values, ["ghp_x", "tok"]);
        assert_eq!(Vec::from_iter(out.secrets), ["T", "github"]);
        for (written, words) in [
            ("${B}", "`${B}` is not set"),
            ("${B", "without a `}`"),
            ("${input:x}", "is no reference"),
            ("${secret:none}", "there is no secret `none`"),
            ("${secret:../x}", "is not the name of a secret"),
            ("${file:/nowhere/x}", "/nowhere/x"),
            ("${}", "is no reference"),
        ] {
            let refused = text(written).unwrap_err().to_string();
            assert!(refused.contains(words), "{written}: {refused}");
        }
        assert_eq!(
            text("${server:home}/x").unwrap(),
            format!("{HOME_PLACEHOLDER}/x")
        );
        let homeless = Variables {
            has_home: false,
            ..known
        };
        let refused = homeless.expand("${server:home}");
        assert!(matches!(refused, Err(VariableError::NoHome)), "{refused:?}");
        let named: Vec<_> = secrets_in("a ${secret:b} ${secret:c}").collect();
        assert_eq!(named, ["b", "c"]);
    }
}
