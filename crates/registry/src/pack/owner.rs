//! Whose packs count, and which: the owner's own files, outside every workspace, so that
//! neither a checkout nor a tool can write them.
//!
//! ```text
//! $XDG_CONFIG_HOME/callgate/pack-keys.toml     trusted keys by name; written by `pack trust`
//! $XDG_CONFIG_HOME/callgate/pack-policy.toml   allow lists; written by hand
//! $XDG_CONFIG_HOME/callgate/keys/NAME.key      own keys (0600); made by `pack keygen`
//! ```

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use callgate_call::bounded::read_path_text;
use callgate_call::{Asker, Guarantee, Guarantees, chain};
use callgate_store::{StoreError, write_owner_file};
use callgate_wires::tool_protocol::{Env, Filesystem, Network, Risk, Subprocess};
use serde::{Deserialize, Serialize};

use super::seal::{KeyError, PublicKey, Signer, key_text};
use crate::config::explain;
use crate::environment::Environment;

/// Most trusted keys.
const KEYS_MAX: usize = 1000;
/// Most bytes of one of these files.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Where the owner's files are.
#[derive(Debug, Clone)]
pub struct Owner {
    folder: Option<PathBuf>,
    uid: u32,
}

/// What they say.
#[derive(Debug, Default)]
pub struct OwnerFile {
    /// Trusted keys by the owner's names for them.
    pub keys: BTreeMap<String, PublicKey>,
    /// What is allowed.
    pub policy: Policy,
}

/// Why they do not count.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Nobody says where they are.
    #[error("no place for your keys: set HOME or XDG_CONFIG_HOME")]
    NoPlace,
    /// Tools may write there.
    #[error(
        "{} is inside the workspace, where tools may write: set XDG_CONFIG_HOME to a folder \
         outside",
        .0.display()
    )]
    Inside(PathBuf),
    /// Others may write it.
    #[error("{}: others may write it: chown it to you and chmod go-w", .0.display())]
    Open(PathBuf),
    /// The system said so.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It could not be written.
    #[error(transparent)]
    Write(#[from] StoreError),
}

impl Owner {
    /// The owner of this process.
    pub fn new(environment: &Environment) -> Self {
        let home = environment.folder("HOME").map(|home| home.join(".config"));
        let config = environment.folder("XDG_CONFIG_HOME").map(Path::to_owned);
        Self {
            folder: config.or(home).map(|config| config.join("callgate")),
            uid: environment.uid,
        }
    }

    fn folder(&self) -> Result<&Path, OwnerError> {
        self.folder.as_deref().ok_or(OwnerError::NoPlace)
    }

    /// The same, if it is outside a workspace: inside it tools may write.
    fn folder_outside(&self, workspace: &Path) -> Result<&Path, OwnerError> {
        let folder = self.folder()?;
        // What exists of it, with links resolved: a link may lead into the workspace.
        let real = folder.ancestors().find_map(|part| part.canonicalize().ok());
        if real.is_some_and(|real| real.starts_with(workspace)) || folder.starts_with(workspace) {
            return Err(OwnerError::Inside(folder.to_owned()));
        }
        Ok(folder)
    }

    /// The files that decide, for whoever watches them.
    pub fn files(&self) -> Vec<PathBuf> {
        let names = ["pack-keys.toml", "pack-policy.toml"];
        let folder = self.folder.iter();
        folder
            .flat_map(|folder| names.map(|name| folder.join(name)))
            .collect()
    }

    /// Reads them, for packs of a workspace. Files that are not there say nothing.
    pub fn read_for(&self, workspace: &Path) -> Result<OwnerFile, OwnerError> {
        match self.folder_outside(workspace) {
            // No keys and no permissions: nothing that is installed counts.
            Err(OwnerError::NoPlace) => Ok(OwnerFile::default()),
            Err(error) => Err(error),
            Ok(folder) => self.read_in(folder),
        }
    }

    /// Reads them.
    pub fn read(&self) -> Result<OwnerFile, OwnerError> {
        self.read_in(self.folder()?)
    }

    fn read_in(&self, folder: &Path) -> Result<OwnerFile, OwnerError> {
        let keys = folder.join("pack-keys.toml");
        let policy = folder.join("pack-policy.toml");
        Ok(OwnerFile {
            keys: match self.text(&keys)? {
                None => BTreeMap::new(),
                Some(text) => read_keys(&text).map_err(|error| wrong(&keys, chain(&error)))?,
            },
            policy: match self.text(&policy)? {
                None => Policy::default(),
                Some(text) => read_policy(&text).map_err(|error| wrong(&policy, chain(&error)))?,
            },
        })
    }

