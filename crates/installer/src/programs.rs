//! The programs that install packages: where they are on the owner's `PATH`, and their versions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::confined::Command;
use crate::error::InstallError;
use crate::folder::Draft;
use crate::settings::InstallerSettings;

const NODE_ADVICE: &str =
    "install Node.js with npm, from https://nodejs.org or your system's packages";
const PYTHON_ADVICE: &str =
    "install Python 3.10 or later, from your system's packages or https://python.org";
const PIP_ADVICE: &str = "`python3 -m ensurepip --upgrade`, or your system's package `python3-pip`";

/// The first pip that installs into another environment.
const PIP_NEEDED: &str = "22.3";
const PIP_NEEDED_NUMBERS: (u32, u32) = (22, 3);

/// Prints what there is to know of an interpreter.
const PYTHON_QUESTION: &str = "\
import json, os, sys, sysconfig
try:
    import pip
    pip = pip.__version__
except Exception:
    pip = None
base = getattr(sys, '_base_executable', None) or sys.executable
print(json.dumps({
    'executable': sys.executable,
    'base': os.path.realpath(base),
    'version': '.'.join(map(str, sys.version_info[:3])),
    'platform': sysconfig.get_platform(),
    'pip': pip,
}))
";

/// Node with its package manager.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The interpreter.
    pub node: PathBuf,
    /// The command of npm.
    pub npm: Vec<OsString>,
    /// The folder of npm, if it is a script of Node.
    pub npm_folder: Option<PathBuf>,
}

/// A Python interpreter.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Python {
    /// The interpreter that has pip.
    pub executable: PathBuf,
    /// The interpreter behind it, outside of virtual environments.
    pub base: PathBuf,
    pub version: String,
    pub platform: String,
    pip: Option<String>,
}

impl Node {
    /// Finds Node and npm.
    pub async fn find(settings: &InstallerSettings, draft: &Draft) -> Result<Self, InstallError> {
        let missing = |program: &str| InstallError::ProgramMissing {
            program: program.to_owned(),
            advice: NODE_ADVICE,
        };
        let node = search(settings, "node").ok_or_else(|| missing("node"))?;
        let npm = search(settings, "npm").ok_or_else(|| missing("npm"))?;
        // A version manager's `node` is a script of its own.
        let command = Command {
            name: "node",
            argv: [
                node.as_os_str(),
                OsStr::new("-p"),
                OsStr::new("process.execPath"),
            ]
            .map(OsStr::to_owned)
            .into(),
            env: base_env(settings, draft),
            cwd: draft.tree(),
            hosts: Vec::new(),
            reads: Vec::new(),
            writes: vec![draft.tree(), draft.home()],
        };
        let printed = command.succeed(settings, &draft.tree()).await?;
        let told = PathBuf::from(OsStr::from_bytes(printed.trim_ascii()));
        let node = if told.is_absolute() { told } else { node };
        let script = npm.canonicalize().unwrap_or_else(|_| npm.clone());
        let is_script = script.extension().is_some_and(|ending| ending == "js");
        Ok(match is_script {
            true => Self {
                npm: vec![node.clone().into(), script.clone().into()],
                npm_folder: script.ancestors().nth(2).map(Path::to_owned),
                node,
            },
            false => Self {
                node,
                npm: vec![npm.into()],
                npm_folder: None,
            },
        })
    }
}

impl Python {
    /// Finds an interpreter by what a launcher calls it: `3.12`, `python3.12`, a path.
    pub async fn find(
        settings: &InstallerSettings,
        draft: &Draft,
        wanted: Option<&str>,
    ) -> Result<Self, InstallError> {
        let name = match wanted {
            None => "python3".to_owned(),
            Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => {
                let numbers: Vec<&str> = version.splitn(3, '.').take(2).collect();
                format!("python{}", numbers.join("."))
            }
            Some(name) => name.to_owned(),
        };
        let found = search(settings, &name).ok_or_else(|| InstallError::ProgramMissing {
            program: name.clone(),
            advice: PYTHON_ADVICE,
        })?;
        let command = Command {
            name: "python3",
            argv: [found.as_os_str(), OsStr::new("-I"), OsStr::new("-c")]
                .into_iter()
                .chain([OsStr::new(PYTHON_QUESTION)])
                .map(OsStr::to_owned)
                .collect(),
            env: base_env(settings, draft),
            cwd: draft.tree(),
            hosts: Vec::new(),
            reads: Vec::new(),
            writes: vec![draft.tree(), draft.home()],
        };
        let printed = command.succeed(settings, &draft.tree()).await?;
        let python: Self =
            serde_json::from_slice(&printed).map_err(|error| InstallError::Failed {
                program: name.clone(),
                words: error.to_string(),
                refused: None,
            })?;
        python.check_pip()?;
        Ok(python)
    }

    fn check_pip(&self) -> Result<(), InstallError> {
        let program = format!("pip of {}", self.executable.display());
        let Some(found) = &self.pip else {
            return Err(InstallError::ProgramMissing {
                program,
                advice: PIP_ADVICE,
            });
        };
        let mut numbers = found.split('.').map(|number| number.parse::<u32>().ok());
        let numbers = (
            numbers.next().flatten().unwrap_or(0),
            numbers.next().flatten().unwrap_or(0),
        );
        if numbers < PIP_NEEDED_NUMBERS {
            return Err(InstallError::ProgramTooOld {
                program,
                found: found.clone(),
                needed: PIP_NEEDED,
                advice: PIP_ADVICE,
            });
        }
        Ok(())
    }

    /// The version without its last number: `3.11`.
    pub fn short_version(&self) -> &str {
        match self.version.rsplit_once('.') {
            Some((short, _)) => short,
            None => &self.version,
        }
    }

    /// The interpreter and platform that a lock is for: `python 3.11 linux-x86_64`.
    pub fn target(&self) -> String {
        format!("python {} {}", self.short_version(), self.platform)
    }
}

/// The first file of that name in the folders of `PATH`, or the path that `name` is.
fn search(settings: &InstallerSettings, name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return (path.is_absolute() && path.is_file()).then_some(path);
    }
    std::env::split_paths(&settings.search)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Tables of media types that Python's library reads where they are.
const MEDIA_TYPES: [&str; 5] = [
    "/etc/mime.types",
    "/etc/httpd/mime.types",
    "/etc/httpd/conf/mime.types",
    "/etc/apache/mime.types",
    "/etc/apache2/mime.types",
];

/// The files of the system that pip ends with an error for if it finds and may not read them: those
/// that tell one system from another, and tables of media types.
pub(crate) fn pip_reads() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/etc").into_iter().flatten().flatten();
    let is_name = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let ends = ["-release", "_release", "-version", "_version"];
        ends.iter().any(|end| name.ends_with(end))
    };
    let names = entries.map(|entry| entry.path()).filter(is_name);
    let paths = names.chain(MEDIA_TYPES.map(PathBuf::from));
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

/// The environment of every package manager: nothing of the owner's but where programs are.
pub(crate) fn base_env(settings: &InstallerSettings, draft: &Draft) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = vec![
        ("PATH".into(), settings.search.clone()),
        ("HOME".into(), draft.home().into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("NO_COLOR".into(), "1".into()),
        ("CI".into(), "1".into()),
    ];
    if let Some(ca_file) = &settings.ca_file {
        env.push(("NODE_EXTRA_CA_CERTS".into(), ca_file.into()));
        env.push(("SSL_CERT_FILE".into(), ca_file.into()));
    }
    env
}
