//! The way of a package: resolved, installed, compared with its lock, placed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::InstallError;
use crate::folder::{self, Draft, Usage, make_folder, read_text};
use crate::npm::{self, NpmInstall, NpmLock};
use crate::programs::{Node, Python};
use crate::pypi::{self, PypiInstall, PypiLock, Venv};
use crate::record::{EntryWord, FOLDER_PREFIX, Installed, PackageLock, Record};
use crate::request::PackageRequest;
use crate::settings::{InstallProgress, InstallStage, InstallerSettings};
use crate::spec::Registry;

/// The place from which packages of a lock are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageSource {
    /// The registry, and the downloads that are there already.
    Registry,
    /// The downloads alone, without a network.
    Cache,
}

/// Installs packages into folders, each in a confinement of its own.
#[derive(Clone)]
pub struct Installer {
    settings: InstallerSettings,
}

impl std::fmt::Debug for Installer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installer").finish_non_exhaustive()
    }
}

/// The programs that install packages of one registry.
enum Tools {
    Npm(Node),
    Pypi(Python),
}

impl Installer {
    /// An installer with these settings.
    #[must_use]
    pub fn new(settings: InstallerSettings) -> Self {
        Self { settings }
    }

    /// Chooses the versions of a package and of all that it depends on. Nothing is installed, and
    /// no code of a package runs.
    ///
    /// # Errors
    ///
    /// `InstallError` if a program is missing, the registry does not answer, or a package does not
    /// come from the registry with a digest.
    pub async fn resolve(
        &self,
        root: &Path,
        request: &PackageRequest,
        progress: InstallProgress<'_>,
    ) -> Result<PackageLock, InstallError> {
        let draft = self.draft(root)?;
        let tools = self.tools(&draft, request, progress).await?;
        self.resolve_in(&draft, &tools, request, progress).await
    }

    /// Resolves and installs a package into a folder of `root`.
    ///
    /// # Errors
    ///
    /// As [`resolve`](Self::resolve) and [`install_locked`](Self::install_locked).
    pub async fn install(
        &self,
        root: &Path,
        request: &PackageRequest,
        progress: InstallProgress<'_>,
    ) -> Result<(Installed, PackageLock), InstallError> {
        let draft = self.draft(root)?;
        let tools = self.tools(&draft, request, progress).await?;
        let lock = self.resolve_in(&draft, &tools, request, progress).await?;
        let source = PackageSource::Registry;
        let installed = self
            .install_in(draft, &tools, (request, &lock), source, progress)
            .await?;
        Ok((installed, lock))
    }

    /// Installs exactly what a lock says into a folder of `root`. An installation of the same lock
    /// is replaced.
    ///
    /// # Errors
    ///
    /// `InstallError` if the lock is refused or is not one of the request, if a package is not
    /// there or has another digest, and if the result differs from the lock or is too large.
    pub async fn install_locked(
        &self,
        root: &Path,
        (request, lock): (&PackageRequest, &PackageLock),
        source: PackageSource,
        progress: InstallProgress<'_>,
    ) -> Result<Installed, InstallError> {
        let draft = self.draft(root)?;
        let tools = self.tools(&draft, request, progress).await?;
        self.install_in(draft, &tools, (request, lock), source, progress)
            .await
    }

    /// A draft in `root`, with the folders of downloads.
    fn draft(&self, root: &Path) -> Result<Draft, InstallError> {
        make_folder(&npm::cache(&self.settings))?;
        make_folder(&pypi::cache(&self.settings))?;
        Draft::new(root)
    }

    async fn tools(
        &self,
        draft: &Draft,
        request: &PackageRequest,
        progress: InstallProgress<'_>,
    ) -> Result<Tools, InstallError> {
        let settings = &self.settings;
        Ok(match request.spec.registry {
            Registry::Npm => {
                progress(InstallStage::Prepare, "looking for node and npm");
                Tools::Npm(Node::find(settings, draft).await?)
            }
            Registry::Pypi => {
                progress(InstallStage::Prepare, "looking for python and pip");
                let wanted = request.python.as_deref();
                Tools::Pypi(Python::find(settings, draft, wanted).await?)
            }
        })
    }

