//! Which configuration of a workspace is in force (G-9). Only what has the owner's word grants
//! anything: the files as they are if they have it, else the copy of what had it last. Of files
//! without it the restrictions apply and nothing else. Where it cannot be known what the owner
//! restricted, nothing is in force and no tool is served.

use callgate_call::Digest;
use callgate_store::{Store, StoreError};

use crate::config::{self, Config, Restrictions};
use crate::declared::Declarations;
use crate::environment::Environment;
use crate::paths::Paths;
use crate::workspace::{CONFIG_FILE, CopiedFiles, Source, SourceError, hint_above};
use callgate_call::chain;

/// The configuration in force.
pub struct InForce {
    /// What grants.
    pub basis: Basis,
    /// What the files that lack the owner's word take away.
    pub restrictions: Vec<Restrictions>,
    /// What the files are, beside what is in force.
    present: Present,
}

/// What grants.
pub enum Basis {
    /// The files of the workspace, which are trusted as they are.
    Files(Box<Source>),
    /// The copy of what was trusted last: the files are others now.
    Copy(Box<Source>),
    /// No configuration: the built-in tools.
    Builtins,
    /// The reason why nothing is served, and what to do.
    Nothing(String),
}

/// What the files of the workspace are.
enum Present {
    Trusted,
    /// They load, and are not what was trusted.
    Changed {
        what: String,
    },
    /// There are none.
    Missing {
        /// The words for a configuration further up, if there is one.
        hint: String,
    },
    /// They do not load.
    Broken {
        reason: String,
        /// A key or a permission of the owner's is gone.
        owners: bool,
    },
}

impl InForce {
    /// Looks into the workspace and the state.
    pub fn look(
        environment: &Environment,
        paths: &Paths,
        store: &Store,
    ) -> Result<Self, StoreError> {
        let root = &paths.workspace;
        let trusted = store.trusted(CONFIG_FILE)?;
        let present = match Source::of_workspace(environment, root, declared(paths, store)?) {
            Ok(source) if trusted == Some(source.digest) => {
                return Ok(Self {
                    basis: Basis::Files(Box::new(source)),
                    restrictions: Vec::new(),
                    present: Present::Trusted,
                });
            }
            Ok(source) => Present::Changed {
                what: source.what(),
            },
            Err(SourceError::Missing(_)) => Present::Missing {
                hint: hint_above(root),
            },
            Err(error) => Present::broken(&error),
        };
        let trusted = trusted.filter(|_| is_of_workspace(paths, store));
        let (mut restrictions, unread) = match read_config(root) {
            None => (Vec::new(), None),
            Some(text) => match Restrictions::of(&text) {
                Ok(restrictions) => (
                    vec![restrictions],
                    config::parse(&text).err().map(|error| error.to_string()),
                ),
                Err(error) => (Vec::new(), Some(error.to_string())),
            },
        };
        restrictions.retain(|one| !one.is_empty());
        let basis = match (trusted, unread) {
            (Some(digest), _) => copied(environment, paths, store, digest, &mut restrictions),
            (None, None) => Basis::Builtins,
            (None, Some(reason)) => Basis::Nothing(format!(
                "{CONFIG_FILE}: {reason}\nno configuration was trusted before: mend the file, then \
                 run `callgate trust`, or remove it",
                reason = reason.trim_end()
            )),
        };
        Ok(Self {
            basis,
            restrictions,
            present,
        })
    }

    /// What it says, with its restrictions; the defaults where there is none.
    pub fn into_config(self) -> Config {
        let mut config = match self.basis {
            Basis::Files(source) | Basis::Copy(source) => source.config,
            Basis::Builtins | Basis::Nothing(_) => Config::default(),
        };
        for restrictions in self.restrictions {
            restrictions.apply(&mut config);
        }
        config
    }

    /// The configuration that grants, if one does.
    pub fn source(&self) -> Option<&Source> {
        match &self.basis {
            Basis::Files(source) | Basis::Copy(source) => Some(source),
            Basis::Builtins | Basis::Nothing(_) => None,
        }
    }

    /// Returns whether the owner's own files took the word back: a key or a permission is gone.
    pub fn is_withdrawn(&self) -> bool {
        let gone = matches!(self.present, Present::Broken { owners: true, .. });
        gone && matches!(self.basis, Basis::Builtins)
    }

