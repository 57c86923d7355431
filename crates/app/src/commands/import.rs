//! `callgate import` and `callgate restore`: the MCP servers of the user's clients, taken behind the
//! user's gate, and the clients' settings given back byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use callgate_adoption::{Plan, Planned, Prepared, Skipped, prepare_all};
use callgate_call::visible_lines;
use callgate_importer::{
    ClientFile, Edit, Home, OwnEntry, RestoreError, RunId, Selection, Severity, apply,
    client_names, find, find_in_project, plan_beside, plan_replace, read, restore, runs,
};
use callgate_registry::config::{self, ServerConfig};
use callgate_registry::environment::Environment;
use callgate_registry::lock::LockedServer;
use callgate_registry::servers::accept::ServersChange;
use callgate_registry::servers::review::changes;
use callgate_registry::setup::Parts;
use callgate_store::OwnerSecrets;
use clap::Args;
use serde_json::json;

use super::servers::review;
use super::user_gate;
use crate::ask::confirm;
use crate::cli::{Done, Place, runtime};
use crate::compose::chain;
use crate::error::CommandError;
use crate::show;

/// The folder of backups, in the state.
const BACKUPS: &str = "imports";

/// The name of our entry in a client's settings.
const ENTRY_NAME: &str = "callgate";

/// Take the MCP servers of your clients behind the gate.
///
/// Looks for the settings of your MCP clients, shows what would become of each server, installs
/// their packages, starts each once to see what it defines, and serves them once you agree. With
/// --replace each client keeps one entry, which is the gate; `callgate restore` gives the settings
/// back byte for byte.
#[derive(Args)]
pub struct Import {
    /// Only from this client, such as claude-code (may be given several times)
    #[arg(long, value_name = "CLIENT")]
    from: Vec<String>,
    /// The servers of a project's files (.mcp.json, .vscode/mcp.json), for the project's own gate
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace the imported servers in the client's settings by one entry for the gate
    #[arg(long, conflicts_with = "beside")]
    replace: bool,
    /// Put the entry for the gate beside the client's own servers
    #[arg(long)]
    beside: bool,
    /// Ask before tools that say they destroy something
    #[arg(long)]
    ask_destructive: bool,
    /// Agree to everything without being asked
    #[arg(long, conflicts_with = "dry_run")]
    yes: bool,
}

/// Give the settings of your clients back as they were before an import.
#[derive(Args)]
pub struct Restore {
    /// The number of the import; the newest without one
    run: Option<RunId>,
    /// An import of this project's files (see `callgate import --project`)
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// List the imports that can be taken back
    #[arg(long, conflicts_with_all = ["run", "force", "forget"])]
    list: bool,
    /// Give the settings back although they were changed since
    #[arg(long)]
    force: bool,
    /// Remove the backups of the import, which hold the secrets of the settings
    #[arg(long, conflicts_with = "force")]
    forget: bool,
}

/// A settings file with its servers.
struct Found {
    file: ClientFile,
    settings: callgate_importer::Settings,
}