    async fn resolve_in(
        &self,
        draft: &Draft,
        tools: &Tools,
        request: &PackageRequest,
        progress: InstallProgress<'_>,
    ) -> Result<PackageLock, InstallError> {
        let words = format!("choosing versions for {}", request.spec);
        progress(InstallStage::Resolve, &words);
        let settings = &self.settings;
        let is_offline = false;
        let text = match tools {
            Tools::Npm(node) => {
                let npm = NpmInstall {
                    settings,
                    draft,
                    node,
                    is_offline,
                };
                let text = npm.resolve(request).await?;
                NpmLock::parse(&text, request, &settings.npm)?;
                text
            }
            Tools::Pypi(python) => {
                let pip = PypiInstall {
                    settings,
                    draft,
                    python,
                    is_offline,
                };
                let text = pip.resolve(request).await?;
                PypiLock::parse(&text, request)?;
                text
            }
        };
        Ok(PackageLock {
            registry: request.spec.registry,
            text,
        })
    }

    async fn install_in(
        &self,
        draft: Draft,
        tools: &Tools,
        (request, lock): (&PackageRequest, &PackageLock),
        source: PackageSource,
        progress: InstallProgress<'_>,
    ) -> Result<Installed, InstallError> {
        let record = match tools {
            Tools::Npm(node) => {
                self.install_npm(&draft, node, (request, lock), source, progress)
                    .await?
            }
            Tools::Pypi(python) => {
                self.install_pypi(&draft, python, (request, lock), source, progress)
                    .await?
            }
        };
        record.write(&draft.tree())?;
        let bounds = (self.settings.bytes_max, self.settings.files_max);
        Usage::check(&draft.tree(), bounds)?;
        progress(InstallStage::Place, "writing to the disk");
        let name = lock.folder_name();
        let place = tokio::task::spawn_blocking(move || draft.place(&name)).await;
        let place = place.expect("it does not panic")?;
        self.bound_cache();
        Ok(record.into_installed(&place))
    }

    async fn install_npm(
        &self,
        draft: &Draft,
        node: &Node,
        (request, lock): (&PackageRequest, &PackageLock),
        source: PackageSource,
        progress: InstallProgress<'_>,
    ) -> Result<Record, InstallError> {
        let settings = &self.settings;
        let read = NpmLock::parse(&lock.text, request, &settings.npm)?;
        let npm = NpmInstall {
            settings,
            draft,
            node,
            is_offline: source == PackageSource::Cache,
        };
        let count = read.len();
        progress(
            InstallStage::Install,
            &format!("installing {count} packages"),
        );
        npm.install(request, &read, &lock.text).await?;
        progress(InstallStage::Check, "looking for its program");
        let entry = npm::program(&draft.tree(), request, node)?;
        let mut path = vec![EntryWord::inside("node_modules/.bin")];
        path.extend(node.node.parent().map(EntryWord::outside));
        Ok(Record {
            entry,
            path,
            released: match source {
                PackageSource::Registry => npm.released(&request.spec.name, &read.version).await,
                PackageSource::Cache => None,
            },
            ..record(request, lock, (read.version, read.integrity), count)
        })
    }

