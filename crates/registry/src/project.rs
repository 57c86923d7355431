//! The tools of a namel3ss project in the workspace: bindings, packs, and the keys of
//! `namel3ss.toml` about them. Read with the configuration, trusted with it, and resolved here
//! into tools like any other: a name that could mean two things is an error. TP-64.

mod resolve;
mod settings;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{Digest, Guarantees, Origin, OriginSource, chain};
use callgate_store::{Store, StoreError};
use callgate_wires::tool_protocol::{Binding, Kind, is_entry, read_bindings, slug};

use crate::config::ToolConfig;
use crate::environment::Environment;
use crate::pack::{
    INSTALLED, LOCAL, Owner, OwnerFile, PACKS_MAX, Pack, Policy, PolicyError, judge, read_policy,
    standing,
};
use crate::plain;
use crate::workspace::{FILE_BYTES_MAX, Reader, SourceError};
use resolve::Project;
pub use settings::{OverrideError, ProjectSettingsError, Settings};

const SETTINGS: &str = "namel3ss.toml";
const FOLDER: &str = ".namel3ss";
const BINDINGS: &str = ".namel3ss/tools.yaml";
const POLICY: &str = ".namel3ss/trust/policy.toml";
/// Most folders and files that are looked at for changes; what is beyond shows at a reload.
const STAMP_LOOKS_MAX: usize = 100_000;
/// Most files of `tools/` that are looked at where there are no bindings.
const FOUND_MAX: usize = 1000;

/// What a tool of a project brings along, beside what any tool has.
#[derive(Debug, Clone)]
pub struct Bound {
    /// For traces.
    pub origin: Arc<Origin>,
    /// What was asked of it, by whom.
    pub guarantees: Guarantees,
    /// It may reach hosts.
    pub network: bool,
    /// It may run even where a promise can not be kept.
    pub unsafe_execution: bool,
    /// Its binding turns confinement off.
    pub unconfined: bool,
    /// The pack's code, to be laid out before it runs.
    pub code: Option<Arc<Code>>,
}

impl Bound {
    /// Returns whether the pack that the tool is of, if it is of one, is in the workspace as it
    /// was when it was read. One that was removed or changed runs no longer.
    pub fn is_as_trusted(&self, root: &Path) -> bool {
        let Some(code) = &self.code else {
            return true;
        };
        let parent = match self.origin.source {
            OriginSource::LocalPack => LOCAL,
            _ => INSTALLED,
        };
        let pack = Pack::read(&root.join(parent).join(&code.id));
        pack.is_ok_and(|pack| pack.files.digest() == code.digest)
    }
}

/// A pack's files as they were verified.
#[derive(Debug)]
pub struct Code {
    /// Name of the pack.
    pub id: String,
    /// Digest over its files.
    pub digest: Digest,
    /// Paths in the pack, and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Why the code of a pack has no folder.
#[derive(Debug, thiserror::Error)]
#[error("lay out pack {pack}")]
pub struct LayOutError {
    /// Name of the pack.
    pub pack: String,
    /// The error of the state.
    pub source: StoreError,
}

impl Code {
    /// What the names of folders of code begin with.
    pub const FOLDERS: &str = "packs-";

    /// The name of its folder in the state, which names the content.
    pub fn folder(&self) -> String {
        format!("{}{}", Self::FOLDERS, self.digest)
    }

