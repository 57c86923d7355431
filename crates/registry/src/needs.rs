//! What a configured tool needs and is held to: its own words, and what holds for every tool
//! that says nothing (P-10).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callgate_call::{
    Asker, FORWARDS_MAX, Guarantee, Guarantees, Isolation, Needs, Network, TreeLimits,
};
use callgate_runners::Allowed;
use callgate_sandbox::real;

use crate::code::{LoadedCode, names_of, without_data};
use crate::config::{
    Config, GuaranteesConfig, LimitsConfig, NetworkConfig, PurityConfig, RunnerConfig,
    SandboxConfig, StrictConfig, ToolConfig,
};
use crate::exec::homes_folder;
use crate::paths::{BridgePaths, Paths};
use crate::reads::{HomeError, below_home};
use crate::setup::Parts;
use crate::workspace::{CONFIG_FILE, PACK_FILE, escapes, is_toolpack};

/// Folders of a workspace that decide what runs, whether or not they are there.
const RESERVED: [&str; 2] = [".namel3ss", "packs"];

/// Files that make up a configuration, or a plugin that a command line trusts by its folder
/// (T-11). Callers cannot make them by `files/*` either. A child that may write the whole
/// workspace can; nothing of it counts until the owner trusts it (G-9).
const CONFIGURATION: [&str; 3] = ["namel3ss.toml", "pack.yaml", "toolpack.json"];

/// A toolpack's other name, which other things have as well: closed where it is read as one.
const MANIFEST: &str = "manifest.json";

/// Most paths a tool may name.
const PATHS_MAX: usize = 64;

/// Most hosts a tool may name.
const HOSTS_MAX: usize = 256;

/// Why a tool cannot be given what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum NeedsError {
    /// Too many paths.
    #[error("{field}: {count} paths are more than {PATHS_MAX}")]
    Paths {
        /// `reads` or `writes`.
        field: &'static str,
        /// How many.
        count: usize,
    },
    /// Too many hosts.
    #[error("network.allow: {0} hosts are more than {HOSTS_MAX}")]
    Hosts(usize),
    /// Too many forwarded ports.
    #[error("forward: {0} ports are more than {FORWARDS_MAX}")]
    Forwards(usize),
    /// What is no forwarded port.
    #[error("forward: `{0}` is not \"PORT\" = \"HOST:PORT\"")]
    Forward(String),
    /// What is no host.
    #[error("{0}")]
    Host(String),
    /// A container's network is all or nothing.
    #[error("network.allow: a container reaches everybody or nobody")]
    ContainerHosts,
    /// A service is elsewhere.
    #[error("network.allow: whom a service reaches is its own to hold")]
    ServiceHosts,
    /// A folder that a container would get whole.
    #[error(
        "{} is the gate's own: a container gets folders without it, not {}",
        own.display(),
        root.display()
    )]
    ContainerFolder {
        /// What no tool may have.
        own: PathBuf,
        /// The folder that holds it, or that it holds.
        root: PathBuf,
    },
    /// A path below a home.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A path below a home, where only the workspace is written.
    #[error("writes: `{0}`: tools write inside the workspace, not in a home")]
    HomeWritten(String),
    /// A path that leaves the workspace.
    #[error("{field}: `{name}` is not inside the workspace")]
    Outside {
        /// The field it is written in.
        field: &'static str,
        /// As written.
        name: String,
    },
    /// A path that leaves the workspace by a link.
    #[error("{field}: a link leads `{name}` outside the workspace")]
    Link {
        /// The field it is written in.
        field: &'static str,
        /// As written.
        name: String,
    },
}

/// The gate's own things, which no tool may change or read.
#[derive(Debug, Default)]
pub struct Ground {
    root: PathBuf,
    /// The owner's.
    home: Option<PathBuf>,
    kept: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    /// Regular files of the workspace among the hidden ones, which programs of callers may read.
    shown: Vec<PathBuf>,
    /// Names that are closed to tools of this process though nothing has them.
    absent: Vec<PathBuf>,
    /// What the configured tools load, by their names.
    codes: HashMap<String, Arc<LoadedCode>>,
}

