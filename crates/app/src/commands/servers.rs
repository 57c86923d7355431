//! `callgate servers`: the MCP servers behind the gate, what they may do, and the owner's word on
//! what they define.

mod live;
pub mod place;
pub mod review;
mod update;

use std::process::ExitCode;
use std::sync::Arc;

use callgate_adoption::packages::install_all_locked;
use callgate_call::{visible, visible_lines};
use callgate_registry::config::{NetworkConfig, ServerConfig};
use callgate_registry::environment::Environment;
use callgate_registry::lock::LockedServer;
use callgate_registry::servers::accept::ServersChange;
use callgate_registry::servers::review::changes;
use callgate_registry::servers::tools::is_offered;
use callgate_registry::setup::Parts;
use callgate_runners::Allowed;
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};

use crate::ask::confirm;
use crate::cli::{Done, Place, runtime};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// List the MCP servers behind the gate, look at what they define, allow them more.
///
/// Of the configuration here, where there is one, else of your own, which serves your MCP clients.
#[derive(Args)]
pub struct Servers {
    #[command(flatten)]
    whose: place::Whose,
    #[command(subcommand)]
    command: Option<ServersCommand>,
}

#[derive(Subcommand)]
enum ServersCommand {
    /// Show a server: its settings, its tools, what is wrong with it
    Show {
        /// Its name
        name: String,
    },
    /// Start a server once, show what it defines that was not seen before, and pin that
    Trust {
        /// Its name; all servers without one
        name: Option<String>,
        /// Only show the difference
        #[arg(long)]
        show: bool,
        /// Agree without being asked
        #[arg(long, conflicts_with = "show")]
        yes: bool,
    },
    /// Install the packages of servers as callgate.lock has them, where they are not installed
    Install {
        /// Its name; all servers without one
        name: Option<String>,
    },
    /// Install a newer version of a server, show what it defines otherwise, and change to it
    Update {
        /// Its name
        name: String,
        /// The version; the newest without one
        #[arg(value_name = "VERSION")]
        to: Option<String>,
        /// Agree without being asked
        #[arg(long)]
        yes: bool,
    },
    /// Change back to the version of a server that was installed before
    Rollback {
        /// Its name
        name: String,
        /// Agree without being asked
        #[arg(long)]
        yes: bool,
    },
    /// Show what a server printed last to its standard error
    Log {
        /// Its name
        name: String,
    },
    /// Stop the processes of a server; the next call starts it, whatever happened before
    #[command(alias = "stop")]
    Restart {
        /// Its name
        name: String,
    },
    /// Allow a server to reach a host
    Allow {
        /// Its name
        name: String,
        /// The host and port, such as api.example.com:443
        host: String,
        /// Agree without being asked
        #[arg(long)]
        yes: bool,
    },
}

