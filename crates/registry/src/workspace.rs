//! A workspace's configuration as files: read, digested, and parsed. Whether it counts is
//! `trust.rs`; what it becomes is `catalog.rs`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use callgate_call::{Digest, chain};
use callgate_wires::json;
use callgate_wires::toolhost::{Manifest, is_aid};
use rustix::fs::{Mode, OFlags};
use serde_json::{Map, Value};

use crate::config::{self, Config, RunnerConfig, SchemaSource, ToolConfig};
use crate::declared::{DECLARED_FILE, Declarations, MergeError, entry_of};
use crate::environment::Environment;
use crate::lock::{LOCK_FILE, ServersLock};
use crate::pack::{OwnerError, Refusal};
use crate::project;

/// The configuration's usual name.
pub const CONFIG_FILE: &str = "callgate.toml";
/// A pack's manifest.
pub const PACK_FILE: &str = "pack.yaml";
/// A toolpack's usual names.
const MANIFEST_FILES: [&str; 2] = ["toolpack.json", "manifest.json"];

/// Most bytes a configuration may consist of.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A configuration and everything it refers to, from one moment.
#[derive(Debug)]
pub struct Source {
    /// The folder its paths are relative to.
    pub root: PathBuf,
    /// The file it was read from.
    pub file: PathBuf,
    /// Over all files that decide what it does.
    pub digest: Digest,
    /// Those files.
    pub files: Vec<PathBuf>,
    /// The text of `callgate.toml`, where there is one.
    pub text: Option<String>,
    /// What it says.
    pub config: Config,
}

/// Why a configuration does not load. Texts are for people.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is none.
    #[error("no {CONFIG_FILE} in {}{}", .0.display(), hint_above(.0))]
    Missing(PathBuf),
    /// A file can not be read.
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
    /// A pack that does not count.
    #[error("{}: {refusal}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The verdict on the pack.
        refusal: Box<Refusal>,
    },
    /// What the owner says of packs can not be known.
    #[error(transparent)]
    Owner(Box<OwnerError>),
}

impl Source {
    /// What was read, for lines to people.
    pub fn what(&self) -> String {
        let project = project::exists(&self.root);
        match (self.file != self.root, project) {
            (true, true) => format!("{CONFIG_FILE}, with the project beside it,"),
            (true, false) => CONFIG_FILE.to_owned(),
            (false, _) => "the project here".to_owned(),
        }
    }

    /// Reads the configuration of a workspace folder, and with it the tools of the project
    /// that is there.
    /// The tools have what their functions declared when the configuration was trusted.
    pub fn of_workspace(
        environment: &Environment,
        root: &Path,
        declared: Declarations,
    ) -> Result<Self, SourceError> {
        let mut reader = Reader::new(root);
        reader.declared = declared;
        Self::read(reader, environment).map(|(source, _)| source)
    }

    /// The same, with the files that a copy of it consists of.
    pub fn to_copy(
        environment: &Environment,
        root: &Path,
        declared: Declarations,
    ) -> Result<(Self, CopiedFiles), SourceError> {
        let mut reader = Reader::new(root);
        reader.copied = Some(CopiedFiles::default());
        if !declared.is_empty() {
            reader.copy(DECLARED_FILE, &declared.bytes());
        }
        reader.declared = declared;
        Self::read(reader, environment)
    }

    /// Reads the copy of a workspace's configuration that is in `base`. Its paths mean files of
    /// the workspace, as those of the original do.
    pub fn of_copy(
        environment: &Environment,
        root: &Path,
        base: &Path,
    ) -> Result<Self, SourceError> {
        let declared = Declarations::of_copy(base).map_err(|error| SourceError::Wrong {
            path: base.to_owned(),
            reason: chain(&error),
        })?;
        let reader = Reader {
            base: base.to_owned(),
            declared,
            ..Reader::new(root)
        };
        Self::read(reader, environment).map(|(source, _)| source)
    }

    /// The text of the configuration file of a folder.
    pub fn text_of(folder: &Path) -> Result<String, SourceError> {
        Reader::new(folder).read(&folder.join(CONFIG_FILE))
    }

