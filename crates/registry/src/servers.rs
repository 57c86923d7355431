//! The MCP servers of a configuration: `[[server]]` and its entry in `callgate.lock` become tools,
//! prompts and resources.
//!
//! A server that cannot be offered costs no other: its problem is a line for people, and everything
//! else is served. Nothing is started here; the lists of tools are those of the lock.

pub mod accept;
pub mod edit;
mod needs;
pub mod review;
mod running;
pub mod shelf;
pub mod tools;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use callgate_call::{Needs, Prompt, Secrets, Shelf, Tool};
use callgate_gate::Catalog;
use callgate_runners::{Pins, Share, Upstream, UpstreamSettings};
use callgate_sandbox::{Homes, scrubbed_env};
use callgate_store::OwnerSecrets;

use crate::catalog::child_limits;
use crate::config::{Config, ServerConfig, ShareConfig, StartConfig};
use crate::lock::{LockError, LockedPackage, LockedServer, LockedServers};
use crate::needs::{Ground, NeedsError};
use crate::setup::Parts;
use crate::workspace::CONFIG_FILE;

pub use running::RunningServers;
use shelf::ServerResources;
use tools::OfferedServer;
pub use tools::ServerToolError;
use variables::{VariableError, Variables};

/// Bytes that a server's home may take.
const HOME_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Calls of one process at the same time, where nothing is said.
const CONCURRENCY_DEFAULT: usize = 16;

/// Longest name of a server.
const NAME_BYTES_MAX: usize = 32;

/// Most servers of one configuration.
const SERVERS_MAX: usize = 200;

/// Digits of a package's digest in the name of its folder.
const PACKAGE_DIGITS: usize = 32;

/// Stands for the folder of an installed package in what the lock says of it.
pub const PACKAGE_PLACEHOLDER: &str = "{package}";