impl Ground {
    /// Those of a workspace; `files` are all that its configuration was read from.
    pub fn new(paths: &Paths, config: &Config, files: &[PathBuf]) -> Self {
        let root = paths.workspace.clone();
        let mut kept: Vec<PathBuf> = RESERVED.iter().map(|name| root.join(name)).collect();
        let planner = config.planner.tool();
        let pilot = config.pilot.tool();
        let tools = config.tools.iter().chain(&planner).chain(&pilot);
        let codes: HashMap<String, Arc<LoadedCode>> = tools
            .map(|tool| (tool.name.clone(), Arc::new(LoadedCode::of(&root, tool))))
            .collect();
        let written = written(&root, config);
        let others = [entries_code(&root, config), exec_code(&root, config)];
        let mut names = configuration(&root);
        for code in codes.values().map(AsRef::as_ref).chain(&others) {
            kept.extend(code.paths.iter().cloned());
            names.extend(code.names.iter().cloned());
            let guesses = code.guesses.iter().cloned();
            kept.extend(guesses.flat_map(|guess| without_data(guess, &written)));
        }
        kept.extend(programs(&root, &config.exec.allow));
        kept.extend(programs(&root, &config.exec.kept));
        let mut hidden = vec![root.join(CONFIG_FILE), paths.state.clone()];
        hidden.extend(sockets(paths));
        let shown = [
            root.join(CONFIG_FILE),
            BridgePaths::beside(&paths.socket).schema,
        ];
        let is_shown = |file: &PathBuf| hidden.contains(file) && real(file).starts_with(&root);
        let shown = shown.into_iter().filter(is_shown).collect();
        kept.extend(files.iter().filter(|file| !hidden.contains(file)).cloned());
        // What a link leads to can be changed at any link on the way.
        names.extend(kept.iter().flat_map(|path| names_of(&root, path)));
        let (there, mut absent): (Vec<PathBuf>, Vec<PathBuf>) = names
            .into_iter()
            .partition(|path| path.symlink_metadata().is_ok());
        kept.extend(there);
        for list in [&mut kept, &mut hidden, &mut absent] {
            list.sort_unstable();
            list.dedup();
        }
        Self {
            root,
            home: paths.home.clone(),
            kept,
            hidden,
            shown,
            absent,
            codes,
        }
    }

    /// What children cannot change.
    pub fn kept(&self) -> &[PathBuf] {
        &self.kept
    }

    /// What a tool loads from the workspace.
    pub fn code_of(&self, config: &ToolConfig) -> Arc<LoadedCode> {
        match self.codes.get(&config.name) {
            Some(known) => Arc::clone(known),
            None => Arc::new(LoadedCode::of(&self.root, config)),
        }
    }

    /// All of them, for tools of this process.
    pub fn own(&self) -> Vec<PathBuf> {
        let own = self.kept.iter().chain(&self.hidden);
        own.chain(&self.absent).cloned().collect()
    }

    /// What is mounted into a container is mounted whole, so nothing of ours may be in it.
    fn check_container(
        &self,
        config: &ToolConfig,
        reads: &[PathBuf],
        writes: &[PathBuf],
    ) -> Result<(), NeedsError> {
        if let Some(NetworkConfig::Some(_)) = config.network {
            return Err(NeedsError::ContainerHosts);
        }
        let holds = |root: &PathBuf, own: &[PathBuf]| {
            let meets = |own: &&PathBuf| own.starts_with(root) || root.starts_with(own);
            let own = own.iter().find(meets);
            own.map(|own| (root.clone(), own.clone()))
        };
        let written =
            |root: &PathBuf| holds(root, &self.kept).or_else(|| holds(root, &self.hidden));
        let read = |root: &PathBuf| holds(root, &self.hidden);
        let found = writes
            .iter()
            .find_map(written)
            .or_else(|| reads.iter().find_map(read));
        match found {
            None => Ok(()),
            Some((root, own)) => Err(NeedsError::ContainerFolder { own, root }),
        }
    }