    /// Its folder, out of the tools' reach: what runs is what was looked at, whatever becomes
    /// of the pack in the workspace.
    pub fn lay_out(&self, store: &Store, home: Option<&Path>) -> Result<PathBuf, LayOutError> {
        let folder = store.unpack_held(home, &self.folder(), &self.files);
        folder.map_err(|source| LayOutError {
            pack: self.id.clone(),
            source,
        })
    }
}

/// True if we are root and a workspace is somebody else's, whom its tools become (P-16).
pub fn is_of_another(environment: &Environment, workspace: &Path) -> bool {
    let owner = std::fs::metadata(workspace).map_or(0, |found| found.uid());
    environment.uid == 0 && owner != 0
}

/// Where code is laid out if not in the state: for root's children in somebody else's workspace,
/// who become that somebody (P-16) and may not enter root's state.
pub fn code_home(environment: &Environment, workspace: &Path) -> Option<PathBuf> {
    let home = environment.os("CALLGATE_CODE").map(PathBuf::from);
    is_of_another(environment, workspace)
        .then(|| home.unwrap_or_else(|| PathBuf::from("/var/lib/callgate")))
}

/// True if a workspace has anything of a project.
pub fn exists(root: &Path) -> bool {
    [SETTINGS, BINDINGS, INSTALLED, LOCAL]
        .iter()
        .any(|name| root.join(name).exists())
}

/// Reads what a workspace has of a project.
pub fn read(
    reader: &mut Reader,
    environment: &Environment,
) -> Result<Vec<ToolConfig>, SourceError> {
    let root = reader.root().to_owned();
    let mut settings = match reader.optional(SETTINGS)? {
        None => Settings::default(),
        Some(text) => {
            Settings::read(&text).map_err(|error| wrong(&root, SETTINGS, chain(&error)))?
        }
    };
    let overlaid = settings.overlay(environment);
    overlaid.map_err(|error| wrong(&root, SETTINGS, chain(&error)))?;
    let policy = match reader.optional(POLICY)? {
        None => Policy::default(),
        Some(text) => read_policy(&text).map_err(|error| wrong(&root, POLICY, chain(&error)))?,
    };
    let bindings = match reader.optional(BINDINGS)? {
        Some(text) => {
            read_bindings(&text).map_err(|error| wrong(&root, BINDINGS, error.to_string()))?
        }
        None => found_bindings(reader)?,
    };
    let (packs, owner) = packs(reader, environment, &settings, &policy)?;
    let project = Project {
        root: &root,
        is_copy: reader.is_copy(),
        settings: &settings,
        policies: [&owner.policy, &policy],
        bindings: &bindings,
        packs: &packs,
    };
    let tools = tools(&project)?;
    mark(reader);
    Ok(tools)
}

/// Makes folders that count by being there part of the copy, where one is made.
fn mark(reader: &mut Reader) {
    const MARK: &str = ".callgate-copy";
    let folders = [LOCAL, INSTALLED, FOLDER].into_iter();
    let there: Vec<&str> = folders
        .filter(|folder| reader.base().join(folder).is_dir())
        .collect();
    for folder in there {
        reader.copy(&format!("{folder}/{MARK}"), b"");
    }
}

fn tools(project: &Project<'_>) -> Result<Vec<ToolConfig>, SourceError> {
    project.tools().map_err(|unresolved| {
        let reason = format!("{}: {}", unresolved.code, unresolved.reason);
        wrong(project.root, unresolved.file, reason)
    })
}

/// The tools of the pack in the reader's folder, and of nothing else there. That it is named
/// makes it count (T-11); that it was signed and changed still speaks against it.
pub fn of_pack(reader: &mut Reader) -> Result<Vec<ToolConfig>, SourceError> {
    let root = reader.root().to_owned();
    let none = Policy::default();
    let loaded = load(
        reader,
        &root,
        OriginSource::LocalPack,
        &OwnerFile::default(),
        &none,
    )?;
    tools(&Project {
        root: &root,
        is_copy: false,
        settings: &Settings::default(),
        policies: [&none, &none],
        bindings: &BTreeMap::new(),
        packs: &[loaded],
    })
}

/// What a workspace's own policy says of packs.
pub fn policy(root: &Path) -> Result<Policy, ProjectError> {
    match plain::read_text(&root.join(POLICY), FILE_BYTES_MAX) {
        Ok(text) => read_policy(&text).map_err(ProjectError::Policy),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Policy::default()),
        Err(source) => Err(ProjectError::Read {
            file: POLICY,
            source,
        }),
    }
}