    /// Replaces the trusted keys.
    pub fn write_keys(&self, keys: &BTreeMap<String, PublicKey>) -> Result<PathBuf, OwnerError> {
        let path = self.folder()?.join("pack-keys.toml");
        let doc = KeysFile {
            keys: keys
                .iter()
                .map(|(name, key)| (name.clone(), key.to_string()))
                .collect(),
        };
        let text = toml::to_string(&doc).map_err(|error| wrong(&path, error.to_string()))?;
        let head = "# Whose packs count: written by `callgate pack trust`.\n";
        write_owner_file(&path, &format!("{head}{text}"))?;
        Ok(path)
    }

    /// Makes a key of one's own.
    pub fn make_key(&self, name: &str) -> Result<(PathBuf, Signer), OwnerError> {
        let path = self.key_path(name)?;
        if path.exists() {
            let reason = "is there already: choose another name, or remove it first";
            return Err(wrong(&path, reason.to_owned()));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| StoreError::Random)?;
        write_owner_file(&path, &key_text(&secret))?;
        Ok((path, Signer::new(name.to_owned(), &secret)))
    }

    /// A key of one's own.
    pub fn signer(&self, name: &str) -> Result<Signer, OwnerError> {
        let path = self.key_path(name)?;
        let text = self.text(&path)?.ok_or_else(|| {
            wrong(
                &path,
                format!("there is no such key: `callgate pack keygen {name}` makes it"),
            )
        })?;
        if std::fs::metadata(&path).is_ok_and(|meta| meta.mode() & 0o077 != 0) {
            let reason = "others may read it: chmod 600 it, or make a new one";
            return Err(wrong(&path, reason.to_owned()));
        }
        Signer::from_text(name.to_owned(), &text)
            .ok_or_else(|| wrong(&path, "is not a key of `callgate pack keygen`".to_owned()))
    }

    /// The names of one's own keys.
    pub fn signers(&self) -> Vec<String> {
        let folder = self.folder.as_ref().map(|folder| folder.join("keys"));
        let entries = folder.and_then(|folder| std::fs::read_dir(folder).ok());
        let mut names: Vec<String> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".key")?.to_owned()))
            .collect();
        names.sort();
        names
    }

    fn key_path(&self, name: &str) -> Result<PathBuf, OwnerError> {
        Ok(self.folder()?.join("keys").join(format!("{name}.key")))
    }

    /// A file that nobody else could have written; `None` if there is none.
    fn text(&self, path: &Path) -> Result<Option<String>, OwnerError> {
        let failed = |source| OwnerError::Read {
            path: path.to_owned(),
            source,
        };
        let meta = match std::fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let ours = [self.uid, 0].contains(&meta.uid());
        if !ours || meta.mode() & 0o022 != 0 {
            return Err(OwnerError::Open(path.to_owned()));
        }
        if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
            let reason = format!("is not a file of at most {FILE_BYTES_MAX} bytes");
            return Err(wrong(path, reason));
        }
        read_path_text(path, FILE_BYTES_MAX)
            .map(Some)
            .map_err(failed)
    }
}

