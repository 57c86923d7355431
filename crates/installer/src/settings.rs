//! What an installer is told by its owner: registries, programs, bounds.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callgate_sandbox::Spawner;

use crate::error::InstallError;
use crate::spec::Registry;

/// Bytes of one installation, and of the folder of downloads.
const BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
/// Files of one installation.
const FILES_MAX: u64 = 200_000;
/// Time for one run of a package manager.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Settings of an [`Installer`](crate::Installer).
#[derive(Clone)]
pub struct InstallerSettings {
    /// Makes children.
    pub spawner: Arc<Spawner>,
    /// The folders in which `node`, `npm` and `python3` are looked up: the `PATH` of the owner.
    pub search: OsString,
    /// A folder for downloads, shared by all installations. Removed when it has grown past
    /// `bytes_max`.
    pub cache: PathBuf,
    /// The registry of npm.
    pub npm: RegistrySettings,
    /// The Python Package Index.
    pub pypi: RegistrySettings,
    /// A file of certificates to trust beside those that the programs bring along.
    pub ca_file: Option<PathBuf>,
    /// Paths that no package manager may read: state of the gate.
    pub hidden: Vec<PathBuf>,
    /// Time for one run of a package manager.
    pub timeout: Duration,
    /// Bytes of one installation.
    pub bytes_max: u64,
    /// Files of one installation.
    pub files_max: u64,
}

impl InstallerSettings {
    /// The settings with the public registries and the usual bounds.
    #[must_use]
    pub fn new(spawner: Arc<Spawner>, search: OsString, cache: PathBuf) -> Self {
        Self {
            spawner,
            search,
            cache,
            npm: RegistrySettings::npm(),
            pypi: RegistrySettings::pypi(),
            ca_file: None,
            hidden: Vec::new(),
            timeout: TIMEOUT,
            bytes_max: BYTES_MAX,
            files_max: FILES_MAX,
        }
    }
}

/// The address of a registry. Its `Debug` form leaves the address out, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    /// The address, as the package manager takes it.
    pub url: String,
    /// Hosts with their ports that archives may come from, beside the registry's own:
    /// `files.pythonhosted.org:443`.
    pub archive_hosts: Vec<String>,
}

impl fmt::Debug for RegistrySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RegistrySettings");
        shown.field("archive_hosts", &self.archive_hosts);
        shown.finish_non_exhaustive()
    }
}

impl RegistrySettings {
    /// The public registry of npm.
    #[must_use]
    pub fn npm() -> Self {
        Self {
            url: "https://registry.npmjs.org/".to_owned(),
            archive_hosts: Vec::new(),
        }
    }

    /// The public Python Package Index.
    #[must_use]
    pub fn pypi() -> Self {
        Self {
            url: "https://pypi.org/simple/".to_owned(),
            archive_hosts: vec!["files.pythonhosted.org:443".to_owned()],
        }
    }

    /// The hosts with their ports that an installation may reach.
    pub(crate) fn hosts(&self, registry: Registry) -> Result<Vec<String>, InstallError> {
        let own = Origin::parse(&self.url).ok_or(InstallError::BadRegistry { registry })?;
        let mut hosts = vec![own.host];
        hosts.extend(self.archive_hosts.iter().cloned());
        Ok(hosts)
    }

    /// Returns whether an archive at `url` comes from this registry. Without TLS only the
    /// registry's own address counts.
    pub(crate) fn has_archive(&self, url: &str) -> bool {
        let Some(origin) = Origin::parse(url) else {
            return false;
        };
        let own = Origin::parse(&self.url);
        own.is_some_and(|own| own == origin)
            || origin.is_https && self.archive_hosts.contains(&origin.host)
    }
}

/// The part of an address that says who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_https: bool,
    /// The host with its port.
    host: String,
}

impl Origin {
    fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (is_https, port) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let host = authority.rsplit('@').next()?.to_ascii_lowercase();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_plain) {
            return None;
        }
        // The colons of a bracketed address are its own.
        let has_port = host.rfind(':') > host.rfind(']');
        let host = match has_port {
            true => host,
            false => format!("{host}:{port}"),
        };
        Some(Self { is_https, host })
    }
}

/// A step of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStage {
    /// The programs that install packages are looked for.
    Prepare,
    /// Versions are chosen.
    Resolve,
    /// Packages are downloaded and unpacked.
    Install,
    /// The installation is compared with its lock.
    Check,
    /// The installation gets its name.
    Place,
}

/// A function that is called as each step begins, with words for people.
pub type InstallProgress<'a> = &'a (dyn Fn(InstallStage, &str) + Send + Sync);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_come_from_the_registry() {
        let pypi = RegistrySettings::pypi();
        let local = RegistrySettings {
            url: "http://user:word@localhost:4873/npm/".to_owned(),
            archive_hosts: vec!["[::1]:443".to_owned()],
        };
        for (settings, url, fits) in [
            (&pypi, "https://pypi.org/a.whl", true),
            (&pypi, "https://PyPI.org:443/a.whl", true),
            (&pypi, "https://files.pythonhosted.org/a.whl", true),
            (&pypi, "http://files.pythonhosted.org:443/a.whl", false),
            (&pypi, "http://pypi.org/a.whl", false),
            (&pypi, "https://pypi.org.evil.test/a.whl", false),
            (&pypi, "https://pypi.org@evil.test/a.whl", false),
            (&pypi, "https://pypi.org:444/a.whl", false),
            (&pypi, "file:///a.whl", false),
            (&pypi, "git+https://pypi.org/a", false),
            (&pypi, "", false),
            (&local, "http://localhost:4873/a.tgz", true),
            (&local, "https://localhost:4873/a.tgz", false),
            (&local, "http://localhost/a.tgz", false),
            (&local, "https://[::1]/a.tgz", true),
        ] {
            assert_eq!(settings.has_archive(url), fits, "{url}");
        }
        let hosts = local.hosts(Registry::Npm).unwrap();
        assert_eq!(hosts, ["localhost:4873", "[::1]:443"]);
        assert!(!format!("{local:?}").contains("word"));
    }
}
