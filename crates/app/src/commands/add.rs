//! `callgate add` and `callgate remove`: one MCP server more, or one less.

use std::path::Path;
use std::process::ExitCode;

use callgate_adoption::{look, packages, read_command};
use callgate_installer::PackageRequest;
use callgate_registry::config;
use callgate_registry::environment::Environment;
use callgate_registry::lock::LockedServer;
use callgate_registry::servers::accept::ServersChange;
use callgate_registry::servers::edit::NewServer;
use callgate_registry::servers::is_server_name;
use callgate_registry::servers::review::changes;
use callgate_registry::setup::Parts;
use clap::Args;

use super::servers::place::Whose;
use super::servers::review;
use crate::ask::confirm;
use crate::cli::{Done, Place, runtime};
use crate::error::CommandError;
use crate::show;

/// Put an MCP server behind the gate.
///
/// The server is installed if it is a package, started once to see what it defines, and served once
/// you agree to that.
#[derive(Args)]
pub struct Add {
    #[command(flatten)]
    whose: Whose,
    /// The prefix of its tools
    name: String,
    /// Its command, such as `npx -y @scope/server@1.2.3 ARG`, `uvx server` or `/opt/server --flag`;
    /// or a package, such as npm:@scope/server@1.2.3 or pypi:server==1.2.3, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// A variable; the value may refer to ${VAR} and ${secret:NAME}
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// What it gets: base, pure, files, git, web, service, browser or off
    #[arg(long, value_name = "PRESET")]
    preset: Option<Preset>,
    /// A host that it may reach, such as api.example.com:443
    #[arg(long, value_name = "HOST:PORT")]
    host: Vec<String>,
    /// A path that it may read
    #[arg(long, value_name = "PATH")]
    reads: Vec<String>,
    /// A path that it may write
    #[arg(long, value_name = "PATH")]
    writes: Vec<String>,
    /// Agree without being asked
    #[arg(long)]
    yes: bool,
}

/// The presets, as the configuration spells them.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Preset {
    /// A home of its own, no network
    Base,
    /// No home that is kept, no child processes
    Pure,
    /// For servers that work on the files of --reads and --writes
    Files,
    /// The same, and git
    Git,
    /// HTTP to the hosts of --host
    Web,
    /// TCP to databases
    Service,
    /// What a headless browser needs
    Browser,
    /// Not confined
    Off,
}

impl Preset {
    fn as_str(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Pure => "pure",
            Self::Files => "files",
            Self::Git => "git",
            Self::Web => "web",
            Self::Service => "service",
            Self::Browser => "browser",
            Self::Off => "off",
        }
    }
}

/// Take an MCP server away from the gate.
#[derive(Args)]
pub struct Remove {
    #[command(flatten)]
    whose: Whose,
    /// Its name
    name: String,
    /// Agree without being asked
    #[arg(long)]
    yes: bool,
}

pub fn run(environment: &Environment, place: &Place, add: &Add) -> Done {
    let place = add.whose.place(environment, place)?;
    if !is_server_name(&add.name) {
        return Err(CommandError::ServerName(add.name.clone()).into());
    }
    let parts = super::open(environment, &place)?;
    let mut change = ServersChange::begin(&parts)?;
    let (mut server, request) = read_command(&add.name, &add.command)?;
    for pair in &add.env {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| CommandError::EnvPair(pair.clone()))?;
        server.env.insert(name.to_owned(), value.to_owned());
    }
    server.preset = add.preset.map(Preset::as_str);
    server.hosts.clone_from(&add.host);
    let absolute = |path: &String| absolute(environment, path);
    server.reads = add.reads.iter().map(absolute).collect();
    server.writes = add.writes.iter().map(absolute).collect();
    let runtime = runtime()?;
    let listed = runtime.block_on(install_and_list(&parts, &mut change, server, request))?;
    review::show(&add.name, &listed, &changes(None, &listed), place.json);
    let question = format!("Serve `{}` and pin these definitions?", add.name);
    if !confirm(&question, add.yes)? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    change.lock.put(listed);
    change.accept(&parts)?;
    show::say("added; a running gate follows within a second or two");
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

/// Installs the package of a server, if it has one, adds the server to the text of the
/// configuration, and starts it once to list what it defines.
pub async fn install_and_list(
    parts: &Parts,
    change: &mut ServersChange,
    mut server: NewServer,
    request: Option<PackageRequest>,
) -> Result<LockedServer, CommandError> {
    let mut package = None;
    if let Some(request) = &request {
        let installed = packages::install(parts, &server.name, request, &show::progress()).await?;
        server.package = Some(installed.spec.clone());
        package = Some(installed);
    }
    change.config.add(&server)?;
    show::data(&server.text());
    let config = config::parse(&change.config.text())?;
    let added = config.servers.iter().find(|one| one.name == server.name);
    let added = added
        .ok_or_else(|| CommandError::NoServer(server.name.clone()))?
        .clone();
    let pinned = LockedServer {
        name: server.name.clone(),
        package,
        ..LockedServer::default()
    };
    Ok(look(parts, &config, &added, Some(&pinned)).await?)
}

/// A path of the command line, which means the folder here.
fn absolute(environment: &Environment, path: &str) -> String {
    if path.starts_with('~') || Path::new(path).is_absolute() {
        return path.to_owned();
    }
    environment
        .current_dir
        .join(path)
        .to_string_lossy()
        .into_owned()
}

pub fn remove(environment: &Environment, place: &Place, remove: &Remove) -> Done {
    let place = remove.whose.place(environment, place)?;
    let parts = super::open(environment, &place)?;
    let mut change = ServersChange::begin(&parts)?;
    change.config.remove(&remove.name)?;
    if !confirm(&format!("Remove the server `{}`?", remove.name), remove.yes)? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    change.accept(&parts)?;
    show::say("removed; its package and its home stay in the state");
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}