pub fn run(environment: &Environment, place: &Place, import: &Import) -> Done {
    let place = place_of(environment, place, import.project.as_deref())?;
    check_clients(&import.from)?;
    let found = look(environment, import)?;
    let parts = Arc::new(super::open(environment, &place)?);
    let mut change = ServersChange::begin(&parts)?;
    let secrets = OwnerSecrets::of_state(&parts.paths.state);
    let present = present_servers(&mut change)?;
    let mut plan =
        callgate_adoption::plan(found.iter().map(|one| (&one.file, &one.settings)), &present);
    show_plan(&plan, &found, place.json);
    if plan.planned.is_empty() {
        show::say("there is nothing to import");
        return Ok(ExitCode::SUCCESS);
    }
    if import.dry_run {
        let way = wanted_way(import)?.unwrap_or(Way::Replace);
        let edits = edits(environment, &place, &found, &plan.planned, way)?;
        edits
            .iter()
            .for_each(|edit| show::data(&visible_lines(&edit.diff())));
        return Ok(ExitCode::SUCCESS);
    }
    if !confirm(
        "Install and start these servers once, confined, to see what they define?",
        import.yes,
    )? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    for (name, value) in plan.planned.iter().flat_map(|planned| &planned.secrets) {
        secrets.set(name, value.reveal())?;
    }
    let listed = install_all(&parts, &mut change, &plan.planned)?;
    set_clients(&mut change, &plan.planned)?;
    // A server that does not work behind the gate stays in its client.
    plan.planned.retain(|planned| {
        let name = &planned.server.name;
        let is_pinned = |server: &LockedServer| !server.protocol.is_empty();
        let is_served = listed.contains_key(name) || change.lock.get(name).is_some_and(is_pinned);
        planned.server.disabled || is_served
    });
    let count: usize = listed.values().map(|server| server.tools.len()).sum();
    for server in listed.values() {
        review::show(&server.name, server, &changes(None, server), place.json);
    }
    let question = format!(
        "Serve {} servers and pin their {count} tools?",
        plan.planned.len()
    );
    if !confirm(&question, import.yes)? {
        show::say("nothing was changed");
        return Ok(ExitCode::FAILURE);
    }
    listed
        .into_values()
        .for_each(|server| change.lock.put(server));
    if import.ask_destructive {
        change.config.ask_before_destructive(&change.lock)?;
    }
    change.accept(&parts)?;
    let way = match wanted_way(import)? {
        Some(way) => Some(way),
        None if confirm(
            "Replace them in your clients by one entry for the gate?",
            import.yes,
        )? =>
        {
            Some(Way::Replace)
        }
        None => None,
    };
    if let Some(way) = way {
        let edits = edits(environment, &place, &found, &plan.planned, way)?;
        if edits.is_empty() {
            super::close(&parts);
            return Ok(ExitCode::SUCCESS);
        }
        let backups = parts.paths.state.join(BACKUPS);
        let run = apply(&edits, &backups, &parts.clock.now().rfc3339())?;
        for edit in &edits {
            show::say(&format!("changed {}", edit.path.display()));
        }
        // The numbers of a project's imports are not those of the user's.
        let whose = match &import.project {
            Some(_) => format!(" --project {}", parts.paths.workspace.display()),
            None => String::new(),
        };
        show::say(&format!(
            "restart your clients; `callgate restore {run}{whose}` gives their settings back. The \
             backups hold the secrets that were in them: `callgate restore {run}{whose} --forget` \
             removes them"
        ));
    }
    super::close(&parts);
    Ok(ExitCode::SUCCESS)
}

/// The place whose gate serves what is imported: that of a project, or the user's own.
fn place_of(
    environment: &Environment,
    place: &Place,
    project: Option<&Path>,
) -> Result<Place, CommandError> {
    match project {
        Some(project) => Ok(Place {
            workspace: project.to_owned(),
            ..place.clone()
        }),
        None => user_gate::place(environment, place),
    }
}

/// What becomes of a client's settings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Replace,
    Beside,
}

fn wanted_way(import: &Import) -> Result<Option<Way>, CommandError> {
    Ok(match (import.replace, import.beside) {
        (true, _) => Some(Way::Replace),
        (_, true) => Some(Way::Beside),
        _ => None,
    })
}

fn check_clients(names: &[String]) -> Result<(), CommandError> {
    let known = client_names();
    let unknown = names
        .iter()
        .find(|name| known.iter().all(|client| client.id != **name));
    match unknown {
        None => Ok(()),
        Some(name) => {
            let near = callgate_registry::suggest::question(name, known.iter().map(|one| one.id));
            let all: Vec<&str> = known.iter().map(|client| client.id).collect();
            Err(CommandError::UnknownClient(format!(
                "`{name}`{near}; known: {}",
                all.join(", ")
            )))
        }
    }
}

fn home(environment: &Environment) -> Result<Home, CommandError> {
    let home = environment.folder("HOME").map(Path::to_owned);
    let home = home
        .or_else(|| environment.user_home())
        .ok_or(CommandError::NoHome)?;
    let config = environment.folder("XDG_CONFIG_HOME").map(Path::to_owned);
    Ok(Home {
        config: config.unwrap_or_else(|| home.join(".config")),
        claude_config_dir: environment.folder("CLAUDE_CONFIG_DIR").map(Path::to_owned),
        home,
    })
}

