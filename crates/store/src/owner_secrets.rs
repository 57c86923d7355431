//! Secrets that the owner gave into keeping, for the variables of MCP servers: a file (0600) for
//! each in a folder (0700) of the state. They are not encrypted: a key beside them would not make
//! them safer than their modes do.
//!
//! Not here: which server gets which, and their removal from what is recorded.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use callgate_call::bounded::read_path_text;

use crate::StoreError;
use crate::folders::write_owner_file;

/// The folder in a state.
const FOLDER: &str = "secrets";

/// Longest value.
const VALUE_BYTES_MAX: u64 = 64 * 1024;

/// Longest name.
const NAME_BYTES_MAX: usize = 64;

/// Most secrets of one state.
const SECRETS_MAX: usize = 1_000;

/// The secrets of one state.
#[derive(Clone, Debug)]
pub struct OwnerSecrets {
    folder: PathBuf,
}

/// The value of a secret. Prints as `…`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(String);

impl SecretValue {
    /// The value itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Why a secret cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum OwnerSecretError {
    /// Not a name of a secret.
    #[error(
        "`{0}` is not the name of a secret: 1 to {NAME_BYTES_MAX} letters, digits, `_`, `-` and `.`, \
         with a letter or digit first"
    )]
    Name(String),
    /// There is none of this name.
    #[error("there is no secret `{0}`: `callgate secrets set {0}` keeps one")]
    Missing(String),
    /// It is too long, or there are too many.
    #[error("{0}")]
    Bound(&'static str),
    /// The folder or file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OwnerSecrets {
    /// Those of a state.
    #[must_use]
    pub fn of_state(state: &Path) -> Self {
        Self {
            folder: state.join(FOLDER),
        }
    }

    /// Keeps a value under a name, in place of an earlier one.
    pub fn set(&self, name: &str, value: &str) -> Result<(), OwnerSecretError> {
        let path = self.path(name)?;
        if value.len() as u64 > VALUE_BYTES_MAX || value.contains('\0') {
            return Err(OwnerSecretError::Bound(
                "a secret has at most 64 KiB, and no NUL",
            ));
        }
        let names = self.names()?;
        if names.len() >= SECRETS_MAX && !names.iter().any(|known| known == name) {
            return Err(OwnerSecretError::Bound("1,000 secrets are kept at most"));
        }
        Ok(write_owner_file(&path, value)?)
    }

    /// Returns the value of a name.
    pub fn get(&self, name: &str) -> Result<SecretValue, OwnerSecretError> {
        let path = self.path(name)?;
        match read_path_text(&path, VALUE_BYTES_MAX) {
            Ok(text) => Ok(SecretValue(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OwnerSecretError::Missing(name.to_owned()))
            }
            Err(error) => Err(StoreError::read(&path, error).into()),
        }
    }

    /// Removes a secret. Returns whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool, OwnerSecretError> {
        let path = self.path(name)?;
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::write(&path, error).into()),
        }
    }

    /// The names of all secrets, sorted.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::read(&self.folder, error)),
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        // bound: `SECRETS_MAX` are written; a folder that holds more is the owner's own doing.
        let mut names: Vec<String> = names
            .filter(|name| is_secret_name(name))
            .take(2 * SECRETS_MAX)
            .collect();
        names.sort();
        Ok(names)
    }

    fn path(&self, name: &str) -> Result<PathBuf, OwnerSecretError> {
        match is_secret_name(name) {
            true => Ok(self.folder.join(name)),
            false => Err(OwnerSecretError::Name(name.to_owned())),
        }
    }
}

/// Returns whether a text may name a secret.
#[must_use]
pub fn is_secret_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_known)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::place::Place;

    #[test]
    fn kept_and_removed() {
        let place = Place::new("owner-secrets");
        let secrets = OwnerSecrets::of_state(&place.0);
        assert_eq!(secrets.names().unwrap(), [""; 0]);
        secrets.set("github", "one").unwrap();
        secrets.set("github", "two\n").unwrap();
        secrets.set("a.b-c_1", "").unwrap();
        assert_eq!(secrets.names().unwrap(), ["a.b-c_1", "github"]);
        let value = secrets.get("github").unwrap();
        assert_eq!(
            (value.reveal(), format!("{value:?}")),
            ("two\n", "…".to_owned())
        );
        let mode = |path: &str| place.0.join(path).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("secrets"), mode("secrets/github")), (0o700, 0o600));
        assert!(secrets.remove("github").unwrap() && !secrets.remove("github").unwrap());
        assert!(matches!(
            secrets.get("github"),
            Err(OwnerSecretError::Missing(_))
        ));
    }

    #[test]
    fn names_and_bounds() {
        let place = Place::new("owner-secret-names");
        let secrets = OwnerSecrets::of_state(&place.0);
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "-a",
            "a b",
            "ä",
            &"x".repeat(65),
        ] {
            let refused = secrets.set(name, "v").unwrap_err();
            assert!(matches!(refused, OwnerSecretError::Name(_)), "{name}");
        }
        secrets
            .set(&"x".repeat(64), &"v".repeat(64 * 1024))
            .unwrap();
        for value in [&"v".repeat(64 * 1024 + 1), "a\0b"] {
            let refused = secrets.set("x", value).unwrap_err();
            assert!(matches!(refused, OwnerSecretError::Bound(_)));
        }
    }
}
