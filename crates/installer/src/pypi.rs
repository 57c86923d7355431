//! Packages of the Python Package Index: versions are chosen by pip into a list of requirements
//! with digests, downloaded as wheels, and installed into a virtual environment without a network.

mod lock;
mod program;
mod venv;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::confined::Command;
use crate::error::InstallError;
use crate::folder::{Draft, make_folder, read_text, write_file};
use crate::programs::{Python, base_env, pip_reads};
use crate::request::PackageRequest;
use crate::settings::InstallerSettings;
use crate::spec::{Registry, normal_pypi_name};

pub(crate) use lock::PypiLock;
pub(crate) use program::program;
pub(crate) use venv::Venv;

/// The file of a lock in an installation.
pub(crate) const LOCK_FILE: &str = "requirements.lock";
/// What pip says it would install.
const REPORT_FILE: &str = "report.json";

/// Prints the upload times of a package's files. The index answers in JSON or in HTML.
const RELEASED: &str = r#"
import html.parser, json, os, sys, urllib.request
times = {}
class Links(html.parser.HTMLParser):
    time = None
    def handle_starttag(self, tag, attributes):
        self.time = dict(attributes).get('data-upload-time')
    def handle_data(self, data):
        if self.time:
            times[data.strip()] = self.time
            self.time = None
accept = 'application/vnd.pypi.simple.v1+json, text/html;q=0.5'
request = urllib.request.Request(sys.argv[1], headers={'Accept': accept})
with urllib.request.urlopen(request, timeout=30) as answer:
    body = answer.read(64 << 20)
    if 'json' in answer.headers.get('Content-Type', ''):
        for file in json.loads(body)['files']:
            times[file['filename']] = file.get('upload-time', '')
    else:
        Links().feed(body.decode())
print(json.dumps(times))
"#;

/// One installation by pip.
pub(crate) struct PypiInstall<'a> {
    pub settings: &'a InstallerSettings,
    pub draft: &'a Draft,
    pub python: &'a Python,
    pub is_offline: bool,
}

impl PypiInstall<'_> {
    /// Chooses versions, and returns the text of the lock.
    pub async fn resolve(&self, request: &PackageRequest) -> Result<String, InstallError> {
        let report = self.draft.home().join(REPORT_FILE);
        let mut arguments: Vec<OsString> = ["install", "--dry-run", "--ignore-installed"]
            .map(OsString::from)
            .into();
        arguments.extend(["--report".into(), report.clone().into(), "--".into()]);
        arguments.extend(request.packages().map(|one| one.requirement().into()));
        let tree = self.draft.tree();
        self.pip(arguments, true)?
            .succeed(self.settings, &tree)
            .await?;
        let report = read_text(&report)?;
        let lock = lock::of_report(&report, &self.python.target(), &self.settings.pypi)?;
        Ok(lock)
    }

    /// Installs what the lock says into a virtual environment.
    pub async fn install(
        &self,
        lock: &PypiLock,
        text: &str,
        venv: &Venv,
    ) -> Result<(), InstallError> {
        if lock.target != self.python.target() {
            return Err(InstallError::OtherInterpreter {
                wanted: lock.target.clone(),
                found: self.python.target(),
            });
        }
        let tree = self.draft.tree();
        let requirements = tree.join(LOCK_FILE);
        write_file(&requirements, text)?;
        let wheels = wheels(self.settings);
        make_folder(&wheels)?;
        if !self.is_offline {
            let mut arguments: Vec<OsString> = vec!["download".into(), "--dest".into()];
            arguments.extend([wheels.clone().into(), "--no-deps".into()]);
            arguments.extend(["--require-hashes".into(), "-r".into()]);
            arguments.push(requirements.clone().into());
            self.pip(arguments, true)?
                .succeed(self.settings, &tree)
                .await?;
        }
        venv.make(self.python)?;
        let mut arguments: Vec<OsString> = vec!["--python".into(), venv.python().into()];
        arguments.extend(["install", "--no-index", "--find-links"].map(OsString::from));
        arguments.extend([wheels.into(), "--no-deps".into()]);
        arguments.extend(["--require-hashes".into(), "-r".into()]);
        arguments.push(requirements.into());
        // Unpacking needs no network.
        self.pip(arguments, false)?
            .succeed(self.settings, &tree)
            .await?;
        lock.compare(&venv.packages(self.python)?)
    }

    /// Returns the day on which a version was released, if the index tells.
    pub async fn released(&self, package: &str, version: &str) -> Option<String> {
        let url = format!(
            "{}/{package}/",
            self.settings.pypi.url.trim_end_matches('/')
        );
        let mut command = self.pip(Vec::new(), true).ok()?;
        command.argv = vec![
            self.python.executable.clone().into(),
            "-I".into(),
            "-c".into(),
            RELEASED.into(),
            url.into(),
        ];
        let printed = command.succeed(self.settings, &self.draft.tree()).await;
        let times: Value = serde_json::from_slice(&printed.ok()?).ok()?;
        let is_of_version = |file: &str| {
            let mut parts = file.splitn(3, '-');
            let name = parts.next().unwrap_or_default();
            file.ends_with(".whl")
                && normal_pypi_name(name) == package
                && parts.next() == Some(version)
        };
        let times = times.as_object()?.iter();
        let mut times = times.filter(|(file, _)| is_of_version(file));
        crate::request::day_of(times.next()?.1.as_str()?)
    }

    fn pip(&self, arguments: Vec<OsString>, has_network: bool) -> Result<Command, InstallError> {
        let draft = self.draft;
        let mut argv: Vec<OsString> = vec![self.python.executable.clone().into()];
        argv.extend(["-I", "-m", "pip"].map(OsString::from));
        argv.extend(arguments);
        let hosts = match has_network && !self.is_offline {
            true => self.settings.pypi.hosts(Registry::Pypi)?,
            false => Vec::new(),
        };
        let cache = cache(self.settings);
        Ok(Command {
            name: "pip",
            argv,
            env: self.env(&cache),
            cwd: draft.tree(),
            hosts,
            reads: pip_reads(),
            writes: vec![draft.tree(), draft.home(), cache],
        })
    }

    /// Settings by environment; those of files do not count.
    fn env(&self, cache: &Path) -> Vec<(OsString, OsString)> {
        let mut env = base_env(self.settings, self.draft);
        let mut set = |name: &str, value: OsString| {
            env.push((format!("PIP_{name}").into(), value));
        };
        // The one name by which pip reads no settings at all.
        set("CONFIG_FILE", "/dev/null".into());
        set("CACHE_DIR", cache.join("http").into());
        set("INDEX_URL", self.settings.pypi.url.clone().into());
        if let Some(ca_file) = &self.settings.ca_file {
            set("CERT", ca_file.into());
        }
        for (name, value) in [
            // A package that has to be built would run its own code.
            ("ONLY_BINARY", ":all:"),
            ("NO_INPUT", "1"),
            ("DISABLE_PIP_VERSION_CHECK", "1"),
            ("NO_WARN_SCRIPT_LOCATION", "1"),
            ("ROOT_USER_ACTION", "ignore"),
            ("PROGRESS_BAR", "off"),
            ("QUIET", "1"),
            ("RETRIES", "2"),
            ("NO_COLOR", "1"),
        ] {
            set(name, value.into());
        }
        env
    }
}

/// The folder of pip's downloads.
pub(crate) fn cache(settings: &InstallerSettings) -> PathBuf {
    settings.cache.join("pypi")
}

/// The folder of downloaded wheels.
fn wheels(settings: &InstallerSettings) -> PathBuf {
    cache(settings).join("wheels")
}