/// Why a server is not offered.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No prefix of tools.
    #[error(
        "a server's name has 1 to {NAME_BYTES_MAX} letters, digits, `_` and `-`, with a letter or \
         digit first"
    )]
    Name,
    /// Two servers of one name.
    #[error("another server has this name")]
    Twice,
    /// An empty prefix beside other servers.
    #[error("prefix = \"\" is for a configuration with one server")]
    Prefix,
    /// Neither a command nor a package, or both.
    #[error("say `command` or `package`, one of them")]
    Program,
    /// The package is not installed.
    #[error("its package is not installed: run `callgate servers install {0}`")]
    NotInstalled(String),
    /// Nobody has looked at its tools.
    #[error("nobody has looked at its tools yet: run `callgate servers trust {0}`")]
    NotListed(String),
    /// A number that is out of bounds.
    #[error("{0}")]
    Bound(&'static str),
    /// What it may reach.
    #[error(transparent)]
    Needs(#[from] NeedsError),
    /// A reference in its settings.
    #[error("{field}")]
    Variable {
        /// The setting.
        field: String,
        /// What is wrong with the reference.
        source: VariableError,
    },
    /// One of its tools.
    #[error(transparent)]
    Tool(#[from] ServerToolError),
}

/// A server and why it, or a part of it, is not offered.
#[derive(Debug)]
pub struct ServerProblem {
    /// Its name.
    pub server: String,
    /// Why.
    pub error: ServerError,
}

impl ServerProblem {
    /// The line for people.
    pub fn words(&self) -> String {
        format!(
            "server `{}`: {}",
            self.server,
            callgate_call::chain(&self.error)
        )
    }
}

/// What becomes of all servers of a configuration.
#[derive(Default)]
pub struct Offered {
    /// What is wrong with single ones.
    pub problems: Vec<ServerProblem>,
    /// Values that must not be recorded.
    pub secret_values: Vec<String>,
    /// Their prompts and resources.
    pub shelf: Shelf,
}

/// Adds the tools of a configuration's servers to a catalog.
pub fn offer(
    parts: &Parts,
    config: &Config,
    ground: &Ground,
    catalog: &mut Catalog,
) -> Result<Offered, LockError> {
    let lock = config.lock.read()?;
    let mut offered = Offered::default();
    let mut names = BTreeSet::new();
    for server in config.servers.iter().take(SERVERS_MAX) {
        if server.disabled {
            continue;
        }
        let is_new = names.insert(&server.name);
        let made = match is_new {
            true => offer_one(parts, config, ground, (server, &lock), &mut offered),
            false => Err(ServerError::Twice),
        };
        let added = made.and_then(|(tools, shelved)| {
            add_all(catalog, tools)?;
            Ok(shelved)
        });
        let refused = match added {
            Ok(shelved) => add_shelved(catalog, shelved, &mut offered.shelf),
            Err(error) => vec![error],
        };
        let problem = |error| ServerProblem {
            server: server.name.clone(),
            error,
        };
        offered.problems.extend(refused.into_iter().map(problem));
    }
    Ok(offered)
}

/// Adds all tools of a server, or none.
fn add_all(catalog: &mut Catalog, tools: Vec<Tool>) -> Result<(), ServerError> {
    if let Some(taken) = tools.iter().find(|tool| !catalog.is_free(&tool.name)) {
        return Err(ServerToolError::Taken(taken.name.clone()).into());
    }
    for tool in tools {
        let name = tool.name.clone();
        catalog
            .add_foreign(tool)
            .map_err(|_| ServerToolError::Taken(name))?;
    }
    Ok(())
}

/// What a server has beside its tools.
struct Shelved {
    prompts: Vec<(Tool, Prompt)>,
    resources: Option<ServerResources>,
}

/// Adds what a server has beside its tools, but for what has a name or an address that is taken.
fn add_shelved(catalog: &mut Catalog, shelved: Shelved, shelf: &mut Shelf) -> Vec<ServerError> {
    let mut refused = Vec::new();
    if let Some(resources) = shelved.resources {
        let name = resources.tool.name.clone();
        match catalog.add_foreign(resources.tool) {
            Err(_) => refused.push(ServerToolError::Taken(name).into()),
            Ok(()) => {
                shelf.spaces.push(resources.space);
                for (all, own) in [
                    (&mut shelf.resources, resources.resources),
                    (&mut shelf.templates, resources.templates),
                ] {
                    let known: HashSet<String> = all.iter().map(|one| one.uri.clone()).collect();
                    let (taken, free): (Vec<_>, Vec<_>) =
                        own.into_iter().partition(|one| known.contains(&one.uri));
                    all.extend(free);
                    let taken = taken.into_iter().map(|one| one.uri);
                    refused.extend(taken.map(|uri| ServerToolError::AddressTaken(uri).into()));
                }
            }
        }
    }
    for (tool, prompt) in shelved.prompts {
        let is_taken = shelf.prompts.iter().any(|other| other.name == prompt.name);
        match is_taken || catalog.add_foreign(tool).is_err() {
            true => refused.push(ServerToolError::PromptTaken(prompt.name).into()),
            false => shelf.prompts.push(prompt),
        }
    }
    refused
}

/// Puts the prompts and resources of servers beside those of the configuration. Where both have a
/// name, or an address, the configuration's counts.
pub fn put_beside(shelf: &mut Shelf, servers: Shelf) -> Vec<String> {
    let mut problems = Vec::new();
    for prompt in servers.prompts {
        match shelf.prompts.iter().any(|other| other.name == prompt.name) {
            true => problems.push(format!(
                "prompt `{}` of a server: the configuration has one of this name",
                prompt.name
            )),
            false => shelf.prompts.push(prompt),
        }
    }
    for (all, theirs) in [
        (&mut shelf.resources, servers.resources),
        (&mut shelf.templates, servers.templates),
    ] {
        let known: HashSet<String> = all.iter().map(|one| one.uri.clone()).collect();
        let free = theirs.into_iter().filter(|one| !known.contains(&one.uri));
        all.extend(free);
    }
    shelf.spaces.extend(servers.spaces);
    problems
}

fn offer_one(
    parts: &Parts,
    config: &Config,
    ground: &Ground,
    (server, lock): (&ServerConfig, &LockedServers),
    offered: &mut Offered,
) -> Result<(Vec<Tool>, Shelved), ServerError> {
    check(server, config)?;
    let locked = lock.get(&server.name);
    let locked = locked.ok_or_else(|| ServerError::NotListed(server.name.clone()))?;
    let (settings, needs) = settings(parts, config, ground, (server, Some(locked)), offered)?;
    let upstream = parts.servers.get(&parts.spawner, settings, &needs, locked);
    let offered = OfferedServer {
        config,
        server,
        locked,
        upstream: &upstream,
        needs: &needs,
    };
    let shelved = Shelved {
        prompts: offered.prompts()?,
        resources: offered.resources()?,
    };
    Ok((offered.tools()?, shelved))
}

fn check(server: &ServerConfig, config: &Config) -> Result<(), ServerError> {
    if !is_server_name(&server.name) {
        return Err(ServerError::Name);
    }
    let is_alone = config.servers.iter().filter(|one| !one.disabled).count() == 1;
    match server.prefix.as_deref() {
        Some("") if !is_alone => return Err(ServerError::Prefix),
        Some(prefix) if !prefix.is_empty() && !is_server_name(prefix) => {
            return Err(ServerError::Name);
        }
        _ => {}
    }
    if server.command.is_empty() == server.package.is_none() {
        return Err(ServerError::Program);
    }
    if server.concurrency_max == Some(0) {
        return Err(ServerError::Bound("concurrency_max is at least 1"));
    }
    if server.start == StartConfig::Eager {
        let words = "start = \"eager\" is not known yet: servers start with their first call";
        return Err(ServerError::Bound(words));
    }
    Ok(())
}

/// Returns whether a text may name a server.
pub fn is_server_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_known)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

/// A server by itself, with no pins, so that its owner can look at what it lists. The secrets in
/// its settings are given back beside it.
pub fn unpinned(
    parts: &Parts,
    config: &Config,
    server: &ServerConfig,
    locked: Option<&LockedServer>,
) -> Result<(Arc<Upstream>, Arc<Needs>, Secrets), ServerError> {
    check(server, config)?;
    let ground = Ground::of_servers(parts, config);
    let mut offered = Offered::default();
    let (mut settings, needs) = settings(parts, config, &ground, (server, locked), &mut offered)?;
    settings.pins = Arc::new(Pins::unpinned());
    let upstream = Upstream::new(Arc::clone(&parts.spawner), settings);
    Ok((upstream, needs, Secrets::new(offered.secret_values)))
}

/// The folder in which the packages of a server are installed.
pub fn packages_folder(parts: &Parts, server: &str) -> PathBuf {
    parts.paths.state.join("servers").join(server)
}

/// The folder of an installed package.
pub fn package_folder(parts: &Parts, server: &str, package: &LockedPackage) -> PathBuf {
    let digits = package.tree.get(..PACKAGE_DIGITS).unwrap_or(&package.tree);
    packages_folder(parts, server).join(format!("pkg-{digits}"))
}

fn settings(
    parts: &Parts,
    config: &Config,
    ground: &Ground,
    (server, locked): (&ServerConfig, Option<&LockedServer>),
    offered: &mut Offered,
) -> Result<(UpstreamSettings, Arc<Needs>), ServerError> {
    let secrets = OwnerSecrets::of_state(&parts.paths.state);
    let variables = Variables {
        environment: &parts.environment,
        secrets: &secrets,
        secret_variables: &config.secrets.env,
        has_home: needs::keeps_home(server.preset),
    };
    let mut expand = |field: String, text: &str| match variables.expand(text) {
        Ok(expanded) => {
            offered
                .secret_values
                .extend(expanded.secret_values.iter().cloned());
            Ok(expanded)
        }
        Err(source) => Err(ServerError::Variable { field, source }),
    };
    let package = match &server.package {
        None => None,
        Some(spec) => Some(installed(parts, server, spec, locked)?),
    };
    let mut command: Vec<OsString> = Vec::new();
    let mut env: BTreeMap<String, OsString> = BTreeMap::new();
    if let Some((folder, package)) = &package {
        let placed = |text: &String| text.replace(PACKAGE_PLACEHOLDER, &folder.to_string_lossy());
        command.extend(package.entry.iter().map(|word| placed(word).into()));
        env.extend(
            package
                .env
                .iter()
                .map(|(name, text)| (name.clone(), placed(text).into())),
        );
    }
    for (field, words) in [("command", &server.command), ("args", &server.args)] {
        for word in words {
            command.push(expand(field.to_owned(), word)?.text.into());
        }
    }
    for (name, text) in needs::variables_of(server.preset) {
        env.insert((*name).to_owned(), (*text).into());
    }
    let mut secret_variables = BTreeMap::new();
    for (name, text) in &server.env {
        let expanded = expand(format!("env.{name}"), text)?;
        if let Some(secret) = expanded.secrets.first() {
            secret_variables.insert(name.clone(), secret.clone());
        }
        env.insert(name.clone(), expanded.text.into());
    }
    let mut all = scrubbed_env(parts.environment.variables(), &[]);
    if let Some((folder, package)) = &package {
        put_first_in_path(&mut all, folder, package);
    }
    all.retain(|(name, _)| name.to_str().is_none_or(|name| !env.contains_key(name)));
    all.extend(env.into_iter().map(|(name, value)| (name.into(), value)));
    let folder = package.map(|(folder, _)| folder);
    let homes = homes(parts, server);
    let needs = Arc::new(needs::needs(ground, server, folder)?);
    let cwd = match &server.cwd {
        Some(cwd) => Some(ground.outside("cwd", std::slice::from_ref(cwd))?.remove(0)),
        None => None,
    };
    let ms = |ms: Option<u64>| ms.map(Duration::from_millis);
    let has_home = needs::keeps_home(server.preset);
    if !has_home {
        all.retain(|(name, _)| name != "HOME");
    }
    let usual = UpstreamSettings::new(server.name.clone(), command, all, PathBuf::new());
    let settings = UpstreamSettings {
        cwd,
        secrets: secret_variables,
        limits: child_limits(&server.limits),
        home: has_home.then(|| Arc::new(homes)),
        share: match server.share {
            None | Some(ShareConfig::Session) => Share::Session,
            Some(ShareConfig::Caller) => Share::Caller,
            Some(ShareConfig::Workspace) => Share::Workspace,
        },
        calls_max: server.concurrency_max.unwrap_or(CONCURRENCY_DEFAULT),
        output_bytes_max: server.limits.output_bytes.unwrap_or(usual.output_bytes_max),
        start_timeout: ms(server.start_timeout_ms).unwrap_or(usual.start_timeout),
        idle_max: ms(server.idle_ms).unwrap_or(usual.idle_max),
        pins: Arc::new(locked.map_or_else(Pins::unpinned, pins_of)),
        ..usual
    };
    Ok((settings, needs))
}

/// Puts the folders of a package in front of `PATH`.
fn put_first_in_path(env: &mut [(OsString, OsString)], folder: &Path, package: &LockedPackage) {
    let folder = folder.to_string_lossy();
    let folders = package
        .path
        .iter()
        .map(|path| path.replace(PACKAGE_PLACEHOLDER, &folder));
    let first: Vec<String> = folders.collect();
    for (_, path) in env.iter_mut().filter(|(name, _)| name == "PATH") {
        let mut all = OsString::from(first.join(":"));
        if !first.is_empty() {
            all.push(":");
        }
        all.push(&*path);
        *path = all;
    }
}

/// The pins of a server's entry in the lock.
fn pins_of(locked: &LockedServer) -> Pins {
    let tools = locked.tools.iter().map(|tool| &tool.definition);
    let prompts = locked.prompts.iter().map(|prompt| &prompt.definition);
    Pins::new(tools, locked.instructions.as_deref()).with_prompts(prompts)
}

/// The folder of a server's package, which must be the one that is configured.
fn installed<'a>(
    parts: &Parts,
    server: &ServerConfig,
    spec: &str,
    locked: Option<&'a LockedServer>,
) -> Result<(PathBuf, &'a LockedPackage), ServerError> {
    let package = locked.and_then(|locked| locked.package.as_ref());
    let package = package.filter(|package| package.spec == spec);
    let folder = package.map(|package| package_folder(parts, &server.name, package));
    match (package, folder.filter(|folder| folder.is_dir())) {
        (Some(package), Some(folder)) => Ok((folder, package)),
        _ => Err(ServerError::NotInstalled(server.name.clone())),
    }
}