pub fn run(environment: &Environment, place: &Place, servers: &Servers) -> Done {
    let place = servers.whose.place(environment, place)?;
    match &servers.command {
        None => list(environment, &place),
        Some(ServersCommand::Show { name }) => show_one(environment, &place, name),
        Some(ServersCommand::Trust { name, show, yes }) => {
            trust(environment, &place, name.as_deref(), *show, *yes)
        }
        Some(ServersCommand::Log { name }) => {
            let path = format!("/v1/servers/{name}/log");
            let body = live::ask(environment, &place, Method::GET, &path)?;
            let log = body["log"].as_str().unwrap_or_default();
            match place.json {
                true => show::json(&body),
                false if log.is_empty() => show::say("it has printed nothing"),
                false => show::data(&visible_lines(log)),
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(ServersCommand::Restart { name }) => {
            let path = format!("/v1/servers/{name}/stop");
            live::ask(environment, &place, Method::POST, &path)?;
            show::say("stopped; the next call starts it");
            Ok(ExitCode::SUCCESS)
        }
        Some(ServersCommand::Install { name }) => install(environment, &place, name.as_deref()),
        Some(ServersCommand::Update { name, to, yes }) => {
            update::update(environment, &place, (name, to.as_deref()), *yes)
        }
        Some(ServersCommand::Rollback { name, yes }) => {
            update::rollback(environment, &place, name, *yes)
        }
        Some(ServersCommand::Allow { name, host, yes }) => {
            allow(environment, &place, name, host, *yes)
        }
    }
}

/// The servers of the configuration in force, each with its entry in the lock.
fn configured(parts: &Parts) -> Result<Vec<(ServerConfig, Option<LockedServer>)>, CommandError> {
    let config = parts.in_force()?.into_config();
    let lock = config.lock.read()?;
    let servers = config.servers.into_iter();
    let with_lock = servers.map(|server| {
        let locked = lock.get(&server.name).cloned();
        (server, locked)
    });
    Ok(with_lock.collect())
}

fn list(environment: &Environment, place: &Place) -> Done {
    let parts = super::open(&environment.of_no_tool(), place)?;
    let servers = configured(&parts)?;
    let setup = parts.setup()?;
    let running = live::servers(environment, place)?;
    let problem = |name: &str| {
        let begins = format!("server `{name}`: ");
        setup
            .problems
            .iter()
            .find_map(|words| words.strip_prefix(&begins))
    };
    if place.json {
        let rows = servers.iter().map(|(server, locked)| {
            let mut row = json_of(server, locked.as_ref());
            row["problem"] = problem(&server.name).into();
            row["running"] = running.get(&server.name).cloned().unwrap_or_default();
            row
        });
        show::json(&json!({ "servers": rows.collect::<Vec<Value>>() }));
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|(server, locked)| {
            let state = match (server.disabled, problem(&server.name)) {
                (true, _) => "disabled".to_owned(),
                (false, Some(problem)) => format!("not served: {problem}"),
                (false, None) => live::words(running.get(&server.name)),
            };
            vec![
                server.name.clone(),
                tool_count(server, locked.as_ref()).to_string(),
                server.preset.as_str().to_owned(),
                network_words(server),
                program_words(server),
                state,
            ]
        })
        .collect();
    let head = ["NAME", "TOOLS", "PRESET", "NETWORK", "RUNS", "STATE"];
    let empty = "no MCP servers: `callgate import` takes those of your clients, `callgate add` one";
    show::table_or(&head, &rows, empty);
    show::say(&setup.note);
    Ok(ExitCode::SUCCESS)
}

fn tool_count(server: &ServerConfig, locked: Option<&LockedServer>) -> usize {
    let tools = locked.into_iter().flat_map(|locked| &locked.tools);
    tools.filter(|tool| is_offered(server, &tool.name)).count()
}

fn network_words(server: &ServerConfig) -> String {
    let hosts = match &server.network {
        Some(NetworkConfig::All(true)) => "any".to_owned(),
        Some(NetworkConfig::Some(hosts)) => hosts.allow.join(" "),
        None | Some(NetworkConfig::All(false)) => String::new(),
    };
    let forwards = server.forward.values().map(String::as_str);
    let all: Vec<&str> = [hosts.as_str()].into_iter().chain(forwards).collect();
    let words = all.join(" ");
    match words.trim() {
        "" => "none".to_owned(),
        words => words.to_owned(),
    }
}

fn program_words(server: &ServerConfig) -> String {
    let first = server.package.iter().chain(&server.command);
    let words: Vec<&str> = first.chain(&server.args).map(String::as_str).collect();
    words.join(" ")
}

fn json_of(server: &ServerConfig, locked: Option<&LockedServer>) -> Value {
    let tools = locked.into_iter().flat_map(|locked| &locked.tools);
    let tools = tools.filter(|tool| is_offered(server, &tool.name));
    json!({
        "name": server.name,
        "package": server.package,
        "command": server.command,
        "args": server.args,
        "preset": server.preset.as_str(),
        "network": network_words(server),
        "reads": server.reads,
        "writes": server.writes,
        "disabled": server.disabled,
        "program": locked.map(|locked| &locked.program),
        "protocol": locked.map(|locked| &locked.protocol),
        "tools": tools.map(|tool| &tool.name).collect::<Vec<_>>(),
    })
}

fn show_one(environment: &Environment, place: &Place, name: &str) -> Done {
    let parts = super::open(&environment.of_no_tool(), place)?;
    let (server, locked) = find(&parts, name)?;
    let setup = parts.setup()?;
    let begins = format!("server `{name}`: ");
    let problem = setup
        .problems
        .iter()
        .find_map(|words| words.strip_prefix(&begins));
    let mut body = json_of(&server, locked.as_ref());
    body["problem"] = problem.into();
    if place.json {
        show::json(&body);
        return Ok(ExitCode::SUCCESS);
    }
    let line = |name: &str, words: &str| show::data(&format!("{name:<10} {}\n", visible(words)));
    line("runs", &program_words(&server));
    line("preset", server.preset.as_str());
    line("network", &network_words(&server));
    for (name, list) in [("reads", &server.reads), ("writes", &server.writes)] {
        if !list.is_empty() {
            line(name, &list.join(" "));
        }
    }
    if let Some(locked) = &locked {
        line(
            "is",
            &format!("{}, MCP {}", locked.program, locked.protocol),
        );
    }
    if let Some(problem) = problem {
        line("problem", problem);
    }
    let tools = setup.catalog.tools();
    let tools = tools.filter(|tool| tool.of_server.as_ref().is_some_and(|of| of.server == name));
    let tools = tools.filter(|tool| !tool.is_internal);
    let rows: Vec<Vec<String>> = tools
        .map(|tool| {
            let first = tool.description.lines().next().unwrap_or_default();
            vec![
                tool.name.clone(),
                tool.tier.number().to_string(),
                first.to_owned(),
            ]
        })
        .collect();
    show::table_or(
        &["TOOL", "TIER", "DESCRIPTION"],
        &rows,
        "it offers no tools",
    );
    Ok(ExitCode::SUCCESS)
}

fn find(parts: &Parts, name: &str) -> Result<(ServerConfig, Option<LockedServer>), CommandError> {
    let servers = configured(parts)?;
    let known = servers.iter().map(|(server, _)| server.name.as_str());
    let near = callgate_registry::suggest::question(name, known);
    let found = servers.into_iter().find(|(server, _)| server.name == name);
    found.ok_or_else(|| CommandError::NoServer(format!("`{name}`{near}")))
}

fn trust(
    environment: &Environment,
    place: &Place,
    name: Option<&str>,
    show_only: bool,
    yes: bool,
) -> Done {
    let parts = Arc::new(super::open(environment, place)?);
    let mut change = ServersChange::begin(&parts)?;
    let config = parts.in_force()?.into_config();
    let wanted: Vec<ServerConfig> = match name {
        Some(name) => vec![find(&parts, name)?.0],
        None => configured(&parts)?
            .into_iter()
            .map(|(server, _)| server)
            .filter(|server| !server.disabled)
            .collect(),
    };
    let runtime = runtime()?;
    let mut news = 0;
    for server in wanted {
        let pinned = change.lock.get(&server.name).cloned();
        let listed = runtime.block_on(callgate_adoption::look(
            &parts,
            &config,
            &server,
            pinned.as_ref(),
        ))?;
        let differences = changes(pinned.as_ref(), &listed);
        review::show(&server.name, &listed, &differences, place.json);
        news += differences.len();
        change.lock.put(listed);
    }
    if show_only {
        return Ok(ExitCode::SUCCESS);
    }
    let question = match news {
        0 => None,
        1 => Some("Pin this definition?".to_owned()),
        more => Some(format!("Pin these {more} definitions?")),
    };
    if let Some(question) = question
        && !confirm(&question, yes)?
    {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    change.accept(&parts)?;
    show::say("pinned; a running gate follows within a second or two");
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn install(environment: &Environment, place: &Place, name: Option<&str>) -> Done {
    let parts = Arc::new(super::open(environment, place)?);
    let servers = match name {
        Some(name) => vec![find(&parts, name)?],
        None => configured(&parts)?,
    };
    let locked = servers.into_iter().filter_map(|(server, locked)| {
        let package = locked?.package?;
        Some((server, package))
    });
    let progress = show::progress();
    let installed = install_all_locked(&parts, locked.collect(), &progress);
    let mut failed = None;
    for (package, installed) in runtime()?.block_on(installed) {
        match installed {
            Ok(true) => show::say(&format!("{package} installed")),
            Ok(false) => show::say(&format!("{package} is installed already")),
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    show::warn(&chain(&earlier));
                }
            }
        }
    }
    if let Some(error) = failed {
        return Err(error.into());
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

fn allow(environment: &Environment, place: &Place, name: &str, host: &str, yes: bool) -> Done {
    Allowed::parse(&[host.to_owned()]).map_err(CommandError::Host)?;
    let parts = super::open(environment, place)?;
    find(&parts, name)?;
    let mut change = ServersChange::begin(&parts)?;
    if !change
        .config
        .allow_host(name, host)
        .map_err(CommandError::from)?
    {
        show::say(&format!("{name} may reach {host} already"));
        return Ok(ExitCode::SUCCESS);
    }
    if !confirm(
        &format!("Allow {} to reach {}?", visible(name), visible(host)),
        yes,
    )? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    change.accept(&parts)?;
    show::say(&format!(
        "{name} may reach {host}; a running gate follows within a second or two"
    ));
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}
