//! What is known of an installation, and the file in its folder that keeps it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::InstallError;
use crate::folder::{read_text, write_file};
use crate::spec::Registry;

/// The file of a record in an installation.
const RECORD_FILE: &str = "installed.json";
/// The version of the record's form.
const FORMAT: u32 = 1;

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The package with its exact version: `npm:@scope/name@1.2.3`.
    pub spec: String,
    /// The exact version.
    pub version: String,
    /// The digest of the package's archive: `sha512-…` or `sha256:…`.
    pub integrity: String,
    /// The BLAKE3 digest of the lock, in hex.
    pub lock_digest: String,
    /// The folder of the installation.
    pub folder: PathBuf,
    /// The beginning of the command that starts the program; the first word is absolute.
    pub entry: Vec<OsString>,
    /// Folders that come first in the program's `PATH`.
    pub path: Vec<PathBuf>,
    /// Further variables of the program.
    pub env: BTreeMap<String, OsString>,
    /// The day of the release: `2026-08-31`.
    pub released: Option<String>,
    /// The number of packages in the lock.
    pub packages: usize,
}

/// A lock: the exact versions of a package and all that it depends on, with their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageLock {
    /// The registry.
    pub registry: Registry,
    /// The text, in the form of the registry's own tool.
    pub text: String,
}

impl PackageLock {
    /// The BLAKE3 digest of the text, in hex.
    #[must_use]
    pub fn digest(&self) -> String {
        callgate_call::Digest::of_bytes(self.text.as_bytes()).to_hex()
    }

    /// The name of the folder that such an installation has.
    #[must_use]
    pub fn folder_name(&self) -> String {
        folder_name(&self.digest())
    }
}

/// The beginning of the names of installations.
pub(crate) const FOLDER_PREFIX: &str = "pkg-";
/// Hex digits of the digest in the name of an installation.
const FOLDER_DIGITS: usize = 32;

fn folder_name(lock_digest: &str) -> String {
    format!("{FOLDER_PREFIX}{}", &lock_digest[..FOLDER_DIGITS])
}

/// A word of a command: a path inside of the installation, or anything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EntryWord {
    Inside(PathBuf),
    Outside(PathBuf),
}

impl EntryWord {
    pub fn inside(path: impl AsRef<Path>) -> Self {
        Self::Inside(path.as_ref().to_owned())
    }

    pub fn outside(path: impl AsRef<Path>) -> Self {
        Self::Outside(path.as_ref().to_owned())
    }

    fn into_path(self, folder: &Path) -> PathBuf {
        match self {
            Self::Inside(path) => folder.join(path),
            Self::Outside(path) => path,
        }
    }
}

/// What is known of an installation wherever it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub format: u32,
    pub spec: String,
    pub version: String,
    pub integrity: String,
    pub lock_digest: String,
    pub entry: Vec<EntryWord>,
    pub path: Vec<EntryWord>,
    pub env: BTreeMap<String, EntryWord>,
    pub released: Option<String>,
    pub packages: usize,
}

impl Record {
    pub const FORMAT: u32 = FORMAT;

    pub fn write(&self, folder: &Path) -> Result<(), InstallError> {
        let path = folder.join(RECORD_FILE);
        // A path that is no text has no form in JSON.
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| InstallError::file("write", &path)(error.into()))?;
        write_file(&path, &text)
    }

    /// Reads the record of an installation, which must be one of this name and form.
    pub fn read(folder: &Path) -> Result<Self, InstallError> {
        let path = folder.join(RECORD_FILE);
        let text = read_text(&path)?;
        let record: Self = serde_json::from_str(&text)
            .map_err(|error| InstallError::file("read", &path)(error.into()))?;
        let is_named = record.lock_digest.len() > FOLDER_DIGITS
            && record.lock_digest.is_ascii()
            && folder
                .file_name()
                .is_some_and(|name| name == folder_name(&record.lock_digest).as_str());
        match record.format == FORMAT && is_named {
            true => Ok(record),
            false => Err(InstallError::Differs {
                difference: format!("{} is of another installation", path.display()),
            }),
        }
    }

    pub fn into_installed(self, folder: &Path) -> Installed {
        let paths = |words: Vec<EntryWord>| words.into_iter().map(|word| word.into_path(folder));
        Installed {
            spec: self.spec,
            version: self.version,
            integrity: self.integrity,
            lock_digest: self.lock_digest,
            folder: folder.to_owned(),
            entry: paths(self.entry).map(OsString::from).collect(),
            path: paths(self.path).collect(),
            env: self
                .env
                .into_iter()
                .map(|(name, word)| (name, word.into_path(folder).into()))
                .collect(),
            released: self.released,
            packages: self.packages,
        }
    }
}
