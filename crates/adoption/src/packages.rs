//! Packages of servers: installed once, by the installer and its confinement, and written down in
//! the lock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_installer::{
    InstallError, InstallStage, Installed, Installer, InstallerSettings, PackageLock,
    PackageProgram, PackageRequest, PackageSource, PackageSpec, Registry, SpecError,
};
use callgate_registry::config::ServerConfig;
use callgate_registry::environment::Environment;
use callgate_registry::lock::LockedPackage;
use callgate_registry::paths::user_cache;
use callgate_registry::servers::{PACKAGE_PLACEHOLDER, package_folder, packages_folder};
use callgate_registry::setup::Parts;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ShowProgress;

/// Why a package is not installed.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// Nobody says where downloads are kept.
    #[error("no folder for downloads: set HOME or XDG_CACHE_HOME to an absolute path")]
    NoCache,
    /// The server has no package.
    #[error("server `{0}` has no package")]
    NoPackage(String),
    /// The package cannot be named.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// npm or pip does not install it.
    #[error(transparent)]
    Install(#[from] InstallError),
}

/// Packages that are installed, and servers that are looked at, at the same time.
pub const AT_A_TIME: usize = 4;

/// The installer, with the registries that the owner's environment names.
fn installer(parts: &Parts) -> Result<Installer, PackageError> {
    let environment = &*parts.environment;
    let search = environment.os("PATH").unwrap_or_default().to_owned();
    let cache = user_cache(environment).ok_or(PackageError::NoCache)?;
    let spawner = Arc::clone(&parts.spawner);
    let mut settings = InstallerSettings::new(spawner, search, cache.join("packages"));
    if let Some(url) = first_of(environment, &["npm_config_registry", "NPM_CONFIG_REGISTRY"]) {
        url.clone_into(&mut settings.npm.url);
    }
    if let Some(url) = first_of(environment, &["PIP_INDEX_URL", "UV_INDEX_URL"]) {
        url.clone_into(&mut settings.pypi.url);
    }
    let certificates = first_of(environment, &["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"]);
    settings.ca_file = certificates.map(PathBuf::from);
    settings.hidden = vec![parts.paths.state.clone()];
    Ok(Installer::new(settings))
}

fn first_of<'a>(environment: &'a Environment, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| environment.text(name))
}

/// Installs the package of a request for a server.
pub async fn install(
    parts: &Parts,
    server: &str,
    request: &PackageRequest,
    show: &ShowProgress,
) -> Result<LockedPackage, PackageError> {
    let root = packages_folder(parts, server);
    let progress = progress_of(server, show);
    let (installed, lock) = installer(parts)?.install(&root, request, &progress).await?;
    Ok(locked(&installed, &lock))
}

/// Installs what the lock says of a server, where it is not installed. Returns whether it was not.
pub async fn install_locked(
    parts: &Parts,
    server: &ServerConfig,
    package: &LockedPackage,
    show: &ShowProgress,
) -> Result<bool, PackageError> {
    if package_folder(parts, &server.name, package).is_dir() {
        return Ok(false);
    }
    let request =
        request_of(server)?.ok_or_else(|| PackageError::NoPackage(server.name.clone()))?;
    let lock = PackageLock {
        registry: request.spec.registry,
        text: package.resolved.clone(),
    };
    let root = packages_folder(parts, &server.name);
    let progress = progress_of(&server.name, show);
    let source = PackageSource::Registry;
    let installer = installer(parts)?;
    let wanted = (&request, &lock);
    installer
        .install_locked(&root, wanted, source, &progress)
        .await?;
    Ok(true)
}

/// Installs what the lock says of several servers, some of them at the same time. Returns for each
/// package, named with its server, whether it was not installed before.
pub async fn install_all_locked(
    parts: &Arc<Parts>,
    servers: Vec<(ServerConfig, LockedPackage)>,
    show: &ShowProgress,
) -> BTreeMap<String, Result<bool, PackageError>> {
    let mut tasks = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    for (server, package) in servers {
        let (parts, turns, show) = (Arc::clone(parts), Arc::clone(&turns), Arc::clone(show));
        tasks.spawn(async move {
            let _turn = turns.acquire().await;
            let installed = install_locked(&parts, &server, &package, &show).await;
            (format!("{}: {}", server.name, package.spec), installed)
        });
    }
    tasks.join_all().await.into_iter().collect()
}

/// The package that a server is configured with.
pub fn request_of(server: &ServerConfig) -> Result<Option<PackageRequest>, PackageError> {
    let Some(package) = &server.package else {
        return Ok(None);
    };
    let spec = PackageSpec::parse(package)?;
    let with = server.with.iter().map(|text| beside(spec.registry, text));
    Ok(Some(PackageRequest {
        with: with.collect::<Result<_, _>>()?,
        python: server.python.clone(),
        program: match server.program.as_deref() {
            None => PackageProgram::Default,
            Some(words) => match words.strip_prefix("-m ") {
                Some(module) => PackageProgram::Module(module.trim().to_owned()),
                None => PackageProgram::Script(words.to_owned()),
            },
        },
        spec,
    }))
}

fn beside(registry: Registry, text: &str) -> Result<PackageSpec, PackageError> {
    Ok(match registry {
        Registry::Npm => PackageSpec::parse_npm(text)?,
        Registry::Pypi => PackageSpec::parse_pypi(text)?,
    })
}

fn progress_of(server: &str, show: &ShowProgress) -> impl Fn(InstallStage, &str) + Send + Sync {
    move |_: InstallStage, words: &str| show(server, words)
}

/// An installation as the lock has it: its folder is written as a placeholder.
pub fn locked(installed: &Installed, lock: &PackageLock) -> LockedPackage {
    let folder = &installed.folder;
    let placed = |path: &Path| match path.strip_prefix(folder) {
        Ok(rest) => Path::new(PACKAGE_PLACEHOLDER).join(rest),
        Err(_) => path.to_owned(),
    };
    let text = |path: &Path| placed(path).to_string_lossy().into_owned();
    let env = installed.env.iter();
    let env: BTreeMap<String, String> = env
        .map(|(name, value)| (name.clone(), text(Path::new(value))))
        .collect();
    LockedPackage {
        spec: installed.spec.clone(),
        integrity: installed.integrity.clone(),
        tree: installed.lock_digest.clone(),
        entry: installed
            .entry
            .iter()
            .map(|word| text(Path::new(word)))
            .collect(),
        path: installed.path.iter().map(|path| text(path)).collect(),
        env,
        released: installed.released.clone(),
        resolved: lock.text.clone(),
    }
}
