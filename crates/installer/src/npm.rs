//! Packages of npm: versions are chosen into `package-lock.json`, which is checked, and installed
//! by `npm ci` without scripts.

mod lock;
mod program;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::confined::Command;
use crate::error::InstallError;
use crate::folder::{Draft, read_text, write_file};
use crate::programs::{Node, base_env};
use crate::request::PackageRequest;
use crate::settings::InstallerSettings;
use crate::spec::{PackageSpec, Registry, WantedVersion};

pub(crate) use lock::NpmLock;
pub(crate) use program::program;

/// The file of a lock in an installation.
pub(crate) const LOCK_FILE: &str = "package-lock.json";
/// The file that says what is wanted.
const MANIFEST_FILE: &str = "package.json";

/// One installation by npm.
pub(crate) struct NpmInstall<'a> {
    pub settings: &'a InstallerSettings,
    pub draft: &'a Draft,
    pub node: &'a Node,
    pub is_offline: bool,
}

impl NpmInstall<'_> {
    /// Chooses versions, and returns the text of the lock.
    pub async fn resolve(&self, request: &PackageRequest) -> Result<String, InstallError> {
        let tree = self.draft.tree();
        let manifest = manifest(request.packages(), None);
        write_file(&tree.join(MANIFEST_FILE), &manifest)?;
        let arguments = ["install", "--package-lock-only"];
        self.npm(&arguments)?.succeed(self.settings, &tree).await?;
        read_text(&tree.join(LOCK_FILE))
    }

    /// Installs what the lock says.
    pub async fn install(
        &self,
        request: &PackageRequest,
        lock: &NpmLock,
        text: &str,
    ) -> Result<(), InstallError> {
        let tree = self.draft.tree();
        // The manifest has to ask for what the lock was made for.
        let manifest = manifest(request.packages(), Some(lock));
        write_file(&tree.join(MANIFEST_FILE), &manifest)?;
        write_file(&tree.join(LOCK_FILE), text)?;
        self.npm(&["ci"])?.succeed(self.settings, &tree).await?;
        lock.compare(&tree)
    }

    /// Returns the day on which a version was released, if the registry tells.
    pub async fn released(&self, package: &str, version: &str) -> Option<String> {
        let package = format!("{package}@{version}");
        let command = self.npm(&["view", "--json", &package, "time"]).ok()?;
        let printed = command.succeed(self.settings, &self.draft.tree()).await;
        let times: Value = serde_json::from_slice(&printed.ok()?).ok()?;
        let time = times.get(version)?.as_str()?;
        crate::request::day_of(time)
    }

    fn npm(&self, arguments: &[&str]) -> Result<Command, InstallError> {
        let draft = self.draft;
        let mut argv = self.node.npm.clone();
        argv.extend(arguments.iter().map(OsString::from));
        let hosts = match self.is_offline {
            true => Vec::new(),
            false => self.settings.npm.hosts(Registry::Npm)?,
        };
        let cache = cache(self.settings);
        Ok(Command {
            name: "npm",
            argv,
            env: self.env(&cache),
            cwd: draft.tree(),
            hosts,
            reads: self.node.npm_folder.iter().cloned().collect(),
            writes: vec![draft.tree(), draft.home(), cache],
        })
    }

    /// Settings by environment outrank those of files, and files of users do not count.
    fn env(&self, cache: &Path) -> Vec<(OsString, OsString)> {
        let home = self.draft.home();
        let mut env = base_env(self.settings, self.draft);
        let mut set = |name: &str, value: OsString| {
            env.push((format!("npm_config_{name}").into(), value));
        };
        set("userconfig", home.join("npmrc-of-user").into());
        set("globalconfig", home.join("npmrc-of-machine").into());
        set("prefix", home.join("prefix").into());
        set("cache", cache.into());
        set("registry", self.settings.npm.url.clone().into());
        if let Some(ca_file) = &self.settings.ca_file {
            set("cafile", ca_file.into());
        }
        // Of a repository nothing is installed: there is no such program.
        set("git", "no-repositories".into());
        for (name, value) in [
            ("ignore_scripts", "true"),
            ("audit", "false"),
            ("fund", "false"),
            ("progress", "false"),
            ("loglevel", "error"),
            ("logs_max", "0"),
            ("update_notifier", "false"),
            ("package_lock", "true"),
            ("lockfile_version", "3"),
            ("omit_lockfile_registry_resolved", "false"),
            ("global", "false"),
            ("strict_ssl", "true"),
            ("fetch_retries", "2"),
            ("fetch_retry_mintimeout", "1000"),
            ("fetch_retry_maxtimeout", "4000"),
            ("offline", if self.is_offline { "true" } else { "false" }),
        ] {
            set(name, value.into());
        }
        env
    }
}

/// The folder of npm's downloads.
pub(crate) fn cache(settings: &InstallerSettings) -> PathBuf {
    settings.cache.join("npm")
}

/// A manifest that asks for these packages, at the versions of the lock if there is one.
fn manifest<'a>(packages: impl Iterator<Item = &'a PackageSpec>, lock: Option<&NpmLock>) -> String {
    let mut wanted = serde_json::Map::new();
    for package in packages {
        let asked = lock.and_then(|lock| lock.asked(&package.name));
        let version = match (asked, &package.version) {
            (Some(asked), _) => asked,
            (None, WantedVersion::Newest) => "latest",
            (None, WantedVersion::Exact(version) | WantedVersion::Range(version)) => version,
        };
        wanted.insert(package.name.clone(), version.into());
    }
    let manifest = json!({
        "name": lock::ROOT_NAME,
        "version": "0.0.0",
        "private": true,
        "dependencies": wanted,
    });
    format!("{manifest:#}\n")
}