    async fn install_pypi(
        &self,
        draft: &Draft,
        python: &Python,
        (request, lock): (&PackageRequest, &PackageLock),
        source: PackageSource,
        progress: InstallProgress<'_>,
    ) -> Result<Record, InstallError> {
        let settings = &self.settings;
        let read = PypiLock::parse(&lock.text, request)?;
        let pip = PypiInstall {
            settings,
            draft,
            python,
            is_offline: source == PackageSource::Cache,
        };
        let count = read.len();
        progress(
            InstallStage::Install,
            &format!("installing {count} packages"),
        );
        let tree = draft.tree();
        let venv = Venv::of(&tree);
        pip.install(&read, &lock.text, &venv).await?;
        progress(InstallStage::Check, "looking for its program");
        let entry = pypi::program(&venv, &venv.packages(python)?, request)?;
        venv.correct_scripts(&tree, &draft.place_of(&lock.folder_name()))?;
        Ok(Record {
            entry,
            path: vec![EntryWord::inside(Venv::inside("bin"))],
            env: [(
                "VIRTUAL_ENV".to_owned(),
                EntryWord::inside(Venv::inside("")),
            )]
            .into(),
            released: match source {
                PackageSource::Registry => pip.released(&request.spec.name, &read.version).await,
                PackageSource::Cache => None,
            },
            ..record(request, lock, (read.version, read.integrity), count)
        })
    }

    /// Removes the downloads once they are past their bound. They are fetched again when needed.
    fn bound_cache(&self) {
        let bounds = (self.settings.bytes_max, u64::MAX);
        for folder in [npm::cache(&self.settings), pypi::cache(&self.settings)] {
            if matches!(
                Usage::check(&folder, bounds),
                Err(InstallError::TooLarge { .. })
            ) {
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }
}

/// A record without an entry.
fn record(
    request: &PackageRequest,
    lock: &PackageLock,
    (version, integrity): (String, String),
    packages: usize,
) -> Record {
    Record {
        format: Record::FORMAT,
        spec: request.spec.at_version(&version).to_string(),
        version,
        integrity,
        lock_digest: lock.digest(),
        entry: Vec::new(),
        path: Vec::new(),
        env: BTreeMap::new(),
        released: None,
        packages,
    }
}

/// Reads an installation by the digest of its lock.
///
/// # Errors
///
/// `InstallError` if the installation is not there or can not be read.
pub fn open_installed(root: &Path, lock: &PackageLock) -> Result<Installed, InstallError> {
    let folder = root.join(lock.folder_name());
    Ok(Record::read(&folder)?.into_installed(&folder))
}

/// Reads the lock of an installation.
///
/// # Errors
///
/// `InstallError` if it can not be read.
pub fn lock_of(installed: &Installed) -> Result<PackageLock, InstallError> {
    let (registry, file) = match installed.spec.starts_with("npm:") {
        true => (Registry::Npm, npm::LOCK_FILE),
        false => (Registry::Pypi, pypi::LOCK_FILE),
    };
    let text = read_text(&installed.folder.join(file))?;
    Ok(PackageLock { registry, text })
}

/// The installations in a folder, the newest first. What can not be read is left out.
#[must_use]
pub fn list_installed(root: &Path) -> Vec<Installed> {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter(|entry| {
            let name = entry.file_name();
            name.as_encoded_bytes()
                .starts_with(FOLDER_PREFIX.as_bytes())
        })
        .filter_map(|entry| {
            let folder: PathBuf = entry.path();
            let record = Record::read(&folder).ok()?;
            let made = entry.metadata().and_then(|found| found.modified()).ok();
            Some((made, record.into_installed(&folder)))
        })
        .collect();
    all.sort_by(|(a, _), (b, _)| b.cmp(a));
    all.into_iter().map(|(_, installed)| installed).collect()
}

/// Removes an installation in one moment. False if it is not there.
///
/// # Errors
///
/// `InstallError` if its folder can not be moved aside.
pub fn remove_installed(installed: &Installed) -> Result<bool, InstallError> {
    let folder = &installed.folder;
    match (folder.parent(), folder.file_name().and_then(|n| n.to_str())) {
        (Some(root), Some(name)) if name.starts_with(FOLDER_PREFIX) => folder::remove(root, name),
        _ => Ok(false),
    }
}