    /// The line for people: what is in force, why, and what to do.
    pub fn note(&self) -> String {
        let served = match &self.basis {
            Basis::Nothing(reason) => return format!("nothing is served: {reason}"),
            Basis::Files(source) => {
                return format!("{} trusted ({})", source.what(), counts(&source.config));
            }
            Basis::Copy(source) => {
                let counts = counts(&source.config);
                format!("the configuration that was trusted last stays in force ({counts})")
            }
            Basis::Builtins => "only built-in tools are served".to_owned(),
        };
        let restricted = match self.restrictions.is_empty() {
            true => "",
            false => ", with the restrictions of the present one",
        };
        let was = matches!(self.basis, Basis::Copy(_));
        match &self.present {
            Present::Trusted => served,
            Present::Changed { what } if was => format!(
                "{what} changed since it was trusted: {served}{restricted}; look at the change, \
                 then run `callgate trust`"
            ),
            Present::Changed { what } => format!(
                "{what} is not trusted yet, so {served}{restricted}: look at it, then run \
                 `callgate trust`"
            ),
            Present::Missing { .. } if was => {
                let project = |source: &Source| source.file == source.root;
                let what = match self.source().is_some_and(project) {
                    true => "the project here",
                    false => CONFIG_FILE,
                };
                format!(
                    "{what} is gone: {served}; put it back, or run `callgate trust` to record \
                     that it is removed"
                )
            }
            Present::Missing { hint } => {
                format!("no {CONFIG_FILE} here, so {served}{hint}")
            }
            Present::Broken { reason, .. } => format!(
                "configuration not loaded: {reason}; {served}{restricted}; mend it, then run \
                 `callgate trust`"
            ),
        }
    }

    /// The same for callers, where the files of the workspace are not what is in force: a tool
    /// they name may be missing for that reason. Quotes nothing of the files.
    pub fn doubt(&self) -> Option<String> {
        let is = match (&self.present, &self.basis) {
            (Present::Trusted, _) | (Present::Missing { .. }, Basis::Builtins) => return None,
            _ => self.condition(),
        };
        let served = match self.basis {
            Basis::Nothing(_) => return Some(nothing(is)),
            Basis::Builtins => "only built-in tools are served",
            Basis::Files(_) | Basis::Copy(_) => "what was trusted last is served",
        };
        Some(format!(
            "the workspace's configuration {is}, so {served}: its owner looks at it and runs \
             `callgate trust`"
        ))
    }

    /// The line for callers of a gate that keeps what it serves because this cannot be put in
    /// place.
    pub fn doubt_if_kept(&self) -> String {
        let is = self.condition();
        format!(
            "the workspace's configuration {is}, so what was served before still is: its owner \
             mends it and runs `callgate trust`"
        )
    }

    /// What is the matter with the files, for callers.
    fn condition(&self) -> &'static str {
        match (&self.present, &self.basis) {
            (Present::Trusted, _) => "cannot be put in force",
            (Present::Changed { .. }, Basis::Builtins) => "is not trusted yet",
            (Present::Changed { .. }, _) => "changed since it was trusted",
            (Present::Missing { .. }, _) => "is gone",
            (Present::Broken { .. }, _) => "cannot be loaded",
        }
    }
}

/// Returns whether a word that was given was given in this workspace: a state may serve several.
fn is_of_workspace(paths: &Paths, store: &Store) -> bool {
    !store.has_copies_of_others(&paths.id())
}

/// What functions declared when the configuration was trusted. A copy of which that cannot be
/// read declares nothing, and is found to be damaged where it is put in force.
pub fn declared(paths: &Paths, store: &Store) -> Result<Declarations, StoreError> {
    let trusted = store.trusted(CONFIG_FILE)?;
    let copy = trusted.map(|digest| store.trusted_copy(&paths.id(), digest));
    Ok(copy.map_or_else(Declarations::default, |copy| {
        Declarations::of_copy(&copy).unwrap_or_default()
    }))
}

/// How many tools a configuration has, and how many servers if it has some.
fn counts(config: &Config) -> String {
    let (tools, servers) = (config.tools.len(), config.servers.len());
    match servers {
        0 => format!("{tools} tools"),
        1 => format!("{tools} tools, 1 server"),
        more => format!("{tools} tools, {more} servers"),
    }
}

/// Returns whether a configuration of this workspace is trusted.
pub fn is_trusted(paths: &Paths, store: &Store) -> Result<bool, StoreError> {
    Ok(store.trusted(CONFIG_FILE)?.is_some() && is_of_workspace(paths, store))
}

/// The line for callers of a gate that cannot read which configuration is trusted.
pub fn unreadable_state_doubt() -> String {
    "it cannot be read which configuration of the workspace is trusted, so what was served before \
     still is: its owner runs `callgate doctor`"
        .to_owned()
}

/// The words for callers where nothing is in force.
fn nothing(is: &str) -> String {
    format!(
        "nothing is served, because the workspace's configuration {is}: its owner mends it and \
         runs `callgate trust`"
    )
}

impl Present {
    fn broken(error: &SourceError) -> Self {
        Self::Broken {
            reason: chain(error).trim_end().to_owned(),
            owners: is_owners(error),
        }
    }
}