    fn read(
        mut reader: Reader,
        environment: &Environment,
    ) -> Result<(Self, CopiedFiles), SourceError> {
        let (root, base) = (reader.root.clone(), reader.base.clone());
        let file = root.join(CONFIG_FILE);
        let has_file = base.join(CONFIG_FILE).is_file();
        let project = project::exists(&base);
        let mut config = match has_file {
            true => reader.config(&file)?,
            false if project => Config::default(),
            false => return Err(SourceError::Missing(root)),
        };
        if project {
            let mut tools = project::read(&mut reader, environment)?;
            for tool in &mut tools {
                if tool.bound.as_ref().is_none_or(|bound| bound.code.is_none()) {
                    tool.code.clone_from(&config.service.code);
                }
            }
            config.tools.extend(tools);
        }
        let copied = reader.copied.take().unwrap_or_default();
        let file = if has_file { file } else { root };
        Ok((reader.done(file, config), copied))
    }

    /// Reads what a toolhost's plugin path names: a folder or its manifest. T-11.
    pub fn of_plugin(path: &Path) -> Result<Self, SourceError> {
        if path.is_dir() {
            let candidates = [CONFIG_FILE].into_iter().chain(MANIFEST_FILES);
            let found = candidates
                .map(|name| path.join(name))
                .find(|file| file.is_file());
            return match found {
                Some(file) => Self::of_plugin(&file),
                None if path.join(PACK_FILE).is_file() => Self::of_pack(path),
                None => Err(SourceError::Wrong {
                    path: path.to_owned(),
                    reason: format!(
                        "no {CONFIG_FILE}, toolpack.json, manifest.json or {PACK_FILE} inside"
                    ),
                }),
            };
        }
        let root = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        if path.file_name().is_some_and(|name| name == PACK_FILE) {
            return Self::of_pack(&root);
        }
        let reader = Reader::new(&root);
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            reader.toml(path.to_owned())
        } else {
            reader.manifest_alone(path.to_owned())
        }
    }

    /// The tools of one pack, which counts because it was named.
    fn of_pack(folder: &Path) -> Result<Self, SourceError> {
        let mut reader = Reader::new(folder);
        let config = Config {
            tools: project::of_pack(&mut reader)?,
            ..Config::default()
        };
        Ok(reader.done(folder.join(PACK_FILE), config))
    }
}

/// What a project added to the digest when it was last read, and its stamp then. Nothing is
/// added by one that does not load.
#[derive(Default)]
pub struct Memo(Option<(Digest, Option<Vec<u8>>)>);

/// The digest of a workspace's configuration, for whoever asks every second: the packs of a
/// project are only read when something about them changed. `None` if it does not load.
pub fn digest_now(
    environment: &Environment,
    root: &Path,
    declared: Declarations,
    memo: &mut Memo,
) -> Option<Digest> {
    let file = root.join(CONFIG_FILE);
    let project = project::exists(root);
    let mut reader = Reader::new(root);
    reader.declared = declared;
    match file.is_file() {
        true => drop(reader.config(&file).ok()?),
        false if project => {}
        false => return None,
    }
    if project {
        let stamp = project::stamp(environment, root);
        let known = memo.0.take().filter(|(known, _)| *known == stamp);
        let added = match known {
            Some((_, added)) => added,
            None => {
                let mut alone = Reader::new(root);
                let read = project::read(&mut alone, environment);
                read.ok().map(|_| alone.hasher)
            }
        };
        memo.0 = Some((stamp, added.clone()));
        reader.hasher.extend(added?);
    }
    Some(Digest::of_bytes(&reader.hasher))
}

/// The files that decide what a configuration is, by their paths from its folder.
#[derive(Debug, Default)]
pub struct CopiedFiles(BTreeMap<String, Vec<u8>>);

impl CopiedFiles {
    /// Paths and contents.
    pub fn list(&self) -> Vec<(&str, &[u8])> {
        self.0
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
            .collect()
    }
}