/// The settings files that hold servers. One that cannot be read costs no other.
fn look(environment: &Environment, import: &Import) -> Result<Vec<Found>, CommandError> {
    let home = home(environment)?;
    let files = match &import.project {
        Some(project) => find_in_project(&home, &environment.current_dir.join(project)),
        None => find(&home),
    };
    let is_wanted = |file: &ClientFile| {
        import.from.is_empty() || import.from.iter().any(|name| name == file.client)
    };
    let mut found = Vec::new();
    for file in files.into_iter().filter(is_wanted) {
        match read(&file) {
            Ok(settings) => found.push(Found { file, settings }),
            Err(error) => show::warn(&format!("{}: {}", file.client_name, chain(&error))),
        }
    }
    Ok(found)
}

/// The servers that are configured already.
fn present_servers(change: &mut ServersChange) -> Result<Vec<ServerConfig>, CommandError> {
    Ok(config::parse(&change.config.text())?.servers)
}

fn show_plan(plan: &Plan, found: &[Found], as_json: bool) {
    if as_json {
        let rows = plan.planned.iter().map(|planned| {
            json!({
                "name": planned.server.name, "clients": planned.clients,
                "runs": planned.runs, "preset": planned.server.preset.unwrap_or("base"),
                "why": planned.why,
                "secrets": planned.secrets.iter().map(|(name, _)| name).collect::<Vec<_>>(),
                "is_new": planned.is_new,
            })
        });
        let left = plan.skipped.iter().map(
            |skipped| json!({ "client": skipped.client, "name": skipped.name, "why": skipped.why }),
        );
        show::json(&json!({
            "servers": rows.collect::<Vec<_>>(), "left": left.collect::<Vec<_>>(),
            "not_carried": plan.remarks,
        }));
        return;
    }
    let rows: Vec<Vec<String>> = plan
        .planned
        .iter()
        .map(|planned| {
            let names: Vec<&str> = planned.secrets.iter().map(|(name, _)| &**name).collect();
            vec![
                planned.server.name.clone(),
                planned
                    .clients
                    .iter()
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(" "),
                planned.runs.clone(),
                planned.server.preset.unwrap_or("base").to_owned(),
                planned.why.to_owned(),
                names.join(" "),
            ]
        })
        .collect();
    let head = [
        "SERVER",
        "FROM",
        "WILL RUN",
        "PRESET",
        "BECAUSE",
        "SECRETS KEPT AS",
    ];
    show::table_or(&head, &rows, "no servers that can be imported");
    for Skipped { client, name, why } in &plan.skipped {
        show::warn(&format!("{client}: `{name}` stays where it is: {why}"));
    }
    for remark in &plan.remarks {
        show::warn(remark);
    }
    for Found { file, settings } in found {
        for problem in &settings.problems {
            let words = format!(
                "{}: {}: {}",
                file.client_name, problem.pointer, problem.text
            );
            match problem.severity {
                Severity::Error => show::warn(&words),
                Severity::Note => show::say(&words),
            }
        }
    }
}

/// Installs all packages and lists all servers. One that does not start is configured all the same
/// and not served: its owner sees why.
fn install_all(
    parts: &Arc<Parts>,
    change: &mut ServersChange,
    planned: &[Planned],
) -> Result<BTreeMap<String, LockedServer>, CommandError> {
    let Prepared {
        listed,
        unlisted,
        problems,
    } = runtime()?.block_on(prepare_all(parts, change, planned, &show::progress()))?;
    problems.iter().for_each(|problem| show::warn(problem));
    unlisted
        .into_iter()
        .for_each(|entry| change.lock.put(entry));
    Ok(listed)
}

/// Writes which servers each client sees. Servers of an earlier import stay: they are no longer in
/// the client's settings.
fn set_clients(change: &mut ServersChange, planned: &[Planned]) -> Result<(), CommandError> {
    let mut clients: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for planned in planned {
        for client in &planned.clients {
            clients
                .entry(client)
                .or_default()
                .push(planned.server.name.clone());
        }
    }
    let present = config::parse(&change.config.text())?.clients;
    for (client, imported) in clients {
        let known = present.iter().find(|known| known.name == client);
        let mut servers = known.map_or_else(Vec::new, |known| known.servers.clone());
        let deny = known.map_or_else(Vec::new, |known| known.deny.clone());
        servers.extend(imported);
        let mut seen = BTreeSet::new();
        servers.retain(|server| seen.insert(server.clone()));
        change.config.set_client(client, &servers, &deny)?;
    }
    Ok(())
}