/// Returns whether the owner's own files are why a configuration does not load.
fn is_owners(error: &SourceError) -> bool {
    match error {
        SourceError::Refused { refusal, .. } => refusal.owners,
        SourceError::Owner(_) => true,
        _ => false,
    }
}

/// What was trusted last, from its copy.
fn copied(
    environment: &Environment,
    paths: &Paths,
    store: &Store,
    digest: Digest,
    restrictions: &mut Vec<Restrictions>,
) -> Basis {
    const RESTORE: &str = "look at the configuration, then run `callgate trust`, or \
                           `callgate trust --revoke`";
    let base = store.trusted_copy(&paths.id(), digest);
    match Source::of_copy(environment, &paths.workspace, &base) {
        Ok(mut source) if source.digest == digest => {
            let root = &paths.workspace;
            source.config.tools.retain(|tool| match &tool.bound {
                Some(bound) => bound.is_as_trusted(root),
                None => true,
            });
            Basis::Copy(Box::new(source))
        }
        Ok(_) => Basis::Nothing(format!(
            "the copy of the trusted configuration in {} is damaged: {RESTORE}",
            base.display()
        )),
        Err(_) if !base.is_dir() => Basis::Nothing(format!(
            "the configuration changed since it was trusted, and there is no copy of what was \
             trusted: {RESTORE}"
        )),
        // A pack of it lost the owner's key or permission: its tools and all others are gone, but
        // not what it restricts.
        Err(error) if is_owners(&error) => match read_config(&base) {
            None => Basis::Builtins,
            Some(text) => match Restrictions::of(&text) {
                Ok(own) => {
                    restrictions.push(own);
                    Basis::Builtins
                }
                Err(reason) => Basis::Nothing(format!("{}: {reason}", base.display())),
            },
        },
        Err(error) => Basis::Nothing(format!(
            "the configuration that was trusted last does not load: {}; {RESTORE}",
            chain(&error)
        )),
    }
}

/// The text of the configuration file, where there is one. One that cannot be read says nothing
/// that could be read as a configuration.
fn read_config(folder: &std::path::Path) -> Option<String> {
    let file = folder.join(CONFIG_FILE);
    file.symlink_metadata().ok()?;
    Some(Source::text_of(folder).unwrap_or_else(|error| format!("not readable: {}", chain(&error))))
}

/// Why the owner's word was not recorded.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The state cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The copy does not read.
    #[error("its copy does not load")]
    Unread(#[source] Box<SourceError>),
    /// The copy is not what was read.
    #[error("its copy is not what was read: names of files may differ only by case or form")]
    Differs,
}

/// Records that what has this digest, and consists of `files`, is trusted. Its copy is in place
/// and was read back before the record is made; killed in between, the earlier one is in force.
pub fn trust_as(
    environment: &Environment,
    paths: &Paths,
    store: &Store,
    digest: Digest,
    files: &CopiedFiles,
) -> Result<(), TrustError> {
    let lock = store.lock_trust()?;
    store.put_trusted_copy(&lock, &paths.id(), digest, &files.list())?;
    let base = store.trusted_copy(&paths.id(), digest);
    let copy = Source::of_copy(environment, &paths.workspace, &base)
        .map_err(|error| TrustError::Unread(Box::new(error)))?;
    if copy.digest != digest {
        return Err(TrustError::Differs);
    }
    store.trust(CONFIG_FILE, digest)?;
    // What is left of earlier copies goes with the next word.
    if let Err(error) = store.sweep_trusted_copies(&lock, &paths.id(), Some(digest)) {
        tracing::warn!(target: "callgate::trust", error = chain(&error), "sweep copies of configurations");
    }
    Ok(())
}

/// Takes the owner's word back and removes the copy. False if there was none.
pub fn revoke(paths: &Paths, store: &Store) -> Result<bool, StoreError> {
    let lock = store.lock_trust()?;
    let was = store.untrust(CONFIG_FILE)?;
    store.sweep_trusted_copies(&lock, &paths.id(), None)?;
    Ok(was)
}

/// Makes the copy of what is trusted as it is, where a state of an earlier release has none. What
/// cannot be written is made another time.
pub fn keep_copy(
    environment: &Environment,
    paths: &Paths,
    store: &Store,
    digest: Digest,
) -> Result<(), StoreError> {
    if store.trusted_copy(&paths.id(), digest).is_dir() {
        return Ok(());
    }
    let lock = store.lock_trust()?;
    match Source::to_copy(environment, &paths.workspace, Declarations::default()) {
        Ok((source, files)) if source.digest == digest => {
            store.put_trusted_copy(&lock, &paths.id(), digest, &files.list())
        }
        // It changed since it was looked at.
        _ => Ok(()),
    }
}