/// Reads files and remembers what was in them for the digest.
pub struct Reader {
    root: PathBuf,
    /// Where the files are: `root`, or a copy of it.
    base: PathBuf,
    copied: Option<CopiedFiles>,
    /// What functions of the configuration's tools declare.
    declared: Declarations,
    text: Option<String>,
    files: Vec<PathBuf>,
    hasher: Vec<u8>,
    bytes: u64,
}

impl Reader {
    fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            base: root.to_owned(),
            copied: None,
            declared: Declarations::default(),
            text: None,
            files: Vec::new(),
            hasher: Vec::new(),
            bytes: 0,
        }
    }

    fn read(&mut self, path: &Path) -> Result<String, SourceError> {
        let failed = |source| SourceError::Read {
            path: path.to_owned(),
            source,
        };
        let wrong = |reason: String| SourceError::Wrong {
            path: path.to_owned(),
            reason,
        };
        // The file may be anything while nobody has trusted it: a pipe must not hold us up,
        // and a device without an end must not fill us.
        let name = path.strip_prefix(&self.root).unwrap_or(path);
        let place = self.base.join(name);
        let file = rustix::fs::open(
            &place,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| failed(error.into()))?;
        let file = std::fs::File::from(file);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(wrong("not a regular file".to_owned()));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1)
            // bound: `FILE_BYTES_MAX`
            .read_to_string(&mut text)
            .map_err(failed)?;
        self.bytes += text.len() as u64;
        if self.bytes > FILE_BYTES_MAX {
            let reason = format!("with all it refers to, larger than {FILE_BYTES_MAX} bytes");
            return Err(wrong(reason));
        }
        self.files.push(path.to_owned());
        let parts = [name.as_os_str().as_encoded_bytes(), text.as_bytes()];
        parts.into_iter().for_each(|part| self.digest(part));
        self.copy(&name.to_string_lossy(), text.as_bytes());
        Ok(text)
    }

    /// The path of a file that the configuration refers to.
    fn inside(&self, name: &str) -> Result<PathBuf, SourceError> {
        if escapes(name) {
            return Err(SourceError::Wrong {
                path: PathBuf::from(name),
                reason: "is not inside the folder of the configuration".to_owned(),
            });
        }
        Ok(self.root.join(name))
    }

    /// The folder its paths are relative to.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder it reads in: that folder, or a copy of what in it was trusted.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns whether it reads a copy.
    pub fn is_copy(&self) -> bool {
        self.base != self.root
    }

    /// Makes a file part of the copy, where one is made.
    pub fn copy(&mut self, name: &str, bytes: &[u8]) {
        if let Some(copied) = &mut self.copied {
            copied.0.insert(name.to_owned(), bytes.to_vec());
        }
    }

    /// A file that need not be there.
    pub fn optional(&mut self, name: &str) -> Result<Option<String>, SourceError> {
        match self.base.join(name).symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            _ => self.read(&self.root.join(name)).map(Some),
        }
    }

    /// Makes what was found under a name a part of the digest.
    pub fn note(&mut self, name: &str, found: &[u8]) {
        self.digest(name.as_bytes());
        self.digest(found);
    }

    fn digest(&mut self, part: &[u8]) {
        self.hasher.extend_from_slice(&part.len().to_be_bytes());
        self.hasher.extend_from_slice(part);
    }

    fn toml(mut self, file: PathBuf) -> Result<Source, SourceError> {
        let config = self.config(&file)?;
        Ok(self.done(file, config))
    }

    fn config(&mut self, file: &Path) -> Result<Config, SourceError> {
        let wrong = |path: &Path, reason: String| SourceError::Wrong {
            path: path.to_owned(),
            reason,
        };
        let text = self.read(file)?;
        let mut config = config::parse(&text).map_err(|error| wrong(file, error.to_string()))?;
        self.declare(&text, &mut config)
            .map_err(|error| wrong(file, chain(&error)))?;
        self.text = Some(text);
        if !config.servers.is_empty() {
            config.lock = ServersLock::new(self.optional(LOCK_FILE)?);
        }
        let mut aids = config.tools.iter().filter_map(|tool| tool.aid.as_deref());
        if let Some(aid) = aids.find(|aid| !is_aid(aid)) {
            let reason = format!("aid {aid:?} is not of the form AID.NAME.v1");
            return Err(wrong(file, reason));
        }
        if let Some(tool) = config.tools.iter().find(|tool| tool.runner.is_none()) {
            return Err(wrong(
                file,
                format!(
                    "tool `{}`: say how it runs: runner = {{ kind = … }}",
                    tool.name
                ),
            ));
        }
        for pack in std::mem::take(&mut config.toolpacks) {
            let path = self.inside(&pack)?;
            config.tools.extend(self.manifest(&path)?);
        }
        let mut tools = std::mem::take(&mut config.tools);
        for tool in &mut tools {
            self.load_schema(&mut tool.input_schema)?;
            self.load_schema(&mut tool.output_schema)?;
        }
        config.tools = tools;
        for prompt in &mut config.prompts {
            self.load_text(&mut prompt.file, &mut prompt.text)?;
        }
        for resource in &mut config.resources {
            self.load_text(&mut resource.file, &mut resource.text)?;
        }
        Ok(config)
    }

    /// Gives tools what their functions declare, and makes that a part of the digest.
    fn declare(&mut self, text: &str, config: &mut Config) -> Result<(), DeclareError> {
        if self.declared.is_empty() {
            return Ok(());
        }
        let mut tables: Value = toml::from_str(text)?;
        for (index, tool) in config.tools.iter_mut().enumerate() {
            let Some(entry) = entry_of(tool).map(str::to_owned) else {
                continue;
            };
            let root = (!self.is_copy()).then(|| self.root.clone());
            let Some(noted) = self.declared.noted(&entry, root.as_deref()) else {
                continue;
            };
            self.note(&entry, &noted);
            if let Value::Object(written) = tables["tool"][index].take() {
                *tool = self.declared.merge(&entry, written)?;
            }
        }
        Ok(())
    }

    /// Puts a schema file's content in place of its path.
    fn load_schema(&mut self, schema: &mut Option<SchemaSource>) -> Result<(), SourceError> {
        if let Some(SchemaSource::File(name)) = schema {
            let path = self.inside(name)?;
            let text = self.read(&path)?;
            let value = json::parse(text.as_bytes(), json::DEPTH_MAX).map_err(|error| {
                SourceError::Wrong {
                    path,
                    reason: error.to_string(),
                }
            })?;
            *schema = Some(SchemaSource::Inline(value));
        }
        Ok(())
    }

    /// Puts a file's content in place of its path. Whoever says both is told so later.
    fn load_text(
        &mut self,
        file: &mut Option<String>,
        text: &mut Option<String>,
    ) -> Result<(), SourceError> {
        if let Some(name) = file
            && text.is_none()
        {
            let path = self.inside(name)?;
            *text = Some(self.read(&path)?);
            *file = None;
        }
        Ok(())
    }

    fn manifest_alone(mut self, file: PathBuf) -> Result<Source, SourceError> {
        let tools = self.manifest(&file)?;
        Ok(self.done(
            file,
            Config {
                tools,
                ..Config::default()
            },
        ))
    }

    fn manifest(&mut self, path: &Path) -> Result<Vec<ToolConfig>, SourceError> {
        let text = self.read(path)?;
        let wrong = |reason: String| SourceError::Wrong {
            path: path.to_owned(),
            reason,
        };
        let manifest =
            Manifest::parse(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let version = manifest.toolpack_version;
        manifest
            .tools
            .into_iter()
            .map(|tool| {
                let runner = match tool.runner {
                    None => None,
                    Some(value) => Some(serde_json::from_value::<RunnerConfig>(value).map_err(
                        |error| {
                            let reason = config::explain(&error.to_string(), None);
                            wrong(format!("tool {}: runner: {reason}", tool.aid))
                        },
                    )?),
                };
                let more = tool.callgate.keys();
                if let Some(key) = more.into_iter().find(|key| !MORE.contains(&key.as_str())) {
                    let reason = format!("tool {}: callgate: unknown field `{key}`", tool.aid);
                    return Err(wrong(reason));
                }
                let confined = confinement(&tool.name, tool.confinement, tool.callgate);
                let confined = confined.map_err(|error| {
                    let reason = config::explain(&error.to_string(), None);
                    wrong(format!("tool {}: confinement: {reason}", tool.aid))
                })?;
                Ok(ToolConfig {
                    name: tool.name,
                    aid: Some(tool.aid),
                    in_toolpack: true,
                    description: tool.description,
                    version: Some(version.clone()),
                    input_schema: tool.inputs_schema.map(SchemaSource::Inline),
                    output_schema: tool.outputs_schema.map(SchemaSource::Inline),
                    tags: tool.tags,
                    tier: tool.tier,
                    timeout_ms: tool.timeout_ms,
                    idempotent: tool.idempotent,
                    deterministic: tool.deterministic,
                    side_effects: tool.side_effects,
                    replay_inputs: tool.replay_inputs,
                    aliases: tool.aliases,
                    slots: tool.slots,
                    runner,
                    ..confined
                })
            })
            .collect()
    }

    fn done(self, file: PathBuf, config: Config) -> Source {
        Source {
            root: self.root,
            file,
            digest: Digest::of_bytes(&self.hasher),
            text: self.text,
            files: self.files,
            config,
        }
    }
}