    /// What a tool needs; nothing for one without a child. `own` is code of its that is not in
    /// the workspace.
    pub fn needs(
        &self,
        config: &ToolConfig,
        isolation: Isolation,
        own: Vec<PathBuf>,
    ) -> Result<Option<Arc<Needs>>, NeedsError> {
        bounded_paths(&config.reads, &config.writes)?;
        // Its network is where it is, and nothing of ours is in between.
        if let (Some(RunnerConfig::Service(_)), Some(NetworkConfig::Some(_))) =
            (&config.runner, &config.network)
        {
            return Err(NeedsError::ServiceHosts);
        }
        // What a binding or a pack says is asked for even where somebody else carries it out.
        if config.runner.is_none() && config.bound.is_none() {
            return Ok(None);
        }
        let home = self.home.as_deref();
        let reads = config
            .reads
            .iter()
            .map(|name| match below_home("reads", name, home) {
                Some(path) => Ok(path?),
                None if escapes(name) => Ok(real(&self.root.join(name))),
                None => self.inside("reads", name),
            });
        let writes = config
            .writes
            .iter()
            .map(|name| match name.starts_with('~') {
                true => Err(NeedsError::HomeWritten(name.clone())),
                false => self.inside("writes", name),
            });
        let bound = config.bound.as_deref();
        let (unconfined, strict) = match config.sandbox {
            None | Some(SandboxConfig::Is(true)) => (false, false),
            Some(SandboxConfig::Is(false)) => (true, false),
            Some(SandboxConfig::More(StrictConfig::Strict)) => (false, true),
        };
        let reads: Vec<PathBuf> = reads.collect::<Result<_, _>>()?;
        let mut writes: Vec<PathBuf> = writes.collect::<Result<_, _>>()?;
        if let Some(RunnerConfig::Container(_)) = &config.runner {
            if bound.is_some() {
                // A pack's level speaks of files here; an image of its own sees none.
                writes.clear();
            }
            self.check_container(config, &reads, &writes)?;
        }
        let limits = config.runner.as_ref().and_then(RunnerConfig::limits);
        let mut code: Vec<PathBuf> = own;
        let loaded = self.code_of(config);
        code.extend(loaded.paths.iter().filter(|path| path.exists()).cloned());
        Ok(Some(Arc::new(Needs {
            guarantees: guarantees(config),
            reads,
            writes,
            code,
            kept: self.kept.clone(),
            hidden: self.hidden.clone(),
            roots: None,
            network: network(config)?,
            forwards: Vec::new(),
            unsafe_execution: config.allow_unsafe_execution
                || bound.is_some_and(|bound| bound.unsafe_execution),
            unconfined: unconfined || bound.is_some_and(|bound| bound.unconfined),
            strict,
            isolation,
            limits: limits.map(LimitsConfig::of_tree).unwrap_or_default(),
            ipc: config.ipc.into(),
            covered: Vec::new(),
        })))
    }
}

impl Ground {
    /// Those that servers of a configuration are kept from.
    pub(crate) fn of_servers(parts: &Parts, config: &Config) -> Self {
        let mut ground = Self::new(&parts.paths, config, &[]);
        ground.hide(homes_folder(parts));
        ground
    }

    /// Takes a folder of ours out of every child's reach.
    pub fn hide(&mut self, folder: PathBuf) {
        if !self.hidden.iter().any(|hidden| folder.starts_with(hidden)) {
            self.hidden.push(folder);
        }
    }

    /// Lets programs of callers read the regular files of the gate in the workspace: those programs
    /// find regular files there, read-only, and not devices, on which `git add` fails. G-9f.
    pub fn show_files(&self, needs: &mut Needs) {
        needs.hidden.retain(|hidden| !self.shown.contains(hidden));
        needs.kept.extend(self.shown.iter().cloned());
    }

    /// What a terminal session needs: all of the workspace but what is ours, its own processes,
    /// whom it may reach, and what `programs` may read besides.
    pub fn sessions(&self, network: bool, programs: &Needs) -> Arc<Needs> {
        let mut guarantees = Guarantees::default();
        if !network {
            guarantees.require(Guarantee::NoNetwork, Asker::Engine);
        }
        Arc::new(Needs {
            guarantees,
            reads: [&["/proc".into()], &*programs.reads].concat(),
            covered: programs.covered.clone(),
            writes: vec![self.root.clone()],
            kept: programs.kept.clone(),
            hidden: programs.hidden.clone(),
            network: if network { Network::Any } else { Network::None },
            limits: TreeLimits {
                processes: true,
                ..TreeLimits::default()
            },
            ipc: programs.ipc,
            ..Needs::default()
        })
    }