/// The homes of a server's processes.
fn homes(parts: &Parts, server: &ServerConfig) -> Homes {
    Homes {
        root: callgate_sandbox::real(&parts.paths.state)
            .join("servers")
            .join(&server.name)
            .join("homes"),
        owner: None,
        bytes_max: HOME_BYTES_MAX,
        furnishings: Vec::new(),
    }
}

/// Returns whether a configuration file of this folder may hold servers.
pub fn has_file(folder: &Path) -> bool {
    folder.join(CONFIG_FILE).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings that cannot be kept are errors of that server.
    #[test]
    fn checked() {
        for (says, words) in [
            ("command = [\"x\"]", None),
            ("package = \"npm:x@1.0.0\"", None),
            ("", Some("`command` or `package`")),
            (
                "command = [\"x\"]\npackage = \"npm:x@1.0.0\"",
                Some("one of them"),
            ),
            ("command = [\"x\"]\nconcurrency_max = 0", Some("at least 1")),
            (
                "command = [\"x\"]\nstart = \"eager\"",
                Some("not known yet"),
            ),
            (
                "command = [\"x\"]\nprefix = \"a/b\"",
                Some("letters, digits"),
            ),
        ] {
            let text = format!("[[server]]\nname = \"s\"\n{says}\n");
            let config = crate::config::parse(&text).unwrap();
            let error = check(&config.servers[0], &config).err();
            let said = error.map(|error| error.to_string());
            match words {
                None => assert_eq!(said, None, "{says}"),
                Some(words) => assert!(said.unwrap().contains(words), "{says}"),
            }
        }
    }

    #[test]
    fn names() {
        for name in ["a", "git-hub_2", "9x", &"x".repeat(32)] {
            assert!(is_server_name(name), "{name}");
        }
        for name in ["", "-a", "_a", "a/b", "a b", "ä", "a.b", &"x".repeat(33)] {
            assert!(!is_server_name(name), "{name}");
        }
    }
}