/// The keys of a `[[tool]]` that say what a child may reach. A pack has them in one field.
const CONFINEMENT: [&str; 10] = [
    "writes",
    "reads",
    "code",
    "network",
    "guarantees",
    "purity",
    "sandbox",
    "ipc",
    "allow_unsafe_execution",
    "isolation",
];

/// Why what functions declare cannot be added to a configuration.
#[derive(Debug, thiserror::Error)]
enum DeclareError {
    /// The text of the configuration.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// A declaration.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// Why the `confinement` of a manifest's tool is none.
#[derive(Debug, thiserror::Error)]
enum ConfinementError {
    /// A field that no tool has.
    #[error(
        "unknown field `{field}`, expected one of {}",
        CONFINEMENT.map(|word| format!("`{word}`")).join(", ")
    )]
    Unknown { field: String },
    /// A value of the wrong kind.
    #[error("{0}")]
    Value(#[from] serde_json::Error),
}

/// The keys of a `[[tool]]` that a pack has in its field `callgate`.
const MORE: [&str; 6] = [
    "title",
    "timeout_max_ms",
    "rate_limit",
    "concurrency_max",
    "tasks",
    "gives_content",
];

/// A tool of which only its name, its confinement and what is ours besides are known.
fn confinement(
    name: &str,
    fields: Map<String, Value>,
    more: Map<String, Value>,
) -> Result<ToolConfig, ConfinementError> {
    if let Some(unknown) = fields
        .keys()
        .find(|key| !CONFINEMENT.contains(&key.as_str()))
    {
        return Err(ConfinementError::Unknown {
            field: unknown.clone(),
        });
    }
    let mut table = fields;
    table.extend(more);
    table.insert("name".to_owned(), name.into());
    Ok(serde_json::from_value(Value::Object(table))?)
}

/// Where a workspace without a configuration may have been meant: the nearest folder above that
/// has one, as words to follow others.
pub fn hint_above(workspace: &Path) -> String {
    let mut above = workspace.ancestors().skip(1);
    match above.find(|folder| folder.join(CONFIG_FILE).is_file()) {
        Some(folder) => format!(
            "; there is one in {folder}: go there or pass --workspace {folder}",
            folder = folder.display()
        ),
        None => String::new(),
    }
}

/// Returns whether a file is a toolpack's manifest.
pub fn is_toolpack(file: &Path) -> bool {
    let root = file.parent().unwrap_or(Path::new("/"));
    Reader::new(root).manifest(file).is_ok()
}

/// The schema of a tool that gives none: any object.
pub fn any_object() -> Value {
    serde_json::json!({ "type": "object" })
}

/// True for paths that could lie outside the folder they are relative to.
pub fn escapes(path: &str) -> bool {
    Path::new(path)
        .components()
        .any(|part| !matches!(part, Component::Normal(_) | Component::CurDir))
}