    /// What is the gate's own, for a child that is no tool of the workspace.
    pub(crate) fn own_needs(&self) -> Needs {
        Needs {
            kept: self.kept.clone(),
            hidden: self.hidden.clone(),
            ..Needs::default()
        }
    }

    /// Paths of a server, which are not bound to the workspace: relative ones are in it, `~` is
    /// the owner's home. Links are resolved.
    pub(crate) fn outside(
        &self,
        field: &'static str,
        names: &[String],
    ) -> Result<Vec<PathBuf>, NeedsError> {
        let home = self.home.as_deref();
        let path = |name: &String| match below_home(field, name, home) {
            Some(path) => Ok(path?),
            None => Ok(real(&self.root.join(name))),
        };
        names.iter().map(path).collect()
    }

    /// A path inside the workspace, links resolved. One that leads outside may be the owner's,
    /// or that of a tool that may write where the link is.
    fn inside(&self, field: &'static str, name: &str) -> Result<PathBuf, NeedsError> {
        if escapes(name) {
            let name = name.to_owned();
            return Err(NeedsError::Outside { field, name });
        }
        let path = real(&self.root.join(name));
        if path.starts_with(&self.root) {
            Ok(path)
        } else {
            let name = name.to_owned();
            Err(NeedsError::Link { field, name })
        }
    }
}

/// The names of a workspace's configuration beside `callgate.toml`.
fn configuration(root: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = CONFIGURATION.iter().map(|name| root.join(name)).collect();
    // A plugin's folder is read by the first of these files that it has.
    let has = |name: &str| root.join(name).is_file();
    if !has(CONFIG_FILE) && (has(MANIFEST) && is_toolpack(&root.join(MANIFEST)) || has(PACK_FILE)) {
        names.push(root.join(MANIFEST));
    }
    names
}

/// The sockets of the workspace: their folder, if it is one of our own. A socket that was put
/// elsewhere is hidden alone, since the folder may be the workspace, or hold it.
fn sockets(paths: &Paths) -> Vec<PathBuf> {
    match paths.socket.parent() {
        Some(folder) if folder == paths.state || folder.ends_with(paths.id()) => {
            vec![folder.to_owned()]
        }
        _ => {
            let BridgePaths { socket, schema } = BridgePaths::beside(&paths.socket);
            vec![paths.socket.clone(), socket, schema]
        }
    }
}

/// Refuses more paths than a tool or server may name.
pub(crate) fn bounded_paths(reads: &[String], writes: &[String]) -> Result<(), NeedsError> {
    for (field, count) in [("reads", reads.len()), ("writes", writes.len())] {
        if count > PATHS_MAX {
            return Err(NeedsError::Paths { field, count });
        }
    }
    Ok(())
}

/// What the tool says, on top of what holds for those that say nothing.
pub fn guarantees(config: &ToolConfig) -> Guarantees {
    let mut all = Guarantees::default();
    // Others keep their own promises, and are asked for those that somebody named.
    let ours = match config.runner {
        None | Some(RunnerConfig::Service(_) | RunnerConfig::Container(_)) => false,
        Some(_) => true,
    };
    if ours && matches!(network(config), Ok(Network::None)) {
        all.require(Guarantee::NoNetwork, Asker::Engine);
    }
    if ours && config.writes.is_empty() {
        all.require(Guarantee::NoFilesystemWrite, Asker::Engine);
    }
    if config.purity == Some(PurityConfig::Pure) {
        all.tighten(&Guarantees::pure(Asker::Tool));
    }
    all.tighten(&asked(&config.guarantees));
    if let Some(bound) = &config.bound {
        all.tighten(&bound.guarantees);
    }
    all
}