/// Why what a project says of itself cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// A file cannot be read.
    #[error("read {file}")]
    Read {
        /// Its name in the workspace.
        file: &'static str,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The policy.
    #[error("{POLICY}")]
    Policy(#[source] PolicyError),
    /// The settings.
    #[error("{SETTINGS}")]
    Settings(#[source] ProjectSettingsError),
}

/// What a project says of its packs, without the environment.
pub fn settings(root: &Path) -> Result<Settings, ProjectError> {
    match plain::read_text(&root.join(SETTINGS), FILE_BYTES_MAX) {
        Ok(text) => Settings::read(&text).map_err(ProjectError::Settings),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Settings::default()),
        Err(source) => Err(ProjectError::Read {
            file: SETTINGS,
            source,
        }),
    }
}

fn wrong(root: &Path, file: &str, reason: String) -> SourceError {
    SourceError::Wrong {
        path: root.join(file),
        reason,
    }
}

/// Without a bindings file, each `tools/NAME.py` and `tools/NAME/__init__.py` with a function
/// `run` is the tool NAME. Only in a project: elsewhere such a folder means nothing by itself.
fn found_bindings(reader: &mut Reader) -> Result<BTreeMap<String, Binding>, SourceError> {
    let base = reader.base().to_owned();
    let mut found = BTreeMap::new();
    if !base.join(SETTINGS).exists() && !base.join(FOLDER).is_dir() {
        return Ok(found);
    }
    let Ok(entries) = std::fs::read_dir(base.join("tools")) else {
        return Ok(found);
    };
    let mut names: Vec<String> = entries
        .take(FOUND_MAX)
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    for name in names {
        let stem = name.strip_suffix(".py").unwrap_or(&name).to_owned();
        let file = match name.ends_with(".py") {
            true => format!("tools/{name}"),
            false => format!("tools/{name}/__init__.py"),
        };
        let named = stem == slug(&stem) && is_entry(&format!("tools.{stem}:run"));
        if named && !stem.starts_with('_') && has_run(&base.join(&file)) {
            found.insert(stem.clone(), plain_binding(format!("tools.{stem}:run")));
            // What is found decides which tools there are; their code is theirs to change.
            reader.note("found", stem.as_bytes());
            reader.copy(&file, b"def run(\n");
        }
    }
    Ok(found)
}

fn has_run(file: &Path) -> bool {
    const BYTES_MAX: u64 = 1024 * 1024;
    let text = plain::read(file, BYTES_MAX).unwrap_or_default();
    let starts = ["def run(", "async def run("];
    String::from_utf8_lossy(&text)
        .lines()
        .any(|line| starts.iter().any(|start| line.starts_with(start)))
}

fn plain_binding(entry: String) -> Binding {
    Binding {
        kind: Kind::Python,
        entry,
        runner: None,
        url: None,
        image: None,
        command: None,
        env: None,
        purity: None,
        timeout_ms: None,
        sandbox: None,
        enforcement: None,
    }
}

/// A pack that counts.
struct Loaded {
    pack: Pack,
    source: OriginSource,
    code: Arc<Code>,
}

/// The packs of a workspace that are enabled, each judged. One that does not count fails all:
/// half a project is not what anybody trusted.
fn packs(
    reader: &mut Reader,
    environment: &Environment,
    settings: &Settings,
    policy: &Policy,
) -> Result<(Vec<Loaded>, OwnerFile), SourceError> {
    let (root, base) = (reader.root().to_owned(), reader.base().to_owned());
    let installed = folders(&base, INSTALLED)?.into_iter();
    let installed = installed.map(|name| (INSTALLED, name, OriginSource::InstalledPack));
    let local = folders(&base, LOCAL)?.into_iter();
    let local = local.map(|name| (LOCAL, name, OriginSource::LocalPack));
    let all: Vec<_> = local
        .chain(installed)
        .filter(|(_, name, _)| settings.enables(name))
        .collect();
    if let Some(id) = settings
        .enabled
        .iter()
        .find(|id| !all.iter().any(|(_, name, _)| name == *id))
    {
        let reason = format!(
            "pack_unavailable_or_unverified: enabled_packs names {id}, which is neither in \
             {INSTALLED} nor in {LOCAL}"
        );
        return Err(wrong(&root, SETTINGS, reason));
    }
    let mut owner = OwnerFile::default();
    if !all.is_empty() {
        let read = Owner::new(environment).read_for(&root);
        owner = read.map_err(|error| SourceError::Owner(Box::new(error)))?;
    }
    let mut packs = Vec::new();
    for (parent, name, source) in all {
        let folder = base.join(parent).join(&name);
        let loaded = load(reader, &folder, source, &owner, policy)?;
        if loaded.pack.manifest.id != name {
            let id = &loaded.pack.manifest.id;
            let reason = format!("its id is {id}, and its folder must have that name");
            return Err(wrong(&folder, "pack.yaml", reason));
        }
        packs.push(loaded);
    }
    Ok((packs, owner))
}

/// Reads a pack and judges it.
fn load(
    reader: &mut Reader,
    folder: &Path,
    source: OriginSource,
    owner: &OwnerFile,
    policy: &Policy,
) -> Result<Loaded, SourceError> {
    let pack = Pack::read(folder).map_err(|error| SourceError::Wrong {
        path: folder.to_owned(),
        reason: error.to_string(),
    })?;
    let standing = standing(&pack, &owner.keys);
    let unverified = owner.policy.allow_unverified_enable;
    let judged = judge(&pack, source, &standing, unverified, &owner.policy, policy);
    judged.map_err(|refusal| SourceError::Refused {
        path: folder.to_owned(),
        refusal: Box::new(refusal),
    })?;
    let code = code(&pack);
    let name = folder.strip_prefix(reader.base()).unwrap_or(folder);
    let name = name.to_string_lossy();
    reader.note(&name, &code.digest.0);
    for (file, bytes) in pack.files.all() {
        reader.copy(&format!("{name}/{file}"), bytes);
    }
    Ok(Loaded { pack, source, code })
}

fn code(pack: &Pack) -> Arc<Code> {
    let content = pack.files.content();
    Arc::new(Code {
        id: pack.manifest.id.clone(),
        digest: pack.files.digest(),
        files: content
            .map(|(path, bytes)| (path.to_owned(), bytes.to_vec()))
            .collect(),
    })
}

/// The names of the folders in one of the packs' folders. Hidden ones are in the making.
pub fn folders(root: &Path, parent: &str) -> Result<Vec<String>, SourceError> {
    let parent = root.join(parent);
    let failed = |source| SourceError::Read {
        path: parent.clone(),
        source,
    };
    let entries = match std::fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // A link is met, and refused, when the pack is read.
        let is_file = entry.file_type().map_err(failed)?.is_file();
        if !is_file && !name.starts_with('.') {
            names.push(name);
        }
    }
    if names.len() > PACKS_MAX {
        let reason = format!("more than {PACKS_MAX} packs");
        return Err(SourceError::Wrong {
            path: parent,
            reason,
        });
    }
    names.sort();
    Ok(names)
}

/// Changes whenever anything does that decides what a project is: times and sizes of all its
/// files, and of the owner's. Cheap, so that it can be asked for every second.
pub fn stamp(environment: &Environment, root: &Path) -> Digest {
    let names = [SETTINGS, BINDINGS, POLICY, INSTALLED, LOCAL, "tools"];
    let mut left: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    left.extend(Owner::new(environment).files());
    let mut seen = Vec::new();
    let mut looks = 0;
    while let Some(path) = left.pop() {
        looks += 1;
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        // A change moves the time of change, which nobody can set back.
        let numbers = [
            meta.ino(),
            meta.len(),
            meta.ctime() as u64,
            meta.ctime_nsec() as u64,
        ];
        seen.extend_from_slice(path.as_os_str().as_encoded_bytes());
        seen.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
        let entries = match meta.is_dir() && looks < STAMP_LOOKS_MAX {
            true => std::fs::read_dir(&path).ok(),
            false => None,
        };
        left.extend(
            entries
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path()),
        );
    }
    Digest::of_bytes(&seen)
}