/// The edits of the clients' settings.
fn edits(
    environment: &Environment,
    place: &Place,
    found: &[Found],
    planned: &[Planned],
    way: Way,
) -> Result<Vec<Edit>, CommandError> {
    let mut edits = Vec::new();
    for Found { file, settings } in found {
        let pointers: BTreeSet<String> = planned
            .iter()
            .flat_map(|planned| &planned.sources)
            .filter(|(path, _)| *path == file.path)
            .map(|(_, pointer)| pointer.clone())
            .collect();
        if pointers.is_empty() {
            continue;
        }
        let entry = own_entry(environment, place, file.client)?;
        let edit = match way {
            Way::Replace => plan_replace(file, settings, &Selection::Only(pointers), &entry)?,
            Way::Beside => plan_beside(file, settings, &entry)?,
        };
        edits.push(edit);
    }
    Ok(edits)
}

/// Our entry in the settings of a client. It names whatever a client would not hand on in its
/// environment.
fn own_entry(
    environment: &Environment,
    place: &Place,
    client: &str,
) -> Result<OwnEntry, CommandError> {
    let program = std::fs::read_link(&environment.program)
        .map_err(CommandError::system("find this program"))?;
    let text = |path: &Path| match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(CommandError::NotUtf8(path.to_owned())),
    };
    let paths = place.paths(environment)?;
    let mut args = vec!["mcp".to_owned(), "--client".to_owned(), client.to_owned()];
    let usual = environment
        .user_home()
        .map(|home| home.join(".config/callgate"));
    if usual.is_none_or(|usual| usual != paths.workspace) {
        args.extend(["--workspace".to_owned(), text(&paths.workspace)?]);
    }
    if !paths.is_default_state(environment) {
        args.extend(["--state".to_owned(), text(&paths.state)?]);
    }
    if place.socket.is_some() {
        args.extend(["--socket".to_owned(), text(&paths.socket)?]);
    }
    Ok(OwnEntry {
        name: ENTRY_NAME.to_owned(),
        command: text(&program)?,
        args,
    })
}

pub fn run_restore(environment: &Environment, place: &Place, args: &Restore) -> Done {
    let place = place_of(environment, place, args.project.as_deref())?;
    let backups = place.paths(environment)?.state.join(BACKUPS);
    let all = match backups.is_dir() {
        true => runs(&backups)?,
        false => Vec::new(),
    };
    if args.list {
        let rows: Vec<Vec<String>> = all
            .iter()
            .map(|run| {
                let files = run.files.iter().map(|file| file.path.display().to_string());
                let files: Vec<String> = files.collect();
                vec![run.id.to_string(), run.made_at.clone(), files.join(" ")]
            })
            .collect();
        show::table_or(
            &["IMPORT", "AT", "FILES"],
            &rows,
            "no imports can be taken back",
        );
        return Ok(ExitCode::SUCCESS);
    }
    let newest = all.last().map(|run| run.id);
    let run = args.run.or(newest).ok_or(CommandError::NoImport)?;
    if args.forget {
        callgate_importer::forget(run, &backups)?;
        show::say(&format!("the backups of import {run} are removed"));
        return Ok(ExitCode::SUCCESS);
    }
    match restore(run, &backups, args.force) {
        Ok(restored) => {
            for file in restored {
                show::say(&format!("restored {}", file.path.display()));
            }
            show::say(
                "the servers stay behind the gate too: `callgate remove NAME` takes one away",
            );
            Ok(ExitCode::SUCCESS)
        }
        Err(RestoreError::Changed { run, conflicts }) => {
            for conflict in &conflicts {
                show::say(&format!(
                    "{}\nchanged by the import:",
                    conflict.path.display()
                ));
                show::data(&visible_lines(&conflict.by_run));
                show::say("changed since:");
                show::data(&visible_lines(&conflict.since));
            }
            Err(CommandError::RestoreChanged(run).into())
        }
        Err(error) => Err(CommandError::from(error).into()),
    }
}