fn asked(config: &GuaranteesConfig) -> Guarantees {
    let mut all = Guarantees::default();
    for (asked, guarantee) in [
        (config.no_filesystem_read, Guarantee::NoFilesystemRead),
        (config.no_filesystem_write, Guarantee::NoFilesystemWrite),
        (config.no_network, Guarantee::NoNetwork),
        (config.no_subprocess, Guarantee::NoSubprocess),
        (config.no_env_read, Guarantee::NoEnvRead),
        (config.no_env_write, Guarantee::NoEnvWrite),
    ] {
        if asked {
            all.require(guarantee, Asker::Tool);
        }
    }
    if let Some(names) = &config.secrets_allowed {
        all.allow_secrets(names.clone(), Asker::Tool);
    }
    all
}

fn network(config: &ToolConfig) -> Result<Network, NeedsError> {
    match &config.network {
        None if config.bound.as_ref().is_some_and(|bound| bound.network) => Ok(Network::Any),
        network => network_of(network.as_ref()),
    }
}

/// The hosts that `network = …` names; none where nothing is said.
pub(crate) fn network_of(network: Option<&NetworkConfig>) -> Result<Network, NeedsError> {
    match network {
        None | Some(NetworkConfig::All(false)) => Ok(Network::None),
        Some(NetworkConfig::All(true)) => Ok(Network::Any),
        Some(NetworkConfig::Some(hosts)) => {
            let count = hosts.allow.len();
            if count > HOSTS_MAX {
                return Err(NeedsError::Hosts(count));
            }
            Allowed::parse(&hosts.allow).map_err(NeedsError::Host)?;
            Ok(Network::Hosts(hosts.allow.clone()))
        }
    }
}

/// What functions that are not registered load.
fn entries_code(root: &Path, config: &Config) -> LoadedCode {
    let service = &config.service;
    LoadedCode::of_entries(
        root,
        &service.allow_entries,
        service.python.as_deref(),
        &service.code,
    )
}

/// What the programs load that callers may run.
fn exec_code(root: &Path, config: &Config) -> LoadedCode {
    let alike = ToolConfig {
        code: config.exec.code.clone(),
        ..ToolConfig::default()
    };
    LoadedCode::of(root, &alike)
}

/// Listed code that is not there: a line for each.
pub fn missing_code(root: &Path, config: &Config) -> Vec<String> {
    let tools = config.tools.iter();
    let missing = tools.flat_map(|tool| {
        let missing = LoadedCode::of(root, tool).missing.into_iter();
        missing.map(|name| format!("tool `{}`: code: there is no `{name}` here", tool.name))
    });
    missing.collect()
}

/// Why it is not known what tools load, and what to list: one line for each.
pub fn unlisted_code(root: &Path, config: &Config) -> Vec<String> {
    let about = |section: &str, code: LoadedCode| {
        let section = section.to_owned();
        let problems = code.problems.into_iter();
        problems.map(move |problem| format!("{section}: {problem}"))
    };
    let sections = [
        config.planner.tool().map(|tool| ("[planner]", tool)),
        config.pilot.tool().map(|tool| ("[pilot]", tool)),
    ];
    let sections = sections.into_iter().flatten();
    let mut all: Vec<String> = config
        .tools
        .iter()
        .flat_map(|tool| about(&format!("tool `{}`", tool.name), LoadedCode::of(root, tool)))
        .chain(sections.flat_map(|(section, tool)| about(section, LoadedCode::of(root, &tool))))
        .chain(about("[service]", entries_code(root, config)))
        .chain(about("[exec]", exec_code(root, config)))
        .collect();
    all.dedup();
    all
}

/// The programs of the workspace among those that callers may run, whether or not they are there:
/// who can write one can run anything. Of a link also its end and every link on the way there.
fn programs(root: &Path, allow: &[String]) -> Vec<PathBuf> {
    let paths = allow.iter().filter(|program| program.contains('/'));
    paths
        .flat_map(|program| names_of(root, Path::new(program)))
        .collect()
}

/// What the tools write in the workspace, without links; not all of it.
fn written(root: &Path, config: &Config) -> Vec<PathBuf> {
    let writes = config.tools.iter().flat_map(|tool| &tool.writes);
    let paths = writes.map(|name| real(&root.join(name)));
    let is_inside = |path: &PathBuf| path.starts_with(root) && path != root;
    paths.filter(is_inside).collect()
}