fn wrong(path: &Path, reason: String) -> OwnerError {
    OwnerError::Wrong {
        path: path.to_owned(),
        reason,
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    #[serde(default)]
    keys: BTreeMap<String, String>,
}

/// Why a file of keys cannot be read.
#[derive(Debug, thiserror::Error)]
enum KeysError {
    /// A text that is no TOML, or has other tables.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// Too many.
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
    /// One that is none.
    #[error("keys.{name}")]
    Key {
        /// The owner's name for it.
        name: String,
        source: KeyError,
    },
}

fn read_keys(text: &str) -> Result<BTreeMap<String, PublicKey>, KeysError> {
    let doc: KeysFile = toml::from_str(text)?;
    if doc.keys.len() > KEYS_MAX {
        return Err(KeysError::TooMany);
    }
    let key = |(name, text): (String, String)| match text.parse() {
        Ok(key) => Ok((name, key)),
        Err(source) => Err(KeysError::Key { name, source }),
    };
    doc.keys.into_iter().map(key).collect()
}

/// What is allowed of packs. The same words as in a project's `trust/policy.toml`.
#[derive(Debug, Default)]
pub struct Policy {
    /// Packs that nobody known signed may be installed.
    pub allow_unverified_installs: bool,
    /// And may be used.
    pub allow_unverified_enable: bool,
    /// The most harm a pack may be able to do.
    pub max_risk: Option<Risk>,
    /// The most its tools may need.
    pub allowed_capabilities: Levels,
    /// Only what these signed, by the owner's names for their keys.
    pub allowed_signers: Option<Vec<String>>,
    /// Only these.
    pub allowed_packs: Option<Vec<String>>,
}

/// A bound for each kind of capability; nothing said is no bound.
#[derive(Debug, Default)]
pub struct Levels {
    /// Files that may be reached.
    pub filesystem: Option<Filesystem>,
    /// Hosts that may be reached.
    pub network: Option<Network>,
    /// Variables that may be read.
    pub env: Option<Env>,
    /// Processes that may be started.
    pub subprocess: Option<Subprocess>,
}

impl Levels {
    /// What a tool that may have these at most is held to.
    pub fn guarantees(&self, asker: Asker) -> Guarantees {
        use Guarantee::{NoEnvRead, NoEnvWrite, NoFilesystemRead, NoFilesystemWrite, NoNetwork};
        let mut asked = Guarantees::default();
        let mut require = |when: bool, guarantee| {
            if when {
                asked.require(guarantee, asker);
            }
        };
        let Self {
            filesystem,
            network,
            env,
            subprocess,
        } = *self;
        require(filesystem == Some(Filesystem::None), NoFilesystemRead);
        require(
            filesystem.is_some_and(|level| level < Filesystem::Write),
            NoFilesystemWrite,
        );
        require(network == Some(Network::None), NoNetwork);
        require(
            subprocess == Some(Subprocess::None),
            Guarantee::NoSubprocess,
        );
        require(env == Some(Env::None), NoEnvRead);
        // No level lets a tool write variables.
        require(env.is_some(), NoEnvWrite);
        asked
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct PolicyFile {
    allow_unverified_installs: bool,
    allow_unverified_enable: bool,
    max_risk: Option<String>,
    allowed_capabilities: LevelsFile,
    allowed_signers: Option<Vec<String>>,
    allowed_packs: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LevelsFile {
    filesystem: Option<String>,
    network: Option<String>,
    env: Option<String>,
    subprocess: Option<String>,
}

/// Why a policy cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A text that is no TOML, or has other keys; with what is wrong in it.
    #[error("{0}")]
    Toml(String),
    /// A word that is no level.
    #[error("{key}: `{word}` is not a level of it")]
    Level {
        /// The key.
        key: &'static str,
        /// As written.
        word: String,
    },
}

/// Reads a policy.
pub fn read_policy(text: &str) -> Result<Policy, PolicyError> {
    let doc: PolicyFile = toml::from_str(text).map_err(|error: toml::de::Error| {
        let words = explain(error.message(), None);
        PolicyError::Toml(error.to_string().replace(error.message(), &words))
    })?;
    let levels = doc.allowed_capabilities;
    Ok(Policy {
        allow_unverified_installs: doc.allow_unverified_installs,
        allow_unverified_enable: doc.allow_unverified_enable,
        max_risk: level("max_risk", doc.max_risk, Risk::from_word)?,
        allowed_capabilities: Levels {
            filesystem: level("filesystem", levels.filesystem, Filesystem::from_word)?,
            network: level("network", levels.network, Network::from_word)?,
            env: level("env", levels.env, Env::from_word)?,
            subprocess: level("subprocess", levels.subprocess, Subprocess::from_word)?,
        },
        allowed_signers: doc.allowed_signers,
        allowed_packs: doc.allowed_packs,
    })
}

fn level<T>(
    key: &'static str,
    word: Option<String>,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, PolicyError> {
    word.map(|word| read(&word).ok_or(PolicyError::Level { key, word }))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TP-31, TP-63: levels become guarantees, and nothing said asks for nothing.
    #[test]
    fn levels_become_guarantees() {
        let policy = read_policy(
            "max_risk = \"medium\"\nallowed_capabilities = { network = \"none\", filesystem = \"read\" }",
        )
        .unwrap();
        assert_eq!(policy.max_risk, Some(Risk::Medium));
        let asked = policy.allowed_capabilities.guarantees(Asker::Policy);
        let words: Vec<&str> = asked.iter().map(|(one, _)| one.name()).collect();
        assert_eq!(words, ["no_filesystem_write", "no_network"]);
        assert!(Levels::default().guarantees(Asker::Policy).is_empty());
        let nothing = Levels {
            filesystem: Some(Filesystem::None),
            network: Some(Network::None),
            env: Some(Env::None),
            subprocess: Some(Subprocess::None),
        };
        assert_eq!(nothing.guarantees(Asker::Pack).iter().count(), 6);
    }

    #[test]
    fn slips_are_told() {
        for (text, words) in [
            ("max_risk = \"huge\"", "max_risk: `huge`"),
            ("maxrisk = \"low\"", "did you mean `max_risk`?"),
            (
                "allowed_capabilities = { network = \"write\" }",
                "network: `write`",
            ),
        ] {
            let error = read_policy(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(chain(&read_keys("[keys]\na = \"sha256:00\"").unwrap_err()).contains("ed25519:"));
        let weak = format!("[keys]\na = \"ed25519:01{}\"", "0".repeat(62));
        assert!(chain(&read_keys(&weak).unwrap_err()).contains("no Ed25519 key"));
    }
}
